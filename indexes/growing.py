"""An array that grows at its end without being copied each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from memstore.indexes import Counts, Ids, Places

T = TypeVar("T", bound=np.generic)
_ROOM: Final = 1.25
"""How much larger than needed the array is made when it is full."""


class Growing(Generic[T]):
    """Rows of one shape and type, appended.

    Args:
        dtype: The type of a number.
        shape: The shape of a row; () for plain numbers.
        expected: How many are to come first.
        most: How many there can be; no room is made for more.
    """

    def __init__(self, dtype: type[T], shape: tuple[int, ...] = (), expected: int = 0) -> None:
        self._rows: npt.NDArray[T] = np.empty((expected, *shape), dtype)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Append rows of shape (n, ...)."""
        count = self._count + len(rows)
        if count > len(self._rows):
            grown: npt.NDArray[T] = np.empty((int(count * _ROOM), *self._rows.shape[1:]), self._rows.dtype)
            grown[: self._count] = self.rows
            self._rows = grown
        self._rows[self._count : count] = rows
        self._count = count

    def keep(self, stays: npt.NDArray[np.bool_]) -> None:
        """Keep some rows, in their order."""
        self._rows = self.rows[stays]
        self._count = len(self._rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return self.rows.nbytes

    @property
    def rows(self) -> npt.NDArray[T]:
        """All rows; a view, good until rows are appended."""
        return self._rows[: self._count]


def is_among(wanted: Ids, ids: Ids) -> npt.NDArray[np.bool_]:
    """Tell which of some ids are among others that ascend."""
    if not len(ids):
        return np.zeros(len(wanted), np.bool_)
    found: npt.NDArray[np.bool_] = ids[np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)] == wanted
    return found


def places_of(wanted: Ids, ids: Ids) -> Places:
    """Find ids among others that ascend; give the places of those that are there."""
    places: Places = np.searchsorted(ids, wanted)[is_among(wanted, ids)]
    return places


def merged(lists: Sequence[Places]) -> Places:
    """Give the distinct places of some lists, ascending."""
    places: Places = np.sort(np.concatenate(lists))
    distinct: Places = places[np.append(True, places[1:] != places[:-1])[: len(places)]]
    return distinct


def ranges(first: Counts, counts: Counts) -> Ids:
    """Give the whole numbers of several ranges, one after the other: `counts` from each `first` on."""
    numbers = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    return numbers.astype(np.int64, copy=False)
