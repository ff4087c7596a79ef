"""Connections of savers on Postgres: pools, the caller's own, poolers, lost ones; schemas, and setups cut short."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row

from memstore import MemSaver, MemStore
from tests.conformance.concurrency import DEADLINE, run_together
from tests.conformance.saver_callers import SyncSaver, ids, to_checkpoint, to_config
from tests.conformance.saver_reports import count_graph
from tests.postgres.bouncer import SERVERS, run_bouncer
from tests.postgres.losses import count_connections, end_all
from tests.postgres.server import fresh_schema
from tests.postgres.uses import ASYNC, SYNC, AsyncGive, Give
from tests.support import Place

WAITING = "SELECT count(*) FROM pg_locks WHERE relation = 'checkpoints'::regclass AND NOT granted"
INDEX = "checkpoints_thread_id_idx"
LOOK_AT_INDEX = """
SELECT i.indisvalid, i.indisunique FROM pg_index i WHERE i.indexrelid = to_regclass(%s)"""
sync_given = pytest.mark.parametrize("give", SYNC.values(), ids=SYNC.keys())
async_given = pytest.mark.parametrize("give", ASYNC.values(), ids=ASYNC.keys())


def named(schema: str, size: int) -> dict[str, Any]:
    """Give the settings of a pool whose connections bear the schema's name."""
    return {"max_size": size, "kwargs": {"application_name": schema}}


def use(saver: MemSaver, thread: str) -> None:
    """Put, write, read, list, copy and delete."""
    config = saver.put(to_config(thread), to_checkpoint("1", {"a": ["x"], "b": "y"}), {"step": 1}, {"a": 1, "b": 1})
    saver.put_writes(config, [("a", thread), ("__error__", "e")], "task")
    child = to_checkpoint("2", {"a": ["x"], "b": "z"}, channel_versions={"a": 1, "b": 2})
    saver.put(config, child, {"step": 2}, {"b": 2})
    found = saver.get_tuple(to_config(thread))
    assert found is not None
    assert found.checkpoint == child
    assert ids(list(saver.list(to_config(thread), filter={"step": 1}))) == ["1"]
    saver.copy_thread(thread, f"copy of {thread}")
    saver.prune([f"copy of {thread}"])
    saver.delete_thread(f"copy of {thread}")


async def use_async(saver: MemSaver, thread: str) -> None:
    """Do the same awaited, with several calls at once."""
    config = await saver.aput(to_config(thread), to_checkpoint("1", {"a": ["x"]}), {"step": 1}, {"a": 1})
    writes = [saver.aput_writes(config, [("a", number)], f"task {number}") for number in range(4)]
    await asyncio.gather(*writes, *(saver.aget_tuple(config) for _ in range(4)))
    found = await saver.aget_tuple(to_config(thread))
    assert found is not None
    assert len(found.pending_writes or ()) == 4
    assert len([one async for one in saver.alist(to_config(thread))]) == 1


class TestPools:
    """Connections of memstore's own."""

    @pytest.mark.parametrize("awaited", [False, True], ids=["sync", "async"])
    def test_puts_use_the_whole_pool(
        self, url: str, schema: str, raw: psycopg.Connection[Any], *, awaited: bool
    ) -> None:
        """With eight connections and two hundred puts, eight wait for another's lock at once; then all are there."""

        async def put_all() -> None:
            puts = (saver.aput(to_config(f"t{number}"), to_checkpoint("1"), {}, {}) for number in range(200))
            await asyncio.gather(*puts)
            await saver.aclose()

        def put_each() -> None:
            with ThreadPoolExecutor(20) as threads:
                for number in range(200):
                    threads.submit(saver.put, to_config(f"t{number}"), to_checkpoint("1"), {}, {})

        with MemSaver.open(url, schema=schema, pool=named(schema, 8)) as saver, ThreadPoolExecutor(1) as thread:
            with raw.transaction():
                raw.execute("LOCK TABLE checkpoints IN EXCLUSIVE MODE")
                putting = thread.submit(lambda: asyncio.run(put_all()) if awaited else put_each())
                until = time.monotonic() + DEADLINE
                while raw.execute(WAITING).fetchone() != (8,):
                    assert time.monotonic() < until, "some connections of the pool are never used"
                    time.sleep(0.01)
            putting.result(DEADLINE)
        assert raw.execute("SELECT count(*), count(DISTINCT thread_id) FROM checkpoints").fetchone() == (200, 200)

    def test_lost_connections_are_replaced(self, url: str, schema: str, raw: psycopg.Connection[Any]) -> None:
        """The server ends them while they idle: every later call works, sync and async."""
        with MemSaver.open(url, schema=schema, pool=named(schema, 3)) as saver, asyncio.Runner() as runner:
            graph = count_graph(saver)
            for number in range(4):
                use(saver, f"sync {number}")
                runner.run(use_async(saver, f"async {number}"))
                assert graph.invoke({"n": number}, to_config("graph")) == {"n": number + 1}
                assert runner.run(graph.ainvoke({"n": number}, to_config("graph"))) == {"n": number + 1}
                assert count_connections(raw, schema) >= 2
                assert end_all(raw, schema) >= 2
            assert len(list(saver.list(to_config("graph")))) == 4 * 6
            runner.run(saver.aclose())

    def test_a_paused_list_outlives_its_connection(self, url: str, schema: str, raw: psycopg.Connection[Any]) -> None:
        """It holds none between two pages."""
        with MemSaver.open(url, schema=schema, pool=named(schema, 1)) as saver:
            for number in range(5):
                saver.put(to_config(), to_checkpoint(str(number)), {}, {})
            seen: list[str] = []
            for found in saver.list(to_config()):
                assert end_all(raw, schema) == (1 if not seen else 0)
                seen.append(found.checkpoint["id"])
            assert seen == list("43210")
            use(saver, "after")


class TestGiven:
    """Connections and pools of the caller's, as psycopg makes them unless it is told otherwise."""

    @sync_given
    @pytest.mark.parametrize(
        "options", [{}, {"autocommit": True}, {"row_factory": dict_row}], ids=["plain", "autocommit", "dicts"]
    )
    def test_a_new_database_is_set_up(
        self, url: str, schema: str, raw: psycopg.Connection[Any], give: Give, options: dict[str, Any]
    ) -> None:
        """In a transaction, on the caller's connection; what is put is seen by others at once."""
        with give(url, **options) as given:
            for how in (given, None):
                place, pool = (url, given) if how is None else (how, None)
                with MemSaver.open(place, schema=schema, pool=pool) as saver:
                    saver.setup()
                    use(saver, f"in {pool}")
                    assert raw.execute("SELECT count(*) FROM checkpoints").fetchone() == (2 if how else 4,)
                    run_together([partial(use, saver, f"thread {number}") for number in range(4)])
                    raw.execute("DELETE FROM checkpoints WHERE thread_id LIKE 'thread %'")
            assert not given.closed

    @async_given
    async def test_a_new_database_is_set_up_on_a_loop(self, url: str, schema: str, give: AsyncGive) -> None:
        """The same with what belongs to an event loop."""
        async with give(url) as given:
            async with MemSaver.from_conn_string(given, schema=schema) as saver:
                await use_async(saver, "t")
            saver = MemSaver.from_conn_string(given, schema=schema)
            await saver.setup()
            await use_async(saver, "u")
            await saver.aclose()
            assert not given.closed

    @sync_given
    def test_one_connection_serves_store_and_savers(self, url: str, schema: str, give: Give) -> None:
        """Eight threads at once, on savers of a store's and one of its own: no error, and nothing is lost."""
        with give(url) as given, MemStore.open(given, schema=schema) as store:
            savers = [store.saver() for _ in range(4)]

            def work(number: int) -> None:
                for step in range(5):
                    use(savers[number % 4], f"t{number} {step}")
                    store.put(("a",), f"{number} {step}", {"n": step})

            run_together([partial(work, number) for number in range(8)])
            assert len(store.search((), limit=100)) == 40
            assert len(savers[0].list_threads(100)) == 40

    def test_savers_may_share_a_connection(self, url: str, schema: str) -> None:
        """Each made by itself, by threads that know nothing of each other."""
        with psycopg.connect(url) as given:
            savers = [MemSaver.open(given, schema=schema) for _ in range(4)]
            try:
                run_together([partial(use, saver, f"t{number}") for number, saver in enumerate(savers)])
                assert len(savers[0].list_threads()) == 4
            finally:
                for saver in savers:
                    saver.close()


class TestPoolers:
    """PgBouncer in transaction mode, where no two transactions share a session."""

    @pytest.fixture
    def bouncer(self, url: str) -> Iterator[str]:
        """Run a PgBouncer of the test's own."""
        with run_bouncer(url) as through:
            yield through

    def test_nothing_prepared_is_missed(self, bouncer: str, schema: str) -> None:
        """More calls at once than there are sessions, each often enough to be prepared, sync and async."""

        def each(saver: MemSaver, number: int) -> None:
            for step in range(10):
                use(saver, f"sync {number} {step}")

        with MemSaver.open(bouncer, schema=schema, pool={"max_size": 2 * SERVERS}) as saver:
            works: list[Callable[[], object]] = [partial(each, saver, number) for number in range(2 * SERVERS)]
            run_together(works)
            asyncio.run(self.together(saver))
            assert len(saver.list_threads(1000)) == 10 * 2 * SERVERS + 10 * SERVERS

    @staticmethod
    async def together(saver: MemSaver) -> None:
        """Use it by several tasks at once."""
        for step in range(10):
            await asyncio.gather(*(use_async(saver, f"async {number} {step}") for number in range(SERVERS)))


class TestSchemas:
    """A schema for each tenant."""

    def test_schemas_are_apart(self, url: str, schema: str) -> None:
        """Savers in two schemas of one database see nothing of each other; both are made where they are missing."""
        with (
            fresh_schema(url) as other,
            MemSaver.open(url, schema=schema) as one,
            MemSaver.from_conn_string(url, schema=other) as two,
            MemStore.open(url, schema=other) as store,
        ):
            use(one, "t")
            assert list(two.list(None)) == []
            use(two, "u")
            assert [thread.thread_id for thread in one.list_threads()] == ["t"]
            assert [thread.thread_id for thread in store.saver().list_threads()] == ["u"]
            one.delete_thread("u")
            assert len(list(two.list(None))) == 2


class TestSetups:
    """Setups that were cut short."""

    @pytest.mark.parametrize("recorded", [6, 10], ids=["not gone on", "gone on"])
    def test_an_invalid_index_is_made_anew(
        self, location: Place, schema: str, raw: psycopg.Connection[Any], recorded: int
    ) -> None:
        """One that LangGraph's setup left behind, whether or not a later one has taken it for made."""
        sql: Any = (f'CREATE SCHEMA "{schema}"', f"CREATE UNIQUE INDEX CONCURRENTLY {INDEX} ON checkpoints (thread_id)")
        raw.execute(sql[0])
        with psycopg.connect(location.location, autocommit=True, row_factory=dict_row) as connection:
            connection.execute("SELECT set_config('search_path', %s, false)", [f'"{schema}"'])
            official = PostgresSaver(connection)
            official.setup()
            for number in range(2):
                official.put(to_config(), to_checkpoint(str(number), {"a": [1]}), {}, {"a": 1})
        raw.execute(f"DROP INDEX {INDEX}")
        with pytest.raises(psycopg.errors.UniqueViolation):
            raw.execute(sql[1])
        raw.execute("DELETE FROM checkpoint_migrations WHERE v >= %s", [recorded])
        assert raw.execute(LOOK_AT_INDEX, [INDEX]).fetchone() == (False, True)
        with MemSaver.open(location.location, **location.options) as saver:
            assert ids(SyncSaver(saver).list(to_config())) == ["1", "0"]
        assert raw.execute(LOOK_AT_INDEX, [INDEX]).fetchone() == (True, False)
        assert raw.execute("SELECT count(*) FROM checkpoint_migrations").fetchone() == (10,)
