"""Evaluation: metrics worked out by hand, on rankings that are written down and on real stores."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from math import log2, sin
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore

from memstore import MemStore
from memstore.errors import InvalidArgument
from memstore.evaluation import Case, Estimate, Report, evaluate, fill
from memstore.evaluation.intervals import to_intervals, to_p_value, to_percentiles
from tests.ranked import RankedStore, Ranking
from tests.support import WordEmbeddings

ROOT = Path(__file__).parent.parent
HERE: tuple[str, ...] = ("n",)


def measure(relevant: Any, ranking: Ranking, k: Any = 10) -> dict[str, float]:
    """Give the metrics of one ranking."""
    report = evaluate(RankedStore({(HERE, "q", ""): ranking}), [Case("q", HERE, relevant)], k=k, progress=False)
    (outcome,) = report.settings["default"].outcomes
    return dict(outcome.metrics)


def compare_orders(rankings: Mapping[str, tuple[Ranking, Ranking]]) -> Report:
    """Evaluate two settings, `good` and `bad`, on queries whose one answer is `a`."""
    laid = {
        (HERE, query, order): ranking
        for query, pair in rankings.items()
        for order, ranking in zip(("good", "bad"), pair, strict=True)
    }
    cases = [Case(query, HERE, {"a"}) for query in rankings]
    settings = {"good": {"order": "good"}, "bad": {"order": "bad"}}
    return evaluate(RankedStore(laid), cases, settings, k=3, progress=False)


# metrics -----------------------------------------------------------------------------------------------------------


def test_metrics_are_those_of_the_books() -> None:
    """Two answers at ranks 2 and 4: recall counts them, hit sees one, MRR the first, nDCG discounts both."""
    metrics = measure({"a", "b"}, ["x", "a", "y", "b", "z"], k=(1, 2, 5))
    assert [metrics[f"recall@{k}"] for k in (1, 2, 5)] == [0.0, 0.5, 1.0]
    assert [metrics[f"hit@{k}"] for k in (1, 2, 5)] == [0.0, 1.0, 1.0]
    assert [metrics[f"mrr@{k}"] for k in (1, 2, 5)] == [0.0, 0.5, 0.5]
    best = 1 + 1 / log2(3)
    assert metrics["ndcg@1"] == 0.0
    assert metrics["ndcg@2"] == pytest.approx((1 / log2(3)) / best)
    assert metrics["ndcg@5"] == pytest.approx((1 / log2(3) + 1 / log2(5)) / best)


def test_grades_weigh_in_ndcg_alone() -> None:
    """The better answer second costs nDCG, and nothing else; a grade of 0 is no answer."""
    metrics = measure({"a": 3, "b": 1, "c": 0}, ["b", "a", "c"])
    assert metrics["ndcg@10"] == pytest.approx((1 + 3 / log2(3)) / (3 + 1 / log2(3)))
    assert metrics["recall@10"] == metrics["mrr@10"] == 1.0
    assert measure({"a": 1, "c": 0}, ["c"])["hit@10"] == 0.0


@pytest.mark.parametrize("score", [0.5, 0, None, -1.0])
@pytest.mark.parametrize("ranking", [["a", "m", "z"], ["z", "m", "a"]])
def test_ties_keep_the_store_s_order(score: Any, ranking: list[str]) -> None:
    """Scores that are equal, missing or below 0 say nothing about the order: its ranks are what is measured."""
    store = RankedStore({(HERE, "q", ""): ranking}, score)
    for rank, key in enumerate(ranking, start=1):
        report = evaluate(store, [Case("q", HERE, [key])], progress=False)
        assert report.settings["default"].overall.metrics["mrr@10"].mean == 1 / rank
        assert [found.score for found in report.settings["default"].outcomes[0].found] == [score] * 3


def test_nothing_found_is_measured_as_nothing() -> None:
    """A query without results counts with zeros, and is not left out of the mean."""
    store = RankedStore({(HERE, "q", ""): ["a"]})
    report = evaluate(store, [Case("q", HERE, ["a"]), Case("other", HERE, ["a"])], progress=False)
    assert {name: one.mean for name, one in report.settings["default"].overall.metrics.items()} == dict.fromkeys(
        ("recall@10", "hit@10", "mrr@10", "ndcg@10"), 0.5
    )


def test_a_key_is_found_once() -> None:
    """Items that share a key below the prefix, or come twice, do not make up for one that is missing."""
    deeper: Ranking = [(("n", "1"), "a"), (("n", "2"), "a"), "b"]
    assert measure({"a", "b"}, deeper, k=2)["recall@2"] == 0.5
    assert measure({"a", "b"}, deeper, k=3)["recall@3"] == 1.0
    assert measure({"a", "b"}, ["a", "a"])["recall@10"] == 0.5
    assert measure({"a"}, ["a", "x", "a"])["mrr@10"] == 1.0


def test_equal_queries_in_other_namespaces_are_kept_apart() -> None:
    """Cases are told by their places: one query asked of two users has two outcomes, in the cases' order."""
    store = RankedStore({(("n", "ada"), "q", ""): ["a"], (("n", "ben"), "q", ""): ["x", "a"]})
    cases = [Case("q", ("n", "ben"), ["a"]), Case("q", ("n", "ada"), ["a"]), Case("q", ("n", "ben"), ["a"])]
    outcomes = evaluate(store, cases, progress=False).settings["default"].outcomes
    assert [outcome.metrics["mrr@10"] for outcome in outcomes] == [0.5, 1.0, 0.5]
    assert [outcome.case for outcome in outcomes] == cases


# searching ---------------------------------------------------------------------------------------------------------


def test_one_setting_searches_each_case_once() -> None:
    """The largest k is the limit; being measured refreshes nothing, and what else is given the setting names."""
    store = RankedStore({})
    report = evaluate(store, [Case("q", HERE, ["a"])], k=[5, 1, 5], progress=False)
    assert store.searches == [{"namespace": HERE, "query": "q", "limit": 5, "refresh_ttl": False}]
    assert report.k == (1, 5)
    assert not report.warmed


def test_several_settings_share_what_a_first_search_warms() -> None:
    """Each case is searched once untimed; then every setting goes first in turn."""
    store = RankedStore({})
    cases = [Case("p", HERE, ["a"]), Case("q", HERE, ["a"])]
    report = evaluate(store, cases, {"x": {"order": "x"}, "y": {"order": "y"}}, progress=False)
    asked = [(one["query"], one["limit"], one.get("order")) for one in store.searches]
    first = [("p", 1, None), ("p", 10, "x"), ("p", 10, "y")]
    assert asked == [*first, ("q", 1, None), ("q", 10, "y"), ("q", 10, "x")]
    assert report.warmed


def test_a_memstore_is_measured_in_its_modes() -> None:
    """Words find the name, and the answer's place is the one that the search gives."""
    index = {"embed": WordEmbeddings(), "fields": ["text"]}
    with MemStore.open(":memory:", index=index) as store:
        ops = [
            PutOp(("m", "ada"), "food", {"text": "allergic to peanuts"}),
            PutOp(("m", "ada"), "music", {"text": "plays the cello on tuesdays"}),
            PutOp(("m", "ben"), "food", {"text": "peanuts are my favourite snack"}),
        ]
        assert fill(store, ops, batch=2, progress=False) == 3
        assert len(store.search(("m",))) == 3
        cases = [Case("peanuts", ("m", "ada"), ["food"], "food"), Case("the cello", ("m",), ["music"], "music")]
        modes = {mode: {"mode": mode} for mode in ("hybrid", "semantic", "lexical")}
        report = evaluate(store, cases, modes, k=(1, 3), progress=False)
        found = store.search(("m", "ada"), query="peanuts", mode="semantic", limit=3)
    for setting in report.settings.values():
        assert setting.overall.metrics["mrr@1"].mean == 1.0
        assert 0 < setting.overall.p50_ms <= setting.overall.p95_ms
    outcome = report.settings["semantic"].outcomes[0]
    assert [(one.namespace, one.key, one.score) for one in outcome.found] == [
        (item.namespace, item.key, item.score) for item in found
    ]


def test_other_stores_are_measured_too() -> None:
    """LangGraph's own store, under its defaults and with an option that it takes."""
    store = InMemoryStore(index={"embed": WordEmbeddings(), "dims": 64, "fields": ["text"]})
    fill(store, [PutOp(HERE, word, {"text": word, "long": len(word) > 3}) for word in ("cello", "oboe", "sax")])
    settings = {"default": {}, "long": {"filter": {"long": True}}}
    report = evaluate(store, [Case("sax", HERE, ["sax"])], settings, k=3, progress=False)
    assert report.settings["default"].overall.metrics["mrr@3"].mean == 1.0
    assert report.settings["long"].overall.metrics["recall@3"].mean == 0.0


def test_the_bar_goes_to_the_error_stream(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody watches nothing is shown, and what is printed to a file stays clean."""
    evaluate(RankedStore({}), [Case("q", HERE, ["a"])])
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")  # by which rich takes its stream for a terminal
    fill(RankedStore({}), [PutOp(HERE, "k", {})] * 3, batch=1)
    evaluate(RankedStore({}), [Case("q", HERE, ["a"])])
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "memories put, in batches" in shown.err
    assert "cases searched" in shown.err
    assert "3/3" in shown.err


# summaries and comparisons -----------------------------------------------------------------------------------------


def test_categories_are_summed_up_apart() -> None:
    """In the order in which they first come; cases without one are a category where others have one."""
    store = RankedStore({(HERE, "q", ""): ["a"]})
    cases = [Case("q", HERE, ["a"], "time"), Case("p", HERE, ["a"]), Case("p", HERE, ["a"], "time")]
    setting = evaluate(store, cases, progress=False).settings["default"]
    means = {name: (one.queries, one.metrics["hit@10"].mean) for name, one in setting.categories.items()}
    assert list(means.items()) == [("time", (2, 0.5)), ("", (1, 0.0))]
    assert setting.overall.queries == 3
    bare = evaluate(store, [Case("q", HERE, ["a"])], progress=False)
    assert bare.settings["default"].categories == {}


def test_intervals_hold_the_mean_and_come_again() -> None:
    """An interval is that of its seed, narrower for more queries, and a metric's own whatever stands beside it."""
    few = [sin(number) for number in range(20)]
    mean, low, high = to_intervals({"few": few}, 500, 0)["few"]
    assert low < mean < high
    assert mean == pytest.approx(sum(few) / 20)
    assert to_intervals({"few": few}, 500, 0) == {"few": (mean, low, high)}
    assert to_intervals({"other": few[::-1], "few": few}, 500, 0)["few"] == pytest.approx((mean, low, high))
    assert to_intervals({"few": few}, 500, 1)["few"] != (mean, low, high)
    _, lower, higher = to_intervals({"many": few * 20}, 500, 0)["many"]
    assert low < lower < mean < higher < high


def test_intervals_of_few_queries() -> None:
    """One query has its own value; of two, drawing either twice reaches both ends; none leaves what values can be."""
    assert to_intervals({"m": [0.25]}, 100, 0)["m"] == (0.25, 0.25, 0.25)
    assert to_intervals({"m": [0.0, 1.0]}, 1000, 0)["m"] == (0.5, 0.0, 1.0)
    assert to_intervals({"m": [0.0, 0.0, 0.0, 1.0]}, 1000, 0)["m"] == (0.25, 0.0, 0.75)


def test_percentiles_are_milliseconds() -> None:
    """The median and the 95th percentile, interpolated."""
    assert to_percentiles([0.001, 0.002, 0.003]) == pytest.approx((2.0, 2.9))


def test_p_values_are_those_of_all_changes_of_sign() -> None:
    """Of four equal differences two of sixteen changes are as far from 0; ties and a single difference say nothing."""
    assert to_p_value([1.0, 1.0, 1.0, 1.0], 0) == pytest.approx(2 / 16)
    assert to_p_value([1.0, 0.0, 1.0, 1.0, 0.0, 1.0], 0) == pytest.approx(2 / 16)
    assert to_p_value([1.0, -1.0], 0) == 1.0
    assert to_p_value([1.0], 0) == to_p_value([0.0, 0.0], 0) == 1.0
    assert to_p_value([-0.5] * 200, 0) < 0.001


def test_a_comparison_says_which_is_better() -> None:
    """Above 0 the first is; turned round, the signs turn. What changed most comes first."""
    report = compare_orders(
        {"won": (["a"], ["x"]), "tied": (["a"], ["a"]), "half": (["a"], ["x", "a"]), "lost": (["x", "x2", "a"], ["a"])}
    )
    comparison = report.compare("good", "bad", "mrr@3")
    assert (comparison.wins, comparison.ties, comparison.losses) == (2, 1, 1)
    assert comparison.difference.mean == pytest.approx((1 + 0 + 0.5 - 2 / 3) / 4)
    assert comparison.difference.low < comparison.difference.mean < comparison.difference.high
    assert [change.case.query for change in comparison.changes] == ["won", "lost", "half"]
    assert (comparison.changes[2].a, comparison.changes[2].b) == (1.0, 0.5)
    turned = report.compare("bad", "good", "mrr@3")
    assert turned.difference.mean == -comparison.difference.mean
    assert (turned.wins, turned.losses) == (comparison.losses, comparison.wins)
    assert turned.p_value == comparison.p_value
    assert report.compare("good", "bad").metric == "recall@3"
    assert "of 4 queries 2 better, 1 equal, 1 worse" in str(comparison)
    assert "  0.00 -> 1.00  n: won" in str(comparison)


def test_a_comparison_draws_as_its_report_does() -> None:
    """As often, and by the same seed: written down, a report gives the same comparison again."""
    store = RankedStore({(HERE, f"q{number}", "good"): ["x"] * number + ["a"] for number in range(9)})
    cases = [Case(f"q{number}", HERE, ["a"]) for number in range(9)]
    settings = {"good": {"order": "good"}, "bad": {"order": "bad"}}
    report = evaluate(store, cases, settings, progress=False, seed=3, resamples=50)
    differences = [1 / (number + 1) for number in range(9)]
    drawn = Estimate(*to_intervals({"mrr@10": differences}, 50, 3)["mrr@10"])
    assert report.compare("good", "bad", "mrr@10").difference == drawn
    overall = report.settings["good"].overall.metrics["mrr@10"]
    assert (overall.low, overall.high) == pytest.approx((drawn.low, drawn.high))


def test_a_better_setting_is_told_from_chance() -> None:
    """Twenty queries of twenty are no chance; as many either way are."""
    better = compare_orders({f"q{number}": (["a"], ["x"]) for number in range(20)}).compare("good", "bad")
    assert better.p_value < 0.001
    assert better.difference.low > 0
    mixed = {f"q{number}": (["a"], ["x"]) if number % 2 else (["x"], ["a"]) for number in range(20)}
    assert compare_orders(mixed).compare("good", "bad").p_value == 1.0


# what is refused ---------------------------------------------------------------------------------------------------

CASES = [Case("q", HERE, ["a"])]
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "store": ({"store": {}}, "store is a BaseStore of LangGraph's, got dict"),
    "no cases": ({"cases": []}, "there are no cases"),
    "cases": ({"cases": 3}, "cases are a list of Case, got int"),
    "case": ({"cases": [("q", HERE, ["a"])]}, "cases are a list of Case, got tuple in it"),
    "k": ({"k": 0}, "k is a whole number from 1 on"),
    "a k": ({"k": (1, 0)}, "k is a whole number from 1 on"),
    "no k": ({"k": ()}, "k is a whole number from 1 on"),
    "k of another kind": ({"k": "10"}, "k is a whole number from 1 on"),
    "true for k": ({"k": True}, "k is a whole number from 1 on"),
    "settings": ({"settings": ["hybrid"]}, "settings are a mapping of names to options of search"),
    "no settings": ({"settings": {}}, "settings are a mapping"),
    "options": ({"settings": {"x": "hybrid"}}, "the options of setting 'x' are a mapping"),
    "name": ({"settings": {"": {}}}, "the name of a setting is text that is not empty"),
    "limit": ({"settings": {"x": {"limit": 5}}}, "setting 'x' has 'limit', which comes from the cases and from k"),
    "unknown option": (
        {"settings": {"x": {"mode": "hybrid"}}, "store": InMemoryStore()},
        "setting 'x': search of InMemoryStore takes filter, refresh_ttl, got mode",
    ),
    "seed": ({"seed": -1}, "seed is a whole number from 0 on"),
    "resamples": ({"resamples": 0}, "resamples is a whole number from 1 on"),
}


@pytest.mark.parametrize(("wrong", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_evaluated_is_refused(wrong: dict[str, Any], message: str) -> None:
    """Before anything is searched, with what was expected."""
    store = RankedStore({})
    with pytest.raises(InvalidArgument, match=message):
        evaluate(**{"store": store, "cases": CASES, "progress": False, **wrong})
    assert not store.searches


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("default", "other"), "no setting is named 'other'; there are 'default'"),
        (("default", "default", "recall@7"), "metric is one of 'recall@10', .* got 'recall@7'"),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments: Any, message: str) -> None:
    """With the names that there are."""
    report = evaluate(RankedStore({}), CASES, progress=False)
    with pytest.raises(InvalidArgument, match=message):
        report.compare(*arguments)


def test_a_batch_of_nothing_is_refused() -> None:
    """As is a store that is none."""
    with pytest.raises(InvalidArgument, match="batch is a whole number from 1 on"):
        fill(RankedStore({}), [], batch=0)
    nothing: Any = None
    with pytest.raises(InvalidArgument, match="store is a BaseStore"):
        fill(nothing, [])


# packages that may be missing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "package", "call"),
    [
        ("ir_measures", "ir-measures", "evaluate(store, cases, progress=False)"),
        ("scipy.stats", "scipy", "evaluate(store, cases, progress=False)"),
        ("rich.console", "rich", "evaluate(store, cases)"),
        ("matplotlib.backend_bases", "matplotlib", "evaluate(store, cases, progress=False).plot('x.png')"),
    ],
)
def test_a_missing_package_is_named_when_it_is_needed(module: str, package: str, call: str) -> None:
    """The module is imported without it; what needs it says which extra brings it."""
    code = (
        f"import sys\nsys.modules[{module!r}] = None\n"
        "from memstore import MissingExtra\n"
        "from memstore.evaluation import Case, evaluate\n"
        "from tests.ranked import RankedStore\n"
        "store, cases = RankedStore({}), [Case('q', ('n',), ['a'])]\n"
        f"try:\n    {call}\nexcept MissingExtra as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert f"needs {package}; install it with: pip install 'memstore[eval]'" in done.stdout


def test_importing_evaluation_loads_none_of_its_packages() -> None:
    """They take a second, and may be missing."""
    code = "import sys, memstore.evaluation\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(done.stdout.split())
    assert "memstore.evaluation" in loaded
    assert loaded.isdisjoint({"ir_measures", "scipy", "matplotlib", "rich", "typer"})
