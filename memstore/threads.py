"""Flows over whole threads: deleting, copying, pruning, listing, and forgetting what is old.

A delta channel's value may lie with the ancestors of a checkpoint: whatever is kept keeps those it needs. Each
transaction is about one thread, or a few, so that none holds up a run for long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from langgraph.checkpoint.serde.types import TASKS

from memstore.ancestry import Line, find_needed
from memstore.checkpoints import Address as At
from memstore.checkpoints import Node, Page, Reader, Stored, to_moment
from memstore.dialects.threads import ThreadRow, ThreadStatements
from memstore.errors import InvalidArgument
from memstore.metadata import accepts, from_metadata
from memstore.steps import Flow

PAGE: Final = 500
"""Checkpoints read at once."""


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread, as it is listed.

    Attributes:
        thread_id: Its name.
        checkpoints: How many it has, in all its namespaces.
        namespaces: How many namespaces: its graph's own and those of subgraphs.
        checkpoint_id: The newest one's.
        updated_at: When that was made, in UTC; None where its id does not tell.
    """

    thread_id: str
    checkpoints: int
    namespaces: int
    checkpoint_id: str
    updated_at: datetime | None


def make_ready(threads: ThreadStatements, claim: Any) -> Flow[None]:
    """Make the tables where any is missing, and let nobody else do it meanwhile."""
    yield claim
    if not (yield from threads.are_ready()):
        yield from threads.make_ready()


def read_page(threads: ThreadStatements, page: Page) -> Flow[tuple[list[Stored], Page | None]]:
    """Read some checkpoints that a filter accepts, the newest first, and say where to go on."""
    size = min(PAGE, page.limit) if page.limit >= 0 else PAGE
    if not page.filter:
        found = yield from threads.read_page(_at(page, page.after, size))
        last = found[-1].address if len(found) == size else None
    else:
        rows = yield threads.select_metadata(_at(page, page.after, PAGE))
        fitting = [At(*row[:3]) for row in rows if accepts(page.filter, from_metadata(row[3]))]
        chosen = fitting[:size]
        last = chosen[-1] if len(fitting) > size else At(*rows[-1][:3]) if len(rows) == PAGE else None
        found = (yield from threads.read(chosen)) if chosen else []
    left = page.limit - len(found) if page.limit >= 0 else page.limit
    return found, None if last is None or left == 0 else _at(page, last, left)


def _at(page: Page, after: At | None, limit: int) -> Page:
    return Page(limit, page.thread_id, page.namespace, page.checkpoint_id, page.before, after, page.filter)


def copy_thread(threads: ThreadStatements, source: str, target: str) -> Flow[None]:
    """Copy all of a thread to one that is new, or has the same checkpoints already.

    Raises:
        InvalidArgument: The target has checkpoints of its own.
    """
    yield threads.take_turns([source, target])
    if (yield threads.select_strange(source, target)):
        raise InvalidArgument("the thread to copy to has checkpoints of its own; name a new one, or delete it first")
    if source != target:
        yield from threads.copy_thread(source, target)


def prune(threads: ThreadStatements, thread_id: str, keep: int, reader: Reader) -> Flow[int]:
    """Keep the newest checkpoints of each namespace, and what those need; return how many were deleted.

    The namespace of a subgraph's call goes with the checkpoint of the graph that it was called from.
    """
    yield threads.take_turns([thread_id])
    spine: dict[str, list[str]] = {}
    for namespace, checkpoint_id in (yield threads.select_spine(thread_id)):
        spine.setdefault(namespace, []).append(checkpoint_id)
    roots = spine.get("", [])
    ended, deleted = [], 0
    for namespace, ids in spine.items():
        nodes = yield from threads.read_nodes(thread_id, namespace, ids[:keep], reader)
        if ":" in namespace and _has_ended(nodes, ids[0], roots, keep):
            ended.append(namespace)
            continue
        if len(ids) <= keep:
            continue
        kept = set(ids[:keep]) | (yield from _find_senders(threads, thread_id, namespace, nodes))
        kept |= yield from find_needed(Line(threads, thread_id, namespace, reader), nodes)
        doomed = [id_ for id_ in ids if id_ not in kept]
        if doomed:
            deleted += yield from threads.delete_checkpoints(thread_id, namespace, doomed)
    if ended:
        deleted += yield from threads.delete_namespaces(thread_id, ended)
    return deleted


def _find_senders(threads: ThreadStatements, thread_id: str, namespace: str, nodes: Iterable[Node]) -> Flow[set[str]]:
    """Find the parents that hold what is sent to the tasks of some checkpoints."""
    parents = [node.sends_from for node in nodes if node.sends_from is not None]
    rows = (yield threads.select_writes(thread_id, namespace, parents, [TASKS])) if parents else ()
    return {row[0] for row in rows}


def _has_ended(nodes: Iterable[Node], newest: str, roots: Sequence[str], keep: int) -> bool:
    """Tell whether a subgraph's call began at a checkpoint of the graph that is not kept."""
    head = next((node for node in nodes if node.checkpoint_id == newest), None)
    root = (head.metadata.get("parents") or {}).get("") if head is not None else None
    return root in roots[keep:]


def delete_for_runs(threads: ThreadStatements, run_ids: Sequence[str], reader: Reader) -> Flow[int]:
    """Delete the checkpoints of some runs, but for those that others need; return how many there were."""
    places: dict[tuple[str, str], list[str]] = {}
    for thread_id, namespace, checkpoint_id in (yield threads.select_runs(run_ids)) if run_ids else ():
        places.setdefault((thread_id, namespace), []).append(checkpoint_id)
    deleted = 0
    for (thread_id, namespace), ids in places.items():
        gone = set(ids)
        rows = yield threads.select_delta(thread_id, namespace)
        others = [row[0] for row in rows if row[0] not in gone]
        if others:
            nodes = yield from threads.read_nodes(thread_id, namespace, others, reader)
            gone -= yield from find_needed(Line(threads, thread_id, namespace, reader), nodes)
        if gone:
            deleted += yield from threads.delete_checkpoints(thread_id, namespace, sorted(gone))
    return deleted


def list_threads(threads: ThreadStatements, limit: int, before: ThreadRow | None) -> Flow[list[Thread]]:
    """List threads by their newest checkpoints, those of before a thread, or before a point in time."""
    rows: list[ThreadRow] = (yield from threads.read_newest(limit, before)) if limit else []
    counts: dict[str, list[int]] = {}
    if rows:
        counts = {name: rest for name, *rest in (yield threads.count([row.thread_id for row in rows]))}
    return [
        Thread(name, counts[name][0], counts[name][1], id_, to_moment(id_))
        for id_, name in rows
        if name in counts  # a run's own transaction may have ended between the two, on Postgres without a snapshot
    ]


def find_idle(threads: ThreadStatements, before: str, among: Sequence[str] | None = None) -> Flow[list[str]]:
    """Find the threads whose newest checkpoint was made before the time that an id tells; others' ids tell none."""
    rows = yield threads.select_idle(before, among)
    return [thread_id for checkpoint_id, thread_id in rows if to_moment(checkpoint_id) is not None]


def delete_idle(threads: ThreadStatements, before: str, among: Sequence[str]) -> Flow[int]:
    """Delete those of some threads that still are idle; return how many checkpoints there were."""
    idle = yield from find_idle(threads, before, among)
    deleted = 0
    if idle:
        deleted = yield from threads.delete_threads(idle, before)
    return deleted
