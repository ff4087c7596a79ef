"""Time to live: refreshing what was read, and sweeping what has expired.

What has expired is invisible to every read at once; sweeping only makes room. A refresh touches the very rows that a
read returned, after that read's transaction, and never one that has expired or changed since.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final

from memstore.dialects import Dialect
from memstore.errors import DatabaseError, StoreClosed
from memstore.items import Found, Microseconds
from memstore.steps import Flow

_logger = logging.getLogger("memstore.ttl")
_MINUTE: Final = 60_000_000
"""Microseconds."""
_NEVER: Final = 2**62
"""The latest expiry that is kept, some 146,000 years from 1970."""
_WORTH_MOVING: Final = 0.01
"""Share of its ttl by which an expiry must move to be worth a write."""
SWEEP_BATCH: Final = 1_000
"""Items deleted in one transaction, so that a sweep never holds up a writer for long."""


def to_expiry(ttl: float | None, now: Microseconds) -> Microseconds | None:
    """Say when what is written or read now expires; the ttl is in minutes."""
    return None if ttl is None else min(now + max(1, int(min(ttl * _MINUTE, float(_NEVER)))), _NEVER)


def to_refreshes(found: Iterable[Found], now: Microseconds) -> list[tuple[int, Microseconds]]:
    """Choose which of the items a read returned are worth refreshing: (item id, new expiry)."""
    refreshes = {}
    for hit in found:
        expires_at = to_expiry(hit.ttl, now)
        if hit.ttl is None or expires_at is None or hit.expires_at is None:
            continue
        if expires_at - hit.expires_at >= hit.ttl * _MINUTE * _WORTH_MOVING:
            refreshes[hit.id] = expires_at
    return sorted(refreshes.items())


def refresh(refreshes: list[tuple[int, Microseconds]], dialect: Dialect, now: Callable[[], Microseconds]) -> Flow[None]:
    """Move the expiry of items that are still there and still live."""
    yield dialect.refresh_items(refreshes, now())


class Sweeper:
    """A thread that calls a sweep now and then until it is stopped; it holds neither the store nor the process.

    Args:
        sweep: A bound method of the store.
        interval: Minutes between two sweeps.
    """

    def __init__(self, sweep: Callable[[], Any], interval: float) -> None:
        self._sweep = weakref.WeakMethod(sweep)
        self._seconds = interval * 60
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="memstore-sweeper", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether it still sweeps, and will go on."""
        return self._thread.is_alive() and not self._stopped.is_set()

    def stop(self, timeout: float | None = None, *, wait: bool = True) -> bool:
        """Stop it, wait for a sweep under way at most `timeout` seconds, and tell whether it has ended."""
        self._stopped.set()
        if wait and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while not self._stopped.wait(min(self._seconds, threading.TIMEOUT_MAX)):
            sweep = self._sweep()
            if sweep is None:
                return
            try:
                sweep()
            except StoreClosed:
                return
            except DatabaseError as error:  # locked or full for now; what has expired stays invisible meanwhile
                _logger.warning("sweep put off: %s", error)
            except Exception as error:  # noqa: BLE001  a serializer that lacks a key or a type; the next may have it
                _logger.warning("sweep put off: %s", type(error).__name__)
            del sweep
