"""`check` on Postgres: clean on sound stores, every kind of damage named and put right; and what a row must hold.

Damage is done past the store, in SQL. Sizes are of random text, which nothing compresses, so that what a page of an
index holds is never the limit.
"""

from __future__ import annotations

import asyncio
import random
import unicodedata
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import psycopg
import pytest
from langgraph.store.base import GetOp, PutOp
from psycopg.errors import QueryCanceled

from memstore import Findings
from memstore.dialects.postgres_text import quote
from memstore.errors import InvalidKey, InvalidValue
from tests.conformance.checking import INDEX, USER, CheckConformance, fill
from tests.conformance.json_values import is_same
from tests.postgres.losses import contents
from tests.postgres.test_wide import build
from tests.support import OpenStore, Place, SyncCaller, keys

WIDE: Final[dict[str, Any]] = {**INDEX, "exact_below": 0}


@pytest.fixture
def store(open_store: OpenStore) -> SyncCaller:
    """Open a store with items of every kind."""
    store = open_store(index=INDEX)
    fill(store)
    return store


@pytest.fixture
def rows(raw: psycopg.Connection[Any]) -> Callable[[], Any]:
    """Read every row past the store."""
    return partial(contents, raw)


class TestCheck(CheckConformance):
    """Sound stores."""


Damage = Callable[[psycopg.Connection[Any]], Any]
TEA: Final = "(SELECT id FROM memstore_items WHERE key = 'tea')"


def damage(*statements: Any) -> Damage:
    """Name the damage that statements do; `@tea` is the id of the item of that key."""
    return lambda raw: [raw.execute(sql.replace("@tea", TEA)) for sql in statements]


ONE_ITEM: Final = "1 items are not indexed by the texts of their values"
MISCOUNT: Final = "1 namespaces miscount their texts"
OVERRUN: Final = "1 ids lie beyond the last one given"
DO: Final[dict[str, Damage]] = {
    "a text goes": damage(
        "DELETE FROM memstore_texts WHERE item_id = @tea AND place = 0",
        "DELETE FROM memstore_vectors WHERE item_id = @tea AND place = 0",
    ),
    "a text goes without its vector": damage("DELETE FROM memstore_texts WHERE item_id = @tea AND place = 2"),
    "all texts go": damage("DELETE FROM memstore_texts", "DELETE FROM memstore_vectors"),
    "a text comes": damage(
        "INSERT INTO memstore_texts SELECT namespace_id, item_id, 3, 'x', 'x', '{}' FROM memstore_texts WHERE place = 2"
    ),
    "an unindexed item gets a text": damage(
        "INSERT INTO memstore_texts SELECT namespace_id, id, 0, 'x', 'x', '{}' FROM memstore_items WHERE key = 'plain'"
    ),
    "another digest": damage("UPDATE memstore_texts SET digest = 'x' WHERE item_id = @tea"),
    "a short vector": damage("UPDATE memstore_vectors SET embedding = '[1,2]' WHERE item_id = @tea AND place = 1"),
    "a short and a long vector": damage(
        "UPDATE memstore_vectors SET embedding = '[1,2,3,4,5,6,7]' WHERE item_id = @tea AND place = 0",
        "UPDATE memstore_vectors SET embedding = '[1,2,3,4,5,6,7,8,9]' WHERE item_id = @tea AND place = 1",
    ),
    "a vector goes": damage("DELETE FROM memstore_vectors WHERE item_id = @tea AND place = 1"),
    "all vectors of an item go": damage("DELETE FROM memstore_vectors WHERE item_id = @tea"),
    "an unindexed item gets a vector": damage(
        "INSERT INTO memstore_vectors SELECT v.namespace_id, i.id, 0, v.embedding FROM memstore_vectors v, "
        "memstore_items i WHERE v.item_id = @tea AND v.place = 0 AND i.key = 'plain'"
    ),
    "no terms": damage("UPDATE memstore_texts SET terms = NULL WHERE item_id = @tea AND place = 1"),
    "other terms": damage("UPDATE memstore_texts SET terms = '{7}' WHERE item_id = @tea"),
    "another value": damage("""UPDATE memstore_items SET value = '{"text":"black tea"}' WHERE key = 'tea'"""),
    "another choice of fields": damage("UPDATE memstore_items SET fields = '[]' WHERE key = 'tea'"),
    "texts move to another namespace": damage("UPDATE memstore_texts SET namespace_id = 999 WHERE item_id = @tea"),
    "an item goes": damage("DELETE FROM memstore_items WHERE key = 'tea'"),
    "an item and its texts go": damage(
        "DELETE FROM memstore_texts WHERE item_id = @tea", "DELETE FROM memstore_items WHERE key = 'tea'"
    ),
    "a namespace and its items go": damage(
        "DELETE FROM memstore_items WHERE key = 'cat'", "DELETE FROM memstore_namespaces WHERE path LIKE '%bob%'"
    ),
    "a miscount": damage("UPDATE memstore_namespaces SET texts = texts + 5 WHERE id = 1"),
    "a count below zero": damage("UPDATE memstore_namespaces SET texts = -3 WHERE id = 1"),
    "an id beyond the last": damage("UPDATE memstore_items SET id = 1::int8 << 60 WHERE key = 'empty'"),
    "the clock is set back": damage("SELECT setval('memstore_clock', 1)"),
    "the clock begins anew": damage("ALTER SEQUENCE memstore_clock RESTART"),
}
_VECTORS: Final = ("a short vector", "a vector goes", "all vectors of an item go")
_OTHERS: Final = ("another digest", "another value", "another choice of fields", "no terms", "other terms")
NAMED: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys((*_VECTORS, *_OTHERS), (ONE_ITEM,)),
    **dict.fromkeys(("a text goes", "an unindexed item gets a text"), (MISCOUNT, ONE_ITEM)),
    **dict.fromkeys(("a miscount", "a count below zero"), (MISCOUNT,)),
    **dict.fromkeys(("an id beyond the last", "the clock is set back", "the clock begins anew"), (OVERRUN,)),
}
"""All that is said of a damage, where that does not depend on what becomes of leftovers."""


def leftovers(raw: psycopg.Connection[Any]) -> list[Any]:
    """Give the texts and vectors that belong to no item, or to no text."""
    return raw.execute(
        "SELECT 'text', t.item_id FROM memstore_texts t LEFT JOIN memstore_items i "
        "ON i.id = t.item_id AND i.namespace_id = t.namespace_id WHERE i.id IS NULL UNION ALL "
        "SELECT 'vector', v.item_id FROM memstore_vectors v LEFT JOIN memstore_texts t "
        "USING (namespace_id, item_id, place) WHERE t.item_id IS NULL"
    ).fetchall()


class TestDamage:
    """What was done to the rows past the store."""

    @pytest.mark.parametrize("name", DO)
    def test_it_is_named_and_put_right(self, store: SyncCaller, raw: psycopg.Connection[Any], name: str) -> None:
        """Looking changes nothing; repaired, the store is sound, holds no leftovers, and goes on."""
        DO[name](raw)
        before = contents(raw)
        said = store.check()
        assert (said.ok, contents(raw)) == (False, before)
        assert sorted(said.problems) == sorted(NAMED.get(name, said.problems))
        assert store.check(repair=True).ok
        assert store.check() == Findings(())
        assert leftovers(raw) == []
        for item in store.search(()):
            again = store.get(item.namespace, item.key)
            assert again is not None
            assert again.value == item.value
        store.put(USER, "new", {"text": "something new"})
        assert keys(store.search(USER, query="something new", limit=1)) == ["new"]
        assert store.check().ok

    @pytest.mark.parametrize("mode", ["hybrid", "semantic", "lexical"])
    @pytest.mark.parametrize("exact_below", [20_000, 0], ids=["narrow", "wide"])
    def test_a_repaired_store_answers_as_before(
        self, open_store: OpenStore, raw: psycopg.Connection[Any], exact_below: int, mode: str
    ) -> None:
        """Scores and order come back, though what is repaired was in memory; what is sound is left as it is."""
        names = ["a text goes", "all texts go", "a vector goes", "no terms", "other terms", "a miscount"]
        store = open_store(index=INDEX | {"exact_below": exact_below})
        fill(store)
        query: dict[str, Any] = {"query": "green tea for two dogs", "limit": 10, "mode": mode}
        before = [(item.key, item.score) for item in store.search(USER, **query)]
        assert before
        sound = "SELECT i::text FROM memstore_items i WHERE key IN ('plain', 'empty') ORDER BY 1"
        rows, listed = raw.execute(sound).fetchall(), store.list_namespaces()
        for name in names:
            DO[name](raw)
            assert store.check(repair=True).ok
            assert [(item.key, item.score) for item in store.search(USER, **query)] == before, name
        assert (raw.execute(sound).fetchall(), store.list_namespaces()) == (rows, listed)

    def test_every_stretch_of_items_is_compared(self, open_store: OpenStore, raw: psycopg.Connection[Any]) -> None:
        """A thousand at a time; their faults are counted together."""
        store = open_store(index=INDEX)
        store.batch([PutOp(USER, f"k{number}", {"text": f"text {number}"}) for number in range(2_100)])
        raw.execute("UPDATE memstore_items SET fields = '[]' WHERE key ~ '^k[0-9]*99$'")
        assert store.check(repair=True).problems == ("21 items are not indexed by the texts of their values",)
        assert store.check() == Findings(())
        assert store.stats().texts == 2_100 - 21

    @pytest.mark.parametrize(
        ("harm", "problem"),
        [
            ("UPDATE memstore_items SET namespace_id = 77 WHERE key = 'empty'", "1 items belong to no namespace"),
            ("UPDATE memstore_items SET value = '[1]' WHERE key = 'plain'", "1 values are no JSON objects"),
        ],
        ids=["no namespace", "no object"],
    )
    def test_what_cannot_be_repaired_stays_named(
        self, store: SyncCaller, raw: psycopg.Connection[Any], harm: str, problem: str
    ) -> None:
        """Data is never deleted to make a check succeed; what can be repaired beside it is."""
        damage(harm)(raw)
        before = contents(raw)
        for repair in (False, True, False):
            found = store.check(repair=repair)
            assert (found.problems, found.ok) == ((problem,), False)
        assert contents(raw) == before
        DO["a short vector"](raw)
        assert not store.check(repair=True).ok
        assert store.check().problems == (problem,)


@pytest.mark.parametrize("name", ["memstore_texts_terms", "memstore_vectors_ann"])
def test_an_index_left_half_made_is_made_anew(
    open_store: OpenStore, raw: psycopg.Connection[Any], url: str, schema: str, name: str
) -> None:
    """It answers nothing while it is invalid: searches are right all the time, and the next build replaces it."""
    store = open_store(index=WIDE)
    fill(store)
    method: Any = "USING gin (terms)" if "terms" in name else "USING hnsw ((embedding::halfvec(8)) halfvec_ip_ops)"
    table: Any = name.rpartition("_")[0]
    state = "SELECT indisvalid FROM pg_index WHERE indexrelid = %s::regclass"

    def use(store: SyncCaller, key: str) -> None:
        store.put(USER, key, {"text": "black coffee"})
        assert keys(store.search(USER, query="black coffee"))[0] == key
        assert store.list_namespaces() == [USER, ("users", "bob")]
        found = store.check()
        assert found.problems == ()
        assert found.recall is None or found.recall.recall == 1.0  # None where it is not there

    with psycopg.connect(url) as other:  # whoever makes an index waits for those that may write
        other.execute(f"LOCK TABLE {quote(schema)}.{table} IN ROW EXCLUSIVE MODE")
        raw.execute("SET statement_timeout = '200ms'")
        with pytest.raises(QueryCanceled):
            raw.execute(f"CREATE INDEX CONCURRENTLY {name} ON {table} {method}")
        assert raw.execute(state, [name]).fetchall() == [(False,)]
        use(store, "before")
        store.close()
    raw.execute("SET statement_timeout = 0")
    again = open_store(index=WIDE)
    build(again.store)
    assert raw.execute(state, [name]).fetchall() == [(True,)]
    use(again, "after")


def garble(seed: int, length: int, without: str = "\0") -> str:
    """Make random text of any script, controls and astral planes included."""
    chance = random.Random(seed)  # noqa: S311  no secret
    text = ""
    while len(text) < length:
        codes = (chance.randrange(1, 0x110000) for _ in range(length - len(text)))
        text += "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000 and chr(code) not in without)
    return text


def found(store: SyncCaller, namespace: tuple[str, ...], key: str) -> Any:
    """Give a value that `get` and `search` agree on."""
    item = store.get(namespace, key)
    (hit,) = [hit for hit in store.search(namespace, limit=100) if hit.key == key]
    assert item is not None
    assert is_same(item.value, hit.value)
    return item.value


class TestSizes:
    """What is long, large or many, of random text."""

    def test_keys_and_namespaces_of_any_length(self, store: SyncCaller) -> None:
        """Those that differ at their very end alone, 16 kB on, are found, listed and deleted apart."""
        first, *others = [tuple(garble(seed, 1_024, "\0.") for seed in range(at, at + 4)) for at in (0, 4)]
        near = [(*first[:3], first[3] + end) for end in ("", "a", "b", "é")]
        names = [*near, *others]
        texts = [garble(seed, 4_096) for seed in (100, 101)]
        places = [(name, key) for name in names for key in (*texts, texts[0] + "a", texts[0] + "A", texts[0] + " ")]
        values = {place: {"text": f"thing t{number}"} for number, place in enumerate(places)}
        store.batch([PutOp(*place, value) for place, value in values.items()])
        assert store.list_namespaces(prefix=first[:3]) == sorted(near)
        assert store.list_namespaces(suffix=others[0][2:]) == others
        assert store.list_namespaces() == sorted([*names, USER, ("users", "bob")])
        for (name, key), value in values.items():
            assert found(store, name, key) == value
            assert keys(store.search(name, query=value["text"], limit=1)) == [key]
        store.batch([PutOp(*place, None) for place in places if place[0] != near[1]])
        assert store.list_namespaces() == sorted([near[1], USER, ("users", "bob")])
        assert store.check() == Findings(())

    async def test_texts_and_values_of_megabytes(self, location: Place) -> None:
        """Found by their beginning, filtered by what they hold, replaced and deleted, awaited or not."""
        text = "elephants " + garble(1, 1_000_000)
        nested: Any = garble(2, 1_500_000)
        for number in range(50):
            nested = {f"level {number}": [number, nested]}
        value = {"text": text, "nested": nested, garble(3, 4_096): "end"}
        assert min(len(text.encode()), len(str(nested).encode())) > 3_000_000
        filters = [{"filter": {"text": text}}, {"filter": {"nested": nested}}]
        asked: list[dict[str, Any]] = [{"query": "elephants"}, *filters]
        async with location.name(index=INDEX) as store:
            for number in (1, 2):
                await store.aput(("large",), "k", {**value, "n": number})
                for item in (await store.aget(("large",), "k"), await asyncio.to_thread(store.get, ("large",), "k")):
                    assert item is not None
                    assert is_same(item.value, {**value, "n": number})
            for options in asked:
                assert keys(await store.asearch(("large",), **options)) == ["k"]
                assert keys(await asyncio.to_thread(store.search, ("large",), **options)) == ["k"]
            assert await store.acheck() == Findings(())
            await store.adelete(("large",), "k")
            assert await store.asearch(("large",), query="elephants") == []

    @pytest.mark.parametrize("index", [None, False], ids=["indexed", "plain"])
    def test_twenty_thousand_items_in_a_batch(self, open_store: OpenStore, index: Any) -> None:
        """All come back, are found, listed, counted and deleted."""
        store = open_store(index={"embed": lambda texts: [[len(text), 1.0] for text in texts], "fields": ["t"]})
        count = 20_000
        names = [("many", f"n{number % 300}") for number in range(count)]
        values = [{"t": f"w{number} said", "n": number} for number in range(count)]
        store.batch([PutOp(name, f"k{n}", values[n], index) for n, name in enumerate(names)])
        items = store.batch([GetOp(name, f"k{n}") for n, name in enumerate(names)])
        assert [item.value for item in items] == values
        assert [item.value for item in store.search(("many",), limit=count)] == values[::-1]
        best = keys(store.search((), query="w17 w19999", limit=2, filter={"n": {"$gt": 5}}))
        assert best == ([] if index is False else ["k19999", "k17"])
        assert store.list_namespaces(limit=1_000) == sorted(set(names))
        assert store.stats().texts == (0 if index is False else count)
        store.batch([PutOp(name, f"k{n}", None) for n, name in enumerate(names)])
        assert (store.search(()), store.list_namespaces(), store.stats().texts) == ([], [], 0)


class TestJson:
    """Values are kept as text, and read by the database where a filter looks into them."""

    def test_numbers_are_exact(self, store: SyncCaller) -> None:
        """To the bit and to the last digit, and filters tell neighbours apart."""
        numbers: list[Any] = [1e308, -1e308, -0.0, 0.1, 1e22, 5e-324, 1e-7, 10**29 + 1, -(10**30), 2**63, 1.0, True]
        for number in numbers:
            store.put(("n",), repr(number), {"n": number, "l": [[number]]})
            assert is_same(found(store, ("n",), repr(number)), {"n": number, "l": [[number]]})
        for number in numbers:
            assert keys(store.search(("n",), filter={"n": number})) == [repr(number)]
        for other in (10**29, 10**29 + 2, 2**63 - 1, 0.1000000000000001, False):
            assert store.search(("n",), filter={"n": other}) == []
        least = sorted(keys(store.search(("n",), filter={"n": {"$gte": 10**29 + 1}})))
        assert least == sorted([repr(1e308), repr(10**29 + 1)])

    def test_texts_are_exact(self, store: SyncCaller) -> None:
        """Composed and decomposed, upper and lower, spelled escapes: each is its own key, label and operand."""
        texts = ["\u00e9", "e\u0301", "E\u0301", "\u212b", "\u00c5", "A\u030a", "ﬁ", "fi", "\\u0000", "\\ud800", '"\\']
        assert len({unicodedata.normalize("NFKC", text) for text in texts}) < len(texts)
        for text in texts:
            value = {text: text, "k": text, **dict.fromkeys(reversed(texts), 1)}
            store.put(("t", text), text, value)
            assert is_same(found(store, ("t", text), text), value)
        for text in texts:
            assert keys(store.search(("t",), filter={"k": text})) == [text]
            assert store.list_namespaces(prefix=("t", text)) == [("t", text)]
        assert store.list_namespaces(prefix=("t",)) == [("t", text) for text in sorted(texts)]

    @pytest.mark.parametrize("part", ["a\0b", "\ud800", "\ud83d\ude00"], ids=ascii)
    def test_what_no_text_holds_is_refused(self, store: SyncCaller, raw: psycopg.Connection[Any], part: str) -> None:
        """NUL and surrogates, in a value, a key of one, or an item's key; nothing of the batch is written."""
        before = contents(raw)
        for value in ({"k": part}, {part: 1}, {"l": [{"m": part}]}):
            with pytest.raises(InvalidValue):
                store.batch([PutOp(("a",), "fine", {}), PutOp(("a",), "k", value)])
        with pytest.raises(InvalidKey):
            store.put(("a",), part, {})
        assert contents(raw) == before

    def test_nesting_goes_so_deep(self, store: SyncCaller) -> None:
        """200 levels are kept, and compared whole by a filter; one more is refused."""
        value: Any = {"end": "bottom"}
        for number in range(199):
            value = {"o": value} if number % 2 else {"z": number, "o": value}
        store.put(("deep",), "k", value)
        assert is_same(found(store, ("deep",), "k"), value)
        assert keys(store.search(("deep",), filter={"o": value["o"]})) == ["k"]
        with pytest.raises(InvalidValue):
            store.put(("deep",), "k", {"o": value})
