"""What tests of savers share: configs and checkpoints, and one way to call a saver sync or async."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias, cast

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointTuple

from memstore import MemSaver
from memstore.checkpoints import to_first_id
from memstore.threads import Thread
from tests.support import Place


def to_config(thread_id: Any = "t", checkpoint_id: str | None = None, namespace: str | None = "") -> RunnableConfig:
    """Name a thread, and a checkpoint of it; with None as the namespace, none is said."""
    configurable: dict[str, Any] = {"thread_id": thread_id}
    if namespace is not None:
        configurable["checkpoint_ns"] = namespace
    if checkpoint_id is not None:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}


def to_checkpoint(id: str, values: Mapping[str, Any] | None = None, **parts: Any) -> Checkpoint:
    """Make a checkpoint whose channels all are in version 1, unless `channel_versions` says otherwise."""
    whole = {
        "v": 4,
        "id": id,
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": dict(values or {}),
        "channel_versions": dict.fromkeys(values or {}, 1),
        "versions_seen": {},
        "updated_channels": None,
        **parts,
    }
    return cast(Checkpoint, whole)


def to_id(moment: datetime) -> str:
    """Make the id of a checkpoint that was made at a time."""
    start = datetime(1970, 1, 1, tzinfo=moment.tzinfo)
    return f"{to_first_id((moment - start) // timedelta(microseconds=1))}-8000-000000000000"


def ids(found: Sequence[CheckpointTuple]) -> list[str]:
    """Give the ids of some checkpoints, in their order."""
    return [one.checkpoint["id"] for one in found]


def open_at(place: Place, **options: Any) -> MemSaver:
    """Open a saver on the test's database."""
    return MemSaver.open(place.location, **place.options, **options)


def name_at(place: Place, **options: Any) -> MemSaver:
    """Name a saver on the test's database, which is opened by its use."""
    return MemSaver.from_conn_string(place.location, **place.options, **options)


class SyncSaver:
    """Calls a saver's sync methods."""

    def __init__(self, saver: MemSaver) -> None:
        self.saver = saver

    def put(self, config: RunnableConfig, checkpoint: Checkpoint, metadata: Any = None) -> RunnableConfig:
        """Put, all channels new."""
        given: Any = metadata or {}
        return self.saver.put(config, checkpoint, given, checkpoint["channel_versions"])

    def put_writes(self, config: RunnableConfig, writes: Any, task_id: str = "task", task_path: str = "") -> None:
        """Put writes."""
        self.saver.put_writes(config, writes, task_id, task_path)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Get."""
        return self.saver.get_tuple(config)

    def list(self, config: RunnableConfig | None, **options: Any) -> list[CheckpointTuple]:
        """List all."""
        return list(self.saver.list(config, **options))

    def delete_thread(self, thread_id: Any) -> None:
        """Delete a thread."""
        self.saver.delete_thread(thread_id)

    def delete_for_runs(self, run_ids: Any) -> None:
        """Delete runs."""
        self.saver.delete_for_runs(run_ids)

    def copy_thread(self, source: Any, target: Any) -> None:
        """Copy a thread."""
        self.saver.copy_thread(source, target)

    def prune(self, thread_ids: Any, **options: Any) -> None:
        """Prune."""
        self.saver.prune(thread_ids, **options)

    def list_threads(self, *args: Any, **options: Any) -> Sequence[Thread]:
        """List threads."""
        return self.saver.list_threads(*args, **options)

    def sweep(self) -> int:
        """Sweep."""
        return self.saver.sweep()

    def compact(self) -> None:
        """Give room back."""
        self.saver.compact()

    def close(self) -> None:
        """Close."""
        self.saver.close()

    def get(self, config: RunnableConfig) -> CheckpointTuple:
        """Get what has to be there."""
        found = self.get_tuple(config)
        assert found is not None
        return found


class AsyncSaver(SyncSaver):
    """Calls a saver's async methods on an event loop of its own."""

    def __init__(self, saver: MemSaver, runner: asyncio.Runner) -> None:
        super().__init__(saver)
        self._runner = runner

    def put(self, config: RunnableConfig, checkpoint: Checkpoint, metadata: Any = None) -> RunnableConfig:
        """Put, all channels new."""
        given: Any = metadata or {}
        return self._runner.run(self.saver.aput(config, checkpoint, given, checkpoint["channel_versions"]))

    def put_writes(self, config: RunnableConfig, writes: Any, task_id: str = "task", task_path: str = "") -> None:
        """Put writes."""
        self._runner.run(self.saver.aput_writes(config, writes, task_id, task_path))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Get."""
        return self._runner.run(self.saver.aget_tuple(config))

    def list(self, config: RunnableConfig | None, **options: Any) -> list[CheckpointTuple]:
        """List all."""

        async def listed() -> list[CheckpointTuple]:
            return [found async for found in self.saver.alist(config, **options)]

        return self._runner.run(listed())

    def delete_thread(self, thread_id: Any) -> None:
        """Delete a thread."""
        self._runner.run(self.saver.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Any) -> None:
        """Delete runs."""
        self._runner.run(self.saver.adelete_for_runs(run_ids))

    def copy_thread(self, source: Any, target: Any) -> None:
        """Copy a thread."""
        self._runner.run(self.saver.acopy_thread(source, target))

    def prune(self, thread_ids: Any, **options: Any) -> None:
        """Prune."""
        self._runner.run(self.saver.aprune(thread_ids, **options))

    def list_threads(self, *args: Any, **options: Any) -> Sequence[Thread]:
        """List threads."""
        return self._runner.run(self.saver.alist_threads(*args, **options))

    def sweep(self) -> int:
        """Sweep."""
        return self._runner.run(self.saver.asweep())

    def compact(self) -> None:
        """Give room back."""
        self._runner.run(self.saver.acompact())

    def close(self) -> None:
        """Close."""
        self._runner.run(self.saver.aclose())


OpenSaver: TypeAlias = Callable[..., SyncSaver]
"""Opens a saver on the test's one database, with options of `MemSaver`; closed when the test ends."""


class Saving:
    """Savers on the test's database, sync and async."""

    @pytest.fixture(params=["sync", "async"])
    def open_saver(
        self, request: pytest.FixtureRequest, location: Place, runner: asyncio.Runner
    ) -> Iterator[OpenSaver]:
        """Open savers on one database; all are closed in the end."""
        opened: list[SyncSaver] = []

        def open_(**options: Any) -> SyncSaver:
            saver = open_at(location, **options)
            opened.append(SyncSaver(saver) if request.param == "sync" else AsyncSaver(saver, runner))
            return opened[-1]

        yield open_
        for caller in opened:
            caller.close()

    @pytest.fixture
    def saver(self, open_saver: OpenSaver) -> SyncSaver:
        """Open a saver."""
        return open_saver()


class SyncBridge(BaseCheckpointSaver[str]):
    """An async saver whose methods call the sync ones of another, on the event loop itself."""

    def __init__(self, saver: MemSaver) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver

    def get_next_version(self, current: Any, channel: None) -> str:
        """Give the next version."""
        return self._saver.get_next_version(current, channel)

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> RunnableConfig:
        """Put."""
        return self._saver.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        """Put writes."""
        self._saver.put_writes(config, writes, task_id, task_path)

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        """Get."""
        return self._saver.get_tuple(config)

    async def alist(
        self, config: Any, *, filter: Any = None, before: Any = None, limit: int | None = None
    ) -> AsyncIterator[CheckpointTuple]:
        """List."""
        for found in self._saver.list(config, filter=filter, before=before, limit=limit):
            yield found

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread."""
        self._saver.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete runs."""
        self._saver.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread."""
        self._saver.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Prune."""
        self._saver.prune(thread_ids, strategy=strategy)
