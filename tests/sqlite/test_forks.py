"""Rule 28 on SQLite: a forked child opens its own connections, and both sides go on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memstore import MemStore, StoreClosed
from memstore.backends.sqlite import SqliteBackend
from tests.children import DEADLINE, FORK_DEADLINE, Busy, Forked, fork
from tests.support import WordEmbeddings, keys

COLLECTED = """
import gc, os, sys, warnings
from memstore import MemStore
from memstore.backends import forks

warnings.simplefilter("ignore", ResourceWarning)

class Graph:
    pass

class Collecting:
    def disconnect(self):
        gc.collect()

    def start(self):
        pass

gc.disable()
graph = Graph()
graph.itself = graph
graph.store = MemStore.open(sys.argv[1])
graph.store.put(("a",), "k", {})
del graph
collecting = Collecting()
forks.watch(collecting)
child = os.fork()
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("forked")
"""
"""Forks while Python collects a store that was part of a cycle, as a compiled graph is."""
INDEX = {"embed": WordEmbeddings(), "fields": ["text"]}

pytestmark = [
    # Python 3.12 says so of every process with threads; that children work nevertheless is what is tested here
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]


def use(store: MemStore, key: str) -> list[Any]:
    """Put, get, search and list, and give what a fresh put is found by."""
    store.put(("forks", key), "k", {"text": f"text of {key}"})
    item = store.get(("forks", key), "k")
    assert item is not None
    assert ("forks", key) in store.list_namespaces(prefix=("forks",), limit=1000)
    return [(hit.key, hit.score) for hit in store.search(("forks", key), query=f"text of {key}")]


async def use_async(store: MemStore, key: str) -> list[Any]:
    """Do the same awaited, with several calls at once."""
    puts = [store.aput(("forks", key), f"k{n}", {"text": f"text {n} of {key}"}) for n in range(4)]
    await asyncio.gather(*puts, *(store.asearch((), query="text") for _ in range(4)))
    return [(hit.key, hit.score) for hit in await store.asearch(("forks", key), query=f"text 3 of {key}", limit=1)]


def use_awaited(store: MemStore, key: str) -> list[Any]:
    """Do it on an event loop of its own."""
    return asyncio.run(use_async(store, key))


def statuses() -> Iterator[os.stat_result]:
    """Give what this process's open files are."""
    for descriptor in range(3, 512):
        with suppress(OSError):
            yield os.fstat(descriptor)


class TestForks:
    """A process that forks with open stores."""

    def test_a_child_uses_the_store_it_was_given(self, path: Path) -> None:
        """It sees what was there, writes, and searches; the parent sees that and goes on."""
        with MemStore.open(path, index=INDEX) as store:
            assert use(store, "before") == [("k", 1.0)]

            def child() -> tuple[list[Any], list[str]]:
                seen = keys(store.search(("forks", "before"), query="text of before"))
                return use(store, "child"), seen

            assert fork(child) == ([("k", 1.0)], ["k"])
            assert keys(store.search(("forks", "child"), query="text of child")) == ["k"]
            assert use(store, "after") == [("k", 1.0)]
            assert store.check().problems == ()

    def test_no_connection_crosses_a_fork(self, path: Path) -> None:
        """SQLite must not meet one connection in two processes: the child begins without any, the parent opens anew."""

        def connected() -> int:
            file = path.stat()
            return sum((status.st_dev, status.st_ino) == (file.st_dev, file.st_ino) for status in statuses())

        with MemStore.open(path, index=INDEX) as store, MemStore.open(path, index=INDEX) as other:
            asyncio.run(use_async(store, "before"))
            use(other, "other")
            assert connected() >= 3
            before, after = fork(lambda: (connected(), bool(use(store, "child")) and connected()))
            assert before == 0
            assert after > 0
            assert use(store, "after") == use(other, "after") == [("k", 1.0)]

    def test_a_lock_is_open_in_the_child(self, path: Path) -> None:
        """What a thread of the parent held at the fork nobody would ever let go in the child."""
        backend = SqliteBackend(path)
        held, done = threading.Event(), threading.Event()

        def hold(lock: Any) -> None:
            with lock:
                held.set()
                done.wait(DEADLINE)

        def child(lock: Any) -> bool:
            with lock:
                return True

        lock = backend.lock()
        holder = threading.Thread(target=hold, args=(lock,))
        holder.start()
        try:
            assert held.wait(DEADLINE)
            assert fork(partial(child, lock))
        finally:
            done.set()
            holder.join(DEADLINE)
        assert child(lock)
        backend.close()

    def test_a_child_sees_what_its_parent_writes_later(self, path: Path) -> None:
        """Parent and child are two processes on one file: each sees the other's commits at its next call."""
        reading, writing = os.pipe()
        with MemStore.open(path, index=INDEX) as store:
            store.put(("a",), "k", {"text": "before"})

            def child() -> Any:
                store.search((), query="before")
                os.read(reading, 1)
                return [hit.score for hit in store.search((), query="after")]

            forked = Forked(child)
            store.put(("a",), "k", {"text": "after"})
            os.write(writing, b"!")
            assert forked.result() == [1.0]
        os.close(reading)
        os.close(writing)

    def test_a_child_awaits_after_the_parent_did(self, path: Path) -> None:
        """The parent's worker threads are not in the child: it hires its own."""
        with MemStore.open(path, index=INDEX) as store:
            assert asyncio.run(use_async(store, "before")) == [("k3", 1.0)]
            assert fork(lambda: asyncio.run(use_async(store, "child"))) == [("k3", 1.0)]
            assert fork(lambda: use(store, "plain child")) == [("k", 1.0)]
            assert asyncio.run(use_async(store, "after")) == [("k3", 1.0)]
            assert store.check().problems == ()

    def test_a_fork_may_come_at_any_moment(self, path: Path) -> None:
        """While other threads write, read and await, every child works at once, and so do the threads."""
        with MemStore.open(path, index=INDEX) as store, MemStore.open(path, index=INDEX) as other:
            works: list[Callable[[int], object]] = [
                lambda n: store.put(("w",), str(n % 50), {"text": f"text {n}"}),
                lambda n: other.put(("o",), str(n % 50), {"text": f"text {n}"}),
                lambda n: store.search((), query=f"text {n % 7}"),
                lambda n: use_awaited(store, f"async {n % 5}"),
            ]
            with Busy(*works):
                for number in range(15):
                    forked = [Forked(partial(use, store, f"c{number}")) for _ in range(2)]
                    forked.append(Forked(partial(use_awaited, other, f"a{number}")))
                    assert [child.result() for child in forked] == [[("k", 1.0)], [("k", 1.0)], [("k3", 1.0)]]
            assert store.check().problems == ()

    @pytest.mark.parametrize("elsewhere", ["stores on files", "stores in memory", "one store in memory"])
    def test_a_fork_may_come_while_other_stores_are_busy(self, path: Path, tmp_path: Path, elsewhere: str) -> None:
        """Stores that open, work and close in other threads, even those no child can use, never hang the child's own.

        SQLite has locks for the whole process; one that another thread held at the fork stays locked in the child.
        """
        lasting = MemStore.open(":memory:", index=INDEX)

        def work(number: int) -> None:
            if elsewhere == "one store in memory":
                lasting.put(("w",), str(number % 50), {"text": f"text {number}"})
                return
            location = ":memory:" if elsewhere == "stores in memory" else tmp_path / f"other{number % 3}.db"
            with MemStore.open(location, index=INDEX) as passing:
                use(passing, "passing")

        with lasting, MemStore.open(path, index=INDEX) as store, Busy(work, work):
            for number in range(60):
                assert fork(partial(use, store, f"c{number}")) == [("k", 1.0)]

    def test_a_fork_may_collect_a_forgotten_store(self, path: Path) -> None:
        """Python may collect garbage at any allocation, also in the middle of a fork: neither hangs."""
        done = subprocess.run(
            [sys.executable, "-c", COLLECTED, str(path)],
            capture_output=True,
            text=True,
            timeout=FORK_DEADLINE,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, "forked\n"), done.stderr

    def test_a_child_may_close_its_store(self, path: Path) -> None:
        """Closed in the child, it is closed there alone; a new one on the same file works as well."""
        with MemStore.open(path, index=INDEX, ttl={"sweep_interval_minutes": 1e-4}) as store:
            asyncio.run(use_async(store, "before"))

            def child() -> Any:
                use(store, "child")
                store.close()
                with pytest.raises(StoreClosed):
                    store.get(("a",), "k")
                with MemStore.open(path, index=INDEX) as own:
                    return use(own, "own")

            assert fork(child) == [("k", 1.0)]
            assert use(store, "after") == [("k", 1.0)]

    def test_a_child_may_fork(self, path: Path) -> None:
        """What holds for a child holds for its own."""
        with MemStore.open(path, index=INDEX) as store:
            store.put(("a",), "k", {"text": "apples"})

            def child() -> Any:
                use(store, "child")
                return [fork(lambda: use(store, "grandchild")), use(store, "child again")]

            assert fork(child) == [[("k", 1.0)], [("k", 1.0)]]
            assert len(store.list_namespaces(prefix=("forks",))) == 3

    def test_a_named_store_opens_in_the_child(self, path: Path) -> None:
        """A store that was not used before the fork is opened by each side for itself."""
        store = MemStore.from_conn_string(path, index=INDEX)
        assert fork(lambda: use(store, "child")) == [("k", 1.0)]
        assert use(store, "parent") == [("k", 1.0)]
        store.close()

    def test_a_closed_store_stays_closed_in_the_child(self, path: Path) -> None:
        """A fork reopens nothing."""
        store = MemStore.open(path)
        store.close()

        def child() -> None:
            with pytest.raises(StoreClosed):
                store.get(("a",), "k")

        fork(child)

    def test_a_database_in_memory_stays_with_its_process(self) -> None:
        """A copy in the child would drift apart unseen: its use is an error there, and the parent goes on."""
        with MemStore.open(":memory:", index=INDEX) as store:
            store.put(("a",), "k", {"text": "apples"})

            def child() -> None:
                for attempt in (
                    lambda: store.get(("a",), "k"),
                    lambda: store.search((), query="apples"),
                    lambda: store.put(("a",), "k", {}),
                    lambda: asyncio.run(store.aget(("a",), "k")),
                ):
                    with pytest.raises(StoreClosed, match="memory"):
                        attempt()

            fork(child)
            assert keys(store.search(("a",), query="apples")) == ["k"]

    def test_a_database_in_memory_may_be_closed_in_a_child(self) -> None:
        """A `with` block that ends in the child, or its exit, does not wait for a thread that only the parent has."""
        with MemStore.open(":memory:", index=INDEX) as store:
            with Busy(lambda n: store.put(("w",), str(n % 50), {"text": f"text {n}"})):
                for _ in range(20):
                    fork(store.close)
            assert use(store, "after") == [("k", 1.0)]
