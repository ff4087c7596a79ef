"""Putting many items on SQLite."""

from tests.conformance.put_many import PutManyConformance
from tests.conformance.put_many_beside import PutManyBesideConformance


class TestPutMany(PutManyConformance):
    """Batches, in order."""


class TestPutManyBeside(PutManyBesideConformance):
    """One is embedded, another written."""
