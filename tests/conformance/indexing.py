"""How texts and queries become vectors, and what an item's put leaves indexed: rules 17, 18 and 21 of the contract."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from langgraph.store.base import PutOp, SearchOp

from memstore import EmbeddingError
from tests.conformance.models import WORKING, AsyncEmbeddings, FailingEmbeddings, ModelDown, OddEmbeddings, embedded
from tests.support import OpenStore, WordEmbeddings, keys

only_async = pytest.mark.parametrize("open_store", ["async"], indirect=True)
only_sync = pytest.mark.parametrize("open_store", ["sync"], indirect=True)

NAN, INFINITY = float("nan"), float("inf")
WRONG_VECTORS: dict[str, list[float]] = {
    "short": [1.0, 2.0, 3.0],
    "long": [1.0] * 5,
    "empty": [],
    "nan": [1.0, NAN, 0.0, 0.0],
    "infinite": [1.0, -INFINITY, 0.0, 0.0],
    "past float32": [1e39, 0.0, 0.0, 0.0],
}
NO_VECTORS: dict[str, Any] = {
    "no list": 1.0,
    "numbers": [1.0, 2.0, 3.0, 4.0],
    "nothing": [None],
    "text": [["a", "b", "c", "d"]],
    "holes": [[1.0, None, 2.0, 3.0]],
    "too deep": [[[1.0], [2.0], [3.0], [4.0]]],
    "none": [],
    "too many": [[1.0] * 4, [1.0] * 4],
}
CHANGES: dict[str, tuple[PutOp, PutOp, int]] = {
    "the list shrank": (
        PutOp(("a",), "k", {"parts": ["apples", "pears", "rain"]}),
        PutOp(("a",), "k", {"parts": ["pears"]}),
        1,
    ),
    "the list grew": (
        PutOp(("a",), "k", {"parts": ["apples"]}),
        PutOp(("a",), "k", {"parts": ["pears", "rain", "pears"]}),
        3,
    ),
    "the field went": (
        PutOp(("a",), "k", {"title": "apples", "parts": ["pears"]}),
        PutOp(("a",), "k", {"parts": ["pears"]}),
        1,
    ),
    "the field is blank": (PutOp(("a",), "k", {"title": "apples"}), PutOp(("a",), "k", {"title": " \n"}), 0),
    "index=False came": (
        PutOp(("a",), "k", {"title": "apples", "parts": ["pears"]}),
        PutOp(("a",), "k", {"title": "apples", "parts": ["pears"]}, index=False),
        0,
    ),
    "index=False went": (
        PutOp(("a",), "k", {"title": "rain"}, index=False),
        PutOp(("a",), "k", {"title": "rain"}),
        1,
    ),
    "other paths were chosen": (
        PutOp(("a",), "k", {"title": "apples", "other": "rain"}),
        PutOp(("a",), "k", {"title": "apples", "other": "rain"}, index=["other"]),
        1,
    ),
    "the whole value was": (
        PutOp(("a",), "k", {"title": "apples"}, index=["$"]),
        PutOp(("a",), "k", {"title": "rain"}),
        1,
    ),
}


class IndexingConformance:
    """The right methods of the model, checked vectors, and no text but those of the last put."""

    def test_documents_and_queries_go_their_own_ways(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """Models may embed the two differently: texts go through `embed_documents`, queries through `embed_query`."""
        store = open_store(index={"embed": embeddings, "fields": ["text"]})
        store.put(("a",), "1", {"text": "apples"})
        store.batch([PutOp(("a",), "2", {"text": "pears"}), SearchOp((), query="fruit")])
        store.search((), query="apples")
        assert sorted(embedded(embeddings)) == ["apples", "pears"]
        assert embeddings.queries == ["fruit", "apples"]

    @only_async
    def test_async_calls_use_the_async_model(self, open_store: OpenStore) -> None:
        """A model that would block the event loop is awaited instead, in every call that embeds."""
        embeddings = AsyncEmbeddings()
        store = open_store(index={"embed": embeddings, "fields": ["text"]})
        store.put(("a",), "1", {"text": "apples"})
        store.batch([PutOp(("a",), "2", {"text": "pears"}), SearchOp((), query="fruit")])
        assert keys(store.search((), query="apples")) == ["1", "2"]
        assert store.check(repair=True).ok
        assert embedded(embeddings) == ["apples", "pears"]
        assert embeddings.queries == ["fruit", "apples"]

    @only_async
    def test_an_async_function_embeds(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """`embed` may be an async function from texts to vectors, as in LangGraph."""

        async def embed(texts: list[str]) -> list[list[float]]:
            return embeddings.embed_documents(texts)

        store = open_store(index={"embed": embed, "fields": ["text"]})
        store.put(("a",), "1", {"text": "apples"})
        assert [(hit.key, hit.score) for hit in store.search((), query="apples")] == [("1", 1.0)]

    def test_a_function_embeds(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """`embed` may be a function from texts to vectors, also one that gives arrays."""
        store = open_store(
            index={"embed": lambda texts: np.array(embeddings.embed_documents(texts)), "fields": ["text"]}
        )
        store.put(("a",), "1", {"text": "apples"})
        assert [(hit.key, hit.score) for hit in store.search((), query="apples")] == [("1", 1.0)]

    def test_a_query_without_an_index_warns_once(self, open_store: OpenStore) -> None:
        """The newest are given as without a query, and the user learns why, but not at every search."""
        store = open_store()
        store.batch(PutOp(("a",), str(n), {"n": n}) for n in range(5))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            answers = [store.search((), query=query, limit=3) for query in ("apples", "pears", "apples")]
            answers += store.batch([SearchOp((), query="apples", limit=3)])
        assert [keys(answer) for answer in answers] == [["4", "3", "2"]] * 4
        assert {hit.score for answer in answers for hit in answer} == {None}
        assert [(warning.category, "index" in str(warning.message)) for warning in caught] == [(UserWarning, True)]

    def test_surrogates_and_nul_in_a_query_are_spaces(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """Text that no tokenizer takes comes from real users; it never reaches the model, nor fails the search."""
        store = open_store(index={"embed": embeddings, "fields": ["text"]})
        store.put(("a",), "1", {"text": "red apples in May"})
        for query in ("red\0apples\ud800in\udfffMay", "\0red apples in May\ud83d", "red apples\0in May"):
            assert [hit.score for hit in store.search((), query=query)] == [1.0]
        assert all("\0" not in query and query.isascii() for query in embeddings.queries)

    @pytest.mark.parametrize("vector", WRONG_VECTORS.values(), ids=WRONG_VECTORS.keys())
    @pytest.mark.parametrize("dims", [4, None])
    def test_a_wrong_vector_writes_nothing(self, open_store: OpenStore, vector: list[float], dims: int | None) -> None:
        """A vector of another length, or with what is no number, fails its whole batch, and the store goes on."""
        embeddings = OddEmbeddings()
        store = open_store(index={"embed": embeddings, "fields": ["text"], "dims": dims})
        store.put(("a",), "1", {"text": "apples"})
        before = store.stats()
        embeddings.answer = [vector]
        with pytest.raises(EmbeddingError) as caught:
            store.batch([PutOp(("b",), "2", {"n": 1}), PutOp(("a",), "1", {"text": "pears"})])
        if len(vector) != 4:
            assert {"4", str(len(vector))} <= set(str(caught.value).replace(",", " ").split())
        assert store.list_namespaces() == [("a",)]
        assert [item.value for item in store.search(())] == [{"text": "apples"}]
        assert (store.stats().items, store.stats().texts, store.stats().clock) == (1, 1, before.clock)
        embeddings.answer = WORKING
        store.put(("a",), "1", {"text": "pears"})
        assert [hit.score for hit in store.search((), query="pears")] == [1.0]

    @pytest.mark.parametrize("vector", WRONG_VECTORS.values(), ids=WRONG_VECTORS.keys())
    def test_a_wrong_query_vector_is_an_error(self, open_store: OpenStore, vector: list[float]) -> None:
        """It is never compared with anything, and not kept for the next search."""
        embeddings = OddEmbeddings()
        store = open_store(index={"embed": embeddings, "fields": ["text"]})
        store.put(("a",), "1", {"text": "apples"})
        embeddings.query_answer = vector
        with pytest.raises(EmbeddingError) as caught:
            store.search((), query="apples")
        if len(vector) != 4:
            assert {"4", str(len(vector))} <= set(str(caught.value).replace(",", " ").split())
        embeddings.query_answer = WORKING
        assert [hit.score for hit in store.search((), query="apples")] == [1.0]

    @pytest.mark.parametrize("answer", NO_VECTORS.values(), ids=NO_VECTORS.keys())
    def test_what_is_no_vector_is_refused(self, open_store: OpenStore, answer: Any) -> None:
        """Whatever a model returns instead of one vector of numbers for each text is an error of ours, not a crash."""
        embeddings = OddEmbeddings()
        store = open_store(index={"embed": embeddings, "fields": ["text"]})
        embeddings.answer = answer
        with pytest.raises(EmbeddingError):
            store.put(("a",), "1", {"text": "apples"})
        assert store.list_namespaces() == []
        embeddings.query_answer = answer[0] if isinstance(answer, list) and answer else answer
        if answer != NO_VECTORS["too many"]:
            with pytest.raises(EmbeddingError):
                store.search((), query="apples")

    def test_texts_of_one_batch_have_one_length(self, open_store: OpenStore) -> None:
        """The first vectors a store ever sees agree with each other, or nothing of them is kept."""
        embeddings = OddEmbeddings()
        store = open_store(index={"embed": embeddings, "fields": ["parts[*]"]})
        embeddings.answer = [[1.0] * 4, [1.0] * 3]
        with pytest.raises(EmbeddingError, match=r"3.*4|4.*3"):
            store.put(("a",), "1", {"parts": ["apples", "pears"]})
        embeddings.answer = [[1.0] * 3, [1.0, 2.0, 3.0]]
        store.put(("a",), "1", {"parts": ["apples", "pears"]})
        assert store.stats().dims == 3

    def test_the_length_configured_is_the_length_expected(
        self, open_store: OpenStore, embeddings: WordEmbeddings
    ) -> None:
        """A model of another length than `dims` says is found at the first text, both lengths named."""
        store = open_store(index={"embed": embeddings, "dims": 128, "fields": ["text"]})
        with pytest.raises(EmbeddingError, match=r"128.*\b64\b"):
            store.put(("a",), "1", {"text": "apples"})
        with pytest.raises(EmbeddingError, match=r"128.*\b64\b"):
            store.search((), query="apples")
        assert store.get(("a",), "1") is None

    def test_a_failing_model_writes_nothing(self, open_store: OpenStore) -> None:
        """The model's own error comes through, and the item keeps what it had."""
        store = open_store(index={"embed": FailingEmbeddings(), "fields": ["text"]})
        store.put(("a",), "1", {"text": "good"})
        with pytest.raises(ModelDown):
            store.put(("a",), "1", {"text": "bad"})
        with pytest.raises(ModelDown):
            store.batch([PutOp(("a",), "1", None), PutOp(("b",), "2", {"text": "bad"}), PutOp(("c",), "3", {})])
        assert [(hit.key, hit.score) for hit in store.search((), query="good")] == [("1", 1.0)]
        assert store.list_namespaces() == [("a",)]
        assert store.check().ok

    @pytest.mark.parametrize(("first", "second", "texts"), CHANGES.values(), ids=CHANGES.keys())
    def test_no_text_stays_from_an_earlier_put(
        self, open_store: OpenStore, embeddings: WordEmbeddings, first: PutOp, second: PutOp, texts: int
    ) -> None:
        """The indexed texts are exactly those of the last put: what is gone from the item is not found by it."""
        store = open_store(index={"embed": embeddings, "fields": ["title", "parts[*]"]})
        store.batch([first])
        assert (store.stats().texts == 0) == (first.index is False)
        store.batch([second])
        assert store.stats().texts == texts
        assert store.check().problems == ()
        scores = [hit.score for hit in store.search((), query="apples")]
        assert len(scores) == min(texts, 1)
        assert 1.0 not in scores

    def test_deleting_takes_the_texts_along(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """However an item is deleted, nothing of it is left to be found or counted."""
        store = open_store(index={"embed": embeddings, "fields": ["text"]})
        store.batch(PutOp(("a",), str(n), {"text": f"apples {n}"}) for n in range(4))
        store.put(("b",), "4", {"text": "apples"})
        store.delete(("a",), "0")
        store.batch([PutOp(("a",), "1", None)])
        store.put(("a",), "2", None)
        assert keys(store.search((), query="apples")) == ["4", "3"]
        assert store.stats().texts == 2
        store.batch([PutOp(("a",), "3", None), PutOp(("b",), "4", None)])
        assert (store.stats().texts, store.stats().items, store.stats().namespaces) == (0, 0, 0)
        assert store.check().problems == ()

    def test_an_unchanged_text_is_not_embedded_again(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """The model is the slow part: only the text that is new to an item goes through it."""
        store = open_store(index={"embed": embeddings, "fields": ["title", "parts[*]"]})
        store.put(("a",), "k", {"title": "apples", "parts": ["one", "two"], "seen": 1})
        store.put(("a",), "k", {"title": "apples", "parts": ["one", "two"], "seen": 2})
        store.put(("a",), "k", {"title": "apples", "parts": ["two", "three", "one"], "seen": 3})
        assert sorted(embedded(embeddings)) == ["apples", "one", "three", "two"]
        assert store.stats().texts == 4
        assert [hit.score for hit in store.search((), query="three")] == [1.0]
        assert store.check().problems == ()

    def test_each_distinct_text_is_embedded_once_in_a_batch(
        self, open_store: OpenStore, embeddings: WordEmbeddings
    ) -> None:
        """1,500 items with 700 different texts cost 700 embeddings, and every item is found by its own."""
        store = open_store(index={"embed": embeddings, "fields": ["text"]})
        store.batch(PutOp(("a", str(n % 7)), str(n), {"text": f"text {n % 700}"}) for n in range(1500))
        assert sorted(embedded(embeddings)) == sorted({f"text {n}" for n in range(700)})
        assert store.stats().texts == 1500
        assert sorted(keys(store.search((), query="text 5", limit=3))) == ["1405", "5", "705"]

    def test_equal_queries_of_a_batch_are_embedded_once(
        self, open_store: OpenStore, embeddings: WordEmbeddings
    ) -> None:
        """Each distinct query of a batch goes through the model once."""
        store = open_store(index={"embed": embeddings, "fields": ["text"]})
        store.put(("a",), "1", {"text": "apples"})
        answers = store.batch([SearchOp((), query="apples"), SearchOp(("a",), query="apples"), SearchOp((), query="x")])
        assert [answer[0].score == 1.0 for answer in answers] == [True, True, False]
        assert sorted(embeddings.queries) == ["apples", "x"]
