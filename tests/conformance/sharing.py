"""Several stores on one database: rule 28 of the contract, within one process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from langgraph.store.base import PutOp

from memstore import StoreClosed
from tests.conformance.concurrency import DEADLINE, run_together
from tests.conformance.models import FailingEmbeddings, ModelDown
from tests.support import Clock, OpenStore, Place, SyncCaller, WordEmbeddings, keys


def open_shared(open_store: OpenStore) -> SyncCaller:
    """Open a store on the database that all share."""
    return open_store(index={"embed": FailingEmbeddings(), "fields": ["text"]})


class SharingConformance:
    """Each store sees what the others committed at its next call, whatever it keeps in memory."""

    def test_each_sees_what_the_other_wrote(self, open_store: OpenStore) -> None:
        """Puts, changes and deletes, by every way of reading, both ways."""
        one, two = open_shared(open_store), open_shared(open_store)
        for first, second in ((one, two), (two, one), (one, two)):
            assert second.search((), query="apples") == []
            first.put(("a",), "k", {"text": "apples"})
            assert second.get(("a",), "k") is not None
            assert [hit.score for hit in second.search((), query="apples")] == [1.0]
            assert second.list_namespaces() == [("a",)]
            first.put(("a",), "k", {"text": "pears"})
            assert [hit.score == 1.0 for hit in second.search((), query="apples")] == [False]
            assert [hit.score for hit in second.search(("a",), query="pears")] == [1.0]
            second.delete(("a",), "k")
            assert first.search((), query="pears") == []
            assert first.list_namespaces() == []

    def test_stores_agree_after_every_write(self, open_store: OpenStore) -> None:
        """200 random writes by either of two stores: both rank the same items with the same scores after each."""
        stores = [open_shared(open_store), open_shared(open_store)]
        random = np.random.default_rng(3)
        expected: dict[tuple[str, str], str] = {}
        for _ in range(200):
            namespace, key = f"n{random.integers(3)}", f"k{random.integers(4)}"
            text = f"text {random.integers(5)}" if random.random() < 0.7 else None
            stores[random.integers(2)].batch([PutOp((namespace,), key, None if text is None else {"text": text})])
            if text is None:
                expected.pop((namespace, key), None)
            else:
                expected[namespace, key] = text
            answers = [
                [
                    (hit.namespace[0], hit.key, hit.value["text"], hit.score)
                    for hit in store.search((), query="text 3", limit=50)
                ]
                for store in stores
            ]
            assert answers[0] == answers[1]
            assert {(space, key): text for space, key, text, _ in answers[0]} == expected
            assert all((score == 1.0) == (text == "text 3") for _, _, text, score in answers[0])

    def test_a_batch_that_failed_left_nothing_in_memory(self, open_store: OpenStore) -> None:
        """What was rolled back is not found by either store, nor mixed up with what comes after."""
        one, two = open_shared(open_store), open_shared(open_store)
        one.put(("a",), "k", {"text": "apples"})
        assert keys(two.search((), query="apples")) == ["k"]
        for store in (one, two):
            with pytest.raises(ModelDown):
                store.batch([PutOp(("a",), "k", {"text": "rain"}), PutOp(("a",), "new", {"text": "bad"})])
            assert [hit.score for hit in one.search((), query="apples")] == [1.0]
            assert [hit.score for hit in two.search((), query="apples")] == [1.0]
        two.put(("a",), "new", {"text": "pears"})
        assert keys(one.search((), query="pears")) == ["new", "k"]

    def test_expiry_and_sweeps_are_shared(self, open_store: OpenStore, clock: Clock) -> None:
        """A refresh by one keeps the item alive for the other; what one swept is gone for both."""
        one, two = open_shared(open_store), open_shared(open_store)
        one.put(("a",), "k", {"text": "apples"}, ttl=10)
        clock.pass_minutes(6)
        assert keys(two.search((), query="apples")) == ["k"]
        clock.pass_minutes(6)
        assert keys(one.search((), query="apples", refresh_ttl=False)) == ["k"]
        clock.pass_minutes(6)
        assert one.search((), query="apples") == two.search((), query="apples") == []
        assert (one.sweep(), two.sweep()) == (1, 0)
        assert two.stats().items == 0

    def test_closing_one_leaves_the_others(self, open_store: OpenStore) -> None:
        """A store's close is its own affair."""
        one, two = open_shared(open_store), open_shared(open_store)
        one.put(("a",), "1", {"text": "apples"})
        one.close()
        two.put(("a",), "2", {"text": "apples"})
        assert keys(two.search((), query="apples")) == ["2", "1"]
        three = open_shared(open_store)
        assert keys(three.search((), query="apples")) == ["2", "1"]
        with pytest.raises(StoreClosed):
            one.search(())

    def test_stores_write_at_once(self, open_store: OpenStore) -> None:
        """Six stores, each in its thread, write and read together: none is told that the database is locked."""
        stores = [open_shared(open_store).store for _ in range(6)]

        def work(number: int) -> None:
            store, own = stores[number], ("own", str(number))
            for step in range(20):
                store.put(own, str(step), {"text": f"text {number} {step}"})
                (hit,) = store.search(own, query=f"text {number} {step}", limit=1)
                assert (hit.key, hit.score) == (str(step), 1.0)
                store.put(("shared",), "k", {"text": f"by {number}"})
                assert store.search(("shared",), query="by", limit=5)

        works: list[Callable[[], object]] = [partial(work, number) for number in range(6)]
        run_together(works)
        assert stores[0].stats().items == 6 * 20 + 1
        assert stores[5].check().problems == ()

    def test_many_stores_may_be_opened_at_once(self, location: Place) -> None:
        """The first opening of a new database may happen eight times at once; all find the same tables."""

        def work(number: int) -> None:
            with location.open(index={"embed": WordEmbeddings(), "fields": ["text"]}) as store:
                store.setup()
                store.put(("a",), str(number), {"text": f"text {number}"})
                assert store.search((), query=f"text {number}", limit=1)[0].key == str(number)

        works: list[Callable[[], object]] = [partial(work, number) for number in range(8)]
        run_together(works)
        with location.open() as store:
            assert store.stats().items == 8
            assert store.check().problems == ()

    def test_a_put_whose_store_closes_meanwhile_writes_nothing(self, location: Place) -> None:
        """Closed while the model is at work, the put says so and nothing of it is written; close does not wait."""
        entered, gate = threading.Event(), threading.Event()

        def embed(texts: list[str]) -> list[list[float]]:
            entered.set()
            assert gate.wait(DEADLINE)
            return [[1.0, 0.0]] * len(texts)

        store = location.open(index={"embed": embed, "fields": ["text"]})

        def put() -> None:
            with pytest.raises(StoreClosed):
                store.put(("a",), "k", {"text": "apples"})

        def close() -> None:
            try:
                assert entered.wait(DEADLINE)
                store.close()
            finally:
                gate.set()

        run_together([put, close])
        with location.open() as again:
            assert again.stats().items == 0
