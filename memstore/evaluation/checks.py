"""What a caller gives, checked at the door."""

from __future__ import annotations

from typing import Any

from langgraph.store.base import BaseStore

from memstore.config import to_whole
from memstore.errors import InvalidArgument


def check_store(store: Any) -> None:
    """Check that something is a store of LangGraph's.

    Raises:
        InvalidArgument: It is something else.
    """
    if not isinstance(store, BaseStore):
        raise InvalidArgument(f"store is a BaseStore of LangGraph's, got {type(store).__name__}")


def check_number(name: str, given: Any, least: int) -> None:
    """Check a whole number.

    Raises:
        InvalidArgument: It is none, or too small.
    """
    whole = to_whole(given)
    if whole is None or whole < least:
        raise InvalidArgument(f"{name} is a whole number from {least} on")


def check_text(name: str, given: Any, *, may_be_empty: bool = False) -> None:
    """Check a text.

    Raises:
        InvalidArgument: It is none, or empty where it may not be.
    """
    if not isinstance(given, str):
        raise InvalidArgument(f"{name} is text, got {type(given).__name__}")
    if not may_be_empty and not given.strip():
        raise InvalidArgument(f"{name} is text that is not empty")


def to_labels(name: str, given: Any) -> tuple[str, ...]:
    """Check the labels of a namespace.

    Raises:
        InvalidArgument: It is no sequence of texts.
    """
    if not isinstance(given, list | tuple) or not all(isinstance(label, str) for label in given):
        raise InvalidArgument(f"{name} is a sequence of texts such as ('memories', 'ada'), got {type(given).__name__}")
    return tuple(given)
