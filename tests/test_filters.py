"""Filters: the verdict, what is refused, and that narrowing never leaves out what the verdict accepts."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memstore.errors import InvalidFilter
from memstore.filters import MISSING, Narrowing, Predicate, compile_filter, find, json_equal
from tests.strategies import ORDERED, conditions, filters, names, operands, plain_filters, values

unhurried = settings(deadline=None)
"""A slow machine fails no example."""


def compiled(filter: Any) -> Predicate:
    """Compile a filter that is none of the empty ones."""
    predicate = compile_filter(filter)
    assert predicate is not None
    return predicate


def accepts(filter: Any, value: Any) -> bool:
    """Say what the verdict on a value is."""
    return compiled(filter).accepts(value)


def on_path(value: Any, path: tuple[str, ...]) -> Any:
    """Walk down keys as `json_extract` does; None where there is nothing."""
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def holds(narrowing: Narrowing, value: Any) -> bool:
    """Judge a narrowing as a database may: a comparison that is never stricter than the operand's own kind."""
    found = [on_path(value, path) for path in narrowing.paths]
    operand = narrowing.operand
    if narrowing.relation == "among":
        return any(part in operand for part in found if isinstance(part, str))
    kinds = str if isinstance(operand, str) else (int, float)
    comparable = [part for part in found if isinstance(part, kinds)]
    if narrowing.relation == "equal":
        return any(part == operand for part in comparable)
    if narrowing.relation == "at_least":
        return any(part >= operand for part in comparable)
    return any(part <= operand for part in comparable)


@settings(deadline=None, max_examples=400)
@given(filters(), values)
def test_what_the_verdict_accepts_passes_every_narrowing(filter: dict[str, Any], value: dict[str, Any]) -> None:
    """SQL may only leave out what Python would refuse; else an item would be missing from the answer."""
    predicate = compiled(filter)
    if predicate.accepts(value):
        assert all(holds(narrowing, value) for narrowing in predicate.narrowings)


@unhurried
@given(names, conditions, values)
def test_negations_are_exact(name: str, condition: Any, value: dict[str, Any]) -> None:
    """`$not`, `$ne` and `$nin` accept exactly what their counterparts refuse."""
    assert accepts({name: {"$not": condition}}, value) != accepts({name: condition}, value)
    assert accepts({"$not": {name: condition}}, value) != accepts({name: condition}, value)
    assert accepts({name: {"$ne": value}}, value) != accepts({name: {"$eq": value}}, value)
    assert accepts({name: {"$nin": [value]}}, value) != accepts({name: {"$in": [value]}}, value)


@unhurried
@given(plain_filters, plain_filters, values)
def test_and_and_or_join_verdicts(left: dict[str, Any], right: dict[str, Any], value: dict[str, Any]) -> None:
    """They are what their names say, and several fields in one object are joined by and."""
    verdicts = [accepts(left, value), accepts(right, value)]
    assert accepts({"$and": [left, right]}, value) == all(verdicts)
    assert accepts({"$or": [left, right]}, value) == any(verdicts)
    assert accepts(left, value) == all(accepts({name: condition}, value) for name, condition in left.items())


@unhurried
@given(names, st.lists(operands, max_size=3), values)
def test_in_is_any_equality(name: str, operand: list[Any], value: dict[str, Any]) -> None:
    """`$in` is an or of `$eq`; an empty one matches nothing."""
    assert accepts({name: {"$in": operand}}, value) == any(accepts({name: {"$eq": part}}, value) for part in operand)


EQUAL: list[tuple[Any, Any]] = [
    (1, 1.0), (0, -0.0), (10**15, 1e15), ("é", "é"), (None, None), ([1, {"a": 2}], (1.0, {"a": 2})),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (True, True), ([], []), ({}, {}),
]  # fmt: skip
DIFFERENT: list[tuple[Any, Any]] = [
    (1, True), (0, False), (1.0, True), ("1", 1), (None, False), (None, 0), ([], {}), ([1], [1, 2]), ([1], [True]),
    ({"a": 1}, {"a": 1, "b": None}), ("e\u0301", "é"), (math.nan, math.nan), (10**30, 1e30), ("", None),
    ([[1]], [1]), ({"a": [1]}, {"a": 1}), (2**53 + 1, float(2**53)),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), EQUAL, ids=repr)
def test_json_values_that_are_equal(left: Any, right: Any) -> None:
    """Numbers by value, lists and objects whole, objects regardless of key order."""
    assert json_equal(left, right)
    assert json_equal(right, left)


@pytest.mark.parametrize(("left", "right"), DIFFERENT, ids=repr)
def test_json_values_that_are_different(left: Any, right: Any) -> None:
    """Booleans equal no number, text equals no number, and nothing is folded or normalised."""
    assert not json_equal(left, right)
    assert not json_equal(right, left)


FOUND: list[tuple[Any, str, Any]] = [
    ({"a": 1}, "a", 1),
    ({"a": {"b": 2}}, "a.b", 2),
    ({"a.b": 1, "a": {"b": 2}}, "a.b", 1),
    ({"a": {"b.c": 3}}, "a.b.c", 3),
    ({"a.b": {"c": 4}}, "a.b.c", 4),
    ({"a": {"b": 0}, "a.b": {"c": 5}}, "a.b.c", 5),
    ({"a": None}, "a", None),
    ({"": {"": 1}}, ".", 1),
    ({"a": {"": 1}}, "a.", 1),
    ({"a": [1]}, "a.0", MISSING),
    ({"a": 1}, "a.b", MISSING),
    ({}, "a", MISSING),
    (3, "a", MISSING),
]


@pytest.mark.parametrize(("value", "name", "expected"), FOUND)
def test_a_field_is_the_spelled_key_else_a_path(value: Any, name: str, expected: Any) -> None:
    """The key as it is spelled wins; else every way to read the dots as steps is tried."""
    assert find(value, name) is expected or find(value, name) == expected


VERDICTS: list[tuple[Any, Any, bool]] = [
    ({"a": None}, {}, True),
    ({"a": None}, {"a": None}, True),
    ({"a": None}, {"a": 0}, False),
    ({"a": {"$exists": True}}, {"a": None}, True),
    ({"a": {"$exists": False}}, {}, True),
    ({"a": {"$gt": 1}}, {"a": "2"}, False),
    ({"a": {"$gt": 1}}, {"a": True}, False),
    ({"a": {"$gt": 1}}, {"a": None}, False),
    ({"a": {"$lt": 1}}, {}, False),
    ({"a": {"$gte": "b"}}, {"a": "b"}, True),
    ({"a": {"$gt": "Z"}}, {"a": "a"}, True),
    ({"a": {"$gt": "\uffff"}}, {"a": "\U00010000"}, True),
    ({"a": {"$gt": 2**53}}, {"a": 2**53 + 1}, True),
    ({"a": {"$lt": math.inf}}, {"a": 10**400}, True),
    ({"a": {"$gt": 10**400}}, {"a": 1e308}, False),
    ({"a": {"$gte": math.nan}}, {"a": 1}, False),
    ({"a": {"$gt": True}}, {"a": 2}, False),
    ({"a": {"$gt": [1]}}, {"a": [2]}, False),
    ({"a": {"$gt": 1, "$lt": 3}}, {"a": 2}, True),
    ({"a": {"$gt": 1, "$lt": 3}}, {"a": 3}, False),
    ({"a": "x\0"}, {"a": "x"}, False),
    ({"a": {"$contains": 2}}, {"a": [1, 2.0]}, True),
    ({"a": {"$contains": [1, 2]}}, {"a": [2, 3, 1]}, True),
    ({"a": {"$contains": [1, 4]}}, {"a": [2, 3, 1]}, False),
    ({"a": {"$contains": True}}, {"a": [1]}, False),
    ({"a": {"$contains": None}}, {"a": [None]}, True),
    ({"a": {"$contains": "ell"}}, {"a": "hello"}, True),
    ({"a": {"$contains": ["ell"]}}, {"a": "hello"}, False),
    ({"a": {"$contains": "a"}}, {"a": {"a": 1}}, False),
    ({"a": {"$contains": "a"}}, {}, False),
    ({"a": {"$in": {1, 2}}}, {"a": 2}, True),
    ({"a": {"$in": []}}, {"a": None}, False),
    ({"a": {"$nin": []}}, {}, True),
    ({"a": {"$in": [None]}}, {}, True),
    ({"a": {"$not": {"$gt": 1}}}, {}, True),
    ({"a": {"$not": 1}}, {"a": 1}, False),
    ({"a": {"$or": [{"$lt": 1}, 5]}}, {"a": 5}, True),
    ({"a": {"$and": [{"$gt": 1}, {"$ne": 3}]}}, {"a": 3}, False),
    ({"a": {"$eq": {"$gt": 1}}}, {"a": {"$gt": 1}}, True),
    ({"a": {}}, {"a": {}}, True),
    ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, False),
    ({"$or": [{"a": 1}, {"$not": {"b": 2}}]}, {"b": 2}, False),
]


@pytest.mark.parametrize(("filter", "value", "expected"), VERDICTS, ids=repr)
def test_the_verdict(filter: Any, value: Any, *, expected: bool) -> None:
    """The meaning of each operator, on values of every kind."""
    assert accepts(filter, value) is expected


REFUSED: list[tuple[Any, str]] = [
    ([("a", 1)], "expected an object of conditions, got list"),
    ([], "expected a dict, got list"),
    ("", "expected a dict, got str"),
    ({"a": {"$regex": "x"}}, "'$regex' is not an operator here"),
    ({"$gt": 1}, "'$gt' is not an operator here"),
    ({"a": {"$gt": 1, "b": 2}}, "operators ($...) and plain keys stand in one object"),
    ({"$and": [{"a": 1}], "b": 2}, "operators ($...) and plain keys stand in one object"),
    ({"a": {"b": {"$gt": 1}}}, "an operator stands inside an object that is compared whole"),
    ({"a": [{"$gt": 1}]}, "an operator stands inside an object that is compared whole"),
    ({"a": {"b": {"$gt": 1, "c": 2}}}, "operators ($...) and plain keys stand in one object"),
    ({"$and": []}, "$and takes a list of at least one condition"),
    ({"$or": []}, "$or takes a list of at least one condition"),
    ({"$or": {"a": 1}}, "$or takes a list of at least one condition"),
    ({"$or": "ab"}, "$or takes a list of at least one condition"),
    ({"$or": [1]}, "expected an object of conditions, got int"),
    ({"$not": None}, "expected an object of conditions, got NoneType"),
    ({"a": {"$in": "text"}}, "$in and $nin take a list, got str"),
    ({"a": {"$nin": 1}}, "$in and $nin take a list, got int"),
    ({"a": {"$exists": 1}}, "$exists takes True or False, got int"),
    ({1: 2}, "keys are text, got int"),
    ({"a": {1: 2}}, "keys are text, got int"),
    ({"a": {"$eq": {1: 2}}}, "keys are text, got int"),
    ({"a": b"x"}, "an operand of type bytes equals no JSON value"),
    ({"a": {"$gt": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}}, "an operand of type datetime equals no JSON value"),
    ({"a": {"$eq": {"b": [{1}]}}}, "an operand of type set equals no JSON value"),
    ({"a": {"$in": [b"x"]}}, "an operand of type bytes equals no JSON value"),
    ({"a": {"$contains": [b"x"]}}, "an operand of type bytes equals no JSON value"),
]


@pytest.mark.parametrize(("filter", "message"), REFUSED, ids=repr)
def test_a_filter_without_meaning_is_refused(filter: Any, message: str) -> None:
    """A ValueError that says what is wrong, never an empty answer."""
    with pytest.raises(InvalidFilter) as caught:
        compile_filter(filter)
    assert str(caught.value).startswith(f"This filter has no meaning: {message}")


def test_no_filter_is_none() -> None:
    """None and an empty object accept everything, and cost nothing."""
    assert compile_filter(None) is None
    assert compile_filter({}) is None


def test_an_unknown_operator_is_answered_with_those_there_are() -> None:
    """The message lists every operator."""
    with pytest.raises(InvalidFilter) as caught:
        compile_filter({"a": {"$like": 1}})
    for operator in [*ORDERED, "$in", "$nin", "$exists", "$and", "$or", "$not"]:
        assert operator in str(caught.value)


NARROWED: list[tuple[Any, tuple[Narrowing, ...]]] = [
    ({"a": 1}, (Narrowing((("a",),), "equal", 1),)),
    ({"a": {"$gt": 1, "$lte": 3}}, (Narrowing((("a",),), "at_least", 1), Narrowing((("a",),), "at_most", 3))),
    ({"a.b": "x"}, (Narrowing((("a.b",), ("a", "b")), "equal", "x"),)),
    ({"a": {"$in": ["x", "y"]}}, (Narrowing((("a",),), "among", ("x", "y")),)),
    ({"a b": True}, (Narrowing((("a b",),), "equal", operand=True),)),
]
NOT_NARROWED: list[Any] = [
    {"a": None}, {"a": {"$ne": 1}}, {"a": {"$nin": ["x"]}}, {"a": {"$exists": True}}, {"a": {"$contains": "x"}},
    {"a": [1]}, {"a": {"b": 1}}, {"a": {}}, {"a": {"$in": [1]}}, {"a": {"$in": ["x", None]}}, {"a": 2**53},
    {"a": math.inf}, {"a": math.nan}, {"a": 'x"'}, {"a": "x\\"}, {"a": "x\0"}, {"a": "\ud800"}, {"a.b.c": 1},
    {".a": 1}, {"": 1}, {'a"': 1}, {"a\\": 1}, {"a\n": 1}, {"$or": [{"a": 1}]}, {"$not": {"a": 1}},
    {"a": {"$not": 1}},
]  # fmt: skip


@pytest.mark.parametrize(("filter", "expected"), NARROWED, ids=repr)
def test_plain_conditions_narrow(filter: Any, expected: tuple[Narrowing, ...]) -> None:
    """Equalities and bounds of scalars on plainly spelled fields are offered to SQL."""
    assert compiled(filter).narrowings == expected


@pytest.mark.parametrize("filter", NOT_NARROWED, ids=repr)
def test_other_conditions_are_python_s_alone(filter: Any) -> None:
    """What SQL might see otherwise is not offered to it."""
    assert compiled(filter).narrowings == ()
