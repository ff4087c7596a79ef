"""Whose turn it is to write, how many may read, and what SQLite itself limits."""

from __future__ import annotations

import multiprocessing
import signal
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memstore import MemStore
from memstore.backends.connections import MAX_READERS, Readers, Turns, connect
from memstore.backends.sqlite import SqliteBackend
from memstore.errors import DatabaseDamaged, InvalidConfig, InvalidValue, StoreClosed
from tests.support import Clock, WordEmbeddings

USER = ("users", "ada")
PATIENCE = 30
"""Seconds until a thread that should have come counts as stuck."""


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds that another thread does."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.001)


def join(thread: threading.Thread) -> None:
    """Wait for a thread that ends."""
    thread.join(PATIENCE)
    assert not thread.is_alive()


# turns ---------------------------------------------------------------------------------------------------------------


def test_turns_are_given_in_the_order_of_asking() -> None:
    """A writer that came first writes first: none starves, however many ask."""
    turns, order = Turns(), list[int]()

    def take_a_turn(number: int) -> None:
        with turns:
            order.append(number)

    threads = [threading.Thread(target=take_a_turn, args=(number,)) for number in range(8)]
    with turns:
        for number, thread in enumerate(threads):
            thread.start()
            until(lambda number=number: len(turns._waiting) == number + 1)  # type: ignore[misc]  # mypy infers no type
    for thread in threads:
        join(thread)
    assert order == list(range(8))


def test_a_turn_is_tried_without_waiting() -> None:
    """What need not be written now is not waited for."""
    turns = Turns()
    assert turns.try_enter()
    assert not turns.try_enter()
    turns.__exit__()
    assert turns.try_enter()


def test_an_interrupted_waiter_leaves_the_queue() -> None:
    """Ctrl-C while another thread writes: whoever waited behind still gets its turn."""
    turns, entered = Turns(), threading.Event()
    let_go = threading.Event()

    def write() -> None:
        with turns:
            entered.set()
            let_go.wait()

    def interrupt() -> None:
        until(lambda: len(turns._waiting) == 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threads = [threading.Thread(target=write), threading.Thread(target=interrupt)]
    threads[0].start()
    entered.wait()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    threads[1].start()
    try:
        with pytest.raises(KeyboardInterrupt):
            turns.__enter__()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not turns._waiting
    let_go.set()
    for thread in threads:
        join(thread)
    assert turns.try_enter()


def test_a_turn_that_comes_with_the_interrupt_is_handed_on() -> None:
    """Where the waiter was let in at the very moment it was interrupted, its turn is not lost."""
    turns = Turns()
    assert turns.try_enter()
    came = threading.Event()
    came.set()
    turns._give_up(came)
    assert turns.try_enter()


def test_an_interrupt_before_the_queue_takes_nothing() -> None:
    """A turn that was neither waited for nor given is nobody's to hand on."""
    turns = Turns()
    assert turns.try_enter()
    turns._give_up(threading.Event())
    assert not turns.try_enter()


def test_stores_on_one_file_share_its_turns(tmp_path: Path) -> None:
    """However they spell its path; other files have their own, and so has each database in memory."""
    path, link = tmp_path / "memories.db", tmp_path / "link.db"
    link.symlink_to(path)
    spellings = [path, tmp_path / "x" / ".." / "memories.db", link, tmp_path / "other.db", None, None]
    backends = [SqliteBackend(spelling) for spelling in spellings]
    for backend in backends:
        backend.open()
    turns = [backend._turns for backend in backends]
    assert turns[0] is turns[1] is turns[2]
    assert len({id(each) for each in turns}) == 4
    for backend in backends:
        backend.close()


# readers -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def readers(path: Path) -> Iterator[Readers]:
    """Make readers of a new file; in the end each connection is back and closed."""
    with MemStore.open(path):
        pass
    readers = Readers(path)
    yield readers
    readers.close()


def borrow_in_a_thread(readers: Readers, got: list[Any]) -> threading.Thread:
    """Borrow a connection in a thread that is then waiting for it."""
    waiting = threading.Event()

    class Noticed(threading.Condition):
        """A condition that tells when somebody waits."""

        def wait(self, timeout: float | None = None) -> bool:
            """Wait."""
            waiting.set()
            return super().wait(timeout)

    readers._changed = Noticed()

    def borrow() -> None:
        try:
            got.append(readers.lend())
        except StoreClosed as error:
            got.append(error)

    thread = threading.Thread(target=borrow)
    thread.start()
    assert waiting.wait(PATIENCE)
    return thread


def test_a_reader_too_many_waits_for_one_to_come_back(readers: Readers) -> None:
    """No more connections are opened than stated; idle ones are lent again."""
    out = [readers.lend() for _ in range(MAX_READERS)]
    got: list[Any] = []
    thread = borrow_in_a_thread(readers, got)
    readers.take_back(out.pop())
    join(thread)
    assert isinstance(got[0], sqlite3.Connection)
    for connection in [*out, *got]:
        readers.take_back(connection)


def test_readers_wait_in_the_order_of_asking(readers: Readers) -> None:
    """A connection that comes back goes to who asked first: nobody is kept out for ever by those who ask again."""
    lent = [readers.lend() for _ in range(MAX_READERS)]
    first: list[Any] = []
    second: list[Any] = []
    thread = borrow_in_a_thread(readers, first)
    later = threading.Thread(target=lambda: second.append(readers.lend()))
    later.start()
    while len(readers._waiting) < 2:
        time.sleep(0.001)
    readers.take_back(lent[0])
    join(thread)
    assert (first, second) == ([lent[0]], [])
    readers.take_back(lent[1])
    join(later)
    assert second == [lent[1]]
    for connection in lent:
        readers.take_back(connection)


def test_a_reader_that_waits_while_the_store_closes_is_told(readers: Readers) -> None:
    """It does not wait for ever, and gets no connection to a closed store."""
    out = [readers.lend() for _ in range(MAX_READERS)]
    got: list[Any] = []
    thread = borrow_in_a_thread(readers, got)
    closing_thread = threading.Thread(target=readers.close)
    closing_thread.start()
    join(thread)
    assert isinstance(got[0], StoreClosed)
    for connection in out:
        readers.take_back(connection)
    join(closing_thread)


def test_a_reader_that_cannot_be_opened_is_not_counted(path: Path) -> None:
    """After errors as many connections can be lent as before."""
    readers = Readers(path)
    path.mkdir()
    for _ in range(MAX_READERS + 1):
        with pytest.raises(sqlite3.OperationalError):
            readers.lend()
    path.rmdir()
    out = [readers.lend() for _ in range(MAX_READERS)]
    for connection in out:
        readers.take_back(connection)
    readers.close()


# SQLite itself -------------------------------------------------------------------------------------------------------


def test_a_file_in_no_folder_is_a_setting_s_fault(tmp_path: Path) -> None:
    """The message says what to look at."""
    with pytest.raises(InvalidConfig, match="does its folder exist"):
        connect(tmp_path / "no" / "memories.db")


def test_a_connection_that_cannot_be_set_up_is_closed(path: Path) -> None:
    """A file that is no database leaves no connection behind; an unclosed one would warn."""
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(DatabaseDamaged), MemStore.open(path):
        pass
    path.unlink()
    MemStore.open(path).close()


def test_a_text_larger_than_sqlite_keeps_is_the_value_s_fault(path: Path, clock: Clock) -> None:
    """A billion bytes are too many for a row: an error about the value, and nothing is written."""
    backend = SqliteBackend(path, clock)
    with MemStore(backend) as store:
        store.put(USER, "small", {"text": "small"})
        assert backend._writer is not None
        backend._writer.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)  # so that the test need not build one
        with pytest.raises(InvalidValue, match="larger than SQLite keeps"):
            store.put(USER, "large", {"text": "x" * 100_001})
        assert store.get(USER, "large") is None
        store.put(USER, "small", {"text": "small again"})


def test_a_refresh_that_cannot_be_written_later_is_told_to_the_log(
    path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """While another writes, a read does not wait with its refresh; whoever made the read has gone when that fails."""
    backend = SqliteBackend(path, clock)
    with MemStore(backend) as store:
        store.put(USER, "k", {"text": "tea"}, ttl=10)
        clock.pass_minutes(5)
        with closing(sqlite3.connect(path, isolation_level=None)) as raw:
            raw.execute(
                "CREATE TRIGGER refuse BEFORE UPDATE ON memstore_items BEGIN SELECT RAISE(ABORT, 'refused'); END"
            )
        with backend._turns:
            assert store.get(USER, "k") is not None
    assert [message.split(";")[0] for message in caplog.messages] == [
        "a refresh was lost: The database refused: SQLITE_CONSTRAINT_TRIGGER"
    ]
    assert "tea" not in caplog.text


def use_in_child(store: MemStore, answers: Any) -> None:
    """Write and search in a forked child."""
    warnings.simplefilter("ignore")  # coverage warns at the end of a child whose modules came with the fork
    store.put(USER, "child", {"text": "from the child"})
    answers.put([item.key for item in store.search(USER, query="from the child", limit=1)])
    store.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # since Python 3.12, where the test run has threads
def test_a_store_works_on_both_sides_of_multiprocessing(path: Path) -> None:
    """A pool of forked workers is the usual way to use more cores: each side has its own connections and locks."""
    forking = multiprocessing.get_context("fork")
    with MemStore.open(path, index={"embed": WordEmbeddings(8)}) as store:
        store.put(USER, "parent", {"text": "from the parent"})
        answers = forking.SimpleQueue()
        children = [forking.Process(target=use_in_child, args=(store, answers)) for _ in range(2)]
        for child in children:
            child.start()
        assert [answers.get() for _ in children] == [["child"], ["child"]]
        for child in children:
            child.join(PATIENCE)
            assert child.exitcode == 0
        found = store.search(USER, query="from the child")
        assert [item.key for item in found] == ["child", "parent"]
        with closing(sqlite3.connect(path)) as raw:
            assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def ask_in_child(store: MemStore, answers: Any) -> None:
    """Use a store in memory in a forked child."""
    warnings.simplefilter("ignore")  # as above
    try:
        store.get(USER, "k")
    except StoreClosed as error:
        answers.put(str(error))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # since Python 3.12, where the test run has threads
def test_a_store_in_memory_stays_with_its_process() -> None:
    """The child would write to a copy that nobody sees: it is told so, and the parent goes on."""
    forking = multiprocessing.get_context("fork")
    with MemStore.open(":memory:") as store:
        answers = forking.SimpleQueue()
        child = forking.Process(target=ask_in_child, args=(store, answers))
        child.start()
        assert "does not cross a fork" in answers.get()
        child.join(PATIENCE)
        assert child.exitcode == 0
        store.put(USER, "k", {})
        assert store.get(USER, "k") is not None
