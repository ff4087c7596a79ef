"""The indexes that there are, against the conformance class of all."""

from __future__ import annotations

import numpy as np
import pytest

from memstore.indexes import Metric, VectorIndex
from memstore.indexes.flat import FlatIndex, prepare, score
from tests.conformance.indexes import METRICS, IndexConformance, random_vectors, true_scores


class TestFlatIndex(IndexConformance):
    """Exact search in NumPy."""

    def make(self, dims: int, metric: Metric) -> VectorIndex:
        """Make an empty index."""
        return FlatIndex(dims, metric)


def test_cosine_is_the_metric_unless_another_is_named() -> None:
    """As in LangGraph's own stores."""
    assert FlatIndex(3).metric == "cosine"


@pytest.mark.parametrize("metric", METRICS)
def test_a_query_is_prepared_as_vectors_are(metric: Metric) -> None:
    """One vector or many: the same numbers."""
    vectors = random_vectors(5)
    assert np.array_equal(prepare(metric, vectors)[3], prepare(metric, vectors[3]))
    assert prepare(metric, vectors).dtype == np.float32


def test_preparing_leaves_what_was_given_alone() -> None:
    """Vectors are also what is stored: they must not be scaled in place."""
    vectors = random_vectors(5)
    before = vectors.copy()
    prepare("cosine", vectors)
    assert np.array_equal(vectors, before)


@pytest.mark.parametrize("metric", METRICS)
def test_scores_are_those_of_the_oracle(metric: Metric) -> None:
    """Prepared vectors against a prepared query, over many lengths of vectors."""
    for dims in (1, 2, 3, 31, 384, 1536):
        vectors, query = random_vectors(20, dims=dims), random_vectors(1, seed=9, dims=dims)[0]
        scores = score(metric, prepare(metric, vectors), prepare(metric, query))
        assert scores.dtype == np.float64
        assert np.allclose(scores, true_scores(metric, vectors, query), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("metric", METRICS)
def test_no_score_is_minus_zero(metric: Metric) -> None:
    """A -0.0 would show in JSON, and sorts as equal to what it does not look like."""
    vectors = np.array([[0.0, 0.0], [-1.0, 0.0]], np.float32)
    scores = score(metric, vectors, np.array([0.0, 0.0], np.float32))
    assert not np.signbit(scores[scores == 0.0]).any()
