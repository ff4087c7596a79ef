"""The right answers, by brute force in NumPy: cosines of a query with every memory it may find.

Vectors are float32 of unit length, so that a cosine is their product; its error is far below the room given to ties.
Nothing here is made before the first answer is judged, so that it does not count as memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from langgraph.store.base import BaseStore, SearchItem

from benchmarks.workload import Floats, Memory, Query, Workload, to_namespace

Log: TypeAlias = list[tuple[str, Memory | None]]
"""What was written to a store after it was filled, in order: keys and what they hold now; None for the deleted."""
_ROOM: Final = 2e-6
"""Cosines that differ by less may stand in either order: float32 sums are no better."""


@dataclass(frozen=True, slots=True)
class Question:
    """One search: a query in a scope."""

    query: Query
    user: int | None = None
    """Whose memories; None for everyone's."""
    limit: int = 10
    filter: dict[str, Any] | None = None
    """Keys of values and what they must equal, or be less than: `{"$lt": 5}`."""

    def ask(self, store: BaseStore, limit: int | None = None, offset: int = 0) -> list[SearchItem]:
        """Ask a store, for another part of the answer where one is named."""
        scope = () if self.user is None else to_namespace(self.user)
        return store.search(scope, query=self.query.text, filter=self.filter, limit=limit or self.limit, offset=offset)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to one store, and the keys of what it answered, page by page."""

    measure: str
    store: str
    question: Question
    pages: list[list[str]]
    log: Log
    moment: int
    """How much of the log had been written."""
    whole: list[str] | None = None
    """The same store's answer on one page, where pages were asked for."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an answer compares with the right one of the same length."""

    right: float
    """Share of the answer that was due which came."""
    found: bool | None
    """Whether the memory came that the query's words are from; None where it could not."""
    gaps: int
    """Items of the store's own answer on one page that stand on no page."""
    duplicates: int
    """Items that stand on a page again."""
    short: bool
    """Whether fewer items came than were due."""


@dataclass(slots=True)
class Shares:
    """The verdicts on one store in one measure."""

    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def right(self) -> float:
        """Share of right items, as the mean over questions: recall@k, k being the answer's length."""
        return sum(verdict.right for verdict in self.verdicts) / len(self.verdicts)

    @property
    def found(self) -> float | None:
        """Share of questions whose source came; None where none could."""
        known = [verdict.found for verdict in self.verdicts if verdict.found is not None]
        return sum(known) / len(known) if known else None

    @property
    def gaps(self) -> float:
        """Items on no page, as the mean over questions."""
        return sum(verdict.gaps for verdict in self.verdicts) / len(self.verdicts)

    @property
    def duplicates(self) -> float:
        """Items that stand on a page again, as the mean over questions."""
        return sum(verdict.duplicates for verdict in self.verdicts) / len(self.verdicts)

    @property
    def short(self) -> int:
        """How many answers had fewer items than were due."""
        return sum(verdict.short for verdict in self.verdicts)


def to_keys(items: Sequence[SearchItem]) -> list[str]:
    """Name an answer's items."""
    return [item.key for item in items]


@dataclass(slots=True)
class State:
    """What a store held at some moment, as changes of what filled it."""

    log: Log
    moment: int
    changed: dict[str, Memory | None]
    """What has been written to each key since."""
    stale: list[int]
    """Places of the memories that are no longer as they were."""


class Oracle:
    """Answers over what a store held when it was asked.

    Args:
        workload: What filled the stores.
    """

    def __init__(self, workload: Workload) -> None:
        self._lookup = workload.lookup
        self._users = workload.sizes.users
        self._memories = workload.memories
        self._rows = np.array([self._to_row(memory) for memory in workload.memories])
        self._places = {memory.key: at for at, memory in enumerate(workload.memories)}
        self._passing: dict[str, npt.NDArray[np.bool_]] = {}
        self._cosines: tuple[str, Floats] | None = None
        self._state = State([], 0, {}, [])

    def judge(self, asked: Asked) -> Verdict:
        """Compare an answer with the best memories that may be found."""
        state = self._to_state(asked)
        scores = self._score(asked.question, state)
        later = self._score_later(asked.question, state)
        pool = np.concatenate([scores, np.fromiter(later.values(), np.float32, len(later))])

        def to_score(key: str) -> float:
            place = self._places.get(key)
            return later[key] if key in later else -np.inf if place is None else float(scores[place])

        given = [key for page in asked.pages for key in page]
        due = min(asked.question.limit, int(np.isfinite(pool).sum()))
        right = 1.0
        if due:
            last = float(np.partition(pool, -due)[-due])
            right = min(due, sum(to_score(key) >= last - _ROOM for key in set(given))) / due
        source = asked.question.query.source
        known = source.key not in state.changed and np.isfinite(to_score(source.key))
        whole = given if asked.whole is None else asked.whole
        return Verdict(
            right,
            source.key in given if known else None,
            len(set(whole) - set(given)),
            len(given) - len(set(given)),
            len(set(given)) < due,
        )

    def _score(self, question: Question, state: State) -> Floats:
        """Give the cosine of each memory that filled the store; minus infinity where the question may not find it."""
        scores = np.full(len(self._memories), -np.inf, np.float32)
        if question.user is None:
            scores[:] = self._score_all(question.query.text)[self._rows]
        else:
            theirs = slice(question.user, None, self._users)
            vectors = self._lookup.vectors
            scores[theirs] = vectors[self._rows[theirs]] @ vectors[self._lookup.to_row(question.query.text)]
        if question.filter is not None:
            scores[~self._find_passing(question.filter)] = -np.inf
        scores[state.stale] = -np.inf
        return scores

    def _score_later(self, question: Question, state: State) -> dict[str, float]:
        """Give the cosines of memories written later that the question may find, by key."""
        found = {
            key: self._to_row(memory)
            for key, memory in state.changed.items()
            if memory is not None
            and question.user in (None, memory.user)
            and (question.filter is None or _passes(memory, question.filter))
        }
        vectors = self._lookup.vectors
        asked = vectors[self._lookup.to_row(question.query.text)]
        return dict(zip(found, (vectors[list(found.values())] @ asked).tolist(), strict=True))

    def _score_all(self, text: str) -> Floats:
        """Give the cosines with every vector; the last are kept, because all stores are asked the same."""
        if self._cosines is None or self._cosines[0] != text:
            self._cosines = text, self._lookup.vectors @ self._lookup.vectors[self._lookup.to_row(text)]
        return self._cosines[1]

    def _find_passing(self, wanted: dict[str, Any]) -> npt.NDArray[np.bool_]:
        name = repr(wanted)
        if name not in self._passing:
            self._passing[name] = np.array([_passes(memory, wanted) for memory in self._memories])
        return self._passing[name]

    def _to_state(self, asked: Asked) -> State:
        """Replay a store's log; the last state is kept, because many questions are asked of one."""
        if self._state.log is not asked.log or self._state.moment != asked.moment:
            changed = dict(asked.log[: asked.moment])
            stale = [self._places[key] for key in changed if key in self._places]
            self._state = State(asked.log, asked.moment, changed, stale)
        return self._state

    def _to_row(self, memory: Memory) -> int:
        return self._lookup.to_row(memory.value["text"])


def _passes(memory: Memory, wanted: dict[str, Any]) -> bool:
    return all(
        memory.value[key] < value["$lt"] if isinstance(value, dict) else memory.value[key] == value
        for key, value in wanted.items()
    )
