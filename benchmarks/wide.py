"""Searches over everything: where nothing has been searched since opening, warm, filtered, by pages, after puts."""

from __future__ import annotations

import time
from typing import Any, Final

from langgraph.store.base import PutOp

from benchmarks.oracle import Question
from benchmarks.peers import Contestant
from benchmarks.reads import FILTER, LIMIT, PAGES
from benchmarks.run import Run
from benchmarks.workload import LOTS

MORE: Final = PAGES * LIMIT
CHUNK: Final = 100
"""Puts in the batch that a search has to catch up with."""
BATCHES: Final = 10
_OPENINGS: Final = 3
RARE: Final[dict[str, Any]] = {"lot": 7}
_WITHOUT: Final = "everything, first, without an index file"
_WITH: Final = "everything, first, with its index file"
_PAGED: Final = f"everything: {PAGES} pages of {LIMIT}"
_AFTER_PUT: Final = "everything, after a put"
_AFTER_BATCH: Final = f"everything, after a batch of {CHUNK} puts"


def search_everything(run: Run) -> None:
    """Take every measure whose scope is all users together."""
    _open_anew(run)
    ask_everything(run, f"everything, k = {LIMIT}", LIMIT)
    ask_everything(run, f"everything, k = {MORE}", MORE)
    ask_everything(run, "everything, filter that an eighth passes", LIMIT, FILTER)
    ask_everything(run, f"everything, filter that 1 in {LOTS:,} passes", LIMIT, RARE)
    turn_wide_pages(run)


def build(run: Run) -> None:
    """Make the indexes of memstore on Postgres, which it would make by itself when it is first searched so."""
    for contestant in run.own:
        wide = contestant.store._calls._wide  # type: ignore[attr-defined]  # noqa: SLF001  no call makes them and waits
        start = time.monotonic()
        made = wide.build()
        run.values.add(f"making the indexes, s{run.suffix}", contestant.name, time.monotonic() - start)
        if not made:
            run.notes.append(f"another process was making the indexes of {contestant.name}")


def turn_wide_pages(run: Run) -> None:
    """Read an answer over everything page by page."""
    questions = to_questions(run, run.wide_repeats, MORE)
    for question, contestant in run.turns(_PAGED, questions):
        run.turn_pages(_PAGED, contestant, question, LIMIT)


def ask_everything(
    run: Run, measure: str, limit: int, wanted: dict[str, Any] | None = None, among: list[Contestant] | None = None
) -> None:
    """Search over everything, every time with another query."""
    questions = to_questions(run, run.wide_repeats, limit, wanted)
    for question, contestant in run.turns(measure, questions, among):
        run.ask(measure, contestant, question)


def catch_up(run: Run) -> None:
    """Search over everything right after a put, and right after a batch of them."""
    puts = [(run.workload.next_spare(), question) for question in to_questions(run, run.wide_repeats, LIMIT)]
    for (memory, question), contestant in run.turns(_AFTER_PUT, puts):
        contestant.put(memory)
        contestant.take_down(memory)
        run.ask(_AFTER_PUT, contestant, question)
    batches = [
        ([run.workload.next_spare() for _ in range(CHUNK)], question) for question in to_questions(run, BATCHES, LIMIT)
    ]
    for (memories, question), contestant in run.turns(_AFTER_BATCH, batches):
        contestant.store.batch([PutOp(memory.namespace, memory.key, memory.value) for memory in memories])
        contestant.take_down(*memories)
        run.ask(_AFTER_BATCH, contestant, question)


def _open_anew(run: Run) -> None:
    """Open stores and search over everything at once: where no index file is there, and where one is."""
    questions = to_questions(run, 2 * _OPENINGS, LIMIT)
    for question, contestant in run.turns(_WITHOUT, questions[:_OPENINGS], run.durable):
        contestant.close()
        contestant.drop_index()
        run.timed("opening", contestant, contestant.open)
        run.ask(_WITHOUT, contestant, question)
    indexed = []
    for contestant in run.own:
        contestant.close()
        if contestant.weigh()["index file"]:
            indexed.append(contestant)
            run.values.add("index file, MB", contestant.name, contestant.weigh()["index file"] / 10**6)
        else:
            run.notes.append(f"{contestant.name} wrote no index file")
        contestant.open()
    for question, contestant in run.turns(_WITH, questions[_OPENINGS:], indexed):
        contestant.close()
        contestant.open()
        run.ask(_WITH, contestant, question)


def to_questions(run: Run, count: int, limit: int, wanted: dict[str, Any] | None = None) -> list[Question]:
    """Make questions over everything."""
    return [Question(run.workload.next_query(), None, limit, wanted) for _ in range(count)]
