"""Short writes that wait for the same turn share one transaction: the disk is waited for once, not once for each."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from memstore.backends import FlowMaker
from memstore.steps import Flow

_TOGETHER: Final = 64
"""Writes in one transaction at most."""


class _Job(NamedTuple):
    prepare: Callable[[], FlowMaker[Any]]
    future: Future[Any]


class Gathering:
    """A queue of short writes.

    Args:
        write: Runs a flow in a transaction.
    """

    def __init__(self, write: Callable[[FlowMaker[Any]], Any]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._waiting: deque[_Job] = deque()

    def add(self, prepare: Callable[[], FlowMaker[Any]]) -> Future[Any]:
        """Take in a write that is made ready outside of the transaction; one of the next calls of `run` runs it."""
        job = _Job(prepare, Future())
        with self._lock:
            self._waiting.append(job)
        return job.future

    def run(self) -> None:
        """Run the writes that wait; where one of them fails, each by itself, so that it fails alone."""
        with self._lock:
            jobs = [self._waiting.popleft() for _ in range(min(len(self._waiting), _TOGETHER))]
        ready = [
            (maker, job.future)
            for job in jobs
            if job.future.set_running_or_notify_cancel() and (maker := _prepare(job)) is not None
        ]
        if len(ready) > 1:
            try:
                results = self._write(lambda: _in_order([maker for maker, _ in ready]))
            except Exception:  # noqa: BLE001, S110  each says below what is wrong with it
                pass
            else:
                for (_, future), result in zip(ready, results, strict=True):
                    future.set_result(result)
                return
        for maker, future in ready:
            try:
                future.set_result(self._write(maker))
            except BaseException as error:  # noqa: BLE001  who waits for it gets it
                future.set_exception(error)


def _prepare(job: _Job) -> FlowMaker[Any] | None:
    try:
        return job.prepare()
    except BaseException as error:  # noqa: BLE001  who waits for it gets it
        job.future.set_exception(error)
        return None


def _in_order(makers: Sequence[FlowMaker[Any]]) -> Flow[list[Any]]:
    results = []
    for make in makers:
        result = yield from make()
        results.append(result)
    return results
