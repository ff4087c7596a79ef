"""Putting memories into a store in batches, and the progress bar that evaluations show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from langgraph.store.base import BaseStore, PutOp

from memstore.evaluation.checks import check_number, check_store
from memstore.evaluation.extras import need

T = TypeVar("T")
_BATCH: Final = 512
"""Items in one put: as many texts as are embedded at once, so that a model can sort them by length."""


def fill(store: BaseStore, ops: Iterable[PutOp], batch: int = _BATCH, progress: bool = True) -> int:
    """Put items into a store; a store's `close` is left to the caller.

    Args:
        store: Any store of LangGraph's.
        ops: What to put, as `load_memories` gives it.
        batch: Items in one call of `store.batch`, which a store applies wholly or not at all.
        progress: Whether a bar is shown, on a terminal or in a notebook.

    Returns:
        How many ops there were.

    Raises:
        InvalidArgument: `store` is none, or `batch` is no positive number.
        MissingExtra: The progress bar needs rich, which is not installed.
    """
    check_store(store)
    check_number("batch", batch, 1)
    puts = list(ops)
    batches = [puts[at : at + batch] for at in range(0, len(puts), batch)]
    with following(batches, "memories put, in batches", progress) as followed:
        for part in followed:
            store.batch(part)
    return len(puts)


@contextmanager
def following(steps: Sequence[T], what: str, shown: bool) -> Iterator[Iterable[T]]:
    """Give the steps to go through, with a bar on the error stream where it is wanted and someone watches."""
    console = need("rich.console", "rich").Console(stderr=True) if shown else None
    if console is None or not (console.is_terminal or console.is_jupyter):
        yield steps
        return
    with _to_progress(console) as bar:
        yield _tracked(bar, steps, what)


def _tracked(bar: Any, steps: Sequence[T], what: str) -> Iterator[T]:
    task = bar.add_task(what, total=len(steps))
    for step in steps:
        yield step
        bar.advance(task)
        bar.refresh()


def _to_progress(console: Any) -> Any:
    """Make a bar that leaves nothing behind."""
    parts = need("rich.progress", "rich")
    return parts.Progress(
        parts.TextColumn("{task.description:<32}"),
        parts.BarColumn(),
        parts.MofNCompleteColumn(),
        parts.TimeElapsedColumn(),
        parts.TimeRemainingColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
    )
