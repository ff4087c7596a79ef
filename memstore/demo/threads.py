"""Short-term memory: a conversation that fails, waits while its process ends, goes on, and is taken back."""

from __future__ import annotations

import os
from typing import Any, Final

from langchain_core.messages import HumanMessage
from langgraph.types import Command

from memstore import MemStore
from memstore.demo.trip import KEPT, SiteDown, build_trip

_NAME: Final = "ada-trip"
THREAD: Final[Any] = {"configurable": {"thread_id": _NAME}}
_AFTERWARDS: Final = ("When do I leave?", "Is there breakfast?", "Thank you!", "See you.")


async def begin_trip(store: MemStore) -> None:
    """Begin a conversation in which one of two nodes fails, run it on, and leave it waiting for an answer."""
    ran: list[str] = []
    print(f"2. A trip, planned step by step (process {os.getpid()})\n")
    print("   ada: Plan my trip to Lisbon.")
    saver = store.saver()
    await saver.adelete_thread(_NAME)  # what an earlier demonstration left in this database
    graph = build_trip(saver, ran.append, hotel_works=False)
    try:
        await graph.ainvoke({"messages": [HumanMessage("Plan my trip to Lisbon.")]}, THREAD)
    except SiteDown:
        print(f"   ran {' and '.join(sorted(ran))}: the hotel's site is down, the run has failed")
    ran.clear()
    graph = build_trip(saver, ran.append, hotel_works=True)
    await graph.ainvoke(None, THREAD)
    print(f"   ran {' and '.join(ran)} when run again: what the train's node had found was kept")
    (asked,) = (await graph.aget_state(THREAD)).interrupts
    print(f"   agent: {asked.value}")
    print("   The process ends here, before it is answered.\n")


async def end_trip(store: MemStore) -> bool:
    """Answer, look back, take a step back, and shorten the conversation; tell whether all went as it should."""
    ran: list[str] = []
    saver = store.saver()
    graph = build_trip(saver, ran.append, hotel_works=True)
    state = await graph.aget_state(THREAD)
    if not state.next:
        return True  # nobody has begun it in this database
    print(f"\n4. The trip goes on (process {os.getpid()})\n")
    print(f"   it waits for: {', '.join(state.next)}\n   ada: yes")
    booked = await graph.ainvoke(Command(resume="yes"), THREAD)
    print(f"   ran {', '.join(ran)}\n   agent: {booked['messages'][-1].content}\n")
    history = [past async for past in graph.aget_state_history(THREAD)]
    for past in history:
        print(f"   step {past.metadata['step']:>2}  {past.metadata['source']:<5}  next: {', '.join(past.next) or '-'}")
    again = await _go_back(graph, history, ran)
    short = await _shorten(graph)
    (thread,) = await saver.alist_threads(limit=1)
    print(f"   thread {thread.thread_id!r}: {thread.checkpoints} checkpoints in {thread.namespaces} namespaces")
    await saver.aprune([_NAME])
    (thread,) = await saver.alist_threads(limit=1)
    print(f"   pruned to the newest: {thread.checkpoints}")
    return again and short and bool(booked["booked"])


async def _go_back(graph: Any, history: list[Any], ran: list[str]) -> bool:
    """Replay from the checkpoint before the question, and answer otherwise in a fork of it."""
    waiting = next(past for past in history if past.next == ("approve",))
    ran.clear()
    await graph.ainvoke(None, waiting.config)
    replayed = await graph.ainvoke(Command(resume="yes"), THREAD)
    print(f"\n   replayed from step {waiting.metadata['step']}: ran {', '.join(dict.fromkeys(ran))}")
    fork = await graph.aupdate_state(waiting.config, {"found": ["a room with a view"]}, as_node="find_hotel")
    await graph.ainvoke(None, fork)
    forked = await graph.ainvoke(Command(resume="yes"), THREAD)
    print(f"   forked there with another state: {forked['messages'][-1].content}\n")
    return len(replayed["booked"]) < len(forked["booked"])


async def _shorten(graph: Any) -> bool:
    """Go on talking; old messages are summarised and removed."""
    for question in _AFTERWARDS:
        talked = await graph.ainvoke({"messages": [HumanMessage(question)]}, THREAD)
    print(f"   {len(talked['messages'])} messages are kept, those before in a summary: {talked['summary'][:60]} ...\n")
    return len(talked["messages"]) == KEPT
