"""MemSaver: LangGraph's checkpointer over a database, sync and async in one class.

It keeps the tables of LangGraph's own savers, so that either side opens the other's database. Iteration holds no lock
and no connection; sync calls work on a running event loop as anywhere.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from memstore.backends import Backend, Location, to_backend
from memstore.checkpoints import Reader, encrypts, to_first_id
from memstore.config import Retention
from memstore.dialects.threads import ThreadRow
from memstore.errors import InvalidArgument, InvalidConfig
from memstore.items import to_microseconds
from memstore.moves import Call, aperform, perform
from memstore.promises import Done, on_loop
from memstore.saver_methods import SaverMethods
from memstore.steps import arun, run
from memstore.thread_calls import ThreadCalls
from memstore.threads import Thread
from memstore.ttl import Sweeper

T = TypeVar("T")
_ANY_TYPE: Final = object()
"""What stands for LangGraph's own choice of the types that are rebuilt."""


class _Ownership:
    """A database that belongs to a saver and its copies, until the last of them is gone."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.closed = False

    def __del__(self) -> None:
        if not self.closed:
            warnings.warn(f"unclosed saver on {self.backend.name}", ResourceWarning, source=self, stacklevel=2)
            self.backend.abandon()


class MemSaver(SaverMethods):
    """Short-term memory for LangGraph agents: threads and their checkpoints.

    Use `store.saver()`, which shares the database and the connections of a store, or `MemSaver.open`; both work in sync
    and async graphs, with `with` and `async with`, on any thread and any event loop.

    Args:
        location: The database, as `MemSaver.open` takes it.
        serde: Encodes what the state holds; LangGraph's `JsonPlusSerializer` where it is None.
        schema: Postgres: the schema of the tables.
        pool: Postgres: settings of the pools, or a connection or pool of psycopg's.
        require_encrypted: Refuse to read what is not encrypted.
        allowed_msgpack_modules: Types that are rebuilt, as `JsonPlusSerializer` takes them; None for safe ones alone.
        retention: Which checkpoints `sweep` keeps.
    """

    def __init__(
        self,
        location: Location,
        *,
        serde: SerializerProtocol | None = None,
        schema: str | None = None,
        pool: Any = None,
        require_encrypted: bool = False,
        allowed_msgpack_modules: Any = _ANY_TYPE,
        retention: Retention | Mapping[str, Any] | None = None,
    ) -> None:
        if allowed_msgpack_modules is not _ANY_TYPE:
            if serde is not None:
                raise InvalidConfig(
                    "allowed_msgpack_modules is for the serializer of memstore's own; give yours the same"
                )
            serde = JsonPlusSerializer(allowed_msgpack_modules=allowed_msgpack_modules)
        super().__init__(serde=serde)
        if require_encrypted and not encrypts(self.serde):
            raise InvalidConfig(
                "require_encrypted needs a serde that encrypts, such as LangGraph's EncryptedSerializer"
            )
        self._strict = require_encrypted
        self._retention = (
            retention if isinstance(retention, Retention) else Retention.parse(retention or {}, "retention")
        )
        owner = location if hasattr(location, "lend_backend") else None
        self._backend: Backend = owner.lend_backend() if owner is not None else to_backend(location, schema, pool)
        self._owned: Any = _Ownership(self._backend) if owner is None else owner  # a store lives as long as its savers
        self._calls = ThreadCalls(self._backend)
        self._sweeper: Sweeper | None = None

    # opening and closing --------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, location: Location, **options: Any) -> Self:
        """Open a saver, and make its tables where they are missing.

        Args:
            location: A path, `sqlite:///` and a path, `:memory:`, `postgresql://` and so on, or a connection or pool of
                psycopg's, which stays the caller's.
            **options: As the class takes them.

        Raises:
            InvalidConfig: A setting is wrong, or the file cannot be made.
            DatabaseError: The database could not be used; nothing was changed.
        """
        saver = cls(location, **options)
        try:
            saver._do_open()
        except BaseException:
            saver.close()
            raise
        return saver

    @classmethod
    def from_conn_string(cls, conn_string: Location, **options: Any) -> Self:
        """Name a saver as LangGraph's savers are named; `with`, `async with` or the first call opens it."""
        return cls(conn_string, **options)

    def setup(self) -> Done:
        """Open the saver where it is not open; may be awaited, and is never needed."""
        if self._backend.only_async and on_loop():
            return Done.later(self._ado_open())
        self._do_open()
        return Done(0)

    def close(self) -> None:
        """Stop sweeping; wait for calls under way and close every connection, unless they are a store's. Idempotent."""
        self._stop()
        if isinstance(self._owned, _Ownership):
            self._owned.closed = True
            self._backend.close()

    async def aclose(self) -> None:
        """Close as `close` does, off the event loop."""
        await asyncio.to_thread(self._stop)
        if isinstance(self._owned, _Ownership):
            self._owned.closed = True
            await self._backend.aclose()

    def _stop(self) -> None:
        if self._sweeper is not None:
            self._sweeper.stop()

    def __enter__(self) -> Self:
        try:
            self._do_open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        try:
            await self._ado_open()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._backend.name}>"

    # beyond BaseCheckpointSaver -------------------------------------------------------------------------------------

    def list_threads(self, limit: int = 20, before: Thread | datetime | None = None) -> Sequence[Thread]:
        """List threads, the last active first.

        Args:
            limit: At most so many.
            before: The last thread of the page before, or a time, with its zone: threads that were active earlier.
        """
        return self._do(self._calls.list_threads(*_to_listing(limit, before)))

    async def alist_threads(self, limit: int = 20, before: Thread | datetime | None = None) -> Sequence[Thread]:
        """List threads as `list_threads` does."""
        return await self._ado(self._calls.list_threads(*_to_listing(limit, before)))

    def sweep(self) -> int:
        """Delete what the saver's `retention` does not keep; return how many checkpoints there were."""
        return self._do(self._calls.sweep(self._retention, self._reader))

    async def asweep(self) -> int:
        """Delete what is not kept, as `sweep` does."""
        return await self._ado(self._calls.sweep(self._retention, self._reader))

    def compact(self) -> None:
        """Give the room of what was deleted back to the file system. On Postgres the server sees to that by itself."""
        self._do_open()
        self._backend.compact()

    async def acompact(self) -> None:
        """Give room back as `compact` does."""
        await self._ado_open()
        await self._backend.acompact()

    def to_calls(self) -> tuple[ThreadCalls, Reader]:
        """Give what a transaction of the store needs."""
        return self._calls, self._reader

    # the two shells -------------------------------------------------------------------------------------------------

    @property
    def _reader(self) -> Reader:
        return Reader(self.serde, self._strict)

    def _do(self, call: Call[T]) -> T:
        self._start()
        return run(call, perform)

    async def _ado(self, call: Call[T]) -> T:
        self._start()
        return await arun(call, aperform)

    def _do_open(self) -> None:
        self._do(self._calls.open())

    async def _ado_open(self) -> None:
        await self._ado(self._calls.open())

    def _start(self) -> None:
        """Begin to sweep, where that is wanted."""
        interval = self._retention.sweep_interval_minutes
        if interval is not None and self._sweeper is None:
            self._sweeper = Sweeper(self.sweep, interval)


def _to_listing(limit: Any, before: Any) -> tuple[int, ThreadRow | None]:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise InvalidArgument("limit is a whole number from 0 on")
    if before is None:
        return limit, None
    if isinstance(before, Thread):
        return limit, ThreadRow(before.checkpoint_id, before.thread_id)
    if isinstance(before, datetime) and before.tzinfo is not None:
        return limit, ThreadRow(to_first_id(to_microseconds(before)), "")
    raise InvalidArgument("before is a thread that was listed, or a datetime with its time zone")
