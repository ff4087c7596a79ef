"""What a database remembers of how its texts were embedded, so that vectors of two models never meet.

The settings are written when a store is first opened with an index, completed when the first vector tells its length,
and compared at every later opening.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pydantic import TypeAdapter, ValidationError

from memstore.analysis import DEFAULT_LANGUAGE, analyser_name, to_blob, to_terms
from memstore.config import IndexSettings, Mode, VectorKind
from memstore.dialects import Dialect
from memstore.embedding import DIGEST_BYTES, from_labels, split, to_identity, to_words
from memstore.errors import INDEX_CHANGED, DatabaseDamaged, IndexMismatch
from memstore.indexes import Metric
from memstore.items import from_stored
from memstore.steps import Flow

ITEMS_AT_ONCE: Final = 1_000
"""Items whose terms are made in one snapshot and written in one transaction."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The index settings of a database."""

    embed: str | None
    """`embed` as it was given, where it was text: a store opened without `index` can load it again."""
    model: str | None
    """The model's name; None for a function, which is known by the length of its vectors alone."""
    dims: int | None
    """The length of every vector; None until there is one."""
    metric: Metric
    fields: tuple[str, ...]
    dense: bool = True
    """Whether texts have vectors; a store that ranks by words alone embeds nothing."""
    mode: Mode = "semantic"
    """How a search ranks unless it says otherwise."""
    language: str | None = None
    """The language of the texts; None where no store has said."""
    analyser: str | None = None
    """What made the terms that every text has; None where texts have none."""
    analysed: bool = True
    """Whether every text has them by now."""
    words: tuple[str, ...] | None = None
    """Paths whose words count with every text; None where no store has said."""
    id: int = 0
    """The row that holds them; 0 before there is one."""

    def merged(self, given: Remembered) -> Remembered:
        """Take over what a user's settings add or change.

        Vectors of an unnamed model stay those of an unnamed model: that another has their length does not name it.
        """
        merged = replace(
            given,
            id=self.id,
            dims=given.dims or self.dims,
            model=given.model or self.model,
            embed=given.embed if given.dense else self.embed,
            metric=self.metric,
            dense=self.dense,
            language=given.language or self.language,
            analyser=self.analyser,
            analysed=self.analysed,
            words=self.words if given.words is None else given.words,
        )
        unnamed = self.model is None and self.dims is not None
        return replace(merged, model=None, embed=self.embed) if unnamed else merged

    def covers(self, given: Remembered) -> bool:
        """Whether a user's settings agree with these and add nothing."""
        merged = self.merged(given)
        return not self.difference(given) and merged == self and merged.analyser == merged.to_analyser()

    def difference(self, given: Remembered) -> str:
        """Say how settings differ in what vectors depend on; empty where they do not."""
        if self.model and given.model and self.model != given.model:
            return f"its texts were embedded by {self.model!r}, not by {given.model!r}"
        if self.dims and given.dims and self.dims != given.dims:
            return f"its vectors have length {self.dims}, not {given.dims}"
        if self.metric != given.metric and given.dense:
            return f"its metric is {self.metric!r}, not {given.metric!r}"
        if given.dense and not self.dense:
            return "its texts have no vectors"
        if self.analyser and given.language not in (None, self.spoken):
            return f"its words were stemmed as {self.spoken}, not as {given.language}"
        return ""

    def to_analyser(self) -> str | None:
        """Name what is to make the terms of its texts: once they have any, they keep them."""
        if self.mode == "semantic" and self.analyser is None:
            return None
        return analyser_name(self.spoken)

    @property
    def spoken(self) -> str:
        """The language by which words are stemmed."""
        return self.language or DEFAULT_LANGUAGE


_ADAPTER = TypeAdapter(Remembered)


def to_remembered(settings: IndexSettings) -> Remembered:
    """Say what a database is to remember of a user's settings."""
    embed = settings.embed
    return Remembered(
        embed=embed if isinstance(embed, str) else None,
        model=settings.model or to_identity(embed),
        dims=settings.dims,
        metric=settings.metric,
        fields=settings.paths,
        words=None if settings.words is None else tuple(settings.words),
        dense=embed is not None,
        mode=settings.ranking,
        language=settings.language,
    )


def recall_index(dialect: Dialect) -> Flow[Remembered | None]:
    """Read the settings in force, and learn how the vectors are kept under them: both are of one snapshot.

    Raises:
        DatabaseDamaged: They cannot be read.
    """
    rows = yield dialect.select_index()
    if not rows:
        return None
    yield from dialect.learn(rows[0][0])
    try:
        return replace(_ADAPTER.validate_json(rows[0][1]), id=rows[0][0])
    except ValidationError as error:
        raise DatabaseDamaged("its index settings cannot be read") from error


def adopt_index(given: Remembered, dialect: Dialect, kind: VectorKind | None = None) -> Flow[Remembered]:
    """Compare a user's settings with those in force, record what is new, and make room for vectors of a kind.

    Raises:
        IndexMismatch: Texts are indexed with another model, length or metric.
    """
    yield dialect.claim_settings()
    known = yield from recall_index(dialect)
    if known is not None and (fault := known.difference(given)):
        if (yield dialect.has_texts()):
            raise IndexMismatch(
                f"{fault}; open it with the settings it was made with, "
                "or make a new database and put its items there again"
            )
        known = None
    merged = given if known is None else known.merged(given)
    if merged.dense:
        yield from dialect.hold_vectors(kind, anew=known is None)
    if known is None or merged.analyser != merged.to_analyser():
        return (yield from _renew(merged, dialect))
    if merged != known:
        yield dialect.update_index(known.id, _encode(merged))
    return merged


def _renew(settings: Remembered, dialect: Dialect) -> Flow[Remembered]:
    """Put new settings in force; a store that is open under others is refused its next put."""
    analyser = settings.to_analyser()
    analysed = analyser is None or not (yield dialect.has_texts())
    if not analysed:
        yield dialect.forget_terms()
    settings = replace(settings, analyser=analyser, analysed=analysed)
    ((index_id,),) = yield dialect.insert_index(_encode(settings))
    yield dialect.enforce_index(index_id)
    return replace(settings, id=index_id)


def analyse(
    last_id: int, language: str, dialect: Dialect, words: Sequence[str] = ()
) -> Flow[tuple[int | None, list[tuple[int, bytes]]]]:
    """Make the terms of some items that have none; `words` are paths whose words count with every text.

    Returns:
        Where to go on, None at the end; and the terms by item id.
    """
    items = yield dialect.select_unanalysed(last_id, ITEMS_AT_ONCE)
    made = []
    for item_id, value, labels, digests in items:
        stored = from_stored(value)
        texts = from_labels(stored, json.loads(labels), split(digests, len(digests) // DIGEST_BYTES))
        more = to_words(stored, words)
        made.append((item_id, to_blob([to_terms(f"{text}\n{more}", language) for text in texts])))
    return (items[-1][0] if items else None), made


def keep_terms(made: Sequence[tuple[int, bytes]], index: Remembered, dialect: Dialect) -> Flow[None]:
    """Write the terms of items, those that are gone meanwhile left aside.

    Raises:
        IndexMismatch: Other index settings have come into force meanwhile.
    """
    yield dialect.claim_namespaces_of([item_id for item_id, _ in made])
    ((clock, _, index_id),) = yield dialect.advance_clock(0)
    if index_id != index.id:
        raise IndexMismatch(INDEX_CHANGED)
    yield dialect.update_terms(made)
    yield dialect.raise_floor(clock)
    yield dialect.touch_namespaces_of([item_id for item_id, _ in made])


def finish_analysis(index: Remembered, dialect: Dialect) -> Flow[Remembered]:
    """Record that every text has its terms."""
    yield dialect.claim_settings()
    known = yield from recall_index(dialect)
    if known is None or known.id != index.id:
        raise IndexMismatch(INDEX_CHANGED)
    finished = replace(known, analysed=True)
    yield dialect.update_index(known.id, _encode(finished))
    return finished


def settle_dims(given: Remembered, dims: int, dialect: Dialect) -> Flow[Remembered]:
    """Record the length of the first vector.

    Raises:
        IndexMismatch: Another process has recorded another length, or other settings, meanwhile.
    """
    yield dialect.claim_settings()
    known = yield from recall_index(dialect)
    if known is None or known.id != given.id or known.dims not in (None, dims):
        raise IndexMismatch(INDEX_CHANGED)
    settled = replace(known, dims=dims)
    yield dialect.update_index(known.id, _encode(settled))
    return settled


def _encode(remembered: Remembered) -> str:
    return _ADAPTER.dump_json(remembered, exclude={"id"}).decode()
