"""Ranking beyond words and meaning on Postgres: in narrow scopes, and in wide ones with and without the indexes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from langgraph.store.base import SearchItem

from memstore import MemStore
from memstore.explanation import Explanation
from tests.conformance.explaining import ExplainingConformance, RecallConformance
from tests.conformance.ranking import RankingConformance
from tests.conformance.ranking_limits import AgeConformance, LeastScoreConformance
from tests.conformance.ranking_words import WordsConformance
from tests.conformance.reranking import RerankingConformance
from tests.postgres.test_wide import CANDIDATES, WIDE, build
from tests.support import AsyncCaller, Clock, OpenStore, SyncCaller, open_postgres

KINDS: dict[str, dict[str, Any]] = {
    "narrow": {},
    "narrow async": {},
    "wide": {"exact_below": 0, "ann": "none"},
    "proposed async": WIDE,
}
"""How scopes are ranked, and how stores are called."""


class _Built(AsyncCaller):
    """Has the indexes made before it searches."""

    def search(self, prefix: Any, /, **options: Any) -> list[SearchItem]:
        """Search by the indexes."""
        build(self.store)
        return super().search(prefix, **options)

    def explain(self, prefix: Any, /, **options: Any) -> Explanation:
        """Explain a search by the indexes."""
        build(self.store)
        return super().explain(prefix, **options)


def _to_caller(kind: str, store: MemStore, runner: asyncio.Runner) -> SyncCaller:
    """Give what calls a store of a kind."""
    if "proposed" in kind:
        return _Built(store, runner)
    return AsyncCaller(store, runner) if "async" in kind else SyncCaller(store)


@pytest.fixture(params=["narrow async", "wide", "proposed async"])
def kind(request: pytest.FixtureRequest) -> str:
    """Name how scopes are ranked."""
    name: str = request.param
    return name


@pytest.fixture
def candidates(kind: str) -> int:
    """Say how many first ranks the index proposes; 0 where all are exact."""
    return CANDIDATES if "proposed" in kind else 0


@pytest.fixture
def open_store(kind: str, url: str, schema: str, clock: Clock, runner: asyncio.Runner) -> Iterator[OpenStore]:
    """Open stores of a kind on one schema; all are closed in the end."""
    opened: list[SyncCaller] = []

    def open_(*, index: Any = None, ttl: Any = None) -> SyncCaller:
        store = open_postgres(url, schema, clock, None if index is None else {**index, **KINDS[kind]}, ttl)
        opened.append(_to_caller(kind, store, runner))
        return opened[-1]

    yield open_
    for caller in opened:
        caller.close()


class TestRanking(RankingConformance):
    """Neighbours, fields and age."""


class TestAge(AgeConformance):
    """How old an item is."""


class TestLeastScore(LeastScoreConformance):
    """The least score an item is found with."""


class TestWords(WordsConformance):
    """Words of other fields."""


class TestReranking(RerankingConformance):
    """What a reranker makes of the first ranks."""


class TestExplaining(ExplainingConformance):
    """Why a search gave what it gave."""


class TestRecall(RecallConformance):
    """How much of the exact answer is found."""
