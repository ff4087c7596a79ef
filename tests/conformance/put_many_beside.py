"""Putting many items: one batch is embedded while the one before is written, and how either's failure ends both."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from memstore import DatabaseError, MemStore
from tests.conformance.concurrency import DEADLINE, only_async, only_sync
from tests.conformance.put_many import A, Stopped, indexed, kept, texts
from tests.support import AsyncCaller, Control, OpenStore, SyncCaller, WordEmbeddings, keys


class ActingEmbeddings(WordEmbeddings):
    """Does what a test wants when it gets its second list of texts."""

    def __init__(self) -> None:
        super().__init__()
        self.act: Callable[[], object] = lambda: None

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts."""
        vectors = super().embed_documents(texts)
        if len(self.documents) == 2:
            self.act()
        return vectors


def wait_for(store: SyncCaller, count: int) -> None:
    """Wait until so many items are there."""
    end = time.monotonic() + DEADLINE
    while len(store.store.search(A, limit=1000)) < count:
        assert time.monotonic() < end, "nothing is written while the next batch is embedded"
        time.sleep(0.001)


class PutManyBesideConformance:
    """The model and the database work at once, and batches stay in order."""

    def test_a_batch_is_embedded_while_the_one_before_is_written(self, open_store: OpenStore, control: Control) -> None:
        """Each waits for the other here: the write for the model to have begun, the model for the write to end.

        Done one after the other, in either order, this would wait until the database gives up.
        """
        embeddings = ActingEmbeddings()
        store = open_store(index=indexed(embeddings))

        def act() -> None:
            control.let_go()
            wait_for(store, 3)

        embeddings.act = act
        control.hold()
        assert store.put_many(texts(8), batch_size=3) == 8
        assert len(embeddings.documents) == 3
        assert kept(store) == list(range(8))

    def test_a_slow_source_keeps_no_batch_waiting(self, open_store: OpenStore) -> None:
        """A batch that is ready is written although the next one is not there yet, however long that takes."""
        store = open_store(index=indexed(WordEmbeddings()))

        def items() -> Iterator[Any]:
            for at, item in enumerate(texts(6)):
                wait_for(store, at // 2 * 2)
                yield item

        async def arriving() -> AsyncIterator[Any]:
            for at, item in enumerate(texts(6)):
                await asyncio.to_thread(wait_for, store, at // 2 * 2)
                yield item

        given = arriving() if isinstance(store, AsyncCaller) else items()
        assert store.put_many(given, batch_size=2) == 6
        assert kept(store) == list(range(6))

    def test_a_write_that_fails_stops_before_the_next(self, open_store: OpenStore, control: Control) -> None:
        """The batch after it is ready and is not written; the one before is kept."""
        embeddings = WordEmbeddings()
        store = open_store(index=indexed(embeddings))
        told: list[int] = []
        control.refuse("4")
        with pytest.raises(DatabaseError) as caught:
            store.put_many(texts(20), batch_size=3, progress=told.append)
        assert caught.value.__notes__ == ["put_many had written 3 items before this"]
        assert (kept(store), told) == ([0, 1, 2], [3])
        assert len(embeddings.documents) == 3
        assert store.check().problems == ()

    def test_of_two_failures_the_earlier_batch_s_is_raised(self, open_store: OpenStore, control: Control) -> None:
        """Where a write and the items after it fail at once, the write came first."""

        def items() -> Iterator[Any]:
            yield from texts(6)
            raise Stopped

        store = open_store(index=indexed(WordEmbeddings()))
        control.refuse("1")
        with pytest.raises(DatabaseError) as caught:
            store.put_many(items(), batch_size=3)
        assert caught.value.__notes__ == ["put_many had written 0 items before this"]
        assert kept(store) == []

    @only_sync
    def test_an_interrupt_waits_for_the_write(self, open_store: OpenStore, control: Control) -> None:
        """Ctrl-C while the model works lets the batch that is being written end, and counts it."""
        embeddings = ActingEmbeddings()
        store = open_store(index=indexed(embeddings))
        release = threading.Timer(0.05, control.let_go)

        def act() -> None:
            release.start()
            raise KeyboardInterrupt

        embeddings.act = act
        control.hold()
        with pytest.raises(KeyboardInterrupt) as caught:
            store.put_many(texts(20), batch_size=3)
        release.join()
        assert caught.value.__notes__ == ["put_many had written 3 items before this"]
        assert kept(store) == [0, 1, 2]

    @only_sync
    def test_an_interrupt_is_raised_whatever_else_failed(self, open_store: OpenStore, control: Control) -> None:
        """Whoever presses Ctrl-C while a write fails stops the program, not the call alone."""
        embeddings = ActingEmbeddings()
        store = open_store(index=indexed(embeddings))

        def act() -> None:
            raise KeyboardInterrupt

        embeddings.act = act
        control.refuse("1")
        with pytest.raises(KeyboardInterrupt) as caught:
            store.put_many(texts(20), batch_size=3)
        assert caught.value.__notes__ == ["put_many had written 0 items before this"]
        assert isinstance(caught.value.__context__, DatabaseError)

    @only_async
    def test_a_cancellation_waits_for_the_write(
        self, open_store: OpenStore, control: Control, runner: asyncio.Runner
    ) -> None:
        """Cancelled while there is nothing left but to write, it lets that end, and counts it."""
        store = open_store(index=indexed(WordEmbeddings())).store

        async def cancel() -> None:
            task = await self._begin(store, control)
            task.cancel()
            await asyncio.sleep(0.01)
            assert not task.done()
            await asyncio.to_thread(control.let_go)
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert caught.value.__notes__ == ["put_many had written 3 items before this"]
            assert sorted(keys(await store.asearch(A))) == ["0", "1", "2"]

        runner.run(cancel())

    @only_async
    def test_a_second_cancellation_does_not_wait(
        self, open_store: OpenStore, control: Control, runner: asyncio.Runner
    ) -> None:
        """Whoever insists goes on at once; the batch is there wholly or not at all, and the store works on."""
        store = open_store(index=indexed(WordEmbeddings())).store

        async def cancel() -> None:
            task = await self._begin(store, control)
            for _ in range(2):
                task.cancel()
                await asyncio.sleep(0.01)
            with pytest.raises(asyncio.CancelledError) as caught:
                await asyncio.wait_for(task, DEADLINE)
            assert caught.value.__notes__ == ["put_many had written 0 items before this"]
            await asyncio.to_thread(control.let_go)
            await store.aput(("later",), "k", {})  # writes take turns: this one is behind that
            assert len(await store.asearch(A)) in (0, 3)
            assert await store.aput_many(texts(9), batch_size=3) == 9
            assert (await store.acheck()).problems == ()

        runner.run(cancel())

    async def _begin(self, store: MemStore, control: Control) -> asyncio.Task[int]:
        """Begin to put a batch and a half, and wait until the second is taken while the first is held up."""
        taken = asyncio.Event()

        def items() -> Iterator[Any]:
            yield from texts(3)
            yield from texts(1, 3)
            taken.set()

        await asyncio.to_thread(control.hold)
        task = asyncio.ensure_future(store.aput_many(items(), batch_size=3))
        await taken.wait()
        await asyncio.sleep(0.05)  # by now it is embedded too, most often; either way the write is held
        return task
