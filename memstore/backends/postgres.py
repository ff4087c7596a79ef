"""Postgres: flows run on connections of psycopg's, one transaction each, on the caller's thread or event loop.

Reads of a call share one snapshot. Writes see what is committed, and lock the namespaces they write in. A lost
connection is replaced, and what ran on it is run again where that cannot apply it twice.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from memstore.backends import FlowMaker, forks
from memstore.backends.postgres_build import DatabaseWide
from memstore.backends.postgres_codecs import make_adapters
from memstore.backends.postgres_errors import ConnectionLost, is_lost, is_worth_trying, translate
from memstore.backends.postgres_sources import AsyncGiven, LoopSource, LoopSources, SyncGiven, ThreadSource
from memstore.config import IndexSettings, PoolSettings
from memstore.dialects.postgres import PostgresDialect, vector_type_differs
from memstore.dialects.postgres_inspect import PostgresInspect
from memstore.errors import DatabaseError, IndexMismatch, InvalidConfig, MemStoreError, StoreClosed
from memstore.indexes import Metric
from memstore.indexes.pgvector import VectorColumn
from memstore.items import Microseconds, read_clock
from memstore.schema import is_current, load_migrations, migrate
from memstore.steps import Compute, Each, Flow, Many, Statement, Step, Together, arun, run

T = TypeVar("T")
_logger = logging.getLogger("memstore.backends")
_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_ROLLED_BACK: Final = 8
"""How often a transaction is run again that was rolled back for the sake of another."""
_LARGE: Final = 2_000_000
"""Numbers above which work is moved off an event loop: about a millisecond's."""
_OUTCOME_SECONDS: Final = 10.0
"""How long the server is asked how a COMMIT ended whose connection was lost."""


class Cursor(psycopg.RawCursor[tuple[Any, ...]]):
    """A cursor with memstore's own codecs, whatever its connection has."""

    codecs: AdaptersMap

    @property
    def adapters(self) -> AdaptersMap:
        """The codecs."""
        return self.codecs


class AsyncCursor(psycopg.AsyncRawCursor[tuple[Any, ...]]):
    """The same for event loops."""

    codecs: AdaptersMap

    @property
    def adapters(self) -> AdaptersMap:
        """The codecs."""
        return self.codecs


class PostgresBackend:
    """The `Backend` of a Postgres database.

    Args:
        location: A URL or conninfo, or a connection or pool of the caller's.
        schema: The schema of memstore's tables.
        pool: How many connections, and for how long.
        now: Gives the time in microseconds since 1970.
    """

    def __init__(
        self,
        location: str | SyncGiven | AsyncGiven,
        schema: str = "public",
        pool: PoolSettings | None = None,
        now: Callable[[], Microseconds] | None = None,
    ) -> None:
        self.now = now or read_clock
        self.dialect = PostgresDialect(schema)
        self._settings = pool or PoolSettings()
        self._given: SyncGiven | None = None
        self._agiven: AsyncGiven | None = None
        if isinstance(location, psycopg.AsyncConnection | AsyncConnectionPool):
            self._agiven = location
        elif not isinstance(location, str):
            self._given = location
        self._conninfo = location if isinstance(location, str) else ""
        self.name = _to_name(location)
        self._closed = False
        self._codecs: tuple[VectorColumn | None, AdaptersMap] = (None, make_adapters(None))
        self._begin_read, self._begin_write = _to_begin(_READ, self._settings), _to_begin(_WRITE, self._settings)
        self._begin_write += "; SELECT pg_current_xact_id()::text"
        self.start()
        forks.watch(self)

    def start(self) -> None:
        """Make what belongs to a process alone; a forked child leaves its parent's connections alone."""
        self._opened = False
        self._opening, self._making = threading.Lock(), threading.Lock()
        if old := getattr(self, "_threads", None):
            _left_alone.append(old)
        if old := getattr(self, "_loops", None):
            _left_alone.append(old)
        self._threads: ThreadSource | None = None
        self._loops = LoopSources(self._agiven, self._conninfo, self._settings)

    def disconnect(self) -> None:
        """Do nothing before a fork: libpq's connections may cross one where the child leaves them alone."""

    def lock(self) -> forks.ForkLock:
        """Make a lock that a forked child finds open."""
        return forks.ForkLock()

    def wide(self, metric: Metric, settings: IndexSettings) -> DatabaseWide:
        """Make what ranks wide scopes inside the database."""
        self.dialect.metric = metric
        column = self.dialect.vectors
        if column is not None and settings.vector_type not in (None, column.kind):
            raise IndexMismatch(vector_type_differs(column.kind, settings.vector_type))
        return DatabaseWide(self.dialect, metric, settings, self.connect)

    # sync -----------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Make or migrate the tables; idempotent."""
        self._check_open()
        if not self._opened:
            with self._opening:
                if not self._opened:
                    run(self._prepare(), lambda job: self._run(*job))
                    self._opened = True

    def read(self, make: FlowMaker[T]) -> T:
        """Run a flow that only reads, in one snapshot."""
        self.open()
        return self._run(self._begin_read, make)

    def glance(self, make: FlowMaker[T]) -> T:
        """Run a flow of one statement, or of several that need no common snapshot."""
        self.open()
        return self._run("", make)

    def write(self, make: FlowMaker[T]) -> T:
        """Run a flow in one transaction that is wholly applied or not at all."""
        self.open()
        return self._run(self._begin_write, make)

    def write_soon(self, make: FlowMaker[Any]) -> None:
        """Run a flow as `write` does; what goes wrong is told to the log, since the read that wants it has succeeded."""
        try:
            self.write(make)
        except DatabaseError as error:
            _logger.warning("a refresh was lost: %s", error)

    def sizes(self) -> dict[str, int]:
        """Give the bytes of the tables and their indexes, and of the index of vectors among them."""
        return self.glance(self._measure)

    # async ----------------------------------------------------------------------------------------------------------

    async def aopen(self) -> None:
        """Make or migrate the tables; idempotent."""
        self._check_open()
        if not self._opened:
            async with self._loops.here().opening:
                if not self._opened:
                    await arun(self._prepare(), lambda job: self._arun(*job))
                    self._opened = True

    async def aread(self, make: FlowMaker[T]) -> T:
        """Run a flow as `read` does."""
        await self.aopen()
        return await self._arun(self._begin_read, make)

    async def aglance(self, make: FlowMaker[T]) -> T:
        """Run a flow as `glance` does."""
        await self.aopen()
        return await self._arun("", make)

    async def awrite(self, make: FlowMaker[T]) -> T:
        """Run a flow as `write` does; cancelled, it is applied wholly or not at all."""
        await self.aopen()
        return await self._arun(self._begin_write, make)

    async def awrite_soon(self, make: FlowMaker[Any]) -> None:
        """Run a flow as `write_soon` does."""
        try:
            await self.awrite(make)
        except DatabaseError as error:
            _logger.warning("a refresh was lost: %s", error)

    async def asizes(self) -> dict[str, int]:
        """Give what `sizes` gives."""
        return await self.aglance(self._measure)

    async def acall(self, call: Callable[[], T]) -> T:
        """Run something that blocks on another thread."""
        return await asyncio.to_thread(call)

    # closing --------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Wait for what is running, then close every connection of memstore's own; idempotent."""
        if not self._closed:
            self._closed = True
            self._loops.close()
            if self._threads is not None:
                self._threads.close()

    async def aclose(self) -> None:
        """Close as `close` does, without blocking the event loop."""
        if not self._closed:
            self._closed = True
            await self._loops.aclose_here()
            await asyncio.to_thread(self._loops.close)
            if self._threads is not None:
                await asyncio.to_thread(self._threads.close)

    def abandon(self) -> None:
        """Let everything go without waiting."""
        self._closed = True
        self._loops.close()
        if self._threads is not None:
            self._threads.abandon()

    def connect(self) -> psycopg.Connection[Any]:
        """Open a connection of its own to the same database, in autocommit."""
        given = self._given or self._agiven
        if isinstance(given, ConnectionPool | AsyncConnectionPool):
            parameters = given.kwargs if isinstance(given.kwargs, dict) else {}
            conninfo = given.conninfo if isinstance(given.conninfo, str) else ""
            return psycopg.connect(conninfo, **{**parameters, "autocommit": True})
        if given is not None:
            password = {"password": given.info.password} if given.info.password else {}
            return psycopg.connect(**given.info.get_parameters(), **password, autocommit=True)
        return psycopg.connect(self._conninfo, autocommit=True)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed

    # opening --------------------------------------------------------------------------------------------------------

    def _prepare(self) -> Generator[tuple[str, FlowMaker[Any]], Any, None]:
        """Bring the database to where this version of memstore wants it."""
        migrations = load_migrations("postgres")
        if not (yield self._begin_read, partial(is_current, migrations, self.dialect)):
            yield self._begin_write, self._migrate
        yield "", self.dialect.find_vectors

    def _migrate(self) -> Flow[None]:
        ((encoding,),) = yield Statement("SELECT current_setting('server_encoding')")
        if encoding != "UTF8":
            raise InvalidConfig(f"the database is encoded in {encoding}; memories need one in UTF8")
        yield self.dialect.claim_setup()
        if not (yield self.dialect.has_schema()):
            yield self.dialect.create_schema()
        yield from migrate(load_migrations("postgres"), self.dialect, self.now)

    def _measure(self) -> Flow[dict[str, int]]:
        ((everything, index),) = yield PostgresInspect(self.dialect).sizes()
        return {"database": everything - index, "log": 0, "index": index}

    # running --------------------------------------------------------------------------------------------------------

    def _adapters(self) -> AdaptersMap:
        column, codecs = self._codecs
        if column is not self.dialect.vectors:
            column, codecs = self._codecs = self.dialect.vectors, make_adapters(self.dialect.vectors)
        return codecs

    def _run(self, begin: str, make: FlowMaker[T]) -> T:
        if self._agiven is not None:
            return self._run_elsewhere(begin, make)
        retries = _Retries(self._settings)
        while True:
            try:
                with self._here().lend() as connection:
                    return self._transact(connection, begin, make)
            except Exception as error:  # noqa: BLE001  what is not to be tried again comes out
                if isinstance(error, _InDoubt) and run(self._ask_outcome(error.number), lambda job: self._run(*job)):
                    result: T = error.result
                    return result
                time.sleep(retries.after(error))

    def _here(self) -> ThreadSource:
        """Give the source of threads' connections, which the first of them makes."""
        if self._threads is None:
            with self._making:
                if self._threads is None:
                    self._threads = ThreadSource(self._given, self._conninfo, self._settings)
        return self._threads

    async def _arun(self, begin: str, make: FlowMaker[T]) -> T:
        if self._given is not None:
            return await asyncio.to_thread(self._run, begin, make)
        retries = _Retries(self._settings)
        source = self._loops.here()
        while True:
            try:
                await source.open()
                async with source.lend() as connection:
                    return await self._atransact(connection, begin, make)
            except Exception as error:  # noqa: BLE001  what is not to be tried again comes out
                if isinstance(error, _InDoubt) and (
                    await arun(self._ask_outcome(error.number), lambda job: self._arun(*job))
                ):
                    result: T = error.result
                    return result
                await asyncio.sleep(retries.after(error))

    def _run_elsewhere(self, begin: str, make: FlowMaker[T]) -> T:
        """Run a flow on the event loop to which the caller's async connections belong."""
        loop = self._loops.loop
        if loop is None or loop is _running_loop():
            raise InvalidConfig("you gave an async connection or pool; await aput, asearch and so on, on its event loop")
        return asyncio.run_coroutine_threadsafe(self._arun(begin, make), loop).result()

    def _transact(self, connection: psycopg.Connection[Any], begin: str, make: FlowMaker[T]) -> T:
        cursor = Cursor(connection, row_factory=psycopg.rows.tuple_row)
        cursor.codecs = self._adapters()
        number: str | None = None
        begun = False
        try:
            if begin:
                cursor.execute(begin)
                number, begun = _last_value(cursor), True
            result = run(make(), partial(_perform, cursor))
        except BaseException as error:
            if is_lost(connection, error):
                raise ConnectionLost(begun=begun) from error
            if begin and not connection.closed:
                with suppress(psycopg.Error):
                    cursor.execute("ROLLBACK")
            raise
        if begin:
            try:
                cursor.execute("COMMIT")
            except psycopg.Error as error:
                if number is not None and is_lost(connection, error):
                    raise _InDoubt(number, result) from error
                if is_lost(connection, error):
                    raise ConnectionLost(begun=True) from error
                raise
        return result

    async def _atransact(self, connection: psycopg.AsyncConnection[Any], begin: str, make: FlowMaker[T]) -> T:
        cursor = AsyncCursor(connection, row_factory=psycopg.rows.tuple_row)
        cursor.codecs = self._adapters()
        number: str | None = None
        begun = False
        try:
            if begin:
                await cursor.execute(begin)
                number, begun = _last_value(cursor), True
            result = await arun(make(), partial(_aperform, cursor))
        except BaseException as error:
            if is_lost(connection, error):
                raise ConnectionLost(begun=begun) from error
            if begin and not connection.closed:
                with suppress(psycopg.Error):
                    await asyncio.shield(cursor.execute("ROLLBACK"))
            raise
        if begin:
            try:
                await cursor.execute("COMMIT")
            except psycopg.Error as error:
                if number is not None and is_lost(connection, error):
                    raise _InDoubt(number, result) from error
                if is_lost(connection, error):
                    raise ConnectionLost(begun=True) from error
                raise
        return result

    def _ask_outcome(self, number: str) -> Generator[tuple[str, FlowMaker[Any]], Any, bool]:
        """Ask how a transaction ended whose connection was lost in its COMMIT: true where it was applied."""

        def ask() -> Flow[Any]:
            ((status, _),) = yield Statement("SELECT pg_xact_status($1::text::xid8), pg_sleep(0.05)", (number,))
            return status

        until = time.monotonic() + _OUTCOME_SECONDS
        status = yield "", ask
        while status == "in progress" and time.monotonic() < until:
            status = yield "", ask
        if status not in ("committed", "aborted"):
            raise DatabaseError("the connection was lost while a write was committed; read whether it was applied")
        return bool(status == "committed")


class _InDoubt(Exception):
    """The connection was lost in a COMMIT."""

    def __init__(self, number: str, result: Any) -> None:
        super().__init__(number)
        self.number = number
        self.result = result


class _Retries:
    """What has gone wrong in a call so far.

    Args:
        settings: How long a server is waited for.
    """

    def __init__(self, settings: PoolSettings) -> None:
        self._until = time.monotonic() + settings.timeout
        self._stale = self._lost = self._rolled_back = 0

    def after(self, error: BaseException) -> float:
        """Say how many seconds to wait before the call is tried again.

        Raises:
            MemStoreError: It is not tried again.
        """
        if isinstance(error, ConnectionLost) and not error.begun and time.monotonic() < self._until:
            self._stale += 1  # idle connections do not notice that their server has gone
            return min(0.01 * 2 ** min(self._stale - 2, 7), 1.0) if self._stale > 1 else 0.0
        if isinstance(error, ConnectionLost | _InDoubt) and not self._lost:
            self._lost = 1
            return 0.0
        if is_worth_trying(error) and self._rolled_back < _ROLLED_BACK:
            self._rolled_back += 1
            return random.random() * 0.01 * 2**self._rolled_back  # noqa: S311  no secret
        said = translate(error)
        if said is error:
            raise error
        raise said from error


def _to_begin(begin: str, settings: PoolSettings) -> str:
    """Spell the beginning of a transaction, with what is set for it alone."""
    limits = {"statement_timeout": settings.statement_timeout, "lock_timeout": settings.lock_timeout}
    return begin + "".join(f"; SET LOCAL {name} = {seconds * 1000:.0f}" for name, seconds in limits.items() if seconds)


def _to_name(location: Any) -> str:
    """Name a database as it may be shown: without a password."""
    try:
        if isinstance(location, str):
            parts: dict[str, Any] = conninfo_to_dict(location)
        elif isinstance(location, ConnectionPool | AsyncConnectionPool):
            parts = conninfo_to_dict(location.conninfo if isinstance(location.conninfo, str) else "")
        else:
            parts = location.info.get_parameters()
    except psycopg.Error as error:
        raise InvalidConfig("the URL cannot be read; expected postgresql://user@host:port/database") from error
    user = f"{parts['user']}@" if parts.get("user") else ""
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{user}{parts.get('host', '')}{port}/{parts.get('dbname', '')}"


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _last_value(cursor: Cursor | AsyncCursor) -> str | None:
    """Give what the last of several statements returned, if anything."""
    while cursor.nextset():
        pass
    value = cursor.pgresult.get_value(0, 0) if cursor.pgresult and cursor.pgresult.ntuples else None
    return None if value is None else value.decode()


def _perform(cursor: Cursor, step: Step) -> Any:
    if isinstance(step, Statement):
        cursor.execute(step.sql, step.params, binary=True)
        return cursor.fetchall() if cursor.description else []
    if isinstance(step, Compute):
        return step.call()
    if isinstance(step, Together):
        return [_perform(cursor, part) for part in step.steps]
    if isinstance(step, Each | Many):
        return [_perform(cursor, Statement(step.sql, row)) for row in step.rows]
    return step.decode(_perform(cursor, step.step))


async def _aperform(cursor: AsyncCursor, step: Step) -> Any:
    if isinstance(step, Statement):
        await cursor.execute(step.sql, step.params, binary=True)
        return await cursor.fetchall() if cursor.description else []
    if isinstance(step, Compute):
        return await asyncio.to_thread(step.call) if step.size > _LARGE else step.call()
    if isinstance(step, Together):
        return [await _aperform(cursor, part) for part in step.steps]
    if isinstance(step, Each | Many):
        return [await _aperform(cursor, Statement(step.sql, row)) for row in step.rows]
    return step.decode(await _aperform(cursor, step.step))


_left_alone: list[Any] = []
"""Connections of a parent process: closed by its child, they would be closed for the parent too."""
