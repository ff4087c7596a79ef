"""Processes that share nothing but the database: rules 27 and 28 of the contract."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
import time
from typing import Any

from langgraph.store.base import Op, PutOp

from tests.children import DEADLINE, spawn
from tests.support import Place, WordEmbeddings

INDEX: dict[str, Any] = {"embed": WordEmbeddings(), "fields": ["text"]}
WRITERS = 4
SECONDS = 1.5
"""How long so many processes write and read one database together, and longer until each has seen the others."""
CROSSING = ("crossing",)
CROSSINGS = 30
UNCLOSED = """
import asyncio, pickle, sys
from tests.support import WordEmbeddings

location = pickle.loads(bytes.fromhex(sys.argv[1]))
store = location.open(index={"embed": WordEmbeddings()}, ttl={"sweep_interval_minutes": 5})
store.put(("a",), "1", {"n": 1})

async def use():
    await asyncio.gather(*(store.aput(("a",), str(n), {"n": n}) for n in range(5)))
    await store.asearch((), query="n 1")

asyncio.run(use())
print(store.stats().items)
"""


def open_new(number: int, location: Place) -> int:
    """Open the same new database as others do at this moment, and use it."""
    store = location.open(index=INDEX)
    store.setup()
    store.put(("a",), str(number), {"text": f"text {number}"})
    (hit,) = store.search((), query=f"text {number}", limit=1)
    assert (hit.key, hit.score) == (str(number), 1.0)
    store.close()
    return number


def write_and_read(number: int, location: Place, seconds: float) -> tuple[int, int]:
    """Write one's own items and read those of the others; say how often, and how far the others were seen."""
    steps = 0
    latest: dict[tuple[str, ...], int] = {}
    with location.open(index=INDEX) as store:
        end = time.monotonic() + seconds
        while time.monotonic() < end or (len(latest) < WRITERS and time.monotonic() < end + DEADLINE / 2):
            own = ("processes", str(number))
            store.put(own, "k", {"text": f"text {number}", "step": steps})
            (mine,) = store.search(own, query=f"text {number}")
            assert (mine.value["step"], mine.score) == (steps, 1.0)
            for hit in store.search(("processes",), query="text", limit=10):
                assert hit.value["step"] >= latest.get(hit.namespace, 0)
                latest[hit.namespace] = hit.value["step"]
                item = store.get(hit.namespace, hit.key)
                assert item is not None
                assert item.value["step"] >= hit.value["step"]
            steps += 1
    return steps, len(latest)


def see_before_and_after(number: int, location: Place, steps: int, committed: Any) -> None:
    """Take turns with the other process: whoever is not writing must see at once what the writer committed."""
    with location.open(index=INDEX) as store:
        for step in range(steps):
            if step % 2 == number:
                store.put(("a",), "k", {"text": f"step {step}"})
                committed[step].set()
            else:
                assert committed[step].wait(DEADLINE)
                assert [hit.score for hit in store.search((), query=f"step {step}")] == [1.0]
                item = store.get(("a",), "k")
                assert item is not None
                assert item.value == {"text": f"step {step}"}


def write_crosswise(number: int, location: Place, rounds: int) -> None:
    """Put and delete the same items as the others, each in an order of one's own, and see each batch whole."""
    with location.open(index=INDEX) as store:
        for round_ in range(rounds):
            order = [(number + round_ + step * (7 if number % 2 else 23)) % CROSSINGS for step in range(CROSSINGS)]
            written = f"{number} {round_}"
            batch: list[Op] = [
                PutOp((*CROSSING, str(place % 5)), str(place), {"text": f"text {place}", "by": written})
                for place in order
            ]
            if round_ % 3 == number % 3:  # some delete what the others are writing
                batch = [PutOp(op.namespace, op.key, None) for op in batch if isinstance(op, PutOp)]
            store.batch(batch)
            there = store.search(CROSSING, limit=CROSSINGS + 1)
            assert len(there) in (0, CROSSINGS)
            assert len({item.value["by"] for item in there}) <= 1


class ProcessesConformance:
    """Processes that share nothing but the database."""

    def test_processes_may_open_a_new_database_at_once(self, location: Place) -> None:
        """Eight begin with no database at all: one set of tables is made, and none is told that it is locked."""
        assert spawn(8, open_new, location) == list(range(8))
        with location.open() as store:
            assert store.stats().items == 8
            assert store.check().problems == ()

    def test_processes_write_and_read_one_database(self, location: Place) -> None:
        """Four keep at it together: no error, and what one has seen of another never goes back."""
        answers = spawn(WRITERS, write_and_read, location, SECONDS)
        assert all(steps > 0 and seen == WRITERS for steps, seen in answers)
        with location.open() as store:
            assert store.stats().items == WRITERS
            assert store.check().problems == ()

    def test_batches_that_cross_do_not_lock_each_other_out(self, location: Place) -> None:
        """Four write the same items in orders of their own: no error, and no batch is ever seen in part."""
        spawn(WRITERS, write_crosswise, location, 25)
        with location.open() as store:
            assert store.check().problems == ()

    def test_a_process_sees_what_another_committed_before(self, location: Place) -> None:
        """Not sooner or later, but at its very next call, search included."""
        location.open(index=INDEX).close()
        committed = [multiprocessing.get_context("spawn").Event() for _ in range(30)]
        spawn(2, see_before_and_after, location, 30, committed)

    def test_an_unclosed_store_does_not_hold_the_process(self, location: Place) -> None:
        """A script that forgets to close ends when it is done, workers and sweeper notwithstanding."""
        command = [sys.executable, "-c", UNCLOSED, pickle.dumps(location).hex()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
        assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
        assert "Traceback" not in done.stderr
