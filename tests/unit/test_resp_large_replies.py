"""Answers too large to be made at once: the same entries as of a moment, a piece at a time, for who takes them."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import pytest

from integration.resp_wire import OK, QUEUED, Error, Simple
from lamina.log import ALWAYS, OS
from lamina.server.output import Output
from lamina.server.resp import large_replies, stream_reading
from resp_lab import HIGH_WATER, Caller, Lab, in_loop

PONG = Simple(b"PONG")
VALUE = b"v" * 10_000
ENTRIES = 300
SIZE = ENTRIES * len(VALUE)
PIECE = 300_000  # a piece of files is a window of them at least


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(stream_reading, "_LARGE", 20_000)
    monkeypatch.setattr(large_replies, "_PIECE", 20_000)
    monkeypatch.setattr(large_replies, "_COUNTED", 50_000)
    yield


def small_tail(lab: Lab, name: str = "a") -> None:
    """What is not among the newest is in files."""
    lab.topic(name).tail.most_bytes = 10_000


async def filled(sync: Any = OS) -> tuple[Lab, Caller]:
    lab = Lab(sync)
    small_tail(lab)
    caller = lab.caller()
    for number in range(ENTRIES):
        await caller.ask([b"XADD", b"a", b"%d-0" % (number + 1), b"f", VALUE])
    return lab, caller


def ids(answer: Any) -> list[int]:
    assert all(fields == [b"f", VALUE] for _, fields in answer)
    return [int(id.split(b"-")[0]) for id, _ in answer]


EVERY = list(range(1, ENTRIES + 1))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("XRANGE a - +", EVERY),
        ("XREVRANGE a + -", EVERY[::-1]),
        ("XRANGE a 51 (250-0", EVERY[50:249]),
        ("XREVRANGE a 250 (50-0", EVERY[249:49:-1]),
        ("XRANGE a - + COUNT 123", EVERY[:123]),
        ("XREVRANGE a + - COUNT 123", EVERY[:-124:-1][:123]),
    ],
)
@in_loop
async def test_all_entries_come_and_what_is_behind_them(command: str, expected: list[int]) -> None:
    lab, _ = await filled()
    for deleted in (60, 61, 62, 100, 249):
        await lab.caller().ask(f"XDEL a {deleted}-0")
    reader = lab.caller()
    answer, *others = await reader.ask(command, "PING", "XLEN a")
    whole = [number for number in EVERY if number not in (60, 61, 62, 100, 249)]
    expected = [number for number in expected if number in whole]
    if "COUNT" in command:
        expected = whole[:123] if "REV" not in command else whole[:-124:-1]
    assert ids(answer) == expected and others == [PONG, len(whole)]
    assert reader.connection.stream is None


@in_loop
async def test_who_does_not_read_is_sent_no_more_than_a_few_pieces() -> None:
    lab, _ = await filled()
    reader = lab.caller()
    reader.line.takes = False
    await reader.ask("XRANGE a - +", "PING")
    assert HIGH_WATER < len(reader.line.untaken) < 2 * PIECE < SIZE
    assert lab.door.output.bytes == len(reader.line.untaken)
    reader.line.take()
    await lab.settle()
    answer, pong = reader.got()
    assert ids(answer) == EVERY and pong == PONG and lab.door.output.bytes == 0


@in_loop
async def test_it_is_as_it_was_when_it_was_asked_for() -> None:
    lab, writer = await filled()
    reader, other = lab.caller(), lab.caller()
    reader.line.takes = other.line.takes = False
    await reader.ask("XRANGE a - +")
    await other.ask("XREVRANGE a + -")
    await writer.ask("XDEL a 150-0 299-0 3-0", "XTRIM a MAXLEN 40", "XADD a 1000-0 f new")
    for each, expected in ((reader, EVERY), (other, EVERY[::-1])):
        each.line.take()
        await lab.settle()
        (answer,) = each.got()
        assert ids(answer) == expected


@in_loop
async def test_commands_that_come_meanwhile_wait_however_many_they_are() -> None:
    lab, _ = await filled()
    reader = lab.caller()
    reader.line.takes = False
    await reader.ask("XRANGE a - +")
    for _ in range(3):
        reader.send(*["PING"] * 10_000)
        await lab.settle()
    assert PONG not in reader.line.sent.split(b"\r\n") and reader.connection.stream is not None
    reader.line.take()
    for _ in range(10):
        await lab.settle()
    answer, *others = reader.got()
    assert ids(answer) == EVERY and others == [PONG] * 30_000


@pytest.mark.parametrize("command", ["DEL a", "FLUSHALL"])
@in_loop
async def test_an_answer_whose_topic_goes_is_cut_off(command: str, caplog: pytest.LogCaptureFixture) -> None:
    lab, writer = await filled()
    reader = lab.caller()
    reader.line.takes = False
    await reader.ask("XRANGE a - +", "PING")
    await writer.ask(command)
    reader.line.take()
    await lab.settle()
    assert reader.line.was_aborted and PONG not in reader.line.sent.split(b"\r\n")
    assert "is cut off" in caplog.text


@in_loop
async def test_an_answer_whose_files_go_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    """Retention takes files away for good: entries would be missing without a word."""
    lab, writer = await filled()
    topic = lab.topic("a")
    lab.log("a").rotate()
    await writer.ask("XADD a 1000-0 f new")
    reader = lab.caller()
    reader.line.takes = False
    await reader.ask("XRANGE a - +")
    from lamina.engines.topics.retention import parse
    from lamina.engines.topics.shedding import Shedder

    assert Shedder(topic).shed(parse("length:1")).files == 1
    reader.line.take()
    await lab.settle()
    assert reader.line.was_aborted and "is cut off" in caplog.text


@in_loop
async def test_who_leaves_meanwhile_leaves_nothing_behind() -> None:
    lab, _ = await filled()
    for when in range(3):
        reader = lab.caller()
        reader.line.takes = False
        reader.send("XRANGE a - +")
        if when:
            await lab.settle()
        reader.connection.connection_lost(None)
        if when == 2:
            reader.line.take()
        await lab.settle()
        assert lab.door.workers.is_idle and lab.door.output.bytes == 0 and not reader.connection.stream


@in_loop
async def test_many_large_answers_at_once_are_all_complete() -> None:
    lab, _ = await filled()
    readers = [lab.caller() for _ in range(10)]
    for reader in readers:
        reader.send("XRANGE a - +")
    await lab.settle()
    assert all(ids(answer) == EVERY for reader in readers for answer in reader.got())


@in_loop
async def test_who_wants_no_answers_gets_none() -> None:
    lab, _ = await filled()
    reader = lab.caller()
    assert await reader.ask("CLIENT REPLY SKIP", "XRANGE a - +", "PING") == [PONG]
    assert await reader.ask("CLIENT REPLY OFF", "XRANGE a - +", "CLIENT REPLY ON", "PING") == [OK, PONG]


@in_loop
async def test_in_a_transaction_it_is_made_at_once() -> None:
    lab, _ = await filled()
    answers = await lab.caller().ask("MULTI", "XRANGE a - +", "PING", "EXEC")
    assert answers[:3] == [OK, QUEUED, QUEUED]
    assert ids(answers[3][0]) == EVERY and answers[3][1] == PONG


@in_loop
async def test_what_is_pushed_meanwhile_comes_behind_it() -> None:
    lab, _ = await filled()
    reader = lab.caller()
    reader.line.takes = False
    await reader.ask("XRANGE a - +")
    topic = lab.topic("a")
    reader.connection.push(b"+pushed\r\n", topic, topic.newest_position())
    await lab.settle()
    reader.line.take()
    await lab.settle()
    answer, pushed = reader.got()
    assert ids(answer) == EVERY and pushed == Simple(b"pushed")


@in_loop
async def test_it_waits_until_its_entries_are_safe() -> None:
    lab, writer = await filled(ALWAYS)
    reader = lab.caller()
    with lab.at_the_disk("a"):
        writer.send("XADD a 1000-0 f new")
        await reader.ask("XRANGE a - +")
        assert reader.line.sent == b""
    await lab.settle()
    (answer,) = reader.got()
    assert len(answer) == ENTRIES + 1


@in_loop
async def test_entries_that_the_disk_refuses_are_never_sent() -> None:
    lab, writer = await filled(ALWAYS)
    reader = lab.caller()
    with lab.at_the_disk("a"):
        writer.send("XADD a 1000-0 f refused")
        await reader.ask("XRANGE a - +", "PING")
        lab.files.fail("append", error=errno.ENOSPC, only="/a/")
    await lab.settle()
    assert b"refused" not in reader.line.sent
    answers = reader.got()
    assert reader.line.was_aborted or (isinstance(answers[0], Error) and answers[1] == PONG)
    assert ids(await lab.caller().ask_one("XRANGE a - +")) == EVERY


# -- what a reader gets at once --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["XREAD STREAMS a {last}", "XREAD BLOCK 0 STREAMS a {last}", "XREADGROUP GROUP g c STREAMS a >"]
)
@in_loop
async def test_who_reads_on_gets_much_in_parts(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lamina.engines.topics import groups

    monkeypatch.setattr(stream_reading, "MOST_NEW", 600_000)
    monkeypatch.setattr(groups, "MOST_NEW", 600_000)
    _, caller = await filled()
    await caller.ask("XGROUP CREATE a g 0")
    found: list[int] = []
    asked = 0
    while len(found) < ENTRIES:
        ((_, entries),) = await caller.ask_one(command.format(last=f"{found[-1] if found else 0}-0"))
        assert entries
        found += ids(entries)
        asked += 1
    assert found == EVERY and asked >= 3


# -- the budget ------------------------------------------------------------------------------------------------------


@in_loop
async def test_when_all_together_have_not_taken_too_much_those_who_have_most_are_hung_up_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab, writer = await filled()
    lab.door.output = Output(3 * PIECE)
    slow = [lab.caller() for _ in range(8)]
    for reader in slow:
        reader.line.takes = False
        await reader.ask("XRANGE a - +")
    held = [len(reader.line.untaken) for reader in slow if not reader.line.was_aborted]
    assert 0 < sum(held) <= 3 * PIECE and lab.door.output.bytes == sum(held)
    assert [reader.line.was_aborted for reader in slow].count(True) >= 1
    assert lab.door.refusals.by_reason["output_not_taken"] >= 1 and "is hung up on" in caplog.text
    assert await writer.ask_one("PING") == PONG
    assert ids(await writer.ask_one("XRANGE a - +")) == EVERY


@in_loop
async def test_what_clients_take_makes_room_for_others() -> None:
    lab, _ = await filled()
    lab.door.output = Output(2 * PIECE)
    for _ in range(8):
        reader = lab.caller()
        reader.line.takes = False
        await reader.ask("XRANGE a - +")
        reader.line.take()
        await lab.settle()
        assert ids(reader.got()[0]) == EVERY and not reader.line.was_aborted
    assert lab.door.output.bytes == 0
