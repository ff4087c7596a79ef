"""Rules 27 and 28 on Postgres across processes that share nothing but the schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.conformance.processes import ProcessesConformance


class TestProcesses(ProcessesConformance):
    """Processes that share nothing but the schema."""

    @pytest.fixture(autouse=True)
    def no_deadlocks(self, raw: psycopg.Connection[Any]) -> Iterator[None]:
        """Fail where the server had to end a transaction for another's sake."""
        counted = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        before = raw.execute(counted).fetchone()
        yield
        raw.execute("SELECT pg_stat_force_next_flush()")
        assert raw.execute(counted).fetchone() == before
