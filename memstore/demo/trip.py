"""A LangGraph conversation that plans a trip: it fails half-way, waits for a person, and can be taken back.

It needs no language model. What it does is written to a log, so that it can be seen which nodes ran, and how often.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import add
from typing import Annotated, Any, Final, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, RemoveMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

_PATIENCE: Final = 0.3
"""Seconds."""
KEPT: Final = 4
"""Messages that stay when a conversation is shortened."""


class Trip(TypedDict, total=False):
    """The state of the conversation."""

    messages: Annotated[list[AnyMessage], add_messages]
    summary: str
    found: Annotated[list[str], add]
    """What was found for the trip, in no order."""
    booked: list[str]


class Booking(TypedDict, total=False):
    """What the subgraph that books knows of it."""

    booked: list[str]


class SiteDown(Exception):
    """The hotel's site is down."""


def build_trip(checkpointer: BaseCheckpointSaver[Any], log: Callable[[str], None], *, hotel_works: bool) -> Any:
    """Compile the graph.

    Args:
        checkpointer: Where its threads are kept.
        log: Is told of every node that runs.
        hotel_works: Whether the node that looks for a hotel succeeds.
    """

    def find_train(state: Trip) -> Trip:  # noqa: ARG001  a node takes the state
        log("find_train")
        return {"found": ["the train at 9:15"]}

    def find_hotel(state: Trip) -> Trip:  # noqa: ARG001
        log("find_hotel")
        if not hotel_works:
            time.sleep(_PATIENCE)  # as a site would; the train is found meanwhile
            raise SiteDown
        return {"found": ["Hotel Avenida"]}

    def approve(state: Trip) -> Trip:
        log("approve")
        answer = interrupt(f"Shall I book {' and '.join(sorted(state['found']))}?")
        return {"booked": sorted(state["found"]) if answer == "yes" else []}

    def report(state: Trip) -> Trip:
        log("report")
        said = f"Booked: {', '.join(state['booked'])}." if state["booked"] else "I booked nothing."
        return {"messages": [AIMessage(said)]}

    def shorten(state: Trip) -> Trip:
        log("shorten")
        old = state["messages"][:-KEPT]
        told = "; ".join(str(message.content) for message in old)
        removed: list[Any] = [RemoveMessage(id=str(message.id)) for message in old]
        return {"summary": f"{state.get('summary', '')} {told}".strip(), "messages": removed}

    graph = StateGraph(Trip)
    for node in (find_train, find_hotel, approve, report, shorten):
        graph.add_node(node.__name__, node)
    graph.add_node("book", _build_booking(log))
    graph.add_conditional_edges(
        START, lambda state: ["shorten"] if state.get("booked") else ["find_train", "find_hotel"]
    )
    graph.add_edge(["find_train", "find_hotel"], "approve")
    graph.add_edge("approve", "book")
    graph.add_edge("book", "report")
    graph.add_edge("report", END)
    graph.add_edge("shorten", END)
    return graph.compile(checkpointer=checkpointer)


def _build_booking(log: Callable[[str], None]) -> Any:
    """Compile the subgraph that books: its own steps are checkpointed in a namespace of the thread."""

    def pay(state: Booking) -> Booking:  # noqa: ARG001
        log("book:pay")
        return {}

    def confirm(state: Booking) -> Booking:  # noqa: ARG001
        log("book:confirm")
        return {}

    graph = StateGraph(Booking)
    graph.add_node("pay", pay)
    graph.add_node("confirm", confirm)
    graph.add_edge(START, "pay")
    graph.add_edge("pay", "confirm")
    graph.add_edge("confirm", END)
    return graph.compile()
