"""Vectors of made-up texts, and an approximate index beside an exact one."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from memstore.indexes import Ids, Metric, VectorIndex, Vectors
from memstore.indexes.faiss import FaissIndex
from memstore.indexes.flat import FlatIndex

METRICS: tuple[Metric, ...] = ("cosine", "l2", "inner_product")
every_metric = pytest.mark.parametrize("metric", METRICS)
WORDS = 2_000


@cache
def word_vectors(dims: int) -> Vectors:
    """Give each word its vector."""
    return np.random.default_rng(99).standard_normal((WORDS, dims)).astype(np.float32)


def text_vectors(count: int, seed: int, dims: int = 384) -> Vectors:
    """Make the vectors of texts of eight words each, some words far more frequent than others."""
    chance = np.random.default_rng(seed)
    shares = 1 / np.arange(1, WORDS + 1)
    words = chance.choice(WORDS, (count, 8), p=shares / shares.sum())
    summed: Vectors = word_vectors(dims)[words].sum(1, dtype=np.float32)
    return summed


def pair(metric: Metric, vectors: Vectors, first: int = 1) -> tuple[FaissIndex, FlatIndex]:
    """Make an index, trained, and the exact one beside it."""
    near, flat = FaissIndex(vectors.shape[1], metric), FlatIndex(vectors.shape[1], metric)
    for index in (near, flat):
        index.add(np.arange(first, first + len(vectors)), vectors)
    near.train()
    return near, flat


def answers(index: VectorIndex, queries: Vectors, k: int) -> list[tuple[list[int], list[float]]]:
    """Search several queries."""
    matches = [index.search(query, k) for query in queries]
    return [(match.ids.tolist(), match.scores.tolist()) for match in matches]


def recall(near: VectorIndex, flat: VectorIndex, queries: Vectors, k: int) -> float:
    """Give the share of the k nearest that are found; equal scores count alike."""
    found = 0.0
    for query in queries:
        true = flat.search(query, k).scores
        found += float((near.search(query, k).scores >= true[-1]).mean())
    return found / len(queries)


def ids_of(index: FaissIndex) -> Ids:
    """Give all ids of an index, by searching for more than there are."""
    return np.sort(index.search(np.ones(index.dims, np.float32), 10**6).ids)
