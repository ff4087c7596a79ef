"""Work beside the calls of a store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from memstore.backends.forks import ForkLock

_logger = logging.getLogger("memstore.backends")


class Background:
    """Runs one piece of work at a time, on a thread that keeps no process from ending.

    A forked child goes on without it: what was being done there is begun anew when it is wanted.
    """

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether something is being done."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def begin(self, work: Callable[[], None]) -> None:
        """Begin a piece of work, unless another is under way; where it fails, the log says so."""
        with self._lock:
            if not self.busy:
                self._thread = threading.Thread(target=_run, args=(work,), name="memstore-indexer", daemon=True)
                self._thread.start()

    def join(self) -> None:
        """Wait until what is under way has ended."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()


def _run(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:
        _logger.exception("work beside the calls failed; wide searches compare more vectors meanwhile")
