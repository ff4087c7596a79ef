"""The stores that are compared, opened alike: the same embedding, field, metric and durability.

Every commit waits for the disk in every database. `SqliteStore` comes twice: as it opens itself, with SQLite's rollback
journal, and with the write-ahead log that memstore uses too, which its users may turn on.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from memstore import MemStore

Opener: TypeAlias = Callable[[Path, Embeddings, int], AbstractContextManager[BaseStore]]

MEMSTORE: Final = "memstore"
SQLITE: Final = "SqliteStore"
SQLITE_WAL: Final = "SqliteStore (WAL)"
MEMORY: Final = "InMemoryStore"


@contextmanager
def open_memstore(path: Path, embeddings: Embeddings, dims: int) -> Iterator[BaseStore]:
    """Open memstore, ranking by meaning alone as its peers do."""
    index: dict[str, Any] = {"embed": embeddings, "dims": dims, "fields": ["text"], "mode": "semantic", "model": "made"}
    with MemStore.open(path, index=index) as store:
        yield store


@contextmanager
def open_sqlite(path: Path, embeddings: Embeddings, dims: int) -> Iterator[BaseStore]:
    """Open LangGraph's SqliteStore; it reads `text_fields` where LangGraph's other stores read `fields`."""
    from langgraph.store.sqlite import SqliteStore  # noqa: PLC0415  an optional peer

    index: Any = {"embed": embeddings, "dims": dims, "text_fields": ["text"]}
    with SqliteStore.from_conn_string(str(path), index=index) as store:
        store.setup()
        yield store


@contextmanager
def open_sqlite_wal(path: Path, embeddings: Embeddings, dims: int) -> Iterator[BaseStore]:
    """Open LangGraph's SqliteStore and turn the write-ahead log on."""
    with open_sqlite(path, embeddings, dims) as store:
        connection: sqlite3.Connection = store.conn  # type: ignore[attr-defined]  # SqliteStore's own
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        yield store


OPENERS: Final[dict[str, Opener]] = {MEMSTORE: open_memstore, SQLITE: open_sqlite, SQLITE_WAL: open_sqlite_wal}
"""The stores that keep a database, by name."""


class Contestant:
    """One store under measurement; what is in its database outlives closing it.

    Args:
        name: As it is printed.
        folder: Where its database is.
        embeddings: What makes the vectors.
        dims: Their length.
    """

    def __init__(self, name: str, folder: Path, embeddings: Embeddings, dims: int) -> None:
        self.name = name
        self.path = folder / f"{name}.db"
        self.durable = name in OPENERS
        self._embeddings = embeddings
        self._dims = dims
        self._opened = ExitStack()
        self.store: BaseStore
        self.open()

    def open(self) -> None:
        """Open it; a store in memory is made once."""
        if self.durable:
            opener = OPENERS[self.name]
            self.store = self._opened.enter_context(opener(self.path, self._embeddings, self._dims))
        elif not hasattr(self, "store"):
            self.store = InMemoryStore(
                index={"embed": self._embeddings, "dims": self._dims, "fields": ["text"]},
            )

    def close(self) -> None:
        """Close it; the write-ahead log is copied into the database."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bytes_on_disk(self) -> int:
        """The database file and its log."""
        return sum(file.stat().st_size for file in self.path.parent.glob(f"{self.path.name}*"))


def check_python() -> None:
    """End with a message where SqliteStore cannot run."""
    if not hasattr(sqlite3.Connection, "enable_load_extension"):
        sys.exit(
            f"SqliteStore needs a Python whose sqlite3 loads extensions, and {sys.executable} has none; "
            "Linux distributions' own /usr/bin/python3 and Homebrew's usually do"
        )
    try:
        import langgraph.store.sqlite  # noqa: F401, PLC0415  only whether it is there
    except ImportError as error:
        sys.exit(f"{error}; install the peers with: pip install 'memstore[bench]'")
