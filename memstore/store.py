"""MemStore: LangGraph's `BaseStore` over a database, sync and async in one class.

Every method checks what it was given and runs one call; `_do` makes its moves, `_ado` awaits them. A store is opened
by its first use at the latest, and nothing of it runs on after `close`.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    IndexConfig,
    Op,
    Result,
    TTLConfig,
)

from memstore.backends import Backend, Location, to_backend
from memstore.bulk_methods import BulkMethods
from memstore.calls import Calls
from memstore.check import Findings
from memstore.config import IndexSettings, TTLSettings
from memstore.embedding import to_embeddings
from memstore.errors import StoreClosed
from memstore.moves import Call, aperform, perform
from memstore.opening import open_store
from memstore.options import of_store
from memstore.promises import Done, on_loop
from memstore.requests import to_minutes
from memstore.saver import MemSaver
from memstore.stats import Stats
from memstore.steps import arun, run
from memstore.transaction import Transaction
from memstore.ttl import Sweeper

T = TypeVar("T")


class MemStore(BulkMethods):
    """Long-term memory for LangGraph agents: namespaced items, found by filter and by meaning.

    Use `MemStore.open` or `MemStore.from_conn_string`; both work with `with` and `async with`, and serve any thread
    and any event loop.

    Args:
        backend: The database, or where it is, as `MemStore.open` takes it.
        index: What is embedded and how, as LangGraph's `IndexConfig`, with memstore's own keys (see the README).
        ttl: LangGraph's `TTLConfig`, in minutes.
        schema: Postgres: the schema of the tables.
        pool: Postgres: settings of the pools, or a connection or pool of psycopg's.
    """

    def __init__(
        self,
        backend: Location,
        *,
        index: IndexConfig | Mapping[str, Any] | None = None,
        ttl: TTLConfig | Mapping[str, Any] | None = None,
        schema: str | None = None,
        pool: Any = None,
    ) -> None:
        super().__init__()
        self._closed = True  # so that a store whose settings are refused does not warn
        self._settings = None if index is None else IndexSettings.parse(index, "index")
        of_store(self._settings)  # checked at the door
        self._ttl = TTLSettings.parse({} if ttl is None else ttl, "ttl")
        self.ttl_config: TTLConfig | None = None if ttl is None else cast(TTLConfig, self._ttl.to_config())
        self._backend: Backend = to_backend(backend, schema, pool)
        self._calls: Calls | None = None
        self._embeddings: Embeddings | None = None
        self._sweeper: Sweeper | None = None
        self._installing = self._backend.lock()
        self._closed = False

    # opening and closing -------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        location: Location,
        *,
        index: IndexConfig | Mapping[str, Any] | None = None,
        ttl: TTLConfig | Mapping[str, Any] | None = None,
        schema: str | None = None,
        pool: Any = None,
    ) -> Self:
        """Open a store, and make its tables where they are missing.

        Args:
            location: A path, `sqlite:///` and a path, `:memory:`, `postgresql://` and so on, or a connection or pool
                of psycopg's, which stays the caller's.
            index: What is embedded and how. Left out, the store uses what its database remembers.
            ttl: How long items live.
            schema: Postgres: the schema of the tables, made where it is missing; `public` where it is None.
            pool: Postgres: a dict of settings (see the README), or a connection or pool of psycopg's.

        Raises:
            InvalidConfig: A setting is unknown or wrong, or the file cannot be made.
            IndexMismatch: The database's texts were indexed with another model, length or metric.
            NewerDatabase: A newer memstore wrote the database.
            DatabaseError: The database could not be used; nothing was changed.
        """
        store = cls.from_conn_string(location, index=index, ttl=ttl, schema=schema, pool=pool)
        try:
            store._do_open()  # noqa: SLF001  this class's own
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def from_conn_string(
        cls,
        conn_string: Location,
        *,
        index: IndexConfig | Mapping[str, Any] | None = None,
        ttl: TTLConfig | Mapping[str, Any] | None = None,
        schema: str | None = None,
        pool: Any = None,
    ) -> Self:
        """Name a store as LangGraph's stores are named; `with`, `async with` or the first call opens it."""
        return cls(conn_string, index=index, ttl=ttl, schema=schema, pool=pool)

    def setup(self) -> Done:
        """Open the store where it is not open; may be awaited, and is never needed."""
        if self._only_awaits():
            return Done.later(self._ado_open())
        self._do_open()
        return Done(0)

    def close(self) -> None:
        """Stop the sweeper, save the index file, wait for calls under way, and close every connection; idempotent."""
        try:
            self._stop()
        finally:
            self._backend.close()

    async def aclose(self) -> None:
        """Close as `close` does, off the event loop."""
        try:
            await asyncio.to_thread(self._stop)
        finally:
            await self._backend.aclose()

    def _stop(self) -> None:
        """End what the store does by itself."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.stop()
        if self._calls is not None:
            self._calls.close()

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

    def __del__(self) -> None:
        if getattr(self, "_closed", True):
            return
        if self._calls is not None:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)
        self._backend.abandon()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._backend.name}{' (closed)' if self._closed else ''}>"

    # LangGraph's attributes ------------------------------------------------------------------------------------------

    @property
    def index_config(self) -> IndexConfig | None:
        """The index settings as LangGraph's stores show them; None without an index."""
        calls = self._calls
        known = calls.index if calls else None
        if self._settings is None and known is None:
            return None
        embed = None if self._settings is None else self._settings.embed
        config: dict[str, Any] = {
            "embed": known.embed if embed is None and known else embed,
            "dims": known.dims if known and known.dims else self._settings and self._settings.dims,
            "fields": list(known.fields if known else self._settings.paths if self._settings else ()),
        }
        return cast(IndexConfig, config)

    @property
    def embeddings(self) -> Embeddings | None:
        """What makes the vectors; None without an index."""
        if self._calls is not None:
            return self._calls.embedder.embeddings if self._calls.embedder else None
        embed = self._settings.embed if self._settings else None
        return None if embed is None else self._make_embeddings(embed)

    # BaseStore -------------------------------------------------------------------------------------------------------

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Answer ops in order, all or none of them: reads see the state before the batch, the last write to a key wins.

        Raises:
            MemStoreError: An op is wrong, a vector is, or the database could not be used; nothing was changed.
        """
        calls = self._do_open()
        return self._do(calls.batch(calls.to_requests(ops)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Answer ops as `batch` does. Cancelled, it is applied wholly or not at all."""
        calls = await self._ado_open()
        return await self._ado(calls.batch(calls.to_requests(ops)))

    # beyond BaseStore ------------------------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Count what the store holds, on disk and in memory."""
        return self._do(self._do_open().stats())

    async def astats(self) -> Stats:
        """Count as `stats` does."""
        return await self._ado((await self._ado_open()).stats())

    def check(self, *, repair: bool = False) -> Findings:
        """Look the whole database over: its pages, its tables against each other, every text against its value.

        Items put under other `fields` than the store has now are findings too; repaired, they are indexed by its own.

        Args:
            repair: Put right what is wrong: count anew, raise what was set back, embed what is missing.
        """
        return self._do(self._do_open().check(repair=repair))

    async def acheck(self, *, repair: bool = False) -> Findings:
        """Look the database over as `check` does."""
        return await self._ado((await self._ado_open()).check(repair=repair))

    def saver(self, **options: Any) -> MemSaver:
        """Give a checkpointer on the store's database and connections; its options are those of `MemSaver`."""
        return MemSaver(self, **options)

    def transaction(self) -> Transaction:
        """Begin a transaction: what `tx.put`, `tx.delete_thread` and so on tell it is applied at once, at its end."""
        threads, reader = self.saver().to_calls()
        return Transaction(self._opening, self._put_op, threads, reader)

    def lend_backend(self) -> Backend:
        """Give the database to a saver."""
        return self._backend

    def sweep_ttl(self) -> Done:
        """Delete what has expired; return how many items there were. The result may be awaited."""
        if self._only_awaits():
            return Done.later(self._asweep())
        return Done(self._do(self._do_open().sweep()))

    async def _asweep(self) -> int:
        return await self._ado((await self._ado_open()).sweep())

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Done:
        """Sweep now and then until the store is closed; with an interval in `ttl` this happens by itself.

        Args:
            sweep_interval_minutes: Minutes between sweeps; the store's own, or 5, where it is None.
        """
        interval = to_minutes(sweep_interval_minutes, "interval") or self._ttl.sweep_interval_minutes or 5
        if not self._only_awaits():
            self._do_open()
        with self._installing:
            if self._sweeper is None or not self._sweeper.running:
                self._sweeper = Sweeper(self.sweep_ttl, interval)
        return Done(1)

    def stop_ttl_sweeper(self, timeout: float | None = None) -> Done:
        """Stop sweeping; true where it has ended within `timeout` seconds. An event loop is not kept waiting."""
        return Done(self._sweeper is None or self._sweeper.stop(timeout, wait=not on_loop()))

    # the two shells --------------------------------------------------------------------------------------------------

    def _do(self, call: Call[T]) -> T:
        return run(call, perform)

    async def _ado(self, call: Call[T]) -> T:
        return await arun(call, aperform)

    def _do_open(self) -> Calls:
        if self._calls is not None and not self._closed:
            return self._calls
        return run(self._opening(), perform)

    async def _ado_open(self) -> Calls:
        if self._calls is not None and not self._closed:
            return self._calls
        return await arun(self._opening(), aperform)

    def _opening(self) -> Call[Calls]:
        self._check_open()
        if self._calls is not None:
            return self._calls
        return self._install((yield from open_store(self._backend, self._settings, self._make_embeddings)))

    def _make_embeddings(self, embed: Any) -> Embeddings:
        """Turn `embed` into an `Embeddings`, once."""
        if self._embeddings is None:
            self._embeddings = to_embeddings(embed)
        return self._embeddings

    def _only_awaits(self) -> bool:
        """Tell whether this thread can reach the database by awaiting alone."""
        return self._backend.only_async and on_loop()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("open a new one")

    def _install(self, calls: Calls) -> Calls:
        """Keep what the first opening made, and start sweeping where that is wanted."""
        with self._installing:
            if self._calls is None:
                self._calls = calls
                if self._ttl.sweep_interval_minutes is not None:
                    self._sweeper = Sweeper(self.sweep_ttl, self._ttl.sweep_interval_minutes)
            return self._calls
