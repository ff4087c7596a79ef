"""SQL for PostgreSQL 14 and later with pgvector.

Tables, types and operators are qualified, so that nothing depends on what is set on a connection.
"""

from __future__ import annotations

from memstore.dialects import InspectStatements
from memstore.dialects.postgres_inspect import PostgresInspect
from memstore.dialects.postgres_reads import PostgresReads
from memstore.dialects.postgres_threads import PostgresThreads
from memstore.dialects.postgres_writes import PostgresWrites
from memstore.dialects.threads import ThreadStatements
from memstore.items import Microseconds
from memstore.steps import Statement, Step


class PostgresDialect(PostgresReads, PostgresWrites):
    """The `Dialect` of Postgres."""

    def select_index(self) -> Statement:
        return self.say("SELECT id, settings FROM @index ORDER BY id DESC LIMIT 1")

    def insert_index(self, settings: str) -> Statement:
        return self.say("INSERT INTO @index (settings) VALUES ($1::text) RETURNING id", settings)

    def update_index(self, index_id: int, settings: str) -> Statement:
        return self.say("UPDATE @index SET settings = $1::text WHERE id = $2::int8", settings, index_id)

    def enforce_index(self, index_id: int) -> Statement:
        return self.say("UPDATE @state SET index_id = $1::int8", index_id)

    def has_texts(self) -> Statement:
        return self.say("SELECT 1 FROM @namespaces WHERE texts > 0 LIMIT 1")

    def claim_settings(self) -> Step:
        return self.say("LOCK TABLE @namespaces IN EXCLUSIVE MODE")

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

    def threads(self) -> ThreadStatements:
        return PostgresThreads(self.schema)
