"""The public API as users write it: this file has to type-check, and that is its test."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import assert_type

from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)

from memstore import Findings, IndexMismatch, InvalidFilter, MemStore, MemStoreError, Stats
from memstore.indexes import Match, Metric, VectorIndex, Vectors
from memstore.indexes.flat import FlatIndex


def open_stores(path: Path, embeddings: Embeddings) -> list[MemStore]:
    """Open stores in every way there is."""
    index: IndexConfig = {"embed": embeddings, "dims": 3, "fields": ["text"]}
    ttl: TTLConfig = {"default_ttl": 60, "refresh_on_read": False, "sweep_interval_minutes": 5}
    opened = assert_type(MemStore.open(path, index=index, ttl=ttl), MemStore)
    named = assert_type(MemStore.from_conn_string("sqlite:///memories.db"), MemStore)
    others = [
        MemStore.open(":memory:", index={"embed": "all-MiniLM-L6-v2", "metric": "l2", "cache_mb": 64}),
        MemStore.open(":memory:", index={"embed": lambda texts: [[0.0] for _ in texts]}, ttl={"default_ttl": 0.5}),
    ]
    return [opened, named, *others]


def use_plainly(store: MemStore) -> None:
    """Call every method."""
    with store as entered:
        assert_type(entered, MemStore)
    namespace = ("users", "ada")
    store.put(namespace, "tea", {"text": "green tea"})
    store.put(namespace, "tea", {"text": "green tea"}, index=["text"], ttl=5)
    store.put(namespace, "tea", {"text": "green tea"}, index=False, ttl=None)
    assert_type(store.get(namespace, "tea"), Item | None)
    assert_type(store.get(namespace, "tea", refresh_ttl=True), Item | None)
    store.delete(namespace, "tea")
    found = assert_type(store.search(namespace), list[SearchItem])
    store.search((), query="tea", filter={"n": {"$gt": 1}}, limit=5, offset=5, refresh_ttl=False, mode="semantic")
    assert_type(found[0].score, float | None)
    listed = store.list_namespaces(prefix=("users", "*"), suffix=("ada",), max_depth=2, limit=5, offset=0)
    assert_type(listed, list[tuple[str, ...]])
    ops: list[Op] = [PutOp(namespace, "k", {"a": 1}), GetOp(namespace, "k"), SearchOp(()), ListNamespacesOp()]
    assert_type(store.batch(ops), list[Result])
    assert_type(store.put_many([PutOp(namespace, "k", {"a": 1}), (namespace, "k", {"a": 1})]), int)
    assert_type(store.put_many(((namespace, str(n), {"n": n}) for n in range(9)), batch_size=3, progress=print), int)
    assert_type(store.stats(), Stats)
    assert_type(store.check(repair=True), Findings)
    swept: int = store.sweep_ttl()
    store.start_ttl_sweeper(sweep_interval_minutes=swept)
    stopped: int = store.stop_ttl_sweeper(timeout=1)
    assert_type(bool(stopped), bool)
    store.setup()
    store.close()


async def arrive(namespace: tuple[str, ...]) -> AsyncIterator[PutOp]:
    """Give ops as they come."""
    yield PutOp(namespace, "k", {"a": 1})


async def use_awaited(store: MemStore) -> None:
    """Await every method."""
    async with store as entered:
        assert_type(entered, MemStore)
    namespace = ("users", "ada")
    await store.aput(namespace, "tea", {"text": "green tea"}, index=["text"], ttl=5)
    assert_type(await store.aget(namespace, "tea"), Item | None)
    await store.adelete(namespace, "tea")
    assert_type(await store.asearch(namespace, query="tea", mode="semantic"), list[SearchItem])
    assert_type(await store.alist_namespaces(prefix=("users",)), list[tuple[str, ...]])
    assert_type(await store.abatch([SearchOp(())]), list[Result])
    assert_type(await store.aput_many([(namespace, "k", {"a": 1})], progress=True), int)
    assert_type(await store.aput_many(arrive(namespace)), int)
    assert_type(await store.astats(), Stats)
    assert_type(await store.acheck(), Findings)
    await store.setup()
    swept: int = await store.sweep_ttl()
    await store.start_ttl_sweeper(swept)
    await store.stop_ttl_sweeper()
    await store.aclose()


def read_attributes(store: MemStore, stats: Stats, findings: Findings) -> None:
    """Read what can be read."""
    assert_type(store.index_config, IndexConfig | None)
    assert_type(store.embeddings, Embeddings | None)
    assert_type(store.ttl_config, TTLConfig | None)
    assert_type(stats.items, int)
    assert_type(stats.dims, int | None)
    assert_type(findings.problems, tuple[str, ...])
    assert_type(findings.ok, bool)


def catch(store: MemStore) -> str:
    """Catch errors as memstore's own, or as what callers already catch."""
    try:
        store.search((), filter={"n": {"$unknown": 1}})
    except InvalidFilter as error:
        return str(error)
    except (IndexMismatch, MemStoreError, ValueError) as error:
        return type(error).__name__
    return ""


def search_vectors(vectors: Vectors, metric: Metric) -> Match:
    """Use an index by itself, through its protocol."""
    index: VectorIndex = FlatIndex(vectors.shape[1], metric)
    return assert_type(index.search(vectors[0], k=3), Match)


def pass_as_base_store(store: BaseStore) -> Sequence[SearchItem]:
    """Take any store, as a graph's node does."""
    return store.search(("users",), query="tea")


def test_the_api_is_what_this_file_type_checks() -> None:
    """What stands above also runs: a store is a `BaseStore`, and its methods have their async twins."""
    with MemStore.open(":memory:", index={"embed": lambda texts: [[1.0] for _ in texts]}) as store:
        assert isinstance(store, BaseStore)
        assert pass_as_base_store(store) == []
        assert catch(store).startswith("This filter has no meaning")
        read_attributes(store, store.stats(), store.check())


def test_every_method_has_a_twin_of_the_same_signature() -> None:
    """Whoever moves to async changes the name by one letter, and nothing else."""
    for name in ("put", "get", "delete", "search", "list_namespaces", "batch", "stats", "check", "close"):
        plain, awaited = getattr(MemStore, name), getattr(MemStore, f"a{name}")
        assert inspect.iscoroutinefunction(awaited)
        assert inspect.signature(plain) == inspect.signature(awaited)


def test_what_langgraph_awaits_may_be_awaited() -> None:
    """`setup` and the sweeper's methods are called plainly by one of LangGraph's stores and awaited by the other."""

    async def main() -> tuple[int, ...]:
        async with MemStore.from_conn_string(":memory:") as store:
            done = (await store.setup(), await store.sweep_ttl(), await store.start_ttl_sweeper(5))
            return (*done, await store.stop_ttl_sweeper())

    with MemStore.from_conn_string(":memory:") as store:
        plain = (store.setup(), store.sweep_ttl(), store.start_ttl_sweeper(5), store.stop_ttl_sweeper())
    assert asyncio.run(main())[:2] == plain[:2] == (0, 0)
