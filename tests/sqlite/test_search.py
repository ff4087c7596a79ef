"""Rules 13 to 16 on SQLite."""

from tests.conformance.modes import ModesConformance
from tests.conformance.scores import ScoresConformance
from tests.conformance.search import SearchConformance


class TestSearch(SearchConformance):
    """Pages, order and scope."""


class TestScores(ScoresConformance):
    """Scores by meaning."""


class TestModes(ModesConformance):
    """Ranking by words, and by both."""
