"""What tests share: a small embedding, a clock that tests move, and one way to call a store sync or async."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from langchain_core.embeddings import Embeddings
from langgraph.store.base import Item, Op, SearchItem

from memstore import Findings, MemStore, Stats
from memstore.backends.postgres import PostgresBackend
from memstore.backends.sqlite import SqliteBackend
from memstore.config import PoolSettings
from memstore.explanation import Explanation
from memstore.recall import RecallCheck

DIMS = 64


@lru_cache(maxsize=4_096)
def _vector_of_word(word: str, dims: int) -> npt.NDArray[np.float64]:
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(dims)


@lru_cache(maxsize=1_024)
def _vector_of_text(text: str, dims: int) -> tuple[float, ...]:
    total = np.zeros(dims)
    for word in re.findall(r"\w+", text.lower()):
        total += _vector_of_word(word, dims)
    return tuple(total.tolist())


class WordEmbeddings(Embeddings):
    """A deterministic embedding: the sum of one random vector a word, so that texts that share words are near."""

    def __init__(self, dims: int = DIMS) -> None:
        self.dims = dims
        self.documents: list[list[str]] = []
        """Every list of texts that `embed_documents` was given."""
        self.queries: list[str] = []
        """Every text that `embed_query` was given."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts."""
        self.documents.append(list(texts))
        return [self._vector(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Embed a query."""
        self.queries.append(text)
        return self._vector(text)

    def _vector(self, text: str) -> list[float]:
        return list(_vector_of_text(text, self.dims))


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.microseconds = 1_800_000_000_000_000

    def __call__(self) -> int:
        """Give the time; each look moves it by a microsecond, as real ones do at least."""
        self.microseconds += 1
        return self.microseconds

    def pass_minutes(self, minutes: float) -> None:
        """Move the clock on."""
        self.microseconds += int(minutes * 60_000_000)


class SyncCaller:
    """Calls a store's sync methods."""

    def __init__(self, store: MemStore) -> None:
        self.store = store

    def put(self, namespace: Any, key: Any, value: Any, index: Any = None, **options: Any) -> None:
        """Put."""
        self.store.put(namespace, key, value, index, **options)

    def get(self, namespace: Any, key: Any, **options: Any) -> Item | None:
        """Get."""
        return self.store.get(namespace, key, **options)

    def delete(self, namespace: Any, key: Any) -> None:
        """Delete."""
        self.store.delete(namespace, key)

    def search(self, prefix: Any, /, **options: Any) -> list[SearchItem]:
        """Search."""
        return self.store.search(prefix, **options)

    def explain(self, prefix: Any, /, **options: Any) -> Explanation:
        """Explain."""
        return self.store.explain(prefix, **options)

    def recall_check(self, *arguments: Any, **options: Any) -> RecallCheck:
        """Measure recall."""
        return self.store.recall_check(*arguments, **options)

    def list_namespaces(self, **options: Any) -> list[tuple[str, ...]]:
        """List namespaces."""
        return self.store.list_namespaces(**options)

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        """Run a batch."""
        return self.store.batch(ops)

    def put_many(self, items: Any, **options: Any) -> int:
        """Put many."""
        return self.store.put_many(items, **options)

    def sweep(self) -> int:
        """Sweep."""
        return self.store.sweep_ttl()

    def stats(self) -> Stats:
        """Count."""
        return self.store.stats()

    def check(self, *, repair: bool = False) -> Findings:
        """Check."""
        return self.store.check(repair=repair)

    def close(self) -> None:
        """Close."""
        self.store.close()


class AsyncCaller(SyncCaller):
    """Calls a store's async methods on an event loop of its own."""

    def __init__(self, store: MemStore, runner: asyncio.Runner) -> None:
        super().__init__(store)
        self._runner = runner

    def put(self, namespace: Any, key: Any, value: Any, index: Any = None, **options: Any) -> None:
        """Put."""
        self._runner.run(self.store.aput(namespace, key, value, index, **options))

    def get(self, namespace: Any, key: Any, **options: Any) -> Item | None:
        """Get."""
        return self._runner.run(self.store.aget(namespace, key, **options))

    def delete(self, namespace: Any, key: Any) -> None:
        """Delete."""
        self._runner.run(self.store.adelete(namespace, key))

    def search(self, prefix: Any, /, **options: Any) -> list[SearchItem]:
        """Search."""
        return self._runner.run(self.store.asearch(prefix, **options))

    def explain(self, prefix: Any, /, **options: Any) -> Explanation:
        """Explain."""
        return self._runner.run(self.store.aexplain(prefix, **options))

    def recall_check(self, *arguments: Any, **options: Any) -> RecallCheck:
        """Measure recall."""
        return self._runner.run(self.store.arecall_check(*arguments, **options))

    def list_namespaces(self, **options: Any) -> list[tuple[str, ...]]:
        """List namespaces."""
        return self._runner.run(self.store.alist_namespaces(**options))

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        """Run a batch."""
        return self._runner.run(self.store.abatch(ops))

    def put_many(self, items: Any, **options: Any) -> int:
        """Put many."""
        return self._runner.run(self.store.aput_many(items, **options))

    def sweep(self) -> int:
        """Sweep."""

        async def swept() -> int:
            return await self.store.sweep_ttl()

        return self._runner.run(swept())

    def stats(self) -> Stats:
        """Count."""
        return self._runner.run(self.store.astats())

    def check(self, *, repair: bool = False) -> Findings:
        """Check."""
        return self._runner.run(self.store.acheck(repair=repair))

    def close(self) -> None:
        """Close."""
        self._runner.run(self.store.aclose())


OpenStore: TypeAlias = Callable[..., SyncCaller]
"""Opens a store on the test's one database: `open_store(index=..., ttl=...)`; closed when the test ends."""


class Control(Protocol):
    """What a test may do to its database, past the store and from any thread."""

    def hold(self) -> None:
        """Keep everyone who writes items waiting from now on."""
        ...

    def let_go(self) -> None:
        """Keep nobody waiting any more."""
        ...

    def refuse(self, key: str) -> None:
        """Let no item with this key be written from now on."""
        ...


@dataclass(frozen=True)
class Place:
    """Where the test's database is, as a user says it."""

    location: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def open(self, **settings: Any) -> MemStore:
        """Open a store there."""
        return MemStore.open(self.location, **self.options, **settings)

    def name(self, **settings: Any) -> MemStore:
        """Name a store there, which is opened by its use."""
        return MemStore.from_conn_string(self.location, **self.options, **settings)


def open_sqlite(path: Path | None, clock: Clock, index: Mapping[str, Any] | None, ttl: Any) -> MemStore:
    """Open a store on a SQLite file, or in memory, with a test's clock."""
    store = MemStore(SqliteBackend(path, clock), index=index, ttl=ttl)
    store.setup()
    return store


def keys(items: Iterable[Item]) -> list[str]:
    """Give the keys of some items, in their order."""
    return [item.key for item in items]


def open_postgres(url: str, schema: str, clock: Clock, index: Mapping[str, Any] | None, ttl: Any) -> MemStore:
    """Open a store in a schema of a Postgres database, with a test's clock and few connections."""
    backend = PostgresBackend(url, schema, PoolSettings(max_size=4), clock)
    store = MemStore(backend, index=index, ttl=ttl)
    store.setup()
    return store
