"""Which text of an item a search found it by, and how: the scores of each of its texts, made again for a few items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from memstore.embedding import DIGEST_BYTES, from_labels, split
from memstore.errors import FIELDS_DAMAGED, DatabaseDamaged
from memstore.indexes import Terms
from memstore.items import Found
from memstore.scoring import Query, Weights, score_texts
from memstore.search import SearchSettings
from memstore.slices import to_fields, to_slice
from memstore.steps import Flow


@dataclass(frozen=True, slots=True)
class Match:
    """The text of an item that ranks best for a query.

    Attributes:
        field: The path that gave it.
        text: The text; empty where the value no longer has it.
        dense: Its vector's score; None where vectors did not count.
        lexical: The share of the query's weight that it holds; None where words did not count.
        score: Both, fused.
        terms: All its terms, ascending.
    """

    field: str
    text: str
    dense: float | None
    lexical: float | None
    score: float
    terms: Terms


def read_matches(
    found: Sequence[Found], query: Query, weights: Weights | None, settings: SearchSettings
) -> Flow[list[Match]]:
    """Say by which of its texts each item was found."""
    if not found:
        return []
    rows = yield settings.dialect.select_indexed([hit.id for hit in found])
    rows = sorted(rows, key=lambda row: int(row[0]))
    part = to_slice(rows, settings.metric, settings.cache.to_counts)
    scored = score_texts(query, settings.metric, part, weights)
    labels = list(chain.from_iterable(to_fields(row[4]) for row in rows))
    digests = list(chain.from_iterable(split(row[1], len(row[1]) // DIGEST_BYTES) for row in rows))
    if len(labels) != len(digests):
        raise DatabaseDamaged(FIELDS_DAMAGED)
    matches = []
    for hit in found:
        first, end = np.searchsorted(part.item_ids, [hit.id, hit.id + 1]).tolist()
        at = first + int(np.argmax(scored.scores[first:end]))
        (text,) = from_labels(hit.item.value, labels[at : at + 1], digests[at : at + 1])
        matches.append(
            Match(
                field=labels[at],
                text=text,
                dense=None if scored.dense is None else float(scored.dense[at]),
                lexical=None if scored.lexical is None else float(scored.lexical[at]),
                score=float(scored.scores[at]),
                terms=part.postings.terms_of(at),
            )
        )
    return matches
