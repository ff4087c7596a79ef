"""Rules 25 and 26 on SQLite."""

from tests.conformance.sweeping import SweeperConformance, SweepingConformance
from tests.conformance.ttl import ExpiryRacesConformance, TtlConformance


class TestTtl(TtlConformance):
    """Living, reading, expiring."""


class TestExpiryRaces(ExpiryRacesConformance):
    """Expiring in the middle of a call."""


class TestSweeping(SweepingConformance):
    """What a sweep takes."""


class TestSweeper(SweeperConformance):
    """The thread that sweeps."""
