"""What a store does beyond one op: searches with options of their own, and looking closer at how they rank."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeVar

from langgraph.store.base import SearchItem, SearchOp

from memstore.calls import Calls
from memstore.config import Mode
from memstore.explanation import Explanation
from memstore.methods import StoreMethods
from memstore.moves import Call
from memstore.options import to_options
from memstore.recall import RecallCheck
from memstore.requests import to_search
from memstore.rerank import Rerank, Reranker

T = TypeVar("T")


class SearchMethods(StoreMethods):
    """The searches of a store."""

    def search(
        self,
        namespace_prefix: tuple[str, ...],
        /,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
        mode: Mode | None = None,
        context: int | None = None,
        min_score: float | None = None,
        recency: float | None = None,
        rerank: Rerank | Reranker | str | bool | None = None,
    ) -> list[SearchItem]:
        """Find items below a prefix.

        The last five say how a query ranks; what is None is left to the store.

        Args:
            namespace_prefix: Whole labels; `()` for everything.
            query: What is looked for, in words. Without it the newest items come first and scores are None.
            filter: What the value must fulfil, in LangGraph's operators and memstore's (see the README).
            limit: At most so many items.
            offset: How many matching items to leave out first; pages join without gap or duplicate.
            refresh_ttl: Whether the items returned live on for their ttl; the store's default where it is None.
            mode: `"hybrid"`, `"semantic"` or `"lexical"`.
            context: How many neighbours in writing order, on each side, lend an item of their scores; 0 to 5.
            min_score: The least score an item is found with.
            recency: Days after which an item's age has taken half of what it can off its score.
            rerank: What orders the first ranks anew: a callable, the name of a cross-encoder, a `Rerank`; False for
                nothing.

        Returns:
            Items with `score`, higher is better: in [0, 1] for hybrid and lexical; for semantic the cosine, the inner
            product, or minus the distance; with a reranker what its `weight` makes of that and its own.

        Raises:
            MemStoreError: Something given is wrong, or the database could not be used.
        """
        op = SearchOp(namespace_prefix, filter, limit, offset, query, self._refreshes(refresh_ttl))
        request = to_search(op, to_options(mode, context, min_score, recency, rerank))
        found: list[SearchItem] = self._do(self._do_open().batch([request]))[0]
        return found

    async def asearch(
        self,
        namespace_prefix: tuple[str, ...],
        /,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
        mode: Mode | None = None,
        context: int | None = None,
        min_score: float | None = None,
        recency: float | None = None,
        rerank: Rerank | Reranker | str | bool | None = None,
    ) -> list[SearchItem]:
        """Find items as `search` does; an async reranker is awaited."""
        op = SearchOp(namespace_prefix, filter, limit, offset, query, self._refreshes(refresh_ttl))
        request = to_search(op, to_options(mode, context, min_score, recency, rerank))
        calls = await self._ado_open()
        found: list[SearchItem] = (await self._ado(calls.batch([request])))[0]
        return found

    def explain(
        self,
        namespace_prefix: tuple[str, ...],
        /,
        *,
        query: str,
        filter: dict[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        mode: Mode | None = None,
        context: int | None = None,
        min_score: float | None = None,
        recency: float | None = None,
        rerank: Rerank | Reranker | str | bool | None = None,
    ) -> Explanation:
        """Search as `search` does, and say why each result stands where it does. Nothing is refreshed.

        Args:
            namespace_prefix: Whole labels; `()` for everything.
            query: What is looked for.
            filter: What the value must fulfil.
            limit: At most so many items.
            offset: How many matching items to leave out first.
            mode: As `search` takes it, and so are those that follow.
            context: Neighbours that count.
            min_score: The least score.
            recency: A half-life in days.
            rerank: A reranker.

        Raises:
            MemStoreError: Something given is wrong, the store has no index, or the database could not be used.
        """
        op = SearchOp(namespace_prefix, filter, limit, offset, query, refresh_ttl=False)
        request = to_search(op, to_options(mode, context, min_score, recency, rerank))
        return self._do(self._do_open().explain(request))

    async def aexplain(
        self,
        namespace_prefix: tuple[str, ...],
        /,
        *,
        query: str,
        filter: dict[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        mode: Mode | None = None,
        context: int | None = None,
        min_score: float | None = None,
        recency: float | None = None,
        rerank: Rerank | Reranker | str | bool | None = None,
    ) -> Explanation:
        """Search and explain as `explain` does."""
        op = SearchOp(namespace_prefix, filter, limit, offset, query, refresh_ttl=False)
        request = to_search(op, to_options(mode, context, min_score, recency, rerank))
        return await self._ado((await self._ado_open()).explain(request))

    def recall_check(self, samples: int = 100, *, k: int = 10) -> RecallCheck:
        """Compare what searches over everything find with the exact answer, by some of the store's own vectors.

        Takes as long as `samples` exact searches over everything.

        Args:
            samples: How many vectors are looked for; they lie evenly among the items in writing order.
            k: How many nearest items are compared.

        Raises:
            MemStoreError: A number is wrong, the store embeds nothing, or the database could not be used.
        """
        return self._do(self._do_open().recall_check(samples, k))

    async def arecall_check(self, samples: int = 100, *, k: int = 10) -> RecallCheck:
        """Compare as `recall_check` does."""
        return await self._ado((await self._ado_open()).recall_check(samples, k))

    @abstractmethod
    def _do(self, call: Call[T]) -> T: ...

    @abstractmethod
    async def _ado(self, call: Call[T]) -> T: ...

    @abstractmethod
    def _do_open(self) -> Calls: ...

    @abstractmethod
    async def _ado_open(self) -> Calls: ...
