"""Values: rules 6 and 7 of the contract, and what deep nesting does. Times and refusals have files of their own."""

from __future__ import annotations

from copy import deepcopy
from enum import Enum
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given
from langgraph.store.base import GetOp, Op, PutOp, SearchOp

from tests.conformance.json_values import AWKWARD_FLOATS, OBJECTS, PROPERTY, is_same
from tests.support import OpenStore, SyncCaller, WordEmbeddings, keys

LONG_INTEGERS = {
    "2**53 + 1": 2**53 + 1,
    "2**63": 2**63,
    "2**64": 2**64,
    "-2**64 - 1": -(2**64) - 1,
    "10**3999": 10**3_999,
    "10**4000 - 1": 10**4_000 - 1,
    "10**4000": 10**4_000,
    "10**4299": 10**4_299,
    "10**4300": 10**4_300,
    "10**5000 + 1": 10**5_000 + 1,
    "-10**5000 - 7": -(10**5_000) - 7,
    "2**70000": 2**70_000,
}
"""By name, since Python itself writes no integer of more than 4,300 digits."""


class Colour(str, Enum):  # noqa: UP042  its str() is `Colour.RED`, unlike a StrEnum's
    """Text with a name."""

    RED = "crimson"


class ValuesConformance:
    """A value comes back as it was put, and belongs to whoever got it."""

    def test_values_come_back_as_they_were_put(self, open_store: OpenStore) -> None:
        """Every JSON object survives to the bit, through `get` and through `search`, and over a replacement."""
        store = open_store()
        keys_ = (f"k{number}" for number in count())

        @PROPERTY
        @given(OBJECTS, OBJECTS)
        @example({}, {"": {"": [[], {}, ""]}})
        @example({"k": -0.0, "l": 0, "m": 0.0, "n": 1.0, "o": 1, "p": True}, {"k": None, "j": False})
        @example(
            {"\x01\x1f\x7f": '\\"/\b\f\n\r\t\u2028\u2029\ufeff\uffff😀'}, {"$": {"$eq": 1}, "a.b": {"a": {"b": 1}}}
        )
        def survives(first: dict[str, Any], second: dict[str, Any]) -> None:
            key = next(keys_)
            for value in (first, second):
                store.put(("a", key), key, value)
                (item,) = store.search(("a", key))
                assert is_same(_value(store, ("a", key), key), value)
                assert is_same(item.value, value)

        survives()

    def test_floats_survive_bit_for_bit(self, open_store: OpenStore) -> None:
        """The longest decimals, the smallest and the largest numbers and both zeros come back, still as floats."""
        store = open_store()
        value = {"list": list(AWKWARD_FLOATS), **{str(number): number for number in AWKWARD_FLOATS}}
        store.put(("a",), "k", value)
        assert is_same(_value(store), value)

    @pytest.mark.parametrize("name", LONG_INTEGERS)
    def test_integers_survive_whatever_their_size(self, open_store: OpenStore, name: str) -> None:
        """No number is rounded to a float or to 64 bits, alone or between other values, with and without an index."""
        number = LONG_INTEGERS[name]
        value = {"n": number, "l": [1, number, {"m": -number, 'q"\\\n': 'é"\\\n'}], "f": 1e22, "t": True, "e": [{}, []]}
        for index in [None, {"embed": WordEmbeddings(), "fields": ["n", "$"]}]:
            store = open_store(index=index)
            store.put(("a",), "k", value)
            (item,) = store.search(("a",))
            assert is_same(_value(store), value)
            assert is_same(item.value, value)

    def test_key_order_is_kept(self, open_store: OpenStore) -> None:
        """Keys come back in the order they were put, on every level, and in the new order after an update."""
        store = open_store()
        for names in ["zaybxc", "cxbyaz"]:
            value = {name: {inner: [dict.fromkeys(names, 1)] for inner in names} for name in names}
            store.put(("a",), "k", value)
            assert is_same(_value(store), value)

    def test_tuples_become_lists(self, open_store: OpenStore) -> None:
        """JSON has one kind of list; a tuple comes back as that, wherever it stood."""
        store = open_store()
        store.put(("a",), "k", {"t": (1, (2, [(3,)]), ()), "d": {"t": ({"u": (4,)},)}})
        assert is_same(_value(store), {"t": [1, [2, [[3]]], []], "d": {"t": [{"u": [4]}]}})

    @pytest.mark.parametrize("value", [{"tags": ("crimson", "green")}, {"tags": [Colour.RED]}], ids=["tuple", "enum"])
    def test_what_is_indexed_is_what_is_kept(self, open_store: OpenStore, value: dict[str, Any]) -> None:
        """The stored value is what is embedded: a tuple as a list, an enumeration's member as its text."""
        store = open_store(index={"embed": WordEmbeddings(), "fields": ["tags[*]"]})
        store.put(("a",), "k", value)
        assert _value(store)["tags"][0] == "crimson"
        (item,) = store.search(("a",), query="crimson")
        assert item.score == pytest.approx(1.0)
        assert store.check().problems == ()

    def test_large_values_survive(self, open_store: OpenStore) -> None:
        """A megabyte of text and ten thousand keys are no limit, and numbers beside them stay exact."""
        store = open_store()
        value = {"text": "é😀 \\" * 200_000, "many": {f"key {number}": 2**64 + number for number in range(10_000)}}
        store.put(("a",), "k", value)
        assert is_same(_value(store), value)

    def test_none_deletes(self, open_store: OpenStore) -> None:
        """A value of None deletes, by method and by op; None inside a value is null and stays."""
        store = open_store()
        for key in "abc":
            store.put(("a",), key, {"n": None, "l": [None]})
        assert _value(store, key="a") == {"n": None, "l": [None]}
        store.put(("a",), "a", None)
        store.batch([PutOp(("a",), "b", None), PutOp(("a",), "absent", None)])
        store.put(("a",), "absent", None)
        assert keys(store.search(("a",))) == ["c"]
        store.put(("a",), "a", {})
        assert _value(store, key="a") == {}

    def test_what_was_put_is_a_copy(self, open_store: OpenStore) -> None:
        """Changing the object that was put, however deep, changes nothing stored; nor are two keys one object."""
        store = open_store()
        value: dict[str, Any] = {"list": [1, {"deep": [2]}], "object": {"n": 1}}
        kept = deepcopy(value)
        store.put(("a",), "k", value)
        store.batch([PutOp(("a",), "l", value), PutOp(("a",), "m", value)])
        value["list"][1]["deep"].append(3)
        value["object"]["n"] = 2
        value["new"] = True
        _value(store, key="m")["object"]["n"] = 3
        assert [_value(store, key=key) for key in "klm"] == [kept] * 3

    def test_what_was_got_is_yours(self, open_store: OpenStore) -> None:
        """Each caller gets objects of its own: what one writes into a result no other sees, within a batch neither."""
        store = open_store(index={"embed": WordEmbeddings(), "fields": ["text"]})
        value = {"text": "red", "list": [1, {"deep": [2]}]}
        store.put(("a",), "k", value)
        read: list[Op] = [
            GetOp(("a",), "k"),
            GetOp(("a",), "k"),
            SearchOp(("a",)),
            SearchOp((), query="red"),
            SearchOp(("a",)),
        ]
        for _ in range(2):
            replies = store.batch(read)
            items = [*replies[:2], *(reply[0] for reply in replies[2:])]
            items += [store.get(("a",), "k"), *store.search(("a",)), *store.search(("a",), query="red")]
            for item in items:
                assert item.value == value
                item.value["list"][1]["deep"].append(3)
                item.value["score"] = 1
            assert len({id(item) for item in items}) == len(items)

    @pytest.mark.parametrize("kind", ["lists", "objects"])
    def test_what_is_accepted_can_be_read(self, open_store: OpenStore, kind: str) -> None:
        """However deep a value nests, it is refused with a ValueError or comes back through every read."""
        store = open_store()
        accepted = []
        for depth in [1, 50, 100, 150, 198, 199, 200, 201, 400, 900, 990, 1_000, 2_000, 100_000]:
            value: Any = 1
            for _ in range(depth - 1):
                value = [value] if kind == "lists" else {"a": value}
            try:
                store.put((kind,), str(depth), {"a": value})
            except ValueError as error:
                assert "nest" in str(error)  # noqa: PT017  only some depths are refused
                continue
            accepted.append(str(depth))
            assert _value(store, (kind,), str(depth)) == {"a": value}
            assert keys(store.search((kind,), filter={"a": value})) == [str(depth)]
            assert keys(store.search((kind,), filter={"a": {"$in": [None, value]}})) == [str(depth)]
        assert "100" in accepted
        assert "100000" not in accepted
        assert sorted(keys(store.search((kind,), limit=100))) == sorted(accepted)

    def test_a_value_that_contains_itself_is_refused(self, open_store: OpenStore) -> None:
        """There is no end to it: a clear ValueError, not an exhausted stack, and nothing is written."""
        store = open_store()
        list_: list[Any] = [1]
        list_.append(list_)
        object_: dict[str, Any] = {"a": {}}
        object_["a"]["b"] = [object_]
        twice: list[Any] = []
        twice += [twice, twice]
        for value in [{"l": list_}, object_, {"l": (list_, 1)}, {"l": twice}]:
            with pytest.raises(ValueError, match="itself"):
                store.put(("a",), "k", value)
            with pytest.raises(ValueError, match="itself"):
                store.batch([PutOp(("a",), "good", {}), PutOp(("a",), "k", value)])
        assert store.list_namespaces() == []

    def test_one_part_may_stand_in_several_places(self, open_store: OpenStore) -> None:
        """An object used twice does not contain itself; it is stored twice and comes back as two."""
        store = open_store()
        part = {"n": [1]}
        store.put(("a",), "k", {"one": part, "two": [part, part]})
        got = _value(store)
        assert got == {"one": {"n": [1]}, "two": [{"n": [1]}, {"n": [1]}]}
        got["one"]["n"].append(2)
        assert got["two"] == [{"n": [1]}, {"n": [1]}]


def _value(store: SyncCaller, namespace: tuple[str, ...] = ("a",), key: str = "k") -> Any:
    """Get a value that must be there."""
    item = store.get(namespace, key)
    assert item is not None
    return item.value
