"""The flows of opening and upkeep, driven by canned replies: migrations, index settings, check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memstore.batch import to_labels
from memstore.check import Mend, Survey, ask, check_rows, mend, survey
from memstore.embedding import Text, to_digest
from memstore.errors import DatabaseDamaged, IndexMismatch, NewerDatabase
from memstore.indexes import Metric
from memstore.indexing import Remembered, adopt_index, recall_index, settle_dims
from memstore.schema import Migration, is_current, migrate
from memstore.steps import Statement
from tests.flows import Asked, Line, named_dialect, names, play

FIRST = Migration(1, "make_tables", "CREATE TABLE a (x);\n\nCREATE TABLE b (x);\n")
SECOND = Migration(2, "add_index", "CREATE INDEX c ON a (x);\n")
KNOWN = '{"embed":"m","model":"m","dims":4,"metric":"cosine","fields":["text"]}'
NOW = 5
THERE: Line = ("has_migrations", [(1,)])


def remembered(
    *,
    model: str | None = "m",
    dims: int | None = 4,
    metric: Metric = "cosine",
    fields: tuple[str, ...] = ("text",),
) -> Remembered:
    """Make index settings; by default those of `KNOWN`."""
    return Remembered("m", model, dims, metric, fields)


# migrations ----------------------------------------------------------------------------------------------------------


def now() -> int:
    """Give a time."""
    return NOW


def test_a_new_database_gets_every_migration_and_its_record() -> None:
    """The table of migrations comes first, then each migration's statements, each followed by its record."""
    _, asked = play(
        migrate([FIRST, SECOND], named_dialect(), now),
        ("has_migrations", []),
        ("create_migrations", []),
        ("select_migrations", []),
        ("CREATE TABLE a (x)", []),
        ("\nCREATE TABLE b (x)", []),
        ("insert_migration", []),
        ("CREATE INDEX c ON a (x)", []),
        ("insert_migration", []),
    )
    recorded = [line.arguments for line in asked if line.name == "insert_migration"]
    assert recorded == [(1, "make_tables", 5), (2, "add_index", 5)]


def test_an_older_database_gets_what_is_missing() -> None:
    """What was applied before is not applied again."""
    applied = [(1, "make_tables")]
    _, asked = play(
        migrate([FIRST, SECOND], named_dialect(), now),
        THERE,
        THERE,
        ("select_migrations", applied),
        ("select_migrations", applied),
        ("CREATE INDEX c ON a (x)", []),
        ("insert_migration", []),
    )
    assert asked[-1].arguments == (2, "add_index", 5)


def test_a_current_database_is_left_alone() -> None:
    """Migrating again yields no statement that writes."""
    play(migrate([FIRST], named_dialect(), now), THERE, THERE, ("select_migrations", [(1, "make_tables")]))


def test_a_migration_that_fails_ends_the_flow() -> None:
    """The error comes out, unrecorded and with nothing after it; the transaction around it undoes the rest."""
    script: list[Line] = [
        ("has_migrations", []),
        ("create_migrations", []),
        ("select_migrations", []),
        ("CREATE TABLE a (x)", RuntimeError("syntax")),
    ]
    with pytest.raises(RuntimeError):
        play(migrate([FIRST], named_dialect(), now), *script)


@pytest.mark.parametrize(
    ("applied", "error"),
    [([(1, "make_tables"), (3, "later")], NewerDatabase), ([(1, "something_else")], DatabaseDamaged)],
)
def test_a_database_with_unknown_migrations_is_refused(applied: list[Any], error: type[Exception]) -> None:
    """One that this version does not know is a newer memstore's; one under another name is no memstore's."""
    script: list[Line] = [THERE, ("select_migrations", applied)]
    with pytest.raises(error):
        play(is_current([FIRST, SECOND], named_dialect()), *script)
    with pytest.raises(error):
        play(migrate([FIRST, SECOND], named_dialect(), now), THERE, *script)


def test_a_database_without_the_table_is_not_current() -> None:
    """One look is enough."""
    assert play(is_current([FIRST], named_dialect()), ("has_migrations", []))[0] is False


# index settings ------------------------------------------------------------------------------------------------------


def test_settings_are_recorded_when_first_given() -> None:
    """They are written and put in force, so that a writer under other settings notices."""
    adopted, asked = play(
        adopt_index(remembered(), named_dialect()),
        ("select_index", []),
        ("insert_index", [(3,)]),
        ("enforce_index", []),
    )
    assert adopted == replace(remembered(), id=3)
    assert [line.arguments for line in asked[1:]] == [(KNOWN,), (3,)]


@pytest.mark.parametrize("given", [remembered(), remembered(model=None), remembered(dims=None)])
def test_settings_that_agree_are_not_written_again(given: Remembered) -> None:
    """What a user leaves open is taken from the database; reading is all there is."""
    adopted, _ = play(adopt_index(given, named_dialect()), ("select_index", [(3, KNOWN)]))
    assert adopted == replace(remembered(), id=3)
    assert adopted.covers(given)


def test_settings_that_add_something_complete_those_in_force() -> None:
    """Other fields, or a length that was not known yet, replace what was remembered, under the same id."""
    given = remembered(fields=("title",))
    assert not replace(remembered(), id=3).covers(given)
    adopted, asked = play(adopt_index(given, named_dialect()), ("select_index", [(3, KNOWN)]), ("update_index", []))
    assert (adopted.id, adopted.fields, asked[1].arguments[0]) == (3, ("title",), 3)


OTHERS = [
    (remembered(model="other"), "'m', not by 'other'"),
    (remembered(dims=5), "length 4, not 5"),
    (remembered(metric="l2"), "metric is 'cosine', not 'l2'"),
]


@pytest.mark.parametrize(("given", "message"), OTHERS)
def test_other_settings_are_refused_where_texts_are_indexed(given: Remembered, message: str) -> None:
    """Vectors of two models never meet; the message names both and says how to go on."""
    script: list[Line] = [("select_index", [(3, KNOWN)]), ("has_texts", [(1,)])]
    with pytest.raises(IndexMismatch, match=message):
        play(adopt_index(given, named_dialect()), *script)


@pytest.mark.parametrize("given", [given for given, _ in OTHERS])
def test_other_settings_replace_those_of_a_database_without_texts(given: Remembered) -> None:
    """Where no vector was written yet, a changed mind costs nothing: a new row is put in force."""
    adopted, _ = play(
        adopt_index(given, named_dialect()),
        ("select_index", [(3, KNOWN)]),
        ("has_texts", []),
        ("insert_index", [(4,)]),
        ("enforce_index", []),
    )
    assert adopted == replace(given, id=4)


@pytest.mark.parametrize("settings", ["{", "{}", '{"metric": "other"}', "[]"])
def test_settings_that_cannot_be_read_are_damage(settings: str) -> None:
    """A row that memstore did not write is named as damage, without its contents."""
    script: list[Line] = [("select_index", [(3, settings)])]
    with pytest.raises(DatabaseDamaged, match="its index settings cannot be read"):
        play(recall_index(named_dialect()), *script)


def test_the_first_vector_s_length_is_recorded() -> None:
    """It completes the settings in force; a second store that found the same length agrees."""
    mine = replace(remembered(dims=None), id=3)
    for known in (KNOWN.replace("4", "null"), KNOWN):
        settled, asked = play(
            settle_dims(mine, 4, named_dialect()), ("select_index", [(3, known)]), ("update_index", [])
        )
        assert settled == replace(remembered(), id=3)
        assert asked[1].arguments == (3, KNOWN)


@pytest.mark.parametrize("rows", [[], [(4, KNOWN)], [(3, KNOWN.replace("4", "5"))]])
def test_a_length_is_not_recorded_over_what_others_recorded(rows: list[Any]) -> None:
    """Settings that went, were replaced, or got another length meanwhile: the put is refused."""
    script: list[Line] = [("select_index", rows)]
    with pytest.raises(IndexMismatch, match="another store has changed the index settings"):
        play(settle_dims(replace(remembered(dims=None), id=3), 4, named_dialect()), *script)


# check ---------------------------------------------------------------------------------------------------------------

SOUND: list[Line] = [("integrity", [("ok",)]), ("overrun", []), ("miscounted", []), ("stray_items", [])]
TEXTS = (Text("text", "hello", to_digest("hello")),)
PATHS = ("text",)


def item(
    value: str = '{"text":"hello"}',
    fields: str | None = None,
    indexed: tuple[Any, Any, Any] | None = None,
    *,
    item_id: int = 7,
) -> tuple[Any, ...]:
    """Make an item's row with what is indexed of it: by default the one text that should be, in four dims."""
    return (item_id, value, fields, *(indexed or ('["text"]', to_digest("hello"), 16)))


NOTHING = (None, None, None)


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
    result, asked = play(survey(7, PATHS, 4, named_dialect()), ("items_after", []))
    assert result == Survey(None, [], 0)
    assert asked[0].arguments == (7, 1_000)


DIGEST = to_digest("hello")
FAULTY: dict[str, tuple[Any, Any, Any]] = {
    "none": NOTHING,
    "twice": ('["text", "text"]', DIGEST * 2, 32),
    "length": ('["text"]', DIGEST, 12),
    "no vector": ('["text"]', DIGEST, None),
    "field": ('["other"]', DIGEST, 16),
    "digest": ('["text"]', b"d" * 16, 16),
}


@pytest.mark.parametrize("indexed", FAULTY.values(), ids=FAULTY.keys())
def test_a_survey_finds_texts_that_are_not_those_of_the_value(indexed: tuple[Any, Any, Any]) -> None:
    """Missing, additional, of another field, text or length: the item is to be mended."""
    result, _ = play(survey(0, PATHS, 4, named_dialect()), ("items_after", [item(indexed=indexed)]))
    assert result == Survey(7, [Mend(7, TEXTS)], 0)


SEVERAL = ('["text[*].0", "text[*].1"]', DIGEST * 2, 32)
WELL_INDEXED: dict[str, tuple[tuple[Any, ...], Any]] = {
    "default": (item(), PATHS),
    "no index": (item(indexed=NOTHING), None),
    "no index, an own choice": (item(fields='["text"]', indexed=NOTHING), None),
    "own choice of nothing": (item(fields="[]", indexed=NOTHING), PATHS),
    "own choice": (item(fields='["text"]'), ()),
    "several texts": (item('{"text":["hello","hello"]}', None, SEVERAL), ("text[*]",)),
    "nothing to index": (item("{}", indexed=NOTHING), PATHS),
}


@pytest.mark.parametrize(("row", "paths"), WELL_INDEXED.values(), ids=WELL_INDEXED.keys())
def test_a_survey_knows_what_each_put_chose(row: tuple[Any, ...], paths: Any) -> None:
    """A put's own paths count, else the store's; without an index nothing is compared."""
    result, _ = play(survey(0, paths, 4, named_dialect()), ("items_after", [row]))
    assert result == Survey(7, [], 0)


@pytest.mark.parametrize("broken", [item('{"text":'), item("5"), item("")])
@pytest.mark.parametrize("paths", [PATHS, None])
def test_a_survey_counts_values_that_are_no_json(broken: tuple[Any, ...], paths: Any) -> None:
    """They are counted and passed over, with an index and without; the items after them are compared all the same."""
    rows = [broken, item(indexed=NOTHING, item_id=8)]
    result, _ = play(survey(0, paths, 4, named_dialect()), ("items_after", rows))
    assert result == Survey(8, [Mend(8, TEXTS)] if paths else [], 1)


MENDED = ["select_mendable", "advance_clock", "insert_removals", "update_texts", "touch_namespaces"]


def mending(texts: tuple[Text, ...], found: tuple[int, int | None, int]) -> list[Asked]:
    """Mend an item of which some texts are found; give what was asked."""
    replies: dict[str, Any] = {"select_mendable": [found], "advance_clock": [(4, 12, 1)]}
    statements = [name for name in MENDED if name != "insert_removals" or found[1] is not None]
    vectors = {text.digest: b"vector" for text in texts}
    flow = mend([Mend(7, texts)], vectors, 1, named_dialect())
    return play(flow, *[(name, replies.get(name)) for name in statements])[1]


def test_mending_replaces_the_texts_of_an_item() -> None:
    """The old texts are recorded as gone, the new ones get new ids, and the count moves by the difference."""
    asked = mending(TEXTS, (1, 8, 3))
    assert asked[0].arguments == (7,)
    assert asked[1].arguments == (1,)
    assert asked[2].arguments == ([(4, 8, 3)],)
    assert asked[3].arguments == (7, 12, to_labels(TEXTS), DIGEST, b"vector")
    assert asked[4].arguments == ([(1, -2)],)


def test_mending_adds_texts_where_there_are_none() -> None:
    """Nothing was there, so nothing is recorded as gone."""
    asked = mending(TEXTS, (1, None, 0))
    assert names(asked) == [name for name in MENDED if name != "insert_removals"]
    assert asked[-1].arguments == ([(1, 1)],)


def test_mending_takes_away_texts_that_should_not_be() -> None:
    """All four columns are empty again where nothing is to be indexed."""
    asked = mending((), (1, 8, 3))
    assert asked[3].arguments == (7, None, None, None, None)
    assert asked[4].arguments == ([(1, -3)],)


def test_vectors_of_other_settings_are_not_mended_with() -> None:
    """Another store took the index over while these were made: nothing is written, and the error says how to go on."""
    script: list[Line] = [("select_mendable", [(1, 8, 3)]), ("advance_clock", [(4, 12, 2)])]
    with pytest.raises(IndexMismatch, match="open the store again"):
        play(mend([Mend(7, TEXTS)], {}, 1, named_dialect()), *script)


def test_an_item_written_since_is_not_mended() -> None:
    """Every put gives a new id: one that is gone was written again, rightly, or deleted. The others are mended."""
    _, asked = play(
        mend([Mend(7, TEXTS), Mend(9, ())], {}, 1, named_dialect()),
        ("select_mendable", []),
        ("select_mendable", [(1, 8, 3)]),
        ("advance_clock", [(4, 12, 1)]),
        ("insert_removals", None),
        ("update_texts", []),
        ("touch_namespaces", None),
    )
    assert [line.arguments[0] for line in asked if line.name in ("select_mendable", "update_texts")] == [7, 9, 9]


def test_asking_is_a_flow_of_one_statement() -> None:
    """The rows come back as they are."""
    rows, asked = play(ask(Statement("question")), ("question", [(1,)]))
    assert (rows, names(asked)) == ([(1,)], ["question"])
