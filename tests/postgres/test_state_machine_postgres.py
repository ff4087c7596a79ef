"""A store on Postgres against a plain dict: the machine of `tests.test_state_machine`, in schemas of its own."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from typing import ClassVar

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from memstore import MemStore
from memstore.backends.postgres import PostgresBackend
from memstore.config import PoolSettings
from memstore.dialects.postgres_text import quote
from tests.postgres.server import fresh_schema
from tests.postgres.test_wide import build
from tests.test_state_machine import INDEX, StoreMachine


class PostgresMachine(StoreMachine):
    """In a schema of Postgres, opened again now and then."""

    on_disk = True  # so that it is opened again
    url: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.resources = ExitStack()
        self.schema = self.resources.enter_context(fresh_schema(self.url))

    def open(self, mode: str) -> None:
        """Open the store, new or again; texts that have no words get them where it ranks by any."""
        backend = PostgresBackend(self.url, self.schema, PoolSettings(max_size=2), self.clock)
        self.store = MemStore(backend, index=self.index | {"mode": mode})
        self.store.setup()
        self.mode, self.has_words = mode, self.has_words or mode != "semantic"

    def teardown(self) -> None:
        """Close the store; nothing of it stays."""
        self.store.close()
        self.resources.close()
        shutil.rmtree(self.folder)


class WidePostgresMachine(PostgresMachine):
    """The same with every scope wide, ranked by the indexes as soon as there is anything to index."""

    index = INDEX | {"exact_below": 0}

    def put(self, put: object) -> None:
        """Put an item, and have the indexes made when there is one."""
        super().put(put)
        build(self.store)


@pytest.mark.parametrize("machine", [PostgresMachine, WidePostgresMachine])
def test_it_answers_as_a_dict_would(url: str, machine: type[PostgresMachine]) -> None:
    """Whatever is done to it in whatever order."""
    machine.url = url
    run_state_machine_as_test(
        machine,
        settings=settings(
            deadline=None, max_examples=15, stateful_step_count=25, suppress_health_check=list(HealthCheck)
        ),
    )
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'test %'").fetchall()
        for (name,) in rows:
            connection.execute(f"DROP SCHEMA {quote(name)} CASCADE")
