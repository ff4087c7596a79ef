"""The oracle of ranking by words and by both: scores in plain Python, over the texts of one scope."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import log

from memstore.analysis import to_query_terms, to_terms

WEIGHT_OF_MEANING = 0.5
WEIGHT_OF_WORDS = 0.5
LONG = 45
DISCOUNT = 0.4
TERMS_COUNTED = 64


@lru_cache(maxsize=10_000)
def terms_of(text: str, language: str = "english") -> frozenset[int]:
    """Give the terms of a text."""
    return frozenset(to_terms(text, language).tolist())


def shares(query: str, texts: Sequence[str], language: str = "english") -> list[float]:
    """Give the share of a query's weight that each text of a scope holds.

    Args:
        query: The query.
        texts: All texts of the scope, whatever the search's filter.
        language: By which words are stemmed.
    """
    analysed = [terms_of(text, language) for text in texts]
    held = {term: sum(term in terms for terms in analysed) for term in to_query_terms(query, language).tolist()}
    rarest = sorted(held, key=lambda term: (held[term] or len(texts), term))[:TERMS_COUNTED]
    weights = {term: idf(len(texts), held[term]) for term in rarest}
    total = sum(weights.values())
    return [
        sum(weights[term] for term in weights if term in terms) / total / max(1.0, len(terms) / LONG) ** DISCOUNT
        for terms in analysed
    ]


def idf(texts: int, holders: int) -> float:
    """Weigh a term by how few texts hold it; one that none holds counts a quarter."""
    weight = log(1 + (texts - holders + 0.5) / (holders + 0.5))
    return weight if holders else weight / 4


def fused(cosine: float, share: float) -> float:
    """Join both scores of a text."""
    return WEIGHT_OF_MEANING * max(cosine, 0.0) + WEIGHT_OF_WORDS * share


def share_term(query: str, texts: Iterable[str]) -> bool:
    """Say whether any of some texts holds a term of a query."""
    wanted = set(to_query_terms(query).tolist())
    return any(wanted & terms_of(text) for text in texts)
