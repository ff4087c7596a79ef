"""Connections that fail when a test tells them to, and the whole contents of a database for comparison."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterable
from typing import Any, Final, Literal

from memstore.backends.sqlite import SqliteBackend

TABLES: Final = ["clock", "index", "namespaces", "items", "removals", "migrations"]


class FaultyConnection(sqlite3.Connection):
    """A connection that raises at its n-th statement, before or after performing it; then it works again."""

    fault: BaseException | None = None
    when: Literal["before", "after"] = "before"
    left: int = 0
    """Statements until the fault."""

    def arm(self, at: int, fault: BaseException, when: Literal["before", "after"]) -> None:
        """Raise `fault` at the statement number `at` from now on, counted from 1."""
        self.left, self.fault, self.when = at, fault, when

    def disarm(self) -> bool:
        """Fail no more; tell whether the fault was still to come."""
        waiting, self.fault = self.fault is not None, None
        return waiting

    def interrupt_at_step(self, at: int | None) -> None:
        """Have SQLite give up at one step of its own from now on, counted from 1; None for never."""
        steps = itertools.count(1)
        self.set_progress_handler(None if at is None else lambda: next(steps) == at, 1)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement, or fail."""
        self._count("before")
        return self._finish(super().execute(sql, parameters))

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        """Execute a statement for several rows, or fail."""
        self._count("before")
        return self._finish(super().executemany(sql, parameters))

    def _finish(self, cursor: sqlite3.Cursor) -> sqlite3.Cursor:
        try:
            self._count("after")
        except BaseException:
            cursor.close()  # as when an interrupt comes before anyone has it; the traceback would keep it open
            raise
        return cursor

    def _count(self, when: str) -> None:
        if self.fault is None or when != self.when:
            return
        self.left -= 1
        if self.left == 0:
            fault, self.fault = self.fault, None
            raise fault


def make_writer_faulty(backend: SqliteBackend) -> FaultyConnection:
    """Give an open backend another connection for its writes, to the same database, that can fail."""
    old = backend._writer
    assert old is not None
    path = ":memory:" if backend._path is None else backend._path
    faulty = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=FaultyConnection)
    if backend._path is None:
        old.backup(faulty)
    old.close()
    backend._writer = faulty
    return faulty


def make_reader_faulty(backend: SqliteBackend) -> FaultyConnection:
    """Give an open backend one connection for its reads that can fail, and is the next to be lent."""
    assert backend._readers is not None
    assert backend._path is not None
    backend._readers.lend().close()
    faulty = sqlite3.connect(backend._path, isolation_level=None, check_same_thread=False, factory=FaultyConnection)
    backend._readers.take_back(faulty)
    return faulty


def contents(connection: sqlite3.Connection) -> dict[str, list[Any]]:
    """Give every row of every table, so that nothing can have changed unseen."""
    tables = [*(f"memstore_{table}" for table in TABLES), "sqlite_sequence"]
    return {table: connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in tables}  # noqa: S608
