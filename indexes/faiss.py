"""Approximate search over vectors held in memory: codes propose, the vectors themselves decide.

Every vector has a code of four bits for two dims, or for four where there are very many. A search looks at all codes,
which costs a small part of comparing all vectors and does not depend on how they cluster; what it proposes is scored by
the vectors. Codes may be made beside the index, on another thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from memstore.indexes import Ids, Match, Metric, Places, Precision, Scores, Vectors
from memstore.indexes.codes import CENTROIDS, Codes, Together, in_turn
from memstore.indexes.flat import prepare, score
from memstore.indexes.growing import Growing, places_of
from memstore.indexes.kept import KeptVectors

_LEAST_DIMS: Final = 16
"""Shorter vectors are compared as they are: that is as quick, and codes of so few bits tell them apart badly."""
_FINE: Final = 2
_COARSE: Final = 4
"""Dims that share four bits: codes of very many vectors are coarser, so that all can be looked at quickly."""
_COARSE_FROM: Final = 400_000
_FINE_BELOW: Final = 200_000
"""Vectors from which on, and below which, codes change from the one to the other."""
_SAMPLE: Final = 8_192
"""Vectors that the quantizer is trained on, at most."""
_RETRAINED_AT: Final = 4
"""Times what the quantizer was trained on, from which on it is trained again."""
_MORE: Final = {_FINE: 1.25, _COARSE: 5.0}
"""How many times the candidates wanted are scored exactly."""
_LEAST: Final = {_FINE: 200, _COARSE: 400}
"""Candidates that are scored exactly at least."""
_LARGEST: Final = 1e15
"""Numbers in a vector up to which float32 holds the sums of their squares."""
_AT_ONCE: Final = 32_768
"""Vectors that are scored at once: 50 MB of 384 dims."""


class FaissIndex:
    """A `VectorIndex` for many vectors. Ids have to be given in ascending order.

    Args:
        dims: The length of a vector.
        metric: How vectors are compared.
        precision: How the numbers of vectors are kept; scores are exact at `float32` alone.
        together: Looks at several parts of the codes.
    """

    def __init__(
        self, dims: int, metric: Metric = "cosine", precision: Precision = "float32", together: Together = in_turn
    ) -> None:
        self.dims = dims
        self.metric: Metric = metric
        self.generation = 0
        """How often the places have changed."""
        self._ids = Growing(np.int64)
        self._vectors = KeptVectors(dims, precision)
        self._alive = Growing(np.bool_)
        self._dead = 0
        self._is_codable = dims >= _LEAST_DIMS
        """Whether codes can be computed of its vectors, and tell them apart."""
        self._together = together
        self._codes: Codes | None = None
        self._coded = 0
        self._trained_on = 0

    def __len__(self) -> int:
        return len(self._ids) - self._dead

    @property
    def size(self) -> int:
        """Bytes held."""
        codes = 0 if self._codes is None else self._codes.size
        return self._vectors.size + self._ids.nbytes + self._alive.nbytes + codes

    @property
    def coded(self) -> int:
        """How many vectors have codes, removed ones among them."""
        return self._coded

    @property
    def uncoded(self) -> int:
        """How many vectors have no codes, so that every search compares them one by one."""
        return len(self._ids) - self._coded

    @property
    def dims_a_code(self) -> int:
        """How many dims share four bits of the codes; 0 where there are none."""
        return 0 if self._codes is None else self._codes.dims

    def add(self, ids: Ids, vectors: Vectors) -> None:
        """Add vectors of shape (n, dims) under new, ascending ids of shape (n,), larger than those before."""
        if vectors.shape != (len(ids), self.dims):
            raise ValueError(f"expected vectors of shape ({len(ids)}, {self.dims}), got {vectors.shape}")
        if (np.diff(ids, prepend=self._ids.rows[-1:]) <= 0).any():
            raise ValueError("expected ascending new ids")
        vectors = prepare(self.metric, vectors)
        if np.abs(vectors).max(initial=0.0) > _LARGEST:
            self._is_codable, self._codes, self._coded = False, None, 0
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
        """Find about the k nearest of a query of shape (dims,), with their scores."""
        if query.shape != (self.dims,):
            raise ValueError(f"expected a query of shape ({self.dims},), got {query.shape}")
        query = prepare(self.metric, query)
        at = self.propose(query, k)
        ids, scores = self._ids.rows[at], self.score(at, query)
        best = np.lexsort((-ids, -scores))[:k]
        return Match(ids[best], scores[best])

    def propose(self, query: Vectors, k: int) -> Places:
        """Give the places, ascending, of more than k vectors that hold about all of the k nearest of a prepared query.

        A vector's place is how many were added before it, without those that `compact` has taken out.
        """
        if self._codes is None or not self._coded or k >= len(self) or np.abs(query).max() > _LARGEST:
            return np.flatnonzero(self._alive.rows)
        more = max(int(k * _MORE[self.dims_a_code]), k + _LEAST[self.dims_a_code])
        enough = min(len(self), k + (more - k) // 2)
        asked = min(self._coded, more + min(self._dead, k))
        late = np.arange(self._coded, len(self._ids))
        while True:
            at = np.sort(np.concatenate([self._codes.search(query, asked), late]))
            at = at[self._alive.rows[at]]
            if len(at) >= enough or asked >= self._coded:
                return at if len(at) >= min(k, len(self)) else np.flatnonzero(self._alive.rows)
            asked = min(self._coded, 2 * asked)

    def score(self, places: Places, query: Vectors) -> Scores:
        """Score the vectors at ascending places against a prepared query."""
        parts = [places[at : at + _AT_ONCE] for at in range(0, len(places), _AT_ONCE)] or [places]
        scores = [score(self.metric, self._vectors.rows(part), query) for part in parts]
        return scores[0] if len(scores) == 1 else np.concatenate(scores)

    def score_all(self, query: Vectors) -> Scores:
        """Score the vectors at all places, removed ones too, against a prepared query."""
        scores = [score(self.metric, block, query) for block in self._vectors.blocks()]
        return np.concatenate([*scores, np.empty(0)])

    def train(self) -> bool:
        """Code all vectors, so that `search` has only to look; tell whether the quantizer was trained for it.

        It is trained when there are vectors enough, and again when there are many more. Short vectors, and those
        beyond what it can compute with, leave the index without codes, and every search compares all of them.
        """
        coding = self.start_coding()
        if coding is None:
            return False
        coding.prepare()
        while (block := self.next_block(coding)) is not None:
            coding.add(block)
        self.take(coding)
        return coding.trained_on > 0

    @property
    def due(self) -> int:
        """How many vectors are to be coded, or coded anew."""
        if not self._is_codable or len(self._ids) < CENTROIDS:
            return 0
        return len(self._ids) if self._is_outgrown else self.uncoded

    @property
    def _is_outgrown(self) -> bool:
        """Whether the quantizer is none for so many vectors."""
        grown = len(self._ids) >= _RETRAINED_AT * self._trained_on and self._trained_on < _SAMPLE
        codes = self._codes
        return codes is None or grown or codes.dims != self._choose_dims() or codes.is_scattered

    def start_coding(self) -> Coding | None:
        """Begin to code what has no codes; None where there is nothing to do."""
        if not self.due:
            return None
        coding = Coding(self.metric, self.generation, self._choose_dims(), self._together)
        if self._is_outgrown:
            coding.sample = self._sample()
        else:
            coding.codes, coding.coded = self._codes, self._coded
        return coding

    def next_block(self, coding: Coding) -> Vectors | None:
        """Give vectors that are to be coded next; None where there are none left, or their places have changed."""
        return next(self._vectors.blocks(coding.coded), None) if coding.generation == self.generation else None

    def take(self, coding: Coding) -> bool:
        """Put codes to use; tell whether they could be: places may have changed since they were begun."""
        if coding.generation != self.generation:
            return False
        self._codes, self._coded = coding.codes, coding.coded
        self._trained_on = coding.trained_on or self._trained_on
        return True

    def to_parts(self) -> dict[str, Any] | None:
        """Give what took time to compute, as arrays; None where there is nothing yet.

        A code belongs to the vector it was made of, which is known again by its fingerprint: whatever becomes of the
        parts, `adopt` takes no code for another vector.
        """
        if self._codes is None:
            return None
        return {
            **self._codes.save(),
            "ids": self._ids.rows[: self._coded].copy(),
            "fingerprints": self._vectors.fingerprints[: self._coded].copy(),
            "trained_on": np.array([self._trained_on]),
        }

    def adopt(self, parts: Mapping[str, Any]) -> int:
        """Take over the codes that `to_parts` gave of vectors that are here, in a new index; tell how many.

        Raises:
            KeyError, RuntimeError, ValueError: It gave no such parts.
        """
        codes = Codes.load(parts, self.dims, self.metric, self._together)
        ids, (trained_on,) = parts["ids"], parts["trained_on"].tolist()
        if codes is None or not len(self._ids) or not len(ids) == len(parts["fingerprints"]) == len(codes):
            return 0
        at = np.minimum(np.searchsorted(self._ids.rows, ids), len(self._ids) - 1)
        same = self._ids.rows[at] == ids
        same[same] = self._vectors.fingerprints[at[same]] == parts["fingerprints"][same]
        count = int(same.sum())
        # codes stand in the order of ids, so what is known has to be an unbroken beginning
        if count < len(ids) / 2 or (at[same] != np.arange(count)).any():
            return 0
        codes.forget(np.flatnonzero(~same))
        self._codes, self._coded, self._trained_on = codes, len(codes), trained_on
        return count

    def compact(self) -> None:
        """Forget what was removed; the places close up."""
        stays = self._alive.rows.copy()
        if self._codes is not None:
            self._codes.forget(np.flatnonzero(~stays[: self._coded]))
            self._coded = len(self._codes)
        for column in (self._ids, self._vectors, self._alive):
            column.keep(stays)
        self._dead = 0
        self.generation += 1
        if len(self._ids) < CENTROIDS:
            self._codes, self._coded = None, 0

    def _sample(self) -> Vectors:
        """Choose vectors to train on, alike for the same vectors."""
        count = len(self._vectors)
        if count <= _SAMPLE:
            return self._vectors.rows(np.arange(count))
        return self._vectors.rows(np.sort(np.random.default_rng(count).choice(count, _SAMPLE, replace=False)))

    def _choose_dims(self) -> int:
        """Choose how many dims are to share four bits."""
        if self.dims_a_code == _COARSE:
            return _COARSE if len(self._ids) >= _FINE_BELOW else _FINE
        return _COARSE if len(self._ids) >= _COARSE_FROM else _FINE


@dataclass(slots=True)
class Coding:
    """Codes in the making, beside an index that is searched, and changes, meanwhile.

    Attributes:
        metric: How vectors are compared.
        generation: The places that they are of.
        dims: How many dims share four bits.
        together: Looks at several parts of them.
        sample: What the quantizer is to be trained on; None where the one there is codes more vectors.
        codes: The codes.
        coded: Vectors that have one.
        trained_on: Vectors that the quantizer was trained on, where it is a new one.
    """

    metric: Metric
    generation: int
    dims: int
    together: Together
    sample: Vectors | None = None
    codes: Codes | None = None
    coded: int = 0
    trained_on: int = 0

    def detach(self) -> None:
        """Take a copy of codes that are searched meanwhile."""
        if self.codes is not None:
            self.codes = self.codes.detached()

    def prepare(self) -> None:
        """Train the quantizer where that is wanted."""
        if self.sample is not None:
            self.codes, self.coded = Codes.train(self.sample, self.dims, self.metric, self.together), 0
            self.trained_on, self.sample = len(self.sample), None

    def add(self, vectors: Vectors) -> None:
        """Code the next vectors."""
        if self.codes is not None:
            self.codes.add(vectors)
            self.coded += len(vectors)
