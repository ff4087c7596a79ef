"""Rules 25 and 26 on SQLite."""

from pathlib import Path

import pytest

from tests.conformance.sweeping import SweeperConformance, SweepingConformance
from tests.conformance.ttl import ExpiryRacesConformance, TtlConformance


@pytest.fixture
def location(path: Path) -> str:
    """Name the database as a user does."""
    return str(path)


class TestTtl(TtlConformance):
    """Living, reading, expiring."""


class TestExpiryRaces(ExpiryRacesConformance):
    """Expiring in the middle of a call."""


class TestSweeping(SweepingConformance):
    """What a sweep takes."""


class TestSweeper(SweeperConformance):
    """The thread that sweeps."""
