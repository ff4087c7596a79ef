"""Reranking: what a model that reads query and text together makes of the first ranks, and what it is given."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest
from langgraph.store.base import PutOp, SearchOp

from memstore import InvalidArgument, InvalidConfig, Rerank, RerankError
from tests.conformance.modes import MODES
from tests.conformance.ranking_oracle import WEIGHTS, fill, open_shadow, ranked
from tests.support import AsyncCaller, Clock, OpenStore, WordEmbeddings, keys

QUERY = "the moon over the hill"
FIRST = 12
WRONG: list[Any] = [5, 0.5, True, "", "  ", ["model"], {"model": len}]
WRONG_ANSWERS: dict[str, Any] = {
    "too few": lambda _, texts: [0.5] * (len(texts) - 1),
    "too many": lambda _, texts: [0.5] * (len(texts) + 1),
    "NaN": lambda _, texts: [math.nan] * len(texts),
    "an infinity": lambda _, texts: [math.inf] * len(texts),
    "text": lambda _, texts: ["high"] * len(texts),
    "nothing": lambda *_: None,
    "a number": lambda *_: 0.5,
    "lists": lambda _, texts: [[0.5]] * len(texts),
}


class ByLength:
    """Likes texts the better the longer they are, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []

    def __call__(self, query: str, texts: list[str]) -> list[float]:
        """Score texts."""
        self.asked.append((query, list(texts)))
        return [len(text) / 1_000 for text in texts]


class Weighted(ByLength):
    """Says what it should count."""

    weight = 0.25


class ByLengthAwaited(ByLength):
    """The same, awaited."""

    async def __call__(self, query: str, texts: list[str]) -> list[float]:  # type: ignore[override]
        """Score texts."""
        await asyncio.sleep(0)
        return super().__call__(query, texts)


class Down(Exception):
    """What a failing reranker raises."""


def fail(query: str, texts: Sequence[str]) -> list[float]:
    """Fail."""
    raise Down(len(query), len(texts))


class RerankingConformance:
    """The first ranks are ordered by what was said of them, the others follow; fixture `kind` as in ranking."""

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("weight", [None, 1.0, 0.5])
    def test_the_first_ranks_are_ordered_anew(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, mode: str, weight: float | None
    ) -> None:
        """By its share of both scores; equals stay in order, and what follows scores no better than they."""
        store = fill(open_shadow(open_store, embeddings, clock)).store
        plain = store.search((), query=QUERY, mode=mode, limit=100)
        model = ByLength()
        found = store.search((), query=QUERY, mode=mode, limit=100, rerank=Rerank(model, FIRST, weight))
        ((query, texts),) = model.asked
        assert (query, len(texts)) == (QUERY, FIRST)
        own = weight or 1.0
        final = [
            (1 - own) * (hit.score or 0) + own * len(text) / 1_000 for hit, text in zip(plain, texts, strict=False)
        ]
        order = sorted(range(FIRST), key=lambda at: -final[at])
        assert keys(found) == [plain[at].key for at in order] + keys(plain[FIRST:])
        rest = [min(hit.score or 0, *final) for hit in plain[FIRST:]]
        assert [hit.score for hit in found] == pytest.approx([final[at] for at in order] + rest)
        assert [hit.score for hit in found] == sorted((hit.score or 0 for hit in found), reverse=True)

    def test_each_item_is_read_by_its_best_text(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """The one it was found by, as it stands in the value; whatever path or put chose it."""
        shadow = open_shadow(open_store, embeddings, clock, weights={"title": 0.2})
        shadow.put(("a",), "parts", {"title": "zebra zebra", "parts": ["boats", "a zebra in the field", "moon"]})
        shadow.store.put(("a",), "other", {"note": {"x": ["dog", "the zebra"]}}, index=["note.x[*]"])
        shadow.store.put(("a",), "whole", {"kind": "zebra"}, index=["$"])
        shadow.put(("a",), "far", {"title": "grape"})
        model = ByLength()
        found = shadow.store.search((), query="a zebra in a field", rerank=model)
        texts = {"parts": "a zebra in the field", "other": "the zebra", "whole": '{"kind": "zebra"}', "far": "grape"}
        assert sorted(model.asked[0][1]) == sorted(texts.values())
        assert {hit.key: hit.score for hit in found} == {key: len(text) / 1_000 for key, text in texts.items()}

    @pytest.mark.parametrize("filter", [None, {"n": {"$lt": 2}}, {"$not": {"n": 0}}], ids=repr)
    def test_pages_join(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, filter: dict[str, Any] | None
    ) -> None:
        """Whether a page lies among the first ranks, beyond them, or both; the model sees the same each time."""
        store = fill(open_shadow(open_store, embeddings, clock, weights=WEIGHTS)).store
        model = ByLength()
        for least in (None, 0.05):
            asked = {"query": QUERY, "filter": filter, "rerank": Rerank(model, FIRST, 0.5), "min_score": least}
            whole = ranked(store.search((), limit=500, **asked))
            assert len(whole) > FIRST / 2
            for size in (1, 5, 13):
                starts = range(0, len(whole) + size, size)
                assert ranked(chain(*(store.search((), limit=size, offset=at, **asked) for at in starts))) == whole
        assert len({tuple(texts) for _, texts in model.asked}) == 1

    def test_the_filter_and_expiry_come_before(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """The model reads what may be found alone."""
        shadow = open_shadow(open_store, embeddings, clock)
        for number in range(40):
            value = {"title": f"zebra {number}", "n": number % 2}
            shadow.put(("a",), f"k{number}", value, ttl=1 if number % 4 == 1 else None)
        clock.pass_minutes(2)
        model = ByLength()
        found = shadow.store.search((), query="zebra", filter={"n": 1}, limit=5, rerank=Rerank(model, 8))
        assert len(found) == 5
        (_, texts), *_ = model.asked
        assert len(texts) == 8
        assert {f"zebra {number}" for number in range(3, 40, 4)} > set(texts)

    def test_the_least_score_is_that_of_the_end(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """What the model lifts above it is found, what it puts below is not."""
        shadow = open_shadow(open_store, embeddings, clock)
        shadow.put(("a",), "low", {"title": "grape " * 100})
        shadow.put(("a",), "high", {"title": "zebra"})
        found = shadow.store.search((), query="zebra", rerank=ByLength(), min_score=0.5)
        assert [(hit.key, hit.score) for hit in found] == [("low", 0.6)]

    def test_only_what_is_returned_is_refreshed(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """Not the others that the model read."""
        shadow = open_shadow(open_store, embeddings, clock)
        for number in range(6):
            shadow.put(("a",), str(number), {"title": f"zebra{' x' * number}"}, ttl=10)
        clock.pass_minutes(8)
        found = shadow.store.search((), query="zebra", limit=2, offset=1, rerank=ByLength(), refresh_ttl=True)
        assert keys(found) == ["4", "3"]
        clock.pass_minutes(8)
        assert sorted(keys(shadow.store.search(()))) == ["3", "4"]

    def test_a_store_s_reranker_serves_every_search(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """In batches too, once for each search; a call may name another, or turn it off."""
        model, other = ByLength(), ByLength()
        shadow = fill(open_shadow(open_store, embeddings, clock, rerank=Rerank(model, FIRST)), 20)
        store = shadow.store
        told = ranked(store.search((), query=QUERY))
        assert len(model.asked) == 1
        first, second, _ = store.batch([SearchOp((), query=QUERY), SearchOp((), query="zebra"), SearchOp(())])
        assert [query for query, _ in model.asked] == [QUERY, QUERY, "zebra"]
        assert ranked(first) == told
        assert ranked(second) == ranked(store.search((), query="zebra"))
        model.asked.clear()
        plain = open_shadow(open_store, embeddings, clock).store
        assert ranked(store.search((), query=QUERY, rerank=False)) == ranked(plain.search((), query=QUERY))
        assert ranked(plain.search((), query=QUERY, rerank=Rerank(other, FIRST))) == told
        store.search((), query=QUERY, rerank=other)
        assert (len(model.asked), len(other.asked)) == (0, 2)

    def test_nothing_is_asked_of_it_where_there_is_nothing(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """Without a query, a limit, or anything that is found."""
        model = ByLength()
        shadow = open_shadow(open_store, embeddings, clock, rerank=model)
        assert shadow.store.search((), query="zebra") == []
        shadow.put(("a",), "k", {"title": "zebra"})
        assert keys(shadow.store.search(())) == ["k"]
        assert shadow.store.search((), query="zebra", limit=0) == []
        assert shadow.store.search(("b",), query="zebra") == []
        assert shadow.store.search((), query="zebra", filter={"n": 1}) == []
        assert shadow.store.search((), query="grape", mode="lexical") == []
        assert model.asked == []

    def test_what_else_a_model_calls_its_weight_is_nothing_to_its_scores(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """Models have all kinds of attributes; how much one counts is said by the search, and else it counts alone."""
        store = fill(open_shadow(open_store, embeddings, clock), 20).store
        told = ranked(store.search((), query=QUERY, rerank=Rerank(ByLength(), weight=0.25)))
        assert ranked(store.search((), query=QUERY, rerank=Rerank(Weighted(), weight=0.25))) == told
        whole = ranked(store.search((), query=QUERY, rerank=ByLength()))
        assert ranked(store.search((), query=QUERY, rerank=Weighted())) == whole != told

    def test_an_async_model_is_awaited(self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock) -> None:
        """By the async methods; the others say that they cannot."""
        store = fill(open_shadow(open_store, embeddings, clock), 20).store
        model = ByLengthAwaited()
        if isinstance(store, AsyncCaller):
            told = ranked(store.search((), query=QUERY, rerank=ByLength()))
            assert ranked(store.search((), query=QUERY, rerank=model)) == told
            assert ranked(store.search((), query=QUERY, rerank=model.__call__)) == told
            return
        for given in (model, model.__call__):
            with pytest.raises(RerankError, match="await"):
                store.search((), query=QUERY, rerank=given)

    @pytest.mark.parametrize("answer", WRONG_ANSWERS.values(), ids=WRONG_ANSWERS.keys())
    def test_wrong_answers_are_errors(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, answer: Any
    ) -> None:
        """Never a ranking by half of them; the store works on."""
        store = fill(open_shadow(open_store, embeddings, clock), 10).store
        with pytest.raises(RerankError, match="expected"):
            store.search((), query=QUERY, rerank=answer)
        assert store.search((), query=QUERY)

    def test_its_own_errors_come_through(self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock) -> None:
        """As they are, and nothing is held afterwards."""
        shadow = fill(open_shadow(open_store, embeddings, clock), 10)
        with pytest.raises(Down):
            shadow.store.search((), query=QUERY, rerank=fail)
        shadow.put(("a",), "k", {"title": "zebra"})
        assert keys(shadow.store.search((), query="zebra", limit=1)) == ["k"]

    def test_a_batch_whose_reranker_fails_writes_nothing(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """A batch is all or nothing: what it raises is not half done."""
        shadow = open_shadow(open_store, embeddings, clock, rerank=fail)
        shadow.put(("a",), "k", {"title": "zebra"})
        with pytest.raises(Down):
            shadow.store.batch([SearchOp((), query="zebra"), PutOp(("a",), "new", {"title": "grape"})])
        assert shadow.store.get(("a",), "new") is None

    def test_a_model_may_use_the_store(self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock) -> None:
        """It is called outside of every transaction and lock: it may search and even write, here and elsewhere."""
        shadow = fill(open_shadow(open_store, embeddings, clock), 20)
        store = shadow.store

        def ask(_: str, texts: list[str]) -> list[float]:
            store.store.put(("notes",), "seen", {"title": "unsearchable", "count": len(texts)}, index=False)
            assert store.store.search((), query="zebra", limit=3)
            return [float(len(text)) for text in texts]

        async def await_it(_: str, texts: list[str]) -> list[float]:
            await store.store.aput(("notes",), "seen", {"title": "unsearchable", "count": len(texts)}, index=False)
            assert await store.store.asearch((), query="zebra", limit=3)
            return [float(len(text)) for text in texts]

        models: list[Any] = [ask, await_it] if isinstance(store, AsyncCaller) else [ask]
        for model in models:
            assert len(store.search((), query=QUERY, rerank=Rerank(model, 4))) == 10
            item = store.get(("notes",), "seen")
            assert item is not None
            assert item.value["count"] == 4
            store.delete(("notes",), "seen")

    @pytest.mark.parametrize("kind", ["narrow"])
    def test_what_is_no_reranker_is_refused(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock
    ) -> None:
        """By a search, and by a store that is opened."""
        store = open_shadow(open_store, embeddings, clock).store
        for wrong in WRONG:
            with pytest.raises(InvalidArgument, match="Rerank"):
                store.search((), query="zebra", rerank=wrong)
            with pytest.raises(InvalidConfig, match="rerank"):
                open_shadow(open_store, embeddings, clock, rerank=wrong)
