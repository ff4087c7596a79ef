"""How SQL for Postgres is put together: names in a schema, numbered parameters, ranges of paths, filters.

A list is bound as one array, so that a statement's text does not vary with its length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate
from re import compile as compile_pattern
from typing import Any, Final

from memstore.filters import Narrowing
from memstore.steps import Row, Statement

_QUOTED: Final = '"(?:[^"]|"")*"'
_NAME: Final = compile_pattern(rf"{_QUOTED}|@(\w+)")
_PARAMETER: Final = compile_pattern(rf"{_QUOTED}|\$(\d+)")
_HEAD: Final = 1024
"""Bytes of a path that its index holds."""
_LONG: Final = 300
"""Characters from which on a number's text may lie beyond what the database reads as a number."""
_SOUGHT: Final = 200
"""Characters up to which a text is looked for: the time that takes grows with its length, times that of the value."""
_PLAIN: Final = 10**15
"""Whole numbers below are written with all their digits, whether they are integers or floats."""
DIGEST_BYTES: Final = 16


def quote(name: str) -> str:
    """Spell a name as SQL does."""
    return '"' + name.replace('"', '""') + '"'


@lru_cache(maxsize=1024)
def spell(schema: str, sql: str) -> str:
    """Name the tables: `@items` is `memstore_items` in a schema, which is quoted."""
    return _NAME.sub(lambda match: f"{schema}.memstore_{match[1]}" if match[1] else match[0], sql)


@lru_cache(maxsize=1024)
def spell_official(schema: str, sql: str) -> str:
    """Name the tables of LangGraph's own savers: `#checkpoints` stands in a schema, which is quoted."""
    return sql.replace("#", f"{schema}.")


def to_key_digest(text: str) -> bytes:
    """Digest a key; an index holds no key of any length."""
    return to_path_digest(text.encode())


def to_path_digest(path: bytes) -> bytes:
    """Digest a path."""
    return blake2b(path, digest_size=DIGEST_BYTES).digest()


class Select:
    """A statement that grows: text with numbered parameters.

    Args:
        schema: The schema of the tables, quoted.
        sql: How it begins, with `$1` and so on for `params`.
        params: Its parameters.
    """

    def __init__(self, schema: str, sql: str, *params: Any) -> None:
        self._schema = schema
        self._sql = [sql]
        self._params = list(params)

    def bind(self, value: Any) -> str:
        """Take a parameter in, and give its name."""
        self._params.append(value)
        return f"${len(self._params)}"

    def add(self, sql: str) -> Select:
        """Go on with more text."""
        self._sql.append(sql)
        return self

    def within(self, column: str, ids: Sequence[int] | None) -> Select:
        """Keep to some ids; None keeps all."""
        if ids is None:
            return self
        if len(ids) == 1:
            return self.add(f" AND {column} = {self.bind(ids[0])}::int8")
        return self.add(f" AND {column} = ANY({self.bind(list(ids))}::int8[])")

    def in_range(self, start: bytes, end: bytes | None) -> Select:
        """Keep to the namespaces `n` whose path lies in a half-open range, by the index of what paths begin with."""
        head = f"substring(n.path, 1, {_HEAD})"
        if start:
            self.add(f" AND {head} >= {self.bind(start[:_HEAD])}::bytea")
        if end is not None:
            self.add(f" AND {head} {'<' if len(end) <= _HEAD else '<='} {self.bind(end[:_HEAD])}::bytea")
        if len(start) > _HEAD:
            self.add(f" AND n.path >= {self.bind(start)}::bytea")
        if len(end or b"") > _HEAD:
            self.add(f" AND n.path < {self.bind(end)}::bytea")
        return self

    def by_path(self) -> Select:
        """Order namespaces `n` by their paths, as their index has them."""
        return self.add(f" ORDER BY substring(n.path, 1, {_HEAD}), n.path")

    def narrowed(self, narrowings: Iterable[Narrowing]) -> Select:
        """Add what a filter allows SQL to decide of items `i`."""
        for narrowing in narrowings:
            if ways := [self._compare(narrowing, list(path)) for path in narrowing.paths]:
                self.add(f" AND ({' OR '.join(ways)})")
        return self

    def _compare(self, narrowing: Narrowing, path: list[str]) -> str:
        """Spell one condition; where the value's text must hold the operand's, that is looked at first: it is quick."""
        compared = self._compare_parsed(narrowing, path)
        text = _to_text(narrowing.operand) if narrowing.relation == "equal" else None
        return compared if text is None else f"(strpos(i.value::text, {self.bind(text)}::text) > 0 AND {compared})"

    def _compare_parsed(self, narrowing: Narrowing, path: list[str]) -> str:
        operand, relation = narrowing.operand, narrowing.relation
        at = f"i.value #>> {self.bind(path)}::text[]"
        if relation == "among":
            return f"{at} = ANY({self.bind(list(operand))}::text[])"
        sign = {"equal": "=", "at_least": ">=", "at_most": "<="}[relation]
        if isinstance(operand, bool):
            return f"{at} = {self.bind('true' if operand else 'false')}::text" if relation == "equal" else "false"
        if isinstance(operand, str):
            return f'({at}) COLLATE "C" {sign} {self.bind(operand)}::text'
        number = self.bind(repr(operand))
        kind = f"json_typeof(i.value #> {self.bind(path)}::text[]) = 'number'"
        return f"CASE WHEN {kind} THEN length({at}) > {_LONG} OR ({at})::numeric {sign} {number}::numeric END"

    def done(self) -> Statement:
        """Give the statement."""
        return Statement(spell(self._schema, "".join(self._sql)), self._params)


def _to_text(operand: Any) -> str | None:
    """Say how every value that equals an operand is written in stored JSON, or a part of it; None where that varies."""
    if isinstance(operand, bool):
        return "true" if operand else "false"
    if isinstance(operand, str):
        short = len(operand) <= _SOUGHT and operand.isprintable()
        return operand if short and not set('"\\') & set(operand) else None
    if operand == int(operand):
        return str(int(operand)) if abs(operand) < _PLAIN else None
    return repr(float(operand))


def at_once(statements: Sequence[Statement]) -> Statement:
    """Make one statement of several that write, and do not see what the others do."""
    if len(statements) == 1:
        return statements[0]
    sizes = tuple(len(statement.params) for statement in statements)
    params = [param for statement in statements for param in statement.params]
    return Statement(_join(tuple(statement.sql for statement in statements), sizes), params)


def _renumber(sql: str, base: int) -> str:
    return _PARAMETER.sub(lambda match: f"${int(match[1]) + base}" if match[1] else match[0], sql)


@lru_cache(maxsize=64)
def _join(sqls: tuple[str, ...], sizes: tuple[int, ...]) -> str:
    *first, last = map(_renumber, sqls, accumulate(sizes, initial=0))
    return "WITH " + ", ".join(f"part{number} AS ({sql})" for number, sql in enumerate(first)) + last


def grouped(count: int) -> Callable[[list[Row]], list[list[Row]]]:
    """Make what sorts rows into `count` lists by their first column, which counts from 1 and is left out."""

    def group(rows: list[Row]) -> list[list[Row]]:
        groups: list[list[Row]] = [[] for _ in range(count)]
        for row in rows:
            groups[row[0] - 1].append(row[1:])
        return groups

    return group
