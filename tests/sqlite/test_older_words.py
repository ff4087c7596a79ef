"""Databases whose words were made by another analyser, or whose memstore knew no words: who opens them gets what."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import PutOp

from memstore import InvalidArgument, MemStore
from tests.conformance.mode_oracle import shares
from tests.support import WordEmbeddings

TEXTS = ["green tea", "two dogs in the park", "black tea", "rain"]
INDEX: dict[str, Any] = {"embed": WordEmbeddings(8), "fields": ["text"]}
BOTH_WAYS: list[dict[str, Any]] = [{}, {"exact_below": 0}]
"""Narrow and wide."""


def put_texts(store: MemStore) -> None:
    """Put all texts."""
    store.batch([PutOp(("a",), str(number), {"text": text}) for number, text in enumerate(TEXTS)])


def by_words(store: MemStore, query: str) -> dict[str, Any]:
    """Rank by words; give the scores by key."""
    return {hit.key: hit.score for hit in store.search((), query=query, mode="lexical")}


@pytest.fixture
def older(path: Path, raw: sqlite3.Connection) -> Path:
    """Make the database of a memstore that knew no words: without the column, and with settings that tell of none."""
    with MemStore.open(path, index=INDEX | {"mode": "semantic"}) as store:
        put_texts(store)
    raw.execute("ALTER TABLE memstore_items DROP COLUMN terms")
    raw.execute("ALTER TABLE memstore_clock DROP COLUMN marks")
    raw.execute("DELETE FROM memstore_migrations WHERE number > 1")
    for key in ("dense", "mode", "language", "analyser", "analysed"):
        raw.execute("UPDATE memstore_index SET settings = json_remove(settings, ?)", (f"$.{key}",))
    return path


@pytest.mark.parametrize("extra", BOTH_WAYS, ids=repr)
def test_an_older_database_gets_its_words(older: Path, extra: dict[str, Any]) -> None:
    """Its values tell them, and nothing is embedded again."""
    words = WordEmbeddings(8)
    with MemStore.open(older, index=INDEX | extra | {"embed": words}) as store:
        for query in ("tea", "two teas"):
            held = {str(number): share for number, share in enumerate(shares(query, TEXTS)) if share}
            assert by_words(store, query) == pytest.approx(held, abs=1e-8)
        assert store.check().problems == ()
        assert words.documents == []


def test_an_older_database_stays_as_it_is_for_a_store_by_meaning(older: Path, raw: sqlite3.Connection) -> None:
    """Nothing is taken that nobody asks for, with settings and without."""
    for index in (None, INDEX | {"mode": "semantic"}):
        with MemStore.open(older, index=index) as store:
            assert store.check().problems == ()
            with pytest.raises(InvalidArgument, match="words"):
                store.search((), query="tea", mode="lexical")
    with MemStore.open(older, index=INDEX | {"mode": "semantic"}) as store:
        assert [hit.score for hit in store.search((), query="green tea", limit=1)] == [1.0]
    assert raw.execute("SELECT count(*) FROM memstore_items WHERE terms IS NOT NULL").fetchone() == (0,)


@pytest.mark.parametrize("plainly", [False, True])
@pytest.mark.parametrize("extra", BOTH_WAYS, ids=repr)
def test_words_of_another_analyser_are_taken_anew(
    path: Path, raw: sqlite3.Connection, extra: dict[str, Any], *, plainly: bool
) -> None:
    """Whoever opens the database next, with settings or without, finds all words as they should be."""
    with MemStore.open(path, index=INDEX | extra) as store:
        put_texts(store)
        right = by_words(store, "black tea")
    raw.execute("UPDATE memstore_items SET terms = zeroblob(length(terms))")
    raw.execute("UPDATE memstore_index SET settings = json_set(settings, '$.analyser', '0/english')")
    with MemStore.open(path, index=None if plainly else INDEX | extra) as store:
        assert by_words(store, "black tea") == right
        assert store.check().problems == ()
    with MemStore.open(path, index=INDEX | {"mode": "semantic"}) as store:
        assert by_words(store, "black tea") == right
