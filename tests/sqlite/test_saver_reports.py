"""What users report of checkpointers, on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from memstore.steps import Statement
from tests.conformance.saver_callers import OpenSaver, Saving
from tests.conformance.saver_reports import LoopReports, SharedReports, StatementReports
from tests.conformance.saver_trust import Dump, FidelityReports, Forge, ForgeryReports, SerializerReports
from tests.conformance.saver_upkeep import (
    CopyReports,
    CountRows,
    PruningReports,
    RetentionReports,
    ThreadListReports,
    TransactionReports,
    put_thread,
)


@pytest.fixture
def holding(raw: sqlite3.Connection) -> Callable[[], AbstractContextManager[None]]:
    """Hold a write transaction of another connection open."""

    @contextmanager
    def held() -> Iterator[None]:
        raw.execute("BEGIN IMMEDIATE")
        raw.execute("UPDATE checkpoints SET type = type")
        try:
            yield
        finally:
            raw.execute("ROLLBACK")

    return held


@pytest.fixture
def ask(raw: sqlite3.Connection) -> Callable[[Statement], list[Any]]:
    """Execute statements."""
    return lambda step: raw.execute(step.sql, step.params).fetchall()


@pytest.fixture
def count_rows(raw: sqlite3.Connection) -> CountRows:
    """Count the rows of both tables."""
    counting = "SELECT (SELECT count(*) FROM checkpoints), (SELECT count(*) FROM writes)"
    return lambda: dict(zip(("checkpoints", "writes"), raw.execute(counting).fetchone(), strict=True))


@pytest.fixture
def dump(path: Path) -> Dump:
    """Give the file and its log as they are on the disk."""
    files = (path, path.with_name(f"{path.name}-wal"))
    return lambda: "".join(file.read_bytes().decode("latin-1") for file in files if file.exists())


@pytest.fixture
def forge_values(raw: sqlite3.Connection) -> Forge:
    """Write over the checkpoints."""

    def forge(type: str, data: bytes) -> None:
        raw.execute("UPDATE checkpoints SET type = ?, checkpoint = ? WHERE checkpoint_id = '1'", (type, data))

    return forge


@pytest.fixture
def forge_writes(raw: sqlite3.Connection) -> Forge:
    """Write over the writes."""

    def forge(type: str, data: bytes) -> None:
        raw.execute("UPDATE writes SET type = ?, value = ?", (type, data))

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


class TestCompacting(Saving):
    """The file and what was deleted from it."""

    def test_the_file_shrinks(self, open_saver: OpenSaver, path: Path) -> None:
        """After a compaction it is about as large as before what was deleted; what is left is whole."""
        saver = open_saver()
        put_thread(saver, "kept")
        saver.compact()
        small = path.stat().st_size
        for number in range(20):
            put_thread(saver, f"long {number}", 50)
        saver.compact()
        large = path.stat().st_size
        for number in range(20):
            saver.delete_thread(f"long {number}")
        saver.compact()
        assert path.stat().st_size == small < large / 2
        assert len(saver.list(None)) == 5
