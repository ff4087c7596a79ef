"""One transaction over long-term and short-term memory: what it is told is collected, and applied at once at its end.

Items are checked and their values taken as they are told; texts are embedded before the database's transaction begins.
Reads of the store and of its savers see the state before, until the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from langgraph.store.base import NOT_PROVIDED, NotProvided, PutOp

from memstore.calls import Calls
from memstore.checkpoints import Reader
from memstore.errors import InvalidArgument
from memstore.moves import Call, aperform, perform
from memstore.requests import Request
from memstore.steps import Flow, arun, run
from memstore.thread_calls import ThreadCalls, to_pruning


class Transaction:
    """Writes to a store and to threads that are applied together, or not at all; `with` and `async with` both work.

    Nothing is applied where the block raises. Its methods only take note, and so are not awaited.

    Args:
        opening: Opens the store.
        to_put: Makes an op of a put, with the store's defaults.
        threads: The calls of a saver.
        reader: The saver's; pruning looks at checkpoints.
    """

    def __init__(
        self, opening: Callable[[], Call[Calls]], to_put: Callable[..., PutOp], threads: ThreadCalls, reader: Reader
    ) -> None:
        self._opening = opening
        self._to_put = to_put
        self._threads, self._reader = threads, reader
        self._calls: Calls | None = None
        self._requests: list[Request] = []
        self._changes: list[Callable[[], Flow[Any]]] = []

    def put(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> None:
        """Store an item, as the store's `put` does."""
        self._requests += self._begun.to_requests([self._to_put(namespace, key, value, index, ttl)])

    def delete(self, namespace: tuple[str, ...], key: str) -> None:
        """Delete an item, where there is one."""
        self._requests += self._begun.to_requests([PutOp(namespace, key, None)])

    def delete_thread(self, thread_id: str) -> None:
        """Delete all of a thread, as a saver does."""
        self._change(self._threads.to_deletion([thread_id]))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, as a saver does."""
        self._change(self._threads.to_run_deletion(run_ids, self._reader))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread, as a saver does."""
        self._change(self._threads.to_copy(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Make threads shorter, as a saver does."""
        self._change(*to_pruning(self._threads, thread_ids, strategy, self._reader))

    def __enter__(self) -> Self:
        run(self._begin(), perform)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._end(kind), perform)

    async def __aenter__(self) -> Self:
        await arun(self._begin(), aperform)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await arun(self._end(kind), aperform)

    def _begin(self) -> Call[None]:
        self._calls = yield from self._opening()
        yield from self._threads.open()

    def _end(self, failed: type[BaseException] | None) -> Call[None]:
        calls, self._calls = self._begun, None
        if failed is None and (self._requests or self._changes):
            yield from calls.commit(self._requests, self._changes)
        self._requests, self._changes = [], []

    def _change(self, *changes: Callable[[], Flow[Any]]) -> None:
        _ = self._begun
        self._changes += changes

    @property
    def _begun(self) -> Calls:
        if self._calls is None:
            raise InvalidArgument("a transaction is used inside of `with store.transaction() as tx:`")
        return self._calls
