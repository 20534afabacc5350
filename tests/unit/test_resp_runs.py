"""Runs of XADD: the answers, the entries and what else can be seen are those of the commands one by one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration.resp_wire import Error, packed
from lamina.engines.topics import ids
from lamina.log import OS, LogOptions
from lamina.server.resp.runs import Run, grouped
from resp_lab import Caller, Lab, in_loop, words

LIMIT = 200  # bytes of the largest record
Command = list[bytes]


class SmallLab(Lab):
    """Takes no entry that is larger than a few words."""

    def opened(self, files: Any) -> Any:
        self.options = LogOptions(sync=OS, max_payload=LIMIT)
        return super().opened(files)


def shown(commands: list[Command | Run]) -> list[object]:
    return [(one.key, one.commands) if isinstance(one, Run) else one for one in commands]


# -- which commands are a run ----------------------------------------------------------------------------------------


def test_neighbours_for_one_topic_are_a_run() -> None:
    first, second, other = words("XADD a * f 1"), words("xadd a * f 2 g 3"), words("XADD b * f v")
    assert shown(grouped([first, second, other, first])) == [(b"a", [first, second]), (b"b", [other]), (b"a", [first])]


@pytest.mark.parametrize(
    "text",
    [
        "XADD a 1-1 f v",
        "XADD a 5-* f v",
        "XADD a MAXLEN 3 * f v",
        "XADD a NOMKSTREAM * f v",
        "XADD a *",
        "XADD a * f",
        "XADD a * f v g",
        "XLEN a",
        "Xadd a * f v",
        "XADD",
    ],
)
def test_other_commands_are_none_and_end_one(text: str) -> None:
    add = words("XADD a * f v")
    assert shown(grouped([add, words(text), add])) == [(b"a", [add]), words(text), (b"a", [add])]


# -- one by one or at once -------------------------------------------------------------------------------------------


FIELD = st.sampled_from([b"", b"f", b"value", bytes(50), b"too large" * 50])
KEY = st.sampled_from([b"a", b"b", b"n" * 300])
ADD = st.builds(
    lambda key, under, fields: [b"XADD", key, under, *fields],
    KEY,
    st.sampled_from([b"*", b"*", b"*", b"*", b"*", b"1700000000005-*", b"18446744073709551615-18446744073709551615"]),
    st.lists(FIELD, min_size=1, max_size=5),
)
OTHER = st.sampled_from(
    [
        words(text)
        for text in [
            "XLEN a",
            "DEL a",
            "XDEL a 1700000000000-1",
            "XTRIM a MAXLEN 1",
            "MULTI",
            "EXEC",
            "DISCARD",
            "CLIENT REPLY OFF",
            "CLIENT REPLY ON",
            "CLIENT REPLY SKIP",
            "AUTH secret",
            "RESET",
            "XRANGE a - + COUNT 2",
            "RENAME a b",
            "XINFO STREAM a",
            "WATCH a",
            "XADD",
        ]
    ]
)
STORY = st.lists(st.one_of(ADD, ADD, ADD, OTHER), max_size=25)


async def told(story: list[Command], *, at_once: bool, password: bytes | None) -> tuple[bytes, object]:
    """All that was sent to a client, and what it left behind."""
    lab = SmallLab(password=password)
    caller = lab.caller()
    pieces = [b"".join(map(packed, story))] if at_once else list(map(packed, story))  # type: ignore[arg-type]
    for piece in pieces:
        caller.send_raw(piece)
        if not at_once:
            await asyncio.sleep(0)
    await lab.settle()
    session = caller.connection.session
    left = {name: entries(lab, name) for name in lab.topics.names()}
    return caller.line.sent, (left, lab.house.commands, session.last_command.lower(), len(session.seen))


def entries(lab: Lab, name: bytes) -> object:
    topic = lab.topics.get(name)
    assert topic is not None
    return topic.read(ids.FIRST)[0], topic.state.added, topic.state.last_id


@settings(max_examples=150, deadline=None)
@given(STORY, st.booleans())
def test_a_pipeline_is_answered_as_its_commands_one_by_one(story: list[Command], has_password: bool) -> None:
    async def compare() -> None:
        password = b"secret" if has_password else None
        at_once = await told(story, at_once=True, password=password)
        assert at_once == await told(story, at_once=False, password=password)

    asyncio.run(compare())


# -- a run that stops in the middle ----------------------------------------------------------------------------------


async def asked(lab: Lab, *commands: str | Command) -> tuple[Caller, list[Any]]:
    caller = lab.caller()
    return caller, await caller.ask(*commands)


@in_loop
async def test_one_that_is_too_large_is_refused_and_those_around_it_are_added() -> None:
    lab = SmallLab()
    large = [b"XADD", b"a", b"*", b"f", bytes(LIMIT)]
    _, answers = await asked(lab, "XADD a * f 1", "XADD a * f 2", large, "XADD a * f 3", large, "XADD a * f 4")
    assert [isinstance(answer, Error) for answer in answers] == [False, False, True, False, True, False]
    assert lab.values("a") == [b"1", b"2", b"3", b"4"]
    added = [answers[at] for at in (0, 1, 3, 5)]
    assert [id for id, _ in lab.topic("a").read(ids.FIRST)[0]] == [ids.parse(id) for id in added]


@in_loop
async def test_a_run_of_nothing_but_what_is_too_large_makes_no_topic() -> None:
    lab = SmallLab()
    large = [b"XADD", b"a", b"*", b"f", bytes(LIMIT)]
    _, answers = await asked(lab, large, large, "EXISTS a")
    assert isinstance(answers[0], Error) and answers[0] == answers[1] and answers[2] == 0
    assert not [path for path in lab.disk.contents() if path.startswith("topics/a/")]


@in_loop
async def test_the_run_that_comes_to_the_last_id_there_is_stops_there() -> None:
    lab = Lab(OS)
    largest = 2**64 - 1
    _, answers = await asked(lab, f"XADD a {largest}-{largest - 2} f v", *["XADD a * f v"] * 4)
    assert answers[1:3] == [b"%d-%d" % (largest, largest - 1), b"%d-%d" % (largest, largest)]
    assert all(b"exhausted the last possible ID" in answer for answer in answers[3:])


@in_loop
async def test_with_a_disk_that_is_full_from_some_entry_on_each_is_answered_as_it_is() -> None:
    """Careful after a refusal, the engine writes each entry by itself: some get through and some do not."""
    lab = Lab(OS)
    caller, _ = await asked(lab, "XADD a * f before")
    lab.full("a")
    assert isinstance(await caller.ask_one("XADD a * f refused"), Error)
    lab.files.fail("append", nth=2, error=28, times=2, only="/a/")
    answers = await caller.ask(*(f"XADD a * f {number}" for number in range(6)))
    kept = [b"%d" % number for number, answer in enumerate(answers) if not isinstance(answer, Error)]
    assert len(answers) == 6 and lab.values("a") == [b"before", *kept] and 0 < len(kept) < 6


@in_loop
async def test_of_more_entries_than_are_handed_over_at_once_the_refused_are_told() -> None:
    lab = Lab(OS)
    caller, _ = await asked(lab, "XADD a * f before")
    lab.full("a")
    lab.topic("a").add([b"f", b"refused"])
    lab.topic("a").push()
    lab.log("a").run_round()
    answers = await caller.ask(*["XADD a * f v"] * 1200)
    refused = sum(isinstance(answer, Error) for answer in answers)
    assert len(answers) == 1200 and refused > 900
    assert len(lab.values("a")) == 1 + 1200 - refused


@in_loop
async def test_a_run_wakes_who_waits() -> None:
    lab = Lab(OS)
    waiting = lab.caller()
    await waiting.ask("XREAD BLOCK 0 STREAMS a $")
    await asked(lab, *["XADD a * f v"] * 3)
    (((_, found),),) = waiting.got()
    assert len(found) == 3
