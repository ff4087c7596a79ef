"""Every SQL statement memstore runs, spelled for each database.

A dialect turns what a flow wants into statements; what a flow wants is the same everywhere. Values are always bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from memstore.config import VectorKind
from memstore.dialects.threads import ThreadStatements
from memstore.filters import Narrowing
from memstore.items import Microseconds
from memstore.steps import Flow, Statement, Step

MARK_BYTES: Final = 2
"""Bytes of the mark that a write leaves at its namespace, where namespaces have marks of their own."""
UNKNOWN: Final = -1
"""A clock that no writing transaction has."""


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

    def select_items(self, places: Sequence[tuple[bytes, str]], now: Microseconds) -> Step:
        """For each (path, key) a list with the live item: rows as `select_items_by_id`."""
        ...

    def select_scope(self, start: bytes, end: bytes | None, limit: int) -> Statement:
        """The first namespaces whose path lies in a half-open range.

        Rows are (id, version, texts, marks, clock, index_id, mark): `marks` are a namespace's own, the newest first,
        and empty where the mark of the clock vouches for all of them.
        """
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
        """Items with texts, by id: (id, namespace_id, text_id, number of texts, vectors, terms, fields)."""
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

    def select_passing(self, ids: Sequence[int], narrowings: Iterable[Narrowing], now: Microseconds) -> Statement:
        """Those of some items that are live and may fulfil a filter: (id,)."""
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

    def select_slices(self, namespaces: Sequence[int], *, fields: bool = True) -> Statement:
        """What is indexed in some namespaces, one after the other: (namespace_id, id, digests, vectors, terms, fields).

        A row holds all texts of an item, or one of them; `fields` is a JSON list of what gave them, where it is wanted.
        """
        ...

    def select_slice_changes(self, namespaces: Sequence[tuple[int, int]], *, fields: bool = True) -> Step:
        """For each (namespace id, item id) a list of its items, just ids up to that: as `select_indexed`."""
        ...

    def select_indexed(self, ids: Sequence[int]) -> Statement:
        """What is indexed of some items: (id, digests, vectors, terms, fields), of all texts of an item or of one."""
        ...

    def select_times(self, namespaces: Sequence[int]) -> Statement:
        """When the items of some namespaces were written: (id, updated_at)."""
        ...

    def select_times_of(self, ids: Sequence[int]) -> Statement:
        """When some items were written: (id, updated_at)."""
        ...

    def select_marks(self) -> Statement:
        """One row: (the marks of the last writing transactions, the newest last,)."""
        ...

    def select_clock(self) -> Step:
        """One row: (clock,); `UNKNOWN` where a clock cannot tell whether something was written since."""
        ...

    def select_vectors(self, ids: Sequence[int]) -> Statement:
        """What is indexed of some items: (digests, vectors), of all texts of an item or of one of them."""
        ...

    # writing -----------------------------------------------------------------------------------------------------

    def claim_namespaces(self, paths: Sequence[bytes], *, make: bool) -> Step:
        """Let nobody else write in the namespaces of some ascending paths before this transaction ends.

        With `make`, those that are missing may be made.
        """
        ...

    def claim_namespaces_of(self, item_ids: Sequence[int]) -> Step:
        """Let nobody else write in the namespaces of some items before this transaction ends."""
        ...

    def claim_settings(self) -> Step:
        """Let nobody else write at all before this transaction ends."""
        ...

    def hold_vectors(self, kind: VectorKind | None, *, anew: bool) -> Flow[None]:
        """Make room for vectors, where the database needs more than its tables for that.

        Args:
            kind: How numbers are kept; None for whichever way they are.
            anew: Whether there are none yet under these settings, so that nothing made for others is of use.
        """
        ...

    def learn(self, index_id: int) -> Flow[None]:
        """Learn what another store has made room for, where other index settings are in force than were known."""
        ...

    def select_places(self, places: Sequence[tuple[bytes, str]]) -> Step:
        """For each (path, key) a list of one row where the namespace exists, else an empty one.

        It is (namespace_id, id, created_at, expires_at, text_id, texts, updated_at, digests). All but the first are
        None where there is no item; `texts` is their number.
        """
        ...

    def insert_namespaces(self, paths: Sequence[bytes]) -> Step:
        """Make a namespace for each path that `claim_namespaces` left missing: a list of one row (id,)."""
        ...

    def advance_clock(self, ids: int) -> Statement:
        """Count one writing transaction and take a number of ids: (clock, last_id, index_id) after it."""
        ...

    def insert_removals(self, removals: Sequence[tuple[int, int, int]]) -> Step:
        """Record that texts are gone: (clock, first text id, number of texts)."""
        ...

    def delete_items(self, ids: Sequence[int]) -> Step:
        """Delete items."""
        ...

    def insert_items(self, rows: Sequence[ItemRow]) -> Step:
        """Write items."""
        ...

    def touch_namespaces(self, changes: Sequence[tuple[int, int]]) -> Step:
        """Move versions and count texts: (namespace id, texts more or less)."""
        ...

    def forget_removals(self, clock: int) -> Step:
        """Forget the removals up to a clock."""
        ...

    def delete_empty_namespaces(self, ids: Sequence[int]) -> Statement:
        """Delete those of some namespaces that hold no item."""
        ...

    # time to live ------------------------------------------------------------------------------------------------

    def refresh_items(self, refreshes: Sequence[tuple[int, Microseconds]], now: Microseconds) -> Step:
        """Set the expiry of live items: (item id, expires_at)."""
        ...

    def select_expired(self, now: Microseconds, limit: int) -> Statement:
        """Some expired items: (id, namespace_id, text_id, number of texts)."""
        ...

    def select_expired_among(self, ids: Sequence[int], now: Microseconds) -> Step:
        """Those of some items that have expired still: rows as `select_expired`."""
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

    def raise_floor(self, clock: int) -> Step:
        """Have indexes that stand before a clock made anew: what they lack cannot be told by ids and removals."""
        ...

    def forget_terms(self) -> Statement:
        """Take the terms from all items."""
        ...

    def select_unanalysed(self, item_id: int, limit: int) -> Step:
        """Items by id that have texts without terms: (id, value, texts, digests)."""
        ...

    def update_terms(self, terms: Sequence[tuple[int, bytes]]) -> Step:
        """Give terms to items that have none: (item id, terms)."""
        ...

    def touch_namespaces_of(self, item_ids: Sequence[int]) -> Statement:
        """Move the versions of the namespaces of some items."""
        ...

    def has_texts(self) -> Statement:
        """One row (1,) where any text is indexed, else none."""
        ...

    def claim_setup(self) -> Step:
        """Let nobody else make or migrate the tables before this transaction ends."""
        ...

    def to_statement(self, migration: str) -> Statement:
        """Spell a statement of a migration for this very database."""
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

    def threads(self) -> ThreadStatements:
        """The statements of the checkpointer."""
        ...


class InspectStatements(Protocol):
    """What `stats` and `check` ask."""

    def counts(self, now: Microseconds) -> Statement:
        """One row: (namespaces, items, expired items, texts, clock, index_id)."""
        ...

    def integrity(self) -> Statement:
        """The database's own findings: (text,), one row 'ok' where there are none."""
        ...

    def stray_texts(self) -> Step:
        """One row for each text of no item, and each vector of no text."""
        ...

    def forget_stray_texts(self) -> Step:
        """Delete them."""
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

    def items_after(self, item_id: int, limit: int) -> Step:
        """Items by id: (id, value, fields, texts or None without a text_id, digests, terms, bytes of the vectors)."""
        ...

    def id_range(self) -> Statement:
        """One row: (the least id of an item, the largest), of None where there are none."""
        ...

    def items_with_texts_from(self, ids: Sequence[int]) -> Step:
        """For each id a list with the first item that has texts, from that id on: (id,)."""
        ...

    def select_mendable(self, item_id: int) -> Statement:
        """One item: (namespace_id, text_id, number of texts)."""
        ...

    def update_texts(self, item_id: int, namespace_id: int, row: IndexedRow) -> Step:
        """Write anew what is indexed of an item of a namespace, under a new id."""
        ...


__all__ = ["MARK_BYTES", "UNKNOWN", "Bounds", "Dialect", "InspectStatements", "ItemRow"]
