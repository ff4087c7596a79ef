"""What writing costs: filling the stores, their bytes on disk, one put, and searching where one was put."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Sequence
from typing import Final

from langgraph.store.base import PutOp

from benchmarks.oracle import Question
from benchmarks.peers import Contestant
from benchmarks.run import Run
from benchmarks.workload import Memory

BATCH: Final = 500
"""Puts in one batch while the stores are filled."""
_FILLING: Final = 50
"""So many times as long as one measure may filling a store take."""
_FILL: Final = f"batch of {BATCH} puts (filling)"
_MORE: Final = f"batch of {BATCH} puts, full store"
_BATCHED: Final = 50
"""There is one of these batches for so many repeats of other measures."""
_NEW: Final = "put, new item"
_CHANGED: Final = "put, replacing an item"
_AFTER_PUT: Final = "user search after a put there"
_DISK: Final = "8 KiB written and synced"
_BLOCK: Final = b"\0" * 8192


def fill(run: Run) -> None:
    """Fill all stores; one that is not full when its time is up takes no part in what follows."""
    batches = list(run.workload.batches(BATCH))
    patience = _FILLING * run.patience
    for batch, contestant in run.turns(_FILL, batches, patience=patience):
        put_batch(run, _FILL, contestant, batch)
    for contestant in tuple(run.contestants):
        taken = run.timings.seconds[_FILL + run.suffix][contestant.name]
        items = min(run.workload.sizes.items, len(taken) * BATCH)
        run.values.add(f"puts a second, filling{run.suffix}", contestant.name, items / sum(taken))
        if len(taken) < len(batches):
            run.leave_out(contestant, f"it held {items:,} items when the {patience:g} s for filling it were up")
    gc.collect()
    gc.freeze()  # or collecting what the workload and the stores hold by now shows up in any store's times


def put_batch(run: Run, measure: str, contestant: Contestant, memories: Sequence[Memory]) -> None:
    """Put memories as one batch."""
    ops = [PutOp(memory.namespace, memory.key, memory.value) for memory in memories]
    run.timed(measure, contestant, lambda: contestant.store.batch(ops))


def count_batches(repeats: int) -> int:
    """Say how many batches are put into a full store."""
    return max(2, repeats // _BATCHED)


def put_batches(run: Run) -> None:
    """Put batches of new items into stores that are full."""
    batches = [[run.workload.next_spare() for _ in range(BATCH)] for _ in range(count_batches(run.repeats))]
    for batch, contestant in run.turns(_MORE, batches):
        put_batch(run, _MORE, contestant, batch)
        contestant.take_down(*batch)


def weigh(run: Run) -> None:
    """Count bytes on disk, before and after closing has copied the log into the database."""
    for contestant in run.durable:
        run.values.add("log while open, MB", contestant.name, contestant.weigh()["log"] / 10**6)
        contestant.close()
        run.values.add("database, MB", contestant.name, contestant.weigh()["database"] / 10**6)
        contestant.open()


def put(run: Run) -> None:
    """Put one item at a time, and search where one was put."""
    workload = run.workload
    written = [(workload.next_spare(), workload.next_change()) for _ in range(run.repeats)]
    with run.contestants[0].path.with_name("block").open("wb", buffering=0) as file:
        for (new, changed), contestant in run.turns(_NEW, written):
            _put(run, _NEW, contestant, new)
            _put(run, _CHANGED, contestant, changed)
            start = time.perf_counter()
            file.write(_BLOCK)
            os.fsync(file.fileno())
            run.timings.add(_DISK, "(the disk)", time.perf_counter() - start)
    run.timings.plan(_CHANGED + run.suffix, run.repeats)
    pairs = [(workload.next_spare(), workload.next_query(), workload.next_query()) for _ in range(run.repeats)]
    for (new, before, query), contestant in run.turns(_AFTER_PUT, pairs):
        Question(before, new.user).ask(contestant.store)
        contestant.put(new)
        contestant.take_down(new)
        run.ask(_AFTER_PUT, contestant, Question(query, new.user))


def _put(run: Run, measure: str, contestant: Contestant, memory: Memory) -> None:
    run.timed(measure, contestant, lambda: contestant.put(memory))
    contestant.take_down(memory)
