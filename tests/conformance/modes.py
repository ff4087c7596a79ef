"""Ranking by words, and by words and meaning together: rules 15 and 16 of the contract."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from langgraph.store.base import PutOp, SearchItem, SearchOp

from memstore import InvalidArgument
from tests.conformance.mode_oracle import fused, share_term, shares
from tests.conformance.models import TableEmbeddings
from tests.conformance.scores import expected_score
from tests.support import Clock, OpenStore, SyncCaller, WordEmbeddings, keys

MODES = ["hybrid", "semantic", "lexical"]
WORDS = ["apple", "boat", "cloud", "dog", "eagle", "field", "grape", "hill", "island", "jar", "moon", "zebra", "the"]
WORDS += ["a", "and", "of", "running", "runs", "café", "naïve", "Oslo", "Berlin", "user_42", "2024-05-08"]
QUERIES = [
    "apple boats",
    "the moon over the hill",
    "dog",
    "user_42 ran in Oslo",
    "nowhere to be found",
    "of the",
    "ZEBRA",
]
PREFIXES: list[tuple[str, ...]] = [(), ("root",), ("root", "n3"), ("root", "n3", "deep"), ("other",), ("missing",)]
TOLD: list[tuple[str, str]] = [
    ("the invoice of user_42 is due", "user_42"),
    ("the invoice of user_42 is due", "42"),
    ("we meet on 2024-05-08 at noon", "2024-05-08"),
    ("flight CA1832 leaves late", "when does ca1832 leave?"),
    ("write to ada.lovelace@example.org", "ada.lovelace@example.org"),
    ("write to ada.lovelace@example.org", "Lovelace"),
    ("version 3.11.7 is out", "3.11.7"),
    ("my e-mail is new", "e-mail"),
    ("Zoë lives in Malmö", "zoë"),
    ("he runs every day", "running"),
    ("O'Brien's cat", "O\u2019Brien"),  # typed with the mark that telephones make of it
    ("我喜欢喝绿茶", "绿茶"),
    ("私は東京に住んでいます", "東京"),
    ("저는 서울에 살아요", "서울"),
    ("ฉันชอบดื่มชาเขียว", "ชาเขียว"),
    ("I met 王小明 in May", "王小明"),
    ("ﬁnancial report", "financial"),  # a ligature
]
"""Texts, and queries that find them by their words."""


def open_in_mode(open_store: OpenStore, embeddings: WordEmbeddings, mode: str | None, **index: Any) -> SyncCaller:
    """Open a store that indexes the field `text`, in some mode."""
    return open_store(index={"embed": embeddings, "fields": ["text"], "mode": mode, **index})


def open_by_words(open_store: OpenStore, **index: Any) -> SyncCaller:
    """Open a store that embeds nothing."""
    return open_store(index={"mode": "lexical", "fields": ["text"], **index})


def put_texts(store: SyncCaller, texts: list[str], namespace: tuple[str, ...] = ("a",)) -> None:
    """Put texts under the keys 0, 1 and so on."""
    store.batch(PutOp(namespace, str(number), {"text": text}) for number, text in enumerate(texts))


def checked(hits: list[SearchItem]) -> dict[str, float]:
    """Give the scores of a ranked answer by key: floats in [0, 1] that never rise."""
    scores = [hit.score for hit in hits if hit.score is not None]
    assert len(scores) == len(hits)
    assert all(type(score) is float and 0.0 <= score <= 1.0 for score in scores)
    assert scores == sorted(scores, reverse=True)
    return dict(zip(keys(hits), scores, strict=True))


def put_many(store: SyncCaller) -> dict[str, tuple[tuple[str, ...], list[str]]]:
    """Put 150 items in several namespaces, some with several texts, some long; give their texts by key."""
    random = np.random.default_rng(11)
    items: dict[str, tuple[tuple[str, ...], list[str]]] = {}
    for number in range(150):
        count = int(random.integers(1, 4))
        sizes = random.choice([1, 3, 6, 90], count, p=[0.2, 0.4, 0.3, 0.1]).tolist()
        own = [f"own{number}w{extra}" for extra in range(40)]
        texts = [" ".join(random.choice([*WORDS, *own] if size > 9 else WORDS, size)) for size in sizes]
        namespace = ("root", f"n{number % 7}", "deep")[: 2 + number % 2] if number % 5 else ("other",)
        items[f"k{number}"] = namespace, texts
    store.batch(PutOp(namespace, key, {"text": texts}, index=["text[*]"]) for key, (namespace, texts) in items.items())
    return items


def hybrid_scores(
    items: dict[str, tuple[tuple[str, ...], list[str]]], embeddings: WordEmbeddings, query: str
) -> dict[str, float]:
    """Give the score of every item of a scope, by its best text."""
    scope = [(key, text) for key, (_, texts) in items.items() for text in texts]
    vector = np.array(embeddings.embed_query(query))
    expected: dict[str, float] = {}
    for (key, text), share in zip(scope, shares(query, [text for _, text in scope]), strict=True):
        cosine = expected_score("cosine", np.array(embeddings.embed_query(text)), vector)
        expected[key] = max(expected.get(key, 0.0), fused(cosine, share))
    return expected


class ModesConformance:
    """Words count by how rare they are in the scope; hybrid is one fixed sum of words and meaning."""

    @pytest.mark.parametrize("prefix", PREFIXES, ids=repr)
    def test_a_hybrid_score_is_a_fixed_sum(
        self, open_store: OpenStore, embeddings: WordEmbeddings, prefix: tuple[str, ...]
    ) -> None:
        """Half of the cosine and half of the words' share, over the statistics of the very scope that is searched."""
        store = open_in_mode(open_store, embeddings, None)
        items = {key: item for key, item in put_many(store).items() if item[0][: len(prefix)] == prefix}
        for query in QUERIES:
            found = checked(store.search(prefix, query=query, limit=200))
            assert found == pytest.approx(hybrid_scores(items, embeddings, query), abs=1e-6)

    @pytest.mark.parametrize("prefix", PREFIXES, ids=repr)
    def test_a_lexical_score_is_the_share_of_the_words(self, open_store: OpenStore, prefix: tuple[str, ...]) -> None:
        """Only items that share a term with the query are found, each by its best text."""
        store = open_by_words(open_store)
        items = {key: item for key, item in put_many(store).items() if item[0][: len(prefix)] == prefix}
        scope = [(key, text) for key, (_, texts) in items.items() for text in texts]
        for query in QUERIES:
            expected: dict[str, float] = {}
            for (key, _), share in zip(scope, shares(query, [text for _, text in scope]), strict=True):
                expected[key] = max(expected.get(key, 0.0), share)
            found = checked(store.search(prefix, query=query, limit=200))
            assert found == pytest.approx({key: score for key, score in expected.items() if score}, abs=1e-6)
            assert found.keys() == {key for key, (_, texts) in items.items() if share_term(query, texts)}

    def test_a_store_for_words_needs_no_model(self, open_store: OpenStore) -> None:
        """It embeds nothing, and everything else is as on any store."""
        store = open_by_words(open_store)
        put_texts(store, ["apples", "pears"])
        assert keys(store.search((), query="apples")) == ["0"]
        assert (store.stats().model, store.stats().dims, store.stats().texts) == (None, None, 2)
        assert store.store.embeddings is None
        assert store.check().problems == ()

    def test_a_call_by_words_does_not_ask_the_model(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """The query is not embedded where no vector is compared."""
        store = open_in_mode(open_store, embeddings, "hybrid")
        put_texts(store, ["apples", "pears"])
        assert keys(store.search((), query="pears", mode="lexical")) == ["1"]
        assert embeddings.queries == []

    @pytest.mark.parametrize("mode", [None, "hybrid", "lexical"])
    def test_a_call_s_mode_comes_before_the_store_s(
        self, open_store: OpenStore, embeddings: WordEmbeddings, mode: str | None
    ) -> None:
        """Whatever a store's own mode, each call may choose; without a choice, and in a batch, the store's counts."""
        store = open_in_mode(open_store, embeddings, mode)
        put_texts(store, ["red apples", "rain"])
        answers = {name: store.search((), query="apples", mode=name) for name in MODES}
        (share, _), cosine = shares("apples", ["red apples", "rain"]), answers["semantic"][0].score
        assert [len(answers[name]) for name in MODES] == [2, 2, 1]
        assert answers["lexical"][0].score == pytest.approx(share)
        assert answers["hybrid"][0].score == pytest.approx(fused(cosine or 0.0, share))
        own = answers[mode or "hybrid"]
        assert store.search((), query="apples") == store.search((), query="apples", mode=None) == own
        assert store.batch([SearchOp((), query="apples")]) == [own]

    def test_a_store_for_words_refuses_to_rank_by_meaning(self, open_store: OpenStore) -> None:
        """Vectors that were not made are named, not taken for zero; nothing else is guessed either."""
        store = open_by_words(open_store)
        put_texts(store, ["apples"])
        for mode in ("semantic", "hybrid"):
            with pytest.raises(InvalidArgument, match="vectors"):
                store.search((), query="apples", mode=mode)
        with pytest.raises(InvalidArgument, match="mode"):
            store.search((), query="apples", mode="fuzzy")
        assert keys(store.search((), query="apples")) == ["0"]

    @pytest.mark.parametrize("metric", ["cosine", "l2"])
    def test_a_store_for_meaning_refuses_to_rank_by_words(
        self, open_store: OpenStore, embeddings: WordEmbeddings, metric: str
    ) -> None:
        """Words that were not taken are named as missing, with the way out."""
        store = open_in_mode(open_store, embeddings, "semantic", metric=metric)
        put_texts(store, ["apples"])
        with pytest.raises(InvalidArgument, match=r"words.*open the store"):
            store.search((), query="apples", mode="lexical")
        with pytest.raises(InvalidArgument):
            store.search((), query="apples", mode="hybrid")
        assert store.search((), query="apples") == store.search((), query="apples", mode="semantic")

    @pytest.mark.parametrize("metric", ["l2", "inner_product"])
    def test_another_metric_ranks_by_meaning(
        self, open_store: OpenStore, embeddings: WordEmbeddings, metric: str
    ) -> None:
        """Only a cosine has bounds to be summed with a share: other stores are semantic and keep no words."""
        store = open_in_mode(open_store, embeddings, None, metric=metric)
        put_texts(store, ["apples"])
        assert store.search((), query="apples") == store.search((), query="apples", mode="semantic")
        with pytest.raises(InvalidArgument, match="cosine"):
            store.search((), query="apples", mode="hybrid")
        with pytest.raises(ValueError, match="hybrid"):
            open_in_mode(open_store, embeddings, "hybrid", metric=metric)

    def test_words_of_any_kind_are_found(self, open_store: OpenStore) -> None:
        """Names, numbers, dates, identifiers, other forms of a word, and scripts without spaces."""
        store = open_by_words(open_store)
        for number, (text, query) in enumerate(TOLD):
            own = ("told", str(number))
            store.put(own, "k", {"text": text})
            store.put(own, "other", {"text": "nothing of the kind"})
            assert keys(store.search(own, query=query)) == ["k"], (text, query)

    def test_an_identifier_is_more_than_its_parts(self, open_store: OpenStore) -> None:
        """One that stands there whole leads before those that only share a part."""
        store = open_by_words(open_store)
        put_texts(store, ["user_42 paid", "user_43 paid", "user 7 has 42 apples", "2024-05-08", "2024-05-09"])
        assert keys(store.search((), query="user_42"))[0] == "0"
        assert keys(store.search((), query="2024-05-08"))[0] == "3"

    def test_stop_words_count_where_nothing_else_is_left(self, open_store: OpenStore) -> None:
        """They find nothing beside a word that tells something, and by themselves they are words."""
        store = open_by_words(open_store)
        put_texts(store, ["to be or not to be", "the apples", "what is it"])
        assert keys(store.search((), query="what are the apples")) == ["1"]
        assert keys(store.search((), query="the what pears")) == []
        assert keys(store.search((), query="to be"))[0] == "0"
        assert keys(store.search((), query="what is it"))[0] == "2"

    def test_words_are_stemmed_in_the_language_of_the_texts(self, open_store: OpenStore) -> None:
        """A store says once what language its texts are in."""
        store = open_by_words(open_store, language="german")
        put_texts(store, ["zwei alte Häuser", "ein Baum"])
        assert keys(store.search((), query="Haus")) in (["0"], [])
        assert keys(store.search((), query="alten häusern")) == ["0"]

    @pytest.mark.parametrize("mode", ["hybrid", "lexical"])
    def test_a_query_may_be_a_whole_conversation(
        self, open_store: OpenStore, embeddings: WordEmbeddings, mode: str
    ) -> None:
        """Thousands of words keep their bounds, and of all that count the rarest are what a query is about."""
        store = open_in_mode(open_store, embeddings, mode)
        texts = [f"common words about thing {n} and apple{n}" for n in range(120)] + ["zeppelin over the harbour"]
        put_texts(store, texts)
        for query in (" ".join(f"common words about thing {n}" for n in range(2000)) + " zeppelin", "word " * 9000):
            found = checked(store.search((), query=query, limit=200))
            held = shares(query[:8192], texts)
            if mode == "lexical":
                expected = {str(n): share for n, share in enumerate(held) if share}
                assert found == pytest.approx(expected, abs=1e-6)
            else:
                assert len(found) == len(texts)
        query = "zeppelin " + " ".join(f"apple{n} talk{n}" for n in range(1000))
        assert max(checked(store.search((), query=query, limit=200)).values()) <= 1.0
        query = "common words about a thing " * 250 + "zeppelin"
        (first, *others) = checked(store.search((), query=query, mode="lexical", limit=200)).items()
        assert first[0] == "120"
        assert first[1] > others[0][1]

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("filter", [None, {"n": {"$lt": 2}}, {"$not": {"n": 0}}], ids=repr)
    def test_pages_join_in_every_mode(
        self, open_store: OpenStore, embeddings: WordEmbeddings, mode: str, filter: Any
    ) -> None:
        """No duplicate, no gap and one order, although most scores tie."""
        store = open_in_mode(open_store, embeddings, "hybrid")
        subjects = ["red apples", "green apples", "red pears", "rain", "two boats on the red lake"]
        store.batch(
            PutOp((f"u{n % 3}", "x"), f"k{n}", {"text": subjects[n % 5], "n": n % 4}, index=None if n % 9 else False)
            for n in range(130)
        )
        for prefix in ((), ("u1",)):
            asked: dict[str, Any] = {"query": "red apples", "mode": mode, "filter": filter}
            whole = store.search(prefix, limit=500, **asked)
            for size in (1, 7, 40):
                pages = [
                    store.search(prefix, limit=size, offset=at, **asked) for at in range(0, len(whole) + size, size)
                ]
                assert [hit for page in pages for hit in page] == whole
            wanted = [n for n in range(130) if n % 9 and not prefix] or [n for n in range(130) if n % 9 and n % 3 == 1]
            passing = {None: range(4), "$lt": range(2), "$not": range(1, 4)}[
                None if filter is None else "$lt" if "n" in filter else "$not"
            ]
            shared = (0, 1, 2, 4) if mode == "lexical" else range(5)
            assert sorted(keys(whole)) == sorted(f"k{n}" for n in wanted if n % 4 in passing and n % 5 in shared)

    @pytest.mark.parametrize("mode", MODES)
    def test_equal_texts_score_equal_and_the_later_leads(
        self, open_store: OpenStore, embeddings: WordEmbeddings, mode: str
    ) -> None:
        """In any namespace, whatever stands around them."""
        store = open_in_mode(open_store, embeddings, "hybrid")
        random = np.random.default_rng(4)
        ops = [
            PutOp((f"n{n % 4}",), f"k{n}", {"text": "red apples" if n % 3 else " ".join(random.choice(WORDS, 5))})
            for n in range(90)
        ]
        for start in range(0, 90, 10):
            store.batch(ops[start : start + 10])
        same = [
            hit for hit in store.search((), query="apples of Oslo", mode=mode, limit=200) if "red" in hit.value["text"]
        ]
        assert keys(same) == [f"k{n}" for n in reversed(range(90)) if n % 3]
        assert len({hit.score for hit in same}) == 1

    def test_a_text_that_is_the_query_scores_one(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """A short text that is what was asked for has all the weight there is, in every mode."""
        store = open_in_mode(open_store, embeddings, "hybrid")
        put_texts(store, ["red apples in May", "rain", "red pears in May"])
        for mode in MODES:
            assert store.search((), query="red apples in May", mode=mode)[0].score == 1.0

    def test_what_has_no_words_is_ranked_by_meaning(self, open_store: OpenStore) -> None:
        """Marks alone are no term: such a text has no share, and such a query finds nothing by words."""
        table = {"?!": [1.0, 0.0], "apples": [0.6, 0.8], "rain": [0.0, -1.0]}
        store = open_store(index={"embed": TableEmbeddings(table), "fields": ["text"], "mode": "hybrid"})
        put_texts(store, list(table))
        assert checked(store.search((), query="?!")) == pytest.approx({"0": 0.5, "1": 0.5 * 0.6, "2": 0.0})
        assert checked(store.search((), query="apples"))["0"] == pytest.approx(0.5 * 0.6)
        assert store.search((), query="?!", mode="lexical") == []
        assert keys(store.search((), query="apples", mode="lexical")) == ["1"]

    def test_what_is_not_indexed_is_not_found_by_its_words(self, open_store: OpenStore) -> None:
        """`index=False`, other fields, and what comes after the length at which a text is cut; values stay whole."""
        store = open_by_words(open_store)
        store.put(("a",), "off", {"text": "apples"}, index=False)
        store.put(("a",), "other", {"title": "apples"})
        store.put(("a",), "blank", {"text": " "})
        store.put(("a",), "long", {"text": "filler " * 2000 + "apples"})
        assert store.search((), query="apples") == []
        assert keys(store.search((), query="filler")) == ["long"]
        item = store.get(("a",), "long")
        assert item is not None
        assert item.value["text"].endswith("apples")

    def test_surrogates_and_nul_part_words(self, open_store: OpenStore) -> None:
        """In a query they are spaces, for words too."""
        store = open_by_words(open_store)
        put_texts(store, ["red apples"])
        for query in ("red\0apples", "\ud800red\udfffapples\0"):
            assert [hit.score for hit in store.search((), query=query)] == [1.0]

    @pytest.mark.parametrize("mode", ["hybrid", "lexical"])
    def test_words_follow_every_write_at_once(
        self, open_store: OpenStore, embeddings: WordEmbeddings, clock: Clock, mode: str
    ) -> None:
        """Puts, replacements, deletes and sweeps change what is found, and how rare a word is, at the next search."""
        store = open_in_mode(open_store, embeddings, mode)
        texts: dict[str, str] = {}

        def agree() -> None:
            for query in ("red apples", "pears"):
                found = checked(store.search((), query=query, mode="lexical", limit=100))
                held = shares(query, list(texts.values()))
                expected = {key: share for key, share in zip(texts, held, strict=True) if share}
                assert found == pytest.approx(expected, abs=1e-6)

        for number, text in enumerate(["red apples", "red pears", "green apples", "rain", "red boats"]):
            texts[str(number)] = text
            store.put((f"n{number % 2}",), str(number), {"text": text}, ttl=10 if number == 4 else None)
            agree()
        store.put(("n0",), "0", {"text": "green pears"})
        texts["0"] = "green pears"
        agree()
        store.delete(("n1",), "1")
        del texts["1"]
        agree()
        clock.pass_minutes(11)
        assert "4" not in keys(store.search((), query="boats", mode="lexical"))
        store.sweep()
        del texts["4"]
        agree()
        store.batch([PutOp(("n0",), "2", None), PutOp(("n1",), "5", {"text": "apples"}), PutOp(("n1",), "3", None)])
        texts = {"0": "green pears", "5": "apples"}
        agree()

    def test_a_filter_changes_no_score(self, open_store: OpenStore, embeddings: WordEmbeddings) -> None:
        """How rare a word is, is a matter of the scope: a score means the same with a filter as without."""
        store = open_in_mode(open_store, embeddings, "hybrid")
        store.batch(PutOp(("a",), str(n), {"text": f"apples {n % 7}", "n": n}) for n in range(60))
        for mode, query in product(MODES, ("apples", "3 apples")):
            whole = {hit.key: hit.score for hit in store.search((), query=query, mode=mode, limit=100)}
            some = store.search((), query=query, mode=mode, filter={"n": {"$gte": 50}}, limit=100)
            assert len(some) == 10
            assert all(whole[hit.key] == hit.score for hit in some)
