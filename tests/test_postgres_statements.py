"""How statements for Postgres are spelled, without a server: names, parameters, ranges, filters, terms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memstore.analysis import to_blob
from memstore.ann import Texts
from memstore.dialects.postgres import PostgresDialect
from memstore.dialects.postgres_text import Select, at_once, grouped, quote
from memstore.dialects.postgres_writes import to_term_arrays
from memstore.errors import EmbeddingError, InvalidArgument
from memstore.filters import Narrowing
from memstore.indexes import Metric
from memstore.indexes.pgvector import Kind, VectorColumn, to_score
from memstore.namespaces import to_path, to_range
from memstore.steps import Statement

SCHEMA = 'odd "name"'
COLUMN = VectorColumn('"ext"', "vector", 1, 2)


def narrowed(relation: Any, operand: Any, *paths: tuple[str, ...]) -> Statement:
    """Spell one condition of a filter."""
    return Select(quote(SCHEMA), "SELECT").narrowed([Narrowing(paths or (("k",),), relation, operand)]).done()


def test_every_name_stands_in_the_schema() -> None:
    """However the schema is called; operators that begin with the same sign are left alone."""
    statement = PostgresDialect(SCHEMA).say("SELECT 1 FROM @items i JOIN @texts t ON t.terms @> ARRAY[1]")
    assert statement.sql == (
        'SELECT 1 FROM "odd ""name""".memstore_items i JOIN "odd ""name""".memstore_texts t ON t.terms @> ARRAY[1]'
    )


def test_operands_are_bound() -> None:
    """Neither a key nor an operand ever stands in the text, and the text is the same for all of a kind."""
    first = narrowed("equal", "it's", ('a"b', "c"))
    assert first.params == [['a"b', "c"], "it's", "it's"]
    assert first.sql == narrowed("equal", "other", ("x", "y")).sql
    assert narrowed("among", ("a", "b")).params == [["k"], ["a", "b"]]


@pytest.mark.parametrize(
    ("relation", "operand", "part"),
    [
        ("equal", "x", 'COLLATE "C" ='),
        ("at_least", "x", 'COLLATE "C" >='),
        ("at_most", 5, "<= $2::numeric"),
        ("equal", 2.5, "= $2::numeric"),
    ],
)
def test_texts_compare_by_code_point_and_numbers_exactly(relation: str, operand: Any, part: str) -> None:
    """Numbers that are too long for the database to read pass: the verdict is Python's."""
    sql = narrowed(relation, operand).sql
    assert part in sql
    assert ("length(" in sql) is not isinstance(operand, str)


def test_booleans_equal_booleans_and_are_not_ordered() -> None:
    """No number is taken for a truth value."""
    truth = {"yes": True, "no": False}
    assert narrowed("equal", truth["yes"]).params == [["k"], "true", "true"]
    assert "false)" in narrowed("at_least", truth["no"]).sql


@pytest.mark.parametrize(
    ("operand", "text"), [("x", "x"), (5, "5"), (5.0, "5"), (-2.5, "-2.5"), (10**15, None), (1e-7, "1e-07")]
)
def test_an_equal_value_is_written_with_the_operand_in_it(operand: Any, text: str | None) -> None:
    """So most values need not be parsed; where an equal number may be written otherwise, all are."""
    statement = narrowed("equal", operand)
    assert ("strpos" in statement.sql) is (text is not None)
    assert text is None or statement.params[-1] == text


def test_two_spellings_of_a_field_are_alternatives() -> None:
    """A dotted name is a key or a way down."""
    assert " OR " in narrowed("equal", "x", ("a.b",), ("a", "b")).sql


@pytest.mark.parametrize("labels", [("a",), ("a" * 1023,), ("a" * 5000,), ("a" * 1023, "b")])
def test_a_range_of_paths_uses_the_head_that_is_indexed(labels: tuple[str, ...]) -> None:
    """No parameter for the index is longer than what it holds; of longer paths the whole decides."""
    select = Select('"s"', "SELECT n.id FROM @namespaces n WHERE true").in_range(*to_range(to_path(labels)))
    start, end, *whole = select.done().params
    assert max(len(start), len(end)) <= 1024
    assert tuple(whole or (start, end)) == to_range(to_path(labels))


def test_everything_has_no_range() -> None:
    """The prefix of all namespaces adds no condition."""
    assert Select('"s"', "SELECT 1 WHERE true").in_range(*to_range(b"")).done() == Statement("SELECT 1 WHERE true", [])


def test_statements_at_once_keep_their_parameters() -> None:
    """Those of each follow those of the one before."""
    joined = at_once([Statement("A $1 $2", (1, 2)), Statement("B $1", (3,)), Statement(" C $2 $1", (4, 5))])
    assert joined == Statement("WITH part0 AS (A $1 $2), part1 AS (B $3) C $5 $4", [1, 2, 3, 4, 5])
    assert at_once([Statement("A", ())]) == Statement("A", ())


def test_rows_are_grouped_by_their_place() -> None:
    """Places without a row have an empty list."""
    assert grouped(3)([(3, "c"), (1, "a"), (1, "b")]) == [[("a",), ("b",)], [], [("c",)]]


def test_terms_become_arrays_of_signed_numbers() -> None:
    """One array a text, in the order of the unsigned numbers; texts without terms have an empty one, others none."""
    terms = [np.array([1, 2**32 - 1], np.uint32), np.array([], np.uint32), np.array([7], np.uint32)]
    spelled = ["{1,-1}", "{}", "{7}"]
    assert to_term_arrays([(to_blob(terms), 3)]) == spelled
    assert to_term_arrays([(to_blob(terms), None)]) == spelled
    assert to_term_arrays([(None, 2), (to_blob(terms[2:]), 1)]) == [None, None, "{7}"]


def test_a_transaction_has_so_many_ids() -> None:
    """A batch that would run into the ids of the next is refused."""
    dialect = PostgresDialect("public")
    assert dialect.advance_clock(2**24 - 1).params[0] == 2**24 - 1
    with pytest.raises(InvalidArgument, match="several"):
        dialect.advance_clock(2**24)


@pytest.mark.parametrize(
    ("kind", "metric", "dims", "indexed"),
    [
        ("vector", "cosine", 384, "halfvec"),
        ("vector", "cosine", 4_000, "halfvec"),
        ("vector", "cosine", 4_001, None),
        ("vector", "l2", 2_000, "vector"),
        ("vector", "inner_product", 2_001, "halfvec"),
        ("vector", "l2", 4_001, None),
        ("halfvec", "l2", 384, "halfvec"),
    ],
)
def test_what_an_index_keeps(kind: Kind, metric: Metric, dims: int, indexed: Kind | None) -> None:
    """16 bits where they hold every number that may come, or where nothing else is left."""
    assert VectorColumn("s", kind, 1, 2).indexed_kind(metric, dims) == indexed


def test_pgvectors_names_are_qualified() -> None:
    """By the schema of the extension, wherever that is."""
    assert COLUMN.type == '"ext".vector'
    assert COLUMN.operator("l2") == 'OPERATOR("ext".<->)'
    assert COLUMN.indexed("e", "halfvec", 3) == '(e::"ext".halfvec(3))'
    assert COLUMN.operator_class("cosine", "halfvec") == '"ext".halfvec_ip_ops'


def test_distances_become_scores() -> None:
    """A cosine is rounded and stays in its bounds; nothing is minus zero."""
    scores = to_score("cosine", np.array([-1.0000001, 0.0, 0.1234567]))
    assert scores.tolist() == [1.0, 0.0, -0.123457]
    assert not np.signbit(scores[1])
    assert to_score("l2", np.array([2.5])).tolist() == [-2.5]


def test_vectors_that_cannot_be_kept_are_refused() -> None:
    """Too long for pgvector, or too large for 16 bits."""
    dialect = PostgresDialect("public")
    dialect.vectors, dialect.metric = VectorColumn("s", "halfvec", 1, 2), "l2"
    with pytest.raises(EmbeddingError, match="65504"):
        dialect.to_kept(np.array([[70_000.0]], np.float32))
    with pytest.raises(EmbeddingError, match="16000 dims, got 16001"):
        dialect.to_kept(np.zeros((1, 16_001), np.float32))


def test_texts_are_found_by_item_and_place() -> None:
    """Those that are not among them are told from those that are."""
    texts = Texts(np.array([5, 5, 9]), np.array([0, 1, 0]))
    found = texts.find(np.array([5, 9, 5, 9, 4, 10]), np.array([1, 0, 0, 1, 0, 0]))
    assert found.tolist() == [1, 2, 0, -1, -1, -1]
    assert Texts(np.array([], int), np.array([], int)).find(np.array([1]), np.array([0])).tolist() == [-1]
