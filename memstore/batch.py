"""One batch of requests, answered in one transaction: the reads see the state before it, then the writes are applied.

Every write gives its item and its texts new ids, all taken from the clock's row in one statement. The number of
statements does not depend on the number of writes, but for one or two a namespace.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, Final, TypeAlias

from memstore.analysis import to_blob
from memstore.dialects import UNKNOWN, Dialect, ItemRow
from memstore.embedding import DIGEST_BYTES, Text, split
from memstore.embedding import to_blob as to_vector
from memstore.errors import INDEX_CHANGED, IndexMismatch
from memstore.indexes import Terms, Vectors
from memstore.items import Found, Microseconds, from_stored, to_found
from memstore.namespaces import from_path, to_path, to_range
from memstore.requests import Get, Listing, Request, Search, Write
from memstore.scoring import Query
from memstore.search import SearchSettings, search
from memstore.shortlist import Shortlist, draw_up
from memstore.steps import Flow, Row, Together
from memstore.ttl import to_expiry, to_refreshes

Place: TypeAlias = tuple[bytes, str]
"""(namespace path, key)."""
_REMOVALS_KEPT: Final = 8_192
"""Writing transactions whose removals are remembered, for the indexes of other stores that are so far behind."""
_REMOVALS_CHECKED: Final = 64
"""How many of them pass before older ones are forgotten together."""
_PATHS_AT_ONCE: Final = 256
"""Namespaces read at once while a listing is filtered; doubled from block to block."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was at the places of a batch's writes before its texts were embedded."""

    clock: int
    """When that was; `UNKNOWN` where nothing can tell whether it is so still."""
    rows: Mapping[Place, Row]
    """Rows of `select_places`, of the places whose namespace existed."""
    vectors: Mapping[bytes, bytes]
    """Vectors that items had, by the digest of their texts, where a text of the batch may be among those."""

    def holds(self, clock: int) -> bool:
        """Tell whether the rows are still the same for the transaction that moved the clock to this.

        All that writes moves the clock, but for the refresh of an expiry.
        """
        return self.vouches and clock == self.clock + 1 and all(row[3] is None for row in self.rows.values())

    @property
    def vouches(self) -> bool:
        """Tell whether the rows may still be the same."""
        return self.clock != UNKNOWN


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vectors a batch needs, made before its transaction."""

    queries: Mapping[int, Query] = field(default_factory=dict)
    """By the place of the search in the batch."""
    texts: Mapping[bytes, bytes] = field(default_factory=dict)
    """Encoded vector by the digest of its text; empty where the store embeds nothing."""
    terms: Mapping[bytes, Terms] = field(default_factory=dict)
    """Terms by the digest of the text's words; empty where the store keeps none."""
    index_id: int = 0
    """The index settings the store knows, under which they were made; 0 on one without an index."""
    look: Look | None = None
    """What told which texts had their vectors already."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a batch gives: results in the order of its ops, and the expiries its reads move."""

    results: list[Any]
    refreshes: list[tuple[int, Microseconds]]
    again: Mapping[int, Shortlist] = field(default_factory=dict)
    """What is still to be reranked, by the place of the search in the batch."""


def answer(
    requests: Sequence[Request], embedded: Embedded, settings: SearchSettings, now: Callable[[], Microseconds]
) -> Flow[Answer]:
    """Answer a batch."""
    answered = yield from answer_reads(requests, embedded, settings, now)
    yield from answer_writes(requests, embedded, settings, now)
    return answered


def answer_reads(
    requests: Sequence[Request], embedded: Embedded, settings: SearchSettings, now: Callable[[], Microseconds]
) -> Flow[Answer]:
    """Answer what a batch reads."""
    time = now()
    results: list[Any] = [None] * len(requests)
    touched: list[Found] = []
    again: dict[int, Shortlist] = {}
    yield from _answer_gets(requests, results, touched, settings.dialect, time)
    for at, request in enumerate(requests):
        query = embedded.queries.get(at)
        if isinstance(request, Search) and query is not None and query.rerank is not None and request.limit:
            again[at] = yield from draw_up(request, query, settings, time)
        elif isinstance(request, Search):
            found = yield from search(request, query, settings, time)
            results[at] = [hit.item for hit in found]
            touched.extend(found if request.refresh else ())
        elif isinstance(request, Listing):
            results[at] = yield from list_namespaces(request, settings.dialect, time)
    return Answer(results, to_refreshes(touched, time), again)


def answer_writes(
    requests: Sequence[Request], embedded: Embedded, settings: SearchSettings, now: Callable[[], Microseconds]
) -> Flow[None]:
    """Apply what a batch writes."""
    writes = last_writes(requests)
    if writes:
        yield from write(writes, embedded, settings.dialect, now())


def apply_together(
    requests: Sequence[Request],
    changes: Iterable[Callable[[], Flow[Any]]],
    embedded: Embedded,
    settings: SearchSettings,
    now: Callable[[], Microseconds],
) -> Flow[None]:
    """Apply what a batch writes, then other changes."""
    yield from answer_writes(requests, embedded, settings, now)
    for change in changes:
        yield from change()


def last_writes(requests: Iterable[Request]) -> dict[Place, Write]:
    """Keep the last write to each place, in the order of those."""
    writes: dict[Place, Write] = {}
    for request in requests:
        if isinstance(request, Write):
            writes.pop((request.path, request.key), None)
            writes[request.path, request.key] = request
    return writes


def _answer_gets(
    requests: Sequence[Request], results: list[Any], touched: list[Found], dialect: Dialect, now: Microseconds
) -> Flow[None]:
    gets = [(at, request) for at, request in enumerate(requests) if isinstance(request, Get)]
    if not gets:
        return
    replies = yield dialect.select_items([(request.path, request.key) for _, request in gets], now)
    for (at, request), rows in zip(gets, replies, strict=True):
        for row in rows:
            found = to_found(row, from_stored(row[3]))
            results[at] = found.item
            if request.refresh:
                touched.append(found)


def list_namespaces(request: Listing, dialect: Dialect, now: Microseconds) -> Flow[list[tuple[str, ...]]]:
    """List namespaces that hold a live item, in order, reading no further than the page needs."""
    start, end = to_range(request.pattern.literal_prefix())
    if request.pattern.settled_by_prefix and request.max_depth is None:
        rows = yield dialect.select_live_namespaces(start, end, request.limit, request.offset, now)
        return [from_path(path) for (path,) in rows]
    listed: dict[tuple[str, ...], None] = {}
    wanted, block = request.offset + request.limit, _PATHS_AT_ONCE
    while len(listed) < wanted:
        rows = yield dialect.select_live_namespaces(start, end, block, 0, now)
        names = (from_path(path) for (path,) in rows)
        listed.update(dict.fromkeys(name[: request.max_depth] for name in names if request.pattern.matches(name)))
        if len(rows) < block:
            break
        start, block = _after(rows[-1][0], request.max_depth, listed), block * 2
    return list(listed)[request.offset : wanted]


def _after(path: bytes, depth: int | None, listed: Container[tuple[str, ...]]) -> bytes:
    """Say where to read on: what would be shown by a name that is listed need not be read."""
    shown = from_path(path)[:depth]
    following = to_range(to_path(shown))[1] if depth is not None and len(shown) == depth and shown in listed else None
    return path + b"\0" if following is None else following


def look_at(writes: Mapping[Place, Write], dims: int | None, dialect: Dialect) -> Flow[Look]:
    """Look at the places of a batch's writes, and at the vectors its texts have there: they are not embedded again."""
    ((clock,),), places = yield Together([dialect.select_clock(), dialect.select_places(list(writes))])
    found = _first(writes, places)
    wanted = {text.digest for request in writes.values() for text in request.texts}
    ids = [row[1] for row in found.values() if dims and row[5] and not wanted.isdisjoint(split(row[7], row[5]))]
    kept: dict[bytes, bytes] = {}
    for digests, vectors in (yield dialect.select_vectors(ids)) if ids else ():
        count = len(digests) // DIGEST_BYTES
        if len(vectors or b"") != 4 * (dims or 0) * count:
            continue  # damage, which this put replaces
        kept.update(zip(split(digests, count), split(vectors, count), strict=True))
    return Look(clock, found, kept)


def _first(writes: Mapping[Place, Write], replies: Sequence[Sequence[Row]]) -> dict[Place, Row]:
    """Give what `select_places` found, by place."""
    return {place: rows[0] for place, rows in zip(writes, replies, strict=True) if rows}


def write(writes: Mapping[Place, Write], embedded: Embedded, dialect: Dialect, now: Microseconds) -> Flow[None]:
    """Apply the last write to each place."""
    puts = {place: request for place, request in writes.items() if request.value is not None}
    claim = dialect.claim_namespaces(sorted({path for path, _ in writes}), make=bool(puts))
    places = dialect.select_places(list(writes))
    ids = sum(1 + len(request.texts) for request in puts.values())
    look = embedded.look
    found: Mapping[Place, Row]
    if not puts:
        found = _first(writes, (yield Together([claim, places]))[1])
        if all(row[1] is None for row in found.values()):
            return
        ((clock, last_id, index_id),) = yield dialect.advance_clock(0)
    elif look is None or not look.vouches:
        _, ((clock, last_id, index_id),), rows = yield Together([claim, dialect.advance_clock(ids), places])
        found = _first(writes, rows)
    else:
        _, ((clock, last_id, index_id),) = yield Together([claim, dialect.advance_clock(ids)])
        found = look.rows if look.holds(clock) else _first(writes, (yield places))
    if puts and embedded.index_id != index_id:
        raise IndexMismatch(INDEX_CHANGED)
    yield from dialect.learn(index_id)
    replaced = {place: row for place, row in found.items() if row[1] is not None}
    namespaces = {path: row[0] for (path, _), row in found.items()}
    missing = sorted({path for path, _ in puts} - namespaces.keys())
    if missing:
        made = yield dialect.insert_namespaces(missing)
        namespaces |= {path: rows[0][0] for path, rows in zip(missing, made, strict=True)}
    changes = dict.fromkeys((row[0] for row in replaced.values()), 0)
    yield from _remove([(row[1], row[0], row[4], row[5]) for row in replaced.values()], clock, changes, dialect)
    taken = iter(range(last_id - ids + 1, last_id + 1))
    items = []
    for place, request in puts.items():
        namespace_id = namespaces[place[0]]
        items.append(_to_row(request, (namespace_id, replaced.get(place)), embedded, taken, now))
        changes[namespace_id] = changes.get(namespace_id, 0) + len(request.texts)
    if items:
        yield dialect.insert_items(items)
    yield dialect.touch_namespaces(list(changes.items()))
    yield from _forget_removals(clock, dialect)
    claimed = set(namespaces.values()) if puts else changes.keys()  # some may have been made for a delete of nothing
    emptied = claimed - {item.namespace_id for item in items}
    if emptied:
        yield dialect.delete_empty_namespaces(sorted(emptied))


def sweep(dialect: Dialect, limit: int, now: Callable[[], Microseconds]) -> Flow[int]:
    """Delete up to `limit` expired items and all that belongs to them; return how many there were."""
    time = now()
    rows = yield dialect.select_expired(time, limit)
    if not rows:
        return 0
    ids = [row[0] for row in rows]
    _, ((clock, _, index_id),), rows = yield Together(
        [dialect.claim_namespaces_of(ids), dialect.advance_clock(0), dialect.select_expired_among(ids, time)]
    )
    if not rows:
        return 0
    yield from dialect.learn(index_id)
    changes = {namespace_id: 0 for _, namespace_id, _, _ in rows}
    yield from _remove(rows, clock, changes, dialect)
    yield dialect.touch_namespaces(list(changes.items()))
    yield from _forget_removals(clock, dialect)
    yield dialect.delete_empty_namespaces(sorted(changes))
    return len(rows)


def _forget_removals(clock: int, dialect: Dialect) -> Flow[None]:
    """Forget now and then what was removed long ago; an index that is so far behind is made anew."""
    if clock % _REMOVALS_CHECKED == 0 and clock > _REMOVALS_KEPT:
        yield dialect.forget_removals(clock - _REMOVALS_KEPT)
        yield dialect.raise_floor(clock - _REMOVALS_KEPT)


def _remove(items: Sequence[Row], clock: int, changes: dict[int, int], dialect: Dialect) -> Flow[None]:
    """Delete items (id, namespace_id, text_id, texts), record their texts as gone and count them out of `changes`."""
    if not items:
        return
    for _, namespace_id, _, texts in items:
        changes[namespace_id] -= texts
    removals = [(clock, text_id, texts) for _, _, text_id, texts in items if text_id is not None]
    if removals:
        yield dialect.insert_removals(removals)
    yield dialect.delete_items([item_id for item_id, _, _, _ in items])


def _to_row(
    request: Write, place: tuple[int, Row | None], embedded: Embedded, ids: Iterator[int], now: Microseconds
) -> ItemRow:
    """Lay out the row of a put; an item that is replaced while live keeps when it was created, and is updated later."""
    created = updated = now
    namespace_id, old = place
    if old is not None and (old[3] is None or old[3] > now):
        created, updated = old[2], max(now, old[6] + 1)
    texts = request.texts
    item_id, *text_ids = islice(ids, 1 + len(texts))
    return ItemRow(
        id=item_id,
        namespace_id=namespace_id,
        key=request.key,
        created_at=created,
        updated_at=updated,
        ttl=request.ttl,
        expires_at=to_expiry(request.ttl, now),
        fields=None if request.fields is None else _to_list(request.fields),
        value=request.value or "",
        text_id=text_ids[0] if text_ids else None,
        texts=to_labels(texts),
        digests=b"".join(text.digest for text in texts) or None,
        vectors=to_vector_blob(texts, embedded.texts),
        terms=to_term_blob(texts, embedded.terms),
    )


def to_labels(texts: Sequence[Text]) -> str | None:
    """Encode the paths that gave some texts; None where there are none."""
    return _to_list(tuple(text.field for text in texts)) if texts else None


@lru_cache(maxsize=128)
def _to_list(fields: tuple[str, ...]) -> str:
    return json.dumps(fields, ensure_ascii=False)


def to_vector_blob(texts: Sequence[Text], vectors: Mapping[bytes, bytes]) -> bytes | None:
    """Join the vectors of an item's texts; None where there are none."""
    return b"".join(vectors[text.digest] for text in texts) if texts and vectors else None


def to_term_blob(texts: Sequence[Text], terms: Mapping[bytes, Terms]) -> bytes | None:
    """Encode the terms of an item's texts; None where there are none."""
    return to_blob([terms[text.words_digest] for text in texts]) if texts and terms else None


def to_vectors(
    requests: Iterable[Write], made: Mapping[str, Vectors], kept: Mapping[bytes, bytes]
) -> dict[bytes, bytes]:
    """Join the vectors just made, by text, with those that were kept, by digest."""
    vectors = dict(kept)
    for request in requests:
        for text in request.texts:
            if text.digest not in vectors:
                vectors[text.digest] = to_vector(made[text.text])
    return vectors
