"""Rules 27 and 28 on SQLite across processes that share nothing but the file."""

from __future__ import annotations

import multiprocessing
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import PutOp

from memstore import MemStore
from tests.sqlite.children import DEADLINE, spawn
from tests.support import Clock, WordEmbeddings, keys, open_sqlite

INDEX = {"embed": WordEmbeddings(), "fields": ["text"]}
WRITERS = 4
SECONDS = 1.5
"""How long so many processes write and read one file together, and longer until each has seen the others."""
UNCLOSED = """
import asyncio, sys
from memstore import MemStore
from tests.support import WordEmbeddings

store = MemStore.open(sys.argv[1], index={"embed": WordEmbeddings()}, ttl={"sweep_interval_minutes": 5})
store.put(("a",), "1", {"n": 1})

async def use():
    await asyncio.gather(*(store.aput(("a",), str(n), {"n": n}) for n in range(5)))
    await store.asearch((), query="n 1")

asyncio.run(use())
print(store.stats().items)
"""
FORGOTTEN = """
import asyncio, gc, sys, warnings
from langgraph.store.base import PutOp
from memstore import MemStore

warnings.simplefilter("ignore", ResourceWarning)

async def forget(round_):
    store = MemStore.open(sys.argv[1])
    ops = [PutOp((str(round_),), str(n), {"text": "x" * 100}) for n in range(3000)]
    task = asyncio.ensure_future(store.abatch(ops))
    await asyncio.sleep(0.02 + round_ * 0.001)  # somewhere in the work of the worker
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    del store, task
    gc.collect()

for round_ in range(25):
    asyncio.run(forget(round_))
with MemStore.open(sys.argv[1]) as store:
    counts = [len(store.search((str(round_),), limit=5000)) for round_ in range(25)]
    assert set(counts) <= {0, 3000}, counts
    assert store.check().problems == ()
print("whole")
"""


def open_new_file(number: int, path: Path) -> int:
    """Open the same new file as others do at this moment, and use it."""
    store = MemStore.open(path, index=INDEX)
    store.setup()
    store.put(("a",), str(number), {"text": f"text {number}"})
    (hit,) = store.search((), query=f"text {number}", limit=1)
    assert (hit.key, hit.score) == (str(number), 1.0)
    store.close()
    return number


def write_and_read(number: int, path: Path, seconds: float) -> tuple[int, int]:
    """Write one's own items and read those of the others; say how often, and how far the others were seen."""
    steps, seen = 0, 0
    latest: dict[tuple[str, ...], int] = {}
    with MemStore.open(path, index=INDEX) as store:
        end = time.monotonic() + seconds
        while time.monotonic() < end or (len(latest) < WRITERS and time.monotonic() < end + DEADLINE / 2):
            own = ("processes", str(number))
            store.put(own, "k", {"text": f"text {number}", "step": steps})
            (mine,) = store.search(own, query=f"text {number}")
            assert (mine.value["step"], mine.score) == (steps, 1.0)
            for hit in store.search(("processes",), query="text", limit=10):
                assert hit.value["step"] >= latest.get(hit.namespace, 0)
                latest[hit.namespace] = hit.value["step"]
                item = store.get(hit.namespace, hit.key)
                assert item is not None
                assert item.value["step"] >= hit.value["step"]
            steps += 1
    seen = len(latest)
    return steps, seen


def see_before_and_after(number: int, path: Path, steps: int, committed: Any) -> None:
    """Take turns with the other process: whoever is not writing must see at once what the writer committed."""
    with MemStore.open(path, index=INDEX) as store:
        for step in range(steps):
            if step % 2 == number:
                store.put(("a",), "k", {"text": f"step {step}"})
                committed[step].set()
            else:
                assert committed[step].wait(DEADLINE)
                assert [hit.score for hit in store.search((), query=f"step {step}")] == [1.0]
                item = store.get(("a",), "k")
                assert item is not None
                assert item.value == {"text": f"step {step}"}


@contextmanager
def writing(raw: sqlite3.Connection) -> Iterator[None]:
    """Hold a write transaction of another connection open."""
    raw.execute("BEGIN IMMEDIATE")
    raw.execute("UPDATE memstore_clock SET clock = clock + 1000")
    try:
        yield
    finally:
        raw.execute("ROLLBACK")


class TestProcesses:
    """Processes that share nothing but the file."""

    def test_processes_may_open_a_new_file_at_once(self, path: Path) -> None:
        """Eight begin with no database at all: one set of tables is made, and none is told that it is locked."""
        assert spawn(8, open_new_file, path) == list(range(8))
        with MemStore.open(path) as store:
            assert store.stats().items == 8
            assert store.check().problems == ()

    def test_processes_write_and_read_one_file(self, path: Path) -> None:
        """Four keep at it together: no error, and what one has seen of another never goes back."""
        answers = spawn(WRITERS, write_and_read, path, SECONDS)
        assert all(steps > 0 and seen == WRITERS for steps, seen in answers)
        with MemStore.open(path) as store:
            assert store.stats().items == WRITERS
            assert store.check().problems == ()

    def test_a_process_sees_what_another_committed_before(self, path: Path) -> None:
        """Not sooner or later, but at its very next call, search included."""
        MemStore.open(path, index=INDEX).close()
        committed = [multiprocessing.get_context("spawn").Event() for _ in range(30)]
        spawn(2, see_before_and_after, path, 30, committed)

    def test_an_unclosed_store_does_not_hold_the_process(self, path: Path) -> None:
        """A script that forgets to close ends when it is done, workers and sweeper notwithstanding."""
        done = subprocess.run(
            [sys.executable, "-c", UNCLOSED, str(path)], capture_output=True, text=True, timeout=DEADLINE, check=False
        )
        assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
        assert "Traceback" not in done.stderr

    def test_a_cancelled_call_outlives_a_forgotten_store(self, path: Path) -> None:
        """A write goes on in its worker after its caller was cancelled; collecting the store must not pull it down."""
        done = subprocess.run(
            [sys.executable, "-c", FORGOTTEN, str(path)], capture_output=True, text=True, timeout=DEADLINE, check=False
        )
        assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr[-3000:]

    def test_readers_do_not_wait_for_a_writer(self, path: Path, raw: sqlite3.Connection) -> None:
        """While another connection is in a long write, every read is answered, in an open store and a new one."""
        with MemStore.open(path, index=INDEX) as store, ThreadPoolExecutor(1) as thread:
            store.put(("a",), "k", {"text": "apples"})

            def read() -> tuple[Any, ...]:
                with MemStore.open(path) as new, MemStore.open(path, index=INDEX) as same:
                    assert keys(same.search((), query="apples")) == keys(new.search(())) == ["k"]
                assert store.get(("a",), "k") is not None
                return (
                    keys(store.search((), query="apples")),
                    keys(store.search((), filter={"text": "apples"})),
                    store.list_namespaces(),
                    store.stats().items,
                    store.check().problems,
                )

            with writing(raw):
                answer = thread.submit(read).result(DEADLINE / 2)
            assert answer == (["k"], ["k"], [("a",)], 1, ())

    @pytest.mark.parametrize("wrote", [True, False], ids=["after writing", "only reading"])
    def test_a_refresh_does_not_hold_up_a_reader(self, path: Path, raw: sqlite3.Connection, wrote: bool) -> None:
        """An item with a ttl is read as fast: moving its expiry is not worth waiting for another's long write."""
        with MemStore.open(path, index=INDEX) as store:
            store.put(("a",), "k", {"text": "apples"}, ttl=5)
        raw.execute("UPDATE memstore_items SET expires_at = expires_at - 60000000")  # a minute has gone
        with MemStore.open(path, index=INDEX) as store, ThreadPoolExecutor(1) as thread:
            if wrote:
                store.put(("a",), "other", {"text": "rain"})
            with writing(raw):
                item = thread.submit(store.get, ("a",), "k").result(DEADLINE / 10)
            assert item is not None

    def test_closing_loses_no_refresh(self, path: Path, raw: sqlite3.Connection) -> None:
        """What a read was to keep alive is kept alive, though another's write put the refreshes off until the close."""
        clock = Clock()
        store = open_sqlite(path, clock, None, None)
        store.batch(PutOp(("a",), str(number), {}, ttl=10) for number in range(20))
        clock.pass_minutes(6)
        with writing(raw):
            for number in range(20):
                assert store.get(("a",), str(number)) is not None
        store.close()
        clock.pass_minutes(6)
        with closing(open_sqlite(path, clock, None, None)) as again:
            assert len(again.search((), limit=100)) == 20

    def test_writers_wait_for_a_writer(self, path: Path, raw: sqlite3.Connection) -> None:
        """A write that meets another's transaction waits its turn and applies; it is not told that it is locked."""
        begun = threading.Event()

        def embed(texts: list[str]) -> list[list[float]]:
            begun.set()
            return [[1.0]] * len(texts)

        with MemStore.open(path, index={"embed": embed, "dims": 1}) as store, ThreadPoolExecutor(1) as thread:
            with writing(raw):
                put = thread.submit(store.put, ("a",), "k", {"text": "apples"})
                assert begun.wait(DEADLINE)
                with pytest.raises(TimeoutError):
                    put.result(0.1)
                assert store.get(("a",), "k") is None
            put.result(DEADLINE)
            assert store.get(("a",), "k") is not None
