"""A store whose rankings a test writes down, so that what is measured of them can be worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from langgraph.store.base import BaseStore, Op, Result, SearchItem

Ranking: TypeAlias = Sequence[str | tuple[tuple[str, ...], str]]
"""Keys, best first; those of a deeper namespace with it."""


class RankedStore(BaseStore):
    """Answers each search with the ranking that belongs to its namespace, query and order; every score is the same."""

    def __init__(self, rankings: Mapping[tuple[tuple[str, ...], str, str], Ranking], score: Any = 0.5) -> None:
        self.rankings = rankings
        self.score = score
        self.searches: list[dict[str, Any]] = []
        """What every search was given."""

    def search(  # type: ignore[override]  # it has fewer options, as stores may
        self, namespace_prefix: tuple[str, ...], /, *, query: str, limit: int = 10, **options: Any
    ) -> list[SearchItem]:
        """Give a ranking."""
        self.searches.append({"namespace": namespace_prefix, "query": query, "limit": limit, **options})
        ranking = self.rankings.get((namespace_prefix, query, options.get("order", "")), ())
        found = [one if isinstance(one, tuple) else (namespace_prefix, one) for one in ranking]
        now = datetime(2026, 1, 1, tzinfo=UTC)
        return [SearchItem(namespace, key, {}, now, now, self.score) for namespace, key in found][:limit]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do nothing."""
        return [None for _ in ops]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do nothing."""
        return [None for _ in ops]
