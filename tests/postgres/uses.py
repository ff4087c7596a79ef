"""Uses of a store, sync and async, and connections and pools that a caller gives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, TypeAlias

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from memstore import MemStore
from tests.support import WordEmbeddings

INDEX: dict[str, Any] = {"embed": WordEmbeddings(8), "fields": ["text"]}
Give: TypeAlias = Callable[..., AbstractContextManager[Any]]
AsyncGive: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]


def use(store: MemStore, key: str) -> list[Any]:
    """Put, get, search, list and delete, and give what a fresh put is found by."""
    store.put(("use", key), "k", {"text": f"text of {key}", "n": 1.5})
    store.put(("use", key), "gone", {"text": "gone"})
    store.delete(("use", key), "gone")
    item = store.get(("use", key), "k")
    assert item is not None
    assert item.value == {"text": f"text of {key}", "n": 1.5}
    assert ("use", key) in store.list_namespaces(prefix=("use",), limit=1000)
    return [(hit.key, hit.score) for hit in store.search(("use", key), query=f"text of {key}")]


async def use_async(store: MemStore, key: str) -> list[Any]:
    """Do the same awaited, with several calls at once."""
    puts = [store.aput(("awaited", key), f"k{n}", {"text": f"text {n} of {key}"}) for n in range(4)]
    await asyncio.gather(*puts, *(store.asearch((), query="text") for _ in range(4)))
    await store.adelete(("awaited", key), "k0")
    assert len(await store.asearch(("awaited", key), limit=10)) == 3
    return [(hit.key, hit.score) for hit in await store.asearch(("awaited", key), query=f"text 3 of {key}", limit=1)]


def use_awaited(store: MemStore, key: str) -> list[Any]:
    """Do it on an event loop of its own."""
    return asyncio.run(use_async(store, key))


@contextmanager
def given_connection(url: str, **kwargs: Any) -> Iterator[psycopg.Connection[Any]]:
    """Give a connection of the caller's."""
    with psycopg.connect(url, **kwargs) as connection:
        yield connection


@contextmanager
def given_pool(url: str, **kwargs: Any) -> Iterator[ConnectionPool[Any]]:
    """Give a pool of the caller's."""
    with ConnectionPool(url, kwargs=kwargs, min_size=1, max_size=3, open=True) as pool:
        yield pool


@asynccontextmanager
async def given_async_connection(url: str, **kwargs: Any) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Give an async connection of the caller's."""
    async with await psycopg.AsyncConnection.connect(url, **kwargs) as connection:
        yield connection


@asynccontextmanager
async def given_async_pool(url: str, **kwargs: Any) -> AsyncIterator[AsyncConnectionPool[Any]]:
    """Give an async pool of the caller's."""
    async with AsyncConnectionPool(url, kwargs=kwargs, min_size=1, max_size=3, open=False) as pool:
        yield pool


SYNC: dict[str, Give] = {
    "connection": given_connection,
    "pool": given_pool,
}
ASYNC: dict[str, AsyncGive] = {
    "connection": given_async_connection,
    "pool": given_async_pool,
}
