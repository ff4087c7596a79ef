"""Where connections to Postgres come from: a pool for threads, one for each event loop, or what the caller gave.

Calls wait for their turn however long it takes; only a server that cannot be reached makes them fail. A connection is
lent in autocommit, so that transactions are begun and ended by the backend alone.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import wait
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, Final, TypeAlias

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolClosed

from memstore.backends.postgres_connections import (
    OFTEN,
    ais_direct,
    check_idle,
    configure,
    count_cancellations,
    is_direct,
    to_parameters,
)
from memstore.config import PoolSettings
from memstore.errors import DatabaseError, InvalidConfig, StoreClosed

SyncGiven: TypeAlias = "psycopg.Connection[Any] | ConnectionPool[Any]"
AsyncGiven: TypeAlias = "psycopg.AsyncConnection[Any] | AsyncConnectionPool[Any]"
_TRYING: Final = 0.25
"""Part of a call's patience after which a pool leaves a failed attempt to connect: ever rarer ones would outlast it."""
_NOT_OPEN: Final = "the pool you gave is not open; open it before the store is used"
_LOOK_UP_SECONDS: Final = 0.1
"""How often closing looks whether the event loop it waits for still runs."""


class ThreadSource:
    """Connections for threads.

    Args:
        given: A connection or pool of the caller's; None for a pool of memstore's own.
        conninfo: The URL; of use for a pool of memstore's own.
        settings: How many connections, and for how long.
    """

    def __init__(self, given: SyncGiven | None, conninfo: str, settings: PoolSettings) -> None:
        self._pool: ConnectionPool[Any] | None = None
        self._connection: psycopg.Connection[Any] | None = None
        self._owned = given is None
        self._size = settings.max_size
        if isinstance(given, psycopg.Connection):
            self._connection, self._size = given, 1
        elif given is not None:
            self._pool, self._size = given, given.max_size or settings.max_size  # some have no limit
        else:
            psycopg.connect(conninfo, **to_parameters(settings)).close()  # a wrong URL is to say what is wrong, at once
            self._pool = ConnectionPool(
                conninfo,
                kwargs={**to_parameters(settings), "autocommit": True},
                min_size=settings.min_size,
                max_size=settings.max_size,
                timeout=settings.timeout,
                reconnect_timeout=settings.timeout * _TRYING,
                max_idle=settings.max_idle,
                max_lifetime=settings.max_lifetime,
                configure=lambda connection: configure(connection, settings),
                open=True,
                name="memstore",
            )
        self._slots = _to_slots(self._connection, self._size)
        self._thresholds: weakref.WeakKeyDictionary[psycopg.Connection[Any], int | None] = weakref.WeakKeyDictionary()

    @contextmanager
    def lend(self) -> Iterator[psycopg.Connection[Any]]:
        """Lend a connection in autocommit."""
        with self._slots:
            if self._pool is None:
                assert self._connection is not None  # noqa: S101  one of the two is there
                with self._ours(self._connection):
                    yield self._connection
                return
            connection = self._take(self._pool)
            try:
                with self._ours(connection):
                    yield connection
            finally:
                self._pool.putconn(connection)

    @contextmanager
    def _ours(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """Have a connection in autocommit, and without prepared statements behind a pooler; then as it was."""
        check_idle(connection)
        if self._owned:
            yield
            return
        was = connection.autocommit, connection.prepare_threshold
        connection.set_autocommit(True)
        try:
            if connection not in self._thresholds:
                self._thresholds[connection] = was[1] if is_direct(connection) else None
            connection.prepare_threshold = self._thresholds[connection]
            yield
        finally:
            connection.prepare_threshold = was[1]
            if not connection.closed:
                connection.set_autocommit(was[0])

    def _take(self, pool: ConnectionPool[Any]) -> psycopg.Connection[Any]:
        try:
            connection: psycopg.Connection[Any] = pool.getconn()
        except PoolClosed as error:
            raise StoreClosed if self._owned else DatabaseError(_NOT_OPEN) from error
        return connection

    def close(self) -> None:
        """Wait for what is lent; close what is memstore's own."""
        for _ in range(self._size):
            self._slots.acquire()
        self.abandon()
        self._slots.release(self._size)

    def abandon(self) -> None:
        """Close what is memstore's own without waiting."""
        if self._owned and self._pool is not None:
            with suppress(RuntimeError):  # a worker of the pool may be the thread that collects a forgotten store
                self._pool.close(timeout=1)


def _to_slots(connection: psycopg.Connection[Any] | None, size: int) -> threading.Semaphore:
    """Make what calls wait for; all who were given the same connection wait for the same."""
    if connection is None:
        return threading.Semaphore(size)
    with _turns_lock:
        return _turns.setdefault(connection, threading.Semaphore(size))


_turns: weakref.WeakKeyDictionary[psycopg.Connection[Any], threading.Semaphore] = weakref.WeakKeyDictionary()
_aturns: weakref.WeakKeyDictionary[psycopg.AsyncConnection[Any], asyncio.Semaphore] = weakref.WeakKeyDictionary()
_turns_lock = threading.Lock()


class LoopSource:
    """Connections for one event loop, as `ThreadSource` has them for threads."""

    def __init__(self, given: AsyncGiven | None, conninfo: str, settings: PoolSettings) -> None:
        self._pool: AsyncConnectionPool[Any] | None = None
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._owned = given is None
        self._size = settings.max_size
        self._conninfo = conninfo
        self._settings = settings
        self._made: weakref.WeakSet[psycopg.AsyncConnection[Any]] = weakref.WeakSet()
        if isinstance(given, psycopg.AsyncConnection):
            self._connection, self._size = given, 1
        elif given is not None:
            self._pool, self._size = given, given.max_size or settings.max_size  # some have no limit
        self._slots = asyncio.Semaphore(self._size)
        if self._connection is not None:  # all who were given the same wait for the same
            self._slots = _aturns.setdefault(self._connection, self._slots)
        self._thresholds: weakref.WeakKeyDictionary[psycopg.AsyncConnection[Any], int | None] = (
            weakref.WeakKeyDictionary()
        )
        self._making = asyncio.Lock()
        self.opening = asyncio.Lock()

    async def open(self) -> None:
        """Make the pool where there is none yet."""
        if self._owned and self._pool is None:
            async with self._making:
                if self._pool is None:
                    self._pool = await self._make_pool()

    async def _make_pool(self) -> _LoopPool:
        settings = self._settings
        await (await psycopg.AsyncConnection.connect(self._conninfo, **to_parameters(settings))).close()
        pool = _LoopPool(
            self._conninfo,
            kwargs={**to_parameters(settings), "autocommit": True},
            min_size=settings.min_size,
            max_size=settings.max_size,
            timeout=settings.timeout,
            reconnect_timeout=settings.timeout * _TRYING,
            max_idle=settings.max_idle,
            max_lifetime=settings.max_lifetime,
            configure=self._configure,
            open=False,
            name="memstore",
        )
        await pool.open()
        return pool

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Lend a connection in autocommit."""
        async with self._slots:
            if self._pool is None:
                assert self._connection is not None  # noqa: S101  one of the two is there
                async with self._ours(self._connection):
                    yield self._connection
                return
            connection = await self._take(self._pool)
            try:
                async with self._ours(connection):
                    yield connection
            finally:
                await asyncio.shield(self._pool.putconn(connection))

    @asynccontextmanager
    async def _ours(self, connection: psycopg.AsyncConnection[Any]) -> AsyncIterator[None]:
        """Have a connection as `ThreadSource` has one."""
        check_idle(connection)
        if self._owned:
            yield
            return
        was = connection.autocommit, connection.prepare_threshold
        await connection.set_autocommit(True)
        try:
            if connection not in self._thresholds:
                self._thresholds[connection] = was[1] if await ais_direct(connection) else None
            connection.prepare_threshold = self._thresholds[connection]
            yield
        finally:
            connection.prepare_threshold = was[1]
            if not connection.closed:
                await connection.set_autocommit(was[0])

    async def _take(self, pool: AsyncConnectionPool[Any]) -> psycopg.AsyncConnection[Any]:
        cancelled = count_cancellations()
        try:
            connection: psycopg.AsyncConnection[Any] = await pool.getconn()
        except PoolClosed as error:
            raise StoreClosed if self._owned else DatabaseError(_NOT_OPEN) from error
        if count_cancellations() > cancelled:  # the pool waits with `wait_for`, of which Python 3.11's loses some
            await pool.putconn(connection)
            raise asyncio.CancelledError
        return connection

    async def close(self) -> None:
        """Wait for what is lent; close what is memstore's own."""
        async with AsyncExitStack() as slots:  # one that is cancelled keeps none from the next
            for _ in range(self._size):
                await slots.enter_async_context(self._slots)
            if self._owned and self._pool is not None:
                await self._pool.close(timeout=1)

    def drop(self) -> None:
        """Close the connections themselves: their event loop runs no more."""
        for connection in list(self._made):
            connection.pgconn.finish()

    async def _configure(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._made.add(connection)
        prepared = self._settings.prepare
        connection.prepare_threshold = (
            OFTEN if (await ais_direct(connection) if prepared is None else prepared) else None
        )


class _LoopPool(AsyncConnectionPool["psycopg.AsyncConnection[Any]"]):
    """A pool whose workers end when their event loop does.

    A worker of psycopg_pool that is cancelled while it connects (as all tasks are when `asyncio.run` ends) takes that
    for a failed connection and goes on, and the loop waits for it for ever.
    """

    @classmethod
    async def worker(cls, q: Any) -> None:
        """Do what comes in, until told to end or cancelled."""
        queue: Any = _Uncancelled(q)
        await super().worker(queue)


class _Uncancelled:
    """A queue that gives nothing more to a task that was cancelled."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    async def get(self) -> Any:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return await self._queue.get()


class LoopSources:
    """The sources of all event loops that use a store.

    Args:
        given: The caller's async connection or pool, which belongs to one loop.
        conninfo: The URL.
        settings: How many connections, and for how long.
    """

    def __init__(self, given: AsyncGiven | None, conninfo: str, settings: PoolSettings) -> None:
        self._given = given
        self._conninfo = conninfo
        self._settings = settings
        self._lock = threading.Lock()
        self._sources: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopSource] = weakref.WeakKeyDictionary()

    def here(self) -> LoopSource:
        """Give the source of the running loop, unopened at first."""
        loop = asyncio.get_running_loop()
        with self._lock:
            source = self._sources.get(loop)
            if source is None:
                self._drop_ended()
                if self._given is not None and self._sources:
                    raise InvalidConfig("the async connection or pool you gave belongs to another event loop")
                source = self._sources[loop] = LoopSource(self._given, self._conninfo, self._settings)
            return source

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """A loop that runs, and has connections."""
        with self._lock:
            return next((loop for loop in self._sources if loop.is_running()), None)

    def close(self) -> None:
        """Close every source from a thread that may be any loop's, or none's."""
        with self._lock:
            sources = dict(self._sources)
            self._sources.clear()
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        for loop, source in sources.items():
            if loop is here:
                _closing.add(task := loop.create_task(source.close()))
                task.add_done_callback(_closing.discard)
            elif not (loop.is_running() and _close_there(source, loop)):
                source.drop()

    async def aclose_here(self) -> None:
        """Close the running loop's source."""
        with self._lock:
            source = self._sources.pop(asyncio.get_running_loop(), None)
        if source is not None:
            await source.close()

    def _drop_ended(self) -> None:
        for loop in [loop for loop in self._sources if loop.is_closed()]:
            self._sources.pop(loop).drop()


def _close_there(source: LoopSource, loop: asyncio.AbstractEventLoop) -> bool:
    """Close a source on the event loop that another thread runs; false where that ends meanwhile.

    A loop that is about to end cancels what it runs, closing too. Until it has ended its tasks wait for their
    connections: dropped under them, those would never answer.
    """
    while loop.is_running():
        closing = asyncio.run_coroutine_threadsafe(source.close(), loop)
        while loop.is_running() and not wait([closing], _LOOK_UP_SECONDS).done:
            pass
        if not closing.cancel():
            return closing.exception() is None
    return False


_closing: set[asyncio.Task[None]] = set()
"""Closings under way, which nothing else may refer to."""
