"""Rows that memstore did not write so: calls name the damage, and `check` sees it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.store.base import PutOp

from memstore.errors import DatabaseDamaged
from tests.support import OpenStore, SyncCaller, WordEmbeddings, keys

INDEX: dict[str, Any] = {"embed": WordEmbeddings(8), "fields": ["text"]}
USER = ("users", "ada")
TEXT = "green tea"


@pytest.fixture
def store(open_store: OpenStore) -> SyncCaller:
    """Open a store with two items."""
    store = open_store(index=INDEX)
    store.put(USER, "tea", {"text": TEXT})
    store.put(USER, "dog", {"text": "two dogs"})
    return store


CHANGES = {
    "a short vector": "vectors = substr(vectors, 1, 28)",
    "an odd vector": "vectors = substr(vectors, 1, 27)",
    "no vector": "vectors = NULL",
    "terms cut short": "terms = substr(terms, 1, length(terms) - 4)",
    "odd terms": "terms = substr(terms, 1, 7)",
    "terms of another number of texts": "terms = CAST(x'00000000' || terms AS BLOB)",
    "a count of terms that lies": "terms = CAST(x'ffffffff' || substr(terms, 5) AS BLOB)",
    "no terms": "terms = NULL",
    "half a digest": "digests = substr(digests, 1, 8)",
    "no digest": "digests = NULL",
    "no id": "text_id = NULL",
    "a value that is no JSON": """value = '{"text":"green tea'""",
    "a value that is no object": "value = '5'",
}
CALLS: dict[str, Callable[[SyncCaller], Any]] = {
    "search": lambda store: store.search(USER, query="tea"),
    "filter": lambda store: store.search(USER, filter={"text": TEXT}),
    "get": lambda store: store.get(USER, "tea"),
    "put": lambda store: store.put(USER, "tea", {"text": "black tea"}),
}
MET = [
    ("a short vector", "search"),
    ("an odd vector", "search"),
    ("no vector", "search"),
    ("terms cut short", "search"),
    ("odd terms", "search"),
    ("terms of another number of texts", "search"),
    ("a count of terms that lies", "search"),
    ("half a digest", "search"),
    ("a value that is no JSON", "search"),
    ("a value that is no JSON", "filter"),
    ("a value that is no JSON", "get"),
]


def harm(raw: sqlite3.Connection, change: str) -> None:
    """Change the columns of one item."""
    raw.execute(f"UPDATE memstore_items SET {change} WHERE key = 'tea'")  # noqa: S608  the changes stand above


@pytest.mark.parametrize(("change", "call"), MET)
def test_a_call_that_meets_damage_names_it(store: SyncCaller, raw: sqlite3.Connection, change: str, call: str) -> None:
    """It is memstore's own error, not one that looks as if the caller were wrong, and carries nothing stored."""
    harm(raw, CHANGES[change])
    store.put(USER, "other", {"text": "so that nothing comes from the cache"})
    with pytest.raises(DatabaseDamaged) as caught:
        CALLS[call](store)
    assert TEXT not in str(caught.value)


WAYS_OUT: dict[str, Callable[[SyncCaller], Any]] = {
    "check": lambda store: store.check(repair=True),
    "put": lambda store: store.batch([PutOp(USER, "dog", {"text": "two dogs"}), PutOp(USER, "tea", {"text": TEXT})]),
}


@pytest.mark.parametrize("exact_below", [0, 20_000], ids=["wide", "narrow"])
@pytest.mark.parametrize("way_out", WAYS_OUT)
def test_a_namespace_without_any_vector_is_damaged_too(
    open_store: OpenStore, raw: sqlite3.Connection, way_out: str, exact_below: int
) -> None:
    """Nothing is ranked by vectors that are not there; once they are, what was kept in memory is not in the way."""
    store = open_store(index=INDEX | {"exact_below": exact_below})
    store.put(USER, "tea", {"text": TEXT})
    store.put(USER, "dog", {"text": "two dogs"})
    raw.execute("UPDATE memstore_items SET vectors = NULL")
    for mode in (None, "semantic"):
        with pytest.raises(DatabaseDamaged):
            store.search(USER, query="tea", mode=mode)
    assert keys(store.search(USER, query="tea", mode="lexical")) == ["tea"]
    WAYS_OUT[way_out](store)
    assert store.search(USER, query=TEXT, limit=1)[0].key == "tea"
    assert store.check().ok


@pytest.mark.parametrize("exact_below", [0, 20_000], ids=["wide", "narrow"])
def test_vectors_that_go_missing_are_damage_whatever_was_in_memory(
    open_store: OpenStore, raw: sqlite3.Connection, exact_below: int
) -> None:
    """Where all that a search has met was written anew since, and without its vectors, the next one names it."""
    store = open_store(index=INDEX | {"exact_below": exact_below})
    for text in ("black tea", TEXT):
        store.put(USER, "tea", {"text": text})
        assert keys(store.search(USER, query="tea")) == ["tea"]
    store.put(USER, "tea", {"text": "white tea"})
    raw.execute("UPDATE memstore_items SET vectors = NULL")
    for _ in range(2):
        with pytest.raises(DatabaseDamaged):
            store.search(USER, query="tea")
    assert store.check(repair=True).ok
    assert keys(store.search(USER, query="tea")) == ["tea"]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_put_replaces_what_is_damaged(store: SyncCaller, raw: sqlite3.Connection, change: str) -> None:
    """The way out for one item is to put it again; nothing of the damaged row is needed for that."""
    harm(raw, change)
    store.put(USER, "tea", {"text": "black tea"})
    assert store.search(USER, query="black tea", limit=1)[0].key == "tea"
    assert store.check(repair=True).ok


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_check_sees_what_calls_would_meet(store: SyncCaller, raw: sqlite3.Connection, change: str) -> None:
    """No damage that makes a call fail, or give what is no item, is called sound."""
    harm(raw, change)
    assert not store.check().ok


@pytest.mark.parametrize("change", [CHANGES["a value that is no JSON"], CHANGES["a value that is no object"]])
def test_check_does_not_repair_what_it_cannot(store: SyncCaller, raw: sqlite3.Connection, change: str) -> None:
    """A value that is lost stays lost: the store is not called sound because its texts were brought in line."""
    harm(raw, change)
    assert not store.check(repair=True).ok
    assert not store.check().ok


@pytest.mark.parametrize("fields", ["5", "null", "{}", "[", '"text"', "[5]", '["text", null]'])
def test_check_survives_a_choice_of_paths_that_is_none(store: SyncCaller, raw: sqlite3.Connection, fields: str) -> None:
    """JSON of another kind in `fields` is a finding, not a crash; the other items are still looked at."""
    raw.execute("UPDATE memstore_items SET fields = ? WHERE key = 'tea'", (fields,))
    raw.execute("UPDATE memstore_items SET digests = zeroblob(16) WHERE key = 'dog'")
    assert "items are not indexed by the texts of their values" in " ".join(store.check().problems)
