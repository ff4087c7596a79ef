"""Namespaces and keys: rules 1 to 5 of the contract, but for listing, which has its own file."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchOp,
)

from tests.conformance.json_values import LABELS, PROPERTY, SEPARATING_LABELS, TEXTS
from tests.support import OpenStore, keys

ODD_LABELS = [
    "_",
    "%",
    "*",
    "?",
    "[a]",
    "\\",
    "/",
    ":",
    "|",
    "\x01",
    "\x1f",
    " ",
    "\n",
    "\x7f",
    "\uffff",
    "\ufeff",
    "日本",
    "é",
    "e\u0301",
    "😀",
    "'",
    '"',
]
WRONG_LABELS: list[Any] = [("a.b",), (".",), ("",), ("a", ""), ("a\0b",), ("\ud800",), ("a", 1), ("a", None), (b"a",)]
WRONG_KINDS: list[Any] = ["users", "", b"users", {"a"}, {"a": 1}, 5, None]
"""What is no tuple and no list of labels."""
ODD_KEYS = [
    "",
    " ",
    "k ",
    "K",
    "k",
    "a.b",
    ".",
    "*",
    "%",
    "_",
    "1",
    "01",
    "1.0",
    "null",
    "\n",
    "\x01",
    "\x7f",
    "/",
    "\\",
]
ODD_KEYS += ["é", "e\u0301", "日本", "😀", "\ufeff", "\uffff", "'", '"', "'; DROP TABLE memstore_items; --", '["k"]']
WRONG_KEYS = ["\0", "a\0b", "\ud800", "a\udfff"]
NON_TEXT_KEYS: list[Any] = [5, -1, 1.5, True, None, ("a", 1), UUID(int=7), Path("a/b"), b"k"]
LONGEST = 4_096
"""Bytes that keys and paths may have on every backend."""


class NamesConformance:
    """Names are exact, and checked alike everywhere."""

    @pytest.mark.parametrize("label", ODD_LABELS)
    def test_odd_labels_are_literal(self, open_store: OpenStore, label: str) -> None:
        """A label is itself alone, whatever it means to a pattern language or a separator."""
        store = open_store()
        store.put((label,), "k", {"n": 1})
        store.put(("other", label), "k", {"n": 2})
        found = store.search((label,))
        assert [(item.namespace, item.value) for item in found] == [((label,), {"n": 1})]
        assert store.list_namespaces() == sorted([(label,), ("other", label)])

    def test_no_two_namespaces_meet(self, open_store: OpenStore) -> None:
        """Different tuples hold different items, whatever their labels are made of; a prefix matches whole labels."""
        store = open_store()
        roots = (f"root {number}" for number in count())

        @PROPERTY
        @given(st.lists(st.lists(LABELS | SEPARATING_LABELS, max_size=4).map(tuple), min_size=1, unique=True))
        def keeps_apart(tails: list[tuple[str, ...]]) -> None:
            root = next(roots)
            namespaces = [(root, *tail) for tail in tails]
            store.batch([PutOp(namespace, "k", {"n": n}) for n, namespace in enumerate(namespaces)])
            got = store.batch([GetOp(namespace, "k") for namespace in namespaces])
            assert [(item.namespace, item.value["n"]) for item in got] == [(ns, n) for n, ns in enumerate(namespaces)]
            assert store.list_namespaces(prefix=(root,), limit=100) == sorted(namespaces)
            for prefix in namespaces:
                below = {namespace for namespace in namespaces if namespace[: len(prefix)] == prefix}
                assert {item.namespace for item in store.search(prefix, limit=100)} == below

        keeps_apart()

    def test_labels_tell_case_and_composition(self, open_store: OpenStore) -> None:
        """Nothing is folded or normalised: another case, another composition or a blank more is another label."""
        store = open_store()
        labels = ["a", "A", "a ", " a", "é", "e\u0301", "ß", "ss", "ﬁ", "fi", "K", "\u212a"]
        store.batch([PutOp((label,), "k", {"label": label}) for label in labels])
        assert [item.value["label"] for label in labels for item in store.search((label,))] == labels
        assert store.list_namespaces() == sorted((label,) for label in labels)

    def test_a_list_is_taken_as_a_tuple(self, open_store: OpenStore) -> None:
        """JSON has no tuples, so a list of labels names the same namespace, on every call and in every op."""
        store = open_store()
        store.put(["a", "b"], "k", {"n": 1})
        store.batch([PutOp(["a", "b"], "l", {"n": 2})])  # type: ignore[arg-type]  # the point of the test
        item = store.get(["a", "b"], "k")
        assert item is not None
        assert item.namespace == ("a", "b")
        assert store.batch([GetOp(["a", "b"], "l")])[0].namespace == ("a", "b")  # type: ignore[arg-type]
        assert {item.namespace for item in store.search(["a"])} == {("a", "b")}
        assert keys(store.batch([SearchOp(["a", "b"])])[0]) == keys(store.search(("a", "b")))  # type: ignore[arg-type]
        for listed in [store.list_namespaces(prefix=["a"]), store.list_namespaces(suffix=["b"])]:
            assert listed == [("a", "b")]
        store.delete(["a", "b"], "k")
        assert keys(store.search(("a", "b"))) == ["l"]

    @pytest.mark.parametrize("namespace", WRONG_LABELS, ids=ascii)
    def test_wrong_labels_are_refused_everywhere(self, open_store: OpenStore, namespace: Any) -> None:
        """Every entry point, ops included, raises LangGraph's own error, and nothing changes."""
        store = open_store()
        condition = MatchCondition("prefix", namespace), MatchCondition("suffix", namespace)
        attempts: list[Callable[[], object]] = [
            *_attempts(store, namespace),
            lambda: store.list_namespaces(prefix=namespace),
            lambda: store.list_namespaces(suffix=namespace),
            lambda: store.batch([ListNamespacesOp(match_conditions=condition[:1])]),
            lambda: store.batch([ListNamespacesOp(match_conditions=condition[1:])]),
        ]
        for attempt in attempts:
            with pytest.raises(InvalidNamespaceError):
                attempt()
        assert store.list_namespaces() == []

    @pytest.mark.parametrize("namespace", WRONG_KINDS, ids=ascii)
    def test_what_is_no_tuple_is_refused_everywhere(self, open_store: OpenStore, namespace: Any) -> None:
        """A bare string would be taken apart into letters, a set has no order: neither names a namespace."""
        store = open_store()
        for attempt in _attempts(store, namespace):
            with pytest.raises(InvalidNamespaceError):
                attempt()
        assert store.list_namespaces() == []

    def test_the_root_label_langgraph_is_for_ops(self, open_store: OpenStore) -> None:
        """`put` refuses LangGraph's own root label and `batch` accepts it, as LangGraph's tests have it."""
        store = open_store()
        for namespace in [("langgraph",), ("langgraph", "a"), ["langgraph"]]:
            with pytest.raises(InvalidNamespaceError):
                store.put(namespace, "k", {})
        assert store.list_namespaces() == []
        store.batch([PutOp(("langgraph", "a"), "k", {"n": 1})])
        store.put(("a", "langgraph"), "k", {})
        store.put(("langgraph2",), "k", {})
        store.put(("LangGraph",), "k", {})
        item = store.get(("langgraph", "a"), "k")
        assert item is not None
        assert item.value == {"n": 1}
        assert [item.namespace for item in store.search(("langgraph",))] == [("langgraph", "a")]
        assert store.list_namespaces(prefix=("langgraph",)) == [("langgraph", "a")]
        store.delete(("langgraph", "a"), "k")
        assert store.list_namespaces(prefix=("langgraph",)) == []

    @pytest.mark.parametrize("namespace", [(), []], ids=repr)
    def test_the_empty_namespace_holds_no_items(self, open_store: OpenStore, namespace: Any) -> None:
        """`()` is a prefix only; naming it as an item's place is an error, whether to write, to read or to delete."""
        store = open_store()
        store.put(("a",), "k", {})
        attempts: list[Callable[[], object]] = [
            lambda: store.put(namespace, "k", {}),
            lambda: store.get(namespace, "k"),
            lambda: store.delete(namespace, "k"),
            lambda: store.batch([PutOp(("b",), "k", {}), PutOp(namespace, "k", {})]),
            lambda: store.batch([GetOp(namespace, "k")]),
        ]
        for attempt in attempts:
            with pytest.raises(InvalidNamespaceError):
                attempt()
        assert [item.namespace for item in store.search(namespace)] == [("a",)]
        assert store.list_namespaces(prefix=namespace, suffix=namespace) == [("a",)]

    def test_a_prefix_matches_whole_labels(self, open_store: OpenStore) -> None:
        """`("foo",)` never shows what lies under `("foobar",)`, whatever follows; `()` shows everything."""
        store = open_store()
        others = [
            ("fo",),
            ("foobar",),
            ("foo ",),
            ("foo\x01",),
            ("foo\x01", "bar"),
            ("foo/", "bar"),
            ("fop",),
            ("bar", "foo"),
        ]
        for namespace in [("foo",), ("foo", "bar"), *others]:
            store.put(namespace, "-".join(namespace), {})
        assert sorted(keys(store.search(("foo",)))) == ["foo", "foo-bar"]
        assert sorted(keys(store.search(("foo", "bar")))) == ["foo-bar"]
        assert store.list_namespaces(prefix=("foo",)) == [("foo",), ("foo", "bar")]
        assert store.search(("foo", "ba")) == []
        assert len(store.search((), limit=100)) == 2 + len(others)

    def test_reads_create_nothing(self, open_store: OpenStore) -> None:
        """Looking for what is not there, or deleting it, leaves no namespace behind."""
        store = open_store()
        assert store.get(("a", "b"), "k") is None
        assert store.search(("c",)) == []
        assert store.list_namespaces(prefix=("d",)) == []
        store.delete(("e",), "k")
        ops: list[Op] = [GetOp(("f",), "k"), SearchOp(("g",)), PutOp(("h",), "k", None)]
        assert store.batch(ops) == [None, [], None]
        assert store.list_namespaces() == []
        assert (store.stats().namespaces, store.stats().items) == (0, 0)

    def test_any_text_is_a_key(self, open_store: OpenStore) -> None:
        """What `put` accepts `get` and `delete` find, under that very text and no other."""
        store = open_store()
        roots = (f"root {number}" for number in count())

        def keeps_apart(wanted: list[str]) -> None:
            namespace = (next(roots),)
            store.batch([PutOp(namespace, key, {"n": n}) for n, key in enumerate(wanted)])
            got = store.batch([GetOp(namespace, key) for key in wanted])
            assert [(item.key, item.value["n"]) for item in got] == [(key, n) for n, key in enumerate(wanted)]
            store.batch([PutOp(namespace, key, {"n": -n}) for n, key in enumerate(wanted)])
            assert len(store.search(namespace, limit=100)) == len(wanted)
            for key in wanted[::2]:
                store.delete(namespace, key)
            assert set(keys(store.search(namespace, limit=100))) == set(wanted[1::2])
            assert all(store.get(namespace, key) is None for key in wanted[::2])

        keeps_apart(ODD_KEYS)
        PROPERTY(given(st.lists(TEXTS, min_size=1, unique=True))(keeps_apart))()

    @pytest.mark.parametrize("key", WRONG_KEYS, ids=ascii)
    def test_wrong_keys_are_refused_everywhere(self, open_store: OpenStore, key: str) -> None:
        """NUL and lone surrogates are in no key; every call says so, and a batch is left undone."""
        store = open_store()
        attempts: list[Callable[[], object]] = [
            lambda: store.put(("a",), key, {}),
            lambda: store.get(("a",), key),
            lambda: store.delete(("a",), key),
            lambda: store.batch([PutOp(("a",), "good", {}), PutOp(("a",), key, {})]),
            lambda: store.batch([PutOp(("a",), "good", {}), PutOp(("a",), key, None)]),
            lambda: store.batch([PutOp(("a",), "good", {}), GetOp(("a",), key)]),
        ]
        for attempt in attempts:
            with pytest.raises(ValueError, match="key"):
                attempt()
        assert store.search(()) == []

    @pytest.mark.parametrize("key", NON_TEXT_KEYS, ids=repr)
    def test_other_keys_become_text_alike_everywhere(self, open_store: OpenStore, key: Any) -> None:
        """A number put as a key is found by the number and by its text, through methods and ops alike."""
        store = open_store()
        store.put(("a",), key, {"n": 1})
        store.batch([PutOp(("b",), key, {"n": 1})])
        for namespace in [("a",), ("b",)]:
            for spelled in [key, str(key)]:
                items = [store.get(namespace, spelled), store.batch([GetOp(namespace, spelled)])[0]]
                assert [item and item.key for item in items] == [str(key)] * 2
        store.delete(("a",), key)
        store.batch([PutOp(("b",), key, None)])
        assert store.search(()) == []

    @pytest.mark.parametrize("character", ["k", "é", "日", "😀"])
    def test_long_keys_work(self, open_store: OpenStore, character: str) -> None:
        """Keys of 4,096 bytes that differ in their last character only are two keys."""
        store = open_store()
        stem = character * (LONGEST // len(character.encode()) - 1)
        stem += "-" * (LONGEST - 1 - len(stem.encode()))
        store.put(("a",), stem + "1", {"n": 1})
        store.put(("a",), stem + "2", {"n": 2})
        assert [item.value["n"] for item in store.batch([GetOp(("a",), stem + "1"), GetOp(("a",), stem + "2")])] == [
            1,
            2,
        ]
        store.delete(("a",), stem + "1")
        assert keys(store.search(("a",))) == [stem + "2"]

    @pytest.mark.parametrize("label", ["n" * (LONGEST - 2), "日" * 1_023, "abc", "a"], ids=len)
    def test_long_paths_work(self, open_store: OpenStore, label: str) -> None:
        """Paths of 4,096 bytes, of one label or of two thousand, that differ in their last label only are two."""
        store = open_store()
        stem = (label,) * (LONGEST // (len(label.encode()) + 1))
        store.put((*stem, "x1"), "k", {"n": 1})
        store.put((*stem, "x2"), "k", {"n": 2})
        assert [item.value["n"] for item in store.search((*stem, "x1"))] == [1]
        assert len(store.search(stem)) == 2
        assert store.list_namespaces(prefix=stem) == [(*stem, "x1"), (*stem, "x2")]
        assert store.list_namespaces(suffix=(*stem[1:], "x2")) == [(*stem, "x2")]
        store.delete((*stem, "x1"), "k")
        assert store.get((*stem, "x1"), "k") is None
        assert store.list_namespaces() == [(*stem, "x2")]


def _attempts(store: Any, namespace: Any) -> list[Callable[[], object]]:
    """List every way to name a namespace that holds items, and the prefix of a search."""
    return [
        lambda: store.put(namespace, "k", {}),
        lambda: store.get(namespace, "k"),
        lambda: store.delete(namespace, "k"),
        lambda: store.search(namespace),
        lambda: store.batch([PutOp(("good",), "k", {}), PutOp(namespace, "k", {})]),
        lambda: store.batch([PutOp(("good",), "k", {}), PutOp(namespace, "k", None)]),
        lambda: store.batch([PutOp(("good",), "k", {}), GetOp(namespace, "k")]),
        lambda: store.batch([PutOp(("good",), "k", {}), SearchOp(namespace)]),
    ]
