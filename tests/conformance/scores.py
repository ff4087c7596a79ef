"""Scores: rule 16 of the contract, in the mode `semantic`, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from langgraph.store.base import PutOp, SearchItem

from tests.conformance.models import TableEmbeddings
from tests.support import OpenStore, SyncCaller, WordEmbeddings, keys

METRICS = ["cosine", "inner_product", "l2"]
Array = npt.NDArray[np.float64]


def expected_score(metric: str, text: Array, query: Array) -> float:
    """Give the score that the contract names, in float64."""
    if metric == "cosine":
        lengths = float(np.linalg.norm(text) * np.linalg.norm(query))
        return float(text @ query) / lengths if lengths else 0.0
    return float(text @ query) if metric == "inner_product" else -float(np.linalg.norm(text - query))


def scores_of(hits: list[SearchItem]) -> list[float]:
    """Give the scores of a ranked answer."""
    scores = [hit.score for hit in hits if hit.score is not None]
    assert len(scores) == len(hits)
    return scores


def open_table(open_store: OpenStore, table: dict[str, Any], metric: str) -> SyncCaller:
    """Open a store that embeds the field `text` from a table, with one item for each text."""
    table = {text: [float(number) for number in vector] for text, vector in table.items()}
    index = {"embed": TableEmbeddings(table), "fields": ["text"], "metric": metric, "mode": "semantic"}
    store = open_store(index=index)
    store.batch(PutOp(("a",), text, {"text": text}) for text in table)
    return store


class ScoresConformance:
    """Scores are what the metric says, finite, sorted, and equal where texts are."""

    @pytest.mark.parametrize("metric", METRICS)
    @pytest.mark.parametrize("dims", [1, 7, 33, 384])
    def test_scores_are_those_of_the_metric(self, open_store: OpenStore, metric: str, dims: int) -> None:
        """Cosine, inner product and minus the Euclidean distance, to what float32 can hold, best first."""
        random = np.random.default_rng(dims)
        table = {f"t{n}": random.normal(0.3, 1.0, dims) for n in range(40)}
        store = open_table(open_store, table, metric)
        query = "t7"
        hits = store.search((), query=query, limit=50)
        assert len(hits) == 40
        for hit in hits:
            expected = expected_score(metric, table[hit.key], table[query])
            assert hit.score == pytest.approx(expected, rel=1e-5, abs=1e-5)
        assert all(type(score) is float for score in scores_of(hits))
        assert scores_of(hits) == sorted(scores_of(hits), reverse=True)

    @pytest.mark.parametrize("metric", METRICS)
    @pytest.mark.parametrize("dims", [1, 7, 33, 384])
    def test_equal_texts_score_equal_wherever_they_stand(self, open_store: OpenStore, metric: str, dims: int) -> None:
        """One vector has one score, in any row of any namespace: ties would flip between pages otherwise."""
        random = np.random.default_rng(dims)
        table = {f"t{n}": random.normal(0.3, 1.0, dims).tolist() for n in range(60)}
        index = {"embed": TableEmbeddings(table), "fields": ["text"], "metric": metric, "mode": "semantic"}
        store = open_store(index=index)
        store.batch(
            PutOp((f"n{number % 5}",), f"k{number}", {"text": "t0" if number % 3 else f"t{number % 60}"})
            for number in range(300)
        )
        hits = store.search((), query="t1", limit=300)
        same = [hit for hit in hits if hit.value["text"] == "t0"]
        assert len(same) > 200
        assert len(set(scores_of(same))) == 1
        numbers = [int(key.removeprefix("k")) for key in keys(same)]
        assert numbers == sorted(numbers, reverse=True)

    @pytest.mark.parametrize("dims", [1, 2, 5, 64, 384, 1536])
    def test_the_same_text_scores_one(self, open_store: OpenStore, dims: int) -> None:
        """By cosine a text against itself is 1.0 exactly, not 0.9999999 or 1.0000001, whatever its vector's length."""
        random = np.random.default_rng(dims)
        table = {f"t{n}": random.standard_normal(dims) * 10.0 ** (n - 5) for n in range(10)}
        store = open_table(open_store, table, "cosine")
        for text in table:
            best = max(store.search((), query=text, limit=10), key=lambda hit: (hit.score or 0.0, hit.key == text))
            assert (best.key, best.score) == (text, 1.0)

    def test_cosine_stays_within_its_bounds(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """Rounding never takes a cosine past 1 or -1."""
        store = open_store(index={"embed": embeddings, "fields": ["text"], "mode": "semantic"})
        store.batch(PutOp(("a",), str(n), {"text": " ".join(["word"] * n)}) for n in range(1, 60))
        assert set(scores_of(store.search((), query="word word word", limit=100))) == {1.0}

    def test_opposite_texts_score_minus_one(self, open_store: OpenStore) -> None:
        """By cosine -1.0 is the lowest score there is."""
        store = open_table(open_store, {"up": [1 / 3, 1 / 7, 1 / 11], "down": [-1 / 3, -1 / 7, -1 / 11]}, "cosine")
        assert scores_of(store.search((), query="up")) == [1.0, -1.0]

    @pytest.mark.parametrize("metric", METRICS)
    def test_a_zero_vector_has_a_score(self, open_store: OpenStore, metric: str) -> None:
        """It is 0.0 by cosine, never NaN, and stands behind what is near the query."""
        table = {"zero": [0, 0, 0], "near": [1, 1, 0], "far": [-1, -1, 0], "across": [1, -1, 0]}
        store = open_table(open_store, table, metric)
        hits = {hit.key: hit.score for hit in store.search((), query="near")}
        assert len(hits) == 4
        zero = np.zeros(3)
        expected = expected_score(metric, zero, np.array([1.0, 1.0, 0.0]))
        assert hits["zero"] == pytest.approx(expected, abs=1e-6)
        assert next(iter(hits)) == "near"

    def test_a_zero_query_scores_everything_zero(self, open_store: OpenStore) -> None:
        """A query without a direction is near nothing: by cosine all items stand in writing order, the last first."""
        store = open_table(open_store, {"zero": [0, 0], "a": [1, 0], "b": [-1, -3], "c": [-5, 5]}, "cosine")
        hits = store.search((), query="zero")
        assert keys(hits) == ["c", "b", "a", "zero"]
        assert scores_of(hits) == [0.0] * 4
        assert not any(np.signbit(scores_of(hits)))

    @pytest.mark.parametrize("metric", METRICS)
    def test_scores_of_extreme_vectors_are_finite(self, open_store: OpenStore, metric: str) -> None:
        """What float32 can hold can be scored: no overflow, no NaN, and the order still falls."""
        table = {"huge": [3e38] * 8, "minus": [-3e38] * 8, "tiny": [1e-38] * 8, "one": [1.0] * 8, "zero": [0.0] * 8}
        store = open_table(open_store, table, metric)
        for query in table:
            scores = scores_of(store.search((), query=query))
            assert len(scores) == 5
            assert np.isfinite(scores).all()
            assert scores == sorted(scores, reverse=True)

    @pytest.mark.parametrize("metric", METRICS)
    def test_a_large_scope_equals_brute_force(
        self, open_store: OpenStore, embeddings: WordEmbeddings, metric: str
    ) -> None:
        """300 items in 40 namespaces, some with several texts, rank as comparing everything with everything does."""
        words = ["apple", "boat", "cloud", "dog", "eagle", "field", "grape", "hill", "island", "jar", "moon", "oak"]
        random = np.random.default_rng(5)
        index = {"embed": embeddings, "fields": ["texts[*]"], "metric": metric, "mode": "semantic"}
        store = open_store(index=index)
        items: dict[str, tuple[tuple[str, ...], list[str]]] = {}
        for number in range(300):
            texts = [" ".join(random.choice(words, 4)) for _ in range(int(random.integers(1, 4)))]
            items[f"k{number}"] = (("root", f"n{number % 40}", "deep")[: 2 + number % 2], texts)
        store.batch(PutOp(namespace, key, {"texts": texts}) for key, (namespace, texts) in items.items())
        for query, prefix in [("apple boat", ()), ("moon over the hill", ("root",)), ("dog", ("root", "n7"))]:
            vector = np.array(embeddings.embed_query(query))
            expected = {
                key: max(expected_score(metric, np.array(embeddings.embed_query(text)), vector) for text in texts)
                for key, (namespace, texts) in items.items()
                if namespace[: len(prefix)] == prefix
            }
            hits = store.search(prefix, query=query, limit=25)
            assert len(hits) == min(25, len(expected))
            assert scores_of(hits) == pytest.approx([expected[hit.key] for hit in hits], rel=1e-5, abs=1e-5)
            best = sorted(expected.values(), reverse=True)[: len(hits)]
            assert scores_of(hits) == pytest.approx(best, rel=1e-5, abs=1e-5)
