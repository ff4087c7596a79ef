"""The command line: `memstore COMMAND`, a module for each command.

This module loads without typer and rich, and says what brings them where they are missing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from memstore.errors import MissingExtra

FAILED: Final = 1
"""The exit code of a command that was understood and could not be done; 2 is that of one that was not."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; give the exit code.

    Args:
        arguments: What stands behind `memstore`; those of the process where it is None.
    """
    try:
        from memstore.cli.app import run  # noqa: PLC0415  typer and rich are extras
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        missing = MissingExtra("the command line needs typer and rich; install them with: pip install 'memstore[eval]'")
        sys.stderr.write(f"memstore: {missing}\n")
        return FAILED
    return run(arguments)
