"""Looking a database over: what does not fit together, and putting it right.

The rows are compared with each other in SQL; the texts of every item are then extracted again from its value, a
thousand items at a time, and compared with those indexed. What is missing is embedded outside any transaction.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from memstore.dialects import Dialect, TextRow
from memstore.embedding import Text, to_texts
from memstore.items import from_json
from memstore.steps import Flow, Row, Statement

ITEMS_AT_ONCE: Final = 1_000
"""Items compared in one snapshot; at 384 dims a repair of that many holds 1.5 MB of vectors."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What `check` found.

    Attributes:
        problems: One line for each kind of fault, with how often it was found; empty where all is well.
        repaired: Whether they have been put right.
    """

    problems: tuple[str, ...]
    repaired: bool = False

    @property
    def ok(self) -> bool:
        """Whether the database is sound now."""
        return self.repaired or not self.problems


@dataclass(frozen=True, slots=True)
class Mend:
    """An item whose indexed texts are not those of its value."""

    item_id: int
    namespace_id: int
    texts: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """A stretch of items, compared."""

    last_id: int | None
    """Where to go on; None at the end."""
    mends: list[Mend]
    unreadable: int
    """Values that are no JSON."""


def ask(statement: Statement) -> Flow[list[Row]]:
    """Ask one thing."""
    rows: list[Row] = yield statement
    return rows


def check_rows(dialect: Dialect, *, repair: bool) -> Flow[list[str]]:
    """Compare the tables with each other, and put right what they can tell by themselves."""
    inspect = dialect.inspect()
    problems = [f"the database says: {text}" for (text,) in (yield inspect.integrity()) if text != "ok"]
    faults = (
        (inspect.stray_texts(), "texts belong to no item", inspect.delete_stray_texts()),
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


def survey(last_id: int, paths: tuple[str, ...] | None, dims: int | None, dialect: Dialect) -> Flow[Survey]:
    """Compare the texts of some items with their values.

    Args:
        last_id: The item after which to go on.
        paths: What is embedded unless a put chose otherwise; None without an index, and nothing is compared.
        dims: The length of a vector.
        dialect: The backend's.
    """
    inspect = dialect.inspect()
    items = yield inspect.items_after(last_id, ITEMS_AT_ONCE)
    if not items:
        return Survey(None, [], 0)
    indexed: dict[int, list[tuple[str, bytes, int]]] = defaultdict(list)
    for item_id, *text in (yield inspect.texts_of([(row[1], row[0]) for row in items])):
        indexed[item_id].append((text[0], text[1], text[2]))
    mends: list[Mend] = []
    unreadable = 0
    for row in items:
        try:
            texts = _expected(row, paths)
        except ValueError:
            unreadable += 1
            continue
        length = 4 * (dims or 0)
        if texts is not None and [(text.field, text.digest, length) for text in texts] != indexed[row[0]]:
            mends.append(Mend(row[0], row[1], texts))
    return Survey(items[-1][0], mends, unreadable)


def _expected(row: Row, paths: tuple[str, ...] | None) -> tuple[Text, ...] | None:
    """Extract the texts an item (id, namespace_id, key, value, fields) should have; None where that is not known."""
    value = from_json(row[3])
    return None if paths is None else to_texts(value, paths if row[4] is None else json.loads(row[4]))


def mend(mends: Sequence[Mend], vectors: Mapping[bytes, bytes], dialect: Dialect) -> Flow[int]:
    """Replace the indexed texts of items that have not been written since; return how many."""
    inspect = dialect.inspect()
    mended = 0
    for fault in mends:
        still = yield inspect.items_after(fault.item_id - 1, 1)
        if not still or still[0][0] != fault.item_id:
            continue
        ((clock, last_id, _),) = yield dialect.advance_clock(len(fault.texts))
        gone: list[Any] = yield dialect.delete_texts([(fault.namespace_id, fault.item_id)])
        yield dialect.insert_removals([text_id for text_id, _ in gone], clock)
        first = last_id - len(fault.texts) + 1
        yield dialect.insert_texts(
            [
                TextRow(at, fault.namespace_id, fault.item_id, text.field, text.digest, vectors[text.digest])
                for at, text in enumerate(fault.texts, first)
            ]
        )
        yield dialect.touch_namespaces([(fault.namespace_id, len(fault.texts) - len(gone))])
        mended += 1
    return mended
