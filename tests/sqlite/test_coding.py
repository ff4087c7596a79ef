"""Codes of many vectors, made beside the calls: searches go on meanwhile, writes too, and nothing is lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memstore import MemStore, catchup
from memstore.indexes import faiss as faiss_module
from memstore.indexes.faiss import Coding
from tests.children import fork
from tests.conformance.concurrency import DEADLINE
from tests.sqlite.wide_stores import ask, ask_exactly, deletes, fill, index_path, opened, puts

TRAINED = "trained the index"


class Halt:
    """Holds codes back after their first block, until it is let go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self._left = 1
        self._add: Callable[[Coding, Any], None] = Coding.add

    def to_method(self) -> Callable[[Coding, Any], None]:
        """Give what codes vectors, then waits."""

        def add(coding: Coding, vectors: Any) -> None:
            self._add(coding, vectors)
            self._left -= 1
            if self._left == 0:
                self.reached.set()
                assert self.go_on.wait(DEADLINE)

        return add


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have even few vectors coded beside the calls, in blocks of a hundred."""
    monkeypatch.setattr(catchup, "_CODED_AT_ONCE", 50)
    monkeypatch.setattr("memstore.indexes.kept._BLOCK", 100)


@pytest.fixture
def halt(monkeypatch: pytest.MonkeyPatch) -> Iterator[Halt]:
    """Hold the first codes back after their first block."""
    halt = Halt()
    monkeypatch.setattr(Coding, "add", halt.to_method())
    yield halt
    halt.go_on.set()


def wide_of(store: MemStore) -> Any:
    """Give what ranks a store's wide scopes."""
    calls: Any = store._calls
    return calls._wide


def wait(store: MemStore) -> None:
    """Wait until nothing is made beside the calls."""
    wide_of(store)._beside.join()


def test_searches_and_writes_go_on(path: Path, halt: Halt) -> None:
    """While codes are made every vector is compared, what is written then is found, and at the end it is coded too."""
    fill(path)
    with opened(path) as store:
        assert ask(store) == ask_exactly(path)
        assert halt.reached.wait(DEADLINE)
        state = store.stats().index
        assert (state.kind, state.coded, state.building) == ("flat", 0, True)
        store.batch([*puts(range(600, 640)), *deletes(range(30))])
        assert ask(store) == ask_exactly(path)
        halt.go_on.set()
        wait(store)
        assert ask(store) == ask_exactly(path)
        state = store.stats().index
        assert (state.kind, state.coded, state.dims_a_code, state.building) == ("pq", 640, 2, False)


def test_places_that_change_meanwhile(path: Path, halt: Halt, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index closes up while its codes are made: they are begun anew."""
    monkeypatch.setattr("memstore.wide._DEAD_LEAST", 10)
    fill(path)
    with opened(path) as store:
        ask(store)
        assert halt.reached.wait(DEADLINE)
        store.batch(deletes(range(0, 400, 2)))
        assert ask(store) == ask_exactly(path)
        halt.go_on.set()
        wait(store)
        assert ask(store) == ask_exactly(path)
        assert store.stats().index.coded == 400


def test_closing_keeps_what_there_is(path: Path, halt: Halt, caplog: pytest.LogCaptureFixture) -> None:
    """It waits for no more than a block, and whoever opens next goes on from there."""
    caplog.set_level(logging.INFO, "memstore")
    fill(path)
    with opened(path) as store:
        ask(store)
        assert halt.reached.wait(DEADLINE)
        closing = threading.Thread(target=store.close)
        closing.start()
        while not wide_of(store)._closing:
            closing.join(0.001)
        halt.go_on.set()
        closing.join(DEADLINE)
        assert not closing.is_alive()
    assert index_path(path).exists()
    caplog.clear()
    with opened(path) as store:
        assert ask(store) == ask_exactly(path)
        wait(store)
        assert ask(store) == ask_exactly(path)
        assert store.stats().index.coded == 600
    assert TRAINED not in caplog.text


def test_more_are_coded_as_they_come(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A large batch is coded beside the calls by the quantizer that is there, a small one by the search itself."""
    fill(path)
    with opened(path) as store:
        ask(store)
        wait(store)
        caplog.set_level(logging.INFO, "memstore")
        caplog.clear()
        store.batch(puts(range(600, 900)))
        assert ask(store) == ask_exactly(path)
        wait(store)
        assert store.stats().index.coded == 900
        store.batch(puts(range(900, 920)))
        assert ask(store) == ask_exactly(path)
        assert store.stats().index.coded == 920
        assert TRAINED not in caplog.text


def test_codes_become_coarser_and_finer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With very many vectors four dims share a code; with few again, two."""
    monkeypatch.setattr(faiss_module, "_COARSE_FROM", 700)
    monkeypatch.setattr(faiss_module, "_FINE_BELOW", 400)
    monkeypatch.setattr("memstore.wide._DEAD_LEAST", 10)
    fill(path)
    with opened(path) as store:
        for change, dims, left in (([], 2, 600), (puts(range(600, 800)), 4, 800), (deletes(range(500)), 2, 300)):
            store.batch(change)
            assert ask(store) == ask_exactly(path)
            wait(store)
            assert ask(store) == ask_exactly(path)
            state = store.stats().index
            assert (state.dims_a_code, state.coded) == (dims, left)
    with opened(path) as store:
        assert ask(store) == ask_exactly(path)
        assert store.stats().index.coded == 300


def test_explain_names_what_proposed(path: Path) -> None:
    """The codes, and before there are any the vectors themselves."""
    fill(path)
    with opened(path) as store:
        told = store.explain((), query="w1 w7", mode="semantic")
        assert told.found_by is not None
        wait(store)
        told = store.explain((), query="w1 w7", mode="semantic")
        assert told.found_by is not None
        assert told.found_by.kind == "pq"
        assert "approximately, by codes of 4 bits for 2 dims, vectors in float32" in str(told)
        assert store.explain(("wide", "1"), query="w1 w7", mode="semantic").exact is False
    with opened(path, exact=True) as store:
        assert store.explain((), query="w1 w7").found_by is None


def test_a_failure_is_told_to_the_log(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Searches go on without codes, and are as right; codes are made when that works again."""

    def fail(_: Coding) -> None:
        raise MemoryError

    fill(path)
    with opened(path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(Coding, "prepare", fail)
            assert ask(store) == ask_exactly(path)
            wait(store)
            assert "work beside the calls failed" in caplog.text
        assert ask(store) == ask_exactly(path)
        wait(store)
        assert store.stats().index.coded == 600


def test_a_forked_child_makes_its_own(path: Path, halt: Halt) -> None:
    """What its parent's thread was at is begun anew by its own, and the parent's goes on."""
    fill(path)
    expected = ask_exactly(path)
    with opened(path) as store:
        ask(store)
        assert halt.reached.wait(DEADLINE)

        def work() -> None:
            halt.go_on.set()
            assert ask(store) == expected
            wait(store)
            assert ask(store) == expected
            assert store.stats().index.coded == 600

        fork(work)
        halt.go_on.set()
        wait(store)
        assert store.stats().index.coded == 600
