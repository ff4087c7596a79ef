"""memstore beside other stores for LangGraph, in one process, on one workload, turn by turn.

Run `python -m benchmarks.stores` or `python benchmarks/stores.py`; see benchmarks/README.md for what is measured.
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from rich.progress import Progress

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.churn import count_spares, measure_churn
from benchmarks.measure import TIMES_HEAD, VALUES_HEAD, to_progress, to_table
from benchmarks.memory import ask_process, read_peak
from benchmarks.peers import OWN, STORES, Contestant, Setup
from benchmarks.processes import Report, measure_processes
from benchmarks.reads import WARM, read, search_users, search_warm, turn_pages
from benchmarks.run import Run
from benchmarks.wide import BATCHES, CHUNK, catch_up, search_everything
from benchmarks.workers import Plan
from benchmarks.workload import Sizes, Workload, make_corpus
from benchmarks.writes import fill, put, weigh

GROUPS: Final = ("user", "read", "pages", "wide", "put", "memory", "scale", "churn", "processes")
_QUERIES: Final = 16
"""Queries made for each repeat; all searches together use fewer."""
_MORE_QUERIES: Final = 200
"""And these, for what is not repeated so often."""
_SPARES: Final = 4
"""Memories made for each repeat beyond those that fill the stores."""
_SMALL: Final = 10
"""The stores of group `scale` have one user in so many."""
_PACKAGES: Final = (
    "memstore", "langgraph-checkpoint-sqlite", "sqlite-vec", "langgraph-store-qdrant", "qdrant-client",
    "langgraph-checkpoint",
)  # fmt: skip


def make_workload(sizes: Sizes) -> Workload:
    """Make as many texts and queries as all groups together need."""
    spares = _SPARES * sizes.repeats + BATCHES * CHUNK + count_spares(sizes.items)
    return Workload(sizes, make_corpus(sizes, _QUERIES * sizes.repeats + _MORE_QUERIES, spares))


def enter(opened: ExitStack, names: Sequence[str], folder: Path, setup: Setup) -> tuple[list[Contestant], list[str]]:
    """Open the stores; say why those are left out that cannot be opened."""
    contestants, absent = [], []
    for name in names:
        try:
            contestants.append(opened.enter_context(Contestant(name, folder, setup)))
        except Exception as error:  # noqa: BLE001  a peer raises what it likes
            absent.append(f"{name} is left out: {type(error).__name__}: {error}")
    return contestants, absent


def measure(run: Run, groups: Sequence[str], folder: Path, setup: Setup) -> None:
    """Take the measures: first those that only read what filled the stores, then those that change it."""
    fill(run)
    weigh(run)
    if "wide" in groups:
        search_everything(run)
    if "user" in groups:
        search_users(run)
    if "read" in groups:
        read(run)
    if "pages" in groups:
        turn_pages(run)
    if "put" in groups:
        put(run)
    if "wide" in groups:
        catch_up(run)
    if "memory" in groups:
        measure_memory(run, setup)
    if "churn" in groups and run.own:
        measure_churn(run, folder, setup)
    run.judge()


def measure_memory(run: Run, setup: Setup) -> None:
    """Read this process's peak, before the oracle has anything, and each store's in a process of its own."""
    run.values.add("peak resident, MB", "(this process, with the workload)", read_peak())
    users = run.workload.sizes.users
    queries = [run.workload.next_query().text for _ in range(50)]
    for contestant in run.durable:
        contestant.close()
        resident = ask_process(contestant, setup, users, queries, 2 * run.patience)
        contestant.open()
        run.values.add("peak resident serving all users, MB", contestant.name, resident.peak)
        run.values.add("the same, beyond an empty store's, MB", contestant.name, resident.peak - resident.before)
        run.values.add("the same, searches over everything too, MB", contestant.name, resident.wide - resident.before)
        if resident.searched < users:
            run.notes.append(
                f"{contestant.name} served {resident.searched:,} of {users:,} users while its memory was measured: "
                f"{2 * run.patience:g} s were up"
            )


def measure_small(sizes: Sizes, folder: Path, own: dict[str, Any], progress: Progress, patience: float) -> Run:
    """Search warm in stores of memstore that have a tenth of the users."""
    small = Sizes(max(1, sizes.users // _SMALL), sizes.memories, sizes.repeats, sizes.dims, sizes.seed)
    workload = make_workload(small)
    with ExitStack() as opened:
        apart = Path(opened.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        contestants, _ = enter(opened, OWN, apart, Setup(workload.lookup, sizes.dims, own))
        run = Run(workload, contestants, progress, patience, f" ({small.items:,} items)")
        fill(run)
        search_warm(run, WARM)
        run.judge()
    return run


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stores", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--users", type=int, default=1_000, help="namespaces (default %(default)s)")
    parser.add_argument("--memories", type=int, default=100, help="memories of each user (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=400, help="times each measure is taken (default %(default)s)")
    parser.add_argument("--dims", type=int, default=384, help="length of a vector (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="what chance begins with (default %(default)s)")
    parser.add_argument(
        "--patience", type=float, default=6.0, metavar="SECONDS",
        help="a store that has taken so long for one measure is left out of its further turns (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, help="groups of measures (default all)")
    parser.add_argument("--stores", nargs="+", choices=STORES, default=STORES, help="which stores (default all)")
    parser.add_argument("--exact-below", type=int, metavar="TEXTS", help="memstore's setting (default memstore's own)")
    parser.add_argument("--candidates", type=int, metavar="TEXTS", help="memstore's setting (default memstore's own)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of group `processes` (default %(default)s)")
    parser.add_argument("--folder", type=Path, help="where a folder for the databases is made, and deleted at the end")
    parser.add_argument(
        "--quick", action="store_true",
        help="60 users, 20 memories, 50 repeats, 5 seconds, exact below 300 texts: only to try it out",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    if given.quick:
        given.users, given.memories, given.repeats, given.seconds = 60, 20, 50, 5.0
        given.exact_below = given.exact_below or 300
    return given


def describe(sizes: Sizes, patience: float, own: dict[str, Any]) -> str:
    """Say what is compared, on what, and what the figures leave out."""
    settings = ", ".join(f"{name} {value:,}" for name, value in own.items()) or "its defaults"
    return (
        f"{sizes.users:,} users x {sizes.memories:,} memories = {sizes.items:,} items, {sizes.dims} dims, "
        f"{sizes.repeats} repeats, seed {sizes.seed}; memstore's further settings: {settings}\n\n"
        f"{', '.join(filter(None, map(spell_version, _PACKAGES)))}, SQLite {sqlite3.sqlite_version}, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}\n\n"
        "The stores take turns. Vectors are looked up, and the time of that is taken off all of them. Every query is\n"
        "new to every store, so that no kept query vector helps. Every database syncs every commit. A cold search is\n"
        "the first of a namespace since the store was opened; a warm one follows another search of that namespace, as\n"
        'does the one after a put. "Everything" is the prefix (). recall@k is the share of the k nearest by meaning\n'
        "that came, found by brute force; hybrid search ranks by words too and need not have them all. Source found\n"
        "is the share of answers with the memory that the words of the query are from. A store that has taken\n"
        f'{patience:g} s for a measure is left out of its further turns: where n is "4 of 400", it took four.\n'
    )


def main() -> None:
    """Run the measures and print the tables."""
    given = parse()
    sizes = Sizes(given.users, given.memories, given.repeats, given.dims, given.seed)
    own = {"exact_below": given.exact_below, "candidates": given.candidates}
    own = {name: value for name, value in own.items() if value is not None}
    print(describe(sizes, given.patience, own))
    load = read_load()
    runs: list[Run] = []
    notes: list[str] = []
    report: Report | None = None
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(dir=given.folder, prefix="memstore-bench-")))
        progress = opened.enter_context(to_progress())
        if set(given.only) - {"processes", "scale"}:
            task = progress.add_task("texts and vectors", total=1)
            progress.refresh()
            workload = make_workload(sizes)
            progress.advance(task)
            setup = Setup(workload.lookup, sizes.dims, own)
            contestants, notes = enter(opened, given.stores, folder, setup)
            if not contestants:
                sys.exit("\n".join(notes))
            run = Run(workload, contestants, progress, given.patience)
            measure(run, given.only, folder, setup)
            runs.append(run)
            notes += run.notes
        if "scale" in given.only:
            runs.append(measure_small(sizes, folder, own, progress, given.patience))
        if "processes" in given.only:
            report = measure_processes(folder, progress, Plan(seconds=given.seconds))
    for head, rows in (
        (TIMES_HEAD, [row for run in runs for row in run.timings.rows()]),
        (VALUES_HEAD, [row for run in runs for row in run.values.rows()]),
    ):
        if rows:
            print(to_table(head, rows) + "\n")
    if report is not None:
        print(report.to_text() + "\n")
    for note in notes:
        print(f"- {note}")
    print(f"Load of the machine before and after: {load}, {read_load()}")
    sys.exit(report is not None and not report.sound)


def spell_version(package: str) -> str | None:
    """Name a package and its version; None where it is not installed."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return None


def read_load() -> str:
    """Give the load of the machine over the last minute."""
    return f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown"


if __name__ == "__main__":
    main()
