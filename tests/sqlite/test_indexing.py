"""Rules 17 to 21 on SQLite."""

from tests.conformance.fields import FieldsConformance
from tests.conformance.indexing import IndexingConformance
from tests.conformance.remembering import RememberingConformance, RememberingWordsConformance


class TestIndexing(IndexingConformance):
    """Texts and their vectors."""


class TestFields(FieldsConformance):
    """What is embedded of a value."""


class TestRemembering(RememberingConformance):
    """What the database knows of its model."""


class TestRememberingWords(RememberingWordsConformance):
    """What the database knows of its words."""
