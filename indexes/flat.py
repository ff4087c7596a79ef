"""Exact search in NumPy: the engine of narrow scopes, and the oracle that approximate indexes are measured against.

Equal rows get equal scores, whatever stands around them: `einsum` scores each row alone, where `X @ q` gives equal rows
two to four different scores.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from memstore.indexes import Ids, Match, Metric, Scores, Vectors

_DIGITS: Final = 6
"""Decimals of a cosine: the noise of 384 float32 products is about 1e-7, and a text is to score 1.0 against itself."""
_SMALL: Final = 1e-15
_LARGE: Final = 1e18
"""Norms whose squares, and the sums of those, float32 holds to its full precision."""
_ROUNDING: Final = 5e-7
"""How far the norm of a vector of unit length comes out from 1: 32 bits, thousands of squares."""
_LARGEST: Final = np.finfo(np.float64).max


def prepare(metric: Metric, vectors: Vectors) -> Vectors:
    """Make vectors of shape (n, dims) or (dims,) ready to be scored.

    For `cosine` they get unit length; a zero vector stays as it is, and so does one that has it but for the rounding
    of 32 bits: prepared again, vectors are the same.
    """
    if metric != "cosine":
        return vectors
    with np.errstate(over="ignore", under="ignore"):
        norms = np.sqrt(np.einsum("...j,...j->...", vectors, vectors))
    norms = np.where(np.abs(norms - 1) < _ROUNDING, np.ones_like(norms), norms)
    usual = (norms > _SMALL) & (norms < _LARGE)
    if (norms == 1).all():
        return vectors
    if usual.all():
        unit: Vectors = vectors / norms[..., None]
        return unit
    # squares left float32's range, or a vector is zero; the others are not to be touched by that
    unit = vectors / np.where(usual, norms, 1.0).astype(np.float32)[..., None]
    unit[~usual] = _prepare_widely(vectors[~usual])
    return unit


def _prepare_widely(vectors: Vectors) -> Vectors:
    """Give vectors unit length whatever their size, those of zeros left as they are."""
    wide = vectors.astype(np.float64)
    norms = np.sqrt(np.einsum("...j,...j->...", wide, wide))[..., None]
    unit: Vectors = np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0).astype(np.float32)
    return unit


def score(metric: Metric, vectors: Vectors, query: Vectors) -> Scores:
    """Score prepared vectors of shape (n, dims) against a prepared query of shape (dims,): float64 of shape (n,).

    The cosine, the inner product, or minus the Euclidean distance; always finite.
    """
    scores: Scores
    if metric == "cosine":
        cosines = np.einsum("ij,j->i", vectors, query).astype(np.float64).round(_DIGITS)
        scores = np.minimum(np.maximum(cosines, -1.0), 1.0)
    elif metric == "inner_product":
        products = np.einsum("ij,j->i", vectors, query, dtype=np.float64)
        scores = np.clip(products, -_LARGEST, _LARGEST)
    else:
        gaps = vectors.astype(np.float64) - query
        scores = -np.sqrt(np.einsum("ij,ij->i", gaps, gaps))
    return scores + 0.0  # makes of -0.0 a plain zero


class FlatIndex:
    """A `VectorIndex` that compares a query with every vector."""

    def __init__(self, dims: int, metric: Metric = "cosine") -> None:
        self.dims = dims
        self.metric: Metric = metric
        self._ids: Ids = np.empty(0, np.int64)
        self._vectors: Vectors = np.empty((0, dims), np.float32)

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, ids: Ids, vectors: Vectors) -> None:
        """Add vectors of shape (n, dims) under new ids of shape (n,)."""
        if vectors.shape != (len(ids), self.dims):
            raise ValueError(f"expected vectors of shape ({len(ids)}, {self.dims}), got {vectors.shape}")
        if len(np.unique(ids)) != len(ids) or np.isin(ids, self._ids).any():
            raise ValueError("expected new ids, got one that is there already")
        self._ids = np.concatenate([self._ids, ids])
        self._vectors = np.concatenate([self._vectors, prepare(self.metric, vectors)])

    def remove(self, ids: Ids) -> int:
        """Remove ids, those that are absent left aside; return how many were there."""
        stays = ~np.isin(self._ids, ids)
        removed = len(self._ids) - int(stays.sum())
        self._ids, self._vectors = self._ids[stays], self._vectors[stays]
        return removed

    def search(self, query: Vectors, k: int) -> Match:
        """Find the k nearest of a query of shape (dims,)."""
        if query.shape != (self.dims,):
            raise ValueError(f"expected a query of shape ({self.dims},), got {query.shape}")
        scores = score(self.metric, self._vectors, prepare(self.metric, query))
        best = np.lexsort((-self._ids, -scores))[:k]
        return Match(self._ids[best], scores[best])
