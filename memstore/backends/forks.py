"""What happens to open stores when their process forks.

SQLite must not see one connection in two processes, nor be forked while a thread holds one of its locks. So a fork
waits until no thread is inside SQLite, lets none in meanwhile, and closes the connections to files first; both sides
open their own afterwards. Locks that another thread held are open again in the child.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forkable(Protocol):
    """A backend that wants to know."""

    def disconnect(self) -> None:
        """Close the connections that must not cross a fork; nobody uses them now."""
        ...

    def start(self) -> None:
        """Make anew, in the child, what belongs to a process alone."""
        ...


class ForkLock:
    """A lock that is open again in a forked child, whichever thread held it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Open it."""
        self._lock = threading.Lock()


class Gate:
    """What a thread passes to use SQLite, as often within itself as it likes; shut while the process forks."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin anew, open and with nobody inside."""
        self._changed = threading.Condition()
        self._inside = 0
        self._shut_by: int | None = None
        self._mine = threading.local()

    def __enter__(self) -> None:
        depth = getattr(self._mine, "depth", 0)
        if not depth:
            with self._changed:
                # the thread that forks may come in itself: it may have to collect a forgotten store
                while self._shut_by not in (None, threading.get_ident()):
                    self._changed.wait()
                self._inside += 1
        self._mine.depth = depth + 1

    def __exit__(self, *_: object) -> None:
        self._mine.depth -= 1
        if not self._mine.depth:
            with self._changed:
                self._inside -= 1
                if self._shut_by is not None:
                    self._changed.notify_all()

    def shut(self) -> None:
        """Let nobody in, and wait until the other threads are out."""
        with self._changed:
            while self._shut_by is not None:
                self._changed.wait()
            self._shut_by = threading.get_ident()
            while self._inside > bool(getattr(self._mine, "depth", 0)):
                self._changed.wait()

    def reopen(self) -> None:
        """Let threads in again."""
        with self._changed:
            self._shut_by = None
            self._changed.notify_all()


gate = Gate()


def watch(backend: Forkable) -> None:
    """Take care of a backend until it is collected."""
    _backends.add(backend)


_backends: weakref.WeakSet[Forkable] = weakref.WeakSet()
_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _before_fork() -> None:
    gate.shut()
    for backend in list(_backends):
        backend.disconnect()


def _after_fork_in_child() -> None:
    gate.renew()
    for lock in list(_locks):
        lock.renew()
    for backend in list(_backends):
        backend.start()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=gate.reopen, after_in_child=_after_fork_in_child)
