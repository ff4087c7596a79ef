"""Rules 9 to 12 on SQLite."""

from tests.conformance.filter_keys import FilterKeysConformance
from tests.conformance.filter_laws import FilterLawsConformance
from tests.conformance.filters import FiltersConformance


class TestFilters(FiltersConformance):
    """Operators, case by case."""


class TestFilterKeys(FilterKeysConformance):
    """Which keys filters reach, and which filters are refused."""


class TestFilterLaws(FilterLawsConformance):
    """Filters against plain Python."""
