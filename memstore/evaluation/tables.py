"""A report as a table: plain text, HTML for notebooks, and rich for terminals, all of the same rows.

All queries come first, a row for each k and setting; then each category, at the largest k.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from memstore.evaluation.extras import need
from memstore.evaluation.measures import KINDS, to_name
from memstore.evaluation.outcomes import Estimate, SettingReport, Summary

ALL: Final = "all"
UNNAMED: Final = "(none)"
"""The category of cases without one, where others have one."""
_LABELS: Final = ("category", "setting")
_HEAD: Final = (*_LABELS, "k", "n", *KINDS, "p50 ms", "p95 ms")
_STYLE: Final = "padding: 0 0.8em; white-space: nowrap; text-align: "


@dataclass(frozen=True, slots=True)
class Row:
    """A row as it is shown: each cell's text, and the interval that belongs to it."""

    cells: tuple[tuple[str, str], ...]
    opens: bool
    """Whether a group of rows begins with it."""


def to_rows(settings: Mapping[str, SettingReport], cutoffs: Sequence[int]) -> Iterator[Row]:
    """Lay out a row for each category and setting, and of all queries together for each k too."""
    opens = True
    for cutoff in cutoffs:
        for name, setting in settings.items():
            yield _to_row(ALL if opens else "", name, cutoff, setting.overall)
            opens = False
    for category in next(iter(settings.values())).categories:
        opens = True
        for name, setting in settings.items():
            label = (category or UNNAMED) if opens else ""
            yield _to_row(label, name, cutoffs[-1], setting.categories[category])
            opens = False


def to_text(rows: Sequence[Row]) -> str:
    """Lay out a plain table."""
    lines = [_HEAD, *(tuple(" ".join(filter(None, cell)) for cell in row.cells) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    laid = ["  ".join(map(_pad, range(len(widths)), line, widths)).rstrip() for line in lines]
    ruler = "  ".join("-" * width for width in widths)
    return "\n".join([laid[0], ruler, *laid[1:]])


def to_html(rows: Sequence[Row], note: str) -> str:
    """Lay out a table for a notebook."""
    head = "".join(f'<th style="{_STYLE}{_side(at)}">{escape(name)}</th>' for at, name in enumerate(_HEAD))
    body = []
    for row in rows:
        cells = "".join(
            f'<td style="{_STYLE}{_side(at)}">{escape(text)}{f" <small>{escape(more)}</small>" if more else ""}</td>'
            for at, (text, more) in enumerate(row.cells)
        )
        line = ' style="border-top: 1px solid"' if row.opens else ""
        body.append(f"<tr{line}>{cells}</tr>")
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    return f"{table}<p><small>{escape(note)}</small></p>"


def to_rich(rows: Sequence[Row], note: str) -> Any:
    """Lay out a table for a terminal.

    Raises:
        MissingExtra: rich is not installed.
    """
    new_text = need("rich.text", "rich").Text
    table = need("rich.table", "rich").Table(
        box=need("rich.box", "rich").SIMPLE_HEAD,
        padding=0,
        show_edge=False,
        caption=new_text(note, style="dim"),
        caption_justify="left",
    )
    for at, name in enumerate(_HEAD):
        table.add_column(name, justify=_side(at), overflow="fold")
    for number, row in enumerate(rows):
        if row.opens and number:
            table.add_section()
        table.add_row(*(new_text.assemble(text, (f"\n{more}" if more else "", "dim")) for text, more in row.cells))
    return table


def _to_row(category: str, setting: str, cutoff: int, summary: Summary) -> Row:
    estimates = [_spell(summary.metrics[to_name(kind, cutoff)]) for kind in KINDS]
    times = [(f"{summary.p50_ms:.1f}", ""), (f"{summary.p95_ms:.1f}", "")]
    labels = [(category, ""), (setting, ""), (str(cutoff), ""), (f"{summary.queries:,}", "")]
    return Row((*labels, *estimates, *times), opens=bool(category))


def _spell(estimate: Estimate) -> tuple[str, str]:
    return f"{estimate.mean:.3f}", f"{estimate.low:.2f}-{estimate.high:.2f}"


def _pad(at: int, text: str, width: int) -> str:
    return text.ljust(width) if _side(at) == "left" else text.rjust(width)


def _side(at: int) -> str:
    return "left" if at < len(_LABELS) else "right"
