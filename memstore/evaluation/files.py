"""Cases and memories from files: JSON lines, or conversations in the layout of LoCoMo.

A file that begins with `[` holds conversations, each with its `conversation`, `turns` and `questions`; any other is
read line by line. What is wrong with a file is said with its name and line, or conversation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final

from langgraph.store.base import PutOp

from memstore.errors import InvalidArgument
from memstore.evaluation.cases import Case
from memstore.evaluation.checks import check_text, to_labels

_CATEGORIES: Final = {1: "several turns", 2: "time", 3: "world knowledge", 4: "one turn", 5: "without an answer"}
"""LoCoMo's categories (Maharana et al., ACL 2024), by what answers a question."""


def load_cases(path: str | PathLike[str]) -> list[Case]:
    """Read cases.

    Args:
        path: JSON lines with `query`, `namespace`, `relevant` (a list of keys, or an object of keys and grades) and
            perhaps `category`; other keys are ignored. Or conversations in the layout of LoCoMo: a case for every
            question that names its evidence, in the namespace `(conversation,)`.

    Raises:
        InvalidArgument: The file cannot be read, or holds something else; the message names the line.
    """
    text = _read(path)
    if is_conversations(text):
        cases = list(_to_cases(path, text))
    else:
        cases = [_to_case(line, where) for line, where in _to_lines(path, text)]
    if not cases:
        raise InvalidArgument(f"{path} holds no cases; a line has query, namespace and relevant")
    return cases


def load_memories(path: str | PathLike[str]) -> list[PutOp]:
    """Read the items that cases are asked of, as ops for `fill` or a store's `batch`.

    Args:
        path: JSON lines with `namespace`, `key` and `value`; other keys are ignored. Or conversations in the layout of
            LoCoMo: every turn becomes `{"text": ..., "when": ...}` under its id in the namespace `(conversation,)`.

    Raises:
        InvalidArgument: The file cannot be read, or holds something else; the message names the line.
    """
    text = _read(path)
    if is_conversations(text):
        ops = list(_to_turns(path, text))
    else:
        ops = [_to_put(line, where) for line, where in _to_lines(path, text)]
    if not ops:
        raise InvalidArgument(f"{path} holds no memories; a line has namespace, key and value")
    return ops


def holds_conversations(path: str | PathLike[str]) -> bool:
    """Say whether a file has the layout of LoCoMo, and so brings its memories along.

    Raises:
        InvalidArgument: The file cannot be read.
    """
    return is_conversations(_read(path))


def is_conversations(text: str) -> bool:
    """Say whether a text has the layout of LoCoMo rather than lines."""
    return text.lstrip().startswith("[")


def _read(path: str | PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path} is not UTF-8 from byte {error.start} on") from error


# JSON lines --------------------------------------------------------------------------------------------------------


def _to_lines(path: object, text: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Give every line's object, and where it stands."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            parsed = json.loads(line)
        except json.JSONDecodeError as error:
            raise InvalidArgument(f"{where} is not JSON: {error.msg} at column {error.colno}") from error
        except (ValueError, RecursionError) as error:
            raise InvalidArgument(f"{where} nests too deep, or holds a number of too many digits") from error
        if not isinstance(parsed, dict):
            raise InvalidArgument(f"{where} holds a JSON object, got {type(parsed).__name__}")
        yield parsed, where


def _to_case(line: Mapping[str, Any], where: str) -> Case:
    query, namespace, relevant = (_take(line, name, where) for name in ("query", "namespace", "relevant"))
    try:
        return Case(query, namespace, relevant, line.get("category") or "")
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {_to_detail(error)}") from error


def _to_put(line: Mapping[str, Any], where: str) -> PutOp:
    namespace, key, value = (_take(line, name, where) for name in ("namespace", "key", "value"))
    try:
        labels = to_labels("a memory's namespace", namespace)
        check_text("a memory's key", key)
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {_to_detail(error)}") from error
    if not labels:
        raise InvalidArgument(f"{where}: a memory's namespace has at least one label")
    if not isinstance(value, dict):
        raise InvalidArgument(f"{where}: a memory's value is a JSON object, got {type(value).__name__}")
    return PutOp(labels, key, value)


def _take(given: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in given:
        raise InvalidArgument(f"{where} has no {name!r}")
    return given[name]


def _to_detail(error: InvalidArgument) -> str:
    """Give what an error says beyond how all of its kind begin."""
    return str(error).partition(": ")[2]


# LoCoMo ------------------------------------------------------------------------------------------------------------


def _to_conversations(path: object, text: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Give every conversation, and how a message names it."""
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"{path}, line {error.lineno} is not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{path} nests too deep, or holds a number of too many digits") from error
    for number, conversation in enumerate(parsed, start=1):
        where = f"{path}, conversation {number}"
        if not isinstance(conversation, dict):
            raise InvalidArgument(f"{where} is a JSON object, got {type(conversation).__name__}")
        if not isinstance(_take(conversation, "conversation", where), str):
            raise InvalidArgument(f"{where}: 'conversation' is its name, as text")
        yield conversation, where


def _to_entries(conversation: Mapping[str, Any], name: str, where: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Give the turns or the questions of a conversation, and how a message names each."""
    entries = _take(conversation, name, where)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidArgument(f"{where}: {name!r} is a list of JSON objects")
    for number, entry in enumerate(entries, start=1):
        yield entry, f"{where}, {name} {number}"


def _to_cases(path: object, text: str) -> Iterator[Case]:
    for conversation, where in _to_conversations(path, text):
        for asked, place in _to_entries(conversation, "questions", where):
            if not asked.get("evidence"):
                continue
            category = asked.get("category", "")
            named = _CATEGORIES.get(category, str(category)) if isinstance(category, int) else category
            line = {
                "query": _take(asked, "question", place),
                "namespace": [conversation["conversation"]],
                "relevant": asked["evidence"],
                "category": named,
            }
            yield _to_case(line, place)


def _to_turns(path: object, text: str) -> Iterator[PutOp]:
    for conversation, where in _to_conversations(path, text):
        for turn, place in _to_entries(conversation, "turns", where):
            value = {"text": _take(turn, "text", place)}
            if "when" in turn:
                value["when"] = turn["when"]
            line = {"namespace": [conversation["conversation"]], "key": _take(turn, "id", place), "value": value}
            yield _to_put(line, place)
