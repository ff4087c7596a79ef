"""Connections and pools of the caller's, more calls than connections, event loops and closing."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest
from pgvector.psycopg import register_vector, register_vector_async
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from psycopg_pool import AsyncNullConnectionPool, ConnectionPool, NullConnectionPool

from memstore import DatabaseError, InvalidConfig, MemStore
from tests.conformance.concurrency import DEADLINE, run_together
from tests.postgres.losses import count_connections
from tests.postgres.uses import ASYNC, INDEX, SYNC, AsyncGive, Give, given_async_pool, use, use_async, use_awaited

SETTINGS = "SELECT name, setting FROM pg_settings WHERE name <> 'application_name' ORDER BY 1"

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "autocommit": {"autocommit": True},
    "rows as dicts": {"row_factory": dict_row},
    "never prepared": {"prepare_threshold": None, "autocommit": True},
    "always prepared": {"prepare_threshold": 0},
}
sync_given = pytest.mark.parametrize("give", SYNC.values(), ids=SYNC.keys())
async_given = pytest.mark.parametrize("give", ASYNC.values(), ids=ASYNC.keys())
every_options = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())


def place_of(how: str, url: str, schema: str, given: Any) -> MemStore:
    """Name a store on what a caller gave, as the location or beside it."""
    if how == "location":
        return MemStore.from_conn_string(given, schema=schema, index=INDEX)
    return MemStore.from_conn_string(url, schema=schema, pool=given, index=INDEX)


def forget(stores: list[MemStore]) -> None:
    """Let stores go that nothing else refers to."""
    stores.clear()
    gc.collect()


class TestGivenSync:
    """A sync connection or pool of the caller's."""

    @sync_given
    @every_options
    def test_every_call_works(self, url: str, schema: str, give: Give, options: dict[str, Any]) -> None:
        """From any thread and any event loop, whether it is the location or beside it; it stays open and as it was."""
        with give(url, **options) as given:
            for how in ("location", "pool"):
                with place_of(how, url, schema, given) as store:
                    assert use(store, "sync") == [("k", 1.0)]
                    assert use_awaited(store, "async") == [("k3", 1.0)]
                    run_together([partial(use, store, f"thread {number}") for number in range(4)])
                    assert store.check().problems == ()
                    assert url.partition("host=")[2] in repr(store)
            assert not given.closed

    def test_a_connection_is_left_as_it_was(self, url: str, schema: str) -> None:
        """Its autocommit, rows, codecs, prepared statements' threshold and settings; it is idle, and works."""
        with psycopg.connect(url, row_factory=dict_row) as connection:
            register_vector(connection)
            connection.execute(f'SET search_path = "{schema}", public')
            connection.execute("SET statement_timeout = '77s'")
            connection.commit()
            before = self._look_at(connection)
            with MemStore.open(connection, schema=schema, index=INDEX) as store:
                assert use(store, "k") == [("k", 1.0)]
                assert self._look_at(connection) == before
                connection.execute("DROP TABLE memstore_items CASCADE")
                connection.commit()
                with pytest.raises(DatabaseError):  # an error leaves it so too
                    store.put(("a",), "k", {"text": "text"})
            assert self._look_at(connection) == before

    @staticmethod
    def _look_at(connection: psycopg.Connection[Any]) -> Any:
        """Give what can be seen of a connection."""
        vector = connection.execute("SELECT '[1,2]'::vector AS v, '{1}'::int8[] AS n, '{}'::json AS j").fetchone()
        settings = connection.execute(SETTINGS).fetchall()
        locks = connection.execute("SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory'").fetchone()
        connection.commit()
        state = connection.autocommit, connection.row_factory, connection.prepare_threshold, connection.isolation_level
        assert connection.info.transaction_status == TransactionStatus.IDLE
        return repr(vector), settings, locks, state

    @pytest.mark.parametrize("autocommit", [False, True])
    def test_a_transaction_of_the_caller_s_is_left_alone(self, url: str, schema: str, *, autocommit: bool) -> None:
        """Calls are refused while it runs, sync and async, and nothing of it changes; afterwards they work."""
        with (
            psycopg.connect(url, autocommit=autocommit) as connection,
            MemStore.open(connection, schema=schema, index=INDEX) as store,
        ):
            store.put(("a",), "k", {"text": "text"})
            with connection.transaction():
                connection.execute("CREATE TEMPORARY TABLE mine (n int)")
                for call in (
                    lambda: store.get(("a",), "k"),
                    lambda: store.put(("a",), "k", {"text": "other"}),
                    lambda: store.search((), query="text"),
                    lambda: asyncio.run(store.adelete(("a",), "k")),
                ):
                    with pytest.raises(DatabaseError, match="in a transaction of its own"):
                        call()
                assert connection.info.transaction_status == TransactionStatus.INTRANS
                assert connection.autocommit == autocommit
                connection.execute("INSERT INTO mine VALUES (1)")
            assert connection.execute("SELECT n FROM mine").fetchall() == [(1,)]
            connection.rollback()
            assert [item.value for item in store.search(("a",))] == [{"text": "text"}]

    def test_a_connection_that_was_closed_says_so(self, url: str, schema: str) -> None:
        """Nobody replaces it: the error comes at once."""
        with psycopg.connect(url) as connection, MemStore.open(connection, schema=schema, index=INDEX) as store:
            connection.close()
            calls: list[Callable[[], object]] = [
                lambda: store.get(("a",), "k"),
                lambda: asyncio.run(store.aput(("a",), "k", {"text": "x"})),
            ]
            for call in calls:
                began = time.monotonic()
                with pytest.raises(DatabaseError, match=r"closed|lost"):
                    call()
                assert time.monotonic() - began < 3

    def test_a_pool_without_a_limit_works(self, url: str, schema: str) -> None:
        """One that opens a connection for every use, as behind a pooler."""
        with NullConnectionPool(url, open=True) as pool:
            store = MemStore.from_conn_string(pool, schema=schema, index=INDEX)
            used = list[Any]()
            thread = threading.Thread(target=lambda: used.extend(use(store, "k")), daemon=True)
            thread.start()
            thread.join(10)
            assert used == [("k", 1.0)]
            store.close()

    def test_a_pool_that_is_not_open_says_so(self, url: str, schema: str) -> None:
        """It is the caller's to open, and the store is not closed."""
        pool = ConnectionPool(url, open=False)
        with pytest.raises((DatabaseError, InvalidConfig), match="pool"), MemStore.open(pool, schema=schema):
            pass


class TestGivenAsync:
    """An async connection or pool of the caller's, which belongs to one event loop."""

    @async_given
    @every_options
    async def test_every_call_works(self, url: str, schema: str, give: AsyncGive, options: dict[str, Any]) -> None:
        """Awaited, or from another thread; it stays open."""
        async with give(url, **options) as given:
            for how in ("location", "pool"):
                async with place_of(how, url, schema, given) as store:
                    assert await use_async(store, "async") == [("k3", 1.0)]
                    assert await asyncio.to_thread(use, store, "sync") == [("k", 1.0)]
                    assert (await store.acheck()).problems == ()
            assert not given.closed

    async def test_a_connection_is_left_as_it_was(self, url: str, schema: str) -> None:
        """Its autocommit, rows, codecs and settings; it is idle."""

        async def look() -> Any:
            cursor = await connection.execute("SELECT '[1,2]'::vector AS v, '{1}'::int8[] AS n, '{}'::json AS j")
            vector = repr(await cursor.fetchone())
            settings = await (await connection.execute(SETTINGS)).fetchall()
            await connection.commit()
            assert connection.info.transaction_status == TransactionStatus.IDLE
            return vector, settings, connection.autocommit, connection.row_factory, connection.prepare_threshold

        async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as connection:
            await register_vector_async(connection)
            await connection.execute("SET statement_timeout = '77s'")
            await connection.commit()
            before = await look()
            async with MemStore.from_conn_string(connection, schema=schema, index=INDEX) as store:
                assert await use_async(store, "k") == [("k3", 1.0)]
                tasks = [asyncio.ensure_future(store.aput(("a",), str(n), {"text": "text"})) for n in range(9)]
                await asyncio.sleep(0.01)
                for task in tasks:
                    task.cancel()  # and whatever they were at
                await asyncio.gather(*tasks, return_exceptions=True)
            assert await look() == before

    async def test_a_transaction_of_the_caller_s_is_left_alone(self, url: str, schema: str) -> None:
        """Calls are refused while it runs, and nothing of it changes; afterwards they work."""
        async with await psycopg.AsyncConnection.connect(url) as connection:
            async with MemStore.from_conn_string(connection, schema=schema, index=INDEX) as store:
                await store.aput(("a",), "k", {"text": "text"})
                async with connection.transaction():
                    await connection.execute("CREATE TEMPORARY TABLE mine (n int)")
                    for call in (store.aget(("a",), "k"), store.aput(("a",), "k", {"text": "other"})):
                        with pytest.raises(DatabaseError, match="in a transaction of its own"):
                            await call
                    assert connection.info.transaction_status == TransactionStatus.INTRANS
                    await connection.execute("INSERT INTO mine VALUES (1)")
                assert [item.value for item in await store.asearch(("a",))] == [{"text": "text"}]
            assert await (await connection.execute("SELECT n FROM mine")).fetchall() == [(1,)]

    async def test_a_pool_without_a_limit_works(self, url: str, schema: str) -> None:
        """One that opens a connection for every use, as behind a pooler."""
        async with AsyncNullConnectionPool(url, open=False) as pool:
            store = MemStore.from_conn_string(pool, schema=schema, index=INDEX)
            assert await asyncio.wait_for(use_async(store, "k"), 10) == [("k3", 1.0)]
            await store.aclose()

    async def test_its_own_loop_is_not_blocked(self, url: str, schema: str) -> None:
        """A sync call there could never end: it is refused with the way out."""
        async with given_async_pool(url) as pool, MemStore.from_conn_string(pool, schema=schema, index=INDEX) as store:
            with pytest.raises(InvalidConfig, match="await"):
                store.get(("a",), "k")
            assert await store.aget(("a",), "k") is None


class TestManyCalls:
    """More calls than connections."""

    async def test_they_take_turns_however_many(self, url: str, schema: str) -> None:
        """A pool gives up on who waits too long; memstore's calls do not: `timeout` is for servers out of reach."""
        pool = {"max_size": 4}
        async with MemStore.from_conn_string(url, schema=schema, index=INDEX, pool=pool) as store:
            await store.aput(("a",), "k", {"text": "text"})
            puts = [store.aput(("puts", str(n % 50)), f"k{n}", {"n": n}, index=False) for n in range(600)]
            gets = [store.aget(("a",), "k") for _ in range(60_000)]
            results = await asyncio.gather(*gets, *puts)
            assert sum(item is not None for item in results) == 60_000
            assert len(await store.asearch(("puts",), limit=1000)) == 600

    def test_threads_take_turns_too(self, url: str, schema: str) -> None:
        """Forty threads on two connections."""
        with MemStore.open(url, schema=schema, index=INDEX, pool={"max_size": 2, "timeout": 0.5}) as store:

            def work(number: int) -> None:
                for step in range(40):
                    store.put(("t", str(number)), f"k{step}", {"n": step}, index=False)
                    assert store.get(("t", str(number)), f"k{step}") is not None

            run_together([partial(work, number) for number in range(40)])
            assert len(store.search(("t",), limit=10_000)) == 1_600


class TestNothingIsLeft:
    """What remains of stores that were closed, and of event loops that ended."""

    def test_closing_leaves_no_connection_and_no_thread(
        self, url: str, schema: str, raw: psycopg.Connection[Any]
    ) -> None:
        """Closed sync or async, after threads and event loops have used it."""
        before = set(threading.enumerate())
        pool = {"min_size": 3, "kwargs": {"application_name": schema}}
        closings: list[Callable[[MemStore], None]] = [MemStore.close, lambda store: asyncio.run(store.aclose())]
        for close in closings:
            store = MemStore.open(url, schema=schema, index=INDEX, pool=pool)
            run_together([partial(use, store, f"thread {number}") for number in range(4)])
            use_awaited(store, "async")
            close(store)
            self._wait_for_none(raw, schema)
            assert {thread for thread in set(threading.enumerate()) - before if thread.is_alive()} == set()

    def test_ended_event_loops_leave_no_connections(self, url: str, schema: str, raw: psycopg.Connection[Any]) -> None:
        """A loop that ended takes its connections with it when the next one comes, or the store closes."""
        pool = {"min_size": 2, "kwargs": {"application_name": schema}}
        with MemStore.open(url, schema=schema, index=INDEX, pool=pool) as store:
            own = count_connections(raw, schema)
            for number in range(6):
                assert use_awaited(store, f"loop {number}") == [("k3", 1.0)]
                assert count_connections(raw, schema) <= own + 12
            threads = [threading.Thread(target=use_awaited, args=(store, f"thread {number}")) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(DEADLINE)
        self._wait_for_none(raw, schema)

    def test_a_forgotten_store_leaves_no_connections(self, url: str, schema: str, raw: psycopg.Connection[Any]) -> None:
        """It warns, and lets them go."""
        stores = [MemStore.open(url, schema=schema, index=INDEX, pool={"kwargs": {"application_name": schema}})]
        use(stores[0], "k")
        with pytest.warns(ResourceWarning, match="unclosed"):
            forget(stores)
        self._wait_for_none(raw, schema)

    @staticmethod
    def _wait_for_none(raw: psycopg.Connection[Any], schema: str) -> None:
        """Wait until the server has noticed that all connections are closed."""
        deadline = time.monotonic() + 5
        while (left := count_connections(raw, schema)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert left == 0
