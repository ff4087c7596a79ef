"""A saver beside LangGraph's own in memory: the same random calls give the same answers."""

from __future__ import annotations

import random
from pprint import pformat
from typing import Any, Final

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver

from memstore import MemSaver
from tests.conformance.saver_graphs import OnSaver
from tests.graphs import LONG, Caller, at

THREADS: Final = ("a", "b", "ä 💡")
NAMESPACES: Final = ("", "sub", "sub:1|deep:2")
CHANNELS: Final = ("text", "count", "messages", "a.b", "é")
VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 2**40, 1.5, -0.0, 1e300, "", "short", "quote ' \" \\", LONG, b"bytes", [1, [2]],
    {"a": {"b": None}}, {"set", "of"}, AIMessage("hello", id="m"),
)  # fmt: skip
KINDS: Final = ("text", "count", "__error__", "__interrupt__", "__resume__", "__scheduled__")
STEPS: Final = 150
MIX: Final = ("put",) * 6 + ("put_writes",) * 5 + ("get",) * 4 + ("list",) * 4 + ("delete",)


class Pair:
    """Two savers that are told the same."""

    def __init__(self, call: Caller, saver: Any, chance: random.Random) -> None:
        self.call, self.chance = call, chance
        self.savers = (saver, InMemorySaver())
        self.stored: dict[tuple[str, str], list[Any]] = {}
        self.versions = 0

    def step(self) -> None:
        """Make one random call on both."""
        getattr(self, self.chance.choice(MIX))()

    def both(self, method: str, *args: Any, **options: Any) -> Any:
        """Call both, and give what they answered, which is the same."""
        ours, theirs = (to_plain(self.call(saver, method, *args, **options)) for saver in self.savers)
        assert ours == theirs, (method, args, options)
        return ours

    def put(self) -> None:
        """Put a checkpoint: below an older one, with some channels changed, gone or without a value."""
        place = self._place()
        known = self.stored.setdefault(place, [])
        parent = self.chance.choice([*known, None]) if known else None
        values = dict(parent["channel_values"]) if parent else {}
        versions = dict(parent["channel_versions"]) if parent else {}
        changed = self.chance.sample(CHANNELS, self.chance.randint(0, 3))
        for channel in changed:
            self.versions += 1
            versions[channel] = f"{self.versions:032}.{self.chance.random():016}"
            values.pop(channel, None)
            if self.chance.random() < 0.85:
                values[channel] = self.chance.choice(VALUES)
        checkpoint = {
            "v": 4, "id": str(uuid6(clock_seq=len(known))), "ts": "2030-01-01T00:00:00+00:00",
            "channel_values": values, "channel_versions": versions, "versions_seen": {"n": dict(versions)},
            "updated_channels": changed or None,
        }  # fmt: skip
        config = self._config(place, parent)
        config["configurable"].update(user=self.chance.choice(["x", "y"]), __hidden=1, nested={"a": 1})
        config["metadata"] = {"run_id": f"r{self.chance.randint(0, 3)}", "flag": self.chance.choice([True, 2, 1.5])}
        metadata = {"source": self.chance.choice(["loop", "input"]), "step": len(known), "parents": {"": "x"}}
        self.both("put", config, checkpoint, metadata, {channel: versions[channel] for channel in changed})
        known.append(checkpoint)

    def put_writes(self) -> None:
        """Put writes to a checkpoint, or to none, of new tasks and old, plain and special ones."""
        place = self._place()
        target = self.chance.choice([*self.stored.get(place, []), {"id": str(uuid6())}])
        kinds = [self.chance.choice(KINDS) for _ in range(self.chance.randint(0, 4))]
        kinds = list(dict.fromkeys(kinds)) if any(kind.startswith("__") for kind in kinds) else kinds
        writes = [(kind, self.chance.choice(VALUES)) for kind in kinds]
        task = self.chance.choice("tuvw")
        self.both("put_writes", self._config(place, target), writes, f"task-{task}", f"~{ord(task) % 3}")

    def get(self) -> None:
        """Get the newest, one of the past, or one that is not there."""
        place = self._place()
        target = self.chance.choice([*self.stored.get(place, []), None, None, {"id": str(uuid6())}])
        self.both("get_tuple", self._config(place, target))

    def list(self) -> None:
        """List a thread or a namespace, before a checkpoint, by metadata, some or all."""
        place = self._place()
        options: dict[str, Any] = {}
        if self.chance.random() < 0.4:
            options["limit"] = self.chance.choice([0, 1, 2, 5])
        if self.chance.random() < 0.4 and self.stored.get(place):
            options["before"] = self._config(place, self.chance.choice(self.stored[place]))
        if self.chance.random() < 0.4:
            options["filter"] = self.chance.choice(
                [{"source": "loop"}, {"run_id": "r1", "user": "x"}, {"flag": 2}, {"flag": 1.5, "step": 3}, {"no": 1}]
            )
        self.both("list", self._config(place, None), **options)

    def delete(self) -> None:
        """Delete a thread, seldom."""
        if self.chance.random() < 0.3:
            thread = self.chance.choice(THREADS)
            self.both("delete_thread", thread)
            self.stored = {place: known for place, known in self.stored.items() if place[0] != thread}

    def _place(self) -> tuple[str, str]:
        return self.chance.choice(THREADS), self.chance.choice(NAMESPACES)

    def _config(self, place: tuple[str, str], checkpoint: Any) -> Any:
        named = {} if checkpoint is None else {"checkpoint_id": checkpoint["id"]}
        return at(place[0], checkpoint_ns=place[1], **named)


def to_plain(answer: Any) -> Any:
    """Give an answer as a text: of dicts and sets the order is nothing, minus zero is told from zero."""
    if isinstance(answer, list):
        return [to_plain(each) for each in answer]
    if not hasattr(answer, "pending_writes"):
        return answer
    names = ("thread_id", "checkpoint_ns", "checkpoint_id")
    config = {name: answer.config["configurable"][name] for name in names}
    return pformat((config, answer.checkpoint, answer.metadata, answer.parent_config, answer.pending_writes))


class CongruenceConformance(OnSaver):
    """The same random calls on both."""

    @pytest.mark.parametrize("seed", range(4))
    def test_random_calls_are_answered_alike(self, saver: MemSaver, call: Caller, seed: int) -> None:
        """Puts, writes, reads, listings and deletions in three threads and namespaces, and all of them in the end."""
        pair = Pair(call, saver, random.Random(seed))  # noqa: S311  no secret
        for _ in range(STEPS):
            pair.step()
        for thread in THREADS:
            for namespace in NAMESPACES:
                pair.both("list", at(thread, checkpoint_ns=namespace))
        assert sum(map(len, pair.stored.values())) > 10
