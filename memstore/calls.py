"""What a call of the store does, written once for sync and async.

A call is a generator of moves: into the database, to the model, back; the store's two shells make or await them.
Embedding is a move of its own, so it never happens inside a transaction.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from langgraph.store.base import Op

from memstore.analysis import DEFAULT_LANGUAGE, to_query_terms, to_terms
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
    to_vectors,
)
from memstore.config import HYBRID_NEEDS_COSINE, Mode
from memstore.embedding import MAX_TEXT, Text, to_words
from memstore.errors import InvalidArgument, MissingExtra, ModelUnavailable
from memstore.explanation import Explanation
from memstore.indexes import Terms
from memstore.indexes.flat import prepare
from memstore.items import Found
from memstore.matching import Match
from memstore.moves import Call, Move, glance, read, write
from memstore.requests import Get, Request, Search, Write, to_requests
from memstore.scoring import Query
from memstore.shortlist import Inspected, Ranked, Shortlist, explain, inspect, settle
from memstore.steps import Flow
from memstore.ttl import refresh, to_refreshes
from memstore.upkeep import Upkeep

T = TypeVar("T")
_FEW_TEXTS: Final = 8
"""Texts whose terms are made in less time than another thread takes to be asked."""


class Calls(Upkeep):
    """The calls of one open store."""

    def to_requests(self, ops: Iterable[Op]) -> list[Request]:
        """Check a batch.

        Raises:
            MemStoreError: Something is wrong with an op.
        """
        return to_requests(ops, self.paths, self.words)

    def batch(self, requests: Sequence[Request]) -> Call[list[Any]]:
        """Answer a batch."""
        embedded = yield from self.embed(requests)
        answered = yield from self._answer(requests, embedded)
        refreshes = list(answered.refreshes)
        for at, shortlist in answered.again.items():
            request: Any = requests[at]
            ranked = yield from self._look_again(request, embedded.queries[at], shortlist)
            answered.results[at] = [result.found.item for result in ranked]
            if request.refresh:
                refreshes += to_refreshes([result.found for result in ranked], shortlist.time)
        if answered.again and any(isinstance(request, Write) for request in requests):
            # only now: a reranker that fails fails the whole batch
            yield from self.put(requests, embedded)
        yield from self._tend()
        if refreshes:
            moved = partial(refresh, refreshes, self._backend.dialect, self._backend.now)
            yield Move(partial(self._backend.write_soon, moved), partial(self._backend.awrite_soon, moved))
        return answered.results

    def _tend(self) -> Call[None]:
        """Have done what wide searches want done beside them."""
        if self._wide.wants_upkeep:
            yield Move(self._wide.upkeep, partial(self._backend.acall, self._wide.upkeep))

    def _look_again(self, request: Search, query: Query, shortlist: Shortlist) -> Call[list[Ranked]]:
        """Have the first ranks of a search reranked where that is wanted."""
        said: list[float] = []
        if query.rerank is not None and shortlist.found:
            pairs = zip(shortlist.matches[: query.rerank.first], shortlist.found, strict=False)
            asked = (request.query or "", [self._to_text(match, hit) for match, hit in pairs])
            said = yield Move(partial(query.rerank.score, *asked), partial(query.rerank.ascore, *asked))
        return settle(shortlist, request, query, said)

    def _to_text(self, match: Match, hit: Found) -> str:
        """Give the text that an item was found by, with what else counts with its words."""
        words = to_words(hit.item.value, self.words)
        return f"{match.text}\n{words}" if words else match.text

    def explain(self, request: Search) -> Call[Explanation]:
        """Answer a search by a query, and say why."""
        embedded = yield from self.embed([request])
        query = embedded.queries.get(0)
        if query is None:
            raise InvalidArgument("there is nothing to explain without a query, and an index by which it can be ranked")
        inspected: Inspected = yield from self._read(partial(self._inspect, request, query))
        ranked = yield from self._look_again(request, query, inspected.shortlist)
        yield from self._tend()
        spoken = self.index.spoken if self.index is not None else DEFAULT_LANGUAGE
        return explain(inspected, ranked, request, query.mode, spoken, index=self._wide.state)

    def _inspect(self, request: Search, query: Query) -> Flow[Inspected]:
        return inspect(request, query, self._settings, self._backend.now())

    def _answer(self, requests: Sequence[Request], embedded: Embedded) -> Call[Answer]:
        """Answer a batch in a transaction; in a newer one, where another call has taken the index past the first."""
        batch = (requests, embedded, self._settings, self._backend.now)
        kinds = {isinstance(request, Write) for request in requests}
        reranks = any(query.rerank is not None for query in embedded.queries.values())
        if len(kinds) > 1 and (reranks or self._backend.reads_apart):
            answered: Answer = yield from self._read(partial(answer_reads, *batch))
            if not answered.again:
                yield from self.put(requests, embedded)
            return answered
        to_move, make = write if True in kinds else read, partial(answer, *batch)
        if all(isinstance(request, Get) for request in requests):
            to_move = glance
        return (yield from self._read(make, to_move))

    def put(self, requests: Sequence[Request], embedded: Embedded) -> Call[None]:
        """Write what was embedded before, in one transaction."""
        yield write(self._backend, partial(answer_writes, requests, embedded, self._settings, self._backend.now))

    def commit(self, requests: Sequence[Request], changes: Sequence[Callable[[], Flow[Any]]]) -> Call[None]:
        """Apply writes and other changes, in one transaction."""
        embedded = yield from self.embed(requests)
        make = partial(apply_together, requests, changes, embedded, self._settings, self._backend.now)
        yield write(self._backend, make)

    def embed(self, requests: Sequence[Request], on_model: Callable[[], None] = lambda: None) -> Call[Embedded]:
        """Make the vectors a batch needs: of queries, and of texts that its items do not have already.

        Args:
            requests: The batch.
            on_model: Is called before the model is, where texts are to be embedded.
        """
        queries = yield from self._make_queries(requests)
        if self.index is None:
            return Embedded()
        writes = last_writes(requests)
        texts = {text.digest: text.text for request in writes.values() for text in request.texts}
        if not texts:
            return Embedded(queries, index_id=self.index.id)
        look: Look = yield from self._look_at(writes)
        terms = yield from self._analyse(text for request in writes.values() for text in request.texts)
        if not self.index.dense:
            return Embedded(queries, {}, terms, self.index.id, look)
        on_model()
        made = yield from self._make_vectors([text for digest, text in texts.items() if digest not in look.vectors])
        return Embedded(queries, to_vectors(writes.values(), made, look.vectors), terms, self.index.id, look)

    def _look_at(self, writes: Mapping[Place, Write]) -> Call[Look]:
        """Look at what is there already."""
        make = partial(look_at, writes, self.index.dims if self.index else None, self._backend.dialect)
        look: Look = yield glance(self._backend, make)
        return look

    def _analyse(self, texts: Iterable[Text]) -> Call[dict[bytes, Terms]]:
        """Make the terms of texts, by the digests of their words; an event loop does it itself where they are few."""
        if self.index is None or not self.index.analyser:
            return {}
        language = self.index.spoken
        worded = {text.words_digest: text.worded for text in texts}

        def analyse() -> dict[bytes, Terms]:
            return {digest: to_terms(text, language) for digest, text in worded.items()}

        if len(worded) <= _FEW_TEXTS:
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
            request: Any = requests[at]
            options = request.options.over(self._options, mode)
            made[at] = Query(
                mode=mode,
                vector=None if vector is None else prepare(self.index.metric, vector),
                terms=None if mode == "semantic" else to_query_terms(query[:MAX_TEXT], self.index.spoken),
                index_id=self.index.id,
                context=options.context or 0,
                recency=options.recency,
                min_score=options.min_score,
                rerank=options.rerank,
            )
        return made

    def _mode_of(self, request: Search) -> Mode:
        """Settle how a search ranks.

        Raises:
            InvalidArgument: The store's texts do not allow it.
        """
        mode = request.options.mode or self._mode
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
