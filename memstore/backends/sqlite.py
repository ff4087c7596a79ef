"""SQLite: a whole batch runs on one connection in one transaction, on the caller's thread or on one worker.

Readers work in snapshots beside one writer. `:memory:` is a single connection whose calls take turns. Nothing of an
open connection crosses a fork: the file's are closed before it and opened again on both sides.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from memstore.backends import FlowMaker, forks
from memstore.backends.background import Background
from memstore.backends.connections import BUSY_SECONDS, Queue, Readers, Turns, connect, turns_of
from memstore.backends.gathering import Gathering
from memstore.backends.locks import ReadersLock
from memstore.catchup import Wide
from memstore.config import IndexSettings
from memstore.dialects import Dialect
from memstore.dialects.sqlite import SqliteDialect
from memstore.errors import (
    DatabaseBusy,
    DatabaseDamaged,
    DatabaseError,
    DatabaseFull,
    InvalidValue,
    MemStoreError,
    StoreClosed,
)
from memstore.index_file import IndexFile
from memstore.indexes import Metric
from memstore.items import Microseconds, read_clock
from memstore.schema import is_current, load_migrations, migrate
from memstore.steps import Compute, Each, Many, Statement, Step, Together, run

T = TypeVar("T")
_logger = logging.getLogger("memstore.backends")
_LOST: Final = "a refresh was lost: %s"
_READ_WORKERS: Final = 4
"""Threads that answer async reads; SQLite and NumPy let go of the interpreter only in part."""
_ERRORS: Final[dict[int, tuple[type[DatabaseError], str]]] = {
    sqlite3.SQLITE_BUSY: (DatabaseBusy, f"waited {BUSY_SECONDS:.0f} s; is a long write under way elsewhere?"),
    sqlite3.SQLITE_LOCKED: (DatabaseBusy, "try again"),
    sqlite3.SQLITE_FULL: (DatabaseFull, "make room and try again"),
    sqlite3.SQLITE_CORRUPT: (DatabaseDamaged, "restore a backup"),
    sqlite3.SQLITE_NOTADB: (DatabaseDamaged, "check the path"),
    sqlite3.SQLITE_CANTOPEN: (
        DatabaseError,
        "is the path a file that you may write, in a folder that exists?",
    ),
    sqlite3.SQLITE_READONLY: (DatabaseError, "the file, its folder or its log may only be read"),
    sqlite3.SQLITE_IOERR: (DatabaseError, "reading or writing the disk failed"),
}


class SqliteBackend:
    """The `Backend` of a SQLite file.

    Args:
        path: The file; None for a database in memory.
        now: Gives the time in microseconds since 1970.
    """

    def __init__(self, path: Path | None, now: Callable[[], Microseconds] | None = None) -> None:
        self.now = now or read_clock
        self.dialect: Dialect = SqliteDialect()
        self.name = ":memory:" if path is None else str(path)
        self._path = path
        self._pid = os.getpid()
        self._closed = False  # no new calls
        self._ended = False  # nothing under way either
        self._writer: sqlite3.Connection | None = None
        self.start()
        forks.watch(self)

    only_async = False
    reads_apart = False

    def start(self) -> None:
        """Make what belongs to a process alone; a forked child opens anew."""
        self._opened = False
        self._opening = threading.Lock()
        self._hiring = threading.Lock()
        self._turns = Turns()
        self._readers: Readers | None = None
        self._reading = Queue()
        self._read_workers: ThreadPoolExecutor | None = None
        self._write_worker: ThreadPoolExecutor | None = None
        self._gathering = Gathering(self.write)

    def lock(self) -> forks.ForkLock:
        """Make a lock that a forked child finds open."""
        return forks.ForkLock()

    def wide(self, metric: Metric, settings: IndexSettings) -> Wide:
        """Make what ranks wide scopes, and keeps its index in a file beside the database."""
        file = None if self._path is None else IndexFile(self._path)
        return Wide(
            self.dialect,
            ReadersLock(),
            Background(),
            metric=metric,
            candidates=settings.candidates,
            file=file,
            precision=settings.precision,
            weights=settings.weights,
        )

    def open(self) -> None:
        """Make or migrate the tables; idempotent."""
        self._check_usable()
        if self._opened:
            return
        with self._opening:
            if not self._opened:
                self._find_file()
                migrations = load_migrations("sqlite")
                # reading first lets a store open while another process is in a long write
                if self._path is None or not self._run_read(lambda: is_current(migrations, self.dialect)):
                    self._run_write(lambda: migrate(migrations, self.dialect, self.now))
                self._opened = True

    def _find_file(self) -> None:
        """Settle which file a relative path means, and join the queue of its writers."""
        if self._path is not None and self._readers is None:
            self._path = self._path.resolve()
            self._turns, self._readers = turns_of(self._path), Readers(self._path)

    def read(self, make: FlowMaker[T]) -> T:
        """Run a flow that only reads, in one snapshot."""
        self.open()
        return self._run_read(make)

    def glance(self, make: FlowMaker[T]) -> T:
        """Run a short flow that only reads, on the connection that writes where it is free: its pages are at hand."""
        self.open()
        with forks.gate:
            if self._turns.try_enter():
                try:
                    if self._writer is not None:
                        with _translated():
                            return _transact(self._writer, "BEGIN", make)
                finally:
                    self._turns.__exit__()
        return self._run_read(make)

    def write(self, make: FlowMaker[T]) -> T:
        """Run a flow in one transaction that is wholly applied or not at all."""
        self.open()
        return self._run_write(make)

    def jot(self, prepare: Callable[[], FlowMaker[T]]) -> T:
        """Run a flow as `write` does."""
        return self.write(prepare())

    def compact(self) -> None:
        """Write the file anew without the pages that are free, and empty its log."""
        self.open()
        with forks.gate, self._turns, _translated():
            writer = self._open_writer()
            writer.execute("VACUUM")
            writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    async def aread(self, make: FlowMaker[T]) -> T:
        """Run a flow as `read` does, on a worker."""
        return await self._arun(partial(self.read, make), writes=False)

    async def awrite(self, make: FlowMaker[T]) -> T:
        """Run a flow as `write` does, on the worker that writes."""
        return await self._arun(partial(self.write, make), writes=True)

    async def ajot(self, prepare: Callable[[], FlowMaker[T]]) -> T:
        """Run a flow on the worker that writes, together with others that wait for it."""
        worker = self._worker(writes=True)
        waiting = self._gathering.add(prepare)
        try:
            worker.submit(self._gathering.run)
        except RuntimeError:  # closed by another thread a moment ago
            self._check_usable()
            raise
        result: T = await asyncio.wrap_future(waiting)
        return result

    async def acompact(self) -> None:
        """Compact as `compact` does, on the worker that writes."""
        await self._arun(self.compact, writes=True)

    def write_soon(self, make: FlowMaker[Any]) -> None:
        """Run a flow as `write` does: at once where nobody writes, else on the worker, without waiting for it.

        What goes wrong is told to the log: the read that wants this has succeeded.
        """
        self.open()
        if not self._try_write(make):
            self._worker(writes=True).submit(self._write_later, make)

    def sizes(self) -> dict[str, int]:
        """Give the bytes of the database file and its log."""
        if self._path is None:
            return {"database": 0, "log": 0}
        log = self._path.with_name(self._path.name + "-wal")
        return {"database": self._path.stat().st_size, "log": log.stat().st_size if log.exists() else 0}

    async def aglance(self, make: FlowMaker[T]) -> T:
        """Run a flow as `glance` does, on a worker."""
        return await self._arun(partial(self.glance, make), writes=False)

    async def asizes(self) -> dict[str, int]:
        """Give what `sizes` gives."""
        return await self.acall(self.sizes)

    async def awrite_soon(self, make: FlowMaker[Any]) -> None:
        """Run a flow as `write_soon` does, on a worker."""
        await self.acall(partial(self.write_soon, make))

    async def acall(self, call: Callable[[], T]) -> T:
        """Run something that blocks on a worker."""
        return await self._arun(call, writes=False)

    def close(self) -> None:
        """Wait for what is running, then close every connection; idempotent."""
        with self._hiring:
            if self._closed:
                return
            self._closed = True
            workers = (self._read_workers, self._write_worker)
        for worker in workers:
            if worker is not None:
                worker.shutdown(wait=True)
        with forks.gate:
            if self._readers is not None:
                self._readers.close()
            with self._turns:
                self._ended = True
                self._close_writer()

    async def aclose(self) -> None:
        """Close as `close` does, off the event loop."""
        await asyncio.to_thread(self.close)

    def abandon(self) -> None:
        """Close what is idle without waiting; what is under way in a worker ends by itself."""
        self._closed = True
        for worker in (self._read_workers, self._write_worker):
            if worker is not None:
                worker.shutdown(wait=False)
        with forks.gate:
            if self._readers is not None:
                self._readers.drop()
            if self._turns.try_enter():
                self._close_writer()
                self._turns.__exit__()

    def disconnect(self) -> None:
        """Close the connections to a file; nobody uses them now. The next call opens new ones."""
        if self._path is not None:
            if self._readers is not None:
                self._readers.drop()
            self._close_writer()

    def _run_read(self, make: FlowMaker[T]) -> T:
        if self._readers is None:
            return self._run_write(make)
        with forks.gate, _translated(), self._reading:
            connection = self._readers.lend()
            try:
                return _transact(connection, "BEGIN", make)
            finally:
                self._readers.take_back(connection)

    def _run_write(self, make: FlowMaker[T]) -> T:
        with forks.gate, self._turns, _translated():
            return _transact(self._open_writer(), "BEGIN IMMEDIATE", make)

    def _open_writer(self) -> sqlite3.Connection:
        """Give the connection that writes; its turn has come."""
        if self._ended:
            raise StoreClosed
        if self._writer is None:
            self._writer = connect(self._path)
        return self._writer

    def _try_write(self, make: FlowMaker[Any]) -> bool:
        """Run a flow if neither this process nor another writes; tell whether it was run."""
        with forks.gate:
            if not self._turns.try_enter():
                return False
            try:
                with _translated(), _impatient(self._open_writer()) as connection:
                    _transact(connection, "BEGIN IMMEDIATE", make)
            except DatabaseBusy:
                return False
            except DatabaseError as error:
                _logger.warning(_LOST, error)
            finally:
                self._turns.__exit__()
        return True

    def _write_later(self, make: FlowMaker[Any]) -> None:
        """Run a flow whose caller has gone on."""
        try:
            self._run_write(make)
        except MemStoreError as error:
            _logger.warning(_LOST, error)

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreClosed
        if self._path is None and self._pid != os.getpid():
            raise StoreClosed("a database in memory does not cross a fork; open a new store, or use a file")

    async def _arun(self, call: Callable[[], T], *, writes: bool) -> T:
        worker = self._worker(writes=writes)
        try:
            running = asyncio.get_running_loop().run_in_executor(worker, call)
        except RuntimeError:  # closed by another thread a moment ago
            self._check_usable()
            raise
        return await running

    def _worker(self, *, writes: bool) -> ThreadPoolExecutor:
        with self._hiring:
            self._check_usable()
            if writes:
                if self._write_worker is None:
                    self._write_worker = ThreadPoolExecutor(1, "memstore-writer")
                return self._write_worker
            if self._read_workers is None:
                self._read_workers = ThreadPoolExecutor(_READ_WORKERS, "memstore-reader")
            return self._read_workers

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _transact(connection: sqlite3.Connection, begin: str, make: FlowMaker[T]) -> T:
    try:
        connection.execute(begin)
        result = run(make(), partial(_perform, connection))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def _perform(connection: sqlite3.Connection, step: Step) -> Any:
    if isinstance(step, Statement):
        return connection.execute(step.sql, step.params).fetchall()
    if isinstance(step, Many):
        connection.executemany(step.sql, step.rows)
        return None
    if isinstance(step, Each):
        return [connection.execute(step.sql, row).fetchall() for row in step.rows]
    if isinstance(step, Compute):
        return step.call()
    if isinstance(step, Together):
        return [_perform(connection, part) for part in step.steps]
    return step.decode(_perform(connection, step.step))


@contextmanager
def _impatient(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Let a connection not wait for other processes meanwhile."""
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        yield connection
    finally:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")


@contextmanager
def _translated() -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except sqlite3.DataError as error:
        raise InvalidValue("a text is larger than SQLite keeps (1,000,000,000 bytes)") from error
    except sqlite3.Error as error:
        if "malformed JSON" in str(error):
            raise DatabaseDamaged("the value of an item is no JSON; check() counts them") from error
        code = getattr(error, "sqlite_errorcode", None) or 0
        kind, way_out = _ERRORS.get(code & 0xFF, (DatabaseError, "see the cause"))
        raise kind(f"{getattr(error, 'sqlite_errorname', type(error).__name__)}; {way_out}") from error
