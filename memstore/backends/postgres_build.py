"""Making the indexes of wide scopes in Postgres: beside everything else, by one process, when they are wanted."""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any, Final

import psycopg

from memstore.ann import DatabaseIndex
from memstore.backends.postgres_errors import first_line
from memstore.config import IndexSettings
from memstore.dialects.postgres import PostgresDialect
from memstore.dialects.postgres_wide import TERMS_INDEX, VECTORS_INDEX, PostgresWide
from memstore.indexes import Metric
from memstore.stats import IndexState
from memstore.steps import Statement

_logger = logging.getLogger("memstore.backends")
_AGAIN_SECONDS: Final = 60.0
"""How long nothing is tried after an index could not be made."""
_CANCEL_SECONDS: Final = 0.2
"""How often closing asks the server to leave what it is making."""
_SESSION_SECONDS: Final = 5.0
"""How long a second session of the server is waited for."""
_LOCK: Final = 0x6D656D73
"""Of the two numbers of an advisory lock, the one that is memstore's; the other is the schema's."""
_OLDEST: Final = (0, 8)
"""The version of pgvector that goes on searching an index until a filtered page is full."""


class DatabaseWide(DatabaseIndex):
    """What ranks wide scopes, and has their indexes made.

    Args:
        dialect: The backend's.
        metric: How vectors are compared.
        settings: The user's.
        connect: Opens a connection in autocommit.
    """

    texts = 0
    file_bytes = 0
    in_use = True

    def __init__(
        self,
        dialect: PostgresDialect,
        metric: Metric,
        settings: IndexSettings,
        connect: Callable[[], psycopg.Connection[Any]],
    ) -> None:
        super().__init__(PostgresWide(dialect, settings.weights), metric, settings)
        self._dialect = dialect
        self._connect = connect
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._building: psycopg.Connection[Any] | None = None
        self._closed = False
        self._not_before = 0.0
        # spelled out: bound parameters would keep a snapshot open, for which the making of the index would wait
        self._key = int.from_bytes(zlib.crc32(dialect.schema.encode()).to_bytes(4, "big"), "big", signed=True)

    def count(self, clock: int) -> int | None:  # noqa: ARG002  the database counts
        """Say nothing: that is to be asked of the database."""
        return None

    @property
    def state(self) -> IndexState:
        """What is known of the database's index."""
        column = self._dialect.vectors
        return IndexState(
            kind="flat"
            if VECTORS_INDEX not in self.ready
            else "ivfflat"
            if self._settings.ann == "ivfflat"
            else "hnsw",
            precision="float16" if column is not None and column.kind == "halfvec" else "float32",
            building=self._thread is not None,
        )

    @property
    def wants_upkeep(self) -> bool:
        """Whether an index is wanted and nobody makes it yet."""
        return self.wanted and self._thread is None and time.monotonic() >= self._not_before

    def upkeep(self) -> None:
        """Begin to make what is wanted; others go on reading and writing meanwhile."""
        with self._lock:
            if self._closed or not self.wants_upkeep:
                return
            self._thread = threading.Thread(target=self._work, name="memstore-indexer", daemon=True)
            self._thread.start()

    def forget(self) -> None:
        """Forget nothing: the index is the database's own."""

    def close(self) -> None:
        """Leave an index that is being made: another store makes it when it is wanted."""
        with self._lock:
            self._closed = True
            thread = self._thread
        while thread is not None and thread.is_alive() and thread is not threading.current_thread():
            if (building := self._building) is not None:
                building.cancel()  # again, where it came between two statements
            thread.join(_CANCEL_SECONDS)

    def build(self) -> bool:
        """Make what is missing, and tell whether everything is there; false where another process is making it."""
        with self._connect() as guard, self._connect() as connection:
            with self._lock:
                if self._closed:
                    return False
                self._building = connection
            with guard.transaction():  # its lock is let go with the connection, whatever happens
                row = guard.execute(f"SELECT pg_try_advisory_xact_lock({_LOCK}, {self._key})").fetchone()
                if not (row and row[0]):
                    return False
                self._check_apart(guard, connection)
                self._build(connection)
        return True

    def _check_apart(self, guard: psycopg.Connection[Any], connection: psycopg.Connection[Any]) -> None:
        """Make sure that two connections have a session of the server each: a pooler may have but one."""
        patience = threading.Timer(_SESSION_SECONDS, guard.close)
        patience.daemon = True
        patience.start()
        try:
            connection.execute("SELECT")
        finally:
            patience.cancel()
        if guard.closed:
            self.possible, self.wanted = frozenset(), False
            raise psycopg.OperationalError(
                "the pooler that is connected to has one session of the server; it takes two"
            )

    def _work(self) -> None:
        try:
            self._not_before = time.monotonic() + (0.0 if self.build() else _AGAIN_SECONDS)
        except psycopg.Error as error:
            self._not_before = time.monotonic() + _AGAIN_SECONDS
            if not self._closed:
                _logger.warning(
                    "an index for wide searches could not be made; they are exact meanwhile: %s", first_line(error)
                )
        finally:
            self._building = None
            self._thread = None

    def _build(self, connection: psycopg.Connection[Any]) -> None:
        statements = PostgresWide(self._dialect)
        state = dict(_ask(connection, statements.index_state()))
        for name in [name for name, valid in state.items() if not valid]:
            _ask(connection, statements.drop_index(name))
            del state[name]
        if TERMS_INDEX not in state:
            _ask(connection, statements.create_terms_index())
        if VECTORS_INDEX in self.possible - state.keys():
            create = self._create_vectors(connection, statements)
            if create is None:
                self.possible = frozenset([TERMS_INDEX])
                return
            started = time.monotonic()
            _logger.info("making the index of vectors of %s", self._dialect.schema)
            _ask(connection, create)
            _logger.info("made the index of vectors in %.0f s", time.monotonic() - started)
        self.wanted = False

    def _create_vectors(self, connection: psycopg.Connection[Any], statements: PostgresWide) -> Statement | None:
        column = self._dialect.vectors
        if column is None or not self._is_new_enough(connection):
            return None
        dims = f"SELECT {column.schema}.vector_dims(embedding) FROM @vectors LIMIT 1"
        rows = _ask(connection, self._dialect.say(dims))
        if not rows:
            return None
        method, options = "hnsw", {"m": self._settings.m, "ef_construction": self._settings.ef_construction}
        if self._settings.ann == "ivfflat":
            ((texts,),) = _ask(connection, statements.count(None))
            method, options = "ivfflat", {"lists": to_lists(texts)}
        return statements.create_vectors_index(self._metric, rows[0][0], method, options)

    def _is_new_enough(self, connection: psycopg.Connection[Any]) -> bool:
        ((version,),) = _ask(connection, Statement("SELECT extversion FROM pg_extension WHERE extname = 'vector'"))
        if tuple(map(int, version.split(".")[:2])) >= _OLDEST:
            return True
        _logger.warning(
            "pgvector %s has no iterative scans; wide searches stay exact until it is 0.8 or later", version
        )
        return False


def to_lists(texts: int) -> int:
    """Choose the lists of an IVFFlat index, as pgvector advises."""
    return max(1, texts // 1_000 if texts <= 1_000_000 else int(texts**0.5))  # noqa: PLR2004


def _ask(connection: psycopg.Connection[Any], statement: Statement) -> list[Any]:
    cursor = psycopg.RawCursor(connection, row_factory=psycopg.rows.tuple_row)
    cursor.execute(statement.sql, statement.params or None)
    return cursor.fetchall() if cursor.description else []
