"""A process killed while a graph runs: another resumes it from what was committed, and runs no node that had ended."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig

from memstore import MemSaver
from tests.children import DEADLINE
from tests.conformance.saver_graphs import OnSaver
from tests.graphs import Caller, answer, at, build_notes, build_work, expected_notes, note
from tests.support import Place

CHILD = "import sys; from tests.conformance.saver_kills import run_and_die; run_and_die(sys.argv[1])"


@dataclass(frozen=True)
class Death:
    """A run in a process of its own, and when that is killed.

    Args:
        place: The database.
        log: The file that is told of each node that runs.
        given: The inputs of the runs, one after another.
        when: `before` or `after` a checkpoint is put, `within` a node, or once a run has `ended`.
        step: The checkpoint's step.
        done: How many tasks have ended before it.
        awaited: Whether the graph is an async one.
        notes: Whether it is the graph with delta channels.
    """

    place: Place
    log: Path
    given: tuple[Any, ...]
    when: str
    step: int = 0
    done: int = 0
    awaited: bool = False
    notes: bool = False

    def meet(self) -> None:
        """Run it, and see that the process was killed."""
        command = [sys.executable, "-c", CHILD, pickle.dumps(self).hex()]
        root = Path(__file__).parents[2]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False, cwd=root)
        assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]

    def build(self, saver: Any, tell: Callable[[str], None]) -> Any:
        """Compile the graph."""
        return build_notes(saver, log=tell) if self.notes else build_work(saver, tell)


def die() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


class Dying(MemSaver):
    """A saver whose process is killed before or after one of its checkpoints is put."""

    death: Death

    def _is_done(self, found: Any) -> bool:
        """Tell whether all tasks of the step before have ended, and what they wrote is committed."""
        if found is None:
            return False
        ended = {task for task, channel, _ in found.pending_writes if not channel.startswith("__")}
        return len(ended) >= self.death.done

    def await_done(self, config: RunnableConfig) -> None:
        """Wait until they have."""
        while not self._is_done(self.get_tuple(config)):
            time.sleep(0.005)

    def _meets(self, when: str, metadata: Any) -> bool:
        return (when, metadata["step"]) == (self.death.when, self.death.step)

    def put(self, config: RunnableConfig, checkpoint: Any, metadata: Any, new_versions: Any) -> RunnableConfig:
        """Put, and die."""
        if self._meets("before", metadata):
            self.await_done(config)
            die()
        given = super().put(config, checkpoint, metadata, new_versions)
        if self._meets("after", metadata):
            die()
        return given

    async def aput(self, config: RunnableConfig, checkpoint: Any, metadata: Any, new_versions: Any) -> RunnableConfig:
        """Put, and die."""
        if self._meets("before", metadata):
            await asyncio.to_thread(self.await_done, config)
            die()
        given = await super().aput(config, checkpoint, metadata, new_versions)
        if self._meets("after", metadata):
            die()
        return given


def run_and_die(told: str) -> None:
    """Do what a child process is told."""
    death: Death = pickle.loads(bytes.fromhex(told))  # noqa: S301  from the test itself
    saver = Dying.open(death.place.location, **death.place.options)
    saver.death = death

    def tell(node: str) -> None:
        with death.log.open("a") as log:
            log.write(f"{node}\n")
        if (node, death.when) == ("shaky", "within"):
            saver.await_done(at("t"))
            die()

    graph = death.build(saver, tell)
    with asyncio.Runner() as runner:
        call = Caller(runner if death.awaited else None)
        for given in death.given:
            call(graph, "invoke", given, at("t"), durability="sync")
        if death.when == "ended":
            die()


class KillsConformance(OnSaver):
    """Graphs whose process is killed; the test's own process goes on with them."""

    @pytest.fixture
    def log(self, tmp_path: Path) -> Path:
        """Name the file that is told of the nodes that run."""
        return tmp_path / "nodes.log"

    def go_on(self, call: Caller, saver: Any, log: Path, given: Any) -> tuple[Any, list[str]]:
        """Resume the thread here; give its state, and all nodes that were run in either process."""

        def tell(node: str) -> None:
            with log.open("a") as file:
                file.write(f"{node}\n")

        graph = build_work(saver, tell)
        call(graph, "invoke", given, at("t"))
        ran = log.read_text().split()
        return call(graph, "get_state", at("t")), [*sorted(ran[:2]), *ran[2:]]

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_run_goes_on_after_a_step(
        self, saver: MemSaver, call: Caller, location: Place, log: Path, when: str
    ) -> None:
        """Killed with both nodes done, before or after the checkpoint that says so: neither of them runs again."""
        Death(location, log, ({"found": []},), when, step=1, done=2, awaited=call.runner is not None).meet()
        found = call(saver, "get_tuple", at("t"))
        assert found.metadata["step"] == (0 if when == "before" else 1)
        state, ran = self.go_on(call, saver, log, None)
        assert state.next == ("ask",)
        assert state.values == {"found": ["shaky", "steady"]}
        assert ran == ["shaky", "steady", "ask"]

    def test_a_run_goes_on_after_its_input(self, saver: MemSaver, call: Caller, location: Place, log: Path) -> None:
        """Killed before the first step began: the input is there, and each node runs once."""
        Death(location, log, ({"found": ["in"]},), "after", step=-1, awaited=call.runner is not None).meet()
        state, ran = self.go_on(call, saver, log, None)
        assert state.values == {"found": ["in", "shaky", "steady"]}
        assert ran == ["shaky", "steady", "ask"]

    def test_a_run_goes_on_within_a_step(self, saver: MemSaver, call: Caller, location: Place, log: Path) -> None:
        """Killed in a node while the one beside it was done: the first runs again, the other does not."""
        Death(location, log, ({"found": []},), "within", done=1, awaited=call.runner is not None).meet()
        before = call(build_work(saver, str), "get_state", at("t"))
        assert {task.name: task.result for task in before.tasks} == {"steady": {"found": ["steady"]}, "shaky": None}
        state, ran = self.go_on(call, saver, log, None)
        assert state.values == {"found": ["shaky", "steady"]}
        assert ran == ["shaky", "steady", "shaky", "ask"]

    def test_a_question_outlives_its_process(self, saver: MemSaver, call: Caller, location: Place, log: Path) -> None:
        """Asked by a process that was killed then: it is answered in another, and what had ended does not run again."""
        Death(location, log, ({"found": []},), "ended", awaited=call.runner is not None).meet()
        asked = call(build_work(saver, str), "get_state", at("t"))
        assert [each.value for each in asked.interrupts] == [{"found": ["shaky", "steady"]}]
        state, ran = self.go_on(call, saver, log, answer("yes"))
        assert (state.values["answer"], state.values["found"]) == ("yes", ["shaky", "steady", "yes"])
        assert ran == ["shaky", "steady", "ask", "ask", "close"]

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_an_answer_outlives_its_process(
        self, saver: MemSaver, call: Caller, location: Place, log: Path, when: str
    ) -> None:
        """Killed when the node had taken the answer: it is not asked again, in the third process."""
        awaited = call.runner is not None
        Death(location, log, ({"found": []},), "ended", awaited=awaited).meet()
        Death(location, log, (answer("yes"),), when, step=2, done=1, awaited=awaited).meet()
        state, ran = self.go_on(call, saver, log, None)
        assert (state.next, state.values["found"]) == ((), ["shaky", "steady", "yes"])
        assert ran == ["shaky", "steady", "ask", "ask", "close"]

    @pytest.mark.parametrize("moment", [("after", 7, 0), ("before", 9, 2), ("after", 9, 0), ("before", 10, 1)])
    def test_delta_channels_lose_nothing(
        self, saver: MemSaver, call: Caller, location: Place, log: Path, moment: tuple[str, int, int]
    ) -> None:
        """Killed in the third round of a thread: resumed, and pruned, it has all that was noted, once."""
        rounds = tuple(note(number) for number in range(3))
        Death(location, log, rounds, *moment, awaited=call.runner is not None, notes=True).meet()
        call(saver, "prune", ["t"])
        ran: list[str] = []
        graph = build_notes(saver, log=ran.append)
        call(graph, "invoke", None, at("t"))
        assert call.values(graph, at("t")) == expected_notes(3)
        assert sorted([*log.read_text().split(), *ran]) == ["count"] * 3 + ["left"] * 3 + ["right"] * 3
        call(graph, "invoke", note(3), at("t"))
        assert call.values(graph, at("t")) == expected_notes(4)
