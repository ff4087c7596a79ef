"""The SQL of `stats` and `check` for SQLite."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from memstore.items import Microseconds
from memstore.steps import Statement

_COUNTS: Final = """
SELECT (SELECT count(*) FROM memstore_namespaces), (SELECT count(*) FROM memstore_items),
       (SELECT count(*) FROM memstore_items WHERE expires_at <= ?),
       (SELECT count(*) FROM memstore_texts), clock, index_id
FROM memstore_clock"""
_STRAY_TEXTS: Final = """
FROM memstore_texts WHERE NOT EXISTS (
    SELECT 1 FROM memstore_items i
    WHERE i.id = memstore_texts.item_id AND i.namespace_id = memstore_texts.namespace_id)"""
_STRAY_ITEMS: Final = """
SELECT id FROM memstore_items i WHERE NOT EXISTS (SELECT 1 FROM memstore_namespaces n WHERE n.id = i.namespace_id)"""
_COUNTED: Final = "(SELECT count(*) FROM memstore_texts t WHERE t.namespace_id = memstore_namespaces.id)"
_MISCOUNTED: Final = f"SELECT id FROM memstore_namespaces WHERE texts <> {_COUNTED}"
_RECOUNT: Final = f"""
UPDATE memstore_namespaces SET texts = {_COUNTED}, version = version + 1 WHERE texts <> {_COUNTED}"""
_LARGEST: Final = """
max(coalesce((SELECT max(id) FROM memstore_items), 0), coalesce((SELECT max(id) FROM memstore_texts), 0),
    coalesce((SELECT max(text_id) FROM memstore_removals), 0))"""
_ITEMS_AFTER: Final = """
SELECT id, namespace_id, key, value, fields FROM memstore_items WHERE id > ? ORDER BY id LIMIT ?"""
_TEXTS_OF: Final = """
SELECT item_id, field, digest, length(vector) FROM memstore_texts
WHERE (namespace_id, item_id) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?)) ORDER BY id"""


class SqliteInspect:
    """The `InspectStatements` of SQLite."""

    def counts(self, now: Microseconds) -> Statement:
        return Statement(_COUNTS, (now,))

    def integrity(self) -> Statement:
        return Statement("PRAGMA integrity_check")

    def stray_texts(self) -> Statement:
        return Statement(f"SELECT id {_STRAY_TEXTS}")

    def delete_stray_texts(self) -> Statement:
        return Statement(f"DELETE {_STRAY_TEXTS}")

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

    def texts_of(self, items: Sequence[tuple[int, int]]) -> Statement:
        return Statement(_TEXTS_OF, (json.dumps(items),))
