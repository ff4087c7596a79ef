"""The notebooks are true: each runs from top to bottom in a copy of its folder, and prints what it has saved.

Pictures are compared by their being there: their bytes depend on fonts and versions.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

import memstore
from notebooks.run import FOLDER, execute, find_notebooks

pytestmark = pytest.mark.model
NOTEBOOKS = [pytest.param(path, id=path.stem) for path in find_notebooks()]
PATH: Final = re.compile(r"(?<![\w./<:])/\w[\w.-]*/\w|site-packages")
"""A folder in a folder, from the root on: a place on the machine that ran it."""
PICTURE: Final = "image/png"


def read(path: Path) -> NotebookNode:
    """Read a saved notebook, and check that it is a sound one."""
    notebook: NotebookNode = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def to_outputs(notebook: NotebookNode) -> list[tuple[str, list[dict[str, Any]]]]:
    """Give the source of every code cell, and what it printed and showed: content by kind."""
    return [
        (cell.source, [_to_output(output) for output in cell.outputs])
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def _to_output(output: NotebookNode) -> dict[str, Any]:
    if output.output_type == "stream":
        return {output.name: output.text}
    return {kind: kind if kind == PICTURE else content for kind, content in output.data.items()}


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_a_notebook_prints_what_is_saved_in_it(path: Path, tmp_path: Path) -> None:
    """Run anew, no cell fails or prints otherwise, nothing is said on stderr, and no file is left behind."""
    folder = tmp_path / "notebooks"
    shutil.copytree(path.parent, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    before = sorted(folder.rglob("*"))
    ran = to_outputs(execute(folder / path.name))
    assert not [output for _, outputs in ran for output in outputs if "stderr" in output]
    for (source, fresh), (_, saved) in zip(ran, to_outputs(read(path)), strict=True):
        assert saved == fresh, f"this cell prints something else now; `make notebooks` saves it:\n{source}"
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_a_saved_notebook_is_ready_to_be_read(path: Path) -> None:
    """It has its outputs and its pictures, says what each step is for, and tells nothing of the machine it ran on."""
    notebook = read(path)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert notebook.cells[0].source.startswith("# ")
    for cell in code:
        pictures = [output for output in cell.outputs if PICTURE in output.get("data", {})]
        assert pictures or "plt.show()" not in cell.source
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.language_info == {"name": "python"}
    assert not any(cell.metadata for cell in notebook.cells)
    printed = json.dumps([outputs for _, outputs in to_outputs(notebook)])
    assert PATH.search(printed) is None


def test_notebooks_are_run_by_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that the user has named python3 is not started, and memstore is that of this checkout."""
    decoy = tmp_path / "jupyter" / "kernels" / "python3"
    decoy.mkdir(parents=True)
    (decoy / "kernel.json").write_text(json.dumps({"argv": ["false"], "display_name": "?", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(decoy.parent.parent))
    code = "import os, sys, memstore\nprint(sys.executable, memstore.__file__, os.getcwd(), sep='\\n')"
    nbformat.write(new_notebook(cells=[new_code_cell(code)]), tmp_path / "where.ipynb")
    notebook = execute(tmp_path / "where.ipynb")
    ran, found, folder = notebook.cells[0].outputs[0].text.splitlines()
    assert ran == sys.executable
    assert memstore.__file__ is not None
    assert Path(found).samefile(memstore.__file__)
    assert FOLDER.parent in Path(found).parents
    assert Path(folder).samefile(tmp_path)


def test_a_failing_notebook_fails(tmp_path: Path) -> None:
    """An error in a cell is not saved as if it were an output."""
    nbformat.write(new_notebook(cells=[new_code_cell("1 / 0")]), tmp_path / "wrong.ipynb")
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        execute(tmp_path / "wrong.ipynb")
