"""SQL for checkpoints in SQLite: the tables of langgraph-checkpoint-sqlite 3.1.2, with an index of memstore's own.

A checkpoint stands whole in one row, encoded by the serializer. Several addresses are bound as one JSON array.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.serde.base import SerializerProtocol

from memstore.checkpoints import Address, Blob, Draft, Node, Packed, Page, Reader, Stored, StoredWrite
from memstore.dialects.threads import Held, ThreadRow
from memstore.metadata import from_metadata
from memstore.steps import NOTHING, Decoded, Each, Flow, Many, Statement, Step

_CHECKPOINTS: Final = """
CREATE TABLE IF NOT EXISTS checkpoints (
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL DEFAULT '',
    checkpoint_id TEXT NOT NULL,
    parent_checkpoint_id TEXT,
    type TEXT,
    checkpoint BLOB,
    metadata BLOB,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
)"""
_WRITES: Final = """
CREATE TABLE IF NOT EXISTS writes (
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL DEFAULT '',
    checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    task_path TEXT NOT NULL DEFAULT '',
    idx INTEGER NOT NULL,
    channel TEXT NOT NULL,
    type TEXT,
    value BLOB,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
)"""
_ADD_TASK_PATH: Final = "ALTER TABLE writes ADD COLUMN task_path TEXT NOT NULL DEFAULT ''"
_RUN: Final = """
CASE WHEN json_valid(CAST(metadata AS TEXT)) THEN json_extract(CAST(metadata AS TEXT), '$.run_id') END"""
_HAS_RUN: Final = "instr(metadata, 'run_id')"
"""Most rows have none, and are not in the index."""
_CREATE_INDEX: Final = f"""
CREATE INDEX IF NOT EXISTS memstore_checkpoints_run ON checkpoints ({_RUN}) WHERE {_HAS_RUN}"""
_FEW: Final = 16
"""States decoded at once where just their outline is wanted."""
_COUNT_TABLES: Final = """
SELECT (SELECT count(*) FROM sqlite_master
        WHERE name IN ('checkpoints', 'writes', 'memstore_checkpoints_run')),
       (SELECT count(*) FROM pragma_table_info('writes') WHERE name = 'task_path')"""
_MADE: Final = (3, 1)

_ADDRESS: Final = "c.thread_id, c.checkpoint_ns, c.checkpoint_id"
_STORED: Final = f"{_ADDRESS}, c.parent_checkpoint_id, c.metadata, c.type, c.checkpoint"
_WRITE: Final = "w.task_path, w.task_id, w.idx, w.channel, w.type, w.value"
_AT: Final = """json_each(?) k CROSS JOIN checkpoints c ON c.thread_id = json_extract(k.value, '$[0]')
AND c.checkpoint_ns = json_extract(k.value, '$[1]') AND c.checkpoint_id = json_extract(k.value, '$[2]')"""
_WRITES_OF: Final = f"""
SELECT k.key, 0, {_WRITE} FROM json_each(?1) k CROSS JOIN writes w ON w.thread_id = json_extract(k.value, '$[0]')
AND w.checkpoint_ns = json_extract(k.value, '$[1]') AND w.checkpoint_id = json_extract(k.value, '$[2]')
UNION ALL
SELECT k.key, 1, {_WRITE} FROM json_each(?1) k CROSS JOIN writes w ON w.thread_id = json_extract(k.value, '$[0]')
AND w.checkpoint_ns = json_extract(k.value, '$[1]') AND w.checkpoint_id = json_extract(k.value, '$[3]')
AND w.channel = '__pregel_tasks'"""
_WRITES_OF_ONE: Final = f"""
SELECT 0, 0, {_WRITE} FROM writes w WHERE thread_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3
UNION ALL
SELECT 0, 1, {_WRITE} FROM writes w WHERE thread_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?4
AND channel = '__pregel_tasks'"""
_PUT: Final = """
INSERT OR REPLACE INTO checkpoints
    (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata)
VALUES (?, ?, ?, ?, ?, ?, ?)"""
_PUT_WRITE: Final = """
INSERT INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO UPDATE
SET task_path = excluded.task_path, channel = excluded.channel, type = excluded.type, value = excluded.value
WHERE idx < 0"""
_CHAIN: Final = """
WITH RECURSIVE chain (checkpoint_id, parent_id, place) AS (
    SELECT checkpoint_id, parent_checkpoint_id, 1 FROM checkpoints
    WHERE thread_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3
    UNION ALL
    SELECT c.checkpoint_id, c.parent_checkpoint_id, place + 1 FROM chain a CROSS JOIN checkpoints c
    ON c.thread_id = ?1 AND c.checkpoint_ns = ?2 AND c.checkpoint_id = a.parent_id WHERE place < ?4
)
SELECT checkpoint_id, parent_id FROM chain ORDER BY place"""
_NAMED: Final = """thread_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id IN (SELECT value FROM json_each(?3))"""
_NEWEST_FIRST: Final = "checkpoint_id DESC, thread_id DESC, checkpoint_ns DESC"
_LISTED: Final = "IN (SELECT value FROM json_each(?))"
_NEWEST: Final = """
SELECT max(checkpoint_id), thread_id FROM checkpoints GROUP BY thread_id
HAVING ?1 IS NULL OR (max(checkpoint_id), thread_id) < (?1, ?2) ORDER BY 1 DESC, 2 DESC LIMIT ?3"""
_STRANGE: Final = """
SELECT 1 FROM checkpoints t WHERE t.thread_id = ?2 AND NOT EXISTS (
    SELECT 1 FROM checkpoints s WHERE s.thread_id = ?1 AND s.checkpoint_ns = t.checkpoint_ns
    AND s.checkpoint_id = t.checkpoint_id) LIMIT 1"""
_COPY: Final = (
    """
INSERT OR IGNORE INTO checkpoints
    (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata)
SELECT ?2, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
FROM checkpoints WHERE thread_id = ?1""",
    """
INSERT OR IGNORE INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value)
SELECT ?2, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
FROM writes WHERE thread_id = ?1""",
)


class SqliteThreads:
    """The `ThreadStatements` of SQLite."""

    def are_ready(self) -> Flow[bool]:
        (counts,) = yield Statement(_COUNT_TABLES)
        return bool(counts == _MADE)

    def make_ready(self) -> Flow[None]:
        yield Statement(_CHECKPOINTS)
        yield Statement(_WRITES)
        ((_, has_path),) = yield Statement(_COUNT_TABLES)
        if not has_path:
            yield Statement(_ADD_TASK_PATH)
        yield Statement(_CREATE_INDEX)

    def pack(self, draft: Draft, serde: SerializerProtocol) -> Packed:
        return Packed(draft.address, draft.parent_id, draft.metadata, serde.dumps_typed(draft.checkpoint))

    def unpack(self, stored: Stored, reader: Reader) -> Checkpoint:
        checkpoint: Checkpoint = reader.load(*stored.body)
        return checkpoint

    def put(self, packed: Packed) -> Step:
        params = (*packed.address, packed.parent_id, *packed.body, packed.metadata.encode())
        return Decoded(Statement(_PUT, params), lambda _: True)

    def put_writes(self, address: Address, task_id: str, task_path: str, writes: Sequence[tuple[int, Blob]]) -> Step:
        start = (*address, task_id, task_path)
        return Many(_PUT_WRITE, [(*start, index, blob.channel, blob.type, blob.data) for index, blob in writes])

    def read_latest(self, thread_id: str, namespace: str) -> Flow[list[Stored]]:
        sql = f"""SELECT {_STORED} FROM checkpoints c WHERE thread_id = ? AND checkpoint_ns = ?
        ORDER BY checkpoint_id DESC LIMIT 1"""
        return self._read(Statement(sql, (thread_id, namespace)))

    def read(self, addresses: Sequence[Address]) -> Flow[list[Stored]]:
        sql = f"SELECT {_STORED} FROM {_AT} ORDER BY k.key"
        return self._read(Statement(sql, (json.dumps(addresses),)))

    def read_page(self, page: Page) -> Flow[list[Stored]]:
        return self._read(_select(_STORED, page))

    def _read(self, statement: Statement) -> Flow[list[Stored]]:
        rows = yield statement
        found = [Stored(Address(*row[:3]), row[3], row[4], row[5:7], size=len(row[6] or b"")) for row in rows]
        if not found:
            return []
        if len(found) == 1:
            writes = yield Statement(_WRITES_OF_ONE, (*found[0].address, found[0].parent_id))
        else:
            keys = [(*stored.address, stored.parent_id) for stored in found]
            writes = yield Statement(_WRITES_OF, (json.dumps(keys),))
        for place, sent, *rest in writes:
            stored = found[place]
            (stored.sends if sent else stored.writes).append(StoredWrite(*rest))
            stored.size += len(rest[-1] or b"")
        return found

    def select_metadata(self, page: Page) -> Statement:
        return _select(f"{_ADDRESS}, c.metadata", page)

    def select_chain(self, address: Address, limit: int) -> Statement:
        return Statement(_CHAIN, (*address, limit))

    def read_nodes(self, thread_id: str, namespace: str, ids: Sequence[str], reader: Reader) -> Flow[list[Node]]:
        sql = f"SELECT checkpoint_id, parent_checkpoint_id, metadata, type, checkpoint FROM checkpoints WHERE {_NAMED}"
        nodes = []
        for at in range(0, len(ids), _FEW):  # each is a whole state, of which little is kept
            rows = yield Statement(sql, (thread_id, namespace, json.dumps(ids[at : at + _FEW])))
            for checkpoint_id, parent_id, metadata, type_, data in rows:
                body = reader.load(type_, data)
                held, versioned = frozenset(body["channel_values"]), frozenset(body.get("channel_versions", ()))
                nodes.append(Node(checkpoint_id, parent_id, from_metadata(metadata), body.get("v", 1), versioned, held))
        return nodes

    def read_held(
        self, thread_id: str, namespace: str, ids: Sequence[str], channels: Sequence[str], reader: Reader
    ) -> Flow[Mapping[tuple[str, str], Held]]:
        sql = f"SELECT checkpoint_id, type, checkpoint FROM checkpoints WHERE {_NAMED}"
        held = {}
        for at in range(0, len(ids), _FEW):
            rows = yield Statement(sql, (thread_id, namespace, json.dumps(ids[at : at + _FEW])))
            for checkpoint_id, type_, data in rows:
                values = reader.load(type_, data)["channel_values"]
                for channel in values.keys() & channels:
                    held[checkpoint_id, channel] = Held(checkpoint_id, values[channel])
        return held

    def select_blobs(self, thread_id: str, namespace: str, held: Mapping[str, str]) -> Step:  # noqa: ARG002
        return Each("", ())

    def select_writes(self, thread_id: str, namespace: str, ids: Sequence[str], channels: Sequence[str]) -> Step:
        sql = f"""SELECT checkpoint_id, {_WRITE} FROM writes w
        WHERE {_NAMED} AND channel IN (SELECT value FROM json_each(?4))"""
        return Statement(sql, (thread_id, namespace, json.dumps(ids), json.dumps(channels)))

    def select_spine(self, thread_id: str) -> Statement:
        sql = """SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ?
        ORDER BY checkpoint_ns DESC, checkpoint_id DESC"""
        return Statement(sql, (thread_id,))

    def select_delta(self, thread_id: str, namespace: str) -> Statement:
        sql = """SELECT checkpoint_id FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND (
        instr(CAST(metadata AS TEXT), '"counters_since_delta_snapshot"') OR
        instr(CAST(metadata AS TEXT), '"delta_writes_versioned"'))"""
        return Statement(sql, (thread_id, namespace))

    def select_runs(self, run_ids: Sequence[str]) -> Statement:
        sql = f"SELECT {_ADDRESS} FROM checkpoints c WHERE {_HAS_RUN} AND {_RUN} {_LISTED} ORDER BY 1, 2, 3"
        return Statement(sql, (json.dumps(run_ids),))

    def read_newest(self, limit: int, before: ThreadRow | None) -> Flow[list[ThreadRow]]:
        # goes through the primary key's index alone: 0.2 s for a million checkpoints
        rows = yield Statement(_NEWEST, (*(before or (None, None)), limit))
        return [ThreadRow(*row) for row in rows]

    def count(self, thread_ids: Sequence[str]) -> Statement:
        sql = f"""SELECT thread_id, count(*), count(DISTINCT checkpoint_ns) FROM checkpoints
        WHERE thread_id {_LISTED} GROUP BY thread_id"""
        return Statement(sql, (json.dumps(thread_ids),))

    def select_idle(self, before: str, thread_ids: Sequence[str] | None = None) -> Statement:
        among, params = ("", [before]) if thread_ids is None else (f"WHERE thread_id {_LISTED}", [])
        if thread_ids is not None:
            params = [json.dumps(thread_ids), before]
        sql = f"""SELECT max(checkpoint_id), thread_id FROM checkpoints {among}
        GROUP BY thread_id HAVING max(checkpoint_id) < ?"""
        return Statement(sql, params)

    def select_long(self, checkpoints: int) -> Statement:
        sql = "SELECT DISTINCT thread_id FROM checkpoints GROUP BY thread_id, checkpoint_ns HAVING count(*) > ?"
        return Statement(sql, (checkpoints,))

    def delete_threads(self, thread_ids: Sequence[str], before: str | None = None) -> Flow[int]:
        where = f"thread_id {_LISTED} AND (?2 IS NULL OR checkpoint_id < ?2)".replace("(?)", "(?1)")
        params = (json.dumps(thread_ids), before)
        deleted = yield Statement(f"DELETE FROM checkpoints WHERE {where} RETURNING 1", params)
        yield Statement(f"DELETE FROM writes WHERE {where}", params)
        return len(deleted)

    def delete_namespaces(self, thread_id: str, namespaces: Sequence[str]) -> Flow[int]:
        where = f"WHERE thread_id = ? AND checkpoint_ns {_LISTED}"
        params = (thread_id, json.dumps(namespaces))
        deleted = yield Statement(f"DELETE FROM checkpoints {where} RETURNING 1", params)
        yield Statement(f"DELETE FROM writes {where}", params)
        return len(deleted)

    def delete_checkpoints(self, thread_id: str, namespace: str, ids: Sequence[str]) -> Flow[int]:
        params = (thread_id, namespace, json.dumps(ids))
        deleted = yield Statement(f"DELETE FROM checkpoints WHERE {_NAMED} RETURNING 1", params)
        yield Statement(f"DELETE FROM writes WHERE {_NAMED}", params)
        yield Statement(
            """UPDATE checkpoints SET parent_checkpoint_id = NULL WHERE thread_id = ?1 AND checkpoint_ns = ?2
            AND parent_checkpoint_id IN (SELECT value FROM json_each(?3))""",
            params,
        )
        return len(deleted)

    def take_turns(self, thread_ids: Sequence[str]) -> Step:  # noqa: ARG002  who writes is alone
        return NOTHING

    def select_strange(self, source: str, target: str) -> Statement:
        return Statement(_STRANGE, (source, target))

    def copy_thread(self, source: str, target: str) -> Flow[None]:
        for sql in _COPY:
            yield Statement(sql, (source, target))


def _select(columns: str, page: Page) -> Statement:
    """Select some checkpoints: first which, by an index that has no values, then their columns."""
    sql, params = "SELECT rowid AS place FROM checkpoints WHERE true", list[Any]()
    equal = {"thread_id": page.thread_id, "checkpoint_ns": page.namespace, "checkpoint_id": page.checkpoint_id}
    for column, value in equal.items():
        if value is not None:
            sql += f" AND {column} = ?"
            params.append(value)
    if page.before is not None:
        sql += " AND checkpoint_id < ?"
        params.append(page.before)
    if page.after is not None:
        thread_id, namespace, checkpoint_id = page.after
        sql += " AND (checkpoint_id, thread_id, checkpoint_ns) < (?, ?, ?)"
        params += [checkpoint_id, thread_id, namespace]
    chosen = f"{sql} ORDER BY {_NEWEST_FIRST} LIMIT ?"
    return Statement(
        f"SELECT {columns} FROM ({chosen}) JOIN checkpoints c ON c.rowid = place ORDER BY {_NEWEST_FIRST}",
        [*params, page.limit],
    )
