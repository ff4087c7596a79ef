"""Wide searches where something gives way: killed processes, full disks, failing models, damaged rows, interrupts."""

from __future__ import annotations

import itertools
import logging
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Literal

import pytest
from langgraph.store.base import PutOp, SearchOp

from memstore import MemStore
from memstore.backends.sqlite import SqliteBackend
from memstore.errors import DatabaseDamaged, DatabaseError, DatabaseFull
from memstore.index_file import IndexFile
from tests.children import DEADLINE, spawn
from tests.conformance.models import ModelDown
from tests.sqlite.faults import make_reader_faulty, make_writer_faulty
from tests.sqlite.wide_stores import (
    QuickEmbeddings,
    ask,
    ask_exactly,
    deletes,
    fill,
    index_path,
    opened,
    puts,
    text_of,
    unfinished,
    wide_index,
)
from tests.support import Clock, keys, open_sqlite

ROOT = Path(__file__).parents[2]
NAMES = ("ada", "bob")
KEPT = 30
"""Items that each writer leaves; it deletes what it wrote so many rounds before."""
WRITER = """
import sys
from langgraph.store.base import PutOp
from tests.sqlite.test_wide_faults import KEPT, text_by
from tests.sqlite.wide_stores import opened

path, name, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
with opened(path) as store:
    for number in range(first, 10**6):
        own = PutOp(("lives", name), str(number), {"text": text_by(name, number)})
        store.batch([own, PutOp(("lives", name), str(number - KEPT), None)])
        (found,) = store.search((), query=text_by(name, number), limit=1)
        assert (found.key, found.namespace[1]) == (str(number), name), found.key
        store._calls.close()
        print(number, flush=True)
"""
"""Writes, searches wide and saves the index file, and tells the number of each round that is through."""
TRAINED = "trained the index"
UNWRITTEN = "could not be written"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Give what the stores say."""
    caplog.set_level(logging.INFO, "memstore")
    return caplog


def text_by(name: str, number: int) -> str:
    """Make the text of a writer's item, which nobody else's is like."""
    return f"{name}{number} {text_of(number)}"


def live_until_killed(path: Path, told: dict[str, int], chance: random.Random) -> None:
    """Let every writer go on from where it was, kill them all at one moment, and note what each told of last."""
    writers = {
        name: subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name, str(told[name] + 1)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for name in NAMES
    }
    with ExitStack() as stack:
        for writer in writers.values():
            stack.enter_context(writer)
            stack.callback(writer.kill)
        lines: dict[str, list[str]] = {}
        for name, writer in writers.items():
            assert writer.stdout is not None
            lines[name] = [writer.stdout.readline() for _ in range(chance.randint(1, 20))]
        time.sleep(chance.random() * 0.02)
        for writer in writers.values():
            writer.kill()
        for name, writer in writers.items():
            assert writer.stdout is not None
            lines[name] += [line for line in writer.stdout if line.endswith("\n")]
            assert writer.wait(DEADLINE) == -signal.SIGKILL  # and not of an error of its own
            told[name] = int(lines[name][-1])


@pytest.mark.parametrize("seed", range(2))
def test_killed_processes_lose_nothing_and_leave_a_right_index(
    path: Path, log: pytest.LogCaptureFixture, seed: int
) -> None:
    """Two that write, search and save at once, killed three times: what was acknowledged is there and found first.

    The index file is whole or absent, and what was deleted is not found.
    """
    chance = random.Random(seed)  # noqa: S311  no secret
    fill(path, 300)
    told = dict.fromkeys(NAMES, 0)
    for _ in range(3):
        live_until_killed(path, told, chance)
        assert not index_path(path).exists() or IndexFile(path).load() is not None
        with opened(path) as store:
            for name in NAMES:
                last = told[name] + (store.get(("lives", name), str(told[name] + 1)) is not None)
                kept = range(max(1, last - KEPT + 1), last + 1)
                for number in kept:
                    (found,) = store.search((), query=text_by(name, number), limit=1)
                    assert (found.namespace, found.key) == (("lives", name), str(number))
                everything = store.search(("lives", name), query="w1", limit=1_000, mode="semantic")
                assert {int(item.key) for item in everything} == set(kept)
                told[name] = last
            assert store.check().ok
            assert store.stats().indexed_texts == store.stats().texts
            answers = ask(store)
        assert answers == ask_exactly(path)
    assert "is damaged" not in log.text


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of three megabytes."""
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if mount is None or umount is None:
        pytest.skip("there is no mount here")
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no small disk can be mounted: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run([umount, "-l", str(folder)], check=True)


def take_room(disk: Path, leave: int = 0) -> Path:
    """Fill a disk but for so many bytes; give the file to delete when there is to be room again."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        while (free := shutil.disk_usage(disk).free) > leave:
            file.write(bytes(free - leave))
    return ballast


class TestFullDisks:
    """Disks without room for the database, or for the index file."""

    def test_a_full_disk_loses_nothing(self, disk: Path, log: pytest.LogCaptureFixture) -> None:
        """The error says so; searches go on in every store, closing works, and with room so does the same write."""
        path = disk / "memories.db"
        fill(path, 400)
        with opened(path) as store:
            ask(store)
        whole = index_path(path).read_bytes()
        with ExitStack() as stack:
            store, other = (stack.enter_context(opened(path)) for _ in range(2))
            exact = stack.enter_context(opened(path, exact=True))
            store.batch([*puts(range(400, 410)), *deletes(range(5))])
            expected = ask(exact)
            ballast = take_room(disk)
            for _ in range(2):
                with pytest.raises(DatabaseFull, match="make room and try again"):
                    store.batch([SearchOp((), None, 3, 0, "w1 w7"), *puts(range(1_000, 1_400)), *deletes(range(50))])
                assert ask(store) == ask(other) == ask(exact) == expected
            assert store.check().ok
            stack.pop_all().close()  # with something to save in two of them, and no room for it
        assert UNWRITTEN in log.text
        assert index_path(path).read_bytes() == whole
        assert unfinished(path) == []
        ballast.unlink()
        log.clear()
        with opened(path) as store, opened(path, exact=True) as exact:
            assert ask(store) == expected
            store.batch([*puts(range(1_000, 1_400)), *deletes(range(50))])
            assert ask(store) == ask(exact)
            assert store.check().ok
        assert UNWRITTEN not in log.text
        assert index_path(path).read_bytes() != whole
        assert IndexFile(path).load() is not None

    def test_no_room_for_the_index_file_fails_no_call(self, disk: Path, log: pytest.LogCaptureFixture) -> None:
        """Neither the call that would save it nor `close`; nothing unfinished takes up what room there is."""
        path = disk / "memories.db"
        fill(path, 400)
        with opened(path) as store:
            expected = ask_exactly(path)
            store.put(("other",), "k", {"n": 1}, index=False)
            ballast = take_room(disk, leave=8_192)
            assert ask(store) == expected
            assert TRAINED in log.text
            assert UNWRITTEN in log.text
            assert unfinished(path) == []
            log.clear()
            for _ in range(2):
                assert ask(store) == expected
            assert log.text == ""  # it is not tried again at every search
        assert not index_path(path).exists()
        assert unfinished(path) == []
        ballast.unlink()
        with opened(path) as store:
            assert ask(store) == expected
        log.clear()
        with opened(path) as store:
            assert ask(store) == expected
        assert log.text == ""

    def test_opening_on_a_full_disk(self, disk: Path) -> None:
        """It is an error of the store's that a user can act on, and with room everything is there."""
        path = disk / "memories.db"
        fill(path, 400)
        expected = ask_exactly(path)
        ballast = take_room(disk)
        for _ in range(2):
            with pytest.raises(DatabaseError, match="disk"), opened(path) as store:
                ask(store)
        ballast.unlink()
        with opened(path) as store:
            assert ask(store) == expected
            assert store.check().ok

    def test_a_database_that_may_not_grow(self, path: Path) -> None:
        """At whatever page it is full: nothing of the batch is found, and once it may grow all of it is."""
        fill(path, 300)
        backend = SqliteBackend(path)
        with closing(MemStore(backend, index=wide_index())) as store, opened(path, exact=True) as exact:
            store.put(("a",), "k", {"text": "w1"})
            writer = make_writer_faulty(backend)
            ((pages,),) = writer.execute("PRAGMA page_count").fetchall()
            ops: list[Any] = [SearchOp((), None, 3, 0, "w1 w7"), *puts(range(300, 500)), *deletes(range(20))]
            failed = 0
            for more in itertools.count(0, 2):
                writer.execute(f"PRAGMA max_page_count = {pages + more}")
                exact.put(("a",), "k", {"text": f"w1 w{more}"})
                try:
                    store.batch(ops)
                except DatabaseFull:
                    failed += 1
                    assert ask(store, limit=3) == ask(exact, limit=3)
                else:
                    break
            assert failed >= 3
            assert ask(store) == ask(exact)
            assert store.check().ok


class FlakyEmbeddings(QuickEmbeddings):
    """The small embedding, which is down from one list of texts on, or for queries, when a test says so."""

    down_after: int | None = None
    """Lists of texts that are still embedded."""
    deaf = False
    """Whether it embeds no query."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts, or fail."""
        if self.down_after is not None:
            self.down_after -= 1
            if self.down_after < 0:
                raise ModelDown
        return super().embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        """Embed a query, or fail."""
        if self.deaf:
            raise ModelDown
        return super().embed_query(text)


def test_a_model_that_fails_leaves_nothing_in_the_index(path: Path) -> None:
    """At the first texts of a batch, half-way, or at its query: what it would have written or deleted is as before."""
    model = FlakyEmbeddings()
    fill(path, 300, embed=model)
    with (
        opened(path, embed=model) as store,
        opened(path, embed=model) as other,
        opened(path, exact=True, embed=model) as exact,
    ):
        expected = ask(exact)
        ops: list[Any] = [*puts(range(300, 1_200)), *deletes(range(20)), SearchOp((), None, 3, 0, "not asked before")]
        for at in itertools.count():
            model.down_after = at
            try:
                store.batch(ops[:-1])
            except ModelDown:
                model.down_after = None
                assert ask(store) == ask(other) == expected
                assert store.stats().indexed_texts == store.stats().texts == 300
            else:
                break
        assert at >= 2
        model.down_after, model.deaf = None, True
        expected, texts = ask(exact), store.stats().texts
        with pytest.raises(ModelDown):
            store.batch([*deletes(range(300, 320)), ops[-1]])
        assert ask(store) == ask(other) == expected
        assert store.stats().indexed_texts == store.stats().texts == texts
        model.deaf = False
        store.batch([*deletes(range(300, 320)), ops[-1]])
        assert ask(store) == ask(other) == ask(exact)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_search_leaves_a_right_index(path: Path, when: Literal["before", "after"]) -> None:
    """Ctrl-C at any statement of a search that has to catch up, or to begin anew: the next one is right."""
    fill(path, 300)
    backend = SqliteBackend(path)
    with closing(MemStore(backend, index=wide_index())) as store, opened(path, exact=True) as exact:
        store.setup()
        reader = make_reader_faulty(backend)
        for at in itertools.count(1):
            exact.batch([*deletes([at]), *puts([300 + at])])
            reader.arm(at, KeyboardInterrupt(), when)
            try:
                store.search(("wide",), query="w1 w7 w30", limit=3)
            except KeyboardInterrupt:
                assert not reader.in_transaction
                if at % 2:  # every other time with what the interrupt left behind, and one change more
                    exact.batch(deletes([100 + at]))
                assert ask(store, limit=3) == ask(exact, limit=3)
                assert store.stats().indexed_texts == store.stats().texts
            if reader.disarm():
                break
        assert at > 6
        assert ask(store) == ask(exact)


@pytest.mark.parametrize("change", ["vectors = substr(vectors, 1, 60)", "terms = substr(terms, 1, 7)"])
def test_damage_met_on_the_way_is_named_each_time(path: Path, change: str) -> None:
    """By an index that begins and by one that catches up; neither answers by half, and repaired both are right."""
    fill(path, 300)
    with ExitStack() as stack:
        behind = stack.enter_context(opened(path))
        ask(behind)
        exact = stack.enter_context(opened(path, exact=True))
        exact.batch([*deletes(range(10)), *puts(range(300, 320))])
        with closing(sqlite3.connect(path, isolation_level=None)) as raw:
            raw.execute(f"UPDATE memstore_items SET {change} WHERE key = 'k310'")  # noqa: S608  they stand above
        new = stack.enter_context(opened(path))
        for _ in range(2):
            for store in (behind, new):
                with pytest.raises(DatabaseDamaged):
                    store.search((), query="w1 w7")
        assert not new.check().ok
        assert new.check(repair=True).ok
        assert ask(behind) == ask(new) == ask(exact)
        assert behind.stats().indexed_texts == new.stats().indexed_texts == 310


def sweep(number: int, path: Path, clock: Clock) -> int:
    """Sweep what has expired; say how much that was."""
    assert number == 0
    with closing(open_sqlite(path, clock, wide_index(), None)) as store:
        return store.sweep_ttl()


def test_what_others_swept_or_hid_is_not_found(path: Path, clock: Clock) -> None:
    """By another process or store, one write ago: its texts are out of the index, though what was hid can be got."""
    fill(path, 300)
    with closing(open_sqlite(path, clock, wide_index(), None)) as store, opened(path) as other:
        store.batch([PutOp(("brief",), f"b{number}", {"text": text_of(number)}, ttl=5) for number in range(40)])
        ask(store)
        assert store.stats().indexed_texts == 340
        clock.pass_minutes(6)
        assert spawn(1, sweep, path, clock) == [40]
        expected = ask(store)
        assert store.stats().indexed_texts == store.stats().texts == 300
        other.put(("wide", "1"), "k100", {"text": text_of(100), "number": 100}, index=False)
        assert "k100" not in keys(store.search((), query=text_of(100), limit=1_000))
        assert store.get(("wide", "1"), "k100") is not None
        assert store.stats().indexed_texts == store.stats().texts == 299
        other.put(("wide", "1"), "k100", {"text": text_of(100), "number": 100})
        assert ask(store) == ask(other)
        hit = store.search((), query=text_of(100), limit=1, mode="semantic")
        assert [(item.key, item.score) for item in hit] == [("k100", 1.0)]
    assert ask_exactly(path) == expected
