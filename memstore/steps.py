"""Flows and their two interpreters.

A flow is a generator that yields a step, is sent the reply and returns its result. It never blocks and never awaits:
whoever runs it performs the steps. Errors of a step are thrown into the flow, so that its `finally` and `except` work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

S = TypeVar("S")
T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """One SQL statement; the reply is its rows, a list of tuples (empty where it returns none)."""

    sql: str
    params: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class Each:
    """One SQL statement for each of several parameter rows; the reply is a list of lists of rows, in order."""

    sql: str
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Many:
    """One SQL statement for each of several parameter rows, their results unwanted; the reply is None."""

    sql: str
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Compute:
    """Work for the processor alone; a runner may move it off an event loop. The reply is what the call returns."""

    call: Callable[[], Any]
    size: int = 0
    """About how many numbers it goes through, where that may be many."""


@dataclass(frozen=True, slots=True)
class Together:
    """Steps that need no reply of each other, in order; the reply is the list of theirs."""

    steps: Sequence[Step]


@dataclass(frozen=True, slots=True)
class Decoded:
    """A step whose reply is given another shape first."""

    step: Step
    decode: Callable[[Any], Any]


Step: TypeAlias = "Statement | Each | Many | Compute | Together | Decoded"
NOTHING: Final = Together(())
"""A step for what a database has no need of."""
Flow: TypeAlias = Generator[Step, Any, T]


def run(flow: Generator[S, Any, T], perform: Callable[[S], Any]) -> T:
    """Drive a flow to its result with a runner that blocks."""
    try:
        step = next(flow)
        while True:
            try:
                reply = perform(step)
            except BaseException as error:  # noqa: BLE001  the flow sees every error; what it does not catch comes out
                step = flow.throw(error)
            else:
                step = flow.send(reply)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def arun(flow: Generator[S, Any, T], perform: Callable[[S], Awaitable[Any]]) -> T:
    """Drive a flow to its result with a runner that is awaited."""
    try:
        step = next(flow)
        while True:
            try:
                reply = await perform(step)
            except BaseException as error:  # noqa: BLE001  as in `run`, cancellation included
                step = flow.throw(error)
            else:
                step = flow.send(reply)
    except StopIteration as stop:
        result: T = stop.value
        return result
