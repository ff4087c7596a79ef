"""The rules of search on the approximate path in Postgres: every scope is wide, and the indexes propose sixteen.

The indexes are made in the foreground, before the first search that could use them, so that no test depends on when a
thread has made them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from langgraph.store.base import Op, PutOp, SearchItem, SearchOp

from memstore import MemStore
from memstore.ann import DatabaseIndex
from memstore.backends.postgres_build import DatabaseWide
from memstore.dialects.postgres_wide import TERMS_INDEX, VECTORS_INDEX
from tests.conformance.batches import BatchesConformance
from tests.conformance.concurrency import ConcurrencyConformance
from tests.conformance.fields import FieldsConformance
from tests.conformance.indexing import IndexingConformance
from tests.conformance.modes import PREFIXES, QUERIES, ModesConformance, checked, hybrid_scores, open_in_mode, put_many
from tests.conformance.remembering import RememberingConformance, RememberingWordsConformance
from tests.conformance.scores import ScoresConformance
from tests.conformance.search import SearchConformance
from tests.conformance.sharing import SharingConformance
from tests.conformance.sweeping import SweepingConformance
from tests.conformance.ttl import ExpiryRacesConformance, TtlConformance
from tests.support import AsyncCaller, Clock, OpenStore, SyncCaller, WordEmbeddings, open_postgres

FIRST = 8
CANDIDATES = 16
WIDE = {"exact_below": 0, "candidates": CANDIDATES, "ef_search": FIRST}


def build(store: MemStore) -> None:
    """Make the indexes where they are not there yet and there is something to index."""
    wide = store._calls._wide if store._calls is not None else None
    if isinstance(wide, DatabaseWide) and store._calls is not None and store._calls.index is not None:
        indexed = {VECTORS_INDEX, TERMS_INDEX} if store._calls.index.dense else {TERMS_INDEX}
        while not indexed <= wide.ready and not wide.build():
            time.sleep(0.01)  # a thread of the store's own is making it


class _Built(SyncCaller):
    """Has the indexes made before it searches."""

    def search(self, prefix: Any, /, **options: Any) -> list[SearchItem]:
        """Search by the indexes."""
        if options.get("query"):
            build(self.store)
        return super().search(prefix, **options)

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        """Run a batch whose searches use the indexes."""
        listed = list(ops)
        if any(isinstance(op, SearchOp) and op.query for op in listed):
            build(self.store)
        return super().batch(listed)


class _AsyncBuilt(_Built, AsyncCaller):
    """The same through the async methods."""


@pytest.fixture(params=["sync", "async"])
def open_store(
    request: pytest.FixtureRequest, url: str, schema: str, clock: Clock, runner: asyncio.Runner
) -> Iterator[OpenStore]:
    """Open stores on one schema, to which no scope is narrow; all are closed in the end."""
    opened: list[SyncCaller] = []

    def open_(*, index: Any = None, ttl: Any = None) -> SyncCaller:
        store = open_postgres(url, schema, clock, None if index is None else {**index, **WIDE}, ttl)
        opened.append(_Built(store) if request.param == "sync" else _AsyncBuilt(store, runner))
        return opened[-1]

    yield open_
    for caller in opened:
        caller.close()


def test_the_indexes_are_used(
    open_store: OpenStore, embeddings: WordEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What this file tests is the approximate path: candidates come from the indexes, and are ranked by all modes."""
    store = open_in_mode(open_store, embeddings, None)
    store.batch(PutOp((f"n{number % 5}",), f"k{number}", {"text": f"apple boat {number}"}) for number in range(60))
    asked: list[Any] = []
    exact = DatabaseIndex.rank

    def rank(self: DatabaseIndex, *args: Any) -> Any:
        asked.append(args)
        return exact(self, *args)

    monkeypatch.setattr(DatabaseIndex, "rank", rank)
    for mode in ("hybrid", "semantic"):
        assert len(store.search((), query="apple boats", mode=mode, limit=FIRST)) == FIRST
        assert len(store.search((), query="apple boats", mode=mode, limit=CANDIDATES)) == CANDIDATES
    assert asked == []
    assert len(store.search((), query="apple boats", limit=CANDIDATES + 1)) == CANDIDATES + 1
    assert len(asked) == 1


class TestSearch(SearchConformance):
    """Pages, order and scope."""


class TestScores(ScoresConformance):
    """Scores by meaning."""


class TestModes(ModesConformance):
    """Ranking by words, and by both."""

    # candidates are approximate: what is missing among them follows them, with no better score than their last
    @pytest.mark.parametrize("prefix", PREFIXES, ids=repr)
    def test_a_hybrid_score_is_a_fixed_sum(
        self, open_store: OpenStore, embeddings: WordEmbeddings, prefix: tuple[str, ...]
    ) -> None:
        """Every candidate has its exact score, and so has what follows, but for the few that should be among them."""
        store = open_in_mode(open_store, embeddings, None)
        items = {key: item for key, item in put_many(store).items() if item[0][: len(prefix)] == prefix}
        for query in QUERIES:
            expected = hybrid_scores(items, embeddings, query)
            found = checked(store.search(prefix, query=query, limit=200))
            assert found.keys() == expected.keys()
            scores = list(found.values())
            limits = [1.0] * FIRST + scores[FIRST - 1 : FIRST] * FIRST
            limits += scores[CANDIDATES - 1 : CANDIDATES] * len(found)
            capped = {key: min(expected[key], limit) for key, limit in zip(found, limits, strict=False)}
            assert found == pytest.approx(capped, abs=1e-6)
            assert sum(expected[key] > score + 1e-6 for key, score in found.items()) < CANDIDATES


class TestIndexing(IndexingConformance):
    """Texts and their vectors."""


class TestFields(FieldsConformance):
    """What is embedded of a value."""


class TestRemembering(RememberingConformance):
    """What the database knows of its model."""


class TestRememberingWords(RememberingWordsConformance):
    """What the database knows of its words."""


class TestBatches(BatchesConformance):
    """All or nothing."""


class TestConcurrency(ConcurrencyConformance):
    """Cancelling, threads and event loops."""


class TestTtl(TtlConformance):
    """Living, reading, expiring."""


class TestExpiryRaces(ExpiryRacesConformance):
    """Expiring in the middle of a call."""


class TestSweeping(SweepingConformance):
    """What a sweep takes."""


class TestSharing(SharingConformance):
    """Several stores on one file."""
