"""The index file beside a database: used where it fits, never trusted, and no reason for a call to fail."""

from __future__ import annotations

import logging
import os
import random
import resource
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from memstore import MemStore
from tests.children import fork
from tests.sqlite.wide_stores import (
    CANDIDATES,
    DIMS,
    Answers,
    QuickEmbeddings,
    ask,
    ask_exactly,
    deletes,
    fill,
    index_path,
    opened,
    puts,
    unfinished,
    wide_index,
)

TRAINED = "trained the index"
DAMAGED = "is damaged"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Give what the stores say."""
    caplog.set_level(logging.INFO, "memstore")
    return caplog


def fill_and_save(path: Path, count: int = 600, seed: int = 0) -> None:
    """Make a database with its index file."""
    fill(path, count, seed)
    with opened(path) as store:
        ask(store)
    assert index_path(path).exists()


def expect(path: Path, expected: Answers, log: pytest.LogCaptureFixture, *, trains: bool | None) -> None:
    """See that a store answers as it should, and whether it had to compute anew what the file did not tell."""
    log.clear()
    with opened(path) as store:
        assert ask(store) == expected
        assert store.check().ok
        if trains is not None:
            assert (TRAINED in log.text) == trains, log.text
    assert unfinished(path) == []


class TestUse:
    """When the file is written and read."""

    def test_it_appears_and_is_used(self, path: Path, log: pytest.LogCaptureFixture) -> None:
        """Once a wide search had something to compute; whoever opens the store next has it computed already."""
        fill(path)
        assert not index_path(path).exists()
        expected = ask_exactly(path)
        assert not index_path(path).exists()
        expect(path, expected, log, trains=True)
        assert index_path(path).exists()
        assert unfinished(path) == []
        for _ in range(2):
            before = index_path(path).read_bytes()
            expect(path, expected, log, trains=False)
            assert index_path(path).read_bytes() == before  # nothing has changed: it is not written again

    def test_only_its_owner_may_read_it(self, path: Path) -> None:
        """Like the database, whatever files are usually made with."""
        before = os.umask(0)
        try:
            fill_and_save(path)
        finally:
            os.umask(before)
        assert stat.S_IMODE(index_path(path).stat().st_mode) == 0o600

    def test_closing_saves_what_came_since(self, path: Path, log: pytest.LogCaptureFixture) -> None:
        """A few items more, and a few less, are not saved at once but in the end; the next store adopts them."""
        fill_and_save(path)
        saved = index_path(path).read_bytes()
        with opened(path) as store:
            store.batch(puts(range(600, 620)))
            store.batch(deletes(range(0, 60, 7)))
            ask(store)
            assert index_path(path).read_bytes() == saved
        assert index_path(path).read_bytes() != saved
        expect(path, ask_exactly(path), log, trains=False)

    def test_what_no_search_saw_is_made_up_for(self, path: Path, log: pytest.LogCaptureFixture) -> None:
        """Written to while nobody searched, by many stores: the file is behind, and what it knows is used."""
        fill_and_save(path)
        for number in range(600, 640, 10):
            with opened(path) as store:
                store.batch(puts(range(number, number + 10)))
                store.batch(deletes([number - 300]))
        expect(path, ask_exactly(path), log, trains=False)

    def test_stats_tell_of_it(self, path: Path) -> None:
        """Bytes on disk, and texts in memory once a search was wide."""
        fill_and_save(path)
        with opened(path) as store:
            assert store.stats().index_bytes == index_path(path).stat().st_size > 0
            assert store.stats().indexed_texts == 0
            ask(store)
            assert store.stats().indexed_texts == store.stats().texts == 600
            store.batch(deletes(range(10)))
            ask(store)
            assert store.stats().indexed_texts == 590

    def test_few_texts_need_no_file(self, path: Path) -> None:
        """As many texts as candidates: all are scored, nothing is computed beforehand, nothing is kept."""
        fill(path, CANDIDATES)
        with opened(path) as store:
            assert ask(store) == ask_exactly(path)
        assert not index_path(path).exists()

    def test_a_database_in_memory_has_no_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """And answers alike."""
        monkeypatch.chdir(tmp_path)
        fill(tmp_path / "file.db")
        with MemStore.open(":memory:", index=wide_index()) as store:
            store.batch(puts(range(600)))
            assert ask(store) == ask_exactly(tmp_path / "file.db")
        assert [entry.name for entry in tmp_path.iterdir()] == ["file.db"]


class TestDamage:
    """Files that are not what was written."""

    def test_a_deleted_file_is_made_anew(self, path: Path, log: pytest.LogCaptureFixture) -> None:
        """It is a cache: whoever deletes it loses nothing."""
        fill_and_save(path)
        index_path(path).unlink()
        expected = ask_exactly(path)
        expect(path, expected, log, trains=True)
        expect(path, expected, log, trains=False)

    @pytest.mark.parametrize("part", range(4))
    def test_a_truncated_file_is_made_anew(self, path: Path, log: pytest.LogCaptureFixture, part: int) -> None:
        """Wherever it ends, in its head, at an edge or one byte short: it is not used, and it is replaced."""
        fill_and_save(path)
        expected, whole = ask_exactly(path), index_path(path).read_bytes()
        places = [0, 1, 16, 17, 48, 49, 50, len(whole) - 1, *(len(whole) * n // 13 for n in range(1, 13))]
        assert len(places) == 20
        for place in places[part::4]:
            index_path(path).write_bytes(whole[:place])
            expect(path, expected, log, trains=True)
            assert DAMAGED in log.text
            assert index_path(path).read_bytes() == whole  # what is computed anew is the same

    @pytest.mark.parametrize("part", range(5))
    def test_a_flipped_byte_is_seen(self, path: Path, log: pytest.LogCaptureFixture, part: int) -> None:
        """Any one, in the head, in names, codes, ids and fingerprints: the file is not used, and it is replaced."""
        fill_and_save(path)
        expected, whole = ask_exactly(path), index_path(path).read_bytes()
        chance = random.Random(part)  # noqa: S311  no secret
        places = [part, 12 + part, 17 + 6 * part, 49 + part, *(chance.randrange(len(whole)) for _ in range(6))]
        for place in places:
            damaged = bytearray(whole)
            damaged[place] ^= 1 << chance.randrange(8)
            index_path(path).write_bytes(damaged)
            expect(path, expected, log, trains=True)
            assert DAMAGED in log.text
        assert index_path(path).read_bytes() == whole

    @pytest.mark.parametrize(
        "content", [b"", b"SQLite format 3\0" * 400, b"memstore index 1\n", b"memstore index 2\n" * 99]
    )
    def test_any_other_file_is_replaced(self, path: Path, log: pytest.LogCaptureFixture, content: bytes) -> None:
        """Whatever came to be called so."""
        fill(path)
        index_path(path).write_bytes(content)
        expected = ask_exactly(path)
        expect(path, expected, log, trains=True)
        expect(path, expected, log, trains=False)

    @pytest.mark.parametrize("other", ["other texts", "other dims", "another model", "more texts", "fewer texts"])
    def test_the_file_of_another_store(
        self, path: Path, tmp_path: Path, log: pytest.LogCaptureFixture, other: str
    ) -> None:
        """Whole, with the very ids of this one, but of other vectors: what it says of them is not believed."""
        fill(path)
        foreign = tmp_path / "foreign.db"
        options: dict[str, Any] = {}
        if other in ("other dims", "another model"):
            options["embed"] = QuickEmbeddings(DIMS + (8 if other == "other dims" else 0), salt="other")
        fill(foreign, {"more texts": 900, "fewer texts": 300}.get(other, 600), seed=7, **options)
        with opened(foreign, **options) as store:
            ask(store)
        shutil.copy(index_path(foreign), index_path(path))
        expected = ask_exactly(path)
        expect(path, expected, log, trains=True)
        expect(path, expected, log, trains=False)

    def test_an_older_file_of_its_own(self, path: Path, log: pytest.LogCaptureFixture) -> None:
        """What has changed since is computed, what has not is taken from it."""
        fill_and_save(path)
        shutil.copy(index_path(path), path.with_name("older"))
        with opened(path) as store:
            store.batch(puts(range(600, 800)))
            store.batch(puts(range(40), seed=3))
            store.batch(deletes(range(200, 300)))
            ask(store)
        shutil.copy(path.with_name("older"), index_path(path))
        expect(path, ask_exactly(path), log, trains=False)

    @pytest.mark.parametrize("written", ["not", "otherwise", "with other texts", "much"])
    def test_a_database_that_went_back(self, path: Path, log: pytest.LogCaptureFixture, written: str) -> None:
        """An older copy of the database beside a newer file, also when ids were given anew to other items since."""
        fill_and_save(path)
        shutil.copy(path, path.with_name("copy"))
        with opened(path) as store:
            store.batch(puts(range(600, 700)))
            store.batch(deletes(range(100)))
            ask(store)
        shutil.copy(path.with_name("copy"), path)
        assert not path.with_name(path.name + "-wal").exists()
        if written != "not":
            with opened(path, exact=True) as store:
                if written == "otherwise":
                    store.batch(deletes(range(300, 350)))
                    store.batch(puts(range(700, 760)))
                elif written == "with other texts":
                    store.batch(puts(range(600, 700), seed=9))
                    store.batch(deletes(range(100)))
                else:
                    store.batch(puts(range(600), seed=9))
        expected = ask_exactly(path)
        expect(path, expected, log, trains=None)
        expect(path, expected, log, trains=False)


class TestFailures:
    """Places where no file can be written."""

    @contextmanager
    def closing(self, path: Path, log: pytest.LogCaptureFixture) -> Iterator[MemStore]:
        """Open a store that has something to save, and see that closing it says what went wrong, and closes."""
        with opened(path) as store:
            yield store
            log.clear()
        assert "could not be written" in log.text
        with pytest.raises(RuntimeError):
            store.get(("a",), "k")

    def test_a_folder_where_the_file_should_be(self, path: Path, log: pytest.LogCaptureFixture) -> None:
        """Searches and `close` work; the log says what could not be written, and nothing unfinished is left."""
        fill(path)
        index_path(path).mkdir()
        expected = ask_exactly(path)
        with self.closing(path, log) as store:
            assert ask(store) == expected
            store.batch(puts(range(600, 610)))
            ask(store)
        assert unfinished(path) == []
        assert index_path(path).is_dir()

    def test_a_name_too_long_for_the_file(self, tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
        """A database whose name leaves no room for a longer one beside it has no file, and works."""
        path = tmp_path / ("n" * 240)
        fill(path)
        with self.closing(path, log) as store:
            assert ask(store) == ask_exactly(path)
            store.batch(puts(range(600, 610)))
            ask(store)
            assert store.stats().index_bytes == 0

    def test_a_full_disk(self, path: Path, log: pytest.LogCaptureFixture) -> None:
        """Half a file is not left, the old one stays and is used, and later saving works again."""
        fill_and_save(path)
        whole = index_path(path).read_bytes()

        def child() -> tuple[bool, str]:
            store = MemStore.open(path, index=wide_index())
            store.batch(puts(range(600, 620)))
            ask(store)
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            assert store._calls is not None
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) // 2, hard))
            try:
                store._calls.close()
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            same = index_path(path).read_bytes() == whole
            store.close()
            return same, log.text

        same, said = fork(child)
        assert same
        assert "could not be written" in said
        assert unfinished(path) == []
        expect(path, ask_exactly(path), log, trains=False)

    def test_a_folder_that_may_only_be_read(self, path: Path, log: pytest.LogCaptureFixture) -> None:
        """Closing works there too."""
        fill(path)

        def child() -> str:
            store = MemStore.open(path, index=wide_index())
            path.parent.chmod(0o555)
            if os.geteuid() == 0:  # who may write everywhere
                os.seteuid(65534)
            ask(store)
            store.close()
            return log.text

        try:
            assert "could not be written" in fork(child)
        finally:
            path.parent.chmod(0o755)
        assert not index_path(path).exists()
        expect(path, ask_exactly(path), log, trains=True)
