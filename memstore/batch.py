"""One batch of requests, answered in one transaction: the reads see the state before it, then the writes are applied.

Every write gives its item and its texts new ids, all taken from the clock's row in one statement. The number of
statements does not depend on the number of writes, but for one or two a namespace.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from memstore.dialects import Dialect, ItemRow, TextRow
from memstore.embedding import to_blob
from memstore.errors import INDEX_CHANGED, IndexMismatch
from memstore.indexes import Vectors
from memstore.items import Found, Microseconds, from_json, to_found
from memstore.namespaces import from_path, to_range
from memstore.requests import Get, Listing, Request, Search, Write
from memstore.search import Query, SearchSettings, search
from memstore.steps import Flow, Row
from memstore.ttl import to_expiry, to_refreshes

Place: TypeAlias = tuple[bytes, str]
"""(namespace path, key)."""
_PATHS_AT_ONCE: Final = 256
"""Namespaces read at once while a listing is filtered; doubled from block to block."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vectors a batch needs, made before its transaction."""

    queries: Mapping[str, Vectors] = field(default_factory=dict)
    texts: Mapping[bytes, bytes] = field(default_factory=dict)
    """Encoded vector by the digest of its text."""
    index_id: int | None = None
    """The index settings they were made under; None where none were made."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a batch gives: results in the order of its ops, and the expiries its reads move."""

    results: list[Any]
    refreshes: list[tuple[int, Microseconds]]


def answer(
    requests: Sequence[Request], embedded: Embedded, settings: SearchSettings, now: Callable[[], Microseconds]
) -> Flow[Answer]:
    """Answer a batch."""
    time = now()
    results: list[Any] = [None] * len(requests)
    touched: list[Found] = []
    yield from _answer_gets(requests, results, touched, settings.dialect, time)
    for at, request in enumerate(requests):
        if isinstance(request, Search):
            vector = embedded.queries.get(request.query) if request.query else None
            query = None if vector is None else Query(vector, embedded.index_id)
            found = yield from search(request, query, settings, time)
            results[at] = [hit.item for hit in found]
            touched.extend(found if request.refresh else ())
        elif isinstance(request, Listing):
            results[at] = yield from list_namespaces(request, settings.dialect, time)
    writes = last_writes(requests)
    if writes:
        yield from write(writes, embedded, settings.dialect, time)
    return Answer(results, to_refreshes(touched, time))


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
            found = to_found(row, from_json(row[3]))
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
        start, block = rows[-1][0] + b"\0", block * 2
    return list(listed)[request.offset : wanted]


def kept_vectors(places: Sequence[Place], dialect: Dialect) -> Flow[dict[bytes, bytes]]:
    """Give the vectors that items have now, by the digest of their texts: an unchanged text is not embedded again."""
    replies = yield dialect.select_kept_vectors(places)
    return {digest: vector for rows in replies for digest, vector in rows}


def write(writes: Mapping[Place, Write], embedded: Embedded, dialect: Dialect, now: Microseconds) -> Flow[None]:
    """Apply the last write to each place."""
    namespaces = yield from _find_namespaces(writes.values(), dialect)
    placed = {
        (namespaces[request.path], request.key): request for request in writes.values() if request.path in namespaces
    }
    rows = yield dialect.select_replaced(list(placed))
    replaced = {(row[1], row[2]): row for row in rows}
    puts = {place: request for place, request in placed.items() if request.value is not None}
    if not rows and not puts:
        return
    ids = sum(1 + len(request.texts) for request in puts.values())
    ((clock, last_id, index_id),) = yield dialect.advance_clock(ids)
    if embedded.index_id not in (None, index_id):
        raise IndexMismatch(INDEX_CHANGED)
    changes = dict.fromkeys((namespace_id for namespace_id, _ in placed), 0)
    yield from remove_items([(row[1], row[0]) for row in rows], clock, changes, dialect)
    items, texts = _to_rows(puts, replaced, embedded.texts, iter(range(last_id - ids + 1, last_id + 1)), now)
    for text in texts:
        changes[text.namespace_id] += 1
    if items:
        yield dialect.insert_items(items)
    if texts:
        yield dialect.insert_texts(texts)
    yield dialect.touch_namespaces(list(changes.items()))
    emptied = sorted({place[0] for place in placed} - {place[0] for place in puts})
    if emptied:
        yield dialect.delete_empty_namespaces(emptied)


def sweep(dialect: Dialect, limit: int, now: Callable[[], Microseconds]) -> Flow[int]:
    """Delete up to `limit` expired items and all that belongs to them; return how many there were."""
    rows = yield dialect.select_expired(now(), limit)
    if not rows:
        return 0
    ((clock, _, _),) = yield dialect.advance_clock(0)
    changes = {namespace_id: 0 for _, namespace_id in rows}
    yield from remove_items([(namespace_id, item_id) for item_id, namespace_id in rows], clock, changes, dialect)
    yield dialect.touch_namespaces(list(changes.items()))
    yield dialect.delete_empty_namespaces(sorted(changes))
    return len(rows)


def remove_items(items: Sequence[tuple[int, int]], clock: int, changes: dict[int, int], dialect: Dialect) -> Flow[None]:
    """Delete items named by (namespace id, item id) with their texts, and count the texts out of `changes`."""
    if not items:
        return
    texts = yield dialect.delete_texts(items)
    for _, namespace_id in texts:
        changes[namespace_id] -= 1
    if texts:
        yield dialect.insert_removals([text_id for text_id, _ in texts], clock)
    yield dialect.delete_items([item_id for _, item_id in items])


def _find_namespaces(writes: Iterable[Write], dialect: Dialect) -> Flow[dict[bytes, int]]:
    """Find the ids of the namespaces written to, and make those that a put needs; deletes make none."""
    wanted: dict[bytes, bool] = {}
    for request in writes:
        wanted[request.path] = wanted.get(request.path, False) or request.value is not None
    paths = sorted(wanted)
    replies = yield dialect.select_namespace_ids(paths)
    found = {path: rows[0][0] for path, rows in zip(paths, replies, strict=True) if rows}
    missing = [path for path in paths if wanted[path] and path not in found]
    if missing:
        replies = yield dialect.insert_namespaces(missing)
        found |= {path: rows[0][0] for path, rows in zip(missing, replies, strict=True)}
    return found


def _to_rows(
    puts: Mapping[tuple[int, str], Write],
    replaced: Mapping[tuple[int, str], Row],
    vectors: Mapping[bytes, bytes],
    ids: Iterator[int],
    now: Microseconds,
) -> tuple[list[ItemRow], list[TextRow]]:
    """Lay out the rows of some puts; an item that is replaced while live keeps when it was created."""
    items: list[ItemRow] = []
    texts: list[TextRow] = []
    for (namespace_id, key), request in puts.items():
        item_id, created, updated = next(ids), now, now
        if (old := replaced.get((namespace_id, key))) and (old[5] is None or old[5] > now):
            created, updated = old[3], max(now, old[4] + 1)
        fields = None if request.fields is None else json.dumps(request.fields, ensure_ascii=False)
        expires_at = to_expiry(request.ttl, now)
        value = request.value or ""
        items.append(ItemRow(item_id, namespace_id, key, value, fields, created, updated, request.ttl, expires_at))
        texts.extend(
            TextRow(next(ids), namespace_id, item_id, text.field, text.digest, vectors[text.digest])
            for text in request.texts
        )
    return items, texts


def to_vectors(
    requests: Iterable[Write], made: Mapping[str, Vectors], kept: Mapping[bytes, bytes]
) -> dict[bytes, bytes]:
    """Join the vectors just made, by text, with those that were kept, by digest."""
    vectors = dict(kept)
    for request in requests:
        for text in request.texts:
            if text.digest not in vectors:
                vectors[text.digest] = to_blob(made[text.text])
    return vectors
