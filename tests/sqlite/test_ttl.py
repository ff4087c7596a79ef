"""Rules 25 and 26 on SQLite."""

from pathlib import Path

import pytest

from tests.conformance.sweeping import SweeperConformance, SweepingConformance
from tests.conformance.ttl import ExpiryRacesConformance, TtlConformance
from tests.support import Place


@pytest.fixture
def location(path: Path) -> Place:
    """Name the database as a user does."""
    return Place(str(path))


class TestTtl(TtlConformance):
    """Living, reading, expiring."""


class TestExpiryRaces(ExpiryRacesConformance):
    """Expiring in the middle of a call."""


class TestSweeping(SweepingConformance):
    """What a sweep takes."""


class TestSweeper(SweeperConformance):
    """The thread that sweeps."""
