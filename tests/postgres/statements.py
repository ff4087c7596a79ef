"""The statements that leave for the server, and the server's plans of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import pytest
from psycopg.rows import tuple_row

from memstore.backends.postgres_running import AsyncCursor, Cursor

ENDS: Final = ("BEGIN", "COMMIT", "ROLLBACK")
Node: TypeAlias = dict[str, Any]


class Statements:
    """Notes the statements of memstore's cursors, sync and async, and on demand the plans of the sync ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._noted: list[str] = []
        self._plans: list[Node] | None = None
        self._execute, aexecute = Cursor.execute, AsyncCursor.execute

        def execute(cursor: Cursor, query: Any, params: Any = None, **options: Any) -> Cursor:
            self._noted.append(str(query))
            if self._plans is not None and not str(query).startswith(ENDS):
                self._plans.append(self._plan(cursor, str(query), params))
            return self._execute(cursor, query, params, **options)

        async def arun(cursor: AsyncCursor, query: Any, params: Any = None, **options: Any) -> AsyncCursor:
            self._noted.append(str(query))
            return await aexecute(cursor, query, params, **options)

        monkeypatch.setattr(Cursor, "execute", execute)
        monkeypatch.setattr(AsyncCursor, "execute", arun)

    def count(self, call: Callable[[], object]) -> int:
        """Count the statements of a call."""
        self._noted.clear()
        call()
        return len(self._noted)

    def explain(self, call: Callable[[], object]) -> list[Node]:
        """Give all nodes of the plans of a call's statements."""
        plans = self._plans = list[Node]()
        call()
        self._plans = None
        return [node for plan in plans for node in nodes(plan)]

    def _plan(self, cursor: Cursor, sql: str, params: Any) -> Node:
        """Ask for a statement's plan in the transaction it is about to run in."""
        asking = Cursor(cursor.connection, row_factory=tuple_row)
        asking.codecs = cursor.codecs
        explained: Any = f"EXPLAIN (FORMAT JSON) {sql}"
        self._execute(asking, explained, params, binary=True, prepare=False)
        ((text,),) = asking.fetchall()
        plan: Node = json.loads(text)[0]["Plan"]
        return plan


def nodes(plan: Node) -> Iterator[Node]:
    """Go through a plan."""
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)
