"""Codes of vectors in FAISS: four bits for some dims of each (product quantization, "fast scan").

A search looks at all of them. They are kept in parts, at which several threads can look at once. FAISS is imported at
the first use, and is given one thread: after a fork its others would be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from memstore.indexes import Metric, Places, Vectors

CENTROIDS: Final = 16
"""Of the dims that share four bits."""
_PART: Final = 2**18
"""Vectors of a part: about a millisecond."""
_SPARE: Final = 4.0
"""How many more are asked of a part than its share of those wanted, in square roots of that: chance spreads them so."""
Together: TypeAlias = Callable[[Sequence[Callable[[], Any]]], list[Any]]
"""Makes calls, perhaps at once, and gives what they return."""


def in_turn(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Make calls one after the other."""
    return [call() for call in calls]


class Codes:
    """Codes of vectors in the order they were added.

    Args:
        empty: A trained index of FAISS's without codes.
        parts: Those with codes.
        together: Looks at several parts.
    """

    def __init__(self, empty: Any, parts: Sequence[Any] = (), together: Together = in_turn) -> None:
        self._empty = empty
        self._parts = list(parts)
        self._together = together

    @classmethod
    def train(cls, sample: Vectors, dims: int, metric: Metric, together: Together = in_turn) -> Codes:
        """Train a quantizer with vectors of shape (n, all dims), so many dims to four bits."""
        sample = _padded(sample)
        empty = _faiss().IndexPQFastScan(sample.shape[1], sample.shape[1] // dims, 4, _kind(metric))
        empty.pq.cp.min_points_per_centroid = 1  # FAISS would warn on standard output
        empty.pq.cp.seed = 1
        empty.train(sample)
        return cls(empty, (), together)

    @classmethod
    def load(cls, parts: Mapping[str, Any], dims: int, metric: Metric, together: Together = in_turn) -> Codes | None:
        """Take up what `save` gave; None where that was of other vectors.

        Raises:
            KeyError, RuntimeError, ValueError: It gave no such thing.
        """
        ends = np.cumsum(parts["sizes"])
        if len(ends) == 0 or ends[-1] != len(parts["codes"]):
            raise ValueError("parts are missing")
        loaded = [_faiss().deserialize_index(part) for part in np.split(parts["codes"], ends[:-1])]
        fits = (_padded_dims(dims), _kind(metric), loaded[0].M)
        if any((part.d, part.metric_type, part.M) != fits for part in loaded):
            return None
        empty = _faiss().clone_index(loaded[0])
        empty.reset()
        return cls(empty, loaded, together)

    def save(self) -> dict[str, Any]:
        """Give them as arrays."""
        parts = [_faiss().serialize_index(part) for part in self._parts]
        return {"codes": np.concatenate(parts), "sizes": np.array([len(part) for part in parts])}

    def __len__(self) -> int:
        return sum(part.ntotal for part in self._parts)

    @property
    def dims(self) -> int:
        """How many dims share four bits."""
        return int(self._empty.pq.dsub)

    @property
    def size(self) -> int:
        """Bytes held."""
        return sum(part.codes.size() for part in self._parts)

    @property
    def is_scattered(self) -> bool:
        """Whether so much was taken out that the parts have become many and small."""
        return len(self._parts) > 2 * (1 + len(self) // _PART)

    def add(self, vectors: Vectors) -> None:
        """Code more vectors."""
        vectors = _padded(vectors)
        while len(vectors):
            if not self._parts or self._parts[-1].ntotal >= _PART:
                self._parts.append(_faiss().clone_index(self._empty))
            fitting = vectors[: _PART - self._parts[-1].ntotal]
            _faiss()  # on this thread
            self._parts[-1].add(fitting)
            vectors = vectors[len(fitting) :]

    def detached(self) -> Codes:
        """Give them for adding to, while these are searched."""
        parts = list(self._parts)
        if parts and parts[-1].ntotal < _PART:
            parts[-1] = _faiss().clone_index(parts[-1])
        return Codes(self._empty, parts, self._together)

    def search(self, query: Vectors, count: int) -> Places:
        """Give the places of about so many vectors that are nearest by their codes; equal ones come all or none."""
        share = count / len(self._parts)
        asked = count if len(self._parts) == 1 else min(count, int(share + _SPARE * share**0.5) + 1)
        row = _padded(query[None])
        found = self._together([partial(_search, part, row, asked) for part in self._parts])
        sign = -1.0 if self._empty.metric_type == _faiss().METRIC_L2 else 1.0
        starts = np.cumsum([0, *(part.ntotal for part in self._parts)])
        nearness = [sign * distances for distances, _ in found]
        # of those level with the last of a part, and of what is less near, some are missing
        cut = [near[-1] for near, part in zip(nearness, self._parts, strict=True) if len(near) and asked < part.ntotal]
        near, places = np.concatenate(nearness), np.concatenate([at + first for (_, at), first in _zip(found, starts)])
        whole: Places = places[near > max(cut)] if cut else places
        return whole

    def forget(self, places: Places) -> None:
        """Take codes out; the others close up, but for the last few, which are forgotten too."""
        starts = np.cumsum([0, *(part.ntotal for part in self._parts)])
        ends = np.searchsorted(places, starts)
        for number, part in enumerate(self._parts):
            mine = places[ends[number] : ends[number + 1]] - starts[number]
            if len(mine):
                part.remove_ids(mine)
        if self._parts and len(places):
            _end(self._parts[-1])
        self._parts = [part for part in self._parts if part.ntotal]


def _zip(found: Sequence[Any], starts: npt.NDArray[np.int64]) -> Any:
    return zip(found, starts, strict=False)


def _search(part: Any, row: Vectors, count: int) -> tuple[npt.NDArray[np.float32], Places]:
    """Look at one part; where nearness cannot be computed nothing is found."""
    _faiss()  # on this thread
    distances, at = part.search(row, min(count, part.ntotal))
    there = at[0] >= 0
    return distances[0][there], at[0][there]


def _end(part: Any) -> None:
    """Make a part ready to be added to: FAISS leaves old codes behind its last, and would mix them in."""
    part.ntotal -= part.ntotal % part.bbs
    memory = _faiss().rev_swig_ptr(part.codes.get(), part.codes.size())
    memory[part.ntotal * part.M2 // 2 :] = 0


def _padded_dims(dims: int) -> int:
    """Give the dims that a code can be made of: a multiple of four."""
    return dims + -dims % 4


def _padded(vectors: Vectors) -> Vectors:
    room = -vectors.shape[1] % 4
    return np.ascontiguousarray(np.pad(vectors, ((0, 0), (0, room))) if room else vectors)


def _kind(metric: Metric) -> int:
    """Give FAISS's number for a metric."""
    faiss = _faiss()
    return int(faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT)


def _faiss() -> Any:
    """Give FAISS, kept on the thread that calls it: the setting is each thread's own."""
    import faiss  # noqa: PLC0415  it takes a while, and narrow searches never need it

    faiss.omp_set_num_threads(1)
    return faiss
