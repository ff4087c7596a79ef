"""One database used by a saver and by LangGraph's own: what one wrote, the other reads, goes on with and prunes."""

from __future__ import annotations

from collections.abc import Callable
from pprint import pformat
from typing import Any, TypeAlias

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from memstore import MemSaver, NotEncrypted
from tests.conformance.saver_graphs import OnSaver
from tests.graphs import (
    DURABILITIES,
    LONG,
    Caller,
    SiteDown,
    answer,
    at,
    build_anything,
    build_fan,
    build_nested,
    build_notes,
    build_talk,
    build_work,
    expected_notes,
    note,
    of_run,
    say,
)
from tests.support import Place

OpenOfficial: TypeAlias = Callable[..., Any]
"""Opens LangGraph's own saver on the test's database: `open_official(serde=...)`; closed when the test ends."""
KEY = b"sixteen bytes..!"
NUMBER = "4711-0815-2342"
TOLD = f"the number is {NUMBER}"


def rows(call: Caller, saver: Any, thread_id: str) -> str:
    """Give all that a saver tells of a thread."""
    listed = call(saver, "list", at(thread_id))
    listed += [call(saver, "get_tuple", each.config) for each in listed]
    return pformat([tuple(each) for each in sorted(listed, key=lambda each: str(each.config))], width=120)


def look_alike(call: Caller, one: Any, other: Any, thread_id: str) -> None:
    """Compare what two savers tell of a thread."""
    assert rows(call, one, thread_id) == rows(call, other, thread_id)


def leave_waiting(call: Caller, saver: Any) -> None:
    """Leave threads that were interrupted, have failed, or are in a subgraph."""
    call(build_work(saver, str), "invoke", {"found": []}, at("asked"))
    call(build_fan(saver, str), "invoke", {"answer": "a ask b"}, at("sent"))
    for name, own in (("nested", None), ("remembering", True)):
        graph = build_nested(saver, own=own)
        call(graph, "invoke", {"found": []}, at(name))
        call(graph, "invoke", answer("one"), at(name))
        call(graph, "invoke", {"found": []}, at(name))


WAITING = ("asked", "sent", "nested", "remembering")


def go_on(call: Caller, saver: Any) -> list[Any]:
    """Answer what waits, and give how it ended."""
    log: list[str] = []
    ended = [
        call(build_work(saver, log.append), "invoke", answer("yes"), at("asked")),
        call(build_fan(saver, log.append), "invoke", answer("x"), at("sent")),
        call(build_nested(saver, log.append), "invoke", answer("two"), at("nested")),
        call(build_nested(saver, log.append, own=True), "invoke", answer("two"), at("remembering")),
    ]
    assert log == ["ask", "close", "ask", "ask", "close", "ask", "close"]
    return ended


class CrossingConformance(OnSaver):
    """Fixture `open_official` opens LangGraph's own saver, `contents` gives all that the database holds, as bytes."""

    @pytest.fixture(params=["official first", "ours first"])
    def pair(self, request: pytest.FixtureRequest) -> Any:
        """Give both savers, the one first that also made the tables."""
        if request.param == "ours first":
            ours = request.getfixturevalue("saver")
            return ours, request.getfixturevalue("open_official")()
        official = request.getfixturevalue("open_official")()
        return official, request.getfixturevalue("saver")

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_a_thread_goes_on_on_the_other_side(self, pair: Any, call: Caller, durability: str) -> None:
        """Each reads all that the other wrote as it does itself, and takes the next turn of the conversation."""
        first, second = pair
        call(build_talk(first), "invoke", say("0", text=LONG), of_run("t", "r0"), durability=durability)
        look_alike(call, first, second, "t")
        for turn in range(1, 6):
            saver = (second, first)[turn % 2]
            given = {"profile": {"turn": turn}} if turn == 3 else {}
            call(build_talk(saver), "invoke", say(str(turn), **given), of_run("t", f"r{turn}"), durability=durability)
            look_alike(call, first, second, "t")
        for saver in pair:
            values = call.values(build_talk(saver), at("t"))
            assert (values["turns"], values["text"], len(values["messages"])) == (6, LONG, 12)
            assert values["messages"][-2:] == [HumanMessage("5", id="h5"), AIMessage("5", id="a11")]
            assert values["profile"] == {"last": "5", "true": True}
            history = call(build_talk(saver), "get_state_history", at("t"), filter={"run_id": "r3"})
            assert len(history) == (1 if durability == "exit" else 4)
        assert call.history(build_talk(first), at("t")) == call.history(build_talk(second), at("t"))

    def test_what_waits_goes_on_on_the_other_side(self, pair: Any, call: Caller) -> None:
        """Questions, sent tasks and subgraphs: no node that was done runs again, and both see the same end."""
        first, second = pair
        leave_waiting(call, first)
        for name in WAITING:
            look_alike(call, first, second, name)
        ended = go_on(call, second)
        assert [state["found"][-1] for state in ended] == ["yes", "b", "two", "two"]
        for name in WAITING:
            look_alike(call, first, second, name)

    def test_a_failed_run_goes_on_on_the_other_side(
        self, saver: MemSaver, open_official: OpenOfficial, call: Caller
    ) -> None:
        """What the node beside the failed one found was written by one saver, and is used by the other."""
        log: list[str] = []
        with pytest.raises(SiteDown):
            call(build_work(saver, log.append, works=False), "invoke", {"found": []}, at("t"))
        official = open_official()
        look_alike(call, saver, official, "t")
        log.clear()
        call(build_work(official, log.append), "invoke", None, at("t"))
        assert log == ["shaky", "ask"]

    def test_what_was_pruned_goes_on_on_the_other_side(
        self, saver: MemSaver, open_official: OpenOfficial, call: Caller
    ) -> None:
        """Threads of LangGraph's saver, pruned, swept and copied by memstore's: its own reads and goes on with them."""
        official = open_official()
        leave_waiting(call, official)
        for turn in range(3):
            call(build_talk(official), "invoke", say(str(turn), text=LONG), at("t"))
        before = call.history(build_talk(official), at("t"))[0]
        call(saver, "copy_thread", "t", "copy")
        look_alike(call, saver, official, "copy")
        call(saver, "prune", [*WAITING, "t"])
        for name in (*WAITING, "t"):
            look_alike(call, saver, official, name)
        assert call.history(build_talk(official), at("t")) == [(*before[:4], True)]
        assert [state["found"][-1] for state in go_on(call, official)] == ["yes", "b", "two", "two"]
        call(build_talk(official), "invoke", say("3"), at("t"))
        assert call.values(build_talk(saver), at("t"))["turns"] == 4
        assert call.values(build_talk(saver), at("copy"))["turns"] == 3
        call(saver, "delete_thread", "t")
        assert call(official, "get_tuple", at("t")) is None

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_delta_channels_cross(self, pair: Any, call: Caller, durability: str) -> None:
        """Turn by turn, with forks and prunings between: both rebuild the same values, from the same writes."""
        first, second = pair
        ours = first if isinstance(first, MemSaver) else second
        for number in range(12):
            saver = (first, second)[number % 2]
            call(build_notes(saver), "invoke", note(number), at("t"), durability=durability)
            for each in pair:
                assert call.values(build_notes(each), at("t")) == expected_notes(number + 1)
            if number in (5, 8):
                look_alike(call, first, second, "t")
                call(ours, "prune", ["t"])
        for listed in call(first, "list", at("t")):
            asked = {"config": listed.config, "channels": ["notes", "marks"]}
            assert call(first, "get_delta_channel_history", **asked) == call(
                second, "get_delta_channel_history", **asked
            )
        past = call(build_notes(first), "get_state_history", at("t"))[2]
        fork = call(build_notes(second), "update_state", past.config, {"notes": ["forked"]}, as_node="count")
        call(build_notes(first), "invoke", note(12), fork)
        assert call.values(build_notes(second), at("t"))["notes"].count("forked") == 1
        assert call.history(build_notes(first), at("t")) == call.history(build_notes(second), at("t"))

    @pytest.mark.parametrize(
        "value",
        [None, True, False, 0, 3, 10**15, 1.5, "", "short", LONG, "ä 💡 \\ \" '", b"\x00\xff", [True],
         {"a": {"b": None}}, {1, 2}, [HumanMessage("hi", id="h"), AIMessage("ho", id="a")]],
        ids=lambda value: f"{type(value).__name__} {str(value)[:8]!r}",
    )  # fmt: skip
    def test_values_cross(self, pair: Any, call: Caller, value: Any) -> None:
        """A value that is written once and stays: read by both after each round, whoever made it; pruned as well."""
        first, second = pair
        ours = first if isinstance(first, MemSaver) else second
        for turn in range(4):
            given = {"value": value} if turn == 0 else {"rounds": turn}
            saver = (first, second)[turn % 2]
            call(build_anything(saver), "invoke", given, at("t"))
            if turn == 2:
                call(ours, "prune", ["t"])
                assert len(call(ours, "list", at("t"))) == 1
            for each in pair:
                values = call.values(build_anything(each), at("t"))
                assert repr(values["value"]) == repr(value)
                assert values["rounds"] == turn + 1
            look_alike(call, first, second, "t")

    def test_nothing_is_left_in_plain_text(
        self, location: Place, open_official: OpenOfficial, call: Caller, contents: Callable[[], bytes]
    ) -> None:
        """With a key, no part of the state can be read in the database; LangGraph's saver goes on with the same key."""
        serde = EncryptedSerializer.from_pycryptodome_aes(key=KEY)
        with MemSaver.open(location.location, **location.options, serde=serde) as saver:
            talk, fan, notes = build_talk(saver), build_fan(saver, str), build_notes(saver)
            call(talk, "invoke", say(TOLD, text=TOLD), at("t"))
            call(talk, "invoke", say("next", profile={"secret": TOLD}), at("t"))
            call(fan, "invoke", {"answer": f"{TOLD} ask"}, at("sent"))
            for number in range(4):
                call(notes, "invoke", {"notes": [TOLD], "text": TOLD, "marks": [TOLD] * number}, at("n"))
            found = contents()
            assert b"channel_versions" in found or b"counters_since_delta_snapshot" in found
            assert not any(part in found or part.hex().encode() in found for part in (TOLD.encode(), NUMBER.encode()))
            official = open_official(serde=serde)
            for name in ("t", "sent", "n"):
                look_alike(call, saver, official, name)
            call(build_talk(official), "invoke", say("third"), at("t"))
            assert call.values(talk, at("t")) == call.values(build_talk(official), at("t"))
            assert call.values(talk, at("t"))["text"] == TOLD
            call(saver, "prune", ["t", "n", "sent"])
            for name in ("t", "sent", "n"):
                look_alike(call, saver, official, name)
            assert call(build_fan(official, str), "invoke", answer("x"), at("sent"))["found"][-1] == "x"

    def test_a_thread_goes_on_encrypted(
        self, location: Place, open_official: OpenOfficial, call: Caller, contents: Callable[[], bytes]
    ) -> None:
        """What was written without a key stays readable with one, but where all has to be encrypted; the rest is."""
        call(build_talk(open_official()), "invoke", say("plain", text=LONG), at("t"))
        serde = EncryptedSerializer.from_pycryptodome_aes(key=KEY)
        with MemSaver.open(location.location, **location.options, serde=serde) as saver:
            call(build_talk(saver), "invoke", say(TOLD, profile={}), at("t"))
            values = call.values(build_talk(saver), at("t"))
            assert [message.content for message in values["messages"]] == ["plain", "PLAIN", TOLD, TOLD.upper()]
            assert (values["text"], values["turns"]) == (LONG, 2)
            assert NUMBER.encode() not in contents()
            assert NUMBER.encode().hex().encode() not in contents()
            history = call.history(build_talk(saver), at("t"))
            assert len(history) == 8
            look_alike(call, saver, open_official(serde=serde), "t")
        strict = {"serde": serde, "require_encrypted": True, **location.options}
        with MemSaver.open(location.location, **strict) as saver:
            assert call.values(build_talk(saver), at("t"))["text"] == LONG
            with pytest.raises(NotEncrypted):
                call(build_talk(saver), "get_state_history", at("t"))
