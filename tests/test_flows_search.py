"""The flow of a search, driven by canned replies: its statements, its blocks, its cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memstore.embedding import DIGEST_BYTES, to_blob
from memstore.errors import IndexMismatch
from memstore.filters import compile_filter
from memstore.indexes import Metric
from memstore.items import Found
from memstore.requests import Search
from memstore.search import Query, SearchSettings, search
from memstore.slices import Scope, SliceCache, load_slices
from memstore.steps import Flow
from tests.flows import COMPUTE, Line, NoLock, named_dialect, names, play

NOW = 1_800_000_000_000_000
USER = b"users\0ada\0"
QUERY = Query(np.array([1, 0], np.float32), 1)
NARROW_FROM_CACHE = ["select_scope", "select_items_by_id"]


def settings(metric: Metric = "cosine", capacity: int = 10**6) -> SearchSettings:
    """Give a search's settings with an empty cache."""
    return SearchSettings(named_dialect(), SliceCache(capacity, NoLock()), metric)


def request(
    *,
    prefix: bytes = b"users\0",
    filter: dict[str, Any] | None = None,
    limit: int = 10,
    offset: int = 0,
    query: str | None = "q",
) -> Search:
    """Make a search's request."""
    return Search(prefix, compile_filter(filter), limit, offset, query, refresh=False)


def row(item_id: int, value: str = "{}") -> tuple[Any, ...]:
    """Make an item's row."""
    return (item_id, USER, f"k{item_id}", value, NOW, NOW + item_id, None, None)


def text_row(item_id: int, *numbers: float, namespace: int = 1) -> tuple[int, int, bytes, bytes]:
    """Make the row of an item's texts; two numbers are a vector."""
    return (namespace, item_id, b"d" * DIGEST_BYTES * (len(numbers) // 2), to_blob(np.array(numbers, np.float32)))


def scope(version: int, texts: int, *, namespace: int = 1, index_id: int = 1) -> tuple[Any, ...]:
    """Make a namespace's row."""
    return (namespace, USER, version, texts, index_id)


def found_keys(found: list[Found]) -> list[str]:
    """Give the keys of what was found, in order."""
    return [hit.item.key for hit in found]


def with_query(wanted: Search, given: SearchSettings) -> Flow[list[Found]]:
    """Make the flow of a search by meaning."""
    return search(wanted, QUERY, given, NOW)


def newest(wanted: Search) -> Flow[list[Found]]:
    """Make the flow of a search without a query."""
    return search(wanted, None, settings(), NOW)


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
        ("select_slices", [(1, 7, b"d" * DIGEST_BYTES, b"v" * 16)]),
    ]
    with pytest.raises(IndexMismatch):
        play(with_query(request(), settings()), *other_length)


def test_a_new_version_is_a_new_slice() -> None:
    """What was written since is seen at once: the slice is named by the version that the scope's row carries."""
    given = settings()
    for version, item_id in ((5, 7), (6, 9)):
        found, _ = play(
            with_query(request(), given),
            ("select_scope", [scope(version, 1)]),
            ("select_slices", [text_row(item_id, 1, 0)]),
            (COMPUTE, None),
            ("select_items_by_id", [row(item_id)]),
        )
        assert found_keys(found) == [f"k{item_id}"]


def test_nothing_is_cached_of_namespaces_whose_rows_did_not_come() -> None:
    """Where no texts come back for a namespace, no empty slice stands in for it later."""
    cache = SliceCache(10**6, NoLock())
    scopes = [Scope(1, USER, 3, 1), Scope(2, b"users\0bob\0", 3, 1)]
    slices, _ = play(
        load_slices(named_dialect(), cache, "cosine", scopes), ("select_slices", [text_row(7, 1, 0, namespace=2)])
    )
    assert [part.item_ids.tolist() for part in slices] == [[7]]
    assert (cache.get((1, 3)), len(cache)) == (None, 1)
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


def test_a_filter_that_sql_can_narrow_leaves_rows_unread() -> None:
    """Ids that SQL says cannot pass are dropped before the page is cut; the verdict still looks at the rest."""
    found, asked = play(
        with_query(request(filter={"n": 1}), settings()),
        ("select_scope", [scope(5, 3)]),
        ("select_slices", [text_row(number, 1, 0) for number in (7, 8, 9)]),
        (COMPUTE, None),
        ("select_narrowed", [(7,), (9,)]),
        ("select_items_by_id", [row(7, '{"n":1}'), row(9, '{"n":2}')]),
    )
    assert asked[-1].arguments[0] == [9, 7]
    assert found_keys(found) == ["k7"]


def test_each_group_is_narrowed_by_itself() -> None:
    """SQL looks at the namespaces whose texts were just ranked, not at the whole scope again for every group."""
    found, asked = play(
        with_query(request(filter={"n": 1}), settings()),
        ("select_scope", [scope(1, 20_000, namespace=number) for number in (1, 2)]),
        ("select_slices", [text_row(7, 1, 1)]),
        (COMPUTE, None),
        ("select_narrowed", [(7,)]),
        ("select_slices", [text_row(8, 1, 0, namespace=2), text_row(9, 1, 0, namespace=2)]),
        (COMPUTE, None),
        ("select_narrowed", [(8,)]),
        (COMPUTE, None),
        ("select_items_by_id", [row(7, '{"n":1}'), row(8, '{"n":1}')]),
    )
    assert [line.arguments[0] for line in asked if line.name == "select_narrowed"] == [[1], [2]]
    assert found_keys(found) == ["k8", "k7"]


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
    assert [hit.item.score for hit in found if hasattr(hit.item, "score")] == [1.0, 1.0, 1.0]


def test_the_newest_of_everything_is_one_statement() -> None:
    """Without a query and a prefix not even the scope is read."""
    found, asked = play(newest(request(prefix=b"", query=None, limit=2)), ("select_newest", [row(9), row(8)]))
    assert (found_keys(found), asked[0].arguments[0]) == (["k9", "k8"], None)


def test_the_newest_below_a_prefix_are_two_statements() -> None:
    """The scope's ids, then the rows; a scope without namespaces is empty after the first."""
    found, asked = play(
        newest(request(query=None)),
        ("select_scope", [scope(5, 0), scope(1, 1, namespace=2)]),
        ("select_newest", [row(9)]),
    )
    assert (found_keys(found), asked[1].arguments[0]) == (["k9"], [1, 2])
    assert play(newest(request(query=None)), ("select_scope", []))[0] == []


def test_the_newest_that_pass_a_filter_are_read_on_from_the_last_row() -> None:
    """Blocks double and start after the last row that came, so that pages join whatever is filtered out."""
    refused, passing = '{"n":[2]}', '{"n":[1]}'
    wanted = request(prefix=b"", query=None, filter={"n": [1]}, limit=1, offset=1)
    found, asked = play(
        newest(wanted),
        ("select_newest", [row(number, passing if number == 90 else refused) for number in range(100, 68, -1)]),
        ("select_newest", [row(50, passing), row(49, passing)]),
    )
    assert found_keys(found) == ["k50"]
    first, second = (line.arguments[2] for line in asked)
    assert (first.limit, first.after) == (32, None)
    assert (second.limit, second.after) == (64, (NOW + 69, 69))


def test_the_newest_end_where_a_block_is_not_full() -> None:
    """A short block is the last: no statement looks for more."""
    wanted = request(prefix=b"", query=None, filter={"n": 1}, limit=5)
    found, _ = play(newest(wanted), ("select_newest", [row(3, '{"n":1}'), row(2, '{"n":2}')]))
    assert found_keys(found) == ["k3"]


def test_a_huge_page_is_read_in_blocks() -> None:
    """However large limit and offset are, one statement asks for 100,000 rows at most."""
    _, asked = play(newest(request(prefix=b"", query=None, limit=2**62, offset=2**62)), ("select_newest", []))
    assert asked[0].arguments[2].limit == 100_000
