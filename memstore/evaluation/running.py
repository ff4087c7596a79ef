"""Asking a store every case under each setting."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from langgraph.store.base import BaseStore

from memstore.errors import InvalidArgument
from memstore.evaluation.cases import Case
from memstore.evaluation.checks import check_number, check_store, check_text
from memstore.evaluation.extras import need
from memstore.evaluation.filling import following
from memstore.evaluation.measures import measure, to_cutoffs
from memstore.evaluation.outcomes import Found, Outcome
from memstore.evaluation.report import Report
from memstore.evaluation.summarizing import to_setting_report

_RESAMPLES: Final = 2_000
"""Draws for an interval: from seed to seed its ends move by a fiftieth of its length (standard deviation)."""
_OURS: Final = ("query", "limit", "offset", "namespace_prefix")
"""What `evaluate` itself tells a search."""
_UNUSED: Final[dict[str, Any]] = {"refresh_ttl": False}
"""Being measured does not make a memory live longer."""
_DEFAULT: Final = "default"
_Answers: TypeAlias = list[tuple[tuple[Found, ...], float]]
"""What was found for each case, and in how many seconds."""


def evaluate(
    store: BaseStore,
    cases: Iterable[Case],
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    k: int | Iterable[int] = 10,
    *,
    progress: bool = True,
    seed: int = 0,
    resamples: int = _RESAMPLES,
) -> Report:
    """Measure how well a store's search finds what each case names.

    Every case is searched once under each setting; with several, once untimed before: where a store keeps the vectors
    of recent queries, the first setting alone would pay for the embedding.

    Args:
        store: Any store of LangGraph's, filled and with an index.
        cases: What to ask; see `load_cases`.
        settings: By name, what `store.search` is given beside namespace, query and limit, such as
            `{"hybrid": {"mode": "hybrid"}}`; `{"default": {}}` where it is None.
        k: How many of the first items count, or several such numbers.
        progress: Whether a bar is shown, on a terminal or in a notebook.
        seed: By which queries are drawn for the intervals.
        resamples: How many times they are drawn.

    Raises:
        InvalidArgument: Something given cannot be used, or there are no cases.
        MissingExtra: ir-measures, scipy or rich is not installed.
        MemStoreError: A search failed, in a MemStore.
    """
    check_store(store)
    asked = _check_cases(cases)
    cutoffs = to_cutoffs(k)
    options = _check_settings(store, {_DEFAULT: {}} if settings is None else settings)
    check_number("seed", seed, 0)
    check_number("resamples", resamples, 1)
    for module, package in (("ir_measures", "ir-measures"), ("scipy.stats", "scipy")):
        need(module, package)  # rather than after the searches
    given = _ask(store, asked, options, cutoffs[-1], progress)
    reports = {
        name: to_setting_report(options[name], _to_outcomes(asked, answers, cutoffs), resamples, seed)
        for name, answers in given.items()
    }
    return Report(cutoffs, reports, len(options) > 1, resamples, seed)


def _ask(
    store: BaseStore, cases: tuple[Case, ...], settings: Mapping[str, dict[str, Any]], limit: int, progress: bool
) -> dict[str, _Answers]:
    """Search every case under each setting, the first place going round: what disturbs one disturbs them alike."""
    given: dict[str, _Answers] = {name: [] for name in settings}
    names = list(settings)
    with following(cases, "cases searched", progress) as followed:
        for at, case in enumerate(followed):
            if len(names) > 1:
                store.search(case.namespace, query=case.query, limit=1, **_UNUSED)
            first = at % len(names)
            for name in (*names[first:], *names[:first]):
                start = time.perf_counter()
                items = store.search(case.namespace, query=case.query, limit=limit, **(_UNUSED | settings[name]))
                seconds = time.perf_counter() - start
                given[name].append((tuple(map(_to_found, items)), seconds))
    return given


def _to_outcomes(cases: tuple[Case, ...], answers: _Answers, cutoffs: tuple[int, ...]) -> list[Outcome]:
    measured = measure(cases, [[item.key for item in found] for found, _ in answers], cutoffs)
    return [
        Outcome(case, found, metrics, seconds)
        for case, (found, seconds), metrics in zip(cases, answers, measured, strict=True)
    ]


def _to_found(item: Any) -> Found:
    return Found(tuple(item.namespace), item.key, None if item.score is None else float(item.score))


def _check_cases(cases: Any) -> tuple[Case, ...]:
    if not isinstance(cases, Iterable):
        raise InvalidArgument(f"cases are a list of Case, got {type(cases).__name__}")
    checked = tuple(cases)
    for case in checked:
        if not isinstance(case, Case):
            raise InvalidArgument(f"cases are a list of Case, got {type(case).__name__} in it")
    if not checked:
        raise InvalidArgument("there are no cases; nothing can be measured")
    return checked


def _check_settings(store: BaseStore, settings: Any) -> dict[str, dict[str, Any]]:
    """Check that every setting has a name, and options that the store's search takes."""
    if not isinstance(settings, Mapping) or not settings:
        raise InvalidArgument(
            'settings are a mapping of names to options of search, such as {"hybrid": {"mode": "hybrid"}}'
        )
    takes = inspect.signature(store.search)
    checked: dict[str, dict[str, Any]] = {}
    for name, options in settings.items():
        check_text("the name of a setting", name)
        if not isinstance(options, Mapping) or not all(isinstance(option, str) for option in options):
            raise InvalidArgument(f"the options of setting {name!r} are a mapping of names to values")
        if ours := [option for option in _OURS if option in options]:
            raise InvalidArgument(f"setting {name!r} has {ours[0]!r}, which comes from the cases and from k")
        try:
            takes.bind((), query="", limit=1, **options)
        except TypeError as error:
            own = [taken for taken in takes.parameters if taken not in _OURS]
            raise InvalidArgument(
                f"setting {name!r}: search of {type(store).__name__} takes {', '.join(own)}, got {', '.join(options)}"
            ) from error
        checked[name] = dict(options)
    return checked
