"""The contract on a database in memory, as far as one store can show it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.batches import BatchesConformance
from tests.conformance.concurrency import ConcurrencyConformance
from tests.conformance.fields import FieldsConformance
from tests.conformance.indexing import IndexingConformance
from tests.conformance.lifecycle import LifecycleConformance
from tests.conformance.modes import ModesConformance
from tests.conformance.names import NamesConformance
from tests.conformance.put_many import PutManyConformance
from tests.conformance.scores import ScoresConformance
from tests.conformance.search import SearchConformance
from tests.conformance.sweeping import SweeperConformance, SweepingConformance
from tests.conformance.ttl import ExpiryRacesConformance, TtlConformance
from tests.support import AsyncCaller, Clock, OpenStore, Place, SyncCaller, open_sqlite


@pytest.fixture(params=["sync", "async"])
def open_store(request: pytest.FixtureRequest, clock: Clock, runner: asyncio.Runner) -> Iterator[OpenStore]:
    """Open stores in memory, each with a database of its own; all are closed in the end."""
    opened: list[SyncCaller] = []

    def open_(*, index: Any = None, ttl: Any = None) -> SyncCaller:
        store = open_sqlite(None, clock, index, ttl)
        opened.append(SyncCaller(store) if request.param == "sync" else AsyncCaller(store, runner))
        return opened[-1]

    yield open_
    for caller in opened:
        caller.close()


@pytest.fixture
def location() -> Place:
    """Name the database as a user does."""
    return Place(":memory:")


class TestNames(NamesConformance):
    """Namespaces and keys."""


class TestSearch(SearchConformance):
    """Pages, order and scope."""


class TestScores(ScoresConformance):
    """Scores by meaning."""


class TestModes(ModesConformance):
    """Ranking by words, and by both."""


class TestIndexing(IndexingConformance):
    """Texts and their vectors."""


class TestFields(FieldsConformance):
    """What is embedded of a value."""


class TestBatches(BatchesConformance):
    """All or nothing."""


class TestPutMany(PutManyConformance):
    """Batches, in order."""


class TestConcurrency(ConcurrencyConformance):
    """Cancelling, threads and event loops."""


class TestTtl(TtlConformance):
    """Living, reading, expiring."""


class TestExpiryRaces(ExpiryRacesConformance):
    """Expiring in the middle of a call."""


class TestSweeping(SweepingConformance):
    """What a sweep takes."""


class TestSweeper(SweeperConformance):
    """The thread that sweeps."""


class TestLifecycle(LifecycleConformance):
    """Opening and closing."""
