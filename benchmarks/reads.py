"""What one user's memories are read with: searches by a query, with a filter, by pages; and reads without a query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from langgraph.store.base import BaseStore

from benchmarks.oracle import Question
from benchmarks.peers import Contestant
from benchmarks.run import UNTIMED, Run
from benchmarks.workload import KINDS, Memory

COLD: Final = "user search, cold"
WARM: Final = "user search, warm"
LIMIT: Final = 10
PAGES: Final = 5
FILTER: Final[dict[str, Any]] = {"kind": KINDS[1]}
"""Passed by an eighth of the memories."""
_FILTERED: Final = "user search with a filter"
_PAGED: Final = f"{PAGES} pages of {LIMIT}"
NEWEST: Final = "user search without a query"
LIST_ALL: Final = "list_namespaces()"
LIST: Final = "list_namespaces(prefix=...)"
LIST_DEPTH: Final = "list_namespaces(max_depth=1)"
READS: Final[dict[str, Callable[[BaseStore, Memory], object]]] = {
    "get": lambda store, memory: store.get(memory.namespace, memory.key),
    NEWEST: lambda store, memory: store.search(memory.namespace, limit=LIMIT),
    LIST_ALL: lambda store, _: store.list_namespaces(),
    LIST: lambda store, _: store.list_namespaces(prefix=("memories",)),
    LIST_DEPTH: lambda store, _: store.list_namespaces(max_depth=1),
}
"""What is read without a query."""


def search_users(run: Run) -> None:
    """Search one user's memories: cold, warm, with a filter."""
    search_cold(run)
    search_warm(run, WARM)
    search_warm(run, _FILTERED, FILTER)


def search_cold(run: Run) -> None:
    """Search namespaces that have not been searched since the stores were opened, one user after the other."""
    for contestant in run.durable:
        contestant.close()
        contestant.open()
    users = run.workload.pick_users(run.repeats + UNTIMED)
    questions = [Question(run.workload.next_query(), user) for user in users]
    for untimed in questions[:UNTIMED]:
        for contestant in run.durable:
            untimed.ask(contestant.store)
    for question, contestant in run.turns(COLD, questions[UNTIMED:], run.durable):
        run.ask(COLD, contestant, question)


def search_warm(
    run: Run, measure: str, wanted: dict[str, Any] | None = None, among: Sequence[Contestant] | None = None
) -> None:
    """Search the namespace that was searched just before, with another query, which has words of a memory there."""
    pairs = []
    for _ in range(run.repeats):
        first, query = run.workload.next_query(), run.workload.next_query()
        user = query.source.user
        pairs.append((Question(first, user, LIMIT, wanted), Question(query, user, LIMIT, wanted)))
    for (before, question), contestant in run.turns(measure, pairs, among):
        before.ask(contestant.store)
        run.ask(measure, contestant, question)


def read(run: Run, measures: Iterable[str] = tuple(READS)) -> None:
    """Read without any query."""
    for measure in measures:
        action = READS[measure]
        picked = [run.workload.pick() for _ in range(run.repeats + UNTIMED)]
        for memory in picked[:UNTIMED]:
            for contestant in run.contestants:
                action(contestant.store, memory)
        for memory, contestant in run.turns(measure, picked[UNTIMED:]):
            run.timed(measure, contestant, lambda: action(contestant.store, memory))  # noqa: B023  called at once


def turn_pages(run: Run) -> None:
    """Read an answer page by page, all pages of one query together."""
    users = run.workload.pick_users(run.repeats)
    questions = [Question(run.workload.next_query(), user, PAGES * LIMIT) for user in users]
    for question, contestant in run.turns(_PAGED, questions):
        run.turn_pages(_PAGED, contestant, question, LIMIT)
