"""How SQLite finds rows: one user's calls must cost what that user has, not what the store holds."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.store.base import PutOp

from memstore.backends import sqlite as backend
from memstore.dialects import Bounds
from memstore.dialects.sqlite import SqliteDialect
from memstore.namespaces import to_path, to_range
from memstore.steps import Each, Statement, Step
from tests.support import OpenStore, SyncCaller, WordEmbeddings

PATH = to_path(("users", "ada"))
DIALECT = SqliteDialect()
STATEMENTS: dict[str, Callable[[], Statement | Each]] = {
    "get": lambda: DIALECT.select_items([(PATH, "k")], 0),
    "put, the place": lambda: DIALECT.select_places([(PATH, "k")]),
    "put, kept vectors": lambda: DIALECT.select_vectors([1]),
    "search, scope": lambda: DIALECT.select_scope(*to_range(PATH), 65),
    "search, size of the scope": lambda: DIALECT.count_scope(*to_range(PATH)),
    "search, ids of the scope": lambda: DIALECT.select_scope_ids(*to_range(PATH)),
    "search, slice": lambda: DIALECT.select_slices([1]),
    "search, newer items": lambda: DIALECT.select_slice_changes([(1, 5)]),
    "search, filter": lambda: DIALECT.select_narrowed([1], (), 0),
    "search, filtered items": lambda: DIALECT.select_narrowed_items([1], (), 0),
    "search, texts after": lambda: DIALECT.select_texts_after(5, 10),
    "search, removals": lambda: DIALECT.select_removals(5),
    "search, page": lambda: DIALECT.select_items_by_id([1, 2], 0),
    "newest of one namespace": lambda: DIALECT.select_newest([1], (), Bounds(10), 0),
    "newest of a few": lambda: DIALECT.select_newest([1, 2], (), Bounds(10), 0),
    "delete": lambda: DIALECT.delete_items([1]),
    "sweep": lambda: DIALECT.select_expired(0, 10),
}
SCAN = re.compile(r"SCAN (?!json_each|memstore_clock|c\b)")


def plan(raw: sqlite3.Connection, statement: Statement | Each) -> list[str]:
    """Give the lines of a statement's plan."""
    params: Any = statement.params if isinstance(statement, Statement) else statement.rows[0]
    return [row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {statement.sql}", params)]


@pytest.mark.parametrize("name", STATEMENTS)
def test_one_user_s_statements_scan_no_table(open_store: OpenStore, raw: sqlite3.Connection, name: str) -> None:
    """Every table is reached through an index or by its ids; bound lists and the clock's one row may be walked."""
    open_store().put(("users", "ada"), "k", {})
    lines = plan(raw, STATEMENTS[name]())
    assert not [line for line in lines if SCAN.match(line)]


def test_a_place_is_looked_up_by_its_whole_key(open_store: OpenStore, raw: sqlite3.Connection) -> None:
    """A put into a namespace of many items reads one of them."""
    open_store().put(("users", "ada"), "k", {})
    lines = plan(raw, STATEMENTS["put, the place"]())
    assert any("memstore_items_key (namespace_id=? AND key=?)" in line for line in lines)


def test_the_newest_come_in_the_order_of_an_index(open_store: OpenStore, raw: sqlite3.Connection) -> None:
    """Neither of one namespace nor of the whole store are all items sorted for a page of ten."""
    open_store().put(("users", "ada"), "k", {})
    for scope in ([1], None):
        lines = plan(raw, DIALECT.select_newest(scope, (), Bounds(10), 0))
        assert not any("TEMP B-TREE" in line for line in lines), lines


ADA = ("users", "ada")
ASKED: dict[str, Any] = {"query": "w5 w7", "limit": 10}
USES: dict[str, Callable[[SyncCaller], object]] = {
    "get": lambda store: store.get(ADA, "k7"),
    "put": lambda store: store.put(ADA, "new", {"text": "w1 new"}),
    "put that replaces": lambda store: store.put(ADA, "k7", {"text": "w1 other"}),
    "delete": lambda store: store.delete(ADA, "k8"),
    "search": lambda store: store.search(ADA, **ASKED),
    "search by meaning": lambda store: store.search(ADA, mode="semantic", **ASKED),
    "search by words": lambda store: store.search(ADA, mode="lexical", **ASKED),
    "search with a filter": lambda store: store.search(ADA, filter={"n": 7}, **ASKED),
    "search by age": lambda store: store.search(ADA, recency=30, **ASKED),
    "newest": lambda store: store.search(ADA),
    "newest with a filter": lambda store: store.search(ADA, filter={"n": 7}),
}


@pytest.mark.parametrize("analysed", [False, True], ids=["just filled", "analysed"])
def test_one_user_s_calls_scan_no_table(
    open_store: OpenStore, raw: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, *, analysed: bool
) -> None:
    """What the store really says, the first time and again; whether SQLite has statistics of the tables or not."""
    said: list[Step] = []
    perform = backend._perform

    def note(connection: sqlite3.Connection, step: Step) -> Any:
        said.append(step)
        return perform(connection, step)

    index = {"embed": WordEmbeddings(8), "fields": ["text"]}
    names = ["ada", *map(str, range(19))]
    puts = [
        PutOp(("users", names[n % 20]), f"k{n // 20}", {"text": f"w{n % 97} said", "n": n % 10}) for n in range(1_000)
    ]
    puts += [PutOp(("alone", str(n)), "k", {"text": f"w{n % 97} once"}) for n in range(500)]
    open_store(index=index).batch(puts)
    if analysed:
        raw.execute("ANALYZE")
    store = open_store(index=index)  # whose memory is empty
    monkeypatch.setattr(backend, "_perform", note)
    for name, use in USES.items():
        for _ in range(2):
            said.clear()
            use(store)
            statements = [step for step in said if isinstance(step, Statement | Each)]
            assert statements, name
            scans = [line for statement in statements for line in plan(raw, statement) if SCAN.match(line)]
            assert scans == [], name
