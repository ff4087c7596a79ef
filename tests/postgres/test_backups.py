"""Databases that were dumped and restored, and stores that stay open while their database is set back."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.store.base import PutOp

from memstore import IndexMismatch, MemStore
from memstore.dialects.postgres_wide import TERMS_INDEX, VECTORS_INDEX
from tests.postgres.control import Server, run_controlled
from tests.postgres.databases import fill, found, fresh_database
from tests.postgres.losses import contents
from tests.postgres.test_wide import build
from tests.postgres.uses import INDEX, use, use_awaited

INDEXES = {"narrow": INDEX, "wide": {**INDEX, "exact_below": 0}}
OF_SCHEMA: tuple[str, ...] = ("--schema", "memory")
OF_DATABASE: tuple[str, ...] = ()
"""What is dumped, as pg_dump takes it."""
every_index = pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES.keys())


class Backups:
    """Dumps and restores databases of a server with the server's own programs.

    Args:
        server: The server.
        folder: Where dumps are kept.
    """

    def __init__(self, server: Server, folder: Path) -> None:
        self._bin = Path(server._handle.bin_path)
        self._file = folder / "dump"

    def dump(self, url: str, how: tuple[str, ...]) -> None:
        """Dump a database, or a schema of it."""
        subprocess.run([self._bin / "pg_dump", "-Fc", *how, "-f", self._file, "-d", url], check=True)

    def restore(self, url: str, *options: str) -> None:
        """Restore what was dumped; any error is one."""
        subprocess.run([self._bin / "pg_restore", "--exit-on-error", *options, "-d", url, self._file], check=True)

    def set_back(self, url: str) -> None:
        """Replace what is there by what was dumped."""
        self.restore(url, "--clean", "--if-exists", "--single-transaction")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Run a server whose programs are at hand."""
    with run_controlled() as server:
        yield server


@pytest.fixture
def backups(server: Server, tmp_path: Path) -> Backups:
    """Give the means to dump and to restore."""
    return Backups(server, tmp_path)


@pytest.fixture
def place(server: Server) -> Iterator[str]:
    """Make a database."""
    with fresh_database(server.url) as url:
        yield url


@pytest.fixture
def other(server: Server) -> Iterator[str]:
    """Make another database."""
    with fresh_database(server.url) as url:
        yield url


def rows_of(url: str) -> tuple[dict[str, list[Any]], set[Any]]:
    """Give all rows of the schema, and its indexes that may be used."""
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("SET search_path = memory, public")
        valid = raw.execute("SELECT indexrelid::regclass::text FROM pg_index WHERE indisvalid").fetchall()
        return contents(raw), {name for (name,) in valid if name.startswith("memstore")}


def numbers_of(url: str) -> list[Any]:
    """Give what could be taken for the same in two histories: the ids of items, and the versions of namespaces."""
    with psycopg.connect(url) as raw:
        ids = raw.execute("SELECT id, namespace_id FROM memory.memstore_items ORDER BY 1").fetchall()
        return [ids, raw.execute("SELECT id, version, texts FROM memory.memstore_namespaces ORDER BY 1").fetchall()]


def answers(store: MemStore) -> list[Any]:
    """Give all that a store says of what it holds, by every way that has a memory of its own."""
    said: list[Any] = [store.list_namespaces(limit=100), store.search((), limit=1000)]
    for namespace in store.list_namespaces(limit=100):
        said += [store.get(namespace, hit.key) for hit in store.search(namespace, limit=100)]
        said += [store.search(namespace, query="apple boat 7", limit=100)]
    for mode in ("hybrid", "semantic", "lexical"):
        said += [
            found(store, mode=mode),
            found(store, "new apple", mode=mode),
            found(store, filter={"n": 7}, mode=mode),
        ]
    return said


def asked_anew(url: str, index: dict[str, Any]) -> list[Any]:
    """Give what a store says that has no memory yet."""
    with MemStore.open(url, schema="memory", index=index) as store:
        return answers(store)


def write_on(store: MemStore, history: str) -> None:
    """Write so that two histories have as many transactions, versions and ids, and other items."""
    store.put(("n0",), "k0", {"text": f"new apple of {history}"})
    store.put(("n0",), f"k {history}", {"text": f"new boat of {history}"})
    store.put(("n1",), "k1", {"text": f"other {history}"})
    store.put((f"n {history}",), "k", {"text": f"new apple {history}"})
    store.batch([PutOp(("n2",), "k7", {"text": f"apple boat {history}", "n": 7}), PutOp(("n3",), "k8", None)])


class TestDumps:
    """What a dump holds."""

    @pytest.mark.parametrize("indexed", [False, True], ids=["plain", "with its indexes"])
    @pytest.mark.parametrize("how", [OF_SCHEMA, OF_DATABASE], ids=["schema", "database"])
    def test_what_is_restored_is_the_same(
        self, backups: Backups, place: str, other: str, how: tuple[str, ...], *, indexed: bool
    ) -> None:
        """Every row, time and score, and the indexes of wide scopes; the clock goes on where it was."""
        index = INDEXES["wide" if indexed else "narrow"]
        with MemStore.open(place, schema="memory", index=index, ttl={"default_ttl": 60}) as store:
            fill(store)
            store.put(("kept",), "k", {"text": "kept", "n": 10**17, "é": [None, 1.0]}, ttl=None)
            store.put(("words",), "k", {"text": "words"}, index=["$"])
            if indexed:
                build(store)
            before, clock = answers(store), store.stats().clock
        backups.dump(place, how)
        if how:
            with psycopg.connect(other, autocommit=True) as raw:
                raw.execute("CREATE EXTENSION vector")
        backups.restore(other)
        assert rows_of(other) == rows_of(place)
        assert ({TERMS_INDEX, VECTORS_INDEX} <= rows_of(other)[1]) == indexed
        with MemStore.open(other, schema="memory", index=index, ttl={"refresh_on_read": False}) as restored:
            assert answers(restored) == before
            assert restored.check().problems == ()
            assert restored.stats().clock == clock
            assert use(restored, "k") == [("k", 1.0)]
            assert restored.stats().clock == clock + 3
            assert restored.check().problems == ()


class TestSetBack:
    """A store that stays open while its database is set back: nothing it says is of the other history."""

    @every_index
    @pytest.mark.parametrize("kind", [OF_SCHEMA, OF_DATABASE], ids=["the schema", "pgvector's types too"])
    def test_what_was_undone_is_not_found(self, backups: Backups, place: str, index: dict[str, Any], kind: Any) -> None:
        """What it had searched before counts no more; a dump of the database brings types by other numbers."""
        with MemStore.open(place, schema="memory", index=index) as store:
            fill(store)
            first = answers(store)
            backups.dump(place, kind)
            write_on(store, "undone")
            assert answers(store) != first
            backups.set_back(place)
            assert answers(store) == first
            assert store.check().problems == ()
            write_on(store, "kept")
            assert answers(store) == asked_anew(place, index)

    @every_index
    @pytest.mark.parametrize("by", ["itself", "another"])
    def test_what_is_written_since_is_found(self, backups: Backups, place: str, index: dict[str, Any], by: str) -> None:
        """By itself or by another store, with the versions and ids of what was undone."""
        with MemStore.open(place, schema="memory", index=index) as store:
            fill(store)
            backups.dump(place, OF_SCHEMA)
            write_on(store, "undone")
            undone, once = answers(store), numbers_of(place)
            backups.set_back(place)
            if by == "itself":
                write_on(store, "kept")
            else:
                with MemStore.open(place, schema="memory", index=index) as another:
                    write_on(another, "kept")
            assert numbers_of(place) == once
            now = answers(store)
            assert now == asked_anew(place, index)
            assert now != undone
            assert "undone" not in str(now)
            assert use(store, "sync") == [("k", 1.0)]
            assert use_awaited(store, "async") == [("k3", 1.0)]
            assert store.check().problems == ()

    async def test_a_store_that_is_awaited(self, backups: Backups, place: str) -> None:
        """On an event loop whose connections were there before."""
        async with MemStore.from_conn_string(place, schema="memory", index=INDEX) as store:
            await store.abatch([PutOp(("a",), f"k{n}", {"text": f"apple {n}"}) for n in range(9)])
            await asyncio.to_thread(backups.dump, place, OF_SCHEMA)
            await store.aput(("a",), "k1", {"text": "pear"})
            assert [hit.key for hit in await store.asearch(("a",), query="pear", limit=1)] == ["k1"]
            await asyncio.to_thread(backups.set_back, place)
            assert (await store.asearch(("a",), query="apple 1", limit=1))[0].value == {"text": "apple 1"}
            await store.aput(("a",), "k2", {"text": "plum"})
            assert [hit.key for hit in await store.asearch(("a",), query="plum", limit=1)] == ["k2"]
            assert (await store.acheck()).problems == ()

    @every_index
    def test_to_before_its_first_text(self, backups: Backups, place: str, index: dict[str, Any]) -> None:
        """It finds nothing, and says that its index settings are gone; opened again, it works."""
        MemStore.open(place, schema="memory").close()
        backups.dump(place, OF_SCHEMA)
        with MemStore.open(place, schema="memory", index=index) as store:
            fill(store)
            assert found(store)
            with psycopg.connect(place, autocommit=True) as raw:
                raw.execute("DROP SCHEMA memory CASCADE")
            backups.restore(place)
            assert store.search((), limit=100) == found(store) == []
            with pytest.raises(IndexMismatch, match="open the store again"):
                fill(store)
            assert store.get(("n0",), "k0") is None
        with MemStore.open(place, schema="memory", index=index) as store:
            fill(store)
            assert found(store)[0][1] == "k7"
            assert store.check().problems == ()
