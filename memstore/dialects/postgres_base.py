"""What all statements for Postgres share: the schema, and the column of the vectors, made with the first index."""

from __future__ import annotations

from typing import Any, Final

from memstore.config import VectorKind
from memstore.dialects.postgres_text import Select, quote, spell
from memstore.errors import IndexMismatch, InvalidConfig
from memstore.indexes import Metric
from memstore.indexes.pgvector import VectorColumn
from memstore.steps import Flow, Statement

_NO_EXTENSION: Final = frozenset({"42501", "0A000", "58P01"})
"""SQLSTATEs of an extension that may not be created, or is not installed."""
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


class PostgresBase:
    """Statements over the tables of one schema.

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

    def find_vectors(self) -> Flow[None]:
        """Learn which column the vectors have, if any."""
        rows = yield Statement(_FIND_VECTORS, (self.name("vectors"),))
        self.vectors = next((VectorColumn(quote(schema), *rest) for schema, *rest in rows), None)

    def hold_vectors(self, kind: VectorKind | None, *, anew: bool) -> Flow[None]:
        yield from self.find_vectors()
        if self.vectors is not None:
            is_kind = kind in (None, self.vectors.kind)
            if is_kind and not anew:
                return
            if (yield self.say("SELECT 1 FROM @vectors LIMIT 1")):
                if is_kind:
                    return
                raise IndexMismatch(vector_type_differs(self.vectors.kind, kind))
            yield self.say("DROP TABLE @vectors")  # with an index that may be of vectors of another length or metric
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
