"""SQLite connections: how one is opened, how many there are, and whose turn it is to write.

A file has one writer at a time, whichever store of this process it belongs to, in the order of asking; readers have
connections of their own and never wait for a writer.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Final

from memstore.backends.forks import ForkLock
from memstore.errors import DatabaseError, InvalidConfig, StoreClosed

BUSY_SECONDS: Final = 60.0
"""How long a writer waits for other processes."""
_PAGE: Final = 8192
"""Bytes; five vectors of 384 dims fill a page, where 4,096 would waste a quarter."""
_CACHE_KIB: Final = 8192
"""Page cache of one connection."""
_LOG_PAGES: Final = 4_000
"""Pages in the write-ahead log, 32 MB, from which on a commit copies it into the database. A batch over many namespaces
touches the same hundreds of pages of the indexes as the one before; at SQLite's 1,000 each would copy them anew."""
_LOG_BYTES: Final = 64 * 2**20
"""What the write-ahead log keeps on disk once it has been copied into the database."""
_STATEMENTS: Final = 256
_MINIMUM: Final = (3, 37, 0)
"""STRICT tables, RETURNING and ->>."""
MAX_READERS: Final = 8
_MOMENT: Final = 0.01
"""Seconds that a read waits for others at most: about ten short ones."""
_LOOK_UP_SECONDS: Final = 1.0
"""How often a waiting writer looks whether it was interrupted."""


class Queue:
    """Has short reads follow one another: at once, their threads hand the interpreter to and fro, and all are slower.

    A read that would have to wait longer than a moment for another goes ahead beside it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mine = threading.local()

    def __enter__(self) -> None:
        self._mine.turn = self._lock.acquire(timeout=_MOMENT)

    def __exit__(self, *_: object) -> None:
        if self._mine.turn:
            self._lock.release()


class Turns:
    """A lock that is given in the order of asking."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._taken = False

    def try_enter(self) -> bool:
        """Take the turn if nobody has it; tell whether that worked."""
        with self._lock:
            taken, self._taken = self._taken, True
            return not taken

    def __enter__(self) -> None:
        if self.try_enter():
            return
        turn = threading.Event()
        try:
            with self._lock:
                if not self._taken:
                    self._taken = True
                    return
                self._waiting.append(turn)
            while not turn.wait(_LOOK_UP_SECONDS):
                pass  # an interrupt that came just before the wait began is seen now
        except BaseException:
            self._give_up(turn)
            raise

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._taken = False

    def _give_up(self, turn: threading.Event) -> None:
        """Leave the queue after an interrupt; hand on a turn that came at the same moment."""
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
        if turn.is_set():
            self.__exit__()


_turns: weakref.WeakValueDictionary[Path, Turns] = weakref.WeakValueDictionary()
_turns_lock = ForkLock()


def turns_of(path: Path) -> Turns:
    """Give the queue of a file's writers, shared by all stores of this process on it; the path is absolute."""
    with _turns_lock:
        return _turns.setdefault(path, Turns())


def connect(path: Path | None) -> sqlite3.Connection:
    """Open a connection to a file, made readable to its owner alone, or to a database in memory.

    Raises:
        InvalidConfig: The file cannot be made, or SQLite is too old.
        DatabaseError: Its folder does not allow a write-ahead log.
    """
    if sqlite3.sqlite_version_info < _MINIMUM:
        raise InvalidConfig(f"SQLite {sqlite3.sqlite_version} is too old; expected 3.37 or later")
    if path is not None:
        _make_file(path)
    connection = sqlite3.connect(
        ":memory:" if path is None else path,
        timeout=BUSY_SECONDS,
        isolation_level=None,  # transactions are begun and ended by the backend alone
        check_same_thread=False,
        cached_statements=_STATEMENTS,
    )
    try:
        _configure(connection, in_memory=path is None)
    except BaseException:
        connection.close()
        raise
    return connection


def _make_file(path: Path) -> None:
    try:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be made ({error.strerror}); does its folder exist?") from error


def _configure(connection: sqlite3.Connection, *, in_memory: bool) -> None:
    connection.execute(f"PRAGMA page_size = {_PAGE}")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    connection.execute("PRAGMA temp_store = MEMORY")
    if not in_memory:
        _start_log(connection)
        connection.execute("PRAGMA synchronous = FULL")  # an acknowledged put survives a power cut
        connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")


def _start_log(connection: sqlite3.Connection) -> None:
    """Turn write-ahead logging on; while another process does the same, SQLite refuses without waiting."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            ((mode,),) = connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
            continue
        if mode != "wal":
            raise DatabaseError("write-ahead logging cannot be turned on; is the folder read-only or on a network?")
        return


class Readers:
    """Connections that only read, opened as they are needed and lent to one call at a time.

    Args:
        path: The database file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[sqlite3.Connection] = []
        self._count = 0
        self._closed = False
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    def lend(self) -> sqlite3.Connection:
        """Lend a connection, in the order of asking where all are out.

        Raises:
            StoreClosed: The store was closed meanwhile.
        """
        with self._changed:
            self._wait()
            if self._closed:
                raise StoreClosed
            if self._idle:
                return self._idle.pop()
            self._count += 1
        try:
            return connect(self._path)
        except BaseException:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()
            raise

    def _wait(self) -> None:
        """Wait until there is a connection, and those that asked before have theirs."""
        if not self._waiting and self._free:
            return
        turn = object()
        self._waiting.append(turn)
        try:
            self._changed.wait_for(lambda: self._closed or (self._waiting[0] is turn and self._free))
        finally:
            self._waiting.remove(turn)
            self._changed.notify_all()

    @property
    def _free(self) -> bool:
        return bool(self._idle) or self._count < MAX_READERS

    def take_back(self, connection: sqlite3.Connection) -> None:
        """Take a connection back."""
        with self._changed:
            self._idle.append(connection)
            self._changed.notify_all()

    def close(self) -> None:
        """Lend no more, wait until every connection is back, and close them."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            while len(self._idle) < self._count:
                self._changed.wait()
        self.drop()

    def drop(self) -> None:
        """Close what is idle, without waiting."""
        idle, self._idle = self._idle, []
        self._count -= len(idle)
        for connection in idle:
            connection.close()
