"""LangGraph's methods of a checkpointer, sync and async, each a call of the saver's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from memstore.checkpoints import Reader, to_next_version, to_page
from memstore.moves import Call
from memstore.thread_calls import ThreadCalls

T = TypeVar("T")


class SaverMethods(BaseCheckpointSaver[str]):
    """What LangGraph asks of a checkpointer."""

    _calls: ThreadCalls

    @property
    @abstractmethod
    def _reader(self) -> Reader:
        """What decodes."""

    @abstractmethod
    def _do(self, call: Call[T]) -> T:
        """Make a call on this thread."""

    @abstractmethod
    async def _ado(self, call: Call[T]) -> T:
        """Make a call off the event loop."""

    def get_next_version(self, current: Any, channel: None) -> str:  # noqa: ARG002  LangGraph passes it
        """Give the version that follows one of a channel."""
        return to_next_version(current)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Give the checkpoint that a config names, or else the newest of its thread; None where there is none.

        Raises:
            NotEncrypted: It is not encrypted, and has to be.
        """
        return self._do(self._calls.get_tuple(config, self._reader))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Give a checkpoint as `get_tuple` does."""
        return await self._ado(self._calls.get_tuple(config, self._reader))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """List checkpoints, the newest first; some hundreds are read at once, and no lock is held between.

        Args:
            config: Of which thread, and namespace or checkpoint where it names one; None for all threads.
            filter: What the metadata holds: keys as they are spelled, values equal as JSON; None for null or missing.
            before: A checkpoint; only those with a smaller id are listed.
            limit: At most so many.
        """
        page = to_page(config, filter, before, limit)
        reader = self._reader

        def listed() -> Iterator[CheckpointTuple]:
            following = page if page.limit else None
            while following is not None:
                found, following = self._do(self._calls.read_page(following))
                for stored in found:
                    yield self._do(self._calls.decode(stored, reader))

        return listed()

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """List checkpoints as `list` does."""
        page = to_page(config, filter, before, limit)
        reader = self._reader
        following = page if page.limit else None
        while following is not None:
            found, following = await self._ado(self._calls.read_page(following))
            for stored in found:
                yield await self._ado(self._calls.decode(stored, reader))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint below the one that the config names; give the config that names the new one.

        Metadata is kept as JSON: in it NaN and infinities become null, and NUL is left out.

        Raises:
            InvalidArgument: The config names no thread.
            UnstorableType: The metadata is no JSON.
        """
        return self._do(self._calls.put(config, checkpoint, metadata, new_versions, self._reader))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint as `put` does. Cancelled, it is stored wholly or not at all."""
        return await self._ado(self._calls.put(config, checkpoint, metadata, new_versions, self._reader))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote after a checkpoint; what it wrote before stays, but for errors and interrupts."""
        self._do(self._calls.put_writes(config, writes, task_id, task_path, self._reader))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote as `put_writes` does."""
        await self._ado(self._calls.put_writes(config, writes, task_id, task_path, self._reader))

    def delete_thread(self, thread_id: str) -> None:
        """Delete all of a thread, where there is one."""
        self._do(self._calls.change(self._calls.to_deletion([thread_id])))

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread as `delete_thread` does."""
        await self._ado(self._calls.change(self._calls.to_deletion([thread_id])))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of some runs in all threads, but for those that others' delta channels need.

        LangGraph notes a run with its checkpoints where the config has `{"metadata": {"run_id": ...}}`.
        """
        self._do(self._calls.change(self._calls.to_run_deletion(run_ids, self._reader)))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs as `delete_for_runs` does."""
        await self._ado(self._calls.change(self._calls.to_run_deletion(run_ids, self._reader)))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all of a thread, under the same ids.

        Raises:
            InvalidArgument: The target has checkpoints of its own.
        """
        self._do(self._calls.change(self._calls.to_copy(source_thread_id, target_thread_id)))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread as `copy_thread` does."""
        await self._ado(self._calls.change(self._calls.to_copy(source_thread_id, target_thread_id)))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Make threads shorter.

        Args:
            thread_ids: The threads; each is a transaction of its own.
            strategy: `"keep_latest"` keeps the newest checkpoint of each namespace, and the ancestors that its delta
                channels need; `"delete"`, or `"delete_all"`, keeps nothing.

        Raises:
            InvalidArgument: There is no such strategy.
        """
        self._do(self._calls.prune(thread_ids, strategy, self._reader))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Make threads shorter as `prune` does."""
        await self._ado(self._calls.prune(thread_ids, strategy, self._reader))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Give what delta channels are rebuilt from: the nearest stored value, and what was written since."""
        return self._do(self._calls.read_history(config, channels, self._reader))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Give what delta channels are rebuilt from, as `get_delta_channel_history` does."""
        return await self._ado(self._calls.read_history(config, channels, self._reader))

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> BaseCheckpointSaver[str]:
        """Give a saver on the same database that rebuilds some more types; LangGraph asks for it in strict mode."""
        return super().with_allowlist(extra_allowlist)
