"""How much memory a store needs to serve its users, measured in a process of its own.

The process opens a filled database, searches every user's namespace once and then everything a few times, and tells the
largest resident sizes it had, and what it had before the store was opened.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from langchain_core.embeddings import Embeddings

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.peers import OPENERS, Contestant, Setup
from benchmarks.workload import to_namespace

_MB: Final = 10**6
_STATUS: Final = Path("/proc/self/status")
_WIDE: Final = 3
"""Searches over everything."""


@dataclass(frozen=True, slots=True)
class Errand:
    """What the process is to do."""

    kind: str
    path: str
    dims: int
    own: dict[str, Any]
    users: int
    queries: list[str]
    patience: float
    """Seconds after which no more users are searched."""


@dataclass(frozen=True, slots=True)
class Resident:
    """Resident sizes of a process, in MB (10^6 bytes)."""

    before: float
    """When everything was imported and no store open."""
    peak: float
    """When the users had been searched."""
    wide: float
    """When everything had been searched too."""
    searched: int
    """How many users were."""


class RandomEmbeddings(Embeddings):
    """A new random vector for every text: nothing has to be kept."""

    def __init__(self, dims: int) -> None:
        self._dims = dims
        self._generator = np.random.default_rng(0)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts."""
        vectors: list[list[float]] = self._generator.standard_normal((len(texts), self._dims)).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Embed a query."""
        return self.embed_documents([text])[0]


def ask_process(contestant: Contestant, setup: Setup, users: int, queries: list[str], patience: float) -> Resident:
    """Measure a closed store's need in a process of its own."""
    errand = Errand(contestant.kind, str(contestant.path), setup.dims, dict(setup.own), users, queries, patience)
    return Resident(**send(__file__, asdict(errand)))


def send(script: str, errand: dict[str, Any]) -> dict[str, Any]:
    """Have a script do an errand in a process of its own, and give what it answers; both as JSON."""
    done = subprocess.run(
        [sys.executable, script], check=True, stdout=subprocess.PIPE, text=True, input=json.dumps(errand)
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def read_size(name: str) -> float:
    """Give a size of this process by the name that Linux has for it, in MB; 0 where the system does not tell it."""
    if not _STATUS.exists():
        return 0.0
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024 / _MB


def read_peak() -> float:
    """Give the largest resident size this process has had, in MB."""
    if _STATUS.exists():  # getrusage counts there what the process that started this one had
        return read_size("VmHWM")
    import resource  # noqa: PLC0415  absent on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / _MB


def serve(errand: Errand) -> Resident:
    """Search every namespace of a database once, then everything."""
    setup = Setup(RandomEmbeddings(errand.dims), errand.dims, errand.own)
    path, opener = Path(errand.path), OPENERS[errand.kind]
    with opener(path.with_name("empty-" + path.name), setup):
        before = read_peak()
    with opener(path, setup) as store:
        searched = 0
        until = time.monotonic() + errand.patience
        while searched < errand.users and time.monotonic() < until:
            store.search(to_namespace(searched), query=errand.queries[searched % len(errand.queries)], limit=10)
            searched += 1
        peak = read_peak()
        for query in errand.queries[:_WIDE]:
            store.search((), query=query, limit=10)
    return Resident(before, peak, read_peak(), searched)


if __name__ == "__main__":
    print(json.dumps(asdict(serve(Errand(**json.load(sys.stdin))))))
