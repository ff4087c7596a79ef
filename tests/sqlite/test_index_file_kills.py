"""Processes that die while they write the index file, and what they leave."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memstore.index_file import IndexFile
from tests.sqlite.wide_stores import ask, ask_exactly, deletes, fill, opened, puts, unfinished

OLD = 10_000
"""Seconds after which nobody is still writing a file."""
SAVER = """
import sys
from tests.sqlite.wide_stores import opened, puts, QUERIES

with opened(sys.argv[1]) as store:
    for number in range(int(sys.argv[2]), 10**6):
        store.batch(puts([number]))
        store.search((), query=QUERIES[0], limit=1)
        store._calls.close()
        print(number, flush=True)
"""
"""Writes the index file after every put, and tells the number of each."""


class TestUnfinished:
    """What writers leave that die."""

    @pytest.mark.parametrize("name", ["memories.db", "m[1].db", "m*.db", "mémoire ?.db"])
    def test_what_dead_writers_left_is_deleted(self, tmp_path: Path, name: str) -> None:
        """Whatever the database is called; what another process may be writing now is left alone, and other files."""
        path = tmp_path / name
        fill(path)
        old, foreign = (path.with_name(f"{part}-index.abcdefgh.unfinished") for part in (name, "other.db"))
        fresh = path.with_name(f"{name}-index.ijklmnop.unfinished")
        for left in (old, fresh, foreign):
            left.write_bytes(b"half")
        for left in (old, foreign):
            os.utime(left, (time.time() - OLD,) * 2)
        with opened(path) as store:
            ask(store)
        assert (old.exists(), fresh.exists(), foreign.exists()) == (False, True, True)

    @pytest.mark.parametrize("seed", range(3))
    def test_a_process_killed_while_it_saves(self, path: Path, caplog: pytest.LogCaptureFixture, seed: int) -> None:
        """At any moment: the file is whole, the answers right, and nothing unfinished is left for ever."""
        chance = random.Random(seed)  # noqa: S311  no secret
        caplog.set_level(logging.WARNING, "memstore")
        fill(path)
        first = 600
        for _ in range(2):
            arguments = [sys.executable, "-c", SAVER, str(path), str(first)]
            root = Path(__file__).parents[2]
            with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=root) as saver:
                assert saver.stdout is not None
                told = [saver.stdout.readline() for _ in range(chance.randint(1, 15))]
                time.sleep(chance.random() * 0.01)
                saver.kill()
                told += [line for line in saver.stdout if line.endswith("\n")]
            first = int(told[-1]) + 1
            assert IndexFile(path).load() is not None
            assert caplog.text == ""
        caplog.set_level(logging.INFO, "memstore")
        for left in unfinished(path):
            os.utime(path.with_name(left), (time.time() - OLD,) * 2)
        with opened(path) as store:
            ask(store)
            store.batch([*deletes([5]), *puts([10**6])])  # something to save
            assert ask(store) == ask_exactly(path)
            assert store.check().ok
        assert unfinished(path) == []
        assert "trained the index" not in caplog.text


def test_saving_that_fails_otherwise_leaves_nothing(path: Path) -> None:
    """An error that is no disk's comes out, and nothing unfinished stays."""

    class Unlaid:
        def __array__(self, dtype: object = None, copy: object = None) -> object:
            raise MemoryError

    file = IndexFile(path)
    with pytest.raises(MemoryError):
        file.save({"codes": Unlaid()})
    assert list(path.parent.iterdir()) == []
    assert file.size == 0
