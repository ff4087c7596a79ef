"""The demonstration, with the real model: what a new user sees first."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from memstore import MemStore
from memstore.demo.__main__ import FACTS, QUESTIONS, ask, main

pytestmark = pytest.mark.model


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run it with some arguments."""
    monkeypatch.setattr(sys, "argv", ["memstore.demo", *arguments])
    return main()


def test_an_agent_remembers_across_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One process teaches, another asks: every question finds the right user's fact first, and both users' are kept."""
    database = tmp_path / "memories.db"
    assert run(monkeypatch, "--database", str(database)) == 0
    shown = capfd.readouterr().out
    assert f"{len(QUESTIONS)} of {len(QUESTIONS)} questions" in shown
    assert "ran find_hotel and approve when run again" in shown
    assert "ran approve, book:pay, book:confirm, report" in shown
    assert "Booked: Hotel Avenida, a room with a view, the train at 9:15." in shown
    assert "4 messages are kept" in shown
    assert all(fact in shown for facts in FACTS.values() for fact in facts)
    with MemStore.open(database) as store:
        assert store.list_namespaces() == [("memories", "ada"), ("memories", "ben")]
    assert asyncio.run(ask(str(database), None)) == 0


def test_an_agent_remembers_in_postgres(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The same in a server that is started for it and gone afterwards."""
    assert run(monkeypatch, "--postgres") == 0
    shown = capfd.readouterr().out
    assert "kept in PostgreSQL" in shown
    assert f"{len(QUESTIONS)} of {len(QUESTIONS)} questions" in shown


def test_nothing_is_answered_from_an_empty_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The agent says that it knows nothing, and the exit code says that questions went unanswered."""
    assert asyncio.run(ask(str(tmp_path / "empty.db"), None)) == 1
    assert capsys.readouterr().out.count("I know nothing about that yet.") == len(QUESTIONS)


def test_a_missing_chat_model_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback for a provider that is not installed; the line says what to install."""
    assert run(monkeypatch, "--ask", "--database", str(tmp_path / "m.db"), "--model", "nosuchprovider:name") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("memstore: ")
    assert "nosuchprovider:name" in line
