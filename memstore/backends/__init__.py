"""Where flows run: connections, transactions, workers, and the translation of a driver's errors.

A backend runs a flow in one transaction, sync or async. It is given a function that makes the flow, never the flow
itself, so that a transaction can be begun again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from memstore.config import IndexSettings, PoolSettings
from memstore.dialects import Dialect
from memstore.errors import InvalidConfig, MissingExtra
from memstore.indexes import Metric
from memstore.items import Microseconds
from memstore.namespaces import is_storable
from memstore.steps import Flow
from memstore.wide_search import WideSearch

T = TypeVar("T")
FlowMaker: TypeAlias = Callable[[], Flow[T]]


class Backend(Protocol):
    """A database that runs flows. Every method but `close` opens it where it is not open yet."""

    name: str
    """The database as it may be shown: never with a password."""

    now: Callable[[], Microseconds]
    """The time, as items are stamped with it."""

    @property
    def dialect(self) -> Dialect:
        """How its SQL is spelled."""
        ...

    @property
    def reads_apart(self) -> bool:
        """Whether what a batch reads needs a transaction of its own, before that of its writes."""
        ...

    @property
    def only_async(self) -> bool:
        """Whether only an event loop reaches it: the caller gave nothing but async connections."""
        ...

    def lock(self) -> Any:
        """Make a lock that works where this backend runs flows, and in forked children."""
        ...

    def wide(self, metric: Metric, settings: IndexSettings) -> WideSearch:
        """Make what ranks scopes that are too wide to be ranked whole, for an opened database.

        Raises:
            IndexMismatch: The database keeps its vectors otherwise.
        """
        ...

    def open(self) -> None:
        """Make or migrate the tables; idempotent."""
        ...

    def read(self, make: FlowMaker[T]) -> T:
        """Run a flow that only reads, in one snapshot."""
        ...

    def glance(self, make: FlowMaker[T]) -> T:
        """Run a short flow that only reads, the quickest way there is.

        What it reads is of one snapshot where it is one statement, or its clock says so.
        """
        ...

    def write(self, make: FlowMaker[T]) -> T:
        """Run a flow in one transaction that is wholly applied or not at all."""
        ...

    async def aread(self, make: FlowMaker[T]) -> T:
        """Run a flow as `read` does, off the event loop."""
        ...

    async def awrite(self, make: FlowMaker[T]) -> T:
        """Run a flow as `write` does, off the event loop; once begun, cancelling does not stop it half-way."""
        ...

    async def aglance(self, make: FlowMaker[T]) -> T:
        """Run a flow as `glance` does, off the event loop."""
        ...

    def jot(self, prepare: Callable[[], FlowMaker[T]]) -> T:
        """Run a flow of one statement that writes, the quickest way there is.

        It is made ready outside of the transaction, and may be run twice.
        """
        ...

    async def ajot(self, prepare: Callable[[], FlowMaker[T]]) -> T:
        """Run a flow as `jot` does, off the event loop, where it is made ready too."""
        ...

    def compact(self) -> None:
        """Give the room of what was deleted back to the file system, where that is not done by itself."""
        ...

    async def acompact(self) -> None:
        """Give room back as `compact` does, off the event loop."""
        ...

    def sizes(self) -> dict[str, int]:
        """Give the bytes of what the database keeps on disk, by kind."""
        ...

    async def asizes(self) -> dict[str, int]:
        """Give what `sizes` gives, off the event loop."""
        ...

    def write_soon(self, make: FlowMaker[Any]) -> None:
        """Run a flow as `write` does, but do not keep the caller waiting for other writers."""
        ...

    async def awrite_soon(self, make: FlowMaker[Any]) -> None:
        """Run a flow as `write_soon` does, off the event loop."""
        ...

    async def acall(self, call: Callable[[], T]) -> T:
        """Run something that blocks off the event loop."""
        ...

    def close(self) -> None:
        """Wait for what is running, then let everything go; idempotent."""
        ...

    async def aclose(self) -> None:
        """Close as `close` does, off the event loop."""
        ...

    def abandon(self) -> None:
        """Let everything go without waiting: the store is being collected unclosed."""
        ...


_NAME_BYTES: Final = 63
Location: TypeAlias = str | os.PathLike[str] | Any
"""A path or URL, or a connection or pool of psycopg's."""


def to_backend(location: Location, schema: str | None = None, pool: Any = None) -> Backend:
    """Choose the backend of a path, a URL, or a connection or pool of psycopg's; nothing is opened yet.

    Args:
        location: Where the database is.
        schema: Postgres: the schema of the tables; `public` where it is None.
        pool: Postgres: settings of the pools, or a connection or pool of the caller's.

    Raises:
        InvalidConfig: It names no database memstore knows.
        MissingExtra: The driver is not installed.
    """
    given: Any = location
    if hasattr(given, "write_soon"):
        backend: Backend = given
        return backend
    if _is_postgres(given):
        return _to_postgres(given, schema, pool)
    if schema is not None or pool is not None:
        raise InvalidConfig("'schema' and 'pool' are for Postgres; a SQLite database is one file")
    return _to_sqlite(location)


def _is_postgres(location: Any) -> bool:
    if isinstance(location, str):
        return location.startswith(("postgres://", "postgresql://"))
    return any(kind.__module__.partition(".")[0] in ("psycopg", "psycopg_pool") for kind in type(location).__mro__)


def _to_postgres(location: Any, schema: Any, pool: Any) -> Backend:
    try:
        from memstore.backends.postgres import PostgresBackend  # noqa: PLC0415  a backend imports its driver
    except ImportError as error:
        raise MissingExtra("Postgres needs psycopg and pgvector: pip install 'memstore[postgres]'") from error
    if schema is not None and not (isinstance(schema, str) and schema and is_storable(schema)):
        raise InvalidConfig("schema is the name of a schema")
    if schema is not None and len(schema.encode()) > _NAME_BYTES:
        raise InvalidConfig(f"the name of a schema has up to {_NAME_BYTES} bytes; Postgres would cut it")
    if pool is not None and not isinstance(pool, Mapping):
        location, pool = pool, None
        if not _is_postgres(location):
            raise InvalidConfig("pool is a dict of settings, or a connection or pool of psycopg's")
    settings = PoolSettings.parse({} if pool is None else pool, "pool")
    return PostgresBackend(location, "public" if schema is None else schema, settings)


def _to_sqlite(location: Location) -> Backend:
    from memstore.backends.sqlite import SqliteBackend  # noqa: PLC0415  a backend imports its driver

    if isinstance(location, os.PathLike):
        return SqliteBackend(Path(location).expanduser())
    if not isinstance(location, str):
        raise InvalidConfig(f"expected a path, a URL, or psycopg's connection or pool, got {type(location).__name__}")
    if not location:
        raise InvalidConfig("expected a path such as 'memories.db', ':memory:' or a 'sqlite:///' URL")
    if location == ":memory:":
        return SqliteBackend(None)
    if location.startswith(("sqlite:", "file:")) and not location.startswith("sqlite:///"):
        raise InvalidConfig("a SQLite URL is sqlite:/// and a path, with three slashes; a plain path will do too")
    scheme, marker, rest = location.partition("://")
    if not marker:
        return SqliteBackend(Path(location).expanduser())
    if scheme == "sqlite":
        path = rest.removeprefix("/")
        return SqliteBackend(Path(path)) if path not in ("", ":memory:") else SqliteBackend(None)
    raise InvalidConfig(
        f"no database has the scheme {scheme!r}; use a path, ':memory:', 'sqlite:///memories.db' or 'postgresql://...'"
    )
