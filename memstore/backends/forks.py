"""What happens to open stores when their process forks.

SQLite must not see one connection in two processes, so those to files are closed before a fork, new ones held up
during it, and both sides open their own afterwards. Locks that another thread held are open again in the child.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

from memstore.backends.connections import Readers, Turns, forget_turns


class Forkable(Protocol):
    """A backend that wants to know."""

    turns: Turns
    readers: Readers | None

    @property
    def crosses_forks(self) -> bool:
        """Whether a forked child can go on with it."""
        ...

    def start(self) -> None:
        """Make what belongs to this process alone."""
        ...

    def close_writer(self) -> None:
        """Close the connection that writes."""
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


def watch(backend: Forkable) -> None:
    """Take care of a backend until it is collected."""
    _backends.add(backend)


_backends: weakref.WeakSet[Forkable] = weakref.WeakSet()
_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()
_one_at_a_time = threading.Lock()
_held: list[Forkable] = []
_taken: list[Turns] = []


def _before_fork() -> None:
    _one_at_a_time.acquire()
    _held.extend(backend for backend in _backends if backend.crosses_forks)
    for backend in _held:
        if backend.readers is not None:
            backend.readers.pause()
    # two stores on one file share a queue, which is entered once
    _taken.extend({id(backend.turns): backend.turns for backend in _held}.values())
    for turns in _taken:
        turns.__enter__()
    for backend in _held:
        backend.close_writer()


def _after_fork_in_parent() -> None:
    for turns in _taken:
        turns.__exit__()
    _taken.clear()
    for backend in _held:
        if backend.readers is not None:
            backend.readers.resume()
    _held.clear()
    _one_at_a_time.release()


def _after_fork_in_child() -> None:
    global _one_at_a_time  # noqa: PLW0603  the parent's is held by the thread that forked
    forget_turns()
    for lock in list(_locks):
        lock.renew()
    for backend in _held:
        backend.start()
    _held.clear()
    _taken.clear()
    _one_at_a_time = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
