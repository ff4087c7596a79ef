"""Processes on one database: some write, some search, and no search may miss what was acknowledged before it began.

Run `python -m benchmarks.processes` or `python benchmarks/processes.py`; benchmarks/README.md says what is checked.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, closing
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
    """What the processes did."""

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
        plan = self.plan
        head = (
            f"{plan.writers + plan.searchers} processes on one {'database' if plan.schema else 'file'} for "
            f"{plan.seconds:g} s: {plan.writers} write, {plan.searchers} search; {plan.items:,} items at first, "
            f"{self.items:,} in the end (due: {self.due:,}); exact below {plan.exact_below:,} texts; "
            f"modes: {', '.join(MODES)}\n"
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


def measure_processes(folder: Path, progress: Progress, plan: Plan, dsn: str | None = None) -> Report:
    """Fill a store, let the processes at it, and count what is there in the end.

    Args:
        folder: Where the file is, and what the processes tell each other.
        progress: Where it is shown how far they are.
        plan: How they run.
        dsn: A Postgres database to be used, in place of a file.
    """
    location, acks = dsn or folder / "shared.db", folder / "acknowledged"
    fill(location, plan)
    report = Report(plan)
    count = plan.writers + plan.searchers
    with ProcessPoolExecutor(max_workers=count, mp_context=get_context("spawn")) as pool:
        work: list[Future[Tally]] = [
            *(pool.submit(write, writer, location, acks, plan) for writer in range(plan.writers)),
            *(pool.submit(search, searcher, location, acks, plan) for searcher in range(plan.searchers)),
        ]
        _show(progress, work, plan)
        for done in work:
            report.tally.add(done.result())
    with closing(Acknowledged(acks)) as acknowledged:
        report.due = plan.items + sum(ack.adds for ack in acknowledged.read())
    with open_store(location, plan) as store:
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
    parser.add_argument("--writers", type=int, help="processes that write (default 2, on Postgres 8)")
    parser.add_argument("--searchers", type=int, help="processes that search (default 2, on Postgres 8)")
    parser.add_argument("--folder", type=Path, help="where a folder for the database is made, and deleted at the end")
    parser.add_argument("--postgres", action="store_true", help="on a Postgres server that is started for it")
    parser.add_argument("--dsn", metavar="URL", help="on this Postgres server, in a database of its own")
    given = parser.parse_args(arguments)
    given.postgres = given.postgres or given.dsn is not None
    return given


def main() -> None:
    """Run the processes, print the table and end with 1 where something was missed or failed."""
    given = parse()
    few = 8 if given.postgres else 2
    plan = Plan(
        given.seconds, given.items, given.exact_below, given.dims, given.writers or few, given.searchers or few,
        "shared" if given.postgres else None,
    )  # fmt: skip
    with ExitStack() as opened:
        folder = opened.enter_context(tempfile.TemporaryDirectory(dir=given.folder, prefix="memstore-processes-"))
        dsn = None
        if given.postgres:
            from benchmarks.server import make_database, run_server  # noqa: PLC0415  needs what SQLite does without

            server = given.dsn or opened.enter_context(run_server(given.folder))
            dsn = opened.enter_context(make_database(server))
        progress = opened.enter_context(to_progress())
        report = measure_processes(Path(folder), progress, plan, dsn)
    print(report.to_text())
    sys.exit(not report.sound)


def _show(progress: Progress, work: Sequence[Future[Tally]], plan: Plan) -> None:
    """Move the bar until all processes have ended."""
    task = progress.add_task("processes, seconds", total=plan.seconds)
    start = time.monotonic()
    while not all(done.done() for done in work):
        progress.update(task, completed=min(plan.seconds, int(time.monotonic() - start)))
        progress.refresh()
        time.sleep(_LOOK)
    progress.update(task, completed=plan.seconds)
    progress.refresh()


if __name__ == "__main__":
    main()
