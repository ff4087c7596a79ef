"""`check` on sound stores: there is nothing to say, and nothing to repair."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import pytest

from memstore import Findings
from tests.support import OpenStore, SyncCaller, WordEmbeddings

INDEX: Final[dict[str, Any]] = {"embed": WordEmbeddings(8), "fields": ["text", "tags[*]"]}
USER: Final = ("users", "ada")


def fill(store: SyncCaller) -> None:
    """Put items of every kind."""
    store.put(USER, "tea", {"text": "green tea", "tags": ["hot", "drink"]})
    store.put(USER, "dog", {"text": "two dogs"}, index=["$", "text"])
    store.put(USER, "plain", {"text": "unsearchable"}, index=False)
    store.put(USER, "empty", {})
    store.put(("users", "bob"), "cat", {"text": "three cats"}, ttl=10)


class CheckConformance:
    """Sound stores; fixture `rows` reads every row past the store."""

    def test_a_store_in_use_is_sound(self, open_store: OpenStore, rows: Callable[[], Any]) -> None:
        """After puts, replacements and deletes of any kind, and looking or repairing changes nothing."""
        store = open_store(index=INDEX)
        fill(store)
        chance = random.Random(5)  # noqa: S311  no secret
        for number in range(60):
            words = chance.sample(["tea", "dog", "cat", "house", "train", ""], 3)
            value = chance.choice([{"text": " ".join(words)}, {"tags": words}, {"text": None}, {"other": 1}, None])
            index = chance.choice([None, False, ["text"], ["tags[0]", "$"], ["missing"]])
            store.put(
                ("users", chance.choice("abc")), chance.choice("xyz"), value, index, ttl=chance.choice([None, number])
            )
        assert store.check() == Findings(())
        before = rows()
        assert store.check(repair=True) == Findings((), repaired=False)
        assert rows() == before

    @pytest.mark.parametrize("index", [None, INDEX], ids=["without an index", "indexed"])
    def test_an_empty_store_is_sound(self, open_store: OpenStore, index: Any) -> None:
        """With and without an index."""
        store = open_store(index=index)
        assert store.check() == Findings(())
        assert store.check().ok
        store.put(USER, "k", {"text": ("a", "b")})
        assert store.check() == Findings(())
