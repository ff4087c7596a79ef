"""The SQL of wide scopes in Postgres: the nearest vectors, and the texts that hold a query's terms.

Rows of all texts of a scope come as a few arrays, which decode a hundred times quicker than rows. Functions of any type
are qualified: another that takes the very type may stand on the search path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pgvector import Vector

from memstore.indexes import Metric, Terms, Vectors
from memstore.indexes.pgvector import Kind, VectorColumn
from memstore.steps import Statement

if TYPE_CHECKING:
    from memstore.dialects.postgres import PostgresDialect

VECTORS_INDEX: Final = "memstore_vectors_ann"
TERMS_INDEX: Final = "memstore_texts_terms"
_LIST: Final = 10
"""Candidates that stand for one list of an IVFFlat index."""
_MOST: Final = 1000
"""The largest hnsw.ef_search that pgvector takes."""
_STATE: Final = """
SELECT c.relname, x.indisvalid FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid
WHERE x.indrelid = ANY($1::regclass[]::oid[]) AND c.relname = ANY($2::text[])"""
_PREPARE: Final = """
SELECT set_config('jit', 'off', true), set_config('hnsw.ef_search', $1::text, true),
       set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('ivfflat.probes', $2::text, true),
       set_config('ivfflat.iterative_scan', 'relaxed_order', true)"""
_NEAREST: Final = """
SELECT v.namespace_id, v.item_id, {distance} FROM @vectors v WHERE true"""
_ARRAYS: Final = """
SELECT pg_catalog.array_agg(v.item_id), pg_catalog.array_agg(v.place::int8), pg_catalog.array_agg({distance}){counts}"""
_SAME_TEXT: Final = "JOIN @texts t ON t.namespace_id = v.namespace_id AND t.item_id = v.item_id AND t.place = v.place"
_DISTANCES: Final = f"""{_ARRAYS}
FROM @vectors v {{joins}} WHERE true"""
_DISTANCES_OF: Final = f"""{_ARRAYS}
FROM (SELECT DISTINCT * FROM unnest($2::int8[], $3::int8[]) AS u(namespace_id, item_id)) u
JOIN @vectors v USING (namespace_id, item_id) {{joins}}"""
_DISTANCES_AMONG: Final = f"""{_ARRAYS}
FROM @items i JOIN @vectors v ON v.namespace_id = i.namespace_id AND v.item_id = i.id {{joins}}
WHERE i.id = ANY($2::int8[])"""
_POSTINGS: Final = """
SELECT u.at, pg_catalog.array_agg(t.namespace_id), pg_catalog.array_agg(t.item_id),
       pg_catalog.array_agg(t.place::int8), pg_catalog.array_agg(pg_catalog.cardinality(t.terms)::int8){counts}
FROM pg_catalog.unnest($1::int4[]) WITH ORDINALITY AS u(term, at)
JOIN @texts t ON t.terms @> ARRAY[u.term] {joins} WHERE true"""
_HOMES: Final = ", pg_catalog.array_agg(v.namespace_id)"
_COUNTS: Final = ", pg_catalog.array_agg(coalesce(w.count, x.count, 1::float8))"
_JOINS: Final = """
LEFT JOIN unnest($%d::text[], $%d::float8[]) AS w(path, count) ON w.path = t.field
LEFT JOIN unnest($%d::text[], $%d::float8[]) AS x(path, count)
    ON x.path = pg_catalog.regexp_replace(t.field, '[.][0-9]+$', '')"""
_ITEMS: Final = """
SELECT pg_catalog.array_agg(t.item_id), pg_catalog.array_agg(t.namespace_id) FROM @texts t WHERE t.place = 0"""


class PostgresWide:
    """The statements of wide scopes.

    Args:
        dialect: The backend's.
        weights: What texts count, by the paths that gave them.
    """

    def __init__(self, dialect: PostgresDialect, weights: Mapping[str, float] | None = None) -> None:
        self._dialect = dialect
        self._weights = dict(weights or {})

    def count(self, namespaces: Sequence[int] | None) -> Statement:
        """One row: how many texts some namespaces hold (None: all)."""
        select = self._dialect.select("SELECT coalesce(sum(n.texts), 0)::int8 FROM @namespaces n WHERE true")
        return select.within("n.id", namespaces).done()

    def estimate(self) -> Statement:
        """One row: about how many texts have vectors."""
        return Statement(
            "SELECT reltuples::int8 FROM pg_class WHERE oid = $1::regclass", (self._dialect.name("vectors"),)
        )

    def index_state(self) -> Statement:
        """The indexes of wide scopes that exist: (name, whether it may be used)."""
        tables = [self._dialect.name(table) for table in ("texts", "vectors")[: 2 if self._dialect.vectors else 1]]
        return Statement(_STATE, (tables, [VECTORS_INDEX, TERMS_INDEX]))

    def prepare(self, ef_search: int) -> Statement:
        """Set for this transaction how an index is searched."""
        one_more = min(ef_search + 1, _MOST)  # by which it is known whether others are as near as the last
        return Statement(_PREPARE, (str(one_more), str(max(1, ef_search // _LIST))))

    def nearest(self, metric: Metric, query: Vectors, namespaces: Sequence[int] | None, count: int) -> Statement:
        """The nearest texts by the index of vectors, about the best first: (namespace_id, item_id, distance)."""
        column, kind = self._column(metric, len(query))
        given = column.indexed(f"$1::{column.type}", kind, len(query))
        distance = f"{column.indexed('v.embedding', kind, len(query))} {column.operator(metric)} {given}"
        select = self._dialect.select(_NEAREST.format(distance=distance), *column.to_values(query[None]))
        select.within("v.namespace_id", namespaces)
        return select.add(f" ORDER BY {distance} LIMIT {select.bind(count)}::int8").done()

    def distances(
        self, metric: Metric, query: Vectors, namespaces: Sequence[int] | None, *, homes: bool = False
    ) -> Statement:
        """One row of arrays for all texts with vectors, or of None: (item ids, places, distances).

        With `homes` also their namespaces' ids, and with weights what each counts.
        """
        sql, counts = self._to_exact(_DISTANCES, metric, 2, _HOMES if homes else "")
        select = self._dialect.select(sql, Vector(query), *counts)
        return select.within("v.namespace_id", namespaces).done()

    def distances_of(self, metric: Metric, query: Vectors, items: Sequence[tuple[int, int]]) -> Statement:
        """The same for the texts of some items (namespace_id, item_id)."""
        columns = ([item[at] for item in items] for at in (0, 1))
        sql, counts = self._to_exact(_DISTANCES_OF, metric, 4)
        return self._dialect.say(sql, Vector(query), *columns, *counts)

    def distances_among(self, metric: Metric, query: Vectors, item_ids: Sequence[int]) -> Statement:
        """The same for the texts of some items, told by their ids alone."""
        sql, counts = self._to_exact(_DISTANCES_AMONG, metric, 3)
        return self._dialect.say(sql, Vector(query), list(item_ids), *counts)

    def items(self, namespaces: Sequence[int] | None) -> Statement:
        """One row of arrays for all items with texts: (item ids, namespace ids), or of None."""
        return self._dialect.select(_ITEMS).within("t.namespace_id", namespaces).done()

    def postings(self, terms: Terms, namespaces: Sequence[int] | None) -> Statement:
        """For each term that is held, arrays of the texts: (term, namespace ids, item ids, places, numbers of terms).

        With weights also what each counts. Terms are told by their place among those given, from 1 on.
        """
        sql, counts = self._counted(_POSTINGS, 2)
        select = self._dialect.select(sql, terms.astype(np.uint32, copy=False).view(np.int32).tolist(), *counts)
        return select.within("t.namespace_id", namespaces).add(" GROUP BY u.at ORDER BY u.at").done()

    def create_terms_index(self) -> Statement:
        """Make the index of terms, beside what else is done."""
        return self._dialect.say(f"CREATE INDEX CONCURRENTLY {TERMS_INDEX} ON @texts USING gin (terms)")

    def create_vectors_index(self, metric: Metric, dims: int, method: str, options: dict[str, int]) -> Statement | None:
        """Make the index of vectors, beside what else is done; None where they are too long for one."""
        column = self._dialect.vectors
        kind = None if column is None else column.indexed_kind(metric, dims)
        if column is None or kind is None:
            return None
        expression = f"({column.indexed('embedding', kind, dims)}) {column.operator_class(metric, kind)}"
        settings = ", ".join(f"{name} = {number}" for name, number in options.items())
        sql = f"CREATE INDEX CONCURRENTLY {VECTORS_INDEX} ON @vectors USING {method} ({expression}) WITH ({settings})"
        return self._dialect.say(sql)

    def drop_index(self, name: str) -> Statement:
        """Drop one that was left half-made."""
        return Statement(f"DROP INDEX CONCURRENTLY IF EXISTS {self._dialect.schema}.{name}")

    def _to_exact(self, sql: str, metric: Metric, parameter: int, more: str = "") -> tuple[str, list[Any]]:
        column: Any = self._dialect.vectors
        return self._counted(sql, parameter, column.exact(metric, "v.embedding", "$1"), more)

    def _counted(self, sql: str, parameter: int, distance: str = "", more: str = "") -> tuple[str, list[Any]]:
        """Complete a statement by what texts count, where not all count whole; give its further parameters too."""
        if not self._weights:
            return sql.format(distance=distance, counts=more, joins=""), []
        joins = _JOINS % (parameter, parameter + 1, parameter, parameter + 1)
        if distance:
            joins = _SAME_TEXT + joins
        columns = [list(self._weights), list(self._weights.values())]
        return sql.format(distance=distance, counts=more + _COUNTS, joins=joins), columns

    def _column(self, metric: Metric, dims: int) -> tuple[VectorColumn, Kind]:
        column: Any = self._dialect.vectors
        return column, column.indexed_kind(metric, dims) or column.kind
