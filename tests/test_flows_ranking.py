"""What the options of a search add to its statements, by canned replies: nothing where they are not asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memstore.batch import Embedded, answer_reads
from memstore.embedding import to_digest
from memstore.requests import Search
from memstore.rerank import Rerank
from memstore.scoring import Query
from memstore.search import SearchSettings, search
from memstore.shortlist import draw_up, inspect
from tests.flows import COMPUTE, Line, names, play
from tests.test_flows_search import (
    BOTH,
    NARROW_FROM_CACHE,
    NOW,
    QUERY,
    WORDS,
    found_keys,
    request,
    row,
    scope,
    scores_of,
    settings,
    text_row,
)

TERMS = {number: np.array([1, term], "<u4").tobytes() for number, term in ((7, 5), (8, 9), (9, 5))}
ROWS = [text_row(7, 0, 1, terms=TERMS[7]), text_row(8, 1, 0, terms=TERMS[8]), text_row(9, 1, 1, terms=TERMS[9])]
SCOPE: Line = ("select_scope", [scope(5, 3)])
ITEMS: Line = ("select_items_by_id", [row(7), row(8), row(9)])
HEAD: list[Line] = [SCOPE, (COMPUTE, None)]


def warm() -> SearchSettings:
    """Give settings whose cache holds the scope's slice."""
    given = settings()
    play(search(request(), BOTH, given, NOW), SCOPE, ("select_slices", ROWS), (COMPUTE, None), ITEMS)
    return given


@pytest.mark.parametrize("query", [QUERY, WORDS, BOTH], ids=["semantic", "lexical", "hybrid"])
def test_a_search_without_options_asks_what_it_always_did(query: Query) -> None:
    """Two statements from the cache, through a batch too."""
    given = warm()
    _, asked = play(search(request(), query, given, NOW), *HEAD, ITEMS)
    assert names(asked) == NARROW_FROM_CACHE
    make = answer_reads([request()], Embedded({0: query}, index_id=1), given, lambda: NOW)
    answered, asked = play(make, *HEAD, ITEMS)
    assert names(asked) == NARROW_FROM_CACHE
    assert not answered.again


@pytest.mark.parametrize("query", [WORDS, BOTH], ids=["lexical", "hybrid"])
def test_neighbours_and_the_least_score_ask_nothing_more(query: Query) -> None:
    """All they need is in the slice."""
    wanted = replace(query, context=5, min_score=0.01)
    _, asked = play(search(request(), wanted, warm(), NOW), *HEAD, ITEMS)
    assert names(asked) == NARROW_FROM_CACHE


def test_age_asks_for_the_times_of_the_scope() -> None:
    """Once, of its namespaces; where nothing was found there is none to be told."""
    times: Line = ("select_times", [(9, NOW), (7, NOW), (8, NOW)])
    wanted = replace(BOTH, recency=7.0)
    _, asked = play(search(request(), wanted, warm(), NOW), *HEAD, times, ITEMS)
    assert names(asked) == ["select_scope", "select_times", "select_items_by_id"]
    assert asked[1].arguments == ([1],)
    nothing = replace(WORDS, terms=np.array([77], np.uint32), recency=7.0)
    _, asked = play(search(request(), nothing, warm(), NOW), *HEAD)
    assert names(asked) == ["select_scope"]


def test_what_scores_too_little_ends_the_reading() -> None:
    """No further rows are read once the ranks have fallen below the least score."""
    given = settings()
    rows = [text_row(number, 1, number) for number in range(1, 101)]
    script: list[Line] = [("select_scope", [scope(5, 100)]), ("select_slices", rows), (COMPUTE, None)]
    page: Line = ("select_items_by_id", [row(number) for number in range(1, 41)])
    wanted = replace(QUERY, min_score=0.5)
    found, asked = play(search(request(limit=40), wanted, given, NOW), *script, page)
    assert found_keys(found) == ["k1"]
    assert names(asked)[-2:] == ["select_slices", "select_items_by_id"]


def indexed_row(item_id: int, *numbers: float) -> tuple[object, ...]:
    """Make the row of an item's texts as `select_indexed` gives it."""
    _, number, _, vectors, _ = text_row(item_id, *numbers)
    return number, to_digest(f"text {item_id}"), vectors, TERMS[item_id], '["text"]'


def item(item_id: int) -> tuple[object, ...]:
    """Make an item's row, with its text in the value."""
    return row(item_id, f'{{"text": "text {item_id}"}}')


def test_a_shortlist_asks_once_more_for_the_texts() -> None:
    """All ranks up to the end of the page, and the texts of the first of them."""
    items: Line = ("select_items_by_id", [item(number) for number in (7, 8, 9)])
    texts: Line = ("select_indexed", [indexed_row(9, 1, 1), indexed_row(8, 1, 0)])
    wanted = replace(BOTH, rerank=Rerank("a model", first=2), min_score=9.0)
    shortlist, asked = play(draw_up(request(limit=1, offset=2), wanted, warm(), NOW), *HEAD, items, texts)
    assert names(asked) == [*NARROW_FROM_CACHE, "select_indexed"]
    assert sorted(asked[-1].arguments[0]) == [8, 9]
    assert [match.text for match in shortlist.matches] == [
        f"text {key.removeprefix('k')}" for key in found_keys(shortlist.found)[:2]
    ]
    assert [match.score for match in shortlist.matches] == pytest.approx(scores_of(shortlist.found)[:2])
    assert len(shortlist.found) == 3


def test_an_explanation_ranks_by_each_leg_alone() -> None:
    """The scope is looked at again for each, and nothing is read of their items."""
    items: Line = ("select_items_by_id", [item(number) for number in (7, 8, 9)])
    texts: Line = ("select_indexed", [indexed_row(number, 1, 1) for number in (9, 8, 7)])
    asking: Search = request(limit=3)
    inspected, asked = play(inspect(asking, BOTH, warm(), NOW), *HEAD, items, texts, *HEAD, *HEAD)
    assert names(asked) == [*NARROW_FROM_CACHE, "select_indexed", "select_scope", "select_scope"]
    assert inspected.dense == {8: 1, 9: 2, 7: 3}
    assert inspected.lexical.keys() == {7, 8, 9}
