"""Wide searches whose vectors are kept in few bits in memory: the first ranks are those of exact scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memstore import InvalidConfig, MemStore
from tests.sqlite.wide_stores import QUERIES, ask, ask_exactly, deletes, exact_index, fill, opened, puts, wide_index
from tests.support import keys

every_precision = pytest.mark.parametrize("precision", ["float16", "int8"])


@every_precision
def test_answers_are_exact(path: Path, precision: str) -> None:
    """Their order and their scores, in every mode, scope and with filters, before and after changes."""
    fill(path)
    with opened(path, precision=precision) as store:
        assert ask(store) == ask_exactly(path)
        store.batch([*puts(range(600, 650)), *deletes(range(0, 90, 3))])
        assert ask(store) == ask_exactly(path)
        assert store.stats().index.precision == precision
    with opened(path, precision=precision) as store:
        assert ask(store) == ask_exactly(path)


@every_precision
@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
def test_pages_join(path: Path, precision: str, mode: Any) -> None:
    """Through both stages of candidates and what follows them, nothing twice, nothing left out, scores never rise."""
    fill(path, 300)
    with opened(path, precision=precision) as store:
        asked: dict[str, Any] = {"query": QUERIES[0], "mode": mode}
        whole = store.search((), limit=1_000, **asked)
        assert sorted(keys(whole)) == sorted(f"k{number}" for number in range(300))
        scores = [hit.score or 0.0 for hit in whole]
        assert scores == sorted(scores, reverse=True)
        for size in (7, 40):
            pages = [store.search((), limit=size, offset=at, **asked) for at in range(0, 300, size)]
            assert [hit for page in pages for hit in page] == whole


@every_precision
def test_what_was_coded_is_known_again(path: Path, precision: str) -> None:
    """The index file belongs to the database, whichever way its vectors are kept in memory."""
    fill(path)
    with opened(path, precision=precision) as store:
        ask(store)
    for other in ("float32", precision):
        with opened(path, precision=other) as store:
            assert ask(store) == ask_exactly(path)
            assert store.stats().index.coded == 600


@every_precision
def test_recall_is_measured_with_it(path: Path, precision: str) -> None:
    """And nothing is missed among so few."""
    fill(path)
    with opened(path, precision=precision) as store:
        assert store.recall_check(20, k=5).recall == 1.0


def test_memory_is_told(path: Path) -> None:
    """Half the bits, half the room; none before the first wide search."""
    fill(path)
    sizes = []
    for precision in ("float32", "float16", "int8"):
        with opened(path, precision=precision) as store:
            assert store.stats().index.memory == 0
            store.search((), query=QUERIES[0])
            sizes.append(store.stats().index.memory)
    assert 600 * 32 * 2 * 0.9 < sizes[0] - sizes[1] < 600 * 32 * 2
    assert 600 * 32 * 0.9 < sizes[1] - sizes[2] < 600 * 32 * 1.1


@pytest.mark.parametrize("precision", ["float64", "fp16", 16, None])
def test_other_precisions_are_refused(path: Path, precision: Any) -> None:
    """With the name of the setting."""
    with pytest.raises(InvalidConfig, match="precision"):
        MemStore.open(path, index=wide_index(precision=precision))
    assert not path.exists()


def test_narrow_searches_do_not_depend_on_it(path: Path) -> None:
    """They rank by the vectors of the database."""
    fill(path, 60)
    with MemStore.open(path, index=exact_index(precision="int8")) as store:
        assert ask(store) == ask_exactly(path)
        assert store.stats().index.memory == 0
