"""A case: what is asked of a store, where, and which keys answer it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from memstore.errors import InvalidArgument
from memstore.evaluation.checks import check_text, to_labels


@dataclass(frozen=True, slots=True)
class Case:
    """A query whose answers are known.

    Attributes:
        query: What is looked for, in words.
        namespace: The prefix that is searched; `()` for everything.
        relevant: The keys that answer it: given as keys or as a mapping of keys to grades, kept as such a mapping. A
            grade is a whole number, higher is better, 0 is not relevant; a key without one has 1. Grades weigh in nDCG.
        category: What kind of query it is; empty where it has none.

    Raises:
        InvalidArgument: A part is not of its kind, or no key is relevant.
    """

    query: str
    namespace: tuple[str, ...]
    relevant: Collection[str] = field(hash=False)
    category: str = ""

    def __post_init__(self) -> None:
        check_text("a case's query", self.query)
        check_text("a case's category", self.category, may_be_empty=True)
        object.__setattr__(self, "namespace", to_labels("a case's namespace", self.namespace))
        object.__setattr__(self, "relevant", _to_grades(self.relevant))

    @property
    def grades(self) -> Mapping[str, int]:
        """The relevant keys with their grades."""
        return cast(Mapping[str, int], self.relevant)


def _to_grades(relevant: Any) -> dict[str, int]:
    """Give each relevant key its grade."""
    if isinstance(relevant, str) or not isinstance(relevant, Collection):
        raise InvalidArgument(f"a case's relevant keys are a collection or a mapping, got {type(relevant).__name__}")
    grades = dict(relevant) if isinstance(relevant, Mapping) else dict.fromkeys(relevant, 1)
    for key, grade in grades.items():
        if not isinstance(key, str):
            raise InvalidArgument(f"a relevant key is text, got {type(key).__name__}")
        if isinstance(grade, bool) or not isinstance(grade, int) or grade < 0:
            raise InvalidArgument(f"the grade of a relevant key is a whole number from 0 on; that of {key!r} is not")
    if not any(grades.values()):
        raise InvalidArgument("a case has at least one relevant key; leave out queries that nothing answers")
    return grades
