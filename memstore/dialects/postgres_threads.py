"""SQL for checkpoints in Postgres: the tables of langgraph-checkpoint-postgres 3.2.0, and two indexes of our own.

A checkpoint is JSON; the values of its channels stand beside it, one row for each version, but for plain ones that
JSONB keeps exactly. A checkpoint that relies on its parent's rows holds on to it while it is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.serde.base import SerializerProtocol

from memstore.checkpoints import Address, Blob, Draft, Node, Packed, Page, Reader, Stored, StoredWrite
from memstore.dialects.postgres_layout import from_body, pack, to_inline, to_node
from memstore.dialects.postgres_official import OfficialTables
from memstore.dialects.threads import Held, ThreadRow
from memstore.metadata import to_narrowing
from memstore.steps import Flow, Statement, Step

_STORED: Final = "thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata"
_READ: Final = """
WITH c AS MATERIALIZED ({chosen})
SELECT 'c'::text, {address}, c.parent_checkpoint_id, c.checkpoint::text, c.metadata::text, NULL::text, NULL::int4,
    NULL::bytea FROM c
UNION ALL
SELECT 'b'::text, b.thread_id, b.checkpoint_ns, NULL::text, b.channel, b.version, b.type, NULL::text, NULL::int4, b.blob
FROM (
    SELECT DISTINCT c.thread_id, c.checkpoint_ns, v.key, v.value
    FROM c CROSS JOIN LATERAL jsonb_each_text(c.checkpoint -> 'channel_versions') v
) v JOIN #checkpoint_blobs b ON b.thread_id = v.thread_id AND b.checkpoint_ns = v.checkpoint_ns
    AND b.channel = v.key AND b.version = v.value
UNION ALL
SELECT 'w'::text, {address}, w.task_id, w.channel, w.type, w.task_path, w.idx, w.blob
FROM c JOIN #checkpoint_writes w ON w.thread_id = c.thread_id AND w.checkpoint_ns = c.checkpoint_ns
    AND w.checkpoint_id = c.checkpoint_id
UNION ALL
SELECT 's'::text, {address}, w.task_id, w.channel, w.type, w.task_path, w.idx, w.blob
FROM c JOIN #checkpoint_writes w ON w.thread_id = c.thread_id AND w.checkpoint_ns = c.checkpoint_ns
    AND w.checkpoint_id = c.parent_checkpoint_id AND w.channel = '__pregel_tasks'
WHERE (c.checkpoint ->> 'v')::int4 < 4""".replace("{address}", "c.thread_id, c.checkpoint_ns, c.checkpoint_id")
_LATEST: Final = f"""
SELECT {_STORED} FROM #checkpoints WHERE thread_id = $1::text AND checkpoint_ns = $2::text
ORDER BY checkpoint_id DESC LIMIT 1"""
_ONE: Final = f"""
SELECT {_STORED} FROM #checkpoints
WHERE thread_id = $1::text AND checkpoint_ns = $2::text AND checkpoint_id = $3::text"""
_NEWEST_FIRST: Final = "checkpoint_id DESC, thread_id DESC, checkpoint_ns DESC"
_SOME: Final = f"""
SELECT {_STORED} FROM unnest($1::text[], $2::text[], $3::text[]) k (thread_id, checkpoint_ns, checkpoint_id)
JOIN #checkpoints USING (thread_id, checkpoint_ns, checkpoint_id) ORDER BY {_NEWEST_FIRST}"""
_WRITTEN: Final = "SELECT $1::text, $2::text, $3::text, $4::text, $5::jsonb, $6::jsonb"
_TURN: Final = "hashtext('memstore/threads/' || {schema}), hashtext({thread}) & 255"
"""What whole puts share, and who deletes blobs takes alone; few numbers, so that many threads take few locks."""
_TAKE_TURNS: Final = f"""
SELECT pg_advisory_xact_lock(a, b) FROM (
    SELECT DISTINCT {_TURN.format(schema="$1::text", thread="t")} FROM unnest($2::text[]) t ORDER BY 2
) n (a, b)"""
_PUT_BLOBS: Final = """
INSERT INTO #checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
SELECT $1::text, $2::text, u.channel, u.version, u.type, u.blob
FROM unnest($7::text[], $8::text[], $9::text[], $10::bytea[]) u (channel, version, type, blob){going}
ON CONFLICT DO NOTHING"""
_PUT: Final = """
INSERT INTO #checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata)
{written} ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO UPDATE SET
    parent_checkpoint_id = EXCLUDED.parent_checkpoint_id, checkpoint = EXCLUDED.checkpoint, metadata = EXCLUDED.metadata
RETURNING 1"""
_GOING: Final = """parent AS (
    SELECT 1 FROM #checkpoints WHERE thread_id = $1::text AND checkpoint_ns = $2::text AND checkpoint_id = $4::text
    FOR KEY SHARE
)"""
_SHARED: Final = f"pg_advisory_xact_lock_shared({_TURN.format(schema='$11::text', thread='$1::text')})"
_PUT_WHOLE: Final = f"""
WITH turn AS MATERIALIZED (SELECT {_SHARED}), blobs AS ({_PUT_BLOBS.format(going=", turn")})
{_PUT.format(written=_WRITTEN + " FROM turn")}"""
_PUT_ON: Final = f"""
WITH {_GOING}, blobs AS ({_PUT_BLOBS.format(going=", parent")}) {_PUT.format(written=_WRITTEN + " FROM parent")}"""
_PUT_WRITES: Final = """
INSERT INTO #checkpoint_writes AS w
    (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, blob)
SELECT $1::text, $2::text, $3::text, $4::text, $5::text, u.idx, u.channel, u.type, u.blob
FROM unnest($6::int4[], $7::text[], $8::text[], $9::bytea[]) u (idx, channel, type, blob)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO UPDATE
SET task_path = EXCLUDED.task_path, channel = EXCLUDED.channel, type = EXCLUDED.type, blob = EXCLUDED.blob
WHERE w.idx < 0"""
_CHAIN: Final = """
WITH RECURSIVE chain (checkpoint_id, parent_id, place) AS (
    SELECT checkpoint_id, parent_checkpoint_id, 1 FROM #checkpoints
    WHERE thread_id = $1::text AND checkpoint_ns = $2::text AND checkpoint_id = $3::text
    UNION ALL
    SELECT c.checkpoint_id, c.parent_checkpoint_id, a.place + 1 FROM chain a JOIN #checkpoints c
    ON c.thread_id = $1::text AND c.checkpoint_ns = $2::text AND c.checkpoint_id = a.parent_id WHERE a.place < $4::int4
)
SELECT checkpoint_id, parent_id FROM chain ORDER BY place"""
_NODES: Final = """
SELECT c.checkpoint_id, c.parent_checkpoint_id, c.checkpoint::text, c.metadata::text, ARRAY(
    SELECT b.channel FROM jsonb_each_text(c.checkpoint -> 'channel_versions') v
    JOIN #checkpoint_blobs b ON b.thread_id = $1::text AND b.checkpoint_ns = $2::text AND b.channel = v.key
        AND b.version = v.value AND b.type <> 'empty')
FROM #checkpoints c
WHERE c.thread_id = $1::text AND c.checkpoint_ns = $2::text AND c.checkpoint_id = ANY($3::text[])"""
_HELD: Final = """
SELECT c.checkpoint_id, u.channel, (c.checkpoint -> 'channel_values' -> u.channel)::text, b.version
FROM #checkpoints c CROSS JOIN unnest($4::text[]) u (channel)
LEFT JOIN #checkpoint_blobs b ON b.thread_id = $1::text AND b.checkpoint_ns = $2::text AND b.channel = u.channel
    AND b.version = c.checkpoint -> 'channel_versions' ->> u.channel AND b.type <> 'empty'
WHERE c.thread_id = $1::text AND c.checkpoint_ns = $2::text AND c.checkpoint_id = ANY($3::text[])
AND (b.version IS NOT NULL OR c.checkpoint -> 'channel_values' -> u.channel IS NOT NULL)"""
_BLOBS: Final = """
SELECT b.channel, b.type, b.blob FROM unnest($3::text[], $4::text[]) u (channel, version)
JOIN #checkpoint_blobs b ON b.thread_id = $1::text AND b.checkpoint_ns = $2::text AND b.channel = u.channel
AND b.version = u.version"""
_WRITES: Final = """
SELECT checkpoint_id, task_path, task_id, idx, channel, type, blob FROM #checkpoint_writes
WHERE thread_id = $1::text AND checkpoint_ns = $2::text AND checkpoint_id = ANY($3::text[])
AND channel = ANY($4::text[])"""
_DELTA: Final = """
SELECT checkpoint_id FROM #checkpoints WHERE thread_id = $1::text AND checkpoint_ns = $2::text
AND (metadata ? 'counters_since_delta_snapshot' OR metadata ? 'delta_writes_versioned')"""
_WINDOW: Final = 64
"""Checkpoints looked through for each thread that is listed, at first."""
_WIDER: Final = 8
"""How many times more are looked through where those have told of too few threads."""
_NEWEST: Final = """
SELECT max(checkpoint_id), thread_id, count(*) FROM (
    SELECT checkpoint_id, thread_id FROM #checkpoints WHERE $1::text IS NULL OR checkpoint_id <= $1::text
    ORDER BY checkpoint_id DESC LIMIT $2::int8
) n GROUP BY thread_id ORDER BY 1 DESC, 2 DESC"""
_OLDER: Final = """
SELECT k.thread_id FROM unnest($1::text[], $2::text[]) k (checkpoint_id, thread_id)
WHERE (k.checkpoint_id, k.thread_id) < ($3::text, $4::text) AND NOT EXISTS (
    SELECT 1 FROM #checkpoints c WHERE c.thread_id = k.thread_id AND c.checkpoint_id > k.checkpoint_id)"""
_COUNT: Final = """
SELECT thread_id, count(*), count(DISTINCT checkpoint_ns) FROM #checkpoints WHERE thread_id = ANY($1::text[])
GROUP BY thread_id"""
_IDLE: Final = """
SELECT max(checkpoint_id), thread_id FROM #checkpoints WHERE $2::text[] IS NULL OR thread_id = ANY($2::text[])
GROUP BY thread_id HAVING max(checkpoint_id) < $1::text"""
_LONG: Final = """
SELECT DISTINCT thread_id FROM #checkpoints GROUP BY thread_id, checkpoint_ns HAVING count(*) > $1::int8"""
_DELETE_BLOBS: Final = """
DELETE FROM #checkpoint_blobs b USING (
    SELECT thread_id, checkpoint_ns, channel, version FROM #checkpoint_blobs WHERE {where}
    EXCEPT
    SELECT thread_id, checkpoint_ns, v.key, v.value
    FROM #checkpoints c CROSS JOIN LATERAL jsonb_each_text(c.checkpoint -> 'channel_versions') v WHERE {where}
) g WHERE b.thread_id = g.thread_id AND b.checkpoint_ns = g.checkpoint_ns AND b.channel = g.channel
AND b.version = g.version"""
_FORGET_OLDER: Final = """
UPDATE #checkpoints SET parent_checkpoint_id = NULL
WHERE thread_id = ANY($1::text[]) AND parent_checkpoint_id < $2::text"""
_FORGET_PARENTS: Final = """
UPDATE #checkpoints SET parent_checkpoint_id = NULL
WHERE thread_id = $1::text AND checkpoint_ns = $2::text AND parent_checkpoint_id = ANY($3::text[])"""
_STRANGE: Final = """
SELECT 1 FROM #checkpoints t WHERE t.thread_id = $2::text AND NOT EXISTS (
    SELECT 1 FROM #checkpoints s WHERE s.thread_id = $1::text AND s.checkpoint_ns = t.checkpoint_ns
    AND s.checkpoint_id = t.checkpoint_id) LIMIT 1"""
_COPY: Final = {
    "checkpoints": "checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata",
    "checkpoint_blobs": "checkpoint_ns, channel, version, type, blob",
    "checkpoint_writes": "checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, task_path",
}


class PostgresThreads(OfficialTables):
    """The `ThreadStatements` of Postgres."""

    def pack(self, draft: Draft, serde: SerializerProtocol) -> Packed:
        body, blobs = pack(draft.checkpoint, draft.changed, serde)
        return Packed(draft.address, draft.parent_id, draft.metadata, body, blobs, whole=draft.changed is None)

    def unpack(self, stored: Stored, reader: Reader) -> Checkpoint:
        return from_body(stored.body, stored.blobs, reader)

    def put(self, packed: Packed) -> Step:
        columns = zip(*((blob.channel, blob.version, blob.type, blob.data) for blob in packed.blobs), strict=True)
        blobs = [list(column) for column in columns] or [[], [], [], []]
        params = (*packed.address, packed.parent_id, packed.body, packed.metadata, *blobs)
        return self.say(_PUT_WHOLE, *params, self._schema) if packed.whole else self.say(_PUT_ON, *params)

    def put_writes(self, address: Address, task_id: str, task_path: str, writes: Sequence[tuple[int, Blob]]) -> Step:
        columns = ([blob.channel for _, blob in writes], [blob.type for _, blob in writes])
        data = [blob.data for _, blob in writes]
        indexes = [index for index, _ in writes]
        return self.say(_PUT_WRITES, *address, task_id, task_path, indexes, *columns, data)

    def read_latest(self, thread_id: str, namespace: str) -> Flow[list[Stored]]:
        return self._read(_LATEST, thread_id, namespace)

    def read(self, addresses: Sequence[Address]) -> Flow[list[Stored]]:
        if len(addresses) == 1:
            return self._read(_ONE, *addresses[0])
        return self._read(_SOME, *map(list, zip(*addresses, strict=True)))

    def read_page(self, page: Page) -> Flow[list[Stored]]:
        sql, params = _choose(_STORED, page)
        return self._read(sql, *params)

    def _read(self, chosen: str, *params: Any) -> Flow[list[Stored]]:
        found: dict[Address, Stored] = {}
        blobs: dict[tuple[str, str], dict[tuple[str, str], Blob]] = {}
        size = 0
        for kind, thread_id, namespace, id_, first, second, third, path, index, data in (
            yield self.say(_READ.replace("{chosen}", chosen), *params)
        ):
            size += len(data or b"")
            if kind == "c":
                address = Address(thread_id, namespace, id_)
                found[address] = Stored(address, first, third, second)
            elif kind == "b":
                blobs.setdefault((thread_id, namespace), {})[first, second] = Blob(first, second, third, data)
            else:
                stored = found[Address(thread_id, namespace, id_)]
                write = StoredWrite(path, first, index, second, third, data)
                (stored.writes if kind == "w" else stored.sends).append(write)
        for address, stored in found.items():
            stored.blobs, stored.size = blobs.get(address[:2], {}), size
        return list(found.values())

    def select_metadata(self, page: Page) -> Statement:
        columns = "thread_id, checkpoint_ns, checkpoint_id, metadata::text"
        sql, params = _choose(columns, page)
        return self.say(sql, *params)

    def select_chain(self, address: Address, limit: int) -> Statement:
        return self.say(_CHAIN, *address, limit)

    def read_nodes(
        self,
        thread_id: str,
        namespace: str,
        ids: Sequence[str],
        reader: Reader,  # noqa: ARG002  what is told stands in the JSON
    ) -> Flow[list[Node]]:
        rows = yield self.say(_NODES, thread_id, namespace, list(ids))
        return [to_node(*row) for row in rows]

    def read_held(
        self, thread_id: str, namespace: str, ids: Sequence[str], channels: Sequence[str], reader: Reader
    ) -> Flow[Mapping[tuple[str, str], Held]]:
        held = {}
        for checkpoint_id, channel, text, version in (
            yield self.say(_HELD, thread_id, namespace, list(ids), list(channels))
        ):
            value = None if version is not None else to_inline(text, reader)
            held[checkpoint_id, channel] = Held(checkpoint_id, value, version)
        return held

    def select_blobs(self, thread_id: str, namespace: str, held: Mapping[str, str]) -> Step:
        return self.say(_BLOBS, thread_id, namespace, list(held), list(held.values()))

    def select_writes(self, thread_id: str, namespace: str, ids: Sequence[str], channels: Sequence[str]) -> Step:
        return self.say(_WRITES, thread_id, namespace, list(ids), list(channels))

    def select_spine(self, thread_id: str) -> Statement:
        sql = """SELECT checkpoint_ns, checkpoint_id FROM #checkpoints WHERE thread_id = $1::text
        ORDER BY checkpoint_ns DESC, checkpoint_id DESC"""
        return self.say(sql, thread_id)

    def select_delta(self, thread_id: str, namespace: str) -> Statement:
        return self.say(_DELTA, thread_id, namespace)

    def select_runs(self, run_ids: Sequence[str]) -> Statement:
        sql = """SELECT thread_id, checkpoint_ns, checkpoint_id FROM #checkpoints
        WHERE metadata ->> 'run_id' = ANY($1::text[]) ORDER BY 1, 2, 3"""
        return self.say(sql, list(run_ids))

    def read_newest(self, limit: int, before: ThreadRow | None) -> Flow[list[ThreadRow]]:
        window = _WINDOW * limit
        while True:
            found = yield self.say(_NEWEST, before.checkpoint_id if before else None, window)
            rows = [ThreadRow(*row[:2]) for row in found]
            if before is not None and rows:
                columns = zip(*rows, strict=True)
                older = {row[0] for row in (yield self.say(_OLDER, *map(list, columns), *before))}
                rows = [row for row in rows if row.thread_id in older]
            if len(rows) >= limit or sum(row[2] for row in found) < window:
                return rows[:limit]
            window *= _WIDER

    def count(self, thread_ids: Sequence[str]) -> Statement:
        return self.say(_COUNT, list(thread_ids))

    def select_idle(self, before: str, thread_ids: Sequence[str] | None = None) -> Statement:
        return self.say(_IDLE, before, None if thread_ids is None else list(thread_ids))

    def select_long(self, checkpoints: int) -> Statement:
        return self.say(_LONG, checkpoints)

    def delete_threads(self, thread_ids: Sequence[str], before: str | None = None) -> Flow[int]:
        # what a run put meanwhile into a thread that was idle stays, without a parent
        named = "" if before is None else " AND checkpoint_id < $2::text"
        params = (sorted(thread_ids),) if before is None else (sorted(thread_ids), before)
        deleted = yield from self._delete("thread_id = ANY($1::text[])", named, *params)
        if before is not None:
            yield self.say(_FORGET_OLDER, *params)
        return deleted

    def delete_namespaces(self, thread_id: str, namespaces: Sequence[str]) -> Flow[int]:
        where = "thread_id = ANY($1::text[]) AND checkpoint_ns = ANY($2::text[])"
        return self._delete(where, "", [thread_id], list(namespaces))

    def delete_checkpoints(self, thread_id: str, namespace: str, ids: Sequence[str]) -> Flow[int]:
        where, named = (
            "thread_id = ANY($1::text[]) AND checkpoint_ns = $2::text",
            " AND checkpoint_id = ANY($3::text[])",
        )
        deleted = yield from self._delete(where, named, [thread_id], namespace, list(ids))
        yield self.say(_FORGET_PARENTS, thread_id, namespace, list(ids))
        return deleted

    def _delete(self, where: str, named: str, *params: Any) -> Flow[int]:
        """Delete checkpoints, their writes, then the blobs that none uses: a run may just have gone on with them."""
        yield self.take_turns(params[0])
        deleted = yield self.say(f"DELETE FROM #checkpoints WHERE {where}{named} RETURNING 1", *params)
        yield self.say(f"DELETE FROM #checkpoint_writes WHERE {where}{named}", *params)
        yield self.say(_DELETE_BLOBS.replace("{where}", where), *(params[:-1] if named else params))
        return len(deleted)

    def take_turns(self, thread_ids: Sequence[str]) -> Step:
        return self.say(_TAKE_TURNS, self._schema, list(thread_ids))

    def select_strange(self, source: str, target: str) -> Statement:
        return self.say(_STRANGE, source, target)

    def copy_thread(self, source: str, target: str) -> Flow[None]:
        for table, columns in _COPY.items():
            yield self.say(
                f"""INSERT INTO #{table} (thread_id, {columns}) SELECT $2::text, {columns} FROM #{table}
                WHERE thread_id = $1::text ON CONFLICT DO NOTHING""",
                source,
                target,
            )


def _choose(columns: str, page: Page) -> tuple[str, list[Any]]:
    sql, params = f"SELECT {columns} FROM #checkpoints WHERE true", list[Any]()

    def bind(value: Any, kind: str = "text") -> str:
        params.append(value)
        return f"${len(params)}::{kind}"

    equal = {"thread_id": page.thread_id, "checkpoint_ns": page.namespace, "checkpoint_id": page.checkpoint_id}
    for column, value in equal.items():
        if value is not None:
            sql += f" AND {column} = {bind(value)}"
    if page.before is not None:
        sql += f" AND checkpoint_id < {bind(page.before)}"
    if page.after is not None:
        thread_id, namespace, checkpoint_id = page.after
        last = f"({bind(checkpoint_id)}, {bind(thread_id)}, {bind(namespace)})"
        sql += f" AND (checkpoint_id, thread_id, checkpoint_ns) < {last}"
    if (narrowing := to_narrowing(page.filter)) is not None:
        sql += f" AND metadata @> {bind(narrowing)}::jsonb"
    return f"{sql} ORDER BY {_NEWEST_FIRST} LIMIT {bind(page.limit, 'int8')}", params
