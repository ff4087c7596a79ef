"""From outcomes to summaries and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memstore.evaluation.intervals import to_intervals, to_p_value, to_percentiles
from memstore.evaluation.outcomes import Change, Comparison, Estimate, Outcome, SettingReport, Summary


def to_setting_report(
    options: Mapping[str, Any], outcomes: Sequence[Outcome], resamples: int, seed: int
) -> SettingReport:
    """Sum up what became of a setting's queries: all of them, and those of each category."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.case.category, []).append(outcome)
    named = {} if groups.keys() == {""} else groups
    return SettingReport(
        options,
        summarize(outcomes, resamples, seed),
        {category: summarize(group, resamples, seed) for category, group in named.items()},
        tuple(outcomes),
    )


def summarize(outcomes: Sequence[Outcome], resamples: int, seed: int) -> Summary:
    """Sum up some queries."""
    values = {name: [outcome.metrics[name] for outcome in outcomes] for name in outcomes[0].metrics}
    estimates = {name: Estimate(*numbers) for name, numbers in to_intervals(values, resamples, seed).items()}
    return Summary(len(outcomes), estimates, *to_percentiles([outcome.seconds for outcome in outcomes]))


def compare(
    a: tuple[str, SettingReport], b: tuple[str, SettingReport], metric: str, resamples: int, seed: int
) -> Comparison:
    """Compare two settings, each given with its name, query by query."""
    pairs = [
        Change(one.case, one.metrics[metric], other.metrics[metric])
        for one, other in zip(a[1].outcomes, b[1].outcomes, strict=True)
    ]
    differences = [pair.a - pair.b for pair in pairs]
    changed = sorted((pair for pair in pairs if pair.a != pair.b), key=lambda pair: -abs(pair.a - pair.b))
    wins = sum(difference > 0 for difference in differences)
    losses = sum(difference < 0 for difference in differences)
    return Comparison(
        a=a[0],
        b=b[0],
        metric=metric,
        queries=len(pairs),
        difference=Estimate(*to_intervals({metric: differences}, resamples, seed)[metric]),
        wins=wins,
        ties=len(pairs) - wins - losses,
        losses=losses,
        p_value=to_p_value(differences, seed),
        changes=tuple(changed),
    )
