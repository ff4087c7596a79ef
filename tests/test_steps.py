"""Steps, flows and their two interpreters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeAlias

import pytest

from memstore.steps import Compute, Each, Many, Statement, arun, run

Talk: TypeAlias = Generator[str, Any, Any]
Drive: TypeAlias = Callable[[Talk, Callable[[str], Any]], Any]


def drive_async(flow: Talk, perform: Callable[[str], Any]) -> Any:
    """Drive a flow with `arun`, each reply coming after a trip through the event loop."""

    async def performed(step: str) -> Any:
        await asyncio.sleep(0)
        return perform(step)

    return asyncio.run(arun(flow, performed))


drives = pytest.mark.parametrize("drive", [run, drive_async], ids=["run", "arun"])


class StepError(Exception):
    """What a step of these tests fails with."""


def fail(step: str) -> Any:
    """Perform a step by failing."""
    raise StepError(step)


@drives
def test_replies_go_in_and_the_result_comes_out(drive: Drive) -> None:
    """A flow is sent the reply to each of its steps, in order, and what it returns is the result."""

    def talk() -> Talk:
        first = yield "one"
        second = yield "two"
        return [first, second]

    assert drive(talk(), str.upper) == ["ONE", "TWO"]


@drives
def test_a_flow_without_steps_just_returns(drive: Drive) -> None:
    """A flow may find that nothing is to be done; nothing is performed then."""

    def talk() -> Talk:
        yield from ()
        return 7

    assert drive(talk(), fail) == 7


@drives
def test_a_reply_of_none_is_a_reply(drive: Drive) -> None:
    """`Many` has no results: None must not be mistaken for anything else."""

    def talk() -> Talk:
        return (yield "many") is None

    assert drive(talk(), lambda _: None) is True


@drives
def test_a_step_s_error_is_thrown_into_the_flow(drive: Drive) -> None:
    """The flow sees the error where it yielded, and may catch it and go on with another step."""

    def talk() -> Talk:
        try:
            yield "bad"
        except StepError as error:
            return [str(error), (yield "good")]

    assert drive(talk(), lambda step: fail(step) if step == "bad" else step) == ["bad", "good"]


@drives
def test_an_error_the_flow_does_not_catch_comes_out(drive: Drive) -> None:
    """It is the very same error, and no further step is performed."""
    performed: list[str] = []

    def perform(step: str) -> Any:
        performed.append(step)
        return fail(step)

    def talk() -> Talk:
        yield "bad"
        yield "never"

    with pytest.raises(StepError, match=r"^bad$"):
        drive(talk(), perform)
    assert performed == ["bad"]


@drives
def test_a_flow_may_replace_the_error(drive: Drive) -> None:
    """Translation works with `raise ... from`; the cause is kept."""

    def talk() -> Talk:
        try:
            yield "bad"
        except StepError as error:
            raise LookupError from error

    with pytest.raises(LookupError) as caught:
        drive(talk(), fail)
    assert isinstance(caught.value.__cause__, StepError)


@drives
def test_finally_in_a_flow_may_still_perform_steps(drive: Drive) -> None:
    """Clean-up that needs the database works, after an error too."""
    performed: list[str] = []

    def perform(step: str) -> Any:
        performed.append(step)
        return fail(step) if step == "bad" else None

    def talk() -> Talk:
        try:
            yield "bad"
        finally:
            yield "clean"

    with pytest.raises(StepError):
        drive(talk(), perform)
    assert performed == ["bad", "clean"]


@drives
def test_an_error_of_the_flow_itself_comes_out(drive: Drive) -> None:
    """A flow that raises between its steps ends with that error."""

    def talk() -> Talk:
        yield "good"
        raise LookupError

    with pytest.raises(LookupError):
        drive(talk(), str)


@drives
def test_a_keyboard_interrupt_reaches_the_flow(drive: Drive) -> None:
    """Errors outside `Exception` go in as well, or a flow's `finally` would not see Ctrl-C."""
    seen: list[str] = []

    def interrupted(step: str) -> Any:
        raise KeyboardInterrupt(step)

    def talk() -> Talk:
        try:
            yield "long"
        except KeyboardInterrupt:
            seen.append("interrupted")
            raise

    with pytest.raises(KeyboardInterrupt):
        drive(talk(), interrupted)
    assert seen == ["interrupted"]


@drives
def test_a_step_that_raises_stop_iteration_is_no_result(drive: Drive) -> None:
    """A stray StopIteration of a callback must not end the flow as if it had returned."""

    def exhausted(step: str) -> Any:
        raise StopIteration(step)

    def talk() -> Talk:
        yield "next"
        return "done"

    with pytest.raises(RuntimeError):
        drive(talk(), exhausted)


@drives
def test_a_flow_inside_a_flow_is_one_flow(drive: Drive) -> None:
    """`yield from` passes steps, replies and errors through."""

    def inner() -> Talk:
        try:
            return (yield "inner")
        except StepError:
            return "caught inside"

    def outer() -> Talk:
        first = yield from inner()
        return [first, (yield "outer")]

    assert drive(outer(), lambda step: fail(step) if step == "inner" else step) == ["caught inside", "outer"]


def test_cancelling_reaches_the_flow_and_comes_out() -> None:
    """A cancelled `arun` throws into the flow at its step, so that `finally` runs, and stays cancelled."""
    seen: list[str] = []

    def talk() -> Talk:
        try:
            yield "endless"
        finally:
            seen.append("let go")

    async def main() -> None:
        waiting = asyncio.Event()

        async def perform(_: str) -> None:
            waiting.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(arun(talk(), perform))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert seen == ["let go"]


def test_a_flow_may_finish_its_work_when_cancelled() -> None:
    """Where a flow has begun what cannot be left half-way, it may catch the cancellation and perform what is left."""

    def talk() -> Talk:
        try:
            yield "endless"
        except asyncio.CancelledError:
            yield "finish"
            return "whole"

    async def main() -> str:
        waiting = asyncio.Event()

        def performed(step: str) -> Awaitable[Any]:
            return asyncio.Event().wait() if step == "endless" else asyncio.sleep(0)

        async def perform(step: str) -> Any:
            waiting.set()
            return await performed(step)

        task = asyncio.create_task(arun(talk(), perform))
        await waiting.wait()
        task.cancel()
        result: str = await task
        return result

    assert asyncio.run(main()) == "whole"


def test_steps_are_frozen_data() -> None:
    """Steps are compared by what they say and cannot be changed on their way."""
    assert Statement("SELECT ?", (1,)) == Statement("SELECT ?", (1,))
    assert Each("SELECT ?", [(1,)]) == Each("SELECT ?", [(1,)])
    assert Many("SELECT ?", [(1,)]) == Many("SELECT ?", [(1,)])
    assert Statement("SELECT 1").params == ()
    assert Compute(int).call() == 0
    with pytest.raises(AttributeError):
        Statement("SELECT 1").sql = "SELECT 2"  # type: ignore[misc]  # that it is frozen is the point
