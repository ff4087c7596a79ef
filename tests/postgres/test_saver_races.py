"""Another connection acts between any two steps of a change: no checkpoint that is left lacks a value."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias

import pytest

from memstore import MemSaver
from memstore.steps import Flow
from memstore.threads import delete_idle
from tests.conformance.saver_callers import to_checkpoint, to_config
from tests.support import Place

Act: TypeAlias = Callable[[MemSaver], object]
_STEPS: Final = 12
"""More than any of the changes has."""
_PATIENCE: Final = 0.2
"""Seconds after which what acts between is taken to wait for the change to end."""


def to_values(number: int) -> tuple[dict[str, Any], dict[str, str]]:
    """Give the values and versions of a checkpoint: one channel stays, one changes."""
    return {"stays": ["s"], "moves": [number]}, {"stays": "1", "moves": f"{number}"}


def put(saver: MemSaver, parent: int | None, id_: str, number: int, **metadata: Any) -> None:
    """Put a checkpoint."""
    values, versions = to_values(number)
    changed: dict[str, Any] = dict(versions) if parent is None else {} if metadata else {"moves": versions["moves"]}
    config = to_config("t", None if parent is None else f"{parent:03}")
    named: Any = {"run_id": f"r{number}", **metadata}
    saver.put(config, to_checkpoint(id_, values, channel_versions=versions), named, changed)


CHANGES: dict[str, Callable[[MemSaver], Callable[[], Flow[Any]]]] = {
    "prune": lambda saver: saver.to_calls()[0].to_prune("t", 1, saver.to_calls()[1]),
    "delete": lambda saver: saver.to_calls()[0].to_deletion(["t"]),
    "delete a run": lambda saver: saver.to_calls()[0].to_run_deletion(["r3"], saver.to_calls()[1]),
    "copy": lambda saver: saver.to_calls()[0].to_copy("t", "copy"),
}
ACTS: dict[str, Act] = {
    "goes on": lambda saver: put(saver, 3, "900", 9),
    "goes on from before": lambda saver: put(saver, 1, "900", 9),
    "begins anew": lambda saver: put(saver, None, "900", 3),
    "forks": lambda saver: put(saver, 2, "900", 3, source="fork"),
    "deletes": lambda saver: saver.delete_thread("t"),
    "prunes": lambda saver: saver.prune(["t"]),
    "copies": lambda saver: saver.copy_thread("t", "copy"),
}


def interrupted(
    make: Callable[[], Flow[Any]], at: int, act: Callable[[], object], started: list[threading.Thread]
) -> Callable[[], Flow[Any]]:
    """Have something act on another thread before a step of a flow, and go on when it has ended or waits."""

    def flow() -> Flow[Any]:
        inner, reply = make(), None
        for number in range(10_000):
            if number == at:
                started.append(threading.Thread(target=act))
                started[-1].start()
                started[-1].join(_PATIENCE)
            try:
                reply = yield inner.send(reply)
            except StopIteration as stop:
                return stop.value

    return flow


@pytest.fixture
def savers(location: Place) -> Iterator[tuple[MemSaver, MemSaver]]:
    """Open two savers on one schema."""
    with (
        MemSaver.open(location.location, **location.options) as one,
        MemSaver.open(location.location, **location.options) as other,
    ):
        yield one, other


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS.keys())
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_no_value_is_lost_between_two_steps(
    savers: tuple[MemSaver, MemSaver], change: Callable[[MemSaver], Callable[[], Flow[Any]]], act: Act
) -> None:
    """Whatever a run, a fork or an upkeep does meanwhile, each checkpoint that is left is whole."""
    one, other = savers
    for at in range(_STEPS):
        for thread in ("t", "copy"):
            one.delete_thread(thread)
        for number in range(4):
            put(one, number - 1 if number else None, f"{number:03}", number)
        started: list[threading.Thread] = []
        one._do(one.to_calls()[0].change(interrupted(change(one), at, partial(act, other), started)))
        for acting in started:
            acting.join()
        for found in one.list(None):
            number = found.checkpoint["channel_values"].get("moves", [None])[0]
            assert found.checkpoint["channel_values"] == to_values(number)[0], (at, found.config)


def test_a_thread_that_wakes_is_not_swept(savers: tuple[MemSaver, MemSaver]) -> None:
    """What a run puts into an idle thread, between finding it idle and deleting it, stays, and is whole."""
    one, other = savers
    old, new = "1e000000-0000-6000-8000-000000000001", "1f500000-0000-6000-8000-000000000001"
    values = {"a": [1], "b": [2]}
    one.put(to_config("t"), to_checkpoint(old, {"a": [1]}, channel_versions={"a": "1"}), {}, {"a": "1"})
    child = to_checkpoint(new, values, channel_versions={"a": "1", "b": "1"})
    calls, _ = one.to_calls()
    for at in range(3):
        sweep = partial(delete_idle, calls._threads, "1f000000-0000-6", ["t"])
        started: list[threading.Thread] = []
        wake = partial(other.put, to_config("t", old), child, {}, {"b": "1"})
        one._do(calls.change(interrupted(sweep, at, wake, started)))
        for acting in started:
            acting.join()
        found = one.get_tuple(to_config("t"))
        assert found is not None
        assert found.checkpoint["channel_values"] == values
