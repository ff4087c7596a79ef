"""What users report of threads that grow: pruning, deleting, copying, expiry, listing, and what a transaction joins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memstore import MemStore
from memstore.errors import MemStoreError
from memstore.threads import Thread
from tests.conformance.saver_callers import OpenSaver, Saving, SyncSaver, ids, to_checkpoint, to_config, to_id
from tests.support import Place

CountRows = Callable[[], dict[str, int]]
"""Counts the rows of each table of checkpoints."""


class Interrupted(Exception):
    """What comes in between."""


def put_thread(saver: SyncSaver, thread: str, count: int = 5, namespace: str = "", **metadata: Any) -> None:
    """Put checkpoints below each other, with writes, a value that changes and one that does not."""
    config = to_config(thread, None, namespace)
    for number in range(1, count + 1):
        values = {"new": [number], "same": ["same"], "plain": number}
        versions = {"new": number, "same": 1, "plain": number}
        checkpoint = to_checkpoint(f"{number:03}", values, channel_versions=versions)
        changed: Any = versions if number == 1 else {"new": number, "plain": number}
        given: Any = {"step": number, **metadata}
        config = saver.saver.put(config, checkpoint, given, changed)
        saver.put_writes(config, [("new", [number]), ("plain", number)], "task", "path")


def see(saver: SyncSaver, thread: str) -> list[Any]:
    """Give all of a thread but its name."""
    seen: list[Any] = []
    for found in saver.list(to_config(thread, None, None)):
        place, parent = dict(found.config["configurable"]), dict((found.parent_config or {}).get("configurable", {}))
        assert place.pop("thread_id") == thread
        assert parent.pop("thread_id", thread) == thread
        seen.append((place, parent, found.checkpoint, found.metadata, found.pending_writes))
    return seen


class PruningReports(Saving):
    """Shortening and deleting."""

    def test_keep_latest_keeps_the_newest_of_each_namespace(self, saver: SyncSaver) -> None:
        """Whole, with its writes, and without a parent; other threads stay as they were."""
        for thread in ("t", "u"):
            put_thread(saver, thread, 300)
            put_thread(saver, thread, 4, "sub")
        newest = [saver.get(to_config("t")), saver.get(to_config("t", None, "sub"))]
        untouched = see(saver, "u")
        saver.prune(["t", "nobody"])
        pruned = saver.list(to_config("t", None, None))
        assert sorted(ids(pruned)) == ["004", "300"]
        assert pruned == [one._replace(parent_config=None) for one in newest]
        assert see(saver, "u") == untouched

    @pytest.mark.parametrize("strategy", ["delete", "delete_all"])
    def test_delete_keeps_nothing(self, saver: SyncSaver, count_rows: CountRows, strategy: str) -> None:
        """By either of its names: LangGraph's server says the second."""
        put_thread(saver, "u")
        before = count_rows()
        put_thread(saver, "t")
        put_thread(saver, "t", 3, "sub")
        saver.prune(["t"], strategy=strategy)
        assert see(saver, "t") == []
        assert count_rows() == before

    def test_pruning_leaves_no_values_behind(self, saver: SyncSaver, count_rows: CountRows) -> None:
        """What it leaves is what a thread of one such checkpoint has."""
        put_thread(saver, "t", 1)
        expected = count_rows()
        saver.delete_thread("t")
        assert set(count_rows().values()) == {0}
        put_thread(saver, "t", 40)
        saver.prune(["t"])
        assert count_rows() == expected

    def test_odd_prunings_are_refused(self, saver: SyncSaver) -> None:
        """An unknown strategy by a ValueError, a single text by a TypeError; an empty list is nothing."""
        put_thread(saver, "t")
        strategy: Any = "keep_all"
        with pytest.raises(ValueError, match="keep_latest") as refusal:
            saver.prune(["t"], strategy=strategy)
        assert isinstance(refusal.value, MemStoreError)
        for one in ("t", b"t"):
            with pytest.raises(TypeError, match="list of thread_ids") as wrong:
                saver.prune(one)
            assert isinstance(wrong.value, MemStoreError)
        saver.prune([])
        saver.prune([], strategy="delete")
        assert len(see(saver, "t")) == 5

    def test_a_pruned_thread_goes_on(self, saver: SyncSaver) -> None:
        """The next checkpoint has what did not change from the one that was kept."""
        put_thread(saver, "t", 5)
        saver.prune(["t"])
        child = to_checkpoint("006", {"same": ["same"], "new": [6]}, channel_versions={"same": 1, "new": 6})
        saver.saver.put(to_config("t", "005"), child, {}, {"new": 6})
        assert saver.get(to_config("t")).checkpoint == child

    def test_runs_are_deleted_in_every_thread(self, saver: SyncSaver, count_rows: CountRows) -> None:
        """With their writes; none and unknown ones are nothing, and a single text is refused."""
        put_thread(saver, "t", 2, run_id="kept")
        before = count_rows()
        for thread, namespace in (("u", ""), ("u", "sub"), ("v", "")):
            put_thread(saver, thread, 2, namespace, run_id="r" if thread == "u" else "s")
        saver.delete_for_runs([])
        saver.delete_for_runs(["unknown", "R", ""])
        with pytest.raises(TypeError, match="list of run_ids"):
            saver.delete_for_runs("r")
        assert len(saver.list(None)) == 8
        saver.delete_for_runs(["r", "s", "r"])
        assert ids(saver.list(None)) == ["002", "001"]
        assert count_rows() == before

    def test_a_run_s_id_may_come_with_the_config(self, saver: SyncSaver) -> None:
        """As LangGraph gives it, in the config's metadata; what another run has put stays, without that parent."""
        config = saver.put(to_config(), to_checkpoint("1"))
        config["metadata"] = {"run_id": "r"}
        config = saver.put(config, to_checkpoint("2"))
        saver.put(config, to_checkpoint("3", {"a": [1]}), {"run_id": "s"})
        saver.delete_for_runs(["r"])
        assert ids(saver.list(None)) == ["3", "1"]
        assert saver.get(to_config()).parent_config is None
        assert saver.get(to_config()).checkpoint["channel_values"] == {"a": [1]}

    def test_late_writes_of_a_deleted_thread_are_whole(self, saver: SyncSaver) -> None:
        """A run that goes on after its thread was deleted loses no value that it did not change."""
        put_thread(saver, "t", 3)
        saver.delete_thread("t")
        values = {"new": [4], "same": ["same"], "plain": 4}
        late = to_checkpoint("004", values, channel_versions={"new": 4, "same": 1, "plain": 4})
        saver.put_writes(to_config("t", "003"), [("new", [4])])
        saver.saver.put(to_config("t", "003"), late, {}, {"new": 4, "plain": 4})
        (found,) = saver.list(to_config("t"))
        assert found.checkpoint == late
        assert found.pending_writes == []

    def test_a_deleted_thread_leaves_nothing(self, saver: SyncSaver, count_rows: CountRows) -> None:
        """In no table and no namespace; to delete what is not there is no error."""
        put_thread(saver, "t", 3)
        put_thread(saver, "t", 3, "sub|deep")
        saver.put_writes(to_config("t", "orphan"), [("a", 1)])
        saver.delete_thread("t")
        saver.delete_thread("t")
        assert set(count_rows().values()) == {0}


class CopyReports(Saving):
    """Copying threads."""

    def test_a_copy_has_everything(self, saver: SyncSaver, count_rows: CountRows) -> None:
        """The whole chain, writes and values of every namespace, under the same ids; the source is as it was."""
        put_thread(saver, "t", 4)
        put_thread(saver, "t", 3, "sub")
        before, rows = see(saver, "t"), count_rows()
        saver.copy_thread("t", "u")
        assert see(saver, "u") == see(saver, "t") == before
        assert count_rows() == {table: 2 * count for table, count in rows.items()}
        saver.delete_thread("t")
        assert see(saver, "u") == before
        assert count_rows() == rows

    def test_a_copy_goes_its_own_way(self, saver: SyncSaver) -> None:
        """What is put to either is not seen in the other."""
        put_thread(saver, "t", 2)
        saver.copy_thread("t", "u")
        saver.put(to_config("u", "002"), to_checkpoint("003", {"new": ["u"]}, channel_versions={"new": 3}))
        saver.put(to_config("t", "002"), to_checkpoint("003", {"new": ["t"]}, channel_versions={"new": 3}))
        assert saver.get(to_config("u")).checkpoint["channel_values"] == {"new": ["u"]}
        assert saver.get(to_config("t")).checkpoint["channel_values"] == {"new": ["t"]}

    def test_nothing_is_copied_over_another_thread(self, saver: SyncSaver) -> None:
        """By a ValueError of memstore's; a copy of nothing, onto itself or a second time changes nothing."""
        put_thread(saver, "t", 2)
        put_thread(saver, "u", 3)
        before = see(saver, "u")
        with pytest.raises(ValueError, match="of its own") as refusal:
            saver.copy_thread("t", "u")
        assert isinstance(refusal.value, MemStoreError)
        assert see(saver, "u") == before
        saver.copy_thread("nobody", "nowhere")
        saver.copy_thread("u", "u")
        saver.copy_thread("u", "v")
        saver.copy_thread("u", "v")
        assert see(saver, "v") == see(saver, "u") == before
        assert see(saver, "nowhere") == []


class RetentionReports(Saving):
    """Forgetting what is old."""

    def put_at(self, saver: SyncSaver, thread: str, *minutes: int) -> None:
        """Put checkpoints that were made so many minutes ago."""
        for ago in minutes:
            id_ = to_id(datetime.now(UTC) - timedelta(minutes=ago))
            saver.put_writes(saver.put(to_config(thread), to_checkpoint(id_, {"a": [ago]})), [("a", 1)])

    def test_threads_expire_whole(self, open_saver: OpenSaver, count_rows: CountRows) -> None:
        """Not a part of one that was active lately; every row of one that was not is deleted."""
        saver = open_saver(retention={"max_age": 60})
        self.put_at(saver, "active", 10_000, 300, 30)
        before, rows = see(saver, "active"), count_rows()
        self.put_at(saver, "idle", 10_000, 300, 90)
        assert saver.sweep() == 3
        assert see(saver, "active") == before
        assert count_rows() == rows
        assert saver.sweep() == 0

    def test_ids_without_a_time_do_not_expire(self, open_saver: OpenSaver) -> None:
        """Nobody can say when they were made."""
        saver = open_saver(retention={"max_age": 60})
        put_thread(saver, "t", 3)
        assert saver.sweep() == 0
        assert len(see(saver, "t")) == 3

    def test_so_many_are_kept(self, open_saver: OpenSaver) -> None:
        """The newest of each thread and namespace; without a retention nothing is swept."""
        saver = open_saver(retention={"keep_last": 2})
        put_thread(saver, "long", 9)
        put_thread(saver, "long", 4, "sub")
        put_thread(saver, "short", 2)
        assert open_saver().sweep() == 0
        assert saver.sweep() == 7 + 2
        assert ids(saver.list(to_config("long"))) == ["009", "008"]
        assert ids(saver.list(to_config("long", None, "sub"))) == ["004", "003"]
        assert ids(saver.list(to_config("short"))) == ["002", "001"]
        assert saver.sweep() == 0


class ThreadListReports(Saving):
    """Listing threads."""

    def test_threads_are_listed_with_counts(self, saver: SyncSaver) -> None:
        """The last active first, with the time that its newest id tells."""
        made = datetime(2026, 3, 1, 12, 30, 15, 250, tzinfo=UTC)
        for thread, namespace, minutes in (("a", "", 1), ("a", "", 5), ("b", "", 2), ("a", "sub", 3), ("c", "sub", 4)):
            saver.put(to_config(thread, None, namespace), to_checkpoint(to_id(made + timedelta(minutes=minutes))))
        saver.put_writes(to_config("orphan", "1"), [("a", 1)])
        times = [made + timedelta(minutes=minutes) for minutes in (5, 4, 2)]
        expected = [
            Thread("a", 3, 2, to_id(times[0]), times[0]),
            Thread("c", 1, 1, to_id(times[1]), times[1]),
            Thread("b", 1, 1, to_id(times[2]), times[2]),
        ]
        assert list(saver.list_threads()) == expected
        assert list(saver.list_threads(before=times[0])) == expected[1:]
        assert list(saver.list_threads(1, before=expected[0])) == expected[1:2]
        saver.put(to_config("d"), to_checkpoint("no time"))
        assert saver.list_threads(1)[0] == Thread("d", 1, 1, "no time", None)
        assert saver.list_threads(0) == []

    @pytest.mark.parametrize("limit", [1, 7, 20, 1000])
    def test_pages_join(self, saver: SyncSaver, limit: int) -> None:
        """No gap and no duplicate, copies with equal ids included; long threads hide no short ones."""
        start = datetime(2026, 3, 1, tzinfo=UTC)
        for number in range(12):
            for step in range(90 if number == 6 else 2):
                made = start + timedelta(minutes=number, seconds=step / 2)
                saver.put(to_config(f"t{number}"), to_checkpoint(to_id(made)))
            for copy in range(number % 4):
                saver.copy_thread(f"t{number}", f"t{number} copy {copy}")
        seen: list[Thread] = []
        while page := saver.list_threads(limit, before=seen[-1] if seen else None):
            assert len(page) <= limit
            seen += page
        assert len(seen) == len({thread.thread_id for thread in seen}) == 12 + 18
        assert sorted(seen, key=lambda thread: (thread.checkpoint_id, thread.thread_id), reverse=True) == seen
        assert {thread.checkpoints for thread in seen} == {2, 90}

    @pytest.mark.parametrize(
        ("limit", "before"),
        [(-1, None), (1.5, None), (True, None), (1, "t"), (1, datetime(2026, 1, 1))],  # noqa: DTZ001  that is refused
    )
    def test_odd_pages_are_refused(self, saver: SyncSaver, limit: Any, before: Any) -> None:
        """By a ValueError of memstore's."""
        with pytest.raises(ValueError, match=r"limit|before") as refusal:
            saver.list_threads(limit, before)
        assert isinstance(refusal.value, MemStoreError)


class TransactionReports:
    """An application's own data and its threads, changed together."""

    def fill(self, store: MemStore) -> None:
        """Put an item and two threads."""
        store.put(("users",), "ada", {"name": "Ada"})
        for thread in ("t", "u"):
            put_thread(SyncSaver(store.saver()), thread, 3, run_id=f"run of {thread}")

    def look(self, store: MemStore) -> Any:
        """Give all of it."""
        saver = SyncSaver(store.saver())
        return [item.value for item in store.search(())], [see(saver, thread) for thread in ("t", "u", "v")]

    def test_both_are_changed(self, location: Place) -> None:
        """At the end of the block, and not before."""
        with location.open() as store:
            self.fill(store)
            before = self.look(store)
            with store.transaction() as tx:
                tx.delete(("users",), "ada")
                tx.put(("users",), "bob", {"name": "Bob"})
                tx.delete_thread("t")
                tx.copy_thread("u", "v")
                tx.prune(["u"])
                assert self.look(store) == before
            items, (t, u, v) = self.look(store)
            assert items == [{"name": "Bob"}]
            assert (t, len(u), v) == ([], 1, before[1][1])
            with store.transaction() as tx:
                tx.delete_for_runs(["run of u"])
            assert self.look(store) == ([{"name": "Bob"}], [[], [], []])

    def test_neither_is_changed_where_the_block_fails(self, location: Place) -> None:
        """Between the two deletes, sync and async."""

        def fail(store: MemStore) -> None:
            with store.transaction() as tx:
                tx.delete(("users",), "ada")
                tx.delete_thread("t")
                raise Interrupted

        async def afail(store: MemStore) -> None:
            async with store.transaction() as tx:
                tx.delete(("users",), "ada")
                tx.delete_thread("t")
                raise Interrupted

        with location.open() as store:
            self.fill(store)
            before = self.look(store)
            with pytest.raises(Interrupted):
                fail(store)
            assert self.look(store) == before
            with pytest.raises(Interrupted):
                asyncio.run(afail(store))
            assert self.look(store) == before

    def test_neither_is_changed_where_the_database_refuses(self, location: Place) -> None:
        """The last change cannot be made: those before it are rolled back with it."""

        def fail(store: MemStore) -> None:
            with store.transaction() as tx:
                tx.put(("users",), "bob", {"name": "Bob"})
                tx.delete_for_runs(["run of t"])
                store.saver().put(to_config("v"), to_checkpoint("own"), {}, {})
                tx.copy_thread("u", "v")

        with location.open() as store:
            self.fill(store)
            before = self.look(store)
            with pytest.raises(MemStoreError, match="of its own"):
                fail(store)
            items, (t, u, v) = self.look(store)
            assert (items, t, u) == (before[0], *before[1][:2])
            assert len(v) == 1

    def test_a_transaction_is_awaited_as_well(self, location: Place) -> None:
        """The same in an async block."""

        async def change() -> None:
            async with MemStore.from_conn_string(location.location, **location.options) as store:
                saver = store.saver()
                await saver.aput(to_config(), to_checkpoint("1"), {}, {})
                async with store.transaction() as tx:
                    tx.put(("users",), "bob", {"name": "Bob"})
                    tx.delete_thread("t")
                assert await saver.aget_tuple(to_config()) is None
                assert await store.aget(("users",), "bob") is not None

        asyncio.run(change())
