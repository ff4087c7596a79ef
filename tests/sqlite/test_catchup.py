"""Wide searches beside writes: each sees all that was committed before it began, and nothing that was not."""

from __future__ import annotations

import logging
import multiprocessing
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from langgraph.store.base import PutOp, SearchOp

from memstore import MemStore
from memstore.backends.sqlite import SqliteBackend
from tests.children import DEADLINE, Busy, fork, spawn
from tests.sqlite.faults import make_writer_faulty
from tests.sqlite.wide_stores import (
    ask,
    ask_exactly,
    deletes,
    exact_index,
    fill,
    opened,
    puts,
    text_of,
    wide_index,
)
from tests.support import Clock, keys, open_sqlite

TRAINED = "trained the index"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Give what the stores say."""
    caplog.set_level(logging.INFO, "memstore")
    return caplog


def first(store: MemStore, query: str, prefix: tuple[str, ...] = ()) -> list[tuple[str, float | None]]:
    """Give what leads by meaning: a text itself, where it is there."""
    return [(item.key, item.score) for item in store.search(prefix, query=query, limit=1, mode="semantic")]


def list_of_items(results: list[Any]) -> list[Any]:
    """Take a batch's results for what the test knows them to be."""
    return results


class TestTwoStores:
    """Stores on one file in one process, each with an index of its own."""

    def test_each_sees_what_the_other_committed(self, path: Path) -> None:
        """At its very next search: puts, replacements, deletions and whole batches, in either direction."""
        fill(path, 300)
        with opened(path) as one, opened(path) as other:
            for number in range(1_000, 1_012):
                writer, reader = (one, other) if number % 2 else (other, one)
                assert ask(reader) == ask(writer)
                writer.put(("wide", "1"), f"k{number}", {"text": f"unheard{number} of", "number": number})
                assert first(reader, f"unheard{number} of") == [(f"k{number}", 1.0)]
                reader.put(("wide", "1"), f"k{number}", {"text": f"changed{number} now", "number": number})
                assert first(writer, f"changed{number} now") == [(f"k{number}", 1.0)]
                assert first(writer, f"unheard{number} of") != [(f"k{number}", 1.0)]
                writer.delete(("wide", "1"), f"k{number}")
                assert first(reader, f"changed{number} now")[0][1] != 1.0
                writer.batch([*puts(range(number, number + 30, 3)), *deletes(range(number - 1_000, number - 980))])
                assert ask(reader) == ask(writer)
            assert ask(one) == ask(other) == ask_exactly(path)

    def test_what_was_swept_is_gone(self, path: Path, clock: Clock) -> None:
        """Expired items are invisible at once, and their texts leave the index of either store with the sweep."""
        fill(path, 300)
        with (
            closing(open_sqlite(path, clock, wide_index(), None)) as one,
            closing(open_sqlite(path, clock, wide_index(), None)) as other,
        ):
            one.batch([op._replace(ttl=5, key=f"t{op.key}") for op in puts(range(150))])
            assert ask(one) == ask(other)
            assert other.stats().indexed_texts == 450
            clock.pass_minutes(6)
            assert not [key for key in keys(other.search((), query="w1", limit=1_000)) if key.startswith("t")]
            assert one.sweep_ttl() == 150
            assert ask(one) == ask(other)
            assert one.stats().indexed_texts == other.stats().indexed_texts == 300
        with opened(path, exact=True) as exact, opened(path) as one:
            assert ask(exact) == ask(one)

    def test_an_index_too_far_behind_is_made_anew(self, path: Path, log: pytest.LogCaptureFixture) -> None:
        """Where removals have been forgotten since it last looked, it cannot know what is gone."""
        fill(path, 300)
        with opened(path) as one, opened(path, exact=True) as other:
            ask(one)
            other.batch(deletes(range(0, 300, 4)))
            other.batch(puts(range(300, 360)))
            with closing(sqlite3.connect(path, isolation_level=None)) as raw:
                raw.execute("DELETE FROM memstore_removals")
                raw.execute("UPDATE memstore_clock SET floor = clock")
            assert ask(one) == ask(other)
            assert one.stats().indexed_texts == one.stats().texts
            other.batch(deletes(range(1, 300, 4)))
            with closing(sqlite3.connect(path, isolation_level=None)) as raw:
                raw.execute("DELETE FROM memstore_removals")
                raw.execute("UPDATE memstore_clock SET floor = clock")
            assert ask(one) == ask(other)
            log.clear()
            other.batch(puts(range(360, 380)))
            assert ask(one) == ask(other)
            assert one.stats().indexed_texts == one.stats().texts
            assert log.text == ""

    def test_removals_are_kept_for_those_that_look_now_and_then(self, path: Path) -> None:
        """After thousands of writes that nobody searched, some of them forgotten: the answers are right."""
        fill(path, 300)
        with opened(path) as one, opened(path, exact=True) as other:
            ask(one)
            with closing(sqlite3.connect(path, isolation_level=None)) as raw:
                raw.execute("UPDATE memstore_clock SET clock = clock + 8192 - clock % 64 + 62")
            other.batch(deletes(range(0, 100, 2)))  # ends where removals are looked through
            other.batch(puts(range(300, 310)))
            other.batch(puts(range(310, 320)))
            with closing(sqlite3.connect(path, isolation_level=None)) as raw:
                ((floor,),) = raw.execute("SELECT floor FROM memstore_clock").fetchall()
                assert floor > 0
            assert ask(one) == ask(other)
            assert one.stats().indexed_texts == one.stats().texts

    def test_a_repair_is_seen(self, path: Path) -> None:
        """Items that `check` indexed anew have their new texts in either store's index, and no old ones."""
        fill(path, 300)
        with opened(path) as one, opened(path) as other:
            ask(one)
            ask(other)
            with closing(sqlite3.connect(path, isolation_level=None)) as raw:
                changed = """UPDATE memstore_items SET value = json_set(value, '$.text', 'mended ' || key)
                             WHERE id IN (SELECT id FROM memstore_items ORDER BY id LIMIT 20)"""
                raw.execute(changed)
            assert one.check(repair=True).ok
            assert first(other, "mended k3") == [("k3", 1.0)]
            assert ask(one) == ask(other)
            assert one.stats().indexed_texts == other.stats().indexed_texts == 300
        with opened(path, exact=True) as exact, opened(path) as one:
            assert ask(exact) == ask(one)


class TestBatches:
    """Searches and writes in one transaction."""

    def test_a_search_in_a_batch_sees_the_state_before_it(self, path: Path) -> None:
        """Also when it has to bring the index up first; the next one sees what the batch wrote."""
        fill(path, 300)
        with opened(path) as store, opened(path) as other:
            for number in range(5):
                other.put(("wide", "2"), f"other{number}", {"text": f"other{number} text"})
                search = SearchOp(("wide",), None, 1, 0, f"other{number} text")
                own = SearchOp((), None, 1, 0, f"own{number} text")
                put = PutOp(("wide", "2"), f"own{number}", {"text": f"own{number} text"})
                found, _, before = list_of_items(store.batch([search, put, own]))
                assert [(item.key, item.score) for item in found] == [(f"other{number}", 1.0)]
                assert [item.key for item in before] != [f"own{number}"]
                gone = PutOp(("wide", "2"), f"other{number}", None)
                found, before, _ = list_of_items(store.batch([own, search, gone]))
                assert [(item.key, item.score) for item in found] == [(f"own{number}", 1.0)]
                assert [item.key for item in before] == [f"other{number}"]
            assert ask(store) == ask(other) == ask_exactly(path)

    @pytest.mark.parametrize("searches", [True, False])
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_write_that_fails_leaves_nothing_in_the_index(self, path: Path, searches: bool, when: Any) -> None:
        """At whichever statement, with a search in its batch or not: what was rolled back is never found."""
        fill(path, 300)
        backend = SqliteBackend(path)
        with closing(MemStore(backend, index=wide_index())) as store, opened(path, exact=True) as exact:
            ops: list[Any] = [*puts(range(300, 310)), *deletes(range(10)), *puts(range(20, 25), seed=5)]
            ops += [SearchOp((), None, 3, 0, "w1 w7")] if searches else []
            store.put(("a",), "k", {"text": "w1"})
            faulty = make_writer_faulty(backend)
            failed = 0
            while True:
                exact.put(("a",), "k", {"text": f"w1 w{failed}"})  # so that a search in the batch has to catch up
                faulty.arm(failed + 1, sqlite3.OperationalError("disk I/O error"), when)
                try:
                    store.batch(ops)
                except RuntimeError:
                    failed += 1
                    assert ask(store, limit=3) == ask(exact, limit=3)
                else:
                    break
            assert failed >= 8
            faulty.disarm()
            assert ask(store) == ask(exact)
            assert store.check().ok

    def test_a_search_that_fails_half_way_leaves_a_right_index(self, path: Path) -> None:
        """At any statement of the one that catches up: the next search is right."""
        fill(path, 300)
        backend = SqliteBackend(path)
        with closing(MemStore(backend, index=wide_index())) as store, opened(path, exact=True) as exact:
            store.put(("a",), "k", {"text": "w1"})
            faulty = make_writer_faulty(backend)
            search = SearchOp((), None, 3, 0, "w1 w7")
            failed = 0
            while True:
                exact.batch([*deletes([failed]), *puts([900 + failed])])
                faulty.arm(failed + 1, sqlite3.OperationalError("disk I/O error"), "before")
                put = PutOp(("b",), "k", {"text": "elsewhere"})
                try:
                    store.batch([search, put])
                except RuntimeError:
                    failed += 1
                    assert ask(store, limit=3) == ask(exact, limit=3)
                else:
                    break
            assert failed >= 6
            faulty.disarm()


class TestThreads:
    """One store in many threads."""

    def test_threads_search_while_others_write(self, path: Path) -> None:
        """No error, no item twice, sorted scores, and in the end what a store that ranks exactly gives."""
        fill(path, 300)
        with opened(path) as store, opened(path) as other:

            def search(number: int) -> None:
                found = store.search((), query=text_of(number % 50), limit=20)
                scores = [item.score or 0.0 for item in found]
                assert len(found) == 20
                assert scores == sorted(scores, reverse=True)
                assert len({(item.namespace, item.key) for item in found}) == 20

            def write(writer: MemStore, base: int, number: int) -> None:
                writer.batch([*puts(range(base + number % 20, base + 100, 20), seed=number)])
                writer.batch(deletes([base + number % 100]))
                own = text_of(base + number, seed=77)
                writer.put(("own",), f"o{base}", {"text": f"thread{base} {number} {own}"})
                hits = writer.search(("own",), query=f"thread{base} {number} {own}", limit=1)
                assert [(hit.key, hit.score) for hit in hits] == [(f"o{base}", 1.0)]

            done = [0]

            def enough(number: int) -> None:
                write(store, 2_000, number)
                done[0] += 1

            with Busy(search, search, enough, partial(write, other, 3_000)):
                for _ in range(2_000):
                    if done[0] >= 40:
                        break
                    search(done[0])
            assert done[0] >= 40
            with opened(path, exact=True) as exact:
                assert ask(store, limit=3) == ask(other, limit=3) == ask(exact, limit=3)
            assert store.check().ok
            assert store.stats().indexed_texts == store.stats().texts

    @pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
    @pytest.mark.parametrize("busy", [False, True])
    def test_a_forked_child_searches_wide(self, path: Path, busy: bool) -> None:
        """After its parent did, with FAISS loaded and the index in memory, and while other threads search."""
        fill(path, 300)
        with opened(path) as store:
            expected = ask(store)

            def child() -> Any:
                answers = ask(store)
                store.batch(puts([7_000], seed=1))
                seen = first(store, text_of(7_000, 1))[0][1]
                store.batch(deletes([7_000]))
                return answers, seen

            works: list[Callable[[int], object]] = [lambda number: store.search((), query=text_of(number))] * 2
            with ExitStack() as stack:
                if busy:
                    stack.enter_context(Busy(*works))
                for _ in range(4):
                    assert fork(child) == (expected, 1.0)
            assert ask(store) == expected
            assert store.stats().indexed_texts == 300


def see_before_and_after(number: int, path: Path, steps: int, committed: Any) -> int:
    """Take turns with the other process: whoever is not writing must find at once what the writer committed."""
    with opened(path) as store:
        for step in range(steps):
            if step % 2 == number:
                store.batch([*puts([1_000 + step], seed=step), *deletes([step])])
                committed[step].set()
            else:
                assert committed[step].wait(DEADLINE)
                assert first(store, text_of(1_000 + step, step))[0][1] == 1.0
                assert store.search((), query=text_of(step), filter={"number": step}) == []
                assert store.stats().indexed_texts == 300
        return store.stats().indexed_texts


def test_a_process_sees_what_another_committed_before(path: Path) -> None:
    """At its very next wide search, deletions too."""
    fill(path, 300)
    committed = [multiprocessing.get_context("spawn").Event() for _ in range(20)]
    assert spawn(2, see_before_and_after, path, 20, committed) == [300, 300]
    with opened(path) as store:
        assert ask(store) == ask_exactly(path)


class TwoStoresMachine(RuleBasedStateMachine):
    """Two stores on one file write in any order and way; the one that ranks exactly knows what is right."""

    @initialize()
    def open(self) -> None:
        """Open them on one file."""
        self.stack = ExitStack()
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        path = folder / "memories.db"
        fill(path, 160)
        self.stores = [self.stack.enter_context(opened(path)) for _ in range(2)]
        self.exact = self.stack.enter_context(MemStore.open(path, index=exact_index()))

    @rule(by=st.integers(0, 1), numbers=st.lists(st.integers(0, 300), max_size=12), seed=st.integers(0, 3))
    def put(self, by: int, numbers: list[int], seed: int) -> None:
        """Put new items or replace others."""
        self.stores[by].batch(puts(numbers, seed))

    @rule(by=st.integers(0, 1), start=st.integers(0, 300), count=st.integers(1, 60))
    def delete(self, by: int, start: int, count: int) -> None:
        """Delete a stretch."""
        self.stores[by].batch(deletes(range(start, start + count)))

    @precondition(lambda self: hasattr(self, "stores"))
    @rule(by=st.integers(0, 1), seen=st.integers(0, 300), seed=st.integers(0, 3))
    def search(self, by: int, seen: int, seed: int) -> None:
        """Search for one text; what leads is what leads exactly."""
        for prefix in ((), ("wide", "1")):
            expected = self.exact.search(prefix, query=text_of(seen, seed), limit=2)
            found = self.stores[by].search(prefix, query=text_of(seen, seed), limit=2)
            assert [(item.key, item.score) for item in found] == [(item.key, item.score) for item in expected]
        stats = self.stores[by].stats()
        assert stats.indexed_texts == stats.texts

    def teardown(self) -> None:
        """Close them."""
        if hasattr(self, "stack"):
            self.stack.close()


TwoStoresMachine.TestCase.settings = settings(deadline=None, max_examples=15, stateful_step_count=15)
TestTwoStoresMachine = TwoStoresMachine.TestCase
