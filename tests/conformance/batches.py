"""Batches: rules 22 and 23 of the contract."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, Op, PutOp, SearchOp

from tests.conformance.models import FailingEmbeddings, ModelDown
from tests.support import OpenStore, SyncCaller, WordEmbeddings, keys

BAD_OPS: dict[str, Any] = {
    "namespace": PutOp(("a.b",), "k", {}),
    "empty namespace": PutOp((), "k", {}),
    "key": PutOp(("a",), "k\0", {}),
    "value": PutOp(("a",), "k", {"day": {1, 2}}),
    "number": PutOp(("a",), "k", {"n": float("nan")}),
    "index": PutOp(("a",), "k", {}, index="text"),  # type: ignore[arg-type]  # what a user may write
    "ttl": PutOp(("a",), "k", {}, ttl=-1),
    "prefix": SearchOp(("",)),
    "filter": SearchOp((), filter={"n": {"$near": 1}}),
    "limit": SearchOp((), limit=-1),
    "condition": ListNamespacesOp(match_conditions=(MatchCondition("middle", ("a",)),)),  # type: ignore[arg-type]
    "depth": ListNamespacesOp(max_depth=0),
    "no op": ("a",),
}


def value_of(store: SyncCaller, key: str) -> Any:
    """Give the value of a key of `("a",)`, None where there is none."""
    item = store.get(("a",), key)
    return None if item is None else item.value


class BatchesConformance:
    """A batch reads what was there before it, applies the last write to each key, and does all or nothing."""

    def test_reads_see_the_state_before_the_batch(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """Wherever they stand in it, and in every way of reading: the batch is one moment, not a script."""
        store = open_store(index={"embed": embeddings, "fields": ["text"]})
        store.put(("a",), "old", {"text": "apples"})
        reads: list[Op] = [
            GetOp(("a",), "old"),
            GetOp(("a",), "new"),
            SearchOp(()),
            SearchOp((), query="pears"),
            ListNamespacesOp(),
        ]
        writes = [PutOp(("a",), "old", None), PutOp(("a",), "new", {"text": "pears"}), PutOp(("b",), "new", {})]
        results = store.batch([*reads, *writes, *reads])
        for part in (results[:5], results[8:]):
            assert part[0].value == {"text": "apples"}
            assert part[1] is None
            assert keys(part[2]) == keys(part[3]) == ["old"]
            assert part[4] == [("a",)]
        assert results[5:8] == [None] * 3
        assert [keys(answer) for answer in store.batch(reads[2:4])] == [["new", "new"], ["new"]]

    @pytest.mark.parametrize(
        ("values", "last"),
        [
            ([{"n": 1}, {"n": 2}], {"n": 2}),
            ([{"n": 1}, None], None),
            ([None, {"n": 1}], {"n": 1}),
            ([{"n": 1}, None, {"n": 3}], {"n": 3}),
            ([None, {"n": 1}, None], None),
            ([{"n": 1}, {"n": 2}, None, None, {"n": 5}, {"n": 6}], {"n": 6}),
        ],
        ids=repr,
    )
    @pytest.mark.parametrize("before", [None, {"n": 0}], ids=["absent", "present"])
    def test_the_last_write_to_a_key_wins(
        self, open_store: OpenStore, embeddings: WordEmbeddings, values: list[Any], last: Any, before: Any
    ) -> None:
        """Puts and deletes alike: what the last op says is what there is, with its texts and no others."""
        store = open_store(index={"embed": embeddings})
        store.batch([PutOp(("a",), "k", before), PutOp(("a",), "other", {"n": 9})])
        store.batch([PutOp(("a",), "k", value) for value in values])
        assert value_of(store, "k") == last
        assert value_of(store, "other") == {"n": 9}
        assert store.stats().texts == store.stats().items == 1 + (last is not None)
        assert store.check().problems == ()

    def test_equal_keys_of_other_namespaces_are_others(self, open_store: OpenStore) -> None:
        """The last write wins for a key in its namespace, not for a key."""
        store = open_store()
        store.batch([PutOp(("a",), "k", {"n": 1}), PutOp(("b",), "k", {"n": 2}), PutOp(("a", "b"), "k", {"n": 3})])
        store.batch([PutOp(("b",), "k", None), PutOp(("a",), "k", {"n": 4})])
        assert sorted((item.namespace, item.value["n"]) for item in store.search(())) == [(("a",), 4), (("a", "b"), 3)]

    def test_the_place_of_the_last_write_is_its_place_in_order(
        self, open_store: OpenStore, embeddings: WordEmbeddings
    ) -> None:
        """A key written again later in the batch was written later than what stands between, for every order."""
        store = open_store(index={"embed": embeddings, "fields": ["text"]})
        store.batch(PutOp(("a",), key, {"text": "apples"}) for key in ("1", "2", "3", "1", "4", "2"))
        assert keys(store.search(())) == keys(store.search((), query="apples")) == ["2", "4", "1", "3"]

    def test_results_come_in_order(self, open_store: OpenStore) -> None:
        """Each op has its result at its place, whatever its kind: None for a write."""
        store = open_store()
        store.batch(PutOp((f"n{n}",), f"k{n}", {"n": n}) for n in range(9))
        ops: list[Any] = []
        for n in range(9):
            ops += [
                GetOp((f"n{n}",), f"k{n}"),
                PutOp(("w",), f"k{n}", {}),
                SearchOp((f"n{n}",)),
                ListNamespacesOp(match_conditions=(MatchCondition("prefix", (f"n{n}",)),)),
                GetOp((f"n{n}",), "missing"),
            ]
        results = store.batch(ops)
        assert len(results) == 45
        for n in range(9):
            got, put, searched, listed, missing = results[n * 5 : n * 5 + 5]
            assert (got.key, put, keys(searched), listed, missing) == (f"k{n}", None, [f"k{n}"], [(f"n{n}",)], None)

    def test_an_empty_batch_does_nothing(self, open_store: OpenStore) -> None:
        """No ops have no results."""
        store = open_store()
        assert store.batch([]) == []
        assert store.batch(iter(())) == []

    def test_a_batch_has_no_size_limit(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """Thousands of ops of every kind go through at once, from any iterable."""
        store = open_store(index={"embed": embeddings, "fields": ["text"]})
        puts = 3000
        assert store.batch(
            PutOp((f"n{n % 97}", "x"), f"k{n}", {"text": f"text {n % 50}", "n": n}) for n in range(puts)
        ) == ([None] * puts)
        ops: list[Any] = [GetOp((f"n{n % 97}", "x"), f"k{n}") for n in range(puts)]
        ops += [SearchOp((f"n{n}",), query="text 1", limit=2) for n in range(97)]
        ops += [PutOp((f"n{n % 97}", "x"), f"k{n}", None) for n in range(0, puts, 2)]
        results = store.batch(ops)
        assert [item.value["n"] for item in results[:puts]] == list(range(puts))
        assert [len(hits) for hits in results[puts : puts + 97]] == [2] * 97
        assert (store.stats().items, store.stats().texts) == (1500, 1500)
        assert store.check().problems == ()

    @pytest.mark.parametrize("bad", BAD_OPS.values(), ids=BAD_OPS.keys())
    def test_a_bad_op_stops_its_whole_batch(self, open_store: OpenStore, embeddings: WordEmbeddings, bad: Any) -> None:
        """Wherever it stands, nothing of its batch is done, and the model is not even asked."""
        store = open_store(index={"embed": embeddings, "fields": ["text"]})
        store.put(("a",), "kept", {"text": "apples"})
        before = store.stats()
        embeddings.documents.clear()
        good = [PutOp(("a",), "new", {"text": "pears"}), PutOp(("a",), "kept", None), PutOp(("b",), "new", {})]
        for place in range(4):
            with pytest.raises((ValueError, TypeError)):
                store.batch([*good[:place], bad, *good[place:]])
        assert embeddings.documents == []
        assert value_of(store, "kept") == {"text": "apples"}
        assert store.list_namespaces() == [("a",)]
        assert (store.stats().items, store.stats().clock) == (1, before.clock)
        store.batch(good)
        assert store.list_namespaces() == [("a",), ("b",)]

    def test_an_iterable_that_fails_stops_its_batch(self, open_store: OpenStore) -> None:
        """Ops made on the way may raise: those before it are not applied."""
        store = open_store()

        def ops() -> Any:
            yield PutOp(("a",), "k", {})
            raise KeyError("gone")

        with pytest.raises(KeyError):
            store.batch(ops())
        assert store.list_namespaces() == []

    def test_an_embedding_that_fails_half_way_stops_its_batch(self, open_store: OpenStore) -> None:
        """Hundreds of texts are embedded in several goes; when a later one fails, nothing of the first is written."""
        embeddings = FailingEmbeddings()
        store = open_store(index={"embed": embeddings, "fields": ["text"]})
        store.put(("a",), "0", {"text": "good"})
        ops = [PutOp(("a",), str(n), {"text": f"text {n}"}) for n in range(1200)]
        with pytest.raises(ModelDown):
            store.batch([*ops, PutOp(("a",), "last", {"text": "bad"}), PutOp(("a",), "0", None)])
        assert len(embeddings.documents) > 1
        assert [item.value for item in store.search(())] == [{"text": "good"}]
        assert (store.stats().items, store.stats().texts) == (1, 1)
        store.batch(ops)
        assert store.stats().items == 1200

    @pytest.mark.parametrize("open_store", ["async"], indirect=True)
    @pytest.mark.parametrize("bad", BAD_OPS.values(), ids=BAD_OPS.keys())
    def test_a_bad_call_changes_no_other(self, open_store: OpenStore, runner: asyncio.Runner, bad: Any) -> None:
        """Async calls made together stay one another's strangers: only the bad one fails."""
        store = open_store(index={"embed": FailingEmbeddings(), "fields": ["text"]}).store

        async def together() -> list[Any]:
            calls: list[Any] = [store.aput(("a",), f"k{n}", {"text": f"text {n}"}) for n in range(10)]
            calls.insert(3, store.abatch([PutOp(("bad",), "k", {}), bad]))
            calls.insert(6, store.abatch([PutOp(("bad",), "k", {"text": "bad"})]))
            calls.append(store.asearch((), query="text 1"))
            return await asyncio.gather(*calls, return_exceptions=True)

        results = runner.run(together())
        errors = [place for place, result in enumerate(results) if isinstance(result, BaseException)]
        assert errors == [3, 6]
        assert isinstance(results[6], ModelDown)
        assert sorted(keys(store.search((), limit=100))) == sorted(f"k{n}" for n in range(10))
        assert store.stats().texts == 10

    @pytest.mark.parametrize("open_store", ["async"], indirect=True)
    def test_calls_made_together_all_apply(self, open_store: OpenStore, runner: asyncio.Runner) -> None:
        """200 puts at once are 200 puts, each with its own result; the last to a key awaited in turn is the last."""
        store = open_store(index={"embed": WordEmbeddings(), "fields": ["text"]}).store

        async def together() -> list[Any]:
            puts = [store.aput((f"n{n % 5}",), f"k{n}", {"text": f"text {n % 3}", "n": n}) for n in range(200)]
            assert await asyncio.gather(*puts) == [None] * 200
            return await asyncio.gather(*(store.aget((f"n{n % 5}",), f"k{n}") for n in range(200)))

        assert [item.value["n"] for item in runner.run(together())] == list(range(200))
        assert store.check().problems == ()
