"""Ranking beyond words and meaning on SQLite: in narrow scopes, and in wide ones that are ranked whole or proposed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.explaining import ExplainingConformance, RecallConformance
from tests.conformance.ranking import RankingConformance
from tests.conformance.ranking_limits import AgeConformance, LeastScoreConformance
from tests.conformance.ranking_words import WordsConformance
from tests.conformance.reranking import RerankingConformance
from tests.support import AsyncCaller, Clock, OpenStore, SyncCaller, open_sqlite

CANDIDATES = 16
KINDS: dict[str, dict[str, Any]] = {
    "narrow": {},
    "narrow async": {},
    "wide": {"exact_below": 0},
    "proposed async": {"exact_below": 0, "candidates": CANDIDATES},
}
"""How scopes are ranked, and how stores are called."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Name how scopes are ranked."""
    name: str = request.param
    return name


@pytest.fixture
def candidates(kind: str) -> int:
    """Say how many first ranks an index proposes; 0 where all are exact."""
    return CANDIDATES if "proposed" in kind else 0


@pytest.fixture
def open_store(kind: str, path: Path, clock: Clock, runner: asyncio.Runner) -> Iterator[OpenStore]:
    """Open stores of a kind on one file; all are closed in the end."""
    opened: list[SyncCaller] = []

    def open_(*, index: Any = None, ttl: Any = None) -> SyncCaller:
        store = open_sqlite(path, clock, None if index is None else {**index, **KINDS[kind]}, ttl)
        opened.append(AsyncCaller(store, runner) if "async" in kind else SyncCaller(store))
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
