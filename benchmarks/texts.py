"""Real texts with real vectors: lines of a file, embedded with all-MiniLM-L6-v2 once, and kept in a file of arrays.

The first lines are the memories. The queries are lines after them, which no store holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from rich.progress import Progress

from benchmarks.corpus import DIMS
from benchmarks.workload import Floats
from memstore.models import MINILM, LocalModel

_FEWEST_WORDS: Final = 5
"""Shorter lines are no sentences: headings, names."""
_BATCH: Final = 256
_EVERY: Final = 5_000
"""Texts after which what was embedded is kept, about a minute of one core."""
_UNFINISHED: Final = ".unfinished.npz"


@dataclass(frozen=True, slots=True)
class Lines:
    """Memories and queries, no two alike."""

    memories: list[str]
    queries: list[str]

    @property
    def texts(self) -> list[str]:
        """All of them, the memories first."""
        return [*self.memories, *self.queries]

    @property
    def digest(self) -> str:
        """What tells them from others."""
        return hashlib.sha256("\n".join(self.texts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Embedded:
    """Lines and their vectors: float32 of shape (lines, dims), unit length."""

    lines: Lines
    memories: Floats
    queries: Floats


def read_lines(path: Path, most: int, queries: int) -> Lines:
    """Take the first of a file's different lines as memories, and the next ones, or else the last, as queries.

    Args:
        path: The file.
        most: How many memories at most.
        queries: How many queries.

    Raises:
        SystemExit: There are no more lines than queries.
    """
    stripped = dict.fromkeys(line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    lines = [line for line in stripped if len(line.split()) >= _FEWEST_WORDS][: most + queries]
    if len(lines) <= queries:
        raise SystemExit(
            f"{path.name} has {len(lines):,} different lines of {_FEWEST_WORDS} words or more; "
            f"expected more than {queries:,}"
        )
    return Lines(lines[:-queries], lines[-queries:])


def embed(lines: Lines, path: Path | None, progress: Progress) -> Embedded:
    """Embed lines, or take their vectors from a file; a run that was broken off goes on where it stood.

    Args:
        lines: What to embed.
        path: The file of arrays, `texts` and `queries`; None keeps nothing.
        progress: Where it is shown how far it is.

    Raises:
        SystemExit: The file is of other lines.
    """
    texts, count = lines.texts, len(lines.memories)
    known = np.empty((0, DIMS), np.float32) if path is None else _load(path, lines.digest)
    vectors = np.empty((len(texts), DIMS), np.float32)
    vectors[: len(known)] = known
    kept = len(known)
    task = progress.add_task("embedding", total=len(texts), completed=kept)
    progress.refresh()
    model = LocalModel(MINILM)
    for start in range(kept, len(texts), _BATCH):
        part = texts[start : start + _BATCH]
        end = start + len(part)
        vectors[start:end] = model.embed_documents(part)
        vectors[start:end] /= np.linalg.norm(vectors[start:end], axis=1, keepdims=True)
        progress.update(task, completed=end, refresh=True)
        if path is not None and (end - kept >= _EVERY or end == len(texts)):
            _keep(path, lines.digest, vectors[:end], count)
            kept = end
    return Embedded(lines, vectors[:count], vectors[count:])


def _load(path: Path, digest: str) -> Floats:
    """Read the vectors that are there, those of queries last."""
    if not path.exists():
        return np.empty((0, DIMS), np.float32)
    with np.load(path) as kept:
        if kept["digest"].item() != digest:
            raise SystemExit(f"{path.name} has the vectors of other lines, or of another number of them; name another")
        vectors: Floats = np.concatenate([kept["texts"], kept["queries"]])
        return vectors


def _keep(path: Path, digest: str, vectors: Floats, count: int) -> None:
    """Write vectors down; the file has its name when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(_UNFINISHED)
    np.savez(unfinished, texts=vectors[:count], queries=vectors[count:], digest=np.array(digest))
    unfinished.replace(path)


def to_rows(texts: Sequence[str]) -> dict[str, int]:
    """Give each text its row."""
    return {text: row for row, text in enumerate(texts)}
