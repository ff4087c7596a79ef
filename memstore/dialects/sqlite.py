"""SQL for SQLite 3.37 and later.

A list is bound as one JSON array, so that a statement's text does not vary with its length.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import Any, Final

from memstore.dialects import Bounds, InspectStatements, ItemRow, TextRow
from memstore.dialects.sqlite_inspect import SqliteInspect
from memstore.filters import Narrowing
from memstore.items import Microseconds
from memstore.steps import Each, Many, Statement

_ITEM: Final = "i.id, n.path, i.key, i.value, i.created_at, i.updated_at, i.ttl, i.expires_at"
_FROM: Final = "memstore_items i JOIN memstore_namespaces n ON n.id = i.namespace_id"
_LIVE: Final = "(i.expires_at IS NULL OR i.expires_at > ?)"
_LISTED: Final = "IN (SELECT value FROM json_each(?))"
_PAIRED: Final = "IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))"

_SELECT_ITEM: Final = f"""
SELECT {_ITEM} FROM memstore_namespaces n JOIN memstore_items i ON i.namespace_id = n.id
WHERE n.path = ? AND i.key = ? AND {_LIVE}"""
_SELECT_ITEMS_BY_ID: Final = f"SELECT {_ITEM} FROM {_FROM} WHERE i.id {_LISTED} AND {_LIVE}"
_SELECT_NEWEST: Final = f"SELECT {_ITEM} FROM {_FROM} WHERE {_LIVE}"
_SELECT_NARROWED: Final = f"SELECT i.id FROM memstore_items i WHERE i.namespace_id {_LISTED} AND {_LIVE}"
_NEWEST_FIRST: Final = " ORDER BY i.updated_at DESC, i.id DESC LIMIT ? OFFSET ?"
_AFTER: Final = " AND (i.updated_at, i.id) < (?, ?)"
_SELECT_SCOPE: Final = """
SELECT id, path, version, texts, (SELECT index_id FROM memstore_clock) FROM memstore_namespaces WHERE path >= ?"""
_SELECT_LIVE_NAMESPACES: Final = f"""
SELECT n.path FROM memstore_namespaces n
WHERE EXISTS (SELECT 1 FROM memstore_items i WHERE i.namespace_id = n.id AND {_LIVE}) AND n.path >= ?"""
_SELECT_SLICES: Final = f"""
SELECT namespace_id, item_id, vector FROM memstore_texts WHERE namespace_id {_LISTED} ORDER BY namespace_id, item_id"""
_SELECT_KEPT: Final = """
SELECT t.digest, t.vector FROM memstore_namespaces n
JOIN memstore_items i ON i.namespace_id = n.id
JOIN memstore_texts t ON t.namespace_id = n.id AND t.item_id = i.id
WHERE n.path = ? AND i.key = ?"""
_SELECT_REPLACED: Final = f"""
SELECT id, namespace_id, key, created_at, updated_at, expires_at FROM memstore_items
WHERE (namespace_id, key) {_PAIRED}"""
_ADVANCE_CLOCK: Final = """
UPDATE memstore_clock SET clock = clock + 1, last_id = last_id + ? RETURNING clock, last_id, index_id"""
_DELETE_TEXTS: Final = f"""
DELETE FROM memstore_texts WHERE (namespace_id, item_id) {_PAIRED} RETURNING id, namespace_id"""
_INSERT_ITEM: Final = """
INSERT INTO memstore_items (id, namespace_id, key, value, fields, created_at, updated_at, ttl, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_INSERT_TEXT: Final = """
INSERT INTO memstore_texts (id, namespace_id, item_id, field, digest, vector) VALUES (?, ?, ?, ?, ?, ?)"""
_TOUCH_NAMESPACE: Final = "UPDATE memstore_namespaces SET version = version + 1, texts = texts + ?2 WHERE id = ?1"
_DELETE_EMPTY: Final = f"""
DELETE FROM memstore_namespaces WHERE id {_LISTED}
AND NOT EXISTS (SELECT 1 FROM memstore_items i WHERE i.namespace_id = memstore_namespaces.id)"""

_RELATIVE_ERROR: Final = 1e-9
"""SQLite reads decimal numbers to within a unit or two in the last place; narrowing leaves them room."""


class SqliteDialect:
    """The `Dialect` of SQLite."""

    def select_items(self, places: Sequence[tuple[bytes, str]], now: Microseconds) -> Each:
        return Each(_SELECT_ITEM, [(path, key, now) for path, key in places])

    def select_scope(self, start: bytes, end: bytes | None) -> Statement:
        sql, params = _in_range(_SELECT_SCOPE, "path", [start], end)
        return Statement(sql + " ORDER BY path", params)

    def select_live_namespaces(
        self, start: bytes, end: bytes | None, limit: int, offset: int, now: Microseconds
    ) -> Statement:
        sql, params = _in_range(_SELECT_LIVE_NAMESPACES, "n.path", [now, start], end)
        return Statement(sql + " ORDER BY n.path LIMIT ? OFFSET ?", [*params, limit, offset])

    def select_newest(
        self, scope: Sequence[int] | None, narrowings: Iterable[Narrowing], bounds: Bounds, now: Microseconds
    ) -> Statement:
        sql: str = _SELECT_NEWEST
        params: list[Any] = [now]
        if scope is not None and len(scope) == 1:
            sql, params = sql + " AND i.namespace_id = ?", [*params, scope[0]]
        elif scope is not None:
            sql, params = f"{sql} AND i.namespace_id {_LISTED}", [*params, _to_list(scope)]
        if bounds.after is not None:
            sql, params = sql + _AFTER, [*params, *bounds.after]
        sql, params = _narrowed(sql, params, narrowings)
        return Statement(sql + _NEWEST_FIRST, [*params, bounds.limit, bounds.offset])

    def select_narrowed(self, scope: Sequence[int], narrowings: Iterable[Narrowing], now: Microseconds) -> Statement:
        return Statement(*_narrowed(_SELECT_NARROWED, [_to_list(scope), now], narrowings))

    def select_items_by_id(self, ids: Sequence[int], now: Microseconds) -> Statement:
        return Statement(_SELECT_ITEMS_BY_ID, (_to_list(ids), now))

    def select_slices(self, namespaces: Sequence[int]) -> Statement:
        return Statement(_SELECT_SLICES, (_to_list(namespaces),))

    def select_kept_vectors(self, places: Sequence[tuple[bytes, str]]) -> Each:
        return Each(_SELECT_KEPT, places)

    def select_namespace_ids(self, paths: Sequence[bytes]) -> Each:
        return Each("SELECT id FROM memstore_namespaces WHERE path = ?", [(path,) for path in paths])

    def insert_namespaces(self, paths: Sequence[bytes]) -> Each:
        sql = "INSERT INTO memstore_namespaces (path, version, texts) VALUES (?, 0, 0) RETURNING id"
        return Each(sql, [(path,) for path in paths])

    def select_replaced(self, places: Sequence[tuple[int, str]]) -> Statement:
        return Statement(_SELECT_REPLACED, (_to_list(places),))

    def advance_clock(self, ids: int) -> Statement:
        return Statement(_ADVANCE_CLOCK, (ids,))

    def delete_texts(self, items: Sequence[tuple[int, int]]) -> Statement:
        return Statement(_DELETE_TEXTS, (_to_list(items),))

    def insert_removals(self, text_ids: Sequence[int], clock: int) -> Many:
        sql = "INSERT INTO memstore_removals (text_id, clock) VALUES (?, ?)"
        return Many(sql, [(text_id, clock) for text_id in text_ids])

    def delete_items(self, ids: Sequence[int]) -> Statement:
        return Statement(f"DELETE FROM memstore_items WHERE id {_LISTED}", (_to_list(ids),))

    def insert_items(self, rows: Sequence[ItemRow]) -> Many:
        return Many(_INSERT_ITEM, list(map(astuple, rows)))

    def insert_texts(self, rows: Sequence[TextRow]) -> Many:
        return Many(_INSERT_TEXT, list(map(astuple, rows)))

    def touch_namespaces(self, changes: Sequence[tuple[int, int]]) -> Many:
        return Many(_TOUCH_NAMESPACE, changes)

    def delete_empty_namespaces(self, ids: Sequence[int]) -> Statement:
        return Statement(_DELETE_EMPTY, (_to_list(ids),))

    def refresh_items(self, refreshes: Sequence[tuple[int, Microseconds]], now: Microseconds) -> Many:
        sql = "UPDATE memstore_items SET expires_at = ?2 WHERE id = ?1 AND expires_at > ?3 AND expires_at < ?2"
        return Many(sql, [(item_id, expires_at, now) for item_id, expires_at in refreshes])

    def select_expired(self, now: Microseconds, limit: int) -> Statement:
        return Statement("SELECT id, namespace_id FROM memstore_items WHERE expires_at <= ? LIMIT ?", (now, limit))

    def select_index(self) -> Statement:
        return Statement("SELECT id, settings FROM memstore_index ORDER BY id DESC LIMIT 1")

    def insert_index(self, settings: str) -> Statement:
        return Statement("INSERT INTO memstore_index (settings) VALUES (?) RETURNING id", (settings,))

    def update_index(self, index_id: int, settings: str) -> Statement:
        return Statement("UPDATE memstore_index SET settings = ? WHERE id = ?", (settings, index_id))

    def enforce_index(self, index_id: int) -> Statement:
        return Statement("UPDATE memstore_clock SET index_id = ?", (index_id,))

    def has_texts(self) -> Statement:
        return Statement("SELECT 1 FROM memstore_texts LIMIT 1")

    def has_migrations(self) -> Statement:
        return Statement("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'memstore_migrations'")

    def create_migrations(self) -> Statement:
        return Statement(
            "CREATE TABLE memstore_migrations "
            "(number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT"
        )

    def select_migrations(self) -> Statement:
        return Statement("SELECT number, name FROM memstore_migrations ORDER BY number")

    def insert_migration(self, number: int, name: str, now: Microseconds) -> Statement:
        sql = "INSERT INTO memstore_migrations (number, name, applied_at) VALUES (?, ?, ?)"
        return Statement(sql, (number, name, now))

    def inspect(self) -> InspectStatements:
        return SqliteInspect()


def _to_list(values: Sequence[Any]) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def _in_range(sql: str, column: str, params: list[Any], end: bytes | None) -> tuple[str, list[Any]]:
    """Close a range that `sql` opened, where it has an end."""
    return (sql, params) if end is None else (f"{sql} AND {column} < ?", [*params, end])


def _narrowed(sql: str, params: list[Any], narrowings: Iterable[Narrowing]) -> tuple[str, list[Any]]:
    """Add what a filter allows SQL to decide."""
    for narrowing in narrowings:
        condition, bound = _compare(narrowing)
        ways = []
        for path in narrowing.paths:
            ways.append(f"json_extract(i.value, ?) {condition}")
            params = [*params, "$" + "".join(f'."{part}"' for part in path), *bound]
        sql += f" AND ({' OR '.join(ways)})"
    return sql, params


def _compare(narrowing: Narrowing) -> tuple[str, list[Any]]:
    operand = narrowing.operand
    if narrowing.relation == "among":
        return _LISTED, [_to_list(operand)]
    if isinstance(operand, str):
        return {"equal": "= ?", "at_least": ">= ?", "at_most": "<= ?"}[narrowing.relation], [operand]
    room = abs(operand) * _RELATIVE_ERROR
    return {
        "equal": ("BETWEEN ? AND ?", [operand - room, operand + room]),
        "at_least": (">= ?", [operand - room]),
        "at_most": ("<= ?", [operand + room]),
    }[narrowing.relation]
