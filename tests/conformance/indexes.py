"""What every vector index must do, whatever it is made of: the `VectorIndex` protocol, rule by rule."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memstore.indexes import Ids, Match, Metric, Scores, VectorIndex, Vectors

DIMS = 24
METRICS: tuple[Metric, ...] = ("cosine", "l2", "inner_product")
every_metric = pytest.mark.parametrize("metric", METRICS)


def as_ids(*ids: int) -> Ids:
    """Make ids."""
    return np.array(ids, np.int64)


def as_vectors(*rows: list[float]) -> Vectors:
    """Make vectors."""
    return np.array(rows, np.float32)


def random_vectors(count: int, seed: int = 1, dims: int = DIMS) -> Vectors:
    """Make vectors by chance."""
    return np.random.default_rng(seed).standard_normal((count, dims)).astype(np.float32)


def true_scores(metric: Metric, vectors: Vectors, query: Vectors) -> Scores:
    """Score in float64 as the textbook says: the oracle."""
    rows, wanted = vectors.astype(np.float64), query.astype(np.float64)
    if metric == "inner_product":
        return np.array([row @ wanted for row in rows])
    if metric == "l2":
        return np.array([-np.linalg.norm(row - wanted) for row in rows])
    norms = [np.linalg.norm(row) * np.linalg.norm(wanted) for row in rows]
    return np.array([row @ wanted / norm if norm else 0.0 for row, norm in zip(rows, norms, strict=True)])


def pairs(match: Match) -> list[tuple[int, float]]:
    """Give a match as (id, score) pairs."""
    assert match.ids.shape == match.scores.shape
    assert match.ids.dtype == np.int64
    assert match.scores.dtype == np.float64
    return list(zip(match.ids.tolist(), match.scores.tolist(), strict=True))


class IndexConformance:
    """An index keeps vectors under ids and finds the nearest.

    A subclass says how one is made, and how many of the true neighbours it must find.
    """

    recall: ClassVar[float] = 1.0
    """The share of true neighbours that a search must find; 1.0 for exact indexes."""

    def make(self, dims: int, metric: Metric) -> VectorIndex:
        """Make an empty index."""
        raise NotImplementedError

    def filled(self, metric: Metric, vectors: Vectors, first: int = 1) -> VectorIndex:
        """Make an index of vectors under ids that count up from `first`."""
        index = self.make(vectors.shape[1], metric)
        index.add(np.arange(first, first + len(vectors)), vectors)
        return index

    @every_metric
    def test_it_says_what_it_is(self, metric: Metric) -> None:
        """Length and metric are readable; an empty index counts nothing, and meets the protocol."""
        index = self.make(DIMS, metric)
        assert isinstance(index, VectorIndex)
        assert (index.dims, index.metric, len(index)) == (DIMS, metric, 0)

    @every_metric
    def test_an_empty_index_finds_nothing(self, metric: Metric) -> None:
        """Before anything was added and after everything was removed, a search is an empty match, not an error."""
        index = self.make(DIMS, metric)
        assert pairs(index.search(random_vectors(1)[0], 5)) == []
        index.add(as_ids(1, 2), random_vectors(2))
        index.remove(as_ids(1, 2))
        assert len(index) == 0
        assert pairs(index.search(random_vectors(1)[0], 5)) == []

    @every_metric
    @pytest.mark.parametrize("k", [1, 7, 100])
    def test_it_finds_the_true_neighbours_with_their_true_scores(self, metric: Metric, k: int) -> None:
        """Against an oracle in float64: enough of the k nearest, best first, each with its own score."""
        vectors, queries = random_vectors(400), random_vectors(20, seed=2)
        index = self.filled(metric, vectors, first=1000)
        found = 0
        for query in queries:
            truth = true_scores(metric, vectors, query)
            nearest = set((np.argsort(-truth, kind="stable")[:k] + 1000).tolist())
            match = pairs(index.search(query, k))
            assert len(match) == k
            assert [score for _, score in match] == sorted((score for _, score in match), reverse=True)
            for item, score in match:
                assert score == pytest.approx(truth[item - 1000], abs=1e-5)
            found += len(nearest & {item for item, _ in match})
        assert found >= self.recall * k * len(queries)

    @every_metric
    def test_equal_rows_score_equal_and_the_larger_id_leads(self, metric: Metric) -> None:
        """Whatever stands around them, copies have one score, and ties are ordered by id, largest first."""
        vectors = random_vectors(301)
        copies = [0, 5, 63, 64, 150, 299, 300]
        vectors[copies] = vectors[17]
        index = self.make(DIMS, metric)
        ids = np.random.default_rng(3).permutation(301) + 10
        index.add(ids, vectors)
        match = pairs(index.search(random_vectors(1, seed=4)[0], 301))
        tied = [(item, score) for item, score in match if item in ids[[*copies, 17]].tolist()]
        assert len(tied) == 8
        assert len({score for _, score in tied}) == 1
        assert [item for item, _ in tied] == sorted((item for item, _ in tied), reverse=True)

    @every_metric
    def test_k_beyond_the_index_gives_all(self, metric: Metric) -> None:
        """Fewer where the index holds fewer; every id once; none for k = 0."""
        index = self.filled(metric, random_vectors(5))
        assert sorted(item for item, _ in pairs(index.search(random_vectors(1)[0], 1000))) == [1, 2, 3, 4, 5]
        assert pairs(index.search(random_vectors(1)[0], 0)) == []

    @every_metric
    def test_ids_are_kept_whatever_their_size_and_order(self, metric: Metric) -> None:
        """Ids are the caller's: not places, not dense, not sorted, up to 63 bits."""
        ids = as_ids(2**62, 3, 7_000_000_000, 0)
        vectors = np.eye(4, DIMS, dtype=np.float32)
        index = self.make(DIMS, metric)
        index.add(ids, vectors)
        for place, item in enumerate(ids.tolist()):
            assert pairs(index.search(vectors[place], 1))[0][0] == item

    @every_metric
    def test_removed_ids_are_not_found_again(self, metric: Metric) -> None:
        """What is removed is gone at once, what is absent is left aside, and the count says how many were there."""
        vectors = random_vectors(50)
        index = self.filled(metric, vectors)
        assert index.remove(as_ids(3, 4, 999)) == 2
        assert index.remove(as_ids(3, 4)) == 0
        assert index.remove(as_ids()) == 0
        assert len(index) == 48
        found = [item for item, _ in pairs(index.search(vectors[2], 50))]
        assert sorted(found) == [item for item in range(1, 51) if item not in (3, 4)]

    @every_metric
    def test_a_removed_id_may_be_added_again(self, metric: Metric) -> None:
        """It then stands for its new vector alone."""
        vectors = np.eye(3, DIMS, dtype=np.float32)
        index = self.filled(metric, vectors)
        index.remove(as_ids(2))
        index.add(as_ids(2), -vectors[:1])
        assert pairs(index.search(-vectors[0], 1))[0][0] == 2
        assert len(index) == 3

    @every_metric
    def test_wrong_shapes_are_refused_and_nothing_changes(self, metric: Metric) -> None:
        """Vectors of another length or number, and queries of another shape, are a ValueError that names the shapes."""
        vectors = random_vectors(4)
        index = self.filled(metric, vectors)
        before = pairs(index.search(vectors[0], 10))
        wrong = [random_vectors(2, dims=DIMS + 1), random_vectors(3), random_vectors(1)[0], random_vectors(0)]
        for given_vectors in wrong:
            with pytest.raises(ValueError, match="expected vectors of shape"):
                index.add(as_ids(8, 9), given_vectors)
        for query in [random_vectors(1, dims=DIMS - 1)[0], random_vectors(1)]:
            with pytest.raises(ValueError, match="expected a query of shape"):
                index.search(query, 3)
        assert (len(index), pairs(index.search(vectors[0], 10))) == (4, before)

    @every_metric
    @pytest.mark.parametrize("ids", [(8, 8), (9, 2), (2, 9)])
    def test_ids_that_are_there_already_are_refused_and_nothing_changes(
        self, metric: Metric, ids: tuple[int, ...]
    ) -> None:
        """An id twice in one call, or known before, is a ValueError; not even the new ones beside it get in."""
        vectors = random_vectors(4)
        index = self.filled(metric, vectors)
        before = pairs(index.search(vectors[0], 10))
        with pytest.raises(ValueError, match="id"):
            index.add(as_ids(*ids), random_vectors(2, seed=5))
        assert (len(index), pairs(index.search(vectors[0], 10))) == (4, before)

    @every_metric
    def test_adding_nothing_changes_nothing(self, metric: Metric) -> None:
        """No ids and no vectors are as good as no call."""
        index = self.filled(metric, random_vectors(3))
        index.add(as_ids(), np.empty((0, DIMS), np.float32))
        assert len(index) == 3

    @every_metric
    def test_what_was_added_is_the_index_s_own(self, metric: Metric) -> None:
        """Changing the arrays afterwards, given ones and results, changes nothing in it."""
        ids, vectors = as_ids(1, 2, 3), random_vectors(3)
        query = vectors[0].copy()
        index = self.make(DIMS, metric)
        index.add(ids, vectors)
        before = pairs(index.search(query, 3))
        ids[:], vectors[:] = 9, 0.0
        match = index.search(query, 3)
        match.ids[:], match.scores[:] = 7, 0.0
        assert pairs(index.search(query, 3)) == before

    def test_a_vector_scores_1_against_itself_by_cosine(self) -> None:
        """Exactly, whatever its length, and -1 against its opposite; scores never leave [-1, 1]."""
        vectors = random_vectors(200) * np.logspace(-15, 15, 200, dtype=np.float32)[:, None]
        index = self.filled("cosine", vectors)
        for vector in vectors[::10]:
            match = pairs(index.search(vector, 200))
            assert match[0][1] == 1.0
            assert pairs(index.search(-vector, 200))[-1][1] == -1.0
            assert all(-1.0 <= score <= 1.0 for _, score in match)

    def test_a_zero_vector_scores_0_by_cosine(self) -> None:
        """It has no direction: it is like nothing, and never leads before what is."""
        vectors = as_vectors([0.0, 0.0], [1.0, 0.0], [-1.0, 0.0])
        index = self.filled("cosine", vectors)
        assert pairs(index.search(vectors[1], 3)) == [(2, 1.0), (1, 0.0), (3, -1.0)]
        assert [score for _, score in pairs(index.search(vectors[0], 3))] == [0.0, 0.0, 0.0]

    @every_metric
    def test_the_largest_numbers_give_finite_scores(self, metric: Metric) -> None:
        """Vectors at the edge of float32 neither overflow nor become NaN."""
        vectors = as_vectors([3.0e38, 3.0e38], [-3.0e38, 3.0e38], [1.0e-45, 0.0])
        match = pairs(self.filled(metric, vectors).search(vectors[0], 3))
        assert match[0][0] == 1
        assert np.isfinite([score for _, score in match]).all()

    @settings(deadline=None, max_examples=40)
    @given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(1, 30), max_size=6, unique=True)), max_size=12))
    def test_any_history_equals_its_outcome(self, history: list[tuple[bool, list[int]]]) -> None:
        """After adds and removes in any order the index holds what a dict would, and answers as one made afresh."""
        pool = random_vectors(31)
        index, model = self.make(DIMS, "cosine"), dict[int, Vectors]()
        for adds, ids in history:
            if adds:
                new = [item for item in ids if item not in model]
                index.add(as_ids(*new), pool[new])
                model.update((item, pool[item]) for item in new)
            else:
                assert index.remove(as_ids(*ids)) == sum(model.pop(item, None) is not None for item in ids)
        assert len(index) == len(model)
        truth = {item: true_scores("cosine", row[None], pool[0])[0] for item, row in model.items()}
        match = pairs(index.search(pool[0], 31))
        assert sorted(item for item, _ in match) == sorted(model)
        assert all(score == pytest.approx(truth[item], abs=1e-5) for item, score in match)
