"""Filters: a dict in LangGraph's spelling becomes a predicate.

The verdict is Python's alone and the same on every backend. What SQL may use to narrow is offered beside it: conditions
that hold for every item the verdict accepts, so that SQL can only leave out what would be refused anyway.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from memstore.errors import InvalidFilter

Verdict: TypeAlias = Callable[[Any], bool]
MISSING: Final = object()
"""What a field holds that the item lacks."""


@dataclass(frozen=True, slots=True)
class Narrowing:
    """One condition every accepted item fulfils: at one of the paths, a value has this relation to the operand."""

    paths: tuple[tuple[str, ...], ...]
    relation: Literal["equal", "at_least", "at_most", "among"]
    operand: Any


@dataclass(frozen=True, slots=True)
class Predicate:
    """A compiled filter."""

    accepts: Verdict
    narrowings: tuple[Narrowing, ...] = ()
    key: str | None = None
    """Equal for filters that accept the same; None for one that no text tells apart."""


def compile_filter(filter: Mapping[str, Any] | None) -> Predicate | None:
    """Compile a filter; None or an empty one gives None, which accepts everything.

    Raises:
        InvalidFilter: An operator is unknown, `$` and plain keys are mixed, `$and` or `$or` is empty, or an operand is
            of a type that no JSON value has.
    """
    if not filter:
        if filter is None or isinstance(filter, Mapping):
            return None
        raise InvalidFilter(f"expected a dict, got {type(filter).__name__}")
    try:
        return Predicate(_filter(filter), tuple(_narrow(filter)), _to_key(filter))
    except RecursionError:
        raise InvalidFilter("it nests too deep, or contains itself") from None


def _to_key(filter: Mapping[str, Any]) -> str | None:
    try:
        return json.dumps(filter, sort_keys=True)
    except (TypeError, ValueError):  # a set of operands, or an integer too long to be spelled
        return None


def json_equal(left: Any, right: Any) -> bool:
    """Compare two JSON values: numbers by value, booleans only with booleans, lists and objects whole."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left == right
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(json_equal, left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(json_equal(left[key], right[key]) for key in left)
    return left is None and right is None


def find(value: Any, name: str) -> Any:
    """Find a field: the key as it is spelled where the value has it, else each dotted way down to it; or MISSING."""
    if not isinstance(value, Mapping):
        return MISSING
    if name in value:
        return value[name]
    dot = name.find(".")
    while dot >= 0:
        found = find(value.get(name[:dot]), name[dot + 1 :])
        if found is not MISSING:
            return found
        dot = name.find(".", dot + 1)
    return MISSING


def _filter(filter: Any) -> Verdict:
    """Compile an object of fields, or one of `$and`, `$or` and `$not` over such objects."""
    if not isinstance(filter, Mapping):
        raise InvalidFilter(f"expected an object of conditions, got {type(filter).__name__}")
    if _is_operators(filter):
        return _all([_join(name, operand, _filter) for name, operand in filter.items()])
    return _all([_field(name, condition) for name, condition in filter.items()])


def _field(name: str, condition: Any) -> Verdict:
    test = _condition(condition)
    return lambda value: test(find(value, name))


def _condition(condition: Any) -> Verdict:
    """Compile what one field must fulfil: a value it equals, or an object of operators."""
    if not (isinstance(condition, Mapping) and _is_operators(condition)):
        _check_literal(condition)
        return _equals(condition)
    return _all([_operator(name, operand) for name, operand in condition.items()])


def _operator(name: str, operand: Any) -> Verdict:
    if name in _COMPILERS:
        return _COMPILERS[name](operand)
    if name in _ORDERS:
        return _ordered(_ORDERS[name], operand)
    return _join(name, operand, _condition)


def _join(name: str, operand: Any, compile_part: Callable[[Any], Verdict]) -> Verdict:
    """Compile `$and`, `$or` or `$not` over parts that `compile_part` knows."""
    if name == "$not":
        return _negate(compile_part(operand))
    if name not in ("$and", "$or"):
        raise InvalidFilter(f"{name!r} is not an operator here; the operators are {', '.join(_OPERATORS)}")
    if not isinstance(operand, list | tuple) or not operand:
        raise InvalidFilter(f"{name} takes a list of at least one condition")
    parts = [compile_part(part) for part in operand]
    return _all(parts) if name == "$and" else lambda value: any(part(value) for part in parts)


def _all(parts: list[Verdict]) -> Verdict:
    return parts[0] if len(parts) == 1 else lambda value: all(part(value) for part in parts)


def _negate(verdict: Verdict) -> Verdict:
    return lambda value: not verdict(value)


def _equals(operand: Any) -> Verdict:
    _check_operand(operand)
    if operand is None:
        return lambda value: value is None or value is MISSING
    return lambda value: value is not MISSING and json_equal(value, operand)


def _among(operand: Any) -> Verdict:
    if isinstance(operand, str) or not isinstance(operand, list | tuple | set | frozenset):
        raise InvalidFilter(f"$in and $nin take a list, got {type(operand).__name__}")
    parts = [_equals(part) for part in operand]
    return lambda value: any(part(value) for part in parts)


def _exists(operand: Any) -> Verdict:
    if not isinstance(operand, bool):
        raise InvalidFilter(f"$exists takes True or False, got {type(operand).__name__}")
    return lambda value: (value is not MISSING) is operand


def _contains(operand: Any) -> Verdict:
    _check_operand(operand)
    wanted = list(operand) if isinstance(operand, list | tuple) else [operand]

    def holds(value: Any) -> bool:
        if isinstance(value, list):
            return all(any(json_equal(part, want) for part in value) for want in wanted)
        return isinstance(value, str) and isinstance(operand, str) and operand in value

    return holds


def _ordered(compare: Callable[[Any, Any], bool], operand: Any) -> Verdict:
    _check_operand(operand)
    kind = _order_kind(operand)
    return lambda value: kind is not None and _order_kind(value) is kind and compare(value, operand)


def _order_kind(value: Any) -> type | None:
    """Say which values a value can be ordered against: numbers, texts or none."""
    if isinstance(value, str):
        return None if "\0" in value else str  # no stored text has NUL, so nothing compares with one that does
    return float if isinstance(value, int | float) and not isinstance(value, bool) else None


_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$gt": lambda value, operand: value > operand,
    "$gte": lambda value, operand: value >= operand,
    "$lt": lambda value, operand: value < operand,
    "$lte": lambda value, operand: value <= operand,
}
_COMPILERS: Final[dict[str, Callable[[Any], Verdict]]] = {
    "$eq": _equals,
    "$ne": lambda operand: _negate(_equals(operand)),
    "$in": _among,
    "$nin": lambda operand: _negate(_among(operand)),
    "$exists": _exists,
    "$contains": _contains,
}
_OPERATORS: Final = (*_COMPILERS, *_ORDERS, "$and", "$or", "$not")


def _is_operators(object_: Mapping[Any, Any]) -> bool:
    """Tell an object of operators from one of plain keys."""
    for key in object_:
        if not isinstance(key, str):
            raise InvalidFilter(f"keys are text, got {type(key).__name__}")
    marked = [key.startswith("$") for key in object_]
    if any(marked) and not all(marked):
        raise InvalidFilter("operators ($...) and plain keys stand in one object; join them with $and")
    return any(marked)


def _check_literal(literal: Any) -> None:
    """Refuse operators inside an object that is to be compared whole: they would silently match nothing."""
    if isinstance(literal, Mapping):
        if _is_operators(literal):
            raise InvalidFilter(
                "an operator stands inside an object that is compared whole; "
                "name the inner field with dots ('a.b'), or compare the literal with $eq"
            )
        for part in literal.values():
            _check_literal(part)
    elif isinstance(literal, list | tuple):
        for part in literal:
            _check_literal(part)


def _check_operand(operand: Any) -> None:
    """Refuse an operand of a type that no JSON value has; unstorable values of the right types only match nothing."""
    if isinstance(operand, Mapping):
        for key, part in operand.items():
            if not isinstance(key, str):
                raise InvalidFilter(f"keys are text, got {type(key).__name__}")
            _check_operand(part)
    elif isinstance(operand, list | tuple):
        for part in operand:
            _check_operand(part)
    elif operand is not None and not isinstance(operand, str | int | float):
        kind = type(operand).__name__
        raise InvalidFilter(f"an operand of type {kind} equals no JSON value; use text (isoformat()) or a number")


def _narrow(filter: Mapping[str, Any]) -> list[Narrowing]:
    """Collect what SQL may use: equalities and bounds of scalars on plainly spelled fields."""
    found: list[Narrowing] = []
    for name, condition in filter.items():
        paths = _plain_paths(name)
        if paths is None:
            continue
        operators = condition if isinstance(condition, Mapping) and condition else {"$eq": condition}
        for operator, operand in operators.items():
            relation = _RELATIONS.get(operator)
            if relation == "among":
                if all(isinstance(part, str) and _is_plain(part) for part in operand):
                    found.append(Narrowing(paths, relation, tuple(operand)))
            elif relation is not None and _is_scalar(operand):
                found.append(Narrowing(paths, relation, operand))
    return found


_RELATIONS: Final[dict[str, Literal["equal", "at_least", "at_most", "among"]]] = {
    "$eq": "equal", "$in": "among", "$gt": "at_least", "$gte": "at_least", "$lt": "at_most", "$lte": "at_most",
}  # fmt: skip


def _plain_paths(name: str) -> tuple[tuple[str, ...], ...] | None:
    """List the ways a field can be spelled in a stored value, where they are few and need no escaping in SQL."""
    parts = tuple(name.split("."))
    if name.startswith("$") or len(parts) > 2 or not all(parts) or not _is_plain(name):  # noqa: PLR2004  two ways at most
        return None
    return ((name,),) if len(parts) == 1 else ((name,), parts)


def _is_plain(text: str) -> bool:
    return text.isprintable() and not set('"\\') & set(text)


def _is_scalar(operand: Any) -> bool:
    """Tell whether every driver can bind the operand: text without escapes, or a number doubles tell apart."""
    if isinstance(operand, str):
        return _is_plain(operand)
    return isinstance(operand, int | float) and abs(operand) < 2**53
