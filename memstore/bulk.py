"""Putting any number of items: batch by batch, each in a transaction of its own.

A batch is written while the next one is embedded, and never before the one before it: what is kept is always the
beginning. Two batches are held at most.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, TypeAlias, TypeVar

from langgraph.store.base import GetOp, Op, PutOp

from memstore.batch import Embedded
from memstore.calls import Calls
from memstore.errors import InvalidArgument
from memstore.moves import Call, Move, aperform, perform
from memstore.requests import Request
from memstore.steps import arun, run

T = TypeVar("T")
Entry: TypeAlias = PutOp | tuple[tuple[str, ...], str, Mapping[str, Any] | None]
"""An item that is to be put: an op, or (namespace, key, value)."""
Begin: TypeAlias = Callable[[], None]
"""Lets what waits beside begin."""
Tell: TypeAlias = Callable[[int], object]
"""Is told how many items are written."""
_PARTS: Final = 3
"""Of an item that is no op."""
_GRACE: Final = 0.1
"""Seconds for which a batch waits to be written beside a model, while the next is taken from a source that may be slow.

Written at once, beside the Python that makes the next ready, 500 items took twice as long: both want the interpreter.
"""


def put_many(calls: Calls, intake: Intake, tell: Tell) -> Call[int]:
    """Put all items of an intake, and return how many they were; what stops it has a note of how many were written."""
    written = 0
    try:
        batch = yield from _make_ready(calls, intake, lambda: None)
        while batch.requests:
            put, make_ready = partial(calls.put, batch.requests, batch.embedded), partial(_make_ready, calls, intake)
            wrote, made = yield beside(put, make_ready)
            try:
                wrote.get()
                written += len(batch.requests)
                tell(written)
            finally:
                made.raise_interrupt()
            batch = made.get()
    except BaseException as error:
        error.add_note(f"put_many had written {written:,} items before this")
        raise
    return written


@dataclass(frozen=True, slots=True)
class _Batch:
    """What one transaction writes."""

    requests: list[Request]
    embedded: Embedded


def _make_ready(calls: Calls, intake: Intake, begin: Begin) -> Call[_Batch]:
    """Take the next items and embed them; there are none at the end."""
    requests: list[Request] = yield Move(intake.take, intake.atake)
    return _Batch(requests, (yield from calls.embed(requests, begin)))


class Intake:
    """Takes items from an iterable as they are wanted, and checks each as it comes: its maker may then change it.

    Args:
        items: The items.
        size: How many are taken at once.
        to_put: Makes an op of (namespace, key, value).
        to_requests: Checks ops.
        awaits: Whether items may be waited for.

    Raises:
        InvalidArgument: The items are no iterable, or the size is no positive number.
    """

    def __init__(
        self,
        items: Iterable[Entry] | AsyncIterable[Entry],
        size: Any,
        to_put: Callable[[Any, Any, Any], PutOp],
        to_requests: Callable[[Iterable[Op]], list[Request]],
        *,
        awaits: bool = False,
    ) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InvalidArgument("batch_size is an integer of 1 or more")
        self._items = _to_iterator(items, awaits=awaits)
        self._size = size
        self._to_put, self._to_requests = to_put, to_requests
        self._taken = 0
        self._ended = False

    def take(self) -> list[Request]:
        """Take as many items as are written at once, or those that are left."""
        if self._ended or isinstance(self._items, AsyncIterator):
            return []
        requests = [self._check(item) for item in islice(self._items, self._size)]
        self._ended = len(requests) < self._size
        return requests

    async def atake(self) -> list[Request]:
        """Take items as `take` does."""
        if self._ended or not isinstance(self._items, AsyncIterator):
            return self.take()
        requests: list[Request] = []
        async for item in self._items:
            requests.append(self._check(item))
            if len(requests) == self._size:
                return requests
        self._ended = True
        return requests

    def _check(self, item: Any) -> Request:
        try:
            (request,) = self._to_requests([self._to_op(item)])
        except Exception as error:
            error.add_note(f"it was item {self._taken} of those given to put_many, counted from 0")
            raise
        self._taken += 1
        return request

    def _to_op(self, item: Any) -> PutOp:
        if isinstance(item, PutOp):
            return item
        if not isinstance(item, list | tuple) or isinstance(item, GetOp) or len(item) != _PARTS:
            raise InvalidArgument(f"an item is a PutOp or (namespace, key, value), got {type(item).__name__}")
        return self._to_put(*item)


def _to_iterator(items: Any, *, awaits: bool) -> Iterator[Entry] | AsyncIterator[Entry]:
    if isinstance(items, AsyncIterable):
        if not awaits:
            raise InvalidArgument("the items are to be waited for; await aput_many")
        waited: AsyncIterator[Entry] = aiter(items)
        return waited
    try:
        taken: Iterator[Entry] = iter(items)
    except TypeError:
        wanted = "an iterable of PutOp or (namespace, key, value)"
        raise InvalidArgument(f"items are {wanted}, got {type(items).__name__}") from None
    return taken


@dataclass(frozen=True, slots=True)
class Attempt(Generic[T]):
    """How a call ended."""

    result: T | None = None
    error: BaseException | None = None

    def get(self) -> Any:
        """Give what the call returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self.result

    def raise_interrupt(self) -> None:
        """Raise what ended the call from outside: a key press, a cancellation."""
        if self.error is not None and not isinstance(self.error, Exception):
            raise self.error


def beside(first: Callable[[], Call[Any]], second: Callable[[Begin], Call[T]]) -> Move:
    """Make two calls at once, the second where the caller is; the reply is how both have ended.

    The first begins when the second says so, ends, or takes long. An interrupt or a cancellation ends the second; the
    first is waited for, unless there is another.
    """
    return Move(partial(_make_both, first, second), partial(_amake_both, first, second))


def _make_both(first: Callable[[], Call[Any]], second: Callable[[Begin], Call[T]]) -> tuple[Attempt[Any], Attempt[T]]:
    begun = threading.Event()

    def make_first() -> Attempt[Any]:
        begun.wait(_GRACE)
        return _attempt(first)

    with ThreadPoolExecutor(1, "memstore-put-many") as worker:
        writing = worker.submit(make_first)
        made = _attempt(partial(second, begun.set))
        begun.set()
        try:
            wait([writing])
        except BaseException as error:  # noqa: BLE001  an interrupt, raised once the first has ended
            made = Attempt(error=error)
    return writing.result(), made


async def _amake_both(
    first: Callable[[], Call[Any]], second: Callable[[Begin], Call[T]]
) -> tuple[Attempt[Any], Attempt[T]]:
    begun = asyncio.Event()

    async def make_first() -> Attempt[Any]:
        with suppress(TimeoutError):
            await asyncio.wait_for(begun.wait(), _GRACE)
        return await _aattempt(first)

    writing = asyncio.ensure_future(make_first())
    made = await _aattempt(partial(second, begun.set))
    begun.set()
    while not writing.done():
        try:
            await asyncio.wait([writing])
        except asyncio.CancelledError as error:
            if isinstance(made.error, asyncio.CancelledError):
                writing.cancel()
            made = Attempt(error=error)
    return writing.result(), made


def _attempt(make: Callable[[], Call[T]]) -> Attempt[T]:
    try:
        return Attempt(run(make(), perform))
    except BaseException as error:  # noqa: BLE001  whoever wants the result gets it
        return Attempt(error=error)


async def _aattempt(make: Callable[[], Call[T]]) -> Attempt[T]:
    try:
        return Attempt(await arun(make(), aperform))
    except BaseException as error:  # noqa: BLE001  as above, a cancellation included
        return Attempt(error=error)
