"""Which texts hold a term: the words of some texts, by term.

Texts are known by their places, 0 to n - 1. Whatever is summed over terms is summed in the order of the terms, so that
equal texts get equal sums wherever they stand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from memstore.indexes import Counts, Places, Scores, Terms
from memstore.indexes.growing import Growing, ranges

_Owners: TypeAlias = npt.NDArray[np.int32]
_LATE_LEAST: Final = 50_000
_LATE_SHARE: Final = 0.1
"""Pairs that came late are sorted in when they are more than this many and this share of the others."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of a term and the place of a text that holds it, by term."""

    terms: Terms
    places: _Owners

    @classmethod
    def of(cls, terms: Terms, places: _Owners) -> Pairs:
        """Sort pairs by their terms; those of one term keep their order."""
        order = np.argsort(terms, kind="stable")
        return cls(terms[order], places[order])

    def only(self, stays: npt.NDArray[np.bool_]) -> Pairs:
        """Give the pairs of the texts that stay; their places close up."""
        kept = stays[self.places]
        moved = (np.cumsum(stays) - 1).astype(np.int32)
        return Pairs(self.terms[kept], moved[self.places[kept]])

    def joined(self, terms: Terms, places: _Owners) -> Pairs:
        """Give these and other pairs."""
        return Pairs.of(np.concatenate([self.terms, terms]), np.concatenate([self.places, places]))

    def find(self, terms: Terms) -> tuple[Places, Places]:
        """Find the pairs of ascending terms: which of these, and which text."""
        starts = np.searchsorted(self.terms, terms, "left")
        counts = np.searchsorted(self.terms, terms, "right") - starts
        which = np.repeat(np.arange(len(terms)), counts)
        return which, self.places[ranges(starts, counts)].astype(np.int64)


@dataclass(frozen=True, slots=True)
class Postings:
    """The terms of n texts: how many distinct ones each has, of shape (n,), and which text holds which."""

    lengths: npt.NDArray[np.int32]
    pairs: Pairs

    @classmethod
    def of(cls, lengths: Counts, terms: Terms) -> Postings:
        """Make postings.

        Args:
            lengths: How many distinct terms each text has, of shape (n,).
            terms: The terms of the first text, then those of the second and so on, of shape (sum of lengths,).
        """
        places = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        return cls(lengths.astype(np.int32), Pairs.of(terms, places))

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def size(self) -> int:
        """Bytes held."""
        return self.lengths.nbytes + self.pairs.terms.nbytes + self.pairs.places.nbytes

    def count(self, terms: Terms) -> Counts:
        """Count the texts that hold each of some ascending terms, of shape (terms,)."""
        held = self.pairs.terms
        counts: Counts = np.searchsorted(held, terms, "right") - np.searchsorted(held, terms, "left")
        return counts

    def total(self, terms: Terms, weights: Scores) -> Scores:
        """Sum, for each text, the weights of the ascending terms it holds: float64 of shape (n,)."""
        which, places = self.pairs.find(terms)
        return np.bincount(places, weights[which], len(self)).astype(np.float64, copy=False)

    def terms_of(self, place: int) -> Terms:
        """Give the terms of one text, ascending."""
        terms: Terms = self.pairs.terms[self.pairs.places == place]
        return terms

    def only(self, stays: npt.NDArray[np.bool_]) -> Postings:
        """Give the postings of some of the texts; their places close up."""
        return self if stays.all() else Postings(self.lengths[stays], self.pairs.only(stays))

    def joined(self, more: Postings) -> Postings:
        """Give the postings of these texts, followed by others."""
        lengths = np.concatenate([self.lengths, more.lengths])
        return Postings(lengths, self.pairs.joined(more.pairs.terms, more.pairs.places + np.int32(len(self))))


class GrowingPostings:
    """The terms of texts that are added at the end; what came late is kept apart until there is much of it."""

    def __init__(self) -> None:
        self._lengths = Growing(np.int32)
        self._pairs = Pairs(np.empty(0, np.uint32), np.empty(0, np.int32))
        self._late_terms = Growing(np.uint32)
        self._late_places = Growing(np.int32)

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """How many distinct terms each text has, of shape (n,)."""
        return self._lengths.rows

    def add(self, lengths: Counts, terms: Terms) -> None:
        """Add texts, as `Postings` takes them."""
        first = len(self)
        self._lengths.append(lengths)
        self._late_terms.append(terms)
        self._late_places.append(np.repeat(np.arange(first, len(self), dtype=np.int32), lengths))
        if len(self._late_terms) > max(_LATE_LEAST, _LATE_SHARE * len(self._pairs.terms)):
            self._sort_in()

    def keep(self, stays: npt.NDArray[np.bool_]) -> None:
        """Keep some texts; their places close up."""
        self._sort_in()
        self._pairs = self._pairs.only(stays)
        self._lengths.keep(stays)

    def find(self, terms: Terms) -> tuple[Places, Places]:
        """Find the texts that hold ascending terms.

        Returns:
            For every pair of a term and a text that holds it: which term, by its place among those given, and which
            text. The terms of one text come ascending.
        """
        which, places = self._pairs.find(terms)
        if not len(self._late_terms) or not len(terms):
            return which, places
        late = self._late_terms.rows
        at = np.minimum(np.searchsorted(terms, late), len(terms) - 1)
        held = np.flatnonzero(terms[at] == late)
        return np.concatenate([which, at[held]]), np.concatenate([places, self._late_places.rows[held]])

    def _sort_in(self) -> None:
        self._pairs = self._pairs.joined(self._late_terms.rows, self._late_places.rows)
        self._late_terms, self._late_places = Growing(np.uint32), Growing(np.int32)
