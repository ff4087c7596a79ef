"""The ancestors of a checkpoint: what a delta channel is rebuilt from, and so what must not be deleted.

A delta channel has a value at some checkpoints alone. At any other its value is that of the nearest ancestor which has
one, and what was written since: from that ancestor on, up to the parent. Ancestors are found by their parents, never by
ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from langgraph.checkpoint.base import DeltaChannelHistory

from memstore.checkpoints import Address, Node, Reader, StoredWrite
from memstore.dialects.threads import Held, ThreadStatements
from memstore.steps import Flow, Row

_FIRST: Final = 16
"""Ancestors read at first; eight times as many each time after."""
_MOST: Final = 1_024


@dataclass(slots=True)
class Replay:
    """What delta channels are rebuilt from, not decoded yet."""

    channels: Sequence[str]
    held: dict[str, Held] = field(default_factory=dict)
    """By channel: where its value is stored nearest."""
    blobs: dict[str, tuple[str, bytes | None]] = field(default_factory=dict)
    """By channel: the type and bytes of that value, where it is not decoded."""
    writes: dict[str, list[tuple[int, StoredWrite]]] = field(default_factory=dict)
    """By channel: what was written, and how many steps before the checkpoint."""

    def decode(self, reader: Reader) -> Mapping[str, DeltaChannelHistory]:
        """Decode it: for each channel its writes, the oldest first, and the value they begin with, if any."""
        histories: dict[str, DeltaChannelHistory] = {}
        for channel in self.channels:
            steps: dict[int, list[StoredWrite]] = {}
            for step, write in self.writes.get(channel, ()):
                steps.setdefault(step, []).append(write)
            writes = [loaded for step in sorted(steps, reverse=True) for loaded in reader.load_writes(steps[step])]
            histories[channel] = {"writes": writes}
            if channel in self.blobs:
                histories[channel]["seed"] = reader.load(*self.blobs[channel])
            elif channel in self.held:
                histories[channel]["seed"] = self.held[channel].value
        return histories


@dataclass(frozen=True, slots=True)
class Line:
    """The checkpoints of one namespace of a thread, and how they are read."""

    threads: ThreadStatements
    thread_id: str
    namespace: str
    reader: Reader


def read_replay(line: Line, checkpoint_id: str | None, channels: Sequence[str]) -> Flow[Replay]:
    """Read what some channels are rebuilt from at a checkpoint, or at the newest one."""
    replay = Replay(channels)
    where = (line.thread_id, line.namespace)
    if checkpoint_id is None:
        latest = yield from line.threads.read_latest(*where)
        if not latest:
            return replay
        checkpoint_id = latest[0].address.checkpoint_id
    walked = yield from _walk(line, checkpoint_id, replay)
    ends = {channel: walked[held.checkpoint_id] for channel, held in replay.held.items()}
    ancestors = [id_ for id_, step in walked.items() if step]
    for id_, *rest in (yield line.threads.select_writes(*where, ancestors, channels)) if ancestors else ():
        write, step = StoredWrite(*rest), walked[id_]
        if step <= ends.get(write.channel, step):
            replay.writes.setdefault(write.channel, []).append((step, write))
    blobs = {channel: held.version for channel, held in replay.held.items() if held.version is not None}
    if blobs:
        rows = yield line.threads.select_blobs(*where, blobs)
        replay.blobs = {channel: (type_, data) for channel, type_, data in rows}
    return replay


def _walk(line: Line, checkpoint_id: str, replay: Replay) -> Flow[dict[str, int]]:
    """Go back until each channel has a value; give how many steps back each checkpoint lies."""
    walked: dict[str, int] = {}
    following: str | None = checkpoint_id
    limit = _FIRST
    while following is not None and len(replay.held) < len(replay.channels):
        rows = yield line.threads.select_chain(Address(line.thread_id, line.namespace, following), limit)
        ids, following = _step(rows, walked, limit)
        missing = [channel for channel in replay.channels if channel not in replay.held]
        if ids:
            held = yield from line.threads.read_held(line.thread_id, line.namespace, ids, missing, line.reader)
            for channel in missing:
                found = next((held[id_, channel] for id_ in ids if (id_, channel) in held), None)
                if found is not None:
                    replay.held[channel] = found
        limit = min(limit * 8, _MOST)
    return walked


def _step(rows: Sequence[Row], walked: dict[str, int], limit: int) -> tuple[list[str], str | None]:
    """Take in a part of a chain; give the ancestors that are new, and from where to go on."""
    fresh: list[str] = []
    for id_, _ in rows:
        if id_ not in walked:
            walked[id_] = len(walked)
            if walked[id_]:
                fresh.append(id_)
        elif id_ != rows[0][0]:
            return fresh, None  # a checkpoint that was put again below its own descendant makes the chain a loop
    return fresh, rows[-1][0] if len(rows) == limit else None


def find_needed(line: Line, kept: Iterable[Node]) -> Flow[set[str]]:
    """Find the ancestors without which the delta channels of some checkpoints would be lost."""
    nodes = {node.checkpoint_id: node for node in kept}
    needed: set[str] = set()
    seen: set[tuple[str, str]] = set()
    front: dict[str, set[str]] = {}
    for node in nodes.values():
        if node.parent_id is not None and node.missing:
            front.setdefault(node.parent_id, set()).update(node.missing)
    while front:
        yield from _read_missing(line, front, nodes)
        back: dict[str, set[str]] = {}
        for id_ in front.keys() & nodes.keys():
            node = nodes[id_]
            needed.add(id_)
            missing = {channel for channel in front[id_] - node.held if (id_, channel) not in seen}
            seen.update((id_, channel) for channel in missing)
            if missing and node.parent_id is not None:
                back.setdefault(node.parent_id, set()).update(missing)
        front = back
    return needed


def _read_missing(line: Line, front: Iterable[str], nodes: dict[str, Node]) -> Flow[None]:
    """Read checkpoints that are not known yet, each with some of its ancestors."""
    for id_ in front:
        if id_ not in nodes:
            rows = yield line.threads.select_chain(Address(line.thread_id, line.namespace, id_), _FIRST)
            ids = [row[0] for row in rows if row[0] not in nodes]
            if ids:
                found = yield from line.threads.read_nodes(line.thread_id, line.namespace, ids, line.reader)
                nodes.update((node.checkpoint_id, node) for node in found)
