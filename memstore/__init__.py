"""Long-term and short-term memory for LangGraph agents."""

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
    NotEncrypted,
    RerankError,
    StoreClosed,
    UnstorableType,
)
from memstore.late import LateInteraction
from memstore.rerank import Rerank
from memstore.saver import MemSaver
from memstore.stats import IndexState, Stats
from memstore.store import MemStore
from memstore.threads import Thread

__all__ = [
    "DatabaseBusy",
    "DatabaseDamaged",
    "DatabaseError",
    "DatabaseFull",
    "EmbeddingError",
    "Findings",
    "IndexMismatch",
    "IndexState",
    "InvalidArgument",
    "InvalidConfig",
    "InvalidFilter",
    "InvalidKey",
    "InvalidNamespace",
    "InvalidValue",
    "LateInteraction",
    "MemSaver",
    "MemStore",
    "MemStoreError",
    "MissingExtra",
    "ModelUnavailable",
    "NewerDatabase",
    "NotEncrypted",
    "Rerank",
    "RerankError",
    "Stats",
    "StoreClosed",
    "Thread",
    "UnstorableType",
]
