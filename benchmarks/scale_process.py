"""What it takes to open a store and search everything, measured in a process of its own.

The process has imported everything when it begins. It opens a filled database, searches over everything, and tells how
long that took and how large it was: at most, and when it had settled.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.memory import read_size, send
from benchmarks.peers import OPENERS, Setup
from benchmarks.workload import Lookup
from memstore import MemStore

_RESET: Final = Path("/proc/self/clear_refs")
_GLANCE: Final = 0.05
"""Seconds."""
_PEAK: Final = "5"
"""Written there, it sets the largest resident size back to the present one."""


@dataclass(frozen=True, slots=True)
class Errand:
    """What the process is to do: open the database at a path, and search it by queries whose vectors are given."""

    kind: str
    path: str
    dims: int
    own: dict[str, Any]
    vectors: dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Opening:
    """How it went; sizes are resident ones in MB (10^6 bytes), 0 where the system does not tell them."""

    seconds: float
    """From opening to the first answer over everything."""
    coding: float
    """Seconds from there until the codes were made that were missing."""
    recoding: float
    """Seconds that coding all vectors anew takes."""
    recoded: float
    """At most, meanwhile."""
    closing: float
    """Seconds that closing took, which may save an index file."""
    before: float
    """When everything was imported and no store open."""
    peak: float
    """At most, from opening to the first answer."""
    settled: float
    """After more searches."""
    mapped: float
    """Of that, pages of files."""
    closed: float
    """At most, from there until it was closed."""


class Given(Embeddings):
    """An embedding of texts whose vectors are given.

    Args:
        vectors: By text.
    """

    def __init__(self, vectors: Mapping[str, list[float]]) -> None:
        self._vectors = vectors

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Look texts up."""
        return [self._vectors[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Look a query up."""
        return self._vectors[text]


def ask_process(kind: str, path: Path, setup: Setup, lookup: Lookup, queries: Sequence[str]) -> Opening:
    """Open a database, which is closed here, in a process of its own, and search it."""
    vectors = dict(zip(queries, lookup.embed_documents(list(queries)), strict=True))
    errand = Errand(kind, str(path), setup.dims, dict(setup.own), vectors)
    return Opening(**send(__file__, asdict(errand)))


def serve(errand: Errand) -> Opening:
    """Open a database and search over everything."""
    setup = Setup(Given(errand.vectors), errand.dims, errand.own)
    first, *more = errand.vectors
    before = read_size("VmRSS")
    _forget_peak()
    start = time.perf_counter()
    with OPENERS[errand.kind](Path(errand.path), setup) as store:
        store.search((), query=first, limit=10)
        seconds = time.perf_counter() - start
        coding = wait_for_codes(store)
        peak = read_size("VmHWM")
        for query in more:
            store.search((), query=query, limit=10)
        settled, mapped = read_size("VmRSS"), read_size("RssFile")
        _forget_peak()
        recoding = _code_anew(store, first)
        recoded = read_size("VmHWM")
        _forget_peak()
        start = time.perf_counter()
    closing = time.perf_counter() - start
    return Opening(
        seconds=seconds,
        coding=coding,
        recoding=recoding,
        recoded=recoded,
        closing=closing,
        before=before,
        peak=peak,
        settled=settled,
        mapped=mapped,
        closed=read_size("VmHWM"),
    )


def wait_for_codes(store: BaseStore) -> float:
    """Wait while memstore makes codes beside its calls; give the seconds."""
    start = time.perf_counter()
    while isinstance(store, MemStore) and store.stats().index.building:
        time.sleep(_GLANCE)
    return time.perf_counter() - start


def _code_anew(store: BaseStore, query: str) -> float:
    """Have memstore code all vectors anew, as when there are many more of them; give the seconds."""
    if not isinstance(store, MemStore) or not store.stats().index.coded:
        return 0.0
    wide: Any = store._calls._wide  # noqa: SLF001  no call has them made anew
    wait_for_codes(store)  # or until they are saved
    wide._index.dense._trained_on = 1  # noqa: SLF001
    wide._due = True  # noqa: SLF001
    store.search((), query=query, limit=10)
    return wait_for_codes(store)


def _forget_peak() -> None:
    if _RESET.exists():
        _RESET.write_text(_PEAK)


if __name__ == "__main__":
    print(json.dumps(asdict(serve(Errand(**json.load(sys.stdin))))))
