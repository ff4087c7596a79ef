"""The index of wide scopes and transactions of other clocks: older snapshots, flows given up, databases restored."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memstore.backends.background import Background
from memstore.backends.locks import ReadersLock
from memstore.catchup import Wide
from memstore.dialects.sqlite import SqliteDialect
from memstore.indexes.flat import prepare
from memstore.scoring import Query, Ranking
from memstore.steps import Compute, Flow, Statement, run
from memstore.wide_search import Outrun
from tests.sqlite.wide_stores import CANDIDATES, EMBEDDINGS, ask, deletes, fill, opened, puts, text_of


class Snapshot:
    """A transaction that reads, and runs flows in itself as a backend does."""

    def __init__(self, path: Path) -> None:
        self.raw = sqlite3.connect(path, isolation_level=None)
        self.raw.execute("BEGIN")
        ((self.clock,),) = self.raw.execute("SELECT clock FROM memstore_clock").fetchall()

    def run(self, flow: Flow[Any]) -> Any:
        """Run a flow."""
        return run(flow, self._perform)

    def close(self) -> None:
        """End it."""
        self.raw.close()

    def _perform(self, step: Any) -> Any:
        if isinstance(step, Compute):
            return step.call()
        assert isinstance(step, Statement)
        return self.raw.execute(step.sql, step.params).fetchall()


class TestSnapshots:
    """The index asked by hand, by transactions of several clocks."""

    @staticmethod
    def wide() -> Wide:
        """Make the index of no store's."""
        return Wide(SqliteDialect(), ReadersLock(), Background(), metric="cosine", candidates=CANDIDATES, file=None)

    @staticmethod
    def query(text: str) -> Query:
        """Make a query by meaning."""
        return Query("semantic", prepare("cosine", _vector(text)), None, 1)

    def test_a_snapshot_older_than_the_index_begins_again(self, path: Path) -> None:
        """It is told so, whatever it asks; the index is left as it is, and newer snapshots are answered."""
        fill(path, 300)
        wide, query = self.wide(), self.query(text_of(5))
        with ExitStack() as stack:
            old = stack.enter_context(closing(Snapshot(path)))
            with opened(path, exact=True) as store:
                store.batch([*deletes([5]), *puts([301])])
            new = stack.enter_context(closing(Snapshot(path)))
            assert old.clock < new.clock
            before: Ranking = old.run(wide.stages[-1](query, old.clock, None, 0))
            assert before.scores[0] == 1.0
            after: Ranking = new.run(wide.stages[-1](query, new.clock, None, 0))
            assert after.scores[0] < 1.0
            for ask_it in (wide.stages[0], wide.rank):
                with pytest.raises(Outrun):
                    old.run(ask_it(query, old.clock, None, 0))
                again: Ranking = new.run(ask_it(query, new.clock, None, 0))
                assert again.item_ids[:10].tolist() == after.item_ids[:10].tolist()
            assert wide.texts == 300
            wide.forget()
            assert wide.texts == 0
            assert old.run(wide.rank(query, old.clock, None, 0)).scores[0] == 1.0

    def test_a_flow_given_up_half_way_lets_the_index_go(self, path: Path) -> None:
        """Closed or broken at any step, it leaves the lock free and no half index."""
        fill(path, 300)
        wide, query = self.wide(), self.query(text_of(5))
        with closing(Snapshot(path)) as snapshot:
            expected = snapshot.run(self.wide().stages[-1](query, snapshot.clock, None, 0))
            for steps in range(1, 6):
                for ends in ("close", "throw"):
                    flow = wide.stages[-1](query, snapshot.clock, None, 0)
                    step = next(flow)
                    for _ in range(steps - 1):
                        step = flow.send(snapshot._perform(step))
                    if ends == "close":
                        flow.close()
                    else:
                        with pytest.raises(KeyboardInterrupt):
                            flow.throw(KeyboardInterrupt())
                    answer = snapshot.run(wide.stages[-1](query, snapshot.clock, None, 0))
                    assert answer.item_ids.tolist() == expected.item_ids.tolist()
                    assert wide.texts == 300
                    wide.forget()

    def test_an_index_brought_up_half_way_answers_nobody(self, path: Path) -> None:
        """Given up at any step on the way to a newer clock, it does not pass for one of the older clock."""
        fill(path, 300)
        wide, query = self.wide(), self.query(text_of(5))
        with ExitStack() as stack:
            old = stack.enter_context(closing(Snapshot(path)))
            with opened(path, exact=True) as store:
                store.batch([*deletes([5, 6, 7]), *puts(range(300, 340))])
            new = stack.enter_context(closing(Snapshot(path)))
            expected = old.run(wide.rank(query, old.clock, None, 0))
            finished = False
            for steps in range(1, 12):
                flow = wide.rank(query, new.clock, None, 0)
                try:
                    step = next(flow)
                    for _ in range(steps - 1):
                        step = flow.send(new._perform(step))
                except StopIteration:
                    finished = True
                    break
                flow.close()
                if wide.texts == 337:
                    wide.forget()  # it had got there, and only the question was given up
                again = old.run(wide.rank(query, old.clock, None, 0))
                assert again.item_ids.tolist() == expected.item_ids.tolist()
                assert again.scores.tolist() == expected.scores.tolist()
            assert finished

    def test_one_clock_is_caught_up_once(self, path: Path) -> None:
        """What others asked at the same clock is answered without a statement."""
        fill(path, 300)
        wide, query = self.wide(), self.query(text_of(5))
        with closing(Snapshot(path)) as snapshot:
            snapshot.run(wide.stages[-1](query, snapshot.clock, None, 0))
            flow = wide.rank(query, snapshot.clock, None, 0)
            step = next(flow)
            assert isinstance(step, Compute)
            with pytest.raises(StopIteration) as stop:
                flow.send(step.call())
            assert len(stop.value.value.item_ids) == 300


def _vector(text: str) -> Any:
    """Embed a text."""
    return np.array(EMBEDDINGS._vector(text), np.float32)


class TestRestored:
    """A database that goes back under an open store."""

    @staticmethod
    def restore(copy: Path, path: Path) -> None:
        """Write a database over another through SQLite, as one may while it is open."""
        with closing(sqlite3.connect(copy)) as source, closing(sqlite3.connect(path)) as target:
            source.backup(target)

    @pytest.mark.parametrize("rounds", [1, 3])
    def test_answers_are_those_of_the_copy(self, path: Path, rounds: int) -> None:
        """The clock goes back and so does every answer, again and again, with writes after it."""
        fill(path, 300)
        shutil.copy(path, path.with_name("copy"))
        with opened(path) as store:
            for number in range(rounds):
                store.batch(puts(range(300, 400)))
                for key in range(3):
                    store.batch(deletes(range(key * 50, key * 50 + 50)))
                ask(store)
                self.restore(path.with_name("copy"), path)
                with opened(path, exact=True) as exact:
                    assert ask(store) == ask(exact)
                    assert ask(store) == ask(exact)
                    store.batch(puts(range(500, 510), seed=number))
                    assert ask(store) == ask(exact)
                    assert store.stats().indexed_texts == store.stats().texts

    @pytest.mark.parametrize("more", [0, 1, 7])
    @pytest.mark.parametrize("exact", [False, True], ids=["wide", "narrow"])
    def test_a_copy_that_was_written_on_to_is_told_apart(self, path: Path, more: int, *, exact: bool) -> None:
        """Clocks, ids and versions come again for other texts; what memory holds of the lost ones is forgotten."""
        fill(path, 300)
        shutil.copy(path, path.with_name("copy"))
        with opened(path, exact=exact) as store:
            store.batch(puts(range(300, 400)))
            ask(store)
            self.restore(path.with_name("copy"), path)
            with opened(path, exact=True) as other:
                other.batch(puts(range(400, 500), seed=4))
                for number in range(more):
                    other.batch(puts(range(500 + number, 501 + number)))
                assert ask(store) == ask(other)
                other.batch(puts(range(600, 610)))
                assert ask(store) == ask(other)
