"""Vector indexes: they know vectors and ids, not items.

An index answers a query with the ids and scores of its nearest vectors. Higher scores are better under every metric.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

Metric: TypeAlias = Literal["cosine", "l2", "inner_product"]
Precision: TypeAlias = Literal["float32", "float16", "int8"]
"""How the numbers of vectors are kept in memory."""
Vectors: TypeAlias = npt.NDArray[np.float32]
Ids: TypeAlias = npt.NDArray[np.int64]
Scores: TypeAlias = npt.NDArray[np.float64]
Counts: TypeAlias = npt.NDArray[np.integer]
Places: TypeAlias = npt.NDArray[np.integer]
Terms: TypeAlias = npt.NDArray[np.uint32]
"""Hashes of words; those of one text are distinct and ascending."""


@dataclass(frozen=True, slots=True)
class Match:
    """The nearest vectors of one query: ids and scores of shape (k,), best first; equal scores by the larger id."""

    ids: Ids
    scores: Scores


@runtime_checkable
class VectorIndex(Protocol):
    """Vectors of one length under one metric, each with an id of its own."""

    dims: int
    metric: Metric

    def __len__(self) -> int:
        """Count the vectors."""
        ...

    def add(self, ids: Ids, vectors: Vectors) -> None:
        """Add vectors of shape (n, dims) under new ids of shape (n,).

        Raises:
            ValueError: An id is there already, or the shapes differ.
        """
        ...

    def remove(self, ids: Ids) -> int:
        """Remove ids, those that are absent left aside; return how many were there."""
        ...

    def search(self, query: Vectors, k: int) -> Match:
        """Find the k nearest of a query of shape (dims,); fewer where the index holds fewer."""
        ...
