"""Postgres: flows run on connections of psycopg's, one transaction each, on the caller's thread or event loop.

Reads of a call share one snapshot. Writes see what is committed, and lock the namespaces they write in. A lost
connection is replaced, and what ran on it is run again where that cannot apply it twice.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from memstore.backends import FlowMaker, forks
from memstore.backends.postgres_build import DatabaseWide
from memstore.backends.postgres_codecs import make_adapters
from memstore.backends.postgres_connections import to_parameters
from memstore.backends.postgres_errors import InDoubt, may_be_outdated
from memstore.backends.postgres_running import READ, WRITE, Retries, ask_outcome, atransact, to_begin, transact
from memstore.backends.postgres_sources import AsyncGiven, LoopSources, SyncGiven, ThreadSource
from memstore.config import IndexSettings, PoolSettings
from memstore.dialects.postgres import PostgresDialect
from memstore.dialects.postgres_base import vector_type_differs
from memstore.dialects.postgres_inspect import PostgresInspect
from memstore.errors import DatabaseError, IndexMismatch, InvalidConfig, StoreClosed
from memstore.indexes import Metric
from memstore.indexes.pgvector import VectorColumn
from memstore.items import Microseconds, read_clock
from memstore.schema import is_current, load_migrations, migrate
from memstore.steps import Flow, Statement, arun, run

T = TypeVar("T")
_logger = logging.getLogger("memstore.backends")


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
        self._pid = os.getpid()
        self._codecs: tuple[VectorColumn | None, AdaptersMap] = (None, make_adapters(None))
        self._begin_read, self._begin_write = to_begin(READ, self._settings), to_begin(WRITE, self._settings)
        limited = self._settings.statement_timeout is not None
        self._begin_glance, self._begin_jot = (self._begin_read, self._begin_write) if limited else ("", "")
        self.start()
        forks.watch(self)

    reads_apart = True

    @property
    def only_async(self) -> bool:
        """Whether the caller gave async connections."""
        return self._agiven is not None

    def start(self) -> None:
        """Make what belongs to a process alone; a forked child leaves its parent's connections alone."""
        self._forked = os.getpid() != self._pid
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
        return self._run(self._begin_glance, make)

    def write(self, make: FlowMaker[T]) -> T:
        """Run a flow in one transaction that is wholly applied or not at all."""
        self.open()
        return self._run(self._begin_write, make)

    def jot(self, prepare: Callable[[], FlowMaker[T]]) -> T:
        """Run a flow of one statement, which is its own transaction."""
        self.open()
        return self._run(self._begin_jot, prepare())

    def compact(self) -> None:
        """Do nothing: the server makes room by itself."""

    def write_soon(self, make: FlowMaker[Any]) -> None:
        """Run a flow as `write` does; what goes wrong is told to the log: the read that wants it has succeeded."""
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
        return await self._arun(self._begin_glance, make)

    async def awrite(self, make: FlowMaker[T]) -> T:
        """Run a flow as `write` does; cancelled, it is applied wholly or not at all."""
        await self.aopen()
        return await self._arun(self._begin_write, make)

    async def ajot(self, prepare: Callable[[], FlowMaker[T]]) -> T:
        """Run a flow as `jot` does."""
        await self.aopen()
        return await self._arun(self._begin_jot, await asyncio.to_thread(prepare))

    async def acompact(self) -> None:
        """Do nothing, as `compact`."""

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
            parameters = {**given.info.get_parameters(), **password}
            return psycopg.connect(autocommit=True, **parameters)
        return psycopg.connect(self._conninfo, **{**to_parameters(self._settings), "autocommit": True})

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed
        if self._forked and (self._given or self._agiven) is not None:
            raise InvalidConfig("the connection or pool you gave belongs to another process; open a store in each")

    # opening --------------------------------------------------------------------------------------------------------

    def _prepare(self) -> Generator[tuple[str, FlowMaker[Any]], Any, None]:
        """Bring the database to where this version of memstore wants it."""
        migrations = load_migrations("postgres")
        if not (yield self._begin_read, partial(is_current, migrations, self.dialect)):
            yield self._begin_write, self._migrate

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
        retries = Retries(self._settings)
        while True:
            known = self.dialect.vectors
            try:
                with self._here().lend() as connection:
                    return transact(connection, begin, make, self._adapters)
            except Exception as error:  # noqa: BLE001  what is not to be tried again comes out
                if self._may_differ(error, make) and run(self._learn_anew(known), partial(self._run, "")):
                    continue
                if isinstance(error, InDoubt) and run(
                    ask_outcome(error.evidence, self.dialect), partial(self._run, "")
                ):
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
        retries = Retries(self._settings)
        source = self._loops.here()
        while True:
            known = self.dialect.vectors
            try:
                await source.open()
                async with source.lend() as connection:
                    return await atransact(connection, begin, make, self._adapters)
            except Exception as error:  # noqa: BLE001  what is not to be tried again comes out
                if self._may_differ(error, make) and await arun(self._learn_anew(known), partial(self._arun, "")):
                    continue
                if isinstance(error, InDoubt) and (
                    await arun(ask_outcome(error.evidence, self.dialect), partial(self._arun, ""))
                ):
                    result: T = error.result
                    return result
                await asyncio.sleep(retries.after(error))

    def _may_differ(self, error: Exception, make: FlowMaker[Any]) -> bool:
        """Tell whether an error may come of a column of vectors that is not what it was."""
        return may_be_outdated(error) and make != self.dialect.find_vectors

    def _learn_anew(self, known: VectorColumn | None) -> Generator[FlowMaker[Any], Any, bool]:
        """Look at the column of the vectors again; tell whether it is another than was known."""
        yield self.dialect.find_vectors
        return self.dialect.vectors != known

    def _run_elsewhere(self, begin: str, make: FlowMaker[T]) -> T:
        """Run a flow on the event loop to which the caller's async connections belong."""
        loop = self._loops.loop
        if loop is None or loop is _running_loop():
            raise InvalidConfig(
                "you gave an async connection or pool; await aput, asearch and so on, on its event loop"
            )
        return asyncio.run_coroutine_threadsafe(self._arun(begin, make), loop).result()


def _to_name(location: Any) -> str:
    """Name a database as it may be shown: without a password."""
    parts: dict[str, Any] | None = None
    with suppress(psycopg.Error):  # which quotes what it does not understand
        if isinstance(location, str):
            parts = conninfo_to_dict(location)
        elif isinstance(location, ConnectionPool | AsyncConnectionPool):
            parts = conninfo_to_dict(location.conninfo if isinstance(location.conninfo, str) else "")
        else:
            parts = location.info.get_parameters()
    if parts is None:
        raise InvalidConfig("the URL cannot be read; expected postgresql://user@host:port/database")
    user = f"{parts['user']}@" if parts.get("user") else ""
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{user}{parts.get('host', '')}{port}/{parts.get('dbname', '')}"


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


_left_alone: list[Any] = []
"""Connections of a parent process: closed by its child, they would be closed for the parent too."""
