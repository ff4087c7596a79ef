"""What a database may be like where memstore is deployed: its roles, its names, search paths, and who sets it up."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import psycopg
import pytest
from langgraph.store.base import PutOp

from memstore import DatabaseError, InvalidConfig, MemStore
from memstore.backends.postgres import PostgresBackend
from memstore.dialects.postgres_text import quote
from tests.postgres.databases import FOUND, Database, fill, found, fresh_database, fresh_role, to_url
from tests.postgres.test_wide import build
from tests.postgres.uses import INDEX, use, use_awaited
from tests.support import Clock, keys, open_postgres

WIDELY = {**INDEX, "exact_below": 0}
LEXICAL = {"mode": "lexical", "fields": ["text"]}
ADVICE = "; this role may not do that; see 'Production' in the README for what it needs"
PROCESSES = 8
LACKING = [
    *(f"INSERT ON memory.memstore_{table}" for table in ("items", "namespaces", "texts", "vectors", "commits")),
    *(f"DELETE ON memory.memstore_{table}" for table in ("items", "texts", "vectors")),
    "UPDATE ON memory.memstore_namespaces",
    "ALL ON SEQUENCE memory.memstore_clock",
]
"""What a put cannot do without."""


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    """Make a database without pgvector, and a role that may only connect."""
    with fresh_role(url) as database:
        yield database


@pytest.fixture(scope="module")
def named(url: str) -> Iterator[str]:
    """Make a database for schemas of many names."""
    with fresh_database(url) as named:
        yield named


class TestRoles:
    """Roles that may do less than an administrator."""

    @pytest.mark.parametrize("schema", ["public", 'the "ext" of %s', "$1", "@items"])
    def test_one_that_may_not_create_extensions(self, database: Database, schema: str) -> None:
        """It works where an administrator has created pgvector, wherever that stands; its wide indexes are made."""
        place = quote(schema)
        database.run(
            f"CREATE SCHEMA IF NOT EXISTS {place}",
            f"CREATE EXTENSION vector SCHEMA {place}",
            f"GRANT USAGE ON SCHEMA {place} TO {{role}}",
            "CREATE SCHEMA memory AUTHORIZATION {role}",
        )
        with MemStore.open(database.role_url, schema="memory", index=WIDELY) as store:
            assert use(store, "sync") == [("k", 1.0)]
            assert use_awaited(store, "async") == [("k3", 1.0)]
            fill(store)
            exact = found(store, mode="semantic")
            build(store)
            assert store.stats().index_bytes > 0
            assert found(store, mode="semantic") == exact
            assert store.check().problems == ()

    @pytest.mark.parametrize("mode", ["hybrid", "semantic"])
    def test_without_pgvector_it_is_told_what_to_run(self, database: Database, mode: str) -> None:
        """It is refused however often it tries; once an administrator has run that, the same store works."""
        database.run("CREATE SCHEMA memory AUTHORIZATION {role}")
        store = MemStore.from_conn_string(database.role_url, schema="memory", index={**INDEX, "mode": mode})
        for attempt in (
            store.setup,
            lambda: store.put(("a",), "k", {"text": "text"}),
            lambda: asyncio.run(store.aput(("a",), "k", {"text": "text"})),
        ):
            with pytest.raises(InvalidConfig, match="administrator runs: CREATE EXTENSION vector"):
                attempt()
        database.run("CREATE EXTENSION vector SCHEMA public")
        assert use(store, "k") == [("k", 1.0)]
        store.close()

    @pytest.mark.parametrize("index", [LEXICAL, None], ids=["lexical", "no index"])
    def test_without_pgvector_words_are_searched(self, database: Database, index: dict[str, Any] | None) -> None:
        """Mode lexical, and a store without an index, need none; wide searches neither."""
        database.run("CREATE SCHEMA memory AUTHORIZATION {role}")
        with MemStore.open(database.role_url, schema="memory", index=index and {**index, "exact_below": 0}) as store:
            fill(store)
            if index:
                build(store)
                assert keys(store.search((), query="7", limit=FOUND))[0] == "k7"
            assert len(store.search((), limit=100)) == 60
            assert store.check().problems == ()

    def test_one_without_usage_of_the_extension_s_schema(self, database: Database) -> None:
        """It is an error of memstore's, with the advice."""
        database.run(
            "CREATE SCHEMA ext", "CREATE EXTENSION vector SCHEMA ext", "CREATE SCHEMA memory AUTHORIZATION {role}"
        )
        with pytest.raises(DatabaseError, match=f"permission denied for schema ext{ADVICE}"):
            MemStore.open(database.role_url, schema="memory", index=INDEX)

    def test_one_with_rights_on_the_tables_alone(self, database: Database, clock: Clock) -> None:
        """What the README lists is enough to write, read, search and sweep."""
        with MemStore.open(database.url, schema="memory", index=INDEX) as owner:
            fill(owner)
            database.grant()
            store = open_postgres(database.role_url, "memory", clock, INDEX, {"default_ttl": 5})
            assert found(store) == found(owner)
            assert use(store, "sync") == [("k", 1.0)]
            assert use_awaited(store, "async") == [("k3", 1.0)]
            assert found(store, "text") == found(owner, "text")
            clock.pass_minutes(6)
            assert store.sweep_ttl() == 4
            assert len(store.search((), limit=100)) == 60
            store.close()

    def test_it_looks_after_the_store(self, database: Database) -> None:
        """It counts and checks what is there as the owner does."""
        with MemStore.open(database.url, schema="memory", index=INDEX) as owner:
            fill(owner)
            database.grant()
            with MemStore.open(database.role_url, schema="memory", index=INDEX) as store:
                assert store.check().problems == ()
                assert store.stats() == owner.stats()
                assert asyncio.run(store.acheck(repair=True)).problems == ()

    def test_it_makes_no_wide_index(self, database: Database, caplog: pytest.LogCaptureFixture) -> None:
        """Only the owner of the tables can: the log says so, and it finds the same without."""
        with MemStore.open(database.url, schema="memory", index=INDEX) as owner:
            fill(owner)
            database.grant()
            with MemStore.open(database.role_url, schema="memory", index=WIDELY) as store:
                exact = found(owner)
                for _ in range(2):
                    for hit, same in zip(found(store), exact, strict=True):
                        assert hit == (*same[:3], pytest.approx(same[3], abs=1e-6), *same[4:])
                    calls: Any = store._calls
                    if (thread := calls._wide._thread) is not None:
                        thread.join(30)
                assert "could not be made; they are exact meanwhile: must be owner of table" in caplog.text

    def test_its_wide_index_is_used(self, database: Database) -> None:
        """The indexes that the owner has made serve it too."""
        with MemStore.open(database.url, schema="memory", index=WIDELY) as owner:
            fill(owner)
            build(owner)
            expected = found(owner)
            database.grant()
            with MemStore.open(database.role_url, schema="memory", index=WIDELY) as store:
                assert found(store) == expected

    def test_one_that_lacks_a_right(self, database: Database) -> None:
        """It is told where to read what it needs; nothing changes, and what it may do it can."""
        with MemStore.open(database.url, schema="memory", index=INDEX) as owner:
            fill(owner, 10)
        before = database.contents()
        ops = [PutOp(("new",), "k", {"text": "new"}), PutOp(("n0",), "k0", {"text": "other"})]
        database.grant()
        with MemStore.open(database.role_url, schema="memory", index=INDEX) as store:
            attempts: list[Callable[[], Any]] = [partial(store.batch, ops), lambda: asyncio.run(store.abatch(ops))]
            for lacking in LACKING:
                database.grant()
                database.run(f"REVOKE {lacking} FROM {{role}}")
                for attempt in attempts:
                    with pytest.raises(DatabaseError, match=f"permission denied for .*{ADVICE}"):
                        attempt()
                assert len(store.search((), query="apple boat", limit=100)) == 10
                assert database.contents() == before
            database.grant()
            store.batch(ops)
            assert len(store.search((), query="apple boat", limit=100)) == 11

    def test_one_that_may_only_read(self, database: Database, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
        """It reads and searches; what a read would refresh stays as it is, and the log says so."""
        owner = open_postgres(database.url, "memory", clock, INDEX, {"default_ttl": 5})
        owner.put(("n0",), "k0", {"text": "apple boat 7"})
        expected = found(owner, refresh_ttl=False)
        database.grant("SELECT")
        before = database.contents()
        owner.close()
        clock.pass_minutes(1)
        store = open_postgres(database.role_url, "memory", clock, INDEX, None)
        assert found(store) == expected
        assert store.get(("n0",), "k0") is not None
        assert "a refresh was lost" in caplog.text
        for write in (partial(store.put, ("n0",), "k0", {"text": "x"}), partial(store.delete, ("n0",), "k0")):
            with pytest.raises(DatabaseError, match=f"permission denied for .*{ADVICE}"):
                write()
        store.close()
        assert database.contents() == before

    @pytest.mark.parametrize("made", [True, False], ids=["in a schema", "without one"])
    def test_one_that_may_not_make_tables(self, database: Database, made: bool) -> None:
        """Opening is refused with the advice, and nothing is there afterwards."""
        if made:
            database.run("CREATE SCHEMA memory", "GRANT USAGE ON SCHEMA memory TO {role}")
        with pytest.raises(DatabaseError, match=f"permission denied for .*{ADVICE}"):
            MemStore.open(database.role_url, schema="memory", index=INDEX)
        with psycopg.connect(database.url) as raw:
            assert raw.execute("SELECT relname FROM pg_class WHERE relname LIKE 'memstore%'").fetchall() == []
            assert bool(raw.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'memory'").fetchall()) == made

    def test_one_that_parameters_name(self, database: Database) -> None:
        """Who comes as `kwargs` say comes so for the index too."""
        database.run("CREATE EXTENSION vector", "CREATE SCHEMA memory AUTHORIZATION {role}")
        pool = {"kwargs": {"user": database.role, "password": database.role}}
        url = to_url(database.url, user="nobody_of_that_name")
        with MemStore.open(url, schema="memory", index=WIDELY, pool=pool) as store:
            fill(store)
            build(store)
            assert store.stats().index_bytes > 0


class TestNames:
    """Schemas of any name, and search paths."""

    @pytest.mark.parametrize(
        "schema",
        ['quo"ted', "do.tted", "spa ced", "UPPER", "50%", "%s %(name)s", "名前 é", "pay$1", "@items", "{type}", "it's"],
    )
    def test_a_schema_may_have_any_name(self, named: str, schema: str) -> None:
        """Every kind of statement names it rightly, and nothing is made elsewhere."""
        with psycopg.connect(named, autocommit=True) as raw:
            count: Any = "SELECT relnamespace::regnamespace::text, count(*) FROM pg_class GROUP BY 1"
            before: dict[str, int] = dict(raw.execute(count).fetchall())
            with MemStore.open(named, schema=schema, index=WIDELY) as store:
                assert use(store, "sync") == [("k", 1.0)]
                assert use_awaited(store, "async") == [("k3", 1.0)]
                fill(store)
                build(store)
                assert found(store)[0][1] == "k7"
                assert store.stats().index_bytes > 0
                assert store.check(repair=True).problems == ()
            after: dict[str, int] = dict(raw.execute(count).fetchall())
            assert {name.strip('"').replace('""', '"') for name in after if after[name] != before.get(name)} == {
                schema,
                "pg_toast",
            }

    @pytest.mark.parametrize(("one", "other"), [("a", "A"), ("a.b", 'a"."b'), ("x" * 63, "x" * 62), ("é", "e\u0301")])
    def test_two_schemas_are_two_stores(self, named: str, one: str, other: str) -> None:
        """However alike their names are: each has its own items."""
        with (
            MemStore.open(named, schema=one, index=INDEX) as first,
            MemStore.open(named, schema=other, index=INDEX) as second,
        ):
            first.put(("a",), "k", {"text": "first"})
            assert second.search(()) == []
            second.put(("a",), "k", {"text": "second"})
            assert [hit.value for hit in first.search((), query="first")] == [{"text": "first"}]
            assert [hit.value for hit in second.search((), query="first")] == [{"text": "second"}]

    @pytest.mark.parametrize("schema", ["x" * 64, "é" * 32])
    def test_a_name_that_the_server_would_cut_is_refused(self, named: str, schema: str) -> None:
        """It ends names at 63 bytes: two stores would be one."""
        with pytest.raises(InvalidConfig, match="schema"):
            MemStore.open(named, schema=schema, index=INDEX).close()

    @pytest.mark.parametrize("path", ["''", "nowhere", "decoy", "decoy, public", '"$user", decoy, pg_temp'])
    def test_search_paths_do_not_matter(self, database: Database, path: str) -> None:
        """Nor what stands on them by the names of memstore's tables and of pgvector's types and operators."""
        tables = ("state", "index", "namespaces", "items", "texts", "vectors", "migrations", "commits")
        pair = "LEFTARG = public.vector, RIGHTARG = public.vector"
        self._lay_decoys(
            database,
            path,
            *(f"CREATE TABLE decoy.memstore_{name} (id text, path text, settings text)" for name in tables),
            "CREATE SEQUENCE decoy.memstore_clock MAXVALUE 2",
            "CREATE DOMAIN decoy.vector AS text",
            "CREATE DOMAIN decoy.halfvec AS text",
            "CREATE FUNCTION decoy.vector_dims(public.vector) RETURNS int LANGUAGE sql AS 'SELECT 9'",
            "CREATE FUNCTION decoy.far(public.vector, public.vector) RETURNS float8 LANGUAGE sql AS 'SELECT 9.0'",
            *(f"CREATE OPERATOR decoy.{sign} ({pair}, FUNCTION = decoy.far)" for sign in ("<#>", "<=>", "<->")),
        )
        self._use_all(database)
        with psycopg.connect(database.url) as raw:
            assert raw.execute("SELECT count(*) FROM decoy.memstore_items").fetchone() == (0,)

    def test_functions_named_like_built_in_ones_do_not_matter(self, database: Database) -> None:
        """Though they take the very type, where a built-in one takes any."""
        kinds = "int8[]", "int4[]", "text[]", "bytea[]"
        self._lay_decoys(
            database,
            "decoy",
            *(
                f"CREATE FUNCTION decoy.{name}({kind}) RETURNS int LANGUAGE sql AS 'SELECT 1 / 0'"
                for name in ("unnest", "cardinality")
                for kind in kinds
            ),
        )
        self._use_all(database)

    @staticmethod
    def _lay_decoys(database: Database, path: str, *statements: str) -> None:
        database.run(
            "CREATE EXTENSION vector SCHEMA public",
            "CREATE SCHEMA decoy",
            "GRANT ALL ON SCHEMA decoy TO {role}",
            "CREATE SCHEMA memory AUTHORIZATION {role}",
            *statements,
            f"ALTER ROLE {{role}} SET search_path = {path}",
        )

    @staticmethod
    def _use_all(database: Database) -> None:
        with MemStore.open(database.role_url, schema="memory", index=WIDELY) as store:
            fill(store)
            exact = found(store, mode="semantic")
            build(store)
            assert found(store, mode="semantic") == exact
            assert exact[0][1] == "k7"
            assert use(store, "sync") == [("k", 1.0)]
            assert use_awaited(store, "async") == [("k3", 1.0)]
            assert store.check(repair=True).problems == ()


_begin: list[Any] = []
"""In a process of `TestProcesses`: what all of them wait at."""


def work_in_process(place: tuple[str, str], number: int) -> list[Any]:
    """Open a store when all processes do, and use it."""
    _begin[0].wait(60)
    with MemStore.open(place[0], schema=place[1], index=INDEX) as store:
        return use(store, f"process {number}")


def begin_at(barrier: Any) -> None:
    """Tell a process what it is to wait at."""
    _begin.append(barrier)


class TestProcesses:
    """Processes that meet an empty database."""

    def test_eight_set_it_up_at_once(self, url: str, schema: str, raw: psycopg.Connection[Any]) -> None:
        """One makes the tables, all work, and one clock has counted their writes."""
        spawn = multiprocessing.get_context("spawn")
        begin = spawn.Barrier(PROCESSES)
        with ProcessPoolExecutor(PROCESSES, spawn, begin_at, (begin,)) as processes:
            results = list(processes.map(partial(work_in_process, (url, schema)), range(PROCESSES)))
        assert results == [[("k", 1.0)]] * PROCESSES
        with MemStore.open(url, schema=schema, index=INDEX) as store:
            assert len(store.search(("use",), limit=100)) == PROCESSES
            assert len(store.search(("use",), query="text of process", limit=100)) == PROCESSES
            assert store.check().problems == ()
            numbers = [number for (number,) in raw.execute("SELECT number FROM memstore_commits ORDER BY 1")]
            assert numbers == list(range(1, store.stats().clock + 1))
            assert len(numbers) == 3 * PROCESSES
        assert raw.execute("SELECT count(*) FROM memstore_migrations").fetchone() == (1,)

    def test_another_sets_it_up_while_it_is_opened(
        self, url: str, schema: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between the look at the tables and the look at the settings: vectors are found before anything is put."""
        look = PostgresBackend.open

        def look_and_wait(backend: PostgresBackend) -> None:
            look(backend)
            if not waited:
                waited.append(backend)
                with MemStore.open(url, schema=schema, index=INDEX) as other:
                    assert use(other, "other") == [("k", 1.0)]

        waited: list[PostgresBackend] = []
        monkeypatch.setattr(PostgresBackend, "open", look_and_wait)
        with MemStore.open(url, schema=schema, index=INDEX) as store:
            assert [hit.score for hit in store.search(("use",), query="text of other")] == [1.0]
