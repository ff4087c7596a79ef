"""Rerankers by themselves: what they may be, how their answers are checked and joined, and late interaction."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memstore import InvalidArgument, LateInteraction, MemStore, Rerank, RerankError
from memstore.errors import ModelUnavailable
from memstore.models import LocalModel, _bundled_folder
from memstore.options import Options, to_options
from memstore.rerank import to_rerank

TEXTS = ["Ada keeps two cats.", "The night train to Vienna leaves at ten.", "Her tax return is due in July."]
QUERY = "When does the train leave?"


def by_length(query: str, texts: list[str]) -> list[float]:
    """Score texts by their length."""
    return [float(len(text) + len(query)) for text in texts]


async def later(query: str, texts: list[str]) -> list[float]:
    """Score texts by their length, awaited."""
    await asyncio.sleep(0)
    return by_length(query, texts)


class Later:
    """Has an async call."""

    weight = 0.5

    async def __call__(self, query: str, texts: list[str]) -> list[float]:
        """Score texts."""
        return await later(query, texts)

    async def score(self, query: str, texts: list[str]) -> list[float]:
        """Score texts as a method."""
        return await later(query, texts)


def test_a_reranker_is_a_callable_a_name_or_nothing() -> None:
    """What leaves it open stays open, what turns it off is told from that."""
    assert to_rerank(None) is None
    assert to_rerank(given=False) == Rerank(None)
    assert to_rerank(by_length) == Rerank(by_length, 50, None)
    assert to_rerank("some/model") == Rerank("some/model")
    whole = Rerank(by_length, 3, 0.5)
    assert to_rerank(whole) is whole


@pytest.mark.parametrize("given", [0, 1, True, 0.5, [], {}, b"name", "", " \n"], ids=repr)
def test_anything_else_is_refused(given: Any) -> None:
    """By name, as it came."""
    with pytest.raises(InvalidArgument, match="Rerank"):
        to_rerank(given)


@pytest.mark.parametrize("first", [0, -1, 1.5, True, "3", None], ids=repr)
def test_a_wrong_number_of_ranks_is_refused(first: Any) -> None:
    """It is an integer of 1 or more."""
    with pytest.raises(InvalidArgument, match="first"):
        Rerank(by_length, first)


@pytest.mark.parametrize("weight", [0, -0.5, 1.01, True, "1", math.nan, math.inf], ids=repr)
def test_a_wrong_weight_is_refused(weight: Any) -> None:
    """It is above 0 and at most 1, or left to the model."""
    with pytest.raises(InvalidArgument, match="weight"):
        Rerank(by_length, weight=weight)


@pytest.mark.parametrize(
    "model", [later, Later(), Later().score, partial(later)], ids=["function", "object", "method", "partial"]
)
def test_an_async_model_is_told_by_its_call(model: Any) -> None:
    """It can be awaited alone."""
    rerank = Rerank(model)
    assert asyncio.run(rerank.ascore("q", ["a", "bcd"])) == [2.0, 4.0]
    with pytest.raises(RerankError, match="await"):
        rerank.score("q", ["a"])


def test_a_sync_model_is_called() -> None:
    """With a list of its own, and any sequence of numbers is an answer."""
    given = ("a", "bcd")
    assert Rerank(by_length).score("q", given) == [2.0, 4.0]
    for answer in (np.array([1, 2]), (1, 2), [np.float32(1), True], iter([1, 2]), {1: 0, 2: 0}):
        scores = Rerank(lambda *_, answer=answer: answer).score("q", given)
        assert all(type(score) is float for score in scores)
        assert len(scores) == 2


@pytest.mark.parametrize(
    "answer", [None, 1, [1], [1, 2, 3], [1, None], [1, math.nan], [1, -math.inf], "12x", [[1], [2]]]
)
def test_wrong_answers_are_errors(answer: Any) -> None:
    """They are named by kind and number, never by what they hold."""
    with pytest.raises(RerankError, match="expected"):
        Rerank(lambda *_: answer).score("secret", ["text", "other"])


def test_scores_are_joined_by_weight() -> None:
    """The search's own before any other, then that of late interaction, else the model alone."""
    assert Rerank(by_length).join([0.2, 0.4], [1.0, 2.0]) == [1.0, 2.0]
    assert Rerank(Later()).join([0.2, 0.4], [1.0, 2.0]) == [1.0, 2.0]
    assert Rerank(LateInteraction(weight=0.5)).join([0.2, 0.4], [1.0, 2.0]) == pytest.approx([0.6, 1.2])
    assert Rerank(Later(), weight=0.25).join([0.2, 0.4], [1.0, 2.0]) == pytest.approx([0.4, 0.8])


def test_options_are_completed_by_the_store_s() -> None:
    """What a call says comes first; off is off; by meaning alone neighbours and age are left out."""
    store = Options(context=2, min_score=0.5, recency=7.0, rerank=Rerank(by_length))
    whole = to_options().over(store, "hybrid")
    assert whole == Options("hybrid", 2, 0.5, 7.0, Rerank(by_length))
    assert to_options().over(store, "semantic") == Options("semantic", 0, 0.5, None, Rerank(by_length))
    off = to_options(context=0, min_score=-math.inf, recency=math.inf, rerank=False)
    assert off.over(store, "lexical") == Options("lexical", 0, -math.inf, None, None)
    assert to_options(mode="lexical", context=5, recency=1, min_score=0).over(store, "lexical") == Options(
        "lexical", 5, 0, 1, Rerank(by_length)
    )


def test_a_model_that_is_not_there_is_named() -> None:
    """A cross-encoder's folder that does not exist: loaded at its first use, and not before."""
    rerank = Rerank("/nowhere/at/all")
    with pytest.raises(ModelUnavailable, match="/nowhere/at/all"):
        rerank.score("q", ["a"])


@pytest.mark.parametrize("size", [0, -1.0, math.nan], ids=repr)
def test_a_cache_has_room(size: float) -> None:
    """Token vectors are kept in some memory."""
    with pytest.raises(InvalidArgument, match="cache_mb"):
        LateInteraction(cache_mb=size)


class Counting(LateInteraction):
    """Counts the texts it has the model embed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.embedded: list[str] = []
        local = self._local.embed_tokens

        def embed_tokens(texts: list[str]) -> Any:
            self.embedded += texts
            return local(texts)

        self._local.embed_tokens = embed_tokens  # type: ignore[method-assign]


def max_sim(query: str, text: str) -> float:
    """Write out max-sim for one text, in full precision."""
    words = [tokens[1:-1].astype(np.float64) for tokens in LocalModel("all-MiniLM-L6-v2").embed_tokens([query, text])]
    wanted, held = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in words)
    return float((wanted @ held.T).max(axis=1).mean())


@pytest.mark.model
def test_late_interaction_is_max_sim() -> None:
    """The mean, over the query's words, of their best cosine with a word of the text: to what 8 bits can hold."""
    late = LateInteraction()
    scores = late(QUERY, TEXTS)
    assert scores == pytest.approx([max_sim(QUERY, text) for text in TEXTS], abs=5e-3)
    assert max(scores) == scores[1]
    assert late(TEXTS[0], TEXTS[:1])[0] == pytest.approx(1.0, abs=5e-3)
    assert all(type(score) is float and -1.0 <= score <= 1.0 for score in scores)
    assert late.weight == 0.4
    assert "all-MiniLM-L6-v2" in repr(late)


@pytest.mark.model
def test_a_text_scores_the_same_whatever_stands_beside_it() -> None:
    """In any order, twice, beside longer ones or alone, from memory or not."""
    late = LateInteraction()
    alone = [late(QUERY, [text])[0] for text in TEXTS]
    assert late(QUERY, TEXTS[::-1]) == alone[::-1]
    assert late(QUERY, [TEXTS[1]] * 3) == [alone[1]] * 3
    fresh = LateInteraction()
    assert fresh(QUERY, [*TEXTS, "word " * 300])[:3] == pytest.approx(alone, abs=1e-2)


@pytest.mark.model
def test_no_text_and_empty_texts_have_an_answer() -> None:
    """An empty list asks nothing of the model; texts and queries without a word are no error."""
    late = Counting()
    assert late(QUERY, []) == []
    assert late.embedded == []
    assert len(late(QUERY, ["", " ", "?"])) == 3
    assert len(late("", TEXTS)) == 3


@pytest.mark.model
def test_token_vectors_are_kept_within_their_room() -> None:
    """A text is embedded once while there is room; the longest unused goes first."""
    late = Counting()
    late(QUERY, [TEXTS[0], TEXTS[0]])
    late(QUERY, TEXTS)
    assert late.embedded == [QUERY, TEXTS[0], QUERY, *TEXTS[1:]]
    sizes = {text: len(text.split()) for text in TEXTS}
    assert late._size == sum(codes.nbytes for codes in late._codes.values()) >= 384 * sum(sizes.values())
    small = Counting(cache_mb=0.006)
    many = [f"text number {number} of a few" for number in range(12)]
    whole = small(QUERY, many)
    assert len(whole) == 12
    assert 0 < small._size <= 6_000
    assert small._size == sum(codes.nbytes for codes in small._codes.values())
    small.embedded.clear()
    assert small(QUERY, many[-1:]) == pytest.approx(whole[-1:], abs=1e-2)
    assert small.embedded == [QUERY]
    small(QUERY, many[:1])
    assert small.embedded == [QUERY, QUERY, many[0]]


@pytest.mark.model
def test_a_cross_encoder_is_named_by_its_folder(tmp_path: Path) -> None:
    """A real one, of a sentence model's weights and a head that knows nothing: its scores are the search's."""
    from sentence_transformers import CrossEncoder  # noqa: PLC0415  it takes seconds

    encoder = CrossEncoder(str(_bundled_folder()), num_labels=1)
    encoder.save(str(tmp_path / "encoder"))
    asked = [(QUERY, text) for text in TEXTS]
    with MemStore.open(":memory:", index={"embed": "all-MiniLM-L6-v2", "fields": ["text"]}) as store:
        for number, text in enumerate(TEXTS):
            store.put(("a",), str(number), {"text": text})
        found = store.search(("a",), query=QUERY, rerank=str(tmp_path / "encoder"))
    scores = {item.key: item.score or 0.0 for item in found}
    assert [scores[str(number)] for number in range(len(TEXTS))] == pytest.approx(encoder.predict(asked), abs=1e-5)
    assert [item.score for item in found] == sorted(scores.values(), reverse=True)
