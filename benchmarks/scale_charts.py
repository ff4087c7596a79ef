"""Cost against size, drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.reads import COLD, WARM
from benchmarks.scale_figures import Figures
from benchmarks.scale_measures import RAW, SETTLED, WIDE
from memstore.evaluation.extras import need

_COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
"""Okabe and Ito's palette, which the colour-blind can tell apart."""
_STYLES: Final = ("-", "--")
_P50: Final = "p50 ms"
_TICKS: Final = 20
"""At most, on the vertical axis."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture.

    Attributes:
        name: Of its file.
        title: Above it.
        unit: Of its vertical axis.
        lines: Measures and their parts; the second is drawn dashed.
    """

    name: str
    title: str
    unit: str
    lines: Mapping[str, str]


CHARTS: Final = (
    Chart("user-search", "Search in a user's namespace, median", "ms", {WARM: _P50, COLD: _P50}),
    Chart("wide-search", "Search over everything, median", "ms", {WIDE: _P50}),
    Chart("memory", "Memory of a process that searches everything", "MB", {SETTLED: "", RAW: ""}),
)


def draw(figures: Figures, folder: Path) -> list[Path]:
    """Draw what there are figures for; give the files.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    need("matplotlib", "matplotlib").rcParams["svg.hashsalt"] = "memstore"  # the same figures give the same file
    drawn = []
    for chart in CHARTS:
        if any(figures.get(measure, part) for measure, part in chart.lines.items()):
            path = folder / f"{chart.name}.svg"
            _draw(figures, chart, path)
            drawn.append(path)
    return drawn


def _draw(figures: Figures, chart: Chart, path: Path) -> None:
    figure = need("matplotlib.figure", "matplotlib").Figure(figsize=(7.0, 4.2))
    figure.set_layout_engine("constrained")
    axes = figure.add_subplot()
    colours: dict[str, str] = {}
    for style, (measure, part) in zip(_STYLES, chart.lines.items(), strict=False):
        for store, by_size in figures.get(measure, part).items():
            colour = colours.setdefault(store, _COLOURS[len(colours) % len(_COLOURS)])
            label = store if len(chart.lines) == 1 or part == "" else f"{store}, {measure.rpartition(', ')[2]}"
            sizes = sorted(by_size)
            axes.plot(
                sizes, [by_size[size] for size in sizes], style, marker="o", markersize=4, color=colour, label=label
            )
    _label(axes, figures, chart)
    figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    figure.savefig(path, metadata={"Date": None})


def _label(axes: Any, figures: Figures, chart: Chart) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(figures.sizes, [f"{size:,}" for size in figures.sizes])
    axes.minorticks_off()
    ticker = need("matplotlib.ticker", "matplotlib")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5), numticks=_TICKS))
    axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
    axes.set_title(chart.title)
    axes.set_xlabel("memories in the store")
    axes.set_ylabel(chart.unit)
    axes.grid(which="major", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
