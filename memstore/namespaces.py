"""Namespaces as bytes, and the patterns that match them.

A path is each label's UTF-8 followed by NUL. No two tuples share a path, byte order is tuple order, and everything
below a prefix is one range of bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from memstore.errors import InvalidNamespace

Namespace: TypeAlias = tuple[str, ...]
ANY = "*"
"""In a match condition: exactly one label, whichever."""


def to_path(namespace: Sequence[str]) -> bytes:
    """Encode a namespace or prefix, `()` included.

    Raises:
        InvalidNamespace: It is not a tuple (or list) of non-empty strings without `.` and NUL.
    """
    if isinstance(namespace, str) or not isinstance(namespace, tuple | list):
        kind = type(namespace).__name__
        raise InvalidNamespace(f"expected a tuple of labels such as ('users', 'ada'), got {kind}")
    try:
        path = "".join([label + "\0" for label in namespace])
        if "." not in path and path.count("\0") == len(namespace) and "" not in namespace:
            return path.encode()
    except (TypeError, UnicodeEncodeError):
        pass
    raise InvalidNamespace(_fault(namespace))


def to_item_path(namespace: Sequence[str]) -> bytes:
    """Encode a namespace that holds items, so never `()`.

    Raises:
        InvalidNamespace: As `to_path`, and for the empty tuple.
    """
    path = to_path(namespace)
    if not path:
        raise InvalidNamespace("() cannot hold items; expected at least one label")
    return path


@lru_cache(maxsize=4096)
def from_path(path: bytes) -> Namespace:
    """Decode what `to_path` encoded."""
    return tuple(path.decode().split("\0")[:-1])


def to_range(path: bytes) -> tuple[bytes, bytes | None]:
    """Give the half-open range of paths at and below a prefix; an end of None is no end."""
    return path, (path[:-1] + b"\x01" if path else None)


def _fault(namespace: Sequence[object]) -> str:
    """Say which label is at fault."""
    for position, label in enumerate(namespace):
        if not isinstance(label, str):
            return f"label {position} is of type {type(label).__name__}; expected text"
        if not label:
            return f"label {position} is empty"
        if "." in label:
            return f"label {position} ({label!r}) contains a period, which LangGraph reserves"
        if not is_storable(label):
            return f"label {position} ({label!a}) contains NUL or a lone surrogate"
    return "it changed while it was read"


def is_storable(text: str) -> bool:
    """Tell whether every backend can keep a text: it has no NUL and no lone surrogate."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


@dataclass(frozen=True, slots=True)
class Pattern:
    """What list_namespaces was asked for: all conditions hold, `*` stands for exactly one label."""

    prefixes: tuple[Namespace, ...] = ()
    suffixes: tuple[Namespace, ...] = ()

    def literal_prefix(self) -> bytes:
        """Give the longest prefix without a wildcard that every match must have, as a path."""
        best: Namespace = ()
        for prefix in self.prefixes:
            literal = prefix[: prefix.index(ANY)] if ANY in prefix else prefix
            best = max(best, literal, key=len)
        return to_path(best)

    def matches(self, namespace: Namespace) -> bool:
        """Tell whether a namespace fulfils every condition."""
        return all(_agrees(namespace, prefix) for prefix in self.prefixes) and all(
            _agrees(namespace[::-1], suffix[::-1]) for suffix in self.suffixes
        )

    @property
    def settled_by_prefix(self) -> bool:
        """Whether the range of `literal_prefix` alone decides."""
        return not self.suffixes and len(self.prefixes) <= 1 and all(ANY not in p for p in self.prefixes)


def to_condition(path: Iterable[str] | str) -> Namespace:
    """Check the path of a match condition; a bare string stands for one label.

    Raises:
        InvalidNamespace: A label is none.
    """
    labels = (path,) if isinstance(path, str) else path
    to_path(labels)  # type: ignore[arg-type]  # what is no tuple or list is refused there
    return tuple(labels)


def _agrees(namespace: Namespace, wanted: Namespace) -> bool:
    return len(namespace) >= len(wanted) and all(
        want in (ANY, label) for label, want in zip(namespace, wanted, strict=False)
    )
