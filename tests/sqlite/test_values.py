"""Rules 6 to 8 on SQLite."""

from tests.conformance.refusals import RefusalsConformance
from tests.conformance.times import TimesConformance
from tests.conformance.values import ValuesConformance


class TestValues(ValuesConformance):
    """Values that are kept."""


class TestRefusals(RefusalsConformance):
    """Values that are refused."""


class TestTimes(TimesConformance):
    """When items were made and changed."""
