"""Histories: the marks of writing transactions tell a database from an older copy of it."""

from __future__ import annotations

import pytest

from memstore.history import MARK_LENGTH, History
from tests.flows import NoLock


def marks(*numbers: int) -> str:
    """Spell some marks."""
    return "".join(f"{number:0{MARK_LENGTH}x}" for number in numbers)


@pytest.fixture
def history() -> History:
    """Give a history that has seen the marks 1, 2 and 3 of the clocks 11, 12 and 13."""
    history = History(NoLock())
    assert history.knows(11, marks(1))
    assert not history.knows(13, marks(3))
    assert history.goes_on(13, marks(1, 2, 3))
    return history


def test_what_was_seen_is_known(history: History) -> None:
    """The clock that was seen, and those before it as far back as marks are kept, by their marks alone."""
    assert history.knows(13, marks(3))
    assert history.knows(12, marks(2))
    assert not history.knows(13, marks(4))
    assert not history.knows(12, marks(9))
    assert not history.knows(10, marks(0))
    assert not history.knows(14, marks(4))


@pytest.mark.parametrize(
    ("clock", "later", "goes_on"),
    [
        (14, marks(1, 2, 3, 4), True),
        (20, marks(3, 4, 5, 6, 7, 8, 9, 10), True),
        (20, marks(4, 5, 6, 7, 8, 9, 10), True),  # no longer told
        (13, marks(1, 2, 9), False),
        (14, marks(1, 2, 9, 4), False),
        (12, marks(1, 2), False),
        (12, marks(1, 7), False),
    ],
)
def test_a_snapshot_goes_on_where_its_marks_say_so(history: History, clock: int, later: str, *, goes_on: bool) -> None:
    """The mark of the clock that was seen is still the same; afterwards the snapshot is what is known."""
    assert history.goes_on(clock, later) is goes_on
    if not goes_on:
        assert history.knows(13, marks(3))  # until what belonged to it is forgotten
        history.begin(clock, later)
    assert history.knows(clock, later[-MARK_LENGTH:])


def test_a_database_without_marks_is_believed() -> None:
    """One that was made before marks were kept has none until it is written to."""
    history = History(NoLock())
    assert not history.knows(30, "")
    assert history.goes_on(30, "")
    assert not history.knows(31, marks(5))
    assert history.goes_on(31, marks(5))
    assert history.knows(31, marks(5))
