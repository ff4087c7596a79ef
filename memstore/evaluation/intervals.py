"""What can be said of a mean over queries: 95 % intervals and a paired test, by scipy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from memstore.evaluation.extras import need

LEVEL: Final = 0.95
_FLIPS: Final = 9_999
"""Changes of sign that the test tries where it cannot try all: p-values down to 0.0002."""
_NUMBERS: Final = 2_000_000
"""Numbers that a resampling holds at once: 16 MB."""


def to_intervals(values: Mapping[str, Sequence[float]], resamples: int, seed: int) -> dict[str, tuple[float, ...]]:
    """Give each metric's mean, and the 95 % percentile bootstrap interval of it over queries.

    The queries drawn are the same for every metric. One query has its own value for an interval.

    Args:
        values: The values of each metric, one a query.
        resamples: How many times queries are drawn.
        seed: By which they are drawn.

    Returns:
        Mean, low and high by metric.

    Raises:
        MissingExtra: scipy is not installed.
    """
    matrix = np.array(list(values.values()), dtype=np.float64)
    means = matrix.mean(axis=-1)
    low = high = means
    if matrix.shape[-1] > 1:
        found = need("scipy.stats", "scipy").bootstrap(
            (matrix,),
            np.mean,
            axis=-1,
            n_resamples=resamples,
            batch=max(1, _NUMBERS // matrix.size),
            confidence_level=LEVEL,
            method="percentile",
            vectorized=True,
            random_state=np.random.default_rng(seed),  # `rng` since scipy 1.15, which takes both
        )
        low, high = found.confidence_interval
    rows = zip(means.tolist(), np.atleast_1d(low).tolist(), np.atleast_1d(high).tolist(), strict=True)
    return dict(zip(values, rows, strict=True))


def to_p_value(differences: Sequence[float], seed: int) -> float:
    """Test whether paired differences have the mean 0, two-sided, by changing their signs.

    Every change of signs is tried where there are few, else a sample of them.

    Args:
        differences: One a query. Those that are 0 say nothing.
        seed: By which signs are drawn.

    Raises:
        MissingExtra: scipy is not installed.
    """
    telling = np.array([difference for difference in differences if difference], dtype=np.float64)
    if len(telling) <= 1:
        return 1.0  # either sign of a single difference is as far from 0
    tested = need("scipy.stats", "scipy").permutation_test(
        (telling,),
        _mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=_FLIPS,
        batch=max(1, _NUMBERS // len(telling)),
        alternative="two-sided",
        random_state=np.random.default_rng(seed),
    )
    return float(tested.pvalue)


def to_percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """Give the median and the 95th percentile, in milliseconds."""
    p50, p95 = 1e3 * np.percentile(seconds, [50, 95])
    return float(p50), float(p95)


def _mean(values: npt.NDArray[np.float64], axis: int) -> Any:
    return values.mean(axis=axis)
