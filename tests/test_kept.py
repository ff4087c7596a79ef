"""Vectors kept in few bits and in parts: what comes back, in any history."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memstore.indexes import Precision, Vectors
from memstore.indexes import kept as kept_module
from memstore.indexes.kept import KeptVectors

DIMS = 6
PRECISIONS: tuple[Precision, ...] = ("float32", "float16", "int8")
OFF = {"float32": 0.0, "float16": 2.0**-11, "int8": 0.51 / 127}
"""How far a number may be off, of the largest of its vector."""
every_precision = pytest.mark.parametrize("precision", PRECISIONS)
steps = st.lists(st.integers(0, 9) | st.lists(st.booleans(), min_size=1, max_size=4), max_size=10)


def drawn(count: int, seed: int) -> Vectors:
    """Make vectors whose numbers are of very different sizes."""
    chance = np.random.default_rng(seed)
    sizes = 10.0 ** chance.integers(-20, 20, (count, 1))
    return (chance.standard_normal((count, DIMS)) * sizes).astype(np.float32)


def near(found: Vectors, expected: Vectors, precision: Precision) -> bool:
    """Tell whether vectors came back as well as their bits allow."""
    largest = np.abs(expected).max(axis=1, keepdims=True, initial=0.0)
    return found.dtype == np.float32 and bool((np.abs(found - expected) <= OFF[precision] * largest).all())


@every_precision
@settings(deadline=None)
@given(steps, st.integers(1, 4))
def test_vectors_come_back(precision: Precision, steps: list[int | list[bool]], rows: int) -> None:
    """Whatever was appended and taken out, in parts of any size: by their places, block by block, and known again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_module, "_PART_BYTES", rows * DIMS * 4)
        patch.setattr(kept_module, "_BLOCK", 3)
        kept, model = KeptVectors(DIMS, precision), np.empty((0, DIMS), np.float32)
        for number, step in enumerate(steps):
            if isinstance(step, int):
                vectors = drawn(step, number)
                kept.append(vectors)
                model = np.concatenate([model, vectors])
            else:
                stays = np.resize(np.array(step), len(model))
                kept.keep(stays)
                model = model[stays]
            assert len(kept) == len(model)
            assert near(kept.rows(np.arange(len(model))), model, precision)
            places = np.arange(0, len(model), 3)
            assert np.array_equal(kept.rows(places), kept.rows(np.arange(len(model)))[places])
            for start, end in ((0, None), (2, None), (1, 5)):
                blocks = [np.empty((0, DIMS), np.float32), *kept.blocks(start, end)]
                assert np.array_equal(np.concatenate(blocks), kept.rows(np.arange(len(model)))[start:end])
            fresh = KeptVectors(DIMS, precision)
            fresh.append(model)
            assert np.array_equal(kept.fingerprints, fresh.fingerprints)


@every_precision
def test_equal_vectors_stay_equal(precision: Precision) -> None:
    """Wherever they stand: they have the same score then."""
    vectors = np.concatenate([drawn(5, 1), drawn(1, 2), drawn(7, 3), drawn(1, 2)])
    kept = KeptVectors(DIMS, precision)
    kept.append(vectors)
    found = kept.rows(np.array([5, 13]))
    assert np.array_equal(found[0], found[1])


@every_precision
def test_odd_numbers_are_kept(precision: Precision) -> None:
    """Zeros, the smallest and the largest there are, and one large among small ones."""
    limits = np.finfo(np.float32)
    vectors = np.zeros((5, DIMS), np.float32)
    vectors[1:4, 0] = limits.max, limits.smallest_subnormal, limits.tiny
    vectors[4] = [1e15, 1, 1, -1e15, 0, 5e14]
    kept = KeptVectors(DIMS, precision)
    kept.append(vectors)
    found = kept.rows(np.arange(5))
    assert np.isfinite(found).all()
    assert near(found[[0, 1, 3, 4]], vectors[[0, 1, 3, 4]], precision)


def test_every_number_counts_for_the_fingerprint() -> None:
    """One bit of one number, two that change places, or their signs."""
    vector = drawn(1, 5)
    others = np.repeat(vector, 2 * DIMS + 2, 0)
    for at in range(DIMS):
        others[at, at] = np.nextafter(others[at, at], np.float32(np.inf))
        others[DIMS + at, at] *= -1
    others[-2] = others[-2, ::-1]
    others[-1, [0, 1]] = others[-1, [1, 0]]
    kept = KeptVectors(DIMS)
    kept.append(np.concatenate([vector, others]))
    assert len(np.unique(kept.fingerprints)) == len(others) + 1


@pytest.mark.parametrize(("precision", "size"), [("float32", 4), ("float16", 2), ("int8", 1)])
def test_few_bits_take_little_room(precision: Precision, size: int) -> None:
    """That many bytes a number, and twelve for a vector."""
    kept = KeptVectors(384, precision)
    kept.append(np.ones((1_000, 384), np.float32))
    assert 1_000 * 384 * size < kept.size <= 1_000 * (384 * size + 12)
