"""Whether a database is still the one that was seen before, or an older copy put in its place.

Every writing transaction leaves a random mark beside its clock, and the database keeps the last of them. What a store
holds in memory was true at some clock of one history; where the marks differ, the history is another.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

MARK_LENGTH: Final = 4
"""Characters of a mark."""
MARKS_KEPT: Final = 512
"""Writing transactions whose marks a database keeps: 2 KB in the row of its clock."""


@dataclass(frozen=True, slots=True)
class _Seen:
    clock: int
    marks: str
    """Of the last transactions up to that clock, the newest last; at least its own."""

    def at(self, clock: int) -> str | None:
        """Give the mark of a clock; None where it is not known."""
        end = len(self.marks) - (self.clock - clock) * MARK_LENGTH
        return self.marks[end - MARK_LENGTH : end] if clock <= self.clock and end >= MARK_LENGTH else None


class History:
    """What a store has seen of its database's marks.

    Args:
        lock: Guards it.
    """

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        self._seen: _Seen | None = None

    def knows(self, clock: int, mark: str) -> bool:
        """Tell whether a snapshot is of the history that was seen, as far as that can be told without asking."""
        with self._lock:
            if self._seen is None:
                self._seen = _Seen(clock, mark)
            return self._seen.at(clock) == mark

    def goes_on(self, clock: int, marks: str) -> bool:
        """Tell whether a snapshot goes on where what was seen ends; if so, its marks are taken in.

        Where the marks no longer reach back so far, it is taken to.
        """
        with self._lock:
            seen, new = self._seen, _Seen(clock, marks)
            goes_on = seen is None or (seen.clock <= clock and new.at(seen.clock) in (None, seen.at(seen.clock)))
            if goes_on:
                self._seen = new
            return goes_on

    def begin(self, clock: int, marks: str) -> None:
        """Begin with a snapshot of another history, once all that belonged to the one before is forgotten."""
        with self._lock:
            self._seen = _Seen(clock, marks)
