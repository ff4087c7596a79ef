"""What a call of the saver does, written once for sync and async.

A call is a generator of moves, as those of the store are. Encoding and decoding are moves of their own, beside every
transaction and off the event loop where there is much of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from memstore import threads as flows
from memstore.ancestry import Line, Replay, read_replay
from memstore.backends import Backend, FlowMaker
from memstore.checkpoints import (
    Address,
    Blob,
    Draft,
    Page,
    Reader,
    Stored,
    to_address,
    to_first_id,
    to_name,
    to_names,
    to_tuple,
)
from memstore.config import Retention
from memstore.dialects.threads import ThreadRow
from memstore.errors import InvalidArgument
from memstore.metadata import to_metadata
from memstore.moves import Call, Move, glance, jot, read, write
from memstore.steps import Flow
from memstore.threads import Thread

T = TypeVar("T")
_LARGE: Final = 100_000
"""Bytes from which on decoding is moved off an event loop: some hundred microseconds' work."""
_TOGETHER: Final = 50
"""Threads that are deleted in one transaction."""
STRATEGIES: Final = {"keep_latest": 1, "delete": 0, "delete_all": 0}
"""How many checkpoints pruning keeps; the last is what LangGraph's server says."""


class ThreadCalls:
    """The calls of the savers on one database.

    Args:
        backend: The database.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._threads = backend.dialect.threads()
        self._ready = False

    def open(self) -> Call[None]:
        """Make the tables where they are missing."""
        if self._ready:
            return
        if not (yield read(self._backend, self._threads.are_ready)):
            claim = self._backend.dialect.claim_setup()
            yield write(self._backend, partial(flows.make_ready, self._threads, claim))
        self._ready = True

    # one checkpoint -------------------------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
        reader: Reader,
    ) -> Call[RunnableConfig]:
        """Write a checkpoint."""
        thread_id, namespace, parent_id = to_address(config)
        address = Address(thread_id, namespace, to_name(checkpoint["id"], "checkpoint_id"))
        encoded = to_metadata(config, metadata)
        alone = parent_id is None or metadata.get("source") == "fork"  # which has the values of its parent's child
        changed = None if alone else new_versions.keys()
        draft = Draft(address, parent_id, checkpoint, encoded, changed)
        yield from self.open()
        written = yield jot(self._backend, partial(self._to_put, draft, reader))
        if not written:  # a checkpoint whose parent is gone has to stand alone
            yield jot(self._backend, partial(self._to_put, replace(draft, changed=None), reader))
        return address.to_config()

    def _to_put(self, draft: Draft, reader: Reader) -> FlowMaker[Any]:
        return partial(_ask, self._threads.put(self._threads.pack(draft, reader.serde)))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str, reader: Reader
    ) -> Call[None]:
        """Write what a task wrote."""
        thread_id, namespace, checkpoint_id = to_address(config)
        if checkpoint_id is None:
            raise InvalidArgument("writes belong to a checkpoint: the config needs a checkpoint_id")
        address = Address(thread_id, namespace, checkpoint_id)
        if not writes:
            return
        yield from self.open()

        def prepare() -> FlowMaker[Any]:
            encoded = _encode_writes(writes, reader)
            return partial(_ask, self._threads.put_writes(address, str(task_id), str(task_path), encoded))

        yield jot(self._backend, prepare)

    def get_tuple(self, config: RunnableConfig, reader: Reader) -> Call[CheckpointTuple | None]:
        """Read a checkpoint: that which the config names, or the newest."""
        thread_id, namespace, checkpoint_id = to_address(config)
        yield from self.open()
        if checkpoint_id is None:
            make = partial(self._threads.read_latest, thread_id, namespace)
        else:
            make = partial(self._threads.read, [Address(thread_id, namespace, checkpoint_id)])
        found: list[Stored] = yield glance(self._backend, make)
        if not found:
            return None
        return (yield from self.decode(found[0], reader))

    def read_page(self, page: Page) -> Call[tuple[list[Stored], Page | None]]:
        """Read some checkpoints, and say where to go on."""
        yield from self.open()
        make = partial(flows.read_page, self._threads, page)
        found: tuple[list[Stored], Page | None] = yield read(self._backend, make)
        return found

    def decode(self, stored: Stored, reader: Reader) -> Call[CheckpointTuple]:
        """Decode a checkpoint."""

        def decode() -> CheckpointTuple:
            return to_tuple(stored, self._threads.unpack(stored, reader), reader)

        decoded: CheckpointTuple = decode() if stored.size < _LARGE else (yield self._compute(decode))
        return decoded

    def read_history(
        self, config: RunnableConfig, channels: Sequence[str], reader: Reader
    ) -> Call[Mapping[str, DeltaChannelHistory]]:
        """Read what delta channels are rebuilt from."""
        thread_id, namespace, checkpoint_id = to_address(config)
        if not channels:
            return {}
        yield from self.open()
        line = Line(self._threads, thread_id, namespace, reader)
        make = partial(read_replay, line, checkpoint_id, list(dict.fromkeys(channels)))
        replay: Replay = yield read(self._backend, make)
        decoded: Mapping[str, DeltaChannelHistory] = yield self._compute(partial(replay.decode, reader))
        return decoded

    # threads --------------------------------------------------------------------------------------------------------

    def change(self, make: Callable[[], Flow[T]]) -> Call[T]:
        """Change threads, in one transaction."""
        yield from self.open()
        changed: T = yield write(self._backend, make)
        return changed

    def prune(self, thread_ids: Sequence[str], strategy: str, reader: Reader) -> Call[None]:
        """Prune threads, each in a transaction of its own, or delete them all in one."""
        yield from self.open()
        for make in to_pruning(self, thread_ids, strategy, reader):
            yield write(self._backend, make)

    def to_deletion(self, thread_ids: Sequence[str]) -> Callable[[], Flow[int]]:
        """Make ready to delete threads."""
        return partial(self._threads.delete_threads, to_names(thread_ids, "thread_id"))

    def to_run_deletion(self, run_ids: Sequence[str], reader: Reader) -> Callable[[], Flow[int]]:
        """Make ready to delete the checkpoints of runs."""
        return partial(flows.delete_for_runs, self._threads, to_names(run_ids, "run_id"), reader)

    def to_copy(self, source: str, target: str) -> Callable[[], Flow[None]]:
        """Make ready to copy a thread."""
        return partial(flows.copy_thread, self._threads, to_name(source, "thread_id"), to_name(target, "thread_id"))

    def to_prune(self, thread_id: str, keep: int, reader: Reader) -> Callable[[], Flow[int]]:
        """Make ready to prune a thread."""
        return partial(flows.prune, self._threads, thread_id, keep, reader)

    def list_threads(self, limit: int, before: ThreadRow | None) -> Call[list[Thread]]:
        """List threads, the last active first."""
        yield from self.open()
        make = partial(flows.list_threads, self._threads, limit, before)
        listed: list[Thread] = yield read(self._backend, make)
        return listed

    def sweep(self, retention: Retention, reader: Reader) -> Call[int]:
        """Delete what is not to be kept any longer; return how many checkpoints there were."""
        yield from self.open()
        deleted = 0
        if retention.max_age is not None:
            before = to_first_id(self._backend.now() - int(retention.max_age * 60_000_000))
            idle: list[str] = yield read(self._backend, partial(flows.find_idle, self._threads, before))
            for at in range(0, len(idle), _TOGETHER):
                some = sorted(idle[at : at + _TOGETHER])
                deleted += yield write(self._backend, partial(flows.delete_idle, self._threads, before, some))
        if retention.keep_last is not None:
            long = yield read(self._backend, partial(_ask, self._threads.select_long(retention.keep_last)))
            for (thread_id,) in long:
                deleted += yield write(self._backend, self.to_prune(thread_id, retention.keep_last, reader))
        return deleted

    def _compute(self, call: Callable[[], Any]) -> Move:
        return Move(call, partial(self._backend.acall, call))


def to_pruning(
    calls: ThreadCalls, thread_ids: Sequence[str], strategy: str, reader: Reader
) -> Iterator[Callable[[], Flow[int]]]:
    """Make ready to prune threads.

    Raises:
        InvalidArgument: There is no such strategy.
    """
    if strategy not in STRATEGIES:
        raise InvalidArgument(f"strategy is one of {', '.join(map(repr, STRATEGIES))}")
    names = to_names(thread_ids, "thread_id")
    keep = STRATEGIES[strategy]
    if not keep:
        return iter([calls.to_deletion(names)] if names else [])
    return iter([calls.to_prune(name, keep, reader) for name in names])


def _encode_writes(writes: Sequence[tuple[str, Any]], reader: Reader) -> list[tuple[int, Blob]]:
    """Encode what a task wrote, by its place; of what is special the last counts."""
    encoded = {}
    for place, (channel, value) in enumerate(writes):
        index = WRITES_IDX_MAP.get(channel, place)
        encoded[index] = Blob(channel, "", *reader.serde.dumps_typed(value))
    return list(encoded.items())


def _ask(step: Any) -> Flow[Any]:
    return (yield step)
