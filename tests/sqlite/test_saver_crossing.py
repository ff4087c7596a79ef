"""One SQLite file used by a saver and by LangGraph's own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from memstore import MemSaver
from tests.conformance.saver_crossing import CrossingConformance, OpenOfficial, look_alike
from tests.graphs import Caller, answer, at, build_work

OLD = """
CREATE TABLE checkpoints (
    thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
    parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
CREATE TABLE writes (
    thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL, idx INTEGER NOT NULL, channel TEXT NOT NULL, type TEXT, value BLOB,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
"""
"""The tables before writes had the path of their task."""


async def _open(path: Path, serde: Any) -> AsyncSqliteSaver:
    saver = AsyncSqliteSaver(await aiosqlite.connect(path), serde=serde)
    await saver.setup()
    return saver


class TestCrossing(CrossingConformance):
    """LangGraph's saver and memstore's, in both orders."""

    @pytest.fixture
    def open_official(self, path: Path, call: Caller, runner: asyncio.Runner) -> Iterator[OpenOfficial]:
        """Open LangGraph's savers."""
        with ExitStack() as stack:

            def open_(serde: Any = None) -> Any:
                if call.runner is None:
                    connection = stack.enter_context(closing(sqlite3.connect(path, check_same_thread=False)))
                    saver = SqliteSaver(connection, serde=serde)
                    saver.setup()
                    return saver
                official = runner.run(_open(path, serde))
                stack.callback(lambda: runner.run(official.conn.close()))
                return official

            yield open_

    @pytest.fixture
    def contents(self, path: Path) -> Callable[[], bytes]:
        """Read the files."""
        return lambda: b"".join(file.read_bytes() for file in path.parent.glob(path.name + "*"))

    def test_langgraph_finds_nothing_to_make(
        self, saver: MemSaver, open_official: OpenOfficial, call: Caller, raw: sqlite3.Connection
    ) -> None:
        """In a file that memstore made, its setup changes no table and no index."""
        call(saver, "get_tuple", at("t"))
        described = "SELECT name, sql FROM sqlite_master ORDER BY name"
        before = raw.execute(described).fetchall()
        open_official()
        assert raw.execute(described).fetchall() == before
        assert {name for name, _ in before} >= {"checkpoints", "writes"}

    def test_a_file_of_an_older_version_is_completed(
        self, location: Any, open_official: OpenOfficial, call: Caller, raw: sqlite3.Connection
    ) -> None:
        """Its writes get the path of their task, empty; the thread that waits in it is read, and goes on."""
        official = open_official()
        call(build_work(official, str), "invoke", {"found": []}, at("t"))
        tables = {name: raw.execute(f"SELECT * FROM {name}").fetchall() for name in ("checkpoints", "writes")}  # noqa: S608
        raw.executescript(f"DROP TABLE checkpoints; DROP TABLE writes; {OLD}")
        raw.executemany("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", tables["checkpoints"])
        raw.executemany(
            "INSERT INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [row[:4] + row[5:] for row in tables["writes"]]
        )
        with MemSaver.open(location.location) as saver:
            assert set(raw.execute("SELECT task_path FROM writes")) == {("",)}
            look_alike(call, saver, official, "t")
            log: list[str] = []
            call(build_work(saver, log.append), "invoke", answer("yes"), at("t"))
            assert log == ["ask", "close"]
            look_alike(call, saver, official, "t")
