"""Flows of writing, driven by canned replies: which statements they yield, in what order, how many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from langgraph.store.base import GetOp, ListNamespacesOp, Op, PutOp, SearchOp

from memstore.batch import Answer, Embedded, Look, answer, last_writes, look_at, to_vectors
from memstore.dialects import ItemRow
from memstore.embedding import to_blob, to_digest
from memstore.errors import IndexMismatch
from memstore.history import History
from memstore.requests import Write, to_requests
from memstore.search import SearchSettings
from memstore.slices import SliceCache
from memstore.steps import Flow
from tests.flows import Asked, Line, NoLock, named_dialect, names, play
from tests.support import Clock

NOW = 1_800_000_000_000_000
MINUTE = 60_000_000
VECTOR, TERMS = to_blob(np.ones(4, np.float32)), np.array([5, 7], np.uint32)
USER = b"users\0ada\0"
PATHS = ("text",)


def settings() -> SearchSettings:
    """Give a search's settings with an empty cache."""
    return SearchSettings(named_dialect(), SliceCache(10**6, NoLock()), "cosine", History(NoLock()))


def answered(
    ops: list[Op], *, now: Callable[[], int] = lambda: NOW, index_id: int = 1, look: Look | None = None
) -> Flow[Answer]:
    """Make the flow of a batch whose texts all have the same vector and the same terms."""
    requests = to_requests(ops, PATHS)
    digests = [text.digest for request in requests if isinstance(request, Write) for text in request.texts]
    vectors, terms = dict.fromkeys(digests, VECTOR), dict.fromkeys(digests, TERMS)
    return answer(requests, Embedded({}, vectors, terms, index_id, look), settings(), now)


def put(key: str, *, namespace: tuple[str, ...] = ("users", "ada"), ttl: float | None = None) -> PutOp:
    """Make the op that puts an item with one text."""
    return PutOp(namespace, key, {"text": f"text of {key}"}, ttl=ttl)


def item_row(item_id: int, key: str, *, ttl: float | None = None, expires_at: int | None = None) -> tuple[Any, ...]:
    """Make a row as reads give it."""
    return (item_id, USER, key, '{"text":"t"}', NOW - 10, NOW - 5, ttl, expires_at)


def arguments(asked: list[Asked], name: str) -> tuple[Any, ...]:
    """Give what a statement was asked with, the first time."""
    return next(line.arguments for line in asked if line.name == name)


NEW_ITEMS = ["advance_clock", "select_places", "insert_namespaces", "insert_items", "touch_namespaces"]


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
    value, ends, digest = '{"text":"text of a"}', NOW + 150_000_000, to_digest("text of a")
    terms = np.array([2, 5, 7], "<u4").tobytes()
    assert items == [ItemRow(1, 1, "a", NOW, NOW, 2.5, ends, None, value, 2, '["text"]', digest, VECTOR, terms)]


def test_several_texts_stand_in_one_row() -> None:
    """Their paths, digests, vectors and terms follow each other in one order; their ids count up from the first."""
    op = PutOp(("users", "ada"), "a", {"text": ["x", "y"]}, index=["text[*]", "text[0]"])
    script = [(name, [(1, 4, 1)] if name == "advance_clock" else reply) for name, reply in new_items(1)]
    _, asked = play(answered([op]), *script)
    ((row,),) = arguments(asked, "insert_items")
    assert arguments(asked, "advance_clock") == (4,)
    assert (row.id, row.text_id, row.fields) == (1, 2, '["text[*]", "text[0]"]')
    assert row.texts == '["text[*].0", "text[*].1", "text[0]"]'
    assert row.digests == to_digest("x") + to_digest("y") + to_digest("x")
    assert (row.vectors, row.terms) == (VECTOR * 3, np.array([2, 2, 2, 5, 7, 5, 7, 5, 7], "<u4").tobytes())
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
        return [(namespace, None, None, None, None, 0, None, None)]
    digests = b"".join(to_digest(f"text {at} of {item_id}") for at in range(texts)) or None
    return [(namespace, item_id, created, ends, item_id + 1 if texts else None, texts, updated, digests)]


def replacing(place: list[tuple[Any, ...]], *, texts: int = 0) -> list[Line]:
    """Script a put that replaces one item."""
    return [
        ("advance_clock", [(9, 52, 1)]),
        ("select_places", [place]),
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


@pytest.mark.parametrize("clock", [64, 8_128, 8_192, 8_193, 8_255, 8_256, 8_257, 8_319, 8_320])
def test_old_removals_are_forgotten_now_and_then(clock: int) -> None:
    """Every 64 clocks, those of more than 8,192 ago; an index that stands before the last of them is made anew."""
    forgotten = [clock - 8_192] if clock in (8_256, 8_320) else []
    script = [(name, [(clock, 2, 1)] if name == "advance_clock" else reply) for name, reply in new_items(1)]
    forgetting: list[Line] = [("forget_removals", []), ("raise_floor", [])] if forgotten else []
    _, asked = play(answered([put("a")]), *script, *forgetting)
    assert [line.arguments for line in asked[len(script) :]] == [(number,) for number in forgotten * 2]


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
    script = [*new_items(1)[:1], ("select_places", [old(None, namespace=5)]), *new_items(1)[3:]]
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
        ("advance_clock", [(1, 20, 1)]),
        ("select_places", [old(7), old(8, namespace=2), old(None, namespace=2)]),
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
    with pytest.raises(IndexMismatch):
        play(answered([put("a")], index_id=1), ("advance_clock", [(1, 2, 2)]), ("select_places", [[]]))


def test_what_is_not_indexed_fills_no_columns() -> None:
    """Nothing is looked for and nothing written of an index."""
    op = PutOp(("users", "ada"), "a", {"text": "t"}, index=False)
    _, asked = play(answered([op]), *new_items(1, last_id=1))
    ((row,),) = arguments(asked, "insert_items")
    assert (row.fields, row[9:]) == ("[]", (None,) * 5)


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


def looked(ops: list[Op], *script: Line, dims: int | None = 4) -> Look:
    """Look at the places of a batch that were at clock 8."""
    writes = last_writes(to_requests(ops, PATHS))
    return play(look_at(writes, dims, named_dialect()), ("select_clock", [(8,)]), *script)[0]


def test_what_was_looked_at_is_not_looked_at_again() -> None:
    """Where nothing was written since, the look before the embedding stands."""
    ops: list[Op] = [put("a"), put("b")]
    look = looked(ops, ("select_places", [old(7, texts=1), old(None)]))
    lines = [line for line in replacing([], texts=1) if line[0] != "select_places"]
    _, asked = play(answered(ops, look=look), *lines)
    assert arguments(asked, "delete_items") == ([7],)
    (items,) = arguments(asked, "insert_items")
    assert [(row.key, row.created_at) for row in items] == [("a", NOW - 90), ("b", NOW)]


@pytest.mark.parametrize(("before", "clock"), [(old(7), 10), (old(7, ends=NOW + 1), 9)], ids=["written", "refreshed"])
def test_what_may_have_changed_is_looked_at_again(before: list[tuple[Any, ...]], clock: int) -> None:
    """Another's write moves the clock; a refresh moves no clock, but only an expiry."""
    look = looked([put("a")], ("select_places", [before]))
    script = [(name, [(clock, 52, 1)] if name == "advance_clock" else reply) for name, reply in replacing(old(8))]
    _, asked = play(answered([put("a")], look=look), *script)
    assert arguments(asked, "delete_items") == ([8],)


def test_kept_vectors_are_joined_with_those_just_made() -> None:
    """A text whose vector an item has already is not embedded again; one asked for twice is encoded once."""
    first, second, other = map(to_digest, ["text of a", "text of b", "another"])
    row, spare = (1, 7, 0, None, 8, 2, 0, other + first), (1, 9, 0, None, 10, 1, 0, other)
    kept: Line = ("select_vectors", [(other + first, b"1" * 16 + b"2" * 16)])
    look = looked([put("x"), put("a"), put("b")], ("select_places", [[row], [spare], []]), kept)
    assert look.vectors == {other: b"1" * 16, first: b"2" * 16}
    requests = [request for request in to_requests([put("a"), put("a"), put("b")], PATHS) if isinstance(request, Write)]
    made = {"text of b": np.ones(4, np.float32)}
    assert to_vectors(requests, made, {first: b"known"}) == {first: b"known", second: VECTOR}


def test_vectors_are_read_only_where_a_text_is_found_again() -> None:
    """Of items whose texts are all replaced, the digests tell that their vectors are of no use."""
    assert looked([put("a")], ("select_places", [old(7, texts=3)])).vectors == {}


DIGEST = to_digest("text of a")


@pytest.mark.parametrize("row", [(DIGEST, None), (DIGEST, b"1" * 4), (DIGEST * 2, b"1" * 16)])
def test_vectors_that_do_not_fit_are_not_kept(row: tuple[bytes, bytes | None]) -> None:
    """A damaged row is no reason to keep its damage, nor to refuse the put that replaces it."""
    place = [(1, 7, 0, None, 8, len(row[0]) // 16, 0, row[0])]
    assert looked([put("a")], ("select_places", [place]), ("select_vectors", [row])).vectors == {}
    assert looked([put("a")], ("select_places", [place]), dims=None).vectors == {}


def test_digests_that_are_none_tell_nothing() -> None:
    """What is too short to be a digest is no reason to read on."""
    assert looked([put("a")], ("select_places", [[(1, 7, 0, None, 8, 0, 0, b"short")]])).vectors == {}
