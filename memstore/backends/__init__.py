"""Where flows run: connections, transactions, workers, and the translation of a driver's errors.

A backend runs a flow in one transaction, sync or async. It is given a function that makes the flow, never the flow
itself, so that a transaction can be begun again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from memstore.catchup import Wide
from memstore.dialects import Dialect
from memstore.errors import InvalidConfig
from memstore.indexes import Metric
from memstore.items import Microseconds
from memstore.steps import Flow

T = TypeVar("T")
FlowMaker: TypeAlias = Callable[[], Flow[T]]


class Backend(Protocol):
    """A database that runs flows. Every method but `close` opens it where it is not open yet."""

    dialect: Dialect
    name: str
    """The database as it may be shown: never with a password."""

    now: Callable[[], Microseconds]
    """The time, as items are stamped with it."""

    def lock(self) -> Any:
        """Make a lock that works where this backend runs flows, and in forked children."""
        ...

    def wide(self, metric: Metric, candidates: int) -> Wide | None:
        """Make what ranks scopes that are too wide to be ranked whole, for an opened database."""
        ...

    def open(self) -> None:
        """Make or migrate the tables; idempotent."""
        ...

    def read(self, make: FlowMaker[T]) -> T:
        """Run a flow that only reads, in one snapshot."""
        ...

    def glance(self, make: FlowMaker[T]) -> T:
        """Run a short flow that only reads, in one snapshot, the quickest way there is."""
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

    def sizes(self) -> dict[str, int]:
        """Give the bytes of what the database keeps on disk, by kind."""
        ...

    def write_soon(self, make: FlowMaker[Any]) -> None:
        """Run a flow as `write` does, but do not keep the caller waiting for other writers."""
        ...

    async def acall(self, call: Callable[[], T]) -> T:
        """Run something that blocks off the event loop."""
        ...

    def close(self) -> None:
        """Wait for what is running, then let everything go; idempotent."""
        ...

    def abandon(self) -> None:
        """Let everything go without waiting: the store is being collected unclosed."""
        ...


def to_backend(location: str | os.PathLike[str]) -> Backend:
    """Choose the backend of a path or URL; nothing is opened yet.

    Raises:
        InvalidConfig: It names no database memstore knows.
    """
    from memstore.backends.sqlite import SqliteBackend  # noqa: PLC0415  a backend imports its driver

    if isinstance(location, os.PathLike):
        return SqliteBackend(Path(location).expanduser())
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
    if scheme in ("postgres", "postgresql"):
        raise InvalidConfig("this version keeps memories in SQLite; Postgres comes with a later one")
    raise InvalidConfig(f"no database has the scheme {scheme!r}; use a path, ':memory:' or 'sqlite:///memories.db'")
