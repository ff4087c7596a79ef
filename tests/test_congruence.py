"""MemStore beside LangGraph's InMemoryStore: the same operations by chance, the same results.

InMemoryStore is the contract in what is compared here: put, get, delete and batches, listing while every namespace
holds an item, equality of scalars of one type, and the order by cosine. Where it differs from CONTRACT (it lists
emptied namespaces, keeps old vectors, gives no order without a query) nothing is compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.base import GetOp, Item, ListNamespacesOp, MatchCondition, Op, PutOp, SearchItem, SearchOp
from langgraph.store.memory import InMemoryStore

from memstore import MemStore
from tests.conformance.json_values import OBJECTS, PROPERTY
from tests.support import AsyncCaller, SyncCaller, WordEmbeddings

Names = tuple[str, ...]
Open = Callable[..., SyncCaller]
LABELS = ["a", "b", "ab", "*", "日本"]
WORDS = ["red", "green", "blue", "apple", "pear", "plum", "tea", "cup", "saucer", "rain"]
SEEDED = settings(PROPERTY, max_examples=40)
FIELDS = ["text", "title"]


@pytest.fixture(params=["sync", "async"])
def open_memory(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[Open]:
    """Open stores in memory; all are closed in the end."""
    opened: list[SyncCaller] = []

    def open_(index: Any = None) -> SyncCaller:
        store = MemStore.open(":memory:", index=index)
        opened.append(SyncCaller(store) if request.param == "sync" else AsyncCaller(store, runner))
        return opened[-1]

    yield open_
    for store in opened:
        store.close()


def test_writes_and_reads_agree(open_memory: Open) -> None:
    """Puts, gets, deletes and searches give the same items, one by one and in batches with their order of effects."""

    @SEEDED
    @given(st.randoms(use_true_random=True), st.lists(OBJECTS, min_size=1, max_size=6))
    def agrees(random: Random, values: list[dict[str, Any]]) -> None:
        ours, theirs = open_memory(), InMemoryStore()
        for _ in range(12):
            ops = [_op(random, values) for _ in range(random.choice([1, 1, 2, 8]))]
            if len(ops) == 1 and isinstance(ops[0], PutOp):
                put = ops[0]
                ours.put(put.namespace, put.key, put.value)
                theirs.batch([put])
            else:
                assert [_facts(result) for result in ours.batch(ops)] == [_facts(r) for r in theirs.batch(ops)]
        whole = SearchOp((), limit=1_000)
        assert _facts(ours.batch([whole])[0]) == _facts(theirs.batch([whole])[0])

    agrees()


def test_listings_agree(open_memory: Open) -> None:
    """Prefixes, suffixes, wildcards, depths and pages list the same namespaces in the same order."""

    @SEEDED
    @given(st.randoms(use_true_random=True))
    def agrees(random: Random) -> None:
        ours, theirs = open_memory(), InMemoryStore()
        puts = [PutOp(_names(random), "k", {}) for _ in range(random.randint(0, 25))]
        ours.batch(puts)
        theirs.batch(puts)
        for _ in range(12):
            conditions = tuple(
                MatchCondition(random.choice(["prefix", "suffix"]), _names(random, most=2))
                for _ in range(random.choice([0, 1, 1, 2]))
            )
            depth, limit, offset = random.choice([None, None, 1, 2, 3]), random.randint(0, 9), random.randint(0, 4)
            op = ListNamespacesOp(conditions, depth, limit, offset)
            assert ours.batch([op]) == theirs.batch([op])
            prefix, suffix = _names(random, most=2), random.choice([None, _names(random, most=1)])
            listed = ours.list_namespaces(prefix=prefix, suffix=suffix, max_depth=depth)
            assert listed == theirs.list_namespaces(prefix=prefix, suffix=suffix, max_depth=depth)

    agrees()


def test_filters_on_scalars_agree(open_memory: Open) -> None:
    """Equality, spelled or not, and its negation find the same items; so do bounds where every item has a number."""
    texts, numbers, flags = ["", "a", "b", "10", "é"], [2, 2.0, 3, -4.5, 10, 1e22], [None, True, False]

    @SEEDED
    @given(st.randoms(use_true_random=True))
    def agrees(random: Random) -> None:
        ours, theirs = open_memory(), InMemoryStore()
        puts: list[Op] = []
        for number in range(random.randint(1, 20)):
            value: dict[str, Any] = {"text": random.choice(texts), "number": random.choice(numbers)}
            value |= random.choice([{}, {"flag": random.choice(flags)}])
            puts.append(PutOp(_names(random, most=2), f"k{number}", value))
        ours.batch(puts)
        theirs.batch(puts)
        for _ in range(10):
            field, operand = random.choice(
                [("text", random.choice(texts)), ("number", random.choice(numbers)), ("flag", random.choice(flags))]
            )
            operators = ["$eq", "$ne", *(["$gt", "$gte", "$lt", "$lte"] if field == "number" else [])]
            condition = random.choice([operand, {random.choice(operators): operand}])
            asked = {field: condition} | random.choice([{}, {}, {"text": random.choice(texts)}])
            prefix = random.choice([(), ("a",), _names(random, most=2)])
            found = [store.search(prefix, filter=asked, limit=100) for store in (ours, theirs)]
            assert _facts(found[0]) == _facts(found[1])

    agrees()


def test_semantic_search_agrees(open_memory: Open) -> None:
    """Items are ranked by the cosine of their best text, filtered before the page is cut, with the same scores."""
    embeddings = WordEmbeddings()
    index: Any = {"embed": embeddings, "dims": embeddings.dims, "fields": FIELDS}

    @SEEDED
    @given(st.randoms(use_true_random=True))
    def agrees(random: Random) -> None:
        ours, theirs = open_memory({**index, "mode": "semantic"}), InMemoryStore(index=index)
        for number in range(random.randint(1, 20)):
            namespace, key = _names(random, most=2), f"k{number % 8}"
            if random.random() < 0.2:
                ours.delete(namespace, key)
                theirs.delete(namespace, key)
                continue
            value = {"text": _phrase(random), "title": f"{number} {_phrase(random)}", "kind": random.choice("xy")}
            ours.put(namespace, key, value)
            theirs.put(namespace, key, value)
        for _ in range(6):
            asked = random.choice([None, None, {"kind": "x"}, {"kind": {"$eq": "y"}}])
            prefix, query = random.choice([(), ("a",), _names(random, most=1)]), _phrase(random)
            found = ours.search(prefix, query=query, filter=asked, limit=100)
            expected = theirs.search(prefix, query=query, filter=asked, limit=100)
            assert _facts(found) == _facts(expected)
            scores = {(item.namespace, item.key): item.score for item in expected}
            assert _scores(found) == pytest.approx([scores[item.namespace, item.key] for item in found], abs=1e-5)
            assert _scores(found) == pytest.approx(_scores(expected), abs=1e-5)
            limit, offset = random.randint(0, 5), random.randint(0, 5)
            page = ours.search(prefix, query=query, filter=asked, limit=limit, offset=offset)
            assert page == found[offset : offset + limit]
            expected = theirs.search(prefix, query=query, filter=asked, limit=limit, offset=offset)
            assert _scores(page) == pytest.approx(_scores(expected), abs=1e-5)

    agrees()


def _op(random: Random, values: Sequence[dict[str, Any]]) -> Op:
    namespace, key = _names(random, most=2), random.choice(["k", "l", "", "日本"])
    kind = random.random()
    if kind < 0.5:
        return PutOp(namespace, key, random.choice([None, *values, *values]))
    return GetOp(namespace, key) if kind < 0.8 else SearchOp(random.choice([(), namespace]), limit=1_000)


def _names(random: Random, *, most: int = 4) -> Names:
    return tuple(random.choice(LABELS) for _ in range(random.randint(1, most)))


def _phrase(random: Random) -> str:
    return " ".join(random.sample(WORDS, random.randint(1, 4)))


def _facts(result: Any) -> Any:
    """Give what two stores must agree on: items in the order of their names, since without a query they have none."""
    if isinstance(result, list):
        return sorted((_facts(item) for item in result), key=lambda facts: facts[:2])
    return (result.namespace, result.key, result.value) if isinstance(result, Item) else result


def _scores(items: Sequence[SearchItem]) -> list[float | None]:
    return [item.score for item in items]
