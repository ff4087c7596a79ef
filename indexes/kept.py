"""Vectors kept in memory, in 32, 16 or 8 bits a number, in parts: as they grow none of them is copied as a whole.

Fewer bits make scores approximate. A vector is kept as whole steps of the largest of its own numbers, so that any size
of numbers is kept equally well, and equal vectors stay equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from memstore.indexes import Places, Precision, Vectors
from memstore.indexes.growing import Growing

_PART_BYTES: Final = 128 * 2**20
_BLOCK: Final = 1_024
"""Vectors that are given at once: 1.5 MB of 384 dims."""
_IN_CACHE: Final = 256
"""Vectors whose fingerprints are made at once."""
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_TYPES: Final[dict[Precision, tuple[type[Any], float]]] = {
    "float32": (np.float32, 0.0),
    "float16": (np.float16, 1.0),
    "int8": (np.int8, 127.0),
}
"""How a number is kept, and how the largest of a vector is; 0 where numbers are kept as they are."""


class KeptVectors:
    """Vectors of one length, known by their places: how many were appended before.

    Args:
        dims: Their length.
        precision: How their numbers are kept.
    """

    def __init__(self, dims: int, precision: Precision = "float32") -> None:
        self.dims = dims
        self.precision: Precision = precision
        self._type, self._largest = _TYPES[precision]
        self._most = max(1, _PART_BYTES // (dims * np.dtype(self._type).itemsize))
        self._parts: list[Growing[Any]] = []
        self._starts = [0]
        """The place of the first vector of each part, and of the next to come."""
        self._steps = Growing(np.float32)
        self._fingerprints = Growing(np.uint64)

    def __len__(self) -> int:
        return self._starts[-1]

    @property
    def size(self) -> int:
        """Bytes held."""
        return sum(part.nbytes for part in self._parts) + self._steps.nbytes + self._fingerprints.nbytes

    @property
    def fingerprints(self) -> npt.NDArray[np.uint64]:
        """64 bits of each vector, of shape (n,), by which it is known again: all of its numbers count."""
        return self._fingerprints.rows

    def append(self, vectors: Vectors) -> None:
        """Append finite vectors of shape (n, dims)."""
        self._fingerprints.append(_to_fingerprints(vectors))
        if not self._largest:
            self._append(vectors)
            return
        steps = np.abs(vectors).max(axis=1, initial=0.0) / np.float32(self._largest)
        steps = np.nextafter(steps, np.float32(0))  # so many of them are no more than the largest was
        steps[steps == 0] = 1.0  # of zeros, or of numbers so small that they are none
        kept = vectors / steps[:, None]
        if self.precision == "int8":
            np.clip(np.rint(kept, out=kept), -self._largest, self._largest, out=kept)
        self._steps.append(steps)
        self._append(kept.astype(self._type))

    def rows(self, places: Places) -> Vectors:
        """Give the vectors at ascending places: float32 of shape (n, dims)."""
        found = np.empty((len(places), self.dims), np.float32)
        ends = np.searchsorted(places, self._starts).tolist()
        for part, start, first, end in zip(self._parts, self._starts, ends, ends[1:], strict=False):
            if first < end:
                found[first:end] = part.rows[places[first:end] - start]
        return self._scaled(found, places)

    def blocks(self, start: int = 0, end: int | None = None) -> Iterator[Vectors]:
        """Give the vectors from a place on, up to another, in their order: float32 of shape (some, dims)."""
        end = len(self) if end is None else end
        for part, begin in zip(self._parts, self._starts, strict=False):
            for at in range(max(start, begin), min(end, begin + len(part)), _BLOCK):
                upto = min(at + _BLOCK, end, begin + len(part))
                block = part.rows[at - begin : upto - begin].astype(np.float32, copy=False)
                yield self._scaled(block, slice(at, upto))

    def keep(self, stays: npt.NDArray[np.bool_]) -> None:
        """Keep some vectors; their places close up."""
        parts, starts = self._parts, self._starts
        self._parts, self._starts = [], [0]
        self._fingerprints.keep(stays)
        self._steps.keep(stays if self._largest else stays[:0])
        for at in range(len(parts)):
            rows = parts[at].rows[stays[starts[at] : starts[at + 1]]]
            parts[at] = Growing(self._type)  # let go before the next is copied
            self._append(rows)

    def _append(self, rows: npt.NDArray[Any]) -> None:
        while len(rows):
            if not self._parts or len(self._parts[-1]) == self._most:
                # all of its room at once: memory that is not used yet is not taken
                self._parts.append(Growing(self._type, (self.dims,), self._most))
                self._starts.append(self._starts[-1])
            fitting = rows[: self._most - len(self._parts[-1])]
            self._parts[-1].append(fitting)
            self._starts[-1] += len(fitting)
            rows = rows[len(fitting) :]

    def _scaled(self, rows: Vectors, places: Any) -> Vectors:
        return rows * self._steps.rows[places][:, None] if self._largest else rows


def _to_fingerprints(vectors: Vectors) -> npt.NDArray[np.uint64]:
    words = vectors if vectors.shape[1] % 2 == 0 else np.pad(vectors, ((0, 0), (0, 1)))
    found = np.empty(len(words), np.uint64)
    weights = (np.arange(1, words.shape[1] // 2 + 1, dtype=np.uint64) * _GOLDEN) | np.uint64(1)
    for at in range(0, len(words), _IN_CACHE):
        numbers = np.ascontiguousarray(words[at : at + _IN_CACHE]).view(np.uint64)
        found[at : at + _IN_CACHE] = (numbers ^ (numbers >> np.uint64(29))) @ weights
    return found
