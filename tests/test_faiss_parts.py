"""What the approximate index gives away to be kept in a file, and takes back: codes of its own vectors, no others."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from memstore.indexes import Ids, Metric, Vectors, codes
from memstore.indexes.faiss import FaissIndex
from memstore.indexes.flat import FlatIndex, prepare
from tests.vectors import answers, every_metric, ids_of, pair, recall, text_vectors


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep codes in parts of which even a few hundred vectors need several."""
    monkeypatch.setattr(codes, "_PART", 256)


class TestParts:
    """What an index gives away to be kept, and takes back."""

    @staticmethod
    def adopting(vectors: Vectors, ids: Ids, parts: Any, metric: Metric = "cosine") -> tuple[FaissIndex, int]:
        """Make a new index and have it adopt parts."""
        index = FaissIndex(vectors.shape[1], metric)
        index.add(ids, vectors)
        return index, index.adopt(parts)

    @staticmethod
    def assert_right(index: FaissIndex, vectors: Vectors, ids: Ids, metric: Metric = "cosine") -> None:
        """See that each text is found by itself, coded as if by this index alone: the codes are of its own vectors."""
        index.train()
        flat = FlatIndex(vectors.shape[1], metric)
        flat.add(ids, vectors)
        queries = np.concatenate([vectors[:: max(1, len(vectors) // 15)], text_vectors(10, 31, vectors.shape[1])])
        assert recall(index, flat, queries, 10) >= 0.9

    @every_metric
    @pytest.mark.parametrize("dims", [17, 32, 384])
    def test_an_index_that_adopts_answers_the_same(self, metric: Metric, dims: int) -> None:
        """Nothing is trained again, and what is proposed is the same, place by place."""
        vectors, queries = text_vectors(900, 22, dims), text_vectors(15, 23, dims)
        near, _ = pair(metric, vectors)
        again, count = self.adopting(vectors, np.arange(1, 901), near.to_parts(), metric)
        assert (count, again.train()) == (900, False)
        assert answers(again, queries, 20) == answers(near, queries, 20)
        for query in prepare(metric, queries):
            assert again.propose(query, 100).tolist() == near.propose(query, 100).tolist()

    def test_parts_do_not_change_with_the_index(self) -> None:
        """They are written to a file while the index goes on."""
        vectors = text_vectors(300, 24, 16)
        near, _ = pair("cosine", vectors)
        parts = near.to_parts()
        assert parts is not None
        before = {name: array.tobytes() for name, array in parts.items()}
        near.add(np.arange(400, 500), text_vectors(100, 25, 16))
        near.train()
        near.remove(np.arange(1, 200))
        near.compact()
        assert {name: array.tobytes() for name, array in parts.items()} == before

    def test_parts_of_fewer_vectors(self) -> None:
        """What came since is coded beside what was known; the quantizer is kept."""
        vectors = text_vectors(800, 26, 64)
        near, _ = pair("cosine", vectors[:500])
        again, count = self.adopting(vectors, np.arange(1, 801), near.to_parts())
        assert (count, again.train()) == (500, False)
        self.assert_right(again, vectors, np.arange(1, 801))

    @pytest.mark.parametrize("known", ["all", "fewer"])
    def test_parts_of_more_vectors(self, known: str) -> None:
        """Codes of what has been removed since, first, last or between, are left out; the others keep their own."""
        vectors, ids = text_vectors(800, 27, 64), np.arange(1, 801)
        near, _ = pair("cosine", vectors if known == "all" else vectors[:600])
        chance = np.random.default_rng(28)
        for gone in (np.arange(100), np.arange(700, 800), np.arange(0, 800, 3), chance.permutation(800)[:250]):
            stays = ~np.isin(np.arange(800), gone)
            again, count = self.adopting(vectors[stays], ids[stays], near.to_parts())
            assert count == int(stays.sum() if known == "all" else stays[:600].sum())
            self.assert_right(again, vectors[stays], ids[stays])

    def test_parts_of_an_index_with_removed_vectors(self) -> None:
        """What it had removed and not yet compacted is not there any more where the parts are adopted."""
        vectors = text_vectors(600, 29, 64)
        near, _ = pair("cosine", vectors)
        near.remove(np.arange(1, 200, 2))
        stays = np.setdiff1d(np.arange(600), np.arange(0, 199, 2))
        again, count = self.adopting(vectors[stays], stays + 1, near.to_parts())
        assert count == 500
        self.assert_right(again, vectors[stays], stays + 1)

    def test_parts_of_other_vectors_are_left_aside(self) -> None:
        """The same ids with other vectors: no code is taken for one that it was not made of."""
        vectors = text_vectors(600, 30, 64)
        parts = pair("cosine", text_vectors(600, 31, 64))[0].to_parts()
        again, count = self.adopting(vectors, np.arange(1, 601), parts)
        assert (count, again.train()) == (0, True)
        self.assert_right(again, vectors, np.arange(1, 601))

    def test_parts_of_some_other_vectors(self) -> None:
        """Vectors that changed under their ids, here and there, or in a stretch: none has another's code."""
        vectors, ids = text_vectors(600, 32, 64), np.arange(1, 601)
        parts = pair("cosine", vectors)[0].to_parts()
        for changed in (slice(0, 50), slice(550, 600), slice(0, 600, 5), slice(200, 201)):
            now = vectors.copy()
            now[changed] = text_vectors(600, 33, 64)[changed]
            again, count = self.adopting(now, ids, parts)
            assert count in (0, 600 - len(ids[changed]))
            self.assert_right(again, now, ids)

    def test_parts_of_vectors_in_another_order(self) -> None:
        """The same vectors under each other's ids, or the same ids of an index that counts otherwise, are no match."""
        vectors, ids = text_vectors(600, 34, 64), np.arange(1, 601)
        parts = pair("cosine", vectors)[0].to_parts()
        for order in (np.arange(600)[::-1], np.roll(np.arange(600), 1), np.random.default_rng(35).permutation(600)):
            again, _ = self.adopting(vectors[order], ids, parts)
            self.assert_right(again, vectors[order], ids)
        again, count = self.adopting(vectors, ids + 1, parts)
        assert count == 0
        self.assert_right(again, vectors, ids + 1)

    def test_parts_of_another_kind_of_index(self) -> None:
        """Other dims, even padded to the same, or another metric: nothing is taken over, and the index works."""
        vectors, ids = text_vectors(400, 36, 31), np.arange(1, 401)
        parts = pair("cosine", vectors)[0].to_parts()
        wider = np.pad(vectors, ((0, 0), (0, 1)))
        for given_vectors, metric in ((vectors[:, :16], "cosine"), (vectors, "l2")):
            again, count = self.adopting(np.ascontiguousarray(given_vectors), ids, parts, metric)  # type: ignore[arg-type]
            assert count == 0
            self.assert_right(again, given_vectors, ids, metric)  # type: ignore[arg-type]
        again, _ = self.adopting(wider, ids, parts)
        self.assert_right(again, wider, ids)
        parts = pair("l2", vectors)[0].to_parts()  # of the very vectors that the other metric has
        again, count = self.adopting(vectors, ids, parts, "inner_product")
        assert count == 0
        self.assert_right(again, vectors, ids, "inner_product")

    def test_parts_for_an_empty_index(self) -> None:
        """Everything was removed since: nothing is taken over, and what is added then is found."""
        parts = pair("cosine", text_vectors(100, 37, 16))[0].to_parts()
        again, count = self.adopting(np.empty((0, 16), np.float32), np.empty(0, np.int64), parts)
        assert count == 0
        again.add(np.array([500]), text_vectors(1, 38, 16))
        assert ids_of(again).tolist() == [500]

    @pytest.mark.parametrize("name", ["codes", "ids", "fingerprints", "trained_on"])
    @pytest.mark.parametrize("damage", ["missing", "empty", "shorter"])
    def test_parts_that_are_none(self, name: str, damage: str) -> None:
        """Whatever is missing of them, it is an error of the kinds that are announced, or nothing is taken over."""
        vectors = text_vectors(100, 39, 16)
        parts = pair("cosine", vectors)[0].to_parts()
        assert parts is not None
        if damage == "missing":
            del parts[name]
        else:
            parts[name] = parts[name][: 0 if damage == "empty" else len(parts[name]) // 2]
        index = FaissIndex(16)
        index.add(np.arange(1, 101), vectors)
        with suppress(KeyError, RuntimeError, ValueError):
            assert index.adopt(parts) in (0, 100)
        self.assert_right(index, vectors, np.arange(1, 101))
