"""Namespaces and keys: rules 1 to 5 of the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)

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
    "日本",
    "é",
    "e\u0301",
    "😀",
    "'",
    '"',
]
WRONG_NAMESPACES: list[Any] = [("a.b",), ("",), ("a", ""), ("a\0b",), ("\ud800",), ("a", 1), "users"]


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

    @pytest.mark.parametrize("namespace", WRONG_NAMESPACES, ids=repr)
    def test_wrong_labels_are_refused_everywhere(self, open_store: OpenStore, namespace: Any) -> None:
        """Every entry point, ops included, raises LangGraph's own error, and nothing changes."""
        store = open_store()
        attempts: list[Callable[[], object]] = [
            lambda: store.put(namespace, "k", {}),
            lambda: store.batch([PutOp(("good",), "k", {}), PutOp(namespace, "k", {})]),
            lambda: store.batch([GetOp(namespace, "k")]),
            lambda: store.batch([SearchOp(namespace)]),
        ]
        if not isinstance(namespace, str):
            condition = MatchCondition("prefix", namespace)
            attempts.append(lambda: store.batch([ListNamespacesOp(match_conditions=(condition,))]))
        for attempt in attempts:
            with pytest.raises(InvalidNamespaceError):
                attempt()
        assert store.list_namespaces() == []

    def test_a_prefix_matches_whole_labels(self, open_store: OpenStore) -> None:
        """`("foo",)` never shows what lies under `("foobar",)`; `()` shows everything."""
        store = open_store()
        for namespace in [("foo",), ("foo", "bar"), ("foobar",), ("fo",)]:
            store.put(namespace, "-".join(namespace), {})
        assert sorted(keys(store.search(("foo",)))) == ["foo", "foo-bar"]
        assert len(store.search(())) == 4
