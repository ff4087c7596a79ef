"""Search: rules 13 to 15 of the contract, ranked by meaning."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from langgraph.store.base import PutOp, SearchOp

from tests.support import Clock, OpenStore, SyncCaller, WordEmbeddings, keys

WRONG_COUNTS: list[Any] = [-1, -(10**30), 1.0, 2.5, "3", None, True, float("nan")]
BLANK_QUERIES = ["", "   ", "\n\t", "\0", "\ud800", " \0 \udfff "]
SUBJECTS = ["red apples", "green apples", "red pears", "a boat on the lake", "trains to Oslo", "rain in May"]
SEARCHES: dict[str, tuple[dict[str, Any], Callable[[PutOp], bool]]] = {
    "by query": ({"query": "red fruit by the lake"}, lambda op: op.index is None),
    "by query and filter": (
        {"query": "red fruit by the lake", "filter": {"shade": {"$in": ["light", "dark"]}}},
        lambda op: op.index is None and shade_of(op) in ("light", "dark"),
    ),
    "by query and a filter in Python": (
        {"query": "apples", "filter": {"$not": {"shade": {"$contains": "igh"}}}},
        lambda op: op.index is None and shade_of(op) in ("dark", None),
    ),
    "by query below a prefix": (
        {"prefix": ("users",), "query": "pears"},
        lambda op: op.index is None and op.namespace[0] == "users",
    ),
    "newest": ({}, lambda _: True),
    "newest by filter": ({"filter": {"shade": "dark"}}, lambda op: shade_of(op) == "dark"),
    "newest below a prefix": ({"prefix": ("users", "1")}, lambda op: op.namespace[:2] == ("users", "1")),
}
"""Searches, and which of the items put they find."""


def shade_of(op: PutOp) -> Any:
    """Give the shade of an item put."""
    return (op.value or {})["shade"]


def open_by_text(open_store: OpenStore, embeddings: WordEmbeddings, **index: Any) -> SyncCaller:
    """Open a store that embeds the field `text`."""
    return open_store(index={"embed": embeddings, "fields": ["text"], **index})


def found(store: SyncCaller, *, prefix: tuple[str, ...] = (), **options: Any) -> list[tuple[Any, ...]]:
    """Search, and give what identifies each item."""
    return [(item.namespace, item.key, item.score) for item in store.search(prefix, **options)]


def put_many_with_ties(store: SyncCaller) -> list[PutOp]:
    """Put 130 items in 9 namespaces: few texts, so that scores tie, and batches, so that times do."""
    shades = ["dark", "light", "bright", None]
    ops = [
        PutOp(
            ("users", str(number % 3), f"s{number % 4}") if number % 9 else ("others",),
            f"k{number}",
            {"text": SUBJECTS[number % len(SUBJECTS)], "shade": shades[number % 4]},
            index=False if number % 11 == 0 else None,
        )
        for number in range(130)
    ]
    for start in range(0, len(ops), 13):
        store.batch(ops[start : start + 13])
    return ops


class SearchConformance:
    """One order, cut into pages; filter and expiry come first; nothing that matches is missed."""

    @pytest.mark.parametrize("name", ["limit", "offset"])
    def test_wrong_counts_are_refused(self, open_store: OpenStore, embeddings: WordEmbeddings, name: str) -> None:
        """`limit` and `offset` are integers of 0 or more; else a page would be cut at a place nobody asked for."""
        store = open_by_text(open_store, embeddings)
        for count, query in product(WRONG_COUNTS, (None, "apples")):
            with pytest.raises(ValueError, match=name):
                store.search((), query=query, **{name: count})
            with pytest.raises(ValueError, match=name):
                store.batch([SearchOp((), query=query, **{name: count})])

    def test_a_limit_of_none_of_them_gives_nothing(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """A limit of 0 is an empty page, not an error and not the default."""
        store = open_by_text(open_store, embeddings)
        store.put(("a",), "k", {"text": "apples"})
        assert store.search((), limit=0) == []
        assert store.search((), query="apples", limit=0) == []
        assert store.batch([SearchOp((), limit=0), SearchOp((), query="apples", limit=0)]) == [[], []]

    def test_huge_counts_are_counts(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """A limit larger than any database gives everything; such an offset leaves nothing."""
        store = open_by_text(open_store, embeddings)
        store.put(("a",), "k", {"text": "apples"})
        for query in (None, "apples"):
            assert keys(store.search((), query=query, limit=10**30)) == ["k"]
            assert store.search((), query=query, offset=10**30) == []
            assert store.search((), query=query, limit=10**30, offset=10**30) == []

    def test_an_unknown_mode_is_refused(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """A misspelt mode is an error, never another ranking; the store's own mode may be named."""
        store = open_by_text(open_store, embeddings)
        store.put(("a",), "k", {"text": "apples"})
        modes: list[Any] = ["fuzzy", "", "Semantic", 1, ["semantic"]]
        for mode, query in product(modes, (None, "apples")):
            with pytest.raises(ValueError, match="mode"):
                store.search((), query=query, mode=mode)
        assert found(store, query="apples", mode="semantic") == found(store, query="apples")

    @pytest.mark.parametrize("query", [None, "apples"])
    def test_the_filter_comes_before_the_limit(
        self, open_store: OpenStore, embeddings: WordEmbeddings, query: str | None
    ) -> None:
        """The few that match are all found, however many stand before them in the order."""
        store = open_by_text(open_store, embeddings)
        store.batch(PutOp(("a",), f"rare{n}", {"text": "rain in May", "kind": "rare"}) for n in range(3))
        store.batch(PutOp(("a",), f"k{n}", {"text": "apples", "kind": "common"}) for n in range(200))
        for wanted in ({"kind": "rare"}, {"kind": {"$ne": "common"}}, {"$not": {"kind": "common"}}):
            assert keys(store.search((), query=query, filter=wanted, limit=3)) == ["rare2", "rare1", "rare0"]
            assert keys(store.search((), query=query, filter=wanted, limit=1, offset=2)) == ["rare0"]

    @pytest.mark.parametrize("query", [None, "apples"])
    def test_expiry_comes_before_the_limit(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, query: str | None
    ) -> None:
        """What has expired takes no place on a page, swept or not."""
        store = open_by_text(open_store, embeddings)
        store.batch(PutOp(("a",), f"old{n}", {"text": "rain in May"}) for n in range(4))
        store.batch(PutOp(("a",), f"k{n}", {"text": "apples"}, ttl=1.0) for n in range(150))
        clock.pass_minutes(2)
        assert keys(store.search((), query=query, limit=3)) == ["old3", "old2", "old1"]
        assert keys(store.search((), query=query, limit=3, offset=3)) == ["old0"]

    @pytest.mark.parametrize(("search", "finds"), SEARCHES.values(), ids=SEARCHES.keys())
    def test_pages_of_any_size_join_to_the_whole_answer(
        self,
        open_store: OpenStore,
        embeddings: WordEmbeddings,
        search: dict[str, Any],
        finds: Callable[[PutOp], bool],
    ) -> None:
        """No duplicate, no gap, the same order, although scores and times tie: the order never depends on the page."""
        store = open_by_text(open_store, embeddings)
        expected = [(op.namespace, op.key) for op in put_many_with_ties(store) if finds(op)]
        whole = found(store, **search, limit=1000)
        assert sorted((namespace, key) for namespace, key, _ in whole) == sorted(expected)
        for size in (1, 3, 7, 32, 64, 129):
            pages = [found(store, **search, limit=size, offset=start) for start in range(0, len(whole) + size, size)]
            assert [hit for page in pages for hit in page] == whole
            assert all(len(page) == size for page in pages[: len(whole) // size])
            assert pages[-1] == []

    def test_an_offset_may_lie_anywhere(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """Each (offset, limit) is a slice of the one answer."""
        store = open_by_text(open_store, embeddings)
        put_many_with_ties(store)
        whole = found(store, query="apples", limit=1000)
        for offset in range(0, len(whole) + 3, 5):
            for limit in (1, 2, 40):
                cut = found(store, query="apples", limit=limit, offset=offset)
                assert cut == whole[offset : offset + limit]

    def test_equal_texts_score_equal_and_the_later_written_leads(
        self, open_store: OpenStore, embeddings: WordEmbeddings
    ) -> None:
        """Ties fall to the later written item, across namespaces and batches; writing again moves an item up."""
        store = open_by_text(open_store, embeddings)
        store.put(("a",), "1", {"text": "apples"})
        store.put(("b",), "2", {"text": "apples"})
        store.batch([PutOp(("a",), "3", {"text": "apples"}), PutOp(("c",), "4", {"text": "apples"})])
        store.put(("b",), "5", {"text": "pears"})
        hits = store.search((), query="apples")
        assert keys(hits) == ["4", "3", "2", "1", "5"]
        assert len({hit.score for hit in hits[:4]}) == 1
        store.put(("b",), "2", {"text": "apples"})
        assert keys(store.search((), query="apples")) == ["2", "4", "3", "1", "5"]

    def test_without_a_query_the_newest_come_first(self, open_store: OpenStore, clock: Clock) -> None:
        """The order is `updated_at` descending, then the later written; there is no score."""
        store = open_store()
        store.put(("a",), "1", {})
        store.batch([PutOp(("b",), "2", {}), PutOp(("a",), "3", {}), PutOp(("a", "x"), "4", {})])
        clock.pass_minutes(1)
        store.put(("a",), "1", {"again": True})
        hits = store.search(())
        assert keys(hits) == ["1", "4", "3", "2"]
        assert {hit.score for hit in hits} == {None}
        assert hits[1].updated_at == hits[3].updated_at
        assert keys(store.search(("a",))) == ["1", "4", "3"]

    @pytest.mark.parametrize("minutes", [1, 9, 11, 2000])
    def test_a_clock_set_back_leaves_the_order_of_times(
        self, open_store: OpenStore, clock: Clock, minutes: float
    ) -> None:
        """Whatever the clock does, `updated_at` never rises from one item to the next, and pages still join."""
        store = open_store()
        store.put(("a",), "1", {})
        store.put(("b",), "2", {})
        clock.pass_minutes(-minutes)
        for key in ("3", "1", "4"):
            store.put(("a",), key, {})
        clock.pass_minutes(minutes / 2)
        store.put(("b",), "5", {})
        for prefix, keys_there in (((), {"1", "2", "3", "4", "5"}), (("a",), {"1", "3", "4"})):
            hits = store.search(prefix)
            assert set(keys(hits)) == keys_there
            times = [hit.updated_at for hit in hits]
            assert times == sorted(times, reverse=True)
            pages = [store.search(prefix, limit=1, offset=at) for at in range(len(hits))]
            assert [hit for page in pages for hit in page] == hits

    def test_a_blank_query_is_none(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """Nothing but spaces, NUL and lone surrogates asks for nothing: the newest come, the model is not asked."""
        store = open_by_text(open_store, embeddings)
        store.put(("a",), "1", {"text": "apples"})
        store.put(("a",), "2", {"text": "pears"}, index=False)
        for query in BLANK_QUERIES:
            assert found(store, query=query) == [(("a",), "2", None), (("a",), "1", None)]
        assert embeddings.queries == []

    def test_a_query_is_text(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """Anything else is refused before the model sees it."""
        store = open_by_text(open_store, embeddings)
        queries: list[Any] = [b"apples", 5, ["apples"]]
        for query in queries:
            with pytest.raises(ValueError, match="query"):
                store.search((), query=query)
        assert embeddings.queries == []

    def test_an_item_is_ranked_once_by_its_best_text(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """However many of its texts match, an item takes one place, and that of its best."""
        store = open_store(index={"embed": embeddings, "fields": ["title", "parts[*]"]})
        store.put(("a",), "many", {"title": "apples and pears", "parts": ["apples", "apples", "green apples", "rain"]})
        store.put(("a",), "one", {"title": "apples of May", "parts": []})
        store.put(("a",), "far", {"title": "rain", "parts": ["boats"]})
        hits = store.search((), query="apples")
        assert keys(hits) == ["many", "one", "far"]
        assert hits[0].score == 1.0
        assert keys(store.search((), query="apples", limit=1, offset=1)) == ["one"]

    def test_what_is_not_indexed_is_not_found_by_a_query(
        self, open_store: OpenStore, embeddings: WordEmbeddings
    ) -> None:
        """`index=False` makes an item retrievable and not searchable, even where nothing else would fill the page."""
        store = open_by_text(open_store, embeddings)
        store.put(("a",), "hidden", {"text": "apples"}, index=False)
        store.put(("a",), "blank", {"text": " "})
        store.put(("a",), "other", {"text": "boats"})
        store.put(("b",), "alone", {"text": "apples"}, index=False)
        assert keys(store.search((), query="apples", limit=10)) == ["other"]
        assert store.search(("b",), query="apples") == []
        assert store.get(("a",), "hidden") is not None
        assert keys(store.search((), filter={"text": "apples"})) == ["alone", "hidden"]

    def test_a_narrow_corner_is_never_short(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """One user's few items are all found, though thousands elsewhere are nearer to the query."""
        store = open_by_text(open_store, embeddings)
        store.batch(PutOp(("users", str(n % 50)), f"k{n}", {"text": "apples"}) for n in range(3000))
        store.batch(PutOp(("users", "51"), f"own{n}", {"text": f"boat {n}", "n": n}) for n in range(12))
        assert len(store.search(("users", "51"), query="apples", limit=12)) == 12
        assert len(store.search(("users", "51"), query="apples", limit=5, offset=7)) == 5
        assert len(store.search((), query="apples", filter={"n": {"$gte": 0}}, limit=12)) == 12
        assert len(store.search((), query="apples", limit=500, offset=2600)) == 412

    def test_a_query_sees_whole_labels_of_its_prefix(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """`("foo",)` ranks nothing of `("foobar",)`; `()` ranks everything."""
        store = open_by_text(open_store, embeddings)
        for namespace in [("foo",), ("foo", "bar"), ("foobar",), ("fo",)]:
            store.put(namespace, "-".join(namespace), {"text": "apples"})
        assert keys(store.search(("foo",), query="apples")) == ["foo-bar", "foo"]
        assert len(store.search((), query="apples")) == 4
        assert store.search(("bar",), query="apples") == []

    def test_a_search_sees_every_write_before_it(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """Puts, changes and deletes show at once, also in a namespace that was emptied and filled again."""
        store = open_by_text(open_store, embeddings)
        for round_ in range(4):
            store.put(("a",), "1", {"text": f"apples {round_}"})
            assert found(store, query=f"apples {round_}") == [(("a",), "1", 1.0)]
            store.put(("a",), "2", {"text": "boats"})
            assert found(store, query="boats", limit=1) == [(("a",), "2", 1.0)]
            store.put(("a",), "2", {"text": "trains"})
            assert found(store, query="boats")[0][2] != 1.0
            store.delete(("a",), "1")
            assert keys(store.search((), query="apples")) == ["2"]
            store.delete(("a",), "2")
            assert store.search((), query="apples") == []

    @pytest.mark.parametrize("cache_mb", [0.0001, 0.02, 64.0])
    def test_memory_never_changes_an_answer(
        self, open_store: OpenStore, embeddings: WordEmbeddings, cache_mb: float
    ) -> None:
        """The first search and those after it agree, however little may be kept in memory."""
        store = open_by_text(open_store, embeddings, cache_mb=cache_mb)
        put_many_with_ties(store)
        first = found(store, query="red apples", limit=200)
        assert all(found(store, query="red apples", limit=200) == first for _ in range(3))
        assert len(first) == len([n for n in range(130) if n % 11])
        assert store.stats().cached_bytes <= cache_mb * 10**6
