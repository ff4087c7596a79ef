"""What is measured of each ranking, by ir-measures: recall, hit, reciprocal rank and nDCG, each within the first k.

ir-measures sorts a run by its scores and settles ties in its own way. It is handed ranks as scores, so that the order
is the store's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from memstore.errors import InvalidArgument
from memstore.evaluation.cases import Case
from memstore.evaluation.extras import need

KINDS: Final = {"recall": "R", "hit": "Success", "mrr": "RR", "ndcg": "nDCG"}
"""What is measured, and the name of the measure in ir-measures.

- recall: the share of the relevant keys among the first k.
- hit: 1 where one of them is there, else 0.
- mrr: 1 / the rank of the first of them, 0 where none is there; its mean over queries is the MRR.
- ndcg: the grades found, discounted by log2(1 + rank), as a share of what the best order gives (Järvelin and
  Kekäläinen, 2002).
"""


def to_name(kind: str, cutoff: int) -> str:
    """Name a metric, such as `recall@10`."""
    return f"{kind}@{cutoff}"


def to_cutoffs(k: Any) -> tuple[int, ...]:
    """Check at which ranks rankings are cut: one or several, in rising order, each once.

    Raises:
        InvalidArgument: One is no whole number above 0, or there are none.
    """
    given = [k] if isinstance(k, int) else list(k) if isinstance(k, list | tuple | set | frozenset | range) else []
    if not given or any(isinstance(cutoff, bool) or not isinstance(cutoff, int) or cutoff < 1 for cutoff in given):
        raise InvalidArgument("k is a whole number from 1 on, or several such as (1, 5, 10)")
    return tuple(sorted(set(given)))


def measure(cases: Sequence[Case], rankings: Sequence[Sequence[str]], cutoffs: Sequence[int]) -> list[dict[str, float]]:
    """Measure rankings.

    A key is found once: where items of several namespaces below the prefix share it, or a store gives an item twice,
    the later ones count as items that nobody asked for.

    Args:
        cases: What was asked.
        rankings: The keys that came, best first; one ranking for each case.
        cutoffs: The ranks at which they are cut.

    Returns:
        The metrics of each case, by name.

    Raises:
        MissingExtra: ir-measures is not installed.
    """
    ir: Any = need("ir_measures", "ir-measures")
    names = {getattr(ir, KINDS[kind]) @ cutoff: to_name(kind, cutoff) for cutoff in cutoffs for kind in KINDS}
    judged, run = [], []
    for at, (case, ranking) in enumerate(zip(cases, rankings, strict=True)):
        documents = {key: f"relevant {number}" for number, key in enumerate(case.grades)}
        judged += [ir.Qrel(str(at), documents[key], grade) for key, grade in case.grades.items()]
        for rank, key in enumerate(ranking):
            run.append(ir.ScoredDoc(str(at), documents.pop(key, f"other {rank}"), float(len(ranking) - rank)))
    measured: list[dict[str, float]] = [dict.fromkeys(names.values(), 0.0) for _ in cases]
    for value in ir.iter_calc(list(names), judged, run):
        measured[int(value.query_id)][names[value.measure]] = float(value.value)
    return measured
