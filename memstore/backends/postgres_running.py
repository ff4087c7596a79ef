"""One transaction on one connection: how it begins, what its steps are, how it ends, and what may be done again."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.rows import tuple_row

from memstore.backends import FlowMaker
from memstore.backends.postgres_errors import (
    ConnectionLost,
    InDoubt,
    is_lost,
    is_planned_otherwise,
    is_worth_trying,
    translate,
)
from memstore.config import PoolSettings
from memstore.dialects.postgres import PostgresDialect
from memstore.dialects.postgres_writes import COMMIT_SETTING
from memstore.errors import DatabaseError, MemStoreError
from memstore.steps import Compute, Each, Flow, Many, Statement, Step, Together, arun, run

T = TypeVar("T")
Codecs: TypeAlias = Callable[[], AdaptersMap]
READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_ROLLED_BACK: Final = 8
"""How often a transaction is run again that was rolled back for the sake of another."""
_LARGE: Final = 2_000_000
"""Numbers above which work is moved off an event loop: about a millisecond's."""
_UNKNOWN: Final = "the connection was lost while a write was committed; read whether it was applied"
_TOKEN_BYTES: Final = 16
_MOMENT: Final = 0.05
"""Seconds after a connection was lost: a server that ends one may be about to end the others."""
_OUTCOME_SECONDS: Final = 10.0
"""How long the server is asked how a COMMIT ended whose connection was lost."""


class Cursor(psycopg.RawCursor[tuple[Any, ...]]):
    """A cursor with memstore's own codecs, whatever its connection has."""

    codecs: Codecs

    @property
    def adapters(self) -> AdaptersMap:
        """The codecs; a transaction may learn of a type and use it."""
        return self.codecs()


class AsyncCursor(psycopg.AsyncRawCursor[tuple[Any, ...]]):
    """The same for event loops."""

    codecs: Codecs

    @property
    def adapters(self) -> AdaptersMap:
        """The codecs."""
        return self.codecs()


def to_begin(begin: str, settings: PoolSettings) -> str:
    """Spell the beginning of a transaction, with what is set for it alone."""
    limits = {"statement_timeout": settings.statement_timeout, "lock_timeout": settings.lock_timeout}
    return begin + "".join(f"; SET LOCAL {name} = {seconds * 1000:.0f}" for name, seconds in limits.items() if seconds)


@dataclass(frozen=True, slots=True)
class Evidence:
    """By what a write is known to have been applied, or to be under way still."""

    token: str
    number: str
    """The server's number of the transaction."""


def transact(connection: psycopg.Connection[Any], begin: str, make: FlowMaker[T], codecs: Codecs) -> T:
    """Run a flow in a transaction, or without one where nothing begins it.

    Raises:
        ConnectionLost: The connection broke before the end; nothing was applied.
        InDoubt: It broke in the COMMIT of a write.
    """
    cursor = Cursor(connection, row_factory=tuple_row)
    cursor.codecs = codecs
    evidence: Evidence | None = None
    begun = False
    try:
        if begin:
            token, spelled = _to_token(begin)
            cursor.execute(spelled, prepare=False)
            evidence, begun = _to_evidence(token, cursor), True
        result = run(make(), partial(_perform, cursor))
    except BaseException as error:
        if is_lost(connection, error):
            raise ConnectionLost(begun=begun) from error
        if not connection.closed:
            with suppress(psycopg.Error):  # without a transaction too: the driver forgets what it had prepared
                cursor.execute("ROLLBACK")
        raise
    if begin:
        try:
            cursor.execute("COMMIT")
        except psycopg.Error as error:
            raise _unfinished(connection, error, evidence, result) from error
    return result


async def atransact(connection: psycopg.AsyncConnection[Any], begin: str, make: FlowMaker[T], codecs: Codecs) -> T:
    """Run a flow as `transact` does; cancelled, it is rolled back, or applied where its COMMIT was under way."""
    cursor = AsyncCursor(connection, row_factory=tuple_row)
    cursor.codecs = codecs
    evidence: Evidence | None = None
    begun = False
    try:
        if begin:
            token, spelled = _to_token(begin)
            await cursor.execute(spelled, prepare=False)
            evidence, begun = _to_evidence(token, cursor), True
        result = await arun(make(), partial(_aperform, cursor))
    except BaseException as error:
        if is_lost(connection, error):
            raise ConnectionLost(begun=begun) from error
        if not connection.closed:
            with suppress(psycopg.Error):
                await asyncio.shield(cursor.execute("ROLLBACK"))
        raise
    if begin:
        try:
            await cursor.execute("COMMIT")
        except psycopg.Error as error:
            raise _unfinished(connection, error, evidence, result) from error
    return result


def _unfinished(
    connection: psycopg.BaseConnection[Any], error: psycopg.Error, evidence: Evidence | None, result: Any
) -> Exception:
    """Say what it means that a COMMIT failed."""
    if not is_lost(connection, error):
        return error
    return ConnectionLost(begun=True) if evidence is None else InDoubt(evidence, result)


def _to_token(begin: str) -> tuple[str, str]:
    """Make a token for a transaction that writes, and spell its beginning."""
    if not begin.startswith(WRITE):
        return "", begin
    token = os.urandom(_TOKEN_BYTES).hex()
    return token, f"{begin}; SET LOCAL {COMMIT_SETTING} = '{token}'; SELECT pg_current_xact_id()::text"


def _to_evidence(token: str, cursor: Cursor | AsyncCursor) -> Evidence | None:
    """Take the number that the beginning of a transaction told, if it did."""
    while cursor.nextset():
        pass
    number = cursor.pgresult.get_value(0, 0) if cursor.pgresult and cursor.pgresult.ntuples else None
    return None if number is None else Evidence(token, number.decode())


def _perform(cursor: Cursor, step: Step) -> Any:
    if isinstance(step, Statement):
        cursor.execute(step.sql, step.params, binary=True)
        return cursor.fetchall() if cursor.description else []
    if isinstance(step, Compute):
        return step.call()
    if isinstance(step, Together):
        return [_perform(cursor, part) for part in step.steps]
    if isinstance(step, Each | Many):
        return [_perform(cursor, Statement(step.sql, row)) for row in step.rows]
    return step.decode(_perform(cursor, step.step))


async def _aperform(cursor: AsyncCursor, step: Step) -> Any:
    if isinstance(step, Statement):
        await cursor.execute(step.sql, step.params, binary=True)
        return await cursor.fetchall() if cursor.description else []
    if isinstance(step, Compute):
        return await asyncio.to_thread(step.call) if step.size > _LARGE else step.call()
    if isinstance(step, Together):
        return [await _aperform(cursor, part) for part in step.steps]
    if isinstance(step, Each | Many):
        return [await _aperform(cursor, Statement(step.sql, row)) for row in step.rows]
    return step.decode(await _aperform(cursor, step.step))


def ask_outcome(evidence: Evidence, dialect: PostgresDialect) -> Generator[FlowMaker[Any], Any, bool]:
    """Ask how a transaction ended whose connection was lost in its COMMIT: true where it was applied.

    Raises:
        DatabaseError: It has not ended yet, or the server cannot be asked.
    """

    def is_under_way() -> Flow[bool]:
        try:
            rows = yield Statement("SELECT pg_xact_status($1::text::xid8), pg_sleep(0.05)", (evidence.number,))
        except psycopg.DataError:
            return False  # the number lies in the future again: the server has crashed
        return bool(rows[0][0] == "in progress")

    def is_applied() -> Flow[bool]:
        rows = yield dialect.select_commit(evidence.token)
        return bool(rows)

    until = time.monotonic() + _OUTCOME_SECONDS
    try:
        while (yield is_under_way):
            if time.monotonic() > until:
                raise DatabaseError(_UNKNOWN)
        applied: bool = yield is_applied
    except MemStoreError as error:
        raise DatabaseError(_UNKNOWN) from error
    return applied


class Retries:
    """What has gone wrong in a call so far.

    Args:
        settings: How long a server is waited for.
    """

    def __init__(self, settings: PoolSettings) -> None:
        self._until = time.monotonic() + settings.timeout
        self._connections = settings.max_size
        self._stale = self._lost = self._replanned = self._rolled_back = 0

    def after(self, error: BaseException) -> float:
        """Say how many seconds to wait before the call is tried again.

        Raises:
            MemStoreError: It is not tried again.
        """
        if isinstance(error, ConnectionLost) and not error.begun and time.monotonic() < self._until:
            self._stale += 1  # idle connections do not notice that their server has gone
            more = self._stale - self._connections
            return min(0.01 * 2**more, 1.0) if more > 0 else 0.0
        if isinstance(error, ConnectionLost | InDoubt) and not self._lost:
            self._lost = 1
            return _MOMENT
        if is_planned_otherwise(error) and not self._replanned:
            self._replanned = 1
            return 0.0
        if is_worth_trying(error) and self._rolled_back < _ROLLED_BACK:
            self._rolled_back += 1
            return random.uniform(0, 0.01 * 2**self._rolled_back)  # noqa: S311  no secret
        said = translate(error)
        if said is error:
            raise error
        raise said from error
