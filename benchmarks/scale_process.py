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

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.memory import read_size, send
from benchmarks.peers import OPENERS, Setup
from benchmarks.workload import Lookup

_RESET: Final = Path("/proc/self/clear_refs")
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
        peak = read_size("VmHWM")
        for query in more:
            store.search((), query=query, limit=10)
        settled, mapped = read_size("VmRSS"), read_size("RssFile")
        _forget_peak()
        start = time.perf_counter()
    closing = time.perf_counter() - start
    return Opening(seconds, closing, before, peak, settled, mapped, read_size("VmHWM"))


def _forget_peak() -> None:
    if _RESET.exists():
        _RESET.write_text(_PEAK)


if __name__ == "__main__":
    print(json.dumps(asdict(serve(Errand(**json.load(sys.stdin))))))
