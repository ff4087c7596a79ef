"""Which texts an item yields, and their vectors.

The model is the slow part: each distinct text is embedded once, in batches, never inside a lock or a transaction, and
recent queries keep their vectors. Whatever the model returns is checked before it goes anywhere.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from calendar import day_name, month_name
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from itertools import chain, islice
from typing import Any, Final

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import ensure_embeddings, get_text_at_path
from langgraph.store.base.embed import EmbeddingsLambda

from memstore.errors import EmbeddingError, ModelUnavailable
from memstore.indexes import Vectors
from memstore.items import to_json
from memstore.models import LocalModel, model_name

MAX_TEXT: Final = 8_192
"""Characters of a text that are embedded; the value itself is never cut."""
_BATCH: Final = 512
"""Texts handed to the model at once, well under the 2,048 that hosted models accept."""
_RECENT_QUERIES: Final = 512
"""Query vectors kept; at 384 dims about 0.8 MB."""
DIGEST_BYTES: Final = 16
_DATE: Final = re.compile(r"(?<!\d)\d{4}-\d\d-\d\d(?!\d)")
"""A date as ISO 8601 writes it, alone or before a time."""


@dataclass(frozen=True, slots=True)
class Text:
    """One text of an item that is to be found by meaning."""

    field: str
    """The path that gave it, with its place where the path gave several: `messages[*].content.2`."""
    text: str
    digest: bytes
    """BLAKE2b of the text: equal texts of one store have equal vectors."""
    words: str = ""
    """What else of the value counts with its words."""

    @property
    def worded(self) -> str:
        """All whose words count."""
        return f"{self.text}\n{self.words}" if self.words else self.text

    @property
    def words_digest(self) -> bytes:
        """BLAKE2b of all whose words count."""
        return to_digest(self.worded) if self.words else self.digest


def to_texts(value: Mapping[str, Any], paths: Iterable[str], words: Iterable[str] = ()) -> tuple[Text, ...]:
    """Extract the texts that paths name in a checked value; what is missing, null, malformed or blank yields none.

    Args:
        value: The value.
        paths: Of its texts.
        words: Of what counts with the words of each.
    """
    texts: list[Text] = []
    more = to_words(value, words)
    for path in paths:
        found = [text for whole in _extract(value, path) if (text := whole[:MAX_TEXT]).strip()]
        for place, text in enumerate(found):
            field = path if len(found) == 1 else f"{path}.{place}"
            texts.append(Text(field, text, to_digest(text), more))
    return tuple(texts)


def to_words(value: Mapping[str, Any], paths: Iterable[str]) -> str:
    """Join what paths name in a value, and spell the dates in it: `2024-03-17` is also 17 March 2024, a Sunday."""
    found = "\n".join(text for path in paths for text in _extract(value, path))[:MAX_TEXT]
    return "\n".join([found, *map(_spell, dict.fromkeys(_DATE.findall(found)))]) if found else ""


def _spell(written: str) -> str:
    try:
        day = date.fromisoformat(written)
    except ValueError:  # the 40th of a month
        return ""
    return f"{day.day} {month_name[day.month]} {day.year} {day_name[day.weekday()]}"


def from_labels(value: Mapping[str, Any], labels: Sequence[str], digests: Sequence[bytes]) -> list[str]:
    """Find the texts of a value again by their fields and digests, whatever chose them; one that is not there is empty.

    Args:
        value: The value.
        labels: The `field` of each text.
        digests: The digest of each.
    """
    paths = chain.from_iterable((label, label.rpartition(".")[0]) for label in labels)
    found = {text.digest: text.text for text in to_texts(value, filter(None, dict.fromkeys(paths)))}
    return [found.get(digest, "") for digest in digests]


def to_digest(text: str) -> bytes:
    """Digest a text, as it is kept beside its vector."""
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def to_blob(vector: Vectors) -> bytes:
    """Encode a vector of shape (dims,) as little-endian float32."""
    return vector.astype("<f4", copy=False).tobytes()


def split(blob: bytes, parts: int) -> list[bytes]:
    """Cut a blob into equal parts."""
    size = len(blob) // parts
    return [blob[at : at + size] for at in range(0, parts * size, size)]


def from_blobs(blobs: Sequence[bytes], count: int) -> Vectors:
    """Decode `count` vectors of one length, joined or apart, into an array of shape (count, dims)."""
    vectors: Vectors = np.frombuffer(b"".join(blobs), "<f4").reshape(count, -1).astype(np.float32, copy=False)
    return vectors


class Embedder:
    """Turns texts and queries into checked vectors, sync and async.

    Args:
        embeddings: What makes the vectors.
        dims: Their length; None until the first vector tells.
        lock: Guards the recent queries.
    """

    def __init__(self, embeddings: Embeddings, dims: int | None, lock: AbstractContextManager[Any]) -> None:
        self.embeddings = embeddings
        self.dims = dims
        self._lock = lock
        self._recent: OrderedDict[str, Vectors] = OrderedDict()

    def embed(self, texts: Iterable[str]) -> dict[str, Vectors]:
        """Embed texts, each distinct one once.

        Raises:
            EmbeddingError: The number or the length of the vectors is wrong, or one holds NaN or an infinity.
        """
        self._check_sync()
        batches = list(batched_distinct(texts))
        return self._checked(batches, [self.embeddings.embed_documents(batch) for batch in batches])

    async def aembed(self, texts: Iterable[str]) -> dict[str, Vectors]:
        """Embed texts as `embed` does, through the model's async method."""
        batches = list(batched_distinct(texts))
        return self._checked(batches, [await self.embeddings.aembed_documents(batch) for batch in batches])

    def embed_queries(self, queries: Iterable[str]) -> dict[str, Vectors]:
        """Embed queries, each distinct one once and recent ones not at all."""
        self._check_sync()
        vectors = {}
        for query in dict.fromkeys(queries):
            known = self._known(query)
            vectors[query] = self._keep(query, self.embeddings.embed_query(query)) if known is None else known
        return vectors

    async def aembed_queries(self, queries: Iterable[str]) -> dict[str, Vectors]:
        """Embed queries as `embed_queries` does, through the model's async method."""
        vectors = {}
        for query in dict.fromkeys(queries):
            known = self._known(query)
            vectors[query] = self._keep(query, await self.embeddings.aembed_query(query)) if known is None else known
        return vectors

    def _check_sync(self) -> None:
        """Refuse to wait for an async function."""
        if isinstance(self.embeddings, EmbeddingsLambda) and not hasattr(self.embeddings, "func"):
            raise EmbeddingError("embed is an async function; await aput, asearch or abatch, or give a sync one")

    def _known(self, query: str) -> Vectors | None:
        with self._lock:
            vector = self._recent.get(query)
            if vector is not None:
                self._recent.move_to_end(query)
            return vector

    def _keep(self, query: str, given: Any) -> Vectors:
        vector: Vectors = self._to_vectors([given], 1)[0]
        with self._lock:
            self._recent[query] = vector
            if len(self._recent) > _RECENT_QUERIES:
                self._recent.popitem(last=False)
        return vector

    def _checked(self, batches: list[list[str]], given: list[Any]) -> dict[str, Vectors]:
        vectors = [self._to_vectors(part, len(batch)) for batch, part in zip(batches, given, strict=True)]
        return dict(zip(chain(*batches), chain(*vectors), strict=True))

    def _to_vectors(self, given: Any, count: int) -> Vectors:
        """Check what the model returned: an array of shape (count, dims), finite."""
        rows = given if isinstance(given, list) else _listed(given)
        try:
            vectors = _pack(rows)
        except (TypeError, ValueError, OverflowError) as error:
            raise EmbeddingError(_fault(rows, count, self.dims)) from error
        if vectors.ndim != 2 or vectors.shape != (count, self.dims or vectors.shape[-1]) or not vectors.size:  # noqa: PLR2004
            raise EmbeddingError(_fault(rows, count, self.dims))
        if not np.isfinite(vectors).all():
            raise EmbeddingError("expected finite numbers, got NaN or an infinity in a vector")
        self.dims = vectors.shape[1]
        return vectors


def _pack(rows: list[Any]) -> Vectors:
    """Make one array of vectors; of lists of numbers, which is what models return, in a third of NumPy's time."""
    if set(map(type, rows)) == {list} and len(set(map(len, rows))) == 1:
        try:
            pack = struct.Struct(f"={len(rows[0])}f").pack
            packed = b"".join([pack(*row) for row in rows])
        except (OverflowError, struct.error):
            pass  # too large, or no number: NumPy says which
        else:
            return np.frombuffer(packed, np.float32).reshape(len(rows), -1)
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes an infinity, refused by the caller
        return np.asarray(rows, np.float32)


def _listed(given: Any) -> list[Any]:
    try:
        return list(given)
    except TypeError as error:
        raise EmbeddingError(f"expected a list of vectors, got {type(given).__name__}") from error


def _fault(rows: list[Any], count: int, dims: int | None) -> str:
    """Say what is wrong with what a model returned."""
    if len(rows) != count:
        return f"expected {count} vectors, one for each text, got {len(rows)}"
    try:
        lengths = {len(row) for row in rows}
    except TypeError:
        return "expected a list of vectors, got a list of something else"
    expected = dims or max(lengths)
    wrong = next((length for length in lengths if length != expected), None)
    if wrong is not None:
        return f"expected vectors of length {expected}, got one of length {wrong}"
    return "expected vectors of numbers" if expected else "expected vectors, got empty ones"


def to_embeddings(embed: Any) -> Embeddings:
    """Turn what `embed` may be into an `Embeddings`; a model named by text is loaded at its first use.

    Raises:
        ModelUnavailable: It is none of the kinds LangGraph accepts, or its provider cannot be loaded.
    """
    if isinstance(embed, str) and not _names_provider(embed):
        return LocalModel(embed)
    if not isinstance(embed, str | Embeddings) and not callable(embed):
        raise ModelUnavailable(
            "expected an Embeddings, a function, 'provider:model' or a sentence-transformers name, "
            f"got {type(embed).__name__}"
        )
    try:
        return ensure_embeddings(embed)
    except (ImportError, ValueError) as error:
        raise ModelUnavailable(f"embed={embed!r}: {error}") from error


def to_identity(embed: Any) -> str | None:
    """Name the model behind `embed`, as far as it can be known: None for a function."""
    if isinstance(embed, str):
        return model_name(embed)
    if not isinstance(embed, Embeddings):
        return None
    names = (getattr(embed, attribute, None) for attribute in ("model", "model_name", "model_id"))
    name = next((name for name in names if isinstance(name, str) and name), None)
    return f"{type(embed).__name__}:{name}" if name else type(embed).__name__


def batched_distinct(texts: Iterable[str]) -> Iterator[list[str]]:
    """Group distinct texts, in order, into what is handed to the model at once."""
    rest = iter(dict.fromkeys(texts))
    while batch := list(islice(rest, _BATCH)):
        yield batch


def _names_provider(embed: str) -> bool:
    """Tell `openai:text-embedding-3-small` from a name on the hub or a folder, on Windows too."""
    provider, colon, _ = embed.partition(":")
    return bool(colon) and len(provider) > 1 and provider.replace("_", "").replace("-", "").isalnum()


def _extract(value: Mapping[str, Any], path: str) -> list[str]:
    whole = value.get(path) if path.isidentifier() else None
    if isinstance(whole, str):
        return [whole]  # as LangGraph's function would say, after taking the path apart
    try:
        return get_text_at_path(value, path)
    except ValueError:  # an integer of over 4,300 digits, which Python does not turn into text
        return get_text_at_path(json.loads(to_json(value), parse_int=str), path)
