"""The analyser: text to terms, the same for texts and queries, on every backend.

A term is the hash of a stem. Words are stemmed by Snowball; what holds a digit is kept as it is written; what is joined
by marks (`user_42`, `2024-05-08`, `e-mail`) counts whole and in its parts; scripts without spaces count by pairs of
characters.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import Stemmer

from memstore.indexes import Counts, Terms

DEFAULT_LANGUAGE: Final = "english"
_VERSION: Final = 1
"""Raised with every change of what terms a text yields; a database with another one has its terms made anew."""
_MAX_LENGTH: Final = 64
"""Characters of a word that count."""
_WORDS_KEPT: Final = 100_000
"""Words whose terms are remembered, some 20 MB."""

# letters and digits of any script with their combining marks, joined by single marks
_PART: Final = r"[^\W_](?:[^\W_]|[\u0300-\u036f\u0900-\u0dff\u0e31\u0e34-\u0e4e])*"
_WORD: Final = re.compile(rf"{_PART}(?:[._\-/:@+&'\u2019]{_PART})*")
_PARTS: Final = re.compile(_PART)
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af"
    "\U00020000-\U0003134f]+"
)
"""Runs of Thai, Lao, Burmese, Khmer, Japanese, Chinese and Korean."""

_STOP_WORDS: Final = frozenset(  # as prose, which is easier to read than a list of strings
    """
    a about above after again all am an and any are as at be been before being below both but by can could d did do
    does doing don down during each few for from further had has have having he her here hers him his how i if in
    into is it its just ll m may me might mine more most must my no nor not of off on once only or other our ours
    out over own re s same shall she should so some such t than that the their theirs them then there these they
    this those through to too under until up us ve very was we were what when where which while who whom whose why
    will with would you your yours
    """.split()  # noqa: SIM905
)
"""English words that say nothing of what is looked for, question words among them."""


def to_terms(text: str, language: str = DEFAULT_LANGUAGE) -> Terms:
    """Turn a text into its terms."""
    return _to_terms(_words(text), language)


def to_query_terms(query: str, language: str = DEFAULT_LANGUAGE) -> Terms:
    """Turn a query into its terms, without stop words unless nothing else is left."""
    return _to_terms(_telling(query, language), language)


def to_query_words(query: str, language: str = DEFAULT_LANGUAGE) -> dict[str, tuple[int, ...]]:
    """Give the words of a query that count, in order, and the terms of each."""
    return {word: tuple(_to_terms([word], language).tolist()) for word in _telling(query, language)}


def _telling(query: str, language: str) -> list[str]:
    """Leave out the stop words, unless nothing else is left."""
    words = _words(query)
    telling = [
        word for word in words if language != DEFAULT_LANGUAGE or not _STOP_WORDS.issuperset(_PARTS.findall(word))
    ]
    return telling or words


def analyser_name(language: str) -> str:
    """Name the analyser: texts of one database are all analysed by the same."""
    return f"{_VERSION}/{language}"


def languages() -> list[str]:
    """List the languages there are stems for."""
    found: list[str] = Stemmer.algorithms()
    return found


def to_blob(texts: Sequence[Terms]) -> bytes:
    """Encode the terms of an item's texts: how many each has, then all of them, as little-endian uint32."""
    return np.concatenate([[len(terms) for terms in texts], *texts]).astype("<u4").tobytes()


def from_blobs(blobs: Sequence[bytes | None], texts: Counts) -> tuple[Counts, Terms]:
    """Decode the terms of items.

    Args:
        blobs: What `to_blob` encoded, for each item; None or empty where its texts have no terms yet.
        texts: The number of texts of each item.

    Returns:
        How many terms each text has, and all of them.

    Raises:
        ValueError: They are not of these texts.
    """
    whole = [blob or b"" for blob in blobs]
    joined = b"".join(whole)
    sizes = np.fromiter(map(len, whole), np.int64, len(whole)) // 4
    if len(joined) != 4 * sizes.sum():
        raise ValueError("a number is cut off")
    words = np.frombuffer(joined, "<u4")
    heads = np.where(sizes, texts, 0)
    owners = np.repeat(np.arange(len(blobs)), heads)
    at = np.arange(len(owners)) + np.repeat(np.cumsum(sizes) - sizes - np.cumsum(heads) + heads, heads)
    if at.max(initial=-1) >= len(words):
        raise ValueError("too short")
    counts = words[at].astype(np.int64)
    if (np.bincount(owners, counts, len(blobs)) + heads != sizes).any():
        raise ValueError("the numbers of terms do not add up")
    lengths = np.zeros(int(texts.sum()), np.int64)
    lengths[np.repeat(sizes > 0, texts)] = counts
    rest = np.ones(len(words), np.bool_)
    rest[at] = False
    terms = words[rest].astype(np.uint32, copy=False)
    ascends = np.append(terms[1:] > terms[:-1], True)
    ascends[np.cumsum(lengths)[lengths > 0] - 1] = True
    if not ascends.all():
        raise ValueError("terms do not ascend")
    return lengths, terms


def _to_terms(words: Iterable[str], language: str) -> Terms:
    found: set[int] = set()
    for word in words:
        # a run of a script without spaces is a word of any length, and not worth remembering
        found.update((_word_terms if len(word) <= _MAX_LENGTH else _word_terms.__wrapped__)(word, language))
    return np.array(sorted(found), np.uint32)


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


@lru_cache(maxsize=_WORDS_KEPT)
def _word_terms(word: str, language: str) -> tuple[int, ...]:
    """Give the terms of one word as it stands in normalised text."""
    terms: list[str] = []
    for run in _UNSPACED.findall(word):
        terms += [run] if len(run) == 1 else [run[at : at + 2] for at in range(len(run) - 1)]
    spaced = _UNSPACED.sub(" ", word) if terms else word
    for joined in _WORD.findall(spaced):
        whole = joined.replace("\u2019", "'").removesuffix("'s")
        parts = _PARTS.findall(whole)
        terms += [part if _has_digit(part) else _stem(part, language) for part in parts]
        if len(parts) > 1:
            terms.append(whole)
    return tuple(zlib.crc32(term[:_MAX_LENGTH].encode()) for term in terms)


def _has_digit(part: str) -> bool:
    return any(character.isdigit() for character in part)


def _stem(word: str, language: str) -> str:
    stem: str = Stemmer.Stemmer(language, 0).stemWord(word)
    return stem
