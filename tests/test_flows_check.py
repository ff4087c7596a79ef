"""The flows of `check`, driven by canned replies: what is asked, what is found, what is mended."""

from __future__ import annotations

from typing import Any

import pytest

from memstore.analysis import to_blob, to_terms
from memstore.batch import Embedded, to_labels
from memstore.check import Due, Mend, Survey, ask, check_rows, mend, survey
from memstore.dialects import IndexedRow
from memstore.embedding import Text, to_digest
from memstore.errors import IndexMismatch
from memstore.steps import Statement
from tests.flows import Asked, Line, named_dialect, names, play

SOUND: list[Line] = [("integrity", [("ok",)]), ("overrun", []), ("miscounted", []), ("stray_items", [])]
TEXTS = (Text("text", "hello", to_digest("hello")),)
TERMS = to_blob([to_terms("hello")])
PATHS = ("text",)
DUE = Due(PATHS, 4, "english")


def item(
    value: str = '{"text":"hello"}',
    fields: str | None = None,
    indexed: tuple[Any, ...] | None = None,
    *,
    item_id: int = 7,
) -> tuple[Any, ...]:
    """Make an item's row with what is indexed of it: by default the one text that should be, in four dims."""
    return (item_id, value, fields, *(indexed or ('["text"]', to_digest("hello"), TERMS, 16)))


NOTHING = (None, None, None, None)


@pytest.mark.parametrize("repair", [False, True])
def test_a_sound_database_is_only_asked(*, repair: bool) -> None:
    """With or without repair, nothing is written where nothing is wrong."""
    assert play(check_rows(named_dialect(), repair=repair), *SOUND)[0] == []


def unsound(remedies: dict[str, str]) -> list[Line]:
    """Script a database in which everything is wrong; a remedy follows its question."""
    script: list[Line] = [("integrity", [("page 3 is odd",)])]
    for name, _ in SOUND[1:]:
        script.append((name, [(1,), (2,)]))
        script.extend([(remedies[name], [])] if name in remedies else [])
    return script


def test_every_fault_is_named() -> None:
    """One line for each kind of fault, with how often it was found."""
    problems, _ = play(check_rows(named_dialect(), repair=False), *unsound({}))
    assert problems == [
        "the database says: page 3 is odd",
        "2 ids lie beyond the last one given",
        "2 namespaces miscount their texts",
        "2 items belong to no namespace",
    ]


def test_repair_puts_right_what_has_a_remedy() -> None:
    """Each remedy follows its question, so that the next question sees its effect; stray items have none."""
    remedies = {"overrun": "raise_last_id", "miscounted": "recount"}
    problems, _ = play(check_rows(named_dialect(), repair=True), *unsound(remedies))
    assert len(problems) == 4


def test_a_survey_ends_after_the_last_item() -> None:
    """No items after the id: one statement, and the end is told."""
    result, asked = play(survey(7, DUE, named_dialect()), ("items_after", []))
    assert result == Survey(None, [], 0)
    assert asked[0].arguments == (7, 1_000)


DIGEST = to_digest("hello")
FAULTY: dict[str, tuple[Any, ...]] = {
    "none": NOTHING,
    "twice": ('["text", "text"]', DIGEST * 2, TERMS, 32),
    "length": ('["text"]', DIGEST, TERMS, 12),
    "no vector": ('["text"]', DIGEST, TERMS, None),
    "no terms": ('["text"]', DIGEST, None, 16),
    "empty terms": ('["text"]', DIGEST, b"", 16),
    "other terms": ('["text"]', DIGEST, to_blob([to_terms("bye")]), 16),
    "field": ('["other"]', DIGEST, TERMS, 16),
    "digest": ('["text"]', b"d" * 16, TERMS, 16),
}


@pytest.mark.parametrize("indexed", FAULTY.values(), ids=FAULTY.keys())
def test_a_survey_finds_texts_that_are_not_those_of_the_value(indexed: tuple[Any, ...]) -> None:
    """Missing, additional, of another field, text or length, or without its words: the item is to be mended."""
    result, _ = play(survey(0, DUE, named_dialect()), ("items_after", [item(indexed=indexed)]))
    assert result == Survey(7, [Mend(7, TEXTS)], 0)


SEVERAL = ('["text[*].0", "text[*].1"]', DIGEST * 2, to_blob([to_terms("hello")] * 2), 32)
WELL_INDEXED: dict[str, tuple[tuple[Any, ...], Due | None]] = {
    "default": (item(), DUE),
    "no index": (item(indexed=NOTHING), None),
    "no index, an own choice": (item(fields='["text"]', indexed=NOTHING), None),
    "own choice of nothing": (item(fields="[]", indexed=NOTHING), DUE),
    "own choice": (item(fields='["text"]'), Due((), 4, "english")),
    "several texts": (item('{"text":["hello","hello"]}', None, SEVERAL), Due(("text[*]",), 4, "english")),
    "nothing to index": (item("{}", indexed=NOTHING), DUE),
    "no words": (item(indexed=('["text"]', DIGEST, None, 16)), Due(PATHS, 4, None)),
    "no vectors": (item(indexed=('["text"]', DIGEST, TERMS, None)), Due(PATHS, None, "english")),
}


@pytest.mark.parametrize(("row", "due"), WELL_INDEXED.values(), ids=WELL_INDEXED.keys())
def test_a_survey_knows_what_each_put_chose(row: tuple[Any, ...], due: Due | None) -> None:
    """A put's own paths count, else the store's; without an index nothing is compared."""
    result, _ = play(survey(0, due, named_dialect()), ("items_after", [row]))
    assert result == Survey(7, [], 0)


@pytest.mark.parametrize(
    ("due", "indexed"),
    [
        (Due(PATHS, 4, None), ('["text"]', DIGEST, TERMS, 16)),
        (Due(PATHS, None, "english"), ('["text"]', DIGEST, TERMS, 16)),
    ],
    ids=["words", "vectors"],
)
def test_what_the_store_does_not_keep_is_a_fault(due: Due, indexed: tuple[Any, ...]) -> None:
    """Words where texts have none, vectors where nothing is embedded: nobody would keep them right."""
    result, _ = play(survey(0, due, named_dialect()), ("items_after", [item(indexed=indexed)]))
    assert result == Survey(7, [Mend(7, TEXTS)], 0)


@pytest.mark.parametrize("broken", [item('{"text":'), item("5"), item("")])
@pytest.mark.parametrize("due", [DUE, None])
def test_a_survey_counts_values_that_are_no_json(broken: tuple[Any, ...], due: Due | None) -> None:
    """They are counted and passed over, with an index and without; the items after them are compared all the same."""
    rows = [broken, item(indexed=NOTHING, item_id=8)]
    result, _ = play(survey(0, due, named_dialect()), ("items_after", rows))
    assert result == Survey(8, [Mend(8, TEXTS)] if due else [], 1)


MENDED = ["select_mendable", "advance_clock", "insert_removals", "update_texts", "touch_namespaces", "raise_floor"]


def mending(texts: tuple[Text, ...], found: tuple[int, int | None, int]) -> list[Asked]:
    """Mend an item of which some texts are found; give what was asked."""
    replies: dict[str, Any] = {"select_mendable": [found], "advance_clock": [(4, 12, 1)]}
    statements = [name for name in MENDED if name != "insert_removals" or found[1] is not None]
    vectors = {text.digest: b"vector" for text in texts}
    flow = mend([Mend(7, texts)], Embedded({}, vectors, DUE.to_terms(texts), 1), named_dialect())
    return play(flow, *[(name, replies.get(name)) for name in statements])[1]


def test_mending_replaces_the_texts_of_an_item() -> None:
    """The old texts are recorded as gone, item and texts get new ids, and the count moves by the difference."""
    asked = mending(TEXTS, (1, 8, 3))
    assert asked[0].arguments == (7,)
    assert asked[1].arguments == (2,)
    assert asked[2].arguments == ([(4, 8, 3)],)
    assert asked[3].arguments == (7, 1, IndexedRow(11, 12, to_labels(TEXTS), DIGEST, b"vector", TERMS))
    assert asked[4].arguments == ([(1, -2)],)


def test_mending_adds_texts_where_there_are_none() -> None:
    """Nothing was there, so nothing is recorded as gone."""
    asked = mending(TEXTS, (1, None, 0))
    assert names(asked) == [name for name in MENDED if name != "insert_removals"]
    assert asked[-2].arguments == ([(1, 1)],)


def test_mending_takes_away_texts_that_should_not_be() -> None:
    """All columns are empty again where nothing is to be indexed; the item gets a new id all the same."""
    asked = mending((), (1, 8, 3))
    assert asked[1].arguments == (1,)
    assert asked[3].arguments == (7, 1, IndexedRow(12, None, None, None, None, None))
    assert asked[4].arguments == ([(1, -3)],)


def test_vectors_of_other_settings_are_not_mended_with() -> None:
    """Another store took the index over while these were made: nothing is written, and the error says how to go on."""
    script: list[Line] = [("select_mendable", [(1, 8, 3)]), ("advance_clock", [(4, 12, 2)])]
    with pytest.raises(IndexMismatch, match="open the store again"):
        play(mend([Mend(7, TEXTS)], Embedded(index_id=1), named_dialect()), *script)


def test_an_item_written_since_is_not_mended() -> None:
    """Every put gives a new id: one that is gone was written again, rightly, or deleted. The others are mended."""
    _, asked = play(
        mend([Mend(7, TEXTS), Mend(9, ())], Embedded(index_id=1), named_dialect()),
        ("select_mendable", []),
        ("select_mendable", [(1, 8, 3)]),
        ("advance_clock", [(4, 12, 1)]),
        ("insert_removals", None),
        ("update_texts", []),
        ("touch_namespaces", None),
        ("raise_floor", []),
    )
    assert [line.arguments[0] for line in asked if line.name in ("select_mendable", "update_texts")] == [7, 9, 9]


def test_asking_is_a_flow_of_one_statement() -> None:
    """The rows come back as they are."""
    rows, asked = play(ask(Statement("question")), ("question", [(1,)]))
    assert (rows, names(asked)) == ([(1,)], ["question"])
