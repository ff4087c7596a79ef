"""Recall where pgvector's index meets conditions: in one namespace of few, and under filters that keep more or less.

PostgreSQL either reads everything that fulfils the conditions, or takes what its index of vectors gives and lets go of
what does not fulfil them: then few come, or none.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from rich.progress import Progress

from benchmarks.peers import HYBRID, MEMSTORE, Setup
from benchmarks.postgres_peers import Variant, open_stores, open_variant
from benchmarks.reads import search_warm
from benchmarks.run import Run
from benchmarks.server import make_database, settle
from benchmarks.wide import RARE, ask_everything, build
from benchmarks.workload import KINDS, Sizes, Workload, make_corpus
from benchmarks.writes import fill

FILTERS: Final[dict[str, dict[str, Any]]] = {
    "0.1 %": RARE,
    "1.25 %": {"kind": KINDS[1], "weight": 3},
    "10 %": {"weight": 3},
    "50 %": {"weight": {"$lt": 5}},
}
"""By the share of the memories that passes."""
LIMIT: Final = 10
_USERS: Final = 50
_MEMORIES: Final = 400
_QUICK_MEMORIES: Final = 24
_BELOW: Final = 1_000
_QUICK_BELOW: Final = 300
_QUERIES: Final = 8
"""Made for each repeat."""


def measure_filtered(
    server: str, folder: Path, progress: Progress, sizes: Sizes, patience: float, *, quick: bool
) -> Run:
    """Fill stores of their own, and search them."""
    few = Sizes(_USERS, _QUICK_MEMORIES if quick else _MEMORIES, sizes.repeats, sizes.dims, sizes.seed)
    workload = Workload(few, make_corpus(few, (_QUERIES + len(FILTERS)) * few.repeats, 0))
    setup = Setup(workload.lookup, few.dims)
    below = _QUICK_BELOW if quick else _BELOW
    with ExitStack() as opened:
        url = opened.enter_context(make_database(server))
        contestants = open_stores(opened, url, folder, setup)
        run = Run(workload, contestants, progress, patience, f" ({few.items:,} items, {few.users} users)")
        fill(run)
        build(run)
        settle(url)
        bases = {contestant.kind: contestant for contestant in contestants}
        for kind in (MEMSTORE, HYBRID):
            variant = Variant(kind, f"exact below {below:,}", {"exact_below": below})
            contestants.append(opened.enter_context(open_variant(url, variant, bases[kind], folder, setup)))
        search_warm(run, "user search, warm", among=contestants)
        for share, wanted in FILTERS.items():
            ask_everything(run, f"everything, filter that {share} passes", LIMIT, wanted, contestants)
        run.judge()
    return run
