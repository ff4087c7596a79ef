"""Values, keys and times: the codecs of what is stored."""

from __future__ import annotations

import datetime as dt
import enum
import json
import math
import types
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langgraph.store.base import Item, SearchItem
from pydantic import BaseModel

from memstore.errors import InvalidKey, InvalidValue, UnstorableType
from memstore.items import (
    MAX_DEPTH,
    from_json,
    from_microseconds,
    read_clock,
    to_found,
    to_json,
    to_key,
    to_microseconds,
)

unhurried = settings(deadline=None)
"""A slow machine fails no example."""
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
huge = st.integers(3_990, 4_400).map(lambda power: 10**power) | st.integers(3_990, 4_400).map(lambda p: 1 - 10**p)
scalars = st.none() | st.booleans() | st.integers() | huge | st.floats(allow_nan=False, allow_infinity=False) | texts
parts = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
values = st.dictionaries(texts, parts, max_size=4)


def exactly(value: Any) -> Any:
    """Make a value comparable to the last bit, types and key order included."""
    if isinstance(value, dict):
        return ("object", [(key, exactly(part)) for key, part in value.items()])
    if isinstance(value, list):
        return ("list", [exactly(part) for part in value])
    return (type(value).__name__, value.hex() if isinstance(value, float) else value)


@unhurried
@given(values)
@example({"x": -0.0, "tiny": 5e-324, "large": 1.7976931348623157e308, "third": 1 / 3})
@example({"x": [10**4300, -(10**4299), 10**4000, 10**4000 - 1]})
@example({"long": "x" * 5000, "n": 12})
@example({"an escape spelled out": "\\u0000", "brackets": "[{" * MAX_DEPTH, "flat": [[]] * MAX_DEPTH})
def test_a_value_comes_back_exactly(value: dict[str, Any]) -> None:
    """Key order, floats bit for bit, integers of any size, and the difference of 1 and 1.0 and True survive."""
    text = to_json(value)
    assert exactly(from_json(text)) == exactly(value)


@unhurried
@given(values)
def test_stored_text_is_plain_json(value: dict[str, Any]) -> None:
    """Databases read the same text: it is JSON, in UTF-8, without NUL."""
    text = to_json(value)
    assert b"\0" not in text.encode()
    assert json.loads(text, parse_int=Decimal).keys() == value.keys()


def test_tuples_become_lists() -> None:
    """At any depth, beside long integers too."""
    assert from_json(to_json({"a": (1, ({"b": (2,)},))})) == {"a": [1, [{"b": [2]}]]}
    assert from_json(to_json({"a": (10**5000, (1, True))})) == {"a": [10**5000, [1, True]]}


def test_mappings_of_other_kinds_become_objects() -> None:
    """`put` takes any mapping, as LangGraph says."""
    assert to_json(types.MappingProxyType({"a": 1})) == '{"a":1}'


class Colour(enum.StrEnum):
    """Text with a name."""

    RED = "red"


class Level(enum.IntEnum):
    """A number with a name."""

    HIGH = 3


def test_subclasses_of_json_types_are_kept_as_what_they_hold() -> None:
    """Enumerations of text and numbers, and NumPy's double, are stored as plain text and numbers."""
    assert to_json({"a": Colour.RED, "b": Level.HIGH, "c": np.float64(0.5)}) == '{"a":"red","b":3,"c":0.5}'


def test_scripts_stay_readable() -> None:
    """Text is stored as it is written, not as escapes."""
    assert to_json({"é": "日本 😀"}) == '{"é":"日本 😀"}'


class Model(BaseModel):
    """A pydantic model."""

    name: str = "ada"


UNSTORABLE: list[tuple[Any, str]] = [
    (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "use isoformat()"),
    (dt.date(2026, 1, 1), "use isoformat()"),
    (dt.time(1, tzinfo=dt.UTC), "use isoformat()"),
    (dt.timedelta(1), "use total_seconds()"),
    (b"x", "use base64 text"),
    (bytearray(b"x"), "use base64 text"),
    ({1}, "use a list"),
    (frozenset({1}), "use a list"),
    (Decimal("1.5"), "use str() or float()"),
    (UUID(int=0), "use str()"),
    (np.zeros(2), "use tolist()"),
    (np.float32(1), "use item()"),
    (np.int64(1), "use item()"),
    (np.True_, "use item()"),
    ((part for part in ""), "use a list"),
    (Model(), "use model_dump(mode='json')"),
    (types.MappingProxyType({}), "use text, numbers, booleans, None, lists and dicts"),
    (1j, "use text, numbers, booleans, None, lists and dicts"),
]


@pytest.mark.parametrize(("part", "way_out"), UNSTORABLE, ids=lambda given: type(given).__name__)
def test_types_outside_json_are_refused_with_place_and_way_out(part: Any, way_out: str) -> None:
    """A TypeError that says where and what to do, and never what the value was."""
    with pytest.raises(UnstorableType) as caught:
        to_json({"a": 1, "b": [{"c": part}]})
    message = str(caught.value)
    kind = type(part).__name__
    assert message == f"This type has no place in a JSON object: b[0].c is of type {kind}; {way_out}"
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("value", [[], "text", 3, Model()], ids=lambda given: type(given).__name__)
def test_a_value_that_is_no_dict_is_refused(value: Any) -> None:
    """The whole value must be an object; a model says how it becomes one."""
    with pytest.raises(UnstorableType, match=f"a value is a dict, got {type(value).__name__}"):
        to_json(value)


@pytest.mark.parametrize("key", [1, None, ("a",), b"a", True])
def test_keys_that_are_no_text_are_refused(key: Any) -> None:
    """JSON would turn them into text, and what came back would not be what was put."""
    with pytest.raises(UnstorableType, match="a key of b is of type"):
        to_json({"b": {key: 1}})
    with pytest.raises(UnstorableType, match="a key of the value is of type"):
        to_json({key: 1})


UNKEPT: list[tuple[Any, str]] = [
    ({"a": [math.nan]}, "the number at a[0] is NaN or infinite"),
    ({"a": {"b": math.inf}}, "the number at a.b is NaN or infinite"),
    ({"a": -math.inf}, "the number at a is NaN or infinite"),
    ({"a": ["x", "se\0cret"]}, "the text at a[1] contains NUL or a lone surrogate"),
    ({"a": "se\ud800cret"}, "the text at a contains NUL or a lone surrogate"),
    ({"a": {"se\0cret": 1}}, "a key of a contains NUL or a lone surrogate"),
    ({"se\udfffcret": 1}, "a key of the value contains NUL or a lone surrogate"),
    ({"a": (10**5000, math.nan)}, "the number at a[1] is NaN or infinite"),
]


@pytest.mark.parametrize(("value", "message"), UNKEPT)
def test_values_that_no_backend_keeps_are_refused_with_their_place(value: Any, message: str) -> None:
    """A ValueError that names the place, and never the text itself."""
    with pytest.raises(InvalidValue) as caught:
        to_json(value)
    assert message in str(caught.value)
    assert "cret" not in str(caught.value)


def nested(levels: int) -> dict[str, Any]:
    """Make a value of so many levels."""
    value: Any = {"leaf": 1}
    for _ in range(levels - 1):
        value = {"a": value}
    outer: dict[str, Any] = value
    return outer


def test_nesting_has_a_stated_limit() -> None:
    """200 levels are kept; one more is refused, before Python's reader or the stack gives up."""
    assert from_json(to_json(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    with pytest.raises(InvalidValue, match="nests deeper than 200 levels"):
        to_json(nested(MAX_DEPTH + 1))


def test_a_value_that_contains_itself_is_refused() -> None:
    """It has no end; the limit on nesting finds it."""
    endless: dict[str, Any] = {}
    endless["a"] = [endless]
    with pytest.raises(InvalidValue, match="contains itself"):
        to_json(endless)


def test_keys_become_text_alike_on_every_call() -> None:
    """What is no text is turned into text; what cannot be stored is refused without being shown."""
    assert [to_key("a"), to_key(1), to_key(None), to_key(UUID(int=0))] == ["a", "1", "None", str(UUID(int=0))]
    assert to_key("") == ""
    for key in ("se\0cret", "se\ud800cret"):
        with pytest.raises(InvalidKey) as caught:
            to_key(key)
        assert "cret" not in str(caught.value)


@unhurried
@given(st.datetimes(timezones=st.just(dt.UTC)))
def test_times_keep_their_microseconds(moment: dt.datetime) -> None:
    """A time is a whole number of microseconds since 1970 in UTC, and comes back aware."""
    assert from_microseconds(to_microseconds(moment)) == moment
    assert from_microseconds(to_microseconds(moment)).tzinfo is dt.UTC


def test_the_clock_gives_microseconds_since_1970() -> None:
    """It agrees with Python's own clock."""
    before = dt.datetime.now(dt.UTC)
    now = from_microseconds(read_clock())
    assert before - dt.timedelta(milliseconds=1) <= now <= dt.datetime.now(dt.UTC)


def test_a_row_becomes_an_item_or_a_search_item() -> None:
    """Only a search gives `SearchItem`, with a score that is None where there was no query."""
    row = (3, b"a\0b\0", "k", "{}", 1_000_000, 2_000_000, 1.5, 3_000_000)
    found = to_found(row, {"n": 1})
    assert type(found.item) is Item
    assert (found.id, found.ttl, found.expires_at) == (3, 1.5, 3_000_000)
    assert (found.item.namespace, found.item.key, found.item.value) == (("a", "b"), "k", {"n": 1})
    assert found.item.created_at == dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
    assert found.item.updated_at == dt.datetime(1970, 1, 1, 0, 0, 2, tzinfo=dt.UTC)
    scored = to_found(row, {}, 0.5, scored=True).item
    unscored = to_found(row, {}, scored=True).item
    assert isinstance(scored, SearchItem)
    assert isinstance(unscored, SearchItem)
    assert (scored.score, unscored.score) == (0.5, None)
