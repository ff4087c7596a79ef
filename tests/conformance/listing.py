"""Listing namespaces: rules 3 and 4 of the contract."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.store.base import InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp

from tests.conformance.json_values import PROPERTY
from tests.support import Clock, OpenStore, SyncCaller

Names = tuple[str, ...]
TREE: list[Names] = sorted(
    [
        ("a",),
        ("a", "b"),
        ("a", "b", "c"),
        ("a", "x", "c"),
        ("a", "x", "c", "d"),
        ("ab",),
        ("b", "b", "c"),
        ("*", "c"),
        ("c",),
    ]
)
CONDITIONS: list[tuple[Names, Names, list[Names]]] = [
    (("a",), (), [("a",), ("a", "b"), ("a", "b", "c"), ("a", "x", "c"), ("a", "x", "c", "d")]),
    (("a", "b"), (), [("a", "b"), ("a", "b", "c")]),
    (("a", "*"), (), [("a", "b"), ("a", "b", "c"), ("a", "x", "c"), ("a", "x", "c", "d")]),
    (("a", "*", "c"), (), [("a", "b", "c"), ("a", "x", "c"), ("a", "x", "c", "d")]),
    (("*", "b"), (), [("a", "b"), ("a", "b", "c"), ("b", "b", "c")]),
    (("*", "*", "*", "*"), (), [("a", "x", "c", "d")]),
    (("*",) * 5, (), []),
    ((), ("c",), [("*", "c"), ("a", "b", "c"), ("a", "x", "c"), ("b", "b", "c"), ("c",)]),
    ((), ("*", "c"), [("*", "c"), ("a", "b", "c"), ("a", "x", "c"), ("b", "b", "c")]),
    ((), ("b", "*"), [("a", "b", "c"), ("b", "b", "c")]),
    ((), ("a", "*", "c"), [("a", "b", "c"), ("a", "x", "c")]),
    (("a",), ("c",), [("a", "b", "c"), ("a", "x", "c")]),
    (("a", "b"), ("b", "c"), [("a", "b", "c")]),
    (("a",), ("a",), [("a",)]),
    (("b", "*", "c"), ("*", "b", "c"), [("b", "b", "c")]),
    (("x",), (), []),
    ((), ("a", "c"), []),
]
"""(prefix, suffix, what of TREE fulfils both)."""
NOT_A_COUNT: list[Any] = [-1, 1.5, "1", float("nan"), (1,)]


class ListingConformance:
    """Only namespaces that hold a live item are listed, in tuple order, by page."""

    @pytest.mark.parametrize(("prefix", "suffix", "expected"), CONDITIONS)
    def test_conditions_match_label_by_label(
        self, open_store: OpenStore, prefix: Names, suffix: Names, expected: list[Names]
    ) -> None:
        """Prefix and suffix compare whole labels, `*` is exactly one label, and a namespace fulfils both."""
        store = open_store()
        _fill(store, TREE)
        assert store.list_namespaces(prefix=prefix, suffix=suffix) == expected
        given_ = [("prefix", prefix)] if prefix else []
        given_ += [("suffix", suffix)] if suffix else []
        assert _listed(store, given_) == expected

    def test_all_conditions_hold(self, open_store: OpenStore) -> None:
        """An op may carry several conditions of one kind; a namespace is listed where it fulfils every one."""
        store = open_store()
        _fill(store, TREE)
        assert _listed(store, [("prefix", ("a",)), ("prefix", ("*", "x"))]) == [("a", "x", "c"), ("a", "x", "c", "d")]
        assert _listed(store, [("prefix", ("a",)), ("prefix", ("b",))]) == []
        assert _listed(store, [("suffix", ("c",)), ("suffix", ("b", "*"))]) == [("a", "b", "c"), ("b", "b", "c")]
        assert _listed(store, [("suffix", ("c",)), ("prefix", ("*", "x")), ("prefix", ("a",))]) == [("a", "x", "c")]
        assert _listed(store, []) == TREE
        assert store.batch([ListNamespacesOp(match_conditions=None)]) == [TREE]

    def test_a_bare_string_stands_for_one_label(self, open_store: OpenStore) -> None:
        """In a condition a string is one label or the wildcard, never letters of its own."""
        store = open_store()
        _fill(store, [*TREE, ("a", "b", "ab")])
        for label in ["ab", "a", "*"]:
            assert store.list_namespaces(prefix=label) == store.list_namespaces(prefix=(label,)) != []
            assert store.list_namespaces(suffix=label) == store.list_namespaces(suffix=(label,)) != []
            assert _listed(store, [("suffix", label)]) == store.list_namespaces(suffix=(label,))
        assert store.list_namespaces(prefix="ab") == [("ab",)]

    @pytest.mark.parametrize("label", ["", "a.b", "a\0b", "\ud800"], ids=ascii)
    def test_a_bare_string_is_checked_as_a_label(self, open_store: OpenStore, label: str) -> None:
        """An empty user name in a prefix must not list everyone's namespaces."""
        store = open_store()
        _fill(store, TREE)
        with pytest.raises(InvalidNamespaceError):
            _listed(store, [("prefix", label)])
        with pytest.raises(InvalidNamespaceError):
            store.list_namespaces(prefix=label)
        with pytest.raises(InvalidNamespaceError):
            store.list_namespaces(suffix=label)

    @pytest.mark.parametrize("wrong", [5, {"a"}, b"a"], ids=repr)
    def test_what_is_no_path_is_refused(self, open_store: OpenStore, wrong: Any) -> None:
        """A condition's path is a tuple, a list or one label."""
        store = open_store()
        with pytest.raises(InvalidNamespaceError):
            _listed(store, [("prefix", wrong)])
        with pytest.raises(InvalidNamespaceError):
            store.list_namespaces(prefix=wrong)
        with pytest.raises(InvalidNamespaceError):
            store.list_namespaces(suffix=wrong)

    def test_another_kind_of_condition_is_refused(self, open_store: OpenStore) -> None:
        """A condition that cannot be understood must not be taken for one that always holds."""
        store = open_store()
        with pytest.raises(ValueError, match="prefix"):
            _listed(store, [("infix", ("a",))])

    def test_only_namespaces_with_live_items_are_listed(self, open_store: OpenStore, clock: Clock) -> None:
        """A namespace is there while it holds a live item: not above it, not after the last was deleted or expired."""
        store = open_store()
        store.put(("a", "b", "c"), "k", {})
        store.put(("a", "b", "c"), "l", {}, ttl=1)
        store.put(("a", "brief"), "k", {}, ttl=1)
        store.put(("z",), "k", {})
        assert store.list_namespaces() == [("a", "b", "c"), ("a", "brief"), ("z",)]
        clock.pass_minutes(2)
        store.delete(("z",), "k")
        assert store.list_namespaces() == [("a", "b", "c")]
        assert store.list_namespaces(max_depth=1) == [("a",)]
        assert store.list_namespaces(suffix=("brief",)) == []
        store.put(("a", "brief"), "k", {})
        assert store.list_namespaces() == [("a", "b", "c"), ("a", "brief")]

    def test_the_order_is_that_of_tuples(self, open_store: OpenStore) -> None:
        """Whatever the labels, a list of namespaces is sorted as Python sorts it: by labels, by code points."""
        store = open_store()
        names = [
            ("a",),
            ("a", "b"),
            ("a\x01",),
            ("a", "\x01"),
            ("a ",),
            ("a", " "),
            ("aa",),
            ("B",),
            ("Z", "a"),
            ("é",),
        ]
        names += [("e\u0301",), ("日本",), ("\uffff",), ("😀",), ("\x01",), ("~",), ("10",), ("9",)]
        _fill(store, names)
        assert store.list_namespaces() == sorted(names)

    def test_max_depth_cuts_before_the_page(self, open_store: OpenStore) -> None:
        """Namespaces that are one after the cut count once, so that limit and offset count what is returned."""
        store = open_store()
        _fill(store, [(root, branch, leaf) for root in "abc" for branch in "xy" for leaf in "123"])
        _fill(store, [("a",)])
        assert store.list_namespaces(max_depth=1) == [("a",), ("b",), ("c",)]
        assert store.list_namespaces(max_depth=1, limit=1, offset=1) == [("b",)]
        assert store.list_namespaces(max_depth=2, limit=3) == [("a",), ("a", "x"), ("a", "y")]
        assert store.list_namespaces(max_depth=2, offset=5) == [("c", "x"), ("c", "y")]
        assert store.list_namespaces(max_depth=2, suffix=("2",), offset=1, limit=2) == [("a", "y"), ("b", "x")]
        assert store.list_namespaces(max_depth=9, prefix=("b", "y")) == [("b", "y", leaf) for leaf in "123"]

    def test_pages_of_many_namespaces_join(self, open_store: OpenStore) -> None:
        """However many namespaces a condition passes over, pages come without gap or duplicate."""
        store = open_store()
        names: list[Names] = [(f"u{user:03}", *rest) for user in range(230) for rest in [(), ("p",), ("p", "q")]]
        _fill(store, names)
        cases: list[tuple[dict[str, Any], list[Names]]] = [
            ({}, names),
            ({"suffix": ("p", "*")}, names[2::3]),
            ({"prefix": ("*", "p")}, [name for name in names if len(name) > 1]),
            ({"max_depth": 1}, names[::3]),
        ]
        for options, expected in cases:
            pages = [store.list_namespaces(**options, limit=90, offset=at) for at in range(0, len(names) + 90, 90)]
            assert [name for page in pages for name in page] == expected
            assert store.list_namespaces(**options, limit=1_000) == expected

    @pytest.mark.parametrize("wrong", NOT_A_COUNT, ids=repr)
    def test_bad_numbers_are_value_errors(self, open_store: OpenStore, wrong: Any) -> None:
        """`limit` and `offset` are integers of 0 or more, `max_depth` of 1 or more; nothing is guessed."""
        store = open_store()
        for name in ["limit", "offset", "max_depth"]:
            with pytest.raises(ValueError, match=name):
                store.list_namespaces(**{name: wrong})
            with pytest.raises(ValueError, match=name):
                store.batch([ListNamespacesOp(**{name: wrong})])

    def test_a_depth_of_none_is_no_depth(self, open_store: OpenStore) -> None:
        """No limit on depth is None; a depth of 0 would leave no labels and is an error."""
        store = open_store()
        with pytest.raises(ValueError, match="max_depth"):
            store.list_namespaces(max_depth=0)
        with pytest.raises(ValueError, match="max_depth"):
            store.batch([ListNamespacesOp(max_depth=0)])

    def test_extreme_pages_are_answered(self, open_store: OpenStore) -> None:
        """A limit of 0 is an empty page; limits and offsets beyond any database are no error."""
        store = open_store()
        _fill(store, TREE)
        conditions: list[dict[str, Any]] = [{}, {"max_depth": 9}, {"suffix": ("*",)}]
        for options in conditions:
            assert store.list_namespaces(limit=0, **options) == []
            assert store.list_namespaces(limit=10**30, **options) == TREE
            assert store.list_namespaces(limit=10**30, offset=10**30, **options) == []

    def test_listing_agrees_with_plain_python(self, open_store: OpenStore) -> None:
        """Whatever is stored and asked, the answer is that of a list comprehension over the stored namespaces."""
        store = open_store()
        roots = (f"root {number}" for number in count())
        names = st.lists(st.sampled_from("abc"), max_size=4).map(tuple)
        wanted = st.lists(st.sampled_from("ab*"), min_size=1, max_size=3).map(tuple)
        conditions = st.lists(st.tuples(st.sampled_from(["prefix", "suffix"]), wanted), max_size=3)
        depths = st.none() | st.integers(1, 5)

        @PROPERTY
        @given(st.lists(names, min_size=1, unique=True), conditions, depths, st.integers(0, 6), st.integers(0, 3))
        def agrees(
            tails: list[Names], given_: list[tuple[str, Names]], depth: int | None, limit: int, offset: int
        ) -> None:
            root = next(roots)
            namespaces = [(root, *tail) for tail in tails]
            _fill(store, namespaces)
            asked = [(kind, (root, *path) if kind == "prefix" else path) for kind, path in given_]
            asked.append(("prefix", (root,)))
            matching = [name for name in namespaces if all(_fulfils(name, kind, path) for kind, path in asked)]
            expected = sorted({name[:depth] for name in matching})[offset : offset + limit]
            assert _listed(store, asked, max_depth=depth, limit=limit, offset=offset) == expected

        agrees()


def _fill(store: SyncCaller, namespaces: Sequence[Names]) -> None:
    store.batch([PutOp(namespace, "k", {}) for namespace in namespaces])


def _listed(store: SyncCaller, conditions: Sequence[tuple[str, Any]], **options: Any) -> list[Names]:
    """List by an op, with conditions of any number."""
    matched = tuple(MatchCondition(kind, path) for kind, path in conditions)  # type: ignore[arg-type]
    listed: list[Names] = store.batch([ListNamespacesOp(match_conditions=matched, **options)])[0]
    return listed


def _fulfils(name: Names, kind: str, path: Names) -> bool:
    """Tell whether a namespace fulfils one condition, as LangGraph describes it."""
    part = name[: len(path)] if kind == "prefix" else name[max(len(name) - len(path), 0) :]
    return len(part) == len(path) and all(want in ("*", label) for label, want in zip(part, path, strict=True))
