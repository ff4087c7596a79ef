"""Stores on one SQLite file, sync and async, and raw access to it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support import AsyncCaller, Clock, OpenStore, Place, SyncCaller, open_sqlite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Name the test's database file."""
    return tmp_path / "memories.db"


@pytest.fixture
def location(path: Path) -> Place:
    """Name the test's database as a user does."""
    return Place(str(path))


@pytest.fixture(params=["sync", "async"])
def open_store(request: pytest.FixtureRequest, path: Path, clock: Clock, runner: asyncio.Runner) -> Iterator[OpenStore]:
    """Open stores on one file; all are closed in the end."""
    opened: list[SyncCaller] = []

    def open_(*, index: Any = None, ttl: Any = None) -> SyncCaller:
        store = open_sqlite(path, clock, index, ttl)
        opened.append(SyncCaller(store) if request.param == "sync" else AsyncCaller(store, runner))
        return opened[-1]

    yield open_
    for caller in opened:
        caller.close()


@pytest.fixture
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """Reach the file past the store; tables exist once a store was opened."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


class SqliteControl:
    """The `Control` of a SQLite file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def hold(self) -> None:
        """Begin to write."""
        self._connection.execute("BEGIN IMMEDIATE")

    def let_go(self) -> None:
        """Write nothing."""
        self._connection.rollback()

    def refuse(self, key: str) -> None:
        """Make a trigger; its condition takes no parameters."""
        condition = f"WHEN NEW.key = '{key}' BEGIN SELECT RAISE(ABORT, 'refused'); END"
        self._connection.execute(f"CREATE TRIGGER refuse BEFORE INSERT ON memstore_items {condition}")


@pytest.fixture
def control(path: Path) -> Iterator[SqliteControl]:
    """Control the file; tables exist once a store was opened."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        yield SqliteControl(connection)
