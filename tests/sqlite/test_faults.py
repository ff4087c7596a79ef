"""Faults at every statement: a write is wholly there or not at all, and the store works afterwards."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Literal

import pytest
from langgraph.store.base import Op, PutOp, SearchOp

from memstore import MemStore
from memstore.backends.sqlite import SqliteBackend
from memstore.check import ask
from memstore.errors import DatabaseDamaged, DatabaseError, DatabaseFull
from memstore.steps import Statement
from tests.sqlite.faults import FaultyConnection, contents, make_reader_faulty, make_writer_faulty
from tests.support import Clock, WordEmbeddings, keys

INDEX: dict[str, Any] = {"embed": WordEmbeddings(8), "fields": ["text", "tags[*]"]}
USER = ("users", "ada")
OPS: dict[str, list[Op]] = {
    "new item": [PutOp(USER, "new", {"text": "a new text"})],
    "new namespace": [PutOp(("users", "eve"), "new", {"text": "a new text", "tags": ["one", "two"]})],
    "replacement": [PutOp(USER, "tea", {"text": "black tea", "tags": ["drink"]})],
    "without texts": [PutOp(USER, "tea", {"text": "unsearchable"}, index=False)],
    "delete": [PutOp(USER, "tea", None)],
    "delete of the last": [PutOp(("users", "bob"), "cat", None)],
    "batch": [
        PutOp(USER, "tea", {"text": "white tea"}),
        PutOp(("users", "bob"), "cat", None),
        PutOp(("users", "eve"), "new", {"text": "something new"}, ttl=5),
        PutOp(USER, "dog", {"text": "a dog"}, index=["text", "$"]),
    ],
}
every_write = pytest.mark.parametrize("ops", OPS.values(), ids=OPS.keys())


@pytest.fixture(params=["file", "memory"])
def backend(request: pytest.FixtureRequest, path: Path, clock: Clock) -> SqliteBackend:
    """Name a database, on disk and in memory."""
    return SqliteBackend(path if request.param == "file" else None, clock)


@pytest.fixture
def store(backend: SqliteBackend) -> Iterator[MemStore]:
    """Open a store with some items."""
    with MemStore(backend, index=INDEX) as store:
        store.put(USER, "tea", {"text": "green tea", "tags": ["hot", "drink"]})
        store.put(USER, "dog", {"text": "two dogs"})
        store.put(("users", "bob"), "cat", {"text": "three cats"}, ttl=10)
        yield store


def shown(store: MemStore) -> list[Any]:
    """Give what users see: all items, a search by meaning, the namespaces."""
    found = store.search((), limit=100)
    near = store.search((), query="green tea and dogs", limit=100)
    items = [(item.namespace, item.key, item.value, item.created_at, item.updated_at) for item in found]
    return [items, [(item.key, item.score) for item in near], store.list_namespaces()]


def assert_unchanged(store: MemStore, writer: sqlite3.Connection, rows: dict[str, list[Any]], seen: list[Any]) -> None:
    """Assert that nothing of a failed write is there, in rows or to users, and that nothing is held."""
    assert not writer.in_transaction
    assert contents(writer) == rows
    assert shown(store) == seen
    assert store.check().ok


def assert_applied(store: MemStore, ops: list[Op]) -> None:
    """Assert that a write is wholly there, and the store sound."""
    for op in ops:
        assert isinstance(op, PutOp)
        item = store.get(op.namespace, op.key)
        assert (item and item.value) == op.value
    assert store.check().ok


def assert_works(store: MemStore) -> None:
    """Assert that a store still writes, reads and finds."""
    store.put(("after",), "k", {"text": "after the fault"})
    assert keys(store.search(("after",), query="after the fault")) == ["k"]
    store.delete(("after",), "k")
    assert store.get(("after",), "k") is None


FAULTS: list[tuple[type[BaseException], Literal["before", "after"]]] = [
    (sqlite3.OperationalError, "before"),
    (KeyboardInterrupt, "before"),
    (KeyboardInterrupt, "after"),
]


@every_write
@pytest.mark.parametrize(("fault", "when"), FAULTS, ids=["error", "interrupt before", "interrupt after"])
def test_a_fault_at_any_statement_leaves_all_or_nothing(
    store: MemStore,
    backend: SqliteBackend,
    ops: list[Op],
    fault: type[BaseException],
    when: Literal["before", "after"],
) -> None:
    """At BEGIN, at each statement and at COMMIT, for an error of the database and for Ctrl-C around a statement."""
    writer = make_writer_faulty(backend)
    rows, seen = contents(writer), shown(store)
    for at in itertools.count(1):
        writer.arm(at, fault("a fault"), when)
        try:
            store.batch(ops)
        except (DatabaseError, KeyboardInterrupt):
            if contents(writer) != rows:  # an interrupt came when COMMIT had been performed
                assert when == "after"
                break
            assert_unchanged(store, writer, rows, seen)
        else:
            break
    assert at > 5
    writer.disarm()
    assert_applied(store, ops)
    assert_works(store)


@every_write
def test_an_interruption_inside_any_statement_leaves_nothing(
    store: MemStore, backend: SqliteBackend, ops: list[Op]
) -> None:
    """SQLite itself gives up in the midst of a statement: at the 1st, 12th, 23rd ... step, until a write is through."""
    writer = make_writer_faulty(backend)
    rows, seen = contents(writer), shown(store)
    for at in itertools.count(1, 11):
        writer.interrupt_at_step(at)
        try:
            store.batch(ops)
        except DatabaseError:
            writer.interrupt_at_step(None)
            if contents(writer) != rows:  # it came at the last step of COMMIT, which had been performed
                break
            assert_unchanged(store, writer, rows, seen)
        else:
            break
    writer.interrupt_at_step(None)
    assert at > 50
    assert_applied(store, ops)
    assert_works(store)


TRIGGERS = [
    "UPDATE ON memstore_clock",
    "INSERT ON memstore_namespaces",
    "UPDATE ON memstore_namespaces",
    "DELETE ON memstore_namespaces",
    "INSERT ON memstore_items",
    "DELETE ON memstore_items",
    "INSERT ON memstore_removals",
]


@pytest.mark.parametrize("event", TRIGGERS)
@pytest.mark.parametrize("reaction", ["ABORT", "FAIL", "ROLLBACK"])
def test_a_refused_row_leaves_nothing(store: MemStore, backend: SqliteBackend, event: str, reaction: str) -> None:
    """Whether the database undoes the statement, keeps half of it or ends the transaction by itself."""
    writer = make_writer_faulty(backend)
    rows, seen = contents(writer), shown(store)
    writer.execute(f"CREATE TRIGGER refuse AFTER {event} BEGIN SELECT RAISE({reaction}, 'refused'); END")
    with pytest.raises(DatabaseError, match="SQLITE_CONSTRAINT"):
        store.batch(OPS["batch"])
    assert_unchanged(store, writer, rows, seen)
    writer.execute("DROP TRIGGER refuse")
    store.batch(OPS["batch"])
    assert_applied(store, OPS["batch"])


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_read_lets_go_of_its_snapshot(
    path: Path, clock: Clock, when: Literal["before", "after"]
) -> None:
    """Ctrl-C at any statement of a read: the next read on that connection works, and sees what was written since."""
    backend = SqliteBackend(path, clock)
    with MemStore(backend, index=INDEX) as store:
        store.put(USER, "tea", {"text": "green tea"})
        reader = make_reader_faulty(backend)
        for at in itertools.count(1):
            reader.arm(at, KeyboardInterrupt(), when)
            with suppress(KeyboardInterrupt):
                store.batch([SearchOp(USER, query="tea")])
            if reader.disarm():
                break
            assert not reader.in_transaction
            store.put(USER, f"tea {at}", {"text": "tea"})
            assert len(store.search(USER, query="tea", limit=99)) == at + 1
        assert at > 3


def test_a_full_disk_loses_nothing(store: MemStore, backend: SqliteBackend) -> None:
    """The error says so; what was there is there; with room again the same write goes through."""
    writer = make_writer_faulty(backend)
    rows, seen = contents(writer), shown(store)
    ((pages,),) = writer.execute("PRAGMA page_count").fetchall()
    writer.execute(f"PRAGMA max_page_count = {pages}")
    large: list[Op] = [PutOp(("big",), f"k{number}", {"text": "word " * 10_000}) for number in range(20)]
    for _ in range(2):
        with pytest.raises(DatabaseFull, match="make room and try again"):
            store.batch([*OPS["batch"], *large])
        assert_unchanged(store, writer, rows, seen)
    writer.execute("PRAGMA max_page_count = 1000000")
    store.batch([*OPS["batch"], *large])
    assert_applied(store, [*OPS["batch"], *large])


def test_a_fault_at_open_leaves_no_half_database(path: Path, clock: Clock) -> None:
    """Tables are made in one transaction: a fault there leaves none, and opening works once it is gone."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
    backend = SqliteBackend(path, clock)
    for at in itertools.count(1):
        faulty = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=FaultyConnection)
        backend._writer = faulty
        faulty.arm(at, sqlite3.OperationalError("a fault"), "before")
        try:
            backend.open()
        except DatabaseError:
            assert faulty.execute("SELECT count(*) FROM sqlite_master").fetchall() == [(0,)]
            backend._close_writer()
        else:
            faulty.disarm()
            break
    assert at > 10
    with MemStore(backend, index=INDEX) as store:
        assert_works(store)
        assert store.check().ok


def test_a_fault_while_settings_are_recorded_leaves_none(path: Path, clock: Clock) -> None:
    """The index settings and their being in force are one transaction as well."""
    MemStore.open(path).close()
    backend = SqliteBackend(path, clock)
    backend.write(lambda: ask(Statement("SELECT 1")))
    writer = make_writer_faulty(backend)
    rows = contents(writer)
    stores = list[MemStore]()  # one that is collected lets go of the backend
    for at in itertools.count(1):
        writer.arm(at, sqlite3.OperationalError("a fault"), "before")
        stores.append(store := MemStore(backend, index=INDEX))
        try:
            store.setup()
        except DatabaseError:
            assert contents(writer) == rows
        else:
            break
    writer.disarm()
    assert at > 3
    with store:
        assert_works(store)


def test_a_damaged_page_is_named(path: Path, clock: Clock) -> None:
    """Reading what is not what SQLite wrote is an error that says what to do, never a wrong answer."""
    with MemStore(SqliteBackend(path, clock), index=INDEX) as store:
        store.batch([PutOp(USER, f"k{number}", {"text": f"text {number}"}) for number in range(500)])
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * (size - 8192))
    with pytest.raises(DatabaseDamaged, match="restore a backup"), MemStore(SqliteBackend(path, clock)) as store:
        store.search(USER, limit=1000)
