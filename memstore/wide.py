"""All texts of a database in memory, as they were at one clock: what a wide search ranks.

The best of a wide scope come from one set of candidates: what the vector index proposes, and in hybrid mode the texts
that hold most of the query's weight. All are scored by the formula that ranks a narrow scope, over the same statistics.
Whatever lies deeper can be ranked exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from memstore.errors import INDEX_CHANGED, VECTORS_MISSING, DatabaseDamaged, IndexMismatch
from memstore.indexes import Counts, Ids, Metric, Places, Scores, Terms, Vectors
from memstore.indexes.faiss import FaissIndex
from memstore.indexes.growing import Growing, places_of, ranges
from memstore.indexes.postings import GrowingPostings
from memstore.scoring import Query, Ranking, Weights, fuse, lend, rank, to_shares, weigh, weighted

Mask = npt.NDArray[np.bool_]
_DEAD_SHARE: Final = 0.1
_DEAD_LEAST: Final = 1_000
"""Removed texts are forgotten when they are more than this many and this share of all."""
_TIES: Final = 4
"""How many times the candidates wanted are taken at most so that none is left out whose words tie with the last."""
_BROAD: Final = 0.25
"""Share of all texts from which on a scope takes candidates from the index of all; below, each of its own is scored."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts of a database in the order of their ids, as arrays: ids of shape (n,), vectors of shape (n, dims)."""

    text_ids: Ids
    item_ids: Ids
    namespace_ids: Ids
    vectors: Vectors
    lengths: Counts
    terms: Terms
    counts: Scores | None = None
    """What each text counts; None where all count whole."""


class WideIndex:
    """The texts of one database at one clock.

    Args:
        metric: How vectors are compared.
        expected: How many texts are to come first.
    """

    def __init__(self, metric: Metric, expected: int = 0) -> None:
        self.clock = 0
        self.last_id = 0
        """The largest id there was at that clock, or of an item added since."""
        self.dense: FaissIndex | None = None
        """The vectors, where texts have any."""
        self._metric: Metric = metric
        self._expected = expected
        self._text_ids = Growing(np.int64)
        self._item_ids = Growing(np.int64)
        self._namespace_ids = Growing(np.int64)
        self._alive = Growing(np.bool_)
        self._counts: Growing[np.float64] | None = None
        """What texts count, where not all count whole."""
        self._dead = 0
        self._several = False
        """Whether any item has several texts."""
        self._postings = GrowingPostings()

    def __len__(self) -> int:
        return len(self._text_ids) - self._dead

    def add(self, texts: Texts) -> None:
        """Add texts whose ids are larger than all before.

        Raises:
            DatabaseDamaged: Some have vectors and some have none.
        """
        if not len(texts.text_ids):
            return
        dims = texts.vectors.shape[1]
        if not len(self):
            self._compact()
            self.dense = None
        if len(self._text_ids) and dims != (0 if self.dense is None else self.dense.dims):
            raise DatabaseDamaged(VECTORS_MISSING)
        self._text_ids.append(texts.text_ids)
        self._item_ids.append(texts.item_ids)
        self._namespace_ids.append(texts.namespace_ids)
        self._alive.append(np.ones(len(texts.text_ids), np.bool_))
        if texts.counts is not None:
            self._counts = self._counts or Growing(np.float64)
            self._counts.append(texts.counts)
        self._several |= bool((np.diff(texts.item_ids) == 0).any())
        self._postings.add(texts.lengths, texts.terms)
        if dims:
            if self.dense is None:
                self.dense = FaissIndex(dims, self._metric, self._expected)
            self.dense.add(texts.text_ids, texts.vectors)
        self.last_id = int(texts.item_ids[-1])

    def remove(self, removals: Sequence[tuple[int, int]]) -> None:
        """Remove texts (first text id, number); those that never came are left aside."""
        if not removals:
            return
        first = np.array([text_id for text_id, _ in removals], np.int64)
        counts = np.array([count for _, count in removals], np.int64)
        at = places_of(np.unique(ranges(first, counts)), self._text_ids.rows)
        at = at[self._alive.rows[at]]
        self._alive.rows[at] = False
        self._dead += len(at)
        if self.dense is not None:
            self.dense.remove(self._text_ids.rows[at])
        if self._dead > max(_DEAD_LEAST, _DEAD_SHARE * len(self._text_ids)):
            self._compact()

    def propose(self, query: Query, namespaces: Ids | None, count: int) -> Ranking:
        """Rank the candidates of a scope: up to `count` items, the same whatever page is wanted of them.

        Args:
            query: The query.
            namespaces: The scope; None for everything.
            count: How many items are ranked.
        """
        self._check_dims(query)
        scope = self._scope(namespaces)
        size = len(self) if namespaces is None else int(scope.sum())
        if query.vector is None or query.whole or self._weighs(query) or size <= max(count, _BROAD * len(self)):
            return self._rank(query, scope, size)
        if self.dense is None:
            raise DatabaseDamaged(VECTORS_MISSING)
        found = self.dense.propose(query.vector, int(count * len(self) / size))
        if namespaces is not None:
            found = found[scope[found]]
        words = None if query.terms is None else self._hold(query.terms, scope, size)
        if words is not None:
            found = np.union1d(found, words.best(scope, count))
        ranking = self._rank_at(self._whole_items(found), query, words).cut(0, count)
        return replace(ranking, complete=False)

    def rank(self, query: Query, namespaces: Ids | None) -> Ranking:
        """Rank all items of a scope exactly."""
        self._check_dims(query)
        scope = self._scope(namespaces)
        return self._rank(query, scope, int(scope.sum()))

    def _check_dims(self, query: Query) -> None:
        if query.vector is not None and self.dense is not None and len(query.vector) != self.dense.dims:
            raise IndexMismatch(INDEX_CHANGED)

    def _rank(self, query: Query, scope: Mask, size: int) -> Ranking:
        words = None if query.terms is None else self._hold(query.terms, scope, size)
        if query.vector is not None:
            return self._rank_at(np.flatnonzero(scope), query, words)
        if words is None:
            return rank([], [])
        places = np.flatnonzero(scope) if query.context else words.holders(scope)
        ids, scores = self._item_ids.rows[places], self._weighted(words.score(places), places)
        if query.context:
            ids, scores, own = lend(ids, self._namespace_ids.rows[places], scores, query.context)
            ids, scores = ids[own], scores[own]
        return replace(rank([ids], [scores]), weights=words.weights)

    def _rank_at(self, places: Places, query: Query, words: _Words | None) -> Ranking:
        """Rank the items of the texts at some places."""
        if self.dense is None or query.vector is None:
            if len(places):
                raise DatabaseDamaged(VECTORS_MISSING)
            return rank([], [])
        if len(places) == len(self._text_ids):
            scores = self.dense.score_all(query.vector)
        else:
            scores = self.dense.score(places, query.vector)
        ids = self._item_ids.rows[places]
        if words is None:
            return rank([ids], [scores])
        scores = self._weighted(fuse(scores, words.score(places)), places)
        if query.context:
            ids, scores, _ = lend(ids, self._namespace_ids.rows[places], scores, query.context)
        return replace(rank([ids], [scores]), weights=words.weights)

    def _weighs(self, query: Query) -> bool:
        """Tell whether weights of fields count, of which what proposes vectors knows nothing."""
        return self._counts is not None and query.terms is not None

    def _weighted(self, scores: Scores, places: Places) -> Scores:
        return weighted(scores, None if self._counts is None else self._counts.rows[places])

    def _scope(self, namespaces: Ids | None) -> Mask:
        alive = self._alive.rows
        if namespaces is None or not len(alive):
            return alive
        inside = np.zeros(max(int(self._namespace_ids.rows.max()), int(namespaces.max(initial=0))) + 1, np.bool_)
        inside[namespaces] = True
        scope: Mask = alive & inside[self._namespace_ids.rows]
        return scope

    def _hold(self, terms: Terms, scope: Mask, size: int) -> _Words:
        """Find what every text holds of a query's weight, with the statistics of a scope."""
        which, places = self._postings.find(terms)
        weights = weigh(terms, np.bincount(which[scope[places]], minlength=len(terms)), size)
        by_term = np.zeros(len(terms))
        by_term[np.searchsorted(terms, weights.terms)] = weights.weights
        held = np.bincount(places, by_term[which], len(self._postings)).astype(np.float64, copy=False)
        return _Words(held, self._postings.lengths, weights)

    def _whole_items(self, places: Places) -> Places:
        """Add the other texts of the same items: an item counts by its best text, whichever was proposed."""
        if not self._several:
            return places
        items = self._item_ids.rows
        own = np.unique(items[places])
        first, end = np.searchsorted(items, own, "left"), np.searchsorted(items, own, "right")
        return ranges(first, end - first)

    def _compact(self) -> None:
        stays = self._alive.rows.copy()
        self._postings.keep(stays)
        if self.dense is not None:
            self.dense.compact()
        for column in (self._text_ids, self._item_ids, self._namespace_ids, self._alive, self._counts):
            if column is not None:
                column.keep(stays)
        self._dead = 0


@dataclass(frozen=True, slots=True)
class _Words:
    """What every text holds of a query's weight, of shape (texts,), how many terms it has, and what these weigh."""

    held: Scores
    lengths: Counts
    weights: Weights

    def score(self, places: Places) -> Scores:
        """Score the texts at some places."""
        return to_shares(self.held[places], self.lengths[places], self.weights.total)

    def holders(self, scope: Mask) -> Places:
        """Give the places in a scope that hold anything."""
        return np.flatnonzero((self.held > 0) & scope)

    def best(self, scope: Mask, count: int) -> Places:
        """Give the places in a scope that score best, about `count`."""
        places = self.holders(scope)
        if len(places) <= count:
            return places
        scores = self.score(places)
        least = np.partition(scores, -count)[-count]
        better, level = places[scores > least], places[scores == least]
        # equal texts are to be chosen together; where too many tie, the later written
        return np.concatenate([better, level[-max(count, _TIES * count - len(better)) :]])
