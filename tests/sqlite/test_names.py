"""Rules 1 to 5 on SQLite."""

from tests.conformance.listing import ListingConformance
from tests.conformance.names import NamesConformance


class TestNames(NamesConformance):
    """Namespaces and keys."""


class TestListing(ListingConformance):
    """Listing namespaces."""
