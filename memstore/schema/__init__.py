"""Migrations: numbered SQL files, applied in order and recorded in one transaction with what they do.

A shipped file is never changed. A statement ends at a semicolon that ends its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from memstore.dialects import Dialect
from memstore.errors import DatabaseDamaged, NewerDatabase
from memstore.items import Microseconds
from memstore.steps import Flow


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    number: int
    name: str
    sql: str

    def statements(self) -> Iterator[str]:
        """Split the file into its statements."""
        for part in self.sql.split(";\n"):
            if any(line and not line.startswith("--") for line in part.splitlines()):
                yield part


def load_migrations(database: str) -> list[Migration]:
    """Read the migrations of a database (`sqlite`, `postgres`), in order."""
    found = []
    for file in files(__name__).joinpath(database).iterdir():
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            found.append(Migration(int(number), name, file.read_text(encoding="utf-8")))
    return sorted(found, key=lambda migration: migration.number)


def is_current(migrations: Sequence[Migration], dialect: Dialect) -> Flow[bool]:
    """Tell whether every migration has been applied.

    Raises:
        NewerDatabase: One has been applied that this memstore does not know.
        DatabaseDamaged: One has been applied under another name.
    """
    exists = yield dialect.has_migrations()
    if not exists:
        return False
    applied: list[tuple[int, str]] = yield dialect.select_migrations()
    known = {migration.number: migration.name for migration in migrations}
    for number, name in applied:
        if number not in known:
            raise NewerDatabase(f"it has migration {number}, this version knows {len(known)}; install a newer memstore")
        if known[number] != name:
            raise DatabaseDamaged(f"its migration {number} is {name!r}, expected {known[number]!r}")
    return len(applied) == len(known)


def migrate(migrations: Sequence[Migration], dialect: Dialect, now: Callable[[], Microseconds]) -> Flow[None]:
    """Apply what is missing; the caller's transaction makes it all or nothing."""
    yield dialect.claim_setup()
    exists: Any = yield dialect.has_migrations()
    if not exists:
        yield dialect.create_migrations()
    elif (yield from is_current(migrations, dialect)):
        return
    applied = yield dialect.select_migrations()
    done = {number for number, _ in applied}
    for migration in migrations:
        if migration.number not in done:
            for statement in migration.statements():
                yield dialect.to_statement(statement)
            yield dialect.insert_migration(migration.number, migration.name, now())
