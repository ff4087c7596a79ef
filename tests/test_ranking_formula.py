"""What neighbours lend and age takes, over any scores: bounds, equals, and the formulas written out for one item."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memstore.scoring import Ranking, lend

unhurried = settings(deadline=None)
"""A slow machine fails no example."""
DAY = 86_400_000_000
NOW = 1_800_000_000_000_000
radii = st.integers(1, 5)
scores = st.sampled_from([0.0, 0.25, 1.0]) | st.floats(0, 1, allow_subnormal=False)
texts = st.lists(st.tuples(st.integers(1, 12), scores), max_size=30)
"""(item, score) of the texts of one namespace, in any order."""
many = st.lists(st.tuples(st.integers(1, 25), scores), max_size=40)
"""The same of several namespaces; an item's namespace is told by its id."""
ages = st.integers(0, 400 * DAY)


def home_of(item: int) -> int:
    """Say in which namespace an item is."""
    return item * 7 % 3


def lent(given: list[tuple[int, float]], radius: int, *, homes: bool = True) -> dict[int, tuple[float, bool]]:
    """Have items lend to each other; give what each then has, and whether it had any of its own."""
    ids = np.array([item for item, _ in given], np.int64)
    namespaces = np.array([home_of(item) for item, _ in given], np.int64) if homes else None
    found, held, own = lend(ids, namespaces, np.array([score for _, score in given], np.float64), radius)
    assert len(set(found.tolist())) == len(found) == len(held) == len(own)
    return dict(zip(found.tolist(), zip(held.tolist(), own.tolist(), strict=True), strict=True))


def by_hand(given: list[tuple[int, float]], radius: int, *, homes: bool = True) -> dict[int, tuple[float, bool]]:
    """Write out the definition."""
    best: dict[int, float] = {}
    for item, score in given:
        best[item] = max(score, best.get(item, 0.0))
    result = {}
    for item, score in best.items():
        near = sorted(other for other in best if not homes or home_of(other) == home_of(item))
        at, total = near.index(item), score
        for step in range(1, radius + 1):
            for other in near[max(0, at - step) : at - step + 1] if at >= step else []:
                total += best[other] * 0.5**step
            for other in near[at + step : at + step + 1]:
                total += best[other] * 0.5**step
        result[item] = (total / (1 + 2 * sum(0.5**step for step in range(1, radius + 1))), score > 0)
    return result


@unhurried
@given(many, radii)
def test_neighbours_lend_what_the_definition_says(drawn: list[tuple[int, float]], radius: int) -> None:
    """Of each namespace by itself, of every item its best text; nothing leaves [0, 1]."""
    found, expected = lent(drawn, radius), by_hand(drawn, radius)
    assert found.keys() == expected.keys()
    for item, (score, own) in expected.items():
        assert found[item][0] == pytest.approx(score, abs=1e-8)
        assert found[item][1] == own
        assert 0.0 <= found[item][0] <= 1.0


@unhurried
@given(many, radii, st.randoms(use_true_random=False))
def test_the_order_of_texts_is_irrelevant(drawn: list[tuple[int, float]], radius: int, chance: object) -> None:
    """Wide scopes give theirs in any order, and namespaces in any: to the last bit the same."""
    shuffled = list(drawn)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert lent(shuffled, radius) == lent(drawn, radius)


@unhurried
@given(texts, radii)
def test_one_namespace_alone_lends_as_among_others(drawn: list[tuple[int, float]], radius: int) -> None:
    """A narrow scope scores its namespaces one by one, a wide one all together: they agree to the last bit."""
    together = lent([(item * 3, score) for item, score in drawn], radius)  # all of one namespace
    alone = lent(sorted((item * 3, score) for item, score in drawn), radius, homes=False)
    among = lent([(item * 3, score) for item, score in drawn] + [(item * 3 + 1, 1.0) for item in range(14)], radius)
    assert together == alone == {item: what for item, what in among.items() if item % 3 == 0}


@unhurried
@given(st.lists(scores, min_size=1, max_size=9), radii)
def test_equal_rows_score_equal(row: list[float], radius: int) -> None:
    """Two conversations of the same turns are lent the same, wherever they stand."""
    ids = np.arange(2 * len(row)) + 1
    namespaces = np.repeat([5, 9], len(row))
    _, held, own = lend(ids, namespaces, np.array(row * 2), radius)
    assert held[: len(row)].tolist() == held[len(row) :].tolist()
    assert own[: len(row)].tolist() == own[len(row) :].tolist()
    back, _ = lend(ids[: len(row)], None, np.array(row[::-1]), radius)[1:]
    assert back.tolist() == pytest.approx(held[: len(row)][::-1].tolist(), abs=1e-8)


def test_nothing_lends_nothing() -> None:
    """No text, no item."""
    nothing = np.empty(0, np.int64)
    for namespaces in (None, nothing):
        assert [part.tolist() for part in lend(nothing, namespaces, np.empty(0), 5)] == [[], [], []]


def test_a_full_house_keeps_its_score() -> None:
    """In the middle of items that all score the same nothing changes; at an end there is less to lend."""
    _, held, _ = lend(np.arange(11) + 1, None, np.full(11, 0.6), 5)
    assert held[5] == 0.6
    assert held.tolist() == sorted(held[:6].tolist()) + sorted(held[:5].tolist(), reverse=True)


def aged(given: list[tuple[float, int]], half_life: float) -> dict[int, float]:
    """Age items (score, age in microseconds), whose ids count from 1 on; best first."""
    order = sorted(range(len(given)), key=lambda at: (-given[at][0], -at))
    ranking = Ranking(np.array([at + 1 for at in order], np.int64), np.array([given[at][0] for at in order]))
    times = np.array([NOW - given[at][1] for at in order], np.int64)
    made = ranking.aged(times, NOW, half_life)
    falling = list(zip((-made.scores).tolist(), (-made.item_ids).tolist(), strict=True))
    assert falling == sorted(falling)
    return dict(zip(made.item_ids.tolist(), made.scores.tolist(), strict=True))


@unhurried
@given(st.lists(st.tuples(scores, ages), min_size=1, max_size=12), st.floats(0.5, 5_000))
def test_age_takes_what_the_definition_says(drawn: list[tuple[float, int]], half_life: float) -> None:
    """Within a 64th of a half-life; between 0.7 of a score and all of it, the older the less, best first."""
    found = aged(drawn, half_life)
    assert len(found) == len(drawn)
    for at, (score, age) in enumerate(drawn, 1):
        exact = score * (1 - 0.3 * (1 - 0.5 ** (age / (half_life * DAY))))
        assert found[at] == pytest.approx(exact, abs=0.3 / 64 + 1e-6)
        assert score * 0.7 - 1e-9 <= found[at] <= score + 1e-9
        for other, (its, older) in enumerate(drawn, 1):
            if its == score and older >= age:
                assert found[other] <= found[at]


@unhurried
@given(scores, ages, st.floats(0.5, 5_000))
def test_equal_scores_of_one_time_stay_equal(score: float, age: int, half_life: float) -> None:
    """The later written first, as it was."""
    found = aged([(score, age)] * 3, half_life)
    assert list(found) == [3, 2, 1]
    assert len(set(found.values())) == 1


def test_one_half_life_takes_half_of_what_age_can() -> None:
    """15 % after one, 22.5 % after two; of the future nothing."""
    found = aged([(1.0, 0), (1.0, 64 * DAY), (1.0, 128 * DAY), (1.0, -DAY)], 64.0)
    assert [found[at] for at in (1, 2, 3, 4)] == pytest.approx([1.0, 0.85, 0.775, 1.0])


@pytest.mark.parametrize("half_life", [1e-300, 1e-9, 1e9, 1e12, 1e300])
def test_half_lives_of_any_length(half_life: float) -> None:
    """What is too short takes everything at once, what is too long nothing."""
    assert aged([(1.0, DAY)], half_life) == {1: pytest.approx(0.7 if half_life < 1 else 1.0)}
