"""Ranking: items by their best text, ties by the later written, whole scopes in parts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memstore.indexes import Metric
from memstore.indexes.flat import prepare
from memstore.scoring import rank, rank_dense
from memstore.slices import Slice

unhurried = settings(deadline=None)
"""A slow machine fails no example."""
texts = st.lists(st.tuples(st.integers(1, 12), st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0])), max_size=30)
METRICS: tuple[Metric, ...] = ("cosine", "l2", "inner_product")


def ranked(scored: list[tuple[int, float]], cuts: list[int]) -> list[tuple[int, float]]:
    """Rank (item id, score) pairs given in parts that are cut at some places."""
    places = [0, *sorted(min(cut, len(scored)) for cut in cuts), len(scored)]
    parts = [scored[start:end] for start, end in pairwise(places)]
    ids, scores = rank(
        [np.array([item for item, _ in part], np.int64) for part in parts],
        [np.array([score for _, score in part], np.float64) for part in parts],
    )
    return list(zip(ids.tolist(), scores.tolist(), strict=True))


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
    for ids, scores in [rank([], []), rank([np.empty(0, np.int64)], [np.empty(0, np.float64)])]:
        assert (len(ids), len(scores)) == (0, 0)
        assert ids.dtype == np.int64
        assert scores.dtype == np.float64


@pytest.mark.parametrize("metric", METRICS)
def test_slices_are_scored_and_ranked_together(metric: Metric) -> None:
    """Several namespaces are one ranking, each text scored as if it stood alone."""
    chance = np.random.default_rng(7)
    vectors = chance.standard_normal((40, 16)).astype(np.float32)
    query = prepare(metric, vectors[11])
    ready = prepare(metric, vectors)
    whole = Slice(np.arange(1, 41), ready)
    parts = [Slice(np.arange(1, 16), ready[:15]), Slice(np.arange(16, 41), ready[15:])]
    ids, scores = rank_dense(metric, parts, query)
    all_ids, all_scores = rank_dense(metric, [whole], query)
    assert ids.tolist() == all_ids.tolist()
    assert scores.tolist() == all_scores.tolist()
    assert (np.diff(scores) <= 0).all()
    if metric != "inner_product":
        assert ids[0] == 12


@pytest.mark.parametrize("metric", METRICS)
def test_equal_texts_score_equal_wherever_they_stand(metric: Metric) -> None:
    """A score depends on the text and the query alone: copies in slices of any size tie, the later id first."""
    chance = np.random.default_rng(8)
    copy = chance.standard_normal(384).astype(np.float32)
    parts = []
    for number, size in enumerate([1, 2, 3, 17, 100, 1001]):
        vectors = chance.standard_normal((size, 384)).astype(np.float32)
        vectors[size // 2] = copy
        ids = np.arange(size) + 10_000 * (number + 1)
        parts.append(Slice(ids, prepare(metric, vectors)))
    query = prepare(metric, chance.standard_normal(384).astype(np.float32))
    copies = {int(part.item_ids[len(part.item_ids) // 2]) for part in parts}
    ids, scores = rank_dense(metric, parts, query)
    pairs = [(item, score) for item, score in zip(ids.tolist(), scores.tolist(), strict=True) if item in copies]
    assert len({score for _, score in pairs}) == 1
    assert [item for item, _ in pairs] == sorted(copies, reverse=True)


def test_an_empty_ranking_of_slices() -> None:
    """A scope without texts has no ranks."""
    ids, scores = rank_dense("cosine", [], np.ones(4, np.float32))
    assert (len(ids), len(scores)) == (0, 0)
