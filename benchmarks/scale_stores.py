"""The stores that are compared at several sizes: memstore under two rankings on one database, and its peers.

memstore is filled once, in mode hybrid; `Ranked` ranks by meaning alone on the same connections. Filled databases may
be kept in a folder, and later runs work on copies of them.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from langgraph.store.base import BaseStore, Op, Result, SearchItem

from benchmarks.peers import Contestant, Setup
from benchmarks.run import Run
from benchmarks.workload import Sizes
from benchmarks.writes import BATCH, put_batch
from memstore import MemStore

FILL: Final = f"batch of {BATCH} puts, filling"
FILLED: Final = f"puts a second in batches of {BATCH}, filling"
RANKED: Final = "another ranking"
"""The kind of a contestant that works on the database of another."""


class Ranked(BaseStore):
    """A store of memstore's under another ranking.

    Args:
        base: Who has the store.
        mode: How it ranks here.
    """

    def __init__(self, base: Contestant, mode: str) -> None:
        self._base = base
        self._mode: Any = mode

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Answer ops."""
        return self._base.store.batch(ops)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Answer ops."""
        return await self._base.store.abatch(ops)

    def search(self, namespace_prefix: tuple[str, ...], /, **options: Any) -> list[SearchItem]:
        """Search by the other ranking."""
        store = self._base.store
        if not isinstance(store, MemStore):
            raise TypeError(type(store).__name__)
        return store.search(namespace_prefix, mode=self._mode, **options)


@dataclass(frozen=True, slots=True)
class Kept:
    """The folder where filled databases are kept.

    Attributes:
        folder: It.
        sizes: What the database in question is filled with.
    """

    folder: Path
    sizes: Sizes

    @property
    def path(self) -> Path:
        """The database."""
        sizes = self.sizes
        return self.folder / f"{sizes.users}x{sizes.memories}-dims{sizes.dims}-seed{sizes.seed}.db"

    @property
    def figures(self) -> dict[str, float]:
        """What was measured while it was filled."""
        found: dict[str, float] = json.loads(self.path.with_suffix(".json").read_text())
        return found

    def take(self, path: Path) -> bool:
        """Copy the database to where it is worked on; tell whether there is one."""
        if self.path.exists():
            shutil.copyfile(self.path, path)
        return self.path.exists()

    def keep(self, path: Path, figures: dict[str, float]) -> None:
        """Keep a copy of a database that is closed; it has its name when it is whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path.with_suffix(".json").write_text(json.dumps(figures))
        unfinished = self.path.with_suffix(".unfinished")
        shutil.copyfile(path, unfinished)
        unfinished.replace(self.path)


def open_ranked(opened: ExitStack, base: Contestant, setup: Setup, name: str, mode: str) -> Contestant:
    """Open a store once more under another ranking; what is written to one counts for both."""

    def open_it(_path: Path, _setup: Setup) -> AbstractContextManager[BaseStore]:
        return nullcontext(Ranked(base, mode))

    ranked = opened.enter_context(Contestant(RANKED, base.path.parent, setup, name, open_it))
    ranked.log = base.log
    return ranked


def fill(run: Run, contestants: Sequence[Contestant]) -> None:
    """Fill stores, however long it takes."""
    batches = list(run.workload.batches(BATCH))
    for batch, contestant in run.turns(FILL, batches, contestants, math.inf):
        put_batch(run, FILL, contestant, batch)
    for contestant in contestants:
        seconds = sum(run.timings.seconds[FILL][contestant.name])
        run.values.add(FILLED, contestant.name, run.workload.sizes.items / seconds)


def check_filled(run: Run, contestant: Contestant) -> None:
    """Look whether a database that was kept holds what this run would have filled it with."""
    last = run.workload.memories[-1]
    found = contestant.store.get(last.namespace, last.key)
    if found is None or found.value != last.value:
        raise SystemExit(f"{contestant.path.name}: the database that was kept was filled by another version; delete it")
