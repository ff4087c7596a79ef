"""How often the right memories are among the first ten: on conversations, on abstracts, and on made-up memories.

Run `python -m benchmarks.recall --help`. Each set is put into a store once for each way of indexing it, and its
questions are asked in every setting; texts are embedded once, and their vectors kept where `--vectors` says.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import PutOp

from benchmarks.measure import to_table
from memstore import LateInteraction, MemStore
from memstore.evaluation import Case, Report, evaluate, fill, load_cases, load_memories
from memstore.models import LocalModel

_MODEL: Final = "all-MiniLM-L6-v2"
_K: Final = 10
_IN_MEMORY: Final = ":memory:"
_UNANSWERED: Final = "without an answer"
_MEMORIES: Final = Path(__file__).resolve().parents[1] / "notebooks" / "data"
_SENTENCE_ENDS: Final = re.compile(r"['\"]\s*\n\s*['\"]")
Settings: TypeAlias = Mapping[str, Mapping[str, Any]]
_MODES: Final[Settings] = {mode: {"mode": mode} for mode in ("hybrid", "semantic", "lexical")}


@dataclass(frozen=True, slots=True)
class DataSet:
    """Memories, and questions about them."""

    name: str
    metric: str
    memories: Sequence[PutOp]
    cases: Sequence[Case]
    stores: Mapping[str, tuple[Mapping[str, Any], Settings]]
    """Ways of indexing them, each with the settings in which it is asked."""


class KeptVectors(Embeddings):
    """A model whose vectors are kept in a file.

    Args:
        folder: Where; None keeps them in memory alone.
    """

    def __init__(self, folder: Path | None) -> None:
        self.model = _MODEL
        self._local = LocalModel(_MODEL)
        self._file = None if folder is None else folder / f"{_MODEL}.npz"
        self._known: dict[str, Any] = {}
        if self._file is not None and self._file.exists():
            with np.load(self._file) as kept:
                self._known = dict(zip(kept["names"].tolist(), kept["vectors"].tolist(), strict=True))

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts, those that are known not again."""
        names = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        missing = {name: text for name, text in zip(names, texts, strict=True) if name not in self._known}
        if missing:
            self._known |= zip(missing, self._local.embed_documents(list(missing.values())), strict=True)
        return [self._known[name] for name in names]

    def embed_query(self, text: str) -> list[float]:
        """Embed a query."""
        return self.embed_documents([text])[0]

    def save(self) -> None:
        """Write what is known."""
        if self._file is not None and self._known:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            vectors = np.array(list(self._known.values()), np.float32)
            np.savez(self._file, names=np.array(list(self._known)), vectors=vectors)


def conversations(path: Path) -> DataSet:
    """Read LoCoMo's conversations; the questions that have no answer are left out."""
    cases = [case for case in load_cases(path) if case.category != _UNANSWERED]
    late = LateInteraction(_MODEL, cache_mb=500)
    plain = {**_MODES, "context 1": {"context": 1}, "context 2": {"context": 2}, "late interaction": {"rerank": late}}
    dated = {"dates": {}, "dates, context 2": {"context": 2}, "all three": {"context": 2, "rerank": late}}
    stores = {
        "text": ({"fields": ["text"]}, plain),
        "dates": ({"fields": ["text"], "words": ["when"]}, dated),
    }
    return DataSet("LoCoMo", f"recall@{_K}", load_memories(path), cases, stores)


def abstracts(folder: Path) -> DataSet:
    """Read SciFact's claims and abstracts, as files of comma-separated values."""
    csv.field_size_limit(2**31 - 1)
    with (folder / "corpus_train.csv").open(encoding="utf-8", newline="") as file:
        memories = [
            PutOp(("scifact",), row["doc_id"], {"text": f"{row['title']} {_to_abstract(row['abstract'])}"})
            for row in csv.DictReader(file)
        ]
    cited: dict[str, tuple[str, set[str]]] = {}
    with (folder / "claims_validation.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            claim = cited.setdefault(row["id"], (row["claim"], set()))
            claim[1].update(row["cited_doc_ids"].strip("[]").split())
    cases = [Case(claim, ("scifact",), relevant) for claim, relevant in cited.values()]
    late = LateInteraction(_MODEL, cache_mb=2_000)
    settings = {**_MODES, "late interaction": {"rerank": late}}
    return DataSet("SciFact", f"ndcg@{_K}", memories, cases, {"text": ({"fields": ["text"]}, settings)})


def _to_abstract(written: str) -> str:
    return _SENTENCE_ENDS.sub(" ", written.strip()[1:-1]).strip("'\"")


def memories() -> DataSet:
    """Read the memories of the notebooks."""
    late = LateInteraction(_MODEL, cache_mb=500)
    plain = {
        **_MODES,
        "context 2": {"context": 2},
        "late interaction": {"rerank": late},
        "min_score 0.2": {"min_score": 0.2},
    }
    both = {"fields": ["text", "title"]}
    stores: dict[str, tuple[Mapping[str, Any], Settings]] = {
        "text, title": (both, plain),
        "text": ({"fields": ["text"]}, {"text alone": {}}),
        "dates": ({**both, "words": ["when"]}, {"dates": {}, "dates, late interaction": {"rerank": late}}),
        "title's words": (
            {"fields": ["text"], "words": ["title", "when"]},
            {"text, title and date as words": {}, "the same, late interaction": {"rerank": late}},
        ),
        "weights": ({**both, "weights": {"title": 0.8}}, {"title counts 0.8": {}}),
    }
    questions = load_cases(_MEMORIES / "questions.jsonl")
    return DataSet("memories", f"recall@{_K // 2}", load_memories(_MEMORIES / "memories.jsonl"), questions, stores)


def chinese() -> DataSet:
    """Read the memories in Chinese."""
    path = Path(__file__).parent / "chinese.json"
    stores = {"text": ({"fields": ["text"]}, _MODES)}
    return DataSet("Chinese", f"recall@{_K}", load_memories(path), load_cases(path), stores)


def measure(data: DataSet, model: KeptVectors, location: str) -> list[Report]:
    """Fill the stores of a set, and ask them; on a server each has a schema of its own."""
    reports = []
    for number, (index, settings) in enumerate(data.stores.values()):
        schema = None if location == _IN_MEMORY else f"{data.name.lower()}_{number}"
        with MemStore.open(location, index={"embed": model, **index}, schema=schema) as store:
            fill(store, data.memories)
            reports.append(evaluate(store, data.cases, settings, k=(_K // 2, _K)))
    return reports


def to_report(data: DataSet, reports: Sequence[Report], *, categories: bool) -> str:
    """Lay out a row for each setting: what was found, how sure that is, and how long a search took."""
    rows = []
    for name, setting in [pair for report in reports for pair in report.settings.items()]:
        for category, summary in {"all": setting.overall, **(setting.categories if categories else {})}.items():
            estimate = summary.metrics[data.metric]
            interval = f"{estimate.low:.3f}-{estimate.high:.3f}"
            reciprocal = f"{summary.metrics[f'mrr@{_K}'].mean:.3f}"
            found = [f"{estimate.mean:.4f}", interval, reciprocal, f"{summary.p50_ms:.1f}"]
            rows.append([name, category, str(summary.queries), *found])
    return to_table(["setting", "questions", "n", data.metric, "95 %", f"mrr@{_K}", "ms p50"], rows)


def compare_databases(one: Sequence[Report], other: Sequence[Report]) -> tuple[int, int]:
    """Count the searches of which two databases give the same items in the same order, and how many there were."""
    same = total = 0
    for left, right in zip(one, other, strict=True):
        for name, setting in left.settings.items():
            for mine, theirs in zip(setting.outcomes, right.settings[name].outcomes, strict=True):
                same += [found.key for found in mine.found] == [found.key for found in theirs.found]
                total += 1
    return same, total


def main() -> None:
    """Measure the sets that are there, and print their tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--locomo", type=Path, metavar="FILE", help="conversations in LoCoMo's layout")
    parser.add_argument("--scifact", type=Path, metavar="FOLDER", help="corpus_train.csv and claims_validation.csv")
    parser.add_argument("--vectors", type=Path, metavar="FOLDER", help="where vectors are kept from run to run")
    parser.add_argument("--postgres", action="store_true", help="ask a PostgreSQL server the same")
    parser.add_argument("--categories", action="store_true", help="print a row for each kind of question too")
    given = parser.parse_args()
    sets = [memories(), chinese()]
    sets += [conversations(given.locomo)] if given.locomo else []
    sets += [abstracts(given.scifact)] if given.scifact else []
    model = KeptVectors(given.vectors)
    with ExitStack() as stack:
        server = None
        if given.postgres:
            from benchmarks.server import run_server  # noqa: PLC0415  it needs a driver and a server to start

            server = stack.enter_context(run_server())
        for data in sets:
            reports = measure(data, model, _IN_MEMORY)
            model.save()
            print(f"\n{data.name}: {len(data.memories):,} memories, {len(data.cases):,} questions; {data.metric}\n")
            print(to_report(data, reports, categories=given.categories))
            if server is not None:
                asked = measure(data, model, server)
                same, total = compare_databases(reports, asked)
                print(f"\nthe same on Postgres\n\n{to_report(data, asked, categories=False)}")
                print(f"\n{same:,} of {total:,} searches give the same items in the same order")


if __name__ == "__main__":
    main()
