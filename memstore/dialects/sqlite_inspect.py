"""The SQL of `stats` and `check` for SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from memstore.dialects import IndexedRow
from memstore.items import Microseconds
from memstore.steps import NOTHING, Each, Statement, Step

_TEXTS: Final = "coalesce(length(digests), 0) / 16"
_COUNTS: Final = """
SELECT (SELECT count(*) FROM memstore_namespaces), (SELECT count(*) FROM memstore_items),
       (SELECT count(*) FROM memstore_items WHERE expires_at <= ?),
       (SELECT coalesce(sum(texts), 0) FROM memstore_namespaces), clock, index_id
FROM memstore_clock"""
_STRAY_ITEMS: Final = """
SELECT id FROM memstore_items i WHERE NOT EXISTS (SELECT 1 FROM memstore_namespaces n WHERE n.id = i.namespace_id)"""
_COUNTED: Final = f"""
coalesce((SELECT sum({_TEXTS}) FROM memstore_items i WHERE i.namespace_id = memstore_namespaces.id), 0)"""
_MISCOUNTED: Final = f"SELECT id FROM memstore_namespaces WHERE texts <> {_COUNTED}"
_RECOUNT: Final = f"""
UPDATE memstore_namespaces SET texts = {_COUNTED}, version = version + 1 WHERE texts <> {_COUNTED}"""
_LARGEST: Final = f"""
max(coalesce((SELECT max(id) FROM memstore_items), 0),
    coalesce((SELECT max(text_id + {_TEXTS} - 1) FROM memstore_items), 0),
    coalesce((SELECT max(text_id + texts - 1) FROM memstore_removals), 0))"""
_ITEMS_AFTER: Final = """
SELECT id, value, fields, CASE WHEN text_id IS NOT NULL THEN texts END, digests, terms, length(vectors)
FROM memstore_items WHERE id > ? ORDER BY id LIMIT ?"""
_UPDATE_TEXTS: Final = """
UPDATE memstore_items SET id = ?, text_id = ?, texts = ?, digests = ?, vectors = ?, terms = ? WHERE id = ?"""


class SqliteInspect:
    """The `InspectStatements` of SQLite."""

    def id_range(self) -> Statement:
        return Statement("SELECT min(id), max(id) FROM memstore_items")

    def items_with_texts_from(self, ids: Sequence[int]) -> Step:
        sql = "SELECT id FROM memstore_items WHERE id >= ? AND text_id IS NOT NULL ORDER BY id LIMIT 1"
        return Each(sql, [(item_id,) for item_id in ids])

    def counts(self, now: Microseconds) -> Statement:
        return Statement(_COUNTS, (now,))

    def integrity(self) -> Statement:
        return Statement("PRAGMA integrity_check")

    def stray_texts(self) -> Step:
        return NOTHING  # they stand in their item's row

    def forget_stray_texts(self) -> Step:
        return NOTHING

    def stray_items(self) -> Statement:
        return Statement(_STRAY_ITEMS)

    def miscounted(self) -> Statement:
        return Statement(_MISCOUNTED)

    def recount(self) -> Statement:
        return Statement(_RECOUNT)

    def overrun(self) -> Statement:
        return Statement(f"SELECT {_LARGEST} FROM memstore_clock WHERE {_LARGEST} > last_id")

    def raise_last_id(self) -> Statement:
        return Statement(f"UPDATE memstore_clock SET last_id = {_LARGEST} WHERE {_LARGEST} > last_id")

    def items_after(self, item_id: int, limit: int) -> Statement:
        return Statement(_ITEMS_AFTER, (item_id, limit))

    def select_mendable(self, item_id: int) -> Statement:
        return Statement(f"SELECT namespace_id, text_id, {_TEXTS} FROM memstore_items WHERE id = ?", (item_id,))

    def update_texts(self, item_id: int, namespace_id: int, row: IndexedRow) -> Statement:  # noqa: ARG002
        return Statement(_UPDATE_TEXTS, (*row, item_id))
