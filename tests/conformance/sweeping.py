"""Sweeping: what a sweep takes away, and the thread that sweeps by itself; rule 25 of the contract."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from langgraph.store.base import PutOp

from tests.conformance.lifecycle import forget
from tests.support import Clock, OpenStore, Place, WordEmbeddings, keys

OFTEN = 1e-5
"""Minutes; some 600 microseconds."""
DEADLINE = 15.0
"""Seconds within which what is to happen by itself has happened."""
only_sync = pytest.mark.parametrize("open_store", ["sync"], indirect=True)


def wait_until(condition: Callable[[], bool]) -> None:
    """Look again and again until something holds, or the deadline has passed."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def sweepers() -> set[threading.Thread]:
    """Give the threads that sweep now."""
    return {thread for thread in threading.enumerate() if "sweeper" in thread.name}


@contextmanager
def frequent_switches() -> Iterator[None]:
    """Have Python change threads as often as it can, so that what may happen between two lines does."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


class SweepingConformance:
    """A sweep takes what has expired and all that belongs to it, and nothing else."""

    def test_a_sweep_takes_what_has_expired(self, open_store: OpenStore, clock: Clock) -> None:
        """It counts the items, and takes their texts and the namespaces that are left empty."""
        store = open_store(index={"embed": WordEmbeddings(), "fields": ["parts[*]"]})
        store.batch(PutOp((f"n{n % 5}",), f"k{n}", {"parts": [f"a{n}", f"b{n}"]}, ttl=1) for n in range(20))
        store.batch([PutOp(("n0",), "ever", {"parts": ["apples"]}), PutOp(("n9",), "long", {"parts": ["rain"]}, ttl=9)])
        assert store.sweep() == 0
        clock.pass_minutes(2)
        assert store.stats().expired == 20
        assert store.sweep() == 20
        stats = store.stats()
        assert (stats.items, stats.texts, stats.namespaces, stats.expired) == (2, 2, 2, 0)
        assert store.sweep() == 0
        assert sorted(keys(store.search((), query="apples"))) == ["ever", "long"]
        assert store.check().problems == ()

    def test_a_sweep_takes_any_number(self, open_store: OpenStore, clock: Clock) -> None:
        """Thousands go in one call, counted to the last, and an exact number of portions is no special case."""
        store = open_store(index={"embed": WordEmbeddings(), "fields": ["text"]})
        for count in (2500, 1000):
            store.batch(PutOp((f"n{n % 7}",), f"k{n}", {"text": f"text {n % 9}"}, ttl=1) for n in range(count))
            clock.pass_minutes(2)
            assert store.sweep() == count
            assert (store.stats().items, store.stats().texts, store.stats().namespaces) == (0, 0, 0)
        assert store.check().problems == ()


class SweeperConformance:
    """With an interval the store sweeps by itself, from open to close, and holds neither store nor process."""

    @only_sync
    def test_a_store_with_an_interval_sweeps_by_itself(self, open_store: OpenStore, clock: Clock) -> None:
        """Nobody has to call anything: what has expired is gone from the database some time later."""
        others = sweepers()
        store = open_store(
            index={"embed": WordEmbeddings(), "fields": ["text"]},
            ttl={"default_ttl": 1, "sweep_interval_minutes": OFTEN},
        )
        store.batch(PutOp((f"n{n}",), "k", {"text": "apples"}, ttl=1) for n in range(20))
        store.put(("a",), "ever", {"text": "apples"}, ttl=None)
        clock.pass_minutes(2)
        wait_until(lambda: store.stats().items == 1)
        store.put(("a",), "again", {"text": "apples"})
        clock.pass_minutes(2)
        wait_until(lambda: store.stats().texts == 1)
        assert keys(store.search((), query="apples")) == ["ever"]
        assert len(sweepers() - others) == 1
        store.close()
        assert sweepers() <= others

    @only_sync
    def test_without_an_interval_nothing_sweeps(self, open_store: OpenStore, clock: Clock) -> None:
        """A default ttl alone starts no thread; expired items wait, unseen."""
        others = sweepers()
        store = open_store(ttl={"default_ttl": 1})
        store.put(("a",), "k", {})
        clock.pass_minutes(2)
        assert sweepers() <= others
        assert store.stats().items == 1

    @only_sync
    def test_a_sweeper_may_be_started_and_stopped(self, open_store: OpenStore, clock: Clock) -> None:
        """As LangGraph's stores have it: starting twice is one sweeper, stopping twice is no error, and again."""
        others = sweepers()
        store = open_store()
        for _ in range(2):
            assert store.store.stop_ttl_sweeper() == 1
            store.put(("a",), "k", {}, ttl=1)
            clock.pass_minutes(2)
            store.store.start_ttl_sweeper(OFTEN)
            store.store.start_ttl_sweeper(OFTEN)
            assert len(sweepers() - others) == 1
            wait_until(lambda: store.stats().items == 0)
            assert store.store.stop_ttl_sweeper(timeout=DEADLINE) == 1
            assert sweepers() <= others

    async def test_sweeping_may_be_awaited(self, location: Place) -> None:
        """LangGraph's async stores have these awaited; so may code written for them."""
        others = sweepers()
        async with location.name() as store:
            await store.aput(("a",), "k", {}, ttl=10)
            assert await store.sweep_ttl() == 0
            await store.start_ttl_sweeper(5)
            assert len(sweepers() - others) == 1
            await store.stop_ttl_sweeper()
            wait_until(lambda: sweepers() <= others)

    async def test_a_sweeper_started_again_sweeps(self, location: Place) -> None:
        """Stopping on an event loop does not wait for the thread; starting at once must still leave one that runs."""
        async with location.name() as store:
            for _ in range(50):
                await store.start_ttl_sweeper(5)
                await store.stop_ttl_sweeper()
                await store.start_ttl_sweeper(OFTEN)
                await store.aput(("a",), "k", {}, ttl=OFTEN)
                end = time.monotonic() + DEADLINE
                while (await store.astats()).items:
                    assert time.monotonic() < end
                await store.stop_ttl_sweeper()

    def test_a_wrong_interval_is_refused(self, location: Place) -> None:
        """A sweeper that never rests, or cannot count its time, is not started."""
        wrong: list[Any] = [-1, float("nan"), "5", True]
        others = sweepers()
        with location.open() as store:
            for interval in wrong:
                with pytest.raises(ValueError, match="interval"):
                    store.start_ttl_sweeper(interval)
            assert sweepers() <= others

    def test_a_sweeper_holds_no_store(self, location: Place) -> None:
        """A store that nobody refers to any more is collected, and says that it was not closed."""
        stores = [location.open(ttl={"default_ttl": 1, "sweep_interval_minutes": 5})]
        reference = weakref.ref(stores[0])
        with pytest.warns(ResourceWarning, match="unclosed"):
            forget(stores)
        assert reference() is None

    def test_closing_is_no_error_to_the_sweeper(self, location: Place) -> None:
        """A store closed at the very moment a sweep begins ends it without a word: no thread dies of an exception."""
        others = sweepers()
        died: list[object] = []
        hook, threading.excepthook = threading.excepthook, lambda args: died.append(args.exc_value)
        try:
            with frequent_switches():
                for _ in range(60):
                    stores = [location.open(ttl={"sweep_interval_minutes": 1e-9}) for _ in range(4)]
                    for store in stores:
                        store.close()
        finally:
            threading.excepthook = hook
        assert died == []
        assert sweepers() <= others
