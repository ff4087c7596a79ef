"""Opening and closing: rules 27 and 28 of the contract, for one store."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from functools import partial
from typing import Any

import pytest
from langgraph.store.base import GetOp, PutOp

from memstore import MemStore, StoreClosed
from tests.conformance.concurrency import DEADLINE, run_together
from tests.support import OpenStore, Place, WordEmbeddings, keys

USES: dict[str, Callable[[MemStore], object]] = {
    "put": lambda store: store.put(("a",), "k", {}),
    "get": lambda store: store.get(("a",), "k"),
    "delete": lambda store: store.delete(("a",), "k"),
    "search": lambda store: store.search(()),
    "query": lambda store: store.search((), query="apples"),
    "list_namespaces": lambda store: store.list_namespaces(),
    "batch": lambda store: store.batch([GetOp(("a",), "k"), PutOp(("a",), "k", {})]),
    "empty batch": lambda store: store.batch([]),
    "stats": lambda store: store.stats(),
    "check": lambda store: store.check(),
    "sweep_ttl": lambda store: store.sweep_ttl(),
    "start_ttl_sweeper": lambda store: store.start_ttl_sweeper(5),
    "setup": lambda store: store.setup(),
    "with": lambda store: store.__enter__(),
}
ASYNC_USES: dict[str, Callable[[MemStore], Coroutine[Any, Any, object]]] = {
    "aput": lambda store: store.aput(("a",), "k", {}),
    "aget": lambda store: store.aget(("a",), "k"),
    "adelete": lambda store: store.adelete(("a",), "k"),
    "asearch": lambda store: store.asearch(()),
    "query": lambda store: store.asearch((), query="apples"),
    "alist_namespaces": lambda store: store.alist_namespaces(),
    "abatch": lambda store: store.abatch([GetOp(("a",), "k"), PutOp(("a",), "k", {})]),
    "empty abatch": lambda store: store.abatch([]),
    "astats": lambda store: store.astats(),
    "acheck": lambda store: store.acheck(),
    "async with": lambda store: store.__aenter__(),
}


def threads_of_stores() -> set[threading.Thread]:
    """Give the threads that belong to stores."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("memstore")}


def forget(stores: list[MemStore]) -> None:
    """Let stores go that nothing else refers to."""
    stores.clear()
    gc.collect()


class LifecycleConformance:
    """A store opens by itself, closes once and for all, and leaves nothing running."""

    def test_a_fresh_store_is_true(self, location: Place) -> None:
        """LangGraph tests stores for truth; an empty one that counted as false would be replaced in silence."""
        with location.open() as store:
            assert bool(store) is True
            assert not hasattr(store, "__len__")
            assert not hasattr(store, "__bool__")
        assert bool(store) is True

    def test_setup_is_never_needed(self, location: Place) -> None:
        """The first call opens the store, whichever it is."""
        for use in USES.values():
            store = location.name(index={"embed": WordEmbeddings()})
            use(store)
            store.close()
        store = location.name()
        assert store.get(("a",), "missing") is None
        store.close()

    async def test_setup_is_never_needed_in_async(self, location: Place) -> None:
        """The first awaited call opens the store, whichever it is."""
        for use in ASYNC_USES.values():
            store = location.name(index={"embed": WordEmbeddings()})
            await use(store)
            await store.aclose()

    async def test_setup_may_be_called_at_any_time(self, location: Place) -> None:
        """Twice, plainly or awaited, on an open store or a new one: it changes nothing that is there."""
        async with location.name(index={"embed": WordEmbeddings()}) as store:
            store.setup()
            await store.setup()
            await store.aput(("a",), "k", {"n": 1})
            await store.setup()
            store.setup()
            assert keys(await store.asearch((), query="n 1")) == ["k"]

    def test_many_threads_may_open_a_store_at_once(self, location: Place) -> None:
        """The first use of a store may come from anywhere, and from everywhere at once."""
        others = threads_of_stores()
        settings: Any = {"index": {"embed": WordEmbeddings()}, "ttl": {"sweep_interval_minutes": 5}}
        with closing(location.name(**settings)) as store:

            def work(number: int) -> None:
                store.setup()
                store.put(("a",), str(number), {"n": number})
                assert store.search((), query=f"n {number}", limit=1)[0].key == str(number)

            works: list[Callable[[], object]] = [partial(work, number) for number in range(8)]
            run_together(works)
            assert store.stats().items == 8
            assert [thread.name for thread in threads_of_stores() - others].count("memstore-sweeper") == 1

    def test_closing_twice_is_closing(self, open_store: OpenStore) -> None:
        """Plainly, awaited, by `with` and again: a second close is no error."""
        caller = open_store()
        caller.put(("a",), "k", {})
        caller.close()
        caller.close()
        caller.store.close()
        asyncio.run(caller.store.aclose())
        caller.store.__exit__(None, None, None)

    def test_a_store_may_be_closed_before_its_first_use(self, location: Place) -> None:
        """A store that was only named is closed all the same: it never opens."""
        store = location.name()
        store.close()
        with pytest.raises(StoreClosed):
            store.get(("a",), "k")

    def test_use_after_close_is_an_error(self, open_store: OpenStore) -> None:
        """Every call says that the store is closed, as a RuntimeError, and opens nothing."""
        caller = open_store(index={"embed": WordEmbeddings()})
        caller.put(("a",), "k", {"n": 1})
        caller.close()
        for use in USES.values():
            with pytest.raises(StoreClosed, match="closed") as caught:
                use(caller.store)
            assert isinstance(caught.value, RuntimeError)
        assert "closed" in repr(caller.store)

    @pytest.mark.parametrize("open_store", ["async"], indirect=True)
    def test_awaiting_after_close_is_an_error(self, open_store: OpenStore, runner: asyncio.Runner) -> None:
        """Every awaited call says so too."""
        caller = open_store(index={"embed": WordEmbeddings()})
        caller.put(("a",), "k", {"n": 1})
        caller.close()
        for use in ASYNC_USES.values():
            with pytest.raises(StoreClosed, match="closed"):
                runner.run(use(caller.store))

    def test_with_closes(self, location: Place) -> None:
        """Leaving the block closes the store, also by an error, which comes through."""
        with location.name() as store:
            store.put(("a",), "k", {})
        with pytest.raises(StoreClosed):
            store.get(("a",), "k")
        with pytest.raises(KeyError), location.name() as store:
            raise KeyError
        with pytest.raises(StoreClosed):
            store.get(("a",), "k")

    async def test_async_with_closes(self, location: Place) -> None:
        """Leaving the block closes the store, also by an error, which comes through."""
        async with location.name() as store:
            await store.aput(("a",), "k", {})
        with pytest.raises(StoreClosed):
            await store.aget(("a",), "k")
        with pytest.raises(KeyError):
            async with location.name() as store:
                raise KeyError
        with pytest.raises(StoreClosed):
            await store.aget(("a",), "k")

    def test_nothing_runs_on_after_close(self, location: Place) -> None:
        """Workers and sweeper have ended when `close` returns."""

        async def use(store: MemStore) -> None:
            await asyncio.gather(*(store.aput(("a",), str(n), {"n": n}) for n in range(5)))
            await asyncio.gather(*(store.asearch((), query="n 1") for _ in range(5)))

        others = threads_of_stores()
        store = location.open(index={"embed": WordEmbeddings()}, ttl={"sweep_interval_minutes": 5})
        asyncio.run(use(store))
        assert threads_of_stores() > others
        store.close()
        assert threads_of_stores() <= others

    def test_an_unclosed_store_warns(self, location: Place) -> None:
        """Whoever forgets to close is told when the store is collected, once; its threads end by themselves."""
        others = threads_of_stores()
        stores = [location.open(index={"embed": WordEmbeddings()})]
        stores[0].put(("a",), "k", {"n": 1})
        asyncio.run(stores[0].aput(("a",), "k", {"n": 2}))
        with pytest.warns(ResourceWarning, match="unclosed") as caught:
            forget(stores)
        assert len([warning for warning in caught if "MemStore" in str(warning.message)]) == 1
        for thread in threads_of_stores() - others:
            thread.join(DEADLINE)
        assert threads_of_stores() <= others

    def test_a_store_that_was_closed_or_never_opened_does_not_warn(self, location: Place) -> None:
        """There is nothing to be closed, and warnings are errors here."""
        location.name()
        location.open().close()
        with pytest.raises(ValueError, match="index"):
            location.name(index={"embed": WordEmbeddings(), "no such key": 1})
        gc.collect()

    def test_closing_waits_for_calls_under_way(self, location: Place) -> None:
        """A call that has begun ends well or says that the store is closed; none hangs, none dies of anything else."""
        for _ in range(10):
            store = location.open(index={"embed": WordEmbeddings()})
            used = threading.Event()

            def use(store: MemStore = store, used: threading.Event = used) -> None:
                number = 0
                while True:
                    try:
                        store.put(("a",), str(number % 9), {"n": number})
                        assert store.search((), query=f"n {number}", limit=1)
                    except StoreClosed:
                        used.set()
                        return
                    number += 1
                    used.set()

            async def use_async(store: MemStore = store) -> None:
                with suppress(StoreClosed):
                    while True:
                        await asyncio.gather(store.aput(("b",), "k", {"n": 1}), store.asearch((), query="n 1"))

            def close(store: MemStore = store, used: threading.Event = used) -> None:
                used.wait(DEADLINE)
                store.close()

            run_together([use, use, lambda: asyncio.run(use_async()), close])

    def test_closing_during_the_first_use_leaves_nothing_running(self, location: Place) -> None:
        """Whichever of the two comes first, no sweeper or worker of the store is left when both have ended."""
        others = threads_of_stores()
        died: list[object] = []
        hook, threading.excepthook = threading.excepthook, lambda args: died.append(args.exc_value)
        try:
            for _ in range(60):
                store = location.name(ttl={"sweep_interval_minutes": 1e-4})

                def use(store: MemStore = store) -> None:
                    with suppress(StoreClosed):
                        store.put(("a",), "k", {})

                run_together([use, store.close])
                assert threads_of_stores() <= others
        finally:
            threading.excepthook = hook
        assert died == []
