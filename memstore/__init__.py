"""Long-term memory for LangGraph agents."""

from memstore.check import Findings
from memstore.errors import (
    DatabaseBusy,
    DatabaseDamaged,
    DatabaseError,
    DatabaseFull,
    EmbeddingError,
    IndexMismatch,
    InvalidArgument,
    InvalidConfig,
    InvalidFilter,
    InvalidKey,
    InvalidNamespace,
    InvalidValue,
    MemStoreError,
    MissingExtra,
    ModelUnavailable,
    NewerDatabase,
    StoreClosed,
    UnstorableType,
)
from memstore.stats import Stats
from memstore.store import MemStore

__all__ = [
    "DatabaseBusy",
    "DatabaseDamaged",
    "DatabaseError",
    "DatabaseFull",
    "EmbeddingError",
    "Findings",
    "IndexMismatch",
    "InvalidArgument",
    "InvalidConfig",
    "InvalidFilter",
    "InvalidKey",
    "InvalidNamespace",
    "InvalidValue",
    "MemStore",
    "MemStoreError",
    "MissingExtra",
    "ModelUnavailable",
    "NewerDatabase",
    "Stats",
    "StoreClosed",
    "UnstorableType",
]
