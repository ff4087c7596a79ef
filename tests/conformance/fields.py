"""Which texts of a value are embedded: rules 19 and 20 of the contract."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langgraph.store.base import PutOp

from memstore.embedding import MAX_TEXT
from tests.conformance.models import embedded
from tests.support import OpenStore, SyncCaller, WordEmbeddings, keys

VALUE: dict[str, Any] = {
    "text": "plain",
    "a": {"b": "inner", "c": {"d": "deep"}, "n": None},
    "list": ["zero", "one", "two"],
    "chapters": [{"title": "first", "tags": ["x", "y"]}, {"title": "second"}, {"other": 1}, "odd", None],
    "number": 42,
    "float": 1.5,
    "yes": True,
    "nothing": None,
    "blank": " \t\n",
    "empty": "",
    "日本": "東京",
    "with space": "spaced",
}
PATHS: dict[str, list[str]] = {
    "text": ["plain"],
    "a.b": ["inner"],
    "a.c.d": ["deep"],
    "list[0]": ["zero"],
    "list[-1]": ["two"],
    "list[-3]": ["zero"],
    "list[*]": ["zero", "one", "two"],
    "chapters[*].title": ["first", "second"],
    "chapters[1].title": ["second"],
    "chapters[*].tags[*]": ["x", "y"],
    "chapters[0].tags[-1]": ["y"],
    "chapters.*.title": ["first", "second"],
    "a.*": ["inner", '{"d": "deep"}'],
    "{text,a.b}": ["plain", "inner"],
    "{ text , missing, number }": ["plain", "42"],
    "a.{b,c.d}": ["inner", "deep"],
    "chapters[*].{title,other}": ["first", "second", "1"],
    "number": ["42"],
    "float": ["1.5"],
    "yes": ["True"],
    "日本": ["東京"],
    "with space": ["spaced"],
    "a.c": ['{"d": "deep"}'],
    "list": ['["zero", "one", "two"]'],
}
"""What each path is to give."""
FRUITLESS = [
    "missing",
    "a.missing.b",
    "text.b",
    "text[0]",
    "text[*]",
    "list.b",
    "list[3]",
    "list[-4]",
    "list[x]",
    "list[]",
    "list[0",
    "list[1.5]",
    "a[0]",
    "{x,y.z}",
    "text{a}",
    "list{a}",
    "{text",
    "nothing",
    "a.n",
    "a.n.x",
    "blank",
    "empty",
    "chapters[9].title",
]
"""Paths to what is missing, null, blank, or written wrongly."""


def texts_of(store: SyncCaller, embeddings: WordEmbeddings, value: Any, index: Any = None) -> list[str]:
    """Put a value, give the texts the model was given for it, and take it away again."""
    embeddings.documents.clear()
    store.put(("a",), "k", value, index)
    assert store.stats().texts >= len(embedded(embeddings))
    assert store.check().problems == ()
    store.delete(("a",), "k")
    return sorted(embedded(embeddings))


class FieldsConformance:
    """Fields and paths choose texts; the value itself is never touched."""

    def test_the_whole_value_is_embedded_unless_told(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """Without `fields` an item is found by all that is in it: as JSON with sorted keys, readable in any script."""
        store = open_store(index={"embed": embeddings})
        value = {"z": 1, "城": "東京 é", "a": {"y": [1, None, True], "b": "Ω"}}
        (text,) = texts_of(store, embeddings, value)
        assert json.loads(text) == value
        assert text == json.dumps(value, sort_keys=True, ensure_ascii=False)
        assert all(word in text for word in ("東京", "城", "é", "Ω"))
        store.put(("a",), "k", value)
        item = store.get(("a",), "k")
        assert item is not None
        assert list(item.value) == ["z", "城", "a"]
        assert texts_of(store, embeddings, {"b": 2, "a": 1}) == texts_of(store, embeddings, {"a": 1, "b": 2})

    def test_fields_say_what_is_embedded(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """Only the fields named are, each on its own."""
        store = open_store(index={"embed": embeddings, "fields": ["title", "a.b"]})
        assert texts_of(store, embeddings, {"title": "apples", "a": {"b": "pears"}, "c": "rain"}) == ["apples", "pears"]
        assert texts_of(store, embeddings, {"c": "rain"}) == []

    @pytest.mark.parametrize("fields", [None, [], ["title"], ["$"], ["$", "title"]], ids=repr)
    def test_a_put_chooses_for_itself(
        self, open_store: OpenStore, embeddings: WordEmbeddings, fields: list[str] | None
    ) -> None:
        """None takes `fields`, False nothing, a list its paths, `["$"]` the whole value, whatever `fields` are."""
        settings: dict[str, Any] = {"embed": embeddings}
        store = open_store(index=settings if fields is None else settings | {"fields": fields})
        value = {"title": "apples", "body": "rain"}
        whole = '{"body": "rain", "title": "apples"}'
        by_default = {"$": whole, "title": "apples"}
        wanted = ["$"] if fields is None else fields
        assert texts_of(store, embeddings, value) == sorted(by_default[path] for path in wanted)
        assert texts_of(store, embeddings, value, index=False) == []
        assert texts_of(store, embeddings, value, []) == []
        assert texts_of(store, embeddings, value, ["body"]) == ["rain"]
        assert texts_of(store, embeddings, value, ["body", "title"]) == ["apples", "rain"]
        assert texts_of(store, embeddings, value, ["$"]) == [whole]

    def test_a_batch_chooses_for_each_put(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """`index` is the op's own, and stays with the item: each is found by its own texts alone."""
        store = open_store(index={"embed": embeddings, "fields": ["title"]})
        value = {"title": "apples", "body": "rain"}
        choices: list[Any] = [None, False, ["body"], ["$"]]
        store.batch(PutOp(("a",), f"{choice}", value, index=choice) for choice in choices)
        assert store.stats().texts == 3
        assert store.search((), query="apples")[0].key == "None"
        assert store.search((), query="rain")[0].key == "['body']"
        assert "False" not in keys(store.search((), query="apples"))
        assert store.check().problems == ()

    def test_a_wrong_choice_is_refused(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """A bare string would be taken letter by letter; it and other kinds are errors, and nothing is written."""
        store = open_store(index={"embed": embeddings})
        choices: list[Any] = ["title", True, 0, {"title": 1}, [5], [None], [""], b"title", [["title"]]]
        for choice in choices:
            with pytest.raises(ValueError, match="index"):
                store.put(("a",), "k", {"title": "apples"}, choice)
            with pytest.raises(ValueError, match="index"):
                store.batch([PutOp(("a",), "k", {"title": "apples"}, index=choice)])
        assert store.list_namespaces() == []
        assert embeddings.documents == []

    def test_wrong_fields_are_refused(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """A store that could never index what was meant does not open."""
        wrong: list[Any] = ["text", [5], [""], {"text": 1}]
        for fields in wrong:
            with pytest.raises(ValueError, match="fields"):
                open_store(index={"embed": embeddings, "fields": fields})

    def test_paths_are_those_of_langgraph(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """Keys, places counted from either end, `*` for all, and several fields in braces, alone or one in another."""
        store = open_store(index={"embed": embeddings, "fields": []})
        found = {path: texts_of(store, embeddings, VALUE, [path]) for path in PATHS}
        assert found == {path: sorted(texts) for path, texts in PATHS.items()}

    def test_paths_to_nothing_yield_nothing(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """What is missing, null, blank or malformed is left out: an item without a field is still an item."""
        store = open_store(index={"embed": embeddings, "fields": []})
        assert {path: texts_of(store, embeddings, VALUE, [path]) for path in FRUITLESS} == {
            path: [] for path in FRUITLESS
        }
        assert texts_of(store, embeddings, VALUE, [*FRUITLESS, "text"]) == ["plain"]

    def test_a_value_may_be_empty(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """`{}` is a value; as a whole it is the text `{}`."""
        store = open_store(index={"embed": embeddings})
        assert texts_of(store, embeddings, {}) == ["{}"]
        assert texts_of(store, embeddings, {}, ["text"]) == []

    def test_tuples_are_lists_to_paths(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """A tuple is kept as a list, so it is indexed as one: what is stored and what is found agree."""
        store = open_store(index={"embed": embeddings, "fields": []})
        value = {"tags": ("red", "green"), "parts": ({"text": "one"}, {"text": "two"})}
        found = {
            path: texts_of(store, embeddings, value, [path])
            for path in ("tags[*]", "tags[-1]", "tags", "parts[*].text", "parts.*.text", "{tags}")
        }
        assert found == {
            "tags[*]": ["green", "red"],
            "tags[-1]": ["green"],
            "tags": ['["red", "green"]'],
            "parts[*].text": ["one", "two"],
            "parts.*.text": ["one", "two"],
            "{tags}": ['["red", "green"]'],
        }

    def test_numbers_of_any_size_are_texts(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """An integer longer than Python turns into text by itself is indexed like any other."""
        store = open_store(index={"embed": embeddings, "fields": []})
        huge = 10**5000
        assert texts_of(store, embeddings, {"n": huge, "t": "apples"}, ["n"]) == ["1" + "0" * 5000]
        assert texts_of(store, embeddings, {"n": huge, "t": "apples"}, ["t"]) == ["apples"]
        (whole,) = texts_of(store, embeddings, {"n": huge, "t": "apples"}, ["$"])
        assert "1" + "0" * 5000 in whole

    @pytest.mark.parametrize("blank", ["", " ", "\n\t \u3000", " " * (MAX_TEXT + 1)], ids=len)
    def test_blank_text_is_not_embedded(self, open_store: OpenStore, embeddings: WordEmbeddings, blank: str) -> None:
        """It means nothing: the item is kept, and not found by a query."""
        store = open_store(index={"embed": embeddings, "fields": ["text", "parts[*]"]})
        store.put(("a",), "k", {"text": blank, "parts": [blank, "apples", blank]})
        assert embedded(embeddings) == ["apples"]
        store.put(("a",), "k", {"text": blank, "parts": [blank]})
        assert store.search((), query="apples") == []
        assert store.stats().texts == 0
        assert store.get(("a",), "k") is not None

    def test_text_that_is_blank_as_far_as_it_is_embedded_is_blank(
        self, open_store: OpenStore, embeddings: WordEmbeddings
    ) -> None:
        """A text is cut before it is embedded; where only spaces are left, the model is given nothing."""
        store = open_store(index={"embed": embeddings, "fields": ["text"]})
        store.put(("a",), "k", {"text": " " * MAX_TEXT + "apples"})
        assert not any(text.isspace() for text in embedded(embeddings))

    def test_texts_are_cut_for_embedding_alone(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """The model sees `MAX_TEXT` characters; the value is never cut; what lies beyond changes no vector."""
        store = open_store(index={"embed": embeddings, "fields": ["text"]})
        text = ("apple " * MAX_TEXT)[: MAX_TEXT - 1] + "ß" + "beyond " * 100
        store.put(("a",), "k", {"text": text})
        assert embedded(embeddings) == [text[:MAX_TEXT]]
        item = store.get(("a",), "k")
        assert item is not None
        assert item.value == {"text": text}
        store.put(("a",), "k", {"text": text + "more"})
        assert embedded(embeddings) == [text[:MAX_TEXT]]
        assert store.check().problems == ()
