"""Stores in one schema of a Postgres server, sync and async, and raw access to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from memstore.dialects.postgres_text import quote
from tests.postgres.server import fresh_schema
from tests.support import AsyncCaller, Clock, OpenStore, Place, SyncCaller, open_postgres


@pytest.fixture
def schema(url: str) -> Iterator[str]:
    """Name a schema of the test's own."""
    with fresh_schema(url) as name:
        yield name


@pytest.fixture
def location(url: str, schema: str) -> Place:
    """Say where the test's database is, as a user does."""
    return Place(url, {"schema": schema})


@pytest.fixture(params=["sync", "async"])
def open_store(
    request: pytest.FixtureRequest, url: str, schema: str, clock: Clock, runner: asyncio.Runner
) -> Iterator[OpenStore]:
    """Open stores on one schema; all are closed in the end."""
    opened: list[SyncCaller] = []

    def open_(*, index: Any = None, ttl: Any = None) -> SyncCaller:
        store = open_postgres(url, schema, clock, index, ttl)
        opened.append(SyncCaller(store) if request.param == "sync" else AsyncCaller(store, runner))
        return opened[-1]

    yield open_
    for caller in opened:
        caller.close()


@pytest.fixture
def raw(url: str, schema: str) -> Iterator[psycopg.Connection[Any]]:
    """Reach the schema past the store; tables exist once a store was opened."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"SET search_path = {quote(schema)}, public")
        yield connection


class PostgresControl:
    """The `Control` of a schema."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def hold(self) -> None:
        """Lock the table against writes until the transaction ends."""
        self._connection.execute("BEGIN")
        self._connection.execute("LOCK TABLE memstore_items IN SHARE MODE")

    def let_go(self) -> None:
        """End it."""
        self._connection.rollback()

    def refuse(self, key: str) -> None:
        """Make a trigger; its condition takes no parameters."""
        self._connection.execute("""
            CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'refused'; END $$""")
        condition = f"FOR EACH ROW WHEN (NEW.key = '{key}') EXECUTE FUNCTION refuse()"
        self._connection.execute(f"CREATE TRIGGER refuse BEFORE INSERT ON memstore_items {condition}")


@pytest.fixture
def control(url: str, schema: str) -> Iterator[PostgresControl]:
    """Control the schema; tables exist once a store was opened."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"SET search_path = {quote(schema)}, public")
        yield PostgresControl(connection)
