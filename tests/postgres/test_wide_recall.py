"""Wide searches in Postgres beside exact ones: what is found under filters, how pages join, and every kind of index."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import psycopg
import pytest
from langgraph.store.base import PutOp, SearchItem

from memstore import MemStore
from memstore.config import Mode
from memstore.dialects.postgres_text import quote
from memstore.errors import EmbeddingError
from tests.postgres.server import fresh_schema
from tests.postgres.test_wide import build
from tests.sqlite.wide_stores import MODES, QuickEmbeddings, text_of
from tests.support import Place

ITEMS = 20_000
NAMESPACES = 50
EMBEDDINGS = QuickEmbeddings()
WIDE: dict[str, Any] = {"embed": EMBEDDINGS, "fields": ["text"], "exact_below": 100}
EXACT = WIDE | {"exact_below": 10**9}
QUERIES = ["w1 w7 w30", "w90", "w5 w6 w40 w41", "w140 w2", "elsewhere", *(text_of(n, seed=1) for n in range(10))]
FILTERS: dict[str, tuple[dict[str, Any] | None, int]] = {
    "everything": (None, ITEMS),
    "0.1 %": ({"by1000": 7}, ITEMS // 1_000),
    "1 %": ({"by100": {"$eq": 7}}, ITEMS // 100),
    "10 %": ({"number": {"$gte": ITEMS - ITEMS // 10}}, ITEMS // 10),
    "50 %": ({"half": "even"}, ITEMS // 2),
    "50 % by Python alone": ({"$not": {"half": "even"}}, ITEMS // 2),
}
SMALL = 1_500
"""Items of the stores that try the kinds of indexes."""


def namespace_of(number: int) -> tuple[str, ...]:
    """Say where an item is: half of the namespaces lie below one label."""
    user = number % NAMESPACES
    return ("users" if user % 2 else "teams", f"u{user}")


def ops(count: int) -> list[PutOp]:
    """Make the ops that put some items."""
    return [
        PutOp(
            namespace_of(number),
            f"k{number}",
            {
                "text": text_of(number),
                "number": number,
                "by1000": number % 1_000,
                "by100": number % 100,
                "half": "odd" if number % 2 else "even",
            },
        )
        for number in range(count)
    ]


def index_definition(url: str, schema: str) -> str:
    """Say how the index of vectors is defined; empty where there is none."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT indexdef FROM pg_indexes WHERE schemaname = %s AND indexname = 'memstore_vectors_ann'", (schema,)
        ).fetchall()
    return "".join(row[0] for row in rows)


def facts(items: list[SearchItem]) -> list[tuple[Any, ...]]:
    """Give what identifies each item of an answer."""
    return [(item.namespace, item.key, item.score) for item in items]


def recall(found: list[SearchItem], true: list[SearchItem]) -> float:
    """Give the share of the true best that were found; equal scores count alike."""
    assert len(found) == len(true)
    if not true:
        return 1.0
    least = true[-1].score or 0.0
    least -= 2e-6 + 1e-5 * abs(least)  # the database sums in float32
    return sum((item.score or 0.0) >= least for item in found) / len(true)


@pytest.fixture(scope="module")
def stores(url: str) -> Iterator[tuple[MemStore, MemStore]]:
    """Fill a schema, make its indexes, and open a store that searches wide and one that ranks exactly."""
    with (
        fresh_schema(url) as schema,
        MemStore.open(url, schema=schema, index=WIDE) as wide,
        MemStore.open(url, schema=schema, index=EXACT) as exact,
    ):
        wide.batch(ops(ITEMS))
        build(wide)
        assert "hnsw" in index_definition(url, schema)
        with psycopg.connect(url, autocommit=True) as connection:
            for table in ("namespaces", "items", "texts", "vectors"):
                connection.execute(f"ANALYZE {quote(schema)}.memstore_{table}")
        yield wide, exact


Stores = tuple[MemStore, MemStore]


class TestRecall:
    """What a wide search finds of what is there."""

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("name", FILTERS)
    def test_filters_cost_no_recall(self, stores: Stores, name: str, mode: Mode) -> None:
        """Of the ten best at least 99 % are found whatever share of the store passes, and no page is short."""
        wide, exact = stores
        asked, passing = FILTERS[name]
        found = []
        for query in QUERIES:
            true = exact.search((), query=query, filter=asked, limit=10, mode=mode)
            assert mode == "lexical" or len(true) == min(10, passing)
            found.append(recall(wide.search((), query=query, filter=asked, limit=10, mode=mode), true))
        assert sum(found) / len(found) >= 0.99, found

    @pytest.mark.parametrize("mode", MODES)
    def test_a_namespace_is_ranked_exactly(self, stores: Stores, mode: Mode) -> None:
        """One user's memories are ranked whole, with and without a filter, though there are more than `exact_below`."""
        wide, exact = stores
        for user in ("u1", "u18", "u49"):
            for query in QUERIES[:8]:
                for asked in (None, {"by1000": {"$lt": 200}}):
                    prefix = ("users" if int(user[1:]) % 2 else "teams", user)
                    options: dict[str, Any] = {"query": query, "filter": asked, "limit": 10, "mode": mode}
                    found, true = wide.search(prefix, **options), exact.search(prefix, **options)
                    assert recall(found, true) == 1.0
                    assert [item.score for item in found] == pytest.approx([item.score for item in true], abs=2e-6)

    @pytest.mark.parametrize("mode", MODES)
    def test_half_of_the_store_is_a_wide_scope_too(self, stores: Stores, mode: Mode) -> None:
        """Below a label with 25 namespaces nothing of the others is found, and the ten best are."""
        wide, exact = stores
        found = []
        for query in QUERIES:
            hits = wide.search(("users",), query=query, limit=10, mode=mode)
            assert {hit.namespace[0] for hit in hits} <= {"users"}
            found.append(recall(hits, exact.search(("users",), query=query, limit=10, mode=mode)))
        assert sum(found) / len(found) >= 0.99, found

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize(
        ("prefix", "name"),
        [((), "everything"), ((), "1 %"), (("users",), "50 %"), (("users", "u7"), "everything")],
        ids=repr,
    )
    def test_pages_join(self, stores: Stores, prefix: tuple[str, ...], name: str, mode: Mode) -> None:
        """Pages of seven, to depth 300, are the one-page answer: no gap, no duplicate, one order, none short."""
        wide, _ = stores
        options: dict[str, Any] = {"query": QUERIES[0], "filter": FILTERS[name][0], "mode": mode}
        whole = wide.search(prefix, limit=300, **options)
        pages = [wide.search(prefix, limit=7, offset=at, **options) for at in range(0, 300, 7)]
        assert facts(list(chain(*pages)))[:300] == facts(whole)
        assert len({item[:2] for item in facts(whole)}) == len(whole)
        scores = [item.score or 0.0 for item in whole]
        assert scores == sorted(scores, reverse=True)

    @pytest.mark.parametrize("mode", ["hybrid", "semantic"])
    def test_pages_join_past_all_candidates(self, stores: Stores, mode: Mode) -> None:
        """Where the thousand candidates end, the exact order follows: every item is found once, the deepest too."""
        wide, _ = stores
        options: dict[str, Any] = {"query": QUERIES[2], "mode": mode}
        whole = wide.search((), limit=ITEMS + 10, **options)
        assert len({item[:2] for item in facts(whole)}) == len(whole) == ITEMS
        for start in (195, 995, 5_000, ITEMS - 5):
            page = wide.search((), limit=10, offset=start, **options)
            assert facts(page) == facts(whole[start : start + 10])

    def test_what_is_written_is_found_at_once(self, stores: Stores) -> None:
        """An index holds what was put a moment ago, and nothing that was deleted."""
        wide, _ = stores
        for number in range(5):
            wide.put(("new",), str(number), {"text": f"zeppelin w{number}"})
            (found, *_) = wide.search((), query=f"zeppelin w{number}", limit=1)
            assert (found.namespace, found.key, found.score) == (("new",), str(number), 1.0)
        for number in range(5):
            wide.delete(("new",), str(number))
            hits = wide.search((), query=f"zeppelin w{number}", limit=20)
            assert (
                sorted(hit.key for hit in hits if hit.namespace == ("new",)) == ["0", "1", "2", "3", "4"][number + 1 :]
            )


KINDS: dict[str, tuple[dict[str, Any], int, str]] = {
    "none": ({"ann": "none"}, 32, ""),
    "ivfflat": ({"ann": "ivfflat"}, 32, "USING ivfflat"),
    "hnsw of its own size": ({"ann": "hnsw", "m": 8, "ef_construction": 32}, 32, "m='8', ef_construction='32'"),
    "halfvec": ({"vector_type": "halfvec"}, 32, "halfvec"),
    "halfvec, l2": ({"vector_type": "halfvec", "metric": "l2"}, 32, "halfvec_l2_ops"),
    "l2": ({"metric": "l2"}, 32, "vector_l2_ops"),
    "inner product": ({"metric": "inner_product"}, 32, "vector_ip_ops"),
    "ivfflat, l2": ({"ann": "ivfflat", "metric": "l2"}, 32, "USING ivfflat"),
    "2,500 dims": ({}, 2_500, "halfvec(2500)"),
    "2,500 dims, l2": ({"metric": "l2"}, 2_500, "halfvec(2500)"),
    "5,000 dims": ({}, 5_000, ""),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_index_finds_the_best(url: str, schema: str, kind: str) -> None:
    """Whatever is indexed how, or not at all, the ten best are found, scores are exact and pages join."""
    options, dims, told = KINDS[kind]
    count = SMALL if dims < 1_000 else 300
    given: dict[str, Any] = {"embed": QuickEmbeddings(dims), "fields": ["text"]} | options
    with (
        MemStore.open(url, schema=schema, index=given | {"exact_below": 0}) as wide,
        MemStore.open(url, schema=schema, index=given | {"exact_below": 10**9}) as exact,
    ):
        wide.batch(ops(count))
        if options.get("ann") != "none":
            build(wide)
        definition = index_definition(url, schema)
        assert told in definition
        assert bool(told) == bool(definition)
        modes: list[Mode] = ["semantic"] if "metric" in options else ["semantic", "hybrid"]
        for mode in modes:
            found = []
            for query in QUERIES[:10]:
                true = exact.search((), query=query, limit=count, mode=mode)
                hits = wide.search((), query=query, limit=10, mode=mode)
                found.append(recall(hits, true[:10]))
                scores = {(hit.namespace, hit.key): hit.score for hit in true}
                expected = [scores[hit.namespace, hit.key] for hit in hits]
                assert [hit.score for hit in hits] == pytest.approx(expected, rel=1e-5, abs=2e-6)
            assert sum(found) / len(found) >= 0.98, found
            asked: dict[str, Any] = {"query": QUERIES[0], "mode": mode}
            whole = wide.search((), limit=count, **asked)
            pages = [wide.search((), limit=50, offset=at, **asked) for at in range(0, count + 50, 50)]
            assert facts(list(chain(*pages))) == facts(whole)
            assert len(whole) == count


@pytest.mark.parametrize("kind", ["vector", "halfvec"])
@pytest.mark.parametrize("exact_below", [0, 10**9], ids=["wide", "narrow"])
def test_a_text_scores_one_against_itself(place: Place, exact_below: int, kind: str) -> None:
    """By cosine it is 1.0 exactly, however its numbers are kept."""
    given = WIDE | {"exact_below": exact_below, "vector_type": kind, "mode": "semantic"}
    with place.open(index=given) as store:
        store.batch(ops(40))
        build(store)
        for number in range(40):
            (found, *_) = store.search((), query=text_of(number), limit=1)
            assert (found.value["text"], found.score) == (text_of(number), 1.0)


def test_a_store_s_kind_of_vectors_is_its_own(place: Place) -> None:
    """Kept as `halfvec`, they are not taken for `vector`: another store is told what they are."""
    with place.open(index=WIDE | {"vector_type": "halfvec"}) as store:
        store.put(("a",), "k", {"text": "w1"})
        assert [hit.score for hit in store.search((), query="w1")] == [1.0]
    with pytest.raises(ValueError, match="halfvec"), place.open(index=WIDE | {"vector_type": "vector"}):
        pass
    with place.open(index=WIDE) as store:
        assert [hit.score for hit in store.search((), query="w1")] == [1.0]


@pytest.fixture
def place(location: Place) -> Place:
    """Say where the test's database is."""
    return location


@pytest.mark.parametrize("other", [{"dims": 16}, {"metric": "l2"}], ids=repr)
def test_an_emptied_store_takes_another_model_though_it_has_an_index(
    url: str, schema: str, place: Place, other: dict[str, Any]
) -> None:
    """The index of the old vectors' length or metric is not in the way of new ones, nor taken for theirs."""
    with place.open(index=WIDE | {"exact_below": 0, "mode": "semantic"}) as store:
        store.put(("a",), "k", {"text": "w1"})
        build(store)
        assert "halfvec(32)" in index_definition(url, schema)
        store.delete(("a",), "k")
    dims = other.get("dims", 32)
    given = WIDE | {"embed": QuickEmbeddings(dims), "model": "another", "mode": "semantic", "exact_below": 0} | other
    with place.open(index=given) as store:
        store.batch(ops(50))
        (first, *_) = store.search((), query=text_of(3), limit=1)
        assert first.value["text"] == text_of(3)
        build(store)
        assert f"({dims})" in index_definition(url, schema)
        assert ("_l2_ops" in index_definition(url, schema)) == ("metric" in other)


@pytest.mark.parametrize("metric", ["l2", "inner_product"])
def test_numbers_that_no_index_holds_are_refused(place: Place, metric: str) -> None:
    """16 bits hold no number above 65,504, and more than 2,000 dims are indexed in so many."""
    dims = 2_500
    table = {"large": [1e5] * dims, "small": [1.0] * dims, "mixed": [1.0, 2.0] * (dims // 2)}

    def embed(texts: list[str]) -> list[list[float]]:
        return [table[text] for text in texts]

    given = {"embed": embed, "fields": ["text"], "metric": metric, "exact_below": 0}
    with place.open(index=given) as store:
        store.put(("a",), "small", {"text": "small"})
        build(store)
        with pytest.raises(EmbeddingError, match="65504"):
            store.put(("a",), "large", {"text": "large"})
        store.put(("a",), "mixed", {"text": "mixed"})
        for query in ("small", "mixed"):
            assert {hit.key for hit in store.search((), query=query)} == {"small", "mixed"}
        assert store.get(("a",), "large") is None
