"""What a filter of `list` accepts, and what becomes of metadata: the same on every database."""

from __future__ import annotations

import math
from typing import Any

import pytest

from memstore.errors import MemStoreError
from tests.conformance.saver_callers import Saving, SyncSaver, ids, to_checkpoint, to_config

STORED: dict[str, dict[str, Any]] = {
    "true": {"k": True},
    "false": {"k": False},
    "one": {"k": 1},
    "one point": {"k": 1.0},
    "zero": {"k": 0},
    "text one": {"k": "1"},
    "empty text": {"k": ""},
    "null": {"k": None},
    "missing": {"other": 1},
    "list": {"k": ["a"]},
    "longer list": {"k": ["a", "b"]},
    "empty list": {"k": []},
    "object": {"k": {"a": 1, "b": 2}},
    "turned object": {"k": {"b": 2.0, "a": 1}},
    "small object": {"k": {"a": 1}},
    "empty object": {"k": {}},
    "nested": {"k": {"a": {"b": [1, {"c": None}]}}},
    "dotted": {"k.a": 1},
    "big": {"k": 1e23},
    "fraction": {"k": 0.1},
}
"""Metadata by the ids of checkpoints."""
EQUAL: dict[str, tuple[Any, list[str]]] = {
    "true": (True, ["true"]),
    "false": (False, ["false"]),
    "1": (1, ["one", "one point"]),
    "1.0": (1.0, ["one", "one point"]),
    "0": (0, ["zero"]),
    "minus zero": (-0.0, ["zero"]),
    "text": ("1", ["text one"]),
    "empty text": ("", ["empty text"]),
    "None": (None, ["null", "missing", "dotted"]),
    "list": (["a"], ["list"]),
    "tuple": (("a", "b"), ["longer list"]),
    "turned list": (["b", "a"], []),
    "empty list": ([], ["empty list"]),
    "object": ({"a": 1, "b": 2}, ["object", "turned object"]),
    "turned object": ({"b": 2, "a": 1.0}, ["object", "turned object"]),
    "part of an object": ({"a": 1}, ["small object"]),
    "empty object": ({}, ["empty object"]),
    "true in an object": ({"a": True}, []),
    "nested": ({"a": {"b": [1.0, {"c": None}]}}, ["nested"]),
    "nested part": ({"a": {"b": [1]}}, []),
    "big": (1e23, ["big"]),
    "fraction": (0.1, ["fraction"]),
    "NaN": (math.nan, []),
    "NUL": ("a\0", []),
    "surrogate": ("\ud800", []),
    "no JSON": (object(), []),
}
"""Values of the key k, and the checkpoints that have it."""
KEYS = [
    "my key",
    "a.b",
    ".",
    "$.a",
    'with "quotes"',
    "it's",
    "back\\slash",
    "a') OR 1=1 --",
    '"); DROP TABLE checkpoints; --',
    "[0]",
    "%s",
    "$1",
    "#checkpoints",
    "ключ 🔑",
    "\\u0000",
    "\\ud800",
    "",
]


class FiltersConformance(Saving):
    """Keys are as they are spelled, values equal as JSON."""

    @pytest.mark.parametrize(("wanted", "expected"), EQUAL.values(), ids=EQUAL.keys())
    def test_values_are_equal_as_json(self, saver: SyncSaver, wanted: Any, expected: list[str]) -> None:
        """True is no number, 1 and 1.0 are one, lists and objects are compared whole; None is null, or missing."""
        for id_, metadata in STORED.items():
            saver.put(to_config(), to_checkpoint(id_), metadata)
        assert sorted(ids(saver.list(to_config(), filter={"k": wanted}))) == sorted(expected)
        assert sorted(ids(saver.list(None, filter={"k": wanted}))) == sorted(expected)

    @pytest.mark.parametrize("key", KEYS)
    def test_keys_are_literal(self, saver: SyncSaver, key: str) -> None:
        """Spaces, dots, quotes and SQL are parts of a name: no path, no pattern, no statement."""
        saver.put(to_config(), to_checkpoint("1"), {key: "x"})
        saver.put(to_config(), to_checkpoint("2"), {"a": {"b": "x"}, "k": "x"})
        assert ids(saver.list(None, filter={key: "x"})) == ["1"]
        assert ids(saver.list(None, filter={key: "y"})) == []
        assert ids(saver.list(None, filter={key: None})) == ["2"]
        assert len(saver.list(None)) == 2

    def test_every_key_has_to_fit(self, saver: SyncSaver) -> None:
        """Several are joined by and; an empty filter is none."""
        for number in range(12):
            saver.put(to_config(), to_checkpoint(f"{number:02}"), {"two": number % 2, "three": number % 3})
        assert ids(saver.list(to_config(), filter={"two": 1, "three": 0})) == ["09", "03"]
        assert ids(saver.list(to_config(), filter={"two": 1, "three": None})) == []
        assert len(saver.list(to_config(), filter={})) == len(saver.list(to_config(), filter=None)) == 12

    def test_filters_meet_limits_and_bounds(self, saver: SyncSaver) -> None:
        """The limit counts what fits; thread, namespace, id and `before` hold as well."""
        for thread, namespace in (("t", ""), ("t", "sub"), ("u", "")):
            for number in range(10):
                saver.put(to_config(thread, None, namespace), to_checkpoint(f"{number}"), {"odd": bool(number % 2)})
        odd = {"odd": True}
        assert ids(saver.list(to_config(), filter=odd, limit=2)) == ["9", "7"]
        assert ids(saver.list(to_config(), filter=odd, before=to_config("t", "7"), limit=2)) == ["5", "3"]
        assert ids(saver.list(to_config("t", None, None), filter=odd, limit=3)) == ["9", "9", "7"]
        assert ids(saver.list(to_config("t", "3"), filter=odd)) == ["3"]
        assert ids(saver.list(to_config("t", "4"), filter=odd)) == []
        assert ids(saver.list(None, filter=odd, limit=0)) == []

    @pytest.mark.parametrize("wrong", ["k", ["k"], 1], ids=repr)
    def test_a_filter_is_a_dict(self, saver: SyncSaver, wrong: Any) -> None:
        """Anything else is refused, by a ValueError of memstore's."""
        with pytest.raises(ValueError, match="filter") as refusal:
            saver.list(None, filter=wrong)
        assert isinstance(refusal.value, MemStoreError)

    def test_metadata_that_had_nan_can_be_filtered(self, saver: SyncSaver) -> None:
        """One such checkpoint spoils no query; its value is null."""
        saver.put(to_config(), to_checkpoint("1"), {"k": math.nan})
        saver.put(to_config(), to_checkpoint("2"), {"k": 1})
        assert ids(saver.list(None, filter={"k": 1})) == ["2"]
        assert ids(saver.list(None, filter={"k": None})) == ["1"]


class MetadataConformance(Saving):
    """Metadata is JSON, and a config's own is merged into it."""

    def read_back(self, saver: SyncSaver, metadata: Any) -> Any:
        """Put metadata and read it by get and by list."""
        config = saver.put(to_config(), to_checkpoint("1"), metadata)
        (listed,) = saver.list(to_config())
        found = saver.get(config).metadata
        assert listed.metadata == found
        return found

    def test_json_comes_back(self, saver: SyncSaver) -> None:
        """However nested; tuples are lists."""
        metadata = {
            "source": "loop",
            "step": -1,
            "parents": {"": "1", "a:b|c": "2"},
            "nested": {"a": [1, 2.5, None, True, "x", {"y": []}], "ключ": "значение 🔑"},
            "text": "quotes \" ' and \\ and \n and \\u0000",
            "large": 2**62,
        }
        found = self.read_back(saver, {**metadata, "tuple": (1, (2,))})
        assert found == {**metadata, "tuple": [1, [2]]}

    @pytest.mark.parametrize("number", [0.1, 1e-7, 123456.789, 1e22, 1e23, 1.7e308, 5e-324, 2**70, -(2**70)], ids=repr)
    def test_numbers_keep_their_value(self, saver: SyncSaver, number: float) -> None:
        """As JSON has it: a float without a fraction may come back as an integer, but is the same number."""
        assert self.read_back(saver, {"k": number}) == {"k": number}
        assert ids(saver.list(None, filter={"k": number})) == ["1"]

    def test_what_is_no_number_becomes_null(self, saver: SyncSaver) -> None:
        """NaN and infinities, at every depth; all else stays."""
        stored = {"a": math.nan, "b": [math.inf, 1, {"c": -math.inf, "d": "NaN"}], "e": (math.nan,)}
        assert self.read_back(saver, stored) == {"a": None, "b": [None, 1, {"c": None, "d": "NaN"}], "e": [None]}

    def test_nul_is_left_out(self, saver: SyncSaver) -> None:
        """In texts at every depth, and in keys."""
        stored = {"a": "x\0y", "b": {"c": "\0", "d\0e": ["\0\0z"]}, "f": ("g\0",)}
        assert self.read_back(saver, stored) == {"a": "xy", "b": {"c": "", "de": ["z"]}, "f": ["g"]}

    def test_lone_surrogates_are_replaced(self, saver: SyncSaver) -> None:
        """In texts and keys; whole pairs are texts like others."""
        stored = {"a": "x\ud800y", "b": {"\udfff": ["🔑\ud83d"]}}
        assert self.read_back(saver, stored) == {"a": "x?y", "b": {"?": ["🔑?"]}}

    @pytest.mark.parametrize(
        "part", [object(), {1, 2}, b"bytes", {"a": [object()]}], ids=["object", "set", "bytes", "deep"]
    )
    def test_what_is_no_json_is_refused(self, saver: SyncSaver, part: Any) -> None:
        """By a TypeError of memstore's that names the part; nothing is stored."""
        with pytest.raises(TypeError, match="wrong part") as refusal:
            saver.put(to_config(), to_checkpoint("1"), {"step": 1, "wrong part": part})
        assert isinstance(refusal.value, MemStoreError)
        assert saver.list(None) == []

    def test_metadata_that_holds_itself_is_refused(self, saver: SyncSaver) -> None:
        """By an error of memstore's, as whatever is no JSON."""
        loop: dict[str, Any] = {}
        loop["loop"] = loop
        with pytest.raises(MemStoreError):
            saver.put(to_config(), to_checkpoint("1"), {"k": loop})
        assert saver.list(None) == []

    def test_numbers_too_long_to_spell_are_refused(self, saver: SyncSaver) -> None:
        """By an error of memstore's: Python spells no integer of so many digits."""
        with pytest.raises(MemStoreError):
            saver.put(to_config(), to_checkpoint("1"), {"k": 10**5000})
        assert saver.list(None) == []

    def test_a_config_s_own_metadata_is_merged(self, saver: SyncSaver) -> None:
        """Plain values of its metadata and configurable, where the checkpoint's own has none of that name."""
        config = to_config()
        config["metadata"] = {"run_id": "r", "step": "not this", "nested": {"a": 1}, "__hidden": 1}
        config["configurable"] |= {"user": "ada", "n": 1.5, "__pregel_x": 1, "object": object(), "list": [1]}
        saver.put(config, to_checkpoint("1"), {"step": 3})
        expected = {"step": 3, "run_id": "r", "user": "ada", "n": 1.5}
        assert saver.get(to_config()).metadata == expected
        assert ids(saver.list(to_config(), filter=expected)) == ["1"]
