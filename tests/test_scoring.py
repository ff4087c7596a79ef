"""Ranking: items by their best text, ties by the later written, whole scopes in parts; words by their rarity."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memstore.indexes import Ids, Metric, Terms, Vectors
from memstore.indexes.flat import prepare
from memstore.indexes.postings import Postings
from memstore.scoring import Query, Ranking, fuse, rank, rank_slices, to_shares, weigh
from memstore.slices import Slice

unhurried = settings(deadline=None)
"""A slow machine fails no example."""
texts = st.lists(st.tuples(st.integers(1, 12), st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0])), max_size=30)
METRICS: tuple[Metric, ...] = ("cosine", "l2", "inner_product")


def semantic(metric: Metric, vector: Vectors) -> Query:
    """Make a query by meaning."""
    return Query("semantic", prepare(metric, vector), None, 1)


def wordless(item_ids: Ids, vectors: Vectors) -> Slice:
    """Make a slice of texts without terms."""
    return Slice(item_ids, vectors, Postings.of(np.zeros(len(item_ids), np.int64), np.empty(0, np.uint32)))


def as_terms(*terms: int) -> Terms:
    """Make terms."""
    return np.array(terms, np.uint32)


def pairs(ranking: Ranking) -> list[tuple[int, float]]:
    """Give a ranking as (item id, score) pairs."""
    return list(zip(ranking.item_ids.tolist(), ranking.scores.tolist(), strict=True))


def ranked(scored: list[tuple[int, float]], cuts: list[int]) -> list[tuple[int, float]]:
    """Rank (item id, score) pairs given in parts that are cut at some places."""
    places = [0, *sorted(min(cut, len(scored)) for cut in cuts), len(scored)]
    parts = [scored[start:end] for start, end in pairwise(places)]
    ranking = rank(
        [np.array([item for item, _ in part], np.int64) for part in parts],
        [np.array([score for _, score in part], np.float64) for part in parts],
    )
    return pairs(ranking)


@unhurried
@given(texts, st.lists(st.integers(0, 30), max_size=3))
def test_items_rank_once_by_their_best_text(scored: list[tuple[int, float]], cuts: list[int]) -> None:
    """Best score first, equal ones by the larger id; how the texts are spread over parts changes nothing."""
    best: dict[int, float] = {}
    for item, score in scored:
        best[item] = max(score, best.get(item, -np.inf))
    expected = sorted(best.items(), key=lambda pair: (-pair[1], -pair[0]))
    assert ranked(scored, cuts) == expected


@unhurried
@given(texts)
def test_ranks_may_be_joined_from_ranks(scored: list[tuple[int, float]]) -> None:
    """A wide scope is ranked group by group; ranking the ranks gives the same order as ranking all at once."""
    half = len(scored) // 2
    first, second = ranked(scored[:half], []), ranked(scored[half:], [])
    assert ranked([*first, *second], [len(first)]) == ranked(scored, [])


def test_nothing_ranks_as_nothing() -> None:
    """No parts, or empty ones, give empty arrays of the right types."""
    for ranking in [rank([], []), rank([np.empty(0, np.int64)], [np.empty(0, np.float64)])]:
        assert pairs(ranking) == []
        assert ranking.item_ids.dtype == np.int64
        assert ranking.scores.dtype == np.float64


@pytest.mark.parametrize("metric", METRICS)
def test_slices_are_scored_and_ranked_together(metric: Metric) -> None:
    """Several namespaces are one ranking, each text scored as if it stood alone."""
    chance = np.random.default_rng(7)
    vectors = chance.standard_normal((40, 16)).astype(np.float32)
    ready = prepare(metric, vectors)
    whole = wordless(np.arange(1, 41), ready)
    parts = [wordless(np.arange(1, 16), ready[:15]), wordless(np.arange(16, 41), ready[15:])]
    query = semantic(metric, vectors[11])
    ranking = rank_slices(query, metric, parts, None)
    assert pairs(ranking) == pairs(rank_slices(query, metric, [whole], None))
    assert (np.diff(ranking.scores) <= 0).all()
    if metric != "inner_product":
        assert ranking.item_ids[0] == 12


@pytest.mark.parametrize("metric", METRICS)
def test_equal_texts_score_equal_wherever_they_stand(metric: Metric) -> None:
    """A score depends on the text and the query alone: copies in slices of any size tie, the later id first."""
    chance = np.random.default_rng(8)
    copy = chance.standard_normal(384).astype(np.float32)
    parts = []
    for number, size in enumerate([1, 2, 3, 17, 100, 1001]):
        vectors = chance.standard_normal((size, 384)).astype(np.float32)
        vectors[size // 2] = copy
        parts.append(wordless(np.arange(size) + 10_000 * (number + 1), prepare(metric, vectors)))
    query = semantic(metric, chance.standard_normal(384).astype(np.float32))
    copies = {int(part.item_ids[len(part.item_ids) // 2]) for part in parts}
    tied = [(item, score) for item, score in pairs(rank_slices(query, metric, parts, None)) if item in copies]
    assert len({score for _, score in tied}) == 1
    assert [item for item, _ in tied] == sorted(copies, reverse=True)


def test_an_empty_ranking_of_slices() -> None:
    """A scope without texts has no ranks."""
    assert pairs(rank_slices(semantic("cosine", np.ones(4, np.float32)), "cosine", [], None)) == []


def test_a_rarer_term_weighs_more_and_none_weighs_nothing() -> None:
    """One that every text holds still weighs a little; nothing is below zero. One that no text holds weighs half."""
    weights = weigh(as_terms(1, 2, 3, 4), np.array([0, 1, 50, 100]), 100)
    assert weights.terms.tolist() == [1, 2, 3, 4]
    assert weights.weights.tolist() == pytest.approx(
        [np.log(202) / 4, np.log1p(99.5 / 1.5), np.log(2), np.log1p(0.5 / 100.5)]
    )
    assert weights.total == pytest.approx(weights.weights.sum())


def test_only_the_rarest_terms_of_a_long_query_count() -> None:
    """64 of those that texts hold: they say what it is about, and a conversation costs no more; they stay ascending."""
    holders = np.random.default_rng(1).permutation(1_000)
    weights = weigh(np.arange(1_000, dtype=np.uint32), holders, 2_000)
    assert holders[weights.terms].tolist() == [held for held in holders.tolist() if 1 <= held <= 64]
    assert np.all(np.diff(weights.terms.astype(np.int64)) > 0)
    counted = holders[weights.terms]
    assert np.allclose(weights.weights, np.log1p((2_000 - counted + 0.5) / (counted + 0.5)))


def test_a_share_falls_with_the_length_of_the_text() -> None:
    """Up to 45 terms a text is short; 32 times as long it has to hold four times the weight. No share passes 1."""
    shares = to_shares(np.array([4.0, 4.0, 4.0, 0.0, 4.0 + 1e-12]), np.array([1, 45, 45 * 32, 5, 2]), 4.0)
    assert shares.tolist() == [1.0, 1.0, 0.25, 0.0, 1.0]
    assert to_shares(np.zeros(2), np.array([1, 1]), 0.0).tolist() == [0.0, 0.0]


def test_fusing_is_a_fixed_sum_within_its_bounds() -> None:
    """A cosine below zero counts as zero: what is unlike is no worse than what has nothing to do with it."""
    fused = fuse(np.array([1.0, 1.0, -1.0, 0.0, 0.5]), np.array([1.0, 0.0, 1.0, 0.0, 0.5]))
    assert fused.tolist() == [1.0, 0.5, 0.5, 0.0, 0.5]


def test_ranks_by_words_are_of_the_texts_that_share_a_term() -> None:
    """Every other item is left out, not put last."""
    postings = Postings.of(np.array([2, 1, 0, 1]), as_terms(3, 7, 7, 9))
    part = Slice(np.array([1, 2, 3, 4]), np.empty((4, 0), np.float32), postings)
    query = Query("lexical", None, as_terms(3, 7), 1)
    weights = weigh(as_terms(3, 7), postings.count(as_terms(3, 7)), 4)
    ranking = rank_slices(query, "cosine", [part], weights)
    assert ranking.item_ids.tolist() == [1, 2]
    assert ranking.scores[0] == 1.0
    assert 0.0 < ranking.scores[1] < 0.5


def test_what_follows_other_ranks_is_not_among_them_nor_better() -> None:
    """The deeper ranks of a wide scope: no item twice, and a score above the candidates' last is brought down to it."""
    near = Ranking(np.array([5, 3]), np.array([0.9, 0.7]), complete=False)
    far = Ranking(np.array([5, 4, 3, 1]), np.array([0.9, 0.8, 0.7, 0.2]))
    assert pairs(far.after(near)) == [(4, 0.7), (1, 0.2)]
    assert pairs(far.after(rank([], []))) == pairs(far)
