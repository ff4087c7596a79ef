"""Event loops that end while a store is closed by another thread."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from memstore.backends.postgres_sources import LoopSources
from memstore.config import PoolSettings
from tests.conformance.concurrency import DEADLINE

LINGERING = 0.3
"""Seconds that a task takes to end once it is cancelled: three looks of who waits for its loop."""


class Source:
    """A loop's connections, which say how they were closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.begun = asyncio.Event()
        self.closings = 0
        self.dropped_while_running: list[bool] = []

    async def close(self) -> None:
        """Wait for what is lent: for ever, here."""
        self.closings += 1
        self.begun.set()
        await asyncio.Event().wait()

    def drop(self) -> None:
        """Note whether the loop could still miss them."""
        self.dropped_while_running.append(self.loop.is_running())


async def linger() -> None:
    """Take a moment to be cancelled, as what has asked a server does."""
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(LINGERING)


def test_connections_are_not_dropped_under_a_loop_that_is_about_to_end() -> None:
    """It cancels all it runs, closing too; a task that still waits for its connection would wait for ever."""
    sources: Any = LoopSources(None, "", PoolSettings())
    made: list[Source] = []
    closing = threading.Thread(target=sources.close)
    tasks: list[asyncio.Task[None]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        made.append(Source(loop))
        sources._sources[loop] = made[0]
        tasks.append(loop.create_task(linger()))
        closing.start()
        await made[0].begun.wait()

    asyncio.run(run())
    closing.join(DEADLINE)
    assert not closing.is_alive()
    assert made[0].dropped_while_running == [False]
    assert made[0].closings > 1  # tried again where it was cancelled
