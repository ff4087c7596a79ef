"""Moves: what a call of the store does outside itself, each of which knows how to be made and how to be awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from memstore.backends import Backend, FlowMaker

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Move:
    """One thing a call does outside itself."""

    make: Callable[[], Any]
    amake: Callable[[], Awaitable[Any]]


def perform(move: Move) -> Any:
    """Make a move on this thread."""
    return move.make()


async def aperform(move: Move) -> Any:
    """Make a move off the event loop."""
    return await move.amake()


Call: TypeAlias = Generator[Move, Any, T]


def read(backend: Backend, make: FlowMaker[Any]) -> Move:
    """Run a flow that only reads, in one snapshot."""
    return Move(partial(backend.read, make), partial(backend.aread, make))


def glance(backend: Backend, make: FlowMaker[Any]) -> Move:
    """Run a short flow that only reads, the quickest way there is."""
    return Move(partial(backend.glance, make), partial(backend.aglance, make))


def write(backend: Backend, make: FlowMaker[Any]) -> Move:
    """Run a flow in one transaction that is wholly applied or not at all."""
    return Move(partial(backend.write, make), partial(backend.awrite, make))


def jot(backend: Backend, prepare: Callable[[], FlowMaker[Any]]) -> Move:
    """Make ready, then run, a flow of one statement that writes and may be run twice, the quickest way there is."""
    return Move(partial(backend.jot, prepare), partial(backend.ajot, prepare))
