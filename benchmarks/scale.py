"""What memstore and its peers cost at several sizes: searches, writes, opening, memory and files.

Run `python -m benchmarks.scale` or `python benchmarks/scale.py`; see benchmarks/README.md for what is measured.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.progress import Progress

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import to_progress
from benchmarks.peers import HYBRID, MEMORY, MEMSTORE, SQLITE, Contestant, Setup
from benchmarks.postgres_peers import POSTGRES, to_opener
from benchmarks.run import Run
from benchmarks.scale_charts import draw
from benchmarks.scale_figures import Figures
from benchmarks.scale_measures import list_newest, measure_loss, open_apart, put, search_everything, search_users
from benchmarks.scale_stores import FILLED, Kept, check_filled, fill, open_ranked
from benchmarks.server import describe_server, make_database, run_server, settle
from benchmarks.stores import enter, read_load, spell_version
from benchmarks.wide import build
from benchmarks.workload import Corpus, Sizes, Workload, make_corpus

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
_MEMORIES: Final = 100
"""Of each user."""
_QUERIES: Final = 8_000
_SPARES: Final = 8_000
"""Whatever is measured, so that a database that was kept is of the same workload."""
_MOST_REPEATS: Final = 1_000
_ON_POSTGRES: Final = "memstore on Postgres"
_PACKAGES: Final = (
    "memstore", "faiss-cpu", "numpy", "langgraph-checkpoint", "langgraph-checkpoint-sqlite", "sqlite-vec",
    "langgraph-checkpoint-postgres",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bench:
    """What the sizes share."""

    given: argparse.Namespace
    own: dict[str, Any]
    folder: Path
    progress: Progress
    figures: Figures
    notes: list[str]

    def make_corpus(self, size: int) -> tuple[Sizes, Corpus]:
        """Make the texts and vectors of a size."""
        task = self.progress.add_task(f"{size:,} memories: texts and vectors", total=1)
        self.progress.refresh()
        sizes = Sizes(max(2, size // _MEMORIES), _MEMORIES, self.given.repeats, self.given.dims, self.given.seed)
        corpus = make_corpus(sizes, _QUERIES, _SPARES)
        self.progress.advance(task)
        return sizes, corpus


def measure_files(bench: Bench, workload: Workload) -> None:
    """Measure memstore on SQLite, and its peers."""
    sizes = workload.sizes
    setup = Setup(workload.lookup, sizes.dims, bench.own)
    kept = Kept(bench.given.fill_once, sizes) if bench.given.fill_once else None
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(dir=bench.folder)))
        ready = kept is not None and kept.take(folder / f"{HYBRID}.db")
        base = opened.enter_context(Contestant(HYBRID, folder, setup))
        peers, absent = enter(opened, (SQLITE, MEMORY) if sizes.items <= bench.given.peers_below else (), folder, setup)
        bench.notes.extend(absent)
        run = Run(workload, [base, *peers], bench.progress, bench.given.patience)
        spare_collecting()
        fill(run, peers if ready else run.contestants)
        if ready and kept is not None:
            check_filled(run, base)
            for measure, value in kept.figures.items():
                run.values.add(measure, base.name, value)
        elif kept is not None:
            base.close()
            kept.keep(base.path, {FILLED: run.values.numbers[FILLED][base.name]})
            base.open()
        open_apart(run, run.durable, setup)
        run.contestants.insert(0, open_ranked(opened, base, setup, MEMSTORE, "semantic"))
        search_users(run)
        list_newest(run)
        search_everything(run)
        measure_loss(run, base)
        put(run, wide=True)
        run.judge()
        finish(bench, run)


def measure_postgres(bench: Bench, workload: Workload, server: str) -> None:
    """Measure memstore on Postgres, and PostgresStore."""
    sizes = workload.sizes
    setup = Setup(workload.lookup, sizes.dims, bench.own)
    wide = sizes.items <= bench.given.postgres_wide_below
    with ExitStack() as opened:
        url = opened.enter_context(make_database(server))
        folder = bench.folder
        name = f"{_ON_POSTGRES} (hybrid)"
        contestants = [opened.enter_context(Contestant(HYBRID, folder, setup, name, to_opener(url, HYBRID)))]
        if sizes.items <= bench.given.peers_below:
            contestants.append(
                opened.enter_context(Contestant(POSTGRES, folder, setup, opener=to_opener(url, POSTGRES)))
            )
        run = Run(workload, contestants, bench.progress, bench.given.patience)
        spare_collecting()
        fill(run, run.contestants)
        settle(url)
        if wide:
            build(run)
            settle(url)
        run.contestants.insert(0, open_ranked(opened, contestants[0], setup, _ON_POSTGRES, "semantic"))
        search_users(run)
        list_newest(run)
        if wide:
            search_everything(run)
        put(run, wide=wide)
        run.judge()
        finish(bench, run)


def spare_collecting() -> None:
    """Leave what is there out of garbage collections, or collecting all these texts shows up in any store's times."""
    gc.collect()
    gc.freeze()


def finish(bench: Bench, run: Run) -> None:
    """Take in what a run has measured; the figures of one size are safe when it is done."""
    bench.figures.take(run.workload.sizes.items, run)
    bench.notes.extend(run.notes)
    if bench.given.json:
        bench.figures.save(bench.given.json)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add(
        "--sizes",
        nargs="+",
        type=int,
        default=SIZES,
        metavar="ITEMS",
        help="memories of all users (default %(default)s)",
    )
    add("--peers-below", type=int, default=100_000, metavar="ITEMS", help="peers up to this size (default %(default)s)")
    add("--repeats", type=int, default=200, help="times each measure is taken (default %(default)s)")
    add("--dims", type=int, default=384, help="length of a vector (default %(default)s)")
    add("--seed", type=int, default=0, help="what chance begins with (default %(default)s)")
    add("--setting", action="append", default=[], metavar="NAME=VALUE", help="more of memstore's settings of `index`")
    add("--fill-once", type=Path, metavar="FOLDER", help="keep memstore's filled databases there, and use them again")
    add("--no-files", action="store_true", help="leave SQLite and memory out")
    add("--postgres", action="store_true", help="memstore on Postgres and PostgresStore too")
    add(
        "--postgres-wide-below", type=int, default=100_000, metavar="ITEMS",
        help="up to this size Postgres makes its indexes and searches everything (default %(default)s)",
    )  # fmt: skip
    add("--dsn", metavar="URL", help="a server that is there, on which databases may be made")
    add(
        "--patience", type=float, default=20.0, metavar="SECONDS",
        help="a store that has taken so long for one measure is left out of its further turns (default %(default)s)",
    )  # fmt: skip
    add("--json", type=Path, metavar="FILE", help="where all numbers are written")
    add("--plot", type=Path, metavar="FOLDER", help="where charts are drawn")
    add("--folder", type=Path, help="where a folder for the databases is made, and deleted at the end")
    given = parser.parse_args(arguments)
    if given.repeats > _MOST_REPEATS:
        parser.error(f"--repeats is at most {_MOST_REPEATS:,}")
    if any("=" not in setting for setting in given.setting):
        parser.error("--setting takes NAME=VALUE")
    return given


def to_setting(given: str) -> tuple[str, Any]:
    """Read a setting; what is no JSON is text."""
    name, _, value = given.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def describe(about: dict[str, Any]) -> str:
    """Say what is compared, on what, and what the figures leave out."""
    settings = ", ".join(f"{name} {value}" for name, value in about["settings"].items()) or "its defaults"
    return (
        f"Users with {_MEMORIES} memories each, {about['dims']} dims, {about['repeats']} repeats, "
        f"seed {about['seed']}; memstore's further settings: {settings}\n\n{about['versions']}\n\n"
        "The stores take turns. Vectors are looked up, and the time of that is taken off all of them. Every database\n"
        "syncs every commit. A cold search is the first of a namespace since the store was opened; the warm one\n"
        'follows it. "Everything" is the prefix (). recall@10 is the share of the ten nearest by meaning that came,\n'
        "found by brute force; hybrid search ranks by words too and need not have them all. Source found is the share\n"
        "of answers with the memory that the words of the query are from. Resident sizes are of a new process.\n"
    )


def main() -> None:
    """Run the measures and print the tables."""
    given = parse()
    own = dict(map(to_setting, given.setting))
    versions = (
        f"{', '.join(filter(None, map(spell_version, _PACKAGES)))}, SQLite {sqlite3.sqlite_version}, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}"
    )
    about = {
        "dims": given.dims, "repeats": given.repeats, "seed": given.seed, "settings": own, "versions": versions
    }  # fmt: skip
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(dir=given.folder, prefix="memstore-bench-")))
        server = given.dsn
        if given.postgres:
            server = server or opened.enter_context(run_server(given.folder))
            about["versions"] += "; " + describe_server(server)
        print(describe(about), flush=True)
        load = read_load()
        progress = opened.enter_context(to_progress())
        bench = Bench(given, own, folder, progress, Figures(about), [])
        for size in given.sizes:
            sizes, corpus = bench.make_corpus(size)
            if not given.no_files:
                measure_files(bench, Workload(sizes, corpus))
            if given.postgres:
                measure_postgres(bench, Workload(sizes, corpus), server)
            del corpus
            gc.unfreeze()
    print(bench.figures.to_text() + "\n")
    for note in dict.fromkeys(bench.notes):
        print(f"- {note}")
    if given.plot:
        for path in draw(bench.figures, given.plot):
            print(f"- drawn: {path}")
    print(f"Load of the machine before and after: {load}, {read_load()}")


if __name__ == "__main__":
    main()
