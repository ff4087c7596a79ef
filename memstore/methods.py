"""BaseStore's methods as ops: each goes through `batch` or `abatch`, where names and values are checked alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

from langgraph.store.base import (
    NOT_PROVIDED,
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    NamespacePath,
    NotProvided,
    PutOp,
)

from memstore.errors import InvalidNamespace
from memstore.namespaces import to_item_path

_RESERVED = "langgraph"
"""The root label that LangGraph keeps for itself; `put` refuses it, ops do not."""


class StoreMethods(BaseStore):
    """What a `BaseStore` does one op at a time."""

    supports_ttl = True

    def put(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> None:
        """Store an item, replacing what its key held.

        Args:
            namespace: Labels from the outermost on.
            key: Unique in the namespace.
            value: A JSON object. None deletes.
            index: Paths to embed instead of the store's `fields`; False for none.
            ttl: Minutes to live; None for ever; the store's default where it is left out.

        Raises:
            MemStoreError: Something given is wrong, or the database could not be used; nothing was changed.
        """
        self.batch([self._put_op(namespace, key, value, index, ttl)])

    async def aput(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> None:
        """Store an item as `put` does."""
        await self.abatch([self._put_op(namespace, key, value, index, ttl)])

    def get(self, namespace: tuple[str, ...], key: str, *, refresh_ttl: bool | None = None) -> Item | None:
        """Give one item, or None where there is none.

        Args:
            namespace: Its labels.
            key: Its key.
            refresh_ttl: Whether it lives on for its ttl; the store's default where it is None.
        """
        return cast(Item | None, self.batch([GetOp(namespace, key, self._refreshes(refresh_ttl))])[0])

    async def aget(self, namespace: tuple[str, ...], key: str, *, refresh_ttl: bool | None = None) -> Item | None:
        """Give one item as `get` does."""
        return cast(Item | None, (await self.abatch([GetOp(namespace, key, self._refreshes(refresh_ttl))]))[0])

    def delete(self, namespace: tuple[str, ...], key: str) -> None:
        """Delete an item, where there is one, with all that was indexed of it."""
        self.batch([PutOp(namespace, key, None)])

    async def adelete(self, namespace: tuple[str, ...], key: str) -> None:
        """Delete an item as `delete` does."""
        await self.abatch([PutOp(namespace, key, None)])

    def list_namespaces(
        self,
        *,
        prefix: NamespacePath | None = None,
        suffix: NamespacePath | None = None,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[tuple[str, ...]]:
        """List the namespaces that hold items, in order.

        Args:
            prefix: Labels they begin with; `*` stands for any one label.
            suffix: Labels they end with, likewise.
            max_depth: Labels shown of each; those that then are equal are listed once.
            limit: At most so many.
            offset: How many to leave out first.
        """
        op = _listing_op(prefix, suffix, max_depth, limit, offset)
        return cast(list[tuple[str, ...]], self.batch([op])[0])

    async def alist_namespaces(
        self,
        *,
        prefix: NamespacePath | None = None,
        suffix: NamespacePath | None = None,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[tuple[str, ...]]:
        """List namespaces as `list_namespaces` does."""
        op = _listing_op(prefix, suffix, max_depth, limit, offset)
        return cast(list[tuple[str, ...]], (await self.abatch([op]))[0])

    def _put_op(self, namespace: Any, key: Any, value: Any, index: Any, ttl: Any) -> PutOp:
        to_item_path(namespace)
        if namespace[0] == _RESERVED:
            raise InvalidNamespace(f"the root label {_RESERVED!r} is reserved by LangGraph")
        default = (self.ttl_config or {}).get("default_ttl")
        return PutOp(namespace, key, value, index, default if ttl is NOT_PROVIDED else ttl)

    def _refreshes(self, refresh_ttl: bool | None) -> bool:
        """Say whether a read refreshes what it returns."""
        if refresh_ttl is None:
            return bool((self.ttl_config or {}).get("refresh_on_read", True))
        return refresh_ttl


def _listing_op(
    prefix: Iterable[str] | None, suffix: Iterable[str] | None, max_depth: int | None, limit: int, offset: int
) -> ListNamespacesOp:
    conditions = []
    if prefix is not None:
        conditions.append(MatchCondition("prefix", cast(NamespacePath, prefix)))
    if suffix is not None:
        conditions.append(MatchCondition("suffix", cast(NamespacePath, suffix)))
    return ListNamespacesOp(tuple(conditions), max_depth, limit, offset)
