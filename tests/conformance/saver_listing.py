"""Which checkpoints `list` gives, in which order, and what else may go on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from memstore import MemSaver
from memstore.errors import MemStoreError
from memstore.threads import PAGE
from tests.conformance.concurrency import DEADLINE
from tests.conformance.saver_callers import (
    OpenSaver,
    Saving,
    SyncSaver,
    ids,
    name_at,
    open_at,
    to_checkpoint,
    to_config,
)
from tests.support import Place

MANY = 2 * PAGE + 7
"""Checkpoints that are read in three pages."""


def to_metadata(number: int) -> Any:
    """Give the metadata of one of them."""
    return {"step": number, "odd": bool(number % 2)}


def fill(saver: MemSaver, count: int, thread: str = "t") -> None:
    """Put checkpoints, each below the one before, together."""

    async def put() -> None:
        await asyncio.gather(
            *(
                saver.aput(
                    to_config(thread, f"{number - 1:05}" if number else None),
                    to_checkpoint(f"{number:05}", {"n": number}),
                    to_metadata(number),
                    {"n": 1},
                )
                for number in range(count)
            )
        )

    asyncio.run(put())


class ListingConformance(Saving):
    """Order, bounds and limits."""

    def put_some(self, saver: SyncSaver) -> None:
        """Put ten checkpoints of two threads and three namespaces, out of order."""
        for id_, thread, namespace in (
            ("5", "t", ""), ("2", "u", ""), ("7", "t", "sub"), ("1", "t", ""), ("9", "u", "sub"),
            ("3", "t", "sub"), ("8", "t", ""), ("6", "u", ""), ("4", "t", "sub|deep"), ("0", "t", "sub"),
        ):  # fmt: skip
            saver.put(to_config(thread, None, namespace), to_checkpoint(id_))

    def test_the_newest_come_first(self, saver: SyncSaver) -> None:
        """By id, over all threads and namespaces where the config names none."""
        self.put_some(saver)
        assert ids(saver.list(None)) == list("9876543210")
        assert ids(saver.list({})) == list("9876543210")
        assert ids(saver.list(None, limit=3)) == list("987")
        assert ids(saver.list(to_config("t", None, None))) == list("8754310")
        assert ids(saver.list(to_config("t", None, ""))) == list("851")
        assert ids(saver.list(to_config("t", None, "sub"))) == list("730")
        assert ids(saver.list(to_config("u", None, None))) == list("962")
        assert ids(saver.list(to_config("nobody"))) == []

    def test_a_checkpoint_may_be_named(self, saver: SyncSaver) -> None:
        """That one alone, in the namespace that is named, or in any."""
        self.put_some(saver)
        assert ids(saver.list(to_config("t", "7", "sub"))) == ["7"]
        assert ids(saver.list(to_config("t", "7", None))) == ["7"]
        assert ids(saver.list(to_config("t", "7", ""))) == []

    def test_equal_ids_are_listed_apart(self, saver: SyncSaver) -> None:
        """Copies share the ids of their source: each is there once, and in the same order every time."""
        for thread, namespace in (("a", ""), ("b", ""), ("a", "sub"), ("b", "sub"), ("c", "")):
            saver.put(to_config(thread, None, namespace), to_checkpoint("1"))
        listed = saver.list(None)
        assert len(listed) == 5
        places = [tuple(one.config["configurable"].values())[:2] for one in listed]
        assert len(set(places)) == 5
        again = [tuple(one.config["configurable"].values())[:2] for one in saver.list(None)]
        assert again == places

    def test_before_is_an_id(self, saver: SyncSaver) -> None:
        """Smaller ones alone, whatever else the config says; without an id it is ignored."""
        self.put_some(saver)
        assert ids(saver.list(None, before=to_config("t", "3"))) == list("210")
        assert ids(saver.list(to_config("t", None, None), before=to_config("nobody", "5", "x"))) == list("4310")
        assert ids(saver.list(to_config(), before=to_config("t", "5"), limit=1)) == ["1"]
        assert ids(saver.list(None, before=to_config("t", "0"))) == []
        none: list[Any] = [to_config("t"), {"configurable": {}}, {}, None]
        for before in none:
            assert len(saver.list(None, before=before)) == 10

    def test_a_limit_counts_from_0(self, saver: SyncSaver) -> None:
        """0 is none, None is all, more than there are is all."""
        self.put_some(saver)
        assert saver.list(None, limit=0) == saver.list(to_config(), limit=0) == []
        assert ids(saver.list(None, limit=1)) == ["9"]
        assert len(saver.list(None, limit=None)) == len(saver.list(None, limit=1000)) == 10

    @pytest.mark.parametrize("limit", [-1, -1000, 1.5, True, "1"], ids=repr)
    def test_other_limits_are_refused(self, saver: SyncSaver, limit: Any) -> None:
        """By a ValueError of memstore's."""
        with pytest.raises(ValueError, match="limit") as refusal:
            saver.list(None, limit=limit)
        assert isinstance(refusal.value, MemStoreError)

    def test_listed_checkpoints_are_whole(self, saver: SyncSaver) -> None:
        """Values, metadata, parents and writes are those that get gives."""
        root = saver.put(to_config(), to_checkpoint("1", {"a": [1], "b": "x"}), {"step": 1})
        saver.put_writes(root, [("a", 1), ("__error__", "e")], "task", "path")
        two = to_checkpoint("2", {"a": [1], "b": "y"}, channel_versions={"a": 1, "b": 2})
        saver.saver.put(root, two, {"step": 2}, {"b": 2})
        saver.put(to_config("u"), to_checkpoint("3", {"a": [3]}))
        listed = saver.list(None)
        assert ids(listed) == ["3", "2", "1"]
        assert listed == [saver.get(one.config) for one in listed]
        assert listed[1].parent_config == root
        assert listed[2].pending_writes == [("task", "__error__", "e"), ("task", "a", 1)]

    def test_lists_may_be_long(self, open_saver: OpenSaver) -> None:
        """More than are read at once: no gap, no duplicate, and every limit holds."""
        saver = open_saver()
        fill(saver.saver, MANY)
        expected = [f"{number:05}" for number in reversed(range(MANY))]
        assert ids(saver.list(to_config())) == ids(saver.list(None)) == expected
        assert ids(saver.list(None, filter={"odd": True})) == [id_ for id_ in expected if int(id_) % 2]
        assert ids(saver.list(None, filter={"step": 3})) == ["00003"]
        for limit in (PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 2 * PAGE + 1):
            assert ids(saver.list(to_config(), limit=limit)) == expected[:limit]
        odd = [id_ for id_ in expected if int(id_) % 2][: PAGE + 1]
        assert ids(saver.list(to_config(), filter={"odd": True}, limit=PAGE + 1)) == odd
        before = to_config("t", expected[2])
        assert ids(saver.list(to_config(), before=before, limit=PAGE + 1)) == expected[3 : PAGE + 4]


class IterationConformance:
    """An iterator holds neither a lock nor a connection."""

    def test_every_call_works_in_the_middle_of_a_list(self, location: Place) -> None:
        """In the same thread: put, put_writes, get_tuple, list and delete_thread, on a pool of any size."""
        with open_at(location) as saver:
            fill(saver, 20)
            seen = []
            for found in saver.list(to_config()):
                id_ = found.checkpoint["id"]
                saver.put(to_config("other"), to_checkpoint(id_), {}, {})
                saver.put_writes(found.config, [("a", 1)], "task")
                assert saver.get_tuple(to_config()) is not None
                assert len(list(saver.list(to_config(), limit=3))) == 3
                seen.append(id_)
            assert seen == [f"{number:05}" for number in reversed(range(20))]
            for found in saver.list(to_config("other")):
                saver.delete_thread("other")
                assert found.config["configurable"]["thread_id"] == "other"
            assert list(saver.list(to_config("other"))) == []

    def test_every_call_works_in_the_middle_of_an_async_list(self, location: Place) -> None:
        """The same on one event loop, awaited."""

        async def use() -> list[str]:
            async with name_at(location) as saver:
                for number in range(20):
                    await saver.aput(to_config(), to_checkpoint(f"{number:05}"), {}, {})
                seen = []
                async for found in saver.alist(to_config()):
                    await saver.aput(to_config("other"), to_checkpoint(found.checkpoint["id"]), {}, {})
                    await saver.aput_writes(found.config, [("a", 1)], "task")
                    assert await saver.aget_tuple(to_config()) is not None
                    assert len([one async for one in saver.alist(to_config(), limit=3)]) == 3
                    seen.append(found.checkpoint["id"])
                return seen

        assert asyncio.run(asyncio.wait_for(use(), DEADLINE)) == [f"{number:05}" for number in reversed(range(20))]

    def test_iterators_may_be_left(self, location: Place) -> None:
        """After the first item, or before it, many at a time: later calls and the close do not wait for them."""
        with open_at(location) as saver:
            fill(saver, 600)
            left = [saver.list(to_config()) for _ in range(30)]
            for iterator in left[:15]:
                next(iterator)
            saver.put(to_config(), to_checkpoint("later"), {}, {})
            found = saver.get_tuple(to_config())
            assert found is not None
            assert found.checkpoint["id"] == "later"
            assert next(left[20]).checkpoint["id"] == "later"

    def test_async_iterators_may_be_left(self, location: Place) -> None:
        """The same, while as many tasks put and list at once."""

        async def leave(saver: MemSaver, number: int) -> AsyncIterator[Any]:
            iterator: Any = saver.alist(to_config())
            await anext(iterator)
            await saver.aput(to_config(f"thread {number}"), to_checkpoint("1"), {}, {})
            return iterator  # type: ignore[no-any-return]

        async def use() -> None:
            async with name_at(location) as saver:
                for number in range(3):
                    await saver.aput(to_config(), to_checkpoint(f"{number:05}"), {}, {})
                left = await asyncio.gather(*(leave(saver, number) for number in range(30)))
                assert len([one async for one in saver.alist(None)]) == 33
                for iterator in left:
                    async with aclosing(iterator):  # type: ignore[type-var]
                        pass

        asyncio.run(asyncio.wait_for(use(), DEADLINE))

    def test_pages_join_while_others_write(self, location: Place) -> None:
        """What is put or deleted meanwhile neither doubles nor hides what was there all the time."""
        with open_at(location) as saver:
            fill(saver, MANY)
            seen = []
            for found in saver.list(to_config()):
                seen.append(found.checkpoint["id"])
                if len(seen) % 100 == 1:
                    saver.put(to_config(), to_checkpoint(f"new {len(seen):05}"), {}, {})
                    saver.put(to_config("u"), to_checkpoint(found.checkpoint["id"]), {}, {})
            assert seen == [f"{number:05}" for number in reversed(range(MANY))]
