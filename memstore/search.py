"""The one search path: scope, filter, expiry, relevance, ties, limit and offset, for every backend.

A query ranks all texts of the scope exactly, from cached slices; the page is then cut by reading rows in rank order
until enough of them are live and pass the filter. Without a query the rows come newest first. Either way pages of any
size join without gap or duplicate, because the order does not depend on the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from memstore.dialects import Bounds, Dialect
from memstore.errors import INDEX_CHANGED, IndexMismatch
from memstore.indexes import Ids, Metric, Scores, Vectors
from memstore.indexes.flat import prepare
from memstore.items import Found, Microseconds, from_stored, to_found
from memstore.namespaces import to_range
from memstore.requests import Search
from memstore.scoring import rank, rank_dense
from memstore.slices import Scope, SliceCache, load_slices
from memstore.steps import Compute, Flow, Row

_GROUP: Final = 20_000
"""Texts scored at once: 30 MB of 384 dims, whatever the scope's size."""
_SMALLEST_BLOCK: Final = 32
"""Rows read at once while a page is cut; doubled from block to block."""
_LARGEST_BLOCK: Final = 100_000
"""Rows read at once for a page without a filter, however large its limit."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """What a search needs beside its request."""

    dialect: Dialect
    cache: SliceCache
    metric: Metric


@dataclass(frozen=True, slots=True)
class Query:
    """A query's vector of shape (dims,), and the index settings it was made under."""

    vector: Vectors
    index_id: int


def search(request: Search, query: Query | None, settings: SearchSettings, now: Microseconds) -> Flow[list[Found]]:
    """Answer one search.

    Args:
        request: The search.
        query: Its query, embedded, or None to answer newest first.
        settings: The backend's.
        now: Items expired by then are invisible.
    """
    if request.limit == 0:
        return []
    if query is None and not request.prefix:
        return (yield from _newest(request, None, settings.dialect, now))
    rows = yield settings.dialect.select_scope(*to_range(request.prefix))
    scopes = [Scope(*row[:4]) for row in rows]
    if query is None:
        return (yield from _newest(request, [scope.id for scope in scopes], settings.dialect, now))
    if rows and rows[0][4] != query.index_id:
        raise IndexMismatch(INDEX_CHANGED)
    ids, scores = yield from _rank(request, query.vector, scopes, settings, now)
    return (yield from _page(request, ids, scores, settings.dialect, now))


def _rank(
    request: Search, query: Vectors, scopes: Sequence[Scope], settings: SearchSettings, now: Microseconds
) -> Flow[tuple[Ids, Scores]]:
    """Rank the scope's items exactly; those that SQL can tell the filter refuses are left out."""
    prepared = prepare(settings.metric, query)
    narrowings = request.predicate.narrowings if request.predicate else ()
    ids: list[Ids] = []
    scores: list[Scores] = []
    for group in _grouped(scopes):
        slices = yield from load_slices(settings.dialect, settings.cache, settings.metric, group)
        if slices and slices[0].vectors.shape[1:] != query.shape:
            raise IndexMismatch(INDEX_CHANGED)
        ranked = yield Compute(partial(rank_dense, settings.metric, slices, prepared))
        if narrowings:
            kept = yield settings.dialect.select_narrowed([scope.id for scope in group], narrowings, now)
            stays = np.isin(ranked[0], np.fromiter((row[0] for row in kept), np.int64, len(kept)))
            ranked = ranked[0][stays], ranked[1][stays]
        ids.append(ranked[0])
        scores.append(ranked[1])
    if len(ids) == 1:
        return ids[0], scores[0]
    joined: tuple[Ids, Scores] = yield Compute(partial(rank, ids, scores))
    return joined


def _grouped(scopes: Sequence[Scope]) -> Iterator[list[Scope]]:
    """Group namespaces so that about `_GROUP` texts are in memory at once."""
    group: list[Scope] = []
    texts = 0
    for scope in scopes:
        if scope.texts:
            group.append(scope)
            texts += scope.texts
        if texts >= _GROUP:
            yield group
            group, texts = [], 0
    if group:
        yield group


def _page(request: Search, ids: Ids, scores: Scores, dialect: Dialect, now: Microseconds) -> Flow[list[Found]]:
    """Cut the page from a ranking: rows are read in rank order until it is full."""
    cut = _Cut(request)
    start, block = 0, _block(request)
    while start < len(ids) and not cut.full:
        places = range(start, min(start + block, len(ids)))
        rows = yield dialect.select_items_by_id(ids[start : places.stop].tolist(), now)
        live = {row[0]: row for row in rows}
        for place in places:
            row = live.get(int(ids[place]))
            if row is not None:
                cut.offer(row, float(scores[place]))
        start, block = places.stop, block * 2
    return cut.found


def _newest(request: Search, scope: Sequence[int] | None, dialect: Dialect, now: Microseconds) -> Flow[list[Found]]:
    """Cut the page from the items of some namespaces (None: of all), the newest first."""
    if scope is not None and not scope:
        return []
    cut = _Cut(request)
    narrowings = request.predicate.narrowings if request.predicate else ()
    bounds = Bounds(_block(request))
    while not cut.full:
        rows = yield dialect.select_newest(scope, narrowings, bounds, now)
        for row in rows:
            cut.offer(row, None)
        if len(rows) < bounds.limit:
            break
        bounds = Bounds(bounds.limit * 2, after=(rows[-1][5], rows[-1][0]))
    return cut.found


def _block(request: Search) -> int:
    """Choose how many rows are read first: without a filter the page is full after them unless some have expired."""
    return min(request.offset + request.limit, _LARGEST_BLOCK) if request.predicate is None else _SMALLEST_BLOCK


class _Cut:
    """A page being cut: rows are offered in their final order, those that pass the filter are counted."""

    def __init__(self, request: Search) -> None:
        self.found: list[Found] = []
        self._request = request
        self._passed = 0

    @property
    def full(self) -> bool:
        return len(self.found) >= self._request.limit

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
