"""What searches of users cost while others write, and how many threads, tasks and processes get through together.

Run `python -m benchmarks.concurrency`; see benchmarks/README.md for what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from langgraph.store.base import BaseStore, PutOp
from rich.progress import Progress

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import spell, to_percentiles, to_progress, to_table
from benchmarks.oracle import Question
from benchmarks.peers import HYBRID, MEMSTORE, OPENERS, SQLITE_WAL, Opener, Setup
from benchmarks.postgres_peers import POSTGRES, to_opener
from benchmarks.scale_process import Given
from benchmarks.server import describe_server, make_database, run_server, settle
from benchmarks.stores import read_load, spell_version
from benchmarks.workload import Sizes, Workload, make_corpus
from benchmarks.writes import BATCH

_MEMORIES: Final = 100
"""Of each user."""
_LIMIT: Final = 10
_ACTIVE: Final = 40
"""Users who search."""
_THREADS: Final = 8
_TASKS: Final = 50
_PROCESSES: Final = 4
_PROGRAM: Final = "import sys; from benchmarks import concurrency; getattr(concurrency, sys.argv[1])(*sys.argv[2:])"
_HEAD: Final = ["measure", *(f"{part} {unit}" for part in ("p50", "p95") for unit in ("ms", "of quiet"))]
_PACKAGES: Final = (
    "memstore",
    "numpy",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
)


@dataclass(slots=True)
class Bench:
    """One store under measure.

    Attributes:
        name: What it is called in the tables.
        store: The store, filled.
        workload: What is asked and put.
        repeats: Searches of each measure.
        progress: Where it is shown how far it is.
        shared: The database, and the mode in which another process opens it; None where none can.
        times: Seconds of searches, by measure.
        rates: Operations a second, by measure.
    """

    name: str
    store: BaseStore
    workload: Workload
    repeats: int
    progress: Progress
    shared: tuple[str, str] | None
    times: dict[str, list[float]] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)

    def search(self, measure: str) -> None:
        """Time searches of users, one after the other."""
        task = self.progress.add_task(f"{self.name}: {measure}", total=self.repeats)
        seconds = self.times.setdefault(measure, [])
        for question in self.ask(self.repeats):
            start = time.perf_counter()
            question.ask(self.store)
            seconds.append(time.perf_counter() - start)
            self.progress.advance(task)
        self.progress.refresh()

    def ask(self, count: int) -> list[Question]:
        """Make questions of some users, each of another query."""
        return [Question(self.workload.next_query(), at % _ACTIVE, _LIMIT) for at in range(count)]

    def rate(self, measure: str, work: Callable[[], None], count: int) -> None:
        """Time work of so many operations, where the store does such work."""
        start = time.perf_counter()
        works = True
        try:
            work()
        except* NotImplementedError:
            works = False
        if works:
            self.rates[measure] = count / (time.perf_counter() - start)


def measure(bench: Bench) -> None:
    """Take every measure of a store that there is for it."""
    bench.search("warming up")
    bench.times.clear()
    bench.search("quiet")
    with writing(bench.store, bench.workload):
        bench.search(f"beside a thread that writes batches of {BATCH}")
    if bench.shared is not None:
        with writing_apart(*bench.shared, bench.workload):
            bench.search(f"beside a process that writes batches of {BATCH}")
    count = bench.repeats
    ask_all = partial(run_threads, bench)
    bench.rate("searches, 1 thread", partial(ask_all, bench.ask(count), 1), count)
    bench.rate(f"searches, {_THREADS} threads", partial(ask_all, bench.ask(count), _THREADS), count)
    if bench.shared is not None:
        for processes in (1, _PROCESSES):
            rate = search_apart(*bench.shared, bench, processes)
            bench.rates[f"searches, {processes} process{'es' if processes > 1 else ''}"] = rate
    bench.rate("searches, 1 task", partial(run_tasks, bench, bench.ask(count), 1), count)
    bench.rate(f"searches, {_TASKS} tasks", partial(run_tasks, bench, bench.ask(count), _TASKS), count)
    puts = [bench.workload.next_spare() for _ in range(4 * count)]
    ops = [PutOp(memory.namespace, memory.key, memory.value) for memory in puts]
    for at, (name, work) in enumerate(
        [
            ("puts, 1 thread", partial(put_threads, bench, workers=1)),
            (f"puts, {_THREADS} threads", partial(put_threads, bench, workers=_THREADS)),
            ("puts, 1 task", partial(put_tasks, bench, workers=1)),
            (f"puts, {_TASKS} tasks", partial(put_tasks, bench, workers=_TASKS)),
        ]
    ):
        bench.rate(name, partial(work, ops[at * count : (at + 1) * count]), count)


def run_threads(bench: Bench, questions: Sequence[Question], workers: int) -> None:
    """Ask questions from some threads."""
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda question: question.ask(bench.store), questions))


def run_tasks(bench: Bench, questions: Sequence[Question], workers: int) -> None:
    """Ask questions from some tasks of an event loop."""

    async def ask(left: Iterator[Question]) -> None:
        for question in left:
            namespace = ("memories", f"user-{question.user or 0:06d}")
            await bench.store.asearch(namespace, query=question.query.text, limit=question.limit)

    asyncio.run(_spread(ask, questions, workers))


def put_threads(bench: Bench, ops: Sequence[PutOp], workers: int) -> None:
    """Put items one by one from some threads."""
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda op: bench.store.batch([op]), ops))


def put_tasks(bench: Bench, ops: Sequence[PutOp], workers: int) -> None:
    """Put items one by one from some tasks."""

    async def put(left: Iterator[PutOp]) -> None:
        for op in left:
            await bench.store.abatch([op])

    asyncio.run(_spread(put, ops, workers))


async def _spread(work: Callable[[Iterator[Any]], Any], items: Sequence[Any], workers: int) -> None:
    left = iter(items)
    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(work(left))


@contextmanager
def writing(store: BaseStore, workload: Workload) -> Iterator[None]:
    """Have a thread write batches at full speed meanwhile, the same items over and over."""
    ops = to_batch(workload)
    done, begun = threading.Event(), threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            number += 1
            store.batch([op._replace(value={**(op.value or {}), "turn": number}) for op in ops])
            begun.set()

    thread = threading.Thread(target=write)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def writing_apart(location: str, mode: str, workload: Workload) -> Iterator[None]:
    """Have another process do so."""
    texts = [op.value["text"] for op in to_batch(workload) if op.value is not None]
    vectors = dict(zip(texts, workload.lookup.embed_documents(texts), strict=True))
    process = start_process("write_on", location, mode, vectors)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def search_apart(location: str, mode: str, bench: Bench, processes: int) -> float:
    """Give the searches a second of some processes together."""
    questions = bench.ask(bench.repeats)
    texts = [question.query.text for question in questions]
    vectors = bench.workload.lookup.embed_documents(texts)
    asked = [(question.user, text, row) for question, text, row in zip(questions, texts, vectors, strict=True)]
    started = [start_process("search_on", location, mode, asked[at::processes]) for at in range(processes)]
    start = time.perf_counter()
    for process in started:
        _say(process, "go")
    for process in started:
        _hear(process, "ended")
    rate = len(asked) / (time.perf_counter() - start)
    for process in started:
        process.communicate()
    return rate


def start_process(work: str, location: str, mode: str, given: Any) -> subprocess.Popen[str]:
    """Start a process, hand it what it works with, and wait until it says that it has begun."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, work, location, mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[1],
    )
    _say(process, json.dumps(given))
    _hear(process, "begun")
    return process


def _say(process: subprocess.Popen[str], line: str) -> None:
    if process.stdin is not None:
        process.stdin.write(line + "\n")
        process.stdin.flush()


def _hear(process: subprocess.Popen[str], line: str) -> None:
    if process.stdout is None or process.stdout.readline().strip() != line:
        raise SystemExit("a process that was to search or to write has failed")


def write_on(location: str, mode: str) -> None:
    """Write batches at full speed until the process is ended; say when the first is written."""
    vectors = json.loads(sys.stdin.readline())
    ops = [PutOp(("memories", f"user-{at:06d}"), f"apart {at}", {"text": text}) for at, text in enumerate(vectors)]
    with open_apart(location, mode, vectors) as store:
        number = 0
        while True:
            number += 1
            store.batch([op._replace(value={**(op.value or {}), "turn": number}) for op in ops])
            if number == 1:
                print("begun", flush=True)


def search_on(location: str, mode: str) -> None:
    """Search when told to."""
    asked = json.loads(sys.stdin.readline())
    with open_apart(location, mode, {text: vector for _, text, vector in asked}) as store:
        for user, text, _ in asked:  # as warm as the others are
            store.search(("memories", f"user-{user:06d}"), query=text, limit=_LIMIT)
        print("begun", flush=True)
        sys.stdin.readline()
        for user, text, _ in asked:
            store.search(("memories", f"user-{user:06d}"), query=text, limit=_LIMIT)
        print("ended", flush=True)


def open_apart(location: str, mode: str, vectors: dict[str, list[float]]) -> AbstractContextManager[BaseStore]:
    """Open a store in a process of its own."""
    opener = to_opener(location, mode) if location.startswith("postgres") else OPENERS[mode]
    return opener(Path(location), Setup(Given(vectors), len(next(iter(vectors.values())))))


def to_batch(workload: Workload) -> list[PutOp]:
    """Make a batch of different users' items."""
    memories = [workload.next_spare() for _ in range(BATCH)]
    return [PutOp(memory.namespace, memory.key, memory.value) for memory in memories]


def fill(store: BaseStore, workload: Workload, progress: Progress, name: str) -> None:
    """Fill a store."""
    batches = list(workload.batches(BATCH))
    task = progress.add_task(f"{name}: filling", total=len(batches))
    for batch in batches:
        store.batch([PutOp(memory.namespace, memory.key, memory.value) for memory in batch])
        progress.advance(task)
    progress.refresh()


def to_tables(benches: Sequence[Bench]) -> str:
    """Lay out both tables."""
    times = []
    for bench in benches:
        quiet = to_percentiles(bench.times["quiet"])
        for name, seconds in bench.times.items():
            p50, p95 = to_percentiles(seconds)
            cells = [f"{1e3 * p50:.3f}", f"{p50 / quiet[0]:.2f}", f"{1e3 * p95:.3f}", f"{p95 / quiet[1]:.2f}"]
            times.append([f"{bench.name}: {name}", *cells])
    names = list(dict.fromkeys(name for bench in benches for name in bench.rates))
    rates = [
        [name, *(spell(round(bench.rates[name])) if name in bench.rates else "" for bench in benches)] for name in names
    ]
    head = ["operations a second", *(bench.name for bench in benches)]
    return to_table(_HEAD, times) + "\n\n" + to_table(head, rates)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.concurrency", description=(__doc__ or "").partition("\n")[0]
    )
    add = parser.add_argument
    add("--users", type=int, default=1_000, help=f"each with {_MEMORIES} memories (default %(default)s)")
    add("--repeats", type=int, default=400, help="searches, and puts, of each measure (default %(default)s)")
    add("--dims", type=int, default=384, help="length of a vector (default %(default)s)")
    add("--seed", type=int, default=0, help="what chance begins with (default %(default)s)")
    add("--postgres", action="store_true", help="memstore on Postgres and PostgresStore instead of those on files")
    add("--dsn", metavar="URL", help="a server that is there, on which databases may be made")
    add("--json", type=Path, metavar="FILE", help="where all numbers are written")
    add("--folder", type=Path, help="where a folder for the databases is made, and deleted at the end")
    return parser.parse_args(arguments)


def main() -> None:
    """Run the measures and print the tables."""
    given = parse()
    versions = (
        f"{', '.join(filter(None, map(spell_version, _PACKAGES)))}, SQLite {sqlite3.sqlite_version}, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}"
    )
    sizes = Sizes(given.users, _MEMORIES, given.repeats, given.dims, given.seed)
    corpus = make_corpus(sizes, 60 * given.repeats, 60 * given.repeats + 20 * BATCH)
    load, benches = read_load(), list[Bench]()
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(dir=given.folder, prefix="memstore-bench-")))
        progress = opened.enter_context(to_progress())
        jobs: list[tuple[str, Opener, str | None]] = []
        if given.postgres:
            server = given.dsn or opened.enter_context(run_server(given.folder))
            versions += "; " + describe_server(server)
            for kind in (MEMSTORE, HYBRID, POSTGRES):
                url = opened.enter_context(make_database(server))
                jobs.append((kind, to_opener(url, kind), url))
        else:
            jobs = [(kind, OPENERS[kind], None) for kind in (MEMSTORE, HYBRID, SQLITE_WAL)]
        print(f"{given.users:,} users with {_MEMORIES} memories each\n\n{versions}\n", flush=True)
        for kind, opener, url in jobs:
            workload = Workload(sizes, corpus)
            path = folder / f"{kind}.db"
            try:
                store = opened.enter_context(opener(path, Setup(workload.lookup, given.dims)))
            except (AttributeError, ImportError) as error:
                print(f"- {kind} is left out: {error}")
                continue
            fill(store, workload, progress, kind)
            if url is not None:
                settle(url)
            shared = (url or str(path), kind) if kind in (MEMSTORE, HYBRID, POSTGRES) else None
            bench = Bench(kind, store, workload, given.repeats, progress, shared)
            measure(bench)
            benches.append(bench)
    print(to_tables(benches))
    if given.json:
        found = {bench.name: {"seconds": bench.times, "a second": bench.rates} for bench in benches}
        given.json.write_text(json.dumps(found))
    print(f"\nLoad of the machine before and after: {load}, {read_load()}")


if __name__ == "__main__":
    main()
