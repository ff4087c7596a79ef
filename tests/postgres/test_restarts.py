"""A server that dies under load and comes back: what was acknowledged is there, and calls go on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from memstore import DatabaseError, MemStore
from memstore.backends.postgres_running import Cursor
from tests.conformance.concurrency import DEADLINE, run_together
from tests.postgres.control import Server, run_controlled
from tests.support import WordEmbeddings

INDEX = {"embed": WordEmbeddings(8), "fields": ["text"]}
CRASHES = 3


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Run a server whose commits reach the disk."""
    with run_controlled(durable=True) as server:
        yield server


class Load:
    """What callers put and were told, while the server dies now and then.

    Args:
        server: The server.
        name: The first label of every namespace.
    """

    def __init__(self, server: Server, name: str) -> None:
        self.name = name
        self.acknowledged: dict[int, list[str]] = {}
        """Keys whose put was acknowledged, by the number of the caller; each has a namespace."""
        self.refused: list[DatabaseError] = []
        self.over = False
        self._server = server

    def crash(self) -> None:
        """Let the server die several times, and callers work between and for a while after."""
        try:
            for _ in range(CRASHES):
                self._wait_for_puts(100)
                self._server.crash_and_start()
            self._wait_for_puts(100)
        finally:
            self.over = True

    def put(self, store: MemStore, number: int) -> None:
        """Put and search until the load is over."""
        own, keys = (self.name, str(number)), self.acknowledged.setdefault(number, [])
        for step in range(1_000_000):
            if self.over:
                return
            try:
                store.put(own, f"k{step}", {"text": f"text {number} {step}"})
                keys.append(f"k{step}")
                store.search(own, query=f"text {number}", limit=1)
            except DatabaseError as error:
                self.refused.append(error)

    async def aput(self, store: MemStore, number: int) -> None:
        """Put and search until the load is over."""
        own, keys = (self.name, str(number)), self.acknowledged.setdefault(number, [])
        for step in range(1_000_000):
            if self.over:
                return
            try:
                await store.aput(own, f"k{step}", {"text": f"text {number} {step}"})
                keys.append(f"k{step}")
                await store.asearch(own, query=f"text {number}", limit=1)
            except DatabaseError as error:
                self.refused.append(error)

    def assert_kept(self) -> None:
        """Assert that all that was acknowledged is there, each written once, and that no caller saw an error."""
        with MemStore.open(self._server.url, index=INDEX) as store:
            for number, keys in self.acknowledged.items():
                assert keys
                there = {item.key for item in store.search((self.name, str(number)), limit=1_000_000)}
                assert set(keys) - there == set()
            assert store.check().problems == ()
        assert self.refused == [], f"{len(self.refused)} calls failed"
        with psycopg.connect(self._server.url) as raw:
            rows = raw.execute("SELECT encode(path, 'escape'), version FROM memstore_namespaces").fetchall()
        written = {path.replace("\\000", "/"): version for path, version in rows}
        assert {number: written[f"{self.name}/{number}/"] for number in self.acknowledged} == {
            number: len(keys) for number, keys in self.acknowledged.items()
        }

    def _wait_for_puts(self, count: int) -> None:
        wanted = sum(map(len, self.acknowledged.values())) + count
        deadline = time.monotonic() + DEADLINE
        while sum(map(len, self.acknowledged.values())) < wanted:
            assert time.monotonic() < deadline, "calls do not succeed again"
            time.sleep(0.01)


def test_threads_go_on_when_the_server_comes_back(server: Server) -> None:
    """Eight threads put and search while it dies three times: nothing is lost, nothing is written twice."""
    load = Load(server, "threads")
    with MemStore.open(server.url, index=INDEX) as store:
        run_together([load.crash, *(partial(load.put, store, number) for number in range(8))])
    load.assert_kept()


def test_event_loops_go_on_when_the_server_comes_back(server: Server) -> None:
    """So do fifty tasks."""
    load = Load(server, "tasks")

    async def work() -> None:
        async with MemStore.from_conn_string(server.url, index=INDEX) as store:
            crashing = asyncio.to_thread(load.crash)
            await asyncio.gather(crashing, *(load.aput(store, number) for number in range(50)))

    asyncio.run(work())
    load.assert_kept()


def test_a_restart_between_calls_goes_unseen(server: Server) -> None:
    """Idle connections are replaced, of threads and of an event loop."""

    async def use(store: MemStore, key: str) -> None:
        await store.aput(("idle",), key, {"text": key})
        assert await store.aget(("idle",), key) is not None

    with MemStore.open(server.url, index=INDEX) as store, asyncio.Runner() as runner:
        for number in range(2):
            store.put(("idle",), f"k{number}", {"text": "a text"})
            runner.run(use(store, f"a{number}"))
            server.crash_and_start()
        assert store.get(("idle",), "k1") is not None
        runner.run(use(store, "after"))
        runner.run(store.aclose())


def test_a_commit_that_died_with_the_server_is_done_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server, come back, knows nothing of the transaction: its number is still to be given."""
    lose_a_commit(server, monkeypatch, others=0)


def test_a_commit_that_died_with_the_server_is_not_taken_for_another_s(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server, come back, gives the transaction's number to the next writer, whose commit is none of ours."""
    lose_a_commit(server, monkeypatch, others=1)


def lose_a_commit(server: Server, monkeypatch: pytest.MonkeyPatch, *, others: int) -> None:
    """Have the server die before a COMMIT, and its number taken by others, or not yet; the put is there all the same.

    Transactions of which nothing has reached the disk when a server dies never were, and their numbers are given anew.
    """
    server.configure(wal_writer_delay="10s")
    execute, number = Cursor.execute, list[int]()
    armed = threading.Event()

    def execute_or_crash(cursor: Cursor, query: Any, params: Any = None, **options: Any) -> Cursor:
        if query == "COMMIT" and armed.is_set():
            armed.clear()
            row = execute(cursor, "SELECT pg_current_xact_id()::text::int8").fetchone()
            assert row is not None
            number.append(row[0])
            server.crash_and_start()
            take_numbers(server.url, number[0], others)
        return execute(cursor, query, params, **options)

    with MemStore.open(server.url, index=INDEX) as store:
        store.put(("commit", str(others)), "before", {"text": "a text"})
        monkeypatch.setattr(Cursor, "execute", execute_or_crash)
        armed.set()
        store.put(("commit", str(others)), "k", {"text": "a text"})
        assert number
        assert store.get(("commit", str(others)), "k") is not None


def take_numbers(url: str, number: int, others: int) -> None:
    """Commit transactions until one has a number; fewer than `others` come to it where there are none."""
    if others:
        with psycopg.connect(url, autocommit=True) as connection:
            row: Any = (0,)
            while row[0] < number:
                row = connection.execute("SELECT pg_current_xact_id()::text::int8").fetchone()
            assert row[0] == number, "the server had kept the number"
