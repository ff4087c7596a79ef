"""Terms, continued: words with digits, every script without spaces, and blobs that are damaged."""

from __future__ import annotations

import numpy as np
import pytest

from memstore.analysis import from_blobs, to_blob
from tests.test_analysis import hashed, terms


def test_what_holds_a_digit_keeps_its_plural() -> None:
    """A number in a word makes it a name, though it ends like a plural."""
    assert terms("item2s model3s") == hashed("item2s", "model3s")


def test_a_run_between_two_words_parts_them() -> None:
    """They stand on both sides of it: neither one word nor joined by a mark."""
    assert terms("abc猫def") == hashed("abc", "猫", "def")
    assert terms("abc猫狗def") == hashed("abc", "猫狗", "def")


@pytest.mark.parametrize(
    "run",
    ["대한민국", "ကခဂဃ", "កខគឃ", "ກຂຄງ", "\u3400\u3401\u3402"],
    ids=["Korean", "Burmese", "Khmer", "Lao", "Extension A"],
)
def test_every_script_without_spaces_counts_by_pairs(run: str) -> None:
    """Each of them, in runs longer than a pair."""
    assert terms(run) == hashed(*[run[at : at + 2] for at in range(len(run) - 1)])


def test_one_blob_does_not_make_up_for_another() -> None:
    """A term too many here and one too few there add up, and are refused all the same."""
    longer, shorter = (to_blob([np.arange(3, dtype=np.uint32)]) for _ in range(2))
    with pytest.raises(ValueError, match=r"."):
        from_blobs([longer + b"\7\0\0\0", shorter[:-4]], np.array([1, 1]))
