"""Keeping a wide index at the clock of the search that uses it.

A search names the clock of its snapshot. Under the shared lock an index of that very clock answers. One that is behind
is first brought up from the search's own snapshot, under the exclusive lock: what was removed since, and items with
larger ids. So an index never holds what was not committed, and there is nothing to take back when a write fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

import numpy as np

from memstore.dialects import Dialect
from memstore.errors import FIELDS_DAMAGED, DatabaseDamaged
from memstore.index_file import IndexFile
from memstore.indexes import Counts, Ids, Metric
from memstore.indexes.faiss import FaissIndex
from memstore.indexes.growing import ranges
from memstore.scoring import Query, Ranking
from memstore.slices import Counter, to_counter, to_terms, to_vectors
from memstore.steps import Compute, Flow, Row
from memstore.wide import Texts, WideIndex

T = TypeVar("T")
_logger = logging.getLogger("memstore.catchup")
_ROWS_AT_ONCE: Final = 8_192
_SAVED_AFTER: Final = 0.2
"""Share of texts that came or went since the index file was saved, from which on it is saved again."""
_SAVED_LEAST: Final = 1_000


Proposal: TypeAlias = Callable[[Query, int, Ids | None, int], Flow[Ranking]]
"""Ranks some candidates of a scope (None: everything) of so many texts, as it is at a clock."""


class Outrun(Exception):
    """The index stands at a newer clock than the search's snapshot.

    Args:
        index: The index's clock.
        snapshot: The snapshot's.
    """

    def __init__(self, index: int, snapshot: int) -> None:
        super().__init__(index, snapshot)
        self.index = index
        self.snapshot = snapshot


class WideSearch(Protocol):
    """What ranks the scopes of one store that are too wide to be ranked whole."""

    @property
    def stages(self) -> Sequence[Proposal]:
        """Ways to rank the candidates of a scope, from few to many; what a later one adds follows the earlier."""
        ...

    def rank(
        self, query: Query, clock: int, namespaces: Ids | None, texts: int, among: Ids | None = None
    ) -> Flow[Ranking]:
        """Rank a whole scope exactly, or some items of it, with the statistics of the whole."""
        ...

    def forget(self) -> None:
        """Let go what is held of a database that was set back."""
        ...

    @property
    def texts(self) -> int:
        """Texts held in memory."""
        ...

    @property
    def in_use(self) -> bool:
        """Whether an index may be there."""
        ...

    @property
    def file_bytes(self) -> int:
        """Bytes of the index file."""
        ...

    @property
    def wants_upkeep(self) -> bool:
        """Whether something is to be done beside a search, such as saving or making an index."""
        ...

    def upkeep(self) -> None:
        """Do it, or have it begun."""
        ...

    def close(self) -> None:
        """End what is under way, and keep what was done."""
        ...


class SharedLock(Protocol):
    """A lock that many may share, or one may have alone."""

    def shared(self) -> AbstractContextManager[None]:
        """Share it."""
        ...

    def exclusive(self) -> AbstractContextManager[None]:
        """Have it alone."""
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
        metric: How vectors are compared.
        candidates: Items that are proposed for a query.
        file: Where it is kept between openings; None for nowhere.
        weights: What texts count, by the paths that gave them.
    """

    def __init__(
        self,
        dialect: Dialect,
        lock: SharedLock,
        metric: Metric,
        candidates: int,
        file: IndexFile | None,
        *,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self._to_counts = to_counter(weights or {})
        self._dialect = dialect
        self._lock = lock
        self._metric: Metric = metric
        self._candidates = candidates
        self._file = file
        self._index: WideIndex | None = None
        self._unsaved = _Unsaved()

    @property
    def stages(self) -> Sequence[Proposal]:
        """One way to rank candidates."""
        return (self.propose,)

    def propose(self, query: Query, clock: int, namespaces: Ids | None, texts: int = 0) -> Flow[Ranking]:  # noqa: ARG002
        """Rank the candidates of a scope (None: everything) as it is at a clock.

        Raises:
            Outrun: The index stands at a later one.
        """
        return self._ask(clock, lambda index: index.propose(query, namespaces, self._candidates))

    def rank(
        self,
        query: Query,
        clock: int,
        namespaces: Ids | None,
        texts: int = 0,  # noqa: ARG002
        among: Ids | None = None,
    ) -> Flow[Ranking]:
        """Rank a whole scope exactly, or some items of it."""

        def ask(index: WideIndex) -> Ranking:
            ranking = index.rank(query, namespaces)
            return ranking if among is None else ranking.only(np.isin(ranking.item_ids, among))

        return self._ask(clock, ask)

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
        """Whether so much has changed that the index file should be written before the store is closed."""
        worth = max(_SAVED_LEAST, _SAVED_AFTER * self.texts)
        return self._file is not None and (self._unsaved.trained or self._unsaved.changes > worth)

    def upkeep(self) -> None:
        """Save, so that not too much is lost where the store is never closed."""
        self.save()

    def close(self) -> None:
        """Save a last time."""
        self.save()

    def save(self) -> None:
        """Write the index file where something has changed."""
        if self._file is None:
            return
        with self._lock.exclusive():
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
            ((_, texts),) = yield self._dialect.count_scope(b"", None)
            index = WideIndex(self._metric, texts)
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
        """Code the vectors that have no codes yet; of a new index, those that the index file does not know."""
        if index.dense is None or len(index.dense) <= self._candidates:
            return  # every text is a candidate
        if is_new:
            self._unsaved = _Unsaved(len(index) - self._adopt(index.dense))
        if index.dense.train():
            self._unsaved.trained = True
            _logger.info("trained the index of %d texts", len(index))

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
    texts: Counts = np.array([row[3] for row in rows], np.int64)
    first = np.array([row[2] for row in rows], np.int64)
    lengths, terms = to_terms([row[5] for row in rows], texts)
    counts = to_counts(rows)
    if counts is not None and len(counts) != texts.sum():
        raise DatabaseDamaged(FIELDS_DAMAGED)
    index.add(
        Texts(
            text_ids=ranges(first, texts),
            item_ids=np.repeat(np.array([row[0] for row in rows], np.int64), texts),
            namespace_ids=np.repeat(np.array([row[1] for row in rows], np.int64), texts),
            vectors=to_vectors([row[4] for row in rows], texts),
            lengths=lengths,
            terms=terms,
            counts=counts,
        )
    )
