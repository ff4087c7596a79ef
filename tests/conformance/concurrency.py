"""Cancelled calls, threads and event loops: rule 24 of the contract."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from langgraph.store.base import GetOp, Op, PutOp, SearchOp

from memstore import MemStore, StoreClosed
from tests.conformance.models import GatedEmbeddings
from tests.support import OpenStore, WordEmbeddings, keys

only_async = pytest.mark.parametrize("open_store", ["async"], indirect=True)
only_sync = pytest.mark.parametrize("open_store", ["sync"], indirect=True)
DEADLINE = 60.0
"""Seconds within which threads end, or hang for good."""


def run_together(works: list[Callable[[], object]]) -> None:
    """Start each in a thread of its own at the same moment; raise what any of them raised."""
    start = threading.Barrier(len(works))

    def begin(work: Callable[[], object]) -> None:
        start.wait(DEADLINE)
        work()

    with ThreadPoolExecutor(len(works)) as threads:
        for future in [threads.submit(begin, work) for work in works]:
            future.result(DEADLINE)


async def settled(store: MemStore, key: str) -> tuple[bool, int]:
    """Tell whether an item is there, and how many texts are, once writes under way have ended."""
    await store.aput(("later",), "k", {"n": 1}, index=False)  # writes take turns: this one is behind those
    item = await store.aget(("a",), key)
    return item is not None, (await store.astats()).texts


class ConcurrencyConformance:
    """One store serves every thread and event loop, and a cancelled call does no harm."""

    @only_async
    def test_a_put_cancelled_while_embedding_writes_nothing(
        self, open_store: OpenStore, runner: asyncio.Runner
    ) -> None:
        """The model is waited for outside any transaction: nothing has begun, and the next call works."""
        embeddings = GatedEmbeddings()
        store = open_store(index={"embed": embeddings, "fields": ["text"]}).store

        async def cancel() -> None:
            for call in (
                store.aput(("a",), "k", {"text": "apples"}),
                store.abatch([PutOp(("a",), str(n), {"text": f"text {n}"}) for n in range(50)]),
                store.asearch((), query="apples"),
            ):
                embeddings.entered.clear()
                task = asyncio.ensure_future(call)
                await embeddings.entered.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert await store.alist_namespaces() == []
            embeddings.gate.set()
            await store.aput(("a",), "k", {"text": "apples"})
            assert [hit.score for hit in await store.asearch((), query="apples")] == [1.0]
            assert (await store.acheck()).problems == ()

        runner.run(cancel())

    @only_async
    def test_a_cancelled_put_is_whole_or_nothing(self, open_store: OpenStore, runner: asyncio.Runner) -> None:
        """Cancelled at any moment, it has written the item with all its texts or none of it; the store works on."""
        embeddings = WordEmbeddings()
        store = open_store(index={"embed": embeddings, "fields": ["texts[*]"]}).store

        async def cancel_after(turns: int, seconds: float) -> bool:
            key = f"{turns}-{seconds}"
            before = (await store.astats()).texts
            value = {"texts": [f"{key} {n}" for n in range(20)]}
            task = asyncio.ensure_future(store.aput(("a",), key, value))
            for _ in range(turns):
                await asyncio.sleep(0)
            if seconds:
                await asyncio.sleep(seconds)  # anywhere in the work of the worker, where that falls
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            there, texts = await settled(store, key)
            assert texts - before == (20 if there else 0)
            return there

        async def cancel() -> None:
            for turns in range(12):
                await cancel_after(turns, 0)
            for step in range(30):
                await cancel_after(1, step / 5000)
            assert (await store.acheck()).problems == ()

        runner.run(cancel())

    @only_async
    def test_cancelling_one_of_many_spares_the_others(self, open_store: OpenStore, runner: asyncio.Runner) -> None:
        """Calls that wait beside it, for the model or for a turn to write, go on and apply."""
        store = open_store(index={"embed": WordEmbeddings(), "fields": ["text"]}).store

        async def cancel_every_third() -> None:
            tasks = [
                asyncio.ensure_future(store.aput((f"n{n % 4}",), f"k{n}", {"text": f"text {n}"})) for n in range(60)
            ]
            await asyncio.sleep(0)
            for task in tasks[::3]:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [result for n, result in enumerate(results) if n % 3] == [None] * 40
            found = {item.key for item in await store.asearch((), limit=100)}
            assert found >= {f"k{n}" for n in range(60) if n % 3}
            stats = await store.astats()
            assert stats.texts == stats.items
            assert (await store.acheck()).problems == ()

        runner.run(cancel_every_third())

    @only_async
    def test_closing_after_a_cancelled_call_works(self, open_store: OpenStore, runner: asyncio.Runner) -> None:
        """What was cancelled holds nothing that closing would wait for."""
        embeddings = GatedEmbeddings()
        store = open_store(index={"embed": embeddings, "fields": ["text"]}).store

        async def cancel() -> None:
            tasks = [asyncio.ensure_future(store.aput(("a",), str(n), {"text": "apples"})) for n in range(5)]
            tasks += [asyncio.ensure_future(store.aput(("a",), str(n), {"n": 1}, index=False)) for n in range(5)]
            await embeddings.entered.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await store.aclose()
            with pytest.raises(StoreClosed):
                await store.aget(("a",), "1")

        runner.run(asyncio.wait_for(cancel(), DEADLINE))

    @only_sync
    def test_threads_share_a_store(self, open_store: OpenStore) -> None:
        """Eight threads put, delete, get, search and list at once; each finds what it wrote, and nothing is lost."""
        caller = open_store(index={"embed": WordEmbeddings(), "fields": ["text"]})
        store = caller.store

        def work(number: int) -> None:
            own = ("own", str(number))
            for step in range(25):
                store.batch(
                    [
                        PutOp(own, f"k{step}", {"text": f"text {number} {step}"}),
                        PutOp(("shared",), "k", {"text": "shared", "by": number, "step": step}),
                        PutOp(("shared",), f"k{number}", None if step % 2 else {"text": f"odd {number}"}),
                    ]
                )
                (hit,) = store.search(own, query=f"text {number} {step}", limit=1)
                assert (hit.key, hit.score) == (f"k{step}", 1.0)
                assert len(store.search(own, limit=100)) == step + 1
                assert len(store.search((), query="shared", limit=1000)) >= step
                item = store.get(("shared",), "k")
                assert item is not None
                assert own in store.list_namespaces(limit=100)

        run_together([partial(work, number) for number in range(8)])
        assert caller.stats().items == 8 * 25 + 1 + 8
        assert caller.check().problems == ()

    @only_sync
    def test_a_batch_is_seen_whole_or_not_at_all(self, open_store: OpenStore) -> None:
        """While one thread moves two items together, no reader ever sees them apart."""
        store = open_store(index={"embed": WordEmbeddings(), "fields": ["text"]}).store
        done = threading.Event()

        def put(number: int) -> None:
            value = {"text": f"number {number}", "n": number}
            store.batch([PutOp(("a",), "1", value), PutOp(("b",), "2", value)])

        def write() -> None:
            try:
                for number in range(1, 80):
                    put(number)
            finally:
                done.set()

        def read() -> None:
            while not done.is_set():
                ops: list[Op] = [GetOp(("a",), "1"), GetOp(("b",), "2"), SearchOp(()), SearchOp((), query="number")]
                answers: list[Any] = store.batch(ops)
                one, two, newest, nearest = answers
                seen = {item.value["n"] for item in (one, two, *newest, *nearest)}
                assert len(seen) == 1
                assert len(newest) == len(nearest) == 2
                assert nearest[0].score == nearest[1].score

        put(0)
        run_together([write, read, read, read])

    @only_sync
    def test_event_loops_share_a_store(self, open_store: OpenStore) -> None:
        """Several loops, each in its thread, beside a thread that blocks: one store serves them all."""
        caller = open_store(index={"embed": WordEmbeddings(), "fields": ["text"]})
        store = caller.store

        async def work(number: int) -> None:
            own = ("own", str(number))
            for step in range(8):
                puts = [store.aput(own, f"k{step}-{n}", {"text": f"text {number} {step} {n}"}) for n in range(4)]
                await asyncio.gather(*puts, store.asearch((), query="text"), store.aget(own, "k0-0"))
                (hit,) = await store.asearch(own, query=f"text {number} {step} 3", limit=1)
                assert (hit.key, hit.score) == (f"k{step}-3", 1.0)

        def block() -> None:
            for step in range(30):
                store.put(("blocking",), str(step), {"text": f"text {step}"})
                store.search((), query="text 1")

        run_together([block, *(partial(asyncio.run, work(number)) for number in range(4))])
        assert caller.stats().items == 30 + 4 * 8 * 4
        assert caller.check().problems == ()

    @only_sync
    def test_a_store_outlives_its_event_loops(self, open_store: OpenStore) -> None:
        """A loop that ends, with calls of the store under way, takes nothing of the store with it."""
        store = open_store(index={"embed": WordEmbeddings(), "fields": ["text"]}).store

        async def leave(number: int) -> None:
            await store.aput(("a",), f"kept{number}", {"text": "apples"})
            left: list[Any] = [asyncio.ensure_future(store.aput(("a",), f"left{number}", {"text": "pears"}))]
            await asyncio.sleep(0)
            assert left

        for number in range(5):
            asyncio.run(leave(number))
        assert {f"kept{number}" for number in range(5)} <= set(keys(store.search((), limit=100)))
        assert store.check().problems == ()
