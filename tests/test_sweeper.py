"""The sweeper: it goes on after trouble, and holds neither what it sweeps nor the process."""

from __future__ import annotations

import gc
import logging
import threading
import weakref

import pytest

from memstore.errors import DatabaseBusy, StoreClosed
from memstore.ttl import Sweeper

OFTEN = 1e-6
"""Minutes between two sweeps."""
PATIENCE = 30
"""Seconds until a sweep that should have come counts as missing."""


class Swept:
    """Something to sweep, which fails as often as it is told to."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.count = 0
        self.done = threading.Event()

    def sweep(self) -> None:
        """Sweep, or fail."""
        self.count += 1
        if self.faults:
            raise self.faults.pop(0)
        self.done.set()


def test_a_sweep_that_the_database_refuses_is_put_off(caplog: pytest.LogCaptureFixture) -> None:
    """Locked or full for now: it is told to the log and tried again, and the sweeper lives on."""
    swept = Swept(DatabaseBusy("try again"), DatabaseBusy("try again"))
    with caplog.at_level(logging.WARNING, "memstore.ttl"):
        sweeper = Sweeper(swept.sweep, OFTEN)
        assert swept.done.wait(PATIENCE)
        assert sweeper.running
        assert sweeper.stop(PATIENCE)
    assert caplog.messages == ["sweep put off: Another process kept the database locked: try again"] * 2
    assert not sweeper.running


def test_a_sweeper_ends_with_its_store() -> None:
    """A store closed from elsewhere ends it without a word."""
    sweeper = Sweeper(Swept(StoreClosed()).sweep, OFTEN)
    sweeper._thread.join(PATIENCE)
    assert not sweeper.running


def test_a_sweeper_does_not_keep_what_it_sweeps() -> None:
    """An unclosed store is collected all the same; its sweeper then ends by itself."""
    swept = Swept()
    gone = weakref.ref(swept)
    sweeper = Sweeper(swept.sweep, OFTEN)
    assert swept.done.wait(PATIENCE)
    del swept
    sweeper._thread.join(PATIENCE)
    gc.collect()
    assert gone() is None
    assert not sweeper.running
    assert sweeper.stop()


def test_a_sweeper_does_not_hold_the_process() -> None:
    """Its thread is a daemon, and stopping it does not wait for the next sweep, however far off that is."""
    sweeper = Sweeper(Swept().sweep, 1e300)
    assert sweeper._thread.daemon
    assert sweeper.running
    assert sweeper.stop(PATIENCE)


def test_a_sweeper_may_stop_itself() -> None:
    """Closing the store from within a sweep does not wait for that very sweep to end."""

    class Closing(Swept):
        """Stops its sweeper while it sweeps."""

        sweeper: Sweeper
        ready = threading.Event()

        def sweep(self) -> None:
            """Sweep once, and stop."""
            assert self.ready.wait(PATIENCE)
            self.sweeper.stop()
            self.done.set()

    closing = Closing()
    closing.sweeper = Sweeper(closing.sweep, OFTEN)
    closing.ready.set()
    assert closing.done.wait(PATIENCE)
    closing.sweeper._thread.join(PATIENCE)
    assert not closing.sweeper.running
