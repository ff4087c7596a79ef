"""Words of other fields, which count with every text of an item: a date, tags, a name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from langgraph.store.base import PutOp

from tests.conformance.models import embedded
from tests.conformance.modes import checked
from tests.conformance.ranking_oracle import WEIGHTS, Shadow, open_shadow
from tests.support import Clock, OpenStore, SyncCaller, WordEmbeddings, keys

SPELLED: dict[str, list[str]] = {
    "2024-03-17": ["2024-03-17", "17 March 2024", "a Sunday in March", "march", "Sunday"],
    "2024-03-17T10:30:00Z": ["17 March", "Sundays"],
    "from 1999-12-31 to 2000-01-01": ["31 December 1999", "Friday", "1 January 2000", "Saturday"],
    "2024-02-30 or 12024-03-17": ["2024-02-30"],
}
UNSPELLED: dict[str, list[str]] = {
    "2024-02-30 or 12024-03-17": ["February", "March", "Sunday"],
    "2024-3-17": ["March"],
    "99992024-03-171": ["March"],
}


def open_by_words(open_store: OpenStore, words: list[str] | None, **index: Any) -> SyncCaller:
    """Open a store without a model, that counts further words."""
    return open_store(index={"mode": "lexical", "fields": ["text"], "words": words, **index})


def put_dates(shadow: Shadow) -> None:
    """Put items whose texts say nothing of when and by whom they were written."""
    values = [
        {"title": "apple", "parts": ["boat moon", "hill"], "by": "zebra", "n": 0},
        {"title": "apple", "by": "eagle", "n": 1},
        {"title": "moon hill", "parts": ["dog"], "n": 2},
        {"by": "zebra", "n": 3},
        {"title": "grape", "by": "", "n": 0},
        {"parts": ["boat boat", "the hill of the moon"], "by": "apple " * 60, "n": 1},
    ]
    shadow.batch([PutOp(("root", f"n{at % 2}"), f"k{at}", value) for at, value in enumerate(values)])
    shadow.items.pop("k3")  # words alone are no text


class WordsConformance:
    """They weigh as the words of the text do, and are not embedded."""

    def test_words_count_with_every_text(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, candidates: int
    ) -> None:
        """By the oracle; with neighbours and weights too, and after the words alone have changed."""
        shadow = open_shadow(open_store, embeddings, clock, words=["by"], weights=WEIGHTS)
        put_dates(shadow)
        shadow.agree(candidates, weights=WEIGHTS)
        shadow.agree(candidates, {"context": 1}, weights=WEIGHTS)
        shadow.put(("root", "n0"), "k0", {"title": "apple", "parts": ["boat moon", "hill"], "by": "grape"})
        shadow.agree(candidates, weights=WEIGHTS)
        shadow.put(("root", "n1"), "k1", {"title": "apple"})
        shadow.delete(("root", "n1"), "k5")
        shadow.agree(candidates, weights=WEIGHTS)
        assert shadow.store.check().problems == ()

    def test_words_are_not_embedded(self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock) -> None:
        """The model sees the texts alone; meaning ranks as on a store without such words, and equal texts as equal."""
        shadow = open_shadow(open_store, embeddings, clock, words=["by"])
        put_dates(shadow)
        assert "zebra" not in " ".join(embedded(embeddings))
        meant = shadow.store.search((), query="apple", mode="semantic", limit=2)
        assert [(hit.key, hit.score) for hit in meant] == [("k1", 1.0), ("k0", 1.0)]
        assert keys(shadow.store.search((), query="zebra", mode="lexical")) == ["k0"]
        assert shadow.store.search((), query="zebra")[0].key == "k0"

    def test_an_item_of_words_alone_is_not_found(self, open_store: OpenStore) -> None:
        """Nothing of it is indexed, and there is no text whose words they could join."""
        store = open_by_words(open_store, ["by"])
        store.put(("a",), "1", {"by": "ada"})
        store.put(("a",), "2", {"by": "ada", "text": " "})
        store.put(("a",), "3", {"by": "ada", "text": "tea"}, index=False)
        store.put(("a",), "4", {"by": "ada", "other": "tea"}, index=["other"])
        assert keys(store.search((), query="ada")) == ["4"]
        assert store.stats().texts == 1
        assert store.check().problems == ()

    @pytest.mark.parametrize("kind", ["narrow"])
    def test_dates_are_spelled(self, open_store: OpenStore) -> None:
        """By day, month, year and day of the week, as people ask for them; what is no date is left as it stands."""
        store = open_by_words(open_store, ["when"])
        for at, (when, queries) in enumerate(SPELLED.items()):
            store.put(("told", str(at)), "k", {"text": "we met", "when": when})
            for query in queries:
                assert keys(store.search(("told", str(at)), query=query)) == ["k"], (when, query)
        for at, (when, queries) in enumerate(UNSPELLED.items()):
            store.put(("untold", str(at)), "k", {"text": "we met", "when": when})
            for query in queries:
                assert store.search(("untold", str(at)), query=query) == [], (when, query)

    @pytest.mark.parametrize("kind", ["narrow"])
    def test_words_are_named_by_paths(self, open_store: OpenStore) -> None:
        """Of any kind that fields may have; what is missing, null or empty adds nothing."""
        store = open_by_words(open_store, ["tags[*]", "meta.by", "n", "missing", "none"])
        value = {"text": "tea", "tags": ["hot", "drink"], "meta": {"by": "ada"}, "n": 4217, "none": None}
        store.put(("a",), "k", value)
        store.put(("a",), "plain", {"text": "tea"})
        for query in ("hot", "drinks", "Ada", "4217"):
            assert keys(store.search((), query=query)) == ["k"]
        assert store.search((), query="none null") == []
        assert checked(store.search((), query="tea")) == {"plain": 1.0, "k": 1.0}

    @pytest.mark.parametrize("kind", ["narrow", "narrow async"])
    def test_the_database_remembers_them(self, open_store: OpenStore) -> None:
        """Opened without an index, puts go on as they were, and what is there is found to be right."""
        open_by_words(open_store, ["by"]).put(("a",), "1", {"text": "tea", "by": "ada"})
        store = open_store()
        store.put(("a",), "2", {"text": "rain", "by": "ada"})
        assert keys(store.search((), query="ada")) == ["2", "1"]
        assert store.check().problems == ()

    def test_items_put_under_others_are_noticed_and_mended(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, candidates: int
    ) -> None:
        """Until then they keep the words they were put with; mended, they are found as if they were put anew."""
        first = open_shadow(open_store, embeddings, clock)
        put_dates(first)
        first.agree(candidates)
        shadow = open_shadow(open_store, embeddings, clock, first.items, words=["by"])
        assert keys(shadow.store.search((), query="zebra", mode="lexical")) == []
        assert shadow.store.check().problems == ("3 items are not indexed by the texts of their values",)
        assert shadow.store.check(repair=True).repaired
        assert shadow.store.check().problems == ()
        puts = dict(shadow.items)
        shadow.items.clear()  # mended, they follow the others in writing order
        for key, words in (("k2", ""), ("k4", ""), ("k0", "zebra"), ("k1", "eagle"), ("k5", "apple " * 60)):
            shadow.items[key] = replace(puts[key], words=words)
        shadow.agree(candidates)
        assert open_shadow(open_store, embeddings, clock).store.check().problems == ()  # as the database remembers
        again = open_shadow(open_store, embeddings, clock, words=[])
        assert again.store.check().problems == ("3 items are not indexed by the texts of their values",)

    def test_a_database_by_meaning_takes_them_with_its_words(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, candidates: int
    ) -> None:
        """Opened as hybrid for the first time, all its texts get both."""
        first = open_shadow(open_store, embeddings, clock, mode="semantic", words=["by"])
        put_dates(first)
        shadow = open_shadow(open_store, embeddings, clock, first.items, words=["by"])
        shadow.agree(candidates)
        assert shadow.store.check().problems == ()

    @pytest.mark.parametrize("kind", ["narrow"])
    def test_long_texts_and_long_words_are_each_cut(self, open_store: OpenStore) -> None:
        """A text at its stated length leaves the words of the item their own."""
        store = open_by_words(open_store, ["by"])
        store.put(("a",), "1", {"text": "filler " * 3_000, "by": "ada " * 10_000 + "beyond"})
        assert keys(store.search((), query="ada")) == ["1"]
        assert store.search((), query="beyond") == []
        assert store.check().problems == ()
