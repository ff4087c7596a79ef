"""Late interaction: each word of the query looks for its like among the words of a text.

A sentence model makes one vector of a text; before that it has one for each of its tokens. A text scores the mean, over
the query's tokens, of their best cosine with one of the text's (ColBERT's max-sim: Khattab and Zaharia, SIGIR 2020,
here with a model that was not trained for it). It finds the one detail that the vector of a whole text has lost.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from memstore.config import is_share, to_number
from memstore.errors import InvalidArgument
from memstore.indexes import Vectors
from memstore.models import LocalModel

_Codes = npt.NDArray[np.int8]
_SCALE: Final = 127
_SPECIAL: Final = 1
"""Tokens at each end of a text that are none of its words."""
_MB: Final = 10**6


class LateInteraction:
    """A reranker by max-sim of token vectors, to be given as `rerank=`.

    Token vectors of texts are kept in memory as 8-bit numbers, some 10 kB a text of 30 words; what is not there is
    embedded when it is looked at, which takes as long as a put of it.

    Args:
        model: The name or folder of a sentence-transformers model.
        weight: Its share of the final score. From 0.3 to 0.5 found most, on conversations and on abstracts.
        cache_mb: Memory for token vectors, in MB (10^6 bytes).
    """

    def __init__(self, model: str = "all-MiniLM-L6-v2", *, weight: float = 0.4, cache_mb: float = 64.0) -> None:
        if not is_share(weight):
            raise InvalidArgument("LateInteraction: weight is more than 0 and at most 1")
        memory = to_number(cache_mb)
        if memory is None or not 0 < memory < math.inf:
            raise InvalidArgument("LateInteraction: cache_mb is a number of MB, more than 0")
        self.model = model
        self.weight = float(weight)
        self._local = LocalModel(model)
        self._capacity = int(memory * _MB)
        self._size = 0
        self._codes: OrderedDict[bytes, _Codes] = OrderedDict()
        self._lock: threading.Lock = threading.Lock()
        _instances.add(self)

    def __call__(self, query: str, texts: list[str]) -> list[float]:
        """Score texts for a query, in [-1, 1].

        Raises:
            MissingExtra: sentence-transformers is not installed.
            ModelUnavailable: The model cannot be loaded.
        """
        if not texts:
            return []
        wanted = _words_of(self._local.embed_tokens([query])[0])
        codes = self._encode(texts)
        starts = np.cumsum([0, *(len(part) for part in codes[:-1])])
        likeness = wanted @ (np.concatenate(codes).astype(np.float32) / _SCALE).T
        best: npt.NDArray[np.float32] = np.maximum.reduceat(likeness, starts, axis=1).mean(axis=0)
        scores: list[float] = np.clip(best.astype(np.float64).round(6), -1.0, 1.0).tolist()
        return scores

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.model}>"

    def _encode(self, texts: Sequence[str]) -> list[_Codes]:
        """Give the codes of texts, from memory where they are."""
        names = [hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest() for text in texts]
        with self._lock:
            known = {name: self._codes[name] for name in names if name in self._codes}
            for name in known:
                self._codes.move_to_end(name)
        missing = {name: text for name, text in zip(names, texts, strict=True) if name not in known}
        if missing:
            made = self._local.embed_tokens(list(missing.values()))
            for name, vectors in zip(missing, made, strict=True):
                known[name] = np.round(_words_of(vectors) * _SCALE).astype(np.int8)
            self._keep({name: known[name] for name in missing})
        return [known[name] for name in names]

    def _keep(self, made: dict[bytes, _Codes]) -> None:
        with self._lock:
            for name, codes in made.items():
                if name not in self._codes:
                    self._codes[name] = codes
                    self._size += codes.nbytes
            while self._size > self._capacity:
                _, gone = self._codes.popitem(last=False)
                self._size -= gone.nbytes


_instances: weakref.WeakSet[LateInteraction] = weakref.WeakSet()


def _after_fork() -> None:
    """Make a forked child's locks new: one may have been held."""
    for late in list(_instances):
        late._lock = threading.Lock()  # noqa: SLF001  this module's own class


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _words_of(vectors: Vectors) -> Vectors:
    """Leave out the special tokens at the ends, and give the others unit length."""
    inner = vectors[_SPECIAL:-_SPECIAL] if len(vectors) > 2 * _SPECIAL else vectors
    norms = np.sqrt(np.einsum("ij,ij->i", inner, inner))[:, None]
    unit: Vectors = inner / np.maximum(norms, np.finfo(np.float32).tiny)
    return unit
