"""Words of a SQLite file: taken from texts that were there before, remembered, interrupted, damaged and put right."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langgraph.store.base import PutOp

from memstore import DatabaseDamaged, IndexMismatch, InvalidArgument, MemStore, ModelUnavailable
from memstore.backends.sqlite import SqliteBackend
from memstore.config import IndexSettings
from memstore.indexing import (
    ITEMS_AT_ONCE,
    Remembered,
    adopt_index,
    analyse,
    finish_analysis,
    keep_terms,
    to_remembered,
)
from memstore.schema import load_migrations
from tests.conformance.modes import MODES, checked
from tests.support import Clock, OpenStore, SyncCaller, WordEmbeddings, keys

HYBRID: dict[str, Any] = {"embed": WordEmbeddings(8), "fields": ["text"]}
SEMANTIC = HYBRID | {"mode": "semantic"}
LEXICAL: dict[str, Any] = {"mode": "lexical", "fields": ["text"]}
MIGRATIONS = "CREATE TABLE memstore_migrations (number INTEGER PRIMARY KEY, name TEXT, applied_at INTEGER);"
USER = ("users", "ada")
QUERIES = ["green tea", "two boats", "title of user_42", "last words"]
PUTS: dict[str, tuple[dict[str, Any], Any]] = {
    "one text": ({"text": "green tea for user_42"}, None),
    "none": ({"title": "no text"}, None),
    "not indexed": ({"text": "hidden"}, False),
    "a list": ({"tags": ["red", "green tea", "", None, "two boats"]}, ["tags[*]"]),
    "several paths": ({"text": "the text", "title": "the title", "tags": ["a", "b"]}, ["title", "tags[1]", "text"]),
    "paths in one": ({"a": {"x": "inner x", "y": "inner y"}, "b": "outer b"}, ["{a.x,b}", "a.*"]),
    "the whole": ({"text": "whole", "n": 10**30, "list": [1, "two", {"three": 3.5}]}, ["$"]),
    "the whole and a part": ({"text": "part of a whole"}, ["$", "text"]),
    "from the end": ({"notes": ["first", "last words"]}, ["notes[-1]", "notes[0]"]),
    "deep": ({"m": [{"c": "one"}, {"c": ["two", "three"]}, {"d": "four"}]}, ["m[*].c", "m[*]"]),
    "a numbered key": ({"a": {"0": "zero", "b": "letter"}, "a.0": "dotted"}, ["a.0", "a.b"]),
    "equal texts": ({"tags": ["same", "same"], "text": "same"}, ["tags[*]", "text"]),
    "a number": ({"text": 1234567, "flag": True}, ["text", "flag"]),
    "long": ({"text": "long " * 3000 + "end"}, ["text"]),
    "no words": ({"text": "?! --"}, None),
    "scripts": ({"text": "我喜欢喝绿茶 and café"}, None),
}
"""Values of every kind, and what is indexed of them."""


def put_all(store: SyncCaller | MemStore) -> None:
    """Put items of every kind."""
    store.batch([PutOp((*USER, key[0]), key, value, index) for key, (value, index) in PUTS.items()])


def rows(raw: sqlite3.Connection) -> list[Any]:
    """Give what is indexed of each item, by namespace and key."""
    sql = """SELECT n.path, i.key, i.texts, i.digests, i.terms FROM memstore_items i
             JOIN memstore_namespaces n ON n.id = i.namespace_id ORDER BY n.path, i.key"""
    return raw.execute(sql).fetchall()


def without_terms(raw: sqlite3.Connection) -> int:
    """Count the items whose texts have no terms."""
    sql = "SELECT count(*) FROM memstore_items WHERE text_id IS NOT NULL AND terms IS NULL"
    return int(raw.execute(sql).fetchone()[0])


def answers(store: SyncCaller) -> list[Any]:
    """Ask everything in every mode."""
    asked = product(QUERIES, MODES)
    return [[(hit.key, hit.score) for hit in store.search((), query=q, mode=mode, limit=50)] for q, mode in asked]


@pytest.fixture
def twin(tmp_path: Path) -> Iterator[SyncCaller]:
    """Give a store of the same items that was hybrid from the start."""
    with MemStore.open(tmp_path / "twin.db", index=HYBRID) as store:
        put_all(store)
        yield SyncCaller(store)


class TestReopened:
    """A database gets the words of all its texts when it is first opened in a mode that needs them."""

    def test_it_is_as_if_it_had_them_from_the_start(
        self, open_store: OpenStore, raw: sqlite3.Connection, twin: SyncCaller, tmp_path: Path
    ) -> None:
        """Whatever paths chose a text: the terms are the same bytes, and so is every answer."""
        put_all(open_store(index=SEMANTIC))
        assert without_terms(raw) == len(PUTS) - 2
        store = open_store(index=HYBRID)
        with closing(sqlite3.connect(tmp_path / "twin.db")) as other:
            assert rows(raw) == rows(other)
        assert answers(store) == answers(twin)
        assert store.check().problems == ()

    @pytest.mark.parametrize("count", [ITEMS_AT_ONCE, 2 * ITEMS_AT_ONCE + 100])
    def test_any_number_of_items_is_taken(
        self, open_store: OpenStore, raw: sqlite3.Connection, embeddings: WordEmbeddings, count: int
    ) -> None:
        """Some thousand, or exactly as many as are taken at once; no text is embedded again."""
        first = open_store(index=SEMANTIC)
        first.batch(
            PutOp(("n", str(n % 7)), f"k{n}", {"text": f"word{n} some"}, index=False if n % 50 == 7 else None)
            for n in range(count)
        )
        embeddings.dims = 8
        store = open_store(index=HYBRID | {"embed": embeddings})
        assert without_terms(raw) == 0
        for number in (0, 1, 999, count - 1):
            assert keys(store.search((), query=f"word{number}", mode="lexical")) == [f"k{number}"]
        assert len(store.search((), query="some", mode="lexical", limit=count)) == store.stats().texts
        assert embeddings.documents == []

    def test_words_once_taken_are_kept(self, open_store: OpenStore, raw: sqlite3.Connection) -> None:
        """Opened as semantic again, texts put there still get their words, and calls may rank by them."""
        put_all(open_store(index=HYBRID))
        store = open_store(index=SEMANTIC)
        store.put(USER, "new", {"text": "new words"})
        assert without_terms(raw) == 0
        assert keys(store.search((), query="new", mode="lexical")) == ["new"]
        assert store.search((), query="new") == store.search((), query="new", mode="semantic")
        before = rows(raw)
        assert keys(open_store(index=HYBRID).search((), query="new", limit=1)) == ["new"]
        assert rows(raw) == before

    def test_words_need_no_model(self, open_store: OpenStore, raw: sqlite3.Connection) -> None:
        """Opened for words alone, a database of vectors is searched by words; its vectors stay, and none go missing."""
        put_all(open_store(index=SEMANTIC))
        store = open_store(index=LEXICAL)
        assert without_terms(raw) == 0
        assert "one text" in keys(store.search((), query="user_42"))
        with pytest.raises(ModelUnavailable):
            store.put(USER, "new", {"text": "new words"})
        assert open_store(index=HYBRID).check().problems == ()

    def test_a_database_of_the_first_migration(
        self, open_store: OpenStore, path: Path, tmp_path: Path, twin: SyncCaller
    ) -> None:
        """Without a column for terms, with the settings of its time: it is migrated, stays semantic, becomes hybrid."""
        with MemStore.open(tmp_path / "new.db", index=SEMANTIC) as newer:
            put_all(newer)
        with closing(sqlite3.connect(path)) as raw:
            raw.executescript(load_migrations("sqlite")[0].sql + MIGRATIONS)
            raw.execute("ATTACH ? AS new", (str(tmp_path / "new.db"),))
            for table in ("clock", "index", "namespaces", "items", "migrations"):
                columns = ", ".join(row[1] for row in raw.execute(f"PRAGMA main.table_info(memstore_{table})"))
                sql = f"INSERT OR REPLACE INTO memstore_{table} SELECT {columns} FROM new.memstore_{table}"  # noqa: S608
                raw.execute(sql)
            raw.execute("DELETE FROM memstore_migrations WHERE number > 1")
            gone = ", ".join(f"'$.{name}'" for name in ("dense", "mode", "language", "analyser", "analysed"))
            raw.execute(f"UPDATE memstore_index SET settings = json_remove(settings, {gone})")  # noqa: S608
            raw.commit()
            assert "terms" not in [row[1] for row in raw.execute("PRAGMA main.table_info(memstore_items)")]
        store = open_store(index=SEMANTIC)
        asked: dict[str, Any] = {"query": "green tea", "mode": "semantic", "limit": 50}
        expected = [(hit.key, hit.score) for hit in twin.search((), **asked)]
        assert [(hit.key, hit.score) for hit in store.search((), **asked)] == expected
        with pytest.raises(InvalidArgument):
            store.search((), **asked | {"mode": "lexical"})
        store = open_store(index=HYBRID)
        assert answers(store) == answers(twin)
        assert store.check().problems == ()


class TestSettings:
    """What a database remembers of its words, and stores that were or are opened otherwise."""

    @pytest.mark.parametrize("call", ["put", "search"])
    def test_a_store_under_the_old_settings_is_refused(self, open_store: OpenStore, call: str) -> None:
        """Its put would leave a text without words: it is told to open again, and still reads and deletes."""
        old = open_store(index=SEMANTIC)
        put_all(old)
        new = open_store(index=HYBRID)
        with pytest.raises(IndexMismatch, match="open"):
            old.put(USER, "new", {"text": "new"}) if call == "put" else old.search((), query="tea")
        assert old.get((*USER, "o"), "one text") is not None
        old.delete((*USER, "o"), "one text")
        assert "one text" not in keys(new.search((), query="user_42", limit=50))
        open_store(index=SEMANTIC).put(USER, "new", {"text": "new"})
        assert keys(new.search((), query="new", mode="lexical")) == ["new"]

    @pytest.mark.parametrize("index", [HYBRID, LEXICAL], ids=["hybrid", "lexical"])
    @pytest.mark.parametrize(("first", "second"), [(None, "german"), ("english", "french"), ("german", "english")])
    def test_another_language_is_refused(
        self, open_store: OpenStore, index: dict[str, Any], first: str | None, second: str
    ) -> None:
        """Stems of two languages do not meet: both are named, and nothing is changed; not told, it is the first."""
        store = open_store(index=index | {"language": first})
        store.put(USER, "k", {"text": "Häuser runs"})
        with pytest.raises(IndexMismatch, match=f"{first or 'english'}.*{second}"):
            open_store(index=index | {"language": second})
        for same in (index, index | {"language": first}):
            again = open_store(index=same)
            again.put(USER, "k2", {"text": "Häuser runs"})
            assert keys(again.search((), query="Häuser", mode="lexical")) == ["k2", "k"]
            assert again.check().problems == ()
        store.delete(USER, "k")
        store.delete(USER, "k2")
        other = open_store(index=index | {"language": second})
        other.put(USER, "k", {"text": "Häuser"})
        assert keys(other.search((), query="Häuser", mode="lexical")) == ["k"]

    def test_words_alone_are_not_given_vectors(self, open_store: OpenStore) -> None:
        """A model on a database whose texts have no vectors is refused, unless there is no text."""
        store = open_store(index=LEXICAL)
        store.put(USER, "k", {"text": "green tea"})
        for index in (HYBRID, SEMANTIC, HYBRID | {"mode": "lexical"}):
            with pytest.raises(IndexMismatch, match="vectors"):
                open_store(index=index)
        assert keys(open_store(index=LEXICAL).search((), query="tea")) == ["k"]
        store.delete(USER, "k")
        open_store(index=HYBRID).put(USER, "k", {"text": "green tea"})

    def test_mode_and_language_are_remembered(self, open_store: OpenStore) -> None:
        """Opened without `index`, a database of words is searched and written as it was."""
        open_store(index=LEXICAL | {"language": "german"}).put(USER, "k", {"text": "alte Häuser"})
        store = open_store()
        store.put(USER, "k2", {"text": "ein altes Haus", "title": "Häusern"})
        assert checked(store.search((), query="alten häusern")) == {"k2": 1.0, "k": 1.0}
        assert store.check().problems == ()
        with pytest.raises(InvalidArgument, match="vectors"):
            store.search((), query="alten", mode="hybrid")

    def test_without_its_model_words_are_searched(self, open_store: OpenStore) -> None:
        """Opened plainly, a hybrid database answers without its model what words can, and warns of the rest."""
        put_all(open_store(index=HYBRID))
        store = open_store()
        assert "one text" in keys(store.search((), query="user_42", mode="lexical"))
        with pytest.warns(UserWarning, match="index"):
            assert {hit.score for hit in store.search((), query="user_42")} == {None}


def adopt(path: Path, index: dict[str, Any], clock: Clock) -> tuple[SqliteBackend, Remembered]:
    """Begin to open a database under other settings, and stop before any words are taken."""
    backend = SqliteBackend(path, clock)
    wanted = to_remembered(IndexSettings.parse(index, "index"))
    return backend, backend.write(partial(adopt_index, wanted, backend.dialect))


class TestInterrupted:
    """Words are taken some at a time; where that ended before it was done, it goes on."""

    @pytest.mark.parametrize("index", [HYBRID, SEMANTIC, LEXICAL, None], ids=["hybrid", "semantic", "lexical", "plain"])
    def test_the_next_opening_finishes(self, open_store: OpenStore, path: Path, clock: Clock, index: Any) -> None:
        """Whatever it is opened as: before it is searched, every text has its words."""
        count = ITEMS_AT_ONCE + 50
        first = open_store(index=SEMANTIC)
        first.batch(PutOp(("n", str(n % 3)), f"k{n}", {"text": f"word{n} some"}) for n in range(count))
        backend, known = adopt(path, HYBRID, clock)
        with closing(backend), closing(sqlite3.connect(path, isolation_level=None)) as raw:
            assert without_terms(raw) == count
            _, made = backend.read(partial(analyse, 0, known.spoken, backend.dialect))
            backend.write(partial(keep_terms, made, known, backend.dialect))
            assert without_terms(raw) == 50
        store = open_store(index=index)
        found = checked(store.search((), query="some", mode="lexical", limit=2 * count))
        assert len(found) == count
        assert keys(store.search((), query=f"word{count - 1}", mode="lexical")) == [f"k{count - 1}"]
        assert open_store(index=HYBRID).check().problems == ()

    def test_what_has_words_is_left_alone(self, open_store: OpenStore, raw: sqlite3.Connection) -> None:
        """Only the items that have none get them, and they are what they were."""
        put_all(open_store(index=HYBRID))
        before = rows(raw)
        raw.execute("UPDATE memstore_items SET terms = NULL WHERE id % 3 > 0")
        raw.execute("UPDATE memstore_index SET settings = json_set(settings, '$.analysed', json('false'))")
        assert without_terms(raw) > 3
        store = open_store(index=HYBRID)
        assert rows(raw) == before
        assert store.check().problems == ()

    def test_openings_at_once(self, open_store: OpenStore, path: Path, clock: Clock, raw: sqlite3.Connection) -> None:
        """One opens while another is at it, writes and deletes: what the slower one still adds changes nothing."""
        put_all(open_store(index=SEMANTIC))
        backend, known = adopt(path, HYBRID, clock)
        with closing(backend):
            _, made = backend.read(partial(analyse, 0, known.spoken, backend.dialect))
            store = open_store(index=HYBRID)
            store.put((*USER, "o"), "one text", {"text": "other words"})
            store.delete((*USER, "a"), "a list")
            store.put(USER, "new", {"text": "new words"})
            before, expected = rows(raw), answers(store)
            backend.write(partial(keep_terms, made, known, backend.dialect))
            assert backend.write(partial(finish_analysis, known, backend.dialect)).analysed
        assert rows(raw) == before
        assert answers(store) == answers(open_store(index=HYBRID)) == expected
        assert store.check().problems == ()

    def test_other_settings_that_came_meanwhile_are_obeyed(
        self, open_store: OpenStore, path: Path, clock: Clock
    ) -> None:
        """Words of the old language never meet texts of the new one: whoever still brings them is refused."""
        store = open_store(index=SEMANTIC)
        store.put(USER, "k", {"text": "Häuser"})
        backend, known = adopt(path, HYBRID, clock)
        with closing(backend):
            _, made = backend.read(partial(analyse, 0, known.spoken, backend.dialect))
            store.delete(USER, "k")
            german = open_store(index=HYBRID | {"language": "german"})
            german.put(USER, "k", {"text": "Häuser"})
            for flow in (partial(keep_terms, made), finish_analysis):
                with pytest.raises(IndexMismatch):
                    backend.write(partial(flow, known, backend.dialect))
        assert keys(german.search((), query="häusern", mode="lexical")) == ["k"]
        assert german.check().problems == ()


def heads(blob: bytes, *counts: int) -> bytes:
    """Replace the counts of terms."""
    return np.array(counts, "<u4").tobytes() + blob[4 * len(counts) :]


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "none": lambda _: None,
    "empty": lambda _: b"",
    "a byte": lambda _: b"\1",
    "a byte less": lambda blob: blob[:-1],
    "a term less": lambda blob: blob[:-4],
    "a term more": lambda blob: blob + b"\1\2\3\4",
    "half of it": lambda blob: blob[: len(blob) // 8 * 4],
    "twice": lambda blob: blob + blob,
    "zeros": lambda blob: bytes(len(blob)),
    "ones": lambda blob: b"\xff" * len(blob),
    "a huge count": lambda blob: heads(blob, 0xFFFFFFFF),
    "counts that add up otherwise": lambda blob: heads(blob, 1, len(blob) // 4 - 3),
    "all in one text": lambda blob: heads(blob, 0, len(blob) // 4 - 2),
    "other terms": lambda blob: blob[:8] + bytes(len(blob) - 8),
    "one term again and again": lambda blob: blob[:8] + blob[-4:] * (len(blob) // 4 - 2),
    "terms the other way round": lambda blob: blob[:8] + np.frombuffer(blob[8:], "<u4")[::-1].tobytes(),
}
"""What may become of the terms of an item with two texts."""


@pytest.mark.parametrize("exact_below", [10**9, 0], ids=["narrow", "wide"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize("index", [HYBRID, LEXICAL], ids=["hybrid", "lexical"])
class TestDamaged:
    """Terms that are not those of their texts."""

    @staticmethod
    def ask(store: SyncCaller, index: Any) -> list[dict[str, float]]:
        """Ask by words, and by both where there are vectors."""
        return [
            checked(store.search(prefix, query=query, mode=mode, limit=50))
            for query in ("green tea", "coffee word7", "two cups", "absent")
            for mode in (MODES if "embed" in index else ["lexical"])
            if mode != "semantic"
            for prefix in ((), USER)
        ]

    def test_a_search_names_it_or_works_and_a_repair_puts_it_right(
        self, open_store: OpenStore, raw: sqlite3.Connection, index: Any, damage: Any, exact_below: int
    ) -> None:
        """Never nonsense: whatever is not damaged is found as before; a check says so, a repair brings back the rest.

        An error carries nothing stored, and what was repaired is seen by other stores too.
        """
        settings = index | {"exact_below": exact_below}
        store = open_store(index=settings)
        store.batch(PutOp(USER, f"k{number}", {"text": f"green word{number} tea"}) for number in range(30))
        store.put(USER, "harmed", {"text": ("green tea", "two cups of black coffee, green ones")}, index=["text[*]"])
        store.put(("users", "bob"), "k", {"text": "coffee"})
        before = self.ask(store, index)
        ((blob,),) = raw.execute("SELECT terms FROM memstore_items WHERE key = 'harmed'").fetchall()
        raw.execute("UPDATE memstore_items SET terms = ? WHERE key = 'harmed'", (damage(blob),))
        store, other = open_store(index=settings), open_store(index=settings)
        for each in (store, other):
            try:
                found = self.ask(each, index)
            except DatabaseDamaged as error:
                said = str(error)
                assert ("check" in said, "green" in said, "tea" in said) == (True, False, False)
            else:
                assert [{*answer, "harmed"} for answer in found] == [{*answer, "harmed"} for answer in before]
        assert store.check().problems == ("1 items are not indexed by the texts of their values",)
        assert store.check(repair=True).ok
        assert store.check().problems == ()
        for each in (store, other, open_store(index=settings)):
            assert self.ask(each, index) == before


def test_words_where_none_belong_are_found(open_store: OpenStore, raw: sqlite3.Connection) -> None:
    """Terms in a database that keeps none are a fault too, and a repair takes them away."""
    store = open_store(index=SEMANTIC)
    put_all(store)
    raw.execute("UPDATE memstore_items SET terms = x'0100000001020304' WHERE key = 'one text'")
    assert store.check().problems == ("1 items are not indexed by the texts of their values",)
    assert store.check(repair=True).ok
    assert all(row[-1] is None for row in rows(raw))
