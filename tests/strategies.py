"""What hypothesis draws in several files: values whose fields meet, and filters over them."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

fields = st.sampled_from(["a", "b", "a.b", "a.b.c", "é", 'q"', "$x", "", "a b"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([2**53, 2**53 + 1, -(2**64), 0.5, -0.0, 1.0, 5e-324])
    | st.sampled_from(["", "a", "b", "ab", "é", "1", "\x01", '"'])
)
parts = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(fields, inner, max_size=3), max_leaves=6
)
values = st.dictionaries(fields, parts, max_size=4)
names = st.sampled_from(["a", "b", "a.b", "a.b.c", "é", 'q"', "a b", "a."])
operands = scalars | st.sampled_from([math.inf, -math.inf, math.nan, 10**400, "a\0", "\ud800"]) | parts
ORDERED = ["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$contains"]


@st.composite
def operators(draw: st.DrawFn) -> dict[str, Any]:
    """Draw an object of one or two operators."""
    drawn: dict[str, Any] = {}
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from([*ORDERED, "$in", "$nin", "$exists", "$not"]))
        if name == "$exists":
            drawn[name] = draw(st.booleans())
        elif name == "$not":
            drawn[name] = {"$gt": draw(scalars)}
        else:
            drawn[name] = draw(operands if name in ORDERED else st.lists(operands, max_size=3))
    return drawn


conditions = scalars | operators()
plain_filters = st.dictionaries(names, conditions, min_size=1, max_size=3)


@st.composite
def filters(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a filter of plain fields, or a join or a negation of such."""
    join = draw(st.sampled_from(["", "", "", "$and", "$or", "$not"]))
    if not join:
        return draw(plain_filters)
    return {join: draw(plain_filters) if join == "$not" else draw(st.lists(plain_filters, min_size=1, max_size=2))}
