"""Graphs for tests of savers, one way to call what is sync and async, and what of a thread is compared."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from operator import add
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt

from tests.children import DEADLINE

DURABILITIES = ("sync", "async", "exit")
LONG = "a text that stays " * 100
"""1,800 characters."""


class Caller:
    """Calls methods of graphs and savers: sync ones, or their async twins on an event loop of the test's."""

    def __init__(self, runner: asyncio.Runner | None) -> None:
        self.runner = runner

    def __call__(self, owner: Any, method: str, *args: Any, **options: Any) -> Any:
        """Call a method; what iterates is read to its end."""
        if self.runner is None:
            given = getattr(owner, method)(*args, **options)
            return list(given) if isinstance(given, Iterator) else given
        return self.runner.run(self._await(getattr(owner, "a" + method)(*args, **options)))

    async def _await(self, given: Any) -> Any:
        return [each async for each in given] if isinstance(given, AsyncIterator) else await given

    def values(self, graph: Any, config: Any) -> Any:
        """Give the values of a thread."""
        return self(graph, "get_state", config).values

    def history(self, graph: Any, config: Any) -> list[Any]:
        """Give what tells the checkpoints of a thread apart, the newest first, but for their ids."""
        return [to_plain(state) for state in self(graph, "get_state_history", config)]


def at(thread_id: str, **configurable: Any) -> Any:
    """Name a thread."""
    return {"configurable": {"thread_id": thread_id, **configurable}}


def of_run(thread_id: str, run_id: str) -> Any:
    """Name a thread, and the run that goes on with it."""
    return {**at(thread_id), "metadata": {"run_id": run_id}}


def to_plain(state: Any) -> Any:
    """Give what of a state does not change from saver to saver."""
    tasks = [
        (task.name, task.path, str(task.error or ""), [each.value for each in task.interrupts], task.result)
        for task in state.tasks
    ]
    meta = {key: value for key, value in (state.metadata or {}).items() if key in ("step", "source", "run_id")}
    return state.values, state.next, meta, tasks, state.parent_config is None


# runs -----------------------------------------------------------------------------------------------------------------


class Talk(TypedDict, total=False):
    """A conversation."""

    messages: Annotated[list[AnyMessage], add_messages]
    turns: int
    profile: dict[str, Any]
    text: str


def build_talk(saver: Any, log: Callable[[str], object] = str) -> Any:
    """Compile a conversation of two nodes: one answers, one counts."""

    def answer(state: Talk) -> Talk:
        log("answer")
        said = str(state["messages"][-1].content)
        return {"messages": [AIMessage(said.upper(), id=f"a{len(state['messages'])}")]}

    def count(state: Talk) -> Talk:
        log("count")
        return {"turns": state.get("turns", 0) + 1, "profile": {"last": state["messages"][-1].content, "true": True}}

    graph = StateGraph(Talk)
    graph.add_node("answer", answer)
    graph.add_node("count", count)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", "count")
    graph.add_edge("count", END)
    return graph.compile(checkpointer=saver)


def say(text: str, /, **more: Any) -> Any:
    """Make the input of a turn."""
    return {"messages": [HumanMessage(text, id=f"h{text}")], **more}


class Work(TypedDict, total=False):
    """What several nodes find at once."""

    found: Annotated[list[str], add]
    answer: str


class SiteDown(Exception):
    """What a node fails with."""


def fail_after(saver: Any, config: RunnableConfig, written: Any) -> None:
    """Fail once the saver holds what the node beside this one wrote."""
    ends = time.monotonic() + DEADLINE
    thread = at(config["configurable"]["thread_id"])
    while (found := saver.get_tuple(thread)) is None or all(value != written for *_, value in found.pending_writes):
        assert time.monotonic() < ends
        time.sleep(0.005)
    raise SiteDown


def build_work(saver: Any, log: Callable[[str], object], *, works: bool = True) -> Any:
    """Compile two nodes side by side, of which one may fail, then one that asks."""

    def steady(state: Work) -> Work:  # noqa: ARG001
        log("steady")
        return {"found": ["steady"]}

    def shaky(state: Work, config: RunnableConfig) -> Work:  # noqa: ARG001
        log("shaky")
        if not works:
            fail_after(saver, config, ["steady"])
        return {"found": ["shaky"]}

    def ask(state: Work) -> Work:
        log("ask")
        return {"answer": interrupt({"found": sorted(state["found"])})}

    def close(state: Work) -> Work:
        log("close")
        return {"found": [state["answer"]]}

    graph: Any = StateGraph(Work)
    for name, node in {"steady": steady, "shaky": shaky, "ask": ask, "close": close}.items():
        graph.add_node(name, node)
    graph.add_edge(START, "steady")
    graph.add_edge(START, "shaky")
    graph.add_edge("steady", "ask")
    graph.add_edge("shaky", "ask")
    graph.add_edge("ask", "close")
    graph.add_edge("close", END)
    return graph.compile(checkpointer=saver)


def build_fan(saver: Any, log: Callable[[str], object]) -> Any:
    """Compile a node that sends work to as many tasks as there are words; one of them asks."""

    def split(state: Work) -> Work:  # noqa: ARG001
        log("split")
        return {}

    def to_tasks(state: Work) -> list[Send]:
        return [Send("one", {"answer": word}) for word in state["answer"].split()]

    def one(state: Work) -> Work:
        log(state["answer"])
        word = interrupt("which?") if state["answer"] == "ask" else state["answer"]
        return {"found": [word]}

    graph = StateGraph(Work)
    graph.add_node("split", split)
    graph.add_node("one", one)
    graph.add_edge(START, "split")
    graph.add_conditional_edges("split", to_tasks, ["one"])
    graph.add_edge("one", END)
    return graph.compile(checkpointer=saver)


def build_nested(saver: Any, log: Callable[[str], object] = str, *, own: bool | None = None) -> Any:
    """Compile a graph with a subgraph that asks.

    Args:
        saver: The checkpointer.
        log: Is told of every node that runs.
        own: The subgraph's: True for a memory of its own, None for one of each call.
    """

    def look(state: Work) -> Work:
        log("look")
        return {"found": [f"look {len(state.get('found', []))}"]}

    def ask(state: Work) -> Work:  # noqa: ARG001
        log("ask")
        return {"found": [interrupt("more?")]}

    inner = StateGraph(Work)
    inner.add_node("look", look)
    inner.add_node("ask", ask)
    inner.add_edge(START, "look")
    inner.add_edge("look", "ask")
    outer = StateGraph(Work)

    def close(state: Work) -> Work:  # noqa: ARG001
        log("close")
        return {"answer": "closed"}

    outer.add_node("inner", inner.compile(checkpointer=own))
    outer.add_node("close", close)
    outer.add_edge(START, "inner")
    outer.add_edge("inner", "close")
    return outer.compile(checkpointer=saver)


class Anything(TypedDict, total=False):
    """Any value, which stays as it is, and one that changes."""

    value: Any
    rounds: int


def build_anything(saver: Any) -> Any:
    """Compile a graph that only counts its rounds."""

    def count(state: Anything) -> Anything:
        return {"rounds": state.get("rounds", 0) + 1}

    graph = StateGraph(Anything)
    graph.add_node("count", count)
    graph.add_edge(START, "count")
    return graph.compile(checkpointer=saver)


# delta channels -------------------------------------------------------------------------------------------------------


def extend(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    """Append what was written."""
    return [*state, *(each for write in writes for each in write)]


class Notes(TypedDict, total=False):
    """Two delta channels whose values are stored at steps of their own, beside plain ones."""

    notes: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=4)]
    marks: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=3)]
    rounds: int
    text: str


class PlainNotes(TypedDict, total=False):
    """The same without delta channels."""

    notes: Annotated[list[str], add]
    marks: Annotated[list[str], add]
    rounds: int
    text: str


def build_notes(
    saver: Any, *, asks: bool = False, works: bool = True, log: Callable[[str], object] = str, state: Any = Notes
) -> Any:
    """Compile two nodes that write one delta channel side by side, then one that counts, marks every other round."""

    def left(state: Any) -> Any:
        log("left")
        return {"notes": [f"left {state.get('rounds', 0)}"]}

    def right(state: Any, config: RunnableConfig) -> Any:
        log("right")
        if not works:
            fail_after(saver, config, [f"left {state.get('rounds', 0)}"])
        return {"notes": [f"right {state.get('rounds', 0)}"]}

    def count(state: Any) -> Any:
        log("count")
        rounds = state.get("rounds", 0)
        if asks:
            return {"rounds": rounds + 1, "marks": [interrupt("mark?")]}
        return {"rounds": rounds + 1, "marks": [f"mark {rounds}"]} if rounds % 2 == 0 else {"rounds": rounds + 1}

    graph: Any = StateGraph(state)
    for name, node in {"left": left, "right": right, "count": count}.items():
        graph.add_node(name, node)
    graph.add_edge(START, "left")
    graph.add_edge(START, "right")
    graph.add_edge("left", "count")
    graph.add_edge("right", "count")
    graph.add_edge("count", END)
    return graph.compile(checkpointer=saver)


def expected_notes(rounds: int) -> Any:
    """Give the values of so many rounds, each begun with `note`."""
    notes, marks = list[str](), list[str]()
    for number in range(rounds):
        notes += [f"in {number}", f"left {number}", f"right {number}"]
        marks += [f"mark {number}"] if number % 2 == 0 else []
    return {"notes": notes, "marks": marks, "rounds": rounds, "text": LONG}


def note(number: int) -> Any:
    """Make the input of a round."""
    return {"notes": [f"in {number}"], "text": LONG}


def answer(text: str) -> Any:
    """Answer what a graph asks."""
    return Command(resume=text)
