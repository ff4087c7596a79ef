"""A namespace's vectors in memory, cached by version.

A slice is named by (namespace id, version), and every transaction that writes in a namespace moves its version: what
the cache gives is exact in any snapshot, process or rollback, with nothing to invalidate. Old slices fall out when
room is needed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeAlias

import numpy as np

from memstore.dialects import Dialect
from memstore.embedding import DIGEST_BYTES, from_blobs
from memstore.errors import DatabaseDamaged
from memstore.indexes import Ids, Metric, Vectors
from memstore.indexes.flat import prepare
from memstore.steps import Flow, Row

SliceName: TypeAlias = tuple[int, int]
"""(namespace id, version)."""
_OVERHEAD: Final = 500
"""Bytes a cached slice costs beside its arrays."""


@dataclass(frozen=True, slots=True)
class Scope:
    """One namespace a search may see: a row of memstore_namespaces."""

    id: int
    path: bytes
    version: int
    texts: int


@dataclass(frozen=True, slots=True)
class Slice:
    """The texts of one namespace: ids of their items of shape (n,) and prepared vectors of shape (n, dims)."""

    item_ids: Ids
    vectors: Vectors

    @property
    def size(self) -> int:
        """Bytes held."""
        return self.item_ids.nbytes + self.vectors.nbytes + _OVERHEAD


class SliceCache:
    """Recently used slices within a stated memory.

    Args:
        capacity: Bytes.
        lock: Guards the cache; held for lookups only, never while a slice is read or scored.
    """

    def __init__(self, capacity: int, lock: AbstractContextManager[Any]) -> None:
        self.capacity = capacity
        self.size = 0
        self._lock = lock
        self._slices: OrderedDict[SliceName, Slice] = OrderedDict()

    def __len__(self) -> int:
        return len(self._slices)

    def __bool__(self) -> bool:
        return True

    def get(self, name: SliceName) -> Slice | None:
        """Give a slice, and keep it longer."""
        with self._lock:
            found = self._slices.get(name)
            if found is not None:
                self._slices.move_to_end(name)
            return found

    def keep(self, name: SliceName, slice_: Slice) -> None:
        """Take a slice in, and let the longest unused go where room is needed."""
        with self._lock:
            if name in self._slices or slice_.size > self.capacity:
                return
            self._slices[name] = slice_
            self.size += slice_.size
            while self.size > self.capacity:
                _, gone = self._slices.popitem(last=False)
                self.size -= gone.size


def load_slices(dialect: Dialect, cache: SliceCache, metric: Metric, scopes: Sequence[Scope]) -> Flow[list[Slice]]:
    """Give the slices of namespaces that hold texts, from the cache where it has them."""
    found = {scope.id: cache.get((scope.id, scope.version)) for scope in scopes}
    missing = [scope.id for scope in scopes if found[scope.id] is None]
    if missing:
        versions = {scope.id: scope.version for scope in scopes}
        rows = yield dialect.select_slices(missing)
        for namespace_id, slice_ in _to_slices(rows, metric):
            cache.keep((namespace_id, versions[namespace_id]), slice_)
            found[namespace_id] = slice_
    return [slice_ for slice_ in found.values() if slice_ is not None]


def _to_slices(rows: Sequence[Row], metric: Metric) -> Iterator[tuple[int, Slice]]:
    """Make slices of rows (namespace_id, id, digests, vectors), one namespace after the other."""
    for namespace_id, group in groupby(rows, itemgetter(0)):
        part = list(group)
        texts = [len(row[2] or b"") // DIGEST_BYTES for row in part]
        if len({len(row[3] or b"") / count if count else 0 for row, count in zip(part, texts, strict=True)}) != 1:
            raise DatabaseDamaged("an item's vectors do not fit its texts; check(repair=True) makes them anew")
        item_ids = np.repeat(np.fromiter((row[1] for row in part), np.int64, len(part)), texts)
        try:
            vectors = from_blobs([row[3] for row in part], len(item_ids))
        except (TypeError, ValueError) as error:
            raise DatabaseDamaged("an item's vectors are none; check(repair=True) makes them anew") from error
        yield namespace_id, Slice(item_ids, prepare(metric, vectors))
