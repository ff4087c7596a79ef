"""Ranking by words, and by both, on SQLite: several stores on a file, many namespaces and many texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from langgraph.store.base import PutOp

from memstore import MemStore
from tests.conformance.mode_oracle import fused, shares
from tests.conformance.modes import checked, open_in_mode
from tests.conformance.modes_words import SharedModesConformance
from tests.support import OpenStore, WordEmbeddings

COMMON = ["apples", "boats", "rain", "Oslo", "the", "red"]


def text_of(number: int) -> str:
    """Make a text of frequent words, a rarer one and one of its own."""
    return f"{COMMON[number % 6]} {COMMON[number % 5]} topic{number % 97} own{number}"


class TestSharedModes(SharedModesConformance):
    """Several stores on one file."""


def test_statistics_are_those_of_all_namespaces(open_store: OpenStore, embeddings: WordEmbeddings) -> None:
    """However many a scope has, and of those below a prefix alone."""
    store = open_in_mode(open_store, embeddings, None)
    names = [(("few", "many")[number % 3 > 0], f"n{number % 150}") for number in range(450)]
    store.batch(PutOp(name, f"k{number}", {"text": text_of(number)}) for number, name in enumerate(names))
    for prefix in ((), ("many",), ("few",), ("few", "n3")):
        numbers = [number for number, name in enumerate(names) if name[: len(prefix)] == prefix]
        for query in ("red apples own12", "topic3 own3 in Oslo", "own450"):
            held = dict(zip((f"k{n}" for n in numbers), shares(query, [text_of(n) for n in numbers]), strict=True))
            found = checked(store.search(prefix, query=query, mode="lexical", limit=500))
            assert found == pytest.approx({key: share for key, share in held.items() if share}, abs=1e-6)
            meant = {hit.key: hit.score or 0.0 for hit in store.search(prefix, query=query, mode="semantic", limit=500)}
            found = checked(store.search(prefix, query=query, limit=500))
            assert found == pytest.approx({key: fused(meant[key], held[key]) for key in held}, abs=1e-6)


@pytest.mark.parametrize("exact_below", [10**9, 0])
def test_statistics_are_those_of_more_texts_than_are_scored_at_once(path: Path, exact_below: int) -> None:
    """Groups of a large scope are weighed together: a word has one rarity, wherever the text stands that holds it."""
    count = 24_000
    texts = [text_of(number) for number in range(count)]
    with MemStore.open(path, index={"mode": "lexical", "fields": ["text"], "exact_below": exact_below}) as store:
        store.batch(PutOp((f"n{number % 8}",), f"k{number}", {"text": text}) for number, text in enumerate(texts))
        for query in ("own7 own23999 rain", "topic5 apples", "own20000 topic20 in the rain"):
            expected = {f"k{number}": share for number, share in enumerate(shares(query, texts)) if share}
            found = checked(store.search((), query=query, limit=count))
            assert found == pytest.approx(expected, abs=1e-6)
