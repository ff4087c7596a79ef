"""SQL for SQLite 3.37 and later.

A list is bound as one JSON array, so that a statement's text does not vary with its length.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from memstore.config import VectorKind
from memstore.dialects import Bounds, InspectStatements, ItemRow
from memstore.dialects.sqlite_inspect import SqliteInspect
from memstore.dialects.sqlite_threads import SqliteThreads
from memstore.dialects.threads import ThreadStatements
from memstore.filters import Narrowing
from memstore.items import Microseconds
from memstore.steps import NOTHING, Each, Flow, Many, Statement, Step

_ITEM: Final = "i.id, n.path, i.key, i.value, i.created_at, i.updated_at, i.ttl, i.expires_at"
_FROM: Final = "memstore_items i JOIN memstore_namespaces n ON n.id = i.namespace_id"
_LIVE: Final = "(i.expires_at IS NULL OR i.expires_at > ?)"
_LISTED: Final = "IN (SELECT value FROM json_each(?))"
_TEXTS: Final = "coalesce(length(i.digests), 0) / 16"

_SELECT_ITEM: Final = f"""
SELECT {_ITEM} FROM memstore_namespaces n JOIN memstore_items i ON i.namespace_id = n.id
WHERE n.path = ? AND i.key = ? AND {_LIVE}"""
_SELECT_ITEMS_BY_ID: Final = f"SELECT {_ITEM} FROM {_FROM} WHERE i.id {_LISTED} AND {_LIVE}"
_SELECT_NEWEST: Final = f"SELECT {_ITEM} FROM {_FROM} WHERE {_LIVE}"
_SELECT_NARROWED: Final = f"SELECT i.id FROM memstore_items i WHERE {_LIVE}"
_SELECT_PASSING: Final = f"SELECT i.id FROM memstore_items i WHERE i.id {_LISTED} AND {_LIVE}"
_SELECT_NARROWED_ITEMS: Final = f"SELECT {_ITEM} FROM {_FROM} WHERE {_LIVE}"
_NEWEST_FIRST: Final = " ORDER BY i.updated_at DESC, i.id DESC LIMIT ? OFFSET ?"
_SELECT_SCOPE: Final = """
SELECT n.id, n.version, n.texts, x'', c.clock, c.index_id, substr(c.marks, -4)
FROM memstore_namespaces n JOIN memstore_clock c ON c.id = 1 WHERE n.path >= ?"""
_COUNT_SCOPE: Final = "SELECT count(*), coalesce(sum(texts), 0) FROM memstore_namespaces"
_SELECT_REMOVALS: Final = """
SELECT c.floor, c.last_id, r.text_id, r.texts FROM memstore_clock c LEFT JOIN memstore_removals r ON r.clock > ?"""
_SELECT_TEXTS_AFTER: Final = f"""
SELECT i.id, i.namespace_id, i.text_id, {_TEXTS}, i.vectors, i.terms, i.texts FROM memstore_items i
WHERE i.id > ? AND i.text_id IS NOT NULL ORDER BY i.id LIMIT ?"""
_SELECT_LIVE_NAMESPACES: Final = f"""
SELECT n.path FROM memstore_namespaces n
WHERE EXISTS (SELECT 1 FROM memstore_items i WHERE i.namespace_id = n.id AND {_LIVE}) AND n.path >= ?"""
_SELECT_SLICES: Final = f"""
SELECT namespace_id, id, digests, vectors, terms, texts FROM memstore_items INDEXED BY memstore_items_key
WHERE namespace_id {_LISTED} AND text_id IS NOT NULL ORDER BY namespace_id"""
_SELECT_SLICE_CHANGES: Final = """
SELECT id, CASE WHEN id > ?2 THEN digests END, CASE WHEN id > ?2 THEN vectors END, CASE WHEN id > ?2 THEN terms END,
    CASE WHEN id > ?2 THEN texts END
FROM memstore_items INDEXED BY memstore_items_newest_in WHERE namespace_id = ?1"""  # reads no row it need not
_SELECT_INDEXED: Final = f"""
SELECT id, digests, vectors, terms, texts FROM memstore_items WHERE id {_LISTED} AND text_id IS NOT NULL"""
_SELECT_TIMES: Final = f"""
SELECT id, updated_at FROM memstore_items INDEXED BY memstore_items_newest_in WHERE namespace_id {_LISTED}"""
_SELECT_VECTORS: Final = f"""
SELECT digests, vectors FROM memstore_items WHERE id {_LISTED} AND digests IS NOT NULL"""
_SELECT_PLACE: Final = f"""
SELECT n.id, i.id, i.created_at, i.expires_at, i.text_id, {_TEXTS}, i.updated_at, i.digests
FROM memstore_namespaces n LEFT JOIN memstore_items i ON i.namespace_id = n.id AND i.key = ?2
WHERE n.path = ?1"""
_ADVANCE_CLOCK: Final = """
UPDATE memstore_clock SET clock = clock + 1, last_id = last_id + ?,
    marks = substr(marks || printf('%04x', random() & 65535), -2048)
RETURNING clock, last_id, index_id"""
_INSERT_ITEM: Final = f"INSERT INTO memstore_items VALUES ({', '.join('?' * len(ItemRow._fields))})"
_TOUCH_NAMESPACE: Final = "UPDATE memstore_namespaces SET version = version + 1, texts = texts + ?2 WHERE id = ?1"
_SELECT_UNANALYSED: Final = """
SELECT id, value, texts, digests FROM memstore_items WHERE id > ? AND text_id IS NOT NULL AND terms IS NULL
ORDER BY id LIMIT ?"""
_TOUCH_NAMESPACES_OF: Final = f"""
UPDATE memstore_namespaces SET version = version + 1
WHERE id IN (SELECT namespace_id FROM memstore_items WHERE id {_LISTED})"""
_DELETE_EMPTY: Final = f"""
DELETE FROM memstore_namespaces WHERE id {_LISTED}
AND NOT EXISTS (SELECT 1 FROM memstore_items i WHERE i.namespace_id = memstore_namespaces.id)"""

_MANY_NAMESPACES: Final = 64
"""From here on items are read newest first and those of others passed over, instead of all being sorted."""
_RELATIVE_ERROR: Final = 1e-9
"""SQLite reads decimal numbers to within a unit or two in the last place; narrowing leaves them room."""


class SqliteDialect:
    """The `Dialect` of SQLite."""

    def select_items(self, places: Sequence[tuple[bytes, str]], now: Microseconds) -> Each:
        return Each(_SELECT_ITEM, [(path, key, now) for path, key in places])

    def select_scope(self, start: bytes, end: bytes | None, limit: int) -> Statement:
        sql, params = _in_range(_SELECT_SCOPE, "n.path", [start], end)
        return Statement(sql + " ORDER BY n.path LIMIT ?", [*params, limit])

    def count_scope(self, start: bytes, end: bytes | None) -> Statement:
        if not start and end is None:
            return Statement(_COUNT_SCOPE)
        return Statement(*_in_range(_COUNT_SCOPE + " WHERE path >= ?", "path", [start], end))

    def select_scope_ids(self, start: bytes, end: bytes | None) -> Statement:
        sql = "SELECT id FROM memstore_namespaces WHERE path >= ?"
        return Statement(*_in_range(sql, "path", [start], end))

    def select_removals(self, clock: int) -> Statement:
        return Statement(_SELECT_REMOVALS, (clock,))

    def select_texts_after(self, item_id: int, limit: int) -> Statement:
        return Statement(_SELECT_TEXTS_AFTER, (item_id, limit))

    def select_live_namespaces(
        self, start: bytes, end: bytes | None, limit: int, offset: int, now: Microseconds
    ) -> Statement:
        sql, params = _in_range(_SELECT_LIVE_NAMESPACES, "n.path", [now, start], end)
        return Statement(sql + " ORDER BY n.path LIMIT ? OFFSET ?", [*params, limit, offset])

    def select_newest(
        self, scope: Sequence[int] | None, narrowings: Iterable[Narrowing], bounds: Bounds, now: Microseconds
    ) -> Statement:
        sorts = scope is not None and len(scope) <= _MANY_NAMESPACES
        sql, params = _within(scope, _SELECT_NEWEST, [now], indexed=sorts)
        if bounds.after is not None:
            sql, params = sql + " AND (i.updated_at, i.id) < (?, ?)", [*params, *bounds.after]
        sql, params = _narrowed(sql, params, narrowings)
        return Statement(sql + _NEWEST_FIRST, [*params, bounds.limit, bounds.offset])

    def select_narrowed(
        self, scope: Sequence[int] | None, narrowings: Iterable[Narrowing], now: Microseconds
    ) -> Statement:
        return Statement(*_narrowed(*_within(scope, _SELECT_NARROWED, [now]), narrowings))

    def select_passing(self, ids: Sequence[int], narrowings: Iterable[Narrowing], now: Microseconds) -> Statement:
        return Statement(*_narrowed(_SELECT_PASSING, [_to_list(ids), now], narrowings))

    def select_narrowed_items(
        self, scope: Sequence[int], narrowings: Iterable[Narrowing], now: Microseconds
    ) -> Statement:
        return Statement(*_narrowed(*_within(scope, _SELECT_NARROWED_ITEMS, [now]), narrowings))

    def select_items_by_id(
        self, ids: Sequence[int], now: Microseconds, narrowings: Iterable[Narrowing] = ()
    ) -> Statement:
        return Statement(*_narrowed(_SELECT_ITEMS_BY_ID, [_to_list(ids), now], narrowings))

    def select_slices(self, namespaces: Sequence[int], *, fields: bool = True) -> Statement:  # noqa: ARG002  of the same row
        return Statement(_SELECT_SLICES, (_to_list(namespaces),))

    def select_indexed(self, ids: Sequence[int]) -> Statement:
        return Statement(_SELECT_INDEXED, (_to_list(ids),))

    def select_times(self, namespaces: Sequence[int]) -> Statement:
        return Statement(_SELECT_TIMES, (_to_list(namespaces),))

    def select_times_of(self, ids: Sequence[int]) -> Statement:
        return Statement(f"SELECT id, updated_at FROM memstore_items WHERE id {_LISTED}", (_to_list(ids),))

    def select_slice_changes(self, namespaces: Sequence[tuple[int, int]], *, fields: bool = True) -> Each:  # noqa: ARG002
        return Each(_SELECT_SLICE_CHANGES, namespaces)

    def select_marks(self) -> Statement:
        return Statement("SELECT marks FROM memstore_clock")

    def select_clock(self) -> Statement:
        return Statement("SELECT clock FROM memstore_clock")

    def select_vectors(self, ids: Sequence[int]) -> Statement:
        return Statement(_SELECT_VECTORS, (_to_list(ids),))

    def claim_namespaces(self, paths: Sequence[bytes], *, make: bool) -> Step:  # noqa: ARG002  one writer at a time
        return NOTHING

    def claim_namespaces_of(self, item_ids: Sequence[int]) -> Step:  # noqa: ARG002
        return NOTHING

    def claim_settings(self) -> Step:
        return NOTHING

    def hold_vectors(self, kind: VectorKind | None, *, anew: bool) -> Flow[None]:  # noqa: ARG002  a BLOB takes any
        yield from ()

    def learn(self, index_id: int) -> Flow[None]:  # noqa: ARG002
        yield from ()

    def select_places(self, places: Sequence[tuple[bytes, str]]) -> Each:
        return Each(_SELECT_PLACE, places)

    def insert_namespaces(self, paths: Sequence[bytes]) -> Each:
        sql = "INSERT INTO memstore_namespaces (path, version, texts) VALUES (?, 0, 0) RETURNING id"
        return Each(sql, [(path,) for path in paths])

    def advance_clock(self, ids: int) -> Statement:
        return Statement(_ADVANCE_CLOCK, (ids,))

    def insert_removals(self, removals: Sequence[tuple[int, int, int]]) -> Many:
        return Many("INSERT INTO memstore_removals (clock, text_id, texts) VALUES (?, ?, ?)", removals)

    def delete_items(self, ids: Sequence[int]) -> Statement:
        return Statement(f"DELETE FROM memstore_items WHERE id {_LISTED}", (_to_list(ids),))

    def insert_items(self, rows: Sequence[ItemRow]) -> Many:
        return Many(_INSERT_ITEM, rows)

    def touch_namespaces(self, changes: Sequence[tuple[int, int]]) -> Many:
        return Many(_TOUCH_NAMESPACE, changes)

    def forget_removals(self, clock: int) -> Statement:
        return Statement("DELETE FROM memstore_removals WHERE clock <= ?", (clock,))

    def delete_empty_namespaces(self, ids: Sequence[int]) -> Statement:
        return Statement(_DELETE_EMPTY, (_to_list(ids),))

    def refresh_items(self, refreshes: Sequence[tuple[int, Microseconds]], now: Microseconds) -> Many:
        sql = "UPDATE memstore_items SET expires_at = ?2 WHERE id = ?1 AND expires_at > ?3 AND expires_at < ?2"
        return Many(sql, [(item_id, expires_at, now) for item_id, expires_at in refreshes])

    def select_expired(self, now: Microseconds, limit: int) -> Statement:
        sql = f"SELECT i.id, i.namespace_id, i.text_id, {_TEXTS} FROM memstore_items i WHERE i.expires_at <= ? LIMIT ?"
        return Statement(sql, (now, limit))

    def select_expired_among(self, ids: Sequence[int], now: Microseconds) -> Step:
        sql = f"SELECT i.id, i.namespace_id, i.text_id, {_TEXTS} FROM memstore_items i"
        return Statement(f"{sql} WHERE i.id {_LISTED} AND i.expires_at <= ?", (_to_list(ids), now))

    def select_index(self) -> Statement:
        return Statement("SELECT id, settings FROM memstore_index ORDER BY id DESC LIMIT 1")

    def insert_index(self, settings: str) -> Statement:
        return Statement("INSERT INTO memstore_index (settings) VALUES (?) RETURNING id", (settings,))

    def update_index(self, index_id: int, settings: str) -> Statement:
        return Statement("UPDATE memstore_index SET settings = ? WHERE id = ?", (settings, index_id))

    def enforce_index(self, index_id: int) -> Statement:
        return Statement("UPDATE memstore_clock SET index_id = ?", (index_id,))

    def raise_floor(self, clock: int) -> Statement:
        return Statement("UPDATE memstore_clock SET floor = max(floor, ?)", (clock,))

    def forget_terms(self) -> Statement:
        return Statement("UPDATE memstore_items SET terms = NULL WHERE terms IS NOT NULL")

    def select_unanalysed(self, item_id: int, limit: int) -> Statement:
        return Statement(_SELECT_UNANALYSED, (item_id, limit))

    def update_terms(self, terms: Sequence[tuple[int, bytes]]) -> Many:
        return Many("UPDATE memstore_items SET terms = ?2 WHERE id = ?1 AND terms IS NULL", terms)

    def touch_namespaces_of(self, item_ids: Sequence[int]) -> Statement:
        return Statement(_TOUCH_NAMESPACES_OF, (_to_list(item_ids),))

    def has_texts(self) -> Statement:
        return Statement("SELECT 1 FROM memstore_namespaces WHERE texts > 0 LIMIT 1")

    def claim_setup(self) -> Step:
        return NOTHING

    def to_statement(self, migration: str) -> Statement:
        return Statement(migration)

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

    def threads(self) -> ThreadStatements:
        return SqliteThreads()


def _to_list(values: Sequence[Any]) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def _within(scope: Sequence[int] | None, sql: str, params: list[Any], *, indexed: bool = True) -> tuple[str, list[Any]]:
    """Keep to the items of some namespaces, found by index or passed over where they are not."""
    if scope is None:
        return sql, params
    if len(scope) == 1:
        return sql + " AND i.namespace_id = ?", [*params, scope[0]]
    return f"{sql} AND {'' if indexed else '+'}i.namespace_id {_LISTED}", [*params, _to_list(scope)]


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
