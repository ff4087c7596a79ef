"""The store's `put_many`, sync and async, and the bar that shows how far it is."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, Final, TypeVar

from langgraph.store.base import NOT_PROVIDED, PutOp

from memstore.bulk import Entry, Intake, Tell, put_many
from memstore.errors import InvalidArgument, MissingExtra
from memstore.search_methods import SearchMethods

T = TypeVar("T")
_BATCH: Final = 500
"""Items in a transaction: about what a model is handed at once, and what is lost of the last one at most."""


class BulkMethods(SearchMethods):
    """Putting many items."""

    def put_many(
        self, items: Iterable[Entry], *, batch_size: int = _BATCH, progress: bool | Callable[[int], object] = False
    ) -> int:
        """Put any number of items, some in each transaction; the next are embedded while those before are written.

        Items are taken as they are needed. What stops this, in the items, the model or the database, is raised with a
        note of how many were written before it: those are kept, and nothing of the batch that failed is.

        Args:
            items: `PutOp`s, or (namespace, key, value), which are put as `put` does.
            batch_size: How many are written in one transaction, 1 or more; about twice as many are held at once.
            progress: Whether a bar is shown, on a terminal or in a notebook; or what is told after each batch how
                many items are written.

        Returns:
            How many items were put, each counted that comes twice.

        Raises:
            MemStoreError: An item or an argument is wrong, a vector is, or the database could not be used.
            MissingExtra: The bar needs tqdm, which is not installed.
        """
        with _following(items, progress) as tell:
            calls = self._do_open()
            return self._do(put_many(calls, Intake(items, batch_size, self._put_default, calls.to_requests), tell))

    async def aput_many(
        self,
        items: Iterable[Entry] | AsyncIterable[Entry],
        *,
        batch_size: int = _BATCH,
        progress: bool | Callable[[int], object] = False,
    ) -> int:
        """Put items as `put_many` does; they may come from an async iterable.

        Cancelled, it waits for the batch that is being written; cancelled again, that is there wholly or not at all.
        """
        with _following(items, progress) as tell:
            calls = await self._ado_open()
            intake = Intake(items, batch_size, self._put_default, calls.to_requests, awaits=True)
            return await self._ado(put_many(calls, intake, tell))

    def _put_default(self, namespace: Any, key: Any, value: Any) -> PutOp:
        return self._put_op(namespace, key, value, None, NOT_PROVIDED)


@contextmanager
def _following(items: Any, progress: Any) -> Iterator[Tell]:
    """Give what is told how many items are written."""
    if callable(progress):
        yield progress
    elif not isinstance(progress, bool):
        raise InvalidArgument("progress is True, False, or what is told how many items are written")
    elif progress:
        total = len(items) if isinstance(items, Sized) else None
        with _tqdm()(desc="items put", total=total, unit="", leave=False, disable=None) as bar:
            yield partial(_show, bar)
    else:
        yield lambda _: None


def _show(bar: Any, written: int) -> None:
    bar.n = written
    bar.refresh()


def _tqdm() -> Any:
    try:
        return import_module("tqdm.auto").tqdm
    except ImportError as error:
        raise MissingExtra("a progress bar needs tqdm; install it with: pip install 'memstore[local]'") from error
