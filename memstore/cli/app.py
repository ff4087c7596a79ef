"""The commands together, and how they end: with one line on the error stream and an exit code, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer

from memstore.cli import FAILED
from memstore.cli.evaluate import EPILOG, evaluate
from memstore.errors import InvalidArgument, InvalidConfig, MemStoreError

_MISUSED: Final = 2
_INTERRUPTED: Final = 130
"""What shells give for a process that was stopped by a SIGINT: 128 + 2."""
_ClickError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""The root of what a command line is refused with: click's own, or that of the copy which newer typers carry."""

app: Final = typer.Typer(name="memstore", rich_markup_mode=None, add_completion=False)
"""The command line. A command is a function of a module of its own, added below."""
app.command(epilog=EPILOG)(evaluate)


def _show_version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"memstore {version('memstore')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def memstore(
    context: typer.Context,
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Long-term memory for LangGraph agents."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command; give the exit code: 0, 1 where it failed, 2 where it was not understood.

    Args:
        arguments: What stands behind `memstore`; those of the process where it is None.
    """
    command = typer.main.get_command(app)
    try:
        given: Any = command.main(
            args=None if arguments is None else list(arguments), prog_name="memstore", standalone_mode=False
        )
    except _ClickError as error:
        return _end(error.format_message(), _MISUSED)
    except (InvalidArgument, InvalidConfig) as error:
        return _end(str(error), _MISUSED)
    except (MemStoreError, OSError) as error:
        return _end(str(error), FAILED)
    except (KeyboardInterrupt, typer.Abort):
        return _end("interrupted", _INTERRUPTED)
    return given if isinstance(given, int) else 0


def _end(message: str, code: int) -> int:
    """Say in one line why a command ends."""
    sys.stderr.write(f"memstore: {' '.join(message.split())}\n")
    return code
