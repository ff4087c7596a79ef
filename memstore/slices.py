"""A namespace's vectors and terms in memory, cached by version.

A slice is named by (namespace id, version), and every transaction that writes in a namespace moves its version: what
the cache gives is exact in any snapshot, process or rollback, with nothing to invalidate. Old slices fall out when
room is needed.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeAlias

import numpy as np

from memstore.analysis import from_blobs as from_term_blobs
from memstore.dialects import MARK_BYTES, Dialect
from memstore.embedding import DIGEST_BYTES, from_blobs
from memstore.errors import FIELDS_DAMAGED, DatabaseDamaged
from memstore.indexes import Counts, Ids, Metric, Scores, Terms, Vectors
from memstore.indexes.flat import prepare
from memstore.indexes.growing import is_among
from memstore.indexes.postings import Postings
from memstore.steps import Flow, Row

_OVERHEAD: Final = 500
"""Bytes a cached slice costs beside its arrays."""
_LISTS_KEPT: Final = 1_000
"""Different lists of fields whose weights are remembered."""
_FILTERS_KEPT: Final = 4
"""Filters whose verdicts a slice remembers."""

Counter: TypeAlias = Callable[[Sequence[Row]], "Scores | None"]
"""Says what each text of some rows counts; None where all count whole."""


@dataclass(frozen=True, slots=True)
class Scope:
    """One namespace a search may see: a row of memstore_namespaces."""

    id: int
    version: int
    texts: int
    marks: bytes = b""
    """Random marks of the last writes, the newest first; empty where the database's own marks vouch for versions."""

    def continues(self, older: Scope) -> bool:
        """Tell whether this is the same namespace some writes after an older version of it.

        Where a database was set back and written on to, versions come again for other contents.
        """
        written = (self.version - older.version) * MARK_BYTES
        if not self.marks and not older.marks:
            return written >= 0
        common = self.marks[written:] if written >= 0 else b""
        return bool(common) and older.marks.startswith(common)


@dataclass(frozen=True, slots=True)
class Slice:
    """The texts of one namespace: ids of their items of shape (n,), prepared vectors of shape (n, dims), and terms.

    Items ascend. Where a store embeds nothing, dims is 0; where it keeps no words, no text has a term.
    """

    item_ids: Ids
    vectors: Vectors
    postings: Postings
    counts: Scores | None = None
    """What each text counts; None where all count whole."""
    passing: dict[str, Ids] = field(default_factory=dict)
    """Ids of the items that filters accept, ascending, by the key of the filter; see `remember`."""

    def remember(self, key: str, item_ids: Ids) -> None:
        """Keep which items a filter accepts, expired ones included: an item never changes under its id."""
        if len(self.passing) >= _FILTERS_KEPT:
            self.passing.clear()
        self.passing[key] = item_ids

    @classmethod
    def empty(cls, dims: int, counts: Scores | None = None) -> Slice:
        """Give a slice without texts."""
        nothing = np.empty(0, np.int64)
        return cls(nothing, np.empty((0, dims), np.float32), Postings.of(nothing, np.empty(0, np.uint32)), counts)

    @property
    def last_id(self) -> int:
        """The largest id of an item in it."""
        return int(self.item_ids.max(initial=0))

    @property
    def size(self) -> int:
        """Bytes held, with room for what filters accept."""
        ids = self.item_ids.nbytes * (1 + _FILTERS_KEPT + (self.counts is not None))
        return ids + self.vectors.nbytes + self.postings.size + _OVERHEAD


class SliceCache:
    """Recently used slices within a stated memory, one version of each namespace.

    Args:
        capacity: Bytes.
        lock: Guards the cache; held for lookups only, never while a slice is read or scored.
        weights: What texts count, by the paths that gave them.
    """

    def __init__(
        self, capacity: int, lock: AbstractContextManager[Any], weights: Mapping[str, float] | None = None
    ) -> None:
        self.capacity = capacity
        self.weighs = bool(weights)
        """Whether fields of texts are to be read."""
        self.to_counts = to_counter(weights or {})
        self.size = 0
        self._lock = lock
        self._slices: OrderedDict[int, tuple[Scope, Slice]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._slices)

    def __bool__(self) -> bool:
        return True

    def get(self, scope: Scope) -> tuple[Slice | None, Slice | None]:
        """Give a namespace's slice of a version, else one of an older version; the other is None."""
        with self._lock:
            kept, slice_ = self._slices.get(scope.id, (None, None))
            if kept is None or not scope.continues(kept):
                return None, None
            self._slices.move_to_end(scope.id)
            return (slice_, None) if kept.version == scope.version else (None, slice_)

    def clear(self) -> None:
        """Let everything go."""
        with self._lock:
            self._slices.clear()
            self.size = 0

    def keep(self, scope: Scope, slice_: Slice) -> None:
        """Take a slice in, and let the longest unused go where room is needed."""
        with self._lock:
            kept, old = self._slices.get(scope.id, (None, None))
            if kept is not None and kept.continues(scope):
                return
            if old is not None:
                del self._slices[scope.id]
                self.size -= old.size
            if slice_.size > self.capacity:
                return
            self._slices[scope.id] = scope, slice_
            self.size += slice_.size
            while self.size > self.capacity:
                _, (_, gone) = self._slices.popitem(last=False)
                self.size -= gone.size


def load_slices(dialect: Dialect, cache: SliceCache, metric: Metric, scopes: Sequence[Scope]) -> Flow[list[Slice]]:
    """Give the slices of namespaces that hold texts, from the cache where it has them.

    Of a namespace whose slice is of an older version only the newer items are read: an item never changes under its id.
    """
    found: dict[int, Slice | None] = {}
    older: dict[int, Slice] = {}
    named = {scope.id: scope for scope in scopes}
    for scope in scopes:
        found[scope.id], old = cache.get(scope)
        if old is not None:
            older[scope.id] = old
    made: list[tuple[int, Slice]] = []
    if older:
        changes = yield dialect.select_slice_changes(
            [(name, part.last_id) for name, part in older.items()], fields=cache.weighs
        )
        for name, rows in zip(older, changes, strict=True):
            slice_ = _changed(older[name], rows, metric, cache.to_counts)
            if slice_ is not None:
                made.append((name, slice_))
    done = {name for name, _ in made}
    missing = [name for name, slice_ in found.items() if slice_ is None and name not in done]
    if missing:
        made += _to_slices((yield dialect.select_slices(missing, fields=cache.weighs)), metric, cache.to_counts)
    for namespace_id, slice_ in made:
        cache.keep(named[namespace_id], slice_)
        found[namespace_id] = slice_
    return [slice_ for slice_ in found.values() if slice_ is not None]


def _changed(old: Slice, rows: Sequence[Row], metric: Metric, to_counts: Counter) -> Slice | None:
    """Bring a slice up to rows (id, digests, vectors, terms, fields): just the ids of those in it, all of the newer.

    Returns:
        None where the slice is of no use: its vectors were missing, and are there now.
    """
    now = np.sort(np.fromiter((row[0] for row in rows), np.int64, len(rows)))
    stays = is_among(old.item_ids, now)
    newer = [(None, *row) for row in rows if row[1] is not None]
    new = Slice.empty(old.vectors.shape[1], to_counts([]))
    for _, slice_ in _to_slices(newer, metric, to_counts):
        new = slice_
    if new.vectors.shape[1] != old.vectors.shape[1]:
        return None
    return Slice(
        np.concatenate([old.item_ids[stays], new.item_ids]),
        np.concatenate([old.vectors[stays], new.vectors]),
        old.postings.only(stays).joined(new.postings),
        None if old.counts is None or new.counts is None else np.concatenate([old.counts[stays], new.counts]),
    )


def _to_slices(rows: Sequence[Row], metric: Metric, to_counts: Counter) -> Iterator[tuple[int, Slice]]:
    """Make slices of rows (namespace_id, id, digests, vectors, terms, fields), one namespace after the other."""
    for namespace_id, group in groupby(rows, itemgetter(0)):
        yield namespace_id, to_slice(sorted((row[1:] for row in group), key=itemgetter(0)), metric, to_counts)


def to_slice(rows: Sequence[Row], metric: Metric, to_counts: Counter) -> Slice:
    """Make a slice of rows (id, digests, vectors, terms, fields), by ascending ids."""
    texts = to_text_counts([row[1] for row in rows])
    item_ids = np.repeat(np.fromiter((row[0] for row in rows), np.int64, len(rows)), texts)
    vectors = prepare(metric, to_vectors([row[2] for row in rows], texts))
    counts = to_counts(rows)
    if counts is not None and len(counts) != len(item_ids):
        raise DatabaseDamaged(FIELDS_DAMAGED)
    return Slice(item_ids, vectors, Postings.of(*to_terms([row[3] for row in rows], texts)), counts)


def to_counter(weights: Mapping[str, float]) -> Counter:
    """Make what says how much each text of rows counts, whose last column names the fields of an item's texts."""
    if not weights:
        return lambda _: None

    @lru_cache(maxsize=_LISTS_KEPT)
    def counts(fields: str | None) -> tuple[float, ...]:
        return tuple(count_of(label, weights) for label in to_fields(fields))

    return lambda rows: np.array([count for row in rows for count in counts(row[-1])], np.float64)


def to_fields(listed: str | None) -> list[str]:
    """Decode the fields of an item's texts.

    Raises:
        DatabaseDamaged: They are none.
    """
    try:
        fields = json.loads(listed or "[]")
    except ValueError as error:
        raise DatabaseDamaged(FIELDS_DAMAGED) from error
    if not (isinstance(fields, list) and all(isinstance(field, str) for field in fields)):
        raise DatabaseDamaged(FIELDS_DAMAGED)
    return fields


def count_of(label: str, weights: Mapping[str, float]) -> float:
    """Say what a text counts by its field, which is a path, perhaps with the place of one of its texts."""
    path, _, place = label.rpartition(".")
    return weights.get(label, weights.get(path, 1.0) if place.isdigit() else 1.0)


def to_text_counts(digests: Sequence[bytes | None]) -> Counts:
    """Say how many texts each item has by their digests."""
    return np.fromiter((len(row or b"") // DIGEST_BYTES for row in digests), np.int64, len(digests))


def to_vectors(blobs: Sequence[bytes | None], texts: Counts) -> Vectors:
    """Decode the vectors of items, with the number of texts of each, into an array of shape (texts, dims).

    Raises:
        DatabaseDamaged: They do not fit.
    """
    count = int(texts.sum())
    if not any(blobs):
        return np.empty((count, 0), np.float32)
    whole = [blob or b"" for blob in blobs]
    lengths = np.fromiter(map(len, whole), np.int64, len(whole))
    each = lengths[0] // max(1, texts[0])
    if not each or (lengths != each * texts).any():
        raise DatabaseDamaged("an item's vectors do not fit its texts; check(repair=True) makes them anew")
    try:
        return from_blobs(whole, count)
    except (TypeError, ValueError) as error:
        raise DatabaseDamaged("an item's vectors are none; check(repair=True) makes them anew") from error


def to_terms(blobs: Sequence[bytes | None], texts: Counts) -> tuple[Counts, Terms]:
    """Decode the terms of items, with the number of texts of each, as `Postings` takes them.

    Raises:
        DatabaseDamaged: They do not fit.
    """
    try:
        return from_term_blobs(blobs, texts)
    except (TypeError, ValueError) as error:
        raise DatabaseDamaged("an item's terms do not fit its texts; check(repair=True) makes them anew") from error
