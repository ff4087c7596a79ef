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
_LATE_MOST: Final = 1_000_000
"""Pairs that are sorted in together at most, while texts are added."""


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


@dataclass(frozen=True, slots=True)
class Lists:
    """For each of some terms, ascending, the texts that hold it, ascending: one list after the other."""

    terms: Terms
    starts: Counts
    """Where the list of each term begins, of shape (terms + 1,): the last says where all end."""
    places: _Owners

    @classmethod
    def of(cls, terms: Terms, places: _Owners) -> Lists:
        """Sort pairs of a term and a place; those of one term come in ascending places."""
        order = np.argsort(terms.astype(np.uint16), kind="stable")  # by half of the bits, then by the other: quicker
        order = order[np.argsort((terms[order] >> np.uint32(16)).astype(np.uint16), kind="stable")]
        terms = terms[order]
        starts = np.flatnonzero(terms[1:] != terms[:-1]) + 1 if len(terms) else np.empty(0, np.int64)
        starts = np.concatenate([[0], starts, [len(terms)]]) if len(terms) else np.zeros(1, np.int64)
        return cls(terms[starts[:-1]], starts, places[order])

    def only(self, stays: npt.NDArray[np.bool_]) -> Lists:
        """Give the lists of the texts that stay; their places close up."""
        kept = stays[self.places]
        starts = np.concatenate([[0], np.cumsum(kept)])[self.starts]
        held = np.diff(starts) > 0
        moved = (np.cumsum(stays) - 1).astype(np.int32)
        return Lists(self.terms[held], np.append(starts[:-1][held], starts[-1]), moved[self.places[kept]])

    def joined(self, later: Lists) -> Lists:
        """Give these lists, each followed by what others hold of its term; their places are all larger."""
        terms = np.union1d(self.terms, later.terms)
        counts = np.zeros((len(terms), 2), np.int64)
        for column, lists in enumerate((self, later)):
            counts[np.searchsorted(terms, lists.terms), column] = np.diff(lists.starts)
        is_later = np.repeat(np.resize([False, True], counts.size), counts.ravel())
        places = np.empty(len(is_later), np.int32)
        places[~is_later], places[is_later] = self.places, later.places
        return Lists(terms, np.concatenate([[0], np.cumsum(counts.sum(axis=1))]), places)

    def find(self, terms: Terms) -> list[_Owners]:
        """Give the list of each of some terms; empty where nothing holds it."""
        if not len(self.terms):
            return [self.places] * len(terms)
        at = np.minimum(np.searchsorted(self.terms, terms), len(self.terms) - 1)
        counts = np.where(self.terms[at] == terms, self.starts[at + 1] - self.starts[at], 0)
        spans = zip(self.starts[at].tolist(), counts.tolist(), strict=True)
        return [self.places[start : start + count] for start, count in spans]

    @property
    def size(self) -> int:
        """Bytes held."""
        return self.terms.nbytes + self.starts.nbytes + self.places.nbytes


class GrowingPostings:
    """The terms of texts that are added at the end, in a few parts: each is at least as large as all that follow."""

    def __init__(self) -> None:
        self._lengths = Growing(np.int32)
        self._parts: list[Lists] = []
        self._late_terms = Growing(np.uint32)
        self._late_places = Growing(np.int32)

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """How many distinct terms each text has, of shape (n,)."""
        return self._lengths.rows

    @property
    def size(self) -> int:
        """Bytes held."""
        late = self._late_terms.nbytes + self._late_places.nbytes
        return self._lengths.nbytes + late + sum(part.size for part in self._parts)

    def add(self, lengths: Counts, terms: Terms) -> None:
        """Add texts, as `Postings` takes them."""
        first = len(self)
        self._lengths.append(lengths)
        self._late_terms.append(terms)
        self._late_places.append(np.repeat(np.arange(first, len(self), dtype=np.int32), lengths))
        if len(self._late_terms) > _LATE_MOST:
            self.settle()

    def settle(self) -> None:
        """Sort in what was added: until then it is gone through whenever something is looked for."""
        if not len(self._late_terms):
            return
        later = Lists.of(self._late_terms.rows, self._late_places.rows)
        self._late_terms, self._late_places = Growing(np.uint32), Growing(np.int32)
        while self._parts and len(self._parts[-1].places) <= len(later.places):
            later = self._parts.pop().joined(later)
        self._parts.append(later)

    def keep(self, stays: npt.NDArray[np.bool_]) -> None:
        """Keep some texts; their places close up."""
        self.settle()
        for at, part in enumerate(self._parts):
            self._parts[at] = part.only(stays)
        self._lengths.keep(stays)

    def find(self, terms: Terms) -> list[_Owners]:
        """Find the texts that hold each of some ascending terms: their places, ascending."""
        found = [part.find(terms) for part in self._parts]
        if len(self._late_terms) and len(terms):
            late = self._late_terms.rows
            at = np.minimum(np.searchsorted(terms, late), len(terms) - 1)
            held = np.where(terms[at] == late, at, -1)
            found.append([self._late_places.rows[held == number] for number in range(len(terms))])
        if len(found) == 1:
            return found[0]
        nothing = np.empty(0, np.int32)
        return [np.concatenate(lists) for lists in zip(*found, strict=True)] or [nothing] * len(terms)
