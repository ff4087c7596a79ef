"""The cache of slices: bounded by bytes, exact by version, one version of a namespace."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from memstore.indexes.postings import Postings
from memstore.slices import Scope, Slice, SliceCache


def make_slice(texts: int, dims: int = 4) -> Slice:
    """Make a slice of so many texts, each with two terms."""
    postings = Postings.of(np.full(texts, 2), np.tile(np.array([3, 7], np.uint32), texts))
    return Slice(np.arange(texts, dtype=np.int64), np.ones((texts, dims), np.float32), postings)


SIZE = make_slice(10).size
"""Bytes of a slice of ten texts."""


def make_cache(slices: float) -> SliceCache:
    """Make a cache with room for so many slices of ten texts."""
    return SliceCache(int(slices * SIZE), threading.Lock())


def kept(cache: SliceCache, namespace_id: int, version: int = 1) -> Slice | None:
    """Give what the cache has of a namespace's very version."""
    return cache.get(Scope(namespace_id, version, 0))[0]


def test_a_slice_counts_its_arrays_and_its_overhead() -> None:
    """Ids are eight bytes, and as many for each of four filters; numbers four, a term with its text eight."""
    assert make_slice(10, 4).size == 5 * 10 * 8 + 10 * 4 * 4 + 10 * 4 + 2 * 10 * 8 + 500


def test_a_slice_knows_the_last_written_of_its_items() -> None:
    """Whatever the order of its texts; one without any knows of none."""
    assert Slice(np.array([7, 9, 2]), np.ones((3, 4), np.float32), make_slice(3).postings).last_id == 9
    assert Slice.empty(4).last_id == 0


def test_a_slice_is_given_under_its_very_version() -> None:
    """(namespace id, version) names a slice; no other namespace has it, and no older version gets it for anything."""
    cache = make_cache(3)
    mine = make_slice(10)
    cache.keep(Scope(1, 5, 0), mine)
    assert cache.get(Scope(1, 5, 0)) == (mine, None)
    assert cache.get(Scope(1, 4, 0)) == (None, None)
    assert cache.get(Scope(5, 1, 0)) == (None, None)


def test_an_older_slice_is_what_a_newer_one_is_made_of() -> None:
    """A later version is not there yet, and is told from what it follows."""
    cache = make_cache(3)
    old, new = make_slice(10), make_slice(9)
    cache.keep(Scope(1, 5, 0), old)
    assert cache.get(Scope(1, 6, 0)) == (None, old)
    cache.keep(Scope(1, 6, 0), new)
    assert (cache.get(Scope(1, 6, 0)), cache.get(Scope(1, 5, 0))) == ((new, None), (None, None))
    assert (len(cache), cache.size) == (1, new.size)


def test_a_reader_of_an_older_snapshot_takes_nothing_away() -> None:
    """What it read is not kept over a newer version, whose readers are more."""
    cache = make_cache(3)
    new = make_slice(10)
    cache.keep(Scope(1, 6, 0), new)
    cache.keep(Scope(1, 5, 0), make_slice(9))
    assert cache.get(Scope(1, 6, 0)) == (new, None)
    assert (len(cache), cache.size) == (1, new.size)


def test_memory_is_bounded_by_bytes() -> None:
    """However many slices are kept, they hold no more than the capacity; what falls out is counted out."""
    cache = make_cache(3.5)
    for number in range(20):
        cache.keep(Scope(number, 1, 0), make_slice(10))
        assert cache.size <= cache.capacity
    assert (len(cache), cache.size) == (3, 3 * SIZE)
    assert [number for number in range(20) if kept(cache, number) is not None] == [17, 18, 19]


def test_what_is_used_stays_longest() -> None:
    """The least recently used slice falls out first, whichever was kept first."""
    cache = make_cache(2)
    cache.keep(Scope(1, 1, 0), make_slice(10))
    cache.keep(Scope(2, 1, 0), make_slice(10))
    cache.get(Scope(1, 1, 0))
    cache.keep(Scope(3, 1, 0), make_slice(10))
    assert [kept(cache, number) is not None for number in (1, 2, 3)] == [True, False, True]


def test_one_large_slice_makes_several_small_ones_fall_out() -> None:
    """Room is made for what was just used."""
    cache = make_cache(3)
    for number in range(3):
        cache.keep(Scope(number, 1, 0), make_slice(10))
    large = make_slice(25)
    cache.keep(Scope(9, 1, 0), large)
    assert kept(cache, 9) is large
    assert (len(cache), cache.size) == (2, SIZE + large.size)


def test_a_slice_larger_than_the_cache_is_not_kept() -> None:
    """It would drive everything else out and then itself."""
    cache = make_cache(1.5)
    cache.keep(Scope(1, 1, 0), make_slice(10))
    cache.keep(Scope(2, 1, 0), make_slice(1000))
    assert kept(cache, 2) is None
    assert kept(cache, 1) is not None
    assert cache.size == SIZE


def test_a_slice_kept_twice_counts_once() -> None:
    """Two threads that read the same slice at once keep the first; the bytes stay right."""
    cache = make_cache(3)
    first, second = make_slice(10), make_slice(10)
    cache.keep(Scope(1, 1, 0), first)
    cache.keep(Scope(1, 1, 0), second)
    assert kept(cache, 1) is first
    assert (len(cache), cache.size) == (1, SIZE)


def test_an_empty_cache_is_true() -> None:
    """It has a length; that must not make it false where someone tests whether it is there."""
    cache = make_cache(1)
    assert (bool(cache), len(cache), cache.size) == (True, 0, 0)


def test_threads_keep_the_bytes_right() -> None:
    """Whatever the interleaving, the size is the sum of what is held, and within the capacity."""
    cache = make_cache(5)

    def work(seed: int) -> None:
        chance = np.random.default_rng(seed)
        for number in chance.integers(0, 30, 300).tolist():
            if kept(cache, number) is None:
                cache.keep(Scope(number, 1, 0), make_slice(number + 1))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    held = [found.size for number in range(30) if (found := kept(cache, number)) is not None]
    assert cache.size == sum(held) <= cache.capacity
    assert len(cache) == len(held)


def marks(*writes: int) -> bytes:
    """Spell the marks of some writes, the newest first."""
    return b"".join(bytes([write, write]) for write in writes)


@pytest.mark.parametrize(
    ("older", "newer", "continues"),
    [
        ((5, marks(5, 4, 3)), (5, marks(5, 4, 3)), True),
        ((5, marks(5, 4, 3)), (7, marks(7, 6, 5, 4, 3)), True),
        ((5, marks(5, 4, 3)), (7, marks(7, 6, 5)), True),
        ((5, marks(5, 4, 3)), (5, marks(9, 4, 3)), False),
        ((5, marks(5, 4, 3)), (7, marks(7, 6, 9, 4, 3)), False),
        ((5, marks(5, 4, 3)), (8, marks(8, 7, 6)), False),
        ((5, marks(5, 4, 3)), (4, marks(4, 3)), False),
        ((5, b""), (9, b""), True),
        ((5, b""), (4, b""), False),
    ],
)
def test_a_namespace_continues_what_its_marks_show(
    older: tuple[int, bytes], newer: tuple[int, bytes], *, continues: bool
) -> None:
    """The same version of another history has other marks; where too much was written since, nothing is known."""
    assert Scope(1, newer[0], 1, newer[1]).continues(Scope(1, older[0], 1, older[1])) is continues


def test_a_slice_of_another_history_is_replaced() -> None:
    """A database that was set back and written on to: neither is its slice given, nor does it stay in the way."""
    cache = make_cache(10)
    lost, new = make_slice(3), make_slice(4)
    cache.keep(Scope(1, 6, 3, marks(6, 5)), lost)
    scope = Scope(1, 6, 4, marks(9, 5))
    assert cache.get(scope) == (None, None)
    cache.keep(scope, new)
    assert cache.get(scope) == (new, None)
