"""Databases of a test's own on a server, and roles in them that own nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import psycopg
from langgraph.store.base import PutOp
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from memstore import MemStore
from tests.postgres.losses import contents

RIGHTS = "SELECT, INSERT, UPDATE, DELETE"
FOUND = 8
"""Items that `found` asks for."""


@dataclass(frozen=True)
class Database:
    """A database of the test's own, and a role that owns nothing there.

    Args:
        url: It, for an administrator.
        role: The role's name.
        role_url: It, for the role.
    """

    url: str
    role: str
    role_url: str

    def run(self, *statements: str) -> None:
        """Run statements as the administrator; `role` stands for the role's name."""
        with psycopg.connect(self.url, autocommit=True) as admin:
            for statement in statements:
                sql: Any = statement.replace("{role}", self.role)
                admin.execute(sql)

    def grant(self, rights: str = RIGHTS) -> None:
        """Let the role use the tables in the schema `memory`, as the README says."""
        self.run(
            "GRANT USAGE ON SCHEMA memory TO {role}",
            f"GRANT {rights} ON ALL TABLES IN SCHEMA memory TO {{role}}",
            "GRANT USAGE, SELECT, UPDATE ON SEQUENCE memory.memstore_clock TO {role}",
        )

    def contents(self) -> dict[str, list[Any]]:
        """Give every row of the tables in the schema `memory`."""
        with psycopg.connect(self.url, autocommit=True) as raw:
            raw.execute("SET search_path = memory, public")
            return contents(raw)


def to_url(url: str, **changes: str) -> str:
    """Change parts of a URL."""
    parts = conninfo_to_dict(make_conninfo(url, **changes))
    query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in parts.items())
    return f"postgresql:///?{query}"


@contextmanager
def fresh_database(url: str) -> Iterator[str]:
    """Make a database, and drop it in the end; give its URL."""
    name = f"memstore_{uuid.uuid4().hex[:12]}"
    make: Any = f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'"
    drop: Any = f"DROP DATABASE {name} WITH (FORCE)"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(make)
        yield to_url(url, dbname=name)
        admin.execute(drop)


@contextmanager
def fresh_role(url: str) -> Iterator[Database]:
    """Make a database without pgvector, and a role that may only connect."""
    role = f"role_{uuid.uuid4().hex[:12]}"
    with fresh_database(url) as here, psycopg.connect(here, autocommit=True) as admin:
        make: Any = f"CREATE ROLE {role} LOGIN PASSWORD '{role}'"
        forget: Any = f"DROP OWNED BY {role} CASCADE"
        drop: Any = f"DROP ROLE {role}"
        admin.execute(make)
        yield Database(here, role, to_url(here, user=role, password=role))
        admin.execute(forget)
        admin.execute(drop)


def fill(store: MemStore, count: int = 60) -> None:
    """Put items into five namespaces."""
    store.batch([PutOp((f"n{n % 5}",), f"k{n}", {"text": f"apple boat {n}", "n": n}) for n in range(count)])


def found(store: MemStore, query: str = "apple boat 7", **options: Any) -> list[tuple[Any, ...]]:
    """Search everything, and give what is found with its scores and times."""
    hits = store.search((), query=query, limit=FOUND, **options)
    return [(hit.namespace, hit.key, hit.value, hit.score, hit.created_at, hit.updated_at) for hit in hits]
