"""The first ranks of a search, which are looked at again outside of the database, and why they are where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from langgraph.store.base import SearchItem

from memstore.analysis import to_query_words
from memstore.config import Mode
from memstore.cutting import Seen
from memstore.explanation import ExplainedItem, Explanation, Word
from memstore.items import Found, Microseconds
from memstore.matching import Match, read_matches
from memstore.requests import Search
from memstore.scoring import Query, Ranking
from memstore.search import SearchSettings, find, rank_leg
from memstore.stats import IndexState
from memstore.steps import Flow


@dataclass(frozen=True, slots=True)
class Shortlist:
    """All ranks of a search up to the end of its page, at least those that are looked at again."""

    found: list[Found]
    matches: list[Match]
    """How the first of them were found."""
    seen: Seen
    time: Microseconds


@dataclass(frozen=True, slots=True)
class Ranked:
    """An item at its final rank."""

    found: Found
    at: int
    """Where it was before."""
    said: float | None
    """What the reranker said of it."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """A shortlist with the ranks of its items by each leg alone, from 1 on, by the ids of the items."""

    shortlist: Shortlist
    dense: dict[int, int]
    lexical: dict[int, int]


def draw_up(
    request: Search, query: Query, settings: SearchSettings, now: Microseconds, looked_at: int = 0
) -> Flow[Shortlist]:
    """Give all ranks of a search up to the end of its page, and how the first were found.

    Args:
        request: The search.
        query: What it looks for.
        settings: The backend's.
        now: Items expired by then are invisible.
        looked_at: How many ranks are to be explained, where that is more than what is reranked.
    """
    first = max(looked_at, query.rerank.first if query.rerank is not None else 0)
    deep = replace(request, limit=max(first, request.offset + request.limit), offset=0)
    found, seen = yield from find(deep, replace(query, min_score=None), settings, now)
    matches = yield from read_matches(found[:first], query, seen.weights, settings)
    return Shortlist(found, matches, seen, now)


def settle(shortlist: Shortlist, request: Search, query: Query, said: Sequence[float]) -> list[Ranked]:
    """Order the first ranks by what was said of them, keep the others behind them, and cut the page.

    Args:
        shortlist: The ranks there were.
        request: The search.
        query: What it looks for.
        said: The reranker's scores of the first ranks.
    """
    scores = [_score_of(hit) for hit in shortlist.found]
    end = len(said)
    final = [*(query.rerank.join(scores[:end], said) if query.rerank is not None else scores[:end]), *scores[end:]]
    order = sorted(range(end), key=lambda at: -final[at])
    if order:
        least = final[order[-1]]
        final[end:] = [min(score, least) for score in scores[end:]]
    order += range(end, len(final))
    kept = [at for at in order if query.min_score is None or final[at] >= query.min_score]
    page = kept[request.offset : request.offset + request.limit]
    return [Ranked(_rescored(shortlist.found[at], final[at]), at, said[at] if at < end else None) for at in page]


def inspect(request: Search, query: Query, settings: SearchSettings, now: Microseconds) -> Flow[Inspected]:
    """Draw up a shortlist of a whole page, and rank the scope by each leg alone."""
    shortlist = yield from draw_up(request, query, settings, now, request.offset + request.limit)
    ids = {hit.id for hit in shortlist.found}
    plain = replace(query, context=0, recency=None)
    dense = lexical = Ranking.nothing()
    if query.vector is not None:
        dense = yield from rank_leg(request, replace(plain, mode="semantic", terms=None), settings)
    if query.terms is not None:
        lexical = yield from rank_leg(request, replace(plain, mode="lexical", vector=None), settings)
    return Inspected(shortlist, _places(dense, ids), _places(lexical, ids))


def explain(
    inspected: Inspected, ranked: Sequence[Ranked], request: Search, mode: Mode, language: str, *, index: IndexState
) -> Explanation:
    """Put together why each item of a page stands where it does; `index` proposes where not all are ranked."""
    shortlist, seen = inspected.shortlist, inspected.shortlist.seen
    text = request.query or ""
    spelled = to_query_words(text, language) if mode != "semantic" else {}
    explained = []
    for rank, result in enumerate(ranked, request.offset + 1):
        match = shortlist.matches[result.at]
        held = frozenset(match.terms.tolist())
        explained.append(
            ExplainedItem(
                item=_item_of(result.found),
                rank=rank,
                field=match.field,
                text=match.text,
                dense=match.dense,
                dense_rank=inspected.dense.get(result.found.id),
                lexical=match.lexical,
                lexical_rank=inspected.lexical.get(result.found.id),
                words=tuple(word for word, terms in spelled.items() if not held.isdisjoint(terms)),
                fused=match.score,
                ranked=_score_of(shortlist.found[result.at]),
                reranked=result.said,
            )
        )
    return Explanation(
        query=text,
        mode=mode,
        items=tuple(explained),
        words=_to_words(spelled, seen),
        texts=seen.texts,
        candidates=seen.candidates,
        exact=seen.exact,
        found_by=None if seen.exact else index,
    )


def _to_words(spelled: dict[str, tuple[int, ...]], seen: Seen) -> tuple[Word, ...]:
    """Say what each word of a query weighed."""
    if seen.weights is None:
        return ()
    columns = (seen.weights.terms, seen.weights.weights, seen.weights.holders)
    counted = zip(*(column.tolist() for column in columns), strict=True)
    known = {term: (weight, texts) for term, weight, texts in counted}
    total = seen.weights.total or 1.0
    words = []
    for word, terms in spelled.items():
        parts = [known[term] for term in terms if term in known]
        if parts:
            words.append(Word(word, sum(weight for weight, _ in parts) / total, max(texts for _, texts in parts)))
    return tuple(words)


def _places(ranking: Ranking, ids: set[int]) -> dict[int, int]:
    return {item_id: rank for rank, item_id in enumerate(ranking.item_ids.tolist(), 1) if item_id in ids}


def _item_of(hit: Found) -> SearchItem:
    return cast(SearchItem, hit.item)  # what a search by a query finds has a score


def _score_of(hit: Found) -> float:
    return cast(float, _item_of(hit).score)


def _rescored(hit: Found, score: float) -> Found:
    item = hit.item
    fresh = SearchItem(item.namespace, item.key, item.value, item.created_at, item.updated_at, score)
    return replace(hit, item=fresh)
