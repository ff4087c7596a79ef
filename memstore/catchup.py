"""Keeping a wide index at the clock of the search that uses it.

A search names the clock of its snapshot. Under the shared lock an index of that very clock answers. One that is behind
is first brought up from the search's own snapshot, under the exclusive lock: what was removed since, and items with
larger ids. So an index never holds what was not committed, and there is nothing to take back when a write fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from memstore.dialects import Dialect
from memstore.errors import FIELDS_DAMAGED, DatabaseDamaged
from memstore.index_file import IndexFile
from memstore.indexes import Counts, Ids, Metric, Precision, Vectors
from memstore.indexes.faiss import Coding, FaissIndex
from memstore.indexes.growing import ranges
from memstore.scoring import Query, Ranking, rank_slices
from memstore.slices import Counter, to_counter, to_slice, to_terms, to_vectors
from memstore.stats import IndexState
from memstore.steps import Compute, Flow, Row
from memstore.wide import Texts, WideIndex
from memstore.wide_search import Outrun, Proposal

T = TypeVar("T")
_logger = logging.getLogger("memstore.catchup")
_ROWS_AT_ONCE: Final = 2_048
_SAVED_AFTER: Final = 0.2
"""Share of texts that came or went since the index file was saved, from which on it is saved again."""
_SAVED_LEAST: Final = 1_000
_FIRST: Final = 50
"""Items that are proposed for a query at first; more where these are used up."""
_CODED_AT_ONCE: Final = 20_000
"""Vectors that are coded by the search that finds them: some tenths of a second."""


class SharedLock(Protocol):
    """A lock that many may share, or one may have alone."""

    def shared(self) -> AbstractContextManager[None]:
        """Share it."""
        ...

    def exclusive(self) -> AbstractContextManager[None]:
        """Have it alone."""
        ...


class Beside(Protocol):
    """Runs work beside the calls, one piece at a time, and parts of a call at once."""

    def together(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Make calls on several threads, and give what they return."""
        ...

    @property
    def busy(self) -> bool:
        """Whether something is being done."""
        ...

    def begin(self, work: Callable[[], None]) -> None:
        """Begin a piece of work, unless another is under way."""
        ...

    def end(self) -> None:
        """Wait until what is under way has ended."""
        ...


@dataclass(slots=True)
class _Unsaved:
    """How far the index file is behind."""

    changes: int = 0
    trained: bool = False


class Wide:
    """The wide index of one store.

    Args:
        dialect: The backend's.
        lock: Guards the index; only the backend of a database in one file has one.
        beside: Runs work beside the calls.
        metric: How vectors are compared.
        candidates: Items that are proposed for a query.
        file: Where it is kept between openings; None for nowhere.
        precision: How the numbers of vectors are kept in memory.
        weights: What texts count, by the paths that gave them.
    """

    def __init__(
        self,
        dialect: Dialect,
        lock: SharedLock,
        beside: Beside,
        *,
        metric: Metric,
        candidates: int,
        file: IndexFile | None,
        precision: Precision = "float32",
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self._to_counts = to_counter(weights or {})
        self._dialect = dialect
        self._lock = lock
        self._beside = beside
        self._precision: Precision = precision
        self._metric: Metric = metric
        self._candidates = candidates
        self._file = file
        self._index: WideIndex | None = None
        self._unsaved = _Unsaved()
        self._due = False
        self._closing = False
        counts = [_FIRST, candidates] if candidates > _FIRST else [candidates]
        self.stages: list[Proposal] = [partial(self._propose, count) for count in counts]

    def _propose(
        self,
        count: int,
        query: Query,
        clock: int,
        namespaces: Ids | None,
        texts: int = 0,  # noqa: ARG002
    ) -> Flow[Ranking]:
        """Rank candidates of a scope (None: everything) as it is at a clock.

        Raises:
            Outrun: The index stands at a later one.
        """
        ranking = yield from self._ask(clock, lambda index: index.propose(query, namespaces, count, self._candidates))
        return (yield from self._rescore(query, ranking))

    def rank(
        self,
        query: Query,
        clock: int,
        namespaces: Ids | None,
        texts: int = 0,  # noqa: ARG002
        among: Ids | None = None,
    ) -> Flow[Ranking]:
        """Rank a whole scope, or some items of it; exactly, or the first of them where vectors are kept in few bits."""

        def ask(index: WideIndex) -> Ranking:
            ranking = index.rank(query, namespaces)
            return ranking if among is None else ranking.only(np.isin(ranking.item_ids, among))

        ranking = yield from self._ask(clock, ask)
        return (yield from self._rescore(query, ranking))

    def _rescore(self, query: Query, ranking: Ranking) -> Flow[Ranking]:
        """Score the first ranks by the vectors of the database, where those in memory are approximate.

        What follows them keeps its order. Where neighbours lend of their scores, these stay as they are.
        """
        if self._precision == "float32" or query.vector is None or query.context or not len(ranking.item_ids):
            return ranking
        first = ranking.cut(0, self._candidates)
        rows = yield self._dialect.select_indexed(first.item_ids.tolist())
        slice_ = to_slice(sorted(rows), self._metric, self._to_counts)
        scored: Ranking = yield Compute(partial(rank_slices, query, self._metric, [slice_], ranking.weights))
        scored = scored.followed_by(ranking.cut(self._candidates, len(ranking.item_ids)).after(scored))
        return replace(scored, complete=ranking.complete, weights=ranking.weights)

    def count(self, clock: int) -> int | None:
        """Say how many texts there are at a clock; None where the index is not there."""
        with self._lock.shared():
            return len(self._index) if self._index is not None and self._index.clock == clock else None

    @property
    def state(self) -> IndexState:
        """What was chosen for the index in memory."""
        index = self._index
        dense = None if index is None else index.dense
        return IndexState(
            kind="pq" if dense is not None and dense.coded else "flat",
            precision=self._precision,
            coded=0 if dense is None else dense.coded,
            dims_a_code=0 if dense is None else dense.dims_a_code,
            building=self._beside.busy,
            memory=0 if index is None else index.size,
        )

    @property
    def texts(self) -> int:
        """Texts held in memory."""
        index = self._index
        return 0 if index is None else len(index)

    @property
    def in_use(self) -> bool:
        """Whether the index is in memory."""
        return self._index is not None

    @property
    def file_bytes(self) -> int:
        """Bytes of the index file."""
        return self._file.size if self._file is not None else 0

    @property
    def wants_upkeep(self) -> bool:
        """Whether vectors wait for codes, or so much has changed that it is to be saved before the end."""
        if self._beside.busy:
            return False
        worth = max(_SAVED_LEAST, _SAVED_AFTER * self.texts)
        return self._due or (self._file is not None and (self._unsaved.trained or self._unsaved.changes > worth))

    def upkeep(self) -> None:
        """Have it done beside the calls: saved, so that not too much is lost where the store is never closed."""
        self._beside.begin(self._code_beside if self._due else self.save)

    def close(self) -> None:
        """Save a last time; codes that are being made are left at what there is of them."""
        self._closing = True
        self._beside.end()
        self.save()

    def save(self) -> None:
        """Write the index file where something has changed."""
        if self._file is None:
            return
        with self._lock.shared():
            if self._index is None or self._index.dense is None or not (self._unsaved.changes or self._unsaved.trained):
                return
            parts = self._index.dense.to_parts()
            self._unsaved = _Unsaved()
        if parts is not None and not self._file.save(parts):
            self._unsaved.changes += 1  # so that it is tried again at close, if not sooner

    def forget(self) -> None:
        """Let the index go; the next wide search makes it anew."""
        with self._lock.exclusive():
            self._index = None

    def _ask(self, clock: int, question: Callable[[WideIndex], T]) -> Flow[T]:
        with self._lock.shared():
            if self._index is not None and self._index.clock == clock:
                answer: T = yield Compute(partial(question, self._index))
                return answer
        with self._lock.exclusive():
            if self._index is not None and self._index.clock > clock:
                raise Outrun(self._index.clock, clock)
            index, self._index = self._index, None  # one that was left half-way is not kept
            index = yield from self._catch_up(index, clock)
            self._index = index
            answer = yield Compute(partial(question, index))
            return answer

    def _catch_up(self, index: WideIndex | None, clock: int) -> Flow[WideIndex]:
        """Bring an index, or a new one, to the clock of this snapshot."""
        if index is not None and index.clock == clock:
            return index
        rows = yield self._dialect.select_removals(clock if index is None else index.clock)
        floor, last_id = rows[0][:2]
        if index is not None and floor > index.clock:
            index = None  # too far behind: of what was removed since, some is forgotten
        is_new = index is None
        if index is None:
            index = WideIndex(self._metric, self._precision, self._beside.together)
        else:
            removals = [(text_id, texts) for _, _, text_id, texts in rows if text_id is not None]
            self._unsaved.changes += len(removals)
            yield Compute(partial(index.remove, removals))
        while True:
            rows = yield self._dialect.select_texts_after(index.last_id, _ROWS_AT_ONCE)
            yield Compute(partial(_add, index, rows, self._to_counts))
            self._unsaved.changes += len(rows)
            if len(rows) < _ROWS_AT_ONCE:
                break
        yield Compute(partial(self._code, index, is_new=is_new))
        index.clock, index.last_id = clock, max(last_id, index.last_id)
        return index

    def _code(self, index: WideIndex, *, is_new: bool) -> None:
        """Code the vectors that have no codes yet; of a new index, those that the index file does not know.

        Where there are many that is left to be done beside the calls: until then all of them are candidates.
        """
        index.settle()
        dense = index.dense
        if dense is None or len(dense) <= self._candidates:
            return  # every text is a candidate
        if is_new:
            self._unsaved = _Unsaved(len(index) - self._adopt(dense))
        self._due = dense.due > _CODED_AT_ONCE
        if not self._due and not self._beside.busy:
            self._note(dense, trained=dense.train())

    def _note(self, dense: FaissIndex, *, trained: bool) -> None:
        if trained:
            self._unsaved.trained = True
            _logger.info("trained the index of %d texts, 4 bits for %d dims", len(dense), dense.dims_a_code)

    def _code_beside(self) -> None:
        """Code vectors while the index is searched, and changes: it is held for moments alone."""
        coding: Coding | None = None
        while coding is None:
            with self._lock.shared():
                dense = None if self._index is None else self._index.dense
                coding = None if dense is None or self._closing else dense.start_coding()
                if dense is None or coding is None:
                    return
                coding.detach()
            coding.prepare()
            while (block := self._next_block(dense, coding)) is not None:
                coding.add(block)
            with self._lock.exclusive():
                is_there = self._index is not None and self._index.dense is dense
                if is_there and coding.coded >= max(1, dense.coded) and dense.take(coding):
                    self._due = dense.due > _CODED_AT_ONCE
                    self._note(dense, trained=coding.trained_on > 0)
                else:
                    coding = None  # its places have changed meanwhile, or another is there

    def _next_block(self, dense: FaissIndex, coding: Coding) -> Vectors | None:
        with self._lock.shared():
            return None if self._closing else dense.next_block(coding)

    def _adopt(self, dense: FaissIndex) -> int:
        """Take over what the index file knows, and tell how much."""
        parts = self._file.load() if self._file is not None else None
        if parts is None:
            return 0
        try:
            return dense.adopt(parts)
        except (KeyError, RuntimeError, ValueError):
            _logger.warning("the index file is of another version; it is made anew")
            return 0


def _add(index: WideIndex, rows: Sequence[Row], to_counts: Counter) -> None:
    """Add items (id, namespace_id, text_id, number of texts, vectors, terms, fields) to an index."""
    if not rows:
        return
    item_ids, namespaces, first, counted, vectors, words, _ = zip(*rows, strict=True)
    texts: Counts = np.array(counted, np.int64)
    lengths, terms = to_terms(words, texts)
    counts = to_counts(rows)
    if counts is not None and len(counts) != texts.sum():
        raise DatabaseDamaged(FIELDS_DAMAGED)
    index.add(
        Texts(
            text_ids=ranges(np.array(first, np.int64), texts),
            item_ids=np.repeat(np.array(item_ids, np.int64), texts),
            namespace_ids=np.repeat(np.array(namespaces, np.int64), texts),
            vectors=to_vectors(vectors, texts),
            lengths=lengths,
            terms=terms,
            counts=counts,
        )
    )
