"""What a database remembers of how its texts were embedded, so that vectors of two models never meet.

The settings are written when a store is first opened with an index, completed when the first vector tells its length,
and compared at every later opening.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import TypeAdapter, ValidationError

from memstore.config import IndexSettings
from memstore.dialects import Dialect
from memstore.embedding import to_identity
from memstore.errors import INDEX_CHANGED, DatabaseDamaged, IndexMismatch
from memstore.indexes import Metric
from memstore.steps import Flow


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
    id: int = 0
    """The row that holds them; 0 before there is one."""

    def merged(self, given: Remembered) -> Remembered:
        """Take over what a user's settings add or change.

        Vectors of an unnamed model stay those of an unnamed model: that another has their length does not name it.
        """
        merged = replace(given, id=self.id, dims=given.dims or self.dims, model=given.model or self.model)
        unnamed = self.model is None and self.dims is not None
        return replace(merged, model=None, embed=self.embed) if unnamed else merged

    def covers(self, given: Remembered) -> bool:
        """Whether a user's settings agree with these and add nothing."""
        return not self.difference(given) and self.merged(given) == self

    def difference(self, given: Remembered) -> str:
        """Say how settings differ in what vectors depend on; empty where they do not."""
        if self.model and given.model and self.model != given.model:
            return f"its texts were embedded by {self.model!r}, not by {given.model!r}"
        if self.dims and given.dims and self.dims != given.dims:
            return f"its vectors have length {self.dims}, not {given.dims}"
        if self.metric != given.metric:
            return f"its metric is {self.metric!r}, not {given.metric!r}"
        return ""


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
    )


def recall_index(dialect: Dialect) -> Flow[Remembered | None]:
    """Read the settings in force.

    Raises:
        DatabaseDamaged: They cannot be read.
    """
    rows = yield dialect.select_index()
    if not rows:
        return None
    try:
        return replace(_ADAPTER.validate_json(rows[0][1]), id=rows[0][0])
    except ValidationError as error:
        raise DatabaseDamaged("its index settings cannot be read") from error


def adopt_index(given: Remembered, dialect: Dialect) -> Flow[Remembered]:
    """Compare a user's settings with those in force, and record what is new.

    Raises:
        IndexMismatch: Texts are indexed with another model, length or metric.
    """
    known = yield from recall_index(dialect)
    if known is not None and (fault := known.difference(given)):
        if (yield dialect.has_texts()):
            raise IndexMismatch(
                f"{fault}; open it with the settings it was made with, "
                "or make a new database and put its items there again"
            )
        known = None
    if known is None:
        ((index_id,),) = yield dialect.insert_index(_encode(given))
        yield dialect.enforce_index(index_id)
        return replace(given, id=index_id)
    merged = known.merged(given)
    if merged != known:
        yield dialect.update_index(known.id, _encode(merged))
    return merged


def settle_dims(given: Remembered, dims: int, dialect: Dialect) -> Flow[Remembered]:
    """Record the length of the first vector.

    Raises:
        IndexMismatch: Another process has recorded another length, or other settings, meanwhile.
    """
    known = yield from recall_index(dialect)
    if known is None or known.id != given.id or known.dims not in (None, dims):
        raise IndexMismatch(INDEX_CHANGED)
    settled = replace(known, dims=dims)
    yield dialect.update_index(known.id, _encode(settled))
    return settled


def _encode(remembered: Remembered) -> str:
    return _ADAPTER.dump_json(remembered, exclude={"id"}).decode()
