"""Filters: rule 12 of the contract, which keys they reach, and rule 11's refusals."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.store.base import PutOp, SearchOp

from tests.conformance.filter_oracle import matching, open_indexed, put_all
from tests.support import OpenStore, keys

HOSTILE = [
    "'; DROP TABLE memstore_items; --",
    "' OR '1'='1",
    "x') OR 1=1 --",
    '" OR "1"="1',
    '$."x"',
    '"',
    "'",
    "''",
    "\\",
    '\\"',
    "a\\",
    "?",
    "?1",
    ":name",
    "@x",
    "%",
    "_",
    "*",
    "%s",
    "{}",
    "{0}",
    "[0]",
    "a[0]",
    "a[#-1]",
    "a]",
    "/",
    "~1",
    "#",
    "$",
    "->>",
    "::int",
    "\n",
    "\t",
    "\x01",
    "\x7f",
    "\u2028",
    "\u200b",
    "\ufeff",
    "\uffff",
]
"""Texts that mean something to SQL, to JSON paths or to a driver."""
ODD_NAMES = [
    "",
    " ",
    "a b",
    " a",
    "a ",
    "A",
    "日本",
    "é",
    "e\u0301",
    "😀",
    "1",
    "01",
    "null",
    "value",
    "key",
    "rowid",
    "i.value",
]
ODD_NAMES += [".", "..", "a.", ".a", "a..b", "x" * 5_000]
NAMES = [*(name for name in HOSTILE if not name.startswith("$")), *ODD_NAMES]

SELF: dict[str, Any] = {}
SELF["$not"] = SELF
SELF_LIST: list[Any] = []
SELF_LIST.append(SELF_LIST)
MALFORMED: list[Any] = [
    {"a": {"$foo": 1}},
    {"a": {"$regex": "x"}},
    {"a": {"$": 1}},
    {"a": {"$EQ": 1}},
    {"a": {"$eq": 1, "$foo": 1}},
    {"$foo": 1},
    {"$eq": 1},
    {"$gt": 1},
    {"$exists": True},
    {"a": {"$not": {"$foo": 1}}},
    {"a": {"$or": [1, {"$foo": 1}]}},
    {"$not": {"a": {"$foo": 1}}},
    {"$or": [{"a": 1}, {"$foo": 1}]},
    {"$and": [{"$or": [{"$not": {"a": {"$foo": 1}}}]}]},
    {"a": {"$gt": 1, "b": 2}},
    {"a": {"b": 2, "$gt": 1}},
    {"$and": [{"a": 1}], "b": 2},
    {"b": 2, "$not": {"a": 1}},
    {"$or": [{"b": 2, "$not": {"a": 1}}]},
    {"a": {"$and": [{"$gt": 1, "b": 2}]}},
    {"a": {"b": {"$gt": 1, "c": 2}}},
    {"a": {"b": {"$gt": 1}}},
    {"a": [{"b": [{"$gt": 1, "c": 2}]}]},
    {"a": [{"$gt": 1}]},
    {"$and": []},
    {"$or": []},
    {"$or": ()},
    {"a": {"$and": []}},
    {"a": {"$or": []}},
    {"$not": {"$and": []}},
    {"a": {"$not": {"$or": []}}},
    {"$and": [{"a": 1}, {"$or": []}]},
    {"$and": {"a": 1}},
    {"$or": {}},
    {"$or": None},
    {"$or": "ab"},
    {"$or": b"ab"},
    {"$or": 5},
    {"$and": [1]},
    {"$and": [None]},
    {"$or": [[]]},
    {"$or": ["a"]},
    {"a": {"$or": b"ab"}},
    {"a": {"$or": "ab"}},
    {"a": {"$and": {"$gt": 1}}},
    {"$not": 5},
    {"$not": None},
    {"$not": [{"a": 1}]},
    {"a": {"$in": 5}},
    {"a": {"$in": "abc"}},
    {"a": {"$in": None}},
    {"a": {"$in": b"abc"}},
    {"a": {"$in": {"b": 1}}},
    {"a": {"$nin": "abc"}},
    {"a": {"$nin": 5}},
    {"a": {"$exists": "yes"}},
    {"a": {"$exists": None}},
    {"a": {"$exists": {}}},
    {1: 2},
    {None: 2},
    {"a": {1: 2}},
    {"a": {"$gt": 1, 1: 2}},
    {"a": {"$eq": {1: 2}}},
    [],
    [{"a": 1}],
    "",
    "a",
    0,
    5,
    True,
    SELF,
    {"a": SELF_LIST},
    {"a": {"$in": [SELF_LIST]}},
    {"a": {"$contains": SELF_LIST}},
]


class FilterKeysConformance:
    """Every key of an item can be asked for, and no text is taken for more than a text."""

    @pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:20])
    def test_every_key_works(self, open_store: OpenStore, name: str) -> None:
        """A key is found as it is spelled, at the top and below another, and only where it stands."""
        store = open_indexed(open_store)
        values = {
            "top": {name: 1},
            "text": {name: name},
            "below": {"outer": {name: 1}},
            "beside": {f"{name}x": 1},
            "none": {},
        }
        put_all(store, values)
        assert matching(store, {name: 1}) == {"top"}
        assert matching(store, {name: {"$gte": 1}}) == {"top"}
        assert matching(store, {name: name}) == {"text"}
        assert matching(store, {name: {"$in": [name, "x"]}}) == {"text"}
        assert matching(store, {name: {"$exists": True}}) == {"top", "text"}
        assert matching(store, {name: {"$ne": 1}}) == set(values) - {"top"}
        assert matching(store, {f"outer.{name}": 1}) == {"below"}
        assert matching(store, {"outer": {name: 1.0}}) == {"below"}

    @pytest.mark.parametrize("text", HOSTILE, ids=ascii)
    def test_texts_are_bound_and_never_spliced(self, open_store: OpenStore, text: str) -> None:
        """A text that would change a statement finds the item that holds it, and nothing is lost."""
        store = open_indexed(open_store)
        put_all(store, {"k": {"v": text, "l": [text], "o": {"v": text}}, "other": {"v": "1"}})
        for asked in [
            {"v": text},
            {"v": {"$in": [text]}},
            {"v": {"$gte": text, "$lte": text}},
            {"v": {"$contains": text}},
            {"l": {"$contains": text}},
            {"o": {"v": text}},
            {"o.v": text},
        ]:
            assert matching(store, asked) == {"k"}
        assert matching(store, {"v": {"$ne": text}}) == {"other"}
        assert matching(store, {f"{text}.v": text, "v": 2} if not text.startswith("$") else {"v": 2}) == set()
        assert len(store.search(())) == 2

    def test_a_dollar_key_is_reached_below_another(self, open_store: OpenStore) -> None:
        """A key such as `$ref` has no place in a filter of its own but works in a path and in a literal under `$eq`."""
        store = open_indexed(open_store)
        put_all(store, {"k": {"o": {"$ref": "x"}}, "other": {"o": {"$ref": "y"}}})
        assert matching(store, {"o.$ref": "x"}) == {"k"}
        assert matching(store, {"o": {"$eq": {"$ref": "x"}}}) == {"k"}

    def test_a_dotted_name_is_a_key_before_it_is_a_path(self, open_store: OpenStore) -> None:
        """`a.b` is the key of that name where the item has it, whatever it holds; else `b` within `a`."""
        store = open_indexed(open_store)
        values: dict[str, Any] = {
            "flat": {"a.b": 1},
            "nested": {"a": {"b": 1}},
            "both": {"a.b": 1, "a": {"b": 2}},
            "null": {"a.b": None, "a": {"b": 1}},
            "scalar": {"a": 1},
            "list": {"a": [{"b": 1}]},
            "text": {"a": "b"},
            "deep": {"a": {"b": {"c": 1}}},
        }
        put_all(store, values)
        assert matching(store, {"a.b": 1}) == {"flat", "nested", "both"}
        assert matching(store, {"a.b": 2}) == set()
        assert matching(store, {"a.b": {"$exists": True}}) == {"flat", "nested", "both", "null", "deep"}
        assert matching(store, {"a.b": None}) == {"null", "scalar", "list", "text"}
        assert matching(store, {"a.b": {"$gt": 0}}) == {"flat", "nested", "both"}
        assert matching(store, {"a.b": {"$ne": 1}}) == {"null", "scalar", "list", "text", "deep"}
        assert matching(store, {"a.b": {"c": 1}}) == matching(store, {"a.b.c": 1}) == {"deep"}
        assert matching(store, {"a": {"b": 1}}) == {"nested", "null"}

    @pytest.mark.parametrize("wrong", MALFORMED, ids=lambda wrong: ascii(wrong)[:50])
    def test_a_malformed_filter_is_a_value_error(self, open_store: OpenStore, wrong: Any) -> None:
        """A filter that means nothing is never an empty answer, not even where there is nothing to find."""
        store = open_indexed(open_store)
        ways: list[tuple[tuple[str, ...], dict[str, Any]]] = [
            ((), {}),
            (("a",), {"query": "words"}),
            (("a",), {"limit": 0}),
            (("empty",), {}),
        ]
        for _ in ("an empty store", "one with an item"):
            for prefix, options in ways:
                with pytest.raises(ValueError, match="filter"):
                    store.search(prefix, filter=wrong, **options)
            with pytest.raises(ValueError, match="filter"):
                store.batch([PutOp(("b",), "k", {}), SearchOp(("a",), wrong)])
            assert store.list_namespaces(prefix=("b",)) == []
            store.put(("a",), "k", {"a": 1})
        assert keys(store.search(())) == ["k"]
