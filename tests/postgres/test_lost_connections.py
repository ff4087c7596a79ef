"""Rule 29 on Postgres: lost connections are replaced, and what ran on them is run again, but never applied twice."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psycopg
import pytest
from langgraph.store.base import GetOp, Op, PutOp, SearchOp

from memstore import DatabaseError
from tests.conformance.concurrency import run_together
from tests.postgres.losses import (
    EVERY_WHEN,
    Losses,
    When,
    contents,
    count_connections,
    end_all,
    open_named,
    versions,
)
from tests.support import AsyncCaller, Clock, SyncCaller, WordEmbeddings, keys

INDEX: dict[str, Any] = {"embed": WordEmbeddings(8), "fields": ["text", "tags[*]"]}
ADA, BOB, EVE = ("users", "ada"), ("users", "bob"), ("users", "eve")
BASE: list[Op] = [
    PutOp(ADA, "tea", {"text": "green tea", "tags": ["hot", "drink"]}),
    PutOp(ADA, "dog", {"text": "two dogs"}),
    PutOp(BOB, "cat", {"text": "three cats"}, ttl=10),
]
NEW: list[Op] = [PutOp(ADA, "new", {"text": "a new text"})]
WRITES: dict[str, list[Op]] = {
    "new item": NEW,
    "new namespace": [PutOp(EVE, "new", {"text": "a new text", "tags": ["one", "two"]})],
    "delete": [PutOp(ADA, "tea", None)],
    "delete of the last": [PutOp(BOB, "cat", None)],
    "batch": [
        GetOp(ADA, "tea"),
        SearchOp(("users",), query="green tea"),
        PutOp(ADA, "tea", {"text": "white tea"}),
        PutOp(BOB, "cat", None),
        PutOp(EVE, "new", {"text": "something new"}, ttl=5),
        PutOp(ADA, "dog", {"text": "a dog"}, index=False),
    ],
}
READS: dict[str, Callable[[SyncCaller], Any]] = {
    "get": lambda caller: caller.get(ADA, "tea"),
    "get that refreshes": lambda caller: caller.get(BOB, "cat"),
    "search": lambda caller: caller.search(()),
    "query": lambda caller: caller.search((), query="green tea and dogs", filter={"text": {"$ne": "x"}}),
    "list_namespaces": lambda caller: caller.list_namespaces(),
}
every_when = pytest.mark.parametrize("when", EVERY_WHEN)
INSERT, COMMIT, ASK = "INSERT INTO", "COMMIT", "SELECT pg_xact_status"


@pytest.fixture
def losses(raw: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> Losses:
    """Lose connections when told to."""
    return Losses(raw, monkeypatch)


@pytest.fixture(params=["sync", "async"])
def opening(
    request: pytest.FixtureRequest, url: str, schema: str, clock: Clock, runner: asyncio.Runner
) -> Iterator[Callable[..., SyncCaller]]:
    """Open stores whose connections bear the name of the schema; `pool` settings may be given."""
    opened: list[SyncCaller] = []

    def open_(**pool: Any) -> SyncCaller:
        opened.append(open_named((url, schema), clock, runner if request.param == "async" else None, INDEX, **pool))
        return opened[-1]

    yield open_
    for caller in opened:
        caller.close()


@pytest.fixture
def caller(opening: Callable[..., SyncCaller]) -> SyncCaller:
    """Open a store with some items."""
    caller = opening()
    caller.batch(BASE)
    return caller


def begin_again(caller: SyncCaller, raw: psycopg.Connection[Any]) -> dict[str, int]:
    """Put back what the tests begin with; give the namespaces' versions."""
    caller.batch([PutOp(EVE, "new", None), PutOp(ADA, "new", None), *BASE])
    return versions(raw)


def assert_applied_once(
    caller: SyncCaller, raw: psycopg.Connection[Any], ops: list[Op], before: dict[str, int]
) -> None:
    """Assert that every write of a batch is there, that it was one transaction, and that the store is sound."""
    after = versions(raw)
    for op in ops:
        if isinstance(op, PutOp):
            item = caller.get(op.namespace, op.key, refresh_ttl=False)
            assert (item and item.value) == op.value
            path = "".join(f"{label}/" for label in op.namespace)
            assert after.get(path) in (None, before.get(path, 0) + 1)
    assert caller.check().problems == ()


def assert_works(caller: SyncCaller) -> None:
    """Assert that a store still writes, reads and finds."""
    caller.put(("after",), "k", {"text": "after the loss"})
    assert keys(caller.search(("after",), query="after the loss")) == ["k"]
    caller.delete(("after",), "k")
    assert caller.get(("after",), "k") is None


class TestIdleConnections:
    """Connections that ended while nobody used them."""

    def test_all_are_replaced_unseen(
        self, opening: Callable[..., SyncCaller], raw: psycopg.Connection[Any], schema: str
    ) -> None:
        """Whether one call comes or many at once, of every kind."""
        caller = opening(min_size=8, max_size=8)
        caller.batch(BASE)
        for use in (*READS.values(), assert_works):
            self._fill(caller, raw, schema, 8)
            assert end_all(raw, schema) == 8
            use(caller)
        self._fill(caller, raw, schema, 8)
        end_all(raw, schema)
        self._use_at_once(caller, 16)

    def test_many_do_not_keep_a_call_waiting(
        self, opening: Callable[..., SyncCaller], raw: psycopg.Connection[Any], schema: str
    ) -> None:
        """After a failover every idle connection of a large pool is gone; the first call waits for one, not for all."""
        caller = opening(min_size=24, max_size=24)
        self._fill(caller, raw, schema, 24)
        assert end_all(raw, schema) == 24
        began = time.monotonic()
        assert caller.get(ADA, "tea") is None
        assert time.monotonic() - began < 3

    @staticmethod
    def _fill(caller: SyncCaller, raw: psycopg.Connection[Any], schema: str, size: int) -> None:
        """Wait until the pool has all its connections."""
        deadline = time.monotonic() + 20
        while count_connections(raw, schema) != size:
            assert time.monotonic() < deadline
            if isinstance(caller, AsyncCaller):
                caller._runner.run(asyncio.sleep(0.01))  # an event loop makes connections only while it runs
            else:
                time.sleep(0.01)

    @staticmethod
    def _use_at_once(caller: SyncCaller, count: int) -> None:
        """Make many calls at once, reads and writes."""
        store = caller.store

        async def together() -> None:
            puts = [store.aput(ADA, f"k{number}", {"text": "a text"}) for number in range(count)]
            await asyncio.gather(*puts, *(store.aget(ADA, "tea") for _ in range(count)))

        if isinstance(caller, AsyncCaller):
            caller._runner.run(together())
        else:
            puts = [partial(store.put, ADA, f"k{number}", {"text": "a text"}) for number in range(count)]
            run_together([*puts, *(partial(store.get, ADA, "tea") for _ in range(count))])
        assert len(caller.search(ADA, limit=1000)) == count + 2


class TestOneLoss:
    """A connection that is lost once, at any statement of a call."""

    @every_when
    @pytest.mark.parametrize("ops", WRITES.values(), ids=WRITES.keys())
    def test_a_write_is_applied_once(
        self, caller: SyncCaller, losses: Losses, raw: psycopg.Connection[Any], ops: list[Op], when: When
    ) -> None:
        """At BEGIN, at every statement and at COMMIT: the call succeeds, and what it writes is there once."""
        for at in itertools.count(1):
            before = begin_again(caller, raw)
            losses.arm([at], when)
            caller.batch(ops)
            if losses.disarm():
                break
            assert_applied_once(caller, raw, ops, before)
        assert at > 5
        assert_works(caller)

    @every_when
    @pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
    def test_a_read_answers(
        self,
        caller: SyncCaller,
        losses: Losses,
        clock: Clock,
        read: Callable[[SyncCaller], Any],
        when: When,
    ) -> None:
        """At BEGIN, at every statement and at COMMIT: the call succeeds, and the answer is the same."""
        answer = read(caller)
        for at in itertools.count(1):
            clock.pass_minutes(1)
            losses.arm([at], when)
            assert read(caller) == answer
            if losses.disarm():
                break
        assert at > 1
        assert_works(caller)

    def test_a_statement_may_be_under_way(
        self, caller: SyncCaller, raw: psycopg.Connection[Any], url: str, schema: str
    ) -> None:
        """Lost while it waits for another's lock, a write waits again, and is applied once."""
        before = begin_again(caller, raw)
        lost = list[Any]()
        ending = """
            SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
            WHERE wait_event_type = 'Lock' AND application_name = %s"""

        def lose() -> None:
            until = time.monotonic() + 10
            while not lost and time.monotonic() < until:
                lost.extend(raw.execute(ending, [schema]).fetchall())
                time.sleep(0.2)
            other.rollback()

        with psycopg.connect(url) as other:
            other.execute(f'SELECT FROM "{schema}".memstore_namespaces FOR UPDATE')
            run_together([lose, partial(caller.batch, NEW)])
        assert lost == [(True,)]
        assert_applied_once(caller, raw, NEW, before)

    @every_when
    def test_a_refresh_is_not_lost(
        self, caller: SyncCaller, losses: Losses, raw: psycopg.Connection[Any], clock: Clock, when: When
    ) -> None:
        """What a read writes after it has its answer is tried again too."""

        def expiry() -> Any:
            return raw.execute("SELECT expires_at FROM memstore_items WHERE key = 'cat'").fetchone()

        for at in itertools.count(1):
            clock.pass_minutes(1)
            expires_at = expiry()
            losses.arm([at], when)
            assert caller.get(BOB, "cat") is not None
            waiting = losses.disarm()
            assert expiry() > expires_at
            if waiting:
                break
        assert at > 3

    @every_when
    def test_a_sweep_counts_once(
        self, caller: SyncCaller, losses: Losses, raw: psycopg.Connection[Any], clock: Clock, when: When
    ) -> None:
        """What has expired is deleted, and counted, whichever statement is lost."""
        for at in itertools.count(1):
            begin_again(caller, raw)
            clock.pass_minutes(11)
            losses.arm([at], when)
            assert caller.sweep() == 1
            if losses.disarm():
                break
            assert caller.check().problems == ()
        assert at > 5

    def test_an_opening_succeeds(
        self, opening: Callable[..., SyncCaller], losses: Losses, raw: psycopg.Connection[Any], schema: str
    ) -> None:
        """Tables are made and settings recorded once, whichever statement is lost."""
        for at in itertools.count(1):
            raw.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
            losses.arm([at], "unanswered")
            caller = opening()
            if losses.disarm():
                break
            assert_works(caller)
            caller.close()
        assert at > 20


class TestCommit:
    """Connections that are lost while a transaction is committed."""

    def test_what_was_committed_is_not_done_again(
        self, caller: SyncCaller, losses: Losses, raw: psycopg.Connection[Any]
    ) -> None:
        """The server is asked: it says so, and the call reports success without writing anew."""
        before = begin_again(caller, raw)
        losses.arm([1], "unanswered", COMMIT)
        caller.batch(NEW)
        assert not losses.disarm()
        assert sum(ASK in sql for sql in losses.statements) == 1
        assert losses.statements.count(COMMIT) == 1
        assert versions(raw)["users/ada/"] == before["users/ada/"] + 1

    def test_what_was_not_committed_is_done_again(
        self, caller: SyncCaller, losses: Losses, raw: psycopg.Connection[Any]
    ) -> None:
        """The server is asked: it says so, and the call writes anew."""
        before = begin_again(caller, raw)
        losses.arm([1], "before", COMMIT)
        caller.batch(NEW)
        assert not losses.disarm()
        assert sum(ASK in sql for sql in losses.statements) == 1
        assert_applied_once(caller, raw, NEW, before)

    @every_when
    def test_the_question_may_be_lost_too(
        self, caller: SyncCaller, losses: Losses, raw: psycopg.Connection[Any], when: When
    ) -> None:
        """It changes nothing, and is asked again."""
        before = begin_again(caller, raw)
        losses.arm([1, 2, 3], when, ASK)
        losses.leave_unanswered(COMMIT)
        caller.batch(NEW)
        assert_applied_once(caller, raw, NEW, before)

    def test_an_outcome_nobody_tells_is_called_unknown(
        self, opening: Callable[..., SyncCaller], losses: Losses, raw: psycopg.Connection[Any]
    ) -> None:
        """Where the server cannot be asked, the error does not say that nothing was written: here it was."""
        caller = opening(timeout=0.3)
        before = begin_again(caller, raw)
        losses.arm(range(1, 10_000), "before", ASK)
        losses.leave_unanswered(COMMIT)
        with pytest.raises(DatabaseError, match="read whether it was applied"):
            caller.batch(NEW)
        losses.disarm()
        assert_applied_once(caller, raw, NEW, before)
        assert_works(caller)


class TestTwoLosses:
    """Connections that are lost again when the call is tried again."""

    @pytest.mark.parametrize("only", [INSERT, "WITH", "UPDATE"])
    @every_when
    def test_a_call_that_is_lost_twice_is_an_error(
        self, caller: SyncCaller, losses: Losses, raw: psycopg.Connection[Any], only: str, when: When
    ) -> None:
        """It may be the call itself that ends connections: it is not tried for ever, and nothing of it is there."""
        begin_again(caller, raw)
        rows = contents(raw)
        losses.arm(range(1, 10_000), when, only)
        with pytest.raises(DatabaseError, match="twice in a row; nothing of this call was written"):
            caller.put(ADA, "tea", {"text": "other tea"})
        losses.disarm()
        assert contents(raw) == rows
        assert_works(caller)

    def test_a_commit_that_is_lost_twice_is_an_error(
        self, caller: SyncCaller, losses: Losses, raw: psycopg.Connection[Any]
    ) -> None:
        """Both times before the server saw it: nothing is there, and the error is memstore's own."""
        begin_again(caller, raw)
        rows = contents(raw)
        losses.arm([1, 2], "before", COMMIT)
        with pytest.raises(DatabaseError, match="nothing of this call was written"):
            caller.put(ADA, "tea", {"text": "other tea"})
        assert not losses.disarm()
        assert contents(raw) == rows
        assert_works(caller)

    @pytest.mark.parametrize("first", [INSERT, COMMIT])
    def test_a_second_loss_may_hide_a_success(
        self, caller: SyncCaller, losses: Losses, raw: psycopg.Connection[Any], first: str
    ) -> None:
        """Tried again and committed, its answer lost: the server is asked, and the call has succeeded once."""
        before = begin_again(caller, raw)
        losses.arm([1], "before", first)
        losses.leave_unanswered(COMMIT, after_the_others=True)
        caller.batch(NEW)
        assert not losses.disarm()
        assert_applied_once(caller, raw, NEW, before)

    def test_connections_that_are_lost_at_once_are_an_error_in_time(
        self, opening: Callable[..., SyncCaller], losses: Losses, raw: psycopg.Connection[Any]
    ) -> None:
        """Where every BEGIN is lost the call ends with the pool's timeout, and nothing of it is there."""
        caller = opening(timeout=0.5)
        begin_again(caller, raw)
        rows = contents(raw)
        losses.arm(range(1, 10_000), "before", "BEGIN")
        began = time.monotonic()
        with pytest.raises(DatabaseError):
            caller.delete(ADA, "tea")
        assert time.monotonic() - began < 5
        losses.disarm()
        assert contents(raw) == rows
        assert_works(caller)
