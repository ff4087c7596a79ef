"""What goes wrong on the way to Postgres and in it: memstore's own errors, in time, without passwords or values."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import psycopg
import pytest
from langgraph.store.base import Op, PutOp

from memstore import DatabaseBusy, DatabaseError, InvalidConfig, MemStore
from memstore.errors import DatabaseDamaged, InvalidValue
from tests.postgres.control import Server, run_controlled
from tests.postgres.losses import contents, open_named
from tests.support import Clock, SyncCaller, WordEmbeddings, keys

INDEX: dict[str, Any] = {"embed": WordEmbeddings(8), "fields": ["text"]}
ADA = ("users", "ada")
SECRET = "hunter2"  # noqa: S105  nobody's
Opening = Callable[..., SyncCaller]
Attempt = Callable[..., None]
WRITES: dict[str, Callable[[SyncCaller], object]] = {
    "put": lambda caller: caller.put(ADA, "tea", {"text": "black tea"}),
    "put without texts": lambda caller: caller.put(ADA, "tea", {"text": "black tea"}, index=False),
    "delete": lambda caller: caller.delete(ADA, "tea"),
    "batch": lambda caller: caller.batch([PutOp(("eve",), "k", {"text": "new"}), PutOp(ADA, "tea", None)]),
}
READS: dict[str, Callable[[SyncCaller], object]] = {
    "get": lambda caller: caller.get(ADA, "tea"),
    "search": lambda caller: caller.search(()),
    "query": lambda caller: caller.search((), query="tea"),
    "list_namespaces": lambda caller: caller.list_namespaces(),
}


@pytest.fixture(params=["sync", "async"])
def opening(
    request: pytest.FixtureRequest, url: str, schema: str, clock: Clock, runner: asyncio.Runner
) -> Iterator[Opening]:
    """Open stores with an item or two; `pool` settings may be given."""
    opened: list[SyncCaller] = []

    def open_(**pool: Any) -> SyncCaller:
        caller = open_named((url, schema), clock, runner if request.param == "async" else None, INDEX, **pool)
        opened.append(caller)
        caller.put(ADA, "tea", {"text": "green tea"})
        caller.put(ADA, "dog", {"text": "two dogs"})
        return caller

    yield open_
    for caller in opened:
        caller.close()


@pytest.fixture(params=["sync", "async"])
def attempt(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Attempt:
    """Open a store that cannot be opened."""

    async def aopen(location: Any, settings: dict[str, Any]) -> None:
        async with MemStore.from_conn_string(location, **settings):
            pass

    def open_(location: Any, **settings: Any) -> None:
        if request.param == "sync":
            MemStore.open(location, **settings).close()
        else:
            runner.run(aopen(location, settings))

    return open_


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Run a server that asks one role for a password."""
    with run_controlled(durable=True) as server:
        with psycopg.connect(server.url, autocommit=True) as raw:
            raw.execute(f"CREATE ROLE limited LOGIN PASSWORD '{SECRET}'")
        server.let_in("local all limited scram-sha-256")
        yield server


@contextmanager
def held(url: str, schema: str, sql: str) -> Iterator[None]:
    """Hold what a statement locks, for twenty seconds at most, so that nothing waits for ever."""
    with psycopg.connect(url) as other:
        statement: Any = sql
        other.execute(f'SET search_path = "{schema}", public')
        other.execute(statement)
        letting_go = threading.Timer(20, other.rollback)
        letting_go.start()
        try:
            yield
        finally:
            letting_go.cancel()
            other.rollback()


class TestTimeouts:
    """Statements that take too long, and locks that others hold."""

    @pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
    def test_a_lock_is_waited_for_so_long(
        self,
        opening: Opening,
        raw: psycopg.Connection[Any],
        url: str,
        schema: str,
        write: Callable[[SyncCaller], object],
    ) -> None:
        """While another writes in the namespace, a write waits `lock_timeout`, then changes nothing."""
        caller = opening(lock_timeout=0.2)
        rows = contents(raw)
        with held(url, schema, "SELECT FROM memstore_namespaces FOR UPDATE"):
            began = time.monotonic()
            with pytest.raises(DatabaseBusy, match="took longer than 'lock_timeout'"):
                write(caller)
            assert 0.1 < time.monotonic() - began < 3
            assert keys(caller.search(ADA)) == ["dog", "tea"]
            caller.put(("others",), "k", {"text": "free"})
            caller.delete(("others",), "k")
        assert contents(raw) == rows
        write(caller)

    @pytest.mark.parametrize("use", [*WRITES.values(), *READS.values()], ids=[*WRITES, *READS])
    def test_a_statement_may_take_so_long(
        self,
        opening: Opening,
        raw: psycopg.Connection[Any],
        url: str,
        schema: str,
        use: Callable[[SyncCaller], object],
    ) -> None:
        """Any call whose statement takes longer than `statement_timeout` ends with an error, and changes nothing."""
        caller = opening(statement_timeout=0.2)
        rows = contents(raw)
        tables = "memstore_namespaces, memstore_items, memstore_texts"
        with held(url, schema, f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE"):
            began = time.monotonic()
            with pytest.raises(DatabaseBusy, match="took longer than 'statement_timeout'"):
                use(caller)
            assert 0.1 < time.monotonic() - began < 3
        assert contents(raw) == rows
        use(caller)

    def test_nothing_limits_others(self, opening: Opening, url: str, schema: str) -> None:
        """A wait shorter than the limits is no error."""
        caller = opening(statement_timeout=15, lock_timeout=15)
        done = threading.Event()

        def hold() -> None:
            with held(url, schema, "SELECT FROM memstore_namespaces FOR UPDATE"):
                done.set()
                time.sleep(0.3)

        holder = threading.Thread(target=hold)
        holder.start()
        assert done.wait(10)
        caller.put(ADA, "tea", {"text": "black tea"})
        holder.join()


class TestOpening:
    """Servers that cannot be reached, or do not let us in."""

    def test_a_wrong_url_says_what_is_wrong(self, attempt: Attempt, server: Server) -> None:
        """Within seconds: what the server or the system says, and no password, in the message or its causes."""
        host = str(server.data)
        urls = {
            f"postgresql://limited:{SECRET}@127.0.0.1:1/postgres": "127.0.0.1|refused",
            f"postgresql://limited:{SECRET}@localhost:1/postgres": "localhost|refused",
            f"postgresql://limited:{SECRET}@/postgres?host=/nowhere": "/nowhere|No such file",
            f"postgresql://limited:wrong-{SECRET}@/postgres?host={host}": "password authentication failed",
            f"postgresql://limited:{SECRET}@/nothing?host={host}": 'database "nothing" does not exist',
            f"postgresql://nobody:{SECRET}@/postgres?host={host}": 'role "nobody" does not exist',
            f"postgresql://limited:{SECRET}@no-such-host.invalid/postgres": "no-such-host|resolve",
        }
        for url, said in urls.items():
            began = time.monotonic()
            with pytest.raises(DatabaseError, match=said) as caught:
                attempt(url, pool={"connect_timeout": 3})
            assert time.monotonic() - began < 10
            self._assert_no_secret(caught.value)

    def test_a_server_that_never_answers_is_given_up(self, attempt: Attempt) -> None:
        """A port where something listens and says nothing: `connect_timeout` ends it."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"postgresql://limited:{SECRET}@127.0.0.1:{silent.getsockname()[1]}/postgres"
            began = time.monotonic()
            with pytest.raises(DatabaseError, match="timeout") as caught:
                attempt(url, pool={"connect_timeout": 2})
            assert time.monotonic() - began < 10
            self._assert_no_secret(caught.value)

    @pytest.mark.parametrize(
        "url",
        [
            f"postgresql://ada:{SECRET}/x@/postgres",
            f"postgresql://ada:{SECRET}@localhost:port/postgres",
            f"postgresql://ada:{SECRET}@localhost/postgres?no_such_option=1",
            f"postgresql://ada:%zz{SECRET}@localhost/postgres",
            f"postgresql://ada:{SECRET} x@localhost/postgres?host",
        ],
    )
    def test_a_url_that_cannot_be_read_says_so(self, attempt: Attempt, url: str) -> None:
        """With what is expected, and without what was given: it may be a password where none belongs."""
        with pytest.raises((InvalidConfig, DatabaseError)) as caught:
            attempt(url, pool={"connect_timeout": 2})
        self._assert_no_secret(caught.value)

    def test_the_store_shows_no_password(self, server: Server) -> None:
        """Nor its name, nor its settings."""
        store = MemStore.from_conn_string(f"postgresql://limited:{SECRET}@/postgres?host={server.data}")
        assert SECRET not in repr(store)
        assert "limited" in repr(store)
        store.close()

    @pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
    def test_a_database_in_another_encoding_is_refused(self, attempt: Attempt, server: Server, encoding: str) -> None:
        """Not every text could be kept there; nothing is made in it."""
        name = f"d{uuid.uuid4().hex[:8]}"
        create: Any = f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LOCALE 'C'"
        with psycopg.connect(server.url, autocommit=True) as raw:
            raw.execute(create)
        url = server.url.replace("/postgres?", f"/{name}?")
        with pytest.raises(InvalidConfig, match=f"{encoding}.*UTF8"):
            attempt(url, schema="new", index=INDEX)
        with psycopg.connect(url) as raw:
            made = raw.execute("SELECT 1 FROM pg_class WHERE relname LIKE 'memstore%'").fetchall()
            assert made == raw.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'new'").fetchall() == []

    @pytest.mark.parametrize(
        ("pool", "said"),
        [
            ({"max_szie": 4}, "no key 'max_szie'; did you mean 'max_size'"),
            ({"anything": 1}, "no key 'anything'; it takes min_size"),
            ({"max_size": 0}, r"pool\['max_size'\]"),
            ({"max_size": "4"}, r"pool\['max_size'\]"),
            ({"timeout": -1}, r"pool\['timeout'\]"),
            ({"min_size": 5, "max_size": 2}, "'min_size' is at most 'max_size'"),
            ([], "dict of settings"),
        ],
    )
    def test_pool_settings_are_checked(self, attempt: Attempt, url: str, pool: Any, said: str) -> None:
        """What is unknown or out of place is named, before anything is connected."""
        with pytest.raises(InvalidConfig, match=said):
            attempt(url, pool=pool)

    @staticmethod
    def _assert_no_secret(error: BaseException | None) -> None:
        while error is not None:
            assert SECRET not in f"{error} {error!r} {error.args}"
            error = error.__cause__


class TestRunning:
    """What the server says of calls under way."""

    def test_a_server_that_goes_away_for_good_is_an_error_in_time(
        self, server: Server, clock: Clock, runner: asyncio.Runner
    ) -> None:
        """Calls wait for it as long as `timeout` says, threads' and event loops' alike, and work once it is back."""
        place = server.url, f"test {uuid.uuid4().hex[:8]}"
        with ExitStack() as stack:
            callers = [
                stack.enter_context(closing(open_named(place, clock, loop, INDEX, timeout=1.0)))
                for loop in (None, runner)
            ]
            server.crash()
            try:
                for caller in callers:
                    for use in (READS["get"], READS["query"], WRITES["put"], WRITES["delete"]):
                        began = time.monotonic()
                        with pytest.raises(DatabaseError, match="server"):
                            use(caller)
                        assert time.monotonic() - began < 4
            finally:
                server.start()
            for caller in callers:
                self._wait_until_it_writes(caller)
                assert keys(caller.search(ADA, query="green tea")) == ["tea"]

    @staticmethod
    def _wait_until_it_writes(caller: SyncCaller) -> None:
        """Try until the store has noticed that its server is back: within seconds, however long that was away."""
        deadline = time.monotonic() + 5
        while True:
            with suppress(DatabaseError):
                caller.put(ADA, "tea", {"text": "green tea"})
                return
            assert time.monotonic() < deadline

    @pytest.mark.parametrize("raised", ["P0001", "23514", "22P02", "XX000", "42501", "57P05", "58030"])
    def test_messages_carry_no_values(
        self, opening: Opening, raw: psycopg.Connection[Any], raised: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Servers quote what they refuse; what was stored is not for logs. The code says what it was."""
        caller = opening()
        rows = contents(raw)
        body: Any = f"""
            CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'refused' USING ERRCODE = '{raised}', DETAIL = NEW.value::text; END $$"""
        raw.execute(body)
        raw.execute("CREATE TRIGGER refuse BEFORE INSERT ON memstore_items FOR EACH ROW EXECUTE FUNCTION refuse()")
        with pytest.raises(DatabaseError) as caught:
            caller.put(ADA, "key of mine", {"text": SECRET})
        assert SECRET not in f"{caught.value!r} {caught.value} {caplog.text}"
        assert "key of mine" not in str(caught.value)
        assert re.search(f"{raised}|refused", str(caught.value))
        raw.execute("DROP TRIGGER refuse ON memstore_items")
        assert contents(raw) == rows
        caller.put(ADA, "key of mine", {"text": SECRET})

    @pytest.mark.parametrize("count", [1, 7])
    def test_a_value_larger_than_postgres_keeps_is_the_value_s_fault(
        self, opening: Opening, raw: psycopg.Connection[Any], count: int
    ) -> None:
        """The server's limit is a gigabyte; here one of its errors stands for it."""
        caller = opening()
        rows = contents(raw)
        body: Any = """
            CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'too large' USING ERRCODE = '54000'; END $$"""
        raw.execute(body)
        raw.execute("CREATE TRIGGER refuse BEFORE INSERT ON memstore_items FOR EACH ROW EXECUTE FUNCTION refuse()")
        ops: list[Op] = [PutOp(ADA, f"k{number}", {"text": "x"}) for number in range(count)]
        with pytest.raises(InvalidValue, match="larger than Postgres keeps"):
            caller.batch(ops)
        assert contents(raw) == rows

    def test_tables_that_are_gone_are_named(self, opening: Opening, raw: psycopg.Connection[Any], schema: str) -> None:
        """A schema that was dropped under an open store is damage, with the way out; opened again, it works."""
        caller = opening()
        raw.execute(f'DROP SCHEMA "{schema}" CASCADE')
        for use in (*READS.values(), *WRITES.values()):
            with pytest.raises(DatabaseDamaged, match="open the store again"):
                use(caller)
        again = opening()
        assert keys(again.search(ADA)) == ["dog", "tea"]

    def test_a_server_that_only_reads_says_so(
        self, server: Server, clock: Clock, runner: asyncio.Runner, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A standby answers reads, refreshes nothing, and refuses writes with the reason."""
        place = server.url, f"test {uuid.uuid4().hex[:8]}"
        caller = open_named(place, clock, None, INDEX)
        caller.put(ADA, "tea", {"text": "green tea"}, ttl=10)
        caller.close()
        server.become(standby=True)
        try:
            for loop in (None, runner):
                with closing(open_named(place, clock, loop, INDEX)) as caller:
                    clock.pass_minutes(1)
                    assert caller.get(ADA, "tea") is not None
                    assert "a refresh was lost" in caplog.text
                    assert keys(caller.search((), query="green tea")) == ["tea"]
                    for write in WRITES.values():
                        with pytest.raises(DatabaseError, match=r"only lets read|during recovery"):
                            write(caller)
        finally:
            server.become(standby=False)
