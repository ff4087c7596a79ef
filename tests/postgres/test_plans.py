"""What calls ask of Postgres: how many statements, and how those find rows among many.

A call's statements are counted where they leave for the server, the beginning and the end of a transaction included.
Plans are asked for in the call's own transaction, with its own parameters, just before each statement runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import psycopg
import pytest
from langgraph.store.base import GetOp, ListNamespacesOp, Op, PutOp, SearchOp

from memstore import MemStore
from memstore.config import Mode
from memstore.dialects.postgres_text import quote
from memstore.dialects.postgres_wide import TERMS_INDEX, VECTORS_INDEX
from tests.postgres.server import fresh_schema
from tests.postgres.statements import Node, Statements, nodes
from tests.postgres.test_wide import build
from tests.sqlite.wide_stores import MODES, QuickEmbeddings
from tests.support import Clock, OpenStore, SyncCaller, open_postgres

INDEX: Final[dict[str, Any]] = {"embed": QuickEmbeddings(8), "fields": ["text"]}
ADA: Final = ("users", "ada")
ITEMS = 20_000
USERS = 200
ALONE = 4_000
"""Namespaces of one item, so that it is worth an index to find one among them."""
EXPIRED = 20
TABLES: Final = {f"memstore_{table}" for table in ("namespaces", "items", "texts", "vectors")}
Use: TypeAlias = Callable[[SyncCaller], object]


def whole_reads(plans: Iterable[Node]) -> list[Any]:
    """Say which nodes go through a whole table or a whole index of one."""
    read = [node for node in plans if node.get("Relation Name") in TABLES or "Bitmap Index" in node["Node Type"]]
    whole = [node for node in read if "Bitmap Heap" not in node["Node Type"] and "Index Cond" not in node]
    moved = ("ModifyTable", "LockRows", "Tid Scan")
    return [(node["Node Type"], node.get("Relation Name")) for node in whole if node["Node Type"] not in moved]


def sorts(plans: Iterable[Node]) -> list[Any]:
    """Give the nodes that sort all there is; an incremental sort goes on from the order of an index."""
    return [node.get("Sort Key") for node in plans if node["Node Type"] == "Sort"]


def indexes(plans: Iterable[Node]) -> set[str]:
    """Name the indexes that plans use."""
    return {node["Index Name"] for node in plans if "Index Name" in node}


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    """Note statements."""
    return Statements(monkeypatch)


def puts(root: str, count: int, *, apart: bool = False, again: str = "") -> list[PutOp]:
    """Make puts into one namespace, or each into its own."""
    places = [(root, str(n)) if apart else (root,) for n in range(count)]
    return [PutOp(place, f"k{n}", {"text": f"w{n}{again}", "n": n}) for n, place in enumerate(places)]


COSTS: dict[str, tuple[Use, int]] = {
    "get": (lambda store: store.get(ADA, "tea"), 1),
    "get of nothing": (lambda store: store.get(("nobody",), "tea"), 1),
    "put of a new item": (lambda store: store.put(ADA, "new", {"text": "new"}), 8),
    "put in a new namespace": (lambda store: store.put(("users", "eve"), "new", {"text": "new"}), 8),
    "put that replaces": (lambda store: store.put(ADA, "tea", {"text": "black tea"}), 9),
    "put that keeps the text": (lambda store: store.put(ADA, "tea", {"text": "green tea", "n": 1}), 10),
    "put without index": (lambda store: store.put(ADA, "new", {"text": "new"}, index=False), 7),
    "delete": (lambda store: store.delete(ADA, "tea"), 8),
    "delete of nothing": (lambda store: store.delete(ADA, "nothing"), 4),
    "list": (lambda store: store.list_namespaces(), 3),
    "list below a prefix": (lambda store: store.list_namespaces(prefix=("users",)), 3),
    "list to a depth": (lambda store: store.list_namespaces(max_depth=1), 3),
    "newest of a namespace": (lambda store: store.search(ADA), 4),
    "newest of everything": (lambda store: store.search(()), 3),
    "newest that pass a filter": (lambda store: store.search((), filter={"n": 1}), 3),
    "mixed batch": (
        lambda store: store.batch(
            [
                GetOp(ADA, "tea"),
                PutOp(ADA, "new", {"text": "new"}),
                SearchOp(("users", "bob"), query="cat"),
                ListNamespacesOp(),
                PutOp(ADA, "tea", None),
            ]
        ),
        16,
    ),
}


class TestCounts:
    """How many statements a call takes."""

    @pytest.fixture
    def store(self, open_store: OpenStore) -> SyncCaller:
        """Open a store that has been in use."""
        store = open_store(index=INDEX)
        store.put(ADA, "tea", {"text": "green tea"})
        store.put(ADA, "dog", {"text": "two dogs"}, ttl=10)
        store.put(("users", "bob"), "cat", {"text": "three cats", "n": 1})
        return store

    @pytest.mark.parametrize(("use", "count"), COSTS.values(), ids=COSTS.keys())
    def test_a_call_takes_so_many(self, store: SyncCaller, statements: Statements, use: Use, count: int) -> None:
        """A point read is one; a write looks, locks, counts, writes and commits; sync and async do the same."""
        assert statements.count(lambda: use(store)) == count

    @pytest.mark.parametrize("mode", MODES)
    def test_a_search_warms_up(self, store: SyncCaller, statements: Statements, mode: Mode) -> None:
        """The texts of a namespace are read once, then only what is newer; a filter's verdicts are kept with them."""

        def search(**options: Any) -> int:
            return statements.count(lambda: store.search(ADA, query="tea", mode=mode, **options))

        assert [search(), search()] == [5, 4]
        store.put(ADA, "more", {"text": "more tea"})
        assert [search(), search()] == [5, 4]
        assert [search(filter={"n": 1}), search(filter={"n": 1})] == [4, 3]

    def test_a_refresh_is_one_update_for_all(self, store: SyncCaller, statements: Statements, clock: Clock) -> None:
        """What a read returned is refreshed after it, in one transaction, and not again at once."""
        store.batch([PutOp(("t",), f"k{n}", {"n": n}, ttl=10) for n in range(60)])
        for use, plain in (
            (partial(store.batch, [GetOp(("t",), f"k{n}") for n in range(60)]), 1),
            (partial(store.search, ("t",), limit=60), 4),
        ):
            clock.pass_minutes(1)
            assert [statements.count(use), statements.count(use)] == [plain + 3, plain]

    def test_a_sweep_takes_the_same_whatever_it_finds(
        self, store: SyncCaller, statements: Statements, clock: Clock
    ) -> None:
        """Up to a thousand items in one transaction, from however many namespaces."""
        counts = []
        for size in (5, 300):
            store.batch([PutOp(("t", str(n)), "k", {"text": "x"}, ttl=1) for n in range(size)])
            clock.pass_minutes(2)
            counts.append(statements.count(store.sweep))
        assert counts == [9, 9]
        assert statements.count(store.sweep) == 3

    @pytest.mark.parametrize("apart", [False, True], ids=["one namespace", "each its own"])
    def test_a_batch_takes_the_same_whatever_its_size(
        self, store: SyncCaller, statements: Statements, *, apart: bool
    ) -> None:
        """Fifty or five hundred puts, replacements, reads and deletes, in one namespace or as many as items."""
        for root, size in (("few", 50), ("many", 500)):
            first, again = puts(root, size, apart=apart), puts(root, size, apart=apart, again=" more")
            gets = [GetOp(op.namespace, op.key) for op in first]
            deletes = [PutOp(op.namespace, op.key, None) for op in first]
            batches: list[Sequence[Op]] = [first, again, gets, gets[:200], deletes]
            counts = [statements.count(partial(store.batch, batch)) for batch in batches]
            assert counts == [8, 9, 1, 1, 8]

    def test_items_are_written_a_thousand_at_a_time(self, store: SyncCaller, statements: Statements) -> None:
        """The only statement that comes again in a large batch."""
        assert statements.count(lambda: store.batch(puts("large", 3_001))) == 8 + 3

    def test_a_page_takes_the_same_whatever_its_length(self, store: SyncCaller, statements: Statements) -> None:
        """Rows are read by one statement, and so are the texts of any number of namespaces."""
        store.batch([*puts("few", 70, apart=True), *puts("many", 700, apart=True)])
        queries: list[tuple[Any, int]] = [(None, 4), ("w1 w2", 7), ("w1 w2", 6)]
        for query, count in queries:
            for root in ("few", "many"):
                assert statements.count(partial(store.search, (root,), limit=1_000, query=query)) == count
        assert len(store.search(("many",), limit=1_000, query="w1 w2")) == 700

    def test_namespaces_are_read_in_growing_blocks(self, store: SyncCaller, statements: Statements) -> None:
        """A listing by a suffix reads on until the page is full, twice as many each time; one to a depth skips most."""
        store.batch(puts("many", 1_000, apart=True))
        assert statements.count(lambda: store.list_namespaces(suffix=("no such",))) == 5
        assert statements.count(lambda: store.list_namespaces(max_depth=1)) == 4
        assert statements.count(lambda: store.list_namespaces(prefix=("many",), limit=1_000)) == 3


def fill(url: str, schema: str, items: int = ITEMS, alone: int = ALONE) -> None:
    """Fill a schema: users of a hundred items each, namespaces of one, and what has expired."""
    store = open_postgres(url, schema, Clock(), INDEX, None)
    users = items // 100
    ops = [
        PutOp(("users", f"u{n % users}"), f"k{n}", {"text": f"w{n % 997} w{n % 89} said", "n": n % 10})
        for n in range(items)
    ]
    ops += [PutOp(("alone", f"a{n}"), "k", {"text": f"w{n % 997} once"}) for n in range(alone)]
    ops += [PutOp(("users", f"u{n}"), f"e{n}", {"text": "gone"}, ttl=1) for n in range(EXPIRED)]
    for start in range(0, len(ops), 4_000):
        store.batch(ops[start : start + 4_000])
    store.close()


@pytest.fixture(scope="module")
def filled(url: str) -> Iterator[str]:
    """Fill a schema that the server then makes statistics of."""
    with fresh_schema(url) as schema:
        fill(url, schema)
        with psycopg.connect(url, autocommit=True) as connection:
            for table in sorted(TABLES):
                connection.execute(f"VACUUM ANALYZE {quote(schema)}.{table}")
        yield schema


@pytest.fixture(scope="module")
def unknown(url: str) -> Iterator[str]:
    """Fill a schema that the server makes no statistics of."""
    with fresh_schema(url) as schema:
        open_postgres(url, schema, Clock(), INDEX, None).close()
        with psycopg.connect(url, autocommit=True) as connection:
            for table in sorted(TABLES):
                connection.execute(f"ALTER TABLE {quote(schema)}.{table} SET (autovacuum_enabled = false)")
        fill(url, schema, 5_000, 1_000)
        yield schema


@pytest.fixture
def full(url: str, filled: str) -> Iterator[MemStore]:
    """Open a store that knows nothing of the schema yet."""
    store = open_postgres(url, filled, Clock(), INDEX, None)
    yield store
    store.close()


USER = ("users", "u7")
ASKED: dict[str, Any] = {"query": "w5 w7", "limit": 10}
USES: dict[str, Use] = {
    "get": lambda store: store.get(USER, "k7"),
    "put": lambda store: store.put(USER, "new", {"text": "w1 new"}),
    "put that replaces": lambda store: store.put(USER, "k207", {"text": "w1 other"}),
    "put that keeps the text": lambda store: store.put(USER, "k407", {"text": "w407 w51 said", "n": 11}),
    "delete": lambda store: store.delete(USER, "k607"),
    "search": lambda store: store.search(USER, **ASKED),
    "search by meaning": lambda store: store.search(USER, mode="semantic", **ASKED),
    "search by words": lambda store: store.search(USER, mode="lexical", **ASKED),
    "search with a filter": lambda store: store.search(USER, filter={"n": 7}, **ASKED),
    "newest": lambda store: store.search(USER),
    "newest with a filter": lambda store: store.search(USER, filter={"n": {"$gte": 3}}),
    "list below a user": lambda store: store.list_namespaces(prefix=USER),
    "list to a depth": lambda store: store.list_namespaces(prefix=USER, max_depth=2),
    "page of a list": lambda store: store.list_namespaces(prefix=("alone",), limit=10),
}
BATCHES: dict[str, Use] = {
    "gets": lambda store: store.batch([GetOp(("users", f"u{n % USERS}"), f"k{n}") for n in range(200)]),
    "puts": lambda store: store.batch(puts("users", 100, apart=True)),
    "deletes": lambda store: store.batch([PutOp(("users", f"u{n}"), f"k{n}", None) for n in range(20, 120)]),
}


class TestPlans:
    """What the server does for a statement, among twenty thousand items."""

    @pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
    def test_one_user_s_calls_read_no_table_wholly(self, full: MemStore, statements: Statements, use: Use) -> None:
        """The first time and again, every table is reached through a condition on an index."""
        store = SyncCaller(full)
        for _ in range(2):
            plans = statements.explain(lambda: use(store))
            assert whole_reads(plans) == []
            assert indexes(plans) or use is USES["search with a filter"]

    @pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
    def test_nor_do_they_before_the_server_knows_the_tables(
        self, url: str, unknown: str, statements: Statements, use: Use
    ) -> None:
        """A store that was just filled has no statistics yet."""
        store = SyncCaller(open_postgres(url, unknown, Clock(), INDEX, None))
        plans = [statements.explain(lambda: use(store)) for _ in range(2)]
        store.close()
        assert [whole_reads(plan) for plan in plans] == [[], []]

    @pytest.mark.parametrize("use", BATCHES.values(), ids=BATCHES.keys())
    def test_batches_of_many_users_read_only_names_wholly(
        self, full: MemStore, statements: Statements, use: Use
    ) -> None:
        """Where a good part of the namespaces is wanted, the server may go through them; never through the items."""
        plans = statements.explain(lambda: use(SyncCaller(full)))
        assert {table for _, table in whole_reads(plans)} <= {"memstore_namespaces"}

    @pytest.mark.parametrize("name", ["get", "put", "put that replaces", "gets", "puts"])
    def test_a_place_is_looked_up_by_its_whole_key(self, full: MemStore, statements: Statements, name: str) -> None:
        """A call that names an item reads that one, however many its namespace holds."""
        plans = statements.explain(lambda: (USES | BATCHES)[name](SyncCaller(full)))
        items = [node for node in plans if node.get("Relation Name") == "memstore_items"]
        conditions = [node["Index Cond"] for node in items if "namespace_id" in node.get("Index Cond", "")]
        assert conditions
        assert [condition for condition in conditions if "key_digest" not in condition] == []

    def test_the_newest_come_in_the_order_of_an_index(self, full: MemStore, statements: Statements) -> None:
        """Not all items are sorted for a page of ten, wherever it lies, nor are all namespaces read for their names."""
        for offset in (0, 100):
            plans = statements.explain(partial(full.search, (), limit=10, offset=offset))
            assert "memstore_items_newest" in indexes(plans)
            assert sorts(plans) == []
            assert whole_reads(plans) == [("Index Scan", "memstore_items")]

    def test_namespaces_come_in_the_order_of_an_index(self, full: MemStore, statements: Statements) -> None:
        """Not all are sorted for the first ten, and one item of each is looked for."""
        plans = statements.explain(lambda: full.list_namespaces(limit=10))
        assert "memstore_namespaces_path" in indexes(plans)
        assert sorts(plans) == []
        assert whole_reads(plans) == [("Index Scan", "memstore_namespaces")]

    def test_a_sweep_reads_only_what_has_expired(self, url: str, filled: str, statements: Statements) -> None:
        """By the index of expiries, and the texts of what it finds."""
        clock = Clock()
        clock.pass_minutes(60)
        store = open_postgres(url, filled, clock, INDEX, None)
        swept: list[Any] = []
        plans = statements.explain(lambda: swept.append(store.sweep_ttl()))
        store.close()
        assert swept == [EXPIRED]
        assert "memstore_items_expiry" in indexes(plans)
        assert whole_reads(plans) == []

    def test_an_exact_search_is_not_taken_for_a_huge_one(self, url: str, filled: str, statements: Statements) -> None:
        """The server compiles a statement that it estimates at 100,000 or more, which takes longer than to run it."""
        store = open_postgres(url, filled, Clock(), INDEX | {"exact_below": 10**6}, None)
        plans = statements.explain(lambda: store.search(("alone",), **ASKED))
        store.close()
        whole = [node for node in plans if "Parent Relationship" not in node]
        assert max(node["Total Cost"] for node in whole) < 100_000

    @pytest.mark.parametrize("prefix", [(), ("users",)], ids=["everything", "most"])
    @pytest.mark.parametrize("mode", MODES)
    def test_wide_searches_use_the_indexes_made_for_them(
        self, url: str, filled: str, statements: Statements, mode: Mode, prefix: tuple[str, ...]
    ) -> None:
        """The nearest vectors by HNSW, the texts that hold a term by GIN; no table of texts is read wholly."""
        store = open_postgres(url, filled, Clock(), INDEX | {"exact_below": 1_000, "ef_search": 10}, None)
        build(store)
        found: list[Any] = []
        plans = statements.explain(lambda: found.extend(store.search(prefix, mode=mode, **(ASKED | {"limit": 5}))))
        store.close()
        wanted = {"semantic": {VECTORS_INDEX}, "lexical": {TERMS_INDEX}, "hybrid": {VECTORS_INDEX, TERMS_INDEX}}[mode]
        assert indexes(plans) & {VECTORS_INDEX, TERMS_INDEX} == wanted
        read = [node for node in whole_reads(plans) if node[1] != "memstore_namespaces"]
        assert set(read) <= {("Index Scan", "memstore_vectors")}  # in the order of the distances
        assert len(found) == 5

    @pytest.mark.parametrize("schema", ["filled", "unknown"])
    def test_plans_for_any_parameters_are_as_good(self, url: str, schema: str, request: pytest.FixtureRequest) -> None:
        """What the server prepares once and keeps, after some runs, for whatever parameters come."""
        filled: str = request.getfixturevalue(schema)
        with psycopg.connect(url, autocommit=True, prepare_threshold=1) as connection:
            with MemStore.open(connection, schema=filled, index=INDEX) as opened:
                store = SyncCaller(opened)
                for use in USES.values():
                    for _ in range(12):
                        use(store)
            kept = connection.execute(
                "SELECT name, cardinality(parameter_types) FROM pg_prepared_statements WHERE generic_plans > 0 "
                "AND statement LIKE '%memstore\\_items%'"
            ).fetchall()
            connection.execute("SET plan_cache_mode = force_generic_plan")
            for name, count in kept:
                asking: Any = f"EXPLAIN (FORMAT JSON) EXECUTE {quote(name)} ({', '.join(['NULL'] * count)})"
                ((plan,),) = connection.execute(asking).fetchall()
                assert whole_reads(nodes(plan[0]["Plan"])) == [], name
            assert len(kept) > 2
