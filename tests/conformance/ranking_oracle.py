"""The oracle of what neighbours lend, fields count and age takes: items in writing order, and plain Python."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pytest
from langgraph.store.base import PutOp, SearchItem

from tests.conformance.mode_oracle import fused, share_term, shares
from tests.conformance.modes import checked
from tests.conformance.scores import expected_score
from tests.support import Clock, OpenStore, SyncCaller, WordEmbeddings

DAY: Final = 1_440
"""Minutes."""
_MICROSECONDS: Final = 60_000_000 * DAY
WEIGHTS: Final = {"title": 0.5, "parts[*]": 0.8}
WORDS: Final = ["apple", "boat", "cloud", "dog", "eagle", "field", "grape", "hill", "island", "jar", "moon", "zebra"]
RANKED_WHOLE: Final = ("context", "recency", "weights")
"""Options with which no index proposes: every rank is exact."""
QUERIES: Final = ["apple boats", "the moon over the hill", "zebra", "nowhere to be found"]
PREFIXES: Final[list[tuple[str, ...]]] = [(), ("root",), ("root", "n1"), ("other",), ("missing",)]


@dataclass(frozen=True)
class Put:
    """An item as it was put last."""

    namespace: tuple[str, ...]
    texts: tuple[tuple[str, str], ...]
    """(path, text)."""
    words: str
    time: int


@dataclass
class Shadow:
    """A store beside which a dict of the same items is kept, in writing order."""

    store: SyncCaller
    clock: Clock
    embeddings: WordEmbeddings
    items: dict[str, Put] = field(default_factory=dict)
    worded: tuple[str, ...] = ()
    """Keys of a value whose words count with every text."""

    def put(self, namespace: tuple[str, ...], key: str, value: dict[str, Any], **options: Any) -> None:
        """Put an item; with `index=False` the dict keeps nothing of it."""
        self.store.put(namespace, key, value, **options)
        self._note(namespace, key, value, **options)

    def batch(self, ops: Sequence[PutOp]) -> None:
        """Put and delete items."""
        self.store.batch(ops)
        for op in ops:
            self._note(op.namespace, op.key, op.value, index=op.index)

    def delete(self, namespace: tuple[str, ...], key: str) -> None:
        """Delete an item."""
        self.store.delete(namespace, key)
        del self.items[key]

    def _note(self, namespace: tuple[str, ...], key: str, value: Mapping[str, Any] | None, **options: Any) -> None:
        self.items.pop(key, None)
        if value is None or options.get("index") is False:
            return
        texts = [("title", value["title"])] if "title" in value else []
        texts += [("parts[*]", part) for part in value.get("parts", ())]
        words = "\n".join(str(value[name]) for name in self.worded if name in value)
        self.items[key] = Put(namespace, tuple(texts), words, self.clock.microseconds)

    def expect(
        self,
        prefix: tuple[str, ...],
        query: str,
        mode: str = "hybrid",
        *,
        context: int = 0,
        recency: float | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> dict[str, float]:
        """Give the score of every item below a prefix that is found."""
        scope = {key: item for key, item in self.items.items() if item.namespace[: len(prefix)] == prefix}
        whole = [f"{text}\n{item.words}" for item in scope.values() for _, text in item.texts]
        held = iter(shares(query, whole))
        own: dict[str, float] = {}
        for key, item in scope.items():
            scores = [
                (weights or {}).get(path, 1.0) * self._score(text, query, share, mode)
                for (path, text), share in zip(item.texts, held, strict=False)
            ]
            own[key] = max(scores)
        lent = {key: self._lent(key, own, scope, context) for key in own}
        if mode == "lexical":
            lent = {key: score for key, score in lent.items() if self._shares(scope[key], query)}
        return {key: score * self._kept(scope[key], recency) for key, score in lent.items()}

    def _score(self, text: str, query: str, share: float, mode: str) -> float:
        if mode == "lexical":
            return share
        vectors = [np.array(self.embeddings._vector(given)) for given in (text, query)]
        return fused(expected_score("cosine", *vectors), share)

    def _lent(self, key: str, own: Mapping[str, float], scope: Mapping[str, Put], context: int) -> float:
        near = [other for other in own if scope[other].namespace == scope[key].namespace]
        at, total, most = near.index(key), own[key], 1.0
        for step in range(1, context + 1):
            most += 2 * 0.5**step
            for other in (at - step, at + step):
                total += 0.5**step * own[near[other]] if 0 <= other < len(near) else 0.0
        return total / most

    def _shares(self, item: Put, query: str) -> bool:
        return share_term(query, [f"{text}\n{item.words}" for _, text in item.texts])

    def _kept(self, item: Put, recency: float | None) -> float:
        if recency is None:
            return 1.0
        step = int(recency * _MICROSECONDS / 64)
        age = max(0, self.clock.microseconds // step - item.time // step) / 64
        return 0.7 + 0.3 * math.pow(0.5, age)

    def agree(self, candidates: int, asked: Mapping[str, Any] | None = None, **known: Any) -> None:
        """Compare the store with the oracle for every query, scope and mode of words.

        Args:
            candidates: How many first ranks an index proposes; 0 where all are exact.
            asked: What each search is asked for.
            known: What the oracle is to reckon with beside it: what the store does by itself.
        """
        options = dict(asked or {})
        reckoned = known | options
        for prefix in PREFIXES:
            for query in QUERIES:
                for mode in ("hybrid", "lexical"):
                    found = checked(self.store.search(prefix, query=query, mode=mode, limit=500, **options))
                    expected = self.expect(prefix, query, mode, **reckoned)
                    assert found.keys() == expected.keys()
                    exact = mode == "lexical" or any(reckoned.get(name) for name in RANKED_WHOLE)
                    capped = 0 if exact or not candidates else cap(expected, found)
                    assert found == pytest.approx(expected, abs=1e-6)
                    assert capped < max(1, candidates)


def ranked(hits: Iterable[SearchItem]) -> list[tuple[tuple[str, ...], str, float | None]]:
    """Give what is to be equal of two answers: items are equal whatever they score."""
    return [(hit.namespace, hit.key, hit.score) for hit in hits]


def cap(expected: dict[str, float], found: Mapping[str, float]) -> int:
    """Cap exact scores as pages do that join: what follows proposed ranks scores no better than the last of them.

    Returns:
        How many should have been among those.
    """
    count, before = 0, 1.0
    for key, score in found.items():
        if expected[key] > score == before:
            expected[key] = score
            count += 1
        before = score
    return count


def open_shadow(
    open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, items: dict[str, Put] | None = None, **index: Any
) -> Shadow:
    """Open a store that indexes titles and parts, with its dict: that of another store of this database, if any."""
    fields = ["title", "parts[*]"]
    store = open_store(index={"embed": embeddings, "fields": fields, **index})
    return Shadow(store, clock, embeddings, {} if items is None else items, tuple(index.get("words") or ()))


def value_of(number: int) -> dict[str, Any]:
    """Make the value of an item: a short title and up to three parts, one of them long now and then."""
    random = np.random.default_rng(number)
    sizes = random.choice([1, 3, 6, 90], int(random.integers(0, 4)), p=[0.2, 0.4, 0.3, 0.1]).tolist()
    own = [f"own{number}w{extra}" for extra in range(40)]
    parts = [" ".join(random.choice([*WORDS, *own] if size > 9 else WORDS, size)) for size in sizes]
    return {"title": " ".join(random.choice(WORDS, 2)), "parts": parts, "n": number % 4}


def home_of(number: int) -> tuple[str, ...]:
    """Say in which namespace an item is."""
    return ("root", f"n{number % 3}", "deep")[: 2 + number % 2] if number % 5 else ("other",)


def fill(shadow: Shadow, count: int = 50) -> Shadow:
    """Put items over a month, in batches, some of them not indexed; give the store back."""
    for first in range(0, count, 5):
        shadow.batch(
            [
                PutOp(home_of(number), f"k{number}", value_of(number), index=False if number % 11 == 7 else None)
                for number in range(first, min(first + 5, count))
            ]
        )
        shadow.clock.pass_minutes(3 * DAY)
    return shadow
