"""What many texts hold of a query's words: the rare words tell which texts can be among the best."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from memstore.indexes import Counts, Places, Scores, Terms
from memstore.indexes.growing import merged
from memstore.scoring import Weights, to_shares, weigh

Mask = npt.NDArray[np.bool_]
_TIES: Final = 4
"""How many times the candidates wanted are taken at most so that none is left out whose words tie with the last."""
_FIRST: Final = 4
_STEP: Final = 4
"""How many times the candidates wanted are looked at first, and how many times as many the next time."""
_FEW: Final = 0.02
"""Share of all texts up to which each is looked for in every list; of more, all lists are gone through."""
_ROUNDING: Final = 1e-8
"""By how much sums of weights may differ that are summed in another order."""


class Holding:
    """What the texts of a scope hold of a query.

    Args:
        terms: The query's terms, ascending.
        lists: The places of the texts that hold each, ascending.
        lengths: How many distinct terms every text has, of shape (texts,).
        scope: Which of them count, of shape (texts,); None for all.
        size: How many of them count.
    """

    def __init__(
        self, terms: Terms, lists: Sequence[npt.NDArray[np.int32]], lengths: Counts, scope: Mask | None, size: int
    ) -> None:
        holders = [len(held) if scope is None else int(np.count_nonzero(scope[held])) for held in lists]
        self.weights: Weights = weigh(terms, np.array(holders, np.int64), size)
        counting = np.searchsorted(terms, self.weights.terms).tolist()
        self._lists = [lists[at] for at in counting]
        self._lengths = lengths
        self._scope = scope

    def score(self, places: Places) -> Scores:
        """Score the texts at some ascending places."""
        if len(places) > _FEW * len(self._lengths):
            held = self._held[places]
        else:
            held = np.zeros(len(places))
            for holders, weight in zip(self._lists, self.weights.weights.tolist(), strict=True):
                held[_are_among(places, holders)] += weight
        return to_shares(held, self._lengths[places], self.weights.total)

    def holders(self) -> Places:
        """Give the places in scope that hold anything, ascending."""
        holds = self._held > 0
        return np.flatnonzero(holds if self._scope is None else holds & self._scope)

    def best(self, count: int) -> Places:
        """Give the places in scope that score best, about `count`.

        The lists are read from the shortest on. What is on none of those read holds no more than the words of the
        others weigh, so that none of it is among the best once these score more.
        """
        sizes = np.array([len(held) for held in self._lists])
        order = np.argsort(sizes, kind="stable")
        order = order[sizes[order] > 0]
        totals = np.cumsum(sizes[order])
        weights = self.weights.weights[order]
        unread = weights.sum() - np.cumsum(weights)
        seen: Places = np.empty(0, np.int32)
        read, room = 0, _FIRST * count
        while read < len(order):
            upto = max(read + 1, int(np.searchsorted(totals, room, "right")))
            seen = merged([seen, *(self._lists[at] for at in order[read:upto])])
            read, room = upto, room * _STEP
            places = seen if self._scope is None else seen[self._scope[seen]]
            if len(places) <= count and read < len(order):
                continue
            scores = self.score(places)
            least = 0.0 if len(places) <= count else np.partition(scores, -count)[-count]
            if read == len(order) or least > unread[read - 1] / self.weights.total + _ROUNDING:
                return _take(places, scores, least, count)
        return seen

    @cached_property
    def _held(self) -> Scores:
        """The weight that every text holds, of shape (texts,)."""
        held = np.zeros(len(self._lengths))
        for holders, weight in zip(self._lists, self.weights.weights.tolist(), strict=True):
            held[holders] += weight
        return held


def _are_among(places: Places, holders: Places) -> Places:
    """Tell which of some ascending places are among others that ascend: where these stand."""
    if not len(holders) or not len(places):
        return np.empty(0, np.int64)
    if len(holders) < len(places):
        at = np.minimum(np.searchsorted(places, holders), len(places) - 1)
        there: Places = at[places[at] == holders]
        return there
    at = np.minimum(np.searchsorted(holders, places), len(holders) - 1)
    return np.flatnonzero(holders[at] == places)


def _take(places: Places, scores: Scores, least: float, count: int) -> Places:
    """Give the places that score at least so much; where too many tie with the last, the later written."""
    better, level = places[scores > least], places[scores == least]
    # equal texts are to be chosen together
    return np.concatenate([better, level[-max(count, _TIES * count - len(better)) :]])
