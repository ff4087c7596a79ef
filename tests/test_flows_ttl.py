"""Flows of expiry, driven by canned replies: refreshing what was read, sweeping what has expired."""

from __future__ import annotations

from memstore.batch import sweep
from memstore.ttl import refresh, to_expiry, to_refreshes
from tests.flows import Asked, named_dialect, play

NOW = 1_800_000_000_000_000


def test_refreshing_is_one_statement() -> None:
    """However many items a page returned; the statement itself looks whether they are still live."""
    _, asked = play(refresh([(1, NOW), (2, NOW)], named_dialect(), lambda: NOW), ("refresh_items", None))
    assert asked == [Asked("refresh_items", ([(1, NOW), (2, NOW)], NOW))]
    assert to_refreshes([], NOW) == []


def test_no_ttl_is_so_long_that_it_overflows() -> None:
    """The latest expiry is capped, and a ttl under a microsecond is one microsecond."""
    assert to_expiry(1e308, NOW) == 2**62
    assert to_expiry(1e-12, NOW) == NOW + 1
    assert to_expiry(0.5, NOW) == NOW + 30_000_000
    assert to_expiry(None, NOW) is None


def test_a_sweep_of_nothing_is_one_look() -> None:
    """Where nothing has expired, nothing is written."""
    assert play(sweep(named_dialect(), 10, lambda: NOW), ("select_expired", []))[0] == 0


def test_a_sweep_takes_texts_and_empty_namespaces_along() -> None:
    """Each namespace is counted and looked at once, however many of its items have expired."""
    count, asked = play(
        sweep(named_dialect(), 10, lambda: NOW),
        ("select_expired", [(5, 1, 50, 2), (6, 1, None, 0), (7, 2, 70, 1)]),
        ("advance_clock", [(4, 99, 1)]),
        ("select_expired_among", [(5, 1, 50, 2), (6, 1, None, 0), (7, 2, 70, 1)]),
        ("insert_removals", None),
        ("delete_items", []),
        ("touch_namespaces", None),
        ("delete_empty_namespaces", []),
    )
    assert count == 3
    by_name = {line.name: line.arguments for line in asked}
    assert by_name["select_expired"] == (NOW, 10)
    assert by_name["advance_clock"] == (0,)
    assert by_name["select_expired_among"] == ([5, 6, 7], NOW)
    assert by_name["insert_removals"] == ([(4, 50, 2), (4, 70, 1)],)
    assert by_name["delete_items"] == ([5, 6, 7],)
    assert by_name["touch_namespaces"] == ([(1, -2), (2, -1)],)
    assert by_name["delete_empty_namespaces"] == ([1, 2],)
