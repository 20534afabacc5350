"""Clients that wait: served in the order they came, once, with what is safe; and none that is gone is served."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from integration.resp_wire import NULL_ARRAY, OK, QUEUED, Error, Simple
from lamina.log import ALWAYS, OS
from lamina.server.resp.waiting import Waiting
from resp_lab import Caller, Lab, in_loop

PONG = Simple(b"PONG")
LONG_S = 0.05  # more than enough for what takes a millisecond


def values(answer: Any, key: bytes = b"a") -> list[bytes]:
    """Of the entries of one topic in an answer to XREAD or XREADGROUP."""
    ((name, entries),) = answer
    assert name == key
    return [fields[1] for _, fields in entries]


async def with_group() -> tuple[Lab, Caller]:
    lab = Lab(OS)
    publisher = lab.caller()
    assert await publisher.ask_one("XGROUP CREATE a g $ MKSTREAM") == OK
    return lab, publisher


async def consumers(lab: Lab, count: int) -> list[Caller]:
    """Each waits for one entry of the group."""
    waiting = [lab.caller() for _ in range(count)]
    for number, caller in enumerate(waiting):
        assert await caller.ask(f"XREADGROUP GROUP g c{number} COUNT 1 BLOCK 0 STREAMS a >") == []
    return waiting


# -- being served ----------------------------------------------------------------------------------------------------


@in_loop
async def test_those_who_wait_are_served_in_the_order_they_came() -> None:
    lab, publisher = await with_group()
    waiting = await consumers(lab, 4)
    await publisher.ask("XADD a * f 1", "XADD a * f 2")
    await publisher.ask("XADD a * f 3")
    assert [[values(answer) for answer in caller.got()] for caller in waiting] == [[[b"1"]], [[b"2"]], [[b"3"]], []]


@in_loop
async def test_who_waits_again_is_behind_those_who_waited() -> None:
    lab, publisher = await with_group()
    first, second = await consumers(lab, 2)
    first.send("XREADGROUP GROUP g c0 COUNT 1 BLOCK 0 STREAMS a >")
    await publisher.ask(*(f"XADD a * f {number}" for number in (1, 2, 3)))
    assert [values(answer) for answer in first.got()] == [[b"1"], [b"3"]]
    assert [values(answer) for answer in second.got()] == [[b"2"]]


@in_loop
async def test_one_entry_reaches_everybody_who_reads_without_a_group() -> None:
    lab = Lab(OS)
    publisher, *waiting = [lab.caller() for _ in range(5)]
    for caller in waiting:
        assert await caller.ask("XREAD BLOCK 0 STREAMS a $") == []
    await publisher.ask("XADD a * f v")
    assert [values(*caller.got()) for caller in waiting] == [[b"v"]] * 4


@in_loop
async def test_who_waits_for_two_topics_is_answered_once_by_the_first_that_has_something() -> None:
    lab = Lab(OS)
    publisher, caller = lab.caller(), lab.caller()
    lab.make("a", "b")
    await caller.ask("XREAD BLOCK 0 STREAMS a b $ $")
    await publisher.ask("XADD b * f 1", "XADD a * f 2")
    assert values(*caller.got()) == [b"2"]
    await publisher.ask("XADD a * f 3", "XADD b * f 4")
    assert caller.got() == []
    assert await caller.ask_one("PING") == PONG


@in_loop
async def test_a_key_that_is_named_twice_is_waited_for_once() -> None:
    lab = Lab(OS)
    publisher, caller = lab.caller(), lab.caller()
    await caller.ask("XREAD BLOCK 0 STREAMS a a $ $")
    await publisher.ask("XADD a * f 1")
    assert len(caller.got()) == 1
    await publisher.ask("XADD a * f 2")
    assert caller.got() == []


@in_loop
async def test_commands_behind_one_that_waits_wait_too_and_keep_their_order() -> None:
    lab = Lab(OS)
    publisher, caller = lab.caller(), lab.caller()
    assert await caller.ask("ECHO 1", "XREAD BLOCK 0 STREAMS a $", "ECHO 2", "XLEN a") == [b"1"]
    assert await caller.ask("ECHO 3") == []
    await publisher.ask("XADD a * f v")
    read, *others = caller.got()
    assert values(read) == [b"v"] and others == [b"2", 1, b"3"]


@in_loop
async def test_exec_wakes_when_all_of_it_was_done() -> None:
    lab, publisher = await with_group()
    reader, consumer = lab.caller(), lab.caller()
    await reader.ask("XREAD BLOCK 0 STREAMS a $")
    await consumer.ask("XREADGROUP GROUP g ann BLOCK 0 STREAMS a >")
    await publisher.ask("MULTI", "XADD a * f 1", "XADD a * f 2", "XADD a * f 3", "XDEL a 0-1", "EXEC")
    assert values(*reader.got()) == values(*consumer.got()) == [b"1", b"2", b"3"]


@in_loop
async def test_what_waits_in_exec_does_not_wait() -> None:
    _, caller = await with_group()
    read, deliver = "XREAD BLOCK 0 STREAMS a $", "XREADGROUP GROUP g ann BLOCK 0 STREAMS a >"
    answers = await caller.ask("MULTI", read, deliver, "WAITAOF 1 1 0", "EXEC")
    assert answers == [OK, QUEUED, QUEUED, QUEUED, [NULL_ARRAY, NULL_ARRAY, [0, 0]]]


@in_loop
async def test_who_waited_is_not_told_of_what_is_not_safe_yet() -> None:
    lab = Lab(ALWAYS)
    publisher, caller = lab.caller(), lab.caller()
    await caller.ask("XREAD BLOCK 0 STREAMS a $")
    with lab.at_the_disk("a"):
        await publisher.ask("XADD a * f v")
        assert caller.got() == []
    await lab.settle()
    assert values(*caller.got()) == [b"v"]


@in_loop
async def test_who_waited_never_sees_an_entry_that_was_refused() -> None:
    lab, publisher = await with_group()
    reader, consumer = lab.caller(), lab.caller()
    await reader.ask("XREAD BLOCK 0 STREAMS a $")
    await consumer.ask("XREADGROUP GROUP g ann BLOCK 0 STREAMS a >")
    lab.files.fail("append", error=errno.ENOSPC, only="/a/2")  # the entries, not the groups
    await publisher.ask("XADD a * f refused")
    for caller in (publisher, reader, consumer):
        assert b"refused" not in caller.line.sent and not [each for each in caller.got() if type(each) is bytes]
    again = await consumer.ask("XREADGROUP GROUP g ann STREAMS a >", "XPENDING a g")
    assert again == [NULL_ARRAY, [0, None, None, NULL_ARRAY]]


# -- the end of waiting ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["XREAD BLOCK 1 STREAMS a $", "XREADGROUP GROUP g ann BLOCK 1 STREAMS a >"])
@in_loop
async def test_when_the_time_is_up_nothing_is_told_and_the_next_command_runs(command: str) -> None:
    lab, publisher = await with_group()
    caller = lab.caller()
    caller.send(command, "PING")
    await asyncio.sleep(LONG_S)
    await lab.settle()
    assert caller.got() == [NULL_ARRAY, PONG]
    await publisher.ask("XADD a * f v")
    assert caller.got() == []


@in_loop
async def test_a_block_of_zero_has_no_end() -> None:
    lab = Lab(OS)
    publisher, caller = lab.caller(), lab.caller()
    caller.send("XREAD BLOCK 0 STREAMS a $")
    await asyncio.sleep(LONG_S)
    assert caller.got() == []
    await publisher.ask("XADD a * f v")
    assert values(*caller.got()) == [b"v"]


@pytest.mark.parametrize("command", ["DEL a", "FLUSHALL", "RENAME a b"])
@in_loop
async def test_who_waits_for_a_group_is_told_that_its_topic_went(command: str) -> None:
    lab, publisher = await with_group()
    (waiting,) = await consumers(lab, 1)
    await publisher.ask(command)
    assert waiting.got() == [Error(b"UNBLOCKED the stream key no longer exists")]
    assert await waiting.ask_one("PING") == PONG


@in_loop
async def test_who_waits_for_a_group_is_told_that_it_went() -> None:
    lab, publisher = await with_group()
    (waiting,) = await consumers(lab, 1)
    await publisher.ask("XGROUP DESTROY a g")
    assert waiting.got() == [Error(b"NOGROUP the consumer group this client was blocked on no longer exists")]


@in_loop
async def test_who_waits_for_a_topic_goes_on_when_it_is_deleted_and_gets_what_another_brings() -> None:
    lab = Lab(OS)
    publisher, caller = lab.caller(), lab.caller()
    await publisher.ask("XADD a 5-1 f old")
    await caller.ask("XREAD BLOCK 0 STREAMS a $")
    await publisher.ask("DEL a", "XADD a 5-1 f same", "XADD b 5-2 f new")
    assert caller.got() == []
    await publisher.ask("RENAME b a")
    assert values(*caller.got()) == [b"new"]


@in_loop
async def test_who_left_is_not_served() -> None:
    lab, publisher = await with_group()
    first, second = await consumers(lab, 2)
    first.connection.connection_lost(None)
    await publisher.ask("XADD a * f v")
    assert first.line.sent == b"" and values(*second.got()) == [b"v"]


@in_loop
async def test_who_was_killed_is_not_served_and_hung_up_on() -> None:
    lab, publisher = await with_group()
    first, second = await consumers(lab, 2)
    assert await publisher.ask_one(f"CLIENT KILL ID {first.connection.session.id}") == 1
    await publisher.ask("XADD a * f v")
    assert first.line.is_closed and first.line.sent == b"" and values(*second.got()) == [b"v"]


@in_loop
async def test_who_is_killed_by_one_that_was_served_just_before_gets_no_entry_it_is_not_sent() -> None:
    """An entry for a consumer that is gone would be pending until somebody claims it."""
    lab, publisher = await with_group()
    first, second, third = await consumers(lab, 3)
    first.send(f"CLIENT KILL ID {second.connection.session.id}")
    await publisher.ask("XADD a * f 1", "XADD a * f 2")
    served, killed = first.got()
    assert values(served) == [b"1"] and killed == 1 and second.line.is_closed
    assert [values(answer) for caller in (second, third) for answer in caller.got()] == [[b"2"]]


@in_loop
async def test_a_door_that_closes_answers_nobody_who_waits() -> None:
    lab, publisher = await with_group()
    (waiting,) = await consumers(lab, 1)
    publisher.send("XADD a * f v")
    await lab.door.close()
    await lab.settle()
    assert len(publisher.got()) == 1 and waiting.line.sent == b"" and waiting.line.is_closed
    assert lab.values("a") == [b"v"]


@in_loop
async def test_who_ends_its_side_while_it_waits_gets_an_answer_for_each_command() -> None:
    lab = Lab(OS)
    caller = lab.caller()
    caller.send("XREAD BLOCK 0 STREAMS a $", "PING")
    caller.connection.eof_received()
    await lab.settle()
    assert caller.got() == [NULL_ARRAY, PONG]


# -- rounds ----------------------------------------------------------------------------------------------------------


class Clockwork:
    """A loop of which the time passes when told to."""

    def __init__(self) -> None:
        self.time = 100.0
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def now(self) -> float:
        return self.time

    def call_soon(self, call: Callable[..., None], *given: object) -> object:
        return self.call_later(0, call, *given)

    def call_later(self, seconds: float, call: Callable[..., None], *given: object) -> object:
        self.calls.append((self.time + seconds, partial(call, *given)))
        return self

    def run(self, seconds: float = 0.0) -> None:
        """Make all calls that are due by then. They may take longer."""
        end = self.time + seconds
        while due := [each for each in self.calls if each[0] <= max(end, self.time)]:
            first = min(due, key=lambda each: each[0])
            self.calls.remove(first)
            self.time = max(self.time, first[0])
            first[1]()
        self.time = max(self.time, end)


class Sleeper:
    """Takes some time whenever it is woken."""

    def __init__(self, clockwork: Clockwork, takes_s: float, *keys: bytes) -> None:
        self.clockwork, self.takes_s, self.keys = clockwork, takes_s, keys
        self.woken = self.answered_bytes = 0

    def try_again(self) -> int:
        self.woken += 1
        self.clockwork.time += self.takes_s
        return self.answered_bytes


def waiting_room(takes_s: float) -> tuple[Clockwork, Waiting, Sleeper]:
    clockwork = Clockwork()
    waiting = Waiting(clockwork, clockwork.now)  # type: ignore[arg-type]
    sleeper = Sleeper(clockwork, takes_s, b"a", b"b")
    waiting.add(sleeper)
    return clockwork, waiting, sleeper


def test_many_changes_of_one_turn_are_one_round() -> None:
    clockwork, waiting, sleeper = waiting_room(0)
    for _ in range(5):
        waiting.changed(b"a")
    waiting.changed(b"nobody's")
    clockwork.run()
    assert sleeper.woken == 1 and not clockwork.calls


def test_while_more_is_published_those_who_wait_take_a_small_part_of_the_time() -> None:
    clockwork, waiting, sleeper = waiting_room(0.01)
    start = clockwork.time
    for _ in range(1000):
        waiting.changed(b"a")
        clockwork.run(0.001)
    assert 0.02 < sleeper.woken * sleeper.takes_s / (clockwork.time - start) < 0.2


def test_after_a_long_round_what_is_published_last_is_told_too() -> None:
    clockwork, waiting, sleeper = waiting_room(0.01)
    for _ in range(3):
        waiting.changed(b"a")
        clockwork.run()
    woken = sleeper.woken
    waiting.changed(b"b")
    clockwork.run(0.2)
    assert sleeper.woken > woken and not clockwork.calls


def test_who_had_no_turn_in_a_round_that_was_cut_off_has_it_in_the_next() -> None:
    clockwork, waiting, sleeper = waiting_room(0)
    other = Sleeper(clockwork, 0, b"a")
    waiting.add(other)
    sleeper.answered_bytes = 10**9
    sleeper.try_again = lambda: (waiting.remove(sleeper), Sleeper.try_again(sleeper))[1]  # type: ignore[method-assign]
    waiting.changed(b"a")
    clockwork.run(1)
    assert (sleeper.woken, other.woken) == (1, 1)


def test_short_rounds_come_at_once() -> None:
    clockwork, waiting, sleeper = waiting_room(0)
    for _ in range(3):
        waiting.changed(b"a")
        clockwork.run()
    assert sleeper.woken == 3


def test_who_was_taken_off_is_not_woken_by_any_of_its_keys() -> None:
    clockwork, waiting, sleeper = waiting_room(0)
    waiting.changed(b"a")
    waiting.remove(sleeper)
    waiting.changed(b"b")
    clockwork.run()
    assert not sleeper.woken and not clockwork.calls


def test_who_is_taken_off_by_one_that_is_woken_before_is_not_woken() -> None:
    clockwork, waiting, sleeper = waiting_room(0)
    other = Sleeper(clockwork, 0, b"b")
    waiting.add(other)

    def take_off() -> int:
        waiting.remove(other)
        return 0

    sleeper.try_again = take_off  # type: ignore[method-assign]
    waiting.changed(b"b")
    clockwork.run()
    assert not other.woken
