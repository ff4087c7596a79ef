"""The figures of all sizes: as Markdown tables and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import spell, to_percentiles, to_table
from benchmarks.run import Run

BASE: Final = 10_000
"""The size that the largest is divided by."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number."""

    size: int
    """Items in the store."""
    measure: str
    store: str
    part: str
    """`p50 ms`, `p95 ms`, `recall@10`, `source found`; empty where the measure is a number itself."""
    value: float
    n: int = 1
    """Times it was measured."""


@dataclass(slots=True)
class Figures:
    """All of a run.

    Attributes:
        about: What they were measured with.
        found: The numbers, in the order they were measured.
    """

    about: dict[str, Any]
    found: list[Figure] = field(default_factory=list)

    @property
    def sizes(self) -> list[int]:
        """Those there are figures of."""
        return sorted({figure.size for figure in self.found})

    def take(self, size: int, run: Run) -> None:
        """Take in what was measured of stores of one size."""
        for measure, by_store in run.timings.seconds.items():
            for store, seconds in by_store.items():
                for part, value in zip(("p50 ms", "p95 ms"), to_percentiles(seconds), strict=True):
                    self.found.append(Figure(size, measure, store, part, 1e3 * value, len(seconds)))
                shares = run.timings.shares.get((measure, store))
                if shares is None:
                    continue
                count = len(shares.verdicts)
                self.found.append(Figure(size, measure, store, "recall@10", shares.right, count))
                if shares.found is not None:
                    self.found.append(Figure(size, measure, store, "source found", shares.found, count))
        for measure, numbers in run.values.numbers.items():
            self.found += [Figure(size, measure, store, "", value) for store, value in numbers.items()]

    def get(self, measure: str, part: str = "") -> dict[str, dict[int, float]]:
        """Give the numbers of a measure by store and size."""
        found: dict[str, dict[int, float]] = {}
        for figure in self.found:
            if (figure.measure, figure.part) == (measure, part):
                found.setdefault(figure.store, {})[figure.size] = figure.value
        return found

    def to_text(self) -> str:
        """Lay out a row for each measure and store, with a column for each size."""
        rows: dict[tuple[str, str, str], dict[int, float]] = {}
        for figure in self.found:
            rows.setdefault((figure.measure, figure.part, figure.store), {})[figure.size] = figure.value
        measures = list(dict.fromkeys((measure, part) for measure, part, _ in rows))
        head = ["measure", "", "store", *(f"{size:,}" for size in self.sizes)]
        compares = BASE in self.sizes and max(self.sizes) > BASE
        if compares:
            head.append(f"{max(self.sizes):,} / {BASE:,}")
        laid = []
        for wanted in measures:
            for (measure, part, store), by_size in rows.items():
                if (measure, part) == wanted:
                    cells = [spell(by_size[size]) if size in by_size else "" for size in self.sizes]
                    ratio = _compare(by_size, self.sizes) if part.endswith("ms") else ""
                    laid.append([measure, part, store, *cells, *([ratio] if compares else [])])
        return to_table(head, laid)

    def save(self, path: Path) -> None:
        """Write everything down as JSON."""
        whole = {"about": self.about, "figures": [asdict(figure) for figure in self.found]}
        path.write_text(json.dumps(whole, indent=1) + "\n")


def _compare(by_size: dict[int, float], sizes: Sequence[int]) -> str:
    """Say how many times as much the largest size took as the one that is its base."""
    base, largest = by_size.get(BASE), by_size.get(max(sizes))
    return f"{largest / base:.2f}" if base and largest is not None else ""
