"""Run the notebooks from top to bottom and save what they print and plot: `python -m notebooks.run [files]`.

What is saved depends on nothing but the notebook: the kernel is the Python that runs this, whichever kernels and
settings the user has, and neither times nor versions are kept.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import matplotlib.font_manager  # noqa: F401  makes its cache of fonts, which a kernel would announce in the notebook
import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER: Final = Path(__file__).resolve().parent
_TIMEOUT: Final = 300
"""Seconds for one cell: the first that embeds loads the model, on a machine that may be busy with other things."""


def main() -> int:
    """Run the notebooks that are named, or all, and save them in place."""
    for path in [Path(name) for name in sys.argv[1:]] or find_notebooks():
        started = time.monotonic()
        print(f"{path.name} ...", end=" ", flush=True)
        nbformat.write(execute(path), path)
        print(f"{time.monotonic() - started:.0f} seconds")
    return 0


def find_notebooks() -> list[Path]:
    """Give the notebooks of this folder, in the order in which they are read."""
    return sorted(FOLDER.glob("*.ipynb"))


def execute(path: Path) -> NotebookNode:
    """Run a notebook in its own folder with a fresh kernel, and give it with its outputs.

    Args:
        path: The notebook; the file is left as it is.

    Raises:
        CellExecutionError: A cell failed.
    """
    notebook: NotebookNode = nbformat.read(path, as_version=4)
    paths = [str(FOLDER.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    with TemporaryDirectory() as settings:
        kernel = AsyncKernelManager(
            # no folders to look in: what is left is ipykernel's own kernel, which is started with sys.executable
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),
            transport="ipc",  # ports may be taken by another kernel between being chosen and being used
            connection_file=str(Path(settings) / "kernel.json"),
        )
        client = NotebookClient(
            notebook,
            km=kernel,
            timeout=_TIMEOUT,
            startup_timeout=_TIMEOUT,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": str(path.parent)}},
        )
        env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "IPYTHONDIR": settings}
        client.execute(env=env, cleanup_kc=True)
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {}
    return notebook


if __name__ == "__main__":
    sys.exit(main())
