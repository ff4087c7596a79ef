"""Time to live: rules 25 and 26 of the contract, on a clock that the test moves."""

from __future__ import annotations

from typing import Any, Protocol

import pytest
from langgraph.store.base import GetOp, ListNamespacesOp, PutOp, SearchOp

from memstore import MemStoreError
from tests.support import Clock, OpenStore, SyncCaller, WordEmbeddings, keys

WRONG_TTLS: list[Any] = [0, 0.0, -1, -0.001, float("nan"), float("-inf"), "5", True, [1]]
WRONG_CONFIGS: list[Any] = [
    {"default_ttl": 0},
    {"default_ttl": -1},
    {"default_ttl": float("nan")},
    {"default_ttl": "5"},
    {"sweep_interval_minutes": 0},
    {"sweep_interval_minutes": -5},
    {"refresh_on_read": "yes"},
    {"default_tll": 5},
    {"omit_expired": False},
    5,
]


class Read(Protocol):
    """One way of reading the item `("a",)`, `"k"` of a store."""

    def __call__(self, store: SyncCaller, *, refresh_ttl: bool | None = None) -> object:
        """Read it."""
        ...


def read_by(prefix: tuple[str, ...], **options: Any) -> Read:
    """Read by a search."""

    def read(store: SyncCaller, *, refresh_ttl: bool | None = None) -> object:
        return store.search(prefix, refresh_ttl=refresh_ttl, **options)

    return read


def read_by_key(store: SyncCaller, *, refresh_ttl: bool | None = None) -> object:
    """Read by key."""
    return store.get(("a",), "k", refresh_ttl=refresh_ttl)


READS: dict[str, Read] = {
    "get": read_by_key,
    "search": read_by(("a",)),
    "search by query": read_by((), query="apples"),
    "search by filter": read_by((), filter={"text": "apples"}),
}


class JumpingClock(Clock):
    """A clock that moves on by itself between two looks."""

    def __init__(self) -> None:
        super().__init__()
        self.jump_minutes = 0.0
        """How far the time moves after the next look, once."""

    def __call__(self) -> int:
        """Give the time, and jump."""
        time = super().__call__()
        jump, self.jump_minutes = self.jump_minutes, 0.0
        self.pass_minutes(jump)
        return time


def open_for_apples(open_store: OpenStore, ttl: Any = None) -> SyncCaller:
    """Open a store that embeds the field `text`."""
    return open_store(index={"embed": WordEmbeddings(), "fields": ["text"]}, ttl=ttl)


def live_keys(store: SyncCaller) -> list[str]:
    """Give the keys that are live, in order, and refresh none."""
    return sorted(keys(store.search((), limit=1000, refresh_ttl=False)))


class TtlConformance:
    """Items live as long as they were given, longer where they are read, and are gone at once when they expire."""

    def test_an_item_lives_its_minutes(self, open_store: OpenStore, clock: Clock) -> None:
        """A ttl is in minutes, and fractions count: half a minute is thirty seconds."""
        store = open_store()
        store.put(("a",), "half", {}, ttl=0.5)
        store.put(("a",), "two", {}, ttl=2)
        store.put(("a",), "ever", {})
        clock.pass_minutes(0.49)
        assert live_keys(store) == ["ever", "half", "two"]
        clock.pass_minutes(0.02)
        assert live_keys(store) == ["ever", "two"]
        clock.pass_minutes(1.48)
        assert live_keys(store) == ["ever", "two"]
        clock.pass_minutes(0.02)
        assert live_keys(store) == ["ever"]

    def test_a_put_without_a_ttl_takes_the_default(self, open_store: OpenStore, clock: Clock) -> None:
        """`ttl=None` means never and a number means itself; an op's own None, its default, means never."""
        store = open_store(ttl={"default_ttl": 10.5})
        store.put(("a",), "default", {})
        store.put(("a",), "never", {}, ttl=None)
        store.put(("a",), "own", {}, ttl=20)
        store.batch(
            [PutOp(("a",), "op", {}), PutOp(("a",), "op never", {}, ttl=None), PutOp(("a",), "op own", {}, ttl=0.25)]
        )
        clock.pass_minutes(10.4)
        assert live_keys(store) == ["default", "never", "op", "op never", "own"]
        clock.pass_minutes(0.2)
        assert live_keys(store) == ["never", "op", "op never", "own"]
        clock.pass_minutes(10)
        assert live_keys(store) == ["never", "op", "op never"]
        clock.pass_minutes(10**9)
        assert live_keys(store) == ["never", "op", "op never"]

    def test_without_a_default_items_live_for_ever(self, open_store: OpenStore, clock: Clock) -> None:
        """A config that only says how to read or sweep makes nothing expire."""
        store = open_store(ttl={"refresh_on_read": False})
        store.put(("a",), "k", {})
        clock.pass_minutes(10**9)
        assert live_keys(store) == ["k"]

    def test_each_put_sets_the_ttl_anew(self, open_store: OpenStore, clock: Clock) -> None:
        """The last put decides how long an item lives from then on, also that it lives for ever."""
        store = open_store()
        store.put(("a",), "longer", {}, ttl=1)
        store.put(("a",), "ever", {}, ttl=1)
        store.put(("a",), "shorter", {})
        clock.pass_minutes(0.9)
        store.put(("a",), "longer", {}, ttl=1)
        store.put(("a",), "ever", {})
        store.put(("a",), "shorter", {}, ttl=0.05)
        clock.pass_minutes(0.2)
        assert live_keys(store) == ["ever", "longer"]
        clock.pass_minutes(1)
        assert live_keys(store) == ["ever"]

    def test_a_wrong_ttl_is_refused(self, open_store: OpenStore) -> None:
        """A ttl is a positive number; anything else is an error, and nothing of its batch is written."""
        store = open_store()
        store.put(("a",), "k", {"n": 1})
        for ttl in WRONG_TTLS:
            with pytest.raises(ValueError, match="ttl"):
                store.put(("a",), "k", {"n": 2}, ttl=ttl)
            with pytest.raises(ValueError, match="ttl"):
                store.batch([PutOp(("b",), "k", {}), PutOp(("a",), "k", {"n": 2}, ttl=ttl)])
        assert [item.value for item in store.search(())] == [{"n": 1}]

    def test_a_ttl_has_no_upper_end(self, open_store: OpenStore, clock: Clock) -> None:
        """More minutes than the world will last are for ever, or an error of ours; never a crash."""
        store = open_store()
        store.put(("a",), "long", {}, ttl=1e300)
        clock.pass_minutes(10**9)
        assert keys(store.search(())) == ["long"]
        try:
            store.put(("a",), "longer", {}, ttl=10**400)
        except MemStoreError as error:
            assert "ttl" in str(error)  # noqa: PT017  both ways are right

    @pytest.mark.parametrize("ttl", WRONG_CONFIGS, ids=repr)
    def test_a_wrong_config_is_refused(self, open_store: OpenStore, ttl: Any) -> None:
        """Unknown keys, times of no length and `omit_expired=False` are errors at the door, not surprises later."""
        with pytest.raises(ValueError, match="ttl"):
            open_store(ttl=ttl)

    def test_omitting_the_expired_may_be_asked_for(self, open_store: OpenStore, clock: Clock) -> None:
        """LangGraph's `omit_expired` is what this store does anyway."""
        store = open_store(ttl={"default_ttl": 1, "omit_expired": True})
        store.put(("a",), "k", {})
        clock.pass_minutes(2)
        assert store.search(()) == []

    @pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
    @pytest.mark.parametrize("ttl", [None, {"default_ttl": 10}, {"refresh_on_read": True}], ids=repr)
    def test_reading_keeps_an_item_alive(self, open_store: OpenStore, clock: Clock, read: Read, ttl: Any) -> None:
        """Unless it is turned off, what is read lives on for its whole ttl from then."""
        store = open_for_apples(open_store, ttl)
        store.put(("a",), "k", {"text": "apples"}, ttl=10)
        store.put(("b",), "unread", {"text": "rain", "other": True}, ttl=10, index=False)
        for _ in range(4):
            clock.pass_minutes(6)
            assert read(store)
        store.get(("b",), "unread")
        assert live_keys(store) == ["k"]
        clock.pass_minutes(10.1)
        assert live_keys(store) == []

    @pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
    def test_reading_may_be_told_not_to(self, open_store: OpenStore, clock: Clock, read: Read) -> None:
        """`refresh_on_read` off is the default of the reads, `refresh_ttl` is about the one read alone, either way."""
        store = open_for_apples(open_store, {"refresh_on_read": False})
        store.put(("a",), "k", {"text": "apples"}, ttl=10)
        clock.pass_minutes(6)
        assert read(store)
        assert read(store, refresh_ttl=False)
        clock.pass_minutes(6)
        assert live_keys(store) == []
        store.put(("a",), "k", {"text": "apples"}, ttl=10)
        clock.pass_minutes(6)
        assert read(store, refresh_ttl=True)
        clock.pass_minutes(6)
        assert read(store)
        clock.pass_minutes(6)
        assert live_keys(store) == []

    @pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
    def test_one_read_may_leave_the_ttl_alone(self, open_store: OpenStore, clock: Clock, read: Read) -> None:
        """Where reads refresh, `refresh_ttl=False` looks without touching."""
        store = open_for_apples(open_store)
        store.put(("a",), "k", {"text": "apples"}, ttl=10)
        clock.pass_minutes(6)
        assert read(store, refresh_ttl=False)
        clock.pass_minutes(6)
        assert live_keys(store) == []

    def test_ops_say_for_themselves(self, open_store: OpenStore, clock: Clock) -> None:
        """In a batch each op's own `refresh_ttl` counts for its own items."""
        store = open_for_apples(open_store)
        for key in ("get", "get not", "search", "search not"):
            store.put((key,), key, {"text": key}, ttl=10)
        clock.pass_minutes(6)
        store.batch(
            [
                GetOp(("get",), "get", refresh_ttl=True),
                GetOp(("get not",), "get not", refresh_ttl=False),
                SearchOp(("search",), refresh_ttl=True),
                SearchOp(("search not",), refresh_ttl=False),
                ListNamespacesOp(),
            ]
        )
        clock.pass_minutes(6)
        assert live_keys(store) == ["get", "search"]

    @pytest.mark.parametrize("query", [None, "apples"])
    def test_a_search_refreshes_what_it_returns_alone(
        self, open_store: OpenStore, clock: Clock, query: str | None
    ) -> None:
        """What the filter, the limit or the offset left out was not read."""
        store = open_for_apples(open_store)
        store.batch(PutOp(("a",), f"k{n}", {"text": "apples", "odd": n % 2}, ttl=10) for n in range(10))
        clock.pass_minutes(6)
        hits = store.search((), query=query, filter={"odd": 1}, limit=2, offset=1)
        assert keys(hits) == ["k7", "k5"]
        assert store.search((), query=query, limit=0) == []
        clock.pass_minutes(6)
        assert live_keys(store) == ["k5", "k7"]

    def test_a_small_move_is_not_worth_a_write(self, open_store: OpenStore, clock: Clock) -> None:
        """Below 1 % of its ttl an expiry stays where it is, so that reads in a row do not each write."""
        store = open_store()
        store.put(("a",), "often", {}, ttl=100)
        store.put(("a",), "late", {}, ttl=100)
        clock.pass_minutes(0.9)
        assert store.get(("a",), "often") is not None
        clock.pass_minutes(0.2)
        assert store.get(("a",), "late") is not None
        clock.pass_minutes(99)
        assert live_keys(store) == ["late"]

    def test_a_read_moves_no_times(self, open_store: OpenStore, clock: Clock) -> None:
        """Refreshing is not writing: `updated_at`, and with it the order of the newest, stays."""
        store = open_store()
        store.batch([PutOp(("a",), "1", {}, ttl=10), PutOp(("a",), "2", {}, ttl=10)])
        before = store.search((), refresh_ttl=False)
        clock.pass_minutes(5)
        store.get(("a",), "1")
        assert store.search(()) == before
        assert [item.updated_at for item in store.search(())] == [item.updated_at for item in before]

    def test_what_has_expired_is_invisible_at_once(self, open_store: OpenStore, clock: Clock) -> None:
        """No read shows it, swept or not, whatever it asks; it is only still counted as waiting for the sweep."""
        store = open_for_apples(open_store)
        store.put(("a", "x"), "k", {"text": "apples"}, ttl=1)
        store.put(("b",), "live", {"text": "apples"})
        clock.pass_minutes(1.01)
        got, newest, nearest, filtered, listed = store.batch(
            [
                GetOp(("a", "x"), "k"),
                SearchOp(()),
                SearchOp((), query="apples"),
                SearchOp(("a",), filter={"text": "apples"}),
                ListNamespacesOp(),
            ]
        )
        assert (got, keys(newest), keys(nearest), filtered, listed) == (None, ["live"], ["live"], [], [("b",)])
        assert store.get(("a", "x"), "k") is None
        assert store.search(("a",), query="apples") == []
        assert store.list_namespaces(max_depth=1) == store.list_namespaces() == [("b",)]
        assert (store.stats().items, store.stats().expired) == (2, 1)

    def test_a_read_never_revives(self, open_store: OpenStore, clock: Clock) -> None:
        """Reading what has expired, however often and with whatever wish to refresh, brings nothing back."""
        store = open_for_apples(open_store)
        store.put(("a",), "k", {"text": "apples"}, ttl=10)
        clock.pass_minutes(10.001)
        for read in READS.values():
            assert not read(store, refresh_ttl=True)
        store.batch([GetOp(("a",), "k", refresh_ttl=True), SearchOp((), query="apples", refresh_ttl=True)])
        assert live_keys(store) == []
        assert store.sweep() == 1

    def test_a_put_after_expiry_makes_a_new_item(self, open_store: OpenStore, clock: Clock) -> None:
        """It was created then, not when the one that expired was; a live one keeps the time of its creation."""
        store = open_for_apples(open_store)
        store.put(("a",), "k", {"text": "apples"}, ttl=1)
        first = store.get(("a",), "k")
        clock.pass_minutes(0.5)
        store.put(("a",), "k", {"text": "pears"}, ttl=1)
        second = store.get(("a",), "k")
        clock.pass_minutes(2)
        store.put(("a",), "k", {"text": "rain"})
        third = store.get(("a",), "k")
        assert first is not None
        assert second is not None
        assert third is not None
        assert first.created_at == second.created_at < second.updated_at < third.created_at == third.updated_at
        assert [hit.score for hit in store.search((), query="rain")] == [1.0]
        assert store.stats().texts == 1
        assert store.sweep() == 0

    def test_deleting_what_has_expired_leaves_nothing(self, open_store: OpenStore, clock: Clock) -> None:
        """A delete takes the row and its texts, seen or not."""
        store = open_for_apples(open_store)
        store.put(("a",), "k", {"text": "apples"}, ttl=1)
        clock.pass_minutes(2)
        store.delete(("a",), "k")
        assert (store.stats().items, store.stats().texts, store.sweep()) == (0, 0, 0)


class ExpiryRacesConformance:
    """What expires while a read is under way stays expired."""

    @pytest.fixture
    def clock(self) -> JumpingClock:
        """Give a clock that can move in the middle of a call."""
        return JumpingClock()

    @pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
    def test_a_refresh_that_comes_too_late_does_nothing(
        self, open_store: OpenStore, clock: JumpingClock, read: Read
    ) -> None:
        """Live when it was read and expired when its expiry would be moved: the item has expired."""
        store = open_for_apples(open_store)
        store.put(("a",), "k", {"text": "apples"}, ttl=10)
        clock.pass_minutes(9)
        clock.jump_minutes = 2
        assert read(store)
        assert live_keys(store) == []
        assert store.sweep() == 1
