"""One Postgres schema used by a saver and by LangGraph's own."""

from __future__ import annotations

import asyncio
import enum
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import dict_row

from memstore import MemSaver
from memstore.dialects.postgres_text import quote
from tests.conformance.saver_crossing import (
    WAITING,
    CrossingConformance,
    OpenOfficial,
    go_on,
    leave_waiting,
    look_alike,
)
from tests.conformance.saver_pruning import spread
from tests.graphs import (
    LONG,
    Caller,
    answer,
    at,
    build_anything,
    build_notes,
    build_talk,
    build_work,
    expected_notes,
    note,
    say,
)
from tests.support import Place

TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
DESCRIBED = """
SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns
WHERE table_schema = current_schema() AND table_name LIKE 'checkpoint%'
UNION ALL SELECT tablename, indexname, indexdef, '', '' FROM pg_indexes WHERE schemaname = current_schema()
ORDER BY 1, 2"""


class Colour(enum.Enum):
    """What is no plain value."""

    RED = "red"


class Word(enum.StrEnum):
    """What is a text, and more."""

    YES = "yes"


class Level(enum.IntEnum):
    """What is a number, and more."""

    HIGH = 3


async def _open(url: str, schema: str, serde: Any) -> AsyncPostgresSaver:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row)
    await connection.execute(f"SET search_path = {quote(schema)}")
    saver = AsyncPostgresSaver(connection, serde=serde)
    await saver.setup()
    return saver


class TestCrossing(CrossingConformance):
    """LangGraph's saver and memstore's, in both orders."""

    @pytest.fixture
    def open_official(self, url: str, schema: str, call: Caller, runner: asyncio.Runner) -> Iterator[OpenOfficial]:
        """Open LangGraph's savers."""
        with ExitStack() as stack:

            def open_(serde: Any = None) -> Any:
                with psycopg.connect(url, autocommit=True) as admin:
                    admin.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(schema)}")
                if call.runner is not None:
                    official = runner.run(_open(url, schema, serde))
                    stack.callback(lambda: runner.run(official.conn.close()))
                    return official
                connection: Any = psycopg.connect(url, autocommit=True, row_factory=dict_row)
                stack.callback(connection.close)
                connection.execute(f"SET search_path = {quote(schema)}")
                saver = PostgresSaver(connection, serde=serde)
                saver.setup()
                return saver

            yield open_

    @pytest.fixture
    def contents(self, raw: psycopg.Connection[Any]) -> Callable[[], bytes]:
        """Read all rows; bytes are in hexadecimal digits."""

        def read() -> bytes:
            selects: list[Any] = [f"SELECT t::text FROM {table} t" for table in TABLES]  # noqa: S608
            return "\n".join(row[0] for select in selects for row in raw.execute(select)).encode()

        return read

    def test_langgraph_finds_nothing_to_make(
        self, saver: MemSaver, open_official: OpenOfficial, call: Caller, raw: psycopg.Connection[Any]
    ) -> None:
        """In a schema that memstore made, its setup changes no table, no index and no migration."""
        call(saver, "get_tuple", at("t"))
        before = raw.execute(DESCRIBED).fetchall()
        open_official()
        assert raw.execute(DESCRIBED).fetchall() == before
        migrations = raw.execute("SELECT v FROM checkpoint_migrations ORDER BY v").fetchall()
        assert migrations == [(number,) for number in range(len(PostgresSaver.MIGRATIONS))]

    def test_tables_of_an_older_version_are_completed(
        self, location: Place, open_official: OpenOfficial, call: Caller, raw: psycopg.Connection[Any]
    ) -> None:
        """Without the path of a write's task, and its migration: both are added, the thread that waits goes on."""
        official = open_official()
        call(build_work(official, str), "invoke", {"found": []}, at("t"))
        whole = raw.execute(DESCRIBED).fetchall()
        raw.execute("ALTER TABLE checkpoint_writes DROP COLUMN task_path")
        raw.execute("DELETE FROM checkpoint_migrations WHERE v = 9")
        with MemSaver.open(location.location, **location.options) as saver:
            assert set(whole) <= set(raw.execute(DESCRIBED).fetchall())
            assert raw.execute("SELECT max(v), count(*) FROM checkpoint_migrations").fetchone() == (9, 10)
            assert raw.execute("SELECT DISTINCT task_path FROM checkpoint_writes").fetchall() == [("",)]
            look_alike(call, saver, official, "t")
            log: list[str] = []
            call(build_work(saver, log.append), "invoke", answer("yes"), at("t"))
            assert log == ["ask", "close"]
            look_alike(call, saver, official, "t")
        open_official()

    @pytest.mark.parametrize("last", range(9))
    def test_a_setup_that_stopped_anywhere_is_completed(
        self, location: Place, raw: psycopg.Connection[Any], schema: str, last: int
    ) -> None:
        """After any of LangGraph's migrations: the tables are then as its own and memstore's indexes make them."""
        raw.execute(f"CREATE SCHEMA {quote(schema)}")
        for number, migration in enumerate(PostgresSaver.MIGRATIONS[: last + 1]):
            sql: Any = migration
            raw.execute(sql)
            raw.execute("INSERT INTO checkpoint_migrations (v) VALUES (%s)", [number])
        with MemSaver.open(location.location, **location.options) as saver:
            build_talk(saver).invoke(say("hello"), at("t"))
        made = raw.execute(DESCRIBED).fetchall()
        raw.execute(f"DROP SCHEMA {quote(schema)} CASCADE")
        with MemSaver.open(location.location, **location.options):
            assert raw.execute(DESCRIBED).fetchall() == made
        assert raw.execute("SELECT max(v), count(*) FROM checkpoint_migrations").fetchone() == (9, 10)

    def test_tables_of_a_newer_version_are_used(
        self, saver: MemSaver, location: Place, raw: psycopg.Connection[Any]
    ) -> None:
        """Migrations that are not known are let be, and so is what they added."""
        build_talk(saver).invoke(say("hello"), at("t"))
        raw.execute("INSERT INTO checkpoint_migrations (v) VALUES (10), (42)")
        raw.execute("ALTER TABLE checkpoints ADD COLUMN newer INTEGER")
        with MemSaver.open(location.location, **location.options) as again:
            assert build_talk(again).invoke(say("again"), at("t"))["turns"] == 2
            again.copy_thread("t", "copy")
            again.prune(["t"])
        assert raw.execute("SELECT max(v), count(*) FROM checkpoint_migrations").fetchone() == (42, 12)

    @pytest.mark.parametrize(
        "value",
        [math.nan, math.inf, -math.inf, -0.0, 1e300, 1e-7, "a\0b", "\0", Colour.RED, Word.YES, Level.HIGH, 2**63 - 1],
        ids=repr,
    )
    def test_what_json_cannot_hold_is_read_by_langgraph(
        self, saver: MemSaver, open_official: OpenOfficial, call: Caller, value: Any
    ) -> None:
        """Values that its own saver refuses or alters are read by it as they are where memstore's wrote them."""
        official = open_official()
        for turn in range(3):
            call(build_anything(saver), "invoke", {"rounds": 7} if turn else {"value": value}, at("t"))
            for each in (saver, official):
                read = call.values(build_anything(each), at("t"))["value"]
                assert (type(read), repr(read)) == (type(value), repr(value))
        look_alike(call, saver, official, "t")
        call(official, "prune", ["t"])
        assert repr(call.values(build_anything(official), at("t"))["value"]) == repr(value)
        look_alike(call, saver, official, "t")

    def test_langgraph_prunes_what_was_written_here(
        self, saver: MemSaver, open_official: OpenOfficial, call: Caller, raw: psycopg.Connection[Any]
    ) -> None:
        """The state is kept, one checkpoint holds it, and what waits goes on: on both sides."""
        official = open_official()
        leave_waiting(call, saver)
        for turn in range(3):
            call(build_talk(saver), "invoke", say(str(turn), text=LONG), at("t"))
        before = call.values(build_talk(saver), at("t"))
        call(official, "prune", [*WAITING, "t"])
        assert spread(raw, "t") == {"": 1}
        assert call.values(build_talk(saver), at("t")) == before
        for name in (*WAITING, "t"):
            look_alike(call, saver, official, name)
        assert call(build_talk(saver), "invoke", say("3"), at("t"))["text"] == LONG
        assert [state["found"][-1] for state in go_on(call, saver)] == ["yes", "b", "two", "two"]

    @pytest.mark.parametrize("values", [[True, True], [[1], True], [True, [1], True], [LONG, True]], ids=repr)
    def test_true_is_no_snapshot(
        self, saver: MemSaver, open_official: OpenOfficial, call: Caller, raw: psycopg.Connection[Any], values: Any
    ) -> None:
        """A channel that holds True, and other things before, is no delta channel: both sides prune its thread."""
        official = open_official()
        for value in values:
            call(build_anything(saver), "invoke", {"value": value}, at("t"))
        call(saver, "copy_thread", "t", "copy")
        call(official, "prune", ["t"])
        call(saver, "prune", ["copy"])
        for name in ("t", "copy"):
            assert spread(raw, name) == {"": 1}
            for each in (saver, official):
                assert call.values(build_anything(each), at(name))["value"] is True

    def test_langgraph_refuses_to_prune_delta_channels(
        self, saver: MemSaver, open_official: OpenOfficial, call: Caller
    ) -> None:
        """It knows them in what was written here, snapshots too, and nothing is lost."""
        official = open_official()
        for number in range(6):
            call(build_notes(saver), "invoke", note(number), at("t"))
            with pytest.raises(NotImplementedError):
                call(official, "prune", ["t"])
            assert call.values(build_notes(saver), at("t")) == expected_notes(number + 1)
