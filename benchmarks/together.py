"""Fifty tasks at once: searches of single users and puts, on an event loop and on threads.

Embedding is a look-up here too, but its time cannot be taken off where calls overlap.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Final, TypeAlias

from langgraph.store.base import BaseStore
from langgraph.store.postgres import AsyncPostgresStore, PoolConfig

from benchmarks.oracle import Question
from benchmarks.peers import Contestant, Setup
from benchmarks.postgres_peers import POSTGRES, to_index
from benchmarks.run import Run
from benchmarks.workload import Memory, to_namespace

TASKS: Final = 50
_OPS: Final = 8
"""Of each task in one round, one after the other."""
_REPEATS: Final = 100
"""There is one round for so many repeats of other measures, and two at least."""
_POOL: Final = 10
"""Connections of memstore's own pool at most, and so of the other's."""
_STORES: Final = 7
"""That put at most: no two put the same memory."""
_KINDS: Final = {"searches": 0.0, "puts": 1.0, "both": 0.5}
"""What the tasks do, by the share of puts."""

Op: TypeAlias = Question | Memory
Jobs: TypeAlias = Sequence[Sequence[Op]]
Serve: TypeAlias = Callable[[Jobs], None]


@dataclass(frozen=True, slots=True)
class Server:
    """A store under so many tasks."""

    name: str
    serve: Serve


def count_rounds(repeats: int) -> int:
    """Say how many rounds there are."""
    return max(2, repeats // _REPEATS)


def count_needs(repeats: int) -> tuple[int, int]:
    """Say how many queries and spares all this takes."""
    ops = count_rounds(repeats) * TASKS * _OPS * len(_KINDS)
    return ops, ops * _STORES


def serve_together(run: Run, url: str, setup: Setup) -> None:
    """Let all stores serve the same tasks in turns."""
    rates: dict[tuple[str, str], list[float]] = {}
    with asyncio.Runner() as runner:
        peers = AsyncExitStack()
        try:
            servers = [
                *_to_servers(run.contestants, runner),
                *runner.run(_open_peers(peers, runner, url, setup)),
            ]
            rounds = count_rounds(run.repeats)
            for kind, share in _KINDS.items():
                for at in run.shown(f"{TASKS} tasks, {kind}", range(rounds), rounds):
                    asked = _ask(run, share)
                    for server in servers if at % 2 == 0 else reversed(servers):
                        jobs = _to_jobs(run, asked)
                        start = time.perf_counter()
                        server.serve(jobs)
                        rate = TASKS * _OPS / (time.perf_counter() - start)
                        rates.setdefault((kind, server.name), []).append(rate)
        finally:
            runner.run(peers.aclose())
    for (kind, name), each in rates.items():
        run.values.add(f"{TASKS} tasks, {kind}: ops a second", name, median(each))


def _to_servers(contestants: Sequence[Contestant], runner: asyncio.Runner) -> Iterator[Server]:
    for contestant in contestants:
        if contestant.kind != POSTGRES:
            yield Server(contestant.name, partial(_await_in, runner, contestant.store))
        yield Server(f"{contestant.name}, threads", partial(_serve_threads, contestant.store))


async def _open_peers(opened: AsyncExitStack, runner: asyncio.Runner, url: str, setup: Setup) -> list[Server]:
    """Open LangGraph's store for event loops, as it comes and with a pool."""
    servers = []
    pools: dict[str, PoolConfig | None] = {"": None, f", pool of {_POOL}": PoolConfig(min_size=1, max_size=_POOL)}
    for name, pool in pools.items():
        opening = AsyncPostgresStore.from_conn_string(url, index=to_index(setup), pool_config=pool)
        store = await opened.enter_async_context(opening)
        servers.append(Server(f"Async{POSTGRES}{name}", partial(_await_in, runner, store)))
    return servers


def _await_in(runner: asyncio.Runner, store: BaseStore, jobs: Jobs) -> None:
    runner.run(_await_all(store, jobs))


async def _await_all(store: BaseStore, jobs: Jobs) -> None:
    async def work(ops: Sequence[Op]) -> None:
        for op in ops:
            await _ado(store, op)

    async with asyncio.TaskGroup() as group:
        for ops in jobs:
            group.create_task(work(ops))


def _ado(store: BaseStore, op: Op) -> Coroutine[Any, Any, Any]:
    if isinstance(op, Memory):
        return store.aput(op.namespace, op.key, op.value)
    return store.asearch(to_namespace(op.user or 0), query=op.query.text, limit=op.limit)


def _serve_threads(store: BaseStore, jobs: Jobs) -> None:
    def work(ops: Sequence[Op]) -> None:
        for op in ops:
            if isinstance(op, Memory):
                store.put(op.namespace, op.key, op.value)
            else:
                op.ask(store)

    with ThreadPoolExecutor(TASKS) as pool:
        list(pool.map(work, jobs))


def _ask(run: Run, share: float) -> list[Question | None]:
    """Make the questions of one round; None stands for a put."""
    asked: list[Question | None] = []
    for at in range(TASKS * _OPS):
        query = run.workload.next_query()
        is_put = int((at + 1) * share) > int(at * share)
        asked.append(None if is_put else Question(query, query.source.user))
    return asked


def _to_jobs(run: Run, asked: Sequence[Question | None]) -> Jobs:
    """Give each task its part; every store has memories of its own to put."""
    ops = [run.workload.next_spare() if question is None else question for question in asked]
    return [ops[start : start + _OPS] for start in range(0, len(ops), _OPS)]
