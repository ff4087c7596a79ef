"""Explanations: the results of a search, and by which text, words and scores each stands where it does."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from memstore import InvalidArgument, Rerank, RerankError
from memstore.explanation import ExplainedItem
from tests.conformance.mode_oracle import fused
from tests.conformance.modes import MODES
from tests.conformance.ranking_oracle import WEIGHTS, Shadow, fill, open_shadow, ranked
from tests.conformance.reranking import ByLength, ByLengthAwaited
from tests.support import AsyncCaller, Clock, OpenStore, WordEmbeddings, keys

QUERY = "the moon over the hill"
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "page": {"limit": 4, "offset": 9},
    "beyond": {"limit": 4, "offset": 400},
    "least": {"min_score": 0.2},
    "filter": {"filter": {"n": {"$lt": 2}}},
    "filter in Python": {"filter": {"$not": {"n": 0}}, "limit": 100},
    "below": {"prefix": ("root", "n1")},
    "nowhere": {"prefix": ("missing",)},
    "rerank": {"rerank": Rerank(ByLength(), 6, 0.5), "limit": 20},
    "rerank, page": {"rerank": Rerank(ByLength(), 30), "limit": 3, "offset": 2, "min_score": 0.01},
    "none": {"limit": 0},
}
WORDED: dict[str, dict[str, Any]] = {
    "context": {"context": 2},
    "recency": {"recency": 7.0, "limit": 30},
    "all": {"context": 1, "recency": 2.0, "min_score": 0.1, "rerank": ByLength(), "filter": {"n": {"$lt": 2}}},
}


def put_three(shadow: Shadow) -> None:
    """Put what is found by its words, by its meaning, and by neither."""
    shadow.put(("a",), "both", {"title": "moon", "parts": ["the zebra of the hill", "a zebra"]})
    shadow.put(("a",), "some", {"title": "zebra"})
    shadow.put(("b",), "none", {"title": "grape"})


class ExplainingConformance:
    """The same items, order and scores as `search` gives; fixture `kind` as in ranking."""

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("asked", [*OPTIONS.values(), *WORDED.values()], ids=[*OPTIONS, *WORDED])
    def test_it_is_what_a_search_gives(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, mode: str, asked: dict[str, Any]
    ) -> None:
        """In every mode, whatever is asked for: the ranks are those of the page, and scores are made of their parts."""
        if mode == "semantic" and asked in WORDED.values():
            return
        store = fill(open_shadow(open_store, embeddings, clock, weights=WEIGHTS)).store
        options = {"query": QUERY, "mode": mode, **asked}
        prefix = options.pop("prefix", ())
        found = store.search(prefix, **options)
        told = store.explain(prefix, **options)
        assert ranked(one.item for one in told) == ranked(found)
        assert [one.rank for one in told] == [asked.get("offset", 0) + at for at in range(1, len(found) + 1)]
        assert [one.item.value for one in told] == [hit.value for hit in found]
        assert (told.query, told.mode, len(told)) == (QUERY, mode, len(found))
        for one in told:
            self._check(one, mode, asked)

    def _check(self, one: ExplainedItem, mode: str, asked: dict[str, Any]) -> None:
        assert one.text in (one.item.value["title"], *one.item.value["parts"])
        assert (one.dense is None, one.lexical is None) == (mode == "lexical", mode == "semantic")
        assert one.dense is not None or one.dense_rank is None
        if mode == "hybrid":
            weight = WEIGHTS[one.field.removesuffix(one.field[8:])]
            assert one.fused == pytest.approx(weight * fused(one.dense or 0.0, one.lexical or 0.0), abs=1e-6)
        if mode == "semantic":
            assert one.fused == one.dense
        if "rerank" not in asked:
            assert one.reranked is None
            assert one.item.score == one.ranked
        if mode != "semantic":
            assert bool(one.words) == bool(one.lexical)

    @pytest.mark.parametrize("kind", ["narrow", "wide"])
    def test_each_part_is_named(self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock) -> None:
        """The text and its path, both scores and ranks, the words it holds, and what they are worth."""
        shadow = open_shadow(open_store, embeddings, clock)
        put_three(shadow)
        told = shadow.store.explain((), query="the Zebra on a hill, nowhere", limit=2)
        first, second = told
        assert (first.item.key, first.field, first.text) == ("both", "parts[*].0", "the zebra of the hill")
        assert (first.words, second.words) == (("zebra", "hill"), ("zebra",))
        assert (second.item.key, second.field, second.text) == ("some", "title", "zebra")
        assert (first.lexical_rank, second.lexical_rank) == (1, 2)
        assert {first.dense_rank, second.dense_rank} == {1, 2}
        assert [(word.word, word.texts) for word in told.words] == [("zebra", 3), ("hill", 1), ("nowhere", 0)]
        assert sum(word.weight for word in told.words) == pytest.approx(1.0)
        assert first.lexical == pytest.approx(sum(word.weight for word in told.words[:2]), abs=1e-6)
        assert (told.texts, told.candidates, told.exact) == (5, 3, True)
        (last,) = shadow.store.explain(("b",), query="zebra")
        assert (last.words, last.lexical, last.lexical_rank, last.dense_rank) == ((), 0.0, None, 1)

    def test_ranks_are_those_of_each_leg_alone(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, candidates: int
    ) -> None:
        """Where the store is asked in that mode, the item stands at that rank."""
        store = fill(open_shadow(open_store, embeddings, clock)).store
        asked: dict[str, Any] = {"query": QUERY, "limit": 100}
        told = store.explain((), **asked)
        lexical = keys(store.search((), mode="lexical", **asked))
        for one in told:
            assert one.lexical_rank == (lexical.index(one.item.key) + 1 if one.item.key in lexical else None)
        meant = keys(store.search((), mode="semantic", **asked))[: candidates or None]
        for one in told:
            if one.dense_rank is not None:
                assert meant[one.dense_rank - 1] == one.item.key
        assert sum(one.dense_rank is not None for one in told) <= len(meant) <= len(told)

    def test_neighbours_age_and_reranker_have_their_parts(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """`fused` is the text's own, `ranked` with what was lent and taken, `reranked` what the model said."""
        shadow = open_shadow(open_store, embeddings, clock)
        put_three(shadow)
        clock.pass_minutes(7 * 1_440)
        (one,) = shadow.store.explain(("b",), query="grape", recency=7.0)
        assert [one.fused, one.ranked, one.item.score] == pytest.approx([1.0, 0.85, 0.85])
        (one,) = shadow.store.explain(("b",), query="grape", context=1)
        assert (one.fused, one.ranked) == (1.0, 0.5)
        model = ByLength()
        told = shadow.store.explain((), query="zebra", rerank=Rerank(model, 2))
        assert [one.reranked is None for one in told] == [False, False, True]
        assert [one.reranked for one in told[:2]] == [len(one.text) / 1_000 for one in told[:2]]
        assert len(model.asked) == 1

    def test_an_index_that_proposed_is_named(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, candidates: int
    ) -> None:
        """How many texts were in scope, how many items were ranked, and whether these were all."""
        shadow = fill(open_shadow(open_store, embeddings, clock))
        told = shadow.store.explain((), query=QUERY, limit=3)
        assert told.texts == sum(len(put.texts) for put in shadow.items.values())
        if candidates:
            assert 3 <= told.candidates <= candidates
            assert not told.exact
            assert "approximately" in str(told)
        else:
            assert (told.candidates, told.exact) == (len(shadow.items), True)
            assert "exactly" in str(told)

    def test_words_are_told_where_nothing_holds_them(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """What was looked for and is not there says why nothing is found."""
        shadow = open_shadow(open_store, embeddings, clock)
        put_three(shadow)
        for mode in ("hybrid", "lexical"):
            told = shadow.store.explain((), query="elsewhere", mode=mode)
            assert [(word.word, word.weight, word.texts) for word in told.words] == [("elsewhere", 1.0, 0)]
        assert shadow.store.explain((), query="elsewhere", mode="semantic").words == ()

    def test_nothing_is_refreshed(self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock) -> None:
        """Looking closer is no read that keeps an item alive."""
        shadow = open_shadow(open_store, embeddings, clock)
        shadow.put(("a",), "k", {"title": "zebra"}, ttl=10)
        clock.pass_minutes(8)
        assert len(shadow.store.explain((), query="zebra")) == 1
        clock.pass_minutes(3)
        assert len(shadow.store.explain((), query="zebra")) == 0

    def test_without_a_query_there_is_nothing_to_explain(self, open_store: OpenStore) -> None:
        """Nor without an index; what is wrong for a search is wrong here."""
        store = open_store(index={"mode": "lexical", "fields": ["title"]})
        for wrong in ({"query": " "}, {"query": "zebra", "limit": -1}, {"query": "zebra", "context": 9}):
            with pytest.raises(InvalidArgument):
                store.explain((), **wrong)
        with pytest.raises(TypeError, match="refresh_ttl"):
            store.explain((), query="zebra", refresh_ttl=True)

    def test_an_async_reranker_is_awaited(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """As a search awaits it."""
        store = fill(open_shadow(open_store, embeddings, clock, rerank=ByLengthAwaited()), 10).store
        if isinstance(store, AsyncCaller):
            found = store.search((), query=QUERY)
            assert ranked(one.item for one in store.explain((), query=QUERY)) == ranked(found)
            return
        with pytest.raises(RerankError, match="await"):
            store.explain((), query=QUERY)

    @pytest.mark.parametrize("kind", ["narrow"])
    def test_it_shows_as_a_table(self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock) -> None:
        """As text in columns, and in a notebook as HTML that takes no mark from a value."""
        shadow = open_shadow(open_store, embeddings, clock)
        evil = "zebra <script>alert('&')</script>\n" + "and so on " * 20
        shadow.put(("a",), "<b>k</b>", {"title": evil})
        shadow.put(("a",), "plain", {"title": "zebra"})
        told = shadow.store.explain((), query="zebra <i>")
        lead, words, empty, head, *rows = str(told).splitlines()
        assert lead.startswith("'zebra <i>', mode hybrid: 2 items of 2 texts in scope ranked exactly")
        assert words.startswith("words: zebra")
        assert (empty, len(rows)) == ("", 2)
        assert {len(row.split("  ")[0]) for row in rows} == {1}
        starts = [row.index("title") for row in rows]
        assert starts == [head.index("field")] * 2
        assert all(len(row) < 250 for row in rows)
        assert repr(told) == str(told)
        page = told._repr_html_()
        for mark in ("<script", "<b>", "<i>", "alert('&')"):
            assert mark not in page
        assert "&lt;b&gt;k&lt;/b&gt;" in page
        assert page.count("<tr>") == 3
        assert "plain" in str(told[0])

    def test_it_is_a_sequence(self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock) -> None:
        """Of its items, best first."""
        told = fill(open_shadow(open_store, embeddings, clock), 20).store.explain((), query=QUERY, limit=5)
        assert list(told) == list(told.items) == [told[at] for at in range(5)]
        assert told[-1] in told
        assert all((one.item.score or 0) >= (other.item.score or 0) for one, other in pairwise(told))


class RecallConformance:
    """How much of the exact answer the index finds, by the vectors of the store itself."""

    def test_what_is_ranked_whole_is_exact(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, candidates: int
    ) -> None:
        """A small store, or one without an index, has nothing to measure; one with an index is measured by it."""
        shadow = fill(open_shadow(open_store, embeddings, clock))
        texts = sum(len(put.texts) for put in shadow.items.values())
        shadow.store.search((), query=QUERY)
        measured = shadow.store.recall_check(20, k=3)
        assert (measured.k, measured.texts, measured.exact) == (3, texts, not candidates)
        assert 0.0 <= measured.worst <= measured.recall <= 1.0
        found = shadow.store.check()
        assert found.problems == ()
        if candidates:
            assert measured.samples > 10
            assert measured.recall > 0.5
            assert "recall@3" in str(measured)
            assert found.recall is not None
            assert (found.recall.k, found.recall.exact) == (10, False)
        else:
            assert (measured.recall, measured.worst) == (1.0, 1.0)
            assert "exact" in str(measured)
            assert found.recall is None

    def test_an_empty_store_is_exact(self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock) -> None:
        """So is one in which nothing is indexed."""
        shadow = open_shadow(open_store, embeddings, clock)
        assert shadow.store.recall_check().exact
        shadow.put(("a",), "k", {"title": "zebra"}, index=False)
        assert (shadow.store.recall_check().exact, shadow.store.recall_check().texts) == (True, 0)

    @pytest.mark.parametrize("kind", ["narrow"])
    def test_wrong_numbers_are_refused(self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock) -> None:
        """And a store without vectors has none to compare."""
        store = open_shadow(open_store, embeddings, clock).store
        wrong: list[Any] = [0, -1, 1.5, True, "3", 10_001, None]
        for given in wrong:
            with pytest.raises(InvalidArgument, match="samples"):
                store.recall_check(given)
            with pytest.raises(InvalidArgument, match="k is"):
                store.recall_check(k=given)

    @pytest.mark.parametrize("kind", ["narrow", "wide"])
    def test_a_store_by_words_has_nothing_to_compare(self, open_store: OpenStore) -> None:
        """It ranks everything exactly."""
        store = open_store(index={"mode": "lexical", "fields": ["title"]})
        store.put(("a",), "k", {"title": "zebra"})
        with pytest.raises(InvalidArgument, match="vectors"):
            store.recall_check()
        assert store.check().recall is None
