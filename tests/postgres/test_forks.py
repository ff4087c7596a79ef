"""Rule 28 on Postgres: a forked child opens its own connections, and both sides go on."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from memstore import DatabaseError, InvalidConfig, MemStore, StoreClosed
from tests.children import Busy, Forked, fork
from tests.postgres.uses import INDEX, SYNC, use, use_async, use_awaited
from tests.support import keys

pytestmark = [
    # Python 3.12 says so of every process with threads; that children work nevertheless is what is tested here
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]


class TestForks:
    """A process that forks with open stores."""

    def test_a_child_uses_the_store_it_was_given(self, url: str, schema: str) -> None:
        """On connections of its own; its end breaks none of the parent's."""
        with MemStore.open(url, schema=schema, index=INDEX, pool={"min_size": 3}) as store, asyncio.Runner() as runner:
            assert use(store, "before") == [("k", 1.0)]
            assert runner.run(use_async(store, "before")) == [("k3", 1.0)]
            pids = self._pids(store)
            for number in range(3):
                assert fork(partial(use, store, f"child {number}")) == [("k", 1.0)]
                assert fork(partial(use_awaited, store, f"async child {number}")) == [("k3", 1.0)]
                assert use(store, f"after {number}") == [("k", 1.0)]
                assert runner.run(use_async(store, f"after {number}")) == [("k3", 1.0)]
            assert self._pids(store) >= pids
            assert keys(store.search(("use", "child 2"), query="text of child 2")) == ["k"]
            assert store.check().problems == ()
            runner.run(store.aclose())

    @staticmethod
    def _pids(store: MemStore) -> set[int]:
        """Give the server's processes for the connections of the store's pool."""
        backend: Any = store._backend
        return {connection.info.backend_pid for connection in list(backend._threads._pool._pool)}

    def test_a_child_that_ends_as_any_process_does(self, url: str, schema: str) -> None:
        """Whatever its exit collects and closes, the parent's connections stay."""
        with MemStore.open(url, schema=schema, index=INDEX) as store:
            use(store, "before")

            def child() -> Any:
                used = use(store, "child")
                store.close()
                del store._backend
                gc.collect()
                return used

            assert fork(child) == [("k", 1.0)]
            assert use(store, "after") == [("k", 1.0)]

    def test_a_fork_may_come_at_any_moment(self, url: str, schema: str) -> None:
        """While other threads write, read and await, every child works at once, and so do the threads."""
        with MemStore.open(url, schema=schema, index=INDEX) as store:
            works: list[Callable[[int], object]] = [
                lambda n: store.put(("w",), str(n % 50), {"text": f"text {n}"}),
                lambda n: store.search((), query=f"text {n % 7}"),
                lambda n: use_awaited(store, f"async {n % 5}"),
            ]
            with Busy(*works):
                for number in range(8):
                    forked = [Forked(partial(use, store, f"c{number}")), Forked(partial(use_awaited, store, "a"))]
                    assert [child.result() for child in forked] == [[("k", 1.0)], [("k3", 1.0)]]
            assert store.check().problems == ()

    @pytest.mark.parametrize("kind", ["connection", "pool"])
    def test_a_given_connection_stays_with_its_process(self, url: str, schema: str, kind: str) -> None:
        """Two processes on one connection would read each other's answers: the child has its own, or is refused."""

        def child(store: MemStore, number: int) -> Any:
            try:
                return [use(store, f"child {number} {step}") for step in range(20)] == [[("k", 1.0)]] * 20
            except (DatabaseError, StoreClosed, InvalidConfig):
                return True

        def parent() -> Any:
            with SYNC[kind](url) as given, MemStore.open(given, schema=schema, index=INDEX) as store:
                assert use(store, "before") == [("k", 1.0)]
                forked = [Forked(partial(child, store, number)) for number in range(2)]
                after = [use(store, f"after {number}") for number in range(20)]
                return after, [child.result() for child in forked], store.check().problems

        assert fork(parent) == ([[("k", 1.0)]] * 20, [True, True], ())  # a process of its own, as it may hang
