"""Delta channels, whose values lie with the ancestors of a checkpoint: whatever is deleted, they stay as they are."""

from __future__ import annotations

from typing import Any

import pytest

from memstore import MemSaver
from tests.conformance.saver_graphs import OnSaver
from tests.graphs import (
    DURABILITIES,
    Caller,
    PlainNotes,
    SiteDown,
    answer,
    at,
    build_notes,
    expected_notes,
    note,
    of_run,
)
from tests.support import Place


def count(call: Caller, saver: Any, thread_id: str) -> int:
    """Count the checkpoints of a thread."""
    return len(call(saver, "list", at(thread_id)))


class DeltasConformance(OnSaver):
    """Graphs with two delta channels of their own frequency, of which parallel nodes write one."""

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_pruning_keeps_the_state_wherever_it_is(self, saver: MemSaver, call: Caller, durability: str) -> None:
        """At each of twelve rounds: the state is the same after it, and right when the thread goes on from there."""
        graph = build_notes(saver)
        deleted = 0
        for rounds in range(1, 13):
            name = f"t{rounds}"
            for number in range(rounds):
                call(graph, "invoke", note(number), at(name), durability=durability)
            before = call(graph, "get_state", at(name)), count(call, saver, name)
            call(saver, "prune", [name])
            after = call(graph, "get_state", at(name))
            assert (after.values, after.config) == (before[0].values, before[0].config)
            assert after.values == expected_notes(rounds)
            deleted += before[1] - count(call, saver, name)
            for number in range(rounds, rounds + 3):
                call(graph, "invoke", note(number), at(name), durability=durability)
            call(saver, "prune", [name])
            assert call.values(graph, at(name)) == expected_notes(rounds + 3)
        assert deleted > 40

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_pruning_after_each_round_keeps_a_thread_short(
        self, saver: MemSaver, call: Caller, durability: str
    ) -> None:
        """A thread pruned again and again never holds more than from one snapshot to the next, and loses nothing."""
        graph = build_notes(saver)
        for number in range(20):
            call(graph, "invoke", note(number), at("t"), durability=durability)
            call(saver, "prune", ["t"])
            assert call.values(graph, at("t")) == expected_notes(number + 1)
            assert count(call, saver, "t") <= 24  # `marks` is written every other round, and stored each third time

    def test_pruning_keeps_the_branch_that_goes_on(self, saver: MemSaver, call: Caller) -> None:
        """Forks of forks, an abandoned branch that is longer, and the branch of the newest checkpoint: its state."""
        graph = build_notes(saver)
        for number in range(5):
            call(graph, "invoke", note(number), at("t"))
        for steps in (2, 5, 9):
            past = call(graph, "get_state_history", at("t"))[steps]
            fork = call(graph, "update_state", past.config, {"notes": [f"fork {steps}"]}, as_node="count")
            call(graph, "invoke", note(100 + steps), fork)
            for _ in range(2):
                values = call.values(graph, at("t"))
                assert f"fork {steps}" in values["notes"]
                call(saver, "copy_thread", "t", f"copy {steps}")
                call(saver, "prune", [f"copy {steps}"])
                assert call.values(graph, at(f"copy {steps}")) == values
                for name in ("t", f"copy {steps}"):
                    call(graph, "invoke", note(200), at(name))
                assert call.values(graph, at("t")) == call.values(graph, at(f"copy {steps}"))
                call(saver, "delete_thread", f"copy {steps}")

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_a_failed_run_goes_on_after_pruning(self, saver: MemSaver, call: Caller, durability: str) -> None:
        """What the node beside the failed one wrote to the same channel is kept, and that node does not run again."""
        log: list[str] = []
        graph = build_notes(saver, log=log.append)
        for number in range(3):
            call(graph, "invoke", note(number), at("t"), durability=durability)
        with pytest.raises(SiteDown):
            call(build_notes(saver, works=False), "invoke", note(3), at("t"), durability="sync")
        call(saver, "prune", ["t"])
        log.clear()
        call(graph, "invoke", None, at("t"), durability=durability)
        assert log == ["right", "count"]
        assert call.values(graph, at("t")) == expected_notes(4)

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_an_interrupted_run_goes_on_after_pruning(self, saver: MemSaver, call: Caller, durability: str) -> None:
        """The question is still there, and the answer goes on with all that was noted before, round after round."""
        graph = build_notes(saver, asks=True)
        for number in range(9):
            call(graph, "invoke", note(number), at("t"), durability=durability)
            before = call(graph, "get_state", at("t"))
            call(saver, "prune", ["t"])
            after = call(graph, "get_state", at("t"))
            assert (after.values, after.next, after.interrupts) == (before.values, ("count",), before.interrupts)
            call(graph, "invoke", answer(f"mark {number}"), at("t"), durability=durability)
        values = call.values(graph, at("t"))
        assert values["marks"] == [f"mark {number}" for number in range(9)]
        assert values["notes"] == expected_notes(9)["notes"]

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_a_copy_goes_on_by_itself(self, saver: MemSaver, call: Caller, durability: str) -> None:
        """It has the same history; what is done to either, or that one is deleted, does nothing to the other."""
        graph = build_notes(saver)
        for number in range(5):
            call(graph, "invoke", note(number), at("a"), durability=durability)
        call(saver, "copy_thread", "a", "b")
        assert call.history(graph, at("b")) == call.history(graph, at("a"))
        call(saver, "prune", ["a"])
        for number in range(5, 8):
            call(graph, "invoke", note(number), at("b"), durability=durability)
        call(graph, "update_state", at("a"), {"notes": ["by itself"]}, as_node="count")
        alone = {**expected_notes(5), "notes": [*expected_notes(5)["notes"], "by itself"]}
        assert (call.values(graph, at("a")), call.values(graph, at("b"))) == (alone, expected_notes(8))
        call(saver, "delete_thread", "a")
        assert call.values(graph, at("b")) == expected_notes(8)
        call(saver, "prune", ["b"])
        assert call.values(graph, at("b")) == expected_notes(8)

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_deleting_other_runs_keeps_the_state(self, saver: MemSaver, call: Caller, durability: str) -> None:
        """Every run before the last one goes, but for what the last needs; the thread goes on as it would have."""
        graph = build_notes(saver)
        for number in range(9):
            call(graph, "invoke", note(number), of_run("t", f"r{number}"), durability=durability)
        before = count(call, saver, "t")
        call(saver, "delete_for_runs", [f"r{number}" for number in range(8)])
        assert call.values(graph, at("t")) == expected_notes(9)
        assert count(call, saver, "t") < before
        for number in range(9, 12):
            call(graph, "invoke", note(number), of_run("t", f"r{number}"), durability=durability)
        assert call.values(graph, at("t")) == expected_notes(12)

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_deleting_the_last_runs_goes_back_to_those_before(
        self, saver: MemSaver, call: Caller, durability: str
    ) -> None:
        """The state is that of the last run which is left, with each of its channels, and goes on from there."""
        graph = build_notes(saver)
        for number in range(7):
            call(graph, "invoke", note(number), of_run("t", f"r{number}"), durability=durability)
        for left in (6, 5, 3):
            call(saver, "delete_for_runs", [f"r{left}", f"r{left + 1}"])
            assert call.values(graph, at("t")) == expected_notes(left)
        call(graph, "invoke", note(3), of_run("t", "again"), durability=durability)
        assert call.values(graph, at("t")) == expected_notes(4)

    @pytest.mark.parametrize("durability", DURABILITIES)
    @pytest.mark.parametrize("keep", [1, 2, 3])
    def test_a_sweep_keeps_the_last_states(self, location: Place, call: Caller, durability: str, keep: int) -> None:
        """So many of each thread are as they were, and what else is left only serves them."""
        with MemSaver.open(location.location, **location.options, retention={"keep_last": keep}) as saver:
            graph = build_notes(saver)
            for rounds in range(1, 9):
                for number in range(rounds):
                    call(graph, "invoke", note(number), at(f"t{rounds}"), durability=durability)
            before = [call.history(graph, at(f"t{rounds}")) for rounds in range(1, 9)]
            deleted = call(saver, "sweep")
            after = [call.history(graph, at(f"t{rounds}")) for rounds in range(1, 9)]
            assert deleted > 0
            assert sum(map(len, before)) - sum(map(len, after)) == deleted
            for old, new in zip(before, after, strict=True):
                assert [state[:4] for state in new[:keep]] == [state[:4] for state in old[:keep]]
            assert call(saver, "sweep") == 0
            call(graph, "invoke", note(8), at("t8"), durability=durability)
            assert call.values(graph, at("t8")) == expected_notes(9)

    def test_a_channel_that_became_a_delta_channel_is_kept(self, saver: MemSaver, call: Caller) -> None:
        """A thread whose earlier checkpoints hold the plain value: pruned and gone on with, it begins from that."""
        for number in range(2):
            call(build_notes(saver, state=PlainNotes), "invoke", note(number), at("t"))
        graph = build_notes(saver)
        for number in range(2, 6):
            call(graph, "invoke", note(number), at("t"))
            call(saver, "prune", ["t"])
            assert call.values(graph, at("t")) == expected_notes(number + 1)
