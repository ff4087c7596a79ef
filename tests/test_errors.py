"""The tree of errors: what callers already catch, and messages that carry nothing of the user's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import InvalidNamespaceError, PutOp, SearchOp

import memstore
from memstore import MemStore, MemStoreError, errors
from tests.support import WordEmbeddings

TREE: dict[type[MemStoreError], tuple[type[Exception], ...]] = {
    errors.InvalidNamespace: (MemStoreError, InvalidNamespaceError, ValueError),
    errors.InvalidKey: (MemStoreError, ValueError),
    errors.InvalidValue: (MemStoreError, ValueError),
    errors.UnstorableType: (MemStoreError, TypeError),
    errors.InvalidFilter: (MemStoreError, ValueError),
    errors.InvalidArgument: (MemStoreError, ValueError),
    errors.InvalidConfig: (MemStoreError, ValueError),
    errors.IndexMismatch: (errors.InvalidConfig, ValueError),
    errors.EmbeddingError: (MemStoreError, ValueError),
    errors.ModelUnavailable: (errors.EmbeddingError, ValueError),
    errors.MissingExtra: (MemStoreError, ImportError),
    errors.StoreClosed: (MemStoreError, RuntimeError),
    errors.DatabaseError: (MemStoreError, RuntimeError),
    errors.DatabaseBusy: (errors.DatabaseError, RuntimeError),
    errors.DatabaseFull: (errors.DatabaseError, RuntimeError),
    errors.DatabaseDamaged: (errors.DatabaseError, RuntimeError),
    errors.NotEncrypted: (errors.DatabaseError, RuntimeError),
    errors.RerankError: (errors.MemStoreError, ValueError),
    errors.NewerDatabase: (errors.DatabaseError, RuntimeError),
}
kinds = pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)


def error_classes() -> set[type[MemStoreError]]:
    """Give every error of the module."""
    members = vars(errors).values()
    return {member for member in members if isinstance(member, type) and issubclass(member, MemStoreError)}


def test_the_tree_is_whole() -> None:
    """Each error that there is stands in the tree above, is drawn in the module's docstring, and can be imported."""
    assert error_classes() == {MemStoreError, *TREE}
    for kind in error_classes():
        assert kind.__name__ in (errors.__doc__ or "")
        assert getattr(memstore, kind.__name__) is kind
        assert kind.__name__ in memstore.__all__


@kinds
def test_each_error_is_caught_by_what_callers_catch(kind: type[MemStoreError]) -> None:
    """LangGraph's server answers a ValueError with 400; an `except TypeError` or `ImportError` works as ever."""
    for base in TREE[kind]:
        assert issubclass(kind, base)
    others = {ValueError, TypeError, ImportError, RuntimeError} - set(TREE[kind])
    assert not any(issubclass(kind, other) for other in others)


@kinds
def test_the_docstring_opens_the_message(kind: type[MemStoreError]) -> None:
    """The first line says what is wrong, the detail how; alone it is a sentence's worth too."""
    lead = (kind.__doc__ or "").partition("\n")[0].rstrip(".")
    assert lead
    assert str(kind("the detail")) == f"{lead}: the detail"
    assert str(kind()) == lead


SECRET = "hunter2"  # noqa: S105  a text that must not be seen again
WRONG: list[Any] = [
    PutOp(("a",), f"{SECRET}\0", {}),
    PutOp(("a",), "k", {"x": f"{SECRET}\0"}),
    PutOp(("a",), "k", {"x": [SECRET.encode()]}),
    PutOp(("a",), "k", {"x": {SECRET}}),
    PutOp(("a",), "k", {f"{SECRET}\0": 1}),
    PutOp(("a",), "k", SECRET),  # type: ignore[arg-type]  # a wrong value is the point
    PutOp(("a",), "k", {}, index=SECRET),  # type: ignore[arg-type]  # so it is here
    PutOp(("a",), "k", {}, ttl=SECRET),  # type: ignore[arg-type]  # and here
    SearchOp(("a",), filter={"x": {"$gt": {SECRET}}}),
    SearchOp(("a",), filter={"x": {"$eq": {"y": SECRET.encode()}}}),
    SearchOp(("a",), filter={"x": {"$in": SECRET}}),
    SearchOp(("a",), filter={"x": {"$exists": SECRET}}),
    SearchOp(("a",), filter={"$or": SECRET}),
    SearchOp(("a",), limit=SECRET),  # type: ignore[arg-type]  # and here
    SearchOp(("a",), query=[SECRET]),  # type: ignore[arg-type]  # and here
    (SECRET,),
]


@pytest.mark.parametrize("op", WRONG, ids=repr)
def test_messages_carry_no_keys_values_or_texts(op: Any) -> None:
    """What users store is theirs: messages end in logs and in answers of servers."""
    with MemStore.open(":memory:", index={"embed": WordEmbeddings(8)}) as store:
        with pytest.raises(MemStoreError) as caught:
            store.batch([op])
        assert SECRET not in str(caught.value)


def test_the_database_s_own_errors_carry_no_values(tmp_path: Path) -> None:
    """A file that is no database is named as such; what stands in it is not shown."""
    path = tmp_path / "memories.db"
    path.write_text(f"{SECRET}\n" * 1000)
    with pytest.raises(errors.DatabaseDamaged, match="check the path") as caught:
        MemStore.open(path)
    assert SECRET not in str(caught.value)
