"""What property tests draw: labels, keys and JSON values, and how strictly two values are compared.

Draws are the same in every run, so that a failure is a failure for everyone.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

PROPERTY: Final = settings(
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)
"""Every example of a test shares its store, so each works below a root label of its own."""

TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
LABELS: Final = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0."), min_size=1, max_size=6)
SEPARATING_LABELS: Final = st.text("/:|\\,;_%* \x01\x1f\x7fa", min_size=1, max_size=3)
"""Labels of what other stores join their labels with."""
FLOATS: Final = st.floats(allow_nan=False, allow_infinity=False)
SCALARS: Final = (
    st.none() | st.booleans() | st.integers() | st.integers(-(2**256), 2**256) | FLOATS | TEXTS
)  # longer integers have their own tests: a failing example could not be printed
VALUES: Final[st.SearchStrategy[Any]] = st.recursive(
    SCALARS, lambda parts: st.lists(parts, max_size=4) | st.dictionaries(TEXTS, parts, max_size=4), max_leaves=12
)
OBJECTS: Final = st.dictionaries(TEXTS, VALUES, max_size=5)

AWKWARD_FLOATS: Final = (
    0.0, -0.0, 0.1, -0.1, 1.0, 1e16, 1e22, 1e23, 5e-324, 2.5e-323, 1e-310, 2.2250738585072014e-308, 1e-5, 1 / 3,
    9007199254740992.0, 9007199254740993.0, 123456789.12345679, 1.7976931348623157e308, -1.7976931348623157e308,
)  # fmt: skip
"""Floats whose decimal text is long, rounded by careless readers, or looks like an integer's."""


def is_same(left: Any, right: Any) -> bool:
    """Tell whether two JSON values are the same to the bit: types, key order and the sign of zero included."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return struct.pack("<d", left) == struct.pack("<d", right)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(is_same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(is_same(left[key], right[key]) for key in left)
    return bool(left == right)
