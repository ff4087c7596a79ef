"""memstore beside LangGraph's own stores, in one process, on one workload, turn by turn.

Run `python -m benchmarks.stores` or `python benchmarks/stores.py`; see benchmarks/README.md for what is measured.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeVar

from langgraph.store.base import PutOp, SearchItem
from rich.progress import Progress

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import TIMES_HEAD, VALUES_HEAD, Timings, Values, in_turns, to_progress, to_table
from benchmarks.memory import ask_process, read_peak
from benchmarks.oracle import Asked, Oracle, Verdict, to_keys
from benchmarks.peers import MEMORY, MEMSTORE, SQLITE, SQLITE_WAL, Contestant, check_python
from benchmarks.workload import KINDS, Memory, Sizes, Workload, to_namespace

R = TypeVar("R")
_BATCH: Final = 500
"""Puts in one batch while the stores are filled."""
_LIMIT: Final = 10
_PAGES: Final = 5
_QUERIES: Final = 9
"""Queries made for each repeat; all searches together use fewer."""
_UNTIMED: Final = 5
"""Turns that are taken before a measure begins."""
_BLOCK: Final = b"\0" * 8192
_REDRAW: Final = 0.25
"""Seconds between two looks of the progress bar."""

_FILL = f"batch of {_BATCH} puts (filling)"
_COLD = "user search, cold"
_WARM = "user search, warm"
_FILTERED = "user search with a filter"
_AFTER_PUT = "user search after a put there"
_NEWEST = "user search without a query"
_PAGED = f"{_PAGES} pages of {_LIMIT}"


class Benchmark:
    """One run: the stores, what they hold and what was measured.

    Args:
        workload: What is put and asked.
        contestants: The stores, empty.
        progress: Where it is shown how far the run is.
    """

    def __init__(self, workload: Workload, contestants: Sequence[Contestant], progress: Progress) -> None:
        self.workload = workload
        self.timings = Timings(workload.lookup)
        self.values = Values()
        self._contestants = contestants
        self._durable = [contestant for contestant in contestants if contestant.durable]
        self._repeats = workload.sizes.repeats
        self._progress = progress
        self._asked: dict[str, list[Asked]] = {_PAGED: [], _WARM: []}
        self._shown_at = 0.0

    def run(self) -> None:
        """Take every measure: first those that only read what filled the stores, then those that change it."""
        self._fill()
        self._measure_disk()
        self._search_cold()
        self._search_warm(_WARM, {})
        self._search_warm(_FILTERED, {"filter": {"kind": KINDS[1]}})
        self._read()
        self._turn_pages()
        self._put()
        self._measure_memory()
        self._judge()

    def _fill(self) -> None:
        sizes = self.workload.sizes
        count = -(-sizes.items // _BATCH)
        for batch, contestant in in_turns(self._contestants, self._shown(_FILL, self.workload.batches(_BATCH), count)):
            self.timings.timed(_FILL, contestant, _to_batch(batch))
        for contestant in self._contestants:
            seconds = self.timings.total(_FILL, contestant.name)
            self.values.add("puts a second, filling", contestant.name, sizes.items / seconds)
        gc.collect()
        gc.freeze()  # or collecting what the workload and the stores hold by now shows up in any store's times

    def _measure_disk(self) -> None:
        for contestant in self._durable:
            contestant.close()  # copies the log into the database
            self.values.add("database, MB", contestant.name, contestant.bytes_on_disk / 10**6)
            contestant.open()

    def _search_cold(self) -> None:
        """Search namespaces that have not been searched since the stores were opened, one user after the other."""
        users = self.workload.pick_users(self._repeats + _UNTIMED)
        untimed = [(user, self.workload.next_query()) for user in users[:_UNTIMED]]
        for (user, query), contestant in in_turns(self._durable, untimed):
            _to_search(user, query)(contestant)
        for user, contestant, query in self._queried(_COLD, users[_UNTIMED:], self._durable):
            self.timings.timed(_COLD, contestant, _to_search(user, query))

    def _search_warm(self, measure: str, arguments: dict[str, Any]) -> None:
        """Search the namespace that was searched just before, with another query."""
        users = [self.workload.pick().user for _ in range(self._repeats)]
        before = {at: self.workload.next_query() for at in range(len(users))}
        for at, contestant, query in self._queried(measure, range(len(users)), self._contestants):
            _to_search(users[at], before[at], **arguments)(contestant)
            found = self.timings.timed(measure, contestant, _to_search(users[at], query, **arguments))
            if measure == _WARM:
                self._asked[_WARM].append(Asked(contestant.name, users[at], query, [to_keys(found)]))

    def _read(self) -> None:
        """Read without any query."""
        actions: dict[str, Callable[[Memory], Callable[[Contestant], object]]] = {
            "get": lambda memory: lambda there: there.store.get(memory.namespace, memory.key),
            _NEWEST: lambda memory: lambda there: there.store.search(memory.namespace, limit=_LIMIT),
            "list_namespaces(limit=100)": lambda _: lambda there: there.store.list_namespaces(limit=100),
        }
        for measure, to_action in actions.items():
            picked = [self.workload.pick() for _ in range(self._repeats + _UNTIMED)]
            for memory in picked[:_UNTIMED]:
                for contestant in self._contestants:
                    to_action(memory)(contestant)
            timed = self._shown(measure, picked[_UNTIMED:], self._repeats)
            for memory, contestant in in_turns(self._contestants, timed):
                self.timings.timed(measure, contestant, to_action(memory))

    def _turn_pages(self) -> None:
        """Read an answer page by page, all pages of one query together."""
        users = self.workload.pick_users(self._repeats)
        for user, contestant, query in self._queried(_PAGED, users, self._contestants):
            pages = self.timings.timed(_PAGED, contestant, _to_pages(user, query))
            self._asked[_PAGED].append(Asked(contestant.name, user, query, [to_keys(page) for page in pages]))

    def _put(self) -> None:
        """Put one item at a time, and search where one was put."""
        prepared = [
            (self.workload.next_spare(), *self._two_queries(), self.workload.next_change())
            for _ in range(self._repeats)
        ]
        timed, repeats = self.timings.timed, self._shown("one put", prepared, self._repeats)
        with self._contestants[0].path.with_name("block").open("wb", buffering=0) as file:
            for (new, before, query, changed), contestant in in_turns(self._contestants, repeats):
                _to_search(new.user, before)(contestant)
                timed("put, new item", contestant, _to_put(new))
                timed(_AFTER_PUT, contestant, _to_search(new.user, query))
                timed("put, replacing an item", contestant, _to_put(changed))
                start = time.perf_counter()
                file.write(_BLOCK)
                os.fsync(file.fileno())
                self.timings.add("8 KiB written and synced", "(the disk)", time.perf_counter() - start)

    def _measure_memory(self) -> None:
        self.values.add("peak resident, MB", "(this process, with the workload)", read_peak())
        for contestant in self._durable:
            contestant.close()
            resident = ask_process(contestant, self.workload.sizes)
            self.values.add("peak resident serving all users, MB", contestant.name, resident.peak)
            grown = resident.peak - resident.before
            self.values.add("the same, beyond an empty store's, MB", contestant.name, grown)

    def _judge(self) -> None:
        """Compare answers with the oracle's, now that memory is measured."""
        oracle = Oracle(self.workload)
        for contestant in self._contestants:
            pages = self._judged(oracle, contestant, _PAGED, _PAGES * _LIMIT)
            self.values.add(f"{_PAGED}: share of right items", contestant.name, _mean([part.right for part in pages]))
            self.values.add(f"{_PAGED}: gaps", contestant.name, sum(part.gaps for part in pages))
            self.values.add(f"{_PAGED}: duplicates", contestant.name, sum(part.duplicates for part in pages))
            recalled = self._judged(oracle, contestant, _WARM, _LIMIT)
            self.values.add(f"recall@{_LIMIT}", contestant.name, _mean([part.right for part in recalled]))

    def _two_queries(self) -> tuple[str, str]:
        return self.workload.next_query(), self.workload.next_query()

    def _judged(self, oracle: Oracle, contestant: Contestant, measure: str, due: int) -> list[Verdict]:
        return [oracle.judge(asked, due) for asked in self._asked[measure] if asked.store == contestant.name]

    def _queried(
        self, measure: str, users: Iterable[int], contestants: Sequence[Contestant]
    ) -> Iterator[tuple[int, Contestant, str]]:
        """Give each user to each store with a query of its own that is new to all."""
        queried = [(user, self.workload.next_query()) for user in users]
        for (user, query), contestant in in_turns(contestants, self._shown(measure, queried, len(queried))):
            yield user, contestant, query

    def _shown(self, measure: str, repeats: Iterable[R], count: int) -> Iterator[R]:
        """Pass repeats on and move the bar between them; a bar with a thread of its own would disturb what is timed."""
        task = self._progress.add_task(measure, total=count)
        for repeat in repeats:
            yield repeat
            self._progress.advance(task)
            if time.monotonic() > self._shown_at + _REDRAW:
                self._progress.refresh()
                self._shown_at = time.monotonic()
        self._progress.refresh()


def _to_search(user: int, query: str, **arguments: Any) -> Callable[[Contestant], list[SearchItem]]:
    return lambda there: there.store.search(to_namespace(user), query=query, limit=_LIMIT, **arguments)


def _to_pages(user: int, query: str) -> Callable[[Contestant], list[list[SearchItem]]]:
    pages = [_to_search(user, query, offset=page * _LIMIT) for page in range(_PAGES)]
    return lambda there: [page(there) for page in pages]


def _to_batch(memories: Sequence[Memory]) -> Callable[[Contestant], object]:
    ops = [PutOp(memory.namespace, memory.key, memory.value) for memory in memories]
    return lambda there: there.store.batch(ops)


def _to_put(memory: Memory) -> Callable[[Contestant], None]:
    return lambda there: there.store.put(memory.namespace, memory.key, memory.value)


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stores", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--users", type=int, default=1_000, help="namespaces (default %(default)s)")
    parser.add_argument("--memories", type=int, default=100, help="memories of each user (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=400, help="times each measure is taken (default %(default)s)")
    parser.add_argument("--dims", type=int, default=384, help="length of a vector (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="what chance begins with (default %(default)s)")
    parser.add_argument("--folder", type=Path, help="where a folder for the databases is made, and deleted at the end")
    parser.add_argument("--quick", action="store_true", help="60 users, 20 memories, 50 repeats: only to try it out")
    given = parser.parse_args(arguments)
    if given.quick:
        given.users, given.memories, given.repeats = 60, 20, 50
    return given


def describe(sizes: Sizes) -> str:
    """Say what is compared, on what, and what the figures leave out."""
    stores = f"memstore {version('memstore')}, langgraph-checkpoint-sqlite {version('langgraph-checkpoint-sqlite')}"
    return (
        f"{sizes.users:,} users x {sizes.memories:,} memories = {sizes.items:,} items, {sizes.dims} dims, "
        f"{sizes.repeats} repeats, seed {sizes.seed}\n\n"
        f"{stores}, langgraph-checkpoint {version('langgraph-checkpoint')}, SQLite {sqlite3.sqlite_version}, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}\n\n"
        "The stores take turns. Vectors are looked up, and the time of that is taken off all of them. Every query is\n"
        "new to every store, so that no kept query vector helps. Every database syncs every commit. A cold search is\n"
        "the first of a namespace since the store was opened; a warm one follows another search of that namespace, as\n"
        "does the one after a put.\n"
    )


def main() -> None:
    """Run every measure and print the tables."""
    given = parse()
    check_python()
    sizes = Sizes(given.users, given.memories, given.repeats, given.dims, given.seed)
    print(describe(sizes))
    load = _read_load()
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(dir=given.folder, prefix="memstore-bench-")))
        progress = opened.enter_context(to_progress())
        task = progress.add_task("texts and vectors", total=1)
        progress.refresh()
        workload = Workload(sizes, _QUERIES * sizes.repeats, 2 * sizes.repeats)
        progress.advance(task)
        contestants = [
            opened.enter_context(Contestant(name, folder, workload.lookup, sizes.dims))
            for name in (MEMSTORE, SQLITE, SQLITE_WAL, MEMORY)
        ]
        benchmark = Benchmark(workload, contestants, progress)
        benchmark.run()
    print(to_table(TIMES_HEAD, benchmark.timings.rows()))
    print()
    print(to_table(VALUES_HEAD, benchmark.values.rows()))
    print(f"\nLoad of the machine before and after: {load}, {_read_load()}")


def _read_load() -> str:
    return f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown"


if __name__ == "__main__":
    main()
