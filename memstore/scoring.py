"""Relevance: arrays in, arrays out.

A text's dense score is the metric's own. Its lexical score is the share of the query's weight that its words carry: a
term weighs by its rarity in the scope, and a long text has to hold more. In hybrid mode the two are fused with fixed
weights, so that the score lies in [0, 1] and means the same for every query, page and backend.

An item counts by its best text. Equal scores keep the later written item first, and ids stand in writing order, so that
the order of a whole scope is fixed before any page is cut from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from memstore.config import Mode
from memstore.indexes import Counts, Ids, Metric, Scores, Terms, Vectors
from memstore.indexes.flat import score
from memstore.indexes.postings import Postings
from memstore.slices import Slice

DENSE_SHARE: Final = 0.5
"""Of the fused score. This and the next three were settled on chats, on abstracts, and on chats mixed with long texts."""
_LONG: Final = 45
"""Distinct terms from which on a text counts as long."""
_DISCOUNT: Final = 0.4
"""How fast the share of a long text falls: it is divided by this power of its length over `_LONG`."""
_UNHELD: Final = 0.25
"""What a term that no text of the scope holds counts, of its weight."""
_MAX_TERMS: Final = 64
"""Terms of a query that count, the rarest that are held first: agents pass whole conversations."""
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


@dataclass(frozen=True, slots=True)
class Ranking:
    """Items and their scores, best first, of shape (items,)."""

    item_ids: Ids
    scores: Scores
    complete: bool = True
    """Whether these are all items there are, or candidates that others follow."""

    def cut(self, start: int, end: int) -> Ranking:
        """Give some ranks of it."""
        return Ranking(self.item_ids[start:end], self.scores[start:end], self.complete)

    def only(self, stays: npt.NDArray[np.bool_]) -> Ranking:
        """Give those that stay."""
        return Ranking(self.item_ids[stays], self.scores[stays], self.complete)

    def after(self, first: Ranking) -> Ranking:
        """Give what follows other ranks: what is not among them, none with a better score than their last."""
        rest = self.only(~np.isin(self.item_ids, first.item_ids))
        if not len(first.scores):
            return rest
        return Ranking(rest.item_ids, np.minimum(rest.scores, first.scores[-1:]), self.complete)

    def followed_by(self, more: Ranking) -> Ranking:
        """Give these ranks and more."""
        ids, scores = np.concatenate([self.item_ids, more.item_ids]), np.concatenate([self.scores, more.scores])
        return Ranking(ids, scores, more.complete)


@dataclass(frozen=True, slots=True)
class Weights:
    """The terms of a query that count, ascending, what each weighs in one scope, and what all weigh together."""

    terms: Terms
    weights: Scores
    total: float


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
        terms, weights = terms[rarest], weights[rarest]
    return Weights(terms, weights, float(weights.sum()))


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


def score_texts(query: Query, metric: Metric, texts: Slice, weights: Weights | None) -> Scores:
    """Score the texts of a slice in the query's mode; the weights are None in semantic mode."""
    words = None if weights is None else score_words(texts.postings, weights)
    if query.vector is None:
        return np.zeros(len(texts.item_ids)) if words is None else words
    dense = score(metric, texts.vectors, query.vector)
    return dense if words is None else fuse(dense, words)


def rank_slices(query: Query, metric: Metric, slices: Sequence[Slice], weights: Weights | None) -> Ranking:
    """Score every text of some slices and rank their items; in lexical mode those that share a term."""
    scores = [score_texts(query, metric, part, weights) for part in slices]
    ids = [part.item_ids for part in slices]
    if query.vector is None:
        ids = [part[held > 0] for part, held in zip(ids, scores, strict=True)]
        scores = [held[held > 0] for held in scores]
    return rank(ids, scores)


def rank(item_ids: Sequence[Ids], scores: Sequence[Scores]) -> Ranking:
    """Rank items by their best text; of shape (texts,) in parts, ids and scores of shape (items,) out, best first."""
    if not item_ids:
        return Ranking(np.empty(0, np.int64), np.empty(0, np.float64))
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
