"""What a store says of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IndexState:
    """What a store has chosen for its wide searches.

    Attributes:
        kind: How their candidates are found: `flat`, by comparing all vectors; `pq`, by codes of them in memory; on
            Postgres by its index, `hnsw` or `ivfflat`, and `flat` without one.
        precision: How the numbers of vectors are kept: in memory, on Postgres in the database.
        coded: Texts whose vectors have codes; the others are all candidates.
        dims_a_code: How many dims share four bits of a code; 0 where there are none.
        building: Whether codes, or an index, are being made meanwhile.
        memory: Bytes held in memory.
    """

    kind: str = "flat"
    precision: str = "float32"
    coded: int = 0
    dims_a_code: int = 0
    building: bool = False
    memory: int = 0

    def __str__(self) -> str:
        made = ", more being made" if self.building else ""
        if self.kind == "pq":
            return f"codes of 4 bits for {self.dims_a_code} dims, vectors in {self.precision}{made}"
        if self.kind == "flat":
            return f"comparing all vectors, in {self.precision}{made}"
        return f"{self.kind} over vectors in {self.precision}{made}"


@dataclass(frozen=True, slots=True)
class Stats:
    """What a store holds.

    Attributes:
        namespaces: Namespaces with items, expired ones included.
        items: Items, expired ones included.
        expired: Items that have expired and await the sweep.
        texts: Indexed texts, each with a vector.
        clock: Writing transactions so far.
        model: The embedding model's name, where it is known.
        dims: The length of a vector; None until there is one.
        metric: How vectors are compared; None without an index.
        database_bytes: The database file; on Postgres the tables and their other indexes.
        log_bytes: Its write-ahead log; 0 on Postgres, whose log is the server's.
        index_bytes: The index file beside it; on Postgres the index of vectors.
        indexed_texts: Texts held in memory for wide searches; 0 before the first, and on Postgres.
        index: What was chosen for wide searches.
        cached_bytes: Vectors and terms held in memory for narrow searches.
        cached_namespaces: Namespaces whose vectors and terms are held.
    """

    namespaces: int
    items: int
    expired: int
    texts: int
    clock: int
    model: str | None
    dims: int | None
    metric: str | None
    database_bytes: int
    log_bytes: int
    index_bytes: int
    indexed_texts: int
    index: IndexState
    cached_bytes: int
    cached_namespaces: int
