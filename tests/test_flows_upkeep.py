"""The flows of opening, driven by canned replies: migrations, index settings, taking the words of older texts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memstore.analysis import to_blob, to_terms
from memstore.config import IndexSettings, Mode
from memstore.embedding import to_digest
from memstore.errors import DatabaseDamaged, IndexMismatch, NewerDatabase
from memstore.indexes import Metric
from memstore.indexing import (
    Remembered,
    adopt_index,
    analyse,
    finish_analysis,
    keep_terms,
    recall_index,
    settle_dims,
    to_remembered,
)
from memstore.schema import Migration, is_current, migrate
from tests.flows import Line, named_dialect, names, play

FIRST = Migration(1, "make_tables", "CREATE TABLE a (x);\n\nCREATE TABLE b (x);\n")
SECOND = Migration(2, "add_index", "CREATE INDEX c ON a (x);\n")
KNOWN = '{"embed":"m","model":"m","dims":4,"metric":"cosine","fields":["text"]}'
"""As an older memstore wrote it."""
WRITTEN = KNOWN[:-1] + ',"dense":true,"mode":"semantic","language":null,"analyser":null,"analysed":true,"words":null}'
NOW = 5
THERE: Line = ("has_migrations", [(1,)])


def remembered(
    *,
    model: str | None = "m",
    dims: int | None = 4,
    metric: Metric = "cosine",
    fields: tuple[str, ...] = ("text",),
    mode: Mode = "semantic",
    language: str | None = None,
) -> Remembered:
    """Make index settings; by default those of `KNOWN`."""
    return Remembered("m", model, dims, metric, fields, mode=mode, language=language)


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
    assert [line.arguments for line in asked[1:]] == [(WRITTEN,), (3,)]


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
        assert asked[1].arguments == (3, WRITTEN)


@pytest.mark.parametrize("rows", [[], [(4, KNOWN)], [(3, KNOWN.replace("4", "5"))]])
def test_a_length_is_not_recorded_over_what_others_recorded(rows: list[Any]) -> None:
    """Settings that went, were replaced, or got another length meanwhile: the put is refused."""
    script: list[Line] = [("select_index", rows)]
    with pytest.raises(IndexMismatch, match="another store has changed the index settings"):
        play(settle_dims(replace(remembered(dims=None), id=3), 4, named_dialect()), *script)


# words ---------------------------------------------------------------------------------------------------------------

HYBRID = replace(remembered(mode="hybrid"), analyser="1/english")
HYBRID_KNOWN = WRITTEN.replace('"semantic"', '"hybrid"').replace('"analyser":null', '"analyser":"1/english"')
RENEWED = ["select_index", "has_texts", "forget_terms", "insert_index", "enforce_index"]


@pytest.mark.parametrize(
    ("given", "mode"), [({}, "hybrid"), ({"metric": "l2"}, "semantic"), ({"mode": "lexical"}, "lexical")]
)
def test_settings_tell_how_a_search_ranks(given: dict[str, Any], mode: str) -> None:
    """What a user leaves open is settled when it is remembered."""
    assert to_remembered(IndexSettings.parse({"embed": len, **given}, "index")).mode == mode
    assert to_remembered(IndexSettings.parse({"embed": len, **given}, "index")).dense


def test_a_database_that_gets_words_is_put_under_new_settings() -> None:
    """A store that does not know of them is refused its next put, which would leave a text without its words."""
    replies: dict[str, Any] = {"select_index": [(3, KNOWN)], "has_texts": [(1,)], "insert_index": [(4,)]}
    script = [(name, replies.get(name)) for name in RENEWED]
    adopted, asked = play(adopt_index(remembered(mode="hybrid"), named_dialect()), *script)
    assert adopted == replace(HYBRID, analysed=False, id=4)
    assert asked[-1].arguments == (4,)


def test_an_empty_database_gets_words_at_once() -> None:
    """Where there are no texts, none has to be analysed."""
    replies: dict[str, Any] = {"select_index": [(3, KNOWN)], "has_texts": [], "insert_index": [(4,)]}
    script = [(name, replies.get(name)) for name in RENEWED if name != "forget_terms"]
    assert play(adopt_index(remembered(mode="hybrid"), named_dialect()), *script)[0] == replace(HYBRID, id=4)


def test_words_made_by_another_analyser_are_made_anew() -> None:
    """Whoever opens a database whose words are those of an older memstore has all of them taken again."""
    older = HYBRID_KNOWN.replace("1/english", "0/english")
    replies: dict[str, Any] = {"select_index": [(3, older)], "has_texts": [(1,)], "insert_index": [(4,)]}
    given = remembered(mode="hybrid")
    assert not replace(HYBRID, id=3, analyser="0/english").covers(given)
    adopted, _ = play(adopt_index(given, named_dialect()), *[(name, replies.get(name)) for name in RENEWED])
    assert adopted == replace(HYBRID, analysed=False, id=4)


def test_words_are_kept_for_a_store_that_ranks_by_meaning() -> None:
    """Once texts have words they keep them: other stores on the database may rank by them."""
    adopted, asked = play(
        adopt_index(remembered(), named_dialect()), ("select_index", [(3, HYBRID_KNOWN)]), ("update_index", [])
    )
    assert (adopted.mode, adopted.analyser) == ("semantic", "1/english")
    assert names(asked) == ["select_index", "update_index"]


def test_words_of_another_language_are_refused() -> None:
    """A query in one language finds nothing among stems of another; what is not said is taken as it is."""
    script: list[Line] = [("select_index", [(3, HYBRID_KNOWN)]), ("has_texts", [(1,)])]
    with pytest.raises(IndexMismatch, match="stemmed as english, not as german"):
        play(adopt_index(remembered(mode="hybrid", language="german"), named_dialect()), *script)
    german = HYBRID_KNOWN.replace("english", "german").replace('"language":null', '"language":"german"')
    adopted, _ = play(adopt_index(remembered(mode="hybrid"), named_dialect()), ("select_index", [(3, german)]))
    assert adopted.language == "german"


LEXICAL = Remembered(None, None, None, "cosine", ("text",), dense=False, mode="lexical", analyser="1/english")
LEXICAL_KNOWN = (
    '{"embed":null,"model":null,"dims":null,"metric":"cosine","fields":["text"],"dense":false,"mode":"lexical",'
    '"language":null,"analyser":"1/english","analysed":true}'
)


def test_vectors_are_not_asked_of_texts_that_have_none() -> None:
    """A store that needs vectors is refused where texts were written without, and welcome where there are none yet."""
    given, asked = remembered(mode="hybrid"), ("select_index", [(3, LEXICAL_KNOWN)])
    with pytest.raises(IndexMismatch, match="its texts have no vectors"):
        play(adopt_index(given, named_dialect()), asked, ("has_texts", [(1,)]))
    replies: list[Line] = [("has_texts", []), ("has_texts", []), ("insert_index", [(4,)]), ("enforce_index", [])]
    adopted, _ = play(adopt_index(given, named_dialect()), asked, *replies)
    assert adopted == replace(HYBRID, id=4)


def test_a_store_without_a_model_leaves_the_vectors_as_they_are() -> None:
    """It ranks by words, and its puts need the model all the same: no text goes without its vector."""
    given = replace(LEXICAL, metric="l2", analyser=None)
    known: Line = ("select_index", [(3, HYBRID_KNOWN)])
    adopted, _ = play(adopt_index(given, named_dialect()), known, ("update_index", []))
    assert adopted == replace(HYBRID, id=3, mode="lexical")
    assert adopted.covers(given)
    adopted, asked = play(adopt_index(LEXICAL, named_dialect()), ("select_index", [(3, LEXICAL_KNOWN)]))
    assert (adopted, names(asked)) == (replace(LEXICAL, id=3), ["select_index"])


def test_terms_are_made_of_the_texts_that_were_indexed() -> None:
    """The paths and digests of a row tell which they were; a text that the value no longer has gives none."""
    value, digest = '{"text":["green tea","dogs"],"n":1}', to_digest("green tea")
    rows = [
        (7, value, '["text[*].1", "text[*].0"]', to_digest("dogs") + digest),
        (9, value, '["text[0]", "gone"]', digest + b"d" * 16),
    ]
    (last_id, made), asked = play(analyse(5, "english", named_dialect()), ("select_unanalysed", rows))
    tea, dogs, nothing = (to_terms(text) for text in ("green tea", "dogs", ""))
    assert (last_id, made) == (9, [(7, to_blob([dogs, tea])), (9, to_blob([tea, nothing]))])
    assert asked[0].arguments == (5, 1_000)
    assert play(analyse(9, "english", named_dialect()), ("select_unanalysed", []))[0] == (None, [])


def test_terms_are_written_with_all_that_tells_others_of_them() -> None:
    """The namespaces move on for the slices; the floor rises for the indexes, since no item gets a new id."""
    script: list[Line] = [
        ("advance_clock", [(8, 50, 4)]),
        ("update_terms", None),
        ("raise_floor", []),
        ("touch_namespaces_of", []),
    ]
    _, asked = play(keep_terms([(7, b"t"), (9, b"u")], replace(HYBRID, id=4), named_dialect()), *script)
    assert [line.arguments for line in asked] == [(0,), ([(7, b"t"), (9, b"u")],), (8,), ([7, 9],)]


@pytest.mark.parametrize("rows", [[], [(5, HYBRID_KNOWN)]])
def test_terms_are_not_written_under_settings_that_were_replaced(rows: list[Any]) -> None:
    """Another store chose otherwise meanwhile: nothing is written, and the error says how to go on."""
    mine = replace(HYBRID, id=4)
    with pytest.raises(IndexMismatch, match="open the store again"):
        play(keep_terms([(7, b"t")], mine, named_dialect()), ("advance_clock", [(8, 50, 5)]))
    with pytest.raises(IndexMismatch, match="open the store again"):
        play(finish_analysis(mine, named_dialect()), ("select_index", rows))


def test_the_end_of_the_analysis_is_recorded() -> None:
    """The next opening looks for nothing."""
    known = HYBRID_KNOWN.replace('"analysed":true', '"analysed":false')
    flow = finish_analysis(replace(HYBRID, id=4), named_dialect())
    finished, asked = play(flow, ("select_index", [(4, known)]), ("update_index", []))
    assert finished == replace(HYBRID, id=4)
    assert asked[1].arguments == (4, HYBRID_KNOWN)
