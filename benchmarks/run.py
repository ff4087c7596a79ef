"""One run on one workload: its stores, their turns, the questions they are asked and what was measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from rich.progress import Progress

from benchmarks.measure import Timings, Values, in_turns
from benchmarks.oracle import Asked, Oracle, Question, Shares, to_keys
from benchmarks.peers import OWN, Contestant
from benchmarks.workload import Workload

T = TypeVar("T")
R = TypeVar("R")
UNTIMED: Final = 5
"""Turns that are taken before a measure begins."""
_REDRAW: Final = 0.25
"""Seconds between two looks of the progress bar."""
_LEAST: Final = 3
"""Turns that every store takes, however slow it is."""
_WIDE_LEAST: Final = 10
_WIDE_PART: Final = 4
"""Searches over everything are taken once in so many repeats."""


class Run:
    """What the measures share.

    Args:
        workload: What is put and asked.
        contestants: The stores, empty.
        progress: Where it is shown how far the run is.
        patience: Seconds that one store may take for one measure before it is left out of its further turns.
        suffix: What is added to the name of every measure.
    """

    def __init__(
        self,
        workload: Workload,
        contestants: Sequence[Contestant],
        progress: Progress,
        patience: float,
        suffix: str = "",
    ) -> None:
        self.workload = workload
        self.contestants = list(contestants)
        self.patience = patience
        self.timings = Timings(workload.lookup)
        self.values = Values()
        self.notes: list[str] = []
        self.repeats = workload.sizes.repeats
        self.wide_repeats = max(_WIDE_LEAST, self.repeats // _WIDE_PART)
        self._asked: list[Asked] = []
        self._progress = progress
        self.suffix = suffix
        """May be set between two measures."""
        self._shown_at = 0.0

    @property
    def durable(self) -> list[Contestant]:
        """The stores that keep a database."""
        return [contestant for contestant in self.contestants if contestant.durable]

    @property
    def own(self) -> list[Contestant]:
        """The stores of memstore."""
        return [contestant for contestant in self.contestants if contestant.kind in OWN]

    def leave_out(self, contestant: Contestant, why: str) -> None:
        """Close a store that takes no further part, and note why."""
        contestant.close()
        self.contestants.remove(contestant)
        self.notes.append(f"{contestant.name} is left out after that: {why}")

    def timed(self, measure: str, contestant: Contestant, action: Callable[[], T]) -> T:
        """Time one action of a store, and give what it returned."""
        return self.timings.timed(measure + self.suffix, contestant.name, action)

    def ask(self, measure: str, contestant: Contestant, question: Question) -> None:
        """Time one search, and keep its answer for the oracle."""
        found = self.timed(measure, contestant, lambda: question.ask(contestant.store))
        self._keep(measure, contestant, question, [to_keys(found)])

    def turn_pages(self, measure: str, contestant: Contestant, question: Question, size: int) -> None:
        """Time the reading of an answer page by page; then ask for it on one page, untimed."""
        offsets = range(0, question.limit, size)
        pages = self.timed(
            measure, contestant, lambda: [question.ask(contestant.store, size, offset) for offset in offsets]
        )
        self._keep(
            measure, contestant, question, [to_keys(page) for page in pages], to_keys(question.ask(contestant.store))
        )

    def turns(
        self,
        measure: str,
        repeats: Sequence[R],
        contestants: Sequence[Contestant] | None = None,
        patience: float | None = None,
    ) -> Iterator[tuple[R, Contestant]]:
        """Give each repeat to each store in turns; a store that has used its time up is left out of the rest."""
        patience = self.patience if patience is None else patience
        spent: dict[str, float] = {}
        taken: dict[str, int] = {}
        shown = self.shown(measure + self.suffix, repeats, len(repeats))
        for repeat, contestant in in_turns(self.contestants if contestants is None else contestants, shown):
            name = contestant.name
            if taken.get(name, 0) >= _LEAST and spent[name] > patience:
                continue
            start = time.monotonic()
            yield repeat, contestant
            spent[name] = spent.get(name, 0.0) + time.monotonic() - start
            taken[name] = taken.get(name, 0) + 1
        self.timings.plan(measure + self.suffix, len(repeats))

    def shown(self, measure: str, repeats: Iterable[R], count: int) -> Iterator[R]:
        """Pass repeats on and move the bar between them; a bar with a thread of its own would disturb what is timed."""
        task = self._progress.add_task(measure, total=count)
        for repeat in repeats:
            yield repeat
            self._progress.advance(task)
            if time.monotonic() > self._shown_at + _REDRAW:
                self._progress.refresh()
                self._shown_at = time.monotonic()
        self._progress.refresh()

    def judge(self) -> None:
        """Compare all answers with the oracle's; call it when memory has been measured."""
        oracle = Oracle(self.workload)
        shares: dict[tuple[str, str], Shares] = {}
        paged: set[tuple[str, str]] = set()
        for asked in self.shown("answers judged", self._asked, len(self._asked)):
            named = asked.measure, asked.store
            shares.setdefault(named, Shares()).verdicts.append(oracle.judge(asked))
            if asked.whole is not None:
                paged.add(named)
        self.timings.shares.update(shares)
        short = {measure for (measure, _), theirs in shares.items() if theirs.short}
        for (measure, store), theirs in shares.items():
            if measure in short:
                self.values.add(f"{measure}: answers with too few items", store, theirs.short)
            if (measure, store) in paged:
                self.values.add(f"{measure}: gaps a question", store, theirs.gaps)
                self.values.add(f"{measure}: duplicates a question", store, theirs.duplicates)
        self._asked.clear()

    def _keep(
        self,
        measure: str,
        contestant: Contestant,
        question: Question,
        pages: list[list[str]],
        whole: list[str] | None = None,
    ) -> None:
        log = contestant.log
        self._asked.append(Asked(measure + self.suffix, contestant.name, question, pages, log, len(log), whole))
