"""What a call of the store does, written once for sync and async.

A call is a generator of moves: into the database, to the model, back. A move knows how to be made and how to be
awaited; the store's two shells choose. Embedding is a move of its own, so it never happens inside a transaction.
"""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from langchain_core.embeddings import Embeddings

from memstore import check as checking
from memstore.backends import Backend, FlowMaker
from memstore.batch import Answer, Embedded, answer, kept_vectors, last_writes, sweep, to_vectors
from memstore.check import Findings, Mend
from memstore.config import IndexSettings
from memstore.embedding import Embedder, to_blob
from memstore.errors import MissingExtra, ModelUnavailable
from memstore.indexing import Remembered, adopt_index, recall_index, settle_dims, to_remembered
from memstore.requests import Request, Search, Write
from memstore.search import SearchSettings
from memstore.slices import SliceCache
from memstore.ttl import SWEEP_BATCH, refresh

T = TypeVar("T")
_MB: Final = 10**6


@dataclass(frozen=True, slots=True)
class Move:
    """One thing a call does outside itself."""

    make: Callable[[], Any]
    amake: Callable[[], Awaitable[Any]]


def perform(move: Move) -> Any:
    """Make a move on this thread."""
    return move.make()


async def aperform(move: Move) -> Any:
    """Make a move off the event loop."""
    return await move.amake()


Call: TypeAlias = Generator[Move, Any, T]


@dataclass(frozen=True, slots=True)
class Stats:
    """What a store holds.

    Attributes:
        namespaces: Namespaces with items, expired ones included.
        items: Items, expired ones included.
        expired: Items that have expired and await the sweep.
        texts: Indexed texts, each with a vector.
        clock: Writing transactions so far.
        model: The embedding model's name, where it is known.
        dims: The length of a vector; None until there is one.
        metric: How vectors are compared; None without an index.
        database_bytes: The database file.
        log_bytes: Its write-ahead log.
        cached_bytes: Vectors held in memory.
        cached_namespaces: Namespaces whose vectors are held.
    """

    namespaces: int
    items: int
    expired: int
    texts: int
    clock: int
    model: str | None
    dims: int | None
    metric: str | None
    database_bytes: int
    log_bytes: int
    cached_bytes: int
    cached_namespaces: int


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
    known: Remembered | None = yield _read(backend, partial(recall_index, backend.dialect))
    embed = given.embed if given is not None else known and known.embed
    embeddings: Embeddings | None = None
    if embed is not None:
        make = partial(make_embeddings, embed)
        try:
            embeddings = yield Move(make, partial(backend.acall, make))
        except ModelUnavailable:
            if given is not None:
                raise  # without settings reads go on, and a put that needs the model says so
    if given is not None:
        wanted = to_remembered(given)
        if known is None or not known.covers(wanted):
            known = yield _write(backend, partial(adopt_index, wanted, backend.dialect))
    if embeddings is None:
        return Calls(backend, given, known, None)
    return Calls(backend, given, known, Embedder(embeddings, known.dims if known else None, backend.lock()))


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
        settings = given or IndexSettings()
        self._cache = SliceCache(int(settings.cache_mb * _MB), backend.lock())
        self._settings = SearchSettings(backend.dialect, self._cache, index.metric if index else settings.metric)

    @property
    def paths(self) -> tuple[str, ...] | None:
        """What is embedded of a value unless its put says otherwise; None without an index."""
        if self.index is None:
            return None
        return self.index.fields if self._given is None else self._given.paths

    def batch(self, requests: Sequence[Request]) -> Call[list[Any]]:
        """Answer a batch."""
        embedded = yield from self._embed(requests)
        make = partial(answer, requests, embedded, self._settings, self._backend.now)
        writes = any(isinstance(request, Write) for request in requests)
        answered: Answer = yield (_write if writes else _read)(self._backend, make)
        if answered.refreshes:
            moved = partial(refresh, answered.refreshes, self._backend.dialect, self._backend.now)
            move = partial(self._backend.write_soon, moved)
            yield Move(move, partial(self._backend.acall, move))
        return answered.results

    def sweep(self) -> Call[int]:
        """Delete what has expired, some at a time; return how many items there were."""
        swept = 0
        while True:
            make = partial(sweep, self._backend.dialect, SWEEP_BATCH, self._backend.now)
            count: int = yield _write(self._backend, make)
            swept += count
            if count < SWEEP_BATCH:
                return swept

    def stats(self) -> Call[Stats]:
        """Count what the store holds."""
        statement = self._backend.dialect.inspect().counts(self._backend.now())
        ((namespaces, items, expired, texts, clock, _),) = yield _read(self._backend, partial(checking.ask, statement))
        sizes = yield Move(self._backend.sizes, partial(self._backend.acall, self._backend.sizes))
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
            cached_bytes=self._cache.size,
            cached_namespaces=len(self._cache),
        )

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
        problems: list[str] = yield (_write if repair else _read)(self._backend, make)
        faulty = unreadable = 0
        last_id: int | None = 0
        while last_id is not None:
            dims = self.index.dims if self.index else None
            make_survey = partial(checking.survey, last_id, self.paths, dims, dialect)
            survey: checking.Survey = yield _read(self._backend, make_survey)
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
        texts = {text.digest: text.text for fault in mends for text in fault.texts}
        made = yield from self._make_vectors(texts.values())
        vectors = {digest: to_blob(made[text]) for digest, text in texts.items()}
        index_id = self.index.id if self.index else 0
        yield _write(self._backend, partial(checking.mend, mends, vectors, index_id, self._backend.dialect))

    def _embed(self, requests: Sequence[Request]) -> Call[Embedded]:
        """Make the vectors a batch needs: of queries, and of texts that its items do not have already."""
        queries = {request.query for request in requests if isinstance(request, Search) and request.query}
        indexed = {place: request for place, request in last_writes(requests).items() if request.texts}
        query_vectors = (yield from self._embed_queries(queries)) if queries else {}
        if self.index is None:
            return Embedded()
        if not indexed:
            return Embedded(query_vectors, index_id=self.index.id)
        look = partial(
            self._backend.glance, partial(kept_vectors, list(indexed), self.index.dims, self._backend.dialect)
        )
        kept = yield Move(look, partial(self._backend.acall, look))
        texts = (text for request in indexed.values() for text in request.texts)
        made = yield from self._make_vectors([text.text for text in texts if text.digest not in kept])
        return Embedded(query_vectors, to_vectors(indexed.values(), made, kept), self.index.id)

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
        if not self._warned:
            self._warned = True
            warnings.warn(
                "a search has a query, but the store was opened without a usable index: the newest items are given "
                "instead; open it with index={'embed': ...}",
                stacklevel=2,
            )
        return {}

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
            self.index = yield _write(self._backend, make)
        return made


def _read(backend: Backend, make: FlowMaker[Any]) -> Move:
    return Move(partial(backend.read, make), partial(backend.aread, make))


def _write(backend: Backend, make: FlowMaker[Any]) -> Move:
    return Move(partial(backend.write, make), partial(backend.awrite, make))
