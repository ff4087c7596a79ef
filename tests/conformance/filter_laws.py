"""Filters: rules 9 to 12 of the contract as laws, over whatever items and filters are drawn."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.conformance.filter_draws import NAMES, draw_filter, draw_objects
from tests.conformance.filter_oracle import matching, open_indexed, passes, put_all
from tests.conformance.json_values import AWKWARD_FLOATS, FLOATS, PROPERTY, TEXTS
from tests.support import OpenStore

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq, "$ne": operator.ne, "$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt,
    "$lte": operator.le,
}  # fmt: skip
NUMBERS = FLOATS | st.sampled_from(AWKWARD_FLOATS) | st.integers() | st.integers(2**53 - 2, 2**53 + 2)


class FilterLawsConformance:
    """What a filter lets through is what plain Python lets through."""

    def test_filters_agree_with_plain_python(self, open_store: OpenStore) -> None:
        """Whatever is stored and asked, under one namespace or several, the items found are those that pass."""
        store = open_indexed(open_store)
        roots = (f"root {number}" for number in count())

        @settings(PROPERTY, max_examples=100)
        @given(st.randoms(use_true_random=True))
        def agrees(random: Random) -> None:
            root = next(roots)
            objects = draw_objects(random, random.randint(1, 8))
            values = {str(number): value for number, value in enumerate(objects)}
            put_all(store, values, (root, "whole"))
            put_all(store, {f"even {key}": values[key] for key in list(values)[::2]}, (root, "half"))
            for _ in range(6):
                asked = draw_filter(random, objects)
                note(f"{asked} of {objects}")
                expected = {key for key, value in values.items() if passes(asked, value)}
                assert matching(store, asked, (root, "whole")) == expected
                expected |= {f"even {key}" for key in list(values)[::2] if key in expected}
                assert matching(store, asked, (root,)) == expected

        agrees()

    def test_negations_are_exact(self, open_store: OpenStore) -> None:
        """`$ne`, `$nin` and `$not` give exactly the items that `$eq`, `$in` and the plain condition do not."""
        store = open_indexed(open_store)
        roots = (f"root {number}" for number in count())

        @PROPERTY
        @given(st.randoms(use_true_random=True))
        def complement(random: Random) -> None:
            namespace = (next(roots),)
            objects = draw_objects(random, 6)
            name = random.choice(NAMES)
            values = {str(number): value for number, value in enumerate([*objects, {}, {name: None}])}
            put_all(store, values, namespace)
            operands = [value[name] for value in values.values() if name in value]
            operand, other = random.choice(operands), random.choice(operands)
            filters = [draw_filter(random, objects) for _ in range(3)]
            note(f"{operand}, {other}, {filters} of {objects}")
            pairs: list[tuple[Any, Any]] = [
                ({name: {"$eq": operand}}, {name: {"$ne": operand}}),
                ({name: {"$in": [operand, other]}}, {name: {"$nin": [operand, other]}}),
                ({name: operand}, {name: {"$not": operand}}),
                *[(asked, {"$not": asked}) for asked in filters],
            ]
            for one, negation in pairs:
                found, rest = matching(store, one, namespace), matching(store, negation, namespace)
                assert found | rest == set(values)
                assert found & rest == set()
                assert matching(store, {"$not": one}, namespace) == rest

        complement()

    def test_numbers_compare_as_in_python(self, open_store: OpenStore) -> None:
        """Floats of any decimal text, their nearest neighbours and integers of any size compare by value, exactly."""
        store = open_indexed(open_store)
        roots = (f"root {number}" for number in count())

        def agrees(numbers: list[float]) -> None:
            namespace = (next(roots),)
            values = dict(enumerate(numbers))
            put_all(store, {str(at): {"n": number, "o": {"n": number}} for at, number in values.items()}, namespace)
            operands = {*numbers, *(math.nextafter(n, math.inf) for n in numbers if abs(n) < 2**900)}
            for operand in sorted(operands)[:12]:
                for name, holds in COMPARISONS.items():
                    expected = {str(at) for at, number in values.items() if holds(number, operand)}
                    assert matching(store, {"n": {name: operand}}, namespace) == expected
                expected = {str(at) for at, number in values.items() if number == operand}
                assert matching(store, {"o.n": operand, "n": {"$in": [operand]}}, namespace) == expected

        for at in range(0, len(AWKWARD_FLOATS), 5):
            agrees(list(AWKWARD_FLOATS[at : at + 5]))
        settings(PROPERTY, max_examples=40)(given(st.lists(NUMBERS, min_size=1, max_size=5))(agrees))()

    def test_texts_compare_by_code_point(self, open_store: OpenStore) -> None:
        """Texts of any script, blanks and quotes included, equal and follow each other as in Python."""
        store = open_indexed(open_store)
        roots = (f"root {number}" for number in count())

        @PROPERTY
        @given(st.lists(TEXTS, min_size=2, max_size=6))
        def agrees(texts: list[str]) -> None:
            namespace = (next(roots),)
            values = {str(at): text for at, text in enumerate(texts)}
            put_all(store, {key: {"t": text} for key, text in values.items()}, namespace)
            for name, holds in COMPARISONS.items():
                expected = {key for key, text in values.items() if holds(text, texts[0])}
                assert matching(store, {"t": {name: texts[0]}}, namespace) == expected
            expected = {key for key, text in values.items() if text in texts[:2]}
            assert matching(store, {"t": {"$in": texts[:2]}}, namespace) == expected

        agrees()

    def test_any_text_is_a_field(self, open_store: OpenStore) -> None:
        """A key of any text that begins with no `$` is found as it is spelled, also below another."""
        store = open_indexed(open_store)
        roots = (f"root {number}" for number in count())
        names = TEXTS.filter(lambda name: not name.startswith("$"))

        @PROPERTY
        @given(names, names, st.integers(0, 3) | TEXTS)
        def finds(name: str, outer: str, value: Any) -> None:
            namespace = (next(roots),)
            path = f"{outer}.{name}"
            values = {"flat": {name: value}, "nested": {outer: {name: value}}, "other": {f"{name}!": value}, "bare": {}}
            put_all(store, values, namespace)
            for asked in [{name: value}, {path: value}, {path: {"$exists": True}}, {name: {"$gte": value}}]:
                expected = {key for key, object_ in values.items() if passes(asked, object_)}
                assert matching(store, asked, namespace) == expected
            assert {"flat"} <= matching(store, {name: value}, namespace)
            assert {"nested"} <= matching(store, {path: value}, namespace)

        finds()
