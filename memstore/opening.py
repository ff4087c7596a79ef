"""Opening a store: its settings compared with what the database remembers, and what its texts lack made."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from langchain_core.embeddings import Embeddings

from memstore.backends import Backend
from memstore.calls import Calls
from memstore.config import IndexSettings
from memstore.embedding import Embedder
from memstore.errors import ModelUnavailable
from memstore.indexing import Remembered, adopt_index, analyse, finish_analysis, keep_terms, recall_index, to_remembered
from memstore.moves import Call, Move, read, write

_logger = logging.getLogger("memstore.opening")


def open_store(
    backend: Backend, given: IndexSettings | None, make_embeddings: Callable[[Any], Embeddings]
) -> Call[Calls]:
    """Open the database, compare its index settings with those given, and make ready what calls need.

    Args:
        backend: The database.
        given: The user's index settings.
        make_embeddings: Turns `embed` into an `Embeddings`; may load a provider's package.

    Raises:
        IndexMismatch: Its texts are indexed otherwise.
        ModelUnavailable: The model given cannot be loaded.
    """
    known: Remembered | None = yield read(backend, partial(recall_index, backend.dialect))
    embed = given.embed if given is not None else None
    if embed is None and known is not None:
        embed = known.embed
    embeddings: Embeddings | None = None
    if embed is not None:
        make = partial(make_embeddings, embed)
        try:
            embeddings = yield Move(make, partial(backend.acall, make))
        except ModelUnavailable:
            if given is not None and given.embed is not None:
                raise  # where none was given reads go on, and a put that needs the model says so
    wanted = known if given is None else to_remembered(given)
    if wanted is not None and (known is None or not known.covers(wanted)):
        kind = given.vector_type if given is not None else None
        known = yield write(backend, partial(adopt_index, wanted, backend.dialect, kind))
    if known is not None and not known.analysed:
        known = yield from _analyse(backend, known)
    if embeddings is None:
        return Calls(backend, given, known, None)
    return Calls(backend, given, known, Embedder(embeddings, known.dims if known else None, backend.lock()))


def _analyse(backend: Backend, index: Remembered) -> Call[Remembered]:
    """Give every text the terms it lacks, some at a time."""
    _logger.info("taking the words of the texts of %s", backend.name)
    last_id: int | None = 0
    while last_id is not None:
        last_id, made = yield read(backend, partial(analyse, last_id, index.spoken, backend.dialect, index.words or ()))
        if made:
            yield write(backend, partial(keep_terms, made, index, backend.dialect))
    finished: Remembered = yield write(backend, partial(finish_analysis, index, backend.dialect))
    return finished
