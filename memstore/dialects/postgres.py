"""SQL for PostgreSQL 14 and later with pgvector.

Tables, types and operators are qualified, so that nothing depends on what is set on a connection. Writers lock the rows
of their namespaces in the order of the paths; each statement after that sees what others committed before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from memstore.analysis import from_blobs as from_term_blobs
from memstore.config import VectorKind
from memstore.dialects import UNKNOWN, Bounds, IndexedRow, InspectStatements, ItemRow
from memstore.dialects.postgres_inspect import PostgresInspect
from memstore.dialects.postgres_text import Select, grouped, quote, spell, to_key_digest, to_path_digest
from memstore.embedding import DIGEST_BYTES, from_blobs, split
from memstore.errors import DatabaseError, EmbeddingError, IndexMismatch, InvalidArgument, InvalidConfig
from memstore.filters import Narrowing
from memstore.history import MARK_LENGTH
from memstore.indexes import Metric, Vectors
from memstore.indexes.flat import prepare
from memstore.indexes.pgvector import MAX_DIMS, VectorColumn
from memstore.items import Microseconds
from memstore.slices import MARK_BYTES
from memstore.steps import NOTHING, Decoded, Flow, Statement, Step, Together

T = TypeVar("T")
_ID_BITS: Final = 24
"""A writing transaction has 2^24 ids."""
_MARKS_KEPT: Final = 16
_NO_EXTENSION: Final = frozenset({"42501", "0A000", "58P01"})
"""SQLSTATEs of an extension that may not be created, or is not installed."""
_AT_ONCE: Final = 1_000
"""Items in one statement: 1.5 MB of vectors at 384 dims."""
_HALF_MAX: Final = 65_504
"""The largest number of 16 bits."""
_LIVE: Final = "(i.expires_at IS NULL OR i.expires_at > $1::int8)"
_ITEM: Final = "i.id, n.path, i.key, i.value, i.created_at, i.updated_at, i.ttl, i.expires_at"
_FROM: Final = "@items i JOIN @namespaces n ON n.id = i.namespace_id"
_MARK: Final = "'" + "0" * MARK_LENGTH + "'"
"""In place of a mark of the clock: every namespace has its own."""
_SAME_TEXT: Final = "v.namespace_id = t.namespace_id AND v.item_id = t.item_id AND v.place = t.place"
_TEXTS: Final = "(SELECT count(*) FROM @texts t WHERE t.namespace_id = i.namespace_id AND t.item_id = i.id)"

_SELECT_ITEMS: Final = f"""
SELECT u.at, {_ITEM} FROM unnest($2::bytea[], $3::bytea[]) WITH ORDINALITY AS u(path, key, at)
JOIN @namespaces n ON n.path_digest = u.path
JOIN @items i ON i.namespace_id = n.id AND i.key_digest = u.key WHERE {_LIVE}"""
_SELECT_SCOPE: Final = f"""
SELECT n.id, n.version, n.texts, n.marks, 0::int8, s.index_id, {_MARK}
FROM @namespaces n CROSS JOIN @state s WHERE true"""
_SELECT_LIVE_NAMESPACES: Final = f"""
SELECT n.path FROM @namespaces n
CROSS JOIN LATERAL (SELECT 1 FROM @items i WHERE i.namespace_id = n.id AND {_LIVE} LIMIT 1) live WHERE true"""
_SELECT_PLACES: Final = """
SELECT u.at, n.id, i.id, i.created_at, i.expires_at, CASE WHEN x.texts > 0 THEN i.id END, x.texts, i.updated_at, x.digests
FROM unnest($1::bytea[], $2::bytea[]) WITH ORDINALITY AS u(path, key, at)
JOIN @namespaces n ON n.path_digest = u.path
LEFT JOIN @items i ON i.namespace_id = n.id AND i.key_digest = u.key
CROSS JOIN LATERAL (
    SELECT count(*) AS texts, string_agg(t.digest, ''::bytea ORDER BY t.place) AS digests
    FROM @texts t WHERE t.namespace_id = i.namespace_id AND t.item_id = i.id
) x"""
# the row is locked, and no new version of it is made
_CLAIM: Final = """
INSERT INTO @namespaces AS n (path, path_digest, version, texts, marks)
SELECT u.path, u.digest, 0, 0, '' FROM unnest($1::bytea[], $2::bytea[]) WITH ORDINALITY AS u(path, digest, at) ORDER BY u.at
ON CONFLICT (path_digest) DO UPDATE SET version = n.version WHERE false"""
_CLAIM_THERE: Final = "SELECT n.id FROM @namespaces n WHERE n.path_digest = ANY($1::bytea[]) ORDER BY n.path FOR UPDATE"
_CLAIM_OF: Final = """
SELECT n.id FROM @namespaces n
WHERE n.id IN (SELECT i.namespace_id FROM @items i WHERE i.id = ANY($1::int8[])) ORDER BY n.path FOR UPDATE"""
_ADVANCE_CLOCK: Final = f"""
SELECT c.number, (c.number << {_ID_BITS}) + $1::int8, s.index_id FROM @state s, (SELECT nextval($2::regclass) AS number) c"""
_INSERT_ITEMS: Final = """
INSERT INTO @items (id, namespace_id, key, key_digest, created_at, updated_at, ttl, expires_at, fields, value)
SELECT u.id, u.namespace_id, u.key, u.digest, u.created_at, u.updated_at, u.ttl, u.expires_at, u.fields, u.value::json
FROM unnest($1::int8[], $2::int8[], $3::text[], $4::bytea[], $5::int8[], $6::int8[], $7::float8[], $8::int8[],
            $9::text[], $10::text[])
AS u(id, namespace_id, key, digest, created_at, updated_at, ttl, expires_at, fields, value)"""
_INSERT_TEXTS: Final = """
INSERT INTO @texts (namespace_id, item_id, place, field, digest, terms)
SELECT u.namespace_id, u.item_id, u.place, u.field, u.digest, u.terms::int4[]
FROM unnest($1::int8[], $2::int8[], $3::int4[], $4::text[], $5::bytea[], $6::text[])
AS u(namespace_id, item_id, place, field, digest, terms)"""
_INSERT_VECTORS: Final = """
INSERT INTO @vectors (namespace_id, item_id, place, embedding)
SELECT u.namespace_id, u.item_id, u.place, u.embedding
FROM unnest($1::int8[], $2::int8[], $3::int4[], $4::{type}[]) AS u(namespace_id, item_id, place, embedding)"""
_DELETE_ITEMS: Final = """
WITH gone AS (DELETE FROM @items WHERE id = ANY($1::int8[]) RETURNING namespace_id, id)"""
_DELETE_FROM: Final = " FROM @{table} t USING gone WHERE t.namespace_id = gone.namespace_id AND t.item_id = gone.id"
_TOUCH: Final = f"""
UPDATE @namespaces n SET version = n.version + 1, texts = n.texts + u.texts,
    marks = substring($3::bytea || n.marks, 1, {_MARKS_KEPT * MARK_BYTES})
FROM unnest($1::int8[], $2::int8[]) AS u(id, texts) WHERE n.id = u.id"""
# what another transaction is at meanwhile is being refreshed, or written, or deleted
_REFRESH: Final = """
WITH free AS (SELECT i.id FROM @items i WHERE i.id = ANY($1::int8[]) FOR UPDATE SKIP LOCKED)
UPDATE @items i SET expires_at = u.expires_at FROM unnest($1::int8[], $2::int8[]) AS u(id, expires_at), free
WHERE i.id = u.id AND i.id = free.id AND i.expires_at > $3::int8 AND i.expires_at < u.expires_at"""
_DELETE_EMPTY: Final = """
DELETE FROM @namespaces n WHERE n.id = ANY($1::int8[]) AND NOT EXISTS (SELECT 1 FROM @items i WHERE i.namespace_id = n.id)"""
_SELECT_EXPIRED: Final = f"""
SELECT i.id, i.namespace_id, CASE WHEN {_TEXTS} > 0 THEN i.id END, {_TEXTS} FROM @items i WHERE i.expires_at <= $1::int8"""
_SELECT_UNANALYSED: Final = """
SELECT i.id, i.value, array_agg(t.field ORDER BY t.place), string_agg(t.digest, ''::bytea ORDER BY t.place)
FROM @items i JOIN @texts t ON t.namespace_id = i.namespace_id AND t.item_id = i.id
WHERE i.id > $1::int8 AND t.terms IS NULL GROUP BY i.id ORDER BY i.id LIMIT $2::int8"""
_UPDATE_TERMS: Final = """
UPDATE @texts t SET terms = u.terms::int4[] FROM unnest($1::int8[], $2::int4[], $3::text[]) AS u(id, place, terms), @items i
WHERE i.id = u.id AND t.namespace_id = i.namespace_id AND t.item_id = i.id AND t.place = u.place AND t.terms IS NULL"""
_FIND_VECTORS: Final = """
SELECT s.nspname, y.typname, y.oid::int8, y.typarray::int8 FROM pg_attribute a
JOIN pg_type y ON y.oid = a.atttypid JOIN pg_namespace s ON s.oid = y.typnamespace
WHERE a.attrelid = to_regclass($1::text) AND a.attname = 'embedding' AND NOT a.attisdropped"""
_FIND_EXTENSION: Final = """
SELECT s.nspname FROM pg_extension e JOIN pg_namespace s ON s.oid = e.extnamespace WHERE e.extname = 'vector'"""
_CREATE_VECTORS: Final = """
CREATE TABLE @vectors (
    namespace_id bigint NOT NULL,
    item_id bigint NOT NULL,
    place integer NOT NULL,
    embedding {type} NOT NULL,
    PRIMARY KEY (namespace_id, item_id, place)
)"""


class PostgresDialect:
    """The `Dialect` of Postgres.

    Args:
        schema: The schema of the tables.
    """

    def __init__(self, schema: str) -> None:
        self.schema = quote(schema)
        self.metric: Metric = "cosine"
        """How the vectors are compared."""
        self.vectors: VectorColumn | None = None
        """The column of the vectors; None before there are any."""
        self._index_id: int | None = None
        """The index settings under which it was found."""

    def say(self, sql: str, *params: Any) -> Statement:
        """Make a statement over the tables of the schema: `@items` is memstore_items."""
        return Statement(spell(self.schema, sql), params)

    def select(self, sql: str, *params: Any) -> Select:
        return Select(self.schema, sql, *params)

    def name(self, table: str) -> str:
        """Name a table, to be bound."""
        return spell(self.schema, f"@{table}")

    def select_items(self, places: Sequence[tuple[bytes, str]], now: Microseconds) -> Step:
        return Decoded(self.say(_SELECT_ITEMS, now, *_to_digests(places)), grouped(len(places)))

    def select_scope(self, start: bytes, end: bytes | None, limit: int) -> Statement:
        select = self.select(_SELECT_SCOPE).in_range(start, end).by_path()
        return select.add(f" LIMIT {select.bind(limit)}::int8").done()

    def count_scope(self, start: bytes, end: bytes | None) -> Statement:
        select = self.select("SELECT count(*), coalesce(sum(n.texts), 0)::int8 FROM @namespaces n WHERE true")
        return select.in_range(start, end).done()

    def select_scope_ids(self, start: bytes, end: bytes | None) -> Statement:
        return self.select("SELECT n.id FROM @namespaces n WHERE true").in_range(start, end).done()

    def select_removals(self, clock: int) -> Statement:
        raise NotImplementedError(clock)  # for an index beside the database, which this one has inside

    def select_texts_after(self, item_id: int, limit: int) -> Statement:
        raise NotImplementedError(item_id, limit)

    def select_live_namespaces(
        self, start: bytes, end: bytes | None, limit: int, offset: int, now: Microseconds
    ) -> Statement:
        select = self.select(_SELECT_LIVE_NAMESPACES, now).in_range(start, end).by_path()
        return select.add(f" LIMIT {select.bind(limit)}::int8 OFFSET {select.bind(offset)}::int8").done()

    def select_newest(
        self, scope: Sequence[int] | None, narrowings: Iterable[Narrowing], bounds: Bounds, now: Microseconds
    ) -> Statement:
        select = self.select(f"SELECT {_ITEM} FROM {_FROM} WHERE {_LIVE}", now).within("i.namespace_id", scope)
        if bounds.after is not None:
            updated_at, item_id = bounds.after
            select.add(
                f" AND (i.updated_at, i.id) < ({select.bind(updated_at)}::int8, {select.bind(item_id)}::int8)"
            )
        select.narrowed(narrowings).add(" ORDER BY i.updated_at DESC, i.id DESC")
        return select.add(f" LIMIT {select.bind(bounds.limit)}::int8 OFFSET {select.bind(bounds.offset)}::int8").done()

    def select_narrowed(
        self, scope: Sequence[int] | None, narrowings: Iterable[Narrowing], now: Microseconds
    ) -> Statement:
        select = self.select(f"SELECT i.id FROM @items i WHERE {_LIVE}", now)
        return select.within("i.namespace_id", scope).narrowed(narrowings).done()

    def select_narrowed_items(
        self, scope: Sequence[int], narrowings: Iterable[Narrowing], now: Microseconds
    ) -> Statement:
        select = self.select(f"SELECT {_ITEM} FROM {_FROM} WHERE {_LIVE}", now)
        return select.within("i.namespace_id", scope).narrowed(narrowings).done()

    def select_items_by_id(
        self, ids: Sequence[int], now: Microseconds, narrowings: Iterable[Narrowing] = ()
    ) -> Statement:
        sql = f"SELECT {_ITEM} FROM {_FROM} WHERE {_LIVE} AND i.id = ANY($2::int8[])"
        return self.select(sql, now, list(ids)).narrowed(narrowings).done()

    def select_slices(self, namespaces: Sequence[int]) -> Statement:
        sql = f"SELECT t.namespace_id, t.item_id, {self._texts()} WHERE true"
        select = self.select(sql).within("t.namespace_id", namespaces)
        return select.add(" ORDER BY t.namespace_id, t.item_id, t.place").done()

    def select_slice_changes(self, namespaces: Sequence[tuple[int, int]]) -> Step:
        known = "unnest($1::int8[], $2::int8[]) WITH ORDINALITY AS u(namespace_id, last, at)"
        sql = f"""
SELECT u.at, t.item_id, NULL::bytea, NULL, NULL::int4[] FROM {known}
JOIN @texts t ON t.namespace_id = u.namespace_id AND t.item_id <= u.last
UNION ALL
SELECT u.at, t.item_id, {self._texts(f"{known} JOIN @texts t ON t.namespace_id = u.namespace_id AND t.item_id > u.last")}
ORDER BY 1, 2"""
        return Decoded(self.say(sql, *map(list, zip(*namespaces, strict=True))), grouped(len(namespaces)))

    def _texts(self, source: str = "@texts t") -> str:
        """Select digest, vector and terms of texts."""
        if self.vectors is None:
            return f"t.digest, NULL::bytea, t.terms FROM {source}"
        return f"t.digest, v.embedding, t.terms FROM {source} LEFT JOIN @vectors v ON {_SAME_TEXT}"

    def select_marks(self) -> Statement:
        return Statement(f"SELECT {_MARK}")

    def select_clock(self) -> Step:
        return Decoded(NOTHING, lambda _: [(UNKNOWN,)])

    def select_vectors(self, ids: Sequence[int]) -> Statement:
        return self.say(
            "SELECT t.digest, v.embedding FROM @items i JOIN @texts t ON t.namespace_id = i.namespace_id AND "
            f"t.item_id = i.id JOIN @vectors v ON {_SAME_TEXT} WHERE i.id = ANY($1::int8[])",
            list(ids),
        )

    def claim_namespaces(self, paths: Sequence[bytes], *, make: bool) -> Step:
        digests = [to_path_digest(path) for path in paths]
        return self.say(_CLAIM, list(paths), digests) if make else self.say(_CLAIM_THERE, digests)

    def claim_namespaces_of(self, item_ids: Sequence[int]) -> Step:
        return self.say(_CLAIM_OF, list(item_ids))

    def claim_settings(self) -> Step:
        return self.say("LOCK TABLE @namespaces IN EXCLUSIVE MODE")

    def find_vectors(self) -> Flow[None]:
        """Learn which column the vectors have, if any."""
        rows = yield Statement(_FIND_VECTORS, (self.name("vectors"),))
        self.vectors = next((VectorColumn(quote(schema), *rest) for schema, *rest in rows), None)

    def hold_vectors(self, kind: VectorKind | None) -> Flow[None]:
        yield from self.find_vectors()
        if self.vectors is not None:
            if kind in (None, self.vectors.kind):
                return
            if (yield self.say("SELECT 1 FROM @vectors LIMIT 1")):
                raise IndexMismatch(vector_type_differs(self.vectors.kind, kind))
            yield self.say("DROP TABLE @vectors")
        if not (yield Statement(_FIND_EXTENSION)):
            yield Statement("SELECT pg_advisory_xact_lock(hashtext('memstore'), hashtext('extension'))")
            yield from _create_extension()
        rows = yield Statement(_FIND_EXTENSION)
        yield self.say(_CREATE_VECTORS.replace("{type}", f"{quote(rows[0][0])}.{kind or 'vector'}"))
        yield from self.find_vectors()

    def learn(self, index_id: int) -> Flow[None]:
        if index_id != self._index_id:
            yield from self.find_vectors()
            self._index_id = index_id

    def select_places(self, places: Sequence[tuple[bytes, str]]) -> Step:
        return Decoded(self.say(_SELECT_PLACES, *_to_digests(places)), grouped(len(places)))

    def insert_namespaces(self, paths: Sequence[bytes]) -> Step:
        raise DatabaseError(f"{len(paths)} namespaces vanished while they were written")

    def advance_clock(self, ids: int) -> Statement:
        if ids >= 1 << _ID_BITS:
            raise InvalidArgument(f"a batch writes fewer than {1 << _ID_BITS} items and texts; put them in several")
        return self.say(_ADVANCE_CLOCK, ids, self.name("clock"))

    def insert_removals(self, removals: Sequence[tuple[int, int, int]]) -> Step:  # noqa: ARG002  the index is inside
        return NOTHING

    def delete_items(self, ids: Sequence[int]) -> Step:
        if self.vectors is None:
            sql = _DELETE_ITEMS + " DELETE" + _DELETE_FROM.format(table="texts")
        else:
            parts = _DELETE_FROM.format(table="vectors"), _DELETE_FROM.format(table="texts")
            sql = f"{_DELETE_ITEMS}, vectors AS (DELETE{parts[0]}) DELETE{parts[1]}"
        return self.say(sql, list(ids))

    def insert_items(self, rows: Sequence[ItemRow]) -> Step:
        return Together([step for part in _cut(rows) for step in (self._insert_items(part), self._insert_texts(part))])

    def _insert_items(self, rows: Sequence[ItemRow]) -> Statement:
        columns = zip(*((*row[:3], to_key_digest(row.key), *row[3:9]) for row in rows), strict=True)
        return self.say(_INSERT_ITEMS, *map(list, columns))

    def _insert_texts(self, rows: Sequence[ItemRow]) -> Step:
        indexed = [(row.namespace_id, IndexedRow(row.id, *row[9:])) for row in rows if row.texts is not None]
        return self.insert_texts(indexed) if indexed else NOTHING

    def insert_texts(self, rows: Sequence[tuple[int, IndexedRow]]) -> Step:
        """Write what is indexed of items, each with its namespace's id."""
        labels: list[str] = []
        places: list[tuple[int, int, int]] = []
        digests: list[bytes] = []
        for namespace_id, row in rows:
            fields = json.loads(row.texts or "[]")
            labels += fields
            places += [(namespace_id, row.id, place) for place in range(len(fields))]
            digests += split(row.digests or b"", len(fields))
        keys = list(map(list, zip(*places, strict=True)))
        terms = to_term_arrays([(row.terms, len(row.digests or b"") // DIGEST_BYTES) for _, row in rows])
        texts = self.say(_INSERT_TEXTS, *keys, labels, digests, terms)
        blobs = [row.vectors for _, row in rows if row.vectors is not None]
        if self.vectors is None or not blobs:
            return texts
        vectors = self._to_vectors(from_blobs(blobs, len(places)))
        sql = _INSERT_VECTORS.replace("{type}", self.vectors.type)
        return Together([texts, self.say(sql, *keys, self.vectors.to_values(vectors))])

    def _to_vectors(self, vectors: Vectors) -> Vectors:
        """Make vectors ready to be kept: at unit length where only their direction counts."""
        if vectors.shape[1] > MAX_DIMS:
            raise EmbeddingError(f"pgvector keeps vectors of up to {MAX_DIMS} dims, got {vectors.shape[1]}")
        vectors = prepare(self.metric, vectors)
        if self.vectors is not None and self.vectors.kind == "halfvec" and np.abs(vectors).max(initial=0) > _HALF_MAX:
            raise EmbeddingError(f"vector_type 'halfvec' keeps numbers up to {_HALF_MAX}, got a larger one")
        return vectors

    def touch_namespaces(self, changes: Sequence[tuple[int, int]]) -> Step:
        ids, texts = (list(column) for column in zip(*changes, strict=True))
        return self.say(_TOUCH, ids, texts, os.urandom(MARK_BYTES))

    def forget_removals(self, clock: int) -> Step:  # noqa: ARG002
        return NOTHING

    def delete_empty_namespaces(self, ids: Sequence[int]) -> Statement:
        return self.say(_DELETE_EMPTY, list(ids))

    def refresh_items(self, refreshes: Sequence[tuple[int, Microseconds]], now: Microseconds) -> Step:
        ids, times = (list(column) for column in zip(*refreshes, strict=True))
        return self.say(_REFRESH, ids, times, now)

    def select_expired(self, now: Microseconds, limit: int) -> Statement:
        return self.say(_SELECT_EXPIRED + " LIMIT $2::int8", now, limit)

    def select_expired_among(self, ids: Sequence[int], now: Microseconds) -> Step:
        return self.say(_SELECT_EXPIRED + " AND i.id = ANY($2::int8[])", now, list(ids))

    def select_index(self) -> Statement:
        return self.say("SELECT id, settings FROM @index ORDER BY id DESC LIMIT 1")

    def insert_index(self, settings: str) -> Statement:
        return self.say("INSERT INTO @index (settings) VALUES ($1::text) RETURNING id", settings)

    def update_index(self, index_id: int, settings: str) -> Statement:
        return self.say("UPDATE @index SET settings = $1::text WHERE id = $2::int8", settings, index_id)

    def enforce_index(self, index_id: int) -> Statement:
        return self.say("UPDATE @state SET index_id = $1::int8", index_id)

    def raise_floor(self, clock: int) -> Step:  # noqa: ARG002
        return NOTHING

    def forget_terms(self) -> Statement:
        return self.say("UPDATE @texts SET terms = NULL WHERE terms IS NOT NULL")

    def select_unanalysed(self, item_id: int, limit: int) -> Step:
        def spell_labels(rows: list[Any]) -> list[Any]:
            return [(item_id, value, json.dumps(labels), digests) for item_id, value, labels, digests in rows]

        return Decoded(self.say(_SELECT_UNANALYSED, item_id, limit), spell_labels)

    def update_terms(self, terms: Sequence[tuple[int, bytes]]) -> Step:
        rows: list[tuple[int, int, str]] = []
        for item_id, blob in terms:
            arrays = to_term_arrays([(blob, None)])
            rows += [(item_id, place, array or "{}") for place, array in enumerate(arrays)]
        return self.say(_UPDATE_TERMS, *map(list, zip(*rows, strict=True)))

    def touch_namespaces_of(self, item_ids: Sequence[int]) -> Statement:
        return self.say(
            f"UPDATE @namespaces n SET version = n.version + 1, marks = substring($2::bytea || n.marks, 1, "
            f"{_MARKS_KEPT * MARK_BYTES}) WHERE n.id IN (SELECT i.namespace_id FROM @items i WHERE i.id = ANY($1::int8[]))",
            list(item_ids),
            os.urandom(MARK_BYTES),
        )

    def has_texts(self) -> Statement:
        return self.say("SELECT 1 FROM @namespaces WHERE texts > 0 LIMIT 1")

    def claim_setup(self) -> Step:
        return Statement("SELECT pg_advisory_xact_lock(hashtext('memstore'), hashtext($1::text))", (self.schema,))

    def to_statement(self, migration: str) -> Statement:
        return self.say(migration)

    def has_schema(self) -> Statement:
        """One row where the schema exists, else none."""
        return Statement("SELECT 1 FROM pg_namespace WHERE nspname = $1::text", (self.schema[1:-1].replace('""', '"'),))

    def create_schema(self) -> Statement:
        """Create the schema."""
        return Statement(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")

    def has_migrations(self) -> Statement:
        return Statement("SELECT 1 WHERE to_regclass($1::text) IS NOT NULL", (self.name("migrations"),))

    def create_migrations(self) -> Statement:
        return self.say(
            "CREATE TABLE @migrations (number integer PRIMARY KEY, name text NOT NULL, applied_at bigint NOT NULL)"
        )

    def select_migrations(self) -> Statement:
        return self.say("SELECT number, name FROM @migrations ORDER BY number")

    def insert_migration(self, number: int, name: str, now: Microseconds) -> Statement:
        sql = "INSERT INTO @migrations (number, name, applied_at) VALUES ($1::int4, $2::text, $3::int8)"
        return self.say(sql, number, name, now)

    def inspect(self) -> InspectStatements:
        return PostgresInspect(self)


def _create_extension() -> Flow[None]:
    try:
        yield Statement("CREATE EXTENSION IF NOT EXISTS vector")
    except Exception as error:
        if getattr(error, "sqlstate", None) not in _NO_EXTENSION:
            raise
        raise InvalidConfig(
            "the database lacks pgvector, and this role may not add it; once it is installed on the server, an "
            "administrator runs: CREATE EXTENSION vector"
        ) from error


def vector_type_differs(kept: str, given: str | None) -> str:
    """Say that vectors are kept otherwise than the settings have it."""
    return f"its vectors are kept as {kept!r}, not as {given!r}"


def to_term_arrays(blobs: Iterable[tuple[bytes | None, int | None]]) -> list[str | None]:
    """Spell the terms of items as arrays, one a text; each comes with its number of texts, where that is known."""
    arrays: list[str | None] = []
    for blob, count in blobs:
        if blob is None:
            arrays += [None] * (count or 0)
            continue
        numbers = np.frombuffer(blob, "<u4")
        texts = _count_texts(numbers) if count is None else count
        lengths, terms = from_term_blobs([blob], np.array([texts]))
        signed = terms.astype(np.uint32, copy=False).view(np.int32)
        parts = np.split(signed, np.cumsum(lengths)[:-1])
        arrays += ["{" + ",".join(map(str, part.tolist())) + "}" for part in parts]
    return arrays


def _count_texts(numbers: np.ndarray[Any, np.dtype[np.uint32]]) -> int:
    """Count the texts of an item by its terms: so many lengths come first, and add up to the rest."""
    totals = np.cumsum(numbers, dtype=np.int64) + np.arange(1, len(numbers) + 1)
    return int(np.searchsorted(totals, len(numbers))) + 1


def _to_digests(places: Sequence[tuple[bytes, str]]) -> tuple[list[bytes], list[bytes]]:
    return [to_path_digest(path) for path, _ in places], [to_key_digest(key) for _, key in places]


def _cut(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(rows), _AT_ONCE):
        yield rows[start : start + _AT_ONCE]

