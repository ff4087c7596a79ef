"""The approximate index against the exact one: what it finds, what it scores, and what it takes over from a file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memstore.indexes import Metric, codes
from memstore.indexes.faiss import FaissIndex
from memstore.indexes.flat import FlatIndex, prepare, score
from tests.vectors import METRICS, answers, every_metric, ids_of, pair, recall, text_vectors


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep codes in parts of which even a few hundred vectors need several."""
    monkeypatch.setattr(codes, "_PART", 256)


@every_metric
def test_the_nearest_are_found(metric: Metric) -> None:
    """Of thousands of texts, among those that are scored exactly for a thousand candidates are the fifty nearest."""
    vectors, queries = text_vectors(5_000, 1), text_vectors(40, 2)
    near, flat = pair(metric, vectors)
    assert recall(near, flat, queries, 10) >= 0.99
    assert recall(near, flat, queries, 50) >= 0.95
    for query in queries:
        ready = prepare(metric, query)
        places = near.propose(ready, 1_000)
        assert 1_000 <= len(places) < 2_000
        proposed = np.sort(near.score(places, ready))[::-1]
        true = flat.search(query, 50).scores
        assert (proposed[:50] >= true).mean() >= 0.99


@every_metric
@pytest.mark.parametrize("dims", [1, 3, 7, 16, 384])
def test_scores_are_exact(metric: Metric, dims: int) -> None:
    """Whatever the length of vectors: each found one has its very score, best first, equal ones by the larger id."""
    vectors, queries = text_vectors(700, 3, dims), text_vectors(10, 4, dims)
    near, _ = pair(metric, vectors, first=50)
    ready = prepare(metric, vectors)
    for query in queries:
        wanted = prepare(metric, query)
        match = near.search(query, 20)
        assert len(match.ids) == len(set(match.ids.tolist())) == 20
        assert match.scores.tolist() == score(metric, ready[match.ids - 50], wanted).tolist()
        assert np.lexsort((-match.ids, -match.scores)).tolist() == list(range(20))
        assert near.score_all(wanted).tolist() == score(metric, ready, wanted).tolist()


@every_metric
@pytest.mark.parametrize("dims", [1, 3, 7])
def test_short_vectors_are_searched_exactly(metric: Metric, dims: int) -> None:
    """Codes of so few bits would miss most of the neighbours: all vectors are compared."""
    vectors, queries = text_vectors(300, 5, dims), text_vectors(5, 6, dims)
    near, flat = pair(metric, vectors)
    assert answers(near, queries, 300) == answers(flat, queries, 300)
    assert answers(near, queries, 1_000) == answers(flat, queries, 1_000)
    assert answers(near, queries, 10) == answers(flat, queries, 10)


@every_metric
def test_what_came_after_training_is_found(metric: Metric) -> None:
    """Coded or not yet, a vector is found by itself as soon as it is added."""
    vectors, late = text_vectors(2_000, 7), text_vectors(400, 8)
    near, flat = pair(metric, vectors)
    for index in (near, flat):
        index.add(np.arange(5_000, 5_400), late)
    assert recall(near, flat, late[::20], 10) >= 0.99
    assert not near.train()  # coded by the quantizer that is there
    assert recall(near, flat, late[::20], 10) >= 0.99
    assert recall(near, flat, vectors[::100], 10) >= 0.99


def test_an_index_is_trained_again_as_it_grows() -> None:
    """When there is four times what the quantizer knows, and what is found then is as right as if trained at once."""
    near, flat = FaissIndex(64), FlatIndex(64)
    trained = []
    for number in range(12):
        rows = text_vectors(150, 100 + number, 64)
        for index in (near, flat):
            index.add(np.arange(150 * number, 150 * number + 150), rows)
        trained.append(near.train())
    assert [number for number, was in enumerate(trained) if was] == [0, 3]
    queries = text_vectors(20, 9, 64)
    whole, _ = pair("cosine", flat._vectors)
    assert recall(near, flat, queries, 10) >= recall(whole, flat, queries, 10) - 0.1
    assert near.search(rows[-1], 1).ids.tolist() == [12 * 150 - 1]


def test_few_vectors_are_not_coded() -> None:
    """Below what a quantizer can be made of, every vector is compared."""
    near, flat = pair("cosine", text_vectors(15, 1, 24))
    assert near.to_parts() is None
    assert not near.train()
    queries = text_vectors(5, 2, 24)
    assert answers(near, queries, 5) == answers(flat, queries, 5)


@every_metric
@pytest.mark.parametrize("compacts", [False, True])
def test_the_removed_is_not_found_and_the_rest_is(metric: Metric, compacts: bool) -> None:
    """However many are gone, k that are left are found; once compacted, the index is as small as what is left."""
    vectors, queries = text_vectors(1_500, 10, 48), text_vectors(15, 11, 48)
    near, flat = pair(metric, vectors)
    chance = np.random.default_rng(12)
    for share in (0.3, 0.5, 0.9):
        gone = chance.permutation(ids_of(near))[: int(share * len(near))]
        assert near.remove(gone) == flat.remove(gone) == len(gone)
        if compacts:
            near.compact()
            assert len(near.score_all(prepare(metric, queries[0]))) == len(near)
        assert len(near) == len(flat)
        assert recall(near, flat, queries, 10) >= 0.95
        assert np.array_equal(ids_of(near), np.sort(flat._ids))
    assert answers(near, queries, len(near)) == answers(flat, queries, len(flat))


@every_metric
@pytest.mark.parametrize("gone", [1, 5, 20, 40, 700])
@pytest.mark.parametrize("adopts", [False, True])
def test_what_comes_after_something_left_has_its_own_code(metric: Metric, gone: int, adopts: bool) -> None:
    """Codes close up when vectors go; each that is added then is found by itself, as are those that stayed."""
    vectors, late = text_vectors(1_500, 40, 32), text_vectors(100, 41, 32)
    near, _ = pair(metric, vectors)
    stays = np.sort(np.random.default_rng(42).permutation(1_500)[gone:])
    if adopts:
        parts = near.to_parts()
        assert parts is not None
        near = FaissIndex(32, metric)
        near.add(stays + 1, vectors[stays])
        assert near.adopt(parts) == len(stays)
    else:
        near.remove(np.setdiff1d(np.arange(1_500), stays) + 1)
        near.compact()
    near.add(np.arange(5_000, 5_100), late)
    assert not near.train()
    flat = FlatIndex(32, metric)
    flat.add(stays + 1, vectors[stays])
    flat.add(np.arange(5_000, 5_100), late)
    for queries in (late, vectors[stays[-40:]]):
        assert answers(near, queries, 1) == answers(flat, queries, 1)


def test_removing_where_the_query_looks() -> None:
    """All that the codes put first may be gone: the search goes on until it has found k that are there."""
    vectors = text_vectors(1_000, 13, 32)
    near, flat = pair("cosine", vectors)
    query = vectors[500]
    gone = flat.search(query, 900).ids
    assert near.remove(gone) == flat.remove(gone) == 900
    assert answers(near, query[None], 5) == answers(flat, query[None], 5)


def test_removing_what_is_not_there() -> None:
    """Ids that never came or are gone are left aside, below, between and beyond those there are."""
    near, _ = pair("cosine", text_vectors(100, 14, 12), first=1_000)
    assert near.remove(np.array([5, 999, 1_100, 2**62])) == 0
    assert near.remove(np.array([1_010, 7, 1_020])) == 2
    assert near.remove(np.array([1_010, 1_020])) == 0
    assert len(near) == 98
    near.compact()
    assert near.remove(np.array([1_010, 1_020])) == 0
    assert near.remove(np.array([], np.int64)) == 0
    assert near.remove(np.arange(1_000, 1_100)) == 98
    assert (len(near), ids_of(near).tolist()) == (0, [])
    near.compact()
    assert (len(near), ids_of(near).tolist(), near.train()) == (0, [], False)
    near.add(np.array([1_050, 5_000]), text_vectors(2, 15, 12))
    assert ids_of(near).tolist() == [1_050, 5_000]
    assert len(near.search(text_vectors(1, 15, 12)[0], 1).ids) == 1


def test_removing_one_id_twice_in_one_call() -> None:
    """It was there once: it is counted once, and the index still knows how many there are."""
    near, _ = pair("cosine", text_vectors(100, 14, 12))
    assert near.remove(np.array([3, 3, 4])) == 2
    assert len(near) == len(ids_of(near)) == 98


@pytest.mark.parametrize("ids", [[11, 10], [10, 10], [5, 6], [9, 10]])
def test_ids_come_ascending(ids: list[int]) -> None:
    """Places are in the order of ids: ids that are not larger than all before are refused, and nothing is added."""
    near, flat = pair("cosine", text_vectors(9, 16, 12))
    with pytest.raises(ValueError, match="ascending"):
        near.add(np.array(ids), text_vectors(2, 17, 12))
    queries = text_vectors(3, 18, 12)
    assert answers(near, queries, 10) == answers(flat, queries, 10)


def test_shapes_are_checked() -> None:
    """Both lengths are named, and nothing is added."""
    near = FaissIndex(12)
    with pytest.raises(ValueError, match=r"\(2, 12\).*\(2, 13\)"):
        near.add(np.array([1, 2]), text_vectors(2, 1, 13))
    with pytest.raises(ValueError, match=r"\(3, 12\).*\(2, 12\)"):
        near.add(np.array([1, 2, 3]), text_vectors(2, 1, 12))
    with pytest.raises(ValueError, match=r"\(12,\).*\(13,\)"):
        near.search(text_vectors(1, 1, 13)[0], 1)
    assert len(near) == 0


@every_metric
def test_copies_tie(metric: Metric) -> None:
    """Copies of one text, coded, late or alone in a place of their own, have one score; the larger id leads."""
    vectors = text_vectors(200, 19, 33)
    vectors[[3, 77, 199]] = vectors[50]
    near, _ = pair(metric, vectors)
    near.add(np.array([1_000]), vectors[50:51])
    match = near.search(vectors[50], 60)
    copies = np.isin(match.ids, [4, 78, 200, 51, 1_000])
    assert match.ids[copies].tolist() == [1_000, 200, 78, 51, 4]
    assert len(set(match.scores[copies].tolist())) == 1


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "remove", "train", "compact", "adopt"]), st.integers(1, 40)), max_size=12
    ),
    st.sampled_from(METRICS),
)
def test_any_history_equals_its_outcome(history: list[tuple[str, int]], metric: Metric) -> None:
    """After steps of every kind in any order the index holds what the exact one does, with the same scores."""
    near, flat = FaissIndex(5, metric), FlatIndex(5, metric)
    chance = np.random.default_rng(20)
    given_rows = np.empty((0, 5), np.float32)
    last = 0
    for step, size in history:
        if step == "add":
            rows = text_vectors(size, last, 5)
            given_rows = np.concatenate([given_rows, rows])
            for index in (near, flat):
                index.add(np.arange(last + 1, last + 1 + size), rows)
            last += size
        elif step == "remove":
            gone = chance.permutation(last + 5)[:size]
            assert near.remove(gone) == flat.remove(gone)
        elif step == "train":
            near.train()
        elif step == "compact":
            near.compact()
        elif (parts := near.to_parts()) is not None and len(flat):
            near = FaissIndex(5, metric)
            near.add(flat._ids, given_rows[flat._ids - 1])
            near.adopt(parts)
        assert len(near) == len(flat)
    queries = text_vectors(2, 21, 5)
    assert answers(near, queries, last + 1) == answers(flat, queries, last + 1)
    for query in queries:
        k = max(1, len(flat) // 3)
        assert len(near.search(query, k).ids) == min(k, len(flat))


LARGE = """
import sys
import numpy as np
from memstore.indexes.faiss import FaissIndex
from memstore.indexes.flat import FlatIndex

metric, size = sys.argv[1], float(sys.argv[2])
vectors = (np.random.default_rng(1).uniform(-1, 1, (200, 8)) * size).astype(np.float32)
near, flat = FaissIndex(8, metric), FlatIndex(8, metric)
for index in (near, flat):
    index.add(np.arange(200), vectors)
near.train()
for query in vectors[:5]:
    match = near.search(query, 200)
    assert match.scores.tolist() == flat.search(query, 200).scores.tolist()
    assert len(near.search(query, 3).ids) == 3
print("whole")
"""
"""Trains and searches an index of vectors of one size, in a process of its own: FAISS would take this one with it."""


@every_metric
@pytest.mark.parametrize("size", ["3e38", "1e20", "1e-30"])
def test_any_finite_vector_may_be_indexed(metric: Metric, size: str) -> None:
    """Numbers whose squares float32 does not hold are numbers that a store accepts: they end no process."""
    done = subprocess.run(
        [sys.executable, "-c", LARGE, metric, size],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[1],
    )
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr[-500:]
