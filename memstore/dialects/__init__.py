"""Every SQL statement memstore runs, spelled for each database.

A dialect turns what a flow wants into statements; what a flow wants is the same everywhere. Values are always bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from memstore.filters import Narrowing
from memstore.items import Microseconds
from memstore.steps import Each, Many, Statement


class ItemRow(NamedTuple):
    """An item and what is indexed of it, as it is written. The last five are None where nothing is."""

    id: int
    namespace_id: int
    key: str
    created_at: Microseconds
    updated_at: Microseconds
    ttl: float | None
    expires_at: Microseconds | None
    fields: str | None
    """The put's own choice of paths, as a JSON list."""
    value: str
    text_id: int | None
    """The id of the first text; the others follow."""
    texts: str | None
    """The paths that gave the texts, as a JSON list."""
    digests: bytes | None
    vectors: bytes | None
    terms: bytes | None


class IndexedRow(NamedTuple):
    """The columns of an `ItemRow` that say what is indexed, with its id."""

    id: int
    text_id: int | None
    texts: str | None
    digests: bytes | None
    vectors: bytes | None
    terms: bytes | None


@dataclass(frozen=True, slots=True)
class Bounds:
    """Rows in newest-first order: those after one (updated_at, id), at most `limit` after `offset` more."""

    limit: int
    offset: int = 0
    after: tuple[Microseconds, int] | None = None


class Dialect(Protocol):
    """The statements, by what they are for. Rows come as described; all take part in the transaction they run in."""

    # reading -----------------------------------------------------------------------------------------------------

    def select_items(self, places: Sequence[tuple[bytes, str]], now: Microseconds) -> Each:
        """For each (path, key) the live item: rows as `select_items_by_id`."""
        ...

    def select_scope(self, start: bytes, end: bytes | None, limit: int) -> Statement:
        """The first namespaces whose path lies in a half-open range: (id, version, texts, clock, index_id, mark)."""
        ...

    def count_scope(self, start: bytes, end: bytes | None) -> Statement:
        """One row: how many namespaces have their path in a half-open range, and how many texts they hold."""
        ...

    def select_scope_ids(self, start: bytes, end: bytes | None) -> Statement:
        """Ids of the namespaces whose path lies in a half-open range: (id,)."""
        ...

    def select_removals(self, clock: int) -> Statement:
        """Texts that were removed after a clock, at least one row: (floor, last_id, first text id or None, texts)."""
        ...

    def select_texts_after(self, item_id: int, limit: int) -> Statement:
        """Items with texts, by id: (id, namespace_id, text_id, number of texts, vectors, terms)."""
        ...

    def select_live_namespaces(self, start: bytes, end: bytes | None, limit: int, offset: int, now: int) -> Statement:
        """Paths in a half-open range that hold a live item, in order: (path,)."""
        ...

    def select_newest(
        self, scope: Sequence[int] | None, narrowings: Iterable[Narrowing], bounds: Bounds, now: Microseconds
    ) -> Statement:
        """Live items of namespaces (None: of all), newest first: rows as `select_items_by_id`."""
        ...

    def select_narrowed(
        self, scope: Sequence[int] | None, narrowings: Iterable[Narrowing], now: Microseconds
    ) -> Statement:
        """Ids of live items of namespaces (None: of all) that may fulfil a filter: (id,)."""
        ...

    def select_narrowed_items(
        self, scope: Sequence[int], narrowings: Iterable[Narrowing], now: Microseconds
    ) -> Statement:
        """Live items of namespaces that may fulfil a filter: rows as `select_items_by_id`."""
        ...

    def select_items_by_id(
        self, ids: Sequence[int], now: Microseconds, narrowings: Iterable[Narrowing] = ()
    ) -> Statement:
        """Live items that may fulfil a filter: (id, path, key, value, created_at, updated_at, ttl, expires_at)."""
        ...

    def select_slices(self, namespaces: Sequence[int]) -> Statement:
        """What is indexed in some namespaces, one after the other: (namespace_id, id, digests, vectors, terms)."""
        ...

    def select_slice_changes(self, namespaces: Sequence[tuple[int, int]]) -> Each:
        """For each (namespace id, item id) its items: (id, digests, vectors, terms), just the id up to that one."""
        ...

    def select_marks(self) -> Statement:
        """One row: (the marks of the last writing transactions, the newest last,)."""
        ...

    def select_clock(self) -> Statement:
        """One row: (clock,)."""
        ...

    def select_vectors(self, ids: Sequence[int]) -> Statement:
        """What is indexed of some items: (digests, vectors)."""
        ...

    # writing -----------------------------------------------------------------------------------------------------

    def select_places(self, places: Sequence[tuple[bytes, str]]) -> Each:
        """For each (path, key) whose namespace exists one row.

        It is (namespace_id, id, created_at, expires_at, text_id, texts, updated_at, digests). All but the first are
        None where there is no item; `texts` is their number.
        """
        ...

    def insert_namespaces(self, paths: Sequence[bytes]) -> Each:
        """Make a namespace for each path: (id,)."""
        ...

    def advance_clock(self, ids: int) -> Statement:
        """Count one writing transaction and take a number of ids: (clock, last_id, index_id) after it."""
        ...

    def insert_removals(self, removals: Sequence[tuple[int, int, int]]) -> Many:
        """Record that texts are gone: (clock, first text id, number of texts)."""
        ...

    def delete_items(self, ids: Sequence[int]) -> Statement:
        """Delete items."""
        ...

    def insert_items(self, rows: Sequence[ItemRow]) -> Many:
        """Write items."""
        ...

    def touch_namespaces(self, changes: Sequence[tuple[int, int]]) -> Many:
        """Move versions and count texts: (namespace id, texts more or less)."""
        ...

    def forget_removals(self, clock: int) -> Statement:
        """Forget the removals up to a clock."""
        ...

    def delete_empty_namespaces(self, ids: Sequence[int]) -> Statement:
        """Delete those of some namespaces that hold no item."""
        ...

    # time to live ------------------------------------------------------------------------------------------------

    def refresh_items(self, refreshes: Sequence[tuple[int, Microseconds]], now: Microseconds) -> Many:
        """Set the expiry of live items: (item id, expires_at)."""
        ...

    def select_expired(self, now: Microseconds, limit: int) -> Statement:
        """Some expired items: (id, namespace_id, text_id, number of texts)."""
        ...

    # the index's settings, migrations, inspection ----------------------------------------------------------------

    def select_index(self) -> Statement:
        """The index settings in force: (id, settings), or no row."""
        ...

    def insert_index(self, settings: str) -> Statement:
        """Record index settings: (id,)."""
        ...

    def update_index(self, index_id: int, settings: str) -> Statement:
        """Complete the index settings in force."""
        ...

    def enforce_index(self, index_id: int) -> Statement:
        """Make index settings those that every later write must know."""
        ...

    def raise_floor(self, clock: int) -> Statement:
        """Have indexes that stand before a clock made anew: what they lack cannot be told by ids and removals."""
        ...

    def forget_terms(self) -> Statement:
        """Take the terms from all items."""
        ...

    def select_unanalysed(self, item_id: int, limit: int) -> Statement:
        """Items by id that have texts without terms: (id, value, texts, digests)."""
        ...

    def update_terms(self, terms: Sequence[tuple[int, bytes]]) -> Many:
        """Give terms to items that have none: (item id, terms)."""
        ...

    def touch_namespaces_of(self, item_ids: Sequence[int]) -> Statement:
        """Move the versions of the namespaces of some items."""
        ...

    def has_texts(self) -> Statement:
        """One row (1,) where any text is indexed, else none."""
        ...

    def has_migrations(self) -> Statement:
        """One row where the table of migrations exists, else none."""
        ...

    def create_migrations(self) -> Statement:
        """Create the table of migrations."""
        ...

    def select_migrations(self) -> Statement:
        """The applied migrations in order: (number, name)."""
        ...

    def insert_migration(self, number: int, name: str, now: Microseconds) -> Statement:
        """Record a migration."""
        ...

    def inspect(self) -> InspectStatements:
        """The statements of stats and check."""
        ...


class InspectStatements(Protocol):
    """What `stats` and `check` ask."""

    def counts(self, now: Microseconds) -> Statement:
        """One row: (namespaces, items, expired items, texts, clock, index_id)."""
        ...

    def integrity(self) -> Statement:
        """The database's own findings: (text,), one row 'ok' where there are none."""
        ...

    def stray_items(self) -> Statement:
        """Items whose namespace is missing: (id,)."""
        ...

    def miscounted(self) -> Statement:
        """Namespaces whose count of texts is wrong: (id,)."""
        ...

    def recount(self) -> Statement:
        """Count the texts of every namespace anew and move the versions of those that were wrong."""
        ...

    def overrun(self) -> Statement:
        """One row (largest id,) where an id lies beyond the last one given, else none."""
        ...

    def raise_last_id(self) -> Statement:
        """Raise the last id given to the largest in use."""
        ...

    def items_after(self, item_id: int, limit: int) -> Statement:
        """Items by id: (id, value, fields, texts or None without a text_id, digests, terms, bytes of the vectors)."""
        ...

    def select_mendable(self, item_id: int) -> Statement:
        """One item: (namespace_id, text_id, number of texts)."""
        ...

    def update_texts(self, item_id: int, row: IndexedRow) -> Statement:
        """Write anew what is indexed of an item, under a new id."""
        ...


__all__ = ["Bounds", "Dialect", "InspectStatements", "ItemRow"]
