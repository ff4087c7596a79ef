"""Stores whose every search is wide: small databases, searched through the index, beside stores that rank exactly."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from langgraph.store.base import PutOp

from memstore import MemStore
from memstore.config import Mode
from tests.support import WordEmbeddings

DIMS = 32
CANDIDATES = 100
QUERIES = ["w1 w7 w30", "w90", "w5 w6 w40 w41", "w140 w2", "elsewhere"]
MODES: tuple[Mode, ...] = ("hybrid", "semantic", "lexical")
Answers: TypeAlias = list[list[tuple[str, float | None]]]


class QuickEmbeddings(WordEmbeddings):
    """The small embedding, which remembers the vector of each word."""

    def __init__(self, dims: int = DIMS, salt: str = "") -> None:
        super().__init__(dims)
        self._salt = salt
        self._known: dict[str, Any] = {}

    def _vector(self, text: str) -> list[float]:
        total = np.zeros(self.dims)
        for word in re.findall(r"\w+", text.lower()):
            if word not in self._known:
                self._known[word] = np.array(super()._vector(self._salt + word))
            total += self._known[word]
        vector: list[float] = total.tolist()
        return vector


EMBEDDINGS = QuickEmbeddings()


def wide_index(**options: Any) -> dict[str, Any]:
    """Give index settings under which every scope is wide."""
    return {"embed": EMBEDDINGS, "fields": ["text"], "exact_below": 0, "candidates": CANDIDATES} | options


def exact_index(**options: Any) -> dict[str, Any]:
    """Give index settings under which no scope is."""
    return wide_index(exact_below=10**9) | options


@contextmanager
def opened(path: Path, *, exact: bool = False, **options: Any) -> Iterator[MemStore]:
    """Open a store whose searches are wide, or exact."""
    with MemStore.open(path, index=exact_index(**options) if exact else wide_index(**options)) as store:
        yield store


def text_of(number: int, seed: int = 0) -> str:
    """Make the text of an item: seven words, some far more frequent than others."""
    chance = np.random.default_rng([number, seed])
    words = np.minimum(chance.zipf(1.3, 7), 150).tolist()
    return " ".join(f"w{word}" for word in words)


def puts(numbers: Iterable[int], seed: int = 0) -> list[PutOp]:
    """Make the ops that put some items, in three namespaces."""
    return [
        PutOp(("wide", str(number % 3)), f"k{number}", {"text": text_of(number, seed), "number": number})
        for number in numbers
    ]


def deletes(numbers: Iterable[int]) -> list[PutOp]:
    """Make the ops that delete some items."""
    return [PutOp(("wide", str(number % 3)), f"k{number}", None) for number in numbers]


def fill(path: Path, count: int = 600, seed: int = 0, **options: Any) -> None:
    """Make a database of so many items, without searching it."""
    with opened(path, **options) as store:
        store.batch(puts(range(count), seed))


def ask(store: MemStore, limit: int = 5) -> Answers:
    """Search in every mode, everywhere and in one namespace, with and without a filter."""
    answers: Answers = []
    for mode in MODES:
        for query in QUERIES:
            for prefix, filtered in (((), None), (("wide", "1"), None), (("wide",), {"number": {"$gte": 100}})):
                found = store.search(prefix, query=query, filter=filtered, limit=limit, mode=mode)
                answers.append([(item.key, item.score) for item in found])
    return answers


def ask_exactly(path: Path, limit: int = 5) -> Answers:
    """Ask the same of a store that ranks every scope exactly."""
    with opened(path, exact=True) as store:
        return ask(store, limit)


def index_path(path: Path) -> Path:
    """Name the index file of a database."""
    return path.with_name(path.name + "-index")


def unfinished(path: Path) -> list[str]:
    """List what looks like an index file that was not finished."""
    return sorted(entry.name for entry in path.parent.iterdir() if entry.name.endswith(".unfinished"))
