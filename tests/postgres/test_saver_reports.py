"""What users report of checkpointers, on Postgres."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from memstore import NotEncrypted
from memstore.steps import Statement
from tests.conformance.saver_callers import OpenSaver, to_config
from tests.conformance.saver_reports import LoopReports, SharedReports, StatementReports
from tests.conformance.saver_trust import Dump, FidelityReports, Forge, ForgeryReports, SerializerReports, encrypting
from tests.conformance.saver_upkeep import (
    CopyReports,
    CountRows,
    PruningReports,
    RetentionReports,
    ThreadListReports,
    TransactionReports,
)

TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")


@pytest.fixture
def holding(raw: psycopg.Connection[Any]) -> Callable[[], AbstractContextManager[None]]:
    """Hold a transaction of another connection open that lets nobody write."""

    @contextmanager
    def held() -> Iterator[None]:
        with raw.transaction():
            raw.execute("LOCK TABLE checkpoints IN EXCLUSIVE MODE")
            yield

    return held


@pytest.fixture
def ask(raw: psycopg.Connection[Any]) -> Callable[[Statement], list[Any]]:
    """Execute statements."""

    def asked(step: Statement) -> list[Any]:
        sql: Any = step.sql
        return psycopg.RawCursor(raw).execute(sql, step.params).fetchall()

    return asked


def read_all(raw: psycopg.Connection[Any], table: str) -> list[Any]:
    """Give the rows of a table as text."""
    sql: Any = f"SELECT t::text FROM {table} t"  # noqa: S608
    return [row[0] for row in raw.execute(sql).fetchall()]


@pytest.fixture
def count_rows(raw: psycopg.Connection[Any]) -> CountRows:
    """Count the rows of the three tables."""
    return lambda: {table: len(read_all(raw, table)) for table in TABLES}


@pytest.fixture
def dump(raw: psycopg.Connection[Any]) -> Dump:
    """Give every row, and every value as its bytes."""

    def dumped() -> str:
        values = raw.execute(
            "SELECT blob FROM checkpoint_blobs UNION ALL SELECT blob FROM checkpoint_writes"
        ).fetchall()
        rows = [row for table in TABLES for row in read_all(raw, table)]
        return "".join(rows + [bytes(value or b"").decode("latin-1") for (value,) in values])

    return dumped


@pytest.fixture
def forge_values(raw: psycopg.Connection[Any]) -> Forge:
    """Write over the values."""

    def forge(type: str, data: bytes) -> None:
        assert raw.execute("UPDATE checkpoint_blobs SET type = %s, blob = %s", [type, data]).rowcount == 1

    return forge


@pytest.fixture
def forge_writes(raw: psycopg.Connection[Any]) -> Forge:
    """Write over the writes."""

    def forge(type: str, data: bytes) -> None:
        assert raw.execute("UPDATE checkpoint_writes SET type = %s, blob = %s", [type, data]).rowcount == 2

    return forge


class TestLoops(LoopReports):
    """Locks, event loops and lifecycle."""


class TestStatements(StatementReports):
    """How many statements a call takes."""


class TestShared(SharedReports):
    """Several at once."""


class TestPruning(PruningReports):
    """Shortening and deleting."""


class TestCopies(CopyReports):
    """Copying."""


class TestRetention(RetentionReports):
    """Forgetting what is old."""


class TestThreadLists(ThreadListReports):
    """Listing threads."""


class TestTransactions(TransactionReports):
    """Data and threads changed together."""


class TestFidelity(FidelityReports):
    """What is put comes back."""


class TestSerializers(SerializerReports):
    """Serializers wherever a saver is made."""


class TestForgeries(ForgeryReports):
    """What somebody else wrote."""

    @pytest.mark.parametrize("value", ["admin", 1, None, True], ids=repr)
    def test_a_forged_plain_value_is_refused(
        self, open_saver: OpenSaver, raw: psycopg.Connection[Any], value: Any
    ) -> None:
        """One that stands in a checkpoint's JSON, where no encrypted value ever stands."""
        saver = self.open_encrypted(open_saver)
        raw.execute(
            "UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{channel_values,x}', %s)", [Jsonb(value)]
        )
        for id_ in ("1", "2"):
            with pytest.raises(NotEncrypted):
                saver.get_tuple(to_config("t", id_))
        with pytest.raises(NotEncrypted):
            saver.list(None)
        with pytest.raises(NotEncrypted):
            saver.saver.get_delta_channel_history(config=to_config("t", "2"), channels=["x"])
        lenient = open_saver(serde=encrypting())
        assert lenient.get(to_config("t", "2")).checkpoint["channel_values"] == {"x": value}
