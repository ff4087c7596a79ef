"""The event loop is never blocked: LangGraph's development server ends a run that does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockingError, blockbuster_ctx
from langgraph.store.base import PutOp

from memstore import MemStore
from tests.support import WordEmbeddings, keys

INDEX: dict[str, Any] = {"embed": WordEmbeddings(), "fields": ["text"]}


@pytest.mark.parametrize("location", ["memories.db", ":memory:"])
async def test_no_async_call_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str) -> None:
    """From opening to closing, with a sweeper and refreshes, nothing touches the disk or waits on the loop's thread."""
    monkeypatch.chdir(tmp_path)
    ttl = {"default_ttl": 5, "sweep_interval_minutes": 0.001}
    with blockbuster_ctx():
        async with MemStore.from_conn_string(location, index=INDEX, ttl=ttl) as store:
            await store.setup()
            await asyncio.gather(*(store.aput(("u", str(n)), "k", {"text": f"text {n}"}) for n in range(20)))
            items = [(("u", str(n)), "k", {"text": f"text {n}"}) for n in range(20)]
            assert await store.aput_many(items, batch_size=9) == 20
            assert keys(await store.asearch(("u", "3"), query="text 3")) == ["k"]
            assert len(await store.alist_namespaces(limit=5)) == 5
            assert await store.aget(("u", "1"), "k") is not None
            await store.adelete(("u", "1"), "k")
            assert (await store.astats()).items == 19
            assert (await store.acheck(repair=True)).ok
            assert store.index_config is not None
            await store.start_ttl_sweeper()
            await store.stop_ttl_sweeper()


async def test_no_wide_search_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index is made, trained, brought up, saved, by the way and when the store closes, and read: off the loop."""
    monkeypatch.chdir(tmp_path)
    index = INDEX | {"exact_below": 0, "candidates": 5}
    ops = [PutOp(("u", f"{number % 3}"), f"k{number}", {"text": f"text {number}"}) for number in range(40)]
    with blockbuster_ctx():
        for late in ("late", "later"):
            async with MemStore.from_conn_string("memories.db", index=index) as store:
                await store.abatch(ops)
                assert keys(await store.asearch(("u",), query="text 7", limit=1)) == ["k7"]
                await store.aput(("u", late), "k", {"text": f"a {late} one"})
                assert keys(await store.asearch((), query=f"a {late} one", limit=1)) == ["k"]
                stats = await store.astats()
                assert (stats.indexed_texts, stats.index_bytes > 0) == (stats.texts, True)


async def test_a_sync_call_on_the_loop_is_seen(tmp_path: Path) -> None:
    """The detector works: a sync call from a coroutine is what it is there to find."""
    async with MemStore.from_conn_string(tmp_path / "memories.db") as store:
        with blockbuster_ctx(), pytest.raises(BlockingError):
            store.put(("a",), "k", {})
