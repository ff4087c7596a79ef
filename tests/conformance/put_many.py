"""Putting many items: what is taken, what is kept, and what is said when something stops it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any
from weakref import WeakSet

import pytest
from langgraph.store.base import GetOp, PutOp

from memstore import InvalidArgument, InvalidNamespace
from tests.conformance.models import FailingEmbeddings, GatedEmbeddings, ModelDown, embedded
from tests.support import Clock, OpenStore, SyncCaller, WordEmbeddings, keys

only_async = pytest.mark.parametrize("open_store", ["async"], indirect=True)
only_sync = pytest.mark.parametrize("open_store", ["sync"], indirect=True)
A = ("a",)
BAD_ITEMS: dict[str, Any] = {
    "namespace": (("a.b",), "k", {}),
    "key": (A, "k\0", {}),
    "value": (A, "k", {"day": {1, 2}}),
    "op's value": PutOp(A, "k", {"n": float("nan")}),
    "op's index": PutOp(A, "k", {}, index="text"),  # type: ignore[arg-type]  # what a user may write
    "op's ttl": PutOp(A, "k", {}, ttl=0),
    "nothing": None,
}


class Value(dict[str, Any]):
    """A value of which one can tell whether anybody holds it."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # by identity, for a set of those that live


class Stopped(Exception):
    """What an iterable raises."""


def texts(count: int, start: int = 0) -> Iterator[tuple[tuple[str, ...], str, dict[str, Any]]]:
    """Make items with a text of its own each."""
    for n in range(start, start + count):
        yield A, str(n), {"text": f"text {n}"}


def kept(store: SyncCaller) -> list[int]:
    """Give the keys that are there, as numbers, in order."""
    return sorted(int(key) for key in keys(store.search(A, limit=1000)))


def indexed(embeddings: Any) -> dict[str, Any]:
    """Give index settings whose length is known at once."""
    return {"embed": embeddings, "dims": embeddings.dims, "fields": ["text"]}


class PutManyConformance:
    """Items go in by batches, in order; what stops this leaves the batches before."""

    def test_all_items_are_put_and_counted(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """However many there are for a batch: fewer, as many, one more, many times as many."""
        store = open_store(index=indexed(embeddings))
        for count in (0, 1, 2, 3, 4, 6, 7, 50):
            assert store.put_many(texts(count), batch_size=3) == count
        assert kept(store) == list(range(50))
        assert (store.stats().items, store.stats().texts) == (50, 50)
        assert keys(store.search(A, query="text 33", limit=1)) == ["33"]
        assert store.check().problems == ()

    def test_each_batch_is_embedded_and_told_by_itself(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """The size says how many texts the model gets at once, and how often the caller hears of it."""
        store = open_store(index=indexed(embeddings))
        told: list[int] = []
        assert store.put_many(texts(8), batch_size=3, progress=told.append) == 8
        assert [len(batch) for batch in embeddings.documents] == [3, 3, 2]
        assert told == [3, 6, 8]

    def test_a_batch_has_500_items_unless_told_otherwise(
        self, open_store: OpenStore, embeddings: WordEmbeddings
    ) -> None:
        """A size that suits models and databases; nobody has to know one."""
        store = open_store(index=indexed(embeddings))
        assert store.put_many(list(texts(1001))) == 1001
        assert [len(batch) for batch in embeddings.documents] == [500, 500, 1]

    def test_an_empty_iterable_does_nothing(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """No items: no model, no transaction, nothing told."""
        store = open_store(index=indexed(embeddings))
        before = store.stats().clock
        told: list[int] = []
        nothings: list[Any] = [[], iter(()), {}]
        for nothing in nothings:
            assert store.put_many(nothing, progress=told.append) == 0
        assert (embeddings.documents, told, store.stats().clock) == ([], [], before)

    def test_parts_are_put_as_put_does_and_ops_as_a_batch_does(self, open_store: OpenStore, clock: Clock) -> None:
        """Parts take the store's ttl and may not use LangGraph's own root; an op says all of it itself."""
        store = open_store(index=indexed(WordEmbeddings()), ttl={"default_ttl": 10, "refresh_on_read": False})
        items = [
            (A, "parts", {"text": "one"}),
            [A, "list", {"text": "two"}],
            PutOp(A, "for ever", {"text": "three"}),
            PutOp(A, "long", {"text": "four"}, ttl=100),
            PutOp(A, "unsearchable", {"text": "five"}, index=False),
            PutOp(("langgraph", "b"), "k", {"text": "six"}),
        ]
        assert store.put_many(items) == 6
        assert set(keys(store.search(A, query="text"))) == {"parts", "list", "for ever", "long"}
        clock.pass_minutes(50)
        assert set(keys(store.search(A))) == {"for ever", "long", "unsearchable"}
        with pytest.raises(InvalidNamespace, match="reserved"):
            store.put_many([(("langgraph", "b"), "k", {})])

    def test_a_value_of_none_deletes(self, open_store: OpenStore) -> None:
        """In its turn, as everywhere."""
        store = open_store(index=indexed(WordEmbeddings()))
        items: list[Any] = [*texts(3), (A, "1", None), PutOp(A, "2", None), *texts(1, 2), (A, "0", None)]
        assert store.put_many(items, batch_size=2) == 7
        assert kept(store) == [2]
        assert store.check().problems == ()

    @pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 100])
    def test_the_last_of_a_place_wins(self, open_store: OpenStore, size: int) -> None:
        """Within a batch, in the next one, and in a later one, with its own texts and no others."""
        store = open_store(index=indexed(WordEmbeddings()))
        order = [0, 1, 1, 2, 0, 3, 2, 2, 1, 4, 0]
        items = [(A, str(key), {"text": f"text {at}", "at": at}) for at, key in enumerate(order)]
        assert store.put_many(items, batch_size=size) == len(order)
        last = {str(key): at for at, key in enumerate(order)}
        newest = store.search(A)
        assert {item.key: item.value["at"] for item in newest} == last
        assert keys(newest) == sorted(last, key=last.__getitem__, reverse=True)
        for key, at in last.items():
            assert keys(store.search(A, query=f"text {at}", limit=1, mode="semantic")) == [key]
        assert store.stats().texts == 5
        assert store.check().problems == ()

    def test_items_are_taken_as_they_are_needed(self, open_store: OpenStore) -> None:
        """Never more than two batches ahead of what is written, nor held: a file larger than memory goes through."""
        store = open_store(index=indexed(WordEmbeddings()))
        living: WeakSet[Value] = WeakSet()
        taken, most = 0, 0
        ahead: list[int] = []

        def items() -> Iterator[PutOp]:
            nonlocal taken, most
            for n in range(200):
                value = Value(text=f"text {n}")
                living.add(value)
                most = max(most, len(living))
                taken += 1
                yield PutOp(A, str(n), value)

        assert store.put_many(items(), batch_size=10, progress=lambda done: ahead.append(taken - done)) == 200
        assert max(ahead) <= 20
        assert most <= 21
        assert len(store.search(A, limit=1000)) == 200

    def test_a_value_is_taken_when_it_is_given(self, open_store: OpenStore) -> None:
        """A generator that fills one dict again and again gives as many items as it yields."""
        store = open_store(index=indexed(WordEmbeddings()))

        def items() -> Iterator[Any]:
            value: dict[str, Any] = {}
            for n in range(7):
                value["text"] = f"text {n}"
                yield A, str(n), value

        assert store.put_many(items(), batch_size=3) == 7
        assert {item.key: item.value["text"] for item in store.search(A)} == {str(n): f"text {n}" for n in range(7)}

    @pytest.mark.parametrize(
        ("bad", "at"),
        [*((bad, 4) for bad in BAD_ITEMS.values()), *((BAD_ITEMS["value"], at) for at in (0, 2, 3, 7, 8))],
    )
    def test_a_bad_item_stops_its_batch(self, open_store: OpenStore, bad: Any, at: int) -> None:
        """What came in batches before it is kept, and the error says which item it was, and how many are written."""
        embeddings = WordEmbeddings()
        store = open_store(index=indexed(embeddings))
        told: list[int] = []
        with pytest.raises((ValueError, TypeError)) as caught:
            store.put_many([*texts(at), bad, *texts(9, 100)], batch_size=3, progress=told.append)
        whole = at // 3 * 3
        assert caught.value.__notes__ == [
            f"it was item {at} of those given to put_many, counted from 0",
            f"put_many had written {whole} items before this",
        ]
        assert kept(store) == list(range(whole))
        assert told == list(range(3, whole + 1, 3))
        assert embedded(embeddings) == [f"text {n}" for n in range(whole)]
        assert store.check().problems == ()

    @pytest.mark.parametrize(
        "item", [GetOp(A, "k"), (A, "k"), (A, "k", {}, None), "abc", {"k": "v"}, 5, None], ids=repr
    )
    def test_what_is_no_item_is_refused(self, open_store: OpenStore, item: Any) -> None:
        """A `GetOp` has three parts too, and is none."""
        expected = rf"an item is a PutOp or \(namespace, key, value\), got {type(item).__name__}"
        with pytest.raises(InvalidArgument, match=expected):
            open_store().put_many([item])

    @pytest.mark.parametrize("at", [0, 4, 6, 10])
    def test_a_model_that_fails_stops_its_batch(self, open_store: OpenStore, at: int) -> None:
        """Its error comes as it is, with the note; the store works on."""
        store = open_store(index=indexed(FailingEmbeddings()))
        with pytest.raises(ModelDown) as caught:
            store.put_many([*texts(at), (A, "99", {"text": "bad"}), *texts(9, 100)], batch_size=3)
        whole = at // 3 * 3
        assert caught.value.__notes__ == [f"put_many had written {whole} items before this"]
        assert kept(store) == list(range(whole))
        assert store.put_many(texts(20), batch_size=3) == 20
        assert store.check().problems == ()

    @pytest.mark.parametrize("at", [0, 2, 3, 4, 9])
    def test_an_iterable_that_fails_stops_its_batch(self, open_store: OpenStore, at: int) -> None:
        """Items it gave since the last whole batch are not written: what there is can be told by the number."""
        store = open_store(index=indexed(WordEmbeddings()))

        def items() -> Iterator[Any]:
            yield from texts(at)
            raise Stopped

        with pytest.raises(Stopped) as caught:
            store.put_many(items(), batch_size=3)
        assert caught.value.__notes__ == [f"put_many had written {at // 3 * 3} items before this"]
        assert kept(store) == list(range(at // 3 * 3))

    def test_progress_that_fails_stops_after_its_batch(self, open_store: OpenStore) -> None:
        """What is told of a batch is told once it is written."""
        store = open_store(index=indexed(WordEmbeddings()))

        def tell(done: int) -> None:
            assert kept(SyncCaller(store.store)) == list(range(done))
            if done == 6:
                raise Stopped

        with pytest.raises(Stopped) as caught:
            store.put_many(texts(20), batch_size=3, progress=tell)
        assert caught.value.__notes__ == ["put_many had written 6 items before this"]
        assert kept(store) == list(range(6))

    @only_sync
    def test_an_interrupt_stops_cleanly(self, open_store: OpenStore) -> None:
        """Ctrl-C, in the items or in the model, is raised once the batch before is written; the store works on."""

        class Interrupted(WordEmbeddings):
            def embed_documents(self, texts: list[str]) -> list[list[float]]:
                if "bad" in texts:
                    raise KeyboardInterrupt
                return super().embed_documents(texts)

        def items() -> Iterator[Any]:
            yield from texts(5)
            raise KeyboardInterrupt

        store = open_store(index=indexed(Interrupted()))
        for given in (items(), [*texts(4), (A, "99", {"text": "bad"})]):
            with pytest.raises(KeyboardInterrupt) as caught:
                store.put_many(given, batch_size=3)
            assert caught.value.__notes__ == ["put_many had written 3 items before this"]
            assert kept(store) == [0, 1, 2]
        assert store.put_many(texts(5)) == 5
        assert store.check().problems == ()

    @only_async
    def test_a_cancelled_call_stops_cleanly(self, open_store: OpenStore, runner: asyncio.Runner) -> None:
        """While the model works: the batch before is kept, nothing of this one is, and the store works on."""
        embeddings = GatedEmbeddings()
        store = open_store(index=indexed(embeddings)).store

        def items() -> Iterator[Any]:
            yield from texts(3)
            yield from texts(2, 100)
            yield from texts(9, 200)

        async def cancel() -> None:
            task = asyncio.ensure_future(store.aput_many(items(), batch_size=3))
            await embeddings.entered.wait()
            embeddings.entered.clear()
            embeddings.gate.set()
            await asyncio.sleep(0)  # the first batch is embedded
            embeddings.gate.clear()
            await embeddings.entered.wait()  # and the second waits
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert caught.value.__notes__ == ["put_many had written 3 items before this"]
            assert sorted(keys(await store.asearch(A))) == ["0", "1", "2"]
            embeddings.gate.set()
            assert await store.aput_many(texts(9), batch_size=3) == 9
            assert (await store.acheck()).problems == ()

        runner.run(cancel())

    @only_async
    def test_items_may_be_waited_for(self, open_store: OpenStore, runner: asyncio.Runner) -> None:
        """An async iterable gives items as they come, and fails as others do."""
        store = open_store(index=indexed(WordEmbeddings())).store

        async def items(*, fail: bool = False) -> AsyncIterator[Any]:
            for item in texts(10):
                await asyncio.sleep(0)
                yield item
            if fail:
                raise Stopped

        async def put() -> None:
            assert await store.aput_many(items(), batch_size=4) == 10
            assert len(await store.asearch(A)) == 10
            with pytest.raises(Stopped) as caught:
                await store.aput_many(items(fail=True), batch_size=4)
            assert caught.value.__notes__ == ["put_many had written 8 items before this"]

        runner.run(put())

    @only_sync
    def test_a_sync_call_says_that_it_cannot_wait(self, open_store: OpenStore) -> None:
        """An async iterable is for the async method; nothing is taken of it."""

        async def items() -> AsyncIterator[Any]:
            for item in Untouched():
                yield item

        with pytest.raises(InvalidArgument, match="await aput_many"):
            open_store().put_many(items())

    @pytest.mark.parametrize("size", [0, -1, 1.5, True, None, "5"], ids=repr)
    def test_a_wrong_size_is_refused(self, open_store: OpenStore, size: Any) -> None:
        """At once, before an item is taken."""
        with pytest.raises(InvalidArgument, match="batch_size is an integer of 1 or more"):
            open_store().put_many(Untouched(), batch_size=size)

    @pytest.mark.parametrize("items", [None, 5, object], ids=repr)
    def test_what_is_no_iterable_is_refused(self, open_store: OpenStore, items: Any) -> None:
        """Whatever it is, with what is wanted."""
        with pytest.raises(InvalidArgument, match=r"an iterable of PutOp or \(namespace, key, value\), got"):
            open_store().put_many(items)

    @pytest.mark.parametrize("progress", [None, 1, "bar"], ids=repr)
    def test_a_wrong_progress_is_refused(self, open_store: OpenStore, progress: Any) -> None:
        """It is yes, no, or what is told."""
        with pytest.raises(InvalidArgument, match="progress is True, False, or what is told"):
            open_store().put_many(Untouched(), progress=progress)


class Untouched:
    """Items that nobody should ask for."""

    def __iter__(self) -> Iterator[Any]:
        """Begin."""
        return self

    def __next__(self) -> Any:
        """Fail."""
        raise AssertionError
