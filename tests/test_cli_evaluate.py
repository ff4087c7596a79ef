"""`memstore evaluate` as a user types it: what it prints, writes and refuses, and how it ends."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from memstore import MemStore
from memstore.cli import main
from memstore.evaluation import Report, load_memories
from tests.test_evaluation_files import LOCOMO

ROOT = Path(__file__).parent.parent
MEMORIES = [
    {"namespace": ["m", "ada"], "key": "food", "value": {"text": "Ada is allergic to peanuts", "kind": "health"}},
    {"namespace": ["m", "ada"], "key": "music", "value": {"text": "Ada plays the cello", "kind": "hobby"}},
    {"namespace": ["m", "ben"], "key": "food", "value": {"text": "Ben eats no meat", "kind": "health"}},
    {"namespace": ["other"], "key": "x", "value": {"text": "peanuts, cello, meat"}},
]
CASES = [
    {"query": "peanuts", "namespace": ["m", "ada"], "relevant": ["food"], "category": "health"},
    {"query": "cello", "namespace": ["m", "ada"], "relevant": ["music"], "category": "hobby"},
    {"query": "meat", "namespace": ["m", "ben"], "relevant": ["food"], "category": "health"},
]
WORDS = ("--mode", "lexical")
HEALTH = ("--setting", 'health={"mode": "lexical", "filter": {"kind": "health"}}')


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a file of memories and one of cases, and no store named by the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MEMSTORE_URL", raising=False)
    for name, lines in (("memories.jsonl", MEMORIES), ("cases.jsonl", CASES)):
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "locomo.json").write_text(json.dumps(LOCOMO))
    return tmp_path


@pytest.fixture
def filled(folder: Path) -> Path:
    """Give a database that holds the memories, and ranks by words."""
    path = folder / "filled.db"
    with MemStore.open(path, index={"mode": "lexical", "fields": ["text"]}) as store:
        store.batch(load_memories(folder / "memories.jsonl"))
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run it; give the exit code and what it wrote."""
    code = main(["evaluate", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def refuse(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    """Run what cannot be done; give the one line that says so."""
    ended, out, err = run(capsys, *arguments)
    assert ended == code
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("memstore: ")
    return line


def read(name: str) -> Report:
    """Read a report from the test's folder."""
    return Report.read_json(name)


def test_memories_from_a_file_are_asked(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """A temporary store is filled, measured under every setting, compared, written and drawn, and then gone."""
    before = set(folder.iterdir())
    code, out, err = run(
        capsys, "--memories", "memories.jsonl", "--cases", "cases.jsonl", *WORDS, *HEALTH, "--k", "1", "--k", "3",
        "--json", "report.json", "--plot", "report.png",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert out.startswith("3 cases, memories.jsonl\n\ncategory  setting")
    report = read("report.json")
    assert report.k == (1, 3)
    assert report.settings["lexical"].overall.metrics["recall@1"].mean == 1.0
    assert report.settings["health"].overall.metrics["recall@1"].mean == pytest.approx(2 / 3)
    assert str(report) in out
    assert report.compare("health", "lexical").verdict in out
    assert set(folder.iterdir()) - before == {folder / "report.json", folder / "report.png"}
    assert (folder / "report.png").stat().st_size > 10_000


def test_a_store_is_named_by_path_or_by_the_environment(
    capsys: pytest.CaptureFixture[str], filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked as it is; memories that are named in the command go before the environment."""
    _, by_path, _ = run(capsys, str(filled), "--cases", "cases.jsonl", *WORDS)
    assert "filled.db" in by_path
    assert run(capsys, f"sqlite:///{filled}", "--cases", "cases.jsonl", *WORDS)[0] == 0
    monkeypatch.setenv("MEMSTORE_URL", str(filled))
    assert run(capsys, "--cases", "cases.jsonl", *WORDS)[1].startswith(by_path.partition("\n")[0])
    assert "3 cases, memories.jsonl" in run(capsys, "--cases", "cases.jsonl", "--memories", "memories.jsonl", *WORDS)[1]


def test_conversations_bring_their_memories(capsys: pytest.CaptureFixture[str]) -> None:
    """A file in the layout of LoCoMo is enough; a category and a number choose among its questions."""
    code, out, _ = run(capsys, "--cases", "locomo.json", *WORDS, "--json", "report.json")
    assert code == 0
    assert out.startswith("2 cases, locomo.json\n")
    assert list(read("report.json").settings["lexical"].categories) == ["one turn", "time"]
    run(capsys, "--cases", "locomo.json", *WORDS, "--json", "report.json", "--category", "time")
    assert [one.case.query for one in read("report.json").settings["lexical"].outcomes] == ["When?"]
    run(capsys, "--cases", "locomo.json", *WORDS, "--json", "report.json", "--limit-cases", "1")
    assert [one.case.category for one in read("report.json").settings["lexical"].outcomes] == ["one turn"]


def test_what_no_case_may_see_is_not_put(capsys: pytest.CaptureFixture[str]) -> None:
    """Memories outside of the cases' namespaces are left out, those below them are not."""
    wide = {"query": "peanuts meat", "namespace": ["m"], "relevant": ["food"]}
    Path("wide.jsonl").write_text(json.dumps(wide))
    run(capsys, "--memories", "memories.jsonl", "--cases", "wide.jsonl", *WORDS, "--json", "report.json")
    (outcome,) = read("report.json").settings["lexical"].outcomes
    assert {found.namespace for found in outcome.found} == {("m", "ada"), ("m", "ben")}


def test_two_settings_are_compared_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """With the queries that changed most; the two may stand in either order."""
    arguments = ("--memories", "memories.jsonl", "--cases", "cases.jsonl", *WORDS, *HEALTH)
    _, out, _ = run(capsys, *arguments, "--compare", "lexical", "health")
    assert "lexical against health, recall@10: +0.333" in out
    assert "of 3 queries 1 better, 2 equal, 0 worse" in out
    assert "  0.00 -> 1.00  m/ada: cello" in out
    assert "health against lexical, recall@10: -0.333" in run(capsys, *arguments)[1]


@pytest.mark.model
def test_a_model_ranks_where_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The three modes are measured, of the field that is asked for."""
    arguments = ("--memories", "memories.jsonl", "--cases", "cases.jsonl", "--json", "report.json")
    assert run(capsys, *arguments)[0] == 0
    report = read("report.json")
    assert list(report.settings) == ["hybrid", "semantic", "lexical"]
    assert report.settings["hybrid"].overall.metrics["hit@10"].mean == 1.0
    assert run(capsys, *arguments, "--field", "kind", "--mode", "lexical", "--model", "all-MiniLM-L6-v2")[0] == 0
    assert read("report.json").settings["lexical"].overall.metrics["hit@10"].mean == 0.0


REFUSED = {
    "no cases": ((), "Missing option '--cases'"),
    "unknown option": (("--cases", "cases.jsonl", "--nope"), "No such option"),
    "file": (("--cases", "none.jsonl"), "none.jsonl cannot be read: No such file or directory"),
    "no store": (("--cases", "cases.jsonl"), "which store? Give the path or URL of one, set MEMSTORE_URL, or"),
    "no database": (("none.db", "--cases", "cases.jsonl"), "there is no database 'none.db'; give the path of one"),
    "two stores": (("filled.db", "--memories", "x", "--cases", "cases.jsonl"), "a store or --memories, not both"),
    "no number": (("--cases", "cases.jsonl", "--k", "ten"), "Invalid value for '--k': "),
    "k": (("--cases", "locomo.json", "--k", "0", *WORDS), "k is a whole number from 1 on"),
    "limit": (("--cases", "locomo.json", "--limit-cases", "0"), "--limit-cases is a whole number from 1 on"),
    "mode": (("--cases", "locomo.json", "--mode", "fuzzy"), "mode is one of 'hybrid', 'semantic', 'lexical'"),
    "category": (("--cases", "locomo.json", "--category", "x"), "no category 'x'; there are 'one turn', 'time'"),
    "setting": (("--cases", "locomo.json", "--setting", "words=lexical"), "--setting is NAME=JSON with a JSON object"),
    "list": (("--cases", "locomo.json", "--setting", "words=[]"), "--setting is NAME=JSON with a JSON object"),
    "no name": (("--cases", "locomo.json", "--setting", "={}"), "--setting is NAME=JSON with a JSON object"),
    "twice": (("--cases", "locomo.json", *WORDS, "--setting", "lexical={}"), "two settings have the same name"),
    "option": (
        ("--cases", "locomo.json", "--setting", 'x={"mode": "lexical", "boost": 2}'),
        "setting 'x': search of MemStore takes filter,",
    ),
    "compare": (("--cases", "locomo.json", *WORDS, "--compare", "lexical", "x"), "--compare names no setting 'x'"),
    "folder": (("--cases", "locomo.json", "--json", "none/report.json"), "there is no folder 'none' to write"),
    "picture": (("--cases", "locomo.json", "--plot", "report.doc"), "got the suffix '.doc'"),
    "other memories": (
        ("--cases", "cases.jsonl", "--memories", "locomo.json", *WORDS),
        "no memory of locomo.json lies in a namespace of the cases; do the files belong together?",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_a_mistake_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    """Exit code 2, no traceback, nothing written."""
    before = set(folder.iterdir())
    assert message in refuse(capsys, *arguments)
    assert set(folder.iterdir()) == before


def test_a_store_that_cannot_be_searched_is_refused(capsys: pytest.CaptureFixture[str], filled: Path) -> None:
    """One without an index, an empty one, and settings that a store has of its own."""
    with MemStore.open("plain.db") as store:
        store.put(("m",), "k", {"text": "t"})
    assert "the store has no index" in refuse(capsys, "plain.db", "--cases", "cases.jsonl")
    with MemStore.open("empty.db", index={"mode": "lexical"}):
        pass
    assert "the store holds no items" in refuse(capsys, "empty.db", "--cases", "cases.jsonl", *WORDS)
    own = refuse(capsys, str(filled), "--cases", "cases.jsonl", "--field", "text")
    assert "--model and --field are for --memories" in own


def test_what_fails_ends_with_another_code(capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is no database was understood and could not be used."""
    Path("broken.db").write_text("no database\n" * 1000)
    assert "check the path" in refuse(capsys, "broken.db", "--cases", "cases.jsonl", code=1)


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("postgresql://ada:hunter2@127.0.0.1:1/db", 1),
        ("postgresql://ada:hunter2@127.0.0.1:x/db", 1),
        ("mysql://ada:hunter2@127.0.0.1/db", 2),
    ],
)
def test_passwords_are_never_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, url: str, code: int
) -> None:
    """Neither those of a server that is not there, nor those of a URL that cannot be read, nor in the help."""
    assert "hunter2" not in refuse(capsys, url, "--cases", "cases.jsonl", code=code)
    monkeypatch.setenv("MEMSTORE_URL", url)
    assert "hunter2" not in refuse(capsys, "--cases", "cases.jsonl", code=code)
    assert "hunter2" not in run(capsys, "--help")[1]


def test_a_server_is_asked(capsys: pytest.CaptureFixture[str], url: str) -> None:
    """A store on Postgres, named by its URL."""
    with MemStore.open(url, index={"mode": "lexical", "fields": ["text"]}) as store:
        store.batch(load_memories("memories.jsonl"))
        code, out, _ = run(capsys, url, "--cases", "cases.jsonl", *WORDS, "--json", "report.json")
        store.batch([op._replace(value=None) for op in load_memories("memories.jsonl")])
    assert code == 0
    assert "postgresql://" in out
    assert read("report.json").settings["lexical"].overall.metrics["recall@10"].mean == 1.0


def test_the_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """Of every kind of store; each is a line that can be copied."""
    code, out, _ = run(capsys, "--help")
    assert code == 0
    examples = re.findall(r"^ +(memstore evaluate .*)$", out, re.MULTILINE)
    assert len(examples) == 5
    assert any("postgresql://" in example for example in examples)
    assert all("--cases" in example for example in examples)


def test_the_command_says_what_it_can(capsys: pytest.CaptureFixture[str]) -> None:
    """Its version, its commands where none is named, and which are unknown."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"memstore {version('memstore')}\n"
    assert main([]) == 0
    assert "evaluate  Measure how well a store's search finds what it should." in capsys.readouterr().out
    assert main(["nope"]) == 2
    assert capsys.readouterr().err == "memstore: No such command 'nope'.\n"


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_a_missing_package_is_one_clear_line(package: str) -> None:
    """The line names the extra that brings it."""
    code = f"import sys\nsys.modules[{package!r}] = None\nfrom memstore.cli import main\nsys.exit(main(['--version']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("memstore: A package is missing: ")
    assert "pip install 'memstore[eval]'" in line
