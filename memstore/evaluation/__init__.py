"""How well a store's search finds what it should: cases with known answers, measured, with intervals and comparisons.

`evaluate` asks a store every case under each setting and gives a `Report`. It works on any LangGraph `BaseStore`, so
that stores can be compared. What the extra `eval` brings is imported when it is first used.
"""

from memstore.evaluation.cases import Case
from memstore.evaluation.files import load_cases, load_memories
from memstore.evaluation.filling import fill
from memstore.evaluation.outcomes import Change, Comparison, Estimate, Found, Outcome, SettingReport, Summary
from memstore.evaluation.report import Report
from memstore.evaluation.running import evaluate

__all__ = [
    "Case",
    "Change",
    "Comparison",
    "Estimate",
    "Found",
    "Outcome",
    "Report",
    "SettingReport",
    "Summary",
    "evaluate",
    "fill",
    "load_cases",
    "load_memories",
]
