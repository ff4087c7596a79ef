"""The rules of search on the approximate path: every scope is wide, and an index proposes sixteen candidates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
from tests.support import AsyncCaller, Clock, OpenStore, SyncCaller, WordEmbeddings, open_sqlite

CANDIDATES = 16
WIDE = {"exact_below": 0, "candidates": CANDIDATES}


@pytest.fixture(params=["sync", "async"])
def open_store(request: pytest.FixtureRequest, path: Path, clock: Clock, runner: asyncio.Runner) -> Iterator[OpenStore]:
    """Open stores on one file, to which no scope is narrow; all are closed in the end."""
    opened: list[SyncCaller] = []

    def open_(*, index: Any = None, ttl: Any = None) -> SyncCaller:
        store = open_sqlite(path, clock, None if index is None else {**index, **WIDE}, ttl)
        opened.append(SyncCaller(store) if request.param == "sync" else AsyncCaller(store, runner))
        return opened[-1]

    yield open_
    for caller in opened:
        caller.close()


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
            last = list(found.values())[:CANDIDATES][-1:]
            limits = [1.0] * CANDIDATES + last * len(found)
            capped = {key: min(expected[key], limit) for key, limit in zip(found, limits, strict=False)}
            assert found == pytest.approx(capped, abs=1e-6)
            assert sum(expected[key] > score + 1e-6 for key, score in found.items()) < CANDIDATES / 2


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
