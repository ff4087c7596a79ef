"""One connection to Postgres: how it is opened, and what there is to know of it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import scalar_row

from memstore.backends.postgres_errors import to_lost
from memstore.config import PoolSettings
from memstore.errors import DatabaseError

_KEPT_ALIVE: Final = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""A peer that vanished is noticed after a minute at the latest."""
_ASK_PID: Final = "SELECT pg_backend_pid()"
OFTEN: Final = 2
"""Uses from which on a statement is prepared."""


def to_parameters(settings: PoolSettings) -> dict[str, Any]:
    """Give the parameters of libpq for connections of memstore's own."""
    return {
        **_KEPT_ALIVE,
        "connect_timeout": settings.connect_timeout,
        "client_encoding": "utf8",
        "fallback_application_name": "memstore",
        **settings.kwargs,
    }


def count_cancellations() -> int:
    """Say how often the running task was cancelled and did not end."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def configure(connection: psycopg.Connection[Any], settings: PoolSettings) -> None:
    """Say from which use on statements are prepared."""
    prepared = settings.prepare
    connection.prepare_threshold = OFTEN if (is_direct(connection) if prepared is None else prepared) else None


def is_direct(connection: psycopg.Connection[Any]) -> bool:
    """Tell whether the server that answers is the one that was connected to, and no pooler stands between."""
    try:
        row = psycopg.Cursor(connection, row_factory=scalar_row).execute(_ASK_PID, prepare=False).fetchone()
    except psycopg.Error as error:
        raise to_lost(connection, error) from error
    return bool(row == connection.info.backend_pid)


async def ais_direct(connection: psycopg.AsyncConnection[Any]) -> bool:
    """Tell what `is_direct` tells."""
    cursor = psycopg.AsyncCursor(connection, row_factory=scalar_row)
    try:
        row = await (await cursor.execute(_ASK_PID, prepare=False)).fetchone()
    except psycopg.Error as error:
        raise to_lost(connection, error) from error
    return bool(row == connection.info.backend_pid)


def check_idle(connection: psycopg.BaseConnection[Any]) -> None:
    """Refuse a connection that is in a transaction of its owner's.

    Raises:
        DatabaseError: It is.
    """
    status = connection.info.transaction_status
    if status == TransactionStatus.IDLE or connection.pgconn.status != psycopg.pq.ConnStatus.OK:
        return
    raise DatabaseError("the connection you gave is in a transaction of its own; end it first, or give memstore a pool")
