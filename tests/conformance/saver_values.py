"""The values of channels: what the serializer makes of them comes back, whatever a database can hold itself."""

from __future__ import annotations

import enum
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from tests.conformance.saver_callers import Saving, SyncSaver, to_checkpoint, to_config


class Colour(enum.StrEnum):
    """A text that is more."""

    RED = "red"


class Number(enum.IntEnum):
    """An integer that is more."""

    ONE = 1


class Weight(float, enum.Enum):
    """A number that is more."""

    HEAVY = 1.5


SERDE = JsonPlusSerializer(allowed_msgpack_modules=[Colour, Number, Weight])
VALUES: dict[str, Any] = {
    "None": None,
    "true": True,
    "false": False,
    "0": 0,
    "0.0": 0.0,
    "minus zero": -0.0,
    "1.0": 1.0,
    "1e16": 1e16,
    "1e22": 1e22,
    "1.7e308": 1.7e308,
    "5e-324": 5e-324,
    "1e-7": 1e-7,
    "NaN": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "2**53 + 1": 2**53 + 1,
    "2**64 - 1": 2**64 - 1,
    "-2**63": -(2**63),
    "empty text": "",
    "NUL": "a\0b",
    "NUL alone": "\0",
    "spelled NUL": "\\u0000",
    "lone surrogate": "x\ud800y",
    "pair": "🔑",
    "long text": "long " * 5000,
    "long NUL": "\0" * 5000,
    "text enum": Colour.RED,
    "integer enum": Number.ONE,
    "float enum": Weight.HEAVY,
    "bytes": b"\0\xff",
    "list": [1, "a\0", math.inf, None, -0.0],
    "tuple": (1, (2,)),
    "dict": {"a": {"b\0": [math.nan]}},
    "set": {1, 2},
    "datetime": datetime(2026, 1, 1, tzinfo=UTC),
    "true in JSON": "true",
    "empty list": [],
    "empty dict": {},
}
each_value = pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())


def look(value: Any) -> tuple[type, str]:
    """Tell values apart that are equal, and NaN from none."""
    return type(value), repr(value)


class ValuesConformance(Saving):
    """Values, as channels and as writes."""

    @pytest.fixture
    def saver(self, open_saver: Any) -> SyncSaver:
        """Open a saver that rebuilds the types of this module."""
        saver: SyncSaver = open_saver(serde=SERDE)
        return saver

    @each_value
    def test_a_value_comes_back(self, saver: SyncSaver, value: Any) -> None:
        """In type and value, as a channel and as a write, by get and by list."""
        expected = look(SERDE.loads_typed(SERDE.dumps_typed(value)))
        config = saver.put(to_config(), to_checkpoint("1", {"a": value, "b": "beside"}))
        saver.put_writes(config, [("a", value)])
        (listed,) = saver.list(to_config())
        for found in (saver.get(config), listed):
            assert found.checkpoint["channel_values"].keys() == {"a", "b"}
            assert look(found.checkpoint["channel_values"]["a"]) == expected
            assert found.pending_writes is not None
            assert look(found.pending_writes[0][2]) == expected

    @each_value
    def test_a_value_that_does_not_change_comes_back(self, saver: SyncSaver, value: Any) -> None:
        """Children that say it is not new have it as their parent has; so has a copy of the thread."""
        expected = look(SERDE.loads_typed(SERDE.dumps_typed(value)))
        config = saver.put(to_config(), to_checkpoint("0", {"a": value, "n": 0}))
        for number in range(1, 4):
            child = to_checkpoint(str(number), {"a": value, "n": number}, channel_versions={"a": 1, "n": number + 1})
            config = saver.saver.put(config, child, {}, {"n": number + 1})
        saver.copy_thread("t", "copy")
        saver.prune(["t"])
        for found in (saver.get(to_config()), saver.get(to_config("copy")), *saver.list(to_config("copy"))):
            assert look(found.checkpoint["channel_values"]["a"]) == expected
        assert saver.get(to_config()).checkpoint["channel_values"]["n"] == 3

    def test_a_value_may_become_another_kind(self, saver: SyncSaver) -> None:
        """One after the other, each in a version of its own: every checkpoint keeps what it had."""
        config = to_config()
        values = list(VALUES.values())
        for number, value in enumerate(values, 1):
            checkpoint = to_checkpoint(f"{number:03}", {"a": value}, channel_versions={"a": number})
            config = saver.saver.put(config, checkpoint, {}, {"a": number})
        listed = saver.list(to_config())
        found = [look(one.checkpoint["channel_values"]["a"]) for one in reversed(listed)]
        assert found == [look(SERDE.loads_typed(SERDE.dumps_typed(value))) for value in values]

    def test_a_channel_without_a_value_is_absent(self, saver: SyncSaver) -> None:
        """It has a version alone: it was emptied, though its parent has a value."""
        parent = saver.put(to_config(), to_checkpoint("1", {"a": [1], "b": "x"}))
        emptied = to_checkpoint("2", {}, channel_versions={"a": 2, "b": 2})
        saver.saver.put(parent, emptied, {}, {"a": 2, "b": 2})
        assert saver.get(to_config()).checkpoint == emptied
        filled = to_checkpoint("3", {"a": None}, channel_versions={"a": 3, "b": 2})
        saver.saver.put(to_config("t", "2"), filled, {}, {"a": 3})
        assert saver.get(to_config()).checkpoint == filled

    @pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30], ids=["2**64", "-2**63 - 1", "10**30"])
    def test_integers_beyond_64_bits_are_kept_or_refused(self, saver: SyncSaver, number: int) -> None:
        """The serializer refuses them, by a TypeError; none is changed, and nothing is stored of what was refused."""
        try:
            saver.put(to_config(), to_checkpoint("1", {"a": number}))
        except TypeError:
            assert saver.list(None) == []
        else:
            assert look(saver.get(to_config()).checkpoint["channel_values"]["a"]) == look(number)

    def test_the_parts_of_a_checkpoint_come_back(self, saver: SyncSaver) -> None:
        """Its format, time, versions seen and updated channels, and parts of later formats."""
        checkpoint = to_checkpoint(
            "1",
            {"a": 1, "b\\c": "x", 'd "e"': [1]},
            v=5,
            versions_seen={"node": {"a": 1}, "__input__": {}},
            updated_channels=["a"],
            later={"kept": [1, "x"]},
        )
        saver.put(to_config(), checkpoint)
        assert saver.get(to_config()).checkpoint == checkpoint
