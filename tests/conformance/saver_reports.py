"""What users of checkpointers report of locks, event loops, connections and several savers at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph

from memstore import MemSaver
from memstore.checkpoints import Page
from memstore.steps import Statement, Step, run
from memstore.threads import read_page
from tests.children import spawn
from tests.conformance.concurrency import DEADLINE, run_together
from tests.conformance.saver_callers import ids, name_at, open_at, to_checkpoint, to_config
from tests.support import Place

LISTED = 300
"""Checkpoints in the listing whose statements are counted."""


class Count(TypedDict):
    """A state of one number."""

    n: int


def count_graph(saver: MemSaver) -> Any:
    """Make a graph that adds one to a number."""
    graph = StateGraph(Count)
    graph.add_node("more", lambda state: {"n": state["n"] + 1})
    graph.add_edge(START, "more")
    graph.add_edge("more", END)
    return graph.compile(checkpointer=saver)


def extend(before: list[str], written: Sequence[list[str]]) -> list[str]:
    """Append what was written to a list, in its order."""
    return [*before, *(letter for one in written for letter in one)]


class Letters(TypedDict):
    """A state that two nodes write at once."""

    letters: Annotated[list[str], DeltaChannel(extend, list)]


def letters_graph(saver: MemSaver) -> Any:
    """Make a graph of parallel nodes, whose names are not in the order of their ids."""
    graph: Any = StateGraph(Letters)
    for name in ("c", "a", "d", "b"):
        graph.add_node(name, lambda _, name=name: {"letters": [f"{name}{number}" for number in range(3)]})
        graph.add_edge(START, name)
        graph.add_edge(name, END)
    return graph.compile(checkpointer=saver)


def open_and_put(number: int, location: Place) -> int:
    """Open the same new database as others do at this moment, and put a checkpoint."""
    with open_at(location) as saver:
        saver.setup()
        saver.put(to_config(f"thread {number}"), to_checkpoint("1", {"n": [number]}), {}, {"n": 1})
        found = saver.get_tuple(to_config(f"thread {number}"))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"n": [number]}
    return number


def on_loop(use: Any) -> None:
    """Run something on an event loop in another thread; a deadlock fails, and does not hang."""
    run_together([partial(asyncio.run, asyncio.wait_for(use, DEADLINE))])


class LoopReports:
    """Locks, event loops and lifecycle."""

    def test_a_paused_list_blocks_nobody(self, location: Place) -> None:
        """While an async iterator waits for its next turn, every other call is answered."""

        async def use() -> None:
            async with name_at(location) as saver:
                for number in range(3):
                    await saver.aput(to_config(), to_checkpoint(f"{number}"), {}, {})
                iterator: Any = saver.alist(to_config())
                first = await anext(iterator)
                await saver.aput(to_config("other"), to_checkpoint("1"), {}, {})
                await saver.aput_writes(first.config, [("a", 1)], "task")
                await saver.adelete_thread("other")
                assert await saver.aget_tuple(to_config()) is not None
                assert [found.checkpoint["id"] async for found in iterator] == ["1", "0"]

        on_loop(use())

    def test_sync_calls_return_on_a_running_loop(self, location: Place) -> None:
        """put, put_writes, get_tuple, list and the rest, between awaited ones."""

        async def use() -> None:
            async with name_at(location) as saver:
                config = await saver.aput(to_config(), to_checkpoint("1"), {}, {})
                config = saver.put(config, to_checkpoint("2"), {}, {})
                saver.put_writes(config, [("a", 1)], "task")
                found, awaited = saver.get_tuple(to_config()), await saver.aget_tuple(to_config())
                assert found is not None
                assert found == awaited
                assert ids(list(saver.list(to_config()))) == ["2", "1"]
                saver.copy_thread("t", "u")
                saver.prune(["t"])
                saver.delete_thread("t")
                assert [one async for one in saver.alist(to_config())] == []
                assert len(saver.list_threads()) == 1

        on_loop(use())

    @pytest.mark.parametrize(
        "call",
        [
            lambda saver: saver.adelete_thread("x"),
            lambda saver: saver.adelete_for_runs(["x"]),
            lambda saver: saver.acopy_thread("x", "y"),
            lambda saver: saver.aprune(["x"]),
            lambda saver: saver.aget_tuple(to_config()),
            lambda saver: saver.aput_writes(to_config("t", "1"), [("a", 1)], "task"),
            lambda saver: saver.alist_threads(),
            lambda saver: saver.asweep(),
            lambda saver: saver.aget_delta_channel_history(config=to_config("t", "1"), channels=["a"]),
        ],
        ids=["delete_thread", "delete_for_runs", "copy", "prune", "get", "writes", "threads", "sweep", "history"],
    )
    def test_any_call_may_be_the_first(self, location: Place, call: Callable[[MemSaver], Any]) -> None:
        """On a new database, without setup: the tables are made by it, and what is not there is no error."""

        async def use() -> None:
            saver = name_at(location)
            try:
                await call(saver)
                assert [found async for found in saver.alist(None)] == []
            finally:
                await saver.aclose()

        on_loop(use())

    def test_one_saver_serves_sync_and_async_graphs(self, location: Place) -> None:
        """The same object, in turns, on threads and on several event loops."""
        with open_at(location) as saver:
            graph, config = count_graph(saver), to_config()
            assert graph.invoke({"n": 0}, config) == {"n": 1}
            assert asyncio.run(graph.ainvoke({"n": 10}, config)) == {"n": 11}
            assert graph.get_state(config).values == {"n": 11}
            assert asyncio.run(graph.aget_state(config)).values == {"n": 11}
            assert graph.invoke({"n": 20}, config) == {"n": 21}
            assert len(list(graph.get_state_history(config))) == 9

    def test_a_history_can_be_read_on_a_loop(self, location: Place) -> None:
        """`get_state_history`, which is sync, in a coroutine."""

        async def use() -> None:
            async with name_at(location) as saver:
                graph = count_graph(saver)
                await graph.ainvoke({"n": 0}, to_config())
                assert [state.values for state in graph.get_state_history(to_config())] == [{"n": 1}, {"n": 0}, {}]

        on_loop(use())

    def test_a_named_saver_needs_no_with(self, location: Place) -> None:
        """Assigned, compiled and used; it is a saver, and is opened by its use."""
        saver = name_at(location)
        try:
            graph = count_graph(saver)
            assert graph.invoke({"n": 1}, to_config()) == {"n": 2}
            assert asyncio.run(graph.ainvoke({"n": 2}, to_config())) == {"n": 3}
        finally:
            saver.close()

    def test_two_hundred_puts_may_be_under_way(self, location: Place) -> None:
        """All are there in the end, each with its values."""

        async def use() -> None:
            async with name_at(location) as saver:
                puts = [
                    saver.aput(to_config(f"t{number}"), to_checkpoint("1", {"n": [number]}), {}, {"n": 1})
                    for number in range(200)
                ]
                configs = await asyncio.gather(*puts)
                found = await asyncio.gather(*(saver.aget_tuple(config) for config in configs))
                values = [one.checkpoint["channel_values"]["n"] for one in found if one is not None]
                assert values == [[number] for number in range(200)]
                assert len([one async for one in saver.alist(None)]) == 200

        on_loop(use())

    @pytest.mark.parametrize("awaited", [False, True], ids=["sync", "async"])
    def test_a_put_waits_for_another_s_write(
        self, location: Place, holding: Callable[[], AbstractContextManager[None]], *, awaited: bool
    ) -> None:
        """Another connection is in a transaction that writes: the put waits its turn, and is not told of locks."""

        def put() -> None:
            if awaited:
                asyncio.run(saver.aput(to_config(), to_checkpoint("1"), {}, {}))
            else:
                saver.put(to_config(), to_checkpoint("1"), {}, {})

        with open_at(location) as saver, ThreadPoolExecutor(1) as thread:
            with holding():
                waiting = thread.submit(put)
                with pytest.raises(TimeoutError):
                    waiting.result(0.1)
            waiting.result(DEADLINE)
            assert ids(list(saver.list(None))) == ["1"]


class StatementReports:
    """How many statements a call takes."""

    @pytest.mark.parametrize(("filter", "most"), [({}, 2), ({"step": None}, 3)], ids=["all", "filtered"])
    def test_a_listing_takes_a_few_statements(
        self, location: Place, ask: Callable[[Statement], list[Any]], filter: dict[str, Any], most: int
    ) -> None:
        """As many for 300 checkpoints as for 10: writes and values are not read one checkpoint after the other."""
        with open_at(location) as saver:
            configs = asyncio.run(self.put_many(saver))
            threads = saver._backend.dialect.threads()
            counts = []
            for limit in (10, LISTED):
                asked: list[Step] = []

                def perform(step: Any, asked: list[Step] = asked) -> list[Any]:
                    asked.append(step)
                    return ask(step)

                found, _ = run(read_page(threads, Page(limit, filter=filter)), perform)
                assert [stored.address.to_config() for stored in found] == configs[::-1][:limit]
                assert [len(stored.writes) for stored in found] == [2] * limit
                counts.append(len(asked))
            assert counts[0] == counts[1] <= most

    @staticmethod
    async def put_many(saver: MemSaver) -> list[Any]:
        """Put checkpoints with writes; give their configs."""
        checkpoints = [to_checkpoint(f"{number:03}", {"a": [number]}) for number in range(LISTED)]
        configs = await asyncio.gather(*(saver.aput(to_config(), one, {}, {"a": 1}) for one in checkpoints))
        await asyncio.gather(*(saver.aput_writes(config, [("a", 1), ("b", 2)], "task") for config in configs))
        return configs


class SharedReports:
    """Several savers, threads and processes on one database, and the order of what they wrote."""

    def test_a_new_database_may_be_opened_by_many_threads(self, location: Place) -> None:
        """Eight at once: one set of tables is made, and none is told of the others."""
        run_together([partial(open_and_put, number, location) for number in range(8)])
        with open_at(location) as saver:
            assert len(saver.list_threads()) == 8

    def test_a_new_database_may_be_opened_by_many_processes(self, location: Place) -> None:
        """Eight at once."""
        assert spawn(8, open_and_put, location) == list(range(8))
        with open_at(location) as saver:
            assert len(saver.list_threads()) == 8

    def test_store_and_saver_are_used_by_many_threads(self, location: Place) -> None:
        """Eight, half of them with event loops, on one store and its savers: no error, and nothing is lost."""
        with location.open() as store:
            saver = store.saver()

            def work(number: int) -> None:
                for step in range(15):
                    config = saver.put(to_config(f"t{number}"), to_checkpoint(f"{step:02}"), {}, {})
                    saver.put_writes(config, [("a", step)], "task")
                    store.put(("items", str(number)), str(step), {"n": step})
                    assert len(list(saver.list(to_config(f"t{number}")))) == step + 1

            async def awork(number: int) -> None:
                own = store.saver()
                for step in range(15):
                    put = store.aput(("items", str(number)), str(step), {"n": step})
                    config, _ = await asyncio.gather(
                        own.aput(to_config(f"t{number}"), to_checkpoint(f"{step:02}"), {}, {}), put
                    )
                    await own.aput_writes(config, [("a", step)], "task")
                    assert len([one async for one in own.alist(to_config(f"t{number}"))]) == step + 1

            works: list[Callable[[], object]] = [partial(work, number) for number in range(4)]
            works += [partial(asyncio.run, awork(number)) for number in range(4, 8)]
            run_together(works)
            assert [thread.checkpoints for thread in saver.list_threads()] == [15] * 8
            assert all(len(found.pending_writes or ()) == 1 for found in saver.list(None))
            assert store.stats().items == 8 * 15

    def test_parallel_writes_are_replayed_as_they_were_applied(self, location: Place) -> None:
        """The state that is read is the state that the run had: no other order of the same writes."""
        with open_at(location) as saver:
            graph = letters_graph(saver)
            for _ in range(3):
                live = graph.invoke({"letters": ["-"]}, to_config())
                assert graph.get_state(to_config()).values == live
            assert len(live["letters"]) == 3 * 13

    def test_writes_of_a_restarted_run_are_not_doubled(self, location: Place) -> None:
        """The same task writes again in another process, as it were: what is there stays, once."""
        for _ in range(3):
            with open_at(location) as saver:
                config = saver.put(to_config(), to_checkpoint("1"), {}, {})
                saver.put_writes(config, [("a", 1), ("b", 2)], "task", "path")
                (found,) = saver.list(None)
                assert found.pending_writes == [("task", "a", 1), ("task", "b", 2)]
