"""The contract of a checkpointer on SQLite."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.saver_filters import FiltersConformance, MetadataConformance
from tests.conformance.saver_listing import IterationConformance, ListingConformance
from tests.conformance.saver_values import ValuesConformance
from tests.conformance.savers import SaversConformance, SendsConformance, SuiteConformance, WritesConformance
from tests.support import Place


class TestSuite(SuiteConformance):
    """LangGraph's own suite."""

    @pytest.fixture
    def new_place(self, tmp_path: Path) -> Callable[[], Place]:
        """Name files that are not there."""
        return lambda: Place(str(tmp_path / uuid.uuid4().hex))


class TestWrites(WritesConformance):
    """What tasks wrote."""


class TestSavers(SaversConformance):
    """Configs, ids and versions."""


class TestSends(SendsConformance):
    """Checkpoints of old formats."""


class TestFilters(FiltersConformance):
    """What a filter accepts."""


class TestMetadata(MetadataConformance):
    """What becomes of metadata."""


class TestListing(ListingConformance):
    """Which checkpoints are listed."""


class TestIteration(IterationConformance):
    """Iterators beside other calls."""


class TestValues(ValuesConformance):
    """The values of channels."""
