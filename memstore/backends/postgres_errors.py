"""What goes wrong on the way to Postgres and in it, in our words; and what may be tried again."""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg_pool import PoolTimeout, TooManyRequests

from memstore.errors import (
    INDEX_CHANGED,
    DatabaseBusy,
    DatabaseDamaged,
    DatabaseError,
    DatabaseFull,
    IndexMismatch,
    InvalidValue,
    MemStoreError,
)

_SAID: Final[dict[str, tuple[type[MemStoreError], str]]] = {
    "55P03": (DatabaseBusy, "a write in the same namespaces took longer than 'lock_timeout'"),
    "57014": (DatabaseBusy, "a statement took longer than 'statement_timeout', or was cancelled"),
    "53300": (DatabaseBusy, "the server has no connection left; lower 'max_size' or raise its max_connections"),
    "40P01": (DatabaseBusy, "another transaction on these tables waits for this one; try again"),
    "40001": (DatabaseBusy, "try again"),
    "53100": (DatabaseFull, "make room on the server and try again"),
    "54000": (InvalidValue, "a text or a value is larger than Postgres keeps (1 GB)"),
    "42501": (DatabaseError, "this role may not do that; see 'Production' in the README for what it needs"),
    "42P01": (DatabaseDamaged, "its tables are not there; open the store again"),
    "3F000": (DatabaseDamaged, "its schema is not there; open the store again"),
    "22000": (IndexMismatch, INDEX_CHANGED),  # pgvector, of vectors of two lengths
    "0A000": (DatabaseError, "is it a standby?"),
    "25006": (DatabaseError, "the server only lets read; is it a standby?"),
}
_MET: Final[dict[type[BaseException], tuple[type[MemStoreError], str]]] = {
    PoolTimeout: (DatabaseBusy, "no connection could be had in time; is the server up, and does it let this role in?"),
    TooManyRequests: (DatabaseBusy, "the pool you gave has too many calls waiting; raise its 'max_waiting'"),
}
_OUTDATED: Final = frozenset({"XX000", "0A000", "42P01", "42704", "42883"})
"""What the server says where types are not those it was asked for before: pgvector was made anew."""
_AGAIN: Final = frozenset({"40P01", "40001"})
"""Transactions that were rolled back for the sake of another."""


class ConnectionLost(Exception):
    """The connection broke.

    Args:
        begun: Whether a transaction had been begun on it.
    """

    def __init__(self, *, begun: bool) -> None:
        super().__init__(begun)
        self.begun = begun


class InDoubt(Exception):
    """The connection broke in a COMMIT.

    Args:
        evidence: By what it can be known how it ended.
        result: What its flow returned.
    """

    def __init__(self, evidence: Any, result: Any) -> None:
        super().__init__(evidence)
        self.evidence = evidence
        self.result = result


def is_lost(connection: psycopg.BaseConnection[object], error: BaseException) -> bool:
    """Tell whether an error is the end of its connection."""
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and connection.closed


def to_lost(connection: psycopg.BaseConnection[object], error: psycopg.Error) -> Exception:
    """Give what an error means that came before anything was begun."""
    return ConnectionLost(begun=False) if is_lost(connection, error) else error


def is_worth_trying(error: BaseException) -> bool:
    """Tell whether a transaction was rolled back for the sake of another."""
    return isinstance(error, psycopg.Error) and error.sqlstate in _AGAIN


def is_planned_otherwise(error: BaseException) -> bool:
    """Tell whether a statement was prepared for a table that is another now."""
    return isinstance(error, psycopg.Error) and error.diag.source_function == "RevalidateCachedQuery"


def may_be_outdated(error: BaseException) -> bool:
    """Tell whether an error may come of what was known of the database's types, and is so no more."""
    if isinstance(error, psycopg.Error):
        return error.sqlstate in _OUTDATED
    return isinstance(error, IndexMismatch | DatabaseDamaged)


def translate(error: BaseException) -> BaseException:
    """Put an error of the driver in our words; others stay as they are."""
    if isinstance(error, ConnectionLost | InDoubt):
        return DatabaseError("the connection was lost, twice in a row; nothing of this call was written")
    for kind, said in _MET.items():
        if isinstance(error, kind):
            return said[0](said[1])
    return _translate(error) if isinstance(error, psycopg.Error) else error


def _translate(error: psycopg.Error) -> MemStoreError:
    kind, way_out = _SAID.get(error.sqlstate or "", (DatabaseError, "see the cause"))
    said = error.diag.message_primary
    if error.sqlstate is None and not isinstance(error, psycopg.OperationalError):
        return DatabaseError(f"{type(error).__name__}; see the cause")
    if error.sqlstate is None:
        return DatabaseError(f"the server cannot be reached ({first_line(error)}); is it up, and the URL right?")
    shown = (
        said
        if kind is DatabaseError and said and error.sqlstate[:2] in ("0A", "28", "3D", "42", "57", "58")
        else error.sqlstate
    )
    return kind(f"{shown}; {way_out}")


def first_line(error: BaseException) -> str:
    """Say what went wrong, without what the driver adds: it may quote what was sent."""
    return str(error).strip().partition("\n")[0]
