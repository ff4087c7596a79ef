"""What deleting leaves of threads without delta channels: as few checkpoints as there can be."""

from __future__ import annotations

from typing import Any

import pytest

from memstore import MemSaver
from tests.conformance.saver_graphs import OnSaver
from tests.graphs import (
    DURABILITIES,
    LONG,
    Caller,
    SiteDown,
    answer,
    at,
    build_fan,
    build_nested,
    build_talk,
    build_work,
    of_run,
    say,
)
from tests.support import Place


def spread(raw: Any, thread_id: str) -> dict[str, int]:
    """Count the checkpoints of each namespace of a thread, the id of a call left out."""
    spread: dict[str, int] = {}
    for (namespace,) in raw.execute(f"SELECT checkpoint_ns FROM checkpoints WHERE thread_id = '{thread_id}'"):  # noqa: S608
        name = namespace.split(":")[0] + (":" if ":" in namespace else "")
        spread[name] = spread.get(name, 0) + 1
    return spread


class PruningConformance(OnSaver):
    """Pruning, sweeping and deleting; fixture `raw` reaches the tables past the saver."""

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_pruning_leaves_one_checkpoint(self, saver: MemSaver, call: Caller, raw: Any, durability: str) -> None:
        """It is the newest, with every value, those that were last written long ago too; the thread goes on."""
        graph = build_talk(saver)
        call(graph, "invoke", say("first", text=LONG), at("t"), durability=durability)
        call(graph, "invoke", say("first"), at("other"), durability=durability)
        for turn in range(2, 6):
            call(graph, "invoke", say(f"turn {turn}"), at("t"), durability=durability)
            before = call(graph, "get_state", at("t"))
            call(saver, "prune", ["t"])
            assert spread(raw, "t") == {"": 1}
            after = call(graph, "get_state", at("t"))
            assert (after.values, after.config) == (before.values, before.config)
            assert (after.values["turns"], after.values["text"]) == (turn, LONG)
        assert spread(raw, "other") == ({"": 1} if durability == "exit" else {"": 4})

    @pytest.mark.parametrize("strategy", ["delete", "delete_all"])
    def test_pruning_can_delete(self, saver: MemSaver, call: Caller, raw: Any, strategy: str) -> None:
        """Every checkpoint of the threads that are named goes, and of no other."""
        graph = build_talk(saver)
        for name in "abc":
            call(graph, "invoke", say(name), at(name))
        call(saver, "prune", ["a", "c"], strategy=strategy)
        assert [spread(raw, name) for name in "abc"] == [{}, {"": 4}, {}]

    def test_pruning_keeps_what_waits(self, saver: MemSaver, call: Caller, raw: Any) -> None:
        """A failed run and an interrupted one go on after it without running any node twice that was done."""
        log: list[str] = []
        with pytest.raises(SiteDown):
            call(build_work(saver, log.append, works=False), "invoke", {"found": []}, at("t"))
        call(saver, "prune", ["t"])
        assert spread(raw, "t") == {"": 1}
        log.clear()
        graph = build_work(saver, log.append)
        call(graph, "invoke", None, at("t"))
        call(saver, "prune", ["t"])
        assert spread(raw, "t") == {"": 1}
        ended = call(graph, "invoke", answer("yes"), at("t"))
        assert log == ["shaky", "ask", "ask", "close"]
        assert sorted(ended["found"]) == ["shaky", "steady", "yes"]

    def test_pruning_keeps_sent_tasks(self, saver: MemSaver, call: Caller) -> None:
        """Those that are done and the one that asks."""
        log: list[str] = []
        graph = build_fan(saver, log.append)
        call(graph, "invoke", {"answer": "a ask b"}, at("t"))
        call(saver, "prune", ["t"])
        log.clear()
        assert call(graph, "invoke", answer("x"), at("t"))["found"] == ["a", "x", "b"]
        assert log == ["ask"]

    def test_ended_calls_of_subgraphs_go(self, saver: MemSaver, call: Caller, raw: Any) -> None:
        """The namespace of a call that waits stays, one checkpoint of it; those of calls that ended are deleted."""
        graph = build_nested(saver)
        for text in ("one", "two"):
            call(graph, "invoke", {"found": []}, at("t"))
            call(graph, "invoke", answer(text), at("t"))
        assert spread(raw, "t") == {"": 8, "inner:": 8}
        call(saver, "prune", ["t"])
        assert spread(raw, "t") == {"": 1}
        call(graph, "invoke", {"found": []}, at("t"))
        call(saver, "prune", ["t"])
        assert spread(raw, "t") == {"": 1, "inner:": 1}
        state = call(graph, "get_state", at("t"), subgraphs=True)
        assert [each.value for each in state.interrupts] == ["more?"]
        assert state.tasks[0].state.values["found"]
        assert call(graph, "invoke", answer("three"), at("t"))["found"][-1] == "three"
        call(saver, "prune", ["t"])
        assert spread(raw, "t") == {"": 1}

    def test_a_subgraph_with_a_memory_of_its_own_keeps_it(self, saver: MemSaver, call: Caller, raw: Any) -> None:
        """One checkpoint of each, at rest and while it waits; the next call remembers those before."""
        graph, twin = build_nested(saver, own=True), at("twin")
        for text in ("one", "two", "three"):
            for thread in (at("t"), twin):
                call(graph, "invoke", {"found": []}, thread)
            call(saver, "prune", ["t"])
            assert spread(raw, "t") == {"": 1, "inner": 1}
            ended = [call(graph, "invoke", answer(text), thread) for thread in (at("t"), twin)]
            assert ended[0] == ended[1]
            call(saver, "prune", ["t"])
            assert spread(raw, "t") == {"": 1, "inner": 1}
        assert call.values(graph, at("t"))["found"].count("one") > 1

    @pytest.mark.parametrize("keep", [1, 2, 3])
    def test_a_sweep_keeps_so_many(self, location: Place, call: Caller, raw: Any, keep: int) -> None:
        """Of each namespace, with the calls of subgraphs that the kept ones began; a replay from those works."""
        log: list[str] = []
        with MemSaver.open(location.location, **location.options, retention={"keep_last": keep}) as saver:
            talk, nested = build_talk(saver, log.append), build_nested(saver)
            for text in ("one", "two"):
                call(talk, "invoke", say(text), at("t"))
                call(nested, "invoke", {"found": []}, at("n"))
                call(nested, "invoke", answer(text), at("n"))
            old = call.history(talk, at("t"))
            assert call(saver, "sweep") > 0
            assert spread(raw, "t") == {"": keep}
            assert spread(raw, "n") == ({"": keep, "inner:": keep} if keep == 3 else {"": keep})
            assert [state[:4] for state in call.history(talk, at("t"))] == [state[:4] for state in old[:keep]]
            log.clear()
            oldest = call(talk, "get_state_history", at("t"))[-1]
            call(talk, "invoke", None, oldest.config)
            assert log == ["answer", "count"][3 - keep :]
            assert call.values(talk, at("t")) == old[0][0]

    def test_runs_are_deleted_alone(self, saver: MemSaver, call: Caller, raw: Any) -> None:
        """Of all threads and namespaces, and what other runs left is as it was, and goes on."""
        graph, nested = build_talk(saver), build_nested(saver, own=True)
        for run in ("r1", "r2", "r3"):
            for name in "ab":
                call(graph, "invoke", say(run, text=LONG), of_run(name, run))
            call(nested, "invoke", {"found": []}, of_run("n", run))
            call(nested, "invoke", answer(run), of_run("n", run))
        before = [call.history(graph, at(name))[0] for name in "ab"], call.values(nested, at("n"))
        call(saver, "delete_for_runs", ["r1", "r2"])
        assert [spread(raw, name) for name in "abn"] == [{"": 4}, {"": 4}, {"": 4, "inner": 4}]
        assert ([call.history(graph, at(name))[0] for name in "ab"], call.values(nested, at("n"))) == before
        call(saver, "delete_for_runs", ["r3", "unknown"])
        assert [spread(raw, name) for name in "abn"] == [{}, {}, {}]

    def test_a_copy_has_all_of_a_thread(self, saver: MemSaver, call: Caller, raw: Any) -> None:
        """Its history, its namespaces, what waits in it; and what is done to either stays there."""
        graph = build_nested(saver, own=True)
        call(graph, "invoke", {"found": []}, at("a"))
        call(graph, "invoke", answer("one"), at("a"))
        call(graph, "invoke", {"found": []}, at("a"))
        call(saver, "copy_thread", "a", "b")
        assert spread(raw, "b") == spread(raw, "a")
        assert call.history(graph, at("b")) == call.history(graph, at("a"))
        assert call(graph, "get_state", at("b"), subgraphs=True).tasks[0].state.next == ("ask",)
        for name in "ab":
            assert call(graph, "invoke", answer(name), at(name))["found"][-1] == name
        call(saver, "delete_thread", "a")
        assert call.values(graph, at("b"))["found"][-1] == "b"
