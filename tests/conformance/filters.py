"""Filters: rules 9 to 11 of the contract, case by case. Keys, malformed filters and laws have files of their own."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.conformance.filter_oracle import matching, open_indexed, put_all
from tests.support import OpenStore, keys

LONG = 10**5_000
"""An integer that Python itself does not turn into text."""
EQUALITIES: list[tuple[str, Any, Any, bool]] = [
    ("an integer and its float", 1, 1.0, True),
    ("both zeros", 0.0, -0.0, True),
    ("an integer and a float that rounds to it", 2**53 + 1, float(2**53), False),
    ("a long integer and itself", LONG, LONG, True),
    ("a long integer and its neighbour", LONG, LONG + 1, False),
    ("one and true", 1, True, False),
    ("true and one", True, 1, False),
    ("true and 1.0", True, 1.0, False),
    ("zero and false", 0, False, False),
    ("false and zero", False, 0, False),
    ("true and true", True, True, True),
    ("true and false", True, False, False),
    ("a number and its text", 1, "1", False),
    ("text and its number", "1", 1, False),
    ("true and its text", True, "true", False),
    ("null and its text", None, "null", False),
    ("text and null", "null", None, False),
    ("null and null", None, None, True),
    ("null and empty text", None, "", False),
    ("null and false", None, False, False),
    ("false and null", False, None, False),
    ("an empty list and null", [], None, False),
    ("an empty list and an empty object", [], {}, False),
    ("an empty object and itself", {}, {}, True),
    ("an empty list and itself", [], [], True),
    ("texts in another case", "a", "A", False),
    ("texts in another composition", "é", "e\u0301", False),
    ("text with a blank more", "a", "a ", False),
    ("lists", [1, "a", None], [1, "a", None], True),
    ("a list and a tuple", [1, [2]], (1, (2,)), True),
    ("lists of equal numbers", [1.0, 2], [1, 2.0], True),
    ("lists in another order", [1, 2], [2, 1], False),
    ("a list and its beginning", [1, 2], [1], False),
    ("a list and its element", [1], 1, False),
    ("lists of one and true", [1], [True], False),
    ("objects in another order", {"x": 1, "y": [2]}, {"y": [2.0], "x": 1}, True),
    ("an object and a part of it", {"x": 1, "y": 2}, {"x": 1}, False),
    ("an object and one with more", {"x": 1}, {"x": 1, "y": 2}, False),
    ("a null field and none", {"x": None}, {}, False),
    ("no field and a null one", {}, {"x": None}, False),
    ("objects of one and true", {"x": 1}, {"x": True}, False),
    ("objects, deep", {"x": [{"y": {"z": 1}}]}, {"x": [{"y": {"z": 1.0}}]}, True),
    ("an object and a list of its pairs", {"x": 1}, [["x", 1]], False),
]
"""(what, stored, operand, equal)."""

ODD: dict[str, Any] = {
    "-2": -2, "0": 0, "0.5": 0.5, "1": 1, "1.0": 1.0, "1.5": 1.5, "10": 10, "2**53": 2**53, "2**53+1": 2**53 + 1,
    "huge": 10**400, "-huge": -(10**400), "long": LONG, "true": True, "false": False, "null": None, "''": "",
    "'1'": "1", "'10'": "10", "'9'": "9", "'A'": "A", "'a'": "a", "'b'": "b", "'é'": "é", "'日'": "日",
    "'\uffff'": "\uffff", "'😀'": "😀", "[]": [], "[1]": [1], "{}": {}, "{1}": {"x": 1}, "'nan'": "nan",
}  # fmt: skip
"""Items of every type at once, by name."""
NUMBERS = {"-2", "0", "0.5", "1", "1.0", "1.5", "10", "2**53", "2**53+1", "huge", "-huge", "long"}
TEXTS = {name for name in ODD if name.startswith("'")}
ORDERINGS: list[tuple[str, Any, set[str]]] = [
    ("$gt", 1, {"1.5", "10", "2**53", "2**53+1", "huge", "long"}),
    ("$gte", 1.0, {"1", "1.0", "1.5", "10", "2**53", "2**53+1", "huge", "long"}),
    ("$lt", 1, {"-2", "0", "0.5", "-huge"}),
    ("$lte", 1.0, {"-2", "0", "0.5", "1", "1.0", "-huge"}),
    ("$gt", float(2**53), {"2**53+1", "huge", "long"}),
    ("$lte", 2**53, NUMBERS - {"2**53+1", "huge", "long"}),
    ("$gt", math.inf, set()),
    ("$gte", math.inf, set()),
    ("$lt", math.inf, NUMBERS),
    ("$gt", -math.inf, NUMBERS),
    ("$gt", 10**400, {"long"}),
    ("$gte", LONG, {"long"}),
    ("$lt", LONG, NUMBERS - {"long"}),
    ("$gt", -LONG, NUMBERS),
    ("$lte", -(10**400), {"-huge"}),
    ("$gt", "", TEXTS - {"''"}),
    ("$gt", "1", TEXTS - {"''", "'1'"}),
    ("$gte", "a", {"'a'", "'b'", "'é'", "'日'", "'\uffff'", "'😀'", "'nan'"}),
    ("$gt", "\uffff", {"'😀'"}),
    ("$lt", "10", {"''", "'1'"}),
    ("$lte", "9", {"''", "'1'", "'10'", "'9'"}),
    ("$lt", "A", {"''", "'1'", "'10'", "'9'"}),
]
"""(operator, operand, what of ODD matches)."""
UNORDERED: list[Any] = [math.nan, None, True, False, [1], {}]
"""What comes neither before nor after anything."""
UNSTORABLE: list[Any] = [math.nan, math.inf, -math.inf, 10**6_000, "a\0", "\0", "\ud800", [math.nan], {"v": "\0"}]
"""What no item holds."""


class FiltersConformance:
    """A filter means the same to every item, whatever its type."""

    @pytest.mark.parametrize(
        ("stored", "operand", "equal"), [case[1:] for case in EQUALITIES], ids=[c[0] for c in EQUALITIES]
    )
    def test_equality_is_that_of_json(self, open_store: OpenStore, stored: Any, operand: Any, *, equal: bool) -> None:
        """Numbers compare by value, booleans are no numbers, lists and objects compare whole; in every spelling."""
        store = open_indexed(open_store)
        put_all(store, {"k": {"v": stored}, "nested": {"w": {"v": stored}}})
        for condition in [
            operand,
            {"$eq": operand},
            {"$in": [operand]},
            {"$in": ["other", operand]},
            {"$not": {"$ne": operand}},
        ]:
            assert ("k" in matching(store, {"v": condition})) is equal
            assert ("nested" in matching(store, {"$and": [{"w.v": condition}]})) is equal
        for condition in [
            {"$ne": operand},
            {"$nin": [operand]},
            {"$nin": ["other", operand]},
            {"$not": {"$eq": operand}},
        ]:
            assert ("k" in matching(store, {"v": condition})) is not equal
            assert ("nested" in matching(store, {"$or": [{"w.v": condition}]})) is not equal

    def test_none_matches_null_and_missing(self, open_store: OpenStore) -> None:
        """None is the absence of a value, spelled or not; `$exists` tells the two apart, null counting as present."""
        store = open_indexed(open_store)
        put_all(store, {"null": {"v": None}, "missing": {"w": 1}, "empty": {}, "set": {"v": 0}, "falsy": {"v": ""}})
        absent, present = {"null", "missing", "empty"}, {"set", "falsy"}
        nothing: list[Any] = [None, {"$eq": None}, {"$in": [None]}, {"$in": [7, None]}, {"$not": {"$ne": None}}]
        for condition in nothing:
            assert matching(store, {"v": condition}) == absent
            assert matching(store, {"v": {"$not": condition}}) == present
        for condition in [{"$ne": None}, {"$nin": [None]}, {"$nin": [7, None]}, {"$not": {"$eq": None}}]:
            assert matching(store, {"v": condition}) == present
        assert matching(store, {"v": {"$exists": True}}) == present | {"null"}
        assert matching(store, {"v": {"$exists": False}}) == {"missing", "empty"}
        assert matching(store, {"v": {"$not": {"$exists": True}}}) == {"missing", "empty"}
        assert matching(store, {"v": {"$eq": None, "$exists": True}}) == {"null"}
        assert matching(store, {"deep.er.v": None}) == absent | present

    @pytest.mark.parametrize("operator", ["$gt", "$gte", "$lt", "$lte"])
    def test_orderings_pass_over_odd_items(self, open_store: OpenStore, operator: str) -> None:
        """Numbers are ordered among numbers, texts among texts by code point; nothing else matches, none raises."""
        store = open_indexed(open_store)
        put_all(store, {**{name: {"v": value} for name, value in ODD.items()}, "missing": {}})
        cases: list[tuple[Any, set[str]]] = [
            (operand, expected) for name, operand, expected in ORDERINGS if name == operator
        ]
        cases += [(operand, set()) for operand in UNORDERED]
        for operand, expected in cases:
            assert matching(store, {"v": {operator: operand}}) == expected, (operator, expected)
            assert matching(store, {"v": {"$not": {operator: operand}}}) == {*ODD, "missing"} - expected

    def test_bounds_may_stand_together(self, open_store: OpenStore) -> None:
        """All operators of one field hold at once."""
        store = open_indexed(open_store)
        put_all(store, {name: {"v": value} for name, value in ODD.items()})
        assert matching(store, {"v": {"$gte": 0, "$lt": 1.5, "$ne": 1}}) == {"0", "0.5"}
        assert matching(store, {"v": {"$gt": "1", "$lt": "a"}}) == {"'10'", "'9'", "'A'"}
        assert matching(store, {"v": {"$gt": 0, "$lt": "a"}}) == set()

    def test_operands_need_not_be_storable(self, open_store: OpenStore) -> None:
        """What no item can hold equals nothing, its negation everything; asking is no error."""
        store = open_indexed(open_store)
        values = {"1": {"v": 1}, "text": {"v": "a"}, "null": {"v": None}, "missing": {}, "list": {"v": [1, "a"]}}
        put_all(store, values)
        for operand in UNSTORABLE:
            assert matching(store, {"v": operand}) == set()
            assert matching(store, {"v": {"$eq": operand}}) == set()
            assert matching(store, {"v": {"$in": [operand, operand]}}) == set()
            assert matching(store, {"v": {"$contains": operand}}) == set()
            assert matching(store, {"v": {"$ne": operand}}) == set(values)
            assert matching(store, {"v": {"$nin": [operand]}}) == set(values)
            assert matching(store, {"v": {"$in": [operand, 1]}}) == {"1"}
            for operator in ["$gt", "$gte", "$lt", "$lte"]:
                assert matching(store, {"v": {operator: operand}}) <= {"1", "text"}
        assert matching(store, {"\0": 1, "\ud800": {"$gt": 1}}) == set()

    @pytest.mark.parametrize("operator", ["$gt", "$gte", "$lt", "$lte"])
    def test_text_with_nul_matches_nothing(self, open_store: OpenStore, operator: str) -> None:
        """A text that no item can hold has no place in the order of texts either: nothing lies before or after it."""
        store = open_indexed(open_store)
        put_all(store, {"a": {"v": "a"}, "empty": {"v": ""}, "z": {"v": "z"}, "one": {"v": 1}})
        for operand in ["\0", "a\0", "z\0z"]:
            assert matching(store, {"v": {operator: operand}}) == set()

    def test_in_takes_any_values(self, open_store: OpenStore) -> None:
        """`$in` is any of several equalities, with values of every type; an empty one matches nothing."""
        store = open_indexed(open_store)
        put_all(store, {name: {"v": value} for name, value in ODD.items()})
        assert matching(store, {"v": {"$in": []}}) == set()
        assert matching(store, {"v": {"$nin": []}}) == set(ODD)
        assert matching(store, {"v": {"$in": ["1", "😀", "absent"]}}) == {"'1'", "'😀'"}
        several = {"1", "1.0", "'1'", "[1]", "{1}", "false"}
        assert matching(store, {"v": {"$in": [1, "1", [1.0], {"x": 1}, False]}}) == several
        assert matching(store, {"v": {"$in": ("a", "b")}}) == {"'a'", "'b'"}

    def test_contains_looks_into_lists_and_texts(self, open_store: OpenStore) -> None:
        """A list holds a value, or all of several; text holds a part of it; nothing else holds anything."""
        store = open_indexed(open_store)
        values: dict[str, Any] = {
            "list": [1, "red", None, {"x": 1, "y": 2}, True], "other": [2, "reddish"], "empty": [], "text": "a red Fox",
            "number": 1, "object": {"red": 1}, "null": None,
        }  # fmt: skip
        put_all(store, {**{name: {"v": value} for name, value in values.items()}, "missing": {}})
        cases: list[tuple[Any, set[str]]] = [
            (1, {"list"}),
            (1.0, {"list"}),
            (True, {"list"}),
            (2, {"other"}),
            (None, {"list"}),
            ({"y": 2, "x": 1.0}, {"list"}),
            ({"x": 1}, set()),
            ("red", {"list", "text"}),
            ("reddish", {"other"}),
            ("Red", set()),
            ("fox", set()),
            ("d F", {"text"}),
            ("", {"text"}),
            (["red", 1], {"list"}),
            (["red", 2], set()),
            (["reddish"], {"other"}),
            ([], {"list", "other", "empty"}),
            (False, set()),
        ]
        for operand, expected in cases:
            assert matching(store, {"v": {"$contains": operand}}) == expected, operand
            assert matching(store, {"v": {"$not": {"$contains": operand}}}) == {*values, "missing"} - expected, operand

    def test_conditions_join_at_the_top_and_within_a_field(self, open_store: OpenStore) -> None:
        """`$and`, `$or` and `$not` join whole filters, or the conditions of one field, to any depth."""
        store = open_indexed(open_store)
        put_all(store, {f"{x}{y}": {"x": x, "o": {"y": y}} for x in range(3) for y in range(3)})
        cases: list[tuple[Any, set[str]]] = [
            ({"x": 1, "o.y": 2}, {"12"}),
            ({"$and": [{"x": 1}, {"o.y": 2}]}, {"12"}),
            ({"$and": [{"x": 1}], "$not": {"o.y": 2}}, {"10", "11"}),
            ({"$or": [{"x": 1, "o.y": 2}, {"x": 2, "o.y": 0}]}, {"12", "20"}),
            ({"$not": {"x": 1}}, {"00", "01", "02", "20", "21", "22"}),
            ({"$not": {"$or": [{"x": {"$gt": 0}}, {"o.y": {"$lt": 2}}]}}, {"02"}),
            (
                {"$or": [{"$and": [{"x": 0}, {"$not": {"o.y": 0}}]}, {"$and": [{"x": 2}, {"o.y": 2}]}]},
                {"01", "02", "22"},
            ),
            ({"x": {"$or": [0, {"$gt": 1}]}, "o.y": {"$not": {"$in": [0, 1]}}}, {"02", "22"}),
            ({"x": {"$and": [{"$gt": 0}, {"$not": 2}]}, "o": {"y": 1}}, {"11"}),
            ({"x": {"$not": {"$or": [{"$and": [{"$gt": 0}, {"$lt": 2}]}, 0]}}, "o": {"$in": [{"y": 0}]}}, {"20"}),
            ({"x": {"$gt": 0, "$or": [{"$lt": 2}, {"$gt": 7}]}, "o.y": {"$not": {"$ne": 1}}}, {"11"}),
            ({"$not": {"$not": {"x": 0, "o.y": 0}}}, {"00"}),
        ]
        for asked, expected in cases:
            assert matching(store, asked) == expected, asked

    def test_an_empty_filter_is_none(self, open_store: OpenStore) -> None:
        """`{}` and None ask for nothing; an empty object as a condition is a value, equal to an empty object alone."""
        store = open_indexed(open_store)
        put_all(store, {"a": {"v": {}}, "b": {"v": 1}, "c": {}})
        assert matching(store, None) == matching(store, {}) == {"a", "b", "c"}
        assert matching(store, {"v": {}}) == {"a"}

    def test_every_item_is_asked(self, open_store: OpenStore) -> None:
        """However many items a filter passes over, those that pass are all found, and the limit counts them alone."""
        store = open_indexed(open_store)
        put_all(store, {f"k{n:03}": {"n": n, "even": n % 2 == 0, "l": [n % 50]} for n in range(300)})
        assert matching(store, {"even": True}) == {f"k{n:03}" for n in range(0, 300, 2)}
        assert matching(store, {"l": {"$contains": 49}}) == {f"k{n:03}" for n in range(49, 300, 50)}
        assert matching(store, {"n": {"$in": [0, 299]}}) == {"k000", "k299"}
        for query in [None, "words"]:
            for asked, count in [
                ({"n": {"$lt": 7}}, 7),
                ({"l": {"$contains": 49}}, 6),
                ({"$not": {"even": False}}, 150),
            ]:
                whole = keys(store.search(("a",), query=query, filter=asked, limit=300))
                pages = [
                    keys(store.search(("a",), query=query, filter=asked, limit=4, offset=at)) for at in range(0, 156, 4)
                ]
                assert len(whole) == count
                assert [key for page in pages for key in page] == whole
