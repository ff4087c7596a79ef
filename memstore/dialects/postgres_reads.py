"""The SQL of reading in Postgres."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from memstore.dialects import UNKNOWN, Bounds
from memstore.dialects.postgres_base import PostgresBase
from memstore.dialects.postgres_text import grouped, to_key_digest, to_path_digest
from memstore.filters import Narrowing
from memstore.items import Microseconds
from memstore.steps import NOTHING, Decoded, Statement, Step

_LIVE: Final = "(i.expires_at IS NULL OR i.expires_at > $1::int8)"
_ITEM: Final = "i.id, n.path, i.key, i.value, i.created_at, i.updated_at, i.ttl, i.expires_at"
_FROM: Final = "@items i JOIN @namespaces n ON n.id = i.namespace_id"
_MARK: Final = "'0000'"
"""In place of a mark of the clock: every namespace has its own."""
_KNOWN: Final = "unnest($1::int8[], $2::int8[]) WITH ORDINALITY AS u(namespace_id, last, at)"
_SAME_TEXT: Final = "v.namespace_id = t.namespace_id AND v.item_id = t.item_id AND v.place = t.place"
_BY_KEY: Final = "SELECT * FROM @items i WHERE i.namespace_id = n.id AND i.key_digest = u.key OFFSET 0"
"""By the index of both: where namespaces are mostly small, the planner would rather read a large one."""
_SELECT_ITEMS: Final = f"""
SELECT u.at, {_ITEM} FROM unnest($2::bytea[], $3::bytea[]) WITH ORDINALITY AS u(path, key, at)
JOIN @namespaces n ON n.path_digest = u.path CROSS JOIN LATERAL ({_BY_KEY}) i WHERE {_LIVE}"""
_SELECT_SCOPE: Final = f"""
SELECT n.id, n.version, n.texts, n.marks, 0::int8, (SELECT s.index_id FROM @state s), {_MARK}
FROM @namespaces n WHERE true"""
_SELECT_LIVE_NAMESPACES: Final = f"""
SELECT n.path FROM @namespaces n
CROSS JOIN LATERAL (SELECT 1 FROM @items i WHERE i.namespace_id = n.id AND {_LIVE} LIMIT 1) live WHERE true"""
_SELECT_PLACES: Final = f"""
SELECT u.at, n.id, i.id, i.created_at, i.expires_at, CASE WHEN x.texts > 0 THEN i.id END, x.texts, i.updated_at,
       x.digests
FROM unnest($1::bytea[], $2::bytea[]) WITH ORDINALITY AS u(path, key, at)
JOIN @namespaces n ON n.path_digest = u.path
LEFT JOIN LATERAL ({_BY_KEY}) i ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS texts, string_agg(t.digest, ''::bytea ORDER BY t.place) AS digests
    FROM @texts t WHERE t.namespace_id = i.namespace_id AND t.item_id = i.id
) x"""


class PostgresReads(PostgresBase):
    """The statements that read."""

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
            select.add(f" AND (i.updated_at, i.id) < ({select.bind(updated_at)}::int8, {select.bind(item_id)}::int8)")
        select.narrowed(narrowings).add(" ORDER BY i.updated_at DESC, i.id DESC")
        return select.add(f" LIMIT {select.bind(bounds.limit)}::int8 OFFSET {select.bind(bounds.offset)}::int8").done()

    def select_narrowed(
        self, scope: Sequence[int] | None, narrowings: Iterable[Narrowing], now: Microseconds
    ) -> Statement:
        select = self.select(f"SELECT i.id FROM @items i WHERE {_LIVE}", now)
        return select.within("i.namespace_id", scope).narrowed(narrowings).done()

    def select_passing(self, ids: Sequence[int], narrowings: Iterable[Narrowing], now: Microseconds) -> Statement:
        sql = f"SELECT i.id FROM @items i WHERE {_LIVE} AND i.id = ANY($2::int8[])"
        return self.select(sql, now, list(ids)).narrowed(narrowings).done()

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

    def select_slices(self, namespaces: Sequence[int], *, fields: bool = True) -> Statement:
        sql = f"SELECT t.namespace_id, t.item_id, {self._texts(fields=fields)} WHERE true"
        select = self.select(sql).within("t.namespace_id", namespaces)
        return select.add(" ORDER BY t.namespace_id, t.item_id, t.place").done()

    def select_indexed(self, ids: Sequence[int]) -> Statement:
        source = "@items i JOIN @texts t ON t.namespace_id = i.namespace_id AND t.item_id = i.id"
        sql = f"SELECT t.item_id, {self._texts(source)} WHERE i.id = ANY($1::int8[]) ORDER BY t.item_id, t.place"
        return self.say(sql, list(ids))

    def select_times(self, namespaces: Sequence[int]) -> Statement:
        select = self.select("SELECT i.id, i.updated_at FROM @items i WHERE true")
        return select.within("i.namespace_id", namespaces).done()

    def select_times_of(self, ids: Sequence[int]) -> Statement:
        return self.say("SELECT i.id, i.updated_at FROM @items i WHERE i.id = ANY($1::int8[])", list(ids))

    def select_slice_changes(self, namespaces: Sequence[tuple[int, int]], *, fields: bool = True) -> Step:
        known = f"{_KNOWN} JOIN @texts t ON t.namespace_id = u.namespace_id AND t.item_id"
        older = f"SELECT u.at, t.item_id, NULL::bytea, NULL, NULL::int4[], NULL::text FROM {known} <= u.last"
        newer = f"SELECT u.at, t.item_id, {self._texts(f'{known} > u.last', fields=fields)}"
        sql = f"{older} UNION ALL {newer} ORDER BY 1, 2"
        return Decoded(self.say(sql, *map(list, zip(*namespaces, strict=True))), grouped(len(namespaces)))

    def _texts(self, source: str = "@texts t", *, fields: bool = True) -> str:
        """Select digest, vector, terms and field of texts."""
        field = "pg_catalog.json_build_array(t.field)::text" if fields else "NULL::text"
        if self.vectors is None:
            return f"t.digest, NULL::bytea, t.terms, {field} FROM {source}"
        return f"t.digest, v.embedding, t.terms, {field} FROM {source} LEFT JOIN @vectors v ON {_SAME_TEXT}"

    def select_commit(self, token: str) -> Statement:
        """One row where the transaction of a token was applied, else none."""
        return self.say("SELECT 1 FROM @commits WHERE token = $1::text", token)

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

    def select_places(self, places: Sequence[tuple[bytes, str]]) -> Step:
        return Decoded(self.say(_SELECT_PLACES, *_to_digests(places)), grouped(len(places)))


def _to_digests(places: Sequence[tuple[bytes, str]]) -> tuple[list[bytes], list[bytes]]:
    return [to_path_digest(path) for path, _ in places], [to_key_digest(key) for _, key in places]
