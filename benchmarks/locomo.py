"""How well memstore finds the turns of long conversations that answer a question.

Run `python benchmarks/locomo.py PATH`, PATH being a JSON file of LoCoMo's conversations as benchmarks/README.md says.
Recall@10 of a question is the share of its evidence among the first ten turns given; its mean over questions is
printed. With `--postgres` a PostgreSQL server is asked the same, and the questions are counted to which it gives the
same turns in the same order with the same scores.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from langgraph.store.base import PutOp

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import to_progress, to_table
from memstore import MemStore

_MODEL: Final = "all-MiniLM-L6-v2"
_LIMIT: Final = 10
_BATCH: Final = 64
"""Turns in one put, so that the progress bar moves."""
_CATEGORIES: Final = {1: "several turns", 2: "time", 3: "world knowledge", 4: "one turn", 5: "without an answer"}
_COUNTED: Final = (1, 2, 3, 4)
"""Categories of the figure that is compared; those of category 5 cannot be answered."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question about one conversation, and the turns that answer it."""

    conversation: str
    text: str
    category: int
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a question."""

    category: int
    recall: float
    seconds: float
    ranking: tuple[tuple[str, float], ...]
    """The turns given, and their scores."""


def to_turns(conversations: Sequence[dict[str, Any]]) -> list[PutOp]:
    """Make one item of every turn."""
    return [
        PutOp((conversation["conversation"],), turn["id"], {"text": turn["text"]})
        for conversation in conversations
        for turn in conversation["turns"]
    ]


def to_questions(conversations: Sequence[dict[str, Any]]) -> list[Question]:
    """Take the questions that name their evidence."""
    return [
        Question(conversation["conversation"], asked["question"], asked["category"], frozenset(asked["evidence"]))
        for conversation in conversations
        for asked in conversation["questions"]
        if asked["evidence"]
    ]


def ask(store: MemStore, question: Question) -> Outcome:
    """Search for the turns that answer a question."""
    start = time.perf_counter()
    found = store.search((question.conversation,), query=question.text, limit=_LIMIT)
    seconds = time.perf_counter() - start
    right = question.evidence.intersection(item.key for item in found)
    ranking = tuple((item.key, round(item.score or 0.0, 6)) for item in found)
    return Outcome(question.category, len(right) / len(question.evidence), seconds, ranking)


def to_rows(outcomes: Sequence[Outcome]) -> Iterator[list[str]]:
    """Lay out a row for each category and for those that count."""
    groups: dict[str, tuple[int, ...]] = {f"{category}: {name}": (category,) for category, name in _CATEGORIES.items()}
    groups[f"{_COUNTED[0]} to {_COUNTED[-1]}"] = _COUNTED
    for name, categories in groups.items():
        recalls = [outcome.recall for outcome in outcomes if outcome.category in categories]
        if recalls:
            yield [name, str(len(recalls)), f"{sum(recalls) / len(recalls):.4f}"]


def main() -> None:
    """Fill a store with the conversations, ask their questions and print recall and times."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", type=Path, metavar="PATH", help="the conversations, as JSON")
    parser.add_argument("--mode", default="hybrid", help="how memstore ranks (default %(default)s)")
    parser.add_argument("--postgres", action="store_true", help="ask a PostgreSQL server the same")
    given = parser.parse_args()
    conversations = json.loads(given.path.read_text(encoding="utf-8"))
    turns, questions = to_turns(conversations), to_questions(conversations)
    index = {"embed": _MODEL, "fields": ["text"], "mode": given.mode}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="memstore-locomo-"))
        stores = {"SQLite": MemStore.open(Path(folder) / "locomo.db", index=index)}
        if given.postgres:
            from benchmarks.server import run_server  # noqa: PLC0415  it needs a driver and a server to start

            stores["Postgres"] = MemStore.open(stack.enter_context(run_server()), index=index)
        outcomes = {name: answer(stack.enter_context(store), name, turns, questions) for name, store in stores.items()}
    print(f"{len(conversations)} conversations, {len(turns):,} turns, {len(questions):,} questions with evidence")
    print(f"embed {_MODEL}, mode {given.mode}")
    for name, given_outcomes in outcomes.items():
        print(f"\n{name}\n")
        print(to_table(["category", "questions", f"recall@{_LIMIT}"], list(to_rows(given_outcomes))))
        print(f"\n{_to_times([outcome.seconds for outcome in given_outcomes])}")
    if given.postgres:
        pairs = [(one.ranking, other.ranking) for one, other in zip(*outcomes.values(), strict=True)]
        turned = sum([turn for turn, _ in one] == [turn for turn, _ in other] for one, other in pairs)
        same = sum(one == other for one, other in pairs)
        print(f"\nThe same first {_LIMIT}: {turned:,} of {len(pairs):,} questions; scores included: {same:,}")


def answer(store: MemStore, name: str, turns: Sequence[PutOp], questions: Sequence[Question]) -> list[Outcome]:
    """Fill a store, and ask it every question."""
    with to_progress() as progress:
        batches = [turns[at : at + _BATCH] for at in range(0, len(turns), _BATCH)]
        for batch in progress.track(batches, description=f"{name}: turns put, in batches"):
            store.batch(batch)
            progress.refresh()
        outcomes = []
        for question in progress.track(questions, description=f"{name}: questions asked"):
            outcomes.append(ask(store, question))
            progress.refresh()
    return outcomes


def _to_times(seconds: Iterable[float]) -> str:
    ordered = sorted(seconds)
    p50, p95 = (1e3 * ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.95))
    return f"A search with its query's embedding took {p50:.1f} ms (p50), {p95:.1f} ms (p95)"


if __name__ == "__main__":
    main()
