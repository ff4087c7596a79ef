"""The formula of lexical and fused scores, against itself written out for one text at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memstore.indexes import Scores, Terms
from memstore.indexes.postings import Postings
from memstore.scoring import Query, Weights, fuse, rank_slices, score_texts, score_words, to_shares, weigh
from memstore.slices import Slice

unhurried = settings(deadline=None)
"""A slow machine fails no example."""
terms = st.sets(st.integers(0, 11) | st.sampled_from([2**31, 2**32 - 1]), max_size=8)
scopes = st.lists(terms, max_size=12)
"""What the texts of a scope hold."""
shares = st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 1)), min_size=1, max_size=8)


def laid_out(held: set[int]) -> Terms:
    """Lay out terms as a text or a query has them."""
    return np.array(sorted(held), np.uint32)


def postings_of(texts: list[set[int]]) -> Postings:
    """Make the postings of some texts."""
    return Postings.of(
        np.array([len(text) for text in texts], np.int64), np.concatenate([laid_out(set()), *map(laid_out, texts)])
    )


def weights_in(texts: list[set[int]], query: set[int]) -> Weights:
    """Weigh a query in a scope as a search does."""
    wanted = laid_out(query)
    return weigh(wanted, postings_of(texts).count(wanted), len(texts))


def scores_in(texts: list[set[int]], query: set[int]) -> Scores:
    """Score the texts of a scope by words."""
    return score_words(postings_of(texts), weights_in(texts, query))


def weight(term: int, texts: list[set[int]]) -> float:
    """Weigh one term by the definition."""
    holders = sum(term in text for text in texts)
    return math.log(1 + (len(texts) - holders + 0.5) / (holders + 0.5)) * (1 if holders else 0.25)


def share(text: set[int], query: set[int], texts: list[set[int]]) -> float:
    """Score one text by the definition."""
    whole = sum(weight(term, texts) for term in query)
    held = sum(weight(term, texts) for term in query & text)
    return min(1.0, held / whole / max(1.0, len(text) / 45) ** 0.4) if whole else 0.0


@unhurried
@given(scopes, terms)
def test_a_text_scores_what_the_formula_says(texts: list[set[int]], query: set[int]) -> None:
    """The weight it holds by the weight of the query, of any texts and any query; nothing leaves [0, 1]."""
    scores = scores_in(texts, query)
    assert scores.dtype == np.float64
    assert scores.tolist() == pytest.approx([share(text, query, texts) for text in texts], abs=1e-9)
    assert ((scores >= 0) & (scores <= 1)).all()
    assert scores.tolist() == np.round(scores, 9).tolist()  # the noise of summing is gone


@unhurried
@given(scopes, terms)
def test_what_holds_everything_scores_one_and_what_holds_nothing_zero(texts: list[set[int]], query: set[int]) -> None:
    """Exactly, whatever the order of summing does to the last bits."""
    scores = scores_in(texts, query)
    for text, score in zip(texts, scores.tolist(), strict=True):
        if not query & text:
            assert score == 0.0
        elif query <= text:
            assert score == 1.0
        else:
            assert 0.0 < score < 1.0


@unhurried
@given(scopes, terms, st.randoms(use_true_random=False))
def test_a_score_is_the_same_wherever_a_text_stands(texts: list[set[int]], query: set[int], chance: object) -> None:
    """To the last bit: in another order, and in slices of a scope that are scored one by one."""
    order = list(range(len(texts)))
    chance.shuffle(order)  # type: ignore[attr-defined]
    weights = weights_in(texts, query)
    scores = score_words(postings_of(texts), weights)
    assert scores_in([texts[at] for at in order], query).tolist() == scores[order].tolist()
    assert [float(score_words(postings_of([text]), weights)[0]) for text in texts] == scores.tolist()


@unhurried
@given(st.lists(st.integers(0, 50), max_size=90), st.integers(50, 60))
def test_weights_fall_as_holders_grow(drawn: list[int], texts: int) -> None:
    """Rarer weighs more, every weight is above zero, and they stand beside their terms with their sum."""
    holders = np.array(drawn, np.int64)
    weights = weigh(np.arange(len(drawn), dtype=np.uint32) * 3, holders, texts)
    assert len(weights.terms) == len(weights.weights) == min(len(drawn), 64)
    assert (np.diff(weights.terms.astype(np.int64)) > 0).all()
    assert (weights.weights > 0).all()
    assert weights.total == pytest.approx(weights.weights.sum())
    of = {int(term): drawn[int(term) // 3] for term in weights.terms}
    held = [(of[int(term)], value) for term, value in zip(weights.terms, weights.weights, strict=True) if of[int(term)]]
    assert [value for _, value in sorted(held)] == sorted((value for _, value in held), reverse=True)


@pytest.mark.parametrize("texts", [0, 1, 2, 1_000])
def test_a_term_that_nobody_holds_weighs_a_quarter(texts: int) -> None:
    """Of what the rarity of none would give it, in a scope of any size, one without texts too."""
    weights = weigh(laid_out({4}), np.array([0]), texts)
    assert weights.weights.tolist() == [math.log1p((texts + 0.5) / 0.5) / 4]


def test_a_term_that_nobody_holds_lowers_every_share() -> None:
    """A text that holds all the others is no longer the whole of what was asked for, but more than half of it."""
    texts = [{1, 2}, {1}, {3}]
    assert scores_in(texts, {1, 2})[0] == 1.0
    with_unheld = scores_in(texts, {1, 2, 99})
    assert 0.5 < with_unheld[0] < 1.0
    assert with_unheld[1] < scores_in(texts, {1, 2})[1]
    assert with_unheld[2] == 0.0


@unhurried
@given(st.integers(65, 150), st.integers(0, 150), st.integers(0, 2**32 - 1))
def test_of_a_long_query_the_rarest_that_are_held_count(length: int, held: int, seed: int) -> None:
    """Sixty-four terms: a held one before any that is not, a rarer one before a more frequent one."""
    chance = np.random.default_rng(seed)
    holders = np.zeros(length, np.int64)
    at = chance.permutation(length)[:held]
    holders[at] = chance.integers(1, 40, len(at))
    weights = weigh(np.arange(length, dtype=np.uint32), holders, 50)
    assert len(weights.terms) == 64
    assert (np.diff(weights.terms.astype(np.int64)) > 0).all()
    counted = holders[weights.terms]
    assert weights.weights.tolist() == pytest.approx(
        [math.log1p((50.5 - count) / (count + 0.5)) * (1 if count else 0.25) for count in counted.tolist()]
    )
    left = np.delete(holders, weights.terms)
    assert (counted > 0).sum() == min(64, len(at))
    if (left > 0).any():
        assert counted.max() <= left[left > 0].min()


def test_a_query_of_sixty_four_terms_counts_whole() -> None:
    """One more, and the most frequent is left out: the whole query is then what the others weigh."""
    holders = np.arange(1, 66)
    assert weigh(np.arange(64, dtype=np.uint32), holders[:64], 100).terms.tolist() == list(range(64))
    weights = weigh(np.arange(65, dtype=np.uint32), holders, 100)
    assert weights.terms.tolist() == list(range(64))
    assert weights.total == pytest.approx(weights.weights.sum())


@pytest.mark.parametrize("texts", [1, 2, 5])
def test_what_every_text_holds_counts_before_what_none_does(texts: int) -> None:
    """In a scope of few texts all that is held may be held by all: a long query still finds them by it."""
    wanted = {1_000, 1_001, 1_002}
    scope = [wanted | {5_000 + number} for number in range(texts)]
    weights = weights_in(scope, wanted | set(range(100)))
    assert wanted <= set(weights.terms.tolist())
    assert (score_words(postings_of(scope), weights) > 0).all()


def test_long_texts_are_discounted_from_forty_five_terms_on() -> None:
    """So many are short; beyond, a share falls with a power of the length, and a whole one leaves 1 at once."""
    lengths = np.array([0, 1, 44, 45, 46, 90, 270, 3_000])
    expected = [0.5, 0.5, 0.5, 0.5, *(0.5 / (length / 45) ** 0.4 for length in (46, 90, 270, 3_000))]
    assert to_shares(np.full(8, 1.5), lengths, 3.0).tolist() == pytest.approx(expected, abs=1e-9)
    assert to_shares(np.full(8, 3.0), lengths, 3.0)[3:5].tolist() == [1.0, pytest.approx((45 / 46) ** 0.4)]


@unhurried
@given(terms.filter(bool), st.integers(0, 44))
def test_what_else_a_short_text_holds_is_nothing_to_its_score(query: set[int], more: int) -> None:
    """Up to forty-five terms in all, texts that hold the same of a query score the same."""
    padded = query | set(range(1_000, 1_000 + min(more, 45 - len(query))))
    assert scores_in([query, padded], query).tolist() == [1.0, 1.0]


@unhurried
@given(shares)
def test_a_fused_score_lies_between_its_legs_bounds(drawn: list[tuple[float, float]]) -> None:
    """In [0, 1]; what is unlike counts as what has nothing to do with it; each leg alone can only raise it."""
    cosines = np.array([cosine for cosine, _ in drawn])
    words = np.array([share for _, share in drawn])
    fused = fuse(cosines, words)
    assert ((fused >= 0) & (fused <= 1)).all()
    assert fused.tolist() == pytest.approx([0.5 * max(0, cosine) + 0.5 * share for cosine, share in drawn], abs=1e-9)
    assert fuse(np.maximum(cosines, 0.0), words).tolist() == fused.tolist()
    assert (fuse(np.minimum(cosines + 0.1, 1.0), words) >= fused).all()
    assert (fuse(cosines, np.minimum(words + 0.1, 1.0)) >= fused).all()
    assert not np.signbit(fuse(np.array([-1.0, -0.0]), np.zeros(2))).any()


def test_an_empty_query_finds_nothing_by_words() -> None:
    """It weighs nothing, every text scores zero, and none ranks; a scope without texts is no error either."""
    nothing = weights_in([{1}, set()], set())
    assert (len(nothing.terms), nothing.total) == (0, 0.0)
    assert scores_in([{1}, set()], set()).tolist() == [0.0, 0.0]
    assert scores_in([], {1}).tolist() == []
    part = Slice(np.array([3, 4]), np.empty((2, 0), np.float32), postings_of([{1}, set()]))
    query = Query("lexical", None, laid_out(set()), 1)
    assert rank_slices(query, "cosine", [part], nothing).item_ids.tolist() == []


def test_each_mode_scores_by_its_legs() -> None:
    """Words alone, vectors alone, or both fused: of one text, in each."""
    texts = [{1, 2}, {1}, set()]
    vectors = np.array([[0.6, 0.8], [-1.0, 0.0], [1.0, 0.0]], np.float32)
    part = Slice(np.array([3, 4, 5]), vectors, postings_of(texts))
    toward = np.array([1.0, 0.0], np.float32)
    weights = weights_in(texts, {1, 2})
    words = score_texts(Query("lexical", None, laid_out({1, 2}), 1), "cosine", part, weights).scores
    dense = score_texts(Query("semantic", toward, None, 1), "cosine", part, None).scores
    both = score_texts(Query("hybrid", toward, laid_out({1, 2}), 1), "cosine", part, weights).scores
    assert words.tolist() == [1.0, pytest.approx(share({1}, {1, 2}, texts)), 0.0]
    assert dense.tolist() == [0.6, -1.0, 1.0]
    assert both.tolist() == pytest.approx([0.3 + 0.5, 0.5 * words[1], 0.5])
