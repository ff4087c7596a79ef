"""Filters read a second time: rules 9 to 12 of the contract in plain Python, and how a filter is tried on a store.

Nothing here is taken from the package. Values are brought into one form whose equality is JSON's; an operator is a
comparison of such forms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final

from langgraph.store.base import PutOp

from tests.support import OpenStore, SyncCaller, WordEmbeddings, keys

Form = tuple[Any, ...]
ABSENT: Final[Form] = ("absent",)
NULL: Final[Form] = ("null",)


def passes(filter: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    """Tell whether an object passes a filter."""
    return all(
        _joins(name, condition, lambda part: passes(part, value))
        if name in ("$and", "$or", "$not")
        else meets(condition, _field(value, name))
        for name, condition in filter.items()
    )


def meets(condition: Any, form: Form) -> bool:
    """Tell whether what a field holds meets its condition."""
    if not (isinstance(condition, dict) and any(key.startswith("$") for key in condition)):
        return _equals(condition, form)
    return all(_operates(name, operand, form) for name, operand in condition.items())


def to_form(value: Any) -> Form:
    """Bring a value into a form that equals another's exactly where JSON says so."""
    if value is None:
        return NULL
    if isinstance(value, list | tuple):
        return ("list", *map(to_form, value))
    if isinstance(value, dict):
        return ("object", frozenset((key, to_form(part)) for key, part in value.items()))
    if isinstance(value, bool | str):
        return (type(value).__name__, value)
    if isinstance(value, float) and not math.isfinite(value):
        return ("number", value if math.isinf(value) else object())
    return ("number", Fraction(value))


def _field(value: Any, name: str) -> Form:
    """Find a field by its whole name, or else by the path that its dots make."""
    if not isinstance(value, dict):
        return ABSENT
    if name in value:
        return to_form(value[name])
    names = name.split(".")
    for cut in range(1, len(names)):
        found = _field(value.get(".".join(names[:cut])), ".".join(names[cut:]))
        if found != ABSENT:
            return found
    return ABSENT


def _equals(operand: Any, form: Form) -> bool:
    return form in (NULL, ABSENT) if operand is None else form == to_form(operand)


def _joins(name: str, operand: Any, holds: Callable[[Any], bool]) -> bool:
    if name == "$not":
        return not holds(operand)
    return all(map(holds, operand)) if name == "$and" else any(map(holds, operand))


def _operates(name: str, operand: Any, form: Form) -> bool:
    match name:
        case "$eq" | "$ne":
            return _equals(operand, form) is (name == "$eq")
        case "$in" | "$nin":
            return any(_equals(part, form) for part in operand) is (name == "$in")
        case "$exists":
            return operand is (form != ABSENT)
        case "$contains":
            return _contains(operand, form)
        case "$and" | "$or" | "$not":
            return _joins(name, operand, lambda part: meets(part, form))
    return _ordered(name, form, to_form(operand))


def _contains(operand: Any, form: Form) -> bool:
    if form[0] == "str":
        return isinstance(operand, str) and form[1].find(operand) >= 0
    wanted = operand if isinstance(operand, list) else [operand]
    return form[0] == "list" and all(to_form(part) in form[1:] for part in wanted)


def _ordered(name: str, form: Form, operand: Form) -> bool:
    if form[0] != operand[0] or form[0] not in ("number", "str"):
        return False
    left, right = ([ord(letter) for letter in part[1]] if part[0] == "str" else part[1] for part in (form, operand))
    if left == right:
        return name in ("$gte", "$lte")
    return bool(left > right) is (name in ("$gt", "$gte"))


# how it is tried -------------------------------------------------------------------------------------------------


def open_indexed(open_store: OpenStore) -> SyncCaller:
    """Open a store that can be asked with a query, too, since filters then go another way."""
    return open_store(index={"embed": WordEmbeddings()})


def put_all(store: SyncCaller, values: Mapping[str, Any], namespace: tuple[str, ...] = ("a",)) -> None:
    """Put values by key."""
    store.batch([PutOp(namespace, key, value) for key, value in values.items()])


def matching(store: SyncCaller, filter: Any, namespace: tuple[str, ...] = ("a",)) -> set[str]:
    """Give the keys of the items that pass a filter; with a query they must be the same ones."""
    newest = keys(store.search(namespace, filter=filter, limit=1_000))
    ranked = keys(store.search(namespace, filter=filter, query="words", limit=1_000))
    assert sorted(newest) == sorted(ranked)
    assert len(set(newest)) == len(newest)
    return set(newest)
