"""Flows of writing, driven by canned replies: which statements they yield, in what order, how many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, Op, PutOp, SearchOp

from memstore.batch import Answer, Embedded, answer, kept_vectors, sweep, to_vectors
from memstore.dialects import ItemRow
from memstore.embedding import to_blob, to_digest
from memstore.errors import IndexMismatch
from memstore.requests import Write, to_requests
from memstore.search import SearchSettings
from memstore.slices import SliceCache
from memstore.steps import Flow
from memstore.ttl import refresh, to_expiry, to_refreshes
from tests.flows import Asked, Line, NoLock, named_dialect, names, play
from tests.support import Clock

NOW = 1_800_000_000_000_000
MINUTE = 60_000_000
VECTOR = to_blob(np.ones(4, np.float32))
USER = b"users\0ada\0"
PATHS = ("text",)


def settings() -> SearchSettings:
    """Give a search's settings with an empty cache."""
    return SearchSettings(named_dialect(), SliceCache(10**6, NoLock()), "cosine")


def answered(ops: list[Op], *, now: Callable[[], int] = lambda: NOW, index_id: int = 1) -> Flow[Answer]:
    """Make the flow of a batch whose texts all have the same vector."""
    requests = to_requests(ops, PATHS)
    writes = [request for request in requests if isinstance(request, Write)]
    vectors = {text.digest: VECTOR for request in writes for text in request.texts}
    return answer(requests, Embedded({}, vectors, index_id), settings(), now)


def put(key: str, *, namespace: tuple[str, ...] = ("users", "ada"), ttl: float | None = None) -> PutOp:
    """Make the op that puts an item with one text."""
    return PutOp(namespace, key, {"text": f"text of {key}"}, ttl=ttl)


def item_row(item_id: int, key: str, *, ttl: float | None = None, expires_at: int | None = None) -> tuple[Any, ...]:
    """Make a row as reads give it."""
    return (item_id, USER, key, '{"text":"t"}', NOW - 10, NOW - 5, ttl, expires_at)


def arguments(asked: list[Asked], name: str) -> tuple[Any, ...]:
    """Give what a statement was asked with, the first time."""
    return next(line.arguments for line in asked if line.name == name)


NEW_ITEMS = ["select_places", "insert_namespaces", "advance_clock", "insert_items", "touch_namespaces"]


def new_items(count: int, namespaces: int = 1, *, last_id: int | None = None) -> list[Line]:
    """Script the put of new items with one text each, spread over new namespaces."""
    replies: dict[str, Any] = {
        "select_places": [[]] * count,
        "insert_namespaces": [[(number,)] for number in range(1, namespaces + 1)],
        "advance_clock": [(1, last_id or 2 * count, 1)],
    }
    return [(name, replies.get(name)) for name in NEW_ITEMS]


@pytest.mark.parametrize("count", [1, 2, 50, 3_000])
def test_the_statements_of_a_put_do_not_grow_with_the_batch(count: int) -> None:
    """A batch of 3,000 puts is as many steps as a put of one: lists are bound as one."""
    _, asked = play(answered([put(f"k{number}") for number in range(count)]), *new_items(count))
    assert names(asked) == NEW_ITEMS
    (rows,) = arguments(asked, "insert_items")
    assert len(rows) == count


def test_many_namespaces_take_no_more_statements() -> None:
    """Namespaces are found and made in one step each, however many a batch writes to."""
    ops: list[Op] = [put("k", namespace=("users", f"u{number:03}")) for number in range(300)]
    _, asked = play(answered(ops), *new_items(300, 300))
    (paths,) = arguments(asked, "insert_namespaces")
    assert paths == sorted(paths)
    (changes,) = arguments(asked, "touch_namespaces")
    assert changes == [(number, 1) for number in range(1, 301)]


def test_ids_are_taken_from_the_clock_in_writing_order() -> None:
    """Each item comes before its texts and after all that was written before it, with no id used twice."""
    _, asked = play(answered([put("a"), put("b")]), *new_items(2, last_id=104))
    (items,) = arguments(asked, "insert_items")
    assert arguments(asked, "advance_clock") == (4,)
    assert [(row.key, row.id, row.text_id) for row in items] == [("a", 101, 102), ("b", 103, 104)]


def test_a_new_item_is_written_as_it_was_given() -> None:
    """The value as text, the time twice, the ttl and when it ends, and what is indexed of it."""
    _, asked = play(answered([put("a", ttl=2.5)]), *new_items(1))
    (items,) = arguments(asked, "insert_items")
    value = '{"text":"text of a"}'
    ends, digest = NOW + 150_000_000, to_digest("text of a")
    assert items == [ItemRow(1, 1, "a", NOW, NOW, 2.5, ends, None, value, 2, '["text"]', digest, VECTOR)]


def test_several_texts_stand_in_one_row() -> None:
    """Their paths, digests and vectors follow each other in one order; their ids count up from the first."""
    op = PutOp(("users", "ada"), "a", {"text": ["x", "y"]}, index=["text[*]", "text[0]"])
    script = [(name, [(1, 4, 1)] if name == "advance_clock" else reply) for name, reply in new_items(1)]
    _, asked = play(answered([op]), *script)
    ((row,),) = arguments(asked, "insert_items")
    assert arguments(asked, "advance_clock") == (4,)
    assert (row.id, row.text_id, row.fields) == (1, 2, '["text[*]", "text[0]"]')
    assert row.texts == '["text[*].0", "text[*].1", "text[0]"]'
    assert row.digests == to_digest("x") + to_digest("y") + to_digest("x")
    assert row.vectors == VECTOR * 3
    assert arguments(asked, "touch_namespaces") == ([(1, 3)],)


def old(
    item_id: int | None,
    *,
    namespace: int = 1,
    created: int = NOW - 90,
    ends: int | None = None,
    texts: int = 0,
    updated: int = NOW - 50,
) -> list[tuple[Any, ...]]:
    """Make what `select_places` says of a place whose namespace exists; with or without an item."""
    if item_id is None:
        return [(namespace, None, None, None, None, 0, None)]
    return [(namespace, item_id, created, ends, item_id + 1 if texts else None, texts, updated)]


def replacing(place: list[tuple[Any, ...]], *, texts: int = 0) -> list[Line]:
    """Script a put that replaces one item."""
    return [
        ("select_places", [place]),
        ("advance_clock", [(9, 52, 1)]),
        *([("insert_removals", None)] if texts else []),
        ("delete_items", []),
        ("insert_items", None),
        ("touch_namespaces", None),
    ]


def test_a_replacement_deletes_the_item_then_inserts() -> None:
    """Nothing of the old item stays, its texts are recorded as gone, and the count of texts comes out right."""
    _, asked = play(answered([put("a")]), *replacing(old(7, texts=2), texts=2))
    assert arguments(asked, "insert_removals") == ([(9, 8, 2)],)
    assert arguments(asked, "delete_items") == ([7],)
    assert arguments(asked, "touch_namespaces") == ([(1, -1)],)
    (items,) = arguments(asked, "insert_items")
    assert (items[0].id, items[0].created_at, items[0].updated_at) == (51, NOW - 90, NOW)


def test_an_item_without_texts_leaves_no_removals() -> None:
    """Where the old item had no texts, no empty statement is yielded for them."""
    play(answered([put("a")]), *replacing(old(7)))


@pytest.mark.parametrize(("updated", "expected"), [(NOW - 50, NOW), (NOW, NOW + 1), (NOW + 6, NOW + 7)])
def test_updated_at_moves_though_the_clock_does_not(updated: int, expected: int) -> None:
    """The time is the clock's, but later than the item's own before."""
    _, asked = play(answered([put("a")]), *replacing(old(7, updated=updated)))
    (items,) = arguments(asked, "insert_items")
    assert items[0].updated_at == expected


def test_a_put_over_an_expired_item_is_a_new_one() -> None:
    """What has expired is gone for every reader, so `created_at` starts anew; its row is replaced all the same."""
    _, asked = play(answered([put("a")]), *replacing(old(7, ends=NOW, texts=1), texts=1))
    (items,) = arguments(asked, "insert_items")
    assert (items[0].created_at, items[0].updated_at) == (NOW, NOW)


def test_a_new_item_in_a_known_namespace_makes_none() -> None:
    """The namespace's id comes with the look at the place."""
    script = [("select_places", [old(None, namespace=5)]), *new_items(1)[2:]]
    _, asked = play(answered([put("a")]), *script)
    (items,) = arguments(asked, "insert_items")
    assert items[0].namespace_id == 5


@pytest.mark.parametrize("place", [[], old(None)], ids=["no namespace", "no item"])
def test_a_delete_of_nothing_writes_nothing(place: list[Any]) -> None:
    """Deleting what is not there makes no namespace and does not move the clock."""
    play(answered([PutOp(("users", "ada"), "a", None)]), ("select_places", [place]))


def test_a_delete_lets_an_empty_namespace_go() -> None:
    """Namespaces that only lost items are looked at; those that also gained one are not."""
    ops: list[Op] = [PutOp(("a",), "k", None), PutOp(("b",), "k", None), put("new", namespace=("b",))]
    _, asked = play(
        answered(ops),
        ("select_places", [old(7), old(8, namespace=2), old(None, namespace=2)]),
        ("advance_clock", [(1, 20, 1)]),
        ("delete_items", []),
        ("insert_items", None),
        ("touch_namespaces", None),
        ("delete_empty_namespaces", []),
    )
    assert arguments(asked, "delete_items") == ([7, 8],)
    assert arguments(asked, "delete_empty_namespaces") == ([1],)


def test_a_batch_that_only_deletes_inserts_nothing() -> None:
    """No empty statement is yielded for items, and a namespace that lost none is neither touched nor looked at."""
    _, asked = play(
        answered([PutOp(("a",), "k", None), PutOp(("b",), "k", None)]),
        ("select_places", [old(7, texts=2), old(None, namespace=2)]),
        ("advance_clock", [(9, 20, 1)]),
        ("insert_removals", None),
        ("delete_items", []),
        ("touch_namespaces", None),
        ("delete_empty_namespaces", []),
    )
    assert arguments(asked, "advance_clock") == (0,)
    assert arguments(asked, "touch_namespaces") == ([(1, -2)],)
    assert arguments(asked, "delete_empty_namespaces") == ([1],)


def test_the_last_write_to_a_key_is_the_one_applied() -> None:
    """Of several writes to a place in one batch, those before the last are never written."""
    last = PutOp(("users", "ada"), "a", {"text": "last"})
    _, asked = play(answered([put("a"), PutOp(("users", "ada"), "a", None), last]), *new_items(1))
    (items,) = arguments(asked, "insert_items")
    assert [row.value for row in items] == ['{"text":"last"}']


def test_a_key_written_again_in_a_batch_is_written_later() -> None:
    """Ids stand in writing order, and ties are won by the later written: `a` was written after `b` here."""
    _, asked = play(answered([put("a"), put("b"), put("a")]), *new_items(2))
    (items,) = arguments(asked, "insert_items")
    assert sorted((row.id, row.key) for row in items) == [(1, "b"), (3, "a")]


def test_vectors_of_other_settings_are_refused_after_the_clock() -> None:
    """Vectors are made before the transaction; inside it the settings they were made under must still stand."""
    script: list[Line] = [("select_places", [old(None)]), ("advance_clock", [(1, 2, 2)])]
    with pytest.raises(IndexMismatch):
        play(answered([put("a")], index_id=1), *script)


def test_what_is_not_indexed_fills_no_columns() -> None:
    """Nothing is looked for and nothing written of an index."""
    op = PutOp(("users", "ada"), "a", {"text": "t"}, index=False)
    _, asked = play(answered([op]), *new_items(1, last_id=1))
    ((row,),) = arguments(asked, "insert_items")
    assert (row.fields, row[9:]) == ("[]", (None, None, None, None))


def test_reads_come_before_the_writes_of_their_batch() -> None:
    """Reads see the state before the batch because they are asked first, wherever they stand; gets in one step."""
    ops: list[Op] = [
        put("a"),
        GetOp(("users", "ada"), "a"),
        ListNamespacesOp(),
        SearchOp(()),
        GetOp(("users", "ada"), "b"),
    ]
    result, asked = play(
        answered(ops),
        ("select_items", [[item_row(3, "a")], []]),
        ("select_live_namespaces", [(USER,)]),
        ("select_newest", [item_row(3, "a")]),
        *new_items(1),
    )
    assert arguments(asked, "select_items") == ([(USER, "a"), (USER, "b")], NOW)
    put_result, got, listed, found, missing = result.results
    assert (put_result, got.key, listed, missing) == (None, "a", [("users", "ada")], None)
    assert [hit.key for hit in found] == ["a"]


def test_an_empty_batch_asks_nothing() -> None:
    """No ops, no statement."""
    assert play(answered([]))[0] == Answer([], [])


def test_only_reads_that_want_it_refresh(clock: Clock) -> None:
    """An op's own `refresh_ttl` is about that op only; what several ops returned is refreshed once."""
    row = item_row(3, "a", ttl=1.0, expires_at=NOW + 1)
    other = item_row(4, "b", ttl=1.0, expires_at=NOW + 1)
    ops: list[Op] = [
        GetOp(("users", "ada"), "a", refresh_ttl=True),
        GetOp(("users", "ada"), "b", refresh_ttl=False),
        SearchOp((), limit=1, refresh_ttl=True),
        SearchOp((), limit=1, refresh_ttl=False),
    ]
    clock.microseconds = NOW
    newest: list[Line] = [("select_newest", [row]), ("select_newest", [other])]
    result, _ = play(answered(ops, now=clock), ("select_items", [[row], [other]]), *newest)
    assert result.refreshes == [(3, NOW + 1 + MINUTE)]


def test_a_refresh_too_small_is_not_worth_a_write() -> None:
    """An expiry that would move by under 1 % of its ttl stays; without a ttl or an expiry there is none to move."""
    requests = to_requests([GetOp(("a",), f"k{number}") for number in range(4)], None)
    rows = [
        item_row(1, "k0", ttl=100.0, expires_at=NOW + 100 * MINUTE - MINUTE + 1),
        item_row(2, "k1", ttl=100.0, expires_at=NOW + 100 * MINUTE - MINUTE),
        item_row(3, "k2"),
        item_row(4, "k3", ttl=5.0),
    ]
    flow = answer(requests, Embedded(), settings(), lambda: NOW)
    result, _ = play(flow, ("select_items", [[row] for row in rows]))
    assert result.refreshes == [(2, NOW + 100 * MINUTE)]


def test_refreshing_is_one_statement() -> None:
    """However many items a page returned; the statement itself looks whether they are still live."""
    _, asked = play(refresh([(1, NOW), (2, NOW)], named_dialect(), lambda: NOW), ("refresh_items", None))
    assert asked == [Asked("refresh_items", ([(1, NOW), (2, NOW)], NOW))]
    assert to_refreshes([], NOW) == []


def test_no_ttl_is_so_long_that_it_overflows() -> None:
    """The latest expiry is capped, and a ttl under a microsecond is one microsecond."""
    assert to_expiry(1e308, NOW) == 2**62
    assert to_expiry(1e-12, NOW) == NOW + 1
    assert to_expiry(0.5, NOW) == NOW + 30_000_000
    assert to_expiry(None, NOW) is None


def test_a_sweep_of_nothing_is_one_look() -> None:
    """Where nothing has expired, nothing is written."""
    assert play(sweep(named_dialect(), 10, lambda: NOW), ("select_expired", []))[0] == 0


def test_a_sweep_takes_texts_and_empty_namespaces_along() -> None:
    """Each namespace is counted and looked at once, however many of its items have expired."""
    count, asked = play(
        sweep(named_dialect(), 10, lambda: NOW),
        ("select_expired", [(5, 1, 50, 2), (6, 1, None, 0), (7, 2, 70, 1)]),
        ("advance_clock", [(4, 99, 1)]),
        ("insert_removals", None),
        ("delete_items", []),
        ("touch_namespaces", None),
        ("delete_empty_namespaces", []),
    )
    assert count == 3
    assert arguments(asked, "select_expired") == (NOW, 10)
    assert arguments(asked, "advance_clock") == (0,)
    assert arguments(asked, "insert_removals") == ([(4, 50, 2), (4, 70, 1)],)
    assert arguments(asked, "delete_items") == ([5, 6, 7],)
    assert arguments(asked, "touch_namespaces") == ([(1, -2), (2, -1)],)
    assert arguments(asked, "delete_empty_namespaces") == ([1, 2],)


def test_kept_vectors_are_joined_with_those_just_made() -> None:
    """A text whose vector the item has already is not embedded again; one asked for twice is encoded once."""
    digests, vectors = b"a" * 16 + b"b" * 16, b"1" * 8 + b"2" * 8
    places = [(USER, "a"), (USER, "b")]
    kept, _ = play(kept_vectors(places, 2, named_dialect()), ("select_kept_vectors", [[(digests, vectors)], []]))
    assert kept == {b"a" * 16: b"1" * 8, b"b" * 16: b"2" * 8}
    requests = [request for request in to_requests([put("a"), put("a"), put("b")], PATHS) if isinstance(request, Write)]
    made = {"text of b": np.ones(4, np.float32)}
    first, second = to_digest("text of a"), to_digest("text of b")
    assert to_vectors(requests, made, {first: b"known"}) == {first: b"known", second: VECTOR}


@pytest.mark.parametrize("row", [(None, b"1" * 8), (b"a" * 16, None), (b"a" * 16, b"1" * 4), (b"a" * 8, b"1" * 8)])
def test_vectors_that_do_not_fit_are_not_kept(row: tuple[bytes | None, bytes | None]) -> None:
    """A damaged row is no reason to keep its damage, nor to refuse the put that replaces it."""
    assert play(kept_vectors([(USER, "a")], 2, named_dialect()), ("select_kept_vectors", [[row]]))[0] == {}


def test_a_listing_whose_prefix_settles_it_is_one_page_in_sql() -> None:
    """Without wildcards, suffixes and depth, SQL cuts the page."""
    op = ListNamespacesOp((MatchCondition("prefix", ("users",)),), limit=5, offset=2)
    result, asked = play(answered([op]), ("select_live_namespaces", [(USER,)]))
    assert asked[0].arguments == (b"users\0", b"users\x01", 5, 2, NOW)
    assert result.results == [[("users", "ada")]]


def test_a_listing_stops_reading_at_its_limit() -> None:
    """Blocks are read one after the other, each from where the last one ended and twice as large."""
    paths = [(f"u{number:04}\0x\0".encode(),) for number in range(256)]
    more = [(f"v{number:04}\0x\0".encode(),) for number in range(512)]
    op = ListNamespacesOp(max_depth=1, limit=300)
    result, asked = play(answered([op]), ("select_live_namespaces", paths), ("select_live_namespaces", more))
    assert [line.arguments[2:4] for line in asked] == [(256, 0), (512, 0)]
    assert asked[1].arguments[0] == paths[-1][0] + b"\0"
    assert len(result.results[0]) == 300


def test_a_listing_that_finds_too_little_reads_to_the_end_once() -> None:
    """A block that is not full is the last; names that the pattern refuses are left out, duplicates joined."""
    op = ListNamespacesOp((MatchCondition("suffix", ("x",)),), max_depth=1, limit=9, offset=1)
    rows = [(b"a\0x\0",), (b"a\0y\0",), (b"b\0c\0x\0",), (b"b\0d\0x\0",)]
    result, _ = play(answered([op]), ("select_live_namespaces", rows))
    assert result.results == [[("b",)]]


def test_a_listing_of_nothing_asks_nothing() -> None:
    """A limit of 0 is answered without reading where Python cuts the page."""
    op = ListNamespacesOp(max_depth=1, limit=0)
    assert play(answered([op]))[0].results == [[]]
