"""Rules 1 to 5 on SQLite."""

from tests.conformance.names import NamesConformance


class TestNames(NamesConformance):
    """Namespaces and keys."""
