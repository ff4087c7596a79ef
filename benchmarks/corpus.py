"""Real texts with real vectors: of a file with a text in each line, embedded with all-MiniLM-L6-v2 (extra `demo`).

The texts are taken in a random order. A query is a few consecutive words of a text that is among the memories.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from rich.progress import Progress

from benchmarks.workload import Corpus, Floats, Lookup, Sizes
from memstore.models import LocalModel

MODEL: Final = "all-MiniLM-L6-v2"
DIMS: Final = 384
_SHORTEST, _LONGEST = 4, 10
"""Words of a query."""
_BATCH: Final = 256


def read_corpus(path: Path, sizes: Sizes, queries: int, spares: int, progress: Progress) -> Corpus:
    """Take texts from a file, and embed them and their queries; minutes for tens of thousands.

    Args:
        path: The file.
        sizes: How many memories of how many users, and the seed; `dims` must be those of the model.
        queries: How many queries.
        spares: How many texts beyond those that fill the stores.
        progress: Where it is shown how far the embedding is.

    Raises:
        SystemExit: The file has too few texts, or `dims` are not the model's.
    """
    if sizes.dims != DIMS:
        raise SystemExit(f"{MODEL} makes vectors of {DIMS} dims, not {sizes.dims}")
    texts = list(dict.fromkeys(line.strip() for line in path.read_text().splitlines()))
    texts = [text for text in texts if len(text.split()) > _SHORTEST]
    wanted = sizes.items + spares
    if len(texts) < wanted:
        raise SystemExit(
            f"{path} has {len(texts):,} different texts of more than {_SHORTEST} words; expected {wanted:,}"
        )
    generator = np.random.default_rng([sizes.seed, 1])
    texts = [texts[at] for at in generator.permutation(len(texts))[:wanted].tolist()]
    asked: dict[str, int] = {}
    while len(asked) < queries:
        at = int(generator.integers(sizes.items))
        words = texts[at].split()
        count = min(int(generator.integers(_SHORTEST, _LONGEST + 1)), len(words))
        start = int(generator.integers(len(words) - count + 1))
        asked.setdefault(" ".join(words[start : start + count]), at)
    spelled = list(dict.fromkeys([*texts, *asked]))
    rows = {text: row for row, text in enumerate(spelled)}
    return Corpus(texts, list(asked), list(asked.values()), Lookup(_embed(spelled, progress), rows))


def _embed(texts: list[str], progress: Progress) -> Floats:
    """Embed texts, those of like length together."""
    model = LocalModel(MODEL)
    vectors = np.empty((len(texts), DIMS), np.float32)
    order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
    task = progress.add_task("embedding", total=len(texts))
    for start in range(0, len(texts), _BATCH):
        part = order[start : start + _BATCH]
        vectors[part] = model.embed_documents([texts[at] for at in part])
        progress.update(task, completed=start + len(part), refresh=True)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors
