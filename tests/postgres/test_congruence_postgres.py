"""Postgres beside SQLite: the same operations by chance, at the same times, give the same answers.

Keys, values, times, scores and order are compared, whatever the operation; what a backend counts of itself is too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from langgraph.store.base import GetOp, Item, ListNamespacesOp, MatchCondition, Op, PutOp, SearchItem, SearchOp

from memstore import MemStore
from memstore.backends.sqlite import SqliteBackend
from tests.conformance.filter_draws import draw_filter, draw_objects
from tests.conformance.json_values import is_same
from tests.support import AsyncCaller, Clock, SyncCaller, WordEmbeddings, open_postgres

SEEDS = range(5)
STEPS = 70
INDEX: dict[str, Any] = {"embed": WordEmbeddings(16), "fields": ["text", "tags[*]"]}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "sync": ("sync", {}),
    "async": ("async", {}),
    "sync, wide": ("sync", {"exact_below": 0}),
}
NAMESPACES = [("a",), ("a", "b"), ("a", "b", "c"), ("ab",), ("a", "é\x01"), ("%", "*"), ("日本", "\U0001f600")]
PREFIXES = [(), (), ("a",), ("a", "b"), ("ab",), ("%",), ("nowhere",)]
KEYS = ["k", "K", "k'", "1", "", "日", "%"]
WORDS = ["red", "green", "blue", "apple", "pear", "tea", "cup", "rain", "Oslo", "2024-05-08", "日本", "the"]
MODES = [None, "hybrid", "semantic", "lexical"]
NOISE = 2e-6
"""By how much a cosine that is rounded to six digits may differ between two ways of summing."""


class StillClock(Clock):
    """A clock that moves only where a test moves it: two stores that look at it see the same time."""

    def __call__(self) -> int:
        """Give the time."""
        return self.microseconds


@dataclass
class Pair:
    """Two stores to which everything is done alike."""

    postgres: SyncCaller
    sqlite: MemStore
    clock: StillClock

    def do(self, ops: list[Op]) -> list[Any]:
        """Run a batch on both, and compare what they answer."""
        self.clock.microseconds += 1
        ours, theirs = self.postgres.batch(ops), self.sqlite.batch(ops)
        for op, our, their in zip(ops, ours, theirs, strict=True):
            assert_same(our, their, op)
        return ours

    def ask(self, prefix: tuple[str, ...], **options: Any) -> None:
        """Search both, and compare what they find, by pages too."""
        self.clock.microseconds += 1
        ours = self.postgres.search(prefix, **options)
        assert_same(ours, self.sqlite.search(prefix, **options), options)

    def compare_counts(self) -> None:
        """Compare what both count, and look both over."""
        ours, theirs = self.postgres.stats(), self.sqlite.stats()
        for name in ("namespaces", "items", "expired", "texts", "model", "dims", "metric"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert self.postgres.check() == self.sqlite.check()


def facts(item: Item) -> tuple[Any, ...]:
    """Give what must be the same to the bit, but for the value."""
    return item.namespace, item.key, item.created_at, item.updated_at


def assert_same(ours: Any, theirs: Any, asked: Any) -> None:
    """Compare two answers to one question."""
    if isinstance(ours, Item) and isinstance(theirs, Item):
        assert facts(ours) == facts(theirs), asked
        assert is_same(ours.value, theirs.value), asked
    elif isinstance(ours, list) and ours and isinstance(ours[0], SearchItem):
        assert_same_hits(ours, theirs, asked)
    else:
        assert ours == theirs, asked


def assert_same_hits(ours: list[SearchItem], theirs: list[SearchItem], asked: Any) -> None:
    """Compare two rankings: equal but for neighbours that only the noise of a sum could part."""
    scores = [hit.score for hit in theirs]
    assert len(ours) == len(theirs), asked
    assert [hit.score for hit in ours] == (scores if None in scores else pytest.approx(scores, abs=NOISE)), asked
    if [hit.score for hit in ours] == scores:
        assert [facts(hit) for hit in ours] == [facts(hit) for hit in theirs], asked
    expected = {(hit.namespace, hit.key): hit for hit in theirs}
    for hit, score in zip(ours, scores, strict=True):
        other = expected.get((hit.namespace, hit.key))
        if other is None:  # a page may end between two that tie
            assert score == pytest.approx(scores[-1], abs=NOISE), asked
            continue
        assert_same(Item(**_fields(hit)), Item(**_fields(other)), asked)
        assert other.score == (score if score is None else pytest.approx(score, abs=NOISE)), asked


def _fields(hit: SearchItem) -> dict[str, Any]:
    names = ("namespace", "key", "value", "created_at", "updated_at")
    return {name: getattr(hit, name) for name in names}


@pytest.fixture(params=WAYS)
def pair(request: pytest.FixtureRequest, url: str, schema: str, runner: asyncio.Runner) -> Iterator[Pair]:
    """Open a store on Postgres, in one of the ways to use it, and one in memory that ranks exactly."""
    how, options = WAYS[request.param]
    clock = StillClock()
    ttl = {"refresh_on_read": True}
    store = open_postgres(url, schema, clock, INDEX | options, ttl)
    other = MemStore(SqliteBackend(None, clock), index=INDEX, ttl=ttl)
    postgres = AsyncCaller(store, runner) if how == "async" else SyncCaller(store)
    yield Pair(postgres, other, clock)
    postgres.close()
    other.close()


class Chance:
    """Operations by chance.

    Args:
        seed: Decides all of them.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311  no secret
        self.objects = draw_objects(self.random, 12)

    def phrase(self) -> str:
        """Draw a few words."""
        return " ".join(self.random.choices(WORDS, k=self.random.randint(0, 5)))

    def value(self) -> dict[str, Any]:
        """Draw a value: fields that filters reach, and texts."""
        value = dict(self.random.choice(self.objects))
        if self.random.random() < 0.8:
            value["text"] = self.phrase()
        if self.random.random() < 0.3:
            value["tags"] = [self.phrase() for _ in range(self.random.randint(0, 3))]
        return value

    def put(self) -> PutOp:
        """Draw a put, or a delete."""
        choose = self.random.choice
        value = None if self.random.random() < 0.15 else self.value()
        index: Any = choose([None, None, None, False, ["text"], ["$"], ["tags[*]", "a.b"], ["missing"]])
        ttl = None if value is None else choose([None, None, None, 1.0, 5.5])
        return PutOp(choose(NAMESPACES), choose(KEYS), value, index, ttl)

    def filter(self) -> dict[str, Any] | None:
        """Draw a filter, or none."""
        return None if self.random.random() < 0.4 else draw_filter(self.random, self.objects)

    def search(self) -> dict[str, Any]:
        """Draw the options of a search."""
        return {
            "filter": self.filter(),
            "query": self.random.choice([None, "", self.phrase(), self.phrase(), self.phrase()]),
            "limit": self.random.choice([0, 1, 3, 10, 100]),
            "offset": self.random.choice([0, 0, 0, 1, 4]),
            "refresh_ttl": self.random.choice([None, True, False]),
        }

    def listing(self) -> ListNamespacesOp:
        """Draw a listing."""
        conditions = tuple(
            MatchCondition(self.random.choice(["prefix", "suffix"]), self.random.choice([*NAMESPACES, ("*", "b")]))
            for _ in range(self.random.choice([0, 0, 1, 2]))
        )
        return ListNamespacesOp(
            conditions, self.random.choice([None, 1, 2, 3]), self.random.randint(0, 8), self.random.randint(0, 3)
        )

    def op(self) -> Op:
        """Draw an op of a batch."""
        kind = self.random.random()
        if kind < 0.5:
            return self.put()
        if kind < 0.7:
            refresh = self.random.random() < 0.5
            return GetOp(self.random.choice(NAMESPACES), self.random.choice(KEYS), refresh)
        if kind < 0.9:
            return SearchOp(self.random.choice(PREFIXES), **(self.search() | {"refresh_ttl": False}))
        return self.listing()


@pytest.mark.parametrize("seed", SEEDS)
def test_both_answer_alike(pair: Pair, seed: int) -> None:
    """Puts, deletes, batches, reads, searches in every mode, listings, passing time and sweeps, in any order."""
    chance = Chance(seed)
    random = chance.random
    pair.do([chance.put() for _ in range(20)])
    for _ in range(STEPS):
        kind = random.random()
        if kind < 0.3:
            pair.do([chance.put()])
        elif kind < 0.5:
            pair.do([chance.op() for _ in range(random.randint(1, 12))])
        elif kind < 0.9:
            pair.ask(random.choice(PREFIXES), mode=random.choice(MODES), **chance.search())
        elif kind < 0.96:
            pair.clock.pass_minutes(random.choice([0.3, 1.0, 4.0]))
        else:
            assert pair.postgres.sweep() == int(pair.sqlite.sweep_ttl())
            pair.compare_counts()
    for mode in MODES[1:]:
        for query in ("red apple", "the tea in 日本", "2024-05-08"):
            pair.ask((), query=query, mode=mode, limit=100)
    pair.ask((), limit=1_000)
    pair.compare_counts()


@pytest.mark.parametrize("seed", SEEDS)
def test_both_filter_alike(pair: Pair, seed: int) -> None:
    """Filters of every kind let the same items through, ranked and newest first, in narrow and wide scopes."""
    chance = Chance(1_000 + seed)
    objects = draw_objects(chance.random, 60)
    pair.do([PutOp(("a", str(n % 3)), f"k{n}", {**value, "text": chance.phrase()}) for n, value in enumerate(objects)])
    for _ in range(60):
        asked = draw_filter(chance.random, objects)
        query = chance.random.choice([None, "red apple tea"])
        prefix = chance.random.choice([(), ("a",), ("a", "1")])
        pair.ask(prefix, filter=asked, query=query, limit=100)
        pair.ask(prefix, filter=asked, query=query, limit=5, offset=chance.random.randint(0, 5))


def test_both_refuse_alike(pair: Pair) -> None:
    """What is wrong is wrong on both, with the same error in the same words."""
    wrong: list[Any] = [
        lambda store: store.put(("a", ""), "k", {}),
        lambda store: store.put(("a",), "k\0", {}),
        lambda store: store.put(("a",), "k", {"n": float("nan")}),
        lambda store: store.put(("a",), "k", {"d": object()}),
        lambda store: store.put(("a",), "k", {}, ttl=-1),
        lambda store: store.search((), limit=-1),
        lambda store: store.search((), filter={"$nope": 1}),
        lambda store: store.search((), query="x", mode="no such"),
        lambda store: store.list_namespaces(max_depth=0),
        lambda store: store.batch([PutOp(("a",), "k", {"text": "x"}), PutOp(("a",), "k", {"n": float("inf")})]),
    ]
    for call in wrong:
        raised = []
        for store in (pair.postgres, pair.sqlite):
            with pytest.raises((ValueError, TypeError)) as caught:
                call(store)
            raised.append((type(caught.value), str(caught.value)))
        assert raised[0] == raised[1]
    pair.compare_counts()
    assert pair.postgres.stats().items == 0


def test_a_delete_of_nothing_leaves_nothing(pair: Pair) -> None:
    """Beside puts, deletes in namespaces that were never there make none."""
    pair.do([PutOp(("a",), "k", {"text": "tea"}), PutOp(("b",), "k", None), PutOp(("c",), "k", None)])
    pair.do([PutOp(("d",), "k", None)])
    pair.compare_counts()
    assert pair.postgres.stats().namespaces == 1
