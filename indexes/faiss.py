"""Approximate search with FAISS over vectors held in memory: quantized codes propose, exact scores decide.

Every vector has a code of four bits for two dims (product quantization, "fast scan"). A search scans all codes, which
costs a small part of comparing all vectors and does not depend on how they cluster; what it proposes is scored exactly.
FAISS is imported at the first use, and is given one thread: after a fork its others would be missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from memstore.indexes import Ids, Match, Metric, Places, Scores, Vectors
from memstore.indexes.flat import prepare, score
from memstore.indexes.growing import Growing, places_of

_CENTROIDS: Final = 16
"""Of each two dims: four bits."""
_LEAST_DIMS: Final = 16
"""Shorter vectors are compared as they are: that is as quick, and codes of so few bits tell them apart badly."""
_SAMPLE: Final = 20_000
"""Vectors that the quantizer is trained on, at most."""
_RETRAINED_AT: Final = 4
"""Times what the quantizer was trained on, from which on it is trained again."""
_MORE: Final = 1.25
"""How many more candidates are scored exactly than are wanted."""
_LEAST: Final = 64
"""Candidates that are scored exactly at least."""
_LARGEST: Final = 1e15
"""Numbers in a vector up to which float32 holds the sums of their squares."""
_AT_ONCE: Final = 4_096
"""Vectors whose fingerprints are made at once: 13 MB of 384 dims."""


class FaissIndex:
    """A `VectorIndex` for many vectors. Ids have to be given in ascending order.

    Args:
        dims: The length of a vector.
        metric: How vectors are compared.
        expected: How many are to come first: room is made for them at once.
    """

    def __init__(self, dims: int, metric: Metric = "cosine", expected: int = 0) -> None:
        self.dims = dims
        self.metric: Metric = metric
        self._ids = Growing(np.int64)
        self._vectors = Growing(np.float32, (dims,), expected)
        self._alive = Growing(np.bool_)
        self._dead = 0
        self._largest = 0.0
        self._codes: Any = None
        self._coded = 0
        self._trained_on = 0

    def __len__(self) -> int:
        return len(self._ids) - self._dead

    def add(self, ids: Ids, vectors: Vectors) -> None:
        """Add vectors of shape (n, dims) under new, ascending ids of shape (n,), larger than those before."""
        if vectors.shape != (len(ids), self.dims):
            raise ValueError(f"expected vectors of shape ({len(ids)}, {self.dims}), got {vectors.shape}")
        if (np.diff(ids, prepend=self._ids.rows[-1:]) <= 0).any():
            raise ValueError("expected ascending new ids")
        vectors = prepare(self.metric, vectors)
        self._largest = max(self._largest, float(np.abs(vectors).max(initial=0.0)))
        self._ids.append(ids)
        self._vectors.append(vectors)
        self._alive.append(np.ones(len(ids), np.bool_))

    def remove(self, ids: Ids) -> int:
        """Remove ids, those that are absent left aside; return how many were there."""
        at = places_of(np.unique(ids), self._ids.rows)
        at = at[self._alive.rows[at]]
        self._alive.rows[at] = False
        self._dead += len(at)
        return len(at)

    def search(self, query: Vectors, k: int) -> Match:
        """Find about the k nearest of a query of shape (dims,), with their exact scores."""
        if query.shape != (self.dims,):
            raise ValueError(f"expected a query of shape ({self.dims},), got {query.shape}")
        query = prepare(self.metric, query)
        at = self.propose(query, k)
        ids, scores = self._ids.rows[at], score(self.metric, self._vectors.rows[at], query)
        best = np.lexsort((-ids, -scores))[:k]
        return Match(ids[best], scores[best])

    def propose(self, query: Vectors, k: int) -> Places:
        """Give the places of somewhat more than k vectors that hold about all of the k nearest of a prepared query.

        A vector's place is how many were added before it, without those that `compact` has taken out.
        """
        if not self._coded or k >= len(self) or np.abs(query).max() > _LARGEST:
            return np.flatnonzero(self._alive.rows)
        enough = min(len(self), k + max(k // 8, _LEAST // 2))
        asked = min(self._coded, max(int(k * _MORE), k + _LEAST) + min(self._dead, k))
        late = np.arange(self._coded, len(self._ids))
        _faiss()  # on this thread
        while True:
            distances, found = self._codes.search(self._padded(query[None]), asked)
            at = found[0][found[0] >= 0]
            if asked < self._coded:  # of those level with the last some are missing: equal vectors come all or none
                at = at[distances[0][: len(at)] != distances[0][len(at) - 1]]
            at = np.sort(np.concatenate([at, late]))
            at = at[self._alive.rows[at]]
            if len(at) >= enough or asked >= self._coded:
                return at if len(at) >= min(k, len(self)) else np.flatnonzero(self._alive.rows)
            asked = min(self._coded, 2 * asked)

    def score(self, places: Places, query: Vectors) -> Scores:
        """Score the vectors at some places against a prepared query exactly."""
        return score(self.metric, self._vectors.rows[places], query)

    def score_all(self, query: Vectors) -> Scores:
        """Score the vectors at all places, removed ones too, against a prepared query exactly."""
        return score(self.metric, self._vectors.rows, query)

    def train(self) -> bool:
        """Code all vectors, so that `search` has only to look; tell whether the quantizer was trained for it.

        It is trained when there are vectors enough, and again when there are many more. Short vectors, and those
        beyond what it can compute with, leave the index without codes, and every search compares all of them.
        """
        count = len(self._ids)
        if count < _CENTROIDS or self.dims < _LEAST_DIMS or self._largest > _LARGEST:
            self._codes, self._coded = None, 0
            return False
        trains = self._codes is None or (count >= _RETRAINED_AT * self._trained_on and self._trained_on < _SAMPLE)
        if trains:
            self._codes, self._coded = _train(self._padded(self._sample()), self.metric), 0
            self._trained_on = min(count, _SAMPLE)
        if self._coded < count:
            _faiss()  # on this thread
            self._codes.add(self._padded(self._vectors.rows[self._coded :]))
            self._coded = count
        return trains

    def to_parts(self) -> dict[str, Any] | None:
        """Give what took time to compute, as arrays; None where there is nothing yet.

        A code belongs to the vector it was made of, which is known again by its fingerprint: whatever becomes of the
        parts, `adopt` takes no code for another vector.
        """
        if self._codes is None:
            return None
        return {
            "codes": _faiss().serialize_index(self._codes),
            "ids": self._ids.rows[: self._coded].copy(),
            "fingerprints": _fingerprints(self._vectors.rows, np.arange(self._coded)),
            "trained_on": np.array([self._trained_on]),
        }

    def adopt(self, parts: Mapping[str, Any]) -> int:
        """Take over the codes that `to_parts` gave of vectors that are here, in a new index; tell how many.

        Raises:
            KeyError, RuntimeError, ValueError: It gave no such parts.
        """
        codes: Any = _faiss().deserialize_index(parts["codes"])
        ids, (trained_on,) = parts["ids"], parts["trained_on"].tolist()
        if not len(self._ids) or not len(ids) == len(parts["fingerprints"]) == codes.ntotal:
            return 0
        at = np.minimum(np.searchsorted(self._ids.rows, ids), len(self._ids) - 1)
        same = self._ids.rows[at] == ids
        same[same] = _fingerprints(self._vectors.rows, at[same]) == parts["fingerprints"][same]
        count = int(same.sum())
        # codes stand in the order of ids, so what is known has to be an unbroken beginning
        fits = (codes.d, codes.metric_type) == (self.dims - self.dims % -4, _kind(self.metric))
        if not fits or count < len(ids) / 2 or (at[same] != np.arange(count)).any():
            return 0
        self._codes, self._trained_on = codes, trained_on
        self._forget(np.flatnonzero(~same))
        return count

    def compact(self) -> None:
        """Forget what was removed; the places close up."""
        stays = self._alive.rows.copy()
        if self._codes is not None:
            self._forget(np.flatnonzero(~stays[: self._coded]))
        for column in (self._ids, self._vectors, self._alive):
            column.keep(stays)
        self._dead = 0

    def _forget(self, places: Places) -> None:
        """Take codes out; the others close up, and `train` codes the last few anew."""
        faiss, codes = _faiss(), self._codes
        if len(places):
            codes.remove_ids(places)
            # FAISS leaves old codes behind the last one, and would mix new ones with them
            codes.ntotal -= codes.ntotal % codes.bbs
            memory = faiss.rev_swig_ptr(codes.codes.get(), codes.codes.size())
            memory[codes.ntotal * codes.M2 // 2 :] = 0
        self._coded = codes.ntotal

    def _sample(self) -> Vectors:
        """Choose vectors to train on, alike for the same vectors."""
        rows = self._vectors.rows
        if len(rows) <= _SAMPLE:
            return rows
        return rows[np.sort(np.random.default_rng(len(rows)).choice(len(rows), _SAMPLE, replace=False))]

    def _padded(self, vectors: Vectors) -> Vectors:
        """Give vectors dims that a code can be made of: an even number of pairs."""
        room = -self.dims % 4
        return np.ascontiguousarray(np.pad(vectors, ((0, 0), (0, room))) if room else vectors)


def _train(sample: Vectors, metric: Metric) -> Any:
    """Make an empty FAISS index with a trained quantizer."""
    codes = _faiss().IndexPQFastScan(sample.shape[1], sample.shape[1] // 2, 4, _kind(metric))
    codes.pq.cp.min_points_per_centroid = 1  # FAISS would warn on standard output
    codes.pq.cp.seed = 1
    codes.train(sample)
    return codes


def _kind(metric: Metric) -> int:
    """Give FAISS's number for a metric."""
    faiss = _faiss()
    return int(faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT)


def _fingerprints(vectors: Vectors, places: Places) -> npt.NDArray[np.uint64]:
    """Give 64 bits of the vectors, of shape (n, dims), at some places, by which they are known again."""
    steps = np.arange(1, vectors.shape[1] + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    weights = (steps ^ (steps >> np.uint64(29))) | np.uint64(1)
    found = np.empty(len(places), np.uint64)
    for start in range(0, len(places), _AT_ONCE):
        words = vectors[places[start : start + _AT_ONCE]].view(np.uint32).astype(np.uint64)
        found[start : start + _AT_ONCE] = (words ^ (words >> np.uint64(15))) @ weights
    return found


def _faiss() -> Any:
    """Give FAISS, kept on the thread that calls it: the setting is each thread's own."""
    import faiss  # noqa: PLC0415  it takes a while, and narrow searches never need it

    faiss.omp_set_num_threads(1)
    return faiss
