"""An open store: what it holds beside its database, and the calls that look after both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from memstore import check as checking
from memstore.backends import Backend
from memstore.batch import Embedded, sweep
from memstore.check import Due, Findings, Mend
from memstore.config import IndexSettings, Mode
from memstore.embedding import Embedder, to_blob
from memstore.errors import InvalidArgument, ModelUnavailable
from memstore.history import History
from memstore.indexing import Remembered, settle_dims
from memstore.moves import Call, Move, read, write
from memstore.options import of_store
from memstore.recall import RecallCheck, check_recall
from memstore.search import SearchSettings
from memstore.slices import SliceCache
from memstore.stats import Stats
from memstore.steps import Flow
from memstore.ttl import SWEEP_BATCH
from memstore.wide_search import Outrun

T = TypeVar("T")
_MB: Final = 10**6
_CHECKED: Final = 20
"""Vectors by which `check` measures recall."""


class Upkeep:
    """What an open store holds, and its upkeep."""

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
        self._options = of_store(given)
        self._cache = SliceCache(int(settings.cache_mb * _MB), backend.lock(), settings.weights)
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

    @property
    def words(self) -> tuple[str, ...]:
        """What counts with the words of every text of a value."""
        if self._given is not None and self._given.words is not None:
            return tuple(self._given.words)
        return (self.index.words if self.index is not None else None) or ()

    def _read(self, make: Callable[[], Flow[T]], to_move: Callable[..., Move] = read) -> Call[T]:
        """Run a flow in a transaction; in a newer one, where another call has taken the index past the first."""
        reached = 0
        while True:
            try:
                answered: T = yield to_move(self._backend, make)
            except Outrun as outrun:
                if outrun.snapshot < reached:
                    self._wide.forget()  # the database itself has gone back, to an older copy
                reached = outrun.index
            else:
                return answered

    def sweep(self) -> Call[int]:
        """Delete what has expired, some at a time; return how many items there were."""
        swept = 0
        while True:
            make = partial(sweep, self._backend.dialect, SWEEP_BATCH, self._backend.now)
            count: int = yield write(self._backend, make)
            swept += count
            if count < SWEEP_BATCH:
                return swept

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
            index=self._wide.state,
            cached_bytes=self._cache.size,
            cached_namespaces=len(self._cache),
        )

    def _measure_index(self) -> int:
        return self._wide.file_bytes

    def check(self, *, repair: bool) -> Call[Findings]:
        """Look the database over, and put right what is wrong where that is wanted and possible."""
        problems = yield from self._find_problems(repair=repair)
        remaining = problems
        if repair and problems:
            remaining = yield from self._find_problems(repair=False)
        recall = None if remaining else (yield from self._measure_recall())
        return Findings(problems, repaired=bool(problems) and not remaining, recall=recall)

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

    def _measure_recall(self) -> Call[RecallCheck | None]:
        """Measure the recall of the index; None where there is nothing that it ranks."""
        if self.index is None or not self.index.dense or self.index.dims is None:
            return None
        if not self._wide.in_use:
            return None
        measured = yield from self.recall_check(_CHECKED, 10)
        return None if measured.exact else measured

    def _mend(self, mends: Sequence[Mend]) -> Call[None]:
        if self.index is None or self._due is None:
            return
        texts = {text.digest: text for fault in mends for text in fault.texts}
        vectors: dict[bytes, bytes] = {}
        if self.index.dense:
            made = yield from self._make_vectors(text.text for text in texts.values())
            vectors = {digest: to_blob(made[text.text]) for digest, text in texts.items()}
        embedded = Embedded(
            texts=vectors,
            terms=self._due.to_terms(text for fault in mends for text in fault.texts),
            index_id=self.index.id,
        )
        yield write(self._backend, partial(checking.mend, mends, embedded, self._backend.dialect))

    @property
    def _due(self) -> Due | None:
        """What is to be indexed of a value; None without an index."""
        if self.index is None or self.paths is None:
            return None
        dims = (self.index.dims or 0) if self.index.dense else None
        return Due(self.paths, dims, self.index.spoken if self.index.analyser else None, self.words)

    def recall_check(self, samples: int, k: int) -> Call[RecallCheck]:
        """Compare approximate with exact answers for some of the store's own vectors."""
        if self.index is None or not self.index.dense:
            raise InvalidArgument("a store without vectors ranks everything exactly; there is nothing to compare")
        return (yield from self._read(partial(check_recall, samples, k, self.index.id, self._settings)))

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

    def close(self) -> None:
        """End what is under way beside the calls, and keep what was done."""
        self._wide.close()
