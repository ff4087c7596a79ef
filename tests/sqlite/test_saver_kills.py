"""Graphs on SQLite whose process is killed."""

from __future__ import annotations

from tests.conformance.saver_kills import KillsConformance


class TestKills(KillsConformance):
    """Resumed by another process."""
