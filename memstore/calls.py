"""What a call of the store does, written once for sync and async.

A call is a generator of moves: into the database, to the model, back; the store's two shells make or await them.
Embedding is a move of its own, so it never happens inside a transaction.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from langchain_core.embeddings import Embeddings

from memstore import check as checking
from memstore.analysis import to_query_terms, to_terms
from memstore.backends import Backend
from memstore.batch import (
    Answer,
    Embedded,
    Look,
    Place,
    answer,
    answer_reads,
    answer_writes,
    apply_together,
    last_writes,
    look_at,
    sweep,
    to_vectors,
)
from memstore.catchup import Outrun
from memstore.check import Due, Findings, Mend
from memstore.config import HYBRID_NEEDS_COSINE, IndexSettings, Mode
from memstore.embedding import MAX_TEXT, Embedder, to_blob
from memstore.errors import InvalidArgument, MissingExtra, ModelUnavailable
from memstore.history import History
from memstore.indexes import Terms
from memstore.indexes.flat import prepare
from memstore.indexing import (
    Remembered,
    adopt_index,
    analyse,
    finish_analysis,
    keep_terms,
    recall_index,
    settle_dims,
    to_remembered,
)
from memstore.moves import Call, Move, glance, read, write
from memstore.requests import Get, Request, Search, Write
from memstore.scoring import Query
from memstore.search import SearchSettings
from memstore.slices import SliceCache
from memstore.stats import Stats
from memstore.steps import Flow
from memstore.ttl import SWEEP_BATCH, refresh

_logger = logging.getLogger("memstore.calls")
_MB: Final = 10**6
_FEW_TEXTS: Final = 8
"""Texts whose terms are made in less time than another thread takes to be asked."""


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
        last_id, made = yield read(backend, partial(analyse, last_id, index.spoken, backend.dialect))
        if made:
            yield write(backend, partial(keep_terms, made, index, backend.dialect))
    finished: Remembered = yield write(backend, partial(finish_analysis, index, backend.dialect))
    return finished


class Calls:
    """The calls of one open store."""

    def __init__(
        self,
        backend: Backend,
        given: IndexSettings | None,
        index: Remembered | None,
        embedder: Embedder | None,
    ) -> None:
        self.index = index
        self.embedder = embedder
        self._backend = backend
        self._given = given
        self._warned = False
        settings = given or IndexSettings(mode="lexical")
        self._mode: Mode = settings.ranking if given is not None or index is None else index.mode
        self._cache = SliceCache(int(settings.cache_mb * _MB), backend.lock())
        metric = index.metric if index else settings.metric
        self._wide = backend.wide(metric, settings)
        self._settings = SearchSettings(
            backend.dialect, self._cache, metric, History(backend.lock()), self._wide, settings.exact_below
        )

    @property
    def paths(self) -> tuple[str, ...] | None:
        """What is embedded of a value unless its put says otherwise; None without an index."""
        if self.index is None:
            return None
        return self.index.fields if self._given is None else self._given.paths

    def batch(self, requests: Sequence[Request]) -> Call[list[Any]]:
        """Answer a batch."""
        embedded = yield from self._embed(requests)
        answered = yield from self._answer(requests, embedded)
        if self._wide.wants_upkeep:
            yield Move(self._wide.upkeep, partial(self._backend.acall, self._wide.upkeep))
        if answered.refreshes:
            moved = partial(refresh, answered.refreshes, self._backend.dialect, self._backend.now)
            yield Move(partial(self._backend.write_soon, moved), partial(self._backend.awrite_soon, moved))
        return answered.results

    def _answer(self, requests: Sequence[Request], embedded: Embedded) -> Call[Answer]:
        """Answer a batch in a transaction; in a newer one, where another call has taken the index past the first."""
        batch = (requests, embedded, self._settings, self._backend.now)
        kinds = {isinstance(request, Write) for request in requests}
        if len(kinds) > 1 and self._backend.reads_apart:
            answered: Answer = yield read(self._backend, partial(answer_reads, *batch))
            yield write(self._backend, partial(answer_writes, *batch))
            return answered
        to_move, make = write if True in kinds else read, partial(answer, *batch)
        if all(isinstance(request, Get) for request in requests):
            to_move = glance
        reached = 0
        while True:
            try:
                answered = yield to_move(self._backend, make)
            except Outrun as outrun:
                if outrun.snapshot < reached:
                    self._wide.forget()  # the database itself has gone back, to an older copy
                reached = outrun.index
            else:
                return answered

    def commit(self, requests: Sequence[Request], changes: Sequence[Callable[[], Flow[Any]]]) -> Call[None]:
        """Apply writes and other changes, in one transaction."""
        embedded = yield from self._embed(requests)
        make = partial(apply_together, requests, changes, embedded, self._settings, self._backend.now)
        yield write(self._backend, make)

    def sweep(self) -> Call[int]:
        """Delete what has expired, some at a time; return how many items there were."""
        swept = 0
        while True:
            make = partial(sweep, self._backend.dialect, SWEEP_BATCH, self._backend.now)
            count: int = yield write(self._backend, make)
            swept += count
            if count < SWEEP_BATCH:
                return swept

    def close(self) -> None:
        """End what is under way beside the calls, and keep what was done."""
        self._wide.close()

    def stats(self) -> Call[Stats]:
        """Count what the store holds."""
        statement = self._backend.dialect.inspect().counts(self._backend.now())
        ((namespaces, items, expired, texts, clock, _),) = yield read(self._backend, partial(checking.ask, statement))
        sizes = yield Move(self._backend.sizes, self._backend.asizes)
        if "index" not in sizes:
            sizes["index"] = yield Move(self._measure_index, partial(self._backend.acall, self._measure_index))
        return Stats(
            namespaces=namespaces,
            items=items,
            expired=expired,
            texts=texts,
            clock=clock,
            model=self.index.model if self.index else None,
            dims=self.index.dims if self.index else None,
            metric=self.index.metric if self.index else None,
            database_bytes=sizes["database"],
            log_bytes=sizes["log"],
            index_bytes=sizes["index"],
            indexed_texts=self._wide.texts,
            cached_bytes=self._cache.size,
            cached_namespaces=len(self._cache),
        )

    def _measure_index(self) -> int:
        return self._wide.file_bytes

    def check(self, *, repair: bool) -> Call[Findings]:
        """Look the database over, and put right what is wrong where that is wanted and possible."""
        problems = yield from self._find_problems(repair=repair)
        if not (repair and problems):
            return Findings(problems)
        remaining = yield from self._find_problems(repair=False)
        return Findings(problems, repaired=not remaining)

    def _find_problems(self, *, repair: bool) -> Call[tuple[str, ...]]:
        dialect = self._backend.dialect
        make = partial(checking.check_rows, dialect, repair=repair)
        problems: list[str] = yield (write if repair else read)(self._backend, make)
        faulty = unreadable = 0
        last_id: int | None = 0
        while last_id is not None:
            make_survey = partial(checking.survey, last_id, self._due, dialect)
            survey: checking.Survey = yield read(self._backend, make_survey)
            faulty, unreadable, last_id = (
                faulty + len(survey.mends),
                unreadable + survey.unreadable,
                survey.last_id,
            )
            if repair and survey.mends:
                yield from self._mend(survey.mends)
        if faulty:
            problems.append(f"{faulty} items are not indexed by the texts of their values")
        if unreadable:
            problems.append(f"{unreadable} values are no JSON objects")
        return tuple(problems)

    def _mend(self, mends: Sequence[Mend]) -> Call[None]:
        if self.index is None or self._due is None:
            return
        texts = {text.digest: text for fault in mends for text in fault.texts}
        vectors: dict[bytes, bytes] = {}
        if self.index.dense:
            made = yield from self._make_vectors(text.text for text in texts.values())
            vectors = {digest: to_blob(made[text.text]) for digest, text in texts.items()}
        embedded = Embedded(texts=vectors, terms=self._due.to_terms(texts.values()), index_id=self.index.id)
        yield write(self._backend, partial(checking.mend, mends, embedded, self._backend.dialect))

    @property
    def _due(self) -> Due | None:
        """What is to be indexed of a value; None without an index."""
        if self.index is None or self.paths is None:
            return None
        dims = (self.index.dims or 0) if self.index.dense else None
        return Due(self.paths, dims, self.index.spoken if self.index.analyser else None)

    def _embed(self, requests: Sequence[Request]) -> Call[Embedded]:
        """Make the vectors a batch needs: of queries, and of texts that its items do not have already."""
        queries = yield from self._make_queries(requests)
        if self.index is None:
            return Embedded()
        writes = last_writes(requests)
        texts = {text.digest: text.text for request in writes.values() for text in request.texts}
        if not texts:
            return Embedded(queries, index_id=self.index.id)
        look: Look = yield from self._look_at(writes)
        terms = yield from self._analyse(texts)
        if not self.index.dense:
            return Embedded(queries, {}, terms, self.index.id, look)
        made = yield from self._make_vectors([text for digest, text in texts.items() if digest not in look.vectors])
        return Embedded(queries, to_vectors(writes.values(), made, look.vectors), terms, self.index.id, look)

    def _look_at(self, writes: Mapping[Place, Write]) -> Call[Look]:
        """Look at what is there already."""
        make = partial(look_at, writes, self.index.dims if self.index else None, self._backend.dialect)
        look: Look = yield glance(self._backend, make)
        return look

    def _analyse(self, texts: Mapping[bytes, str]) -> Call[dict[bytes, Terms]]:
        """Make the terms of texts, by their digests; an event loop does it itself where they are few."""
        if self.index is None or not self.index.analyser:
            return {}
        language = self.index.spoken

        def analyse() -> dict[bytes, Terms]:
            return {digest: to_terms(text, language) for digest, text in texts.items()}

        if len(texts) <= _FEW_TEXTS:
            return analyse()
        terms: dict[bytes, Terms] = yield Move(analyse, partial(self._backend.acall, analyse))
        return terms

    def _make_queries(self, requests: Sequence[Request]) -> Call[dict[int, Query]]:
        """Make of each search's query what its mode needs; those that cannot be answered by relevance are left out."""
        asked = {
            at: (request.query, self._mode_of(request))
            for at, request in enumerate(requests)
            if isinstance(request, Search) and request.query
        }
        if not asked:
            return {}
        if self.index is None:
            self._warn()
            return {}
        dense = [query for query, mode in asked.values() if mode != "lexical"]
        vectors = (yield from self._embed_queries(dense)) if dense else {}
        made = {}
        for at, (query, mode) in asked.items():
            vector = vectors.get(query) if mode != "lexical" else None
            if vector is None and mode != "lexical":
                continue
            made[at] = Query(
                mode=mode,
                vector=None if vector is None else prepare(self.index.metric, vector),
                terms=None if mode == "semantic" else to_query_terms(query[:MAX_TEXT], self.index.spoken),
                index_id=self.index.id,
            )
        return made

    def _mode_of(self, request: Search) -> Mode:
        """Settle how a search ranks.

        Raises:
            InvalidArgument: The store's texts do not allow it.
        """
        mode = request.mode or self._mode
        if self.index is None:
            return mode
        if mode == "hybrid" and self.index.metric != "cosine":
            raise InvalidArgument(HYBRID_NEEDS_COSINE)
        if mode != "semantic" and self.index.analyser is None:
            raise InvalidArgument(
                f"the texts have no words for mode {mode!r}; open the store with index={{'mode': {mode!r}}}"
            )
        if mode != "lexical" and not self.index.dense:
            raise InvalidArgument(f"the texts have no vectors for mode {mode!r}; this store ranks by words alone")
        return mode

    def _embed_queries(self, queries: Iterable[str]) -> Call[dict[str, Any]]:
        embedder = self.embedder
        if embedder is not None:
            try:
                vectors: dict[str, Any] = yield Move(
                    partial(embedder.embed_queries, queries), partial(embedder.aembed_queries, queries)
                )
            except (MissingExtra, ModelUnavailable):
                if self._given is not None:
                    raise
            else:
                return vectors
        self._warn()
        return {}

    def _warn(self) -> None:
        """Say once that a query cannot be answered by relevance."""
        if not self._warned:
            self._warned = True
            warnings.warn(
                "a search has a query, but the store was opened without a usable index: the newest items are given "
                "instead; open it with index={'embed': ...}",
                stacklevel=2,
            )

    def _make_vectors(self, texts: Iterable[str]) -> Call[dict[str, Any]]:
        """Embed texts, and have the database remember the length of its first vector."""
        wanted = list(texts)
        if not wanted or self.index is None:
            return {}
        if self.embedder is None:
            raise ModelUnavailable(
                "the texts of this put would go without their vectors; open the store with index={'embed': ...}, "
                "or put with index=False"
            )
        embedder = self.embedder
        made: dict[str, Any] = yield Move(partial(embedder.embed, wanted), partial(embedder.aembed, wanted))
        if self.index.dims is None and embedder.dims is not None:
            make = partial(settle_dims, self.index, embedder.dims, self._backend.dialect)
            self.index = yield write(self._backend, make)
        return made
