"""Graphs of LangGraph's on a saver: they behave as on LangGraph's saver in memory, and can be taken up again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from memstore import MemSaver
from tests.graphs import (
    DURABILITIES,
    LONG,
    Caller,
    SiteDown,
    answer,
    at,
    build_fan,
    build_nested,
    build_notes,
    build_talk,
    build_work,
    note,
    say,
)
from tests.support import Place

Script: TypeAlias = Callable[[Any], Any]
"""Runs graphs on a saver, and gives what came of it."""


class OnSaver:
    """A saver on the test's database, called sync and async."""

    @pytest.fixture(params=["sync", "async"])
    def call(self, request: pytest.FixtureRequest, runner: asyncio.Runner) -> Caller:
        """Call sync or async methods."""
        return Caller(None if request.param == "sync" else runner)

    @pytest.fixture
    def saver(self, location: Place) -> Iterator[MemSaver]:
        """Open a saver."""
        saver = MemSaver.open(location.location, **location.options)
        yield saver
        saver.close()


class GraphsConformance(OnSaver):
    """What graphs do with their threads."""

    @pytest.fixture
    def both(self, saver: MemSaver) -> Callable[[Script], Any]:
        """Run a script on the saver and on LangGraph's own in memory, and give what came of it on both."""

        def run(script: Script) -> Any:
            given = script(saver)
            assert given == script(InMemorySaver())
            return given

        return run

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_threads_go_on_by_themselves(self, both: Callable[[Script], Any], call: Caller, durability: str) -> None:
        """Two threads taken turn by turn: each remembers its own, in every durability."""

        def script(saver: Any) -> Any:
            graph = build_talk(saver)
            for text in ("one", "two", "three"):
                call(graph, "invoke", say(text, text=LONG), at("a"), durability=durability)
                call(graph, "invoke", say(text * 2), at("b"), durability=durability)
            return [call.history(graph, at(name)) for name in "ab"]

        first, second = both(script)
        assert len(first) == (3 if durability == "exit" else 12)
        assert [message.content for message in first[0][0]["messages"]] == [
            "one",
            "ONE",
            "two",
            "TWO",
            "three",
            "THREE",
        ]
        assert (first[0][0]["text"], first[0][0]["turns"]) == (LONG, 3)
        assert second[0][0]["messages"][-1].content == "THREETHREE"

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_an_interrupted_run_resumes(self, both: Callable[[Script], Any], call: Caller, durability: str) -> None:
        """The question is there to be read, the answer goes on from it, and no node before it runs again."""

        def script(saver: Any) -> Any:
            log: list[str] = []
            graph = build_work(saver, log.append)
            call(graph, "invoke", {"found": []}, at("t"), durability=durability)
            state = call(graph, "get_state", at("t"))
            asked = [each.value for each in state.interrupts], state.next
            log_before = sorted(log[:2]), log[2:]
            log.clear()
            ended = call(graph, "invoke", answer("yes"), at("t"), durability=durability)
            return asked, log_before, log, ended, call.history(graph, at("t"))

        asked, before, after, ended, _ = both(script)
        assert asked == ([{"found": ["shaky", "steady"]}], ("ask",))
        assert before == (["shaky", "steady"], ["ask"])
        assert after == ["ask", "close"]
        assert ended["found"][2:] == ["yes"]

    def test_a_failed_node_runs_again_and_its_sibling_does_not(
        self, both: Callable[[Script], Any], call: Caller
    ) -> None:
        """What the node beside the one that failed had found is kept, and used when the run goes on."""

        def script(saver: Any) -> Any:
            log: list[str] = []
            graph = build_work(saver, log.append, works=False)
            with pytest.raises(SiteDown):
                call(graph, "invoke", {"found": []}, at("t"))
            failed = call.history(graph, at("t"))[0]
            log.clear()
            call(build_work(saver, log.append), "invoke", None, at("t"))
            return failed, log, call.history(graph, at("t"))

        (_, following, _, tasks, _), log, _ = both(script)
        assert following == ("steady", "shaky")
        assert [(task[0], task[2], task[4]) for task in tasks] == [
            ("steady", "", {"found": ["steady"]}),
            ("shaky", "SiteDown()", None),
        ]
        assert log == ["shaky", "ask"]

    def test_a_run_is_replayed_from_a_checkpoint(self, both: Callable[[Script], Any], call: Caller) -> None:
        """From the middle of a history: only the nodes after it run, and the newest state is theirs."""

        def script(saver: Any) -> Any:
            log: list[str] = []
            graph = build_talk(saver, log.append)
            for text in ("one", "two"):
                call(graph, "invoke", say(text), at("t"))
            history = call(graph, "get_state_history", at("t"))
            past = next(state for state in history if state.next == ("count",) and len(state.values["messages"]) == 2)
            log.clear()
            call(graph, "invoke", None, past.config)
            return log, call.history(graph, at("t")), call.history(graph, past.config)

        log, history, _ = both(script)
        assert log == ["count"]
        assert (len(history), history[0][0]["turns"], len(history[0][0]["messages"])) == (10, 1, 2)

    def test_a_thread_is_forked_by_an_update(self, both: Callable[[Script], Any], call: Caller) -> None:
        """A checkpoint of the past with other values goes on by itself, and what came after it stays in the history."""

        def script(saver: Any) -> Any:
            graph = build_talk(saver)
            for text in ("one", "two"):
                call(graph, "invoke", say(text), at("t"))
            past = call(graph, "get_state_history", at("t"))[3]
            fork = call(graph, "update_state", past.config, say("other", turns=7), as_node="__start__")
            forked = call(graph, "invoke", None, fork)
            call(graph, "update_state", at("t"), {"text": LONG})
            return forked, call.values(graph, at("t")), call.history(graph, at("t"))

        forked, values, history = both(script)
        assert [message.content for message in forked["messages"]] == ["one", "ONE", "other", "OTHER"]
        assert (values["turns"], values["text"]) == (8, LONG)
        assert len(history) == 12
        assert any(HumanMessage("two", id="htwo") in state[0].get("messages", []) for state in history)

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_sent_tasks_resume_one_by_one(self, both: Callable[[Script], Any], call: Caller, durability: str) -> None:
        """Of five tasks one asks: the others' results are kept, in the order in which they were sent."""

        def script(saver: Any) -> Any:
            log: list[str] = []
            graph = build_fan(saver, log.append)
            call(graph, "invoke", {"answer": "a b ask c d"}, at("t"), durability=durability)
            before = sorted(log)
            log.clear()
            ended = call(graph, "invoke", answer("x"), at("t"), durability=durability)
            return before, log, ended, call.history(graph, at("t"))

        before, after, ended, _ = both(script)
        assert before == ["a", "ask", "b", "c", "d", "split"]
        assert after == ["ask"]
        assert ended["found"] == ["a", "b", "x", "c", "d"]

    @pytest.mark.parametrize("own", [None, True], ids=["of each call", "of its own"])
    def test_a_subgraph_resumes(self, both: Callable[[Script], Any], call: Caller, own: Any) -> None:
        """Its state stands in a namespace; one with a memory of its own still has it in the next call."""

        def script(saver: Any) -> Any:
            log: list[str] = []
            graph = build_nested(saver, log.append, own=own)
            given = []
            for text in ("yes", "no"):
                call(graph, "invoke", {"found": []}, at("t"))
                state = call(graph, "get_state", at("t"), subgraphs=True)
                given += [[each.value for each in state.interrupts], state.tasks[0].state.values]
                call(graph, "invoke", answer(text), at("t"))
            inner = [each for each in call(saver, "list", at("t")) if each.config["configurable"]["checkpoint_ns"]]
            past = call(graph, "get_state_history", at("t"))[1]
            call(graph, "invoke", None, past.config)
            names = {each.config["configurable"]["checkpoint_ns"].split(":")[0] for each in inner}
            return given, log, len(inner), names, call.history(graph, at("t"))

        given, log, inner, names, _ = both(script)
        assert given[0] == given[2] == ["more?"]
        assert (given[3]["found"].count("yes") > 1) == (own is True)
        assert log == ["look", "ask", "ask", "close"] * 2 + ["close"]
        assert (inner, names) == (8, {"inner"})

    def test_a_subgraph_is_replayed_at_its_time(self, both: Callable[[Script], Any], call: Caller) -> None:
        """Going back to where a graph called a subgraph with a memory of its own, that remembers no later call."""

        def script(saver: Any) -> Any:
            log: list[str] = []
            graph = build_nested(saver, log.append, own=True)
            for text in ("one", "two", "three"):
                call(graph, "invoke", {"found": []}, at("t"))
                call(graph, "invoke", answer(text), at("t"))
            history = call(graph, "get_state_history", at("t"))
            second = [state for state in history if state.next == ("inner",)][1]
            call(graph, "invoke", None, second.config)
            return call(graph, "get_state", at("t"), subgraphs=True).tasks[0].state.values

        assert "three" not in both(script)["found"]

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_delta_channels_are_rebuilt(self, both: Callable[[Script], Any], call: Caller, durability: str) -> None:
        """Two with snapshots at steps of their own, with parallel writers and a fork: every state of the history."""

        def script(saver: Any) -> Any:
            graph = build_notes(saver)
            for number in range(7):
                call(graph, "invoke", note(number), at("t"), durability=durability)
            past = call(graph, "get_state_history", at("t"))[3]
            fork = call(graph, "update_state", past.config, {"notes": ["forked"], "marks": ["forked"]}, as_node="count")
            for number in range(3):
                call(graph, "invoke", note(number), fork if number == 0 else at("t"), durability=durability)
            return call.history(graph, at("t"))

        history = both(script)
        assert history[0][0]["notes"].count("forked") == 1
        assert history[0][0]["marks"].count("forked") == 1

    def test_a_deleted_thread_begins_anew(self, both: Callable[[Script], Any], call: Caller) -> None:
        """Nothing of it is left, and the one beside it is untouched."""

        def script(saver: Any) -> Any:
            graph = build_notes(saver)
            for name in "ab":
                for number in range(3):
                    call(graph, "invoke", note(number), at(name))
            call(saver, "delete_thread", "a")
            gone = call.history(graph, at("a")), call.values(graph, at("a"))
            call(graph, "invoke", note(0), at("a"))
            return gone, call.history(graph, at("a")), call.history(graph, at("b"))

        gone, anew, other = both(script)
        assert gone == ([], {})
        assert anew[0][0]["notes"] == ["in 0", "left 0", "right 0"]
        assert len(other[0][0]["notes"]) == 9
