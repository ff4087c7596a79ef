"""Reports as JSON objects, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from memstore.evaluation.cases import Case
from memstore.evaluation.outcomes import Estimate, Found, Outcome, SettingReport, Summary


def to_record(setting: SettingReport) -> dict[str, Any]:
    """Make a JSON object of what a setting did. An option that JSON cannot hold is spelled as Python shows it."""
    return {
        "options": json.loads(json.dumps(dict(setting.options), default=repr)),
        "overall": _to_summary_record(setting.overall),
        "categories": {name: _to_summary_record(summary) for name, summary in setting.categories.items()},
        "queries": [_to_outcome_record(outcome) for outcome in setting.outcomes],
    }


def from_record(record: Mapping[str, Any]) -> SettingReport:
    """Read what `to_record` made."""
    return SettingReport(
        record["options"],
        _from_summary_record(record["overall"]),
        {name: _from_summary_record(summary) for name, summary in record["categories"].items()},
        tuple(_from_outcome_record(outcome) for outcome in record["queries"]),
    )


def _to_summary_record(summary: Summary) -> dict[str, Any]:
    metrics = {name: {"mean": one.mean, "low": one.low, "high": one.high} for name, one in summary.metrics.items()}
    return {"queries": summary.queries, "p50_ms": summary.p50_ms, "p95_ms": summary.p95_ms, "metrics": metrics}


def _from_summary_record(record: Mapping[str, Any]) -> Summary:
    metrics = {name: Estimate(one["mean"], one["low"], one["high"]) for name, one in record["metrics"].items()}
    return Summary(record["queries"], metrics, record["p50_ms"], record["p95_ms"])


def _to_outcome_record(outcome: Outcome) -> dict[str, Any]:
    case = outcome.case
    return {
        "query": case.query,
        "namespace": list(case.namespace),
        "relevant": dict(case.grades),
        "category": case.category,
        "found": [{"namespace": list(one.namespace), "key": one.key, "score": one.score} for one in outcome.found],
        "metrics": dict(outcome.metrics),
        "seconds": outcome.seconds,
    }


def _from_outcome_record(record: Mapping[str, Any]) -> Outcome:
    case = Case(record["query"], tuple(record["namespace"]), record["relevant"], record["category"])
    found = tuple(Found(tuple(one["namespace"]), one["key"], one["score"]) for one in record["found"])
    return Outcome(case, found, record["metrics"], record["seconds"])
