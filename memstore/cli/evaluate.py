"""`memstore evaluate`: how well a store's search finds what the cases of a file name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final, get_args

import typer
from langgraph.store.base import PutOp
from rich.console import Console

from memstore.config import Mode, check_mode
from memstore.errors import InvalidArgument
from memstore.evaluation import Case, Report, fill, load_cases, load_memories
from memstore.evaluation import evaluate as measure
from memstore.evaluation.charts import check_format
from memstore.evaluation.files import holds_conversations
from memstore.models import MINILM
from memstore.store import MemStore

_VARIABLE: Final = "MEMSTORE_URL"
_FIELD: Final = "text"
_K: Final = 10
EPILOG: Final = """\b
Examples:
  memstore evaluate memories.db --cases cases.jsonl
  memstore evaluate postgresql://me@host/db --cases cases.jsonl --k 1 --k 5 --k 10
  memstore evaluate --memories memories.jsonl --cases cases.jsonl --mode hybrid --mode semantic
  memstore evaluate --cases locomo.json --limit-cases 100 --json report.json --plot report.png
  memstore evaluate memories.db --cases cases.jsonl --mode hybrid --setting 'health={"filter": {"kind": "health"}}'

\b
A line of cases:     {"query": "What must Ada not eat?", "namespace": ["memories", "ada"], "relevant": ["food"]}
A line of memories:  {"namespace": ["memories", "ada"], "key": "food", "value": {"text": "Ada is allergic to nuts."}}
"""

# What the command takes -------------------------------------------------------------------------------------------

_Url = Annotated[
    str | None,
    typer.Argument(
        metavar="URL",
        help=f"The store: a path or a postgresql:// URL. Left out, that of {_VARIABLE}.",
        show_default=False,
    ),
]
_Cases = Annotated[
    Path, typer.Option("--cases", metavar="FILE", help="What to ask: JSON lines, or JSON in the layout of LoCoMo.")
]
_Memories = Annotated[
    Path | None,
    typer.Option(
        "--memories",
        metavar="FILE",
        help="What to fill a temporary store with, instead of a URL: JSON lines, or JSON in the layout of LoCoMo; "
        "without either, the cases' own file of the latter kind.",
    ),
]
_Model = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help=f"What embeds a temporary store; {MINILM} unless given.")
]
_Fields = Annotated[
    list[str] | None,
    typer.Option(
        "--field", metavar="PATH", help=f"What a temporary store indexes of a value; {_FIELD} unless given. Repeatable."
    ),
]
_Modes = Annotated[
    list[str] | None,
    typer.Option(
        "--mode",
        metavar="MODE",
        help="A setting to measure: hybrid, semantic or lexical; all three unless a mode or a setting is given. "
        "Repeatable.",
    ),
]
_Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--setting", metavar="NAME=JSON", help="A setting to measure: any options of a search, by name. Repeatable."
    ),
]
_Cutoffs = Annotated[
    list[int] | None,
    typer.Option("--k", metavar="N", help=f"How many of the first items count; {_K} unless given. Repeatable."),
]
_Categories = Annotated[
    list[str] | None, typer.Option("--category", metavar="NAME", help="Only cases of this category. Repeatable.")
]
_Compare = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--compare",
        metavar="A B",
        help="Compare setting A with B and show what changed most; every setting with the first unless given.",
    ),
]
_Json = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the report there, every query in it.")
]
_Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw the report there, as .png, .svg, .pdf and so on.")
]
_LimitCases = Annotated[int | None, typer.Option("--limit-cases", metavar="N", help="Only the first N cases.")]


def evaluate(
    cases: _Cases,
    url: _Url = None,
    *,
    memories: _Memories = None,
    model: _Model = None,
    field: _Fields = None,
    mode: _Modes = None,
    setting: _Settings = None,
    k: _Cutoffs = None,
    category: _Categories = None,
    compare: _Compare = None,
    json_file: _Json = None,
    plot: _Plot = None,
    limit_cases: _LimitCases = None,
) -> None:
    """Measure how well a store's search finds what it should.

    Recall, hit, MRR and nDCG within the first k, with 95 % intervals, and times, for every setting and category.
    """
    settings = _to_settings(mode, setting)
    _check_names(compare, settings)
    _check_targets(json_file, plot)
    chosen = _choose_cases(cases, category, limit_cases)
    location, source = _choose_store(url, memories, cases)
    with (
        _open_filled(source, chosen, _to_index(model, field, settings))
        if source is not None
        else _open_there(location, model, field) as store
    ):
        report = measure(store, chosen, settings, k or _K)
        name = store.lend_backend().name if source is None else str(source)
    _show(report, f"{len(chosen):,} cases, {name}", compare)
    if json_file is not None:
        report.write_json(json_file)
    if plot is not None:
        report.plot(plot)


# What is measured -------------------------------------------------------------------------------------------------


def _to_settings(modes: Sequence[str] | None, named: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    """Give every setting its name and options."""
    pairs: list[tuple[str, dict[str, Any]]] = []
    for mode in modes or (() if named else get_args(Mode)):
        check_mode(mode)
        pairs.append((mode, {"mode": mode}))
    for given in named or ():
        name, equals, text = given.partition("=")
        try:
            options = json.loads(text)
        except json.JSONDecodeError:
            options = None
        if not equals or not name.strip() or not isinstance(options, dict):
            raise InvalidArgument(
                '--setting is NAME=JSON with a JSON object, such as \'words={"mode": "lexical"}\'; '
                f"got one that begins with {name!r}"
            )
        pairs.append((name, options))
    settings = dict(pairs)
    if len(settings) < len(pairs):
        raise InvalidArgument("two settings have the same name; --mode names its setting as the mode")
    return settings


def _check_names(compare: tuple[str, str] | None, settings: dict[str, dict[str, Any]]) -> None:
    for name in compare or ():
        if name not in settings:
            raise InvalidArgument(f"--compare names no setting {name!r}; there are {', '.join(map(repr, settings))}")


def _check_targets(json_file: Path | None, plot: Path | None) -> None:
    """Find out before the work what could not be written after it."""
    for path in (json_file, plot):
        if path is not None and not path.absolute().parent.is_dir():
            raise InvalidArgument(f"there is no folder {str(path.parent)!r} to write {path.name!r} into; make it first")
        if path is not None and path.is_dir():
            raise InvalidArgument(f"{str(path)!r} is a folder; name a file")
    if plot is not None:
        check_format(plot)


def _choose_cases(path: Path, categories: Sequence[str] | None, limit: int | None) -> list[Case]:
    cases = load_cases(path)
    known = dict.fromkeys(case.category for case in cases)
    for category in categories or ():
        if category not in known:
            raise InvalidArgument(f"{path} has no category {category!r}; there are {', '.join(map(repr, known))}")
    if limit is not None and limit < 1:
        raise InvalidArgument("--limit-cases is a whole number from 1 on")
    return [case for case in cases if not categories or case.category in categories][:limit]


# Where it is measured ---------------------------------------------------------------------------------------------


def _choose_store(url: str | None, memories: Path | None, cases: Path) -> tuple[str, Path | None]:
    """Give the store's URL, or the file that a temporary one is filled with."""
    if url and memories is not None:
        raise InvalidArgument("give the URL of a store or --memories, not both")
    if memories is not None:
        return "", memories
    location = url or os.environ.get(_VARIABLE, "")
    if not location and not holds_conversations(cases):
        raise InvalidArgument(
            f"which store? Give the path or URL of one, set {_VARIABLE}, or name a file to fill one with by --memories"
        )
    return location, None if location else cases


@contextmanager
def _open_there(location: str, model: str | None, fields: Sequence[str] | None) -> Iterator[MemStore]:
    """Open a store that is there already and can be searched by a query."""
    if model is not None or fields:
        raise InvalidArgument("--model and --field are for --memories; a store knows its own")
    path = location.removeprefix("sqlite:///")
    is_file = "://" not in path
    if is_file and not Path(path).expanduser().is_file():
        shown = "of that name" if _may_hold_password(path) else repr(path)
        raise InvalidArgument(f"there is no database {shown}; give the path of one, or fill one with --memories")
    with MemStore.open(location) as store:
        if store.index_config is None:
            raise InvalidArgument(
                "the store has no index, so no query can be searched; open it with one in Python first"
            )
        if not store.list_namespaces(limit=1):
            raise InvalidArgument("the store holds no items; fill it first, or give a file of them by --memories")
        yield store


def _may_hold_password(text: str) -> bool:
    """Tell whether what was given as a path is rather a misspelt URL, or a string of libpq's parameters."""
    return "@" in text or "password" in text.lower()


@contextmanager
def _open_filled(path: Path, cases: Sequence[Case], index: dict[str, Any]) -> Iterator[MemStore]:
    """Open a temporary store that holds what the cases may see of a file's memories."""
    ops = _choose_memories(path, cases)
    with (
        TemporaryDirectory(prefix="memstore-evaluate-") as folder,
        MemStore.open(Path(folder) / "memories.db", index=index) as store,
    ):
        fill(store, ops)
        yield store


def _choose_memories(path: Path, cases: Sequence[Case]) -> list[PutOp]:
    """Leave out what lies outside of every case's namespace: no search would see it."""
    prefixes = {case.namespace for case in cases}
    ops = [
        op
        for op in load_memories(path)
        if any(op.namespace[:depth] in prefixes for depth in range(len(op.namespace) + 1))
    ]
    if not ops:
        raise InvalidArgument(f"no memory of {path} lies in a namespace of the cases; do the files belong together?")
    return ops


def _to_index(model: str | None, fields: Sequence[str] | None, settings: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Give a temporary store's index; where every setting ranks by words alone, it does without a model."""
    index: dict[str, Any] = {"fields": list(fields or (_FIELD,))}
    if model is None and all(options.get("mode") == "lexical" for options in settings.values()):
        return index | {"mode": "lexical"}
    return index | {"embed": model or MINILM}


# What is shown ----------------------------------------------------------------------------------------------------


def _show(report: Report, headline: str, compare: tuple[str, str] | None) -> None:
    """Print the table, for a terminal or plain, and the comparisons."""
    console = Console()
    typer.echo(f"{headline}\n")
    if console.is_terminal:
        console.print(report)
    else:
        typer.echo(report)
    if compare is not None:
        typer.echo(f"\n{report.compare(*compare)}")
        return
    first, *others = report.settings
    for name in others:
        typer.echo(f"\n{report.compare(name, first).verdict}")
