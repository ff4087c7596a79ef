"""Relevance: arrays in, arrays out.

A text's dense score is the metric's own. Its lexical score is the share of the query's weight that its words carry: a
term weighs by its rarity in the scope, and a long text has to hold more. In hybrid mode the two are fused with fixed
weights, so that the score lies in [0, 1] and means the same for every query, page and backend.

An item counts by its best text; neighbours may lend it of their scores, and age may take of it. Equal scores keep the
later written item first, and ids stand in writing order, so that the order of a whole scope is fixed before any page is
cut from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from memstore.config import Mode
from memstore.indexes import Counts, Ids, Metric, Scores, Terms, Vectors
from memstore.indexes.flat import score
from memstore.indexes.postings import Postings
from memstore.rerank import Rerank
from memstore.slices import Slice

DENSE_SHARE: Final = 0.5
"""Of the fused score. It and the next three were settled on chats, on abstracts, and on chats with long texts."""
_LONG: Final = 45
"""Distinct terms from which on a text counts as long."""
_DISCOUNT: Final = 0.4
"""How fast the share of a long text falls: it is divided by this power of its length over `_LONG`."""
_UNHELD: Final = 0.25
"""What a term that no text of the scope holds counts, of its weight."""
_MAX_TERMS: Final = 64
"""Terms of a query that count, the rarest that are held first: agents pass whole conversations."""
_LENT: Final = 0.5
"""What a neighbour's score counts; that of the next one this much of that, and so on. More, or less, found less."""
_AGED: Final = 0.3
"""What age takes off a score at most: an old answer is still before what has nothing to do with the question."""
_STEPS: Final = 64
"""Parts of a half-life in which time passes, so that the pages of a search join."""
_LONGEST: Final = 2.0**62
"""Microseconds; longer times mean the same."""
_DAY: Final = 86_400_000_000
"""Microseconds."""
_DIGITS: Final = 9
"""Decimals of a lexical or fused score; beyond them stands the noise of summing."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for: the query's vector of shape (dims,), prepared, and its terms.

    Either is None where its mode has no use for it.
    """

    mode: Mode
    vector: Vectors | None
    terms: Terms | None
    index_id: int
    """The index settings it was made under."""
    context: int = 0
    """Neighbours in writing order, on each side, that lend an item of their scores."""
    recency: float | None = None
    """Days after which age has taken half of what it can."""
    min_score: float | None = None
    """The least score an item is found with."""
    rerank: Rerank | None = None
    """What is to look at the first ranks again, outside of the database."""

    @property
    def whole(self) -> bool:
        """Whether the whole scope has to be ranked: what comes to a score later may lift any item to the top."""
        return self.context > 0 or self.recency is not None


@dataclass(frozen=True, slots=True)
class Ranking:
    """Items and their scores, best first, of shape (items,)."""

    item_ids: Ids
    scores: Scores
    complete: bool = True
    """Whether these are all items there are, or candidates that others follow."""
    weights: Weights | None = None
    """What the query's terms weighed; None where they did not count."""

    @classmethod
    def nothing(cls) -> Ranking:
        """Give a ranking of nothing."""
        return cls(np.empty(0, np.int64), np.empty(0, np.float64))

    def cut(self, start: int, end: int) -> Ranking:
        """Give some ranks of it."""
        return replace(self, item_ids=self.item_ids[start:end], scores=self.scores[start:end])

    def only(self, stays: npt.NDArray[np.bool_]) -> Ranking:
        """Give those that stay."""
        return replace(self, item_ids=self.item_ids[stays], scores=self.scores[stays])

    def aged(self, updated_at: npt.NDArray[np.int64], now: int, half_life: float) -> Ranking:
        """Take off for age, and rank anew.

        Args:
            updated_at: When each item was written, in microseconds, of shape (items,).
            now: The time now.
            half_life: Days after which age has taken half of what it can.
        """
        step = max(1, int(min(half_life * _DAY / _STEPS, _LONGEST)))
        ages = np.maximum(now // step - updated_at // step, 0) / _STEPS
        scores = np.round(self.scores * (1.0 - _AGED * (1.0 - 0.5**ages)), _DIGITS)
        order = np.lexsort((-self.item_ids, -scores))
        return replace(self, item_ids=self.item_ids[order], scores=scores[order])

    def after(self, first: Ranking) -> Ranking:
        """Give what follows other ranks: what is not among them, none with a better score than their last."""
        rest = self.only(~np.isin(self.item_ids, first.item_ids))
        if not len(first.scores):
            return rest
        return replace(rest, scores=np.minimum(rest.scores, first.scores[-1:]))

    def followed_by(self, more: Ranking) -> Ranking:
        """Give these ranks and more."""
        ids, scores = np.concatenate([self.item_ids, more.item_ids]), np.concatenate([self.scores, more.scores])
        return Ranking(ids, scores, more.complete, self.weights)


@dataclass(frozen=True, slots=True)
class Weights:
    """The terms of a query that count, ascending, what each weighs in one scope, and what all weigh together."""

    terms: Terms
    weights: Scores
    total: float
    holders: Counts
    """How many texts of the scope hold each."""


def weigh(terms: Terms, holders: Counts, texts: int) -> Weights:
    """Weigh a query's terms in a scope by inverse document frequency: ln(1 + (N - n + 0.5) / (n + 0.5)).

    A term that no text holds weighs a quarter: it makes every share smaller, but may be no word at all, only a pair of
    characters where two words meet.

    Args:
        terms: The query's terms, ascending.
        holders: How many texts of the scope hold each.
        texts: How many texts the scope has.
    """
    weights = np.log1p((texts - holders + 0.5) / (holders + 0.5)) * np.where(holders, 1.0, _UNHELD)
    if len(terms) > _MAX_TERMS:
        rarest = np.sort(np.argsort(np.where(holders, holders, texts + 1), kind="stable")[:_MAX_TERMS])
        terms, weights, holders = terms[rarest], weights[rarest], holders[rarest]
    return Weights(terms, weights, float(weights.sum()), holders)


def score_words(postings: Postings, weights: Weights) -> Scores:
    """Score texts by the words they share with a query: float64 of shape (texts,), each in [0, 1]."""
    return to_shares(postings.total(weights.terms, weights.weights), postings.lengths, weights.total)


def to_shares(held: Scores, lengths: Counts, total: float) -> Scores:
    """Turn the weight that texts hold into lexical scores.

    Args:
        held: The weight each text holds, of shape (texts,).
        lengths: How many distinct terms each has.
        total: The weight of the whole query.
    """
    if not total:
        return np.zeros(len(held))
    shares: Scores = np.round(held / (total * np.maximum(lengths / _LONG, 1.0) ** _DISCOUNT), _DIGITS)
    return np.minimum(shares, 1.0)


def fuse(cosines: Scores, shares: Scores) -> Scores:
    """Fuse dense and lexical scores of some texts: in [0, 1]."""
    fused: Scores = np.round(DENSE_SHARE * np.maximum(cosines, 0.0) + (1.0 - DENSE_SHARE) * shares, _DIGITS)
    return fused


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of some texts, of shape (texts,): by each leg, None where it does not count, and in all."""

    dense: Scores | None
    lexical: Scores | None
    scores: Scores


def score_texts(query: Query, metric: Metric, texts: Slice, weights: Weights | None) -> Scored:
    """Score the texts of a slice in the query's mode; the weights are None in semantic mode."""
    lexical = None if weights is None else score_words(texts.postings, weights)
    dense = None if query.vector is None else score(metric, texts.vectors, query.vector)
    if lexical is None:
        return Scored(dense, None, np.zeros(len(texts.item_ids)) if dense is None else dense)
    return Scored(dense, lexical, weighted(lexical if dense is None else fuse(dense, lexical), texts.counts))


def weighted(scores: Scores, counts: Scores | None) -> Scores:
    """Have texts count as much as their fields do; None where all count whole."""
    return scores if counts is None else np.round(scores * counts, _DIGITS)


def rank_slices(query: Query, metric: Metric, slices: Sequence[Slice], weights: Weights | None) -> Ranking:
    """Score every text of some slices and rank their items; in lexical mode those that share a term."""
    ids = [part.item_ids for part in slices]
    scores = [score_texts(query, metric, part, weights).scores for part in slices]
    if query.context:
        lent = [lend(part, None, held, query.context) for part, held in zip(ids, scores, strict=True)]
        ids = [part for part, _, _ in lent]
        scores = [held if query.vector is not None else held * own for _, held, own in lent]
    if query.vector is None:
        ids = [part[held > 0] for part, held in zip(ids, scores, strict=True)]
        scores = [held[held > 0] for held in scores]
    return replace(rank(ids, scores), weights=weights)


def lend(
    item_ids: Ids, namespaces: Ids | None, scores: Scores, radius: int
) -> tuple[Ids, Scores, npt.NDArray[np.bool_]]:
    """Have items lend of their scores to their neighbours in writing order, each step away half as much.

    What an item then has is divided by what it could have at most, so that scores stay in [0, 1].

    Args:
        item_ids: The items of all texts of some namespaces, of shape (texts,).
        namespaces: Of each text; None where they are of one, and the items ascend.
        scores: Of each text, in [0, 1].
        radius: How many neighbours on each side.

    Returns:
        For each item its id, its score then, and whether it had any of its own.
    """
    if namespaces is not None:
        order = np.lexsort((item_ids, namespaces))
        item_ids, namespaces, scores = item_ids[order], namespaces[order], scores[order]
    first = np.flatnonzero(np.diff(item_ids, prepend=-1))
    if not len(first):
        return item_ids, scores, scores > 0
    own = np.maximum.reduceat(scores, first)
    ids = item_ids[first]
    homes = np.zeros(len(ids), np.int64) if namespaces is None else namespaces[first]
    total, most = own.copy(), 1.0
    for step in range(1, radius + 1):
        lent = _LENT**step
        near = np.where(homes[step:] == homes[:-step], lent, 0.0)
        total[step:] += near * own[:-step]
        total[:-step] += near * own[step:]
        most += 2 * lent
    return ids, np.round(total / most, _DIGITS), own > 0


def rank(item_ids: Sequence[Ids], scores: Sequence[Scores]) -> Ranking:
    """Rank items by their best text; of shape (texts,) in parts, ids and scores of shape (items,) out, best first."""
    if not item_ids:
        return Ranking.nothing()
    ids = item_ids[0] if len(item_ids) == 1 else np.concatenate(item_ids)
    values = scores[0] if len(scores) == 1 else np.concatenate(scores)
    order = np.lexsort((-ids, -values))
    ranked, values = ids[order], values[order]
    sorted_ids = np.sort(ids)
    if (sorted_ids[1:] == sorted_ids[:-1]).any():  # an item of several texts keeps the first, its best
        _, first = np.unique(ranked, return_index=True)
        first.sort()
        ranked, values = ranked[first], values[first]
    return Ranking(ranked, values)
