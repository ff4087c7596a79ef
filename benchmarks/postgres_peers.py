"""The stores that are compared on Postgres, in one database: memstore in schemas of its own, PostgresStore in `public`.

PostgresStore is opened as its documentation says, with a connection of its own, and makes an HNSW index when it is set
up. Both come again with other settings on the same tables, for curves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from langgraph.store.base import BaseStore
from langgraph.store.postgres import PostgresStore

from benchmarks.peers import HYBRID, MEMSTORE, Contestant, Opener, Setup, open_own

POSTGRES: Final = "PostgresStore"
KINDS: Final = (MEMSTORE, HYBRID, POSTGRES)
SCHEMAS: Final = {MEMSTORE: "semantic", HYBRID: "hybrid", POSTGRES: "public"}
"""Where each has its tables; memstore's are named for how it ranks."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A store with other settings on the tables of another.

    Attributes:
        kind: Whose tables.
        name: What is added to its name.
        own: memstore's settings of `index`.
        pgvector: A setting of PostgresStore's connection.
    """

    kind: str
    name: str
    own: Mapping[str, Any] | None = None
    pgvector: str | None = None


def open_memstore(url: str, kind: str, own: Mapping[str, Any], _: Path, setup: Setup) -> AbstractContextManager[Any]:
    """Open memstore in its schema."""
    schema = SCHEMAS[kind]
    return open_own(url, replace(setup, own={**setup.own, **own}), schema, schema)


@contextmanager
def open_postgres(url: str, setting: str | None, _: Path, setup: Setup) -> Iterator[BaseStore]:
    """Open LangGraph's PostgresStore."""
    if setting is not None:
        url += ("&" if "?" in url else "?") + "options=" + quote(f"-c {setting}")
    with PostgresStore.from_conn_string(url, index=to_index(setup)) as store:
        store.setup()
        yield store


def to_index(setup: Setup) -> Any:
    """Give PostgresStore's settings."""
    return {"embed": setup.embeddings, "dims": setup.dims, "fields": ["text"]}


def to_opener(url: str, kind: str, own: Mapping[str, Any] | None = None, setting: str | None = None) -> Opener:
    """Make what opens a store of a kind in a database."""
    if kind == POSTGRES:
        return partial(open_postgres, url, setting)
    return partial(open_memstore, url, kind, own or {})


def open_stores(opened: ExitStack, url: str, folder: Path, setup: Setup) -> list[Contestant]:
    """Open one store of each kind in an empty database."""
    return [opened.enter_context(Contestant(kind, folder, setup, opener=to_opener(url, kind))) for kind in KINDS]


def open_variant(url: str, variant: Variant, base: Contestant, folder: Path, setup: Setup) -> Contestant:
    """Open a store with other settings on the tables of one that is open; what is written to that one counts for it."""
    opener = to_opener(url, variant.kind, variant.own, variant.pgvector)
    contestant = Contestant(variant.kind, folder, setup, f"{base.name}, {variant.name}", opener)
    contestant.log = base.log
    return contestant
