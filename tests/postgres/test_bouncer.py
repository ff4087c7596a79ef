"""Stores that reach their server through PgBouncer in transaction mode, where no two transactions share a session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest
from langgraph.store.base import GetOp, ListNamespacesOp, Op, PutOp, SearchOp
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from memstore import MemStore
from memstore.dialects.postgres_wide import TERMS_INDEX, VECTORS_INDEX
from tests.conformance.concurrency import run_together
from tests.postgres.bouncer import SERVERS, run_bouncer
from tests.postgres.test_wide import FIRST, WIDE, build
from tests.postgres.uses import INDEX, use, use_async, use_awaited
from tests.support import AsyncCaller, Clock, OpenStore, SyncCaller, keys, open_postgres

CALLERS = 4 * SERVERS
POOL = {"max_size": 2 * SERVERS}


@pytest.fixture
def bouncer(url: str) -> Iterator[str]:
    """Run a PgBouncer of the test's own before the server: what a session is left with, others would meet."""
    with run_bouncer(url) as through:
        yield through


@pytest.fixture
def store(bouncer: str, schema: str) -> Iterator[MemStore]:
    """Open a store through it, in a schema that is made so."""
    with MemStore.open(bouncer, schema=schema, index=INDEX, pool=POOL) as store:
        yield store


@pytest.fixture(params=["sync", "async"])
def open_store(
    request: pytest.FixtureRequest, bouncer: str, schema: str, clock: Clock, runner: asyncio.Runner
) -> Iterator[OpenStore]:
    """Open stores through it, called sync and async."""
    opened: list[SyncCaller] = []

    def open_(*, index: Any = None, ttl: Any = None) -> SyncCaller:
        store = open_postgres(bouncer, schema, clock, index, ttl)
        opened.append(SyncCaller(store) if request.param == "sync" else AsyncCaller(store, runner))
        return opened[-1]

    yield open_
    for caller in opened:
        caller.close()


def sessions_of(connections: list[psycopg.Connection[Any]]) -> list[int]:
    """Tell on which of the server's processes a transaction of each connection runs."""
    rows = [connection.execute("SELECT pg_backend_pid()").fetchone() for connection in connections]
    return [row[0] for row in rows if row is not None]


def test_what_is_prepared_is_lost(bouncer: str) -> None:
    """What this file tests is true of it: sessions are shared, and who prepares statements meets an error."""
    with psycopg.connect(bouncer, autocommit=True) as one, psycopg.connect(bouncer, autocommit=True) as other:
        one.prepare_threshold = other.prepare_threshold = 0
        assert len(set(sessions_of([one]))) == 1
        with pytest.raises(psycopg.errors.DuplicatePreparedStatement):
            sessions_of([other])


class TestCalls:
    """Every method, alone and with many at once."""

    def test_every_method_works(self, open_store: OpenStore) -> None:
        """Often enough that statements would be prepared."""
        caller = open_store(index=INDEX, ttl={"default_ttl": 60})
        for turn in range(8):
            at, key = ("a", str(turn % 2)), f"k{turn}"
            ops: list[Op] = [PutOp(at, key, {"text": f"text {turn}", "n": turn}), PutOp(at, "gone", {"text": "gone"})]
            caller.batch(ops)
            caller.delete(at, "gone")
            item = caller.get(at, key)
            assert item is not None
            assert item.value["n"] == turn
            asked: list[Op] = [GetOp(at, key), SearchOp(("a",), filter={"n": turn}), ListNamespacesOp()]
            got, found, listed = caller.batch(asked)
            assert got == item
            assert keys(found) == [key]
            assert at in listed
            assert keys(caller.search(at, query=f"text {turn}", limit=1)) == [key]
        assert caller.stats().items == 8
        assert caller.check(repair=True).problems == ()

    def test_reads_refresh_and_sweeps_delete(self, open_store: OpenStore, clock: Clock) -> None:
        """Times to live go on as they do without it."""
        caller = open_store(index=INDEX, ttl={"default_ttl": 10})
        caller.put(("a",), "read", {"text": "read"})
        caller.put(("a",), "left", {"text": "left"})
        for _ in range(6):
            clock.pass_minutes(4)
            assert caller.get(("a",), "read") is not None
            assert keys(caller.search(("a",), query="read", limit=1)) == ["read"]
            assert caller.search(("a",), query="left", filter={"text": "left"}, refresh_ttl=False) is not None
        assert caller.sweep() == 1
        assert keys(caller.search(("a",))) == ["read"]

    def test_more_threads_than_the_server_has_sessions(self, store: MemStore) -> None:
        """All take their turns, and each finds what it put."""
        found: dict[str, list[Any]] = {}

        def work(name: str) -> None:
            for _ in range(5):
                found[name] = use(store, name)

        names = [f"thread {number}" for number in range(CALLERS)]
        run_together([partial(work, name) for name in names])
        assert found == {name: [("k", 1.0)] for name in names}
        assert store.check().problems == ()

    async def test_more_tasks_than_the_server_has_sessions(self, store: MemStore) -> None:
        """The same on one event loop, beside threads."""
        names = [f"task {number}" for number in range(CALLERS)]
        threads = [asyncio.to_thread(use, store, f"thread {number}") for number in range(SERVERS)]
        found = await asyncio.gather(*(use_async(store, name) for name in names), *threads)
        assert found == [[("k3", 1.0)]] * CALLERS + [[("k", 1.0)]] * SERVERS
        assert (await store.acheck()).problems == ()

    def test_many_write_in_one_namespace(self, store: MemStore) -> None:
        """Locks are let go with each transaction, whichever session it had."""

        def work(number: int) -> None:
            for step in range(5):
                store.put(("shared",), f"{number} {step}", {"text": f"text {number} {step}"})

        run_together([partial(work, number) for number in range(CALLERS)])
        assert len(store.search(("shared",), query="text", limit=1000)) == 5 * CALLERS
        assert store.stats().clock == 5 * CALLERS

    def test_nothing_is_left_in_a_session(self, bouncer: str, store: MemStore) -> None:
        """No prepared statement, lock or setting: others use the session next."""
        work = [partial(use, store, f"thread {number}") for number in range(CALLERS)]
        run_together([*work, partial(use_awaited, store, "loop")])
        seen: set[int] = set()
        connections = [psycopg.connect(bouncer, prepare_threshold=None) for _ in range(SERVERS)]
        try:
            for connection in connections:  # each is in a transaction, and so on a session of its own
                left = connection.execute(
                    """SELECT pg_backend_pid(), (SELECT count(*) FROM pg_prepared_statements),
                    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
                    coalesce(current_setting('memstore.token', true), ''), current_setting('hnsw.ef_search', true)"""
                ).fetchone()
                assert left is not None
                seen.add(left[0])
                assert left[1:4] == (0, 0, "")
                assert left[4] in (None, "40")
        finally:
            for connection in connections:
                connection.close()
        assert len(seen) == SERVERS


class TestSetup:
    """Making what is not there through it."""

    def test_many_open_an_empty_schema(self, bouncer: str, schema: str) -> None:
        """Threads and event loops that open a store each: one makes the tables, all work."""

        def work(number: int) -> None:
            with MemStore.from_conn_string(bouncer, schema=schema, index=INDEX, pool=POOL) as store:
                assert use(store, f"thread {number}") == [("k", 1.0)]

        async def awork() -> None:
            async with MemStore.from_conn_string(bouncer, schema=schema, index=INDEX, pool=POOL) as store:
                assert await use_async(store, "loop") == [("k3", 1.0)]

        run_together([*(partial(work, number) for number in range(5)), lambda: asyncio.run(awork())])
        with MemStore.open(bouncer, schema=schema) as store:
            assert store.check().problems == ()
            assert store.stats().items == 8


class TestWide:
    """Wide searches, and the making of their indexes."""

    def test_the_indexes_are_made_and_used(
        self, bouncer: str, schema: str, raw: psycopg.Connection[Any], runner: asyncio.Runner
    ) -> None:
        """Beside other calls; what is set for a search is set where it runs."""
        with MemStore.open(bouncer, schema=schema, index={**INDEX, **WIDE}, pool=POOL) as store:
            store.batch([PutOp((f"n{n % 5}",), f"k{n}", {"text": f"apple boat {n}"}) for n in range(60)])
            run_together([partial(build, store), *(partial(use, store, f"thread {n}") for n in range(SERVERS))])
            made = raw.execute("SELECT indexrelid::regclass::text FROM pg_index WHERE indisvalid").fetchall()
            assert {(VECTORS_INDEX,), (TERMS_INDEX,)} <= set(made)

            def search(number: int) -> list[str]:
                return keys(store.search((), query=f"apple boat {number}", mode="semantic", limit=FIRST))

            async def asearch(number: int) -> list[str]:
                hits = await store.asearch((), query=f"apple boat {number}", mode="semantic", limit=FIRST)
                return keys(hits)

            async def many() -> list[list[str]]:
                return list(await asyncio.gather(*map(asearch, range(CALLERS))))

            with MemStore.open(bouncer, schema=schema, index=INDEX) as exact:
                expected = [
                    keys(exact.search((), query=f"apple boat {n}", mode="semantic", limit=FIRST))
                    for n in range(CALLERS)
                ]
            assert [search(number) for number in range(CALLERS)] == expected
            assert runner.run(many()) == expected
            runner.run(store.aclose())

    def test_one_session_is_enough(self, url: str, schema: str, caplog: pytest.LogCaptureFixture) -> None:
        """Where clients share a single one no index is made, which the log says, and calls get their turn."""
        with (
            run_bouncer(url, servers=1) as through,
            MemStore.open(through, schema=schema, index={**INDEX, **WIDE}) as store,
        ):
            store.batch([PutOp((f"n{n % 5}",), f"k{n}", {"text": f"apple boat {n}"}) for n in range(60)])
            for number in range(3):
                assert use(store, f"k{number}") == [("k", 1.0)]
                assert len(store.search((), query="apple boat", limit=100)) == 60 + number + 1
                calls: Any = store._calls
                if (thread := calls._wide._thread) is not None:
                    thread.join(30)
            assert store.stats().index_bytes == 0
        assert caplog.text.count("one session of the server") == 1


class TestGivenPools:
    """Pools of the caller's that lead through it; psycopg prepares from the fifth use on unless told otherwise."""

    @pytest.mark.parametrize("kwargs", [{"prepare_threshold": None}, {}], ids=["never prepared", "plain"])
    def test_nothing_is_prepared(self, bouncer: str, schema: str, kwargs: dict[str, Any]) -> None:
        """Nothing that memstore does leaves a statement in a session."""
        with (
            ConnectionPool(bouncer, kwargs=kwargs, min_size=SERVERS, max_size=2 * SERVERS, open=True) as pool,
            MemStore.open(pool, schema=schema, index=INDEX) as store,
        ):

            def work(number: int) -> None:
                for step in range(6):
                    assert use(store, f"{number} {step}") == [("k", 1.0)]

            run_together([partial(work, number) for number in range(CALLERS)])

    @pytest.mark.parametrize("kwargs", [{"prepare_threshold": None}, {}], ids=["never prepared", "plain"])
    async def test_nothing_is_prepared_awaited(self, bouncer: str, schema: str, kwargs: dict[str, Any]) -> None:
        """The same for event loops."""
        sizes: dict[str, Any] = {"min_size": SERVERS, "max_size": 2 * SERVERS, "open": False}
        async with (
            AsyncConnectionPool(bouncer, kwargs=kwargs, **sizes) as pool,
            MemStore.from_conn_string(pool, schema=schema, index=INDEX) as store,
        ):
            for step in range(3):
                found = await asyncio.gather(*(use_async(store, f"{n} {step}") for n in range(CALLERS)))
                assert found == [[("k3", 1.0)]] * CALLERS
