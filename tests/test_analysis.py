"""The analyser: which terms a text yields, which a query, and how they are kept."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memstore.analysis import (
    DEFAULT_LANGUAGE,
    analyser_name,
    from_blobs,
    languages,
    to_blob,
    to_query_terms,
    to_terms,
)
from memstore.indexes import Terms

unhurried = settings(deadline=None)
"""A slow machine fails no example."""
prose = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
items = st.lists(
    st.none() | st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=5, unique=True).map(sorted), max_size=4),
    max_size=6,
)
"""The terms of items' texts; None for items whose texts have none yet."""


def hashed(*words: str) -> set[int]:
    """Give the terms that stems and whole words stand for."""
    return {zlib.crc32(word.encode()) for word in words}


def terms(text: str, language: str = DEFAULT_LANGUAGE) -> set[int]:
    """Give a text's terms, which must come ascending and once each."""
    found = to_terms(text, language)
    assert found.dtype == np.uint32
    assert (np.diff(found.astype(np.int64)) > 0).all()
    return set(found.tolist())


def query_terms(query: str, language: str = DEFAULT_LANGUAGE) -> set[int]:
    """Give a query's terms."""
    return set(to_query_terms(query, language).tolist())


@pytest.mark.parametrize(
    ("text", "stems"),
    [
        ("running runs run", ["run"]),
        ("Memories memory MEMORY", ["memori"]),
        ("the the THE", ["the"]),
        ("", []),
        ("  \n\t ", []),
        ("... !? -- ' _ () /", []),
        ("one, two; three.", ["one", "two", "three"]),
        ("a_b", ["a", "b", "a_b"]),
        ("__init__ _private", ["init", "privat"]),
        ("yes-", ["yes"]),
        ("a--b", ["a", "b"]),
        ("naïve naive", ["naïv", "naiv"]),
        ("Straße STRASSE", ["strass"]),
        ("ΣΊΣΥΦΟΣ σίσυφος", ["σίσυφοσ"]),
        ("\ufb01ne \uff26\uff29\uff2e\uff25 cafe\u0301 caf\u00e9", ["fine", "café"]),
        ("\U0001f600 \u2764\ufe0f party\U0001f389time", ["parti", "time"]),
        ("Привет, МИР", ["привет", "мир"]),
    ],
)
def test_words_are_folded_and_stemmed(text: str, stems: list[str]) -> None:
    """Case, width and ligatures do not tell words apart, accents do; marks, blanks and emoji are no words."""
    assert terms(text) == hashed(*stems)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("user_42", ["user", "42", "user_42"]),
        ("2024-05-08", ["2024", "05", "08", "2024-05-08"]),
        ("08:15", ["08", "15", "08:15"]),
        ("3.14", ["3", "14", "3.14"]),
        ("e-mails", ["e", "mail", "e-mails"]),
        ("anna.meier@example.com", ["anna", "meier", "exampl", "com", "anna.meier@example.com"]),
        ("src/memory/Store.py", ["src", "memori", "store", "py", "src/memory/store.py"]),
        ("R&D", ["r", "d", "r&d"]),
        ("area51s v2s running1 running", ["area51s", "v2s", "running1", "run"]),
        ("٤٢ items", ["٤٢", "item"]),
    ],
)
def test_identifiers_count_whole_and_in_parts(text: str, kept: list[str]) -> None:
    """What marks join is one term as written, and its parts are terms; what holds a digit is never stemmed."""
    assert terms(text) == hashed(*kept)


@pytest.mark.parametrize("text", ["Anna's", "Anna\u2019s", "anna", "ANNA'S"])
def test_a_possessive_is_the_name(text: str) -> None:
    """With either apostrophe."""
    assert terms(text) == hashed("anna")


def test_an_apostrophe_inside_a_name_stays() -> None:
    """Typed or typeset, the whole name is one term."""
    assert terms("O'Brien") == terms("O\u2019Brien") == hashed("o", "brien", "o'brien")


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("我喜欢猫", ["我喜", "喜欢", "欢猫"]),
        ("猫", ["猫"]),
        ("猫 狗", ["猫", "狗"]),
        ("猫,狗在", ["猫", "狗在"]),
        ("ひらがなカナ", ["ひら", "らが", "がな", "なカ", "カナ"]),
        ("\uff76\uff85", ["カナ"]),
        ("안녕 세상", ["안녕", "세상"]),
        ("\u1112\u1161\u11ab\u1100\u116e\u11a8", ["한국"]),
        ("ประเทศ", ["ปร", "ระ", "ะเ", "เท", "ทศ"]),
        ("ที่", ["ที", "ี่"]),
        ("\U00020000\U00020001\U00020002", ["\U00020000\U00020001", "\U00020001\U00020002"]),
        ("XPS15型号", ["xps15", "型号"]),
        ("型号XPS-15", ["xps", "15", "xps-15", "型号"]),
        ("用user_42登录", ["用", "登录", "user", "42", "user_42"]),
        ("東京2024年", ["東京", "2024", "年"]),
    ],
)
def test_scripts_without_spaces_count_by_pairs(text: str, pairs: list[str]) -> None:
    """A run yields its overlapping pairs, one character alone itself; other words inside or beside it are words."""
    assert terms(text) == hashed(*pairs)


def test_a_long_run_is_found_by_any_part_of_it() -> None:
    """A text without a single space is a run of any length: each pair of it is a term, the last ones too."""
    run = "".join(chr(0x4E00 + number) for number in range(5_000))
    assert len(terms(run)) == 4_999
    assert terms(run[-40:]) <= terms(run)


@pytest.mark.parametrize("unit", ["x", "é", "9"])
def test_long_words_are_cut(unit: str) -> None:
    """Sixty-four characters of a word count: what differs only beyond them is the same term, whatever its length."""
    assert terms(unit * 64) != terms(unit * 63)
    assert terms(unit * 64) == terms(unit * 65) == terms(unit * 5_000)
    joined = f"a_{unit * 100}"
    assert terms(joined) == hashed("a", unit * 64, joined[:64])


def test_combining_marks_stay_with_their_letters() -> None:
    """A Devanagari word is one word, vowel signs and all, and a mark that no letter composes with splits none."""
    assert terms("हिन्दी") == terms("(हिन्दी)")
    assert len(terms("हिन्दी")) == 1
    assert terms("q\u0307x") == hashed("q\u0307x")


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("what is the name of my dog", ["name", "dog"]),
        ("Where's the car?", ["car"]),
        ("I don\u2019t like what she'd said", ["like", "said"]),
        ("what is it", ["what", "is", "it"]),
        ("it's", ["it", "s"]),
        ("the R&D of b-52", ["r", "d", "r&d", "b", "52", "b-52"]),
        ("猫 is what", ["猫"]),
        ("", []),
        ("?!", []),
    ],
)
def test_stop_words_leave_a_query(query: str, kept: list[str]) -> None:
    """Words that say nothing are not looked for, unless a query has no others; in texts they are terms like any."""
    if kept == ["it", "s"]:
        assert query_terms(query) == terms(query)
    else:
        assert query_terms(query) == hashed(*kept)
    assert query_terms(query) <= terms(query)


def test_stop_words_are_english() -> None:
    """In other languages they are words: French "on" and German "am" are looked for."""
    assert query_terms("on the chat", "french") == terms("on the chat", "french")
    assert query_terms("on the chat") == hashed("chat")


def test_each_language_has_its_stems() -> None:
    """The language decides what words have one stem, and names the analyser."""
    assert DEFAULT_LANGUAGE in languages()
    assert terms("Häuser", "german") == terms("Haus", "german")
    assert terms("Häuser") != terms("Haus")
    assert terms("maisons", "french") == terms("maison", "french")
    assert len({analyser_name(language) for language in languages()}) == len(languages())
    for language in languages():
        assert terms("user_42 猫猫", language) >= hashed("user_42", "42", "猫猫")


@unhurried
@given(prose, prose)
def test_terms_depend_on_words_alone(first: str, second: str) -> None:
    """A text's terms are those of its parts, however often they come; a query has no term that a text has not."""
    assert terms(f"{first}\n{second}") == terms(first) | terms(second) == terms(f"{second}\n{first}\n{second}")
    assert query_terms(first) <= terms(first)
    assert bool(query_terms(first)) == bool(terms(first))


@unhurried
@given(items)
def test_terms_come_back_from_blobs(given_items: list[list[list[int]] | None]) -> None:
    """Whatever the items, and whether they have terms yet: lengths and terms of all texts, in order."""
    blobs = [None if texts is None else to_blob([np.array(text, np.uint32) for text in texts]) for texts in given_items]
    counts = [2 if texts is None else len(texts) for texts in given_items]
    lengths, found = from_blobs(blobs, np.array(counts, np.int64))
    expected: list[list[list[int]]] = [[[], []] if texts is None else texts for texts in given_items]
    assert lengths.tolist() == [len(text) for texts in expected for text in texts]
    assert found.tolist() == [term for texts in expected for text in texts for term in text]
    assert found.dtype == np.uint32


def some_terms(*counts: int) -> list[Terms]:
    """Make texts with so many terms."""
    return [np.arange(1, count + 1, dtype=np.uint32) * 7 for count in counts]


def test_a_blob_is_the_same_on_every_machine() -> None:
    """How many terms each text has, then the terms: little-endian numbers of four bytes."""
    blob = to_blob([np.array([1, 2**32 - 1], np.uint32), np.array([], np.uint32)])
    assert blob == b"\x02\0\0\0\0\0\0\0\x01\0\0\0\xff\xff\xff\xff"


@pytest.mark.parametrize("at", [0, 1, 2], ids=["first", "middle", "last"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda blob: blob[:-4],
        lambda blob: blob[:-1],
        lambda blob: blob[:4],
        lambda blob: blob[4:],
        lambda blob: blob + b"\0\0\0\0",
        lambda blob: b"\xff\xff\xff\xff" + blob[4:],
        lambda blob: b"\0\0\0\0" + blob[4:],
        lambda _: b"\x01\0\0\0",
    ],
    ids=[
        "a term less",
        "a byte less",
        "a head alone",
        "a head less",
        "a term more",
        "a huge count",
        "no count",
        "stub",
    ],
)
def test_damaged_blobs_are_refused(at: int, damage: object) -> None:
    """Wherever among others it stands, a blob that is not of its item's texts is an error, not other texts' terms."""
    assert callable(damage)
    blobs = [to_blob(some_terms(3, 2)), to_blob(some_terms(1, 4)), to_blob(some_terms(2, 2))]
    blobs[at] = damage(blobs[at])
    with pytest.raises(ValueError, match=r"."):
        from_blobs(blobs, np.array([2, 2, 2]))


@unhurried
@given(st.lists(st.tuples(st.none() | st.binary(max_size=3).map(lambda few: few * 4), st.integers(0, 3)), max_size=5))
@example([(b"\1\0\0\0\5\0\0\0" + b"\0\0", 1), (b"\0\0\0\0" + b"\0\0", 1)])  # two halves of a number too many
@example([(b"\0" * 4, 3), (b"\0" * 4, 1)])  # fewer lengths than texts, and others after them
def test_what_is_taken_for_terms_adds_up(drawn: list[tuple[bytes | None, int]]) -> None:
    """Bytes of any origin either are refused or give as many terms as the lengths say."""
    blobs, counts = [blob for blob, _ in drawn], [count for _, count in drawn]
    try:
        lengths, found = from_blobs(blobs, np.array(counts, np.int64))
    except ValueError:
        return
    assert len(lengths) == sum(counts)
    assert lengths.sum() == len(found)


def test_terms_of_a_text_that_has_none_are_kept_apart_from_none_yet() -> None:
    """Texts of marks alone have no terms: that is known of them, and their neighbours' terms stay their own."""
    blobs = [to_blob(some_terms(0)), None, to_blob(some_terms(2))]
    lengths, found = from_blobs(blobs, np.array([1, 1, 1]))
    assert (lengths.tolist(), found.tolist()) == ([0, 0, 2], [7, 14])
    assert len(blobs[0] or b"") == 4
