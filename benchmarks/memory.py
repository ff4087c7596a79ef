"""How much memory a store needs to serve its users, measured in a process of its own.

The process opens a filled database, searches every user's namespace once and tells the largest resident size it had,
and what it had before the store was opened.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from langchain_core.embeddings import Embeddings

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.peers import OPENERS, Contestant
from benchmarks.workload import Sizes, to_namespace

_MB = 10**6


@dataclass(frozen=True, slots=True)
class Resident:
    """Resident sizes of a process, in MB (10^6 bytes)."""

    before: float
    """When everything was imported and no store open."""
    peak: float


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


def ask_process(contestant: Contestant, sizes: Sizes) -> Resident:
    """Measure a closed store's need in a process of its own."""
    command = [sys.executable, __file__, contestant.name, str(contestant.path), str(sizes.users), str(sizes.dims)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Resident(**json.loads(done.stdout))


def read_peak() -> float:
    """Give the largest resident size this process has had, in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage counts there what the process that started this one had
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / _MB
    import resource  # noqa: PLC0415  absent on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / _MB


def main() -> None:
    """Search every namespace of a database once, and print what it took as JSON."""
    name, path, users, dims = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    with OPENERS[name](path.with_name("empty-" + path.name), RandomEmbeddings(dims), dims):
        before = read_peak()
    with OPENERS[name](path, RandomEmbeddings(dims), dims) as store:
        for user in range(users):
            store.search(to_namespace(user), query=f"question {user}", limit=10)
    print(json.dumps({"before": before, "peak": read_peak()}))


if __name__ == "__main__":
    main()
