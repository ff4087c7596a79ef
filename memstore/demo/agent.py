"""A small LangGraph agent whose long-term memory is a store, and whose threads are kept beside it.

What a user tells it is kept below that user's namespace; before it answers it recalls what the question means. With no
language model it answers with what it recalled, so that the memory itself can be seen at work.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore, SearchItem

from memstore import MemStore

RECALLED = 3
"""Memories an answer is made from."""


@dataclass
class User:
    """The context of a run: whose conversation it is."""

    user_id: str


class Turn(TypedDict, total=False):
    """One turn of a conversation."""

    message: str
    memories: list[dict[str, Any]]
    """What was recalled: text and score, best first."""
    reply: str


def build_agent(store: MemStore, model: Any = None) -> Any:
    """Compile the graph.

    Args:
        store: Where memories are kept, and threads.
        model: A LangChain chat model that words the answers; None answers with the memories themselves.
    """

    async def remember(state: Turn, runtime: Runtime[User]) -> Turn:
        namespace = ("memories", runtime.context.user_id)
        await _store(runtime).aput(namespace, str(uuid.uuid4()), {"text": state["message"], "kind": "fact"})
        return {"memories": [], "reply": "I will remember that."}

    async def recall(state: Turn, runtime: Runtime[User]) -> Turn:
        namespace = ("memories", runtime.context.user_id)
        found = await _store(runtime).asearch(namespace, query=state["message"], limit=RECALLED)
        return {"memories": [_shown(item) for item in found]}

    async def answer(state: Turn) -> Turn:
        facts = [memory["text"] for memory in state["memories"]]
        if model is None:
            return {"reply": f"You told me: {facts[0]}" if facts else "I know nothing about that yet."}
        told = "\n".join(f"- {fact}" for fact in facts)
        prompt = f"Answer in one sentence from what the user told you before:\n{told}\n\nQuestion: {state['message']}"
        return {"reply": str((await model.ainvoke(prompt)).content)}

    graph = StateGraph(Turn, context_schema=User)
    graph.add_node("remember", remember)
    graph.add_node("recall", recall)
    graph.add_node("answer", answer)
    graph.add_conditional_edges(START, lambda state: "recall" if state["message"].endswith("?") else "remember")
    graph.add_edge("recall", "answer")
    graph.add_edge("remember", END)
    graph.add_edge("answer", END)
    return graph.compile(store=store, checkpointer=store.saver())


def _store(runtime: Runtime[User]) -> BaseStore:
    if runtime.store is None:
        raise ValueError("the graph was compiled without a store")
    return runtime.store


def _shown(item: SearchItem) -> dict[str, Any]:
    return {"text": item.value["text"], "score": item.score}
