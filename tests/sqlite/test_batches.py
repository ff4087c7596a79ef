"""Rules 22 to 24 on SQLite."""

from tests.conformance.batches import BatchesConformance
from tests.conformance.concurrency import ConcurrencyConformance


class TestBatches(BatchesConformance):
    """All or nothing."""


class TestConcurrency(ConcurrencyConformance):
    """Cancelling, threads and event loops."""
