"""Driving flows without a database: a dialect whose statements say who they are, and a script that answers them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

from memstore.dialects import Dialect
from memstore.dialects.sqlite import SqliteDialect
from memstore.steps import Compute, Decoded, Each, Flow, Many, Statement, Step, Together, run

T = TypeVar("T")
COMPUTE = "compute"
"""Stands in a script for a `Compute`, which is performed as it is."""
Line: TypeAlias = tuple[str, Any]
"""The statement that is expected, and the reply to it."""


@dataclass(frozen=True)
class Asked:
    """A statement that a flow yielded."""

    name: str
    arguments: tuple[Any, ...]


class NoLock:
    """A lock where there is one thread."""

    def __enter__(self) -> None:
        """Take it."""

    def __exit__(self, *_: object) -> None:
        """Let it go."""


class NamedStatements:
    """SQLite's statements, with the name of what was asked in place of the SQL and its arguments as parameters."""

    def __init__(self, statements: Any) -> None:
        self._statements = statements

    def inspect(self) -> NamedStatements:
        """Give the statements of `stats` and `check`."""
        return NamedStatements(self._statements.inspect())

    def __getattr__(self, name: str) -> Callable[..., Step]:
        real = getattr(self._statements, name)

        def named(*arguments: Any, **options: Any) -> Step:
            step = real(*arguments, **options)
            if name == "to_statement" or isinstance(step, Together | Generator):
                same: Step = step  # what this database has no need of
                return same
            if isinstance(step, Statement):
                return Statement(name, arguments)
            return Each(name, arguments) if isinstance(step, Each) else Many(name, arguments)

        return named


def named_dialect() -> Dialect:
    """Give a dialect whose statements carry their own names."""
    return cast(Dialect, NamedStatements(SqliteDialect()))


def play(flow: Flow[T], *script: Line) -> tuple[T, list[Asked]]:
    """Drive a flow by a script; it must ask exactly what stands there, in that order.

    Args:
        flow: Made with `named_dialect`.
        script: (statement, reply) in order; `(COMPUTE, None)` where work is done between statements.

    Returns:
        The flow's result, and what it asked.
    """
    lines: Iterator[Line] = iter(script)
    asked: list[Asked] = []

    def perform(step: Step) -> Any:
        if isinstance(step, Together):
            return [perform(part) for part in step.steps]
        expected, reply = next(lines, ("nothing more", None))
        if isinstance(step, Compute):
            assert expected == COMPUTE, f"expected {expected}, the flow computes"
            return step.call()
        assert not isinstance(step, Decoded)
        assert step.sql == expected, f"expected {expected}, the flow asks {step.sql}"
        asked.append(Asked(step.sql, tuple(_arguments(step))))
        if isinstance(reply, BaseException):
            raise reply
        return reply

    result = run(flow, perform)
    left = [line[0] for line in lines]
    assert not left, f"the flow never asked {left}"
    return result, asked


def names(asked: Sequence[Asked]) -> list[str]:
    """Give the names of what was asked."""
    return [line.name for line in asked]


def _arguments(step: Statement | Each | Many) -> Sequence[Any]:
    return step.params if isinstance(step, Statement) else step.rows
