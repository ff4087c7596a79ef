"""The index of wide scopes beside slices of the same texts: any history, any scope, any number of candidates."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memstore.config import Mode
from memstore.errors import DatabaseDamaged
from memstore.indexes import Ids, Metric, Terms, Vectors
from memstore.indexes.flat import prepare
from memstore.indexes.postings import Postings
from memstore.scoring import Query, Ranking, rank_slices, weigh
from memstore.slices import Slice
from memstore.wide import Texts, WideIndex

unhurried = settings(deadline=None, max_examples=60)
"""A slow machine fails no example."""
DIMS = 6
ZERO = 40
"""Which of the vectors is all zeros; no random text has it."""
MODES: tuple[Mode, ...] = ("hybrid", "semantic", "lexical")
METRICS: tuple[Metric, ...] = ("cosine", "l2", "inner_product")
VECTORS: Vectors = np.random.default_rng(3).standard_normal((41, DIMS)).astype(np.float32)
VECTORS[1] = -VECTORS[2]
VECTORS[3] = 5 * VECTORS[2]
VECTORS[ZERO] = 0
NAMESPACES = [2, 3, 5, 1_000]
Text = tuple[frozenset[int], int]
"""What a text holds, and which of the vectors it has."""
Question = tuple[Mode, frozenset[int], int]

text = st.tuples(st.frozensets(st.integers(1, 9), max_size=5), st.integers(0, 39))
item = st.tuples(st.sampled_from(NAMESPACES), st.lists(text, min_size=1, max_size=3))
scopes = st.none() | st.lists(st.sampled_from([*NAMESPACES, 0, 4, 2**20]), max_size=4)
"""Namespaces in any order, named twice, unknown, beyond all that are known, or none."""
asked = st.tuples(st.sampled_from(MODES), st.frozensets(st.integers(1, 70), max_size=8), st.integers(0, 39))
"""The mode of a query, its terms, and which of the vectors it has."""
steps = st.lists(
    st.lists(item, max_size=8) | st.sampled_from(["remove", "compact", "train", "repeat"]), min_size=1, max_size=10
)


def as_terms(held: frozenset[int]) -> Terms:
    """Lay out the terms of one text."""
    return np.array(sorted(held), np.uint32)


@dataclass
class Both:
    """A wide index, and the items it should hold: namespace, first text's id, texts."""

    metric: Metric = "cosine"
    last_id: int = 0
    items: dict[int, tuple[int, int, list[Text]]] = field(default_factory=dict)
    gone: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.index = WideIndex(self.metric)

    def add(self, items: list[tuple[int, list[Text]]]) -> None:
        """Add items; ids of texts and of items are counted apart, with gaps."""
        rows = []
        for namespace, texts in items:
            self.last_id += 4
            self.items[self.last_id] = namespace, 10 * self.last_id, texts
            rows += [(10 * self.last_id + at, self.last_id, namespace, *one) for at, one in enumerate(texts)]
        self.index.add(
            Texts(
                text_ids=np.array([row[0] for row in rows], np.int64),
                item_ids=np.array([row[1] for row in rows], np.int64),
                namespace_ids=np.array([row[2] for row in rows], np.int64),
                vectors=VECTORS[[row[4] for row in rows]],
                lengths=np.array([len(row[3]) for row in rows], np.int64),
                terms=np.concatenate([as_terms(frozenset()), *[as_terms(row[3]) for row in rows]]),
            )
        )

    def remove(self, ids: list[int]) -> None:
        """Remove items as records of removals say it, in any order, one of them twice."""
        removals = []
        for item_id in ids:
            _, first, texts = self.items.pop(item_id)
            removals.append((first, len(texts)))
        self.gone += removals
        self.index.remove([*removals[::-1], *removals[:1]])

    def take(self, step: object) -> None:
        """Take one step of a history."""
        if isinstance(step, list):
            self.add(step)
        elif step == "remove":
            self.remove(list(self.items)[::2])
        elif step == "compact":
            self.index._compact()
        elif step == "repeat":
            self.index.remove([*self.gone, *self.gone, (10 * self.last_id + 100, 3)])
        elif self.index.dense is not None:
            self.index.dense.train()

    def slices(self, scope: list[int] | None) -> list[Slice]:
        """Give each namespace's texts as a slice, made of those texts alone."""
        found = []
        for namespace in sorted({one[0] for one in self.items.values()}):
            if scope is None or namespace in scope:
                rows = [
                    (item_id, *one)
                    for item_id, (own, _, texts) in self.items.items()
                    if own == namespace
                    for one in texts
                ]
                postings = Postings.of(
                    np.array([len(row[1]) for row in rows]), np.concatenate([as_terms(row[1]) for row in rows])
                )
                vectors = prepare(self.metric, VECTORS[[row[2] for row in rows]])
                found.append(Slice(np.array([row[0] for row in rows]), vectors, postings))
        return found

    def expected(self, query: Query, scope: list[int] | None) -> Ranking:
        """Rank as a narrow scope is ranked."""
        slices = self.slices(scope)
        weights = None
        if query.terms is not None:
            holders = np.zeros(len(query.terms), np.int64)
            for part in slices:
                holders += part.postings.count(query.terms)
            weights = weigh(query.terms, holders, sum(len(part.item_ids) for part in slices))
        return rank_slices(query, self.metric, slices, weights)

    def query(self, mode: Mode, wanted: frozenset[int], vector: int) -> Query:
        """Make a query."""
        ready = None if mode == "lexical" else prepare(self.metric, VECTORS[vector])
        return Query(mode, ready, None if mode == "semantic" else as_terms(wanted), 1)


def laid_out(scope: list[int] | None) -> Ids | None:
    """Lay out a scope as a search does."""
    return None if scope is None else np.array(scope, np.int64)


def pairs(ranking: Ranking) -> list[tuple[int, float]]:
    """Give (item id, score) pairs, best first."""
    return list(zip(ranking.item_ids.tolist(), ranking.scores.tolist(), strict=True))


def random_items(count: int, most: int, seed: int) -> list[tuple[int, list[Text]]]:
    """Make items, half of them in the first namespace and hardly any in the last."""
    chance = np.random.default_rng(seed)
    made = []
    for namespace in chance.choice(NAMESPACES, count, p=[0.5, 0.3, 0.19, 0.01]).tolist():
        texts = [
            (frozenset(chance.integers(1, 60, 4).tolist()), int(chance.integers(0, 40)))
            for _ in range(int(chance.integers(1, most + 1)))
        ]
        made.append((namespace, texts))
    return made


@cache
def large(most: int) -> Both:
    """Make an index with codes, with texts that came after them and texts that are gone; nobody may change it."""
    both = Both()
    both.add(random_items(700, most, 1))
    both.take("train")
    both.remove(list(both.items)[::7])
    both.add(random_items(60, most, 2))
    both.add(random_items(9, 1, 3))
    return both


@unhurried
@given(steps, asked, scopes, st.sampled_from(METRICS), st.integers(1, 300))
def test_any_history_ranks_as_slices_do(
    history: list[object], question: Question, scope: list[int] | None, metric: Metric, count: int
) -> None:
    """Whatever came and went: to the last bit the ranks of the same texts in slices, and few of them proposed whole."""
    both = Both(metric if question[0] == "semantic" else "cosine")
    for step in history:
        both.take(step)
        assert len(both.index) == sum(len(texts) for _, _, texts in both.items.values())
    query = both.query(*question)
    expected = pairs(both.expected(query, scope))
    assert pairs(both.index.rank(query, laid_out(scope))) == expected
    proposed = both.index.propose(query, laid_out(scope), count)
    assert pairs(proposed) == (expected if proposed.complete else expected[: len(proposed.item_ids)])


@unhurried
@given(st.sampled_from([1, 3]), asked, scopes, st.integers(1, 900))
def test_what_is_proposed_is_of_the_whole_ranking(
    most: int, question: Question, scope: list[int] | None, count: int
) -> None:
    """Of any number: in the order of all ranks, with their scores, none twice; complete only if none is missing."""
    both = large(most)
    query = both.query(*question)
    whole = pairs(both.index.rank(query, laid_out(scope)))
    assert whole == pairs(both.expected(query, scope))
    proposed = both.index.propose(query, laid_out(scope), count)
    if proposed.complete:
        assert pairs(proposed) == whole
    else:
        chosen = set(proposed.item_ids.tolist())
        assert pairs(proposed) == [pair for pair in whole if pair[0] in chosen]
        assert len(chosen) == len(proposed.item_ids) <= count


@unhurried
@given(st.sampled_from([1, 3]), asked)
def test_where_every_text_is_looked_at_the_first_ranks_are_proposed(most: int, question: Question) -> None:
    """Where candidates are all texts, their number cuts the exact ranking and changes nothing else."""
    both = large(most)
    query = both.query(*question)
    whole = pairs(both.index.rank(query, None))
    for count in (len(both.index) - 1, len(both.index) - 40, len(both.index) * 9 // 10):
        proposed = both.index.propose(query, None, count)
        assert pairs(proposed) == (whole if proposed.complete else whole[:count])


@pytest.mark.parametrize("zeros", NAMESPACES)
def test_a_vector_of_zeros_changes_no_other_score(zeros: int) -> None:
    """Whichever namespace has one: other texts, and their copies elsewhere, score as if it were not there."""
    lone = Both()
    lone.add([(namespace, [(frozenset(), at)]) for at in range(40) for namespace in NAMESPACES])
    with_zeros = Both()
    with_zeros.add([(namespace, [(frozenset(), at)]) for at in range(40) for namespace in NAMESPACES])
    with_zeros.add([(zeros, [(frozenset(), ZERO)])])
    for vector in range(40):
        query = lone.query("semantic", frozenset(), vector)
        expected = pairs(lone.expected(query, None))
        for ranking in (with_zeros.index.rank(query, None), with_zeros.expected(query, None)):
            assert dict(pairs(ranking)) == dict(expected) | {with_zeros.last_id: 0.0}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scope", [None, [2], [3], [3, 5], [1_000], [4], []])
def test_only_a_broad_scope_with_more_texts_than_wanted_is_cut(mode: Mode, scope: list[int] | None) -> None:
    """A quarter of all texts is broad; as many as are wanted, or fewer, are ranked whole and said to be all."""
    both = large(3)
    query = both.query(mode, frozenset({3, 40, 58}), 17)
    size = sum(len(part.item_ids) for part in both.slices(scope))
    for count in (1, size - 1, size, size + 1):
        if count > 0:
            proposed = both.index.propose(query, laid_out(scope), count)
            cut = mode != "lexical" and size > count and size > len(both.index) / 4
            assert proposed.complete == (not cut)
            assert not cut or 0 < len(proposed.item_ids) <= count


@pytest.mark.parametrize("mode", MODES)
def test_what_comes_after_compaction_has_places_of_its_own(mode: Mode) -> None:
    """Texts close up over those that are gone, with their words, vectors and namespaces; what is added follows."""
    both = Both()
    for seed in range(3):
        both.add(random_items(150, 3, seed))
        both.take("remove")
        both.take("train")
        both.take("compact")
        assert len(both.index) == sum(len(texts) for _, _, texts in both.items.values())
        for scope in (None, [3], [2, 5]):
            query = both.query(mode, frozenset({1, 8, 20, 44, 59}), 11 + seed)
            expected = pairs(both.expected(query, scope))
            assert len(expected) > 10
            assert pairs(both.index.rank(query, laid_out(scope))) == expected


def test_a_history_leaves_no_trace() -> None:
    """An index from which much has gone equals one in which it never was: scores, order, candidates' scores."""
    for most in (1, 3):
        lived, fresh = large(most), Both()
        fresh.last_id = 4 * 10_000
        renamed = {}
        for item_id, (namespace, _, texts) in lived.items.items():
            fresh.add([(namespace, texts)])
            renamed[fresh.last_id] = item_id
        for mode in MODES:
            query = lived.query(mode, frozenset({1, 5, 33, 59, 99}), 21)
            for scope in (None, [3], [2, 1_000]):
                was = pairs(lived.index.rank(query, laid_out(scope)))
                now = pairs(fresh.index.rank(query, laid_out(scope)))
                assert [(renamed[item_id], score) for item_id, score in now] == was


@pytest.mark.parametrize("mode", ["semantic", "hybrid"])
@pytest.mark.parametrize("count", [1, 10, 50, 200])
def test_pages_are_the_candidates_and_then_the_others(mode: Mode, count: int) -> None:
    """Deeper pages go on behind what was proposed: every item once, and no score above one before it."""
    for most in (1, 3):
        both = large(most)
        for vector in range(5, 40, 2):
            scope = laid_out([None, [2], [3, 5]][vector % 3])
            query = both.query(mode, frozenset({2, 30, 55}), vector)
            near, whole = both.index.propose(query, scope, count), both.index.rank(query, scope)
            assert set(pairs(near)) <= set(pairs(whole))
            far = whole.after(near)
            ids = np.concatenate([near.item_ids, far.item_ids])
            assert len(ids) == len(set(ids.tolist()))
            assert set(ids.tolist()) == set(whole.item_ids.tolist())
            assert (np.diff(np.concatenate([near.scores, far.scores])) <= 0).all()


ranked = st.lists(st.tuples(st.integers(1, 40), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])), max_size=12).map(
    lambda drawn: sorted(dict(drawn).items(), key=lambda pair: (-pair[1], -pair[0]))
)


def ranking_of(drawn: list[tuple[int, float]], *, complete: bool = True) -> Ranking:
    """Make a ranking."""
    return Ranking(np.array([one for one, _ in drawn], np.int64), np.array([one for _, one in drawn]), complete)


@unhurried
@given(ranked, st.integers(0, 14), st.integers(0, 14), st.booleans(), st.lists(st.booleans(), min_size=12, max_size=12))
def test_parts_of_a_ranking(
    drawn: list[tuple[int, float]], start: int, end: int, complete: bool, drawn_stays: list[bool]
) -> None:
    """Some ranks, and those that stay, are in their order, and as complete as the whole was; it is left as it was."""
    whole = ranking_of(drawn, complete=complete)
    stays = np.array(drawn_stays[: len(drawn)], np.bool_)
    cut, only = whole.cut(start, end), whole.only(stays)
    assert (pairs(cut), cut.complete) == (drawn[start:end], complete)
    assert (pairs(only), only.complete) == ([one for one, kept in zip(drawn, stays, strict=True) if kept], complete)
    assert pairs(whole) == drawn


@unhurried
@given(ranked, ranked)
def test_what_follows_repeats_nothing_and_stays_sorted(
    first: list[tuple[int, float]], drawn: list[tuple[int, float]]
) -> None:
    """Ranks behind others: those not among them, in their order, none above the last of the others."""
    after = ranking_of(drawn).after(ranking_of(first, complete=False))
    known = {item_id for item_id, _ in first}
    last = first[-1][1] if first else np.inf
    assert pairs(after) == [(item_id, min(score, last)) for item_id, score in drawn if item_id not in known]
    assert (np.diff([*ranking_of(first).scores, *after.scores]) <= 0).all()


def test_texts_with_and_without_vectors_do_not_mix() -> None:
    """Where some texts have vectors and some none, vectors are missing: an error at once, and nothing is added."""
    without = Texts(
        np.array([900]),
        np.array([90]),
        np.array([2]),
        np.empty((1, 0), np.float32),
        np.array([1]),
        as_terms({7}),  # type: ignore[arg-type]
    )
    both = Both()
    both.add([(2, [(frozenset({7}), 5)])])
    with pytest.raises(DatabaseDamaged):
        both.index.add(without)
    assert (len(both.index), both.index.last_id) == (1, 4)
    wordy = WideIndex("cosine")
    wordy.add(without)
    assert wordy.last_id == 90
    for mode, wanted in (("semantic", frozenset()), ("hybrid", frozenset({7}))):
        query = both.query(mode, wanted, 5)  # type: ignore[arg-type]
        for count in (1, 5):
            with pytest.raises(DatabaseDamaged):
                wordy.propose(query, None, count)
        with pytest.raises(DatabaseDamaged):
            wordy.rank(query, None)
    assert pairs(wordy.rank(both.query("lexical", frozenset({7}), 5), None)) == [(90, 1.0)]
