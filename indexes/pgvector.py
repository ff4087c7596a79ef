"""pgvector's names: how it spells types, operators and operator classes, and what it can index.

Everything is qualified with the schema of the extension, so that nothing depends on a connection's search path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from pgvector import HalfVector, Vector

from memstore.indexes import Metric, Scores, Vectors

Kind: TypeAlias = Literal["vector", "halfvec"]
_OPERATORS: Final[dict[Metric, str]] = {"cosine": "<#>", "inner_product": "<#>", "l2": "<->"}
"""Vectors compared by their cosine are kept at unit length: their inner product is the cosine."""
_CLASSES: Final[dict[Metric, str]] = {"cosine": "ip", "inner_product": "ip", "l2": "l2"}
_INDEXED_DIMS: Final[dict[Kind, int]] = {"vector": 2_000, "halfvec": 4_000}
"""The longest vectors an index takes."""
_LARGEST: Final = float(np.finfo(np.float64).max)
MAX_DIMS: Final = 16_000
"""The longest vectors pgvector keeps."""
HALF_MAX: Final = 65_504
"""The largest number of 16 bits."""


@dataclass(frozen=True, slots=True)
class VectorColumn:
    """A column of vectors in a database.

    Args:
        schema: The schema of the extension, quoted.
        kind: How numbers are kept.
        oid: The number of the type.
        array_oid: The number of the type of its arrays.
    """

    schema: str
    kind: Kind
    oid: int
    array_oid: int

    @property
    def type(self) -> str:
        """The column's type."""
        return f"{self.schema}.{self.kind}"

    def operator(self, metric: Metric) -> str:
        """Spell the distance that orders as the metric does, smaller is nearer."""
        return f"OPERATOR({self.schema}.{_OPERATORS[metric]})"

    def indexed_kind(self, metric: Metric, dims: int) -> Kind | None:
        """Choose how an index keeps vectors; None for those too long for one.

        16 bits a number find as much in half of the room, but hold no number above HALF_MAX.
        """
        wanted: tuple[Kind, ...] = (
            ("halfvec",) if self.kind == "halfvec" or metric == "cosine" else ("vector", "halfvec")
        )
        return next((kind for kind in wanted if dims <= _INDEXED_DIMS[kind]), None)

    def is_half(self, metric: Metric, dims: int) -> bool:
        """Tell whether vectors are kept or indexed in 16 bits a number."""
        return "halfvec" in (self.kind, self.indexed_kind(metric, dims))

    def indexed(self, expression: str, kind: Kind, dims: int) -> str:
        """Spell an expression as an index has it."""
        return f"({expression}::{self.schema}.{kind}({dims}))"

    def exact(self, metric: Metric, expression: str, query: str) -> str:
        """Spell the exact distance of an expression to a query, whose numbers have 32 bits.

        At 16 bits a number vectors are no longer quite of unit length.
        """
        if self.kind == "halfvec":
            expression = f"{expression}::{self.schema}.vector"
        query = f"{query}::{self.schema}.vector"
        if self.kind == "halfvec" and metric == "cosine":
            return f"({expression} OPERATOR({self.schema}.<=>) {query}) - 1"
        return f"{expression} {self.operator(metric)} {query}"

    def operator_class(self, metric: Metric, kind: Kind) -> str:
        """Name the operator class of an index."""
        return f"{self.schema}.{kind}_{_CLASSES[metric]}_ops"

    def to_values(self, vectors: Vectors) -> list[Any]:
        """Turn vectors of shape (n, dims) into what the driver binds."""
        return [Vector(row) if self.kind == "vector" else HalfVector(row) for row in vectors]


def from_binary(kind: Kind, data: bytes) -> bytes:
    """Decode a vector as the database sends it into little-endian float32."""
    numbers = (Vector if kind == "vector" else HalfVector).from_binary(data).to_numpy()
    return numbers.astype("<f4", copy=False).tobytes()


def to_score(metric: Metric, distances: Scores) -> Scores:
    """Turn distances into scores: the cosine rounded as in exact search, the inner product, or minus the distance.

    They are finite: what left the range of the database's 32 bits counts as the largest number there is.
    """
    scores: Scores = np.nan_to_num(-distances, nan=-_LARGEST, posinf=_LARGEST, neginf=-_LARGEST) + 0.0
    return np.clip(scores.round(6), -1.0, 1.0) if metric == "cosine" else scores
