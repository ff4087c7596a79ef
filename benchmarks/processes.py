"""Four processes on one file: two write, two search, and no search may miss what was acknowledged before it began.

Run `python -m benchmarks.processes` or `python benchmarks/processes.py`; benchmarks/README.md says what is checked.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from rich.progress import Progress

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import to_percentiles, to_progress, to_table
from benchmarks.peers import MODES
from benchmarks.workers import Acknowledged, Plan, Tally, fill, open_store, search, write

_HEAD: Final = ["what", "done", "a second", "p50 ms", "p95 ms", "errors", "stale", "stale still when asked again"]
_LOOK: Final = 0.25
"""Seconds between two looks of the progress bar."""


@dataclass(slots=True)
class Report:
    """What four processes did."""

    plan: Plan
    tally: Tally = field(default_factory=Tally)
    items: int = 0
    """What the store counts in the end."""
    due: int = 0
    """What the acknowledged writes come to."""
    problems: list[str] = field(default_factory=list)
    """What looking the database over found."""

    @property
    def sound(self) -> bool:
        """Whether no call failed, no answer was stale, and everything acknowledged is there."""
        counts = self.tally.errors.total() + self.tally.stale.total()
        return not counts and self.items == self.due and not self.problems

    def to_text(self) -> str:
        """Lay out a table, and say what went wrong."""
        rows = [self._to_row(what) for what in sorted({*self.tally.seconds, *self.tally.errors})]
        ages = [f"{1e3 * part:.1f}" for part in to_percentiles(self.tally.ages or [0.0])]
        head = (
            f"Four processes on one file for {self.plan.seconds:g} s: two write, two search; "
            f"{self.plan.items:,} items at first, {self.items:,} in the end (due: {self.due:,}); exact below "
            f"{self.plan.exact_below:,} texts; modes: {', '.join(MODES)}\n"
        )
        foot = (
            f"\nA search began {ages[0]} ms (p50), {ages[1]} ms (p95) after what it looked for had been acknowledged."
        )
        lines = [head, to_table(_HEAD, rows), foot]
        lines += [f"- {count} x {message}" for message, count in self.tally.messages.most_common(10)]
        lines += [f"- {problem}" for problem in self.problems[:10]]
        return "\n".join(lines)

    def _to_row(self, what: str) -> list[str]:
        seconds = self.tally.seconds.get(what, [])
        times = [f"{1e3 * part:.3f}" for part in to_percentiles(seconds)] if seconds else ["", ""]
        counts = [counter[what] for counter in (self.tally.errors, self.tally.stale, self.tally.lasting)]
        return [
            what,
            f"{self.tally.done[what]:,}",
            f"{self.tally.done[what] / self.plan.seconds:,.1f}",
            *times,
            *map(str, counts),
        ]


def measure_processes(folder: Path, progress: Progress, plan: Plan) -> Report:
    """Fill a store, let four processes at it, and count what is there in the end."""
    path, acks = folder / "shared.db", folder / "acknowledged"
    fill(path, plan)
    report = Report(plan)
    with ProcessPoolExecutor(max_workers=4, mp_context=get_context("spawn")) as pool:
        work: list[Future[Tally]] = [
            *(pool.submit(write, writer, path, acks, plan) for writer in range(2)),
            *(pool.submit(search, searcher, path, acks, plan) for searcher in range(2)),
        ]
        _show(progress, work, plan)
        for done in work:
            report.tally.add(done.result())
    with closing(Acknowledged(acks)) as acknowledged:
        report.due = plan.items + sum(ack.adds for ack in acknowledged.read())
    with open_store(path, plan) as store:
        report.items = store.stats().items
        report.problems = [str(problem) for problem in store.check().problems]
    return report


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    plan = Plan()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.processes", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=plan.seconds, help="how long (default %(default)s)")
    parser.add_argument("--items", type=int, default=plan.items, help="items at first (default %(default)s)")
    parser.add_argument("--exact-below", type=int, default=plan.exact_below, help="memstore's (default %(default)s)")
    parser.add_argument("--dims", type=int, default=plan.dims, help="length of a vector (default %(default)s)")
    parser.add_argument("--folder", type=Path, help="where a folder for the database is made, and deleted at the end")
    return parser.parse_args(arguments)


def main() -> None:
    """Run the processes, print the table and end with 1 where something was missed or failed."""
    given = parse()
    plan = Plan(given.seconds, given.items, given.exact_below, given.dims)
    with (
        tempfile.TemporaryDirectory(dir=given.folder, prefix="memstore-processes-") as folder,
        to_progress() as progress,
    ):
        report = measure_processes(Path(folder), progress, plan)
    print(report.to_text())
    sys.exit(not report.sound)


def _show(progress: Progress, work: Sequence[Future[Tally]], plan: Plan) -> None:
    """Move the bar until all processes have ended."""
    task = progress.add_task("four processes, seconds", total=plan.seconds)
    start = time.monotonic()
    while not all(done.done() for done in work):
        progress.update(task, completed=min(plan.seconds, int(time.monotonic() - start)))
        progress.refresh()
        time.sleep(_LOOK)
    progress.update(task, completed=plan.seconds)
    progress.refresh()


if __name__ == "__main__":
    main()
