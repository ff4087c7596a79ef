"""LangGraph's ops, checked and made storable before anything else happens.

After this nothing of the caller's is referred to any more: values are text, names are bytes, filters are compiled. A
bad op raises here, so that nothing of its batch is done.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, get_args

from langgraph.store.base import GetOp, ListNamespacesOp, NamespaceMatchType, Op, PutOp, SearchOp

from memstore.config import check_path
from memstore.embedding import Text, to_texts
from memstore.errors import InvalidArgument
from memstore.filters import Predicate, compile_filter
from memstore.items import to_key, to_stored
from memstore.namespaces import Namespace, Pattern, to_condition, to_item_path, to_path
from memstore.options import NOTHING_SAID, Options

_MOST_ROWS: Final = 2**62
"""More rows than any database holds; limits above it mean the same."""
_MOST_MINUTES: Final = 10**15
"""Some two billion years; longer times mean the same."""
_SPACES: Final = dict.fromkeys([0, *range(0xD800, 0xE000)], " ")
"""NUL and lone surrogates, which no tokenizer takes: in a query they count as spaces."""


@dataclass(frozen=True, slots=True)
class Get:
    """Give one item."""

    path: bytes
    key: str
    refresh: bool


@dataclass(frozen=True, slots=True)
class Search:
    """Give one page of the items below a prefix; by relevance where there is a query, else the newest first."""

    prefix: bytes
    predicate: Predicate | None
    limit: int
    offset: int
    query: str | None
    refresh: bool
    options: Options = NOTHING_SAID
    """How to rank."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Give one page of namespaces."""

    pattern: Pattern
    max_depth: int | None
    limit: int
    offset: int


@dataclass(frozen=True, slots=True)
class Write:
    """Put one item, or delete it where the value is None."""

    path: bytes
    key: str
    value: str | None
    texts: tuple[Text, ...] = ()
    fields: tuple[str, ...] | None = None
    """The paths this put chose; None where it left that to the store."""
    ttl: float | None = None
    """Minutes."""


Request: TypeAlias = Get | Search | Listing | Write


def to_requests(ops: Iterable[Op], paths: tuple[str, ...] | None, words: tuple[str, ...] = ()) -> list[Request]:
    """Check a batch.

    Args:
        ops: LangGraph's ops.
        paths: What is embedded of a value unless its put says otherwise; None on a store without an index.
        words: What counts with the words of each text.

    Raises:
        MemStoreError: Something is wrong with an op; the kind of error says what.
    """
    return [_to_request(op, paths, words) for op in ops]


def _to_request(op: Op, paths: tuple[str, ...] | None, words: tuple[str, ...]) -> Request:
    if isinstance(op, GetOp):
        return Get(to_item_path(op.namespace), to_key(op.key), bool(op.refresh_ttl))
    if isinstance(op, PutOp):
        return _to_write(op, paths, words)
    if isinstance(op, SearchOp):
        return to_search(op)
    if isinstance(op, ListNamespacesOp):
        return _to_listing(op)
    raise InvalidArgument(f"an op is a GetOp, PutOp, SearchOp or ListNamespacesOp, got {type(op).__name__}")


def to_search(op: SearchOp, options: Options = NOTHING_SAID) -> Search:
    """Check a search; how it is to rank no `SearchOp` says."""
    return Search(
        prefix=to_path(op.namespace_prefix),
        predicate=compile_filter(op.filter),
        limit=_to_count(op.limit, "limit"),
        offset=_to_count(op.offset, "offset"),
        query=_to_query(op.query),
        refresh=bool(op.refresh_ttl),
        options=options,
    )


def _to_write(op: PutOp, paths: tuple[str, ...] | None, words: tuple[str, ...]) -> Write:
    path, key = to_item_path(op.namespace), to_key(op.key)
    if op.value is None:
        return Write(path, key, None)
    text, value = to_stored(op.value)
    fields = to_fields(op.index)
    texts = () if paths is None else to_texts(value, paths if fields is None else fields, words)
    return Write(path, key, text, texts, fields, to_minutes(op.ttl, "ttl"))


def to_fields(index: Any) -> tuple[str, ...] | None:
    """Check a put's `index`: None leaves it to the store, False chooses nothing, a list its paths.

    Raises:
        InvalidArgument: It is anything else.
    """
    if index is None:
        return None
    if index is False:
        return ()
    if isinstance(index, str) or not isinstance(index, list | tuple):
        raise InvalidArgument(f"index is None, False or a list of paths, got {type(index).__name__}")
    try:
        return tuple(check_path(path) for path in index)
    except ValueError as error:
        raise InvalidArgument(f"index: {error}") from None


def to_minutes(given: Any, name: str) -> float | None:
    """Check a length of time in minutes; None means there is none.

    Raises:
        InvalidArgument: It is no positive, finite number.
    """
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < math.inf:
        raise InvalidArgument(f"{name} is a positive number of minutes, or None")
    return float(min(given, _MOST_MINUTES))


def _to_listing(op: ListNamespacesOp) -> Listing:
    prefixes: list[Namespace] = []
    suffixes: list[Namespace] = []
    for condition in op.match_conditions or ():
        if condition.match_type not in get_args(NamespaceMatchType):
            raise InvalidArgument("a match condition is MatchCondition('prefix' or 'suffix', path)")
        (prefixes if condition.match_type == "prefix" else suffixes).append(to_condition(condition.path))
    if op.max_depth is not None and (_to_count(op.max_depth, "max_depth") < 1):
        raise InvalidArgument("max_depth is 1 or more, or None")
    pattern = Pattern(tuple(prefixes), tuple(suffixes))
    return Listing(pattern, op.max_depth, _to_count(op.limit, "limit"), _to_count(op.offset, "offset"))


def _to_count(given: Any, name: str) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise InvalidArgument(f"{name} is an integer of 0 or more")
    return min(given, _MOST_ROWS)


def _to_query(query: Any) -> str | None:
    if query is None:
        return None
    if not isinstance(query, str):
        raise InvalidArgument(f"query is text, got {type(query).__name__}")
    return query.translate(_SPACES).strip() or None
