"""What `evaluate` gives: the settings' figures, to be read, compared, drawn and kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Self

from memstore.errors import InvalidArgument
from memstore.evaluation import charts, records, summarizing, tables
from memstore.evaluation.measures import to_name
from memstore.evaluation.outcomes import Comparison, SettingReport


@dataclass(frozen=True, slots=True)
class Report:
    """How settings of a search did on the same cases; shown as a table by `print`, notebooks and rich.

    Attributes:
        k: The ranks at which rankings were cut, in rising order.
        settings: What each setting did, by name.
        warmed: Whether each query was searched once before it was timed. If not, the times hold its embedding.
        resamples: How many times queries were drawn for the intervals.
        seed: By which they were drawn.
    """

    k: tuple[int, ...]
    settings: Mapping[str, SettingReport] = field(hash=False)
    warmed: bool
    resamples: int
    seed: int

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of what was measured, such as `recall@10`."""
        return tuple(next(iter(self.settings.values())).overall.metrics)

    def compare(self, a: str, b: str, metric: str | None = None) -> Comparison:
        """Compare two settings, query by query.

        Args:
            a: The name of the first.
            b: The name of the second, which the first is measured against.
            metric: What is compared; the recall at the largest k where it is None.

        Raises:
            InvalidArgument: There is no such setting or metric.
            MissingExtra: scipy is not installed.
        """
        for name in (a, b):
            if name not in self.settings:
                raise InvalidArgument(f"no setting is named {name!r}; there are {_list(self.settings)}")
        chosen = self._check_metric(metric)
        return summarizing.compare((a, self.settings[a]), (b, self.settings[b]), chosen, self.resamples, self.seed)

    def to_dict(self) -> dict[str, Any]:
        """Give everything as a JSON object: options, means, intervals, times, and every query with what it found."""
        return {
            "k": list(self.k),
            "warmed": self.warmed,
            "resamples": self.resamples,
            "seed": self.seed,
            "settings": {name: records.to_record(setting) for name, setting in self.settings.items()},
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` gave.

        Raises:
            InvalidArgument: It is something else.
        """
        try:
            settings = {name: records.from_record(one) for name, one in record["settings"].items()}
            return cls(tuple(record["k"]), settings, record["warmed"], record["resamples"], record["seed"])
        except (AttributeError, KeyError, TypeError) as error:
            raise InvalidArgument("this is no report as to_dict gives it") from error

    def write_json(self, path: str | PathLike[str]) -> None:
        """Write what `to_dict` gives into a file.

        Raises:
            InvalidArgument: The file cannot be written.
        """
        text = json.dumps(self.to_dict(), indent=1)
        try:
            Path(path).write_text(f"{text}\n", encoding="utf-8")
        except OSError as error:
            raise InvalidArgument(f"{path} cannot be written: {error.strerror}") from error

    @classmethod
    def read_json(cls, path: str | PathLike[str]) -> Self:
        """Read a report that `write_json` wrote, such as one of another day.

        Raises:
            InvalidArgument: The file cannot be read, or holds something else.
        """
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8", errors="surrogatepass")))
        except OSError as error:
            raise InvalidArgument(f"{path} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise InvalidArgument(f"{path} holds no report as write_json writes it") from error

    def plot(self, path: str | PathLike[str], metric: str | None = None) -> None:
        """Draw a metric: for all queries and for each category a bar of every setting, with its 95 % interval.

        Args:
            path: The file; its suffix says in which format (`.png`, `.svg`, `.pdf` and so on).
            metric: What is drawn; the recall at the largest k where it is None.

        Raises:
            InvalidArgument: There is no such metric or format, or the file cannot be written.
            MissingExtra: matplotlib is not installed.
        """
        charts.draw(self.settings, self._check_metric(metric), Path(path))

    def __str__(self) -> str:
        return f"{tables.to_text(self._rows())}\n\n{self._note}"

    def _repr_html_(self) -> str:
        return tables.to_html(self._rows(), self._note)

    def __rich__(self) -> Any:
        return tables.to_rich(self._rows(), self._note)

    def _rows(self) -> list[tables.Row]:
        return list(tables.to_rows(self.settings, self.k))

    @property
    def _note(self) -> str:
        times = "searches after each query's first" if self.warmed else "each query's first search"
        return f"Means with 95 % intervals over queries (bootstrap); times of {times}."

    def _check_metric(self, metric: str | None) -> str:
        chosen = to_name("recall", self.k[-1]) if metric is None else metric
        if chosen not in self.metrics:
            raise InvalidArgument(f"metric is one of {_list(self.metrics)}, got {chosen!r}")
        return chosen


def _list(names: Any) -> str:
    return ", ".join(map(repr, names))
