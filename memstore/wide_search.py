"""What ranks the scopes that are too wide to be ranked whole, whichever backend it works for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from memstore.indexes import Ids
from memstore.scoring import Query, Ranking
from memstore.stats import IndexState
from memstore.steps import Flow

Proposal: TypeAlias = Callable[[Query, int, Ids | None, int], Flow[Ranking]]
"""Ranks some candidates of a scope (None: everything) of so many texts, as it is at a clock."""


class Outrun(Exception):
    """The index stands at a newer clock than the search's snapshot.

    Args:
        index: The index's clock.
        snapshot: The snapshot's.
    """

    def __init__(self, index: int, snapshot: int) -> None:
        super().__init__(index, snapshot)
        self.index = index
        self.snapshot = snapshot


class WideSearch(Protocol):
    """What ranks the scopes of one store that are too wide to be ranked whole."""

    @property
    def stages(self) -> Sequence[Proposal]:
        """Ways to rank the candidates of a scope, from few to many; what a later one adds follows the earlier."""
        ...

    def rank(
        self, query: Query, clock: int, namespaces: Ids | None, texts: int, among: Ids | None = None
    ) -> Flow[Ranking]:
        """Rank a whole scope exactly, or some items of it, with the statistics of the whole."""
        ...

    def forget(self) -> None:
        """Let go what is held of a database that was set back."""
        ...

    @property
    def texts(self) -> int:
        """Texts held in memory."""
        ...

    def count(self, clock: int) -> int | None:
        """Say how many texts there are at a clock, where that is known without asking the database."""
        ...

    @property
    def state(self) -> IndexState:
        """What was chosen for them."""
        ...

    @property
    def in_use(self) -> bool:
        """Whether an index may be there."""
        ...

    @property
    def file_bytes(self) -> int:
        """Bytes of the index file."""
        ...

    @property
    def wants_upkeep(self) -> bool:
        """Whether something is to be done beside a search, such as saving or making an index."""
        ...

    def upkeep(self) -> None:
        """Do it, or have it begun."""
        ...

    def close(self) -> None:
        """End what is under way, and keep what was done."""
        ...
