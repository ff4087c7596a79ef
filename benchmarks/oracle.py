"""The right answers, by brute force in NumPy: float64 cosines of a query with every memory of a user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from langgraph.store.base import SearchItem

from benchmarks.workload import Memory, Workload

_ROOM: Final = 2e-6
"""Cosines that differ by less may stand in either order: float32 sums are no better."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A query to one store, and the keys of what it answered, page by page."""

    store: str
    user: int
    query: str
    pages: list[list[str]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an answer compares with the right one of the same length."""

    right: float
    """Share of the answer that was due which came."""
    gaps: int
    """Items due that stand on no page."""
    duplicates: int
    """Items that stand on a page again."""


def to_keys(items: Sequence[SearchItem]) -> list[str]:
    """Name an answer's items."""
    return [item.key for item in items]


class Oracle:
    """Answers over the memories that filled the stores.

    Args:
        workload: What the stores hold.
    """

    def __init__(self, workload: Workload) -> None:
        self._lookup = workload.lookup
        self._memories = workload.by_user()

    def judge(self, asked: Asked, due: int) -> Verdict:
        """Compare an answer with the `due` best memories."""
        scores = self._score(asked.query, self._memories[asked.user])
        due = min(due, len(scores))
        last = sorted(scores.values(), reverse=True)[due - 1]
        given = [key for page in asked.pages for key in page]
        right = min(due, sum(scores[key] >= last - _ROOM for key in set(given)))
        return Verdict(right / due, due - right, len(given) - len(set(given)))

    def _score(self, query: str, memories: Sequence[Memory]) -> dict[str, float]:
        vectors = np.stack([self._lookup.to_vector(memory.value["text"]) for memory in memories]).astype(np.float64)
        asked = self._lookup.to_vector(query).astype(np.float64)
        cosines = vectors @ asked / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(asked))
        return dict(zip((memory.key for memory in memories), cosines.tolist(), strict=True))
