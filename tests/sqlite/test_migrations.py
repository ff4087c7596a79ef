"""Migrations on SQLite: the schema is what the files say, and applying them is all or nothing."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from importlib.resources import files
from pathlib import Path

import pytest

from memstore import MemStore
from memstore.backends.sqlite import SqliteBackend
from memstore.errors import DatabaseDamaged, DatabaseError, NewerDatabase
from memstore.schema import Migration, load_migrations, migrate
from tests.support import Clock

SHIPPED = load_migrations("sqlite")
A = Migration(1, "make_a", "-- a comment;\nCREATE TABLE memstore_a (x);\nINSERT INTO memstore_a VALUES (1);\n")
B = Migration(2, "widen_a", "ALTER TABLE memstore_a ADD COLUMN y;\nUPDATE memstore_a SET y = x + 1;\n")
BROKEN = Migration(3, "break", "CREATE TABLE memstore_c (x);\nINSERT INTO memstore_nowhere VALUES (1);\n")


def apply(path: Path, migrations: list[Migration], clock: Clock) -> None:
    """Apply migrations in one transaction, as a store does when it opens; the store's own are there already."""
    backend = SqliteBackend(path, clock)
    try:
        backend._opened = True  # so that only the given ones are applied
        backend.write(partial(migrate, migrations, backend.dialect, clock))
    finally:
        backend.close()


def dump(connection: sqlite3.Connection) -> list[str]:
    """Give the database as normalised SQL."""
    return [normalised(line) for line in connection.iterdump()]


def normalised(sql: str) -> str:
    """Take comments, quotes and spacing out of a statement."""
    bare = re.sub(r"--[^\n]*", "", sql).replace('"', "")
    return re.sub(r"\s+", " ", bare).strip().rstrip(";")


def schema(connection: sqlite3.Connection) -> dict[str, str]:
    """Give the statements that made memstore's tables and indexes, by their names."""
    rows: Iterable[tuple[str, str]] = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name LIKE 'memstore%'"
    )
    return {name: normalised(sql) for name, sql in rows}


def test_a_new_database_is_what_the_migrations_say(path: Path, raw: sqlite3.Connection) -> None:
    """Each CREATE and added column of each file stands in the database as it is written, and nothing else does."""
    MemStore.open(path).close()
    expected: dict[str, str] = {}
    for migration in SHIPPED:
        for step in migration.statements():
            statement = normalised(step)
            if made := re.match(r"CREATE (?:UNIQUE )?(?:TABLE|INDEX) (\w+)", statement):
                expected[made[1]] = statement
            if added := re.match(r"ALTER TABLE (\w+) ADD COLUMN (.+)", statement):
                columns, end = expected[added[1]].rsplit(")", 1)
                expected[added[1]] = f"{columns}, {added[2]}){end}"
    found = schema(raw)
    recorded = found.pop("memstore_migrations")
    assert found == expected
    assert "number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL" in recorded


def test_the_files_run_as_scripts_give_the_same_database(path: Path, raw: sqlite3.Connection) -> None:
    """Splitting a file into statements loses nothing: SQLite's own reading of the whole file agrees."""
    MemStore.open(path).close()
    raw.execute("DROP TABLE memstore_migrations")
    with closing(sqlite3.connect(":memory:")) as other:
        for migration in SHIPPED:
            other.executescript(migration.sql)
        assert dump(other) == dump(raw)


def test_every_file_is_loaded_in_order() -> None:
    """Numbers count up from 1 without a gap, names are verbs and nouns, and no file is left out."""
    folder = files("memstore.schema").joinpath("sqlite")
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    assert [f"{migration.number:04}_{migration.name}.sql" for migration in SHIPPED] == names
    assert [migration.number for migration in SHIPPED] == list(range(1, len(SHIPPED) + 1))


def test_each_migration_is_recorded_with_its_time(path: Path, clock: Clock, raw: sqlite3.Connection) -> None:
    """The record is written in the transaction that it tells of."""
    started = clock.microseconds
    with MemStore(SqliteBackend(path, clock)):
        rows = raw.execute("SELECT number, name, applied_at FROM memstore_migrations").fetchall()
    assert [row[:2] for row in rows] == [(migration.number, migration.name) for migration in SHIPPED]
    assert all(started < row[2] <= clock.microseconds for row in rows)


def test_opening_again_changes_nothing(path: Path, raw: sqlite3.Connection) -> None:
    """A current database is only read: not a byte differs, the record included."""
    MemStore.open(path).close()
    before = dump(raw)
    for _ in range(2):
        store = MemStore.open(path)
        store.setup()
        store.close()
    assert dump(raw) == before


def test_an_older_database_is_brought_up_to_date(path: Path, clock: Clock, raw: sqlite3.Connection) -> None:
    """What was applied stays, what is missing follows in one transaction, and applying again is no change."""
    apply(path, [A], clock)
    assert raw.execute("SELECT * FROM memstore_a").fetchall() == [(1,)]
    apply(path, [A, B], clock)
    assert raw.execute("SELECT * FROM memstore_a").fetchall() == [(1, 2)]
    before = dump(raw)
    apply(path, [A, B], clock)
    assert dump(raw) == before
    assert raw.execute("SELECT number, name FROM memstore_migrations").fetchall() == [(1, "make_a"), (2, "widen_a")]


@pytest.mark.parametrize("applied", [[], [A]], ids=["new", "older"])
def test_a_failing_migration_leaves_nothing(
    path: Path, clock: Clock, raw: sqlite3.Connection, applied: list[Migration]
) -> None:
    """Neither its own first half nor the sound ones before it stay, and the next attempt starts where it was."""
    if applied:
        apply(path, applied, clock)
    before = dump(raw)
    with pytest.raises(DatabaseError):
        apply(path, [A, B, BROKEN], clock)
    assert dump(raw) == before
    apply(path, [A, B], clock)
    assert raw.execute("SELECT * FROM memstore_a").fetchall() == [(1, 2)]


def test_a_renamed_migration_is_refused(path: Path, clock: Clock, raw: sqlite3.Connection) -> None:
    """A shipped file never changes: another name under a number is another program's database, or a damaged one."""
    apply(path, [A], clock)
    before = dump(raw)
    with pytest.raises(DatabaseDamaged, match="its migration 1 is 'make_a', expected 'create_a'"):
        apply(path, [Migration(1, "create_a", A.sql), B], clock)
    assert dump(raw) == before


def test_a_newer_database_is_refused(path: Path, raw: sqlite3.Connection) -> None:
    """It says which migration is unknown and what to do; nothing is changed, and it stays refused."""
    MemStore.open(path).close()
    raw.execute("INSERT INTO memstore_migrations VALUES (900, 'later', 1)")
    before = dump(raw)
    for _ in range(2):
        with pytest.raises(NewerDatabase, match=r"it has migration 900.*install a newer memstore"):
            MemStore.open(path)
    assert dump(raw) == before


def test_tables_of_others_are_left_alone(path: Path, raw: sqlite3.Connection) -> None:
    """A database may hold more than memstore: everything of ours carries its prefix."""
    raw.execute("CREATE TABLE items (id INTEGER PRIMARY KEY)")
    raw.execute("INSERT INTO items VALUES (7)")
    with MemStore.open(path) as store:
        store.put(("a",), "k", {})
    assert raw.execute("SELECT id FROM items").fetchall() == [(7,)]
    names = [row[0] for row in raw.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite%'")]
    assert [name for name in names if not name.startswith("memstore_")] == ["items"]


SPLITS = [
    ("", []),
    ("-- only a comment\n", []),
    ("CREATE TABLE a (x);\n", ["CREATE TABLE a (x)"]),
    ("CREATE TABLE a (x);", ["CREATE TABLE a (x)"]),
    ("CREATE TABLE a (x);\n\n-- why; indeed\nCREATE TABLE b (x);\n", ["CREATE TABLE a (x)", "CREATE TABLE b (x)"]),
    ("INSERT INTO a VALUES ('x; y');\n", ["INSERT INTO a VALUES ('x; y')"]),
    ("CREATE TABLE a (\n    x,\n    y\n);\n\n\n", ["CREATE TABLE a ( x, y )"]),
]


@pytest.mark.parametrize(("sql", "expected"), SPLITS)
def test_a_statement_ends_at_a_semicolon_that_ends_its_line(sql: str, expected: list[str]) -> None:
    """Semicolons inside a line end nothing, and what is only comments is no statement."""
    assert [normalised(step) for step in Migration(1, "x", sql).statements()] == expected
