"""Ranking wide scopes inside Postgres.

Where the database has its indexes, the best of a wide scope come from candidates: the nearest vectors, and the texts
that hold most of the query's weight. All are scored by the formula that ranks a narrow scope, with its statistics. A
first few candidates answer most pages, more follow where those are used up, and after them comes everything else.
Without an index everything is ranked at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from memstore.config import IndexSettings
from memstore.dialects.postgres_wide import TERMS_INDEX, VECTORS_INDEX, PostgresWide
from memstore.errors import VECTORS_MISSING, DatabaseDamaged
from memstore.indexes import Ids, Metric, Scores, Terms
from memstore.indexes.pgvector import to_score
from memstore.scoring import Query, Ranking, Weights, fuse, lend, rank, to_shares, weigh, weighted
from memstore.steps import Compute, Flow, Row
from memstore.wide_search import Proposal

_BROAD: Final = 0.1
"""Share of all texts from which on a scope takes candidates from the index of all; below, each of its own is scored."""
_TIES: Final = 4
"""How many times the candidates wanted are taken at most so that none is left out whose words tie with the last."""
_UNWEIGHTED: Final = 5
"""Columns of a term's postings where every text counts whole."""
_TO_SORT: Final = 20
"""About how many numbers are gone through for each that is sorted."""


@dataclass(frozen=True, slots=True)
class Texts:
    """All texts of some items, in the order of (item, place): arrays of shape (n,). Places count from 0."""

    items: Ids
    places: Ids

    def find(self, items: Ids, places: Ids) -> npt.NDArray[np.int64]:
        """Say where other texts are among these; -1 for those that are not."""
        if not len(self.items):
            return np.full(len(items), -1)
        found = np.minimum(np.searchsorted(self.items, items) + places, len(self.items) - 1)
        same = (self.items[found] == items) & (self.places[found] == places)
        return np.where(same, found, -1)


@dataclass(frozen=True, slots=True)
class Held:
    """Which texts of a scope hold which of a query's terms: pairs of shape (pairs,), the terms ascending.

    Each pair is a term, by its place among the query's, and a text with its number of terms.
    """

    which: npt.NDArray[np.int64]
    namespaces: Ids
    texts: Texts
    lengths: npt.NDArray[np.int64]
    weights: Weights
    by_term: Scores
    """What each of the query's terms weighs; 0 for those that do not count."""
    counts: Scores | None = None
    """What the text of each pair counts; None where all count whole."""

    def score(self, texts: Texts) -> Scores:
        """Score some texts by their words."""
        at = texts.find(self.texts.items, self.texts.places)
        there = at >= 0
        held = np.bincount(at[there], self.by_term[self.which[there]], len(texts.items)).astype(np.float64, copy=False)
        lengths = np.ones(len(texts.items), np.int64)
        lengths[at[there]] = self.lengths[there]
        return to_shares(held, lengths, self.weights.total)

    def rank(self) -> tuple[npt.NDArray[np.int64], Scores]:
        """Score every text that holds anything; each is told by one of its pairs."""
        items, places = self.texts.items, self.texts.places
        order = np.lexsort((places, items))  # stable: the terms of a text still ascend
        is_first = np.append(True, (np.diff(items[order]) != 0) | (np.diff(places[order]) != 0))[: len(order)]
        held = np.bincount(np.cumsum(is_first) - 1, self.by_term[self.which[order]]).astype(np.float64, copy=False)
        pairs = order[is_first]
        shares = to_shares(held, self.lengths[pairs], self.weights.total)
        return pairs, weighted(shares, None if self.counts is None else self.counts[pairs])


class DatabaseIndex:
    """What ranks wide scopes of one store on Postgres.

    Args:
        statements: Their SQL.
        metric: How vectors are compared.
        settings: The user's.
    """

    def __init__(self, statements: PostgresWide, metric: Metric, settings: IndexSettings) -> None:
        self._statements = statements
        self._metric: Metric = metric
        self._settings = settings
        self.possible = frozenset([TERMS_INDEX] if settings.ann == "none" else [TERMS_INDEX, VECTORS_INDEX])
        """Indexes that there could be."""
        self.ready: frozenset[str] = frozenset()
        """Those that may be used."""
        self.wanted = False
        """Whether a search would have used one that is not there."""
        few = min(settings.ef_search, settings.candidates)
        counts = [few, settings.candidates] if few < settings.candidates else [few]
        self.stages: list[Proposal] = [partial(self._propose, count) for count in counts]

    def rank(
        self,
        query: Query,
        clock: int,  # noqa: ARG002  the snapshot is the database's own
        namespaces: Ids | None,
        texts: int,
        among: Ids | None = None,
    ) -> Flow[Ranking]:
        """Rank a whole scope exactly, or some items of it, with the statistics of the whole."""
        yield self._statements.prepare(self._settings.ef_search)
        listed = None if namespaces is None else namespaces.tolist()
        held = None if query.terms is None else (yield from self._hold(query.terms, listed, texts))
        if query.vector is None:
            everything = (yield self._statements.items(listed))[0] if query.context else None
            ranking = _rank_words(held, everything, query.context)
            return ranking if among is None else ranking.only(np.isin(ranking.item_ids, among))
        if among is None or query.context:
            rows = yield self._statements.distances(self._metric, query.vector, listed, homes=query.context > 0)
        else:
            rows = yield self._statements.distances_among(self._metric, query.vector, among.tolist())
        if rows[0][0] is None and texts and among is None:
            raise DatabaseDamaged(VECTORS_MISSING)
        ranked: Ranking = yield Compute(partial(self._score, query, rows[0], held), _TO_SORT * texts)
        if among is None or not query.context:
            return ranked
        return ranked.only(np.isin(ranked.item_ids, among))

    def _propose(self, count: int, query: Query, clock: int, namespaces: Ids | None, texts: int) -> Flow[Ranking]:
        """Rank the candidates of a scope, up to `count` items; all there are where no index helps."""
        indexed = yield from self._has_index()
        if indexed and namespaces is not None:
            ((everything,),) = yield self._statements.estimate()
            indexed = texts > max(count, _BROAD * everything)
        weighs = bool(self._settings.weights) and query.terms is not None
        if query.vector is None or query.whole or weighs or not indexed:
            return (yield from self.rank(query, clock, namespaces, texts))
        listed = None if namespaces is None else namespaces.tolist()
        yield self._statements.prepare(max(self._settings.ef_search, count))
        nearest: list[Row] = yield self._statements.nearest(self._metric, query.vector, listed, count + 1)
        found = _whole(nearest, count + 1)
        held = None if query.terms is None else (yield from self._hold(query.terms, listed, texts))
        if held is not None:
            found = list(dict.fromkeys([*found, *_best(held, count)]))
        if not found:
            return Ranking(np.empty(0, np.int64), np.empty(0), complete=False)
        rows = yield self._statements.distances_of(self._metric, query.vector, found)
        ranking: Ranking = yield Compute(partial(self._score, query, rows[0], held))
        return replace(ranking.cut(0, count), complete=False)

    def _has_index(self) -> Flow[bool]:
        """Tell whether the index of vectors may be used; one that is there is not asked for again."""
        if not self.possible <= self.ready:
            rows = yield self._statements.index_state()
            self.ready = self.possible.intersection(name for name, valid in rows if valid)
            self.wanted = self.ready != self.possible
        return VECTORS_INDEX in self.ready

    def _hold(self, terms: Terms, namespaces: Sequence[int] | None, texts: int) -> Flow[Held]:
        """Find the texts of a scope that hold a query's terms, and weigh these by how many there are."""
        rows = yield self._statements.postings(terms, namespaces)
        held: Held = yield Compute(partial(_to_held, terms, texts, rows))
        return held

    def _score(self, query: Query, arrays: Sequence[Any], held: Held | None) -> Ranking:
        """Rank the items of texts by their distances and words."""
        if arrays[0] is None:
            return rank([], [])
        order = np.lexsort((arrays[1], arrays[0]))
        items, places, distances, *more = (array[order] for array in arrays)
        namespaces = more.pop(0) if query.context else items
        scores = to_score(self._metric, distances)
        if held is None:
            return rank([items], [scores])
        scores = weighted(fuse(scores, held.score(Texts(items, places))), more[0] if more else None)
        if query.context:
            items, scores, _ = lend(items, namespaces, scores, query.context)
        return replace(rank([items], [scores]), weights=held.weights)


def _to_held(terms: Terms, size: int, rows: Sequence[Row]) -> Held:
    counts = np.array([len(row[2]) for row in rows], np.int64)
    which = np.repeat(np.array([row[0] - 1 for row in rows], np.int64), counts)
    columns = [np.concatenate([row[at] for row in rows]) if rows else np.empty(0, np.int64) for at in range(1, 5)]
    weights = weigh(terms, np.bincount(which, minlength=len(terms)), size)
    by_term = np.zeros(len(terms))
    by_term[np.searchsorted(terms, weights.terms)] = weights.weights
    counted = np.concatenate([row[5] for row in rows]) if rows and len(rows[0]) > _UNWEIGHTED else None
    return Held(which, columns[0], Texts(columns[1], columns[2]), columns[3], weights, by_term, counted)


def _whole(nearest: Sequence[Row], count: int) -> list[tuple[int, int]]:
    """Give the items (namespace_id, item_id) of the nearest texts, without those of which as near ones were cut off.

    Equal texts keep the later written first, so they are to come together.
    """
    last = max((row[2] for row in nearest), default=0.0) if len(nearest) >= count else None
    return [(row[0], row[1]) for row in nearest if row[2] != last]


def _rank_words(held: Held | None, everything: Sequence[Any] | None = None, context: int = 0) -> Ranking:
    """Rank the items that hold anything; with context, among everything there is (item ids, namespace ids)."""
    if held is None:
        return Ranking.nothing()
    if not len(held.which):
        return replace(Ranking.nothing(), weights=held.weights)
    pairs, scores = held.rank()
    items = held.texts.items[pairs]
    if everything is not None and everything[0] is not None:
        items = np.concatenate([items, everything[0]])
        namespaces = np.concatenate([held.namespaces[pairs], everything[1]])
        items, scores, own = lend(items, namespaces, np.append(scores, np.zeros(len(everything[0]))), context)
        items, scores = items[own], scores[own]
    return replace(rank([items[scores > 0]], [scores[scores > 0]]), weights=held.weights)


def _best(held: Held, count: int) -> list[tuple[int, int]]:
    """Give the items (namespace_id, item_id) of the texts that hold most, about `count`."""
    if not len(held.which):
        return []
    pairs, scores = held.rank()
    best = pairs[np.lexsort((-held.texts.items[pairs], -scores))]
    if len(best) > count:  # with all that are as good as the last, unless they are too many
        least = np.partition(scores, -count)[-count]
        best = best[: min(int((scores >= least).sum()), _TIES * count)]
    return list(zip(held.namespaces[best].tolist(), held.texts.items[best].tolist(), strict=True))
