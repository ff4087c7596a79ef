"""The SQL of writing in Postgres.

Writers lock the rows of their namespaces in the order of the paths; each statement after that sees what others
committed before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from memstore.analysis import from_blobs as from_term_blobs
from memstore.dialects import MARK_BYTES, IndexedRow, ItemRow
from memstore.dialects.postgres_base import PostgresBase
from memstore.dialects.postgres_text import at_once, to_key_digest, to_path_digest
from memstore.embedding import DIGEST_BYTES, from_blobs, split
from memstore.errors import DatabaseError, EmbeddingError, InvalidArgument
from memstore.indexes import Vectors
from memstore.indexes.flat import prepare
from memstore.indexes.pgvector import HALF_MAX, MAX_DIMS
from memstore.items import Microseconds
from memstore.steps import NOTHING, Decoded, Statement, Step, Together

T = TypeVar("T")
_ID_BITS: Final = 24
"""A writing transaction has 2^24 ids."""
_COMMITS_KEPT: Final = 50_000
"""Writing transactions whose tokens are kept."""
COMMIT_SETTING: Final = "memstore.token"
"""The setting, of a transaction alone, that holds its token."""
_MARKS_KEPT: Final = 16
_AT_ONCE: Final = 1_000
"""Items in one statement: 1.5 MB of vectors at 384 dims."""
_TEXTS: Final = "(SELECT count(*) FROM @texts t WHERE t.namespace_id = i.namespace_id AND t.item_id = i.id)"
# the row is locked, and no new version of it is made
_CLAIM: Final = """
INSERT INTO @namespaces AS n (path, path_digest, version, texts, marks)
SELECT u.path, u.digest, 0, 0, ''
FROM unnest($1::bytea[], $2::bytea[]) WITH ORDINALITY AS u(path, digest, at) ORDER BY u.at
ON CONFLICT (path_digest) DO UPDATE SET version = n.version WHERE false"""
_CLAIM_THERE: Final = "SELECT n.id FROM @namespaces n WHERE n.path_digest = ANY($1::bytea[]) ORDER BY n.path FOR UPDATE"
_CLAIM_OF: Final = """
SELECT n.id FROM @namespaces n
WHERE n.id IN (SELECT i.namespace_id FROM @items i WHERE i.id = ANY($1::int8[])) ORDER BY n.path FOR UPDATE"""
_ADVANCE_CLOCK: Final = f"""
WITH own AS (
    INSERT INTO @commits (number, token)
    SELECT nextval($2::regclass), coalesce(current_setting('{COMMIT_SETTING}', true), '') RETURNING number
)
SELECT own.number, (own.number << {_ID_BITS}) + $1::int8, s.index_id FROM @state s, own"""
_FORGET_COMMITS: Final = f"""
DELETE FROM @commits WHERE number IN (
    SELECT number FROM @commits WHERE number <= $1::int8 - {_COMMITS_KEPT} FOR UPDATE SKIP LOCKED)"""
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
_TOUCH_OF: Final = f"""
UPDATE @namespaces n SET version = n.version + 1,
    marks = substring($2::bytea || n.marks, 1, {_MARKS_KEPT * MARK_BYTES})
WHERE n.id IN (SELECT i.namespace_id FROM @items i WHERE i.id = ANY($1::int8[]))"""
_DELETE_EMPTY: Final = """
DELETE FROM @namespaces n
WHERE n.id = ANY($1::int8[]) AND NOT EXISTS (SELECT 1 FROM @items i WHERE i.namespace_id = n.id)"""
_SELECT_EXPIRED: Final = f"""
SELECT i.id, i.namespace_id, CASE WHEN {_TEXTS} > 0 THEN i.id END, {_TEXTS}
FROM @items i WHERE i.expires_at <= $1::int8"""
_SELECT_UNANALYSED: Final = """
SELECT i.id, i.value, pg_catalog.array_agg(t.field ORDER BY t.place), string_agg(t.digest, ''::bytea ORDER BY t.place)
FROM @items i JOIN @texts t ON t.namespace_id = i.namespace_id AND t.item_id = i.id
WHERE i.id > $1::int8 AND t.terms IS NULL GROUP BY i.id ORDER BY i.id LIMIT $2::int8"""
_UPDATE_TERMS: Final = """
UPDATE @texts t SET terms = u.terms::int4[]
FROM unnest($1::int8[], $2::int4[], $3::text[]) AS u(id, place, terms), @items i
WHERE i.id = u.id AND t.namespace_id = i.namespace_id AND t.item_id = i.id AND t.place = u.place AND t.terms IS NULL"""


class PostgresWrites(PostgresBase):
    """The statements that write."""

    def claim_namespaces(self, paths: Sequence[bytes], *, make: bool) -> Step:
        digests = [to_path_digest(path) for path in paths]
        return self.say(_CLAIM, list(paths), digests) if make else self.say(_CLAIM_THERE, digests)

    def claim_namespaces_of(self, item_ids: Sequence[int]) -> Step:
        return self.say(_CLAIM_OF, list(item_ids))

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
        return Together([at_once([*self._insert_texts(part), self._insert_items(part)]) for part in _cut(rows)])

    def _insert_items(self, rows: Sequence[ItemRow]) -> Statement:
        columns = zip(*((*row[:3], to_key_digest(row.key), *row[3:9]) for row in rows), strict=True)
        return self.say(_INSERT_ITEMS, *map(list, columns))

    def _insert_texts(self, rows: Sequence[ItemRow]) -> list[Statement]:
        indexed = [(row.namespace_id, IndexedRow(row.id, *row[9:])) for row in rows if row.texts is not None]
        return self.insert_texts(indexed) if indexed else []

    def insert_texts(self, rows: Sequence[tuple[int, IndexedRow]]) -> list[Statement]:
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
            return [texts]
        vectors = self.to_kept(from_blobs(blobs, len(places)))
        sql = _INSERT_VECTORS.replace("{type}", self.vectors.type)
        return [texts, self.say(sql, *keys, self.vectors.to_values(vectors))]

    def to_kept(self, vectors: Vectors) -> Vectors:
        """Make vectors ready to be kept: at unit length where only their direction counts."""
        if vectors.shape[1] > MAX_DIMS:
            raise EmbeddingError(f"pgvector keeps vectors of up to {MAX_DIMS} dims, got {vectors.shape[1]}")
        vectors = prepare(self.metric, vectors)
        column = self.vectors
        if column is None or self.metric == "cosine" or not column.is_half(self.metric, vectors.shape[1]):
            return vectors
        if np.abs(vectors).max(initial=0) > HALF_MAX:
            raise EmbeddingError(
                f"vectors kept as 'halfvec', or indexed so for their length, have numbers up to {HALF_MAX}, got more"
            )
        return vectors

    def touch_namespaces(self, changes: Sequence[tuple[int, int]]) -> Step:
        ids, texts = (list(column) for column in zip(*changes, strict=True))
        return self.say(_TOUCH, ids, texts, os.urandom(MARK_BYTES))

    def forget_removals(self, clock: int) -> Step:
        return self.say(_FORGET_COMMITS, clock)

    def delete_empty_namespaces(self, ids: Sequence[int]) -> Statement:
        return self.say(_DELETE_EMPTY, list(ids))

    def refresh_items(self, refreshes: Sequence[tuple[int, Microseconds]], now: Microseconds) -> Step:
        ids, times = (list(column) for column in zip(*refreshes, strict=True))
        return self.say(_REFRESH, ids, times, now)

    def select_expired(self, now: Microseconds, limit: int) -> Statement:
        return self.say(_SELECT_EXPIRED + " LIMIT $2::int8", now, limit)

    def select_expired_among(self, ids: Sequence[int], now: Microseconds) -> Step:
        return self.say(_SELECT_EXPIRED + " AND i.id = ANY($2::int8[])", now, list(ids))

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
        return self.say(_TOUCH_OF, list(item_ids), os.urandom(MARK_BYTES))


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


def _cut(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(rows), _AT_ONCE):
        yield rows[start : start + _AT_ONCE]
