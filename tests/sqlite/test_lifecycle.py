"""Rules 27 and 28 on SQLite, within one process."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from memstore import EmbeddingError, MemStore
from tests.conformance.lifecycle import LifecycleConformance
from tests.conformance.sharing import SharingConformance


class TestLifecycle(LifecycleConformance):
    """Opening and closing."""


class TestSharing(SharingConformance):
    """Several stores on one file."""


def test_a_store_is_made_from_a_path_as_well(tmp_path: Path) -> None:
    """The first guess of a new user works: the class with a path, opened by its first use."""
    with MemStore(tmp_path / "memories.db") as store:
        store.put(("a",), "k", {})
        assert store.list_namespaces() == [("a",)]


def test_an_async_embedding_is_refused_in_sync_calls_with_the_way_out() -> None:
    """Put and search say to await instead; the same store then works when awaited."""

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0] for _ in texts]

    with MemStore.open(":memory:", index={"embed": embed, "dims": 2}) as store:
        for attempt in (lambda: store.put(("a",), "k", {"text": "x"}), lambda: store.search((), query="x")):
            with pytest.raises(EmbeddingError, match="await"):
                attempt()
        asyncio.run(store.aput(("a",), "k", {"text": "x"}))
        assert store.list_namespaces() == [("a",)]
