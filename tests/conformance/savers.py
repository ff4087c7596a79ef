"""The contract of a checkpointer: LangGraph's own suite, and writes, configs and versions, which it leaves out."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.base import WRITES_IDX_MAP, BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.graph import StateGraph
from langgraph.types import Send

from memstore import MemSaver
from memstore.errors import MemStoreError
from tests.conformance.saver_callers import Saving, SyncBridge, SyncSaver, ids, name_at, to_checkpoint, to_config
from tests.support import Place

COUNTS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}
"""Tests of each capability in langgraph-checkpoint-conformance 0.0.2."""
SPECIAL = ("__error__", "__scheduled__", "__interrupt__", "__resume__")
UNNAMED: dict[str, Any] = {
    "nothing": {"configurable": {}},
    "None": {"configurable": {"thread_id": None, "checkpoint_ns": ""}},
    "a namespace alone": {"configurable": {"checkpoint_ns": "", "checkpoint_id": "1"}},
    "no configurable": {"metadata": {}},
}
CALLS: dict[str, Callable[[SyncSaver, Any], object]] = {
    "put": lambda saver, config: saver.put(config, to_checkpoint("1")),
    "put_writes": lambda saver, config: saver.put_writes(config, [("a", 1)]),
    "get_tuple": lambda saver, config: saver.get_tuple(config),
    "list": lambda saver, config: saver.list(config),
}


class Count(TypedDict):
    """A state of one number."""

    n: int


class SuiteConformance:
    """LangGraph's own suite; a saver in which it detects nothing passes, and so what it counts is compared."""

    @pytest.mark.parametrize("wrap", [lambda saver: saver, SyncBridge], ids=["async", "sync"])
    async def test_every_test_of_the_suite_passes(
        self, new_place: Callable[[], Place], wrap: Callable[[MemSaver], BaseCheckpointSaver[str]]
    ) -> None:
        """All 81, of every capability; sync methods through a bridge, on the event loop."""

        async def make() -> AsyncGenerator[BaseCheckpointSaver[Any], None]:
            async with name_at(new_place()) as saver:
                yield wrap(saver)

        report = await validate(checkpointer_test(name="memstore")(make))
        failures = {name: result.failures for name, result in report.results.items() if result.failures}
        assert failures == {}
        assert {name: result.tests_passed for name, result in report.results.items()} == COUNTS
        assert sum(COUNTS.values()) == 81
        assert report.passed_all_base()
        assert report.passed_all()


class WritesConformance(Saving):
    """What tasks wrote after a checkpoint."""

    def test_writes_come_in_the_order_in_which_they_are_applied(self, saver: SyncSaver) -> None:
        """By the task's path, then its id, then the place in the call; not by when they were put."""
        config = saver.put(to_config(), to_checkpoint("1"))
        saver.put_writes(config, [("a", "z2 0"), ("b", "z2 1")], "z", "path 2")
        saver.put_writes(config, [("a", "a2")], "a", "path 2")
        saver.put_writes(config, [("a", f"m1 {n}") for n in range(12)], "m", "path 1")
        saver.put_writes(config, [("a", "y")], "y")
        expected = ["y", *(f"m1 {n}" for n in range(12)), "a2", "z2 0", "z2 1"]
        (listed,) = saver.list(to_config())
        for writes in (saver.get(config).pending_writes, saver.get(to_config()).pending_writes, listed.pending_writes):
            assert writes is not None
            assert [value for _, _, value in writes] == expected
            assert writes[-1] == ("z", "b", "z2 1")

    def test_special_writes_come_before_others_of_their_task(self, saver: SyncSaver) -> None:
        """Their places are below zero, in LangGraph's own numbering."""
        config = saver.put(to_config(), to_checkpoint("1"))
        saver.put_writes(config, [("a", 1), *((channel, channel) for channel in SPECIAL), ("b", 2)], "task")
        channels = [channel for _, channel, _ in saver.get(config).pending_writes or ()]
        assert channels == [*sorted(SPECIAL, key=WRITES_IDX_MAP.__getitem__), "a", "b"]

    def test_the_first_write_of_a_place_wins(self, saver: SyncSaver) -> None:
        """A task that runs again may have other values: what is there stays, and what is new is added."""
        config = saver.put(to_config(), to_checkpoint("1"))
        saver.put_writes(config, [("a", "first"), ("b", "first")])
        saver.put_writes(config, [("a", "second"), ("c", "second"), ("d", "second")])
        assert saver.get(config).pending_writes == [
            ("task", "a", "first"),
            ("task", "b", "first"),
            ("task", "d", "second"),
        ]

    @pytest.mark.parametrize("channel", SPECIAL)
    def test_the_last_special_write_wins(self, saver: SyncSaver, channel: str) -> None:
        """Decided for each write by itself: in a mixed call, and within one call too."""
        config = saver.put(to_config(), to_checkpoint("1"))
        saver.put_writes(config, [("a", 1), (channel, "first")])
        saver.put_writes(config, [("a", 2), (channel, "second")])
        assert saver.get(config).pending_writes == [("task", channel, "second"), ("task", "a", 1)]
        saver.put_writes(config, [(channel, "third"), (channel, "fourth")])
        assert saver.get(config).pending_writes == [("task", channel, "fourth"), ("task", "a", 1)]

    def test_tasks_do_not_share_places(self, saver: SyncSaver) -> None:
        """Nor do namespaces, threads or checkpoints."""
        places = [("t", ""), ("t", "sub"), ("u", "")]
        configs = [
            saver.put(to_config(thread, None, namespace), to_checkpoint(id_))
            for thread, namespace in places
            for id_ in ("1", "2")
        ]
        for number, config in enumerate(configs):
            for task in ("x", "y"):
                saver.put_writes(config, [("a", (number, task)), ("__error__", number)], task)
        for number, config in enumerate(configs):
            values = [value for _, _, value in saver.get(config).pending_writes or ()]
            assert values == [number, [number, "x"], number, [number, "y"]]

    def test_writes_may_come_before_their_checkpoint(self, saver: SyncSaver) -> None:
        """They run in the background: they are kept, show no checkpoint by themselves, and are there when it comes."""
        config = to_config("t", "1")
        saver.put_writes(config, [("a", 1)], "task", "path")
        assert saver.get_tuple(config) is None
        assert saver.list(None) == []
        saver.put(to_config(), to_checkpoint("1"))
        assert saver.get(config).pending_writes == [("task", "a", 1)]

    def test_no_writes_are_no_writes(self, saver: SyncSaver) -> None:
        """An empty list changes nothing; a checkpoint without writes has an empty list."""
        config = saver.put(to_config(), to_checkpoint("1"))
        saver.put_writes(config, [])
        assert saver.get(config).pending_writes == []

    def test_writes_need_a_checkpoint(self, saver: SyncSaver) -> None:
        """A config that names none is refused, by an error of memstore's."""
        with pytest.raises(ValueError, match="checkpoint_id") as refusal:
            saver.put_writes(to_config(), [("a", 1)])
        assert isinstance(refusal.value, MemStoreError)

    def test_langgraph_finds_the_parameter_for_paths(self) -> None:
        """It looks at the signature, and passes no path where there is no such name."""
        for method in (MemSaver.put_writes, MemSaver.aput_writes):
            assert inspect.signature(method).parameters["task_path"].default == ""


class SaversConformance(Saving):
    """Configs, ids and versions."""

    def test_it_is_a_checkpointer(self, saver: SyncSaver) -> None:
        """LangGraph compiles a graph with nothing else."""
        assert isinstance(saver.saver, BaseCheckpointSaver)
        graph: Any = StateGraph(Count)
        graph.add_node("n", lambda state: state)
        graph.set_entry_point("n")
        assert graph.compile(checkpointer=saver.saver).checkpointer is saver.saver

    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
    @pytest.mark.parametrize("config", UNNAMED.values(), ids=UNNAMED.keys())
    def test_a_config_without_a_thread_is_refused(
        self, saver: SyncSaver, call: Callable[[SyncSaver, Any], object], config: Any
    ) -> None:
        """A ValueError of memstore's that says what is missing; nothing is stored under any other name."""
        with pytest.raises(ValueError, match="thread_id") as refusal:
            call(saver, config)
        assert isinstance(refusal.value, MemStoreError)
        assert saver.list(None) == []

    def test_thread_ids_may_be_numbers(self, saver: SyncSaver) -> None:
        """Whatever is no text becomes text, in every call."""
        config = saver.put(to_config(7), to_checkpoint("1"))
        assert config["configurable"]["thread_id"] == "7"
        saver.put_writes(to_config(7, "1"), [("a", 1)])
        for name in (7, "7"):
            assert saver.get(to_config(name)).pending_writes == [("task", "a", 1)]
            assert ids(saver.list(to_config(name))) == ["1"]
        saver.copy_thread(7, 8)
        assert ids(saver.list(to_config(8))) == ["1"]
        saver.prune([8], strategy="delete")
        assert saver.list(to_config("8")) == []
        saver.delete_thread(7)
        assert saver.list(None) == []

    def test_the_config_of_a_checkpoint_is_made_anew(self, saver: SyncSaver) -> None:
        """It names thread, namespace and checkpoint, and nothing else that was in the caller's."""
        given = to_config("t", None, "sub")
        given["configurable"]["extra"] = 1
        expected = to_config("t", "1", "sub")
        assert saver.put(given, to_checkpoint("1")) == expected
        given["configurable"]["checkpoint_id"] = "1"
        found = saver.get(given)
        assert (found.config, found.parent_config) == (expected, None)

    def test_the_same_id_replaces_everything(self, saver: SyncSaver) -> None:
        """Values, metadata and parent; what was written after it stays."""
        root = saver.put(to_config(), to_checkpoint("1"))
        other = saver.put(to_config(), to_checkpoint("2"))
        first = to_checkpoint("3", {"a": [1], "gone": "x"}, channel_versions={"a": 1, "gone": 1})
        config = saver.put(root, first, {"step": 1, "old": True})
        saver.put_writes(config, [("a", 1)])
        second = to_checkpoint("3", {"a": [2], "b": "y"}, channel_versions={"a": 2, "b": 1}, ts="later")
        assert saver.put(other, second, {"step": 2}) == config
        found = saver.get(config)
        assert found.checkpoint == second
        assert found.metadata == {"step": 2}
        assert found.parent_config == other
        assert found.pending_writes == [("task", "a", 1)]
        saver.put(to_config(), second, {"step": 2})
        assert saver.get(config).parent_config is None
        assert ids(saver.list(to_config())) == ["3", "2", "1"]

    def test_the_newest_has_the_greatest_id(self, saver: SyncSaver) -> None:
        """Whichever was put last."""
        for id_ in ("2", "3", "1"):
            saver.put(to_config(), to_checkpoint(id_))
        assert saver.get(to_config()).checkpoint["id"] == "3"
        assert saver.get_tuple(to_config("t", "4")) is None
        assert saver.get_tuple(to_config("t", "3", "sub")) is None

    @pytest.mark.parametrize("versions", [(1, 2), (1.0, 2.0), (1.5, 2.5), ("1", "2.0")], ids=repr)
    def test_versions_keep_their_type(self, saver: SyncSaver, versions: tuple[Any, Any]) -> None:
        """Integers, floats and texts; LangGraph compares them, and makes a zero of their type."""
        one, two = versions
        parent = to_checkpoint("1", {"a": [1], "b": [1]}, channel_versions={"a": one, "b": one})
        config = saver.put(to_config(), parent)
        child = to_checkpoint(
            "2", {"a": [1], "b": [2]}, channel_versions={"a": one, "b": two}, versions_seen={"n": {"a": one, "b": two}}
        )
        saver.saver.put(config, child, {}, {"b": two})
        found = saver.get(to_config()).checkpoint
        assert found == child
        assert {type(version) for version in found["channel_versions"].values()} == {type(one)}
        assert {type(version) for version in found["versions_seen"]["n"].values()} == {type(one)}
        assert saver.get(config).checkpoint == parent

    def test_the_next_version_is_greater(self, saver: SyncSaver) -> None:
        """As text, after nothing, after a number and after its like; and no two branches make the same."""
        following = saver.saver.get_next_version
        version = following(None, None)
        assert version.split(".")[0] == f"{1:032}"
        for count in range(2, 12):
            later = following(version, None)
            assert later > version
            assert int(later.split(".")[0]) == count
            version = later
        assert following(41, None).split(".")[0] == f"{42:032}"
        assert len({following(version, None) for _ in range(100)}) == 100


class SendsConformance(Saving):
    """Checkpoints of formats before 4, whose sends are writes of their parents."""

    def put_sends(self, saver: SyncSaver, thread: str, namespace: str = "", format: int = 3) -> list[Send]:
        """Put a parent that sends, and its child; give what is sent in the order in which it counts."""
        parent = saver.put(to_config(thread, None, namespace), to_checkpoint("1", {"a": 1}, v=format))
        sends = [Send("node", f"{thread} {namespace} {number}") for number in range(3)]
        saver.put_writes(parent, [("__pregel_tasks", sends[2])], "a", "path 2")
        saver.put_writes(parent, [("other", 1), ("__pregel_tasks", sends[1])], "c", "path 1")
        saver.put_writes(parent, [("__pregel_tasks", sends[0])], "b", "path 1")
        saver.put(parent, to_checkpoint("2", {"a": 2}, v=format, channel_versions={"a": 7}))
        return sends

    def test_sends_are_found_with_the_parent(self, saver: SyncSaver) -> None:
        """By every way of reading, each thread and namespace its own."""
        places = [("t", ""), ("u", ""), ("t", "sub"), ("v", "")]
        sent = {place: self.put_sends(saver, *place) for place in places}
        for (thread, namespace), sends in sent.items():
            found = [
                saver.get(to_config(thread, None, namespace)),
                saver.get(to_config(thread, "2", namespace)),
                *saver.list(to_config(thread, None, namespace), limit=1),
            ]
            for one in found:
                assert one.checkpoint["channel_values"] == {"a": 2, "__pregel_tasks": sends}
                assert one.checkpoint["channel_versions"]["__pregel_tasks"] == 7
            assert "__pregel_tasks" not in saver.get(to_config(thread, "1", namespace)).checkpoint["channel_values"]
        for listed in (saver.list(None), saver.list(None, filter={"none": None})):
            named = {
                (one.config["configurable"]["thread_id"], one.config["configurable"]["checkpoint_ns"]): one
                for one in listed
                if one.checkpoint["id"] == "2"
            }
            assert {place: one.checkpoint["channel_values"]["__pregel_tasks"] for place, one in named.items()} == sent

    def test_newer_formats_hold_their_own(self, saver: SyncSaver) -> None:
        """What the parent's tasks sent has its channel there; nothing is added."""
        self.put_sends(saver, "t", format=4)
        assert saver.get(to_config()).checkpoint["channel_values"] == {"a": 2}
