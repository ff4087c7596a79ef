"""Items and filters by chance, so made that most filters let some items through and not others.

They come from a seed that hypothesis draws: its own strategies, left to themselves, make filters that hardly ever
meet the items.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

NAMES: Final = ("a", "b", "a.b", "b.a.b", 'x "y', "é")
_NUMBERS: Final = (0, 1, -1, 2, 0.5, 1.0, -0.0, 2**53, 2**53 + 1, float(2**53), 10**30, 1e30, 5e-324, -1e-310, 10**400)
_TEXTS: Final = (
    "",
    "a",
    "b",
    "ab",
    "A",
    "1",
    "true",
    "é",
    "e\u0301",
    "日本",
    "\uffff",
    "😀",
    "'",
    '"',
    "\\",
    "%",
    "a\nb",
)
_COMPARISONS: Final = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$contains")


def draw_objects(random: Random, count: int) -> list[dict[str, Any]]:
    """Draw objects over a few keys."""
    return [_object(random, depth=2) for _ in range(count)]


def draw_filter(random: Random, objects: list[dict[str, Any]], depth: int = 2) -> dict[str, Any]:
    """Draw a filter whose operands mostly stand in one of some objects."""
    if depth and random.random() < 0.3:
        return _joined(random, lambda: draw_filter(random, objects, depth - 1))
    names = random.sample(NAMES, random.choice([1, 1, 1, 2]))
    return {name: _condition(random, name, objects, depth) for name in names}


def _condition(random: Random, name: str, objects: list[dict[str, Any]], depth: int) -> Any:
    if depth and random.random() < 0.2:
        return _joined(random, lambda: _condition(random, name, objects, depth - 1))
    if random.random() < 0.3:
        return _operand(random, name, objects)
    names = random.sample(_COMPARISONS, random.choice([1, 1, 1, 2]))
    return {comparison: _operand_of(comparison, random, name, objects) for comparison in names}


def _joined(random: Random, part: Any) -> dict[str, Any]:
    join = random.choice(["$and", "$or", "$not"])
    return {join: part() if join == "$not" else [part() for _ in range(random.randint(1, 3))]}


def _operand_of(comparison: str, random: Random, name: str, objects: list[dict[str, Any]]) -> Any:
    if comparison == "$exists":
        return random.random() < 0.5
    if comparison in ("$in", "$nin"):
        return [_operand(random, name, objects) for _ in range(random.randint(0, 3))]
    operand = _operand(random, name, objects)
    if comparison == "$contains" and isinstance(operand, list) and random.random() < 0.7:
        return random.choice(operand) if operand else []
    return operand


def _operand(random: Random, name: str, objects: list[dict[str, Any]]) -> Any:
    """Draw what some object holds by that name or by another, or something else."""
    held = [part for object_ in objects for part in _held(object_, name)] if random.random() < 0.7 else []
    others = [part for object_ in objects for part in object_.values()] if random.random() < 0.5 else []
    return random.choice(held or others or [_value(random, depth=1)])


def _held(value: Any, name: str) -> list[Any]:
    """List what a name, or the last part of it, leads to at any level."""
    if not isinstance(value, dict):
        return []
    own = [value[part] for part in {name, name.rpartition(".")[2]} if part in value]
    return own + [found for part in value.values() for found in _held(part, name)]


def _object(random: Random, depth: int) -> dict[str, Any]:
    names = random.sample(NAMES, random.randint(0, 4))
    return {name: _value(random, depth) for name in names}


def _value(random: Random, depth: int) -> Any:
    kind = random.random()
    if depth and kind < 0.25:
        return _object(random, depth - 1)
    if depth and kind < 0.4:
        return [_element(random) for _ in range(random.randint(0, 3))]
    return _scalar(random)


def _element(random: Random) -> Any:
    """Draw what a list holds; lists of lists are left to tests that spell them out."""
    return _object(random, depth=0) if random.random() < 0.2 else _scalar(random)


def _scalar(random: Random) -> Any:
    kind = random.random()
    if kind < 0.4:
        return random.choice(_NUMBERS)
    if kind < 0.7:
        return random.choice(_TEXTS)
    if kind < 0.85:
        return random.choice([None, True, False])
    return random.choice([random.uniform(-2, 2), random.randint(-3, 3), 10.0 ** random.randint(-320, 308)])
