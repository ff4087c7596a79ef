"""memstore with a real model: whose time a call takes, and how much of the exact answer a wide search finds.

Run `python -m benchmarks.model` or `python benchmarks/model.py`; see benchmarks/README.md for what is measured.
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import spell, to_progress, to_table
from benchmarks.model_calls import BATCH, SPLIT_HEAD, Source, Splits, measure_calls, read_examples
from benchmarks.model_wide import WIDE_HEAD, Wide, measure_wide, to_wide_rows
from benchmarks.scale import to_setting
from benchmarks.scale_figures import Figures
from benchmarks.stores import read_load, spell_version
from benchmarks.texts import embed, read_lines
from memstore.models import MINILM

GROUPS: Final = ("calls", "wide")
_PACKAGES: Final = ("memstore", "faiss-cpu", "numpy", "langgraph-checkpoint", "sentence-transformers", "torch")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.model", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--only", nargs="*", choices=GROUPS, help="groups of measures; without any, texts are embedded and kept")
    add("--texts", type=Path, metavar="FILE", help="a text in each line; otherwise the memories of the notebooks")
    add("--most", type=int, default=60_000, metavar="LINES", help="texts at most (default %(default)s)")
    add("--queries", type=int, default=1_000, metavar="LINES", help="further lines, to ask (default %(default)s)")
    add("--vectors", type=Path, metavar="FILE.npz", help="where the vectors of the texts are kept from run to run")
    add("--batches", type=int, default=20, help=f"batches of {BATCH} puts, each of one user (default %(default)s)")
    add("--repeats", type=int, default=200, help="times the other measures are taken (default %(default)s)")
    add("--setting", action="append", default=[], metavar="NAME=VALUE", help="more of memstore's settings of `index`")
    add("--json", type=Path, metavar="FILE", help="where all numbers are written")
    add("--folder", type=Path, help="where a folder for the databases is made, and deleted at the end")
    given = parser.parse_args(arguments)
    if given.only is None:
        given.only = GROUPS if given.texts else GROUPS[:1]
    if given.texts is None and "calls" not in given.only:
        parser.error("--texts FILE is missing")
    if any("=" not in setting for setting in given.setting):
        parser.error("--setting takes NAME=VALUE")
    return given


def describe(about: dict[str, Any]) -> str:
    """Say what is measured, on what, and what the figures leave out."""
    settings = ", ".join(f"{name} {value}" for name, value in about["settings"].items()) or "its defaults"
    return (
        f"Texts: {about['texts']}; model {MINILM}; memstore's further settings: {settings}\n\n{about['versions']}\n\n"
        "Every text and query is new, so that no vector is known. The model's part of a call is told by a clock\n"
        "around it, and memstore's is the rest; shares are of all calls together. In searches over everything\n"
        "vectors are looked up, and the time of that is taken off. By meaning alone the exact answer is NumPy's,\n"
        "hybrid from memstore where it ranks every text.\n"
    )


def main() -> None:
    """Run the measures and print the tables."""
    given = parse()
    own = dict(map(to_setting, given.setting))
    versions = (
        f"{', '.join(filter(None, map(spell_version, _PACKAGES)))}, SQLite {sqlite3.sqlite_version}, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}"
    )
    lines = read_lines(given.texts, given.most, given.queries) if given.texts else read_examples()
    named = given.texts.name if given.texts else "the memories of the notebooks, numbered where they are used again"
    about = {
        "texts": f"{named}, {len(lines.memories):,}, and {len(lines.queries):,} queries",
        "repeats": given.repeats, "settings": own, "versions": versions,
    }  # fmt: skip
    print(describe(about), flush=True)
    load = read_load()
    figures = Figures(about)
    splits: Splits | None = None
    wide: Wide | None = None
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(dir=given.folder, prefix="memstore-bench-")))
        progress = opened.enter_context(to_progress())
        if "calls" in given.only:
            splits = measure_calls(
                folder, Source(lines), progress, batches=given.batches, repeats=given.repeats, own=own
            )
            figures.found += splits.figures(given.batches * BATCH)
        if given.texts:
            embedded = embed(lines, given.vectors, progress)
            if "wide" in given.only:
                wide = measure_wide(folder, embedded, progress, given.repeats, own)
                figures.found += wide.figures()
    if splits:
        print(to_table(SPLIT_HEAD, list(splits.rows())) + "\n")
    if wide:
        print(to_table(WIDE_HEAD, list(to_wide_rows(wide))) + "\n")
        for measure, seconds in wide.seconds.items():
            print(f"- {measure}: {spell(seconds)} s")
    if given.json:
        figures.save(given.json)
    print(f"Load of the machine before and after: {load}, {read_load()}")


if __name__ == "__main__":
    main()
