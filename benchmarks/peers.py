"""The stores that are compared, opened alike: the same embedding, field, metric and durability.

Every commit waits for the disk in every database. memstore comes twice: ranking by meaning alone, as its peers do, and
by words and meaning. `SqliteStore` comes twice: as it opens itself, with SQLite's rollback journal, and with the
write-ahead log that memstore uses too, which its users may turn on. `QdrantStore` runs in Qdrant's local mode, inside
this process, on a folder; Qdrant recommends that for up to 20,000 items.
"""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from benchmarks.oracle import Log
from benchmarks.workload import Memory
from memstore import MemStore

MEMSTORE: Final = "memstore"
HYBRID: Final = "memstore (hybrid)"
SQLITE: Final = "SqliteStore"
SQLITE_WAL: Final = "SqliteStore (WAL)"
QDRANT: Final = "QdrantStore (local)"
MEMORY: Final = "InMemoryStore"
OWN: Final = (MEMSTORE, HYBRID)
FRESH: Final = ", fresh"
"""What is added to the name of a store that was filled with what another has come to hold."""
MODES: Final = ("semantic", "hybrid")
"""How memstore ranks, of the ways that are compared."""
STORES: Final = (MEMSTORE, HYBRID, SQLITE, SQLITE_WAL, QDRANT, MEMORY)
_LOGS: Final = ("-wal", "-shm", "-journal")
_INDEX: Final = "-index"
"""What memstore adds to the database's name to name its index file."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What every store is opened with.

    Attributes:
        embeddings: What makes the vectors.
        dims: Their length.
        own: More of memstore's settings of `index`.
    """

    embeddings: Embeddings
    dims: int
    own: Mapping[str, Any] = field(default_factory=dict)


Opener: TypeAlias = Callable[[Path, Setup], AbstractContextManager[BaseStore]]


@contextmanager
def open_own(location: Path | str, setup: Setup, mode: str, schema: str | None = None) -> Iterator[MemStore]:
    """Open memstore on a file, or in a schema of a Postgres database, ranking by the mode named."""
    index: dict[str, Any] = {
        "embed": setup.embeddings,
        "dims": setup.dims,
        "fields": ["text"],
        "mode": mode,
        "model": "made",
        **setup.own,
    }
    with MemStore.open(location, index=index, schema=schema) as store:
        yield store


@contextmanager
def open_memstore(path: Path, setup: Setup) -> Iterator[BaseStore]:
    """Open memstore, ranking by meaning alone as its peers do."""
    with open_own(path, setup, "semantic") as store:
        yield store


@contextmanager
def open_hybrid(path: Path, setup: Setup) -> Iterator[BaseStore]:
    """Open memstore, ranking by words and meaning."""
    with open_own(path, setup, "hybrid") as store:
        yield store


@contextmanager
def open_sqlite(path: Path, setup: Setup) -> Iterator[BaseStore]:
    """Open LangGraph's SqliteStore; it reads `text_fields` where LangGraph's other stores read `fields`."""
    from langgraph.store.sqlite import SqliteStore  # noqa: PLC0415  an optional peer

    index: Any = {"embed": setup.embeddings, "dims": setup.dims, "text_fields": ["text"]}
    with SqliteStore.from_conn_string(str(path), index=index) as store:
        store.setup()
        yield store


@contextmanager
def open_sqlite_wal(path: Path, setup: Setup) -> Iterator[BaseStore]:
    """Open LangGraph's SqliteStore and turn the write-ahead log on."""
    with open_sqlite(path, setup) as store:
        connection: sqlite3.Connection = store.conn  # type: ignore[attr-defined]  # SqliteStore's own
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        yield store


@contextmanager
def open_qdrant(path: Path, setup: Setup) -> Iterator[BaseStore]:
    """Open Qdrant's store in local mode; its vectors are compared by cosine unless told otherwise."""
    from langgraph.store.qdrant import QdrantStore  # noqa: PLC0415  an optional peer
    from qdrant_client import QdrantClient  # noqa: PLC0415

    warnings.filterwarnings("ignore", message="Local mode is not recommended")  # the module's docstring says it
    index: Any = {"embed": setup.embeddings, "dims": setup.dims, "fields": ["text"]}
    with closing(QdrantClient(path=str(path))) as client:
        store = QdrantStore(client, index=index)
        store.setup()
        yield store


OPENERS: Final[dict[str, Opener]] = {
    MEMSTORE: open_memstore,
    HYBRID: open_hybrid,
    SQLITE: open_sqlite,
    SQLITE_WAL: open_sqlite_wal,
    QDRANT: open_qdrant,
}
"""The stores that keep a database, by name."""


class Contestant:
    """One store under measurement; what is in its database outlives closing it.

    Args:
        kind: Which of `STORES` it is.
        folder: Where its database is.
        setup: What it is opened with.
        name: As it is printed, where that is not the kind.
        opener: What opens it, where that is not what `OPENERS` has for the kind.
    """

    def __init__(
        self, kind: str, folder: Path, setup: Setup, name: str | None = None, opener: Opener | None = None
    ) -> None:
        self.kind = kind
        self.name = name or kind
        self.path = folder / f"{self.name}.db"
        self._opener = opener or OPENERS.get(kind)
        self.durable = self._opener is not None
        self.log: Log = []
        self._setup = setup
        self._opened = ExitStack()
        self.store: BaseStore
        self.open()

    def open(self) -> None:
        """Open it; a store in memory is made once."""
        if self._opener is not None:
            self.store = self._opened.enter_context(self._opener(self.path, self._setup))
        elif not hasattr(self, "store"):
            self.store = InMemoryStore(
                index={"embed": self._setup.embeddings, "dims": self._setup.dims, "fields": ["text"]},
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

    def put(self, memory: Memory) -> None:
        """Put one memory."""
        self.store.put(memory.namespace, memory.key, memory.value)

    def take_down(self, *memories: Memory, gone: bool = False) -> None:
        """Write down, for the oracle, what was put or deleted after the filling; this is no part of any time."""
        self.log.extend((memory.key, None if gone else memory) for memory in memories)

    def drop_index(self) -> None:
        """Delete memstore's index file, if there is one."""
        for file in self.path.parent.glob(f"{self.path.name}{_INDEX}*"):
            file.unlink()

    def weigh(self) -> dict[str, int]:
        """Count bytes on disk: the database, its log and its index file."""
        bytes_of = {"database": 0, "log": 0, "index file": 0}
        for file in self.path.parent.glob(f"{self.path.name}*"):
            rest = file.name.removeprefix(self.path.name)
            part = "log" if rest in _LOGS else "index file" if rest.startswith(_INDEX) else "database"
            files = file.rglob("*") if file.is_dir() else [file]
            bytes_of[part] += sum(inside.stat().st_size for inside in files if inside.is_file())
        return bytes_of
