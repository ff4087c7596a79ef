"""Namespaces as bytes, and the patterns of list_namespaces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.base import InvalidNamespaceError

from memstore.errors import InvalidNamespace
from memstore.namespaces import (
    Namespace,
    Pattern,
    from_path,
    is_storable,
    to_condition,
    to_item_path,
    to_path,
    to_range,
)

unhurried = settings(deadline=None)
"""A slow machine fails no example."""
texts = st.text(st.characters(exclude_characters=".\0", exclude_categories=["Cs"]), min_size=1, max_size=6)
few = st.sampled_from(["a", "b", "ab", "a\x01", "\x01", "*", "é", "\U0010ffff"])
labels = st.one_of(few, texts)
namespaces = st.lists(labels, max_size=5).map(tuple)
short = st.lists(st.sampled_from(["a", "b", "*"]), max_size=4).map(tuple)


@unhurried
@given(namespaces)
def test_a_path_decodes_to_the_namespace_it_was_made_from(namespace: Namespace) -> None:
    """No label is lost, joined or split, whatever it contains."""
    assert from_path(to_path(namespace)) == namespace
    assert to_path(list(namespace)) == to_path(namespace)


@unhurried
@given(namespaces, namespaces)
def test_the_order_of_paths_is_the_order_of_tuples(left: Namespace, right: Namespace) -> None:
    """SQL sorts bytes; Python sorts tuples by code point. They must never disagree, and no two tuples meet."""
    assert (to_path(left) < to_path(right)) == (left < right)
    assert (to_path(left) == to_path(right)) == (left == right)


@unhurried
@given(namespaces, namespaces, namespaces)
def test_a_prefix_s_range_holds_what_lies_below_it_alone(prefix: Namespace, tail: Namespace, other: Namespace) -> None:
    """The half-open range holds a path exactly where the tuple starts with the prefix, label by label."""
    start, end = to_range(to_path(prefix))
    for namespace in (prefix + tail, other, tail):
        path = to_path(namespace)
        inside = start <= path and (end is None or path < end)
        assert inside == (namespace[: len(prefix)] == prefix)


def test_the_empty_prefix_has_no_end() -> None:
    """Everything lies below `()`."""
    assert to_range(b"") == (b"", None)


WRONG: list[tuple[Any, str]] = [
    ("users", "expected a tuple of labels such as ('users', 'ada'), got str"),
    (None, "expected a tuple of labels such as ('users', 'ada'), got NoneType"),
    ({"users"}, "expected a tuple of labels such as ('users', 'ada'), got set"),
    (("a", 1), "label 1 is of type int; expected text"),
    ((b"a",), "label 0 is of type bytes; expected text"),
    ((["a"],), "label 0 is of type list; expected text"),
    (("a", ""), "label 1 is empty"),
    (("a.b",), "label 0 ('a.b') contains a period, which LangGraph reserves"),
    (("a\0",), "label 0 ('a\\x00') contains NUL or a lone surrogate"),
    (("a", "\ud800"), "label 1 ('\\ud800') contains NUL or a lone surrogate"),
]


@pytest.mark.parametrize(("namespace", "message"), WRONG)
def test_a_wrong_namespace_is_refused_with_the_label_at_fault(namespace: Any, message: str) -> None:
    """The error is LangGraph's own, and says which label is wrong and why."""
    with pytest.raises(InvalidNamespace) as caught:
        to_path(namespace)
    assert isinstance(caught.value, InvalidNamespaceError)
    assert str(caught.value) == f"This is not a namespace: {message}"


class Twofaced(str):
    """A label that is not the same text when it is looked at again."""

    __slots__ = ()

    def __add__(self, other: str) -> str:
        return "a.b" + other


def test_labels_that_change_while_they_are_read_are_refused() -> None:
    """A subclass of text may have a mind of its own; nothing is stored under a path that was not checked."""
    with pytest.raises(InvalidNamespace, match="it changed while it was read"):
        to_path((Twofaced("a"),))


def test_the_empty_namespace_is_a_prefix_but_holds_no_items() -> None:
    """`()` may be searched below, never put to."""
    assert to_path(()) == b""
    assert to_item_path(("a",)) == b"a\0"
    with pytest.raises(InvalidNamespace, match=r"\(\) cannot hold items"):
        to_item_path(())


@pytest.mark.parametrize(("text", "storable"), [("", True), ("é\U0010ffff", True), ("a\0", False), ("\udfff", False)])
def test_nul_and_lone_surrogates_are_not_storable(text: str, *, storable: bool) -> None:
    """They are what some backend cannot keep; everything else is kept everywhere."""
    assert is_storable(text) is storable


def test_a_bare_string_is_one_label_of_a_condition() -> None:
    """LangGraph's own stores take `prefix="users"`; it is not taken for five labels."""
    assert to_condition("users") == ("users",)
    assert to_condition(["a", "*"]) == ("a", "*")
    assert to_condition(()) == ()


@pytest.mark.parametrize("path", ["", "a.b", ("a", ""), iter(["a"]), None, 3])
def test_a_wrong_condition_is_refused(path: Any) -> None:
    """Conditions are checked as namespaces are."""
    with pytest.raises(InvalidNamespace):
        to_condition(path)


def plainly_matches(namespace: Namespace, wanted: Namespace) -> bool:
    """Say whether a namespace starts with labels, `*` being any; spelled out as an oracle."""
    if len(namespace) < len(wanted):
        return False
    return all(wanted[place] in ("*", namespace[place]) for place in range(len(wanted)))


conditions = st.lists(short, max_size=2).map(tuple)


@unhurried
@given(short, conditions, conditions)
def test_a_pattern_matches_where_every_condition_holds(
    namespace: Namespace, prefixes: tuple[Namespace, ...], suffixes: tuple[Namespace, ...]
) -> None:
    """`*` stands for exactly one label in prefixes and suffixes; all conditions must hold."""
    expected = all(plainly_matches(namespace, prefix) for prefix in prefixes) and all(
        plainly_matches(namespace[::-1], suffix[::-1]) for suffix in suffixes
    )
    assert Pattern(prefixes, suffixes).matches(namespace) == expected


@unhurried
@given(short, conditions, conditions)
def test_the_literal_prefix_leaves_out_no_match(
    namespace: Namespace, prefixes: tuple[Namespace, ...], suffixes: tuple[Namespace, ...]
) -> None:
    """SQL reads only the range of the literal prefix; where that alone settles it, the range is the answer."""
    pattern = Pattern(prefixes, suffixes)
    start, end = to_range(pattern.literal_prefix())
    inside = start <= to_path(namespace) and (end is None or to_path(namespace) < end)
    assert inside or not pattern.matches(namespace)
    if pattern.settled_by_prefix:
        assert inside == pattern.matches(namespace)


def test_the_longest_literal_prefix_is_used() -> None:
    """The narrower of several ranges is read."""
    assert Pattern((("a",), ("a", "b", "*", "c"), ("*",))).literal_prefix() == b"a\0b\0"
    assert Pattern().literal_prefix() == b""
