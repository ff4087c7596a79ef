"""The contract of a checkpointer on Postgres."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.conformance.saver_filters import FiltersConformance, MetadataConformance
from tests.conformance.saver_listing import IterationConformance, ListingConformance
from tests.conformance.saver_values import ValuesConformance
from tests.conformance.savers import SaversConformance, SendsConformance, SuiteConformance, WritesConformance
from tests.postgres.server import fresh_schema
from tests.support import Place


class TestSuite(SuiteConformance):
    """LangGraph's own suite."""

    @pytest.fixture
    def new_place(self, url: str) -> Iterator[Callable[[], Place]]:
        """Name schemas that are not there."""
        with ExitStack() as stack:
            yield lambda: Place(url, {"schema": stack.enter_context(fresh_schema(url))})


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
