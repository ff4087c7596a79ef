"""Looking a database over: what does not fit together, and putting it right.

The rows are compared with each other in SQL; the texts of every item are then extracted again from its value, a
thousand items at a time, and compared with those indexed. What is missing is embedded outside any transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from memstore.analysis import to_terms
from memstore.batch import Embedded, to_labels, to_term_blob, to_vector_blob
from memstore.dialects import Dialect, IndexedRow
from memstore.embedding import Text, to_texts
from memstore.errors import INDEX_CHANGED, DatabaseDamaged, IndexMismatch
from memstore.indexes import Terms
from memstore.items import from_stored
from memstore.recall import RecallCheck
from memstore.steps import Flow, Row, Statement

ITEMS_AT_ONCE: Final = 1_000
"""Items compared in one snapshot; at 384 dims a repair of that many holds 1.5 MB of vectors."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What `check` found.

    Attributes:
        problems: One line for each kind of fault, with how often it was found; empty where all is well.
        repaired: Whether they have been put right.
        recall: How much of the exact answer the index of wide scopes finds; None where none is in use, or there are
            problems.
    """

    problems: tuple[str, ...]
    repaired: bool = False
    recall: RecallCheck | None = field(default=None, compare=False)

    @property
    def ok(self) -> bool:
        """Whether the database is sound now."""
        return self.repaired or not self.problems


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be indexed of a value.

    Attributes:
        paths: What is indexed unless a put chose otherwise.
        dims: The length of a vector; None where nothing is embedded.
        language: By which words are stemmed; None where texts have no terms.
        words: Paths whose words count with every text.
    """

    paths: tuple[str, ...]
    dims: int | None
    language: str | None
    words: tuple[str, ...] = ()

    def to_terms(self, texts: Iterable[Text]) -> dict[bytes, Terms]:
        """Make the terms of some texts, by the digests of their words."""
        if self.language is None:
            return {}
        return {text.words_digest: to_terms(text.worded, self.language) for text in texts}


@dataclass(frozen=True, slots=True)
class Mend:
    """An item whose indexed texts are not those of its value."""

    item_id: int
    texts: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """A stretch of items, compared."""

    last_id: int | None
    """Where to go on; None at the end."""
    mends: list[Mend]
    unreadable: int
    """Values that are no JSON objects."""


def ask(statement: Statement) -> Flow[list[Row]]:
    """Ask one thing."""
    rows: list[Row] = yield statement
    return rows


def check_rows(dialect: Dialect, *, repair: bool) -> Flow[list[str]]:
    """Compare the tables with each other, and put right what they can tell by themselves."""
    inspect = dialect.inspect()
    if repair:
        yield dialect.claim_settings()
    problems = [f"the database says: {text}" for (text,) in (yield inspect.integrity()) if text != "ok"]
    faults = (
        (inspect.stray_texts(), "texts or vectors belong to no item", inspect.forget_stray_texts()),
        (inspect.overrun(), "ids lie beyond the last one given", inspect.raise_last_id()),
        (inspect.miscounted(), "namespaces miscount their texts", inspect.recount()),
        (inspect.stray_items(), "items belong to no namespace", None),
    )
    for question, meaning, remedy in faults:
        rows = yield question
        if rows:
            problems.append(f"{len(rows)} {meaning}")
            if repair and remedy is not None:
                yield remedy
    return problems


def survey(last_id: int, due: Due | None, dialect: Dialect) -> Flow[Survey]:
    """Compare the texts of some items with their values.

    Args:
        last_id: The item after which to go on.
        due: What is to be indexed; None without an index, and nothing is compared.
        dialect: The backend's.
    """
    inspect = dialect.inspect()
    items = yield inspect.items_after(last_id, ITEMS_AT_ONCE)
    if not items:
        return Survey(None, [], 0)
    mends: list[Mend] = []
    unreadable = 0
    for item_id, value, fields, *indexed in items:
        try:
            texts = to_texts(from_stored(value), _chosen(fields, due.paths if due else ()), due.words if due else ())
        except DatabaseDamaged:
            unreadable += 1
            continue
        if due is not None and _to_columns(texts, due) != indexed:
            mends.append(Mend(item_id, texts))
    return Survey(items[-1][0], mends, unreadable)


def _chosen(fields: str | None, paths: tuple[str, ...]) -> Sequence[str]:
    """Give the paths a put chose, or the store's where it chose none, or where its choice cannot be read."""
    try:
        chosen = None if fields is None else json.loads(fields)
    except ValueError:
        return paths
    if isinstance(chosen, list) and all(isinstance(path, str) for path in chosen):
        return chosen
    return paths


def _to_columns(texts: tuple[Text, ...], due: Due) -> list[Any]:
    """Say what an item with some texts has in its columns texts, digests and terms, and the bytes of its vectors."""
    if not texts:
        return [None, None, None, None]
    size = None if due.dims is None else 4 * due.dims * len(texts)
    return [to_labels(texts), b"".join(text.digest for text in texts), to_term_blob(texts, due.to_terms(texts)), size]


def mend(mends: Sequence[Mend], embedded: Embedded, dialect: Dialect) -> Flow[None]:
    """Index items anew by the texts of their values, but for those written since.

    They get new ids, as everything that is written does: whoever keeps an index learns of them by these.

    Raises:
        IndexMismatch: The index settings the vectors were made under are no longer in force.
    """
    inspect = dialect.inspect()
    mended_at: int | None = None
    yield dialect.claim_namespaces_of([fault.item_id for fault in mends])
    for fault in mends:
        rows = yield inspect.select_mendable(fault.item_id)
        if not rows:
            continue
        ((namespace_id, text_id, count),) = rows
        texts = fault.texts
        ((clock, last_id, index_id),) = yield dialect.advance_clock(1 + len(texts))
        if index_id != embedded.index_id:
            raise IndexMismatch(INDEX_CHANGED)
        mended_at = clock
        if text_id is not None:
            yield dialect.insert_removals([(clock, text_id, count)])
        row = IndexedRow(
            id=last_id - len(texts),
            text_id=last_id - len(texts) + 1 if texts else None,
            texts=to_labels(texts),
            digests=b"".join(text.digest for text in texts) or None,
            vectors=to_vector_blob(texts, embedded.texts),
            terms=to_term_blob(texts, embedded.terms),
        )
        yield inspect.update_texts(fault.item_id, namespace_id, row)
        yield dialect.touch_namespaces([(namespace_id, len(texts) - count)])
    if mended_at is not None:
        yield dialect.raise_floor(mended_at)  # the damage may have hidden which texts there were
