"""What a database remembers of its model, and how stores opened with others or with none behave: rule 18."""

from __future__ import annotations

import re
from typing import Any

import pytest
from langgraph.store.base import PutOp

from memstore import EmbeddingError, IndexMismatch, ModelUnavailable
from tests.conformance.mode_oracle import shares
from tests.conformance.models import NamedEmbeddings, TableEmbeddings
from tests.support import OpenStore, WordEmbeddings, keys

MODEL = {"embed": WordEmbeddings(), "fields": ["text"], "model": "first-model"}
OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, str]]] = {
    "model": (MODEL, MODEL | {"model": "second-model"}, ("first-model", "second-model")),
    "a name given as embed": (MODEL, {"embed": "third-model", "fields": ["text"]}, ("first-model", "third-model")),
    "the model's own name": (
        {"embed": NamedEmbeddings("small")},
        {"embed": NamedEmbeddings("large")},
        ("small", "large"),
    ),
    "class": ({"embed": WordEmbeddings()}, {"embed": TableEmbeddings({})}, ("WordEmbeddings", "TableEmbeddings")),
    "dims": (MODEL, MODEL | {"dims": 32}, ("64", "32")),
    "dims of a function": ({"embed": WordEmbeddings().embed_documents}, MODEL | {"dims": 32}, ("64", "32")),
    "metric": (MODEL, MODEL | {"metric": "l2"}, ("cosine", "l2")),
    "metric by LangGraph's name": (MODEL | {"metric": "l2"}, MODEL | {"distance_type": "inner_product"}, ("l2", "inn")),
}
"""First settings, others that do not go with them, and what the error names."""
SAME: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the same": (MODEL, MODEL),
    "another instance": ({"embed": NamedEmbeddings("small")}, {"embed": NamedEmbeddings("small")}),
    "dims told later": (MODEL, MODEL | {"dims": 64}),
    "dims no longer told": (MODEL | {"dims": 64}, MODEL),
    "another function of that length": (
        {"embed": lambda texts: WordEmbeddings().embed_documents(texts)},
        {"embed": WordEmbeddings().embed_documents},
    ),
    "the model named once": (MODEL | {"embed": WordEmbeddings().embed_documents}, MODEL),
    "metric told": (MODEL, MODEL | {"metric": "cosine"}),
    "other fields": (MODEL, MODEL | {"fields": ["title"]}),
}


def open_for_words(open_store: OpenStore, dims: int = 64, **index: Any) -> Any:
    """Open a store that embeds the field `text` by words."""
    return open_store(index={"embed": WordEmbeddings(dims), "fields": ["text"], **index})


class RememberingConformance:
    """Vectors of two models never meet, and a store without its model keeps what it has."""

    @pytest.mark.parametrize(("first", "second", "named"), OTHERS.values(), ids=OTHERS.keys())
    def test_another_index_is_refused(
        self, open_store: OpenStore, first: dict[str, Any], second: dict[str, Any], named: tuple[str, str]
    ) -> None:
        """Scores between two models mean nothing: the store says what differs and how to go on, and stays as it is."""
        store = open_store(index=first)
        store.put(("a",), "1", {"text": "apples"})
        with pytest.raises(IndexMismatch, match=f"{named[0]}.*{named[1]}") as caught:
            open_store(index=second)
        assert isinstance(caught.value, ValueError)
        assert re.search(r"settings it was made with|new database", str(caught.value))
        store.put(("a",), "2", {"text": "pears"})
        assert keys(store.search((), query="pears", limit=1)) == keys(store.search((), limit=1)) == ["2"]
        assert open_store(index=first).check().problems == ()

    @pytest.mark.parametrize(("first", "second"), SAME.values(), ids=SAME.keys())
    def test_the_same_index_is_accepted(
        self, open_store: OpenStore, first: dict[str, Any], second: dict[str, Any]
    ) -> None:
        """What does not change what a vector means may be said or left out, again and again."""
        open_store(index=first).put(("a",), "1", {"text": "apples"})
        store = open_store(index=second)
        store.put(("a",), "2", {"text": "apples"}, ["text"])
        assert len(store.search((), query="apples")) == 2
        assert store.stats().dims == 64
        open_store(index=first).put(("a",), "3", {"text": "apples"})

    def test_a_function_is_known_by_its_length(self, open_store: OpenStore) -> None:
        """One of another length is found at its first vector, both lengths named, before anything is compared."""
        open_store(index={"embed": WordEmbeddings(64).embed_documents}).put(("a",), "1", {"text": "apples"})
        store = open_store(index={"embed": WordEmbeddings(32).embed_documents})
        for attempt in (lambda: store.put(("a",), "2", {"text": "x"}), lambda: store.search((), query="apples")):
            with pytest.raises(EmbeddingError, match=r"64.*\b32\b"):
                attempt()
        assert store.get(("a",), "2") is None

    @pytest.mark.parametrize(("first", "second", "_named"), OTHERS.values(), ids=OTHERS.keys())
    def test_another_index_is_accepted_while_nothing_is_indexed(
        self, open_store: OpenStore, first: dict[str, Any], second: dict[str, Any], _named: tuple[str, str]
    ) -> None:
        """A model may be changed as long as no vector depends on it: items without texts are no reason to refuse."""
        store = open_store(index=first)
        store.put(("a",), "1", {"text": "apples"})
        store.delete(("a",), "1")
        store.put(("a",), "2", {"text": "apples"}, index=False)
        other = open_store(index=second)
        assert other.stats().metric == second.get("metric", second.get("distance_type", "cosine"))
        assert open_store().get(("a",), "2") is not None
        with pytest.raises(ValueError, match="index"):
            store.put(("a",), "3", {"text": "pears"})

    @pytest.mark.parametrize("other", [{"dims": 32}, {"model": "other"}, {"metric": "l2"}], ids=repr)
    def test_a_store_notices_that_its_index_was_replaced(self, open_store: OpenStore, other: dict[str, Any]) -> None:
        """While nothing was indexed another store chose another model: the first one's queries do not meet its vectors.

        They are refused with the way out, as puts are: a score between two models would be a lie.
        """
        first = open_for_words(open_store)
        second = open_for_words(open_store, **{"dims": 64} | other)
        second.put(("a",), "1", {"text": "apples"})
        with pytest.raises(IndexMismatch, match="open"):
            first.put(("a",), "2", {"text": "pears"})
        with pytest.raises(IndexMismatch, match="open"):
            first.search((), query="apples")
        assert keys(first.search(())) == ["1"]
        assert [hit.score for hit in second.search((), query="apples")] == [
            pytest.approx(0 if "metric" in other else 1)
        ]

    def test_another_model_does_not_name_an_unnamed_one(self, open_store: OpenStore) -> None:
        """Vectors made by a plain function stay so: an opening with a named model teaches no wrong name."""
        embed = WordEmbeddings(64).embed_documents
        first = open_store(index={"embed": embed})
        first.put(("a",), "1", {"text": "apples"})
        open_store(index={"embed": WordEmbeddings(64), "model": "other"})
        again = open_store(index={"embed": embed, "model": "mine"})
        assert again.stats().model is None
        assert keys(again.search((), query="apples")) == ["1"]

    def test_a_store_without_an_index_notices_that_one_was_added(self, open_store: OpenStore) -> None:
        """Its puts would go unindexed unseen, or take away what is indexed: they are refused with the way out."""
        first = open_store()
        first.put(("a",), "1", {"text": "apples"})
        open_for_words(open_store)
        with pytest.raises(IndexMismatch, match="open"):
            first.put(("a",), "2", {"text": "pears"})
        first.delete(("a",), "1")
        assert first.search(()) == []

    def test_a_store_notices_that_the_length_was_settled(self, open_store: OpenStore) -> None:
        """Two functions of different lengths began on an empty database: the second to write or to ask is refused."""
        first = open_store(index={"embed": WordEmbeddings(64).embed_documents})
        second = open_store(index={"embed": WordEmbeddings(32).embed_documents})
        second.put(("a",), "1", {"text": "apples"})
        for attempt in (lambda: first.search((), query="apples"), lambda: first.put(("a",), "2", {"text": "x"})):
            with pytest.raises((IndexMismatch, EmbeddingError)):
                attempt()
        assert keys(second.search((), query="apples")) == ["1"]

    def test_what_was_remembered_answers_without_settings(self, open_store: OpenStore) -> None:
        """Opened plainly, a store knows model, length and metric, and gives and finds all that needs no model."""
        first = open_for_words(open_store, metric="l2")
        first.put(("a",), "1", {"text": "apples", "n": 1})
        first.close()
        store = open_store()
        stats = store.stats()
        assert (stats.model, stats.dims, stats.metric, stats.texts) == ("WordEmbeddings", 64, "l2", 1)
        item = store.get(("a",), "1")
        assert item is not None
        assert item.value == {"text": "apples", "n": 1}
        assert keys(store.search(("a",), filter={"n": 1})) == ["1"]
        assert store.list_namespaces() == [("a",)]
        with pytest.warns(UserWarning, match="index"):
            assert [(hit.key, hit.score) for hit in store.search((), query="apples")] == [("1", None)]

    def test_a_put_that_would_leave_stale_vectors_is_refused(self, open_store: OpenStore) -> None:
        """Without the model a changed text could only keep a wrong vector or lose it: the put says so instead."""
        first = open_for_words(open_store)
        first.put(("a",), "1", {"text": "apples"})
        first.put(("a",), "2", {"text": "pears"})
        store = open_store()
        for attempt in (
            lambda: store.put(("a",), "1", {"text": "rain"}),
            lambda: store.put(("a",), "3", {"text": "rain"}),
            lambda: store.batch([PutOp(("a",), "2", None), PutOp(("a",), "1", {"text": "rain"})]),
        ):
            with pytest.raises(ModelUnavailable, match="index"):
                attempt()
        assert sorted(keys(first.search((), query="apples"))) == ["1", "2"]
        store.put(("a",), "3", {"text": "rain"}, index=False)
        store.put(("a",), "1", {"text": "rain"}, index=False)
        store.delete(("a",), "2")
        assert store.stats().texts == 0
        assert first.search((), query="apples") == []
        assert first.check().problems == ()

    def test_the_remembered_fields_are_used(self, open_store: OpenStore) -> None:
        """Opened plainly, a store would embed what the database embeds: a put without such a field needs no model."""
        open_for_words(open_store).put(("a",), "1", {"text": "apples"})
        store = open_store()
        store.put(("a",), "2", {"other": "rain"})
        with pytest.raises(ModelUnavailable):
            store.put(("a",), "3", {"text": "rain"})
        assert store.check().problems == ()

    def test_an_opening_that_fails_changes_nothing(self, open_store: OpenStore) -> None:
        """A mistyped model is an error once; the database does not remember it, and works as before without it."""
        open_store().put(("a",), "1", {"text": "apples"})
        with pytest.raises(ModelUnavailable):
            open_store(index={"embed": "nosuchprovider:some-model"})
        store = open_store()
        store.put(("a",), "2", {"text": "pears"})
        assert store.stats().model is None
        assert keys(store.search(())) == ["2", "1"]

    @pytest.mark.model
    @pytest.mark.parametrize("open_store", ["sync"], indirect=True)
    def test_a_model_named_by_text_is_loaded_again(self, open_store: OpenStore) -> None:
        """A name is all a database needs to go on by itself: opened plainly, the store embeds and finds as before."""
        first = open_store(index={"embed": "sentence-transformers/all-MiniLM-L6-v2", "fields": ["text"]})
        first.put(("a",), "1", {"text": "I am allergic to peanuts."})
        store = open_store()
        store.put(("a",), "2", {"text": "My sister lives in Lisbon."})
        hits = store.search((), query="My sister lives in Lisbon.")
        assert [(hit.key, hit.score == 1.0) for hit in hits] == [("2", True), ("1", False)]
        assert (store.stats().model, store.stats().dims) == ("all-MiniLM-L6-v2", 384)
        assert keys(open_store(index={"embed": "all-MiniLM-L6-v2"}).search((), query="food", limit=1)) == ["1"]


def scores_by_words(store: Any, query: str) -> dict[str, float | None]:
    """Rank by words; give the scores by key."""
    return {hit.key: hit.score for hit in store.search((), query=query, mode="lexical", limit=5000)}


class RememberingWordsConformance:
    """Words of all texts are there once a store ranks by them, in one language, whoever put the texts."""

    @pytest.mark.parametrize("count", [1, 2300])
    def test_a_database_by_meaning_may_be_opened_as_hybrid(self, open_store: OpenStore, count: int) -> None:
        """The words of all its texts are taken at the opening, and nothing is embedded again."""
        first = open_for_words(open_store, mode="semantic")
        texts = [f"apples {n % 50} of basket{n}" for n in range(count)]
        first.batch(PutOp((f"n{n % 3}",), str(n), {"text": text}) for n, text in enumerate(texts))
        first.put(("n0",), "off", {"text": "apples"}, index=False)
        first.put(("n0",), "several", {"a": ["pears", "rain"], "text": "boats"}, index=["a[*]", "text"])
        embeddings = WordEmbeddings()
        store = open_store(index={"embed": embeddings, "fields": ["text"]})
        assert embeddings.documents == []
        held = shares("apples 7 basket0", [*texts, "pears", "rain", "boats"])
        expected = {str(n): pytest.approx(share, abs=1e-8) for n, share in enumerate(held[:count]) if share}
        assert scores_by_words(store, "apples 7 basket0") == expected
        assert list(scores_by_words(store, "rain")) == ["several"]
        assert store.check().problems == ()
        assert open_for_words(open_store, mode="hybrid").search((), query="rain")[0].key == "several"

    def test_words_are_taken_of_what_the_slices_held(self, open_store: OpenStore) -> None:
        """A store that was open and had searched before sees the words too; it is refused puts without them."""
        first = open_for_words(open_store, mode="semantic")
        first.put(("a",), "1", {"text": "apples"})
        first.put(("a",), "2", {"text": "pears"})
        before = [(hit.key, hit.score) for hit in first.search((), query="apples")]
        second = open_for_words(open_store, mode="hybrid")
        assert keys(second.search((), query="apples", mode="lexical")) == ["1"]
        with pytest.raises(IndexMismatch, match="open"):
            first.put(("a",), "3", {"text": "rain"})
        with pytest.raises(IndexMismatch, match="open"):
            first.search((), query="apples")
        again = open_for_words(open_store, mode="semantic")
        assert [(hit.key, hit.score) for hit in again.search((), query="apples")] == before

    def test_words_that_are_there_stay_there(self, open_store: OpenStore) -> None:
        """A store by meaning, opened on a database with words, keeps them up: others go on ranking by them."""
        first = open_for_words(open_store, mode="hybrid")
        first.put(("a",), "1", {"text": "apples"})
        second = open_for_words(open_store, mode="semantic")
        second.put(("a",), "2", {"text": "red apples"})
        second.put(("a",), "1", {"text": "pears"})
        assert [hit.key for hit in second.search((), query="apples", mode="lexical")] == ["2"]
        assert [hit.key for hit in first.search((), query="apples", mode="lexical")] == ["2"]
        assert first.check().problems == second.check().problems == ()

    def test_another_language_is_refused(self, open_store: OpenStore) -> None:
        """Its stems would not be those of the texts; both are named. What is not said is what it was."""
        first = open_for_words(open_store, language="german")
        first.put(("a",), "1", {"text": "alte Häuser"})
        for other in ("english", "french"):
            with pytest.raises(IndexMismatch, match=f"german.*{other}"):
                open_for_words(open_store, language=other)
        store = open_for_words(open_store)
        assert keys(store.search((), query="alten häusern", mode="lexical")) == ["1"]
        store.put(("a",), "2", {"text": "neue Häuser"})
        assert keys(open_for_words(open_store, language="german").search((), query="häusern", mode="lexical")) == [
            "2",
            "1",
        ]

    def test_another_language_is_accepted_while_nothing_is_indexed(self, open_store: OpenStore) -> None:
        """A changed mind costs nothing before the first text."""
        open_for_words(open_store, language="german").put(("a",), "1", {"n": 1}, index=False)
        store = open_for_words(open_store, language="english")
        store.put(("a",), "2", {"text": "running"})
        assert keys(store.search((), query="runs", mode="lexical")) == ["2"]

    def test_a_database_by_words_alone_gets_no_model(self, open_store: OpenStore) -> None:
        """Its texts have no vectors: an opening with a model is refused, and goes on by words as before."""
        index = {"mode": "lexical", "fields": ["text"]}
        open_store(index=index).put(("a",), "1", {"text": "apples"})
        for mode in (None, "semantic", "lexical"):
            with pytest.raises(IndexMismatch, match=r"no vectors.*(settings it was made with|new database)"):
                open_for_words(open_store, mode=mode)
        store = open_store(index=index)
        store.put(("a",), "2", {"text": "red apples"})
        assert keys(store.search((), query="apples")) == ["2", "1"]
        assert store.check().problems == ()

    def test_a_database_by_words_alone_needs_no_settings(self, open_store: OpenStore) -> None:
        """Opened plainly it indexes and ranks as it was told once: no model is missing."""
        open_store(index={"mode": "lexical", "fields": ["text"]}).put(("a",), "1", {"text": "apples"})
        store = open_store()
        store.put(("a",), "2", {"text": "red apples"})
        assert keys(store.search((), query="apples")) == ["2", "1"]
        assert keys(store.search((), query="red")) == ["2"]

    def test_words_answer_where_the_model_is_missing(self, open_store: OpenStore) -> None:
        """A database with vectors and words, opened plainly: by words it ranks, by its own mode it warns."""
        open_for_words(open_store).put(("a",), "1", {"text": "apples"})
        store = open_store()
        assert keys(store.search((), query="apples", mode="lexical")) == ["1"]
        assert store.search((), query="pears", mode="lexical") == []
        with pytest.warns(UserWarning, match="index"):
            assert [(hit.key, hit.score) for hit in store.search((), query="apples")] == [("1", None)]

    def test_a_database_with_vectors_may_be_opened_for_words(self, open_store: OpenStore) -> None:
        """Without its model a store by words ranks by them; a put of a text would leave it without its vector."""
        first = open_for_words(open_store)
        first.put(("a",), "1", {"text": "apples"})
        store = open_store(index={"mode": "lexical", "fields": ["text"]})
        assert keys(store.search((), query="apples")) == ["1"]
        with pytest.raises(ModelUnavailable):
            store.put(("a",), "2", {"text": "pears"})
        assert [hit.score for hit in open_for_words(open_store).search((), query="apples")] == [1.0]
