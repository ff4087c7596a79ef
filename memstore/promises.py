"""Results that may be awaited, of calls that LangGraph's async stores have awaited and the others have not."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any


class Done(int):
    """A call's result; LangGraph's async stores have it awaited. It is finished already, unless it has to be."""

    _rest: Coroutine[Any, Any, Any] | None = None

    @classmethod
    def later(cls, rest: Coroutine[Any, Any, Any]) -> Done:
        """Promise what is to be awaited."""
        done = cls(0)
        done._rest = rest
        return done

    def __await__(self) -> Generator[Any, Any, Done]:
        if self._rest is None:
            return self
        result = yield from self._rest.__await__()
        return Done(result if isinstance(result, int) else 0)


def on_loop() -> bool:
    """Tell whether an event loop runs on this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
