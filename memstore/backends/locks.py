"""A lock that many may share, or one may have alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from memstore.backends.forks import gate


class ReadersLock:
    """Shared by any number of threads, or held by one alone, which those that come later let go first.

    Who holds it has passed the gate, which nobody has while the process forks: no child finds it held.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sharing = 0
        self._waiting = 0
        self._alone = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Share it with others."""
        with gate:
            with self._changed:
                self._changed.wait_for(lambda: not (self._alone or self._waiting))
                self._sharing += 1
            try:
                yield
            finally:
                with self._changed:
                    self._sharing -= 1
                    self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Have it alone."""
        with gate:
            with self._changed:
                self._waiting += 1
                try:
                    self._changed.wait_for(lambda: not (self._alone or self._sharing))
                    self._alone = True
                finally:
                    self._waiting -= 1
                    self._changed.notify_all()
            try:
                yield
            finally:
                with self._changed:
                    self._alone = False
                    self._changed.notify_all()
