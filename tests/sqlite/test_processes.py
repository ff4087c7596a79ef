"""Rules 27 and 28 on SQLite across processes that share nothing but the file."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import PutOp

from memstore import MemStore
from tests.children import DEADLINE
from tests.conformance.processes import INDEX, ProcessesConformance
from tests.support import Clock, keys, open_sqlite

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


@contextmanager
def writing(raw: sqlite3.Connection) -> Iterator[None]:
    """Hold a write transaction of another connection open."""
    raw.execute("BEGIN IMMEDIATE")
    raw.execute("UPDATE memstore_clock SET clock = clock + 1000")
    try:
        yield
    finally:
        raw.execute("ROLLBACK")


class TestProcesses(ProcessesConformance):
    """Processes that share nothing but the file."""

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
