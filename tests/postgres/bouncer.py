"""PgBouncer in transaction mode before a server, on a socket of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

SERVERS = 3
"""Connections to the server unless a test says otherwise: fewer than its clients."""
_PORT = 6432
"""No port is listened on: it is a part of the socket's name."""


@contextmanager
def run_bouncer(url: str, servers: int = SERVERS) -> Iterator[str]:
    """Run a PgBouncer that leads to a server's database; give its URL.

    Args:
        url: The database.
        servers: Connections to the server that all clients share.
    """
    folder = Path(tempfile.mkdtemp(prefix="memstore-pb-"))
    user = _user_for(url)
    if user is not None:
        shutil.chown(folder, user)
    config = folder / "bouncer.ini"
    config.write_text(_spell(url, folder, servers))
    with (folder / "log").open("w+") as log:
        running = subprocess.Popen([_find(), str(config)], user=user, stdout=log, stderr=log)
        try:
            through = f"postgresql://app@/app?host={quote(str(folder), safe='')}&port={_PORT}"
            _wait_for(through, running, folder / "log")
            yield through
        finally:
            running.terminate()
            running.wait(10)
            shutil.rmtree(folder, ignore_errors=True)


def _user_for(url: str) -> str | None:
    """Say as whom it runs: it refuses to be root, and must get at the server's socket."""
    if os.geteuid() != 0:
        return None
    host = str(conninfo_to_dict(url).get("host", ""))
    return Path(host).owner() if host.startswith("/") else "nobody"


def _find() -> str:
    found = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
    if found is None:
        pytest.skip("no pgbouncer is installed here")
    return found


def _spell(url: str, folder: Path, servers: int) -> str:
    """Write its settings; whoever comes is let in as the role of the URL."""
    names = ("host", "port", "dbname", "user", "password")
    parts: dict[str, Any] = {"dbname": "postgres", "user": "postgres", **conninfo_to_dict(url)}
    spelled = (f"{name}='" + str(parts[name]).replace("'", "''") + "'" for name in names if parts.get(name))
    return f"""
[databases]
app = {" ".join(spelled)}
[pgbouncer]
pool_mode = transaction
default_pool_size = {servers}
query_wait_timeout = 15
max_client_conn = 200
auth_type = any
listen_port = {_PORT}
unix_socket_dir = {folder}
logfile =
"""


def _wait_for(url: str, running: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until it takes connections."""
    until = time.monotonic() + 15
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            if running.poll() is not None or time.monotonic() > until:
                raise AssertionError(log.read_text()) from None
            time.sleep(0.02)
        else:
            return
