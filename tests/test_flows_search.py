"""The flow of a search, driven by canned replies: its statements, its blocks, its cache."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from langgraph.store.base import SearchItem

from memstore.embedding import DIGEST_BYTES, to_blob
from memstore.errors import DatabaseDamaged, IndexMismatch
from memstore.filters import compile_filter
from memstore.history import History
from memstore.indexes import Metric
from memstore.items import Found
from memstore.requests import Search
from memstore.scoring import Query
from memstore.search import SearchSettings, search
from memstore.slices import Scope, SliceCache, load_slices
from memstore.steps import Flow
from tests.flows import COMPUTE, Asked, Line, NoLock, named_dialect, names, play

NOW = 1_800_000_000_000_000
USER = b"users\0ada\0"
QUERY = Query("semantic", np.array([1, 0], np.float32), None, 1)
WORDS = Query("lexical", None, np.array([5, 9], np.uint32), 1)
BOTH = Query("hybrid", QUERY.vector, WORDS.terms, 1)
NARROW_FROM_CACHE = ["select_scope", "select_items_by_id"]


def settings(metric: Metric = "cosine", capacity: int = 10**6) -> SearchSettings:
    """Give a search's settings with an empty cache."""
    return SearchSettings(named_dialect(), SliceCache(capacity, NoLock()), metric, History(NoLock()))


def request(
    *,
    prefix: bytes = b"users\0",
    filter: dict[str, Any] | None = None,
    limit: int = 10,
    offset: int = 0,
) -> Search:
    """Make a search's request."""
    return Search(prefix, compile_filter(filter), limit, offset, "q", refresh=False)


def row(item_id: int, value: str = "{}") -> tuple[Any, ...]:
    """Make an item's row."""
    return (item_id, USER, f"k{item_id}", value, NOW, NOW + item_id, None, None)


def text_row(item_id: int, *numbers: float, namespace: int = 1, terms: bytes | None = None) -> tuple[Any, ...]:
    """Make the row of an item's texts; two numbers are a vector."""
    vectors = to_blob(np.array(numbers, np.float32))
    return (namespace, item_id, b"d" * DIGEST_BYTES * (len(numbers) // 2), vectors, terms)


def word_row(item_id: int, *terms: int, namespace: int = 1) -> tuple[Any, ...]:
    """Make the row of an item with one text, that has terms and no vector."""
    return (namespace, item_id, b"d" * DIGEST_BYTES, None, np.array([len(terms), *terms], "<u4").tobytes())


def scope(version: int, texts: int, *, namespace: int = 1, index_id: int = 1) -> tuple[Any, ...]:
    """Make a namespace's row, which carries the clock and the index settings in force."""
    return (namespace, version, texts, b"", 50, index_id, "abcd")


def found_keys(found: list[Found]) -> list[str]:
    """Give the keys of what was found, in order."""
    return [hit.item.key for hit in found]


def scores_of(found: list[Found]) -> list[float | None]:
    """Give the scores of what was found."""
    return [hit.item.score for hit in found if isinstance(hit.item, SearchItem)]


def with_query(wanted: Search, given: SearchSettings) -> Flow[list[Found]]:
    """Make the flow of a search by meaning."""
    return search(wanted, QUERY, given, NOW)


def test_a_narrow_search_reads_its_slice_once_then_scope_and_rows_only() -> None:
    """From the cache a search is two statements: the scope, which carries the versions, and the page's rows."""
    given = settings()
    cold, asked = play(
        with_query(request(), given),
        ("select_scope", [scope(5, 2)]),
        ("select_slices", [text_row(7, 0, 1), text_row(8, 1, 0)]),
        (COMPUTE, None),
        ("select_items_by_id", [row(7), row(8)]),
    )
    assert names(asked)[1] == "select_slices"
    warm, asked = play(
        with_query(request(), given),
        ("select_scope", [scope(5, 2)]),
        (COMPUTE, None),
        ("select_items_by_id", [row(7), row(8)]),
    )
    assert names(asked) == NARROW_FROM_CACHE
    assert found_keys(cold) == found_keys(warm) == ["k8", "k7"]


def test_every_text_of_an_item_is_in_its_slice() -> None:
    """An item's texts stand in one row; the item is ranked once, by its best."""
    found, _ = play(
        with_query(request(), settings()),
        ("select_scope", [scope(5, 5)]),
        ("select_slices", [text_row(7, 0, 1, -1, 0, 1, 0), text_row(8, 1, 1), text_row(9, 0, 1)]),
        (COMPUTE, None),
        ("select_items_by_id", [row(7), row(8), row(9)]),
    )
    assert found_keys(found) == ["k7", "k8", "k9"]


def test_a_query_of_other_settings_is_refused() -> None:
    """Its vector was made before the snapshot: another model's texts, or texts of another length, are not its own."""
    other_settings: list[Line] = [("select_scope", [scope(5, 1, index_id=2)])]
    with pytest.raises(IndexMismatch):
        play(with_query(request(), settings()), *other_settings)
    other_length: list[Line] = [
        ("select_scope", [scope(5, 1)]),
        ("select_slices", [(1, 7, b"d" * DIGEST_BYTES, b"v" * 16, None)]),
    ]
    with pytest.raises(IndexMismatch):
        play(with_query(request(), settings()), *other_length)


def test_a_new_version_is_the_old_slice_and_what_is_newer() -> None:
    """Items that are gone go, newer ones come with all their texts, and nothing else of the namespace is read."""
    given = settings()
    first: list[Line] = [
        ("select_scope", [scope(5, 4)]),
        ("select_slices", [text_row(7, 1, 0), text_row(3, 0, 1, 1, 1), text_row(5, 1, 0)]),
        (COMPUTE, None),
        ("select_items_by_id", [row(number) for number in (3, 5, 7)]),
    ]
    assert found_keys(play(with_query(request(), given), *first)[0]) == ["k7", "k5", "k3"]
    newer = text_row(9, -1, 0, 1, 0)[1:]
    second: list[Line] = [
        ("select_scope", [scope(6, 5)]),
        ("select_slice_changes", [[(3, None, None, None), (7, None, None, None), newer]]),
        (COMPUTE, None),
        ("select_items_by_id", [row(number) for number in (3, 7, 9)]),
    ]
    found, asked = play(with_query(request(), given), *second)
    assert asked[1].arguments == ([(1, 7)],)
    assert found_keys(found) == ["k9", "k7", "k3"]
    _, asked = play(with_query(request(), given), ("select_scope", [scope(6, 5)]), (COMPUTE, None), second[-1])
    assert names(asked) == NARROW_FROM_CACHE


def test_a_new_version_brings_its_words() -> None:
    """Words of items that are gone count no longer, in how rare a word is neither; those of newer ones do."""
    given = settings()
    script: list[Line] = [
        ("select_scope", [scope(5, 3)]),
        ("select_slices", [word_row(3, 5), word_row(4, 5, 9), word_row(7, 6)]),
        (COMPUTE, None),
        ("select_items_by_id", [row(3), row(4)]),
    ]
    found, _ = play(search(request(), WORDS, given, NOW), *script)
    assert found_keys(found) == ["k4", "k3"]
    script = [
        ("select_scope", [scope(6, 3)]),
        ("select_slice_changes", [[(3, None, None, None), word_row(8, 9)[1:], word_row(9, 5, 6)[1:]]]),
        (COMPUTE, None),
        ("select_items_by_id", [row(number) for number in (3, 8, 9)]),
    ]
    warm, _ = play(search(request(), WORDS, given, NOW), *script)
    script[1] = ("select_slices", [word_row(3, 5), word_row(8, 9), word_row(9, 5, 6)])
    cold, _ = play(search(request(), WORDS, settings(), NOW), *script)
    assert found_keys(warm) == found_keys(cold) == ["k8", "k9", "k3"]
    assert scores_of(warm) == scores_of(cold)


def test_newer_vectors_of_another_length_have_all_read_again() -> None:
    """They are not joined with those that were there: the rows tell whether these are mended by now, or damaged."""
    given = settings()
    load: Any = partial(load_slices, given.dialect, given.cache, "cosine")
    play(load([Scope(1, 5, 1)]), ("select_slices", [word_row(7, 5)]))
    changes: Line = ("select_slice_changes", [[(7, None, None, None), text_row(9, 1, 0)[1:]]])
    with pytest.raises(DatabaseDamaged):
        play(load([Scope(1, 6, 2)]), changes, ("select_slices", [word_row(7, 5), text_row(9, 1, 0)]))
    (mended,), _ = play(load([Scope(1, 7, 1)]), changes, ("select_slices", [text_row(9, 1, 0)]))
    assert (mended.item_ids.tolist(), mended.vectors.shape) == ([9], (1, 2))
    assert play(load([Scope(1, 7, 1)]))[0] == [mended]


@pytest.mark.parametrize("terms", [b"\2\0\0\0\5\0\0\0", b"\1\0\0\0", b"\0\0\0\0\5\0\0\0", b"\1\0\0\0\5\0", b"\1"])
def test_terms_that_do_not_fit_are_damage(terms: bytes) -> None:
    """Too few, too many or cut: they are named as damage, as vectors are."""
    script: list[Line] = [("select_scope", [scope(5, 1)]), ("select_slices", [text_row(7, 1, 0, terms=terms)])]
    with pytest.raises(DatabaseDamaged, match="terms"):
        play(with_query(request(), settings()), *script)


def test_nothing_is_cached_of_namespaces_whose_rows_did_not_come() -> None:
    """Where no texts come back for a namespace, no empty slice stands in for it later."""
    cache = SliceCache(10**6, NoLock())
    scopes = [Scope(1, 3, 1), Scope(2, 3, 1)]
    slices, _ = play(
        load_slices(named_dialect(), cache, "cosine", scopes), ("select_slices", [text_row(7, 1, 0, namespace=2)])
    )
    assert [part.item_ids.tolist() for part in slices] == [[7]]
    assert (cache.get(Scope(1, 3, 1)), len(cache)) == ((None, None), 1)
    _, asked = play(load_slices(named_dialect(), cache, "cosine", scopes), ("select_slices", []))
    assert asked[0].arguments == ([1],)


def test_nothing_is_cached_when_reading_the_slice_fails() -> None:
    """An error of the database leaves the cache as it was."""
    given = settings()
    script: list[Line] = [("select_scope", [scope(5, 1)]), ("select_slices", RuntimeError("disk"))]
    with pytest.raises(RuntimeError):
        play(with_query(request(), given), *script)
    assert len(given.cache) == 0


def test_namespaces_without_texts_are_not_read() -> None:
    """A scope whose namespaces hold no indexed text answers a query with nothing, after one statement."""
    found, asked = play(
        with_query(request(), settings()),
        ("select_scope", [scope(5, 0), scope(5, 0, namespace=2)]),
        (COMPUTE, None),
    )
    assert (found, names(asked)) == ([], ["select_scope"])


def test_a_limit_of_nothing_asks_nothing() -> None:
    """`limit=0` needs no database."""
    assert play(with_query(request(limit=0), settings()))[0] == []


def test_scopes_larger_than_a_group_are_ranked_in_parts() -> None:
    """About 20,000 texts are in memory at once; the parts are joined in one ranking."""
    scopes = [scope(1, 12_000, namespace=number) for number in (1, 2, 3)]
    found, asked = play(
        with_query(request(), settings()),
        ("select_scope", scopes),
        ("select_slices", [text_row(7, 1, 0), text_row(8, 1, 1, namespace=2)]),
        (COMPUTE, None),
        ("select_slices", [text_row(9, 1, 0, namespace=3)]),
        (COMPUTE, None),
        (COMPUTE, None),
        ("select_items_by_id", [row(7), row(8), row(9)]),
    )
    assert [line.arguments[0] for line in asked if line.name == "select_slices"] == [[1, 2], [3]]
    assert found_keys(found) == ["k9", "k7", "k8"]


def test_a_filter_that_sql_can_narrow_reads_a_small_scope_at_once() -> None:
    """Rows that SQL says cannot pass are never read; of the others, read in one statement, the verdict is Python's."""
    found, asked = play(
        with_query(request(filter={"n": 1}), settings()),
        ("select_scope", [scope(5, 3)]),
        ("select_slices", [text_row(number, 1, 0) for number in (7, 8, 9)]),
        (COMPUTE, None),
        ("select_narrowed_items", [row(7, '{"n":1}'), row(9, '{"n":2}'), row(6, '{"n":1}')]),
    )
    assert asked[-1].arguments[0] == [1]
    assert found_keys(found) == ["k7"]


def test_a_filter_that_sql_can_narrow_leaves_rows_of_a_larger_scope_unread() -> None:
    """Ids that SQL says cannot pass are dropped before the page is cut; the verdict still looks at the rest."""
    found, asked = play(
        with_query(request(filter={"n": 1}), settings()),
        ("select_scope", [scope(5, 700), scope(5, 301, namespace=2)]),
        ("select_slices", [text_row(number, 1, 0, namespace=1 + number // 700) for number in range(1_001)]),
        (COMPUTE, None),
        ("select_narrowed", [(7,), (900,)]),
        ("select_items_by_id", [row(7, '{"n":1}'), row(900, '{"n":2}')]),
    )
    assert [line.arguments[0] for line in asked[-2:]] == [[1, 2], [900, 7]]
    assert found_keys(found) == ["k7"]


def test_a_scope_of_many_namespaces_is_counted_before_it_is_read() -> None:
    """64 are read at once; where there are more, it is first asked how many texts they hold."""
    rows = [scope(5, 0, namespace=number) for number in range(1, 66)]
    _, asked = play(
        with_query(request(), settings()),
        ("select_scope", rows),
        ("count_scope", [(70, 1)]),
        ("select_scope", [*rows, scope(5, 1, namespace=70)]),
        ("select_slices", [text_row(7, 1, 0, namespace=70)]),
        (COMPUTE, None),
        ("select_items_by_id", [row(7)]),
    )
    assert asked[0].arguments[2] == 65
    assert asked[2].arguments[2] > 10**9


def test_words_are_weighed_over_all_groups_before_any_is_scored() -> None:
    """How rare a word is, is a matter of the whole scope; groups that have left memory meanwhile are read again."""
    scopes = [scope(1, 20_000, namespace=number) for number in (1, 2)]
    parts: list[Line] = [("select_slices", [word_row(7, 5)]), ("select_slices", [word_row(8, 9, namespace=2)])]
    found, asked = play(
        search(request(), WORDS, settings(capacity=1), NOW),
        ("select_scope", scopes),
        *parts,
        parts[0],
        (COMPUTE, None),
        parts[1],
        (COMPUTE, None),
        (COMPUTE, None),
        ("select_items_by_id", [row(7), row(8)]),
    )
    assert names(asked).count("select_slices") == 4
    assert scores_of(found) == [0.5, 0.5]


def test_groups_that_are_still_in_memory_are_not_read_again() -> None:
    """Where the cache has room for the scope, words are weighed and scored with each namespace read once."""
    parts: list[Line] = [("select_slices", [word_row(7, 5)]), ("select_slices", [word_row(8, 9, namespace=2)])]
    script: list[Line] = [("select_scope", [scope(1, 20_000, namespace=number) for number in (1, 2)]), *parts]
    ranked: list[Line] = [(COMPUTE, None)] * 3
    found, _ = play(search(request(), WORDS, settings(), NOW), *script, *ranked, ("select_items_by_id", [row(8)]))
    assert (found_keys(found), scores_of(found)) == (["k8"], [0.5])


def test_meaning_and_words_are_scored_from_one_slice() -> None:
    """The cosine and the share of the words, in fixed parts; an item that has none of either is ranked all the same."""
    script: list[Line] = [
        ("select_scope", [scope(5, 3)]),
        ("select_slices", [text_row(7, 1, 0, terms=b"\1\0\0\0\5\0\0\0"), text_row(8, 1, 0), text_row(9, -1, 0)]),
        (COMPUTE, None),
        ("select_items_by_id", [row(7), row(8), row(9)]),
    ]
    found, _ = play(search(request(), BOTH, settings(), NOW), *script)
    held, missing = math.log(1 + 2.5 / 1.5), math.log(1 + 3.5 / 0.5) / 4
    assert scores_of(found) == pytest.approx([0.5 + 0.5 * held / (held + missing), 0.5, 0.0])
    assert found_keys(found) == ["k7", "k8", "k9"]


def filtered(given: SearchSettings, *script: Line, n: int = 1, scopes: int = 1) -> tuple[list[str], list[Asked]]:
    """Search namespaces for items whose `n` has a value; give the keys that are found, and what is asked."""
    rows = [scope(5, 5, namespace=number + 1) for number in range(scopes)]
    flow = with_query(request(filter={"n": n}, limit=2), given)
    found, asked = play(flow, ("select_scope", rows), *script)
    return found_keys(found), asked


FIVE: list[Line] = [("select_slices", [text_row(number, 1, 0) for number in range(1, 6)]), (COMPUTE, None)]
PASSING: Line = ("select_narrowed_items", [row(1, '{"n":1}'), (*row(3, '{"n":1}')[:7], NOW), row(5, '{"n":2}')])


def test_a_namespace_remembers_what_a_filter_accepts() -> None:
    """The second time only rows that pass are read, in rank order; the statement knows what has expired."""
    given = settings()
    keys, asked = filtered(given, *FIVE, PASSING)
    assert (keys, asked[-1].arguments[2] < 0) == (["k1"], True)
    keys, asked = filtered(given, (COMPUTE, None), ("select_items_by_id", [row(1, '{"n":1}'), row(3, '{"n":1}')]))
    assert (keys, asked[-1].arguments[0]) == (["k3", "k1"], [3, 1])


def test_what_a_filter_accepts_is_remembered_of_one_namespace_and_one_filter() -> None:
    """Another filter, or a scope of several namespaces, is asked of the database."""
    given = settings()
    filtered(given, *FIVE, PASSING)
    assert filtered(given, (COMPUTE, None), PASSING, n=2)[0] == ["k5"]
    filtered(given, ("select_slices", [text_row(9, 1, 0, namespace=2)]), (COMPUTE, None), PASSING, scopes=2)
    filtered(given, (COMPUTE, None), PASSING, scopes=2)


def test_a_page_by_meaning_reads_on_until_it_is_full() -> None:
    """With a filter, blocks of 32, 64, ... rows are read in rank order until enough passed; gone rows are skipped."""
    texts = [text_row(number, 1, 0) for number in range(1, 201)]
    refused, passing = '{"n":[2]}', '{"n":[1]}'
    found, asked = play(
        with_query(request(filter={"n": [1]}, limit=2, offset=1), settings()),
        ("select_scope", [scope(5, 200)]),
        ("select_slices", texts),
        (COMPUTE, None),
        ("select_items_by_id", [row(number, refused) for number in range(169, 201)]),
        ("select_items_by_id", [row(number, passing) for number in (168, 120, 110, 109)]),
    )
    assert [len(line.arguments[0]) for line in asked[2:]] == [32, 64]
    assert found_keys(found) == ["k120", "k110"]


def test_a_page_without_a_filter_reads_what_it_needs() -> None:
    """The first block is offset + limit rows, and where none has expired it is the last."""
    texts = [text_row(number, 1, 0) for number in range(1, 201)]
    found, asked = play(
        with_query(request(limit=3, offset=2), settings()),
        ("select_scope", [scope(5, 200)]),
        ("select_slices", texts),
        (COMPUTE, None),
        ("select_items_by_id", [row(number) for number in range(196, 201)]),
    )
    assert asked[-1].arguments[0] == [200, 199, 198, 197, 196]
    assert found_keys(found) == ["k198", "k197", "k196"]
    assert scores_of(found) == [1.0, 1.0, 1.0]
