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

from memstore.errors import INDEX_CHANGED, VECTORS_MISSING, DatabaseDamaged, IndexMismatch
from memstore.holding import Holding, Mask
from memstore.indexes import Counts, Ids, Metric, Places, Precision, Scores, Terms, Vectors
from memstore.indexes.codes import Together, in_turn
from memstore.indexes.faiss import FaissIndex
from memstore.indexes.growing import Growing, merged, places_of, ranges
from memstore.indexes.postings import GrowingPostings
from memstore.scoring import Query, Ranking, fuse, lend, rank, weighted

_DEAD_SHARE: Final = 0.1
_DEAD_LEAST: Final = 1_000
"""Removed texts are forgotten when they are more than this many and this share of all."""
_POOL: Final = 500
"""Texts that are proposed for their words at least."""
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
        precision: How the numbers of vectors are kept.
        together: Looks at several parts of their codes.
    """

    def __init__(self, metric: Metric, precision: Precision = "float32", together: Together = in_turn) -> None:
        self.clock = 0
        self.last_id = 0
        """The largest id there was at that clock, or of an item added since."""
        self.dense: FaissIndex | None = None
        """The vectors, where texts have any."""
        self._metric: Metric = metric
        self._precision: Precision = precision
        self._together = together
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

    @property
    def size(self) -> int:
        """Bytes held."""
        columns = (self._text_ids, self._item_ids, self._namespace_ids, self._alive, self._counts)
        held = sum(column.nbytes for column in columns if column is not None)
        return held + self._postings.size + (0 if self.dense is None else self.dense.size)

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
                self.dense = FaissIndex(dims, self._metric, self._precision, self._together)
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

    def settle(self) -> None:
        """Make quick to search what was added."""
        self._postings.settle()

    def propose(self, query: Query, namespaces: Ids | None, count: int, whole: int = 0) -> Ranking:
        """Rank the candidates of a scope: up to `count` items, the same whatever page is wanted of them.

        Args:
            query: The query.
            namespaces: The scope; None for everything.
            count: How many items are ranked.
            whole: Texts up to which all of the scope are.
        """
        self._check_dims(query)
        scope = self._scope(namespaces)
        size = self._size(scope, namespaces)
        if query.whole or self._weighs(query) or size <= max(count, whole, _BROAD * len(self)):
            return self._rank(query, scope, size)
        words = self._hold(query.terms, scope, size)
        found: Places = np.empty(0, np.int64)
        if query.vector is not None:
            if self.dense is None:
                raise DatabaseDamaged(VECTORS_MISSING)
            found = self.dense.propose(query.vector, int(count * len(self) / size))
            if namespaces is not None and scope is not None:
                found = found[scope[found]]
        pool = max(count, _POOL)
        if words is not None:
            found = merged([found, words.best(pool)])
        if query.vector is None and len(found) < pool:
            return self._rank_at(found, query, words)  # nothing else holds any of the words
        ranking = self._rank_at(self._whole_items(found), query, words, None if self._several else count)
        return replace(ranking.cut(0, count), complete=False)

    def rank(self, query: Query, namespaces: Ids | None) -> Ranking:
        """Rank all items of a scope, each by its vectors as they are kept."""
        self._check_dims(query)
        scope = self._scope(namespaces)
        return self._rank(query, scope, self._size(scope, namespaces))

    def _check_dims(self, query: Query) -> None:
        if query.vector is not None and self.dense is not None and len(query.vector) != self.dense.dims:
            raise IndexMismatch(INDEX_CHANGED)

    def _rank(self, query: Query, scope: Mask | None, size: int) -> Ranking:
        words = self._hold(query.terms, scope, size)
        if query.vector is None and words is None:
            return Ranking.nothing()
        if query.vector is not None or query.context or words is None:
            return self._rank_at(np.arange(size) if scope is None else np.flatnonzero(scope), query, words)
        return self._rank_at(words.holders(), query, words)

    def _rank_at(self, places: Places, query: Query, words: Holding | None, most: int | None = None) -> Ranking:
        """Rank the items of the texts at some ascending places; or but so many, where none has several texts."""
        shares = None if words is None else words.score(places)
        ids = self._item_ids.rows[places]
        if query.vector is None or not len(places):
            scores = np.zeros(len(places)) if shares is None else shares
        elif self.dense is None:
            raise DatabaseDamaged(VECTORS_MISSING)
        else:
            all_of_them = len(places) == len(self._text_ids)
            scores = self.dense.score_all(query.vector) if all_of_them else self.dense.score(places, query.vector)
            scores = scores if shares is None else fuse(scores, shares)
        if most is not None and len(places) > most:
            best = scores >= np.partition(scores, -most)[-most]
            places, ids, scores = places[best], ids[best], scores[best]
        if words is None:
            return rank([ids], [scores])
        scores = weighted(scores, None if self._counts is None else self._counts.rows[places])
        if query.context:
            ids, scores, own = lend(ids, self._namespace_ids.rows[places], scores, query.context)
            if query.vector is None:
                ids, scores = ids[own], scores[own]
        return replace(rank([ids], [scores]), weights=words.weights)

    def _weighs(self, query: Query) -> bool:
        """Tell whether weights of fields count, of which what proposes vectors knows nothing."""
        return self._counts is not None and query.terms is not None

    def _scope(self, namespaces: Ids | None) -> Mask | None:
        """Tell which texts are there, and of some namespaces; None for all."""
        alive = self._alive.rows
        if namespaces is None or not len(alive):
            return alive if self._dead else None
        inside = np.zeros(max(int(self._namespace_ids.rows.max()), int(namespaces.max(initial=0))) + 1, np.bool_)
        inside[namespaces] = True
        scope: Mask = alive & inside[self._namespace_ids.rows]
        return scope

    def _size(self, scope: Mask | None, namespaces: Ids | None) -> int:
        return len(self) if scope is None or namespaces is None else int(np.count_nonzero(scope))

    def _hold(self, terms: Terms | None, scope: Mask | None, size: int) -> Holding | None:
        """Find what texts hold of a query's weight, with the statistics of a scope."""
        if terms is None:
            return None
        return Holding(terms, self._postings.find(terms), self._postings.lengths, scope, size)

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
