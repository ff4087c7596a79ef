"""What each of the processes on one database does, and how they tell each other what was acknowledged.

A writer puts new items, one at a time or in batches, writes one item of its own anew again and again, and deletes items
that it put before. After a call has returned, it appends what was acknowledged to a log that all processes read. A
searcher takes the newest acknowledged writes from the log and only then searches for them: they must be there.
"""

from __future__ import annotations

import os
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Any, Final

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import PutOp, SearchItem

from benchmarks.peers import MODES, Setup, open_own
from benchmarks.workload import Floats, Namespace
from memstore import MemStore

NEW: Final = 0
ANEW: Final = 1
DELETED: Final = 2
_RECORD: Final = struct.Struct("<BBQQ")
_BATCH: Final = 20
_EVERY_BATCH: Final = 10
_EVERY_ANEW: Final = 5
_EVERY_DELETE: Final = 7
_KEPT: Final = 200
"""So many of the newest items are not deleted, because a searcher may be about to look for them."""
_USERS: Final = 500
"""Namespaces of each writer."""
_FIRST: Final = 255
"""The writer of the items that are there at first, which is none of the processes."""
_FILL: Final = 500
_LIMIT: Final = 5
_ROOT: Final = ("memories",)
_SOME: Final = ("cello", "harbour", "peanut", "winter", "ladder", "copper", "meadow", "violin", "ticket", "garden")


@dataclass(frozen=True, slots=True)
class Plan:
    """How the processes run."""

    seconds: float = 60.0
    items: int = 5_000
    """Items at first, so that everything is a wide scope from the start."""
    exact_below: int = 1_000
    dims: int = 128
    writers: int = 2
    searchers: int = 2
    schema: str | None = None
    """Where the tables are in a Postgres database; None for a file."""


@dataclass(frozen=True, slots=True)
class Ack:
    """One acknowledged write."""

    what: int
    writer: int
    number: int
    moment: int
    """When the call had returned, by the monotonic clock, in nanoseconds."""

    @property
    def adds(self) -> int:
        """By how much the write changes the number of items."""
        return {NEW: 1, ANEW: int(self.number == 0), DELETED: -1}[self.what]


@dataclass(frozen=True, slots=True)
class Written:
    """An item as a writer puts it."""

    namespace: Namespace
    key: str
    value: dict[str, Any]

    @property
    def op(self) -> PutOp:
        """Say the same for a batch."""
        return PutOp(self.namespace, self.key, self.value)

    def is_same(self, item: SearchItem) -> bool:
        """Whether a found item is this one, whatever its value has become."""
        return (item.namespace, item.key) == (self.namespace, self.key)


@dataclass(slots=True)
class Tally:
    """What a process did, by kind of call."""

    done: Counter[str] = field(default_factory=Counter)
    """Items put or deleted, or searches made."""
    errors: Counter[str] = field(default_factory=Counter)
    stale: Counter[str] = field(default_factory=Counter)
    """Answers without an acknowledged write."""
    lasting: Counter[str] = field(default_factory=Counter)
    """Those of them that were the same when asked again."""
    messages: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    ages: list[float] = field(default_factory=list)
    """Seconds from when a write was acknowledged to when it was searched for."""

    def add(self, other: Tally) -> None:
        """Take in another process's."""
        for counter in ("done", "errors", "stale", "lasting", "messages"):
            getattr(self, counter).update(getattr(other, counter))
        for what, seconds in other.seconds.items():
            self.seconds[what] += seconds
        self.ages += other.ages

    def attempt(self, what: str, count: int, call: Callable[[], Any]) -> Any:
        """Time a call; count it, or its error. What failed gives None."""
        start = time.perf_counter()
        try:
            result = call()
        except Exception as error:  # noqa: BLE001  whatever it is, it is counted and fails the run
            self.errors[what] += 1
            self.messages[f"{what}: {type(error).__name__}: {error}"] += 1
            return None
        self.seconds[what].append(time.perf_counter() - start)
        self.done[what] += count
        return True if result is None else result


class Words(Embeddings):
    """An embedding that is the same in every process: the sum of random vectors that words have by their spelling."""

    def __init__(self, dims: int) -> None:
        self._dims = dims
        self._known: dict[str, Floats] = {}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts."""
        return [sum(map(self._to_vector, text.split()), np.zeros(self._dims, np.float32)).tolist() for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Embed a query."""
        return self.embed_documents([text])[0]

    def _to_vector(self, word: str) -> Floats:
        if word in _SOME and word in self._known:
            return self._known[word]
        made = np.random.default_rng(list(word.encode())).standard_normal(self._dims, np.float32)
        return self._known.setdefault(word, made) if word in _SOME else made


class Acknowledged:
    """The log that all processes share; appending a few records is one write of the system's.

    Args:
        path: Where it is.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        self._read = 0
        self.newest: dict[tuple[int, int], Ack] = {}
        """The last write that was acknowledged, by kind and writer, as far as the log was read."""

    def tell(self, writes: Iterable[tuple[int, int, int]]) -> None:
        """Append writes that have been acknowledged, each as kind, writer and number."""
        moment = time.monotonic_ns()
        os.write(self._file, b"".join(_RECORD.pack(*written, moment) for written in writes))

    def read(self) -> list[Ack]:
        """Give what was appended since the last reading."""
        size = os.fstat(self._file).st_size // _RECORD.size * _RECORD.size
        read = os.pread(self._file, size - self._read, self._read)
        acks = [Ack(*record) for record in _RECORD.iter_unpack(read[: len(read) // _RECORD.size * _RECORD.size])]
        self._read += len(acks) * _RECORD.size
        self.newest.update(((ack.what, ack.writer), ack) for ack in acks)
        return acks

    def close(self) -> None:
        """Close it."""
        os.close(self._file)


def open_store(location: Path | str, plan: Plan) -> AbstractContextManager[MemStore]:
    """Open the store that all processes share."""
    setup = Setup(Words(plan.dims), plan.dims, {"exact_below": plan.exact_below})
    return open_own(location, setup, MODES[-1], plan.schema)


def fill(location: Path | str, plan: Plan) -> None:
    """Put the items that are there at first."""
    with open_store(location, plan) as store:
        for start in range(0, plan.items, _FILL):
            store.batch([_to_item(_FIRST, number).op for number in range(start, min(plan.items, start + _FILL))])


def write(writer: int, location: Path | str, log: Path, plan: Plan) -> Tally:
    """Write until the time is up."""
    tally, number, anew, deleted = Tally(), 0, 0, 0
    with open_store(location, plan) as store, closing(Acknowledged(log)) as acknowledged:
        until = time.monotonic() + plan.seconds
        for turn in count():
            if time.monotonic() > until:
                return tally
            size = _BATCH if turn % _EVERY_BATCH == 0 else 1
            items = [_to_item(writer, number + more) for more in range(size)]
            if size == 1:
                came = tally.attempt("put", 1, partial(_put, store, items[0]))
            else:
                ops = [item.op for item in items]
                came = tally.attempt(f"batch of {size} puts", size, partial(store.batch, ops))
            if came:
                acknowledged.tell((NEW, writer, number + more) for more in range(size))
            number += size
            if turn % _EVERY_ANEW == 0:
                if tally.attempt("put, replacing an item", 1, partial(_put, store, _to_anew(writer, anew))):
                    acknowledged.tell([(ANEW, writer, anew)])
                anew += 1
            if turn % _EVERY_DELETE == 0 and deleted < number - _KEPT:
                item = _to_item(writer, deleted)
                if tally.attempt("delete", 1, partial(store.delete, item.namespace, item.key)):
                    acknowledged.tell([(DELETED, writer, deleted)])
                deleted += 1
    raise AssertionError


def search(searcher: int, location: Path | str, log: Path, plan: Plan) -> Tally:
    """Search for the newest acknowledged writes until the time is up."""
    tally = Tally()
    kinds = [*product((NEW, ANEW, DELETED), range(plan.writers), MODES, (False, True))]
    with open_store(location, plan) as store, closing(Acknowledged(log)) as acknowledged:
        until = time.monotonic() + plan.seconds
        for turn in count(searcher * len(kinds) // plan.searchers):
            if time.monotonic() > until:
                return tally
            what, writer, mode, wide = kinds[turn % len(kinds)]
            acknowledged.read()
            ack = acknowledged.newest.get((what, writer))
            if ack is not None:
                _look_for(ack, store, tally, mode, wide=wide)
    raise AssertionError


def _put(store: MemStore, item: Written) -> None:
    store.put(item.namespace, item.key, item.value)


def _look_for(ack: Ack, store: MemStore, tally: Tally, mode: str, *, wide: bool) -> None:
    """Search for an acknowledged write, and once more where the answer was without it."""
    item = (_to_anew if ack.what == ANEW else _to_item)(ack.writer, ack.number)
    text = _to_latest(ack.writer) if ack.what == ANEW else item.value["text"]
    what = f"search {'everything' if wide else 'one namespace'}, {mode}"
    scope = item.namespace[:1] if wide else item.namespace
    call = partial(store.search, scope, query=text, limit=_LIMIT, mode=mode)
    tally.ages.append((time.monotonic_ns() - ack.moment) / 1e9)
    found = tally.attempt(what, 1, call)
    if found is not None and not _is_current(ack, item, found):
        tally.stale[what] += 1
        again = tally.attempt(what, 1, call)
        tally.lasting[what] += again is not None and not _is_current(ack, item, again)


def _is_current(ack: Ack, item: Written, found: Sequence[SearchItem]) -> bool:
    """Whether an answer shows an acknowledged write, or a later one of the same item."""
    if ack.what == DELETED:
        return not any(map(item.is_same, found))
    if not found or not item.is_same(found[0]):
        return False
    return ack.what == NEW or found[0].value["number"] >= ack.number


def _to_item(writer: int, number: int) -> Written:
    """Make a new item, of a text that only it has; a namespace has few, so that its scope is narrow."""
    words = " ".join(_SOME[number // 10**place % 10] for place in range(3))
    value = {"text": f"{words} writer{writer}item{number} mark{number}of{writer}", "number": number}
    return Written((*_ROOT, f"writer-{writer}-{number % _USERS}"), f"item-{number}", value)


def _to_anew(writer: int, number: int) -> Written:
    """Make the item that is written anew again and again, by the same key."""
    value = {"text": f"{_to_latest(writer)} number{number}", "number": number}
    return Written((*_ROOT, f"writer-{writer}-0"), "anew", value)


def _to_latest(writer: int) -> str:
    return f"latest{writer} news{writer} heard{writer}"
