"""Calls of memstore on a file with a real model, and whose time they take: a clock around the model tells."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from langchain_core.embeddings import Embeddings
from langgraph.store.base import PutOp
from rich.progress import Progress

from benchmarks.corpus import DIMS
from benchmarks.measure import spell, to_percentiles
from benchmarks.peers import MEMSTORE, MODES, Setup, open_own
from benchmarks.scale_figures import Figure
from benchmarks.texts import Lines
from benchmarks.workload import to_namespace
from memstore import MemStore
from memstore.evaluation import load_cases, load_memories
from memstore.models import MINILM, LocalModel

SPLIT_HEAD: Final = [
    "measure", "n", "p50 ms", "p95 ms", "a second", "model, p50 ms", "memstore, p50 ms", "model's share",
    "memstore's share", "wanted",
]  # fmt: skip
BATCH: Final = 100
"""Texts in one batch, all of one user."""
_LIMIT: Final = 10
_UNTIMED: Final = 2
_WANTED: Final = 0.1
"""Memstore's share of a batch of puts and of a user search at most."""
_DATA: Final = Path(__file__).resolve().parents[1] / "notebooks" / "data"


class Clocked(Embeddings):
    """A model, and the seconds spent in it."""

    def __init__(self) -> None:
        self.model = MINILM
        self.seconds = 0.0
        self._local = LocalModel(MINILM)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts."""
        start = time.perf_counter()
        vectors = self._local.embed_documents(texts)
        self.seconds += time.perf_counter() - start
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Embed a query."""
        start = time.perf_counter()
        vector = self._local.embed_query(text)
        self.seconds += time.perf_counter() - start
        return vector


@dataclass(slots=True)
class Split:
    """Seconds of one measure: of each call, and of the model's part of it."""

    judged: bool
    """Whether memstore's share of it is wanted to be small."""
    ops: int
    """Puts or searches in one call."""
    whole: list[float] = field(default_factory=list)
    model: list[float] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The part of the time that is memstore's."""
        return 1 - sum(self.model) / sum(self.whole)


class Splits:
    """All measures.

    Args:
        clock: The model.
    """

    def __init__(self, clock: Clocked) -> None:
        self.taken: dict[str, Split] = {}
        self._clock = clock

    def timed(self, measure: str, call: Callable[[], object], *, judged: bool = True, ops: int = 1) -> None:
        """Time one call."""
        before, start = self._clock.seconds, time.perf_counter()
        call()
        split = self.taken.setdefault(measure, Split(judged, ops))
        split.whole.append(time.perf_counter() - start)
        split.model.append(self._clock.seconds - before)

    def rows(self) -> Iterator[list[str]]:
        """Lay out a row for each measure."""
        for measure, split in self.taken.items():
            own = [whole - model for whole, model in zip(split.whole, split.model, strict=True)]
            middles = [to_percentiles(part)[0] for part in (split.model, own)]
            times = [f"{1e3 * seconds:.3f}" for seconds in (*to_percentiles(split.whole), *middles)]
            rate = spell(split.ops * len(split.whole) / sum(split.whole))
            shares = [f"{100 * share:.1f} %" for share in (1 - split.share, split.share)]
            wanted = f"< {100 * _WANTED:.0f} %" if split.judged else ""
            yield [measure, str(len(own)), *times[:2], rate, *times[2:], *shares, wanted]

    def figures(self, items: int) -> Iterator[Figure]:
        """Give the numbers of all measures."""
        for measure, split in self.taken.items():
            p50, p95 = to_percentiles(split.whole)
            numbers = {
                "p50 ms": 1e3 * p50,
                "p95 ms": 1e3 * p95,
                "a second": split.ops * len(split.whole) / sum(split.whole),
                "model p50 ms": 1e3 * to_percentiles(split.model)[0],
                "memstore's share": split.share,
            }
            for part, value in numbers.items():
                yield Figure(items, measure, MEMSTORE, part, value, len(split.whole))


class Source:
    """Texts and queries, each given once: those there are, then the same with a number, which makes them others.

    Args:
        lines: What there is.
    """

    def __init__(self, lines: Lines) -> None:
        self._texts = _numbered(lines.memories)
        self._queries = _numbered(lines.queries)

    def take(self, count: int) -> list[dict[str, Any]]:
        """Give values to put."""
        return [{"text": next(self._texts)} for _ in range(count)]

    def ask(self) -> str:
        """Give a query."""
        return next(self._queries)


def read_examples() -> Lines:
    """Read the memories and questions of the notebooks."""
    memories = [str(op.value["text"]) for op in load_memories(_DATA / "memories.jsonl") if op.value]
    return Lines(memories, [case.query for case in load_cases(_DATA / "questions.jsonl")])


def measure_calls(
    folder: Path, source: Source, progress: Progress, *, batches: int, repeats: int, own: dict[str, Any]
) -> Splits:
    """Put batches of users' memories into a file, and single ones; search users' memories, also awaited."""
    clock = Clocked()
    splits = Splits(clock)
    with open_own(folder / "calls.db", Setup(clock, DIMS, own), MODES[-1]) as store, asyncio.Runner() as runner:
        calls: dict[str, tuple[int, Callable[[int], None]]] = {
            f"batch of {BATCH} puts": (batches, lambda turn: _put_batch(splits, store, source, turn)),
            "one put": (repeats, lambda turn: _put(splits, store, source, turn % batches)),
            "user searches": (repeats, lambda turn: _search(splits, store, source, turn % batches, runner)),
        }
        for user in range(_UNTIMED):
            store.batch(_to_ops(source, batches + user))
            store.search(to_namespace(batches + user), query=source.ask())
        for measure, (count, call) in calls.items():
            task = progress.add_task(measure, total=count)
            for turn in range(count):
                call(turn)
                progress.update(task, completed=turn + 1, refresh=True)
    return splits


def _put_batch(splits: Splits, store: MemStore, source: Source, user: int) -> None:
    ops = _to_ops(source, user)
    splits.timed(f"batch of {BATCH} puts", lambda: store.batch(ops), ops=BATCH)


def _put(splits: Splits, store: MemStore, source: Source, user: int) -> None:
    (op,) = _to_ops(source, user, 1)
    splits.timed("one put", lambda: store.batch([op]), judged=False)


def _search(splits: Splits, store: MemStore, source: Source, user: int, runner: asyncio.Runner) -> None:
    scope = to_namespace(user)
    for mode in MODES:
        queries = [source.ask(), source.ask()]
        splits.timed(
            f"user search, {mode}",
            lambda: store.search(scope, query=queries[0], mode=mode, limit=_LIMIT),  # noqa: B023  called at once
        )
        splits.timed(
            f"user search, {mode}, awaited",
            lambda: runner.run(store.asearch(scope, query=queries[1], mode=mode, limit=_LIMIT)),  # noqa: B023
        )


def _to_ops(source: Source, user: int, count: int = BATCH) -> list[PutOp]:
    return [PutOp(to_namespace(user), str(uuid.uuid4()), value) for value in source.take(count)]


def _numbered(texts: Sequence[str]) -> Iterator[str]:
    yield from texts
    number = 1
    while True:
        number += 1
        yield from (f"{text} ({number})" for text in texts)
