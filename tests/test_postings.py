"""Postings against sets: who holds a term, how many do, and what they hold together."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from memstore.indexes import Terms
from memstore.indexes import postings as postings_module
from memstore.indexes.growing import Growing
from memstore.indexes.postings import GrowingPostings, Postings

unhurried = settings(deadline=None)
"""A slow machine fails no example."""
TERMS = [0, 1, 2, 5, 7, 11, 2**31, 2**32 - 2, 2**32 - 1]
text = st.sets(st.sampled_from(TERMS), max_size=5)
texts = st.lists(text, max_size=8)
WEIGHTS = dict(zip(TERMS, [0.1, 0.2, 0.3, 0.7, 1e-9, 3.3, 1e9, 0.123456789, 2.0], strict=True))
"""What the terms weigh; their sums depend on the order of summing."""


def laid_out(held: list[set[int]]) -> tuple[Any, Terms]:
    """Lay texts out as postings take them."""
    lengths = np.array([len(one) for one in held], np.int64)
    return lengths, np.array([term for one in held for term in sorted(one)], np.uint32)


def postings_of(held: list[set[int]]) -> Postings:
    """Make postings of some texts."""
    return Postings.of(*laid_out(held))


def as_terms(wanted: set[int]) -> Terms:
    """Lay out the terms of a query."""
    return np.array(sorted(wanted), np.uint32)


def weights_of(wanted: set[int]) -> Any:
    """Give the weights of a query's terms."""
    return np.array([WEIGHTS[term] for term in sorted(wanted)], np.float64)


def total(one: set[int], wanted: set[int]) -> float:
    """Sum what a text holds of a query in the order of the terms."""
    held = 0.0
    for term in sorted(one & wanted):
        held += WEIGHTS[term]
    return held


def check(postings: Postings, held: list[set[int]], wanted: set[int]) -> None:
    """See that postings answer as the texts themselves do, sums to the last bit."""
    terms = as_terms(wanted)
    assert len(postings) == len(held)
    assert postings.lengths.tolist() == [len(one) for one in held]
    assert postings.count(terms).tolist() == [sum(term in one for one in held) for term in sorted(wanted)]
    totals = postings.total(terms, weights_of(wanted))
    assert totals.dtype == np.float64
    assert totals.tolist() == [total(one, wanted) for one in held]
    which, places = postings.pairs.find(terms)
    assert sorted(zip(terms[which].tolist(), places.tolist(), strict=True)) == pairs_of(held, wanted)


def pairs_of(held: list[set[int]], wanted: set[int]) -> list[tuple[int, int]]:
    """Give every pair of a wanted term and a text that holds it."""
    return sorted((term, place) for place, one in enumerate(held) for term in one & wanted)


def lists_of(held: list[set[int]], wanted: set[int]) -> list[list[int]]:
    """Give the places of the texts that hold each of the wanted terms."""
    return [[place for place, one in enumerate(held) if term in one] for term in sorted(wanted)]


@unhurried
@given(texts, text)
def test_postings_are_what_their_texts_hold(held: list[set[int]], wanted: set[int]) -> None:
    """Counts, sums and pairs are those of the sets; terms that nobody holds count nothing."""
    check(postings_of(held), held, wanted)


@unhurried
@given(texts, texts, text)
def test_joined_postings_are_those_of_all(first: list[set[int]], second: list[set[int]], wanted: set[int]) -> None:
    """Texts that follow have their places after the others; both are left as they were."""
    one, two = postings_of(first), postings_of(second)
    check(one.joined(two), first + second, wanted)
    check(one, first, wanted)
    check(two, second, wanted)


@unhurried
@given(st.lists(st.tuples(text, st.booleans()), max_size=10), text)
def test_some_of_the_postings_close_up(drawn: list[tuple[set[int], bool]], wanted: set[int]) -> None:
    """Those that stay keep their order and what they hold; the whole is left as it was."""
    held = [one for one, _ in drawn]
    stays = np.array([kept for _, kept in drawn], np.bool_)
    whole = postings_of(held)
    check(whole.only(stays), [one for one, kept in drawn if kept], wanted)
    check(whole, held, wanted)


def test_postings_count_their_bytes() -> None:
    """Eight bytes a pair, four a text: what a cache goes by."""
    assert postings_of([{1, 2, 5}, set(), {1}]).size == 3 * 4 + 4 * 8


@pytest.mark.parametrize("seed", range(5))
def test_equal_texts_have_equal_sums_wherever_they_stand(seed: int) -> None:
    """Among many or few, sorted in or late: to the last bit, or equal texts would not tie."""
    chance = np.random.default_rng(seed)
    terms = np.unique(chance.integers(0, 2**32, 60, np.uint32))
    weights = chance.exponential(size=len(terms))
    copy = set(chance.choice(terms, 40, replace=False).tolist())
    sums = set()
    for before, after in [(0, 0), (1, 0), (0, 1), (500, 3), (3, 500)]:
        held = [set(chance.choice(terms, 20, replace=False).tolist()) for _ in range(before + after)]
        held.insert(before, copy)
        postings = postings_of(held)
        sums.add(float(postings.total(terms, weights)[before]))
        sums.add(float(postings_of(held[:before]).joined(postings_of(held[before:])).total(terms, weights)[before]))
        growing = GrowingPostings()
        growing.add(*laid_out(held[:before]))
        growing.keep(np.ones(before, np.bool_))
        growing.add(*laid_out(held[before:]))
        found = growing.find(terms)
        held_of_it = [weight for weight, places in zip(weights, found, strict=True) if before in places]
        sums.add(float(np.cumsum(held_of_it)[-1]))
    assert len(sums) == 1


class GrowingMachine(RuleBasedStateMachine):
    """Postings that grow and shrink, beside a list of sets."""

    def __init__(self) -> None:
        super().__init__()
        self.postings = GrowingPostings()
        self.held: list[set[int]] = []

    @rule(more=texts)
    def add(self, more: list[set[int]]) -> None:
        """Add texts at the end."""
        self.postings.add(*laid_out(more))
        self.held += more

    @rule(pattern=st.lists(st.booleans(), min_size=1, max_size=5))
    def keep(self, pattern: list[bool]) -> None:
        """Keep some of them."""
        stays = np.resize(np.array(pattern, np.bool_), len(self.held))
        self.postings.keep(stays)
        self.held = [one for one, kept in zip(self.held, stays.tolist(), strict=True) if kept]

    @rule()
    def settle(self) -> None:
        """Sort in what came late."""
        self.postings.settle()

    @rule(wanted=text)
    def find(self, wanted: set[int]) -> None:
        """Find who holds the terms of a query: places ascend."""
        found = self.postings.find(as_terms(wanted))
        assert [places.tolist() for places in found] == lists_of(self.held, wanted)

    @rule()
    def weigh(self) -> None:
        """Count four bytes a pair, and what belongs to the terms."""
        pairs = sum(map(len, self.held))
        assert 4 * (pairs + len(self.held)) <= self.postings.size <= 60 * (pairs + 1) + 4 * len(self.held)

    @invariant()
    def lengths(self) -> None:
        """How many terms each text has is known at once."""
        assert len(self.postings) == len(self.held)
        assert self.postings.lengths.tolist() == [len(one) for one in self.held]


GrowingMachine.TestCase.settings = settings(deadline=None, max_examples=60, stateful_step_count=15)
TestGrowingPostings = GrowingMachine.TestCase


def test_what_came_late_is_sorted_in_when_there_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts of many sizes, and across them, what is found is the same, whether or not it was asked for."""
    monkeypatch.setattr(postings_module, "_LATE_MOST", 10_000)
    held = [{number % 7, 100 + number % 1000, 5000 + number} for number in range(12_000)]
    postings = GrowingPostings()
    wanted = {3, 142, 5003, 5142, 9_999_999}
    for start, end in pairwise([0, 1, 3, 900, 1000, 5_000, 5_001, 9_000, 9_100, 12_000]):
        postings.add(*laid_out(held[start:end]))
        found = postings.find(as_terms(wanted))
        assert [places.tolist() for places in found] == lists_of(held[:end], wanted)
        if start % 2:
            postings.settle()
    assert len(postings._parts) > 1


@unhurried
@given(st.integers(0, 20), st.lists(st.integers(0, 30) | st.lists(st.booleans(), min_size=1), max_size=8))
def test_a_growing_array_is_all_that_was_appended(expected: int, steps: list[int | list[bool]]) -> None:
    """Rows come in parts of any size, and leave; room that was made for more is never seen."""
    growing, model = Growing(np.int64, (2,), expected), np.empty((0, 2), np.int64)
    for step in steps:
        if isinstance(step, int):
            rows = np.arange(2 * step).reshape(step, 2) + 1000 * len(model)
            growing.append(rows)
            model = np.concatenate([model, rows])
        else:
            stays = np.resize(np.array(step), len(model))
            growing.keep(stays)
            model = model[stays]
        assert len(growing) == len(model)
        assert np.array_equal(growing.rows, model)
        assert growing.rows.dtype == np.int64
