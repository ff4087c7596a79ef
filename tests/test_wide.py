"""The index of wide scopes against the ranking of narrow ones: the same texts, the same scores, the same order."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from memstore.analysis import to_query_terms, to_terms
from memstore.config import Mode
from memstore.indexes import Ids, Metric, Vectors
from memstore.indexes.flat import prepare
from memstore.indexes.postings import Postings
from memstore.scoring import Query, Ranking, rank_slices, weigh
from memstore.slices import Slice
from memstore.wide import Texts, WideIndex

DIMS = 16
VOCABULARY = [f"w{number}" for number in range(120)]
MODES: tuple[Mode, ...] = ("hybrid", "semantic", "lexical")
SCOPES: list[list[int] | None] = [None, [1], [2, 3], [1, 2, 3, 4], [4, 9], [9], []]
every_mode = pytest.mark.parametrize("mode", MODES)


@cache
def word_vector(word: str) -> Vectors:
    """Give a word its vector."""
    return np.random.default_rng(sum(word.encode()) * 7919 + len(word)).standard_normal(DIMS).astype(np.float32)


def embed(text: str) -> Vectors:
    """Sum the vectors of a text's words."""
    summed: Vectors = np.sum([word_vector(word) for word in text.split()], 0, dtype=np.float32)
    return summed


@dataclass
class Item:
    """An item and its texts."""

    id: int
    namespace: int
    text_id: int
    texts: list[str]


@dataclass
class Model:
    """A wide index, and the items that should be in it."""

    metric: Metric = "cosine"
    dense: bool = True
    last_id: int = 0
    items: dict[int, Item] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.index = WideIndex(self.metric)

    def add(self, drawn: list[tuple[int, list[str]]]) -> list[int]:
        """Add items of (namespace, texts), with ids as a store gives them; return these."""
        made = []
        for namespace, texts in drawn:
            made.append(Item(self.last_id + 1, namespace, self.last_id + 2, texts))
            self.last_id += 1 + len(texts)
        self.items |= {item.id: item for item in made}
        texts = [text for item in made for text in item.texts]
        terms = [to_terms(text) for text in texts]
        counts = [len(item.texts) for item in made]
        self.index.add(
            Texts(
                text_ids=np.array([item.text_id + at for item in made for at in range(len(item.texts))], np.int64),
                item_ids=np.repeat(np.array([item.id for item in made], np.int64), counts),
                namespace_ids=np.repeat(np.array([item.namespace for item in made], np.int64), counts),
                vectors=self.vectors(texts),
                lengths=np.array([len(one) for one in terms], np.int64),
                terms=np.concatenate([*terms, np.empty(0, np.uint32)]),
            )
        )
        return [item.id for item in made]

    def remove(self, ids: list[int]) -> None:
        """Remove items, and tell the index as a store's record of removals does."""
        gone = [self.items.pop(item_id) for item_id in ids]
        self.index.remove([(item.text_id, len(item.texts)) for item in gone])

    def vectors(self, texts: list[str]) -> Vectors:
        """Embed texts, where the store embeds."""
        if not self.dense:
            return np.empty((len(texts), 0), np.float32)
        return np.array([embed(text) for text in texts], np.float32).reshape(-1, DIMS)

    def slices(self, scope: list[int] | None) -> list[Slice]:
        """Give the slices that a narrow search of the same items ranks."""
        slices = []
        for namespace in sorted({item.namespace for item in self.items.values()}):
            part = [item for item in self.items.values() if item.namespace == namespace]
            if scope is not None and namespace not in scope:
                continue
            texts = [text for item in part for text in item.texts]
            terms = [to_terms(text) for text in texts]
            slices.append(
                Slice(
                    np.repeat(np.array([item.id for item in part], np.int64), [len(item.texts) for item in part]),
                    prepare(self.metric, self.vectors(texts)),
                    Postings.of(np.array([len(one) for one in terms], np.int64), np.concatenate(terms)),
                )
            )
        return slices

    def expected(self, query: Query, scope: list[int] | None) -> Ranking:
        """Rank as a narrow search does."""
        slices = self.slices(scope)
        weights = None
        if query.terms is not None:
            holders = np.zeros(len(query.terms), np.int64)
            holders += sum(part.postings.count(query.terms) for part in slices)
            weights = weigh(query.terms, holders, sum(len(part.item_ids) for part in slices))
        return rank_slices(query, self.metric, slices, weights)

    def query(self, text: str, mode: Mode) -> Query:
        """Make a query."""
        vector = None if mode == "lexical" else prepare(self.metric, embed(text))
        return Query(mode, vector, None if mode == "semantic" else to_query_terms(text), 1)


def scope_ids(scope: list[int] | None) -> Ids | None:
    """Lay a scope out as a search does."""
    return None if scope is None else np.array(scope, np.int64)


def ranks(ranking: Ranking) -> list[tuple[int, float]]:
    """Give (item id, score) pairs, best first."""
    return list(zip(ranking.item_ids.tolist(), ranking.scores.tolist(), strict=True))


def random_items(count: int, seed: int, most: int = 1) -> list[tuple[int, list[str]]]:
    """Make items of up to `most` texts in namespaces 1 to 4, of which the first has most of them."""
    chance = np.random.default_rng(seed)
    shares = 1 / np.arange(1, len(VOCABULARY) + 1)
    words = chance.choice(VOCABULARY, (count, most, 7), p=shares / shares.sum()).tolist()
    texts = chance.integers(1, most + 1, count).tolist()
    namespaces = chance.choice([1, 2, 3, 4], count, p=[0.6, 0.2, 0.19, 0.01]).tolist()
    drawn = zip(namespaces, texts, words, strict=True)
    return [(namespace, [" ".join(text) for text in some[:number]]) for namespace, number, some in drawn]


def trained(model: Model) -> Model:
    """Code a model's vectors, as catching up does."""
    if model.index.dense is not None:
        model.index.dense.train()
    return model


QUERIES = ["w1 w7 w30", "w0", "w119 w118 w2", "w3 w3 w90 elsewhere", "nowhere", "w50 w51 w52 w53 w54"]


class WideMachine(RuleBasedStateMachine):
    """Items come and go; whatever is asked then is answered as a narrow search of the same items answers."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()

    @rule(
        drawn=st.lists(
            st.tuples(
                st.integers(1, 4), st.lists(st.sampled_from(["w1", "w2 w3", "w1 w7 w9"]), min_size=1, max_size=3)
            ),
            min_size=1,
            max_size=6,
        )
    )
    def add(self, drawn: list[tuple[int, list[str]]]) -> None:
        """Add some."""
        self.model.add(drawn)

    @precondition(lambda self: self.model.items)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """Remove some."""
        self.model.remove(data.draw(st.lists(st.sampled_from(sorted(self.model.items)), max_size=4, unique=True)))

    @rule()
    def compact(self) -> None:
        """Forget what was removed, as happens when it is much."""
        self.model.index._compact()

    @rule()
    def train(self) -> None:
        """Code the vectors."""
        trained(self.model)

    @rule(mode=st.sampled_from(MODES), text=st.sampled_from(QUERIES), scope=st.sampled_from(SCOPES))
    def ask(self, mode: Mode, text: str, scope: list[int] | None) -> None:
        """Rank, and propose as many as there are."""
        query = self.model.query(text, mode)
        expected = ranks(self.model.expected(query, scope))
        assert len(self.model.index) == sum(len(item.texts) for item in self.model.items.values())
        assert ranks(self.model.index.rank(query, scope_ids(scope))) == expected
        proposed = self.model.index.propose(query, scope_ids(scope), 1_000)
        assert (ranks(proposed), proposed.complete) == (expected, True)


WideMachine.TestCase.settings = settings(deadline=None, max_examples=40, stateful_step_count=20)
TestWideMachine = WideMachine.TestCase


@every_mode
@pytest.mark.parametrize("most", [1, 3])
def test_a_scope_is_ranked_as_a_narrow_one_is(mode: Mode, most: int) -> None:
    """Over any namespaces, after removals and additions, before and after compaction: equal to the last bit."""
    model = Model()
    ids = model.add(random_items(1_500, 1, most))
    chance = np.random.default_rng(2)
    for step in range(3):
        for scope in SCOPES:
            for text in QUERIES:
                query = model.query(text, mode)
                assert ranks(model.index.rank(query, scope_ids(scope))) == ranks(model.expected(query, scope))
        if step == 0:
            gone = set(chance.choice(ids, 1_200, replace=False).tolist())
            model.remove([item for item in ids if item in gone])
            assert len(model.index._text_ids) == len(model.index)  # so much was removed that it is forgotten
            model.add(random_items(200, 3, most))
        else:
            model.remove(list(model.items)[::2])


def test_what_was_removed_is_forgotten_when_it_is_much() -> None:
    """A thousand removed texts may stay in memory; of more, none does, and the answers are the same."""
    model = Model()
    ids = model.add(random_items(2_200, 4))
    trained(model)
    model.remove(ids[:1_000])
    assert (len(model.index), len(model.index._text_ids)) == (1_200, 2_200)
    model.remove(ids[1_500:1_501])
    assert (len(model.index), len(model.index._text_ids)) == (1_199, 1_199)
    query = model.query("w1 w7 w30", "hybrid")
    assert ranks(model.index.rank(query, None)) == ranks(model.expected(query, None))
    assert ranks(model.index.propose(query, None, 100))[:10] == ranks(model.expected(query, None))[:10]
    model.remove(ids[1_000:1_400])
    model.add(random_items(50, 5))
    assert ranks(model.index.rank(query, None)) == ranks(model.expected(query, None))


@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("scope", [None, [1], [1, 2], [2, 3]])
def test_candidates_are_the_best_of_a_scope(mode: Mode, most: int, scope: list[int] | None) -> None:
    """In the order of the whole ranking, with its very scores, the first ones all there; and said not to be all."""
    model = Model()
    ids = model.add(random_items(2_000, 6, most))
    trained(model)
    model.remove(ids[::9])
    model.add(random_items(100, 7, most))
    for text in QUERIES:
        query = model.query(text, mode)
        whole = ranks(model.expected(query, scope))
        proposed = model.index.propose(query, scope_ids(scope), 200)
        assert not proposed.complete
        assert len(proposed.item_ids) == 200
        chosen = set(proposed.item_ids.tolist())
        assert ranks(proposed) == [pair for pair in whole if pair[0] in chosen]
        assert [pair[1] for pair in ranks(proposed)[:10]] == [pair[1] for pair in whole[:10]]
        assert sum(pair[1] >= whole[199][1] for pair in ranks(proposed)) >= 180


@every_mode
def test_a_small_scope_of_a_large_index_is_ranked_whole(mode: Mode) -> None:
    """Where there are fewer texts than candidates, or a small part of all, none is left out."""
    model = Model()
    model.add(random_items(1_500, 8, 2))
    trained(model)
    for scope in ([4], [3], [9], []):
        for text in QUERIES:
            query = model.query(text, mode)
            proposed = model.index.propose(query, scope_ids(scope), 20)
            assert (ranks(proposed), proposed.complete) == (ranks(model.expected(query, scope)), True)


def test_words_bring_candidates_that_vectors_do_not() -> None:
    """In hybrid mode the one text that holds a rare word is a candidate, however far its vector lies."""
    model = Model()
    model.add(random_items(1_000, 9))
    (rare,) = model.add([(1, ["zanzibar " + " ".join(VOCABULARY[100:110])])])
    model.add(random_items(1_000, 10))
    trained(model)
    query = Query("hybrid", prepare("cosine", -embed("zanzibar")), to_query_terms("zanzibar"), 1)
    proposed = model.index.propose(query, None, 50)
    assert proposed.item_ids[0] == rare
    assert ranks(proposed)[0] == ranks(model.expected(query, None))[0]


def test_an_item_counts_by_its_best_text_whichever_was_proposed() -> None:
    """The text that is near is one candidate, the one that holds the words another: the item has its best score."""
    model = Model()
    model.add(random_items(1_500, 11))
    twofold = model.add([(1, ["w40 w41 w42 w43", "zebra w100 w101 w102 w103 w104 w105 w106"])] * 3)
    trained(model)
    for text in ("zebra w40 w41 w42 w43", "w40 w41 w42 w43", "zebra"):
        query = model.query(text, "hybrid")
        whole = dict(ranks(model.expected(query, None)))
        proposed = dict(ranks(model.index.propose(query, None, 30)))
        assert [proposed[item] for item in twofold] == [whole[item] for item in twofold]


@pytest.mark.parametrize("metric", ["l2", "inner_product"])
def test_other_metrics(metric: Metric) -> None:
    """By meaning alone, the same holds."""
    model = Model(metric)
    model.add(random_items(1_200, 12, 2))
    trained(model)
    for text in QUERIES:
        query = model.query(text, "semantic")
        whole = ranks(model.expected(query, None))
        assert ranks(model.index.rank(query, None)) == whole
        assert ranks(model.index.propose(query, None, 200))[:10] == whole[:10]


def test_an_index_of_words_alone() -> None:
    """Where a store embeds nothing, the words rank; candidates are then all that share a term."""
    model = Model(dense=False)
    ids = model.add(random_items(800, 13, 2))
    model.remove(ids[::3])
    for scope in SCOPES:
        query = model.query("w1 w90 w100", "lexical")
        proposed = model.index.propose(query, scope_ids(scope), 10)
        assert (
            ranks(proposed) == ranks(model.expected(query, scope)) == ranks(model.index.rank(query, scope_ids(scope)))
        )
        assert proposed.complete


def test_a_conversation_for_a_query() -> None:
    """Of more terms than count, the rarest in the scope do: the same ones as in a narrow scope."""
    model = Model()
    model.add(random_items(900, 14, 2))
    trained(model)
    text = " ".join(VOCABULARY)
    for scope in ([1], None, [2, 3]):
        query = model.query(text, "hybrid")
        assert ranks(model.index.rank(query, scope_ids(scope))) == ranks(model.expected(query, scope))


def test_removals_of_what_never_came() -> None:
    """Texts that came and went between two searches, twice removed ones, and numbers beyond: all left aside."""
    model = Model()
    ids = model.add(random_items(100, 15, 3))
    item = model.items[ids[50]]
    model.index.remove([(model.last_id + 5, 3), (item.id, 1), (0, 1), (2**40, 2)])
    assert len(model.index) == sum(len(item.texts) for item in model.items.values())
    model.remove([ids[50], ids[0], ids[99]])
    model.index.remove([(item.text_id, len(item.texts))])
    model.index.remove([])
    assert len(model.index) == sum(len(item.texts) for item in model.items.values())
    for mode in MODES:
        query = model.query("w1 w7 w30", mode)
        assert ranks(model.index.rank(query, None)) == ranks(model.expected(query, None))


@every_mode
def test_an_empty_index_ranks_nothing(mode: Mode) -> None:
    """New, or when everything was removed, compacted or not: no ranks, and no error."""
    model = Model()
    query = model.query("w1", mode)
    for scope in SCOPES:
        assert ranks(model.index.rank(query, scope_ids(scope))) == []
        assert ranks(model.index.propose(query, scope_ids(scope), 10)) == []
    model.remove(model.add(random_items(30, 16, 2)))
    for _ in range(2):
        assert len(model.index) == 0
        for scope in SCOPES:
            assert ranks(model.index.rank(query, scope_ids(scope))) == []
            assert ranks(model.index.propose(query, scope_ids(scope), 10)) == []
        model.index._compact()
    model.add([(1, ["w1 w2"])])
    assert len(ranks(model.index.rank(query, None))) == 1


def test_equal_texts_tie_and_the_later_leads() -> None:
    """Copies in any namespace have one score, in candidates as in the whole."""
    model = Model()
    model.add(random_items(700, 17))
    copies = [model.add([(number % 4 + 1, ["w60 w61 w62"])])[0] for number in range(10)]
    trained(model)
    model.add(random_items(20, 18))
    for mode in MODES:
        query = model.query("w60 w61 w62", mode)
        for ranking in (model.index.rank(query, None), model.index.propose(query, None, 100)):
            first = ranks(ranking)[:10]
            assert [item for item, _ in first] == sorted(copies, reverse=True)
            assert len({score for _, score in first}) == 1
