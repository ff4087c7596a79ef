"""Connections that are lost at the statement a test names, and the whole contents of a schema for comparison."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final, Literal, TypeAlias

import psycopg
import pytest

from memstore import MemStore
from memstore.backends.postgres import PostgresBackend
from memstore.backends.postgres_running import AsyncCursor, Cursor
from memstore.config import PoolSettings
from tests.support import AsyncCaller, Clock, SyncCaller

When: TypeAlias = Literal["before", "after", "unanswered"]
"""The server ends the connection before the statement or after it, or the network does before the answer comes."""
EVERY_WHEN: Final[tuple[When, ...]] = ("before", "after", "unanswered")
TABLES: Final = ["state", "index", "namespaces", "items", "texts", "vectors", "migrations"]


class Losses:
    """Loses connections of stores at chosen statements; of all cursors of memstore's, sync and async.

    Args:
        raw: A connection that ends the others.
        monkeypatch: Puts the cursors right in the end.
    """

    def __init__(self, raw: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self._raw = raw
        self._when: When = "before"
        self._at: set[int] = set()
        self._only = ""
        self._seen = 0
        self._unanswered: str | None = None
        self._after_the_others = False
        self.statements: list[str] = []
        """What was executed since it was armed."""
        execute, aexecute = Cursor.execute, AsyncCursor.execute

        def lossy(cursor: Cursor, query: Any, params: Any = None, **options: Any) -> Cursor:
            now = self._comes(str(query))
            if now == "before":
                self._end(cursor.connection)
            execute(cursor, query, params, **options)
            self._finish(cursor.connection, now)
            return cursor

        async def alossy(cursor: AsyncCursor, query: Any, params: Any = None, **options: Any) -> AsyncCursor:
            now = self._comes(str(query))
            if now == "before":
                self._end(cursor.connection)
            await aexecute(cursor, query, params, **options)
            self._finish(cursor.connection, now)
            return cursor

        monkeypatch.setattr(Cursor, "execute", lossy)
        monkeypatch.setattr(AsyncCursor, "execute", alossy)

    def arm(self, at: Iterable[int], when: When, only: str = "") -> None:
        """Lose the connection at some statements from now on, counted from 1 of those that begin with `only`."""
        self._at, self._when, self._only, self._seen = set(at), when, only, 0
        self.statements.clear()

    def leave_unanswered(self, sql: str, *, after_the_others: bool = False) -> None:
        """Lose the answer to a statement too, the next time it comes, or once what is armed has been lost."""
        self._unanswered, self._after_the_others = sql, after_the_others

    def disarm(self) -> bool:
        """Lose none any more; tell whether any was still to come."""
        waiting = bool(self._at) or self._unanswered is not None
        self._at, self._unanswered = set(), None
        return waiting

    def _comes(self, sql: str) -> When | None:
        self.statements.append(sql)
        if sql == self._unanswered and not (self._after_the_others and self._at):
            self._unanswered = None
            return "unanswered"
        if not sql.lstrip().startswith(self._only):
            return None
        self._seen += 1
        if self._seen not in self._at:
            return None
        self._at.discard(self._seen)
        return self._when

    def _finish(self, connection: psycopg.BaseConnection[Any], now: When | None) -> None:
        if now == "after":
            self._end(connection)
        elif now == "unanswered":
            connection.pgconn.finish()
            raise psycopg.OperationalError("the connection is lost")

    def _end(self, connection: psycopg.BaseConnection[Any]) -> None:
        self._raw.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.info.backend_pid])


def end_all(raw: psycopg.Connection[Any], name: str) -> int:
    """End every connection of an application; tell how many there were."""
    sql = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s"
    return len(raw.execute(sql, [name]).fetchall())


def count_connections(raw: psycopg.Connection[Any], name: str) -> int:
    """Count the connections of an application."""
    row = raw.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [name]).fetchone()
    assert row is not None
    count: int = row[0]
    return count


def contents(raw: psycopg.Connection[Any]) -> dict[str, list[Any]]:
    """Give every row of every table, so that nothing can have changed unseen."""
    rows = {}
    for table in TABLES:
        sql: Any = f"SELECT t::text FROM memstore_{table} t ORDER BY 1"  # noqa: S608
        rows[table] = raw.execute(sql).fetchall()
    return rows


def versions(raw: psycopg.Connection[Any]) -> dict[str, int]:
    """Give how many transactions have written in each namespace, by the path as text."""
    rows = raw.execute("SELECT encode(path, 'escape'), version FROM memstore_namespaces").fetchall()
    return {path.replace("\\000", "/"): version for path, version in rows}


def open_named(
    place: tuple[str, str], clock: Clock, runner: asyncio.Runner | None, index: Any, **pool: Any
) -> SyncCaller:
    """Open a store at (URL, schema) whose connections bear the schema's name; with a runner it is called async."""
    url, schema = place
    settings = PoolSettings.parse({"max_size": 4, "kwargs": {"application_name": schema}, **pool}, "pool")
    store = MemStore(PostgresBackend(url, schema, settings, clock), index=index)
    caller = SyncCaller(store) if runner is None else AsyncCaller(store, runner)
    caller.get(("a",), "k")
    return caller
