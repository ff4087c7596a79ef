"""`check`: clean on sound stores; every kind of damage is named, and put right where that is possible."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import PutOp

from memstore import Findings, MemStore
from memstore.errors import ModelUnavailable
from tests.conformance.checking import INDEX, USER, CheckConformance, fill
from tests.sqlite.faults import contents
from tests.support import OpenStore, SyncCaller, WordEmbeddings, keys


@pytest.fixture
def store(open_store: OpenStore) -> SyncCaller:
    """Open a store with items of every kind."""
    store = open_store(index=INDEX)
    fill(store)
    return store


@pytest.fixture
def rows(raw: sqlite3.Connection) -> Callable[[], Any]:
    """Read every row past the store."""
    return partial(contents, raw)


class TestCheck(CheckConformance):
    """Sound stores."""


Damage = Callable[[sqlite3.Connection], Any]


def damage(sql: str) -> Damage:
    """Name the damage that a statement does."""
    return lambda raw: raw.execute(sql)


ONE_ITEM = "1 items are not indexed by the texts of their values"
MISCOUNT = "1 namespaces miscount their texts"
REPAIRABLE: dict[str, tuple[Damage, list[str]]] = {
    "a text is missing": (
        damage(
            "UPDATE memstore_items SET texts = json_remove(texts, '$[0]'), digests = substr(digests, 17), "
            "vectors = substr(vectors, 33) WHERE key = 'tea'"
        ),
        [MISCOUNT, ONE_ITEM],
    ),
    "all texts are missing": (
        damage("UPDATE memstore_items SET text_id = NULL, texts = NULL, digests = NULL, vectors = NULL"),
        ["2 namespaces miscount their texts", "3 items are not indexed by the texts of their values"],
    ),
    "a text too many": (
        damage(
            "UPDATE memstore_items SET texts = json_insert(texts, '$[#]', 'more'), "
            "digests = CAST(digests || substr(digests, 1, 16) AS BLOB), "
            "vectors = CAST(vectors || substr(vectors, 1, 32) AS BLOB) WHERE key = 'tea'"
        ),
        [MISCOUNT, ONE_ITEM],
    ),
    "texts of an item that has none": (
        damage(
            "UPDATE memstore_items SET (text_id, texts, digests, vectors) = "
            "(SELECT 900, texts, digests, vectors FROM memstore_items WHERE key = 'tea') WHERE key = 'plain'"
        ),
        ["1 ids lie beyond the last one given", MISCOUNT, ONE_ITEM],
    ),
    "a wrong digest": (
        damage("UPDATE memstore_items SET digests = zeroblob(length(digests)) WHERE key = 'tea'"),
        [ONE_ITEM],
    ),
    "a wrong field": (damage("UPDATE memstore_items SET texts = '[\"x\"]' WHERE key = 'tea'"), [ONE_ITEM]),
    "fields that are no JSON": (damage("UPDATE memstore_items SET texts = '[' WHERE key = 'tea'"), [ONE_ITEM]),
    "a short vector": (
        damage("UPDATE memstore_items SET vectors = zeroblob(28) WHERE key = 'tea'"),
        [ONE_ITEM],
    ),
    "no vector": (damage("UPDATE memstore_items SET vectors = NULL WHERE key = 'tea'"), [ONE_ITEM]),
    "no terms": (damage("UPDATE memstore_items SET terms = NULL WHERE key = 'tea'"), [ONE_ITEM]),
    "empty terms": (damage("UPDATE memstore_items SET terms = x'' WHERE key = 'tea'"), [ONE_ITEM]),
    "other terms": (
        damage(
            "UPDATE memstore_items SET terms = (SELECT terms FROM memstore_items WHERE key = 'cat') WHERE key = 'tea'"
        ),
        [ONE_ITEM],
    ),
    "terms that are none": (
        damage("UPDATE memstore_items SET terms = zeroblob(length(terms)) WHERE key IN ('tea', 'dog')"),
        ["2 items are not indexed by the texts of their values"],
    ),
    "terms of an item that has no texts": (
        damage("UPDATE memstore_items SET terms = x'0000000001000000' WHERE key = 'plain'"),
        [ONE_ITEM],
    ),
    "a value that was changed": (
        damage("""UPDATE memstore_items SET value = '{"text":"black tea"}' WHERE key = 'tea'"""),
        [ONE_ITEM],
    ),
    "a choice that was changed": (damage("UPDATE memstore_items SET fields = '[]' WHERE key = 'tea'"), [ONE_ITEM]),
    "an item that went by itself": (damage("DELETE FROM memstore_items WHERE key = 'tea'"), [MISCOUNT]),
    "a miscount": (damage("UPDATE memstore_namespaces SET texts = texts + 5 WHERE id = 1"), [MISCOUNT]),
    "a count below zero": (damage("UPDATE memstore_namespaces SET texts = -3 WHERE id = 1"), [MISCOUNT]),
    "an id beyond the last": (
        damage("UPDATE memstore_items SET id = 5000 WHERE key = 'empty'"),
        ["1 ids lie beyond the last one given"],
    ),
    "a clock set back": (damage("UPDATE memstore_clock SET last_id = 1"), ["1 ids lie beyond the last one given"]),
    "a removal beyond the last": (
        damage("INSERT INTO memstore_removals (clock, text_id, texts) VALUES (1, 6000, 1)"),
        ["1 ids lie beyond the last one given"],
    ),
}


@pytest.mark.parametrize(("harm", "problems"), REPAIRABLE.values(), ids=REPAIRABLE.keys())
def test_damage_is_named_and_put_right(
    store: SyncCaller, raw: sqlite3.Connection, harm: Damage, problems: list[str]
) -> None:
    """One line for each kind of fault; looking changes nothing; repaired, the store is sound and goes on."""
    harm(raw)
    before = contents(raw)
    found = store.check()
    assert sorted(found.problems) == sorted(problems)
    assert (found.repaired, found.ok, contents(raw)) == (False, False, before)
    mended = store.check(repair=True)
    assert set(mended.problems) >= set(problems)
    assert (mended.repaired, mended.ok) == (True, True)
    assert store.check() == Findings(())
    store.put(USER, "new", {"text": "something new"})
    assert keys(store.search(USER, query="something new", limit=1)) == ["new"]
    assert store.check().ok


ANSWERED = ["a text is missing", "all texts are missing", "a short vector", "no terms", "other terms", "a miscount"]


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "lexical"])
@pytest.mark.parametrize("name", ANSWERED)
@pytest.mark.parametrize("exact_below", [20_000, 0], ids=["narrow", "wide"])
def test_a_repaired_store_answers_as_before(
    open_store: OpenStore, raw: sqlite3.Connection, exact_below: int, name: str, mode: str
) -> None:
    """Scores and order come back, though what is repaired had been in memory before it was damaged."""
    store = open_store(index=INDEX | {"exact_below": exact_below})
    fill(store)
    query = {"query": "green tea for two dogs", "limit": 10, "mode": mode}
    before = [(item.key, item.score) for item in store.search(USER, **query)]
    assert before
    REPAIRABLE[name][0](raw)
    store.check(repair=True)
    assert [(item.key, item.score) for item in store.search(USER, **query)] == before


def test_repair_embeds_only_what_is_missing(open_store: OpenStore, raw: sqlite3.Connection) -> None:
    """The model is asked for the texts of faulty items, each distinct one once."""
    words = WordEmbeddings(8)
    store = open_store(index={**INDEX, "embed": words})
    fill(store)
    store.put(USER, "tea too", {"text": "green tea"})
    raw.execute("UPDATE memstore_items SET digests = zeroblob(16) WHERE key LIKE 'tea%'")
    words.documents.clear()
    assert store.check(repair=True).ok
    assert [sorted(texts) for texts in words.documents] == [["drink", "green tea", "hot"]]


def test_more_items_than_are_compared_at_once_are_all_compared(open_store: OpenStore, raw: sqlite3.Connection) -> None:
    """A thousand at a time; faults in every stretch are counted together."""
    store = open_store(index=INDEX)
    store.batch([PutOp(USER, f"k{number}", {"text": f"text {number}"}) for number in range(2_100)])
    raw.execute("UPDATE memstore_items SET texts = '[]' WHERE text_id % 500 = 0")
    found = store.check(repair=True)
    assert found.problems == ("8 items are not indexed by the texts of their values",)
    assert found.ok
    assert store.stats().texts == 2_100


LASTING: dict[str, tuple[Damage, str]] = {
    "an item of no namespace": (
        damage("UPDATE memstore_items SET namespace_id = 77 WHERE key = 'empty'"),
        "1 items belong to no namespace",
    ),
    "a value that is no JSON": (
        damage("""UPDATE memstore_items SET value = '{"text":' WHERE key = 'plain'"""),
        "1 values are no JSON objects",
    ),
}


@pytest.mark.parametrize(("harm", "problem"), LASTING.values(), ids=LASTING.keys())
def test_what_cannot_be_repaired_stays_named(
    store: SyncCaller, raw: sqlite3.Connection, harm: Damage, problem: str
) -> None:
    """Data is never deleted to make a check succeed: the fault is told again, and the store is not called sound."""
    harm(raw)
    before = contents(raw)
    for repair in (False, True, False):
        found = store.check(repair=repair)
        assert found.problems == (problem,)
        assert not found.ok
    assert contents(raw) == before


def test_what_can_be_repaired_is_repaired_beside_what_cannot(store: SyncCaller, raw: sqlite3.Connection) -> None:
    """The rest is put right, and the next check names only what is left."""
    LASTING["an item of no namespace"][0](raw)
    REPAIRABLE["a short vector"][0](raw)
    assert not store.check(repair=True).ok
    assert store.check().problems == ("1 items belong to no namespace",)


def test_a_damaged_index_of_the_database_is_named(store: SyncCaller, raw: sqlite3.Connection) -> None:
    """SQLite's own findings are passed on: here an index that misses rows of its table."""
    raw.execute("PRAGMA writable_schema = ON")
    raw.execute(
        "UPDATE sqlite_master SET sql = 'CREATE UNIQUE INDEX memstore_items_key ON memstore_items (key, id)' "
        "WHERE name = 'memstore_items_key'"
    )
    raw.execute("PRAGMA schema_version = 7000")
    found = store.check()
    assert found.problems
    assert all(problem.startswith("the database says: ") for problem in found.problems)


def test_without_its_model_a_store_is_checked_but_not_mended(path: Path, raw: sqlite3.Connection) -> None:
    """What is missing is found; embedding it needs the model, and the error says so before anything is changed."""
    with MemStore.open(path, index=INDEX) as store:
        fill(SyncCaller(store))
    REPAIRABLE["a short vector"][0](raw)
    raw.execute("""UPDATE memstore_index SET settings = json_set(settings, '$.embed', 'no_such:model')""")
    before = contents(raw)
    with MemStore.open(path) as store:
        assert store.check().problems == (ONE_ITEM,)
        with pytest.raises(ModelUnavailable):
            store.check(repair=True)
    assert contents(raw) == before


def test_words_are_mended_without_a_model(path: Path, raw: sqlite3.Connection) -> None:
    """A store that ranks by words alone needs none to take them again, and keeps no vectors."""
    with MemStore.open(path, index={"mode": "lexical", "fields": ["text", "tags[*]"]}) as store:
        fill(SyncCaller(store))
        assert store.check() == Findings(())
        raw.execute("UPDATE memstore_items SET terms = zeroblob(length(terms)) WHERE key = 'tea'")
        raw.execute("UPDATE memstore_items SET vectors = zeroblob(32) WHERE key = 'cat'")
        assert store.check(repair=True).problems == ("2 items are not indexed by the texts of their values",)
        assert store.check() == Findings(())
        assert keys(store.search(USER, query="drinks")) == ["tea"]


def test_a_store_without_an_index_checks_its_rows(open_store: OpenStore, raw: sqlite3.Connection) -> None:
    """Nothing is embedded there, so no texts are compared; everything else is."""
    store = open_store()
    fill(store)
    assert store.check().ok
    raw.execute("UPDATE memstore_clock SET last_id = 0")
    assert store.check(repair=True).ok
