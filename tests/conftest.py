"""Fixtures of all tests."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.conformance", "tests.support", "tests.flows", "tests.sqlite.faults")

from tests.postgres.server import any_server  # noqa: E402  after the rewriting of asserts is asked for
from tests.support import Clock, WordEmbeddings  # noqa: E402


def pytest_collection_finish() -> None:
    """Leave the tests themselves, thousands of objects each, out of garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """Give the URL of a PostgreSQL server with pgvector."""
    with any_server() as url:
        yield url


@pytest.fixture
def clock() -> Clock:
    """Give a clock that the test moves."""
    return Clock()


@pytest.fixture
def embeddings() -> WordEmbeddings:
    """Give a small deterministic embedding."""
    return WordEmbeddings()


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """Give an event loop of the test's own."""
    with asyncio.Runner() as runner:
        yield runner
