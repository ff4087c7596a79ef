"""Rules 28, 30 and 31 on SQLite: the files themselves, and those that are not what they should be."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from memstore import (
    DatabaseDamaged,
    DatabaseError,
    IndexMismatch,
    InvalidConfig,
    MemStore,
    MemStoreError,
    ModelUnavailable,
    NewerDatabase,
)
from tests.support import WordEmbeddings, keys

INDEX = {"embed": WordEmbeddings(), "fields": ["text"]}


@contextmanager
def unprivileged() -> Iterator[None]:
    """Act as a user to whom permissions apply: root may write everywhere."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


@contextmanager
def permissions(*modes: tuple[Path, int]) -> Iterator[None]:
    """Change what may be done with files and folders for a while."""
    before = [(path, stat.S_IMODE(path.stat().st_mode)) for path, _ in modes]
    for path, mode in modes:
        path.chmod(mode)
    try:
        yield
    finally:
        for path, mode in reversed(before):
            path.chmod(mode)


def files_of(path: Path) -> dict[str, int]:
    """Give the permissions of a database and what SQLite keeps beside it."""
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.glob(path.name + "*")}


class TestFiles:
    """What lies on disk."""

    def test_files_are_private(self, path: Path) -> None:
        """Memories are their owner's alone, whatever the umask allows: the database, its log and its shared memory."""
        mask = os.umask(0)
        try:
            with MemStore.open(path, index=INDEX) as store:
                store.put(("a",), "k", {"text": "apples"})
                assert files_of(path) == {"memories.db": 0o600, "memories.db-wal": 0o600, "memories.db-shm": 0o600}
        finally:
            os.umask(mask)
        assert files_of(path) == {"memories.db": 0o600}

    def test_a_closed_store_leaves_one_file(self, path: Path) -> None:
        """The last to close takes log and shared memory away, so that the file can be copied or moved."""
        one, two = MemStore.open(path, index=INDEX), MemStore.open(path, index=INDEX)
        one.put(("a",), "k", {"text": "apples"})
        assert keys(two.search((), query="apples")) == ["k"]
        one.close()
        two.close()
        moved = path.rename(path.with_name("moved.db"))
        assert set(files_of(moved)) == {"moved.db"}
        with MemStore.open(moved, index=INDEX) as store:
            assert keys(store.search((), query="apples")) == ["k"]

    def test_a_relative_path_means_the_folder_of_its_opening(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A program that changes its folder later keeps its memories where they are."""
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path)
        MemStore.open("memories.db").close()
        with MemStore.open("memories.db", index=INDEX) as store:
            monkeypatch.chdir(tmp_path / "elsewhere")
            store.put(("a",), "k", {"text": "apples"})
            assert keys(store.search((), query="apples")) == ["k"]
            assert store.stats().database_bytes > 0
        assert list((tmp_path / "elsewhere").iterdir()) == []

    @pytest.mark.parametrize("form", ["{}", "sqlite:///{}"])
    def test_a_path_has_several_spellings(self, path: Path, form: str) -> None:
        """Text, a URL or a Path name the same file, also one whose name is odd."""
        odd = path.with_name("so me?#%41 é.db")
        with MemStore.open(form.format(odd)) as store:
            store.put(("a",), "k", {})
        assert odd.exists()
        with MemStore.open(odd) as store:
            assert keys(store.search(())) == ["k"]

    def test_another_program_s_tables_are_left_alone(self, path: Path) -> None:
        """Memories may live in a database that holds other things: ours carry a prefix, theirs stay."""
        with closing(sqlite3.connect(path)) as raw:
            raw.execute("CREATE TABLE store (prefix TEXT, key TEXT)")
            raw.execute("INSERT INTO store VALUES ('a', 'k')")
            raw.commit()
        with MemStore.open(path, index=INDEX) as store:
            store.put(("a",), "k", {"text": "apples"})
        with closing(sqlite3.connect(path)) as raw:
            assert raw.execute("SELECT * FROM store").fetchall() == [("a", "k")]
            names = {name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert all(name.startswith(("memstore_", "sqlite_")) for name in names - {"store"})


class TestRefusedFiles:
    """Files that cannot be opened are left as they are, and the error says why."""

    async def test_a_newer_database_is_refused(self, path: Path, raw: sqlite3.Connection) -> None:
        """Its tables may mean something else: nothing of it is read or written."""
        with MemStore.open(path) as store:
            store.put(("a",), "k", {})
        raw.execute("INSERT INTO memstore_migrations (number, name, applied_at) VALUES (999, 'do_new_things', 0)")
        for index in (None, INDEX):
            with pytest.raises(NewerDatabase, match=r"999.*newer memstore"):
                MemStore.open(path, index=index)
            with pytest.raises(NewerDatabase):
                await MemStore.from_conn_string(path, index=index).aget(("a",), "k")
        raw.execute("DELETE FROM memstore_migrations WHERE number = 999")
        with MemStore.open(path) as store:
            assert keys(store.search(())) == ["k"]

    def test_a_database_with_another_history_is_refused(self, path: Path, raw: sqlite3.Connection) -> None:
        """A migration of another name under a known number is not ours."""
        MemStore.open(path).close()
        raw.execute("UPDATE memstore_migrations SET name = 'something_else'")
        with pytest.raises(DatabaseError, match="something_else"):
            MemStore.open(path)

    def test_damaged_settings_are_named(self, path: Path, raw: sqlite3.Connection) -> None:
        """Index settings that cannot be read are an error of ours."""
        MemStore.open(path, index=INDEX).close()
        raw.execute("""UPDATE memstore_index SET settings = '{"metric": 5}'""")
        with pytest.raises(DatabaseDamaged, match="settings"):
            MemStore.open(path)

    def test_a_remembered_model_that_is_gone_stops_no_reads(self, path: Path, raw: sqlite3.Connection) -> None:
        """Opened plainly where the model's provider is missing: reads work, a put that needs the model raises."""
        with MemStore.open(path, index=INDEX) as store:
            store.put(("a",), "k", {"text": "apples"})
        raw.execute("UPDATE memstore_index SET settings = json_set(settings, '$.embed', 'nosuchprovider:model')")
        with MemStore.open(path) as store:
            assert keys(store.search(())) == ["k"]
            with pytest.warns(UserWarning, match="index"):
                assert [(hit.key, hit.score) for hit in store.search((), query="apples")] == [("k", None)]
            with pytest.raises(ModelUnavailable):
                store.put(("a",), "k", {"text": "pears"})
            store.put(("a",), "k", {"text": "pears"}, index=False)

    @pytest.mark.parametrize("size", [2, 5, 100, 700, 10_000])
    def test_what_is_no_database_is_refused(self, path: Path, size: int) -> None:
        """Someone's text file is not overwritten, and the error names the way out."""
        content = (b"These are my notes.\n" * 600)[:size]
        path.write_bytes(content)
        with pytest.raises(MemStoreError, match="database"):
            MemStore.open(path)
        assert path.read_bytes() == content

    def test_a_truncated_database_is_an_error_of_ours(self, path: Path) -> None:
        """A file that lost its end is reported as damaged, not with the driver's own error."""
        with MemStore.open(path) as store:
            for number in range(50):
                store.put(("a",), str(number), {"text": "x" * 2000})
        path.write_bytes(path.read_bytes()[:20_000])
        with pytest.raises(DatabaseDamaged), MemStore.open(path) as store:
            store.search((), limit=100)

    def test_a_folder_is_no_database(self, tmp_path: Path) -> None:
        """Neither is a file in a folder that is not there, or below a file; nothing is made."""
        (tmp_path / "file").write_text("notes")
        for path in (tmp_path, tmp_path / "missing" / "memories.db", tmp_path / "file" / "memories.db"):
            with pytest.raises(MemStoreError, match=r"folder|file"):
                MemStore.open(path)
        assert sorted(file.name for file in tmp_path.iterdir()) == ["file"]

    def test_an_unwritable_folder_is_named(self, tmp_path: Path) -> None:
        """Where no file can be made, the error says which path it was."""
        folder = tmp_path / "locked"
        folder.mkdir()
        with permissions((folder, 0o555)), unprivileged(), pytest.raises(InvalidConfig, match=r"memories\.db"):
            MemStore.open(folder / "memories.db")

    def test_a_file_that_may_only_be_read_is_an_error_of_ours(self, path: Path) -> None:
        """A database without the right to write beside it cannot be opened; it says so and stays as it was."""
        with MemStore.open(path) as store:
            store.put(("a",), "k", {})
        content = path.read_bytes()
        with (
            permissions((path, 0o444), (path.parent, 0o555)),
            unprivileged(),
            pytest.raises(MemStoreError, match=r"read|write|folder|file"),
        ):
            MemStore.open(path).put(("a",), "k", {})
        assert path.read_bytes() == content

    def test_an_opening_that_fails_leaves_nothing_open(self, path: Path) -> None:
        """A program that catches the error and opens otherwise finds no log that is still held."""
        with MemStore.open(path, index=INDEX) as store:
            store.put(("a",), "k", {"text": "apples"})
        with pytest.raises(IndexMismatch) as caught:
            MemStore.open(path, index={"embed": WordEmbeddings(), "metric": "l2"})
        assert caught.traceback
        assert set(files_of(path)) == {"memories.db"}
