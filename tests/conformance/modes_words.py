"""Words of several stores on one database, and how every kind of write changes what they find: rules 16, 21 and 28."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from langgraph.store.base import PutOp, SearchOp

from tests.conformance.mode_oracle import fused, shares
from tests.conformance.modes import MODES, checked, open_by_words, open_in_mode
from tests.conformance.scores import expected_score
from tests.support import Clock, OpenStore, SyncCaller, WordEmbeddings, keys

QUERIES = ["red apples", "boats in Oslo", "user_42", "nowhere"]
Texts = dict[str, list[str]]
Change = Callable[[SyncCaller, Texts], Any]


def start(store: SyncCaller) -> Texts:
    """Put some items under two namespaces; give their indexed texts by key."""
    texts = {
        "0": ["red apples in Oslo"],
        "1": ["red boats", "a lake"],
        "2": ["green apples"],
        "3": ["user_42 in Oslo", "red"],
        "4": ["rain"],
    }
    for key, own in texts.items():
        store.put(("n", str(int(key) % 2)), key, {"text": own}, ["text[*]"])
    return texts


def put(key: str, *texts: str, **options: Any) -> Change:
    """Name a put; `index` is what it indexes, `ttl` how long it lives."""

    def change(store: SyncCaller, expected: Texts) -> None:
        store.put(("n", str(int(key) % 2)), key, {"text": list(texts)}, **{"index": ["text[*]"]} | options)
        expected.pop(key, None)
        if options.get("index") is None:
            expected[key] = list(texts)

    return change


def delete(key: str) -> Change:
    """Name a delete."""

    def change(store: SyncCaller, expected: Texts) -> None:
        store.delete(("n", str(int(key) % 2)), key)
        expected.pop(key)

    return change


def batch(store: SyncCaller, expected: Texts) -> None:
    """Put, replace and delete at once."""
    store.batch(
        [
            PutOp(("n", "0"), "0", None),
            PutOp(("n", "1"), "1", {"text": ["green boats in Oslo"]}, ["text[*]"]),
            PutOp(("n", "1"), "7", {"text": ["apples apples", "red"]}, ["text[*]"]),
        ]
    )
    del expected["0"]
    expected |= {"1": ["green boats in Oslo"], "7": ["apples apples", "red"]}


CHANGES: dict[str, Change] = {
    "a new item": put("5", "apples from Oslo"),
    "other words": put("0", "green boats"),
    "the same words": put("0", "red apples in Oslo"),
    "fewer texts": put("1", "red boats"),
    "more texts": put("2", "green apples", "boats", "red"),
    "no text": put("3"),
    "index=False": put("0", "red apples in Oslo", index=False),
    "a new item that is not indexed": put("6", "red apples", index=False),
    "a path that gives nothing": put("0", "red apples in Oslo", index=["title"]),
    "a delete": delete("0"),
    "a batch": batch,
}


def agree(store: SyncCaller, texts: Texts, embeddings: WordEmbeddings) -> None:
    """Compare what a store ranks by words and by both with the oracle, everywhere and in each namespace."""
    for prefix in ((), ("n",), ("n", "0"), ("n", "1")):
        scope = [(key, text) for key, own in texts.items() for text in own if prefix[1:] in ((), (str(int(key) % 2),))]
        for query in QUERIES:
            held = shares(query, [text for _, text in scope])
            vector = np.array(embeddings.embed_query(query))
            lexical: dict[str, float] = {}
            hybrid: dict[str, float] = {}
            for (key, text), share in zip(scope, held, strict=True):
                lexical[key] = max(lexical.get(key, 0.0), share)
                cosine = expected_score("cosine", np.array(embeddings.embed_query(text)), vector)
                hybrid[key] = max(hybrid.get(key, 0.0), fused(cosine, share))
            found = checked(store.search(prefix, query=query, mode="lexical", limit=50))
            assert found == pytest.approx({key: share for key, share in lexical.items() if share}, abs=1e-6)
            found = checked(store.search(prefix, query=query, mode="hybrid", limit=50))
            assert found == pytest.approx(hybrid, abs=1e-6)


class SharedModesConformance:
    """What one store writes changes what all find by words, and how rare each word is, at their next search."""

    @pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
    def test_a_write_changes_what_every_store_finds(
        self, open_store: OpenStore, embeddings: WordEmbeddings, change: Change
    ) -> None:
        """For the store that wrote, one that had searched before, and one that had not."""
        first, second = (open_in_mode(open_store, embeddings, None) for _ in range(2))
        texts = start(first)
        agree(first, texts, embeddings)
        agree(second, texts, embeddings)
        change(first, texts)
        for store in (second, first, open_in_mode(open_store, embeddings, None)):
            agree(store, texts, embeddings)
        put("8", "red apples")(second, texts)
        for store in (first, second):
            agree(store, texts, embeddings)
        assert first.check().problems == ()

    def test_what_expired_is_not_found_by_its_words(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """By either store, at once; with the sweep of one it leaves the statistics of both."""
        first, second = (open_in_mode(open_store, embeddings, None) for _ in range(2))
        texts = start(first)
        put("6", "red boats for user_42", ttl=5)(first, texts)
        for store in (first, second):
            found = store.search((), query="user_42", mode="lexical", refresh_ttl=False)
            assert sorted(keys(found)) == ["3", "6"]
        clock.pass_minutes(6)
        for store in (first, second):
            for mode in MODES:
                assert "6" not in keys(store.search((), query="user_42", mode=mode, limit=50))
                page = store.search((), query="red boats for user_42", mode=mode, limit=1)
                assert len(page) == 1
        assert second.sweep() == 1
        del texts["6"]
        for store in (first, second):
            agree(store, texts, embeddings)

    def test_a_batch_searches_the_words_before_it(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """Its own puts and deletes are neither found nor counted, by whichever mode."""
        first, second = (open_in_mode(open_store, embeddings, "lexical") for _ in range(2))
        texts = start(first)
        before = {query: first.search((), query=query, limit=50) for query in QUERIES}
        for query in QUERIES:
            found, _, _ = second.batch(
                [
                    SearchOp((), query=query, limit=50),
                    PutOp(("n", "0"), "8", {"text": [query]}, ["text[*]"]),
                    PutOp(("n", "0"), "8", None),
                ]
            )
            assert found == before[query]
        agree(first, texts, embeddings)

    def test_stores_for_words_share_too(self, open_store: OpenStore) -> None:
        """Without any model: the second store on the database needs none either."""
        first, second = open_by_words(open_store), open_by_words(open_store)
        for number in range(40):
            writer, reader = (first, second) if number % 2 else (second, first)
            writer.put(("a",), f"k{number % 9}", {"text": f"word{number} of many"})
            assert keys(reader.search((), query=f"word{number}")) == [f"k{number % 9}"]
            texts = [f"word{n} of many" for n in range(max(0, number - 8), number + 1)]
            held = dict(
                zip(
                    (f"k{n % 9}" for n in range(max(0, number - 8), number + 1)),
                    shares(f"word{number} many", texts),
                    strict=True,
                )
            )
            assert checked(reader.search((), query=f"word{number} many")) == pytest.approx(held, abs=1e-6)
