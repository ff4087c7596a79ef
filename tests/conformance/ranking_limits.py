"""How old an item is, and the least score it is found with."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import numpy as np
import pytest
from langgraph.store.base import SearchOp

from tests.conformance.models import TableEmbeddings
from tests.conformance.modes import MODES, checked
from tests.conformance.ranking_oracle import DAY, WEIGHTS, fill, open_shadow, ranked
from tests.support import Clock, OpenStore, WordEmbeddings, keys

QUERY = "the moon over the hill"


class AgeConformance:
    """Age takes of a score in steps of a 64th of a half-life, so that pages join while time passes."""

    def test_age_takes_off_as_time_passes(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """15 % after one half-life, 22.5 % after two, never more than 30 %; the order of equals is by their age."""
        shadow = open_shadow(open_store, embeddings, clock)
        shadow.put(("a",), "k", {"title": "apple"})
        for days, left in ((0, 1.0), (4, 0.85), (4, 0.775), (100_000, 0.7)):
            clock.pass_minutes(days * DAY)
            for mode in ("hybrid", "lexical"):
                found = checked(shadow.store.search((), query="apple", recency=4, mode=mode))
                assert found == pytest.approx({"k": left}, abs=1e-9)
        shadow.put(("b",), "later", {"title": "apple"})
        assert keys(shadow.store.search((), query="apple", recency=4)) == ["later", "k"]

    def test_a_put_makes_an_item_young(self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock) -> None:
        """Its age is that of its value; a read makes nothing younger."""
        shadow = open_shadow(open_store, embeddings, clock)
        for key in ("1", "2"):
            shadow.put(("a",), key, {"title": "apple"}, ttl=100 * DAY)
        clock.pass_minutes(7 * DAY)
        shadow.put(("a",), "1", {"title": "apple"})
        for _ in range(2):
            found = checked(shadow.store.search((), query="apple", recency=7.0, refresh_ttl=True))
            assert found == pytest.approx({"1": 1.0, "2": 0.85}, abs=1e-9)

    def test_a_clock_set_back_makes_nothing_too_young(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """What was written in the future is new, and its score no more than it would be without age."""
        shadow = open_shadow(open_store, embeddings, clock)
        shadow.put(("a",), "k", {"title": "apple"})
        clock.pass_minutes(-30 * DAY)
        assert checked(shadow.store.search((), query="apple", recency=1.0)) == {"k": 1.0}

    def test_within_a_step_nothing_ages(self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock) -> None:
        """Pages that are asked for one after another join to one answer."""
        shadow = open_shadow(open_store, embeddings, clock)
        fill(shadow, 30)
        clock.microseconds += -clock.microseconds % (DAY * 60_000_000)  # where a step begins
        asked: dict[str, Any] = {"query": QUERY, "recency": 64.0}
        whole = shadow.store.search((), limit=100, **asked)
        pages = []
        for at in range(len(whole)):
            clock.pass_minutes(DAY / (len(whole) + 1))
            pages += shadow.store.search((), limit=1, offset=at, **asked)
        assert ranked(pages) == ranked(whole)
        clock.pass_minutes(DAY)
        assert ranked(shadow.store.search((), limit=100, **asked)) != ranked(whole)

    @pytest.mark.parametrize("half_life", [1e-12, 1e-6, 1e9, 1e10, 1e300, 10**40], ids=str)
    def test_half_lives_of_any_length(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, half_life: float
    ) -> None:
        """However short or long, a score lies between what it is without age and 0.7 of that."""
        shadow = open_shadow(open_store, embeddings, clock)
        shadow.put(("a",), "k", {"title": "apple"})
        clock.pass_minutes(DAY)
        expected = 0.7 if half_life < 1 else 1.0
        assert checked(shadow.store.search((), query="apple", recency=half_life)) == pytest.approx({"k": expected})
        store = open_shadow(open_store, embeddings, clock, recency=float(half_life)).store
        assert checked(store.search((), query="apple")) == pytest.approx({"k": expected})

    def test_what_expired_or_was_swept_has_no_age(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """It is not found, and nothing of it is missed."""
        shadow = open_shadow(open_store, embeddings, clock)
        shadow.put(("a",), "1", {"title": "apple"}, ttl=1)
        shadow.put(("a",), "2", {"title": "apple"})
        assert keys(shadow.store.search((), query="apple", recency=7)) == ["2", "1"]
        clock.pass_minutes(2)
        assert keys(shadow.store.search((), query="apple", recency=7)) == ["2"]
        assert shadow.store.sweep() == 1
        assert keys(shadow.store.search((), query="apple", recency=7)) == ["2"]


class LeastScoreConformance:
    """`min_score` cuts the one answer where scores fall below it, and pages are cut from what is left."""

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("filter", [None, {"n": {"$lt": 2}}, {"$not": {"n": 0}}], ids=repr)
    def test_it_keeps_the_head_of_the_answer(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, mode: str, filter: Any
    ) -> None:
        """What scores as much is found, what scores less is not, on pages of any size."""
        shadow = open_shadow(open_store, embeddings, clock)
        fill(shadow)
        asked: dict[str, Any] = {"query": QUERY, "mode": mode, "filter": filter}
        whole = shadow.store.search((), limit=500, **asked)
        scores = sorted({hit.score for hit in whole if hit.score is not None})
        for least in (scores[0] - 1, *scores[:: max(1, len(scores) // 6)], np.nextafter(scores[-1], 2), 5, math.inf):
            kept = [hit for hit in whole if hit.score is not None and hit.score >= least]
            asked["min_score"] = float(least)
            assert ranked(shadow.store.search((), limit=500, **asked)) == ranked(kept)
            for size in (3, 20):
                starts = range(0, len(whole) + size, size)
                pages = [shadow.store.search((), limit=size, offset=at, **asked) for at in starts]
                assert ranked(chain(*pages)) == ranked(kept)

    def test_it_is_the_final_score_that_counts(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """With what neighbours lent, what a field counts, and what age took."""
        shadow = open_shadow(open_store, embeddings, clock, weights=WEIGHTS, context=1, recency=7)
        fill(shadow)
        expected = shadow.expect((), QUERY, context=1, recency=7, weights=WEIGHTS)
        least = sorted(expected.values())[-10] - 1e-6
        found = checked(shadow.store.search((), query=QUERY, min_score=least, limit=100))
        assert found == pytest.approx({key: score for key, score in expected.items() if score >= least}, abs=1e-6)
        assert len(found) == 10

    def test_a_store_s_own_may_be_turned_off(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """A call's comes before it, a batch takes it, and without a query there is nothing to compare."""
        shadow = open_shadow(open_store, embeddings, clock)
        fill(shadow, 20)
        whole = ranked(shadow.store.search((), query=QUERY, limit=100))
        newest = ranked(shadow.store.search((), limit=100))
        store = open_shadow(open_store, embeddings, clock, min_score=0.25).store
        kept = [hit for hit in whole if (hit[2] or 0) >= 0.25]
        assert 0 < len(kept) < len(whole)
        assert ranked(store.search((), query=QUERY, limit=100)) == kept
        assert ranked(*store.batch([SearchOp((), query=QUERY, limit=100)])) == kept
        assert ranked(store.search((), query=QUERY, limit=100, min_score=-math.inf)) == whole
        assert ranked(store.search((), query=QUERY, limit=100, min_score=0)) == whole
        assert ranked(store.search((), limit=100)) == newest
        assert ranked(store.search((), limit=100, min_score=9.0)) == newest

    @pytest.mark.parametrize("metric", ["l2", "inner_product"])
    def test_scores_of_any_metric_are_compared(self, open_store: OpenStore, metric: str) -> None:
        """Below zero too, and above one."""
        table = {f"t{number}": [float(number), 1.0] for number in range(-3, 4)}
        index = {"embed": TableEmbeddings(table), "fields": ["text"], "metric": metric, "mode": "semantic"}
        store = open_store(index=index)
        for text in table:
            store.put(("a",), text, {"text": text})
        whole = store.search((), query="t3")
        for least in (-3.0, 0.0, 4.0):
            kept = [hit for hit in whole if (hit.score or 0) >= least]
            assert 0 <= len(kept) < len(whole)
            assert ranked(store.search((), query="t3", min_score=least)) == ranked(kept)
