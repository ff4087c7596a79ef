"""Which texts an item yields, and that only usable vectors are let through."""

from __future__ import annotations

import asyncio
import enum
import itertools
import json
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.embeddings.fake import DeterministicFakeEmbedding
from langgraph.store.base import PutOp

from memstore.embedding import (
    MAX_TEXT,
    Embedder,
    from_blobs,
    split,
    to_blob,
    to_digest,
    to_embeddings,
    to_identity,
    to_texts,
)
from memstore.errors import EmbeddingError, ModelUnavailable
from memstore.items import from_json
from memstore.models import LocalModel
from memstore.requests import Write, to_requests
from tests.support import WordEmbeddings


def texts(value: Any, *paths: str) -> list[tuple[str, str]]:
    """Give the (field, text) pairs that paths yield."""
    return [(text.field, text.text) for text in to_texts(value, paths)]


PATHS: list[tuple[Any, str, list[tuple[str, str]]]] = [
    ({"a": "x"}, "a", [("a", "x")]),
    ({"a": {"b": "x"}}, "a.b", [("a.b", "x")]),
    ({"a": ["x", "y"]}, "a[0]", [("a[0]", "x")]),
    ({"a": ["x", "y"]}, "a[-1]", [("a[-1]", "y")]),
    ({"a": [{"b": "x"}, {"b": "y"}, {}]}, "a[*].b", [("a[*].b.0", "x"), ("a[*].b.1", "y")]),
    ({"a": {"b": "x", "c": "y"}}, "a.*", [("a.*.0", "x"), ("a.*.1", "y")]),
    ({"a": "x", "b": {"c": "y"}}, "{a,b.c}", [("{a,b.c}.0", "x"), ("{a,b.c}.1", "y")]),
    ({"a": 1.5}, "a", [("a", "1.5")]),
    ({"a": True}, "a", [("a", "True")]),
    ({"a": {"é": ["日"]}}, "a", [("a", '{"é": ["日"]}')]),
    ({"b": 1, "a": "é"}, "$", [("$", '{"a": "é", "b": 1}')]),
    ({"a": None}, "a", []),
    ({"a": ""}, "a", []),
    ({"a": " \n\t\u3000"}, "a", []),
    ({"a": ["", "x", " "]}, "a[*]", [("a[*]", "x")]),
    ({}, "a", []),
    ({"a": "x"}, "a.b", []),
    ({"a": ["x"]}, "a[7]", []),
    ({"a": ["x"]}, "a[", []),
    ({"a": ["x"]}, "a[x]", []),
    ({"a": "x"}, "{b", []),
    ({"a": "x"}, "{}", []),
    ({"a": 3}, "a[*]", []),
]


@pytest.mark.parametrize(("value", "path", "expected"), PATHS, ids=lambda given: str(given)[:30])
def test_a_path_yields_its_texts(value: Any, path: str, expected: list[tuple[str, str]]) -> None:
    """Paths are LangGraph's; what is missing, null, blank or malformed yields nothing and raises nothing."""
    assert texts(value, path) == expected


class Shade(str, enum.Enum):  # noqa: UP042  unlike a StrEnum, str() does not give its text
    """Text with a name that str() shows."""

    DARK = "dark"


AS_STORED: dict[str, Any] = {
    "tuple": {"a": ("x", "y")},
    "nested tuple": {"a": ({"b": ("x",)},)},
    "long integer": {"a": 10**5000},
    "long integer in a list": {"a": [10**5000, 1.5]},
    "enumeration": {"a": Shade.DARK},
    "enumerations": {"a": [Shade.DARK]},
}


@pytest.mark.parametrize("path", ["$", "a", "a[0]", "a[*]", "a.*", "{a}", "a[*].b", "a[0].b[-1]"])
@pytest.mark.parametrize("value", AS_STORED.values(), ids=AS_STORED.keys())
def test_texts_are_those_of_the_value_as_it_is_stored(value: Any, path: str) -> None:
    """Tuples become lists when a value is stored, so they yield what lists yield: `check` extracts the texts anew."""
    (write,) = to_requests([PutOp(("a",), "k", value)], (path,))
    assert isinstance(write, Write)
    assert write.texts == to_texts(from_json(write.value or ""), [path])


def test_a_long_integer_is_embedded_digit_by_digit() -> None:
    """Where Python's own conversion refuses, the text is the one that is stored."""
    assert texts({"a": -(10**5000)}, "a") == [("a", "-1" + "0" * 5000)]


def test_texts_are_cut_but_values_never() -> None:
    """What is embedded of a text has a stated length, counted in characters."""
    ((_, text),) = texts({"a": "é" * (MAX_TEXT + 1)}, "a")
    assert text == "é" * MAX_TEXT


def test_several_paths_keep_their_order() -> None:
    """Each path's texts follow those of the path before."""
    assert texts({"a": "x", "b": ["y", "z"]}, "b[*]", "a") == [("b[*].0", "y"), ("b[*].1", "z"), ("a", "x")]


def test_equal_texts_have_equal_digests() -> None:
    """A digest depends on the text alone: it tells whether a vector can be kept."""
    first, second = to_texts({"a": "x", "b": "x"}, ["a", "b"])
    assert first.digest == second.digest == to_digest("x")
    assert (len(to_digest("x")), to_digest("x") == to_digest("y")) == (16, False)


def test_vectors_are_stored_as_little_endian_float32() -> None:
    """Four bytes a number, the same on every machine."""
    vector = np.array([1.0, -0.5, 3.0e38], np.float32)
    assert to_blob(vector) == b"\x00\x00\x80?\x00\x00\x00\xbf" + np.array(3.0e38, "<f4").tobytes()
    joined, apart = to_blob(vector) + to_blob(-vector), [to_blob(vector), to_blob(-vector)]
    for back in (from_blobs([joined], 2), from_blobs(apart, 2)):
        assert back.dtype == np.float32
        assert np.array_equal(back, [vector, -vector])
    assert split(joined, 2) == apart


# the embedder --------------------------------------------------------------------------------------------------------


class AsyncWords(WordEmbeddings):
    """An embedding with async methods of its own."""

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts."""
        await asyncio.sleep(0)
        return self.embed_documents(texts)

    async def aembed_query(self, text: str) -> list[float]:
        """Embed a query."""
        await asyncio.sleep(0)
        return self.embed_query(text)


def embedder(embeddings: Embeddings, dims: int | None = None) -> Embedder:
    """Make an embedder."""
    return Embedder(embeddings, dims, threading.Lock())


Embed = Callable[[Embedder, list[str]], dict[str, Any]]
ways_to_embed = pytest.mark.parametrize(
    "embed", [Embedder.embed, lambda given, texts: asyncio.run(given.aembed(texts))], ids=["sync", "async"]
)
ways_to_query = pytest.mark.parametrize(
    "embed",
    [Embedder.embed_queries, lambda given, texts: asyncio.run(given.aembed_queries(texts))],
    ids=["sync", "async"],
)


@ways_to_embed
def test_each_distinct_text_is_embedded_once_in_batches(embed: Embed) -> None:
    """The model is the slow part: duplicates are dropped, and 512 texts at most are handed to it at once."""
    words = AsyncWords()
    wanted = [f"text {number}" for number in range(1100)]
    vectors = embed(embedder(words), [*wanted, *wanted])
    assert [len(batch) for batch in words.documents] == [512, 512, 76]
    assert list(itertools.chain(*words.documents)) == wanted == list(vectors)
    assert np.allclose(vectors["text 700"], words.embed_query("text 700"), atol=1e-6)


@ways_to_embed
def test_no_texts_are_no_call(embed: Embed) -> None:
    """Nothing to embed: the model is not asked, and its length stays unknown."""
    given = embedder(AsyncWords())
    assert embed(given, []) == {}
    assert given.dims is None


@ways_to_query
def test_recent_queries_keep_their_vectors(embed: Embed) -> None:
    """A query asked again is not embedded again; queries go through `embed_query`, never `embed_documents`."""
    words = AsyncWords()
    given = embedder(words)
    first = embed(given, ["one", "two", "one"])
    again = embed(given, ["two", "one"])
    assert (words.queries, words.documents) == (["one", "two"], [])
    assert again["one"] is first["one"]


@ways_to_query
def test_the_least_recently_used_query_is_forgotten(embed: Embed) -> None:
    """512 queries are kept: memory is bounded, and what is used stays."""
    words = AsyncWords(2)
    given = embedder(words)
    embed(given, [f"q{number}" for number in range(512)])
    embed(given, ["q0", "one more"])
    assert words.queries.count("q0") == 1
    embed(given, ["q0", "q1", "q2"])
    assert [words.queries.count(query) for query in ("q0", "q1", "q2")] == [1, 2, 2]


def test_the_first_vector_tells_the_length() -> None:
    """After it, every vector must have that length."""
    given = embedder(WordEmbeddings(8))
    given.embed(["a"])
    assert given.dims == 8
    given.embeddings = WordEmbeddings(9)
    with pytest.raises(EmbeddingError, match="expected vectors of length 8, got one of length 9"):
        given.embed_queries(["b"])


class Fixed(Embeddings):
    """An embedding that returns what it was told to."""

    def __init__(self, documents: Any, query: Any = None) -> None:
        self.documents = documents
        self.query = query

    def embed_documents(self, texts: list[str]) -> list[list[float]]:  # noqa: ARG002  whatever they are
        """Give the documents."""
        documents: list[list[float]] = self.documents
        return documents

    def embed_query(self, text: str) -> list[float]:  # noqa: ARG002  whatever it is
        """Give the query."""
        query: list[float] = self.query
        return query


WRONG: list[tuple[Any, str]] = [
    ([[1.0, 2.0]], "expected 2 vectors, one for each text, got 1"),
    ([[1.0, 2.0]] * 3, "expected 2 vectors, one for each text, got 3"),
    ([], "expected 2 vectors, one for each text, got 0"),
    ([[1.0, 2.0], [1.0]], "expected vectors of length 2, got one of length 1"),
    ([[1.0, 2.0], []], "expected vectors of length 2, got one of length 0"),
    ([[1.0, 2.0], [1.0, math.nan]], "expected finite numbers, got NaN or an infinity in a vector"),
    ([[1.0, 2.0], [1.0, -math.inf]], "expected finite numbers, got NaN or an infinity in a vector"),
    ([[1.0, 2.0], [1.0, 1e39]], "expected finite numbers, got NaN or an infinity in a vector"),
    ([[1.0, 2.0], [1.0, None]], "expected finite numbers, got NaN or an infinity in a vector"),
]


@ways_to_embed
@pytest.mark.parametrize("dims", [None, 2])
@pytest.mark.parametrize(("documents", "message"), WRONG, ids=[message for _, message in WRONG])
def test_unusable_vectors_are_an_error(embed: Embed, documents: Any, message: str, dims: int | None) -> None:
    """A wrong number or length, NaN, infinities and what float32 cannot hold never get in, and teach no length."""
    given = embedder(Fixed(documents), dims)
    with pytest.raises(EmbeddingError, match=message):
        embed(given, ["a", "b"])
    assert given.dims == dims


NO_VECTORS: list[Any] = [None, [None, None], [1.0, 2.0], [["x"], ["y"]], [{}, {}], [[[1.0]], [[1.0]]], [[], []]]


@pytest.mark.parametrize("documents", NO_VECTORS, ids=repr)
def test_what_is_no_vector_at_all_is_the_same_error(documents: Any) -> None:
    """However a model goes wrong, the caller meets one error, which says nothing false and shows no content."""
    with pytest.raises(EmbeddingError) as caught:
        embedder(Fixed(documents)).embed(["a", "b"])
    assert "length 0, got one of length 0" not in str(caught.value)


@ways_to_query
@pytest.mark.parametrize("query", [[1.0], [1.0, math.nan]])
def test_unusable_query_vectors_are_an_error_and_not_kept(embed: Embed, query: list[float]) -> None:
    """Queries are checked as documents are; a model that recovers is asked again."""
    fixed = Fixed([], query)
    given = embedder(fixed, 2)
    with pytest.raises(EmbeddingError):
        embed(given, ["q"])
    fixed.query = [1.0, 2.0]
    assert embed(given, ["q"])["q"].tolist() == [1.0, 2.0]


def test_arrays_are_taken_as_lists_are() -> None:
    """Models that return NumPy arrays work, of any float type."""
    vectors = embedder(Fixed(np.eye(2))).embed(["a", "b"])
    assert vectors["b"].tolist() == [0.0, 1.0]
    assert vectors["b"].dtype == np.float32


# what `embed` may be -------------------------------------------------------------------------------------------------


def test_an_embeddings_is_taken_as_it_is() -> None:
    """No wrapper stands between the store and LangChain's own objects."""
    words = WordEmbeddings()
    assert to_embeddings(words) is words


def test_functions_sync_and_async_are_embeddings() -> None:
    """LangGraph takes either; an async one serves async calls, and says so when it is called plainly."""

    async def later(texts: list[str]) -> list[list[float]]:
        await asyncio.sleep(0)
        return [[float(len(text))] for text in texts]

    assert to_embeddings(lambda texts: [[float(len(text))] for text in texts]).embed_query("four") == [4.0]
    assert asyncio.run(to_embeddings(later).aembed_documents(["four", "a"])) == [[4.0], [1.0]]
    with pytest.raises(ValueError, match="async function"):
        to_embeddings(later).embed_documents(["four"])


@pytest.mark.parametrize("name", ["all-MiniLM-L6-v2", "org/model", "./folder", "C:\\models\\mini", ":odd", "a b:c"])
def test_a_name_or_path_is_a_local_model_that_is_not_loaded_yet(name: str) -> None:
    """Only `provider:model` is anything else; a drive letter is no provider."""
    assert isinstance(to_embeddings(name), LocalModel)


@pytest.mark.parametrize("name", ["openai:text-embedding-3-small", "no_such-provider:model"])
def test_a_provider_that_is_missing_is_a_clear_error(name: str) -> None:
    """The message names what was asked for; LangGraph's or LangChain's own words say what to install."""
    with pytest.raises(ModelUnavailable, match=f"The model cannot be loaded: embed='{name}': ") as caught:
        to_embeddings(name)
    assert isinstance(caught.value.__cause__, ImportError | ValueError)


@pytest.mark.parametrize("embed", [3, None, ["all-MiniLM-L6-v2"], b"name"], ids=repr)
def test_other_kinds_are_refused(embed: Any) -> None:
    """The message lists what is taken."""
    with pytest.raises(ModelUnavailable, match="expected an Embeddings, a function, 'provider:model' or a sentence-"):
        to_embeddings(embed)


class Named(WordEmbeddings):
    """An embedding with attributes like those of hosted models."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        self.__dict__.update(attributes)


IDENTITIES: list[tuple[Any, str | None]] = [
    ("all-MiniLM-L6-v2", "all-MiniLM-L6-v2"),
    ("sentence-transformers/all-MiniLM-L6-v2", "all-MiniLM-L6-v2"),
    ("openai:text-embedding-3-small", "openai:text-embedding-3-small"),
    (Named(model="m", model_name="n"), "Named:m"),
    (Named(model="", model_name="n"), "Named:n"),
    (Named(model=3, model_id="i"), "Named:i"),
    (Named(), "Named"),
    (DeterministicFakeEmbedding(size=3), "DeterministicFakeEmbedding"),
    (len, None),
    (None, None),
]


@pytest.mark.parametrize(("embed", "identity"), IDENTITIES, ids=[str(identity) for _, identity in IDENTITIES])
def test_a_model_is_known_by_its_name(embed: Any, identity: str | None) -> None:
    """A name where there is one, else the class; functions are known by the length of their vectors alone."""
    assert to_identity(embed) == identity


def test_texts_of_a_stored_value_are_json_readable() -> None:
    """The whole value's text is JSON with sorted keys in any script: a model sees what a reader would."""
    ((_, text),) = texts({"b": 2, "a": "日本"}, "$")
    assert json.loads(text) == {"a": "日本", "b": 2}
    assert "日本" in text
