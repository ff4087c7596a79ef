"""Work beside the calls of a store."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from memstore.backends.forks import ForkLock

T = TypeVar("T")
_PROCESSORS: Final = os.cpu_count() or 1
_logger = logging.getLogger("memstore.backends")


class Background:
    """Runs one piece of work at a time, on a thread that keeps no process from ending.

    A forked child goes on without it: what was being done there is begun anew when it is wanted.
    """

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._thread: threading.Thread | None = None
        self._hands: ThreadPoolExecutor | None = None
        self._pid = 0

    def together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make calls at once where processors are free for them, and give what they return."""
        left, results = deque(enumerate(calls)), dict[int, T]()

        def work() -> None:
            with suppress(IndexError):
                while True:
                    at, call = left.popleft()
                    results[at] = call()

        hands = min(len(calls), _PROCESSORS) - 1
        helping = [self._hire().submit(work) for _ in range(hands)]
        work()
        for helper in helping:
            if not helper.cancel():  # where others keep it busy it has not begun, and nothing is left to do
                helper.result()
        return [results[at] for at in range(len(calls))]

    def _hire(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._hands is None or self._pid != os.getpid():  # those of a parent process are not here
                self._hands, self._pid = ThreadPoolExecutor(_PROCESSORS - 1, "memstore-scan"), os.getpid()
            return self._hands

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

    def end(self) -> None:
        """Wait for all that is under way, and let the threads go."""
        self.join()
        with self._lock:
            hands, self._hands = self._hands, None
        if hands is not None and self._pid == os.getpid():
            hands.shutdown()


def _run(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:
        _logger.exception("work beside the calls failed; wide searches compare more vectors meanwhile")
