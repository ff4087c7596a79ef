"""Reports: what is shown of them, drawn of them, and kept of them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from memstore.errors import InvalidArgument
from memstore.evaluation import Case, Report, evaluate
from tests.ranked import RankedStore

HERE: tuple[str, ...] = ("n",)
PNG = b"\x89PNG\r\n\x1a\n"
ODD = "[bold] <b> $x_1 & 日"
"""A name that markup, HTML or mathematics would read otherwise, in signs that no font of matplotlib's has."""


def make_report(category: str = "time", second: str = "second", **options: Any) -> Report:
    """Evaluate two settings on two categories."""
    store = RankedStore({(HERE, "p", ""): ["a", "b"], (HERE, "q", ""): ["x", "a"], (HERE, "p", "no"): ["x"]})
    cases = [Case("p", HERE, {"a": 2, "b": 1}, category), Case("q", HERE, ["a"])]
    return evaluate(store, cases, {"first": {}, second: {"order": "no", **options}}, k=(1, 5), progress=False)


# tables ------------------------------------------------------------------------------------------------------------


def test_a_report_prints_as_a_table() -> None:
    """All cases under each setting for each k, then each category at the largest, every mean with its interval."""
    head, ruler, *rows, _, note = str(make_report()).split("\n")
    assert head.split() == ["category", "setting", "k", "n", "recall", "hit", "mrr", "ndcg", "p50", "ms", "p95", "ms"]
    assert set(ruler) == {"-", " "}
    assert rows[2].split()[:7] == ["first", "5", "2", "1.000", "1.00-1.00", "1.000", "1.00-1.00"]
    assert rows[2].split()[7:11] == ["0.750", "0.50-1.00", "0.815", "0.63-1.00"]
    assert [row.split()[:3] for row in rows] == [
        ["all", "first", "1"],
        ["second", "1", "2"],
        ["first", "5", "2"],
        ["second", "5", "2"],
        ["time", "first", "5"],
        ["second", "5", "1"],
        ["(none)", "first", "5"],
        ["second", "5", "1"],
    ]
    assert note.endswith("times of searches after each query's first.")


def test_times_of_first_searches_are_named_so() -> None:
    """One setting alone pays for the embedding, which the note says."""
    report = evaluate(RankedStore({}), [Case("q", HERE, ["a"])], progress=False)
    assert str(report).endswith("times of each query's first search.")


def test_a_notebook_shows_names_as_they_are() -> None:
    """What a name holds is text, never HTML; each row of the table is there."""
    shown = make_report(category=ODD)._repr_html_()
    assert "[bold] &lt;b&gt; $x_1 &amp; 日" in shown
    assert "<b>" not in shown
    assert shown.count("<tr") == 1 + 8
    assert "<small>1.00-1.00</small>" in shown


@pytest.mark.parametrize("width", [80, 140])
def test_a_terminal_shows_the_whole_table(width: int) -> None:
    """Times are not cut off on a narrow one, no interval is broken, and no name is read as markup."""
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(make_report(category=ODD))
    shown = capture.get()
    assert "p95 ms" in shown
    assert "[bold]" in shown
    assert shown.count("1.00-1.00") == make_report(category=ODD)._repr_html_().count("1.00-1.00")


# charts ------------------------------------------------------------------------------------------------------------


def test_a_chart_is_a_picture(tmp_path: Path) -> None:
    """A PNG that is wide enough to be read, of any metric."""
    path = tmp_path / "report.png"
    make_report().plot(path, "ndcg@1")
    content = path.read_bytes()
    width, height = struct.unpack(">II", content[16:24])
    assert content.startswith(PNG)
    assert width > 800
    assert height > 500


def test_a_chart_names_settings_and_categories_as_they_are(tmp_path: Path) -> None:
    """A name is no mathematics, and is not left out for how it begins."""
    path = tmp_path / "report.svg"
    make_report(category="$x_$ time", second=r"_$\nosuch$").plot(path)
    drawn = path.read_text(encoding="utf-8")
    for text in ("first", r"_$\nosuch$", "all", "$x_$ time", "(none)", "(n = 1)", "recall@5, mean and 95 % interval"):
        assert f"<!-- {text} -->" in drawn


def test_a_chart_goes_where_it_can_be_written(tmp_path: Path) -> None:
    """A suffix that is no picture's, a metric that is none and a folder that is missing are said."""
    report = make_report()
    with pytest.raises(InvalidArgument, match=r"a chart is written as .*png.*, got the suffix '.doc'"):
        report.plot(tmp_path / "report.doc")
    with pytest.raises(InvalidArgument, match=r"metric is one of 'recall@1', .* got 'recall@3'"):
        report.plot(tmp_path / "report.png", "recall@3")
    with pytest.raises(InvalidArgument, match=r"cannot be written: No such file or directory"):
        report.plot(tmp_path / "missing" / "report.png")


# JSON --------------------------------------------------------------------------------------------------------------


def test_a_report_comes_back_from_its_file(tmp_path: Path) -> None:
    """All of it, to the last digit, so that it can be compared with a later one."""
    report = make_report(category=ODD, filter={"kind": ["x", None]})
    report.write_json(tmp_path / "report.json")
    again = Report.read_json(tmp_path / "report.json")
    assert again == report
    assert again.settings == report.settings
    assert str(again) == str(report)
    assert again.compare("first", "second") == report.compare("first", "second")


def test_a_file_holds_every_query() -> None:
    """With what it found, where, and how it was measured."""
    record = json.loads(json.dumps(make_report().to_dict()))
    assert record["k"] == [1, 5]
    assert record["settings"]["second"]["options"] == {"order": "no"}
    query, other = record["settings"]["first"]["queries"]
    assert query["relevant"] == {"a": 2, "b": 1}
    assert query["found"][1] == {"namespace": ["n"], "key": "b", "score": 0.5}
    assert query["metrics"]["recall@1"] == 0.5
    assert other["metrics"]["mrr@5"] == record["settings"]["first"]["categories"][""]["metrics"]["mrr@5"]["mean"] == 0.5


def test_an_option_that_json_cannot_hold_is_spelled() -> None:
    """A report is written whatever a setting was given."""
    options = make_report(rerank=Path("model")).to_dict()["settings"]["second"]["options"]
    assert options == {"order": "no", "rerank": repr(Path("model"))}


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"settings": [], "k": [1]}', '{"settings": {"x": {}}}'])
def test_another_file_is_no_report(tmp_path: Path, content: str) -> None:
    """It is named, with what was expected."""
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(InvalidArgument, match=r"other\.json holds no report as write_json writes it"):
        Report.read_json(path)


def test_files_that_cannot_be_reached_are_named(tmp_path: Path) -> None:
    """One that is not there, and a folder that is not."""
    with pytest.raises(InvalidArgument, match=r"none\.json cannot be read: No such file or directory"):
        Report.read_json(tmp_path / "none.json")
    with pytest.raises(InvalidArgument, match=r"report\.json cannot be written: No such file or directory"):
        make_report().write_json(tmp_path / "none" / "report.json")
