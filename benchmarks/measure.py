"""Times, percentiles and Markdown tables.

Stores take turns at every repeat, the first place alternating, so that what disturbs the machine disturbs them alike.
The time that the shared embedding took is taken off each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.oracle import Shares
from benchmarks.peers import FRESH, MEMSTORE, Contestant
from benchmarks.workload import Lookup

T = TypeVar("T")
R = TypeVar("R")
_SMALL: Final = 10.0
"""From here on a number is printed without its second decimal."""


@dataclass(slots=True)
class Timings:
    """Seconds by measure and store, in the order they were taken, and how good the answers were."""

    lookup: Lookup
    seconds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    planned: dict[str, int] = field(default_factory=dict)
    """How many turns a measure has."""
    shares: dict[tuple[str, str], Shares] = field(default_factory=dict)
    """Verdicts by measure and store, where something was asked."""

    def timed(self, measure: str, store: str, action: Callable[[], T]) -> T:
        """Time one action, without the embedding's part, and give what it returned."""
        embedded = self.lookup.seconds
        start = time.perf_counter()
        result = action()
        taken = time.perf_counter() - start
        self.add(measure, store, taken - (self.lookup.seconds - embedded))
        return result

    def add(self, measure: str, store: str, seconds: float) -> None:
        """Take a time in."""
        self.seconds.setdefault(measure, {}).setdefault(store, []).append(seconds)

    def plan(self, measure: str, turns: int) -> None:
        """Take in how many turns a measure has."""
        self.planned[measure] = turns

    def rows(self) -> list[list[str]]:
        """Lay out one row for each measure and store, with memstore's part of each peer's time."""
        laid: list[list[str]] = []
        for measure, by_store in self.seconds.items():
            for store, seconds in by_store.items():
                there = to_percentiles(seconds)
                base = _to_base(store)
                ratios = ["", ""]
                if base in by_store and base != store:
                    own = to_percentiles(by_store[base])
                    ratios = [f"{mine / peers:.2f}" for mine, peers in zip(own, there, strict=True)]
                planned = self.planned.get(measure, 0)
                count = f"{len(seconds)} of {planned}" if len(seconds) < planned else str(len(seconds))
                times = [f"{1e3 * part:.3f}" for part in there]
                laid.append([measure, store, count, *times, *self._spell_shares(measure, store), *ratios])
        return laid

    def _spell_shares(self, measure: str, store: str) -> tuple[str, str]:
        shares = self.shares.get((measure, store))
        if shares is None:
            return "", ""
        return f"{shares.right:.3f}", "" if shares.found is None else f"{shares.found:.3f}"


TIMES_HEAD: Final = [
    "measure", "store", "n", "p50 ms", "p95 ms", "recall@k", "source found", "memstore / it, p50", "memstore / it, p95",
]  # fmt: skip
VALUES_HEAD: Final = ["measure", "store", "value", "memstore / it"]


@dataclass(slots=True)
class Values:
    """What is no time: numbers by measure and store."""

    numbers: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, measure: str, store: str, number: float) -> None:
        """Take a number in."""
        self.numbers.setdefault(measure, {})[store] = number

    def rows(self) -> list[list[str]]:
        """Lay out one row for each measure and store."""
        laid: list[list[str]] = []
        for measure, by_store in self.numbers.items():
            for store, number in by_store.items():
                base = _to_base(store)
                shown = base in by_store and base != store and number
                laid.append([measure, store, spell(number), f"{by_store[base] / number:.2f}" if shown else ""])
        return laid


def in_turns(contestants: Sequence[Contestant], repeats: Iterable[R]) -> Iterator[tuple[R, Contestant]]:
    """Give each repeat to each store: A B, B A, A B and so on."""
    for turn, repeat in enumerate(repeats):
        for contestant in contestants if turn % 2 == 0 else reversed(contestants):
            yield repeat, contestant


def to_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out a Markdown table; columns of numbers stand to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    numeric = [all(_is_number(cell) for cell in column) for column in zip(*rows, strict=True)]
    ruler = ["-" * (width - number) + ":" * number for width, number in zip(widths, numeric, strict=True)]
    lines = [
        " | ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, numeric, strict=True)
        )
        for row in [head, ruler, *rows]
    ]
    return "\n".join(f"| {line} |" for line in lines)


def to_percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """Give the median and the 95th percentile."""
    p50, p95 = np.percentile(seconds, [50, 95])
    return float(p50), float(p95)


def to_progress() -> Progress:
    """Make a progress bar on the error stream, so that tables can be sent to a file."""
    return Progress(
        TextColumn("{task.description:<44}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
    )


def _to_base(store: str) -> str:
    """Name the store whose figures are divided by this one's: memstore, or what a fresh store is the copy of."""
    return store.removesuffix(FRESH) if store.endswith(FRESH) else MEMSTORE


def spell(number: float) -> str:
    """Spell a number that is no time."""
    if number == int(number) or abs(number) >= 10 * _SMALL:
        return f"{number:,.0f}"
    return f"{number:.1f}" if abs(number) >= _SMALL else f"{number:.3f}"


def _is_number(cell: str) -> bool:
    return not cell or cell.replace(",", "").replace(".", "").isdigit()
