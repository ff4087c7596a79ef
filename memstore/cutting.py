"""Cutting a page: rows are offered in their final order, and those that pass the filter are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from memstore.items import Found, Microseconds, from_stored, to_found
from memstore.requests import Search
from memstore.scoring import Query, Ranking, Weights
from memstore.steps import Row

_SMALLEST_BLOCK: Final = 32
"""Rows read at once while a page is cut; doubled from block to block."""
_LARGEST_BLOCK: Final = 100_000
"""Rows read at once for a page without a filter, however large its limit."""


@dataclass(slots=True)
class Seen:
    """What a search by a query looked at."""

    texts: int = 0
    """In its scope."""
    candidates: int = 0
    """Items that were ranked."""
    exact: bool = True
    """Whether no index proposed any of them."""
    weights: Weights | None = None
    """What the query's terms weighed; None where they did not count."""


class Cut:
    """A page being cut: rows are offered in their final order, those that pass the filter are counted."""

    def __init__(self, request: Search, now: Microseconds, query: Query | None = None) -> None:
        self.found: list[Found] = []
        self.now = now
        self.seen = Seen()
        self._least = None if query is None else query.min_score
        self._over = False
        self.prefix = request.prefix
        self.narrowings = request.predicate.narrowings if request.predicate else ()
        self.key = request.predicate.key if request.predicate else None
        self._request = request
        self._passed = 0

    @property
    def full(self) -> bool:
        """Whether nothing more is wanted."""
        return self._over or len(self.found) >= self._request.limit

    def see(self, ranking: Ranking) -> None:
        """Note what was ranked."""
        self.seen.weights = ranking.weights
        self.seen.candidates = max(self.seen.candidates, len(ranking.item_ids))
        self.seen.exact = self.seen.exact and ranking.complete

    @property
    def wanted(self) -> int:
        """How many rows fill the page where all pass and none has expired."""
        return min(self._request.offset + self._request.limit - self._passed, _LARGEST_BLOCK)

    @property
    def block(self) -> int:
        """How many rows are read first."""
        return self.wanted if self._request.predicate is None else _SMALLEST_BLOCK

    def accepts(self, row: Row) -> bool:
        """Tell whether a row passes the filter."""
        predicate = self._request.predicate
        return predicate is None or predicate.accepts(from_stored(row[3]))

    def offer_ranked(self, ranking: Ranking, rows: Sequence[Row]) -> None:
        """Take rows in by their rank; items without a row have expired, or do not pass the filter."""
        live = {row[0]: row for row in rows}
        for item_id, score in zip(ranking.item_ids.tolist(), ranking.scores.tolist(), strict=True):
            if self._least is not None and score < self._least:
                self._over = True
                return
            row = live.get(item_id)
            if row is not None:
                self.offer(row, score)
                if self.full:
                    return

    def offer(self, row: Row, score: float | None) -> None:
        """Take a row in where it belongs to the page."""
        predicate = self._request.predicate
        if self.full or (predicate is None and self._skips()):
            return
        value = from_stored(row[3])
        if predicate is None or (predicate.accepts(value) and not self._skips()):
            self.found.append(to_found(row, value, score, scored=True))

    def _skips(self) -> bool:
        """Count a row that passed, and tell whether it lies before the page."""
        self._passed += 1
        return self._passed <= self._request.offset
