"""Work in other processes: spawned afresh, or forked from the one that tests."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any

DEADLINE = 60
"""Seconds within which a child ends, or hangs for good."""
FORK_DEADLINE = 15
"""Seconds for a forked child, which has nothing to load."""
_spawning = multiprocessing.get_context("spawn")


def spawn(count: int, work: Callable[..., Any], *args: Any) -> list[Any]:
    """Run `work(number, *args)` in new processes that begin at the same moment; give what each returned."""
    start = _spawning.Barrier(count)
    answers: Queue[tuple[int, Any, str | None]] = _spawning.Queue()
    children = [
        _spawning.Process(target=_begin, args=(start, answers, work, number, *args), daemon=True)
        for number in range(count)
    ]
    for child in children:
        child.start()
    try:
        given = sorted((answers.get(timeout=DEADLINE) for _ in children), key=lambda answer: answer[0])
    finally:
        for child in children:
            child.join(DEADLINE)
            child.kill()
    faults = [fault for _, _, fault in given if fault is not None]
    assert not faults, faults[0]
    assert [child.exitcode for child in children] == [0] * count
    return [result for _, result, _ in given]


def _begin(
    start: Barrier, answers: Queue[tuple[int, Any, str | None]], work: Callable[..., Any], number: int, *args: Any
) -> None:
    try:
        start.wait(DEADLINE)
        answers.put((number, work(number, *args), None))
    except BaseException:  # noqa: BLE001  the test shows it
        answers.put((number, None, traceback.format_exc()))


class Forked:
    """A forked child that does one thing and ends; it is killed where it hangs."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(FORK_DEADLINE)
            try:
                answer: tuple[Any, str | None] = (work(), None)
            except BaseException:  # noqa: BLE001  the test shows it
                answer = (None, traceback.format_exc())
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(answer, pipe)
            os._exit(0)  # the parent's test session is not the child's to end
        os.close(writing)

    def result(self) -> Any:
        """Wait for the child and give what its work returned."""
        with os.fdopen(self._reading, "rb") as pipe:
            given = pipe.read()
        _, status = os.waitpid(self.pid, 0)
        assert given, f"the child ended with {status} and no answer: it hung, or died"
        result, fault = pickle.loads(given)  # noqa: S301  from our own child
        assert fault is None, fault
        return result


def fork(work: Callable[[], Any]) -> Any:
    """Run something in a forked child and give what it returned."""
    return Forked(work).result()


class Busy:
    """Threads that repeat their work until the block ends; what one of them raises comes out there."""

    def __init__(self, *works: Callable[[int], object]) -> None:
        self._done = threading.Event()
        self._faults: list[BaseException] = []
        self._under_way = [threading.Event() for _ in works]
        self._threads = [
            threading.Thread(target=self._repeat, args=(work, begun))
            for work, begun in zip(works, self._under_way, strict=True)
        ]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()
        for begun in self._under_way:
            assert begun.wait(DEADLINE)

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(DEADLINE)
        assert not any(thread.is_alive() for thread in self._threads)
        if self._faults:
            raise self._faults[0]

    def _repeat(self, work: Callable[[int], object], begun: threading.Event) -> None:
        number = 0
        try:
            while not self._done.is_set():
                work(number)
                number += 1
                begun.set()
        except BaseException as error:  # noqa: BLE001  raised again where the block ends
            self._faults.append(error)
        finally:
            begun.set()
