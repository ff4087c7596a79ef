"""What users report of values that are lost, of serializers, and of checkpoints that somebody else has written."""

from __future__ import annotations

import asyncio
import enum
import math
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from memstore import InvalidConfig, MemSaver
from memstore.errors import NotEncrypted
from tests.conformance.saver_callers import (
    OpenSaver,
    Saving,
    SyncSaver,
    ids,
    name_at,
    open_at,
    to_checkpoint,
    to_config,
)
from tests.conformance.saver_reports import count_graph
from tests.support import Place

PRIVATE = "PRIVATE-123"
KEY = b"0123456789abcdef"
PLAIN = JsonPlusSerializer()
Dump = Callable[[], str]
"""Gives all that is stored, as text."""
Forge = Callable[[str, bytes], None]
"""Writes a type and bytes over what is stored of every value and write."""


class Role(enum.StrEnum):
    """A type of an application's own."""

    ADMIN = "admin"


def encrypting() -> EncryptedSerializer:
    """Make a serializer that encrypts."""
    return EncryptedSerializer.from_pycryptodome_aes(key=KEY)


class FidelityReports(Saving):
    """What is put comes back, or is refused."""

    def test_nul_is_kept_in_values(self, saver: SyncSaver) -> None:
        """In a channel and in a write; metadata leaves it out, at every depth."""
        config = saver.put(to_config(), to_checkpoint("1", {"a": "a\0b"}), {"a": {"b": "x\0"}})
        saver.put_writes(config, [("a", "c\0d")])
        found = saver.get(config)
        assert found.checkpoint["channel_values"] == {"a": "a\0b"}
        assert found.pending_writes == [("task", "a", "c\0d")]
        assert found.metadata == {"a": {"b": "x"}}

    def test_plain_values_are_exact(self, saver: SyncSaver) -> None:
        """NaN, infinity, minus zero, a lone surrogate and an enum, beside each other in one checkpoint."""
        values = {"nan": math.nan, "inf": math.inf, "zero": -0.0, "text": "x\ud800", "enum": Role.ADMIN, "big": 1e300}
        saver.put(to_config(), to_checkpoint("1", values))
        found = saver.get(to_config()).checkpoint["channel_values"]
        assert repr(sorted(found.items())) == repr(sorted({**values, "text": "x?"}.items()))
        assert type(found["enum"]) is Role

    def test_writes_in_metadata_are_dropped(self, saver: SyncSaver) -> None:
        """The key is of an older LangGraph, and held what is no JSON."""
        saver.put(to_config(), to_checkpoint("1"), {"step": 1, "writes": {"node": object()}})
        assert saver.get(to_config()).metadata == {"step": 1}

    def test_what_is_no_json_in_a_config_is_left_out(self, location: Place) -> None:
        """An application's own objects in `configurable` do not stop a run."""
        with open_at(location) as saver:
            config = to_config()
            config["configurable"] |= {"client": object(), "user": "ada", "nested": {"a": object()}}
            assert count_graph(saver).invoke({"n": 1}, config) == {"n": 2}
            (found, *_) = saver.list(to_config(), filter={"user": "ada"}, limit=1)
            assert found.metadata.keys().isdisjoint({"client", "nested"})

    def test_a_filter_is_no_sql(self, saver: SyncSaver) -> None:
        """A key that would end a string or a path is a key that nothing has; keys with spaces are keys."""
        saver.put(to_config(), to_checkpoint("1"), {"my key": 1})
        for key in ("a') OR 1=1 --", 'a" OR 1=1 --', "x' UNION SELECT 1 --", "a') = 1 OR ('1"):
            assert saver.list(None, filter={key: 1}) == []
            assert saver.list(None, filter={"my key": key}) == []
        assert ids(saver.list(None, filter={"my key": 1})) == ["1"]

    def test_a_filter_tells_true_from_1(self, saver: SyncSaver) -> None:
        """And null from nothing else; the same on every database."""
        for id_, value in (("1", True), ("2", 1), ("3", 1.0), ("4", None), ("5", {"a": 1, "b": 2})):
            saver.put(to_config(), to_checkpoint(id_), {"k": value})
        saver.put(to_config(), to_checkpoint("6"))
        wanted: list[tuple[Any, str]] = [(True, "1"), (1, "32"), (None, "64"), ({"b": 2, "a": 1}, "5"), ({"a": 1}, "")]
        for value, expected in wanted:
            assert ids(saver.list(None, filter={"k": value})) == list(expected)

    def test_what_cannot_be_encoded_leaves_nothing(self, saver: SyncSaver) -> None:
        """Of a put or of several writes; the saver works on."""
        config = saver.put(to_config(), to_checkpoint("1"))
        with pytest.raises(TypeError):
            saver.put_writes(config, [("a", 1), ("b", object())])
        with pytest.raises(TypeError):
            saver.put(config, to_checkpoint("2", {"a": [1], "b": [object()]}))
        (found,) = saver.list(None)
        assert found.pending_writes == []
        saver.put_writes(config, [("a", 2)])
        assert saver.get(config).pending_writes == [("task", "a", 2)]


class SerializerReports:
    """Serializers, wherever a saver is made."""

    @pytest.mark.parametrize("way", ["class", "open", "from_conn_string", "store"])
    def test_every_way_to_a_saver_takes_a_serializer(self, location: Place, dump: Dump, way: str) -> None:
        """And encodes with it, sync and async: nothing of a state can be read in the database."""
        serde = encrypting()
        store = location.open() if way == "store" else None
        if store is not None:
            saver = store.saver(serde=serde)
        elif way == "class":
            saver = MemSaver(location.location, **location.options, serde=serde)
        else:
            saver = (open_at if way == "open" else name_at)(location, serde=serde)
        try:
            values = {"text": PRIVATE, "list": [PRIVATE], "long": PRIVATE * 500, "none": None}
            config = saver.put(to_config(), to_checkpoint("1", values), {"step": 1}, {})
            saver.put_writes(config, [("text", PRIVATE), ("__error__", PRIVATE)], "task")
            values["text"] = f"{PRIVATE} again"
            child = to_checkpoint("2", values, channel_versions={"text": 2, "list": 1, "long": 1, "none": 1})
            asyncio.run(saver.aput(config, child, {"step": 2}, {"text": 2}))
            found = saver.get_tuple(to_config())
            assert found is not None
            assert found.checkpoint["channel_values"] == values
            assert PRIVATE not in dump()
            with open_at(location) as plain:
                plain.put(to_config("plain"), to_checkpoint("1", {"list": [PRIVATE]}), {}, {"list": 1})
            assert PRIVATE in dump()  # where it is not encrypted it would be seen
        finally:
            saver.close()
            if store is not None:
                store.close()

    def test_types_are_rebuilt_only_where_they_are_allowed(self, location: Place) -> None:
        """With None, safe ones alone: an application's own comes back as what it was made of, in values and writes."""
        with open_at(location) as open_:
            config = open_.put(to_config(), to_checkpoint("1", {"role": [Role.ADMIN]}), {}, {})
            open_.put_writes(config, [("role", Role.ADMIN)], "task")
        allowed = {"all": True, "none": None, "this": [Role]}
        rebuilt = {}
        for name, modules in allowed.items():
            with open_at(location, allowed_msgpack_modules=modules) as saver:
                found = saver.get_tuple(to_config())
                assert found is not None
                (value,) = found.checkpoint["channel_values"]["role"]
                assert found.pending_writes is not None
                ((_, _, written),) = found.pending_writes
                assert type(value) is type(written)
                rebuilt[name] = type(value)
                assert value == "admin"
        assert rebuilt == {"all": Role, "none": str, "this": Role}

    def test_an_allowlist_may_be_longer(self, location: Place) -> None:
        """LangGraph asks for a saver that rebuilds a graph's types too: it works on the same database."""
        with open_at(location, allowed_msgpack_modules=None) as strict:
            wider = strict.with_allowlist([(Role.__module__, Role.__name__)])
            wider.put(to_config(), to_checkpoint("1", {"role": [Role.ADMIN]}), {}, {})
            found, strictly = wider.get_tuple(to_config()), strict.get_tuple(to_config())
            assert found is not None
            assert strictly is not None
            assert type(found.checkpoint["channel_values"]["role"][0]) is Role
            assert type(strictly.checkpoint["channel_values"]["role"][0]) is str

    def test_types_are_allowed_by_one_setting(self, location: Place) -> None:
        """A serializer of the caller's own has its own: both together are refused."""
        with pytest.raises(InvalidConfig, match="allowed_msgpack_modules"):
            open_at(location, serde=PLAIN, allowed_msgpack_modules=None)


class ForgeryReports(Saving):
    """Checkpoints that somebody else has put into the database."""

    def open_encrypted(self, open_saver: OpenSaver) -> SyncSaver:
        """Open a saver that reads nothing else, with a checkpoint and writes."""
        saver = open_saver(serde=encrypting(), require_encrypted=True)
        root = saver.put(to_config(), to_checkpoint("1", {"role": ["user"]}), {"step": 1})
        config = saver.put(root, to_checkpoint("2", {}), {"step": 2})
        for one in (root, config):
            saver.put_writes(one, [("role", "user")])
        return saver

    def assert_refused(self, saver: SyncSaver) -> None:
        """Assert that no way of reading gives it."""
        for read in (
            lambda: saver.get_tuple(to_config("t", "1")),
            lambda: saver.list(None),
            lambda: saver.list(None, filter={"step": 1}),
            lambda: saver.saver.get_delta_channel_history(config=to_config("t", "2"), channels=["role"]),
        ):
            with pytest.raises(NotEncrypted):
                read()

    def test_what_is_encrypted_is_read(self, open_saver: OpenSaver) -> None:
        """By get, list and history."""
        saver = self.open_encrypted(open_saver)
        assert saver.get(to_config("t", "1")).checkpoint["channel_values"] == {"role": ["user"]}
        assert ids(saver.list(None)) == ["2", "1"]
        history = saver.saver.get_delta_channel_history(config=to_config("t", "2"), channels=["role"])
        assert history == {"role": {"writes": [("task", "role", "user")], "seed": ["user"]}}

    def test_a_forged_value_is_refused(self, open_saver: OpenSaver, forge_values: Forge) -> None:
        """Bytes that are not encrypted were not written by who has the key."""
        saver = self.open_encrypted(open_saver)
        whole = to_checkpoint("1", {"role": ["admin"]})
        forge_values(*PLAIN.dumps_typed(whole))
        self.assert_refused(saver)
        assert open_saver(serde=encrypting()).get_tuple(to_config("t", "1")) is not None

    def test_a_forged_write_is_refused(self, open_saver: OpenSaver, forge_writes: Forge) -> None:
        """The same for what tasks wrote."""
        saver = self.open_encrypted(open_saver)
        forge_writes(*PLAIN.dumps_typed("admin"))
        self.assert_refused(saver)
        lenient = open_saver(serde=encrypting())
        assert lenient.get(to_config("t", "1")).pending_writes == [("task", "role", "admin")]

    @pytest.mark.parametrize("serde", [None, PLAIN], ids=["own", "given"])
    def test_a_serializer_without_a_key_is_refused(self, location: Place, serde: Any) -> None:
        """Who requires encryption and has none is told at once."""
        with pytest.raises(InvalidConfig, match="require_encrypted"):
            open_at(location, serde=serde, require_encrypted=True)
