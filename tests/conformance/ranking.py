"""What neighbours lend and what fields count, beside words and meaning; with age, and by the oracle."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import pytest
from langgraph.store.base import PutOp

from memstore import InvalidArgument, InvalidConfig
from tests.conformance.modes import checked
from tests.conformance.ranking_oracle import DAY, WEIGHTS, fill, home_of, open_shadow, ranked, value_of
from tests.support import Clock, OpenStore, WordEmbeddings, keys

FILTERS: list[dict[str, Any] | None] = [None, {"n": {"$lt": 2}}, {"$not": {"n": 0}}]
OPTIONS: dict[str, dict[str, Any]] = {
    "context": {"context": 2},
    "recency": {"recency": 7.0},
    "all": {"context": 1, "recency": 2.0, "min_score": 0.1},
}
WRONG: list[tuple[str, Any]] = [
    *(("context", given) for given in (-1, 6, 1.5, 1.0, "2", True, [1], math.nan)),
    *(("recency", given) for given in (0, -1, "7", True, math.nan, -math.inf, [7])),
    *(("min_score", given) for given in (math.nan, "0.5", True, [0.5])),
]
WRONG_KEYS: list[tuple[str, Any]] = [
    *(("context", given) for given in (-1, 6, 1.5, "2", True, None)),
    *(("recency", given) for given in (0, -1.0, math.inf, math.nan, "7")),
    *(("min_score", given) for given in (math.nan, math.inf, "0.5")),
    *(("weights", given) for given in ({"title": 0}, {"title": 1.5}, {"title": math.nan}, {"": 0.5}, ["title"], None)),
    *(("words", given) for given in ("date", [""], [5], {"date": 1})),
]


class RankingConformance:
    """One formula for narrow and wide scopes; fixtures `kind` and `candidates` say how they are ranked."""

    @pytest.mark.parametrize("context", [1, 2, 5])
    def test_neighbours_lend_by_halves(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, candidates: int, context: int
    ) -> None:
        """Of each namespace by itself, in writing order, whatever else is in scope; a call's number and a store's."""
        shadow = open_shadow(open_store, embeddings, clock)
        fill(shadow)
        shadow.agree(candidates, {"context": context})
        shadow.agree(candidates)
        shadow.store = open_shadow(open_store, embeddings, clock, context=context).store
        shadow.agree(candidates, context=context)
        shadow.agree(candidates, {"context": 0})

    def test_fields_count_what_they_weigh(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, candidates: int
    ) -> None:
        """An item counts by the text that is best then; where a path gives several, each counts so."""
        shadow = open_shadow(open_store, embeddings, clock, weights=WEIGHTS)
        fill(shadow)
        shadow.agree(candidates, weights=WEIGHTS)
        shadow.agree(candidates, {"context": 1}, weights=WEIGHTS)

    def test_age_takes_three_tenths_at_most(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, candidates: int
    ) -> None:
        """Half of that after a half-life; a call's half-life and a store's."""
        shadow = open_shadow(open_store, embeddings, clock)
        fill(shadow)
        for half_life in (2, 30.5, 10_000):
            shadow.agree(candidates, {"recency": half_life})
        shadow.store = open_shadow(open_store, embeddings, clock, recency=7).store
        shadow.agree(candidates, recency=7)
        shadow.agree(candidates, {"recency": 2}, recency=7)

    def test_a_store_s_options_and_a_call_s_are_the_same(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, candidates: int
    ) -> None:
        """All at once, each said here or there; what a call turns off is off."""
        shadow = open_shadow(open_store, embeddings, clock, weights=WEIGHTS)
        fill(shadow)
        together: dict[str, Any] = {"context": 2, "recency": 7.0}
        shadow.agree(candidates, together, weights=WEIGHTS)
        asked: dict[str, Any] = {"query": "the moon over the hill", "limit": 100}
        store = open_shadow(open_store, embeddings, clock, weights=WEIGHTS, min_score=0.2, **together).store
        told = ranked(shadow.store.search((), min_score=0.2, **together, **asked))
        assert ranked(store.search((), **asked)) == told
        assert 0 < len(told) < len(shadow.store.search((), **together, **asked))
        plain = ranked(shadow.store.search((), **asked))
        assert ranked(store.search((), context=0, recency=math.inf, min_score=-math.inf, **asked)) == plain

    def test_every_write_is_seen_by_the_next_search(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, candidates: int
    ) -> None:
        """A put moves an item to the end of its namespace, a delete joins those on both sides, for every store."""
        options: dict[str, Any] = {"context": 2, "recency": 7.0, "weights": WEIGHTS}
        shadow = open_shadow(open_store, embeddings, clock, **options)
        other = open_shadow(open_store, embeddings, clock, shadow.items, **options)
        fill(shadow, 25)
        shadow.agree(candidates, **options)
        other.agree(candidates, **options)
        shadow.put(home_of(3), "k3", value_of(103))
        shadow.agree(candidates, **options)
        other.put(home_of(30), "k30", value_of(30))
        shadow.delete(home_of(8), "k8")
        other.agree(candidates, **options)
        shadow.agree(candidates, **options)
        other.put(home_of(6), "k6", {"title": "unsearchable"}, index=False)
        moved = [PutOp(home_of(n), f"k{n}", None if n == 12 else value_of(n + 200)) for n in (11, 12, 13, 14)]
        shadow.batch(moved)
        clock.pass_minutes(2 * DAY)
        other.agree(candidates, **options)
        shadow.agree(candidates, **options)
        open_shadow(open_store, embeddings, clock, shadow.items, **options).agree(candidates, **options)

    def test_neighbours_are_those_that_are_indexed(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """What another namespace got in between, or is not searchable, does not part two items."""
        shadow = open_shadow(open_store, embeddings, clock)
        shadow.put(("a",), "before", {"title": "grape"})
        shadow.put(("b",), "elsewhere", {"title": "apple"})
        shadow.put(("a",), "hidden", {"title": "apple"}, index=False)
        shadow.put(("a", "below"), "deeper", {"title": "apple"})
        shadow.put(("a",), "after", {"title": "grape jar"})
        plain = checked(shadow.store.search((), query="jar"))
        lent = checked(shadow.store.search((), query="jar", context=1))
        assert lent["before"] == pytest.approx((plain["before"] + plain["after"] / 2) / 2, abs=1e-6)
        assert lent["after"] == pytest.approx((plain["after"] + plain["before"] / 2) / 2, abs=1e-6)
        assert lent["elsewhere"] == pytest.approx(plain["elsewhere"] / 2, abs=1e-6)
        assert lent["deeper"] == pytest.approx(plain["deeper"] / 2, abs=1e-6)

    def test_an_answer_is_found_by_the_question_before_it(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """That is what neighbours are for; by words alone only what shares a word itself is found."""
        shadow = open_shadow(open_store, embeddings, clock)
        turns = ["nice weather", "where is the zebra", "in the field", "lovely"]
        for number, text in enumerate(turns):
            shadow.put(("chat",), str(number), {"title": text})
        shadow.put(("chat",), "5", {"title": "goodbye"})
        ranked = keys(shadow.store.search((), query="zebra", context=1))
        assert ranked[0] == "1"
        assert set(ranked[1:3]) == {"0", "2"}
        assert keys(shadow.store.search((), query="zebra", context=5, mode="lexical")) == ["1"]

    @pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
    @pytest.mark.parametrize("filter", FILTERS, ids=repr)
    def test_pages_join(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, options: dict[str, Any], filter: Any
    ) -> None:
        """With filters, in every scope, by words and by both: no duplicate, no gap, one order."""
        shadow = open_shadow(open_store, embeddings, clock, weights=WEIGHTS)
        fill(shadow)
        for mode in ("hybrid", "lexical"):
            for prefix in ((), ("root", "n1")):
                asked = {"query": "the moon over the hill", "mode": mode, "filter": filter, **options}
                whole = shadow.store.search(prefix, limit=500, **asked)
                checked(whole)
                for size in (1, 7, 20):
                    starts = range(0, len(whole) + size, size)
                    pages = [shadow.store.search(prefix, limit=size, offset=at, **asked) for at in starts]
                    assert ranked(chain(*pages)) == ranked(whole)

    @pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
    def test_a_filter_changes_no_score(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, candidates: int, options: Any
    ) -> None:
        """What does not pass still lends; those that pass are found with the scores they have anyway."""
        shadow = open_shadow(open_store, embeddings, clock, weights=WEIGHTS)
        fill(shadow)
        for mode in ("hybrid", "lexical"):
            asked = {"query": "the moon over the hill", "mode": mode, "limit": 500, **options}
            whole = {hit.key: hit for hit in shadow.store.search((), **asked)}
            some = {hit.key: hit.score for hit in shadow.store.search((), filter={"n": {"$lt": 2}}, **asked)}
            passing = {key: hit.score for key, hit in whole.items() if hit.value["n"] < 2}
            assert 0 < len(some) < len(whole)
            if mode == "lexical" or not candidates or "context" in options:  # else both are capped, where they were cut
                assert some == passing
            assert some.keys() == passing.keys()

    def test_meaning_alone_knows_neither_neighbours_nor_age(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """Asked for, they are refused; what a store has by itself is not applied, nor are its weights."""
        options: dict[str, Any] = {"context": 2, "recency": 7.0, "weights": WEIGHTS}
        shadow = open_shadow(open_store, embeddings, clock, **options)
        fill(shadow, 20)
        plain = open_shadow(open_store, embeddings, clock).store
        asked: dict[str, Any] = {"query": "apple boats", "mode": "semantic", "limit": 50}
        told = ranked(plain.search((), **asked))
        assert ranked(shadow.store.search((), **asked)) == told
        assert ranked(shadow.store.search((), context=0, recency=math.inf, **asked)) == told
        for wrong in (
            {"context": 1},
            {"recency": 7},
            {"context": 1, "recency": 7},
            {"context": 1, "recency": math.inf},
        ):
            for store in (plain, shadow.store):
                with pytest.raises(InvalidArgument, match=f"{next(iter(wrong))}.*hybrid"):
                    store.search((), **asked, **wrong)

    @pytest.mark.parametrize("kind", ["narrow", "narrow async"])
    @pytest.mark.parametrize(("name", "given"), WRONG, ids=repr)
    def test_wrong_options_are_refused(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, name: str, given: Any
    ) -> None:
        """With a query or without, by name; nothing is guessed."""
        shadow = open_shadow(open_store, embeddings, clock)
        shadow.put(("a",), "k", {"title": "apple"})
        for query in ("apple", None):
            with pytest.raises(InvalidArgument, match=name):
                shadow.store.search((), query=query, **{name: given})

    @pytest.mark.parametrize("kind", ["narrow"])
    @pytest.mark.parametrize(("name", "given"), WRONG_KEYS, ids=repr)
    def test_wrong_keys_are_refused(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, name: str, given: Any
    ) -> None:
        """A store that could not rank as it was told does not open."""
        with pytest.raises(InvalidConfig, match=name):
            open_shadow(open_store, embeddings, clock, **{name: given})

    def test_a_weight_is_that_of_its_own_path(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """A path below another one counts whole where it is not named itself."""
        index = {"embed": embeddings, "fields": ["note", "note.body", "list[*].x"], "weights": {"note": 0.25}}
        store = open_store(index=index)
        store.put(("a",), "below", {"note": {"body": "apple"}}, ["note.body"])
        store.put(("b",), "several", {"list": [{"x": "apple"}, {"x": "boat"}]}, ["list[*].x"])
        store.put(("c",), "itself", {"note": "apple"}, ["note"])
        for mode in ("hybrid", "lexical"):
            found = checked(store.search((), query="apple", mode=mode))
            assert found == {"below": 1.0, "several": 1.0, "itself": 0.25}
