"""Narrowing in SQLite's own SQL: it may leave out only what the verdict refuses."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest
from hypothesis import example, given, settings

from memstore.dialects.sqlite import SqliteDialect
from memstore.filters import compile_filter
from memstore.items import to_json
from memstore.schema import load_migrations
from tests.strategies import filters, values

IDS = range(1, 9)


def narrowed(filter: Any, stored: list[Any]) -> set[int]:
    """Store values as items 1, 2, ... and give those that SQL says may pass."""
    predicate = compile_filter(filter)
    assert predicate is not None
    with closing(sqlite3.connect(":memory:")) as connection:
        for migration in load_migrations("sqlite"):
            connection.executescript(migration.sql)
        connection.executemany(
            "INSERT INTO memstore_items (id, namespace_id, key, value, created_at, updated_at) "
            "VALUES (?1, 1, ?1, ?2, 0, 0)",
            [(number, to_json(value)) for number, value in enumerate(stored, 1)],
        )
        step = SqliteDialect().select_narrowed([1], predicate.narrowings, 0)
        return {row[0] for row in connection.execute(step.sql, step.params)}


def accepted(filter: Any, stored: list[Any]) -> set[int]:
    """Give those of values 1, 2, ... that the verdict accepts."""
    predicate = compile_filter(filter)
    assert predicate is not None
    return {number for number, value in enumerate(stored, 1) if predicate.accepts(value)}


@settings(deadline=None, max_examples=300)
@given(filters(), values)
@example({"a": True}, {"a": True})
@example({"a.b": 1}, {"a": {"b": 1.0}})
@example({"a": {"$gte": "é"}}, {"a": "日"})
def test_sql_keeps_what_the_verdict_accepts(filter: dict[str, Any], value: dict[str, Any]) -> None:
    """Whatever the filter and the value: an accepted item is never narrowed away."""
    assert accepted(filter, [value]) <= narrowed(filter, [value])


NUMBERS = [0, -0.0, 1, 1.0, 0.1, 1 / 3, 1e-300, 5e-324, 2.2250738585072014e-308, 123456789.123456789, 2**53 - 1, -7e15]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("operator", ["$eq", "$gte", "$lte"])
def test_a_number_is_found_by_itself(operator: str, number: float) -> None:
    """SQLite reads decimals less exactly than Python writes them; narrowing must leave room, the tiniest included."""
    assert narrowed({"n": {operator: number}}, [{"n": number}]) == {1}


def test_narrowing_leaves_out_what_it_can() -> None:
    """It is there to be used: other values of the field are not read."""
    stored = [{"n": 1}, {"n": 2}, {"n": "1"}, {}, {"n": None}, {"n": [1]}]
    assert narrowed({"n": 1}, stored) == {1}
    assert narrowed({"n": {"$in": ["1", "x"]}}, stored) == {3}
    assert narrowed({"n": {"$lt": 2, "$gt": 0.5}}, stored) == {1, 2}


@pytest.mark.parametrize("key", ["a", "a b", "é", "日本", "a'b", "a]", "[0]", "#-1", "*", "%", "_", "?1", "a:b"])
def test_every_plainly_spelled_key_is_reached(key: str) -> None:
    """Keys are bound inside a JSON path: none of them may mean anything there."""
    assert narrowed({key: 1}, [{key: 1}, {key: 2}, {"other": 1}]) == {1}


def test_values_with_huge_integers_are_still_narrowed() -> None:
    """An integer that SQLite cannot hold is read as an approximate number, and does not spoil the row."""
    stored = [{"n": 10**5000, "m": 1}, {"n": 2**70, "m": 2}, {"n": 3, "m": 3}]
    assert narrowed({"n": {"$gt": 5}}, stored) >= {1, 2}
    assert narrowed({"m": 1}, stored) == {1}
