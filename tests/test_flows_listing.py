"""Flows that list namespaces, or the newest items, driven by canned replies: how far they read."""

from __future__ import annotations

from typing import Any

from langgraph.store.base import ListNamespacesOp, MatchCondition

from memstore.batch import Answer, Embedded, answer
from memstore.filters import compile_filter
from memstore.history import History
from memstore.items import Found
from memstore.requests import Search, to_requests
from memstore.search import SearchSettings, search
from memstore.slices import SliceCache
from memstore.steps import Flow
from tests.flows import NoLock, named_dialect, play

NOW = 1_800_000_000_000_000


def settings() -> SearchSettings:
    """Give the settings of a store; neither flow looks at its cache."""
    return SearchSettings(named_dialect(), SliceCache(10**6, NoLock()), "cosine", History(NoLock()))


def listed(op: ListNamespacesOp) -> Flow[Answer]:
    """Make the flow of one listing."""
    return answer(to_requests([op], None), Embedded(), settings(), lambda: NOW)


def newest(
    *, prefix: bytes = b"", filter: dict[str, Any] | None = None, limit: int = 10, offset: int = 0
) -> Flow[list[Found]]:
    """Make the flow of a search without a query."""
    return search(Search(prefix, compile_filter(filter), limit, offset, None, refresh=False), None, settings(), NOW)


def row(item_id: int, value: str = "{}") -> tuple[Any, ...]:
    """Make an item's row."""
    return (item_id, b"users\0ada\0", f"k{item_id}", value, NOW, NOW + item_id, None, None)


def found_keys(found: list[Found]) -> list[str]:
    """Give the keys of what was found, in order."""
    return [hit.item.key for hit in found]


def test_a_listing_whose_prefix_settles_it_is_one_page_in_sql() -> None:
    """Without wildcards, suffixes and depth, SQL cuts the page."""
    op = ListNamespacesOp((MatchCondition("prefix", ("users",)),), limit=5, offset=2)
    result, asked = play(listed(op), ("select_live_namespaces", [(b"users\0ada\0",)]))
    assert asked[0].arguments == (b"users\0", b"users\x01", 5, 2, NOW)
    assert result.results == [[("users", "ada")]]


def test_a_listing_to_a_depth_skips_what_it_would_list_again() -> None:
    """Below a name that is listed nothing is read on; beside one that is none yet, everything is."""
    paths = [(f"u\0{number:04}\0x\0".encode(),) for number in range(256)]
    more = [(f"v{number:04}\0".encode(),) for number in range(512)]
    op = ListNamespacesOp(None, max_depth=1, limit=1000)
    result, asked = play(
        listed(op), ("select_live_namespaces", paths), ("select_live_namespaces", more), ("select_live_namespaces", [])
    )
    assert [line.arguments[0] for line in asked] == [b"", b"u\x01", b"v0511\x01"]
    assert len(result.results[0]) == 1 + 512
    op = ListNamespacesOp((MatchCondition("suffix", ("y",)),), max_depth=2, limit=1000)
    _, asked = play(listed(op), ("select_live_namespaces", paths), ("select_live_namespaces", []))
    assert asked[1].arguments[0] == b"u\x000255\0x\0\0"


def test_a_listing_stops_reading_at_its_limit() -> None:
    """Blocks are read one after the other, each from where the last one ended and twice as large."""
    paths = [(f"u{number:04}\0x\0".encode(),) for number in range(256)]
    more = [(f"v{number:04}\0x\0".encode(),) for number in range(512)]
    op = ListNamespacesOp(max_depth=1, limit=300)
    result, asked = play(listed(op), ("select_live_namespaces", paths), ("select_live_namespaces", more))
    assert [line.arguments[2:4] for line in asked] == [(256, 0), (512, 0)]
    assert asked[1].arguments[0] == b"u0255\x01"
    assert len(result.results[0]) == 300


def test_a_listing_that_finds_too_little_reads_to_the_end_once() -> None:
    """A block that is not full is the last; names that the pattern refuses are left out, duplicates joined."""
    op = ListNamespacesOp((MatchCondition("suffix", ("x",)),), max_depth=1, limit=9, offset=1)
    rows = [(b"a\0x\0",), (b"a\0y\0",), (b"b\0c\0x\0",), (b"b\0d\0x\0",)]
    result, _ = play(listed(op), ("select_live_namespaces", rows))
    assert result.results == [[("b",)]]


def test_a_listing_of_nothing_asks_nothing() -> None:
    """A limit of 0 is answered without reading where Python cuts the page."""
    op = ListNamespacesOp(max_depth=1, limit=0)
    assert play(listed(op))[0].results == [[]]


def test_the_newest_of_everything_is_one_statement() -> None:
    """Without a query and a prefix not even the scope is read."""
    found, asked = play(newest(limit=2), ("select_newest", [row(9), row(8)]))
    assert (found_keys(found), asked[0].arguments[0]) == (["k9", "k8"], None)


def test_the_newest_below_a_prefix_are_two_statements() -> None:
    """The scope's ids, then the rows; a scope without namespaces is empty after the first."""
    found, asked = play(
        newest(prefix=b"users\0"),
        ("select_scope_ids", [(1,), (2,)]),
        ("select_newest", [row(9)]),
    )
    assert (found_keys(found), asked[1].arguments[0]) == (["k9"], [1, 2])
    assert play(newest(prefix=b"users\0"), ("select_scope_ids", []))[0] == []


def test_the_newest_that_pass_a_filter_are_read_on_from_the_last_row() -> None:
    """Blocks double and start after the last row that came, so that pages join whatever is filtered out."""
    refused, passing = '{"n":[2]}', '{"n":[1]}'
    found, asked = play(
        newest(filter={"n": [1]}, limit=1, offset=1),
        ("select_newest", [row(number, passing if number == 90 else refused) for number in range(100, 68, -1)]),
        ("select_newest", [row(50, passing), row(49, passing)]),
    )
    assert found_keys(found) == ["k50"]
    first, second = (line.arguments[2] for line in asked)
    assert (first.limit, first.after) == (32, None)
    assert (second.limit, second.after) == (64, (NOW + 69, 69))


def test_the_newest_end_where_a_block_is_not_full() -> None:
    """A short block is the last: no statement looks for more."""
    found, _ = play(newest(filter={"n": 1}, limit=5), ("select_newest", [row(3, '{"n":1}'), row(2, '{"n":2}')]))
    assert found_keys(found) == ["k3"]


def test_a_huge_page_is_read_in_blocks() -> None:
    """However large limit and offset are, one statement asks for 100,000 rows at most."""
    _, asked = play(newest(limit=2**62, offset=2**62), ("select_newest", []))
    assert asked[0].arguments[2].limit == 100_000
