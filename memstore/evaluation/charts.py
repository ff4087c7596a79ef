"""A report as a chart: for each category a bar of every setting, with its interval."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import Any, Final

from memstore.errors import InvalidArgument
from memstore.evaluation.extras import need
from memstore.evaluation.outcomes import SettingReport, Summary
from memstore.evaluation.tables import ALL, UNNAMED

_COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
"""Okabe and Ito's palette, which the colour-blind can tell apart."""
_GROUP: Final = 0.8
"""The part of a group's room that its bars take."""
_LABEL: Final = 14
"""Characters in a line below a group."""


def draw(settings: Mapping[str, SettingReport], metric: str, path: Path) -> None:
    """Draw a chart of one metric into a file, whose suffix says in which format.

    Raises:
        InvalidArgument: The suffix names no format that matplotlib can write, or the file cannot be written.
        MissingExtra: matplotlib is not installed.
    """
    check_format(path)
    groups = [ALL, *next(iter(settings.values())).categories]
    figure = need("matplotlib.figure", "matplotlib").Figure(
        figsize=(max(6.0, 1.5 + len(groups) * (0.7 + 0.3 * len(settings))), 4.5), dpi=150
    )
    figure.set_layout_engine("constrained")
    axes = figure.add_subplot()
    for at, setting in enumerate(settings.values()):
        _draw_bars(axes, [setting.overall, *setting.categories.values()], metric, at, len(settings))
    counts = [summary.queries for summary in _summaries(settings)]
    labels = [f"{fill(name or UNNAMED, _LABEL)}\n(n = {count:,})" for name, count in zip(groups, counts, strict=True)]
    axes.set_xticks(range(len(groups)), labels, parse_math=False)
    axes.set_ylim(0, 1.05)
    axes.set_ylabel(f"{metric}, mean and 95 % interval")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    _name_bars(figure, axes, list(settings))
    try:
        figure.savefig(path)
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be written: {error.strerror}") from error


def check_format(path: Path) -> None:
    """Check that a file's suffix names a format that can be drawn.

    Raises:
        InvalidArgument: matplotlib cannot write it.
        MissingExtra: matplotlib is not installed.
    """
    known = need("matplotlib.backend_bases", "matplotlib").FigureCanvasBase.get_supported_filetypes()
    if path.suffix.removeprefix(".").lower() not in known:
        raise InvalidArgument(f"a chart is written as {', '.join(sorted(known))}, got the suffix {path.suffix!r}")


def _summaries(settings: Mapping[str, SettingReport]) -> list[Summary]:
    first = next(iter(settings.values()))
    return [first.overall, *first.categories.values()]


def _draw_bars(axes: Any, summaries: list[Summary], metric: str, at: int, of: int) -> None:
    """Draw a setting's bar in every group."""
    estimates = [summary.metrics[metric] for summary in summaries]
    below = [max(0.0, one.mean - one.low) for one in estimates]
    above = [max(0.0, one.high - one.mean) for one in estimates]
    width = _GROUP / of
    places = [group - _GROUP / 2 + (at + 0.5) * width for group in range(len(estimates))]
    axes.bar(
        places,
        [one.mean for one in estimates],
        width * 0.92,
        yerr=(below, above),
        capsize=2.5,
        color=_COLOURS[at % len(_COLOURS)],
        error_kw={"elinewidth": 0.9, "ecolor": "#333333"},
    )


def _name_bars(figure: Any, axes: Any, names: list[str]) -> None:
    """Name the settings. The names are set last: matplotlib leaves out those that begin with an underscore."""
    legend = figure.legend(
        axes.containers[1::2], list(map(str, range(len(names)))), loc="outside upper center", ncols=5, frameon=False
    )
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_parse_math(False)
        text.set_text(name)
