"""Files of cases and memories: what is read from them, and how their faults are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import PutOp

from memstore.errors import InvalidArgument
from memstore.evaluation import Case, load_cases, load_memories

Write = Callable[[str], Path]
LOCOMO: list[dict[str, Any]] = [
    {
        "conversation": "26",
        "turns": [
            {"id": "D1:1", "when": "1:56 pm on 8 May, 2023", "text": "Ada: I play the cello."},
            {"id": "D1:2", "text": "Ben: Since when?"},
        ],
        "questions": [
            {"question": "What does Ada play?", "category": 4, "evidence": ["D1:1"]},
            {"question": "Who sails?", "category": 5, "evidence": []},
            {"question": "When?", "category": 2, "evidence": ["D1:1", "D1:2"]},
        ],
    },
    {"conversation": "27", "turns": [{"id": "D1:1", "text": "Eve: Hello."}], "questions": []},
]
CASE = '{"query": "q", "namespace": ["n"], "relevant": ["a"]}'
MEMORY = '{"namespace": ["n"], "key": "a", "value": {"text": "t"}}'


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file of the test's own."""

    def write(content: str) -> Path:
        path = tmp_path / "given.jsonl"
        path.write_text(content, encoding="utf-8")
        return path

    return write


def test_lines_are_cases(write: Write) -> None:
    """With grades or without, with a category or without; blank lines and unknown keys say nothing."""
    path = write(
        f'\ufeff{CASE}\n\n{{"query": "Où?", "namespace": [], "relevant": {{"b": 2}}, "category": "time", "id": 7}}\r\n'
    )
    assert load_cases(path) == [Case("q", ("n",), {"a": 1}), Case("Où?", (), {"b": 2}, "time")]
    assert load_cases(str(path)) == load_cases(path)


def test_lines_are_memories(write: Write) -> None:
    """As ops that a store's batch takes; line separators of Unicode within a text end no line."""
    value = {"text": "one\u2028two", "n": [1]}
    path = write(json.dumps({"namespace": ["m", "ada"], "key": "k", "value": value}, ensure_ascii=False))
    assert load_memories(path) == [PutOp(("m", "ada"), "k", value)]


def test_conversations_are_cases_and_memories(write: Write) -> None:
    """Every question with evidence is asked of its own conversation; every turn is an item there."""
    path = write(json.dumps(LOCOMO))
    assert load_cases(path) == [
        Case("What does Ada play?", ("26",), ["D1:1"], "one turn"),
        Case("When?", ("26",), ["D1:1", "D1:2"], "time"),
    ]
    assert load_memories(path) == [
        PutOp(("26",), "D1:1", {"text": "Ada: I play the cello.", "when": "1:56 pm on 8 May, 2023"}),
        PutOp(("26",), "D1:2", {"text": "Ben: Since when?"}),
        PutOp(("27",), "D1:1", {"text": "Eve: Hello."}),
    ]


def test_a_case_is_what_it_says() -> None:
    """Keys are grades of 1, however they are given; equal cases are equal and can be told in a set."""
    assert Case("q", ("n",), {"a", "b"}) == Case("q", ("n",), ["b", "a"]) == Case("q", ("n",), {"a": 1, "b": 1})
    assert Case("q", ("n",), ["a"]).grades == {"a": 1}
    assert len({Case("q", ("n",), ["a"]), Case("q", ("n",), ["a"]), Case("q", ("m",), ["a"])}) == 2


LINES = {
    "not JSON": ("{", "line 2 is not JSON: Expecting property name enclosed in double quotes at column 2"),
    "no object": ('"q"', "line 2 holds a JSON object, got str"),
    "no query": ('{"namespace": ["n"], "relevant": ["a"]}', "line 2 has no 'query'"),
    "no namespace": ('{"query": "q", "relevant": ["a"]}', "line 2 has no 'namespace'"),
    "no relevant": ('{"query": "q", "namespace": ["n"]}', "line 2 has no 'relevant'"),
    "empty query": ('{"query": " ", "namespace": ["n"], "relevant": ["a"]}', "line 2: a case's query is text that is"),
    "query": ('{"query": 3, "namespace": ["n"], "relevant": ["a"]}', "line 2: a case's query is text, got int"),
    "namespace": (
        '{"query": "q", "namespace": "n", "relevant": ["a"]}',
        r"line 2: a case's namespace is a sequence of texts such as \('memories', 'ada'\), got str",
    ),
    "label": ('{"query": "q", "namespace": [1], "relevant": ["a"]}', "line 2: a case's namespace is a sequence"),
    "nothing relevant": ('{"query": "q", "namespace": [], "relevant": []}', "line 2: a case has at least one relevant"),
    "grades of 0": (
        '{"query": "q", "namespace": [], "relevant": {"a": 0}}',
        "line 2: a case has at least one relevant",
    ),
    "one key": (
        '{"query": "q", "namespace": [], "relevant": "a"}',
        "line 2: a case's relevant keys are a collection or a mapping, got str",
    ),
    "key": ('{"query": "q", "namespace": [], "relevant": [1]}', "line 2: a relevant key is text, got int"),
    "grade": ('{"query": "q", "namespace": [], "relevant": {"a": 0.5}}', "line 2: the grade of .* that of 'a' is not"),
    "true": ('{"query": "q", "namespace": [], "relevant": {"a": true}}', "line 2: the grade of .* that of 'a' is not"),
    "category": (
        '{"query": "q", "namespace": [], "relevant": ["a"], "category": 3}',
        "line 2: a case's category is text, got int",
    ),
}


@pytest.mark.parametrize(("line", "message"), LINES.values(), ids=LINES)
def test_a_line_that_is_no_case_is_named(write: Write, line: str, message: str) -> None:
    """By file and number, with what was expected and what came."""
    with pytest.raises(InvalidArgument, match=rf"given\.jsonl, {message}"):
        load_cases(write(f"{CASE}\n{line}\n{CASE}"))


PUTS = {
    "no key": ('{"namespace": ["n"], "value": {}}', "line 2 has no 'key'"),
    "empty key": ('{"namespace": ["n"], "key": "", "value": {}}', "line 2: a memory's key is text that is not empty"),
    "value": ('{"namespace": ["n"], "key": "a", "value": null}', "line 2: a memory's value is a JSON object, got None"),
    "namespace": ('{"namespace": "n", "key": "a", "value": {}}', "line 2: a memory's namespace is a sequence of texts"),
    "no label": ('{"namespace": [], "key": "a", "value": {}}', "line 2: a memory's namespace has at least one label"),
}


@pytest.mark.parametrize(("line", "message"), PUTS.values(), ids=PUTS)
def test_a_line_that_is_no_memory_is_named(write: Write, line: str, message: str) -> None:
    """By file and number; a value of null would delete, and is refused."""
    with pytest.raises(InvalidArgument, match=rf"given\.jsonl, {message}"):
        load_memories(write(f"{MEMORY}\n{line}"))


CONVERSATIONS: dict[str, tuple[Any, str]] = {
    "not an object": ([1], "conversation 1 is a JSON object, got int"),
    "no name": ([LOCOMO[0], {"turns": []}], "conversation 2 has no 'conversation'"),
    "name": ([{"conversation": 26}], "conversation 1: 'conversation' is its name, as text"),
    "no questions": ([{"conversation": "26", "turns": []}], "conversation 1 has no 'questions'"),
    "questions": ([{"conversation": "26", "questions": [1]}], "conversation 1: 'questions' is a list of JSON objects"),
    "no question": (
        [{"conversation": "26", "questions": [{}, {"evidence": ["a"]}]}],
        "conversation 1, questions 2 has no 'question'",
    ),
    "evidence": (
        [{"conversation": "26", "questions": [{"question": "q", "evidence": [1]}]}],
        "conversation 1, questions 1: a relevant key is text, got int",
    ),
}


@pytest.mark.parametrize(("given", "message"), CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_a_conversation_that_is_none_is_named(write: Write, given: Any, message: str) -> None:
    """By its place in the file."""
    with pytest.raises(InvalidArgument, match=rf"given\.jsonl, {message}"):
        load_cases(write(json.dumps(given)))


def test_conversations_that_are_not_json_are_named_by_line(write: Write) -> None:
    """A file that was cut off."""
    with pytest.raises(InvalidArgument, match=r"given\.jsonl, line 2 is not JSON: Expecting value"):
        load_cases(write("[\n"))


def test_a_turn_that_is_none_is_named(write: Write) -> None:
    """By conversation and place."""
    wrong = [{"conversation": "26", "turns": [{"id": "a", "text": "t"}, {"text": "t"}]}]
    with pytest.raises(InvalidArgument, match=r"given\.jsonl, conversation 1, turns 2 has no 'id'"):
        load_memories(write(json.dumps(wrong)))


@pytest.mark.parametrize(("load", "kind"), [(load_cases, "cases"), (load_memories, "memories")])
def test_a_file_of_nothing_is_named(write: Write, tmp_path: Path, load: Callable[[Path], Any], kind: str) -> None:
    """An empty file, one that is missing, and one that is no text."""
    for content in ("", " \n", "[]"):
        with pytest.raises(InvalidArgument, match=rf"given\.jsonl holds no {kind}"):
            load(write(content))
    with pytest.raises(InvalidArgument, match=r"none\.jsonl cannot be read: No such file or directory"):
        load(tmp_path / "none.jsonl")
    (tmp_path / "bytes.jsonl").write_bytes(b'{"\xff')
    with pytest.raises(InvalidArgument, match=r"bytes\.jsonl is not UTF-8 from byte 2 on"):
        load(tmp_path / "bytes.jsonl")
