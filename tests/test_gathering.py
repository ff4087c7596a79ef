"""Short writes that wait share a transaction, and each still has an outcome of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memstore.backends import FlowMaker
from memstore.backends.gathering import Gathering
from memstore.steps import Flow, Statement, Step, run


class Transactions:
    """Counts transactions, and keeps what is written in those that end well."""

    def __init__(self) -> None:
        self.begun = 0
        self.written: list[str] = []

    def write(self, make: FlowMaker[Any]) -> Any:
        """Run a flow; its statements are what it writes."""
        self.begun += 1
        written: list[str] = []

        def note(step: Step) -> None:
            assert isinstance(step, Statement)
            written.append(step.sql)

        result = run(make(), note)
        self.written += written
        return result


def writes(text: str, *, fails: bool = False) -> Callable[[], FlowMaker[str]]:
    """Make a write that may fail in its transaction."""

    def flow() -> Flow[str]:
        yield Statement(text)
        if fails:
            raise ValueError(text)
        return text

    return lambda: flow


def refuses() -> FlowMaker[str]:
    """Fail before there is a transaction."""
    raise TypeError("refused")


def test_writes_that_wait_share_one_transaction() -> None:
    """Three that wait are one transaction, in the order of asking; those that come later find nothing to do."""
    transactions = Transactions()
    gathering = Gathering(transactions.write)
    futures = [gathering.add(writes(text)) for text in "abc"]
    for _ in futures:
        gathering.run()
    assert [future.result(0) for future in futures] == list("abc")
    assert transactions.begun == 1
    assert transactions.written == list("abc")


def test_no_transaction_grows_without_bound() -> None:
    """A hundred that wait are more than one transaction, and every one is written."""
    transactions = Transactions()
    gathering = Gathering(transactions.write)
    futures = [gathering.add(writes(str(number))) for number in range(100)]
    gathering.run()
    assert sum(future.done() for future in futures) < len(futures)
    gathering.run()
    assert transactions.written == [str(number) for number in range(100)]


def test_a_write_that_fails_fails_alone() -> None:
    """What waited beside it is written once, and who asked for it alone sees the error."""
    transactions = Transactions()
    gathering = Gathering(transactions.write)
    good, bad, last = (gathering.add(writes(text, fails=text == "b")) for text in "abc")
    gathering.run()
    assert (good.result(0), last.result(0)) == ("a", "c")
    with pytest.raises(ValueError, match="b"):
        bad.result(0)
    assert transactions.written == ["a", "c"]


def test_a_write_that_cannot_be_made_ready_does_not_hold_up_others() -> None:
    """An error outside of the transaction is its own too."""
    transactions = Transactions()
    gathering = Gathering(transactions.write)
    good, bad = gathering.add(writes("a")), gathering.add(refuses)
    gathering.run()
    assert good.result(0) == "a"
    with pytest.raises(TypeError, match="refused"):
        bad.result(0)


def test_a_cancelled_write_is_left_out() -> None:
    """What was cancelled while it waited is not written."""
    transactions = Transactions()
    gathering = Gathering(transactions.write)
    kept, dropped = gathering.add(writes("a")), gathering.add(writes("b"))
    assert dropped.cancel()
    gathering.run()
    assert kept.result(0) == "a"
    assert transactions.written == ["a"]
