"""memstore beside LangGraph's PostgresStore, on one Postgres server, on one workload, turn by turn.

Run `python -m benchmarks.postgres` or `python benchmarks/postgres.py`; see benchmarks/README.md for what is measured.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.corpus import read_corpus
from benchmarks.filtered import measure_filtered
from benchmarks.measure import TIMES_HEAD, VALUES_HEAD, to_progress, to_table
from benchmarks.oracle import to_keys
from benchmarks.peers import HYBRID, MEMSTORE, Contestant, Setup
from benchmarks.postgres_peers import POSTGRES, SCHEMAS, Variant, open_stores, open_variant
from benchmarks.processes import Report, measure_processes
from benchmarks.reads import FILTER, LIMIT, LIST, LIST_ALL, LIST_DEPTH, NEWEST, read, search_users, turn_pages
from benchmarks.run import Run
from benchmarks.server import describe_server, make_database, run_server, settle, weigh
from benchmarks.stores import read_load, spell_version
from benchmarks.together import count_needs, serve_together
from benchmarks.wide import MORE, RARE, ask_everything, build, to_questions, turn_wide_pages
from benchmarks.workers import Plan
from benchmarks.workload import Sizes, Workload, make_corpus
from benchmarks.writes import BATCH, count_batches, fill, put, put_batches

GROUPS: Final = ("put", "user", "wide", "pages", "list", "filtered", "size", "async", "processes")
_EARLY: Final = ", no index of vectors in memstore yet"
_NEED_INDEX: Final = frozenset({"put", "wide", "pages", "size"})
_EF_SEARCH: Final = (100, 200, 400, 800)
_PEER_EF_SEARCH: Final = (200, 800)
"""PostgresStore leaves it at pgvector's 40; its users may set it for their connections."""
_EXACT: Final = {"ann": "none"}
_QUERIES: Final = 16
"""Queries made for each repeat; all searches together use fewer."""
_SPARES: Final = 6
"""Memories made for each repeat beyond those that fill the stores."""
_PACKAGES: Final = (
    "memstore",
    "langgraph-checkpoint-postgres",
    "psycopg",
    "psycopg-pool",
    "pgvector",
    "langgraph-checkpoint",
)


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the stores are.

    Attributes:
        url: Their database.
        folder: For what is no database.
        setup: What they are opened with.
    """

    url: str
    folder: Path
    setup: Setup


def measure(run: Run, groups: Sequence[str], bench: Bench) -> None:
    """Take the measures: first those before memstore's indexes of wide scopes are there, then those with them."""
    fill(run)
    settle(bench.url)
    _measure_early(run, groups, bench)
    if _NEED_INDEX.intersection(groups):
        build(run)
        settle(bench.url)
    if "size" in groups:
        _weigh(run, bench, "")
    if "wide" in groups:
        _search_everything(run, bench)
    if "pages" in groups:
        turn_wide_pages(run)
    if "put" in groups:
        put(run)
        put_batches(run)
    if "async" in groups:
        serve_together(run, bench.url, bench.setup)
    run.judge()


def _measure_early(run: Run, groups: Sequence[str], bench: Bench) -> None:
    """Take those that no index of vectors is needed for."""
    if "size" in groups:
        _weigh(run, bench, _EARLY)
    if "user" in groups:
        search_users(run)
        read(run, [NEWEST])
    if "list" in groups:
        read(run, [LIST_ALL, LIST, LIST_DEPTH])
    if "pages" in groups:
        turn_pages(run)
    if "put" in groups:
        run.suffix = _EARLY
        put(run)
        put_batches(run)
        run.suffix = ""


def _weigh(run: Run, bench: Bench, suffix: str) -> None:
    for contestant in run.contestants:
        for part, size in weigh(bench.url, SCHEMAS[contestant.kind]).items():
            run.values.add(part + suffix, contestant.name, size)


def _search_everything(run: Run, bench: Bench) -> None:
    """Search over all users, with other settings too: what does more time find more?"""
    bases = {contestant.kind: contestant for contestant in run.contestants}
    variants = [Variant(MEMSTORE, f"ef_search {ef_search}", {"ef_search": ef_search}) for ef_search in _EF_SEARCH]
    variants += [Variant(kind, "exact", _EXACT) for kind in (MEMSTORE, HYBRID)]
    variants += [
        Variant(POSTGRES, f"ef_search {ef_search}", pgvector=f"hnsw.ef_search={ef_search}")
        for ef_search in _PEER_EF_SEARCH
    ]
    variants.append(Variant(POSTGRES, "exact", pgvector="enable_indexscan=off"))
    with ExitStack() as opened:
        among = [
            *run.contestants,
            *(
                opened.enter_context(open_variant(bench.url, variant, bases[variant.kind], bench.folder, bench.setup))
                for variant in variants
                if variant.kind in bases
            ),
        ]
        for limit in (LIMIT, MORE):
            ask_everything(run, f"everything, k = {limit}", limit, among=among)
        named = {contestant.name: contestant for contestant in among}
        if HYBRID in named:
            _agree(run, named[HYBRID], named[f"{HYBRID}, exact"])
    ask_everything(run, "everything, filter that an eighth passes", LIMIT, FILTER)
    ask_everything(run, "everything, filter that 1 in 1,000 passes", LIMIT, RARE)


def _agree(run: Run, hybrid: Contestant, exact: Contestant) -> None:
    """Say how much of the exact hybrid answer the index of vectors finds; the oracle knows of no words."""
    for limit in (LIMIT, MORE):
        shares = []
        for question in to_questions(run, run.wide_repeats, limit):
            there, due = (set(to_keys(question.ask(contestant.store))) for contestant in (hybrid, exact))
            shares.append(len(there & due) / max(1, len(due)))
        run.values.add(
            f"everything, k = {limit}: share of the exact hybrid answer", hybrid.name, sum(shares) / len(shares)
        )


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.postgres", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--users", type=int, default=1_000, help="namespaces (default %(default)s)")
    parser.add_argument("--memories", type=int, default=100, help="memories of each user (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=400, help="times each measure is taken (default %(default)s)")
    parser.add_argument("--dims", type=int, default=384, help="length of a vector (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="what chance begins with (default %(default)s)")
    parser.add_argument(
        "--patience", type=float, default=20.0, metavar="SECONDS",
        help="a store that has taken so long for one measure is left out of its further turns (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, help="groups of measures (default all)")
    parser.add_argument(
        "--texts",
        type=Path,
        metavar="PATH",
        help="a file with a text in each line, for real vectors in place of made ones",
    )
    parser.add_argument("--exact-below", type=int, metavar="TEXTS", help="memstore's setting (default memstore's own)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of group `processes` (default %(default)s)")
    parser.add_argument("--dsn", metavar="URL", help="a server that is there, on which databases may be made")
    parser.add_argument("--folder", type=Path, help="where a folder for the server is made, and deleted at the end")
    parser.add_argument(
        "--quick", action="store_true",
        help="60 users, 20 memories, 50 repeats, 5 seconds, exact below 300 texts: only to try it out",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    if given.quick:
        given.users, given.memories, given.repeats, given.seconds = 60, 20, 50, 5.0
        given.exact_below = given.exact_below or 300
    return given


def describe(sizes: Sizes, patience: float, own: dict[str, Any], server: str) -> str:
    """Say what is compared, on what, and what the figures leave out."""
    settings = ", ".join(f"{name} {value:,}" for name, value in own.items()) or "its defaults"
    return (
        f"{sizes.users:,} users x {sizes.memories:,} memories = {sizes.items:,} items, {sizes.dims} dims, "
        f"{sizes.repeats} repeats, seed {sizes.seed}; memstore's further settings: {settings}\n\n"
        f"{describe_server(server)}\n\n"
        f"{', '.join(filter(None, map(spell_version, _PACKAGES)))}, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}\n\n"
        "The stores take turns, in one database. Vectors are looked up, and the time of that is taken off all of\n"
        "them, but for what many tasks do at once. Every query is new to every store, so that no kept query vector\n"
        "helps. A cold search is the first of a namespace since the store was opened; a warm one follows another\n"
        'search of that namespace. "Everything" is the prefix (). recall@k is the share of the k nearest by meaning\n'
        "that came, found by brute force; hybrid search ranks by words too and need not have them all. Source found\n"
        "is the share of answers with the memory that the words of the query are from. A store that has taken\n"
        f'{patience:g} s for a measure is left out of its further turns: where n is "4 of 400", it took four.\n'
    )


def main() -> None:
    """Run the measures and print the tables."""
    given = parse()
    sizes = Sizes(given.users, given.memories, given.repeats, given.dims, given.seed)
    own = {} if given.exact_below is None else {"exact_below": given.exact_below}
    load = read_load()
    runs: list[Run] = []
    report: Report | None = None
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(dir=given.folder, prefix="memstore-bench-")))
        server = given.dsn or opened.enter_context(run_server(given.folder))
        print(describe(sizes, given.patience, own, server), flush=True)
        progress = opened.enter_context(to_progress())
        if set(given.only) - {"filtered", "processes"}:
            queries, spares = count_needs(sizes.repeats) if "async" in given.only else (0, 0)
            task = progress.add_task("texts and vectors", total=1)
            progress.refresh()
            spares += _SPARES * sizes.repeats + 2 * BATCH * count_batches(sizes.repeats)
            queries += _QUERIES * sizes.repeats
            workload = Workload(
                sizes,
                read_corpus(given.texts, sizes, queries, spares, progress)
                if given.texts
                else make_corpus(sizes, queries, spares),
            )
            progress.advance(task)
            setup = Setup(workload.lookup, sizes.dims, own)
            with ExitStack() as stores:
                url = stores.enter_context(make_database(server))
                run = Run(workload, open_stores(stores, url, folder, setup), progress, given.patience)
                measure(run, given.only, Bench(url, folder, setup))
            runs.append(run)
            gc.unfreeze()
        if "filtered" in given.only:
            runs.append(measure_filtered(server, folder, progress, sizes, given.patience, quick=given.quick))
        if "processes" in given.only:
            plan = Plan(given.seconds, writers=8, searchers=8, schema="shared")
            with make_database(server) as url:
                report = measure_processes(folder, progress, plan, url)
    for head, rows in (
        (TIMES_HEAD, [row for run in runs for row in run.timings.rows()]),
        (VALUES_HEAD, [row for run in runs for row in run.values.rows()]),
    ):
        if rows:
            print(to_table(head, rows) + "\n")
    if report is not None:
        print(report.to_text() + "\n")
    for note in (note for run in runs for note in run.notes):
        print(f"- {note}")
    print(f"Load of the machine before and after: {load}, {read_load()}")
    sys.exit(report is not None and not report.sound)


if __name__ == "__main__":
    main()
