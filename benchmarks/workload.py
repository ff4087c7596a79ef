"""What the stores are measured on: users, their memories and the queries.

Texts are made from a seed, and the same sizes and seed give the same everywhere, unless real ones are given
(`benchmarks.corpus`). Words follow a Zipf-like law and a text's vector is the weighted sum of its words' vectors, so
that texts that share rare words are near.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from langchain_core.embeddings import Embeddings

Floats: TypeAlias = npt.NDArray[np.float32]
Namespace: TypeAlias = tuple[str, ...]

KINDS: Final = ("fact", "preference", "event", "task", "person", "place", "habit", "opinion")
"""What a filter asks for; each kind is about an eighth of a user's memories."""
LOTS: Final = 1_000
"""What a rare filter asks for: each `lot` is about one memory in so many."""
_VOCABULARY: Final = 20_000
_SHIFT: Final = 2.7
"""Zipf-Mandelbrot: the word of rank r has the weight 1 / (r + 2.7), close to English prose."""
_NOISE: Final = 0.5
"""How far a text's vector lies off the sum of its words, in lengths of one middling word."""
_ONSETS: Final = ("b", "d", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "st", "tr", "pl", "ch")
_SYLLABLES: Final = [onset + vowel for onset in _ONSETS for vowel in "aeiou"]
_CHUNK: Final = 256
"""Texts whose vectors are summed at once: about 9 MB of words' vectors at 384 dims."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is made."""

    users: int
    memories: int
    """Memories of each user."""
    repeats: int
    dims: int
    seed: int

    @property
    def items(self) -> int:
        """Memories of all users."""
        return self.users * self.memories


@dataclass(frozen=True, slots=True)
class Memory:
    """One item as it is put."""

    user: int
    key: str
    value: dict[str, Any]

    @property
    def namespace(self) -> Namespace:
        """Where it belongs."""
        return to_namespace(self.user)


@dataclass(frozen=True, slots=True)
class Query:
    """Words taken out of a memory that fills the stores."""

    text: str
    source: Memory


def to_namespace(user: int) -> Namespace:
    """Give a user's namespace."""
    return ("memories", f"user-{user:06d}")


class Language:
    """A vocabulary with a vector for each word, and texts drawn from it.

    Args:
        dims: The length of a vector.
        generator: Where chance comes from.
    """

    def __init__(self, dims: int, generator: np.random.Generator) -> None:
        self._generator = generator
        self._words = _make_words(generator)
        weights = 1.0 / (np.arange(_VOCABULARY) + 1 + _SHIFT)
        self._shares = weights / weights.sum()
        rarity = -np.log(self._shares)
        vectors = generator.standard_normal((_VOCABULARY, dims), np.float32)
        self._vectors = vectors * (rarity / rarity.mean()).astype(np.float32)[:, None]

    def draw(self, count: int, shortest: int, longest: int) -> list[npt.NDArray[np.int64]]:
        """Draw the words of some texts, lengths being equally likely."""
        lengths = self._generator.integers(shortest, longest + 1, count)
        words = self._generator.choice(_VOCABULARY, int(lengths.sum()), p=self._shares)
        return np.split(words, np.cumsum(lengths)[:-1])

    def to_text(self, words: npt.NDArray[np.int64]) -> str:
        """Spell a text."""
        return " ".join(map(self._words.__getitem__, words.tolist())).capitalize() + "."

    def to_vectors(self, texts: Sequence[npt.NDArray[np.int64]]) -> Floats:
        """Sum the vectors of texts' words: float32 of shape (texts, dims), unit length."""
        dims = self._vectors.shape[1]
        vectors = np.empty((len(texts), dims), np.float32)
        for start in range(0, len(texts), _CHUNK):
            part = texts[start : start + _CHUNK]
            starts = np.cumsum([0, *(len(words) for words in part[:-1])])
            sums = np.add.reduceat(self._vectors[np.concatenate(part)], starts)
            sums += _NOISE * self._generator.standard_normal(sums.shape, np.float32)
            vectors[start : start + len(part)] = sums / np.linalg.norm(sums, axis=1, keepdims=True)
        return vectors


class Lookup(Embeddings):
    """An embedding that looks its vectors up, and counts the time this takes so that it can be taken off.

    Vectors are handed out as lists of floats, as LangChain's `Embeddings` promise.

    Args:
        vectors: Float32 of shape (texts, dims).
        rows: The row of each text.
    """

    def __init__(self, vectors: Floats, rows: dict[str, int]) -> None:
        self.seconds = 0.0
        """Spent here so far."""
        self._vectors = vectors
        self._rows = rows

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Look texts up."""
        start = time.perf_counter()
        found: list[list[float]] = [self._vectors[self._rows[text]].tolist() for text in texts]
        self.seconds += time.perf_counter() - start
        return found

    def embed_query(self, text: str) -> list[float]:
        """Look a query up."""
        return self.embed_documents([text])[0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Look texts up without asking another thread, which would take longer than this does."""
        return self.embed_documents(texts)

    async def aembed_query(self, text: str) -> list[float]:
        """Look a query up."""
        return self.embed_query(text)

    @property
    def vectors(self) -> Floats:
        """All vectors: float32 of shape (texts, dims), unit length."""
        return self._vectors

    def to_row(self, text: str) -> int:
        """Give the row of a text's vector."""
        return self._rows[text]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts, queries that take their words from some of them, and the vectors of all."""

    texts: Sequence[str]
    """Of the memories in writing order, then of the spares."""
    queries: Sequence[str]
    """No two alike."""
    sources: Sequence[int]
    """The number of the text that each query is taken from."""
    lookup: Lookup


def make_corpus(sizes: Sizes, queries: int, spares: int) -> Corpus:
    """Make a corpus up.

    Args:
        sizes: How much is made.
        queries: How many queries.
        spares: How many texts beyond those that fill the stores.
    """
    generator = np.random.default_rng([sizes.seed, 1])
    language = Language(sizes.dims, generator)
    drawn = language.draw(sizes.items + spares, 5, 40)
    asked = _take_words(drawn[: sizes.items], queries, generator)
    spelled = [*drawn, *(words for _, words in asked)]
    texts = [language.to_text(words) for words in spelled]
    rows: dict[str, int] = {}
    for row, text in enumerate(texts):
        rows.setdefault(text, row)
    vectors = language.to_vectors(spelled)
    return Corpus(texts[: len(drawn)], texts[len(drawn) :], [at for at, _ in asked], Lookup(vectors, rows))


class Workload:
    """Memories in the order they are written, more of them to put later, and queries that are each used once.

    Users take turns in writing, so that one user's rows lie apart from each other.

    Args:
        sizes: How many memories of how many users.
        corpus: What they say, and what is asked.
    """

    def __init__(self, sizes: Sizes, corpus: Corpus) -> None:
        self.sizes = sizes
        self.lookup = corpus.lookup
        self._corpus = corpus
        self._generator = np.random.default_rng(sizes.seed)
        self._asked = 0
        self.memories = [self._to_memory(at) for at in range(sizes.items)]
        self._spares = iter(range(sizes.items, len(corpus.texts)))

    def next_query(self) -> Query:
        """Give a query that no store has been asked."""
        self._asked += 1
        at = self._asked - 1
        return Query(self._corpus.queries[at], self.memories[self._corpus.sources[at]])

    def next_spare(self) -> Memory:
        """Give a memory that no store has, of any user."""
        return self._to_memory(next(self._spares))

    def next_change(self) -> Memory:
        """Give a memory that is there with another value."""
        new, old = self.next_spare(), self.pick()
        return Memory(old.user, old.key, new.value)

    def pick(self) -> Memory:
        """Pick a memory that is there."""
        return self.memories[int(self._generator.integers(len(self.memories)))]

    def pick_users(self, count: int) -> list[int]:
        """Pick different users; fewer where there are fewer."""
        users: list[int] = self._generator.permutation(self.sizes.users)[:count].tolist()
        return users

    def pick_memories(self, count: int) -> list[Memory]:
        """Pick different memories of those that fill the stores."""
        return [self.memories[at] for at in self._generator.permutation(len(self.memories))[:count].tolist()]

    def batches(self, size: int) -> Iterator[list[Memory]]:
        """Cut the memories that fill the stores, in writing order."""
        for start in range(0, len(self.memories), size):
            yield self.memories[start : start + size]

    def _to_memory(self, at: int) -> Memory:
        key = str(uuid.UUID(bytes=self._generator.bytes(16), version=4))
        kind = KINDS[int(self._generator.integers(len(KINDS)))]
        lot = int(self._generator.integers(LOTS))
        value = {"text": self._corpus.texts[at], "kind": kind, "lot": lot, "weight": int(self._generator.integers(10))}
        return Memory(at % self.sizes.users, key, value)


def _take_words(
    texts: Sequence[npt.NDArray[np.int64]], count: int, generator: np.random.Generator
) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Take three to eight words out of as many texts, no two queries alike; each comes with its text's number."""
    seen: dict[tuple[int, ...], tuple[int, npt.NDArray[np.int64]]] = {}
    while len(seen) < count:
        at = int(generator.integers(len(texts)))
        words = generator.choice(texts[at], min(len(texts[at]), int(generator.integers(3, 9))), replace=False)
        seen.setdefault(tuple(words.tolist()), (at, words))
    return list(seen.values())


def _make_words(generator: np.random.Generator) -> list[str]:
    """Make up words, the frequent ones short."""
    words: dict[str, None] = dict.fromkeys(_SYLLABLES)
    while len(words) < _VOCABULARY:
        length = 2 + len(words) * 3 // _VOCABULARY
        words["".join(_SYLLABLES[at] for at in generator.integers(len(_SYLLABLES), size=length))] = None
    return list(words)[:_VOCABULARY]
