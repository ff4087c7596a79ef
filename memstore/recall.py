"""How much of the exact answer an approximate one finds, by the vectors of the store itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from memstore.config import to_whole
from memstore.dialects import Dialect
from memstore.errors import VECTORS_MISSING, DatabaseDamaged, InvalidArgument
from memstore.indexes import Ids, Vectors
from memstore.indexes.flat import prepare
from memstore.requests import Search
from memstore.scoring import Query
from memstore.search import SearchSettings, enter
from memstore.slices import to_text_counts, to_vectors
from memstore.steps import Flow

_MOST: Final = 10_000
"""Samples at once."""


@dataclass(frozen=True, slots=True)
class RecallCheck:
    """How much of the exact answer searches over everything find.

    Attributes:
        recall: The share of the k nearest other items that is found, the mean over the samples; 1.0 where it is exact.
        worst: The least share of any sample.
        k: How many nearest items are compared.
        samples: How many of the store's vectors were looked for.
        texts: How many texts there are.
        exact: Whether such searches are exact: the store is small, or no index is there yet.
    """

    recall: float
    worst: float
    k: int
    samples: int
    texts: int
    exact: bool

    def __str__(self) -> str:
        how = "exact" if self.exact else f"recall@{self.k} {self.recall:.3f}, at worst {self.worst:.2f}"
        return f"{how} ({self.samples:,} of {self.texts:,} vectors looked for)"


def check_recall(samples: int, k: int, index_id: int, settings: SearchSettings) -> Flow[RecallCheck]:
    """Look for some of the store's own vectors approximately and exactly, over everything.

    Args:
        samples: How many; they lie evenly among the items in writing order.
        k: How many nearest items are compared.
        index_id: The index settings the store knows.
        settings: The backend's.
    """
    for name, given in (("samples", samples), ("k", k)):
        if not 1 <= (to_whole(given) or 0) <= _MOST:
            raise InvalidArgument(f"{name} is a number from 1 to {_MOST:,}")
    dialect, wide = settings.dialect, settings.wide
    everything = Query("semantic", None, None, index_id)
    place = yield from enter(Search(b"", None, 1, 0, None, refresh=False), everything, settings)
    texts = place.texts if place is not None else 0
    if place is None or wide is None or place.scopes is not None:
        return RecallCheck(1.0, 1.0, k, 0, texts, exact=True)
    clock = place.clock
    shares: list[float] = []
    for item_id, vector in (yield from _sample(samples, dialect)):
        query = Query("semantic", prepare(settings.metric, vector), None, index_id)
        near = yield from wide.stages[0](query, clock, None, texts)
        if len(near.item_ids) <= k and not near.complete:
            near = near.followed_by((yield from wide.stages[-1](query, clock, None, texts)).after(near))
        if near.complete:
            return RecallCheck(1.0, 1.0, k, len(shares), texts, exact=True)
        far = yield from wide.rank(query, clock, None, texts)
        right, found = (_others(ranking.item_ids, item_id, k) for ranking in (far, near))
        if len(right):
            shares.append(float(np.isin(right, found).mean()))
    recall, worst = (float(np.mean(shares)), min(shares)) if shares else (1.0, 1.0)
    return RecallCheck(recall, worst, k, len(shares), texts, exact=False)


def _others(item_ids: Ids, own: int, k: int) -> Ids:
    others: Ids = item_ids[item_ids != own][:k]
    return others


def _sample(samples: int, dialect: Dialect) -> Flow[list[tuple[int, Vectors]]]:
    """Give some items that have vectors, each with its first."""
    ((first, last),) = yield dialect.inspect().id_range()
    if first is None:
        return []
    wanted = np.unique(np.linspace(first, last, samples).astype(np.int64)).tolist()
    replies = yield dialect.inspect().items_with_texts_from(wanted)
    ids = sorted({rows[0][0] for rows in replies if rows})
    rows = yield dialect.select_indexed(ids)
    found: dict[int, Vectors] = {}
    for row in rows:
        if row[2] is None:
            raise DatabaseDamaged(VECTORS_MISSING)
        found.setdefault(row[0], to_vectors([row[2]], to_text_counts([row[1]]))[0])
    return list(found.items())
