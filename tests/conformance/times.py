"""When items were made and changed: rule 8 of the contract."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from langgraph.store.base import GetOp, Item, PutOp, SearchOp

from tests.support import Clock, OpenStore, SyncCaller


class TimesConformance:
    """`created_at` stays, `updated_at` moves; both are in UTC, to the microsecond."""

    def test_times_are_utc_to_the_microsecond(self, open_store: OpenStore, clock: Clock) -> None:
        """Times are aware, in UTC, and exact: not text, not rounded to milliseconds, the same from every read."""
        store = open_store()
        clock.microseconds += 123_456
        before = _moment(clock)
        store.put(("a",), "k", {})
        after = _moment(clock)
        item = _get(store)
        for moment in (item.created_at, item.updated_at):
            assert isinstance(moment, datetime)
            assert moment.utcoffset() == timedelta(0)
            assert moment.tzinfo is UTC
            assert before < moment <= after
        assert item.created_at == item.updated_at
        (found,) = store.search(("a",))
        got, (searched,) = store.batch([GetOp(("a",), "k"), SearchOp(())])
        for other in (found, got, searched):
            assert (other.created_at, other.updated_at) == (item.created_at, item.updated_at)

    def test_an_update_keeps_created_at(self, open_store: OpenStore, clock: Clock) -> None:
        """However often an item is put again, by method or op, with the same value or another, it was made once."""
        store = open_store()
        store.put(("a",), "k", {"n": 0})
        first = last = _get(store)
        for value in [{"n": 1}, {"n": 1}, {}]:
            for write in (lambda v: store.put(("a",), "k", v), lambda v: store.batch([PutOp(("a",), "k", v)])):
                clock.pass_minutes(1)
                write(value)
                now = _get(store)
                assert now.created_at == first.created_at
                assert now.updated_at - last.updated_at >= timedelta(minutes=1)
                last = now

    def test_updated_at_moves_when_the_clock_does_not(self, open_store: OpenStore, clock: Clock) -> None:
        """A clock that stands still, or was set back, never makes an update look older than what it replaced."""
        store = open_store()
        start = clock.microseconds
        store.put(("a",), "k", {})
        first = last = _get(store)
        for back in [0, 0, 0, 1, 3_600_000_000, 3_600_000_000]:
            clock.microseconds = start - back
            store.put(("a",), "k", {})
            clock.microseconds = start - back
            now = _get(store)
            assert now.updated_at > last.updated_at
            assert now.created_at == first.created_at
            last = now

    def test_other_writes_move_nothing(self, open_store: OpenStore, clock: Clock) -> None:
        """Reads, and writes to a neighbour or to the same key elsewhere, leave an item's times as they are."""
        store = open_store()
        store.put(("a",), "k", {})
        before = _get(store)
        clock.pass_minutes(1)
        store.search(("a",))
        store.put(("a",), "l", {})
        store.put(("a", "b"), "k", {})
        store.delete(("a",), "l")
        after = _get(store)
        assert (after.created_at, after.updated_at) == (before.created_at, before.updated_at)

    def test_a_deleted_item_is_made_anew(self, open_store: OpenStore, clock: Clock) -> None:
        """What was deleted, or has expired, is over: a put to its key makes a new item, created now."""
        store = open_store()
        for end in ["deleted", "expired"]:
            store.put(("a",), end, {}, ttl=1)
            before = _get(store, end)
            clock.pass_minutes(0.5 if end == "deleted" else 2)
            if end == "deleted":
                store.delete(("a",), end)
            store.put(("a",), end, {})
            after = _get(store, end)
            assert after.created_at > before.created_at
            assert after.updated_at == after.created_at


def _moment(clock: Clock) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=clock.microseconds)


def _get(store: SyncCaller, key: str = "k") -> Item:
    item = store.get(("a",), key, refresh_ttl=False)
    assert item is not None
    return item
