"""The cache of slices: bounded by bytes, exact by version."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from memstore.slices import Slice, SliceCache


def make_slice(texts: int, dims: int = 4) -> Slice:
    """Make a slice of so many texts."""
    return Slice(np.arange(texts, dtype=np.int64), np.ones((texts, dims), np.float32))


SIZE = make_slice(10).size
"""Bytes of a slice of ten texts."""


def make_cache(slices: float) -> SliceCache:
    """Make a cache with room for so many slices of ten texts."""
    return SliceCache(int(slices * SIZE), threading.Lock())


def test_a_slice_counts_its_arrays_and_its_overhead() -> None:
    """Ids are eight bytes, numbers four; half a kilobyte stands for the objects around them."""
    assert make_slice(10, 4).size == 10 * 8 + 10 * 4 * 4 + 500


def test_a_slice_is_given_under_its_very_version() -> None:
    """(namespace id, version) names a slice; no other version of the namespace, and no other namespace, has it."""
    cache = make_cache(3)
    kept = make_slice(10)
    cache.keep((1, 5), kept)
    assert cache.get((1, 5)) is kept
    assert [cache.get(name) for name in [(1, 4), (1, 6), (5, 1)]] == [None, None, None]


def test_versions_stand_side_by_side() -> None:
    """A reader in an older snapshot still finds its own version after a newer one was kept."""
    cache = make_cache(3)
    old, new = make_slice(10), make_slice(9)
    cache.keep((1, 5), old)
    cache.keep((1, 6), new)
    assert (cache.get((1, 5)), cache.get((1, 6))) == (old, new)


def test_memory_is_bounded_by_bytes() -> None:
    """However many slices are kept, they hold no more than the capacity; what falls out is counted out."""
    cache = make_cache(3.5)
    for number in range(20):
        cache.keep((number, 1), make_slice(10))
        assert cache.size <= cache.capacity
    assert (len(cache), cache.size) == (3, 3 * SIZE)
    assert [number for number in range(20) if cache.get((number, 1)) is not None] == [17, 18, 19]


def test_what_is_used_stays_longest() -> None:
    """The least recently used slice falls out first, whichever was kept first."""
    cache = make_cache(2)
    cache.keep((1, 1), make_slice(10))
    cache.keep((2, 1), make_slice(10))
    cache.get((1, 1))
    cache.keep((3, 1), make_slice(10))
    assert [cache.get((number, 1)) is not None for number in (1, 2, 3)] == [True, False, True]


def test_one_large_slice_makes_several_small_ones_fall_out() -> None:
    """Room is made for what was just used."""
    cache = make_cache(3)
    for number in range(3):
        cache.keep((number, 1), make_slice(10))
    large = Slice(np.arange(30, dtype=np.int64), np.ones((30, 4), np.float32))
    cache.keep((9, 1), large)
    assert cache.get((9, 1)) is large
    assert (len(cache), cache.size) == (2, SIZE + large.size)


def test_a_slice_larger_than_the_cache_is_not_kept() -> None:
    """It would drive everything else out and then itself."""
    cache = make_cache(1.5)
    cache.keep((1, 1), make_slice(10))
    cache.keep((2, 1), make_slice(1000))
    assert cache.get((2, 1)) is None
    assert cache.get((1, 1)) is not None
    assert cache.size == SIZE


def test_a_slice_kept_twice_counts_once() -> None:
    """Two threads that read the same slice at once keep the first; the bytes stay right."""
    cache = make_cache(3)
    first, second = make_slice(10), make_slice(10)
    cache.keep((1, 1), first)
    cache.keep((1, 1), second)
    assert cache.get((1, 1)) is first
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
            if cache.get((number, 1)) is None:
                cache.keep((number, 1), make_slice(number + 1))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    held = [found.size for number in range(30) if (found := cache.get((number, 1))) is not None]
    assert cache.size == sum(held) <= cache.capacity
    assert len(cache) == len(held)
