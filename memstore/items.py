"""Values and times as they are stored, and back.

A value is JSON text that keeps everything it was given: key order, floats bit for bit, integers of any size. A time is
a whole number of microseconds since 1970 in UTC.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias

from langgraph.store.base import Item, SearchItem

from memstore.errors import DatabaseDamaged, InvalidKey, InvalidValue, UnstorableType
from memstore.namespaces import from_path, is_storable
from memstore.steps import Row

Microseconds: TypeAlias = int

MAX_DEPTH: Final = 200
"""Levels of nesting a value may have; Python's JSON reader gives up near 1,000, less the caller's own stack."""
_LONG_INT: Final = 10**4000
"""From here on Python's int() and str() refuse (their limit is 4,300 digits), and Decimal does the conversion."""
_LONG_TEXT: Final = 4000
"""Characters up to which no integer in a text can be so long."""
_DECODER: Final = json.JSONDecoder()
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WAYS_OUT: Final = {
    "datetime": "isoformat()", "date": "isoformat()", "time": "isoformat()", "timedelta": "total_seconds()",
    "bytes": "base64 text", "bytearray": "base64 text", "set": "a list", "frozenset": "a list",
    "Decimal": "str() or float()", "UUID": "str()", "ndarray": "tolist()", "generic": "item()", "generator": "a list",
}  # fmt: skip


def to_key(key: Any) -> str:
    """Check a key; what is not text becomes text, alike on every call.

    Raises:
        InvalidKey: It contains NUL or a lone surrogate.
    """
    text = str(key)
    if not is_storable(text):
        raise InvalidKey("it contains NUL or a lone surrogate")
    return text


def to_json(value: Any) -> str:
    """Encode a value as JSON text, after checking all of it.

    Raises:
        UnstorableType: The value is no dict, or a part of it has no place in JSON; the message says where.
        InvalidValue: NaN, an infinity, NUL, a lone surrogate or too deep a nesting; the message says where.
    """
    return to_stored(value)[0]


def to_stored(value: Any) -> tuple[str, Any]:
    """Encode a value as `to_json` does, and give with it what `from_json` decodes.

    JSON's own encoder refuses most of what has no place here, and text that decodes to what it was made of had keys of
    text only. What is not settled by this is checked part by part: all that is wrong, tuples, and much nesting.
    """
    if not isinstance(value, dict):
        if not isinstance(value, Mapping):
            raise UnstorableType(f"a value is a dict, got {type(value).__name__}; {_way_out(value)}")
        value = dict(value)
    try:
        text = _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError):
        text = ""
    if text and _is_plain(text):
        decoded = from_json(text)
        if decoded == value:
            return text, decoded
    if _check(value, "", 0):
        text = _encode_long(value)
    text = text or _ENCODER.encode(value)
    return text, from_json(text)


def from_json(text: str) -> Any:
    """Decode what `to_json` encoded; everything in it is fresh.

    Raises:
        ValueError: It is no JSON.
    """
    if len(text) > _LONG_TEXT:
        return json.loads(text, parse_int=_parse_int)
    value, end = _DECODER.raw_decode(text)
    if end != len(text):
        raise ValueError("something follows the value")
    return value


def from_stored(text: str) -> dict[str, Any]:
    """Decode a value that a row holds.

    Raises:
        DatabaseDamaged: It is no JSON object.
    """
    try:
        value = from_json(text)
    except ValueError as error:
        raise DatabaseDamaged("the value of an item is no JSON; check() counts them") from error
    if not isinstance(value, dict):
        raise DatabaseDamaged("the value of an item is no JSON object; check() counts them")
    return value


def read_clock() -> Microseconds:
    """Give the time now."""
    return time.time_ns() // 1_000


def to_microseconds(moment: datetime) -> Microseconds:
    """Encode a timezone-aware time."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def from_microseconds(microseconds: Microseconds) -> datetime:
    """Decode a time, in UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)


@dataclass(frozen=True, slots=True)
class Found:
    """An item that a read returns, with what is needed to refresh it afterwards."""

    item: Item
    id: int
    ttl: float | None
    """Minutes."""
    expires_at: Microseconds | None


def to_found(row: Row, value: Any, score: float | None = None, *, scored: bool = False) -> Found:
    """Build what a read returns from a row (id, path, key, value, created_at, updated_at, ttl, expires_at).

    Args:
        row: The row.
        value: Its value, decoded.
        score: The relevance, for a search with a query.
        scored: Whether a `SearchItem` is wanted, which has a place for a score.
    """
    item_id, path, key, _, created, updated, ttl, expires_at = row
    namespace, created_at, updated_at = from_path(path), from_microseconds(created), from_microseconds(updated)
    item: Item
    if scored:
        item = SearchItem(namespace, key, value, created_at, updated_at, score)
    else:
        item = Item(namespace=namespace, key=key, value=value, created_at=created_at, updated_at=updated_at)
    return Found(item, item_id, ttl, expires_at)


def _is_plain(text: str) -> bool:
    """Tell whether encoded text surely holds no NUL, no lone surrogate and no deep nesting."""
    return (
        "\\u0000" not in text
        and text.count("{") + text.count("[") <= MAX_DEPTH
        and (text.isascii() or is_storable(text))
    )


def _check(value: Any, place: str, depth: int) -> bool:
    """Check one part of a value and all below it; tell whether an integer needs the slow encoding."""
    if isinstance(value, str):
        if not is_storable(value):
            raise InvalidValue(f"the text at {place} contains NUL or a lone surrogate; remove or escape it")
        return False
    if value is None or isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) >= _LONG_INT
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidValue(f"the number at {place} is NaN or infinite; use None or text")
        return False
    if depth >= MAX_DEPTH:
        raise InvalidValue(f"it nests deeper than {MAX_DEPTH} levels, or contains itself")
    if isinstance(value, dict):
        return _check_object(value, place, depth)
    if isinstance(value, list | tuple):
        parts = [
            _check(part, f"{place}[{at}]", depth + 1) for at, part in enumerate(value)
        ]  # every part is checked, whatever those before it said
        return any(parts)
    raise UnstorableType(f"{place or 'the value'} is of type {type(value).__name__}; {_way_out(value)}")


def _check_object(value: Mapping[Any, Any], place: str, depth: int) -> bool:
    for key in value:
        if not isinstance(key, str):
            raise UnstorableType(f"a key of {place or 'the value'} is of type {type(key).__name__}; use text")
        if not is_storable(key):
            raise InvalidValue(f"a key of {place or 'the value'} contains NUL or a lone surrogate")
    parts = [_check(part, f"{place}.{key}" if place else key, depth + 1) for key, part in value.items()]
    return any(parts)


def _way_out(value: Any) -> str:
    if hasattr(value, "model_dump"):
        return "use model_dump(mode='json')"
    names = {kind.__name__ for kind in type(value).__mro__}
    ways = [way for name, way in _WAYS_OUT.items() if name in names]
    return f"use {ways[0]}" if ways else "use text, numbers, booleans, None, lists and dicts"


def _parse_int(digits: str) -> int:
    return int(digits) if len(digits) <= _LONG_TEXT else int(Decimal(digits))


def _encode_long(value: Any) -> str:
    """Encode a value that holds integers longer than Python's own limit for text."""
    if isinstance(value, dict):
        parts = [f"{json.dumps(key, ensure_ascii=False)}:{_encode_long(part)}" for key, part in value.items()]
        return "{" + ",".join(parts) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_encode_long, value)) + "]"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _LONG_INT:
        return format(Decimal(value), "f")
    return json.dumps(value, ensure_ascii=False)
