"""The SQL of `stats` and `check` for Postgres."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from memstore.analysis import to_blob
from memstore.dialects import IndexedRow
from memstore.dialects.postgres_text import grouped
from memstore.items import Microseconds
from memstore.steps import Decoded, Row, Statement, Step, Together

if TYPE_CHECKING:
    from memstore.dialects.postgres import PostgresDialect

_COUNTS: Final = """
SELECT (SELECT count(*) FROM @namespaces), (SELECT count(*) FROM @items),
       (SELECT count(*) FROM @items WHERE expires_at <= $1::int8),
       (SELECT coalesce(sum(texts), 0)::int8 FROM @namespaces),
       (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM @clock), index_id
FROM @state"""
_WITH_TEXTS: Final = """
SELECT u.at, x.id FROM pg_catalog.unnest($1::int8[]) WITH ORDINALITY AS u(id, at) CROSS JOIN LATERAL (
    SELECT i.id FROM @items i JOIN @texts t ON t.namespace_id = i.namespace_id AND t.item_id = i.id
    WHERE i.id >= u.id ORDER BY i.id LIMIT 1) x"""
_STRAY_ITEMS: Final = """
SELECT i.id FROM @items i WHERE NOT EXISTS (SELECT 1 FROM @namespaces n WHERE n.id = i.namespace_id)"""
_STRAY_TEXTS: Final = """
FROM @texts t
WHERE NOT EXISTS (SELECT 1 FROM @items i WHERE i.id = t.item_id AND i.namespace_id = t.namespace_id)"""
_STRAY_VECTORS: Final = """
FROM @vectors v WHERE NOT EXISTS (
    SELECT 1 FROM @texts t JOIN @items i ON i.id = t.item_id AND i.namespace_id = t.namespace_id
    WHERE t.namespace_id = v.namespace_id AND t.item_id = v.item_id AND t.place = v.place)"""
_COUNTED: Final = """(
    SELECT count(*) FROM @texts t JOIN @items i ON i.id = t.item_id AND i.namespace_id = t.namespace_id
    WHERE t.namespace_id = n.id)"""
_MISCOUNTED: Final = f"SELECT n.id FROM @namespaces n WHERE n.texts <> {_COUNTED}"
_RECOUNT: Final = f"""
UPDATE @namespaces n SET texts = {_COUNTED}, version = n.version + 1, marks = '' WHERE n.texts <> {_COUNTED}"""
_OVERRUN: Final = """
SELECT max(i.id) FROM @items i, @clock c
HAVING max(i.id) >> 24 > max(CASE WHEN c.is_called THEN c.last_value ELSE 0 END)"""
_RAISE_LAST_ID: Final = "SELECT setval($1::regclass, (SELECT max(id) >> 24 FROM @items))"
_ITEMS_AFTER: Final = """
SELECT i.id, i.value, i.fields, x.labels, x.digests, x.terms, x.size
FROM (SELECT * FROM @items WHERE id > $1::int8 ORDER BY id LIMIT $2::int8) i CROSS JOIN LATERAL (
    SELECT pg_catalog.array_agg(t.field ORDER BY t.place) AS labels,
           string_agg(t.digest, ''::bytea ORDER BY t.place) AS digests,
           pg_catalog.array_agg(t.terms::text ORDER BY t.place) AS terms, {size} AS size
    FROM @texts t {vectors} WHERE t.namespace_id = i.namespace_id AND t.item_id = i.id
) x ORDER BY i.id"""
_SELECT_MENDABLE: Final = """
SELECT i.namespace_id, CASE WHEN count(t) > 0 THEN i.id END, count(t)
FROM @items i LEFT JOIN @texts t ON t.namespace_id = i.namespace_id AND t.item_id = i.id
WHERE i.id = $1::int8 GROUP BY i.id"""
_FORGET_TEXTS: Final = """
DELETE FROM @{table} t USING @items i WHERE i.id = $1::int8 AND t.namespace_id = i.namespace_id AND t.item_id = i.id"""
_SIZES: Final = """
SELECT coalesce(sum(pg_relation_size(c.oid)), 0)::int8, coalesce(sum(pg_relation_size(c.oid)) FILTER (
    WHERE c.relname = 'memstore_vectors_ann'), 0)::int8
FROM pg_class c WHERE c.oid IN (
    SELECT unnest(ARRAY[r.oid, r.reltoastrelid]) FROM pg_class r WHERE r.oid = ANY($1::regclass[]::oid[])
    UNION ALL SELECT x.indexrelid FROM pg_index x WHERE x.indrelid = ANY($1::regclass[]::oid[]))"""


class PostgresInspect:
    """The `InspectStatements` of Postgres."""

    def __init__(self, dialect: PostgresDialect) -> None:
        self._dialect = dialect

    def _say(self, sql: str, *params: Any) -> Statement:
        return self._dialect.say(sql, *params)

    def counts(self, now: Microseconds) -> Statement:
        return self._say(_COUNTS, now)

    def id_range(self) -> Statement:
        return self._say("SELECT min(i.id), max(i.id) FROM @items i")

    def items_with_texts_from(self, ids: Sequence[int]) -> Step:
        return Decoded(self._say(_WITH_TEXTS, list(ids)), grouped(len(ids)))

    def sizes(self) -> Statement:
        """One row: (bytes of everything, bytes of the index of vectors among them)."""
        tables = ["namespaces", "items", "texts", *(["vectors"] if self._dialect.vectors else [])]
        return self._say(_SIZES, [self._dialect.name(table) for table in tables])

    def integrity(self) -> Statement:
        return Statement("SELECT 'ok'")

    def stray_texts(self) -> Step:
        sql = f"SELECT t.item_id {_STRAY_TEXTS}"
        return self._say(sql if self._dialect.vectors is None else f"{sql} UNION ALL SELECT v.item_id {_STRAY_VECTORS}")

    def forget_stray_texts(self) -> Step:
        steps = [f"DELETE {_STRAY_TEXTS}", *([f"DELETE {_STRAY_VECTORS}"] if self._dialect.vectors else [])]
        return Together([self._say(sql) for sql in steps])

    def stray_items(self) -> Statement:
        return self._say(_STRAY_ITEMS)

    def miscounted(self) -> Statement:
        return self._say(_MISCOUNTED)

    def recount(self) -> Statement:
        return self._say(_RECOUNT)

    def overrun(self) -> Statement:
        return self._say(_OVERRUN)

    def raise_last_id(self) -> Statement:
        return self._say(_RAISE_LAST_ID, self._dialect.name("clock"))

    def items_after(self, item_id: int, limit: int) -> Step:
        column = self._dialect.vectors
        size, vectors = "NULL::int8", ""
        if column is not None:
            dims = f"{column.schema}.vector_dims(v.embedding)"
            size = f"CASE WHEN min({dims}) = max({dims}) THEN 4 * sum({dims}) WHEN count(v) > 0 THEN -1 END"
            vectors = "LEFT JOIN @vectors v USING (namespace_id, item_id, place)"
        return Decoded(self._say(_ITEMS_AFTER.format(size=size, vectors=vectors), item_id, limit), _to_columns)

    def select_mendable(self, item_id: int) -> Statement:
        return self._say(_SELECT_MENDABLE, item_id)

    def update_texts(self, item_id: int, namespace_id: int, row: IndexedRow) -> Step:
        tables = ["texts", *(["vectors"] if self._dialect.vectors else [])]
        forget: list[Step] = [self._say(_FORGET_TEXTS.format(table=table), item_id) for table in tables]
        move = self._say("UPDATE @items SET id = $1::int8 WHERE id = $2::int8", row.id, item_id)
        steps: list[Step] = [*forget, move]
        if row.texts is not None:
            steps += self._dialect.insert_texts([(namespace_id, row)])
        return Together(steps)


def _to_columns(rows: list[Row]) -> list[Row]:
    """Give rows the columns that every backend's have: labels as JSON, the terms of all texts in one."""
    return [
        (
            item_id,
            value,
            fields,
            json.dumps(labels, ensure_ascii=False) if labels else None,
            digests,
            _to_terms(terms),
            size,
        )
        for item_id, value, fields, labels, digests, terms, size in rows
    ]


def _to_terms(arrays: list[str | None] | None) -> bytes | None:
    if arrays is None or any(array is None for array in arrays):
        return None
    spelled = [array[1:-1].split(",") if array and len(array) > 2 else [] for array in arrays]  # noqa: PLR2004  {}
    return to_blob([np.array([int(part) for part in parts], np.int32).view(np.uint32) for parts in spelled])
