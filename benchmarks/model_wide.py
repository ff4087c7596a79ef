"""Searches over everything in real texts: how long they take, and how much of the exact answer they find.

By meaning alone the exact answer comes from NumPy; hybrid, from memstore itself where it ranks every text.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from langgraph.store.base import BaseStore, PutOp, SearchItem
from rich.progress import Progress

from benchmarks.measure import Timings
from benchmarks.peers import HYBRID, MEMSTORE, MODES, Contestant, Setup
from benchmarks.scale_figures import Figure
from benchmarks.scale_stores import open_ranked
from benchmarks.texts import Embedded, to_rows
from benchmarks.workload import Lookup, to_namespace
from benchmarks.writes import BATCH

WIDE_HEAD: Final = ["measure", "n", "p50 ms", "p95 ms", "recall", "the least", "wanted"]
KS: Final = (10, 100)
_WANTED: Final = 0.98
"""Recall among the first ten, by meaning alone."""
_PER_USER: Final = 100
_UNTIMED: Final = 5
_ROOM: Final = 2e-6
"""Scores that differ by less may stand in either order: float32 sums are no better."""
Scores: TypeAlias = Mapping[str, float]


@dataclass(slots=True)
class Wide:
    """What was measured of searches over everything."""

    items: int
    timings: Timings
    recalls: dict[str, list[float]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    """Of what is done once."""

    def figures(self) -> Iterator[Figure]:
        """Give the numbers of all measures."""
        for measure, shares in self.recalls.items():
            times = self.timings.seconds[measure][MEMSTORE]
            for part, share in (("p50 ms", 50), ("p95 ms", 95)):
                yield Figure(self.items, measure, MEMSTORE, part, 1e3 * float(np.percentile(times, share)), len(times))
            yield Figure(self.items, measure, MEMSTORE, "recall", float(np.mean(shares)), len(shares))
            yield Figure(self.items, measure, MEMSTORE, "least recall", min(shares), len(shares))
        for measure, seconds in self.seconds.items():
            yield Figure(self.items, f"{measure}, s", MEMSTORE, "", seconds)


def to_wide_rows(wide: Wide) -> Iterator[list[str]]:
    """Lay out a row for each measure."""
    for measure, shares in wide.recalls.items():
        times = [1e3 * seconds for seconds in wide.timings.seconds[measure][MEMSTORE]]
        shown = [f"{part:.3f}" for part in (*np.percentile(times, [50, 95]), np.mean(shares), min(shares))]
        wanted = f">= {_WANTED}" if measure == _name(MODES[0], KS[0]) else ""
        yield [measure, str(len(shares)), *shown, wanted]


def measure_wide(folder: Path, given: Embedded, progress: Progress, repeats: int, own: dict[str, Any]) -> Wide:
    """Fill a file with all memories, and search it.

    Args:
        folder: Where the file is.
        given: The texts and their vectors.
        progress: Where it is shown how far it is.
        repeats: How many queries are asked.
        own: memstore's further settings of `index`.
    """
    texts, count = given.lines.texts, len(given.lines.memories)
    lookup = Lookup(np.concatenate([given.memories, given.queries]), to_rows(texts))
    setup = Setup(lookup, given.memories.shape[1], own)
    wide = Wide(count, Timings(lookup))
    with ExitStack() as opened:
        base = opened.enter_context(Contestant(HYBRID, folder, setup))
        wide.seconds["filling"] = _fill(base.store, given, progress)
        stores = {MODES[1]: base, MODES[0]: open_ranked(opened, base, setup, MEMSTORE, MODES[0])}
        queries = given.lines.queries
        wide.seconds["first search over everything"] = _time(lambda: _search(base, queries[-1], 1))
        whole = {**own, "exact_below": count + 1, "cache_mb": 10 * setup.dims * count / 10**6 + 256}
        exact = opened.enter_context(Contestant(HYBRID, folder, Setup(lookup, setup.dims, whole)))
        oracles: dict[str, Callable[[str], Scores]] = {
            MODES[0]: lambda query: _score(given, lookup, query),
            MODES[1]: lambda query: {item.key: item.score or 0.0 for item in _search(exact, query, 2 * KS[-1])},
        }
        for mode in MODES:
            for query in queries[-_UNTIMED:]:
                _search(stores[mode], query, KS[-1])
            task = progress.add_task(f"everything, {mode}", total=min(repeats, len(queries)))
            for query in queries[:repeats]:
                found = {
                    k: wide.timings.timed(
                        _name(mode, k),
                        MEMSTORE,
                        lambda: _search(stores[mode], query, k),  # noqa: B023  called at once
                    )
                    for k in KS
                }
                scores = oracles[mode](query)
                for k, items in found.items():
                    wide.recalls.setdefault(_name(mode, k), []).append(to_recall(items, scores, k))
                progress.advance(task)
                progress.refresh()
    return wide


def to_recall(found: Sequence[SearchItem], scores: Scores, k: int) -> float:
    """Give the share of the k best by their exact scores that was found; what ties with the last counts as well.

    Args:
        found: An answer of k items at most.
        scores: The exact scores of all keys, or of more of the best than k.
        k: How many are due.
    """
    due = min(k, len(scores))
    last = sorted(scores.values(), reverse=True)[due - 1]
    return min(due, sum(scores.get(item.key, -np.inf) >= last - _ROOM for item in found)) / due


def _fill(store: BaseStore, given: Embedded, progress: Progress) -> float:
    """Put all memories; users take turns in writing. Give the seconds."""
    memories = given.lines.memories
    users = max(1, len(memories) // _PER_USER)
    ops = [PutOp(to_namespace(at % users), _to_key(at), {"text": text}) for at, text in enumerate(memories)]
    task = progress.add_task("filling", total=len(ops))
    seconds = 0.0
    for start in range(0, len(ops), BATCH):
        part = ops[start : start + BATCH]
        seconds += _time(lambda: store.batch(part))  # noqa: B023  called at once
        progress.update(task, completed=start + len(part), refresh=True)
    return seconds


def _score(given: Embedded, lookup: Lookup, query: str) -> Scores:
    """Give the cosine of every memory by its key."""
    cosines = given.memories @ lookup.vectors[lookup.to_row(query)]
    return {_to_key(at): cosine for at, cosine in enumerate(cosines.tolist())}


def _search(contestant: Contestant, query: str, limit: int) -> list[SearchItem]:
    return contestant.store.search((), query=query, limit=limit)


def _name(mode: str, k: int) -> str:
    return f"everything, {mode}, k = {k}"


def _to_key(at: int) -> str:
    return str(uuid.UUID(int=at))


def _time(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
