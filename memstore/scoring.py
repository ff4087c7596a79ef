"""Relevance: arrays in, arrays out.

An item counts by its best text. Equal scores keep the later written item first, and ids stand in writing order, so that
the order of a whole scope is fixed before any page is cut from it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memstore.indexes import Ids, Metric, Scores, Vectors
from memstore.indexes.flat import score
from memstore.slices import Slice


def rank_dense(metric: Metric, slices: Sequence[Slice], query: Vectors) -> tuple[Ids, Scores]:
    """Score every text of some slices against a prepared query of shape (dims,) and rank their items.

    Returns:
        Item ids and scores of shape (items,), best first.
    """
    scores = [score(metric, part.vectors, query) for part in slices]
    return rank([part.item_ids for part in slices], scores)


def rank(item_ids: Sequence[Ids], scores: Sequence[Scores]) -> tuple[Ids, Scores]:
    """Rank items by their best text; of shape (texts,) in parts, ids and scores of shape (items,) out, best first."""
    if not item_ids:
        return np.empty(0, np.int64), np.empty(0, np.float64)
    ids = item_ids[0] if len(item_ids) == 1 else np.concatenate(item_ids)
    values = scores[0] if len(scores) == 1 else np.concatenate(scores)
    order = np.lexsort((-ids, -values))
    ranked, values = ids[order], values[order]
    sorted_ids = np.sort(ids)
    if (sorted_ids[1:] == sorted_ids[:-1]).any():  # an item of several texts keeps the first, its best
        _, first = np.unique(ranked, return_index=True)
        first.sort()
        ranked, values = ranked[first], values[first]
    return ranked, values
