"""The one search path: scope, filter, expiry, relevance, ties, limit and offset, for every backend.

A query ranks all texts of a narrow scope exactly, from cached slices. In a wide one the first ranks come from one set
of candidates, fixed whatever the page, and the deeper ones follow exactly. The page is then cut by reading rows in rank
order until enough of them are live and pass the filter. Without a query the rows come newest first. Either way pages of
any size join without gap or duplicate, because the order does not depend on the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from memstore.cutting import Cut, Seen
from memstore.dialects import Bounds, Dialect
from memstore.errors import INDEX_CHANGED, VECTORS_MISSING, DatabaseDamaged, IndexMismatch
from memstore.history import History
from memstore.indexes import Ids, Metric
from memstore.indexes.growing import is_among
from memstore.items import Found, Microseconds
from memstore.namespaces import to_range
from memstore.requests import Search
from memstore.scoring import Query, Ranking, Weights, rank, rank_slices, weigh
from memstore.slices import Scope, Slice, SliceCache, load_slices
from memstore.steps import Compute, Flow, Row
from memstore.wide_search import WideSearch

_GROUP: Final = 20_000
"""Texts scored at once: 30 MB of 384 dims, whatever the scope's size."""
_FEW: Final = 64
"""Namespaces of a scope that are read before it is known how many there are."""
_SMALL: Final = 1_000
"""Texts of a scope up to which all its items that may pass a filter are read at once."""
_PROBED: Final = 4
"""Of so many parts of a wide scope's candidates the first shows how many of them pass a filter."""
_ENOUGH: Final = 0.05
"""The share of them that has to pass."""
_ALL: Final = 2**62
"""More namespaces than there are."""
_BEFORE_ALL: Final = -(2**62)
"""A time before every expiry."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """What a search needs beside its request."""

    dialect: Dialect
    cache: SliceCache
    metric: Metric
    history: History
    wide: WideSearch | None = None
    """What ranks wide scopes; where it is None every scope is ranked as a narrow one."""
    exact_below: int = 0
    """Texts up to which a scope is narrow."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a search looks: its namespaces, unless they are too many texts to be ranked whole."""

    texts: int
    clock: int
    scopes: Sequence[Scope] | None = None


def search(request: Search, query: Query | None, settings: SearchSettings, now: Microseconds) -> Flow[list[Found]]:
    """Answer one search.

    Args:
        request: The search.
        query: What it looks for, or None to answer newest first.
        settings: The backend's.
        now: Items expired by then are invisible.
    """
    if request.limit == 0:
        return []
    if query is None:
        return (yield from _newest(request, settings.dialect, now))
    found, _ = yield from find(request, query, settings, now)
    return found


def find(request: Search, query: Query, settings: SearchSettings, now: Microseconds) -> Flow[tuple[list[Found], Seen]]:
    """Answer a search by a query as `search` does, and say what was looked at."""
    cut = Cut(request, now, query)
    place = yield from enter(request, query, settings)
    if place is None:
        return [], cut.seen
    cut.seen.texts = place.texts
    if place.scopes is None and settings.wide is not None:
        yield from _cut_wide(cut, query, (place.clock, place.texts), settings.wide, settings.dialect)
    else:
        yield from _cut_narrow(cut, query, place.scopes or (), settings)
    return cut.found, cut.seen


def rank_leg(request: Search, query: Query, settings: SearchSettings) -> Flow[Ranking]:
    """Rank the scope of a search by a query of its own: whole, or the candidates of a wide one."""
    place = yield from enter(request, query, settings)
    if place is None:
        return rank([], [])
    if place.scopes is None and settings.wide is not None:
        namespaces = yield from _namespaces_below(request.prefix, settings.dialect)
        return (yield from settings.wide.stages[-1](query, place.clock, namespaces, place.texts))
    return (yield from _rank(query, place.scopes or (), settings))[0]


def enter(request: Search, query: Query, settings: SearchSettings) -> Flow[Place | None]:
    """Look at the namespaces of a search; None where there are none."""
    wide = settings.wide
    held = wide is not None and not request.prefix and wide.texts > settings.exact_below
    rows = yield settings.dialect.select_scope(*to_range(request.prefix), 1 if held else _FEW + 1)
    if not rows:
        return None
    clock, index_id, mark = rows[0][4:]
    if index_id != query.index_id:
        raise IndexMismatch(INDEX_CHANGED)
    if not settings.history.knows(clock, mark):
        yield from _look_back(clock, settings)
    if held and wide is not None:
        known = wide.count(clock)
        if known is not None and known > settings.exact_below:
            return Place(known, clock)
        rows = yield settings.dialect.select_scope(*to_range(request.prefix), _FEW + 1)
    texts = sum(row[2] for row in rows)
    if len(rows) > _FEW:
        ((_, texts),) = yield settings.dialect.count_scope(*to_range(request.prefix))
    if settings.wide is not None and texts > settings.exact_below:
        return Place(texts, clock)
    if len(rows) > _FEW:
        rows = yield settings.dialect.select_scope(*to_range(request.prefix), _ALL)
    return Place(texts, clock, [Scope(*row[:4]) for row in rows])


def _namespaces_below(prefix: bytes, dialect: Dialect) -> Flow[Ids | None]:
    """Give the ids of the namespaces below a prefix; None for everything."""
    if not prefix:
        return None
    rows = yield dialect.select_scope_ids(*to_range(prefix))
    return np.array([row[0] for row in rows], np.int64)


def _look_back(clock: int, settings: SearchSettings) -> Flow[None]:
    """Forget what is held in memory where it is of another history than this snapshot."""
    ((marks,),) = yield settings.dialect.select_marks()
    if settings.history.goes_on(clock, marks):
        return
    settings.cache.clear()
    if settings.wide is not None:
        yield Compute(settings.wide.forget)
    settings.history.begin(clock, marks)


def _cut_narrow(cut: Cut, query: Query, scopes: Sequence[Scope], settings: SearchSettings) -> Flow[None]:
    """Cut the page from an exact ranking of some namespaces."""
    ranking, slices = yield from _rank(query, scopes, settings)
    ranking = yield from _age(cut, query, ranking, settings.dialect, [scope.id for scope in scopes])
    cut.see(ranking)
    if not cut.narrowings:
        yield from _read_page(cut, ranking, settings.dialect)
    elif len(ranking.item_ids) > _SMALL:
        namespaces = [scope.id for scope in scopes]
        kept = yield settings.dialect.select_narrowed(namespaces, cut.narrowings, cut.now)
        yield from _read_page(cut, _only(ranking, kept), settings.dialect, filtered=True)
    else:
        yield from _cut_filtered(cut, ranking, scopes, slices, settings.dialect)


def _cut_filtered(
    cut: Cut, ranking: Ranking, scopes: Sequence[Scope], slices: Sequence[Slice], dialect: Dialect
) -> Flow[None]:
    """Cut the page from the few items that pass a filter; one namespace remembers which these are."""
    slice_ = slices[0] if len(scopes) == 1 and slices else None
    passing = slice_.passing.get(cut.key) if slice_ is not None and cut.key is not None else None
    if passing is not None:
        yield from _read_page(cut, ranking.only(is_among(ranking.item_ids, passing)), dialect, filtered=True)
        return
    rows = yield dialect.select_narrowed_items([scope.id for scope in scopes], cut.narrowings, _BEFORE_ALL)
    if slice_ is not None and cut.key is not None:
        accepted = [row[0] for row in rows if cut.accepts(row)]
        slice_.remember(cut.key, np.sort(np.array(accepted, np.int64)))
    cut.offer_ranked(ranking, [row for row in rows if row[7] is None or row[7] > cut.now])


def _age(
    cut: Cut, query: Query, ranking: Ranking, dialect: Dialect, namespaces: Sequence[int] | None = None
) -> Flow[Ranking]:
    """Take off for age where that is wanted; the items are of some namespaces, or told by their ids."""
    if query.recency is None or not len(ranking.item_ids):
        return ranking
    if namespaces is None:
        rows = yield dialect.select_times_of(ranking.item_ids.tolist())
    else:
        rows = yield dialect.select_times(namespaces)
    times = np.array(rows, np.int64)
    times = times[np.argsort(times[:, 0])]
    written = times[np.searchsorted(times[:, 0], ranking.item_ids), 1]
    return ranking.aged(written, cut.now, query.recency)


def _rank(query: Query, scopes: Sequence[Scope], settings: SearchSettings) -> Flow[tuple[Ranking, list[Slice]]]:
    """Rank the items of some namespaces exactly; give the slices that were looked at last too."""
    groups = list(_grouped(scopes))
    slices: list[Slice] = []
    weights: Weights | None = None
    if query.terms is not None:
        holders = np.zeros(len(query.terms), np.int64)
        for group in groups:
            slices = yield from load_slices(settings.dialect, settings.cache, settings.metric, group)
            holders += sum(part.postings.count(query.terms) for part in slices)
        weights = weigh(query.terms, holders, sum(scope.texts for scope in scopes))
    ranked: list[Ranking] = []
    for group in groups:
        if weights is None or len(groups) > 1:
            slices = yield from load_slices(settings.dialect, settings.cache, settings.metric, group)
        _check_dims(slices, query)
        size = sum(part.vectors.size for part in slices)
        ranked.append((yield Compute(partial(rank_slices, query, settings.metric, slices, weights), size)))
    if len(ranked) == 1:
        return ranked[0], slices
    joined: Ranking = yield Compute(partial(rank, [part.item_ids for part in ranked], [part.scores for part in ranked]))
    return replace(joined, weights=weights), slices


def _check_dims(slices: Sequence[Slice], query: Query) -> None:
    if query.vector is None:
        return
    for part in slices:
        if part.vectors.shape[1] == 0:
            raise DatabaseDamaged(VECTORS_MISSING)
        if part.vectors.shape[1] != len(query.vector):
            raise IndexMismatch(INDEX_CHANGED)


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


def _cut_wide(cut: Cut, query: Query, at: tuple[int, int], wide: WideSearch, dialect: Dialect) -> Flow[None]:
    """Cut the page from the candidates of a wide scope, and where they are too few from all that follows them."""
    clock, texts = at
    namespaces = yield from _namespaces_below(cut.prefix, dialect)
    if cut.narrowings:
        yield from _cut_wide_filtered(cut, query, (clock, texts, namespaces), wide, dialect)
        return
    before: Ranking | None = None
    for propose in wide.stages:
        near = yield from propose(query, clock, namespaces, texts)
        near = yield from _age(cut, query, near, dialect)
        cut.see(near)
        part = near if before is None else near.after(before)
        yield from _read_page(cut, part, dialect)
        if near.complete or cut.full:
            return
        before = part if before is None else before.followed_by(part)
    far = yield from wide.rank(query, clock, namespaces, texts)
    far = yield from _age(cut, query, far, dialect)
    cut.see(far)
    yield from _read_page(cut, far if before is None else far.after(before), dialect)


def _cut_wide_filtered(
    cut: Cut, query: Query, at: tuple[int, int, Ids | None], wide: WideSearch, dialect: Dialect
) -> Flow[None]:
    """Cut the page from the candidates where enough of the best of them pass, else from an exact ranking of what may.

    Candidates are the less complete the deeper they stand, and a filter reaches deep.
    """
    clock, texts, namespaces = at
    near = yield from wide.stages[-1](query, clock, namespaces, texts)
    near = yield from _age(cut, query, near, dialect)
    cut.see(near)
    if near.complete:
        yield from _read_page(cut, near, dialect)
        return
    best = near.cut(0, len(near.item_ids) // _PROBED)
    passing = yield dialect.select_passing(best.item_ids.tolist(), cut.narrowings, cut.now)
    before: Ranking | None = None
    if len(passing) >= _ENOUGH * len(best.item_ids):
        yield from _read_page(cut, _only(best, passing), dialect, filtered=True)
        yield from _read_page(cut, near.cut(len(best.item_ids), len(near.item_ids)), dialect)
        if cut.full:
            return
        before = near
    listed = None if namespaces is None else namespaces.tolist()
    rows = yield dialect.select_narrowed(listed, cut.narrowings, cut.now)
    far = yield from wide.rank(
        query, clock, namespaces, texts, np.fromiter((row[0] for row in rows), np.int64, len(rows))
    )
    far = yield from _age(cut, query, far, dialect)
    cut.see(far)
    yield from _read_page(cut, far if before is None else far.after(before), dialect, filtered=True)


def _only(ranking: Ranking, rows: Sequence[Row]) -> Ranking:
    """Keep the items of some rows (id,)."""
    return ranking.only(np.isin(ranking.item_ids, np.fromiter((row[0] for row in rows), np.int64, len(rows))))


def _read_page(cut: Cut, ranking: Ranking, dialect: Dialect, *, filtered: bool = False) -> Flow[None]:
    """Read rows in rank order until the page is full; `filtered` says that only what may pass the filter is left."""
    start, block = 0, cut.wanted if filtered else cut.block
    narrowings = () if filtered else cut.narrowings
    while start < len(ranking.item_ids) and not cut.full:
        part = ranking.cut(start, start + block)
        cut.offer_ranked(part, (yield dialect.select_items_by_id(part.item_ids.tolist(), cut.now, narrowings)))
        start, block = start + block, block * 2


def _newest(request: Search, dialect: Dialect, now: Microseconds) -> Flow[list[Found]]:
    """Cut the page from the items of a scope, the newest first."""
    scope: list[int] | None = None
    if request.prefix:
        rows = yield dialect.select_scope_ids(*to_range(request.prefix))
        scope = [row[0] for row in rows]
        if not scope:
            return []
    cut = Cut(request, now)
    bounds = Bounds(cut.block)
    while not cut.full:
        rows = yield dialect.select_newest(scope, cut.narrowings, bounds, cut.now)
        for row in rows:
            cut.offer(row, None)
        if len(rows) < bounds.limit:
            break
        bounds = Bounds(bounds.limit * 2, after=(rows[-1][5], rows[-1][0]))
    return cut.found
