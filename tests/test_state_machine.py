"""A store against a plain dict: whatever is done to it in whatever order, it answers as the dict would."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from langgraph.store.base import GetOp, Item, Op, PutOp, SearchItem

from memstore import MemStore
from memstore.backends.sqlite import SqliteBackend
from memstore.errors import InvalidArgument
from memstore.items import to_microseconds
from tests.conformance.mode_oracle import fused, shares
from tests.support import Clock, WordEmbeddings

Place = tuple[tuple[str, ...], str]
WORDS = WordEmbeddings(16)
INDEX: dict[str, Any] = {"embed": WORDS, "fields": ["text", "tags[*]"]}
MINUTE = 60_000_000

namespaces = st.sampled_from([("a",), ("a", "b"), ("a", "b", "c"), ("ab",), ("a", "é\x01"), ("%", "*")])
prefixes = st.sampled_from([(), (), ("a",), ("a", "b"), ("a", "b", "c"), ("ab",), ("b",), ("%",)])
names = st.sampled_from(["k", "K", "k'", "1", "", "日"])
texts = st.sampled_from(["", " ", "tea", "green tea", "two dogs", "two cats", "tea for two", "日本"])
values = st.fixed_dictionaries(
    {"text": texts | st.none()},
    optional={
        "tags": st.lists(texts, max_size=2),
        "n": st.integers(-2, 2) | st.sampled_from([0.5, "1", None, True]),
    },
)
indexes = st.sampled_from([None, None, None, None, False, ["text"], ["tags[*]", "n"], ["$"], ["missing"]])
ttls = st.sampled_from([None, None, 1.0, 5.0])
"""Minutes; no sum of the steps by which time passes comes near one of these."""
filters = st.sampled_from([None, {"n": 1}, {"n": {"$gte": 0}}, {"text": "tea"}, {"n": None}, {"n": {"$exists": True}}])
modes = st.sampled_from(["hybrid", "semantic", "lexical"])
puts = st.tuples(namespaces, names, values, indexes, ttls)


@dataclass(frozen=True)
class Kept:
    """An item as the model keeps it."""

    value: dict[str, Any]
    texts: tuple[str, ...]
    ttl: float | None
    expires: int | None
    created: int
    updated: int
    order: int
    """Counts writes: the later written item has the larger one."""


def extract(value: dict[str, Any], index: Any) -> tuple[str, ...]:
    """Extract the texts of a value, spelled out for the few paths that these tests use."""
    found: list[Any] = []
    for path in ["text", "tags[*]"] if index is None else index or []:
        if path == "$":
            found.append(json.dumps(value, sort_keys=True, ensure_ascii=False))
        elif path == "tags[*]":
            found.extend(value.get("tags", []))
        elif value.get(path) is not None:
            found.append(str(value[path]))
    return tuple(text for text in found if text.strip())


def cosine(left: str, right: str) -> float:
    """Compare two texts in float64."""
    one, other = np.array(WORDS._vector(left)), np.array(WORDS._vector(right))
    norms = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / norms if norms else 0.0


def passes(filter: Any, value: dict[str, Any]) -> bool:
    """Say whether a value passes one of the filters that these tests use."""
    if filter is None:
        return True
    ((name, wanted),) = filter.items()
    found = value.get(name)
    if wanted == {"$exists": True}:
        return name in value
    if wanted == {"$gte": 0}:
        return isinstance(found, int | float) and not isinstance(found, bool) and found >= 0
    return found is None if wanted is None else found == wanted and not isinstance(found, bool)


class StoreMachine(RuleBasedStateMachine):
    """Does to a store what it does to a dict."""

    on_disk: ClassVar[bool]
    index: ClassVar[dict[str, Any]] = INDEX

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="memstore-"))
        self.clock = Clock()
        self.model: dict[Place, Kept] = {}
        self.indexed: dict[Place, tuple[str, ...]] = {}
        """The texts of all items, those that have expired and were not swept among them."""
        self.writes = 0
        self.mode = ""
        """How the store ranks unless a search says otherwise."""
        self.has_words = False
        """Whether texts have words; once they have, they keep them."""
        self.store: MemStore

    @initialize(mode=modes, first=st.lists(puts, min_size=6, max_size=16))
    def start(self, mode: str, first: list[Any]) -> None:
        """Open a new store and fill it, so that most of what follows meets items."""
        self.open(mode)
        for put in first:
            self.put(put)

    def open(self, mode: str) -> None:
        """Open the store, new or again; texts that have no words get them where it ranks by any."""
        path = self.folder / "memories.db" if self.on_disk else None
        self.store = MemStore(SqliteBackend(path, self.clock), index=self.index | {"mode": mode})
        self.store.setup()
        self.mode, self.has_words = mode, self.has_words or mode != "semantic"

    def teardown(self) -> None:
        """Close the store; nothing of it stays."""
        self.store.close()
        shutil.rmtree(self.folder)

    @precondition(lambda self: self.on_disk)
    @rule(mode=modes)
    def reopen(self, mode: str) -> None:
        """Close and open again: everything is still there."""
        self.store.close()
        self.open(mode)

    @rule(put=puts)
    def put_one(self, put: Any) -> None:
        """Put an item."""
        self.put(put)

    def put(self, put: Any) -> None:
        """Put an item, and take it into the model."""
        namespace, key, value, index, ttl = put
        self.store.put(namespace, key, value, index, ttl=ttl)
        self.keep(put)

    @rule(namespace=namespaces, key=names)
    def delete(self, namespace: tuple[str, ...], key: str) -> None:
        """Delete an item, there or not."""
        self.store.delete(namespace, key)
        self.forget((namespace, key))

    def forget(self, place: Place) -> None:
        """Take an item out of the model."""
        self.model.pop(place, None)
        self.indexed.pop(place, None)

    @rule(writes=st.lists(st.tuples(puts, st.booleans()), max_size=6))
    def batch(self, writes: list[Any]) -> None:
        """Write several items in one batch, and read each before it: reads see the state before."""
        self.drop_expired()
        ops: list[Op] = []
        for (namespace, key, value, index, ttl), deletes in writes:
            ops.append(PutOp(namespace, key, None if deletes else value, index, ttl))
            ops.append(GetOp(namespace, key, refresh_ttl=False))
        results = self.store.batch(ops)
        for ((namespace, key, *_), _), result in zip(writes, results[1::2], strict=True):
            assert (result is not None) == ((namespace, key) in self.model)
        last = {(namespace, key): place for place, ((namespace, key, *_), _) in enumerate(writes)}
        for place, (put, deletes) in enumerate(writes):
            if last[put[0], put[1]] != place:
                continue
            if deletes:
                self.forget((put[0], put[1]))
            else:
                self.keep(put)

    def keep(self, put: Any) -> None:
        """Take a put into the model, with the times that the store must have given it."""
        namespace, key, value, index, ttl = put
        item = self.store.get(namespace, key, refresh_ttl=False)
        assert item is not None
        self.writes += 1
        updated = to_microseconds(item.updated_at)
        old = self.model.get((namespace, key))
        live = old is not None and (old.expires is None or old.expires > updated)
        self.model[namespace, key] = Kept(
            value=value,
            texts=extract(value, index),
            ttl=ttl,
            expires=None if ttl is None else updated + int(ttl * MINUTE),
            created=old.created if old is not None and live else updated,
            updated=updated,
            order=self.writes,
        )
        self.indexed[namespace, key] = self.model[namespace, key].texts

    @rule(minutes=st.sampled_from([0.7, 3.3]))
    def pass_time(self, minutes: float) -> None:
        """Let time pass."""
        self.clock.pass_minutes(minutes)

    def drop_expired(self) -> int:
        """Forget what has expired; give how many items it was."""
        now = self.clock.microseconds
        gone = [place for place, kept in self.model.items() if kept.expires is not None and kept.expires <= now]
        for place in gone:
            del self.model[place]
        return len(gone)

    @rule()
    def sweep(self) -> None:
        """Sweep: nothing that is live goes, and no one sees a difference."""
        self.drop_expired()
        before = self.store.stats()
        assert int(self.store.sweep_ttl()) == before.expired
        self.indexed = {place: kept.texts for place, kept in self.model.items()}
        after = self.store.stats()
        assert (after.items, after.expired) == (len(self.model), 0)
        assert after.texts == sum(len(kept.texts) for kept in self.model.values())

    @rule(namespace=namespaces, key=names, refresh=st.booleans())
    def get(self, namespace: tuple[str, ...], key: str, *, refresh: bool) -> None:
        """Get an item, and refresh it or not."""
        self.drop_expired()
        item = self.store.get(namespace, key, refresh_ttl=refresh)
        kept = self.model.get((namespace, key))
        assert (item is None) == (kept is None)
        if item is not None:
            self.agrees(item)
            if refresh:
                self.refresh([item])

    def agrees(self, item: Item) -> None:
        """Assert that an item is what the model has at its place."""
        kept = self.model[item.namespace, item.key]
        assert item.value == kept.value
        assert to_microseconds(item.created_at) == kept.created
        assert to_microseconds(item.updated_at) == kept.updated

    def refresh(self, items: Any) -> None:
        """Move the expiry of items that a read returned."""
        for item in items:
            kept = self.model[item.namespace, item.key]
            if kept.ttl is not None:
                expires = self.clock.microseconds + int(kept.ttl * MINUTE)
                self.model[item.namespace, item.key] = replace(kept, expires=expires)

    def visible(self, prefix: tuple[str, ...], filter: Any) -> dict[Place, Kept]:
        """Give what a search below a prefix may see."""
        self.drop_expired()
        return {
            place: kept
            for place, kept in self.model.items()
            if place[0][: len(prefix)] == prefix and passes(filter, kept.value)
        }

    def pages(self, prefix: tuple[str, ...], size: int, **options: Any) -> list[SearchItem]:
        """Read a whole answer in pages, none of which is too long or missing."""
        found: list[SearchItem] = []
        while page := self.store.search(prefix, limit=size, offset=len(found), refresh_ttl=False, **options):
            assert len(page) <= size
            found += page
        return found

    @rule(prefix=prefixes, filter=filters, size=st.integers(1, 7))
    def search_newest(self, prefix: tuple[str, ...], filter: Any, size: int) -> None:
        """Search without a query: the newest first, the later written among equals."""
        visible = self.visible(prefix, filter)
        found = self.pages(prefix, size, filter=filter)
        expected = sorted(visible, key=lambda place: (-visible[place].updated, -visible[place].order))
        assert [(item.namespace, item.key) for item in found] == expected
        for item in found:
            self.agrees(item)
            assert item.score is None

    @rule(prefix=prefixes, filter=filters, size=st.integers(1, 7), query=texts.filter(str.strip))
    def search_by_query(self, prefix: tuple[str, ...], filter: Any, size: int, query: str) -> None:
        """Search with a query, in each mode and in the store's own."""
        for mode in (None, "semantic", "hybrid", "lexical"):
            if self.has_words or (mode or self.mode) == "semantic":
                self.search_in_mode(prefix, filter, size, query, mode)
                continue
            with pytest.raises(InvalidArgument):
                self.store.search(prefix, query=query, mode=mode)

    def search_in_mode(self, prefix: tuple[str, ...], filter: Any, size: int, query: str, mode: Any) -> None:
        """Find each item with indexed text once, by its best text's score; by words alone those that share any."""
        visible = {place: kept for place, kept in self.visible(prefix, filter).items() if kept.texts}
        scores = self.scores(prefix, query, mode or self.mode)
        if (mode or self.mode) == "lexical":
            visible = {place: kept for place, kept in visible.items() if max(scores[place]) > 0}
        found = self.pages(prefix, size, filter=filter, query=query, mode=mode)
        assert sorted((item.namespace, item.key) for item in found) == sorted(visible)
        ranks = []
        for item in found:
            self.agrees(item)
            assert item.score is not None
            assert abs(item.score - max(scores[item.namespace, item.key])) < 1e-5
            ranks.append((-item.score, -visible[item.namespace, item.key].order))
        assert ranks == sorted(ranks)

    def scores(self, prefix: tuple[str, ...], query: str, mode: str) -> dict[Place, list[float]]:
        """Score every text below a prefix; how rare a word is, the rows tell, whatever the filter."""
        scope = [(place, text) for place, found in self.indexed.items() for text in found]
        scope = [(place, text) for place, text in scope if place[0][: len(prefix)] == prefix]
        scored: dict[Place, list[float]] = {}
        for (place, text), share in zip(scope, shares(query, [text for _, text in scope]), strict=True):
            by_mode = {"semantic": cosine(text, query), "lexical": share, "hybrid": fused(cosine(text, query), share)}
            scored.setdefault(place, []).append(by_mode[mode])
        return scored

    @rule(prefix=prefixes, limit=st.integers(0, 3))
    def search_and_refresh(self, prefix: tuple[str, ...], limit: int) -> None:
        """Search and refresh what the page shows, nothing else."""
        self.drop_expired()
        self.refresh(self.store.search(prefix, limit=limit, refresh_ttl=True))

    @rule(depth=st.none() | st.integers(1, 3), limit=st.integers(0, 4), offset=st.integers(0, 3), prefix=prefixes)
    def list_namespaces(self, depth: int | None, limit: int, offset: int, prefix: tuple[str, ...]) -> None:
        """List the namespaces of live items, in order."""
        listed = {namespace[:depth] for namespace, _ in self.visible(prefix, None)}
        found = self.store.list_namespaces(prefix=prefix or None, max_depth=depth, limit=limit, offset=offset)
        assert found == sorted(listed)[offset : offset + limit]

    @rule(repair=st.booleans())
    def check(self, *, repair: bool) -> None:
        """Look the database over: it is sound at any time."""
        assert self.store.check(repair=repair).problems == ()

    @invariant()
    def nothing_is_live_but_the_model(self) -> None:
        """After every step the store counts as many live items as the model."""
        stats = self.store.stats()
        self.drop_expired()
        assert stats.items - stats.expired == len(self.model)


class FileMachine(StoreMachine):
    """On a file, opened again now and then."""

    on_disk = True


class MemoryMachine(StoreMachine):
    """In memory."""

    on_disk = False


class WideMachine(StoreMachine):
    """On a file, with every scope ranked by the index of wide ones, in which all texts are candidates."""

    on_disk = True
    index = INDEX | {"exact_below": 0}


TestFile = FileMachine.TestCase
TestFile.settings = settings(deadline=None, max_examples=25, stateful_step_count=25)
TestMemory = MemoryMachine.TestCase
TestMemory.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)
TestWide = WideMachine.TestCase
TestWide.settings = settings(deadline=None, max_examples=40, stateful_step_count=40)
