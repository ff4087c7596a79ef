"""The bar that `put_many` shows."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from memstore import MemStore, MissingExtra

ITEMS: list[Any] = [(("a",), str(n), {"n": n}) for n in range(1234)]


class Terminal(io.StringIO):
    """An error stream that someone watches."""

    def isatty(self) -> bool:
        """Tell that it is one."""
        return True


@pytest.fixture
def store() -> Iterator[MemStore]:
    """Open a store."""
    with MemStore.open(":memory:") as store:
        yield store


def test_a_bar_is_shown_on_a_terminal(store: MemStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes to the error stream, knows the end where the items have a length, and leaves nothing behind."""
    watched = Terminal()
    monkeypatch.setattr(sys, "stderr", watched)
    assert store.put_many(ITEMS, progress=True) == 1234
    assert store.put_many(iter(ITEMS), progress=True) == 1234
    shown = watched.getvalue().replace("\r", "\n")
    for part in ("| 500/1234 [", "| 1000/1234 [", "| 1234/1234 [", ": 500 [", ": 1000 [", ": 1234 ["):
        assert part in shown
    assert shown.endswith(" \n")


def test_no_bar_is_shown_where_nobody_watches(store: MemStore, capsys: pytest.CaptureFixture[str]) -> None:
    """Logs are kept clean; so they are without a wish for it."""
    assert store.put_many(ITEMS, progress=True) == store.put_many(ITEMS) == 1234
    assert capsys.readouterr() == ("", "")


def test_a_missing_package_is_named(store: MemStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what brings it, before anything is written; without a bar nothing is missed."""
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(MissingExtra, match=r"tqdm; install it with: pip install 'memstore\[local\]'"):
        store.put_many(ITEMS, progress=True)
    assert store.stats().items == 0
    assert store.put_many(ITEMS) == 1234
