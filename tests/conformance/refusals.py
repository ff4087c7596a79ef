"""Values that are refused: rule 6 of the contract, for every kind of thing that has no place in JSON."""

from __future__ import annotations

import datetime as dt
import math
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from langgraph.store.base import GetOp, PutOp
from pydantic import BaseModel

from tests.support import OpenStore, SyncCaller


class Model(BaseModel):
    """A pydantic model, as agents put them by mistake."""

    text: str = "secret"


@dataclass
class Record:
    """A dataclass."""

    text: str = "secret"


class Plain(Enum):
    """An enumeration whose members are no text."""

    ONE = 1


MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
WRONG_TYPES: dict[str, tuple[Any, str]] = {
    "datetime": (MOMENT, r"isoformat\(\)"),
    "date": (MOMENT.date(), r"isoformat\(\)"),
    "time": (MOMENT.time(), r"isoformat\(\)"),
    "timedelta": (dt.timedelta(1), "total_seconds"),
    "bytes": (b"secret", "base64"),
    "bytearray": (bytearray(b"secret"), "base64"),
    "memoryview": (memoryview(b"secret"), "use"),
    "set": ({1, 2}, "list"),
    "frozenset": (frozenset(), "list"),
    "deque": (deque([1]), "use"),
    "range": (range(3), "use"),
    "generator": ((part for part in "ab"), "list"),
    "array": (array("d", [1.0]), "use"),
    "Decimal": (Decimal("1.5"), r"str\(\)"),
    "Fraction": (Fraction(1, 2), "use"),
    "complex": (1j, "use"),
    "UUID": (UUID(int=1), r"str\(\)"),
    "Path": (Path("secret"), "use"),
    "numpy integer": (np.int64(1), r"item\(\)"),
    "numpy float": (np.float32(1.5), r"item\(\)"),
    "numpy boolean": (np.bool_(True), r"item\(\)"),  # noqa: FBT003  there is no other way to make one
    "numpy array": (np.arange(3), r"tolist\(\)"),
    "pydantic model": (Model(), r"model_dump\(mode=.json.\)"),
    "dataclass": (Record(), "use"),
    "enum": (Plain.ONE, "use"),
    "namespace": (SimpleNamespace(a=1), "use"),
    "object": (object(), "use"),
    "class": (dict, "use"),
    "function": (len, "use"),
    "ellipsis": (..., "use"),
}
"""What is put, and the way out its error names."""
WRONG_VALUES: dict[str, Any] = {
    "NaN": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "numpy NaN": np.float64("nan"),
    "NUL": "\0",
    "NUL inside": "secret\0secret",
    "high surrogate": "secret\ud800",
    "low surrogate": "\udfff",
    "surrogates that pair": "\ud83d\ude00",
}
WRONG_KEYS: list[Any] = [1, 1.5, True, None, ("a",), b"a", Plain.ONE]
PLACES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "field": lambda part: {"fine": 1, "field": part},
    "outer.inner": lambda part: {"outer": {"inner": part}},
    "list[1]": lambda part: {"list": ["fine", part]},
    "a[0][2].b c": lambda part: {"a": [[1, 2, {"b c": part}]]},
    "t[0].é": lambda part: {"t": ({"é": part}, 1)},
}
"""Where the fault is, as the error spells it, and a value that has it there."""
NO_OBJECTS: dict[str, Any] = {
    "text": "secret",
    "number": 5,
    "zero": 0,
    "boolean": True,
    "list": [],
    "pairs": [("a", 1)],
    "tuple": ({"a": 1},),
    "set": {"a"},
    "datetime": MOMENT,
    "bytes": b"{}",
    "model": Model(),
}


class RefusalsConformance:
    """What cannot be kept is refused whole, before anything is written."""

    @pytest.mark.parametrize("name", WRONG_TYPES)
    def test_a_type_without_place_in_json_is_a_type_error(self, open_store: OpenStore, name: str) -> None:
        """The error is a TypeError that names the place in the value and the way out; nothing of the batch is done."""
        store = open_store()
        part, way_out = WRONG_TYPES[name]
        for place, make in PLACES.items():
            assert place in _refuse(store, make(part), TypeError, way_out)

    @pytest.mark.parametrize("name", WRONG_VALUES)
    def test_a_value_no_backend_can_keep_is_a_value_error(self, open_store: OpenStore, name: str) -> None:
        """Numbers that are none and texts that PostgreSQL cannot keep are refused on every backend alike."""
        store = open_store()
        for place, make in PLACES.items():
            assert place in _refuse(store, make(WRONG_VALUES[name]), ValueError, "NaN or infinite|NUL")

    @pytest.mark.parametrize("key", WRONG_KEYS, ids=repr)
    def test_keys_that_are_no_text_are_refused(self, open_store: OpenStore, key: Any) -> None:
        """A number as a key would come back as text, so it is a TypeError that names the object."""
        store = open_store()
        for place, make in PLACES.items():
            assert place in _refuse(store, make({"fine": 1, key: 2}), TypeError, "key")

    @pytest.mark.parametrize("key", ["\0", "a\0", "\ud800", "a\udc00b"], ids=ascii)
    def test_keys_no_backend_can_keep_are_refused(self, open_store: OpenStore, key: str) -> None:
        """NUL and lone surrogates are refused in keys as in texts."""
        store = open_store()
        _refuse(store, {key: 1}, ValueError, "key")
        message = _refuse(store, {"outer": [{"fine": 1, key: 2}]}, ValueError, "key")
        assert "outer[0]" in message

    @pytest.mark.parametrize("name", NO_OBJECTS)
    def test_a_value_is_an_object(self, open_store: OpenStore, name: str) -> None:
        """Texts, lists and models are no values of their own, not even false ones; only None means to delete."""
        _refuse(open_store(), NO_OBJECTS[name], TypeError, "dict")

    def test_errors_carry_no_texts(self, open_store: OpenStore) -> None:
        """Errors end up in logs: they name places and types, never what a user stored."""
        store = open_store()
        for part in [*(part for part, _ in WRONG_TYPES.values()), *WRONG_VALUES.values()]:
            with pytest.raises((TypeError, ValueError)) as caught:
                store.put(("a",), "k", {"field": ["secret", part]})
            assert "secret" not in str(caught.value)


def _refuse(store: SyncCaller, value: Any, error: type[Exception], match: str) -> str:
    """Put a wrong value by method and by op; check that nothing has changed; give the error's message."""
    store.put(("a",), "k", {"kept": 1})
    before = store.stats().clock
    with pytest.raises(error, match=match):
        store.batch(
            [
                PutOp(("b",), "k", {}),
                PutOp(("a",), "k", None),
                GetOp(("a",), "k"),
                PutOp(("a",), "k", value),
                PutOp(("c",), "k", {}),
            ]
        )
    with pytest.raises(error, match=match) as caught:
        store.put(("a",), "k", value)
    (item,) = store.search(())
    assert (item.namespace, item.value) == (("a",), {"kept": 1})
    assert store.stats().clock == before
    return str(caught.value)
