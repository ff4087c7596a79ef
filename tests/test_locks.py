"""The lock that many share or one has alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from memstore.backends.locks import ReadersLock
from tests.children import DEADLINE, Busy, fork

SHORT = 0.05
"""Seconds after which what should be waiting is taken to wait; being late makes no test fail."""


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Give threads enough."""
    with ThreadPoolExecutor(8) as pool:
        yield pool


class Holder:
    """A thread that takes a lock and lets it go when it is told."""

    def __init__(self, pool: ThreadPoolExecutor, lock: ReadersLock, *, alone: bool) -> None:
        self._taken, self._done = threading.Event(), threading.Event()
        self._begun = threading.Event()
        self._lock, self._alone = lock, alone
        self._running: Future[None] = pool.submit(self._hold)
        assert self._begun.wait(DEADLINE)

    @property
    def has_it(self) -> bool:
        """Whether it has the lock, or gets it in a moment."""
        return self._taken.wait(SHORT)

    def has_got_it(self) -> bool:
        """Wait until it has the lock."""
        return self._taken.wait(DEADLINE)

    def let_go(self) -> None:
        """Have it let the lock go, now or as soon as it has it."""
        self._done.set()
        self._running.result(DEADLINE)

    def _hold(self) -> None:
        self._begun.set()
        with self._lock.exclusive() if self._alone else self._lock.shared():
            self._taken.set()
            self._done.wait(DEADLINE)


@contextmanager
def holding(pool: ThreadPoolExecutor, lock: ReadersLock, *, alone: bool) -> Iterator[Holder]:
    """Have a thread hold the lock meanwhile."""
    holder = Holder(pool, lock, alone=alone)
    try:
        yield holder
    finally:
        holder.let_go()


def waits_alone(lock: ReadersLock) -> None:
    """Wait until a thread waits to have the lock alone."""
    ended = threading.Event()
    for _ in range(1000):
        if lock._waiting:
            return
        ended.wait(SHORT / 10)
    pytest.fail("nobody waits")


def test_many_share_it(pool: ThreadPoolExecutor) -> None:
    """Five at once, each having it while the others do."""
    lock = ReadersLock()
    holders = [Holder(pool, lock, alone=False) for _ in range(5)]
    assert all(holder.has_got_it() for holder in holders)
    for holder in holders:
        holder.let_go()


def test_one_has_it_alone(pool: ThreadPoolExecutor) -> None:
    """Neither a second one alone nor those that would share get in, until it is let go; then each does."""
    lock = ReadersLock()
    with holding(pool, lock, alone=True) as first:
        assert first.has_got_it()
        sharing, second = Holder(pool, lock, alone=False), Holder(pool, lock, alone=True)
        assert not sharing.has_it
        waits_alone(lock)
        assert not second.has_it
    assert second.has_got_it()
    assert not sharing._taken.is_set()
    second.let_go()
    assert sharing.has_got_it()
    sharing.let_go()


def test_one_alone_waits_for_all_that_share(pool: ThreadPoolExecutor) -> None:
    """The last of them lets it in, not the first."""
    lock = ReadersLock()
    first, second = Holder(pool, lock, alone=False), Holder(pool, lock, alone=False)
    assert first.has_got_it()
    assert second.has_got_it()
    alone = Holder(pool, lock, alone=True)
    assert not alone.has_it
    first.let_go()
    assert not alone.has_it
    second.let_go()
    assert alone.has_got_it()
    alone.let_go()


def test_who_would_have_it_alone_goes_first(pool: ThreadPoolExecutor) -> None:
    """Those that come later to share it wait for it: searches without end keep no catching up waiting for ever."""
    lock = ReadersLock()
    first = Holder(pool, lock, alone=False)
    assert first.has_got_it()
    alone = Holder(pool, lock, alone=True)
    waits_alone(lock)
    later = Holder(pool, lock, alone=False)
    assert not later.has_it
    first.let_go()
    assert alone.has_got_it()
    assert not later.has_it
    alone.let_go()
    assert later.has_got_it()
    later.let_go()


@pytest.mark.parametrize("alone", [True, False])
def test_an_exception_lets_it_go(pool: ThreadPoolExecutor, alone: bool) -> None:
    """Whatever comes out of the block, anyone gets the lock afterwards, and a generator that is closed lets it go."""
    lock = ReadersLock()
    take: Callable[[], object] = lock.exclusive if alone else lock.shared

    def fail() -> None:
        with lock.exclusive() if alone else lock.shared():
            raise KeyboardInterrupt

    def suspended() -> Iterator[None]:
        with lock.exclusive() if alone else lock.shared():
            yield

    assert callable(take)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            fail()
        flow = suspended()
        next(flow)
        assert isinstance(flow, Iterator)
        flow.close()  # type: ignore[attr-defined]
    for kind in (True, False):
        with holding(pool, lock, alone=kind) as holder:
            assert holder.has_got_it()


def test_threads_take_turns() -> None:
    """Under load nobody meets one that is alone, the count stays right, and everyone gets on."""
    lock = ReadersLock()
    state = {"sharing": 0, "alone": 0}
    guard = threading.Lock()
    rounds = [0, 0, 0, 0]

    def share(number: int) -> None:
        with lock.shared():
            with guard:
                state["sharing"] += 1
                assert not state["alone"]
            with guard:
                state["sharing"] -= 1
        rounds[number] += 1

    def hold(number: int) -> None:
        with lock.exclusive():
            with guard:
                state["alone"] += 1
                assert state == {"sharing": 0, "alone": 1}
            with guard:
                state["alone"] -= 1
        rounds[number] += 1

    enough = threading.Event()
    with Busy(lambda _: share(0), lambda _: share(1), lambda _: hold(2), lambda _: hold(3)):
        for _ in range(int(DEADLINE / SHORT)):
            if min(rounds) >= 50:
                break
            enough.wait(SHORT)
    assert min(rounds) >= 50


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_no_child_finds_it_held(pool: ThreadPoolExecutor) -> None:
    """A process that forks waits until nobody holds it: in the child, whose threads are gone, it is free."""
    lock = ReadersLock()

    def hold(_: int) -> None:
        with lock.exclusive():
            pass
        with lock.shared():
            pass

    def child() -> bool:
        with lock.exclusive():
            pass
        with lock.shared():
            return True

    with Busy(hold, hold):
        assert all(fork(child) for _ in range(20))
    with holding(pool, lock, alone=True) as holder:
        assert holder.has_got_it()
