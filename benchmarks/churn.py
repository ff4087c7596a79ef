"""memstore after 30 % of its items were deleted or rewritten, beside a fresh store with the same content."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from langgraph.store.base import PutOp

from benchmarks.oracle import Question
from benchmarks.peers import FRESH, Contestant, Setup
from benchmarks.reads import LIMIT, search_warm
from benchmarks.run import Run
from benchmarks.wide import MORE, ask_everything
from benchmarks.workload import Memory
from benchmarks.writes import BATCH

SHARE: Final = 0.15
"""Of the items, so much is deleted and so much rewritten."""
_AFTER: Final = "30 % changed"
_CHANGE: Final = f"batch of {BATCH} deletes and rewrites"
_FIRST: Final = f"{_AFTER}: first search over everything"


def measure_churn(run: Run, folder: Path, setup: Setup) -> None:
    """Change the stores of memstore at random, then search them and fresh ones in turns."""
    ops = _to_ops(run)
    before = Question(run.workload.next_query())
    for own in run.own:
        before.ask(own.store)  # so that the first search afterwards catches up with the changes and makes no index
    for batch, contestant in run.turns(_CHANGE, ops, run.own, patience=float("inf")):
        _apply(run, contestant, batch)
    with ExitStack() as opened:
        fresh = [opened.enter_context(Contestant(own.kind, folder, setup, own.name + FRESH)) for own in run.own]
        for own, other in zip(run.own, fresh, strict=True):
            _refill(run, own, other)
        among = [*run.own, *fresh]
        for question, contestant in run.turns(_FIRST, [Question(run.workload.next_query())], among):
            run.ask(_FIRST, contestant, question)
        search_warm(run, f"{_AFTER}: user search, warm", among=among)
        ask_everything(run, f"{_AFTER}: everything, k = {LIMIT}", LIMIT, among=among)
        ask_everything(run, f"{_AFTER}: everything, k = {MORE}", MORE, among=among)
        for contestant in among:
            contestant.close()
            for part, size in contestant.weigh().items():
                if part != "log":
                    run.values.add(f"{_AFTER}: {part}, MB", contestant.name, size / 10**6)


def count_spares(items: int) -> int:
    """Say how many texts the rewriting takes."""
    return int(SHARE * items)


def _to_ops(run: Run) -> list[list[tuple[Memory, bool]]]:
    """Pick what is deleted (True) and what is rewritten, in batches that hold both."""
    workload = run.workload
    share = count_spares(workload.sizes.items)
    picked = workload.pick_memories(2 * share)
    rewritten = [Memory(old.user, old.key, workload.next_spare().value) for old in picked[share:]]
    mixed = [op for pair in zip(picked[:share], rewritten, strict=True) for op in ((pair[0], True), (pair[1], False))]
    return [mixed[at : at + BATCH] for at in range(0, len(mixed), BATCH)]


def _apply(run: Run, contestant: Contestant, batch: list[tuple[Memory, bool]]) -> None:
    ops = [PutOp(memory.namespace, memory.key, None if gone else memory.value) for memory, gone in batch]
    run.timed(_CHANGE, contestant, lambda: contestant.store.batch(ops))
    for memory, gone in batch:
        contestant.take_down(memory, gone=gone)


def _refill(run: Run, own: Contestant, fresh: Contestant) -> None:
    """Fill a fresh store with what another holds; the oracle sees both alike."""
    content: dict[str, Memory | None] = {memory.key: memory for memory in run.workload.memories}
    content.update(own.log)
    held = [PutOp(memory.namespace, memory.key, memory.value) for memory in content.values() if memory is not None]
    starts = range(0, len(held), BATCH)
    for start in run.shown(f"filling {fresh.name}", starts, len(starts)):
        fresh.store.batch(held[start : start + BATCH])
    fresh.log = own.log
