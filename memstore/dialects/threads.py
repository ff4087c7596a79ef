"""The statements of the checkpointer, by what they are for: over the tables of LangGraph's own savers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.serde.base import SerializerProtocol

from memstore.checkpoints import Address, Blob, Draft, Node, Packed, Page, Reader, Stored
from memstore.steps import Flow, Statement, Step


class Held(NamedTuple):
    """The value of a channel, stored at a checkpoint."""

    checkpoint_id: str
    value: Any
    """Decoded, where it stands in the checkpoint itself."""
    version: str | None = None
    """Of the blob that holds it, where one does."""


class ThreadRow(NamedTuple):
    """A thread by its newest checkpoint."""

    checkpoint_id: str
    thread_id: str


class ThreadStatements(Protocol):
    """The statements; all take part in the transaction they run in."""

    # tables --------------------------------------------------------------------------------------------------------

    def are_ready(self) -> Flow[bool]:
        """Tell whether the tables and memstore's own indexes are there."""
        ...

    def make_ready(self) -> Flow[None]:
        """Make what is missing; the caller's transaction makes it all or nothing."""
        ...

    # one checkpoint -------------------------------------------------------------------------------------------------

    def pack(self, draft: Draft, serde: SerializerProtocol) -> Packed:
        """Encode a checkpoint."""
        ...

    def unpack(self, stored: Stored, reader: Reader) -> Checkpoint:
        """Decode a checkpoint."""
        ...

    def put(self, packed: Packed) -> Step:
        """Write a checkpoint over what its id had; false where it is not whole and its parent is gone."""
        ...

    def put_writes(self, address: Address, task_id: str, task_path: str, writes: Sequence[tuple[int, Blob]]) -> Step:
        """Write what a task wrote, at each index: what is there already stays, but under negative ones."""
        ...

    # reading --------------------------------------------------------------------------------------------------------

    def read_latest(self, thread_id: str, namespace: str) -> Flow[list[Stored]]:
        """Read the newest checkpoint, if there is any."""
        ...

    def read(self, addresses: Sequence[Address]) -> Flow[list[Stored]]:
        """Read some checkpoints, the newest first."""
        ...

    def read_page(self, page: Page) -> Flow[list[Stored]]:
        """Read some checkpoints, the newest first; their filter is not looked at."""
        ...

    def select_metadata(self, page: Page) -> Statement:
        """Where some checkpoints stand, the newest first, that may fulfil a filter: (*address, metadata)."""
        ...

    # ancestry -------------------------------------------------------------------------------------------------------

    def select_chain(self, address: Address, limit: int) -> Statement:
        """A checkpoint and its ancestors, the nearest first: (checkpoint_id, parent_id)."""
        ...

    def read_nodes(self, thread_id: str, namespace: str, ids: Sequence[str], reader: Reader) -> Flow[list[Node]]:
        """Read what the ancestry of some checkpoints is told by."""
        ...

    def read_held(
        self, thread_id: str, namespace: str, ids: Sequence[str], channels: Sequence[str], reader: Reader
    ) -> Flow[Mapping[tuple[str, str], Held]]:
        """Say which of some channels have a value at which of some checkpoints: (checkpoint_id, channel)."""
        ...

    def select_blobs(self, thread_id: str, namespace: str, held: Mapping[str, str]) -> Step:
        """The blobs of some versions of channels: (channel, type, data)."""
        ...

    def select_writes(self, thread_id: str, namespace: str, ids: Sequence[str], channels: Sequence[str]) -> Step:
        """What was written to some channels: (checkpoint_id, *StoredWrite)."""
        ...

    # threads --------------------------------------------------------------------------------------------------------

    def select_spine(self, thread_id: str) -> Statement:
        """All checkpoints of a thread, the newest of each namespace first: (namespace, checkpoint_id)."""
        ...

    def select_delta(self, thread_id: str, namespace: str) -> Statement:
        """Checkpoints whose delta channels may need their ancestors: (checkpoint_id,)."""
        ...

    def select_runs(self, run_ids: Sequence[str]) -> Statement:
        """The checkpoints of some runs: (thread_id, namespace, checkpoint_id)."""
        ...

    def read_newest(self, limit: int, before: ThreadRow | None) -> Flow[list[ThreadRow]]:
        """Give threads by their newest checkpoints, the newest first, those that stand before one."""
        ...

    def count(self, thread_ids: Sequence[str]) -> Statement:
        """Count what some threads hold: (thread_id, checkpoints, namespaces)."""
        ...

    def select_idle(self, before: str, thread_ids: Sequence[str] | None = None) -> Statement:
        """Threads, or those of some, whose newest checkpoint has a smaller id than one: (checkpoint_id, thread_id)."""
        ...

    def select_long(self, checkpoints: int) -> Statement:
        """Threads that have more than so many checkpoints in a namespace: (thread_id,)."""
        ...

    def delete_threads(self, thread_ids: Sequence[str], before: str | None = None) -> Flow[int]:
        """Delete all of some threads, or what is older than an id; return how many checkpoints there were."""
        ...

    def delete_namespaces(self, thread_id: str, namespaces: Sequence[str]) -> Flow[int]:
        """Delete all of some namespaces of a thread; return how many checkpoints there were."""
        ...

    def delete_checkpoints(self, thread_id: str, namespace: str, ids: Sequence[str]) -> Flow[int]:
        """Delete some checkpoints with all that is theirs alone; what they are the parents of has none then."""
        ...

    def take_turns(self, thread_ids: Sequence[str]) -> Step:
        """Let nobody else delete or copy some threads before this transaction ends."""
        ...

    def select_strange(self, source: str, target: str) -> Statement:
        """One row where a thread has a checkpoint that another lacks, else none."""
        ...

    def copy_thread(self, source: str, target: str) -> Flow[None]:
        """Copy all of a thread."""
        ...
