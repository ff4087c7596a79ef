"""Every error memstore raises on its own account; nothing here carries a stored value or a text.

    MemStoreError
    ├── InvalidNamespace     also langgraph.store.base.InvalidNamespaceError, a ValueError
    ├── InvalidKey           also ValueError
    ├── InvalidValue         also ValueError
    ├── UnstorableType       also TypeError
    ├── InvalidFilter        also ValueError
    ├── InvalidArgument      also ValueError
    ├── InvalidConfig        also ValueError
    │   └── IndexMismatch
    ├── EmbeddingError       also ValueError
    │   └── ModelUnavailable
    ├── RerankError          also ValueError
    ├── MissingExtra         also ImportError
    ├── StoreClosed          also RuntimeError
    └── DatabaseError        also RuntimeError
        ├── DatabaseBusy
        ├── DatabaseFull
        ├── DatabaseDamaged
        ├── NotEncrypted
        └── NewerDatabase

The first line of a class's docstring opens its message; what is passed to it follows.
"""

from __future__ import annotations

from langgraph.store.base import InvalidNamespaceError


class MemStoreError(Exception):
    """memstore could not do what was asked."""

    def __init__(self, detail: str = "") -> None:
        lead = (type(self).__doc__ or "").partition("\n")[0].rstrip(".")
        super().__init__(f"{lead}: {detail}" if detail else lead)


class InvalidNamespace(MemStoreError, InvalidNamespaceError):
    """This is not a namespace."""


class InvalidKey(MemStoreError, ValueError):
    """This is not a key."""


class InvalidValue(MemStoreError, ValueError):
    """This value cannot be kept."""


class UnstorableType(MemStoreError, TypeError):
    """This type has no place in a JSON object."""


class InvalidFilter(MemStoreError, ValueError):
    """This filter has no meaning."""


class InvalidArgument(MemStoreError, ValueError):
    """This argument cannot be used."""


class InvalidConfig(MemStoreError, ValueError):
    """The store cannot be configured so."""


class IndexMismatch(InvalidConfig):
    """This database was indexed otherwise."""


class EmbeddingError(MemStoreError, ValueError):
    """The embedding did not give usable vectors."""


class ModelUnavailable(EmbeddingError):
    """The model cannot be loaded."""


class RerankError(MemStoreError, ValueError):
    """The reranker did not give usable scores."""


class MissingExtra(MemStoreError, ImportError):
    """A package is missing."""


class StoreClosed(MemStoreError, RuntimeError):
    """The store is closed."""


class DatabaseError(MemStoreError, RuntimeError):
    """The database refused."""


class DatabaseBusy(DatabaseError):
    """Another process kept the database locked."""


class DatabaseFull(DatabaseError):
    """The disk is full; nothing of this call was written."""


class DatabaseDamaged(DatabaseError):
    """The file is damaged or is not a database of memstore."""


class NotEncrypted(DatabaseError):
    """A checkpoint is not encrypted."""


class NewerDatabase(DatabaseError):
    """The database was written by a newer memstore."""


VECTORS_MISSING = "texts of some items have no vectors; check(repair=True) makes them anew"
"""What a `DatabaseDamaged` says of a store whose texts should have them."""
FIELDS_DAMAGED = "the fields of an item's texts are none; check(repair=True) makes them anew"
"""What a `DatabaseDamaged` says where it cannot be told which text came from where."""
INDEX_CHANGED = "another store has changed the index settings of this database meanwhile; open the store again"
"""What an `IndexMismatch` says that comes up while a store is open."""
