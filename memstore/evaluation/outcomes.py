"""What an evaluation finds, as data: of each query, of a setting's queries together, and of two settings side by side.

Nothing here is rounded but what is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from memstore.evaluation.cases import Case

_SHOWN_CHANGES: Final = 10
_SMALLEST_P: Final = 0.0001


@dataclass(frozen=True, slots=True)
class Found:
    """An item that a search gave.

    Attributes:
        namespace: Its own namespace, which may lie below the case's.
        key: Its key.
        score: As the store gave it.
    """

    namespace: tuple[str, ...]
    key: str
    score: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case under a setting.

    Attributes:
        case: What was asked.
        found: The items that came, best first.
        metrics: Their metrics by name, such as `recall@10`.
        seconds: How long the search took.
    """

    case: Case
    found: tuple[Found, ...]
    metrics: Mapping[str, float] = field(hash=False)
    seconds: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over queries, and the interval that holds it with 95 % confidence (percentile bootstrap over queries)."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Several queries together.

    Attributes:
        queries: How many they are.
        metrics: The mean of each metric by name, such as `recall@10`.
        p50_ms: The median time of a search, in milliseconds.
        p95_ms: The 95th percentile, likewise.
    """

    queries: int
    metrics: Mapping[str, Estimate] = field(hash=False)
    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class SettingReport:
    """How a setting did.

    Attributes:
        options: What `search` was given beside namespace, query and limit.
        overall: All queries together.
        categories: Those of each category, in the order in which they first come; empty where no case has one.
        outcomes: Every query, in the order of the cases.
    """

    options: Mapping[str, Any] = field(hash=False)
    overall: Summary
    categories: Mapping[str, Summary] = field(hash=False)
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A query for which two settings differ.

    Attributes:
        case: What was asked.
        a: The metric under the first.
        b: The metric under the second.
    """

    case: Case
    a: float
    b: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two settings, query by query. Differences are `a` minus `b`: above 0 the first is better.

    Attributes:
        a: The name of the first setting.
        b: The name of the second.
        metric: What is compared.
        queries: How many there are.
        difference: The mean difference.
        wins: Queries that `a` answers better.
        ties: Queries that both answer equally well.
        losses: Queries that `b` answers better.
        p_value: How often chance alone would give a mean difference as large, either way (permutation test, paired).
        changes: The queries that differ, the largest differences first.
    """

    a: str
    b: str
    metric: str
    queries: int
    difference: Estimate
    wins: int
    ties: int
    losses: int
    p_value: float
    changes: tuple[Change, ...]

    @property
    def verdict(self) -> str:
        """The mean difference, how sure it is, and how many queries differ, in two lines."""
        mean, low, high = self.difference.mean, self.difference.low, self.difference.high
        p_value = f"p < {_SMALLEST_P}" if self.p_value < _SMALLEST_P else f"p = {self.p_value:.4f}"
        return (
            f"{self.a} against {self.b}, {self.metric}: {mean:+.3f} (95 %: {low:+.3f} to {high:+.3f}), {p_value}\n"
            f"of {self.queries:,} queries {self.wins:,} better, {self.ties:,} equal, {self.losses:,} worse"
        )

    def __str__(self) -> str:
        shown = self.changes[:_SHOWN_CHANGES]
        lines = [self.verdict, *(f"  {change.b:.2f} -> {change.a:.2f}  {_to_line(change.case)}" for change in shown)]
        if len(self.changes) > len(shown):
            lines.append(f"  and {len(self.changes) - len(shown):,} more")
        return "\n".join(lines)


def _to_line(case: Case) -> str:
    """Name a case in one line."""
    return f"{'/'.join(case.namespace) or '()'}: {' '.join(case.query.split())}"
