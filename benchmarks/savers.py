"""memstore's checkpointer beside LangGraph's own, on SQLite and on one Postgres server, call by call and in turns.

Run `python -m benchmarks.savers` or `python benchmarks/savers.py`; see benchmarks/README.md for what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sqlite3
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psycopg
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, uuid6
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from benchmarks.measure import to_percentiles, to_progress, to_table
from benchmarks.server import describe_server, make_database, run_server, weigh
from memstore import MemSaver

MESSAGES: Final = 20
POOL: Final = 8
AT_ONCE: Final = 200
LATENCY: Final = 0.01
"""Seconds that the server takes over each checkpoint, in the measure that says so."""
WARM: Final = 8
"""Puts before each turn is timed, on average."""
STEPS: Final = 200
CONSTANT: Final = 100_000
"""Bytes of the channel that never changes."""
_KB: Final = 1_000
_MB: Final = 10**6
_SLOW: Final = f"""
CREATE FUNCTION take_time() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_sleep({LATENCY}); RETURN NEW; END $$;
CREATE TRIGGER take_time BEFORE INSERT ON checkpoints FOR EACH ROW EXECUTE FUNCTION take_time()"""


@dataclass(frozen=True, slots=True)
class Peer:
    """A checkpointer under measure."""

    name: str
    saver: BaseCheckpointSaver[Any]


@dataclass(frozen=True, slots=True)
class Pair:
    """memstore's checkpointer and LangGraph's, of one kind."""

    kind: str
    peers: tuple[Peer, Peer]


# what is stored -------------------------------------------------------------------------------------------------------


def to_messages(count: int) -> list[Any]:
    """Make the messages of a conversation, of about 200 characters each."""
    kinds = (HumanMessage, AIMessage)
    return [kinds[at % 2](content=f"message {at}: " + "words and more words " * 9, id=f"m{at}") for at in range(count)]


def to_checkpoint(saver: BaseCheckpointSaver[Any], values: dict[str, Any], before: Checkpoint | None) -> Checkpoint:
    """Make a checkpoint in which the last channel changed, or all of them where none is before it."""
    versions = dict(before["channel_versions"]) if before else {}
    for channel in list(values)[-1:] if before else values:
        versions[channel] = saver.get_next_version(versions.get(channel), None)
    return {
        "v": 4,
        "id": str(uuid6()),
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": {"agent": dict(versions)},
        "updated_channels": None,
    }


def to_config(thread_id: str | None = None) -> Any:
    """Name a thread."""
    return {"configurable": {"thread_id": thread_id or str(uuid.uuid4()), "checkpoint_ns": ""}}


METADATA: Final[Any] = {"source": "loop", "step": 1, "parents": {}}


# opening --------------------------------------------------------------------------------------------------------------


@contextmanager
def open_sync(folder: Path, url: str) -> Iterator[list[Pair]]:
    """Open the sync checkpointers."""
    with ExitStack() as stack:
        official = sqlite3.connect(folder / "official.db", check_same_thread=False)
        stack.enter_context(closing(official))
        pool: Any = ConnectionPool(
            to_schema(url, "official"),
            max_size=POOL,
            open=False,
            kwargs={"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row},
        )
        stack.enter_context(pool)
        postgres = PostgresSaver(pool)
        postgres.setup()
        ours = stack.enter_context(MemSaver.open(folder / "memstore.db"))
        ours_postgres = stack.enter_context(MemSaver.open(url, schema="memstore", pool={"max_size": POOL}))
        yield [
            Pair("SQLite", (Peer("memstore", ours), Peer("SqliteSaver", SqliteSaver(official)))),
            Pair("Postgres", (Peer("memstore", ours_postgres), Peer("PostgresSaver", postgres))),
        ]


@asynccontextmanager
async def open_async(folder: Path, url: str) -> AsyncIterator[list[Pair]]:
    """Open the async checkpointers."""
    async with AsyncExitStack() as stack:
        sqlite = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(folder / "aofficial.db")))
        pool: Any = AsyncConnectionPool(
            to_schema(url, "aofficial"),
            max_size=POOL,
            open=False,
            kwargs={"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row},
        )
        await stack.enter_async_context(pool)
        postgres = AsyncPostgresSaver(pool)
        await postgres.setup()
        ours = await stack.enter_async_context(MemSaver.from_conn_string(folder / "amemstore.db"))
        own = MemSaver.from_conn_string(url, schema="amemstore", pool={"max_size": POOL})
        ours_postgres = await stack.enter_async_context(own)
        yield [
            Pair("SQLite", (Peer("memstore", ours), Peer("AsyncSqliteSaver", sqlite))),
            Pair("Postgres", (Peer("memstore", ours_postgres), Peer("AsyncPostgresSaver", postgres))),
        ]


def to_schema(url: str, schema: str) -> str:
    """Make a schema, and give a URL that leads there."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}".encode())
    return f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{schema}"


# measures -------------------------------------------------------------------------------------------------------------


async def ask(peer: Peer, call: str, *arguments: Any, is_async: bool) -> Any:
    """Call a checkpointer."""
    if is_async:
        return await getattr(peer.saver, "a" + call)(*arguments)
    return getattr(peer.saver, call)(*arguments)


async def warm_up(pair: Pair, puts: int, *, is_async: bool) -> None:
    """Write until the logs of both databases have their full length: while a log grows, each commit takes longer."""
    for peer in pair.peers:
        checkpoint = None
        config = to_config("warm-up")
        for _ in range(puts):
            checkpoint = to_checkpoint(peer.saver, {"messages": to_messages(MESSAGES)}, checkpoint)
            put = (config, checkpoint, METADATA, checkpoint["channel_versions"])
            await ask(peer, "put", *put, is_async=is_async)
        await ask(peer, "delete_thread", "warm-up", is_async=is_async)


async def measure_calls(pair: Pair, repeats: int, advance: Callable[[], None], *, is_async: bool) -> list[list[str]]:
    """Time put, put_writes and get_tuple of a conversation that grows by a message, turn by turn."""
    seconds: dict[tuple[str, str], list[float]] = {}
    before: dict[str, Checkpoint] = {}
    configs = {peer.name: to_config() for peer in pair.peers}
    for repeat in range(repeats):
        for peer in pair.peers if repeat % 2 == 0 else reversed(pair.peers):
            values = {"user": "ada", "context": {"locale": "en"}, "messages": to_messages(MESSAGES)}
            checkpoint = to_checkpoint(peer.saver, values, before.get(peer.name))
            changed = (
                {"messages": checkpoint["channel_versions"]["messages"]} if repeat else checkpoint["channel_versions"]
            )
            writes = [("messages", to_messages(2)), ("branch:to:tools", None)]

            async def timed(call: str, *arguments: Any, peer: Peer = peer) -> Any:
                start = time.perf_counter()
                answer = await ask(peer, call, *arguments, is_async=is_async)
                seconds.setdefault((call, peer.name), []).append(time.perf_counter() - start)
                return answer

            config = await timed("put", configs[peer.name], checkpoint, METADATA, changed)
            await timed("put_writes", config, writes, str(uuid.uuid4()), "~__pregel_pull, agent")
            found = await timed("get_tuple", to_config(config["configurable"]["thread_id"]))
            if found is None or len(found.checkpoint["channel_values"]["messages"]) != MESSAGES:
                raise AssertionError(f"{peer.name} did not give back what was put")
            configs[peer.name], before[peer.name] = config, checkpoint
        advance()
    kind = f"{pair.kind}, {'async' if is_async else 'sync'}"
    return to_rows(kind, pair, seconds)


def to_rows(kind: str, pair: Pair, seconds: dict[tuple[str, str], list[float]]) -> list[list[str]]:
    """Lay out the times of calls, with memstore's part of its peer's."""
    laid = []
    for call in dict.fromkeys(call for call, _ in seconds):
        ours, theirs = (to_percentiles(seconds[call, peer.name]) for peer in pair.peers)
        times = [f"{1e3 * part:.2f}" for times in (ours, theirs) for part in times]
        laid.append([call, kind, pair.peers[1].name, *times, f"{ours[0] / theirs[0]:.2f}"])
    return laid


async def measure_together(pair: Pair, rounds: int) -> tuple[float, float]:
    """Time many puts that are gathered, each into a thread of its own; give the median seconds of both."""
    seconds: dict[str, list[float]] = {peer.name: [] for peer in pair.peers}
    for turn in range(rounds):
        for peer in pair.peers if turn % 2 == 0 else reversed(pair.peers):
            puts = []
            for _ in range(AT_ONCE):
                checkpoint = to_checkpoint(peer.saver, {"messages": to_messages(2)}, None)
                put = (to_config(), checkpoint, METADATA, checkpoint["channel_versions"])
                puts.append(peer.saver.aput(*put))
            start = time.perf_counter()
            await asyncio.gather(*puts)
            seconds[peer.name].append(time.perf_counter() - start)
    ours, theirs = (median(seconds[peer.name]) for peer in pair.peers)
    return ours, theirs


def measure_sizes(pair: Pair, weigh_peer: Callable[[str], float]) -> list[list[str]]:
    """Write a thread of many steps with a channel that does not change; count its bytes, and what is left of it."""
    rows = []
    for peer in pair.peers:
        config, checkpoint, log = to_config("long"), None, list[str]()
        draw = random.Random(0)
        context = {"document": draw.randbytes(CONSTANT // 2).hex()}
        for step in range(STEPS):
            log = [*log, draw.randbytes(_KB // 2).hex()]
            checkpoint = to_checkpoint(peer.saver, {"context": context, "log": log}, checkpoint)
            versions = checkpoint["channel_versions"]
            config = peer.saver.put(config, checkpoint, METADATA, {"log": versions["log"]} if step else versions)
        rows.append([f"{STEPS} steps", pair.kind, peer.name, f"{weigh_peer(peer.name):.1f}"])
        if isinstance(peer.saver, MemSaver):
            peer.saver.prune(["long"])
            peer.saver.compact()
            rows.append(["the same, pruned and compacted", pair.kind, peer.name, f"{weigh_peer(peer.name):.1f}"])
    return rows


def measure_listings(pair: Pair, repeats: int) -> list[list[str]]:
    """Time a listing of the 200 checkpoints of a thread, each with its pending writes."""
    seconds: dict[tuple[str, str], list[float]] = {}
    configs = {}
    for peer in pair.peers:
        config, checkpoint = to_config(), None
        configs[peer.name] = to_config(config["configurable"]["thread_id"])
        for step in range(STEPS):
            checkpoint = to_checkpoint(peer.saver, {"messages": to_messages(MESSAGES)}, checkpoint)
            config = peer.saver.put(config, checkpoint, {**METADATA, "step": step}, checkpoint["channel_versions"])
            peer.saver.put_writes(config, [("messages", "a write")], str(uuid.uuid4()))
    for repeat in range(repeats):
        for peer in pair.peers if repeat % 2 == 0 else reversed(pair.peers):
            for call, filter_ in (("list", None), ("list with a filter", {"step": STEPS // 2})):
                start = time.perf_counter()
                found = list(peer.saver.list(configs[peer.name], filter=filter_))
                seconds.setdefault((call, peer.name), []).append(time.perf_counter() - start)
                if len(found) != (1 if filter_ else STEPS):
                    raise AssertionError(f"{peer.name} listed {len(found)} checkpoints")
    return to_rows(f"{pair.kind}, sync", pair, seconds)


# all of it ------------------------------------------------------------------------------------------------------------


async def run_all(folder: Path, url: str, repeats: int) -> None:
    """Take every measure, and print the tables."""
    calls: list[list[str]] = []
    with to_progress() as progress, open_sync(folder, url) as pairs:
        task = progress.add_task("calls", total=4 * repeats)

        def advance() -> None:
            progress.advance(task)
            progress.refresh()

        for pair in pairs:
            await warm_up(pair, WARM * repeats, is_async=False)
            calls += await measure_calls(pair, repeats, advance, is_async=False)
            calls += measure_listings(pair, max(3, repeats // 20))
        together: list[list[str]] = []
        async with open_async(folder, url) as apairs:
            for pair in apairs:
                await warm_up(pair, WARM * repeats, is_async=True)
                calls += await measure_calls(pair, repeats, advance, is_async=True)
            rounds = max(3, repeats // 40)
            together += [[pair.kind, "", *spell(await measure_together(pair, rounds))] for pair in apairs]
            for schema in ("aofficial", "amemstore"):
                with psycopg.connect(to_schema(url, schema), autocommit=True) as connection:
                    connection.execute(_SLOW.encode())
            slow = await measure_together(apairs[1], 3)
            together.append([apairs[1].kind, f"{1e3 * LATENCY:.0f} ms for each checkpoint", *spell(slow)])
    sizes = measure_fresh(folder, url)
    head = ["call", "on", "peer", "memstore p50 ms", "p95", "peer p50 ms", "p95", "memstore / it"]
    print(to_table(head, calls))
    print(f"\n{AT_ONCE} puts at once, {POOL} connections on Postgres; seconds\n")
    print(to_table(["on", "server", "memstore", "LangGraph's async saver", "memstore / it"], together))
    print(f"\n{STEPS} steps, a channel of {CONSTANT // _KB} KB that stays, and a list that grows by 1 KB a step\n")
    print(to_table(["thread", "on", "saver", "MB"], sizes))


def measure_fresh(folder: Path, url: str) -> list[list[str]]:
    """Measure sizes, in databases of their own."""
    place = folder / "sizes"
    place.mkdir()
    with make_database(url) as own, open_sync(place, own) as (sqlite, postgres):
        names = {"memstore": "memstore.db", "SqliteSaver": "official.db"}

        def weigh_file(name: str) -> float:
            path = place / names[name]
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return path.stat().st_size / _MB

        def weigh_schema(name: str) -> float:
            with psycopg.connect(own, autocommit=True) as connection:
                connection.execute("VACUUM")
            schema = "memstore" if name == "memstore" else "official"
            return weigh(own, schema)["tables and indexes, MB"]

        return measure_sizes(sqlite, weigh_file) + measure_sizes(postgres, weigh_schema)


def spell(seconds: tuple[float, float]) -> list[str]:
    """Spell two times and their ratio."""
    ours, theirs = seconds
    return [f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.2f}"]


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200, help="turns of each call")
    parser.add_argument("--folder", type=Path, help="where the databases are made")
    parser.add_argument("--dsn", help="a Postgres server that is there")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder)))
        server = options.dsn or stack.enter_context(run_server(options.folder))
        url = stack.enter_context(make_database(server))
        print(f"SQLite {sqlite3.sqlite_version}; {describe_server(url)}\n", flush=True)
        asyncio.run(run_all(folder, url, options.repeats))


if __name__ == "__main__":
    main()
