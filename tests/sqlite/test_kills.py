"""A process killed while it writes: every acknowledged put is there, and nothing is half there."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from langgraph.store.base import Item

from memstore import MemStore
from tests.support import WordEmbeddings

WRITER = """
import sys
from langgraph.store.base import PutOp
from memstore import MemStore
from tests.support import WordEmbeddings

path, first = sys.argv[1], int(sys.argv[2])
with MemStore.open(path, index={"embed": WordEmbeddings(8), "fields": ["text"]}) as store:
    for number in range(first, first + 100_000):
        value = {"text": f"round {number}", "number": number}
        ops = [PutOp(("log", str(number)), "entry", value), PutOp(("pair",), "left", value)]
        ops += [PutOp(("pair",), "right", value), PutOp(("log", str(number - 3)), "entry", None)]
        store.batch(ops)
        print(number, flush=True)
"""
"""Writes rounds of four ops and prints the number of each round once its batch has returned."""


def write_until_killed(path: Path, first: int, acknowledged: int) -> int:
    """Start a writer, kill it after so many acknowledgements, and give the number of the last round it told of."""
    arguments = [sys.executable, "-c", WRITER, str(path), str(first)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=root) as writer:
        assert writer.stdout is not None
        told = [writer.stdout.readline() for _ in range(acknowledged)]
        writer.kill()
        told += [line for line in writer.stdout if line.endswith("\n")]
    return int(told[-1])


def number_of(item: Item | None) -> int:
    """Give the round that an item was written in; 0 where there is none."""
    return 0 if item is None else int(item.value["number"])


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_writer_leaves_every_acknowledged_batch(path: Path, seed: int) -> None:
    """Two lives on one file, each killed at a random moment: rounds are whole, and none that was told of is lost."""
    chance = random.Random(seed)  # noqa: S311  no secret
    last = 0
    for _ in range(2):
        told = write_until_killed(path, last + 1, chance.randint(1, 60))
        with MemStore.open(path, index={"embed": WordEmbeddings(8), "fields": ["text"]}) as store:
            last = number_of(store.get(("pair",), "left"))
            assert told <= last <= told + 1
            assert number_of(store.get(("pair",), "right")) == last
            kept = [number for number in (last - 2, last - 1, last) if number > 0]
            assert store.list_namespaces(prefix=("log",)) == sorted(("log", str(number)) for number in kept)
            found = store.search((), query=f"round {last}", limit=10)
            assert {item.key for item in found[:3]} == {"left", "right", "entry"}
            assert len(found) == 2 + len(kept)
            assert store.check().ok
    with closing(sqlite3.connect(path)) as raw:
        ((clock,),) = raw.execute("SELECT clock FROM memstore_clock").fetchall()
    assert clock == last
