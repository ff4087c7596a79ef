"""The packages of the extra `eval`, imported when something needs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from memstore.errors import MissingExtra


def need(module: str, package: str) -> Any:
    """Import a module of an optional package.

    Args:
        module: The module's full name.
        package: The name by which the package is installed.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(f"evaluation needs {package}; install it with: pip install 'memstore[eval]'") from error
