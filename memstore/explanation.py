"""Why a search gave what it gave, in the order it gave it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from langgraph.store.base import SearchItem

from memstore.config import Mode
from memstore.stats import IndexState

_TEXT: Final = 60
"""Characters of a text that are shown."""
_COLUMNS: Final = ("rank", "score", "key", "dense", "its rank", "lexical", "its rank", "words", "field", "text")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a query.

    Attributes:
        word: As it was read: in lower case, stop words left out.
        weight: Its part of the query's weight, in [0, 1].
        texts: How many texts of the scope hold it.
    """

    word: str
    weight: float
    texts: int


@dataclass(frozen=True, slots=True)
class ExplainedItem:
    """One result of a search.

    Attributes:
        item: The item, with its final score.
        rank: Its rank, from 1 on.
        field: The path of the text it was found by, which is the best of its texts.
        text: That text.
        dense: The score of the text's vector; None where vectors did not count.
        dense_rank: The item's rank by vectors alone, of the whole scope, whatever the filter; None where it was no
            candidate.
        lexical: The share of the query's weight that the text holds; None where words did not count.
        lexical_rank: The same by words alone; None too where it shares none.
        words: The words of the query that the text holds.
        fused: Both scores fused, times the weight of the field.
        ranked: The score by which the search ranked it: `fused`, with what neighbours lent and age took.
        reranked: What the reranker said of it; None where it did not look at it.
    """

    item: SearchItem
    rank: int
    field: str
    text: str
    dense: float | None
    dense_rank: int | None
    lexical: float | None
    lexical_rank: int | None
    words: tuple[str, ...]
    fused: float
    ranked: float
    reranked: float | None = None

    def __str__(self) -> str:
        return "  ".join(filter(None, _to_cells(self)))


@dataclass(frozen=True, slots=True)
class Explanation(Sequence[ExplainedItem]):
    """The results of a search, explained; a sequence of `ExplainedItem`, with a table as its text.

    Attributes:
        query: What was looked for.
        mode: How it was ranked.
        items: The results, best first.
        words: The words of the query, in its order; empty where words did not count.
        texts: How many texts the scope had.
        candidates: How many items were ranked.
        exact: Whether all in scope were ranked; otherwise an index had proposed the first ranks.
        found_by: What had proposed them; None where all were ranked.
    """

    query: str
    mode: Mode
    items: tuple[ExplainedItem, ...]
    words: tuple[Word, ...]
    texts: int
    candidates: int
    exact: bool
    found_by: IndexState | None = None

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, at: Any) -> Any:
        return self.items[at]

    def __iter__(self) -> Iterator[ExplainedItem]:
        return iter(self.items)

    def __str__(self) -> str:
        rows = [_COLUMNS, *map(_to_cells, self.items)]
        widths = [max(len(row[at]) for row in rows) for at in range(len(_COLUMNS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*self._lead(), "", *lines])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Show a table in a notebook."""
        head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
        rows = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _to_cells(item))}</tr>" for item in self.items
        )
        lead = "<br>".join(map(escape, self._lead()))
        return f"<p>{lead}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def _lead(self) -> list[str]:
        how = "exactly" if self.found_by is None else f"approximately, by {self.found_by}"
        lines = [
            f"{self.query!r}, mode {self.mode}: {self.candidates:,} items of {self.texts:,} texts in scope ranked {how}"
        ]
        if self.words:
            told = (f"{word.word} {word.weight:.0%} (in {word.texts:,})" for word in self.words)
            lines.append(f"words: {', '.join(told)}")
        return lines


def _to_cells(explained: ExplainedItem) -> tuple[str, ...]:
    text = " ".join(explained.text.split())
    return (
        str(explained.rank),
        f"{explained.item.score:.3f}",
        explained.item.key,
        "" if explained.dense is None else f"{explained.dense:.3f}",
        "" if explained.dense_rank is None else str(explained.dense_rank),
        "" if explained.lexical is None else f"{explained.lexical:.3f}",
        "" if explained.lexical_rank is None else str(explained.lexical_rank),
        ", ".join(explained.words),
        explained.field,
        text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…",
    )
