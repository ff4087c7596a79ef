"""Rules 27 and 28 on SQLite, within one process."""

from pathlib import Path

import pytest

from tests.conformance.lifecycle import LifecycleConformance
from tests.conformance.sharing import SharingConformance


@pytest.fixture
def location(path: Path) -> str:
    """Name the database as a user does."""
    return str(path)


class TestLifecycle(LifecycleConformance):
    """Opening and closing."""


class TestSharing(SharingConformance):
    """Several stores on one file."""
