"""The tables of langgraph-checkpoint-postgres 3.2.0: how they are made, whole and in one transaction."""

from __future__ import annotations

from typing import Any, Final

from memstore.dialects.postgres_text import spell_official
from memstore.steps import Flow, Statement

_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS #checkpoint_migrations (v INTEGER PRIMARY KEY)",
    """
CREATE TABLE IF NOT EXISTS #checkpoints (
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL DEFAULT '',
    checkpoint_id TEXT NOT NULL,
    parent_checkpoint_id TEXT,
    type TEXT,
    checkpoint JSONB NOT NULL,
    metadata JSONB NOT NULL DEFAULT '{}',
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
)""",
    """
CREATE TABLE IF NOT EXISTS #checkpoint_blobs (
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL DEFAULT '',
    channel TEXT NOT NULL,
    version TEXT NOT NULL,
    type TEXT NOT NULL,
    blob BYTEA,
    PRIMARY KEY (thread_id, checkpoint_ns, channel, version)
)""",
    """
CREATE TABLE IF NOT EXISTS #checkpoint_writes (
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL DEFAULT '',
    checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    idx INTEGER NOT NULL,
    channel TEXT NOT NULL,
    type TEXT,
    blob BYTEA NOT NULL,
    task_path TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
)""",
    "ALTER TABLE #checkpoint_blobs ALTER COLUMN blob DROP NOT NULL",
    "ALTER TABLE #checkpoint_writes ADD COLUMN IF NOT EXISTS task_path TEXT NOT NULL DEFAULT ''",
    "CREATE INDEX IF NOT EXISTS checkpoints_thread_id_idx ON #checkpoints (thread_id)",
    "CREATE INDEX IF NOT EXISTS checkpoint_blobs_thread_id_idx ON #checkpoint_blobs (thread_id)",
    "CREATE INDEX IF NOT EXISTS checkpoint_writes_thread_id_idx ON #checkpoint_writes (thread_id)",
    "INSERT INTO #checkpoint_migrations (v) SELECT generate_series(0, 9) ON CONFLICT DO NOTHING",
)
"""Where LangGraph's ten migrations lead to, and that they have been applied."""
_INDEXES: Final = (
    """CREATE INDEX IF NOT EXISTS memstore_checkpoints_newest
    ON #checkpoints (checkpoint_id, thread_id, checkpoint_ns)""",
    """CREATE INDEX IF NOT EXISTS memstore_checkpoints_run
    ON #checkpoints ((metadata ->> 'run_id')) WHERE metadata ->> 'run_id' IS NOT NULL""",
)
_UNREADY: Final = """
SELECT s.indexrelid::regclass::text FROM pg_index s WHERE NOT s.indisvalid AND s.indexrelid = ANY(ARRAY[
    to_regclass($1::text), to_regclass($2::text), to_regclass($3::text)]::oid[])"""
_ARE_MIGRATED: Final = "SELECT 10 = (SELECT count(*) FROM #checkpoint_migrations WHERE v BETWEEN 0 AND 9)"
_ARE_INDEXED: Final = """
SELECT (to_regclass($2::text) IS NOT NULL AND to_regclass($3::text) IS NOT NULL) AS made,
    pg_has_role(c.relowner, 'USAGE') AS ours FROM pg_class c WHERE c.oid = to_regclass($1::text)"""


class OfficialTables:
    """LangGraph's tables in one schema, with two indexes of memstore's own.

    Args:
        schema: The schema of the tables, quoted.
    """

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def say(self, sql: str, *params: Any) -> Statement:
        """Make a statement over the tables of the schema: `#checkpoints` is LangGraph's own."""
        return Statement(spell_official(self._schema, sql), params)

    def _name(self, table: str) -> str:
        return spell_official(self._schema, f"#{table}")

    def are_ready(self) -> Flow[bool]:
        names = ("checkpoint_migrations", "memstore_checkpoints_newest", "memstore_checkpoints_run")
        rows = yield Statement(_ARE_INDEXED, tuple(map(self._name, names)))
        if not rows:
            return False
        ((made, ours),) = rows
        ((migrated,),) = yield self.say(_ARE_MIGRATED)
        return bool(migrated and (made or not ours))

    def make_ready(self) -> Flow[None]:
        names = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
        for (index,) in (yield Statement(_UNREADY, [self._name(f"{name}_thread_id_idx") for name in names])):
            yield Statement(f"DROP INDEX {index}")  # left by a setup that was interrupted
        for sql in (*_TABLES, *_INDEXES):
            yield self.say(sql)
