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
from lamina.server.resp.waiting import _EACH_S, IN_WORKER, Waiting
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


@pytest.mark.parametrize(
    "command", ["XREAD BLOCK 0 STREAMS a 0-1", "XREADGROUP GROUP g ann BLOCK 0 STREAMS a >"], ids=str.split
)
@in_loop
async def test_who_asks_for_what_is_new_comes_behind_those_who_are_due(command: str) -> None:
    lab, publisher = await with_group()
    lab.house.has_due = lambda: True
    caller, other = lab.caller(), lab.caller()
    caller.send(command)
    assert caller.connection.session.is_waiting, "there is nothing yet"
    await publisher.ask("XADD a 5-1 f v")
    assert values(*caller.got()) == [b"v"]
    other.send("XREAD BLOCK 0 STREAMS a 0-1")
    assert other.connection.session.is_waiting and other.got() == [], "it is not its turn"
    await lab.settle()
    assert values(*other.got()) == [b"v"]


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


# -- turns -----------------------------------------------------------------------------------------------------------


class Turns:
    """A loop that goes on when told to, others who have commands run, and a clock that stands still otherwise."""

    def __init__(self) -> None:
        self.time, self.commands = 100.0, 0
        self.calls: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.waiting = Waiting(self, lambda: self.commands, lambda: self.time)  # type: ignore[arg-type]
        self.served: list[int] = []
        """How many were served in each turn."""

    def call_soon(self, call: Callable[[], None]) -> object:
        self.calls.append(call)
        return self

    def call_later(self, seconds: float, call: Callable[[], None]) -> object:
        self.timers.append((self.time + seconds, call))
        return self

    def turn(self, commands: int = 0, seconds: float = 0.0) -> int:
        """One turn, in which others have so many commands run. Returns how many were served."""
        self.commands += commands
        self.time += seconds
        self.served.append(0)
        calls, self.calls = self.calls, []
        calls += [call for due, call in self.timers if due <= self.time]
        self.timers = [(due, call) for due, call in self.timers if due > self.time]
        for call in calls:
            call()
        return self.served[-1]

    def run(self) -> list[int]:
        """Until nothing is left to do, and nobody else wants anything. Returns how many were served in each turn."""
        begun = len(self.served)
        while self.calls:
            self.turn()
        return self.served[begun:]

    def spend_all(self) -> None:
        """What credit there is."""
        sleeper = Reader(self, b"spends")
        self.waiting._window_began = self.time
        sleeper.size = 128 << 14
        sleeper.wait()
        self.waiting.changed(b"spends")
        self.turn(commands=1)
        assert self.waiting._credit_now() < 0


class Reader:
    """Waits, and is answered when it is woken."""

    def __init__(self, turns: Turns, *keys: bytes, has_answer: bool = True, size: int = 100) -> None:
        self.turns, self.keys, self.has_answer, self.size = turns, keys, has_answer, size
        self.woken = self.vain = 0
        self.then: Callable[[], object] = lambda: None

    def wait(self) -> Reader:
        self.turns.waiting.add(self)
        return self

    def try_again(self) -> int:
        self.woken += 1
        if not self.has_answer:
            self.then()
            return self.vain
        self.turns.served[-1] += 1
        self.turns.waiting.remove(self)
        self.then()
        return self.size


def readers(turns: Turns, count: int, *keys: bytes, **how: Any) -> list[Reader]:
    return [Reader(turns, *keys, **how).wait() for _ in range(count)]


def test_many_changes_of_one_turn_wake_once() -> None:
    turns = Turns()
    (reader,) = readers(turns, 1, b"a", b"b", has_answer=False)
    for _ in range(5):
        turns.waiting.changed(b"a")
        turns.waiting.changed(b"b")
    turns.waiting.changed(b"nobody's")
    turns.run()
    assert reader.woken == 1 and not turns.calls


def test_all_are_served_in_one_turn_while_there_is_credit() -> None:
    turns = Turns()
    readers(turns, 100, b"a")
    turns.waiting.changed(b"a")
    assert turns.turn(commands=1) == 100 and not turns.calls


def test_without_credit_more_and_more_are_served_while_nobody_else_wants_the_processor() -> None:
    turns = Turns()
    turns.spend_all()
    readers(turns, 200, b"a")
    turns.waiting.changed(b"a")
    assert turns.turn(commands=1) == 0
    assert turns.run() == [1, 2, 4, 8, 16, 32, 64, 64, 9]


def test_without_credit_a_command_of_another_client_comes_first() -> None:
    turns = Turns()
    turns.spend_all()
    readers(turns, 100, b"a")
    turns.waiting.changed(b"a")
    assert [turns.turn(commands) for commands in (1, 0, 0, 0, 1, 1, 0, 0)] == [0, 1, 2, 4, 0, 0, 1, 2]


@in_loop
async def test_those_who_come_to_wait_again_are_not_others() -> None:
    lab = Lab(OS)
    lab.make("a")
    caller = lab.caller()
    before = lab.door.waiting._commands()
    await caller.ask("XADD a 1-0 f v", "XREAD BLOCK 0 STREAMS a 0", "XREAD STREAMS a 0", "XREAD BLOCK 0 STREAMS a $")
    assert lab.door.waiting._commands() - before == 2


def test_of_those_whom_a_worker_has_to_try_few_are_tried_at_a_time() -> None:
    turns = Turns()
    waiting = readers(turns, 5, b"a", has_answer=False)
    for reader in waiting:
        reader.vain = IN_WORKER
    turns.waiting.changed(b"a")
    turns.run()
    assert [reader.woken for reader in waiting] == [1, 1, 0, 0, 0]
    turns.waiting.came_back(waiting[1], 100)
    turns.run()
    assert [reader.woken for reader in waiting] == [1, 1, 1, 0, 0]
    credit = turns.waiting._credit
    turns.waiting.came_back(waiting[0], 10 << 14)
    assert turns.waiting._credit == credit - 10
    turns.waiting.came_back(waiting[0], 10 << 14)
    assert turns.waiting._credit == credit - 10, "it was told once"


def test_readers_take_a_part_of_the_time_while_a_publisher_never_rests() -> None:
    """A publisher that has a command run in each turn of a tenth of a millisecond leaves no turn to them."""
    turns = Turns()
    turns.spend_all()
    for reader in readers(turns, 200, b"a"):
        reader.then = reader.wait
    served = 0
    for _ in range(10_000):
        turns.waiting.changed(b"a")
        served += turns.turn(commands=1, seconds=0.0001)
    assert 0.9 < served / _EACH_S < 1.1, "in a second"


def test_while_others_are_busy_no_more_is_served_than_there_is_credit_for() -> None:
    """Also in turns in which they have nothing: they may be waiting for a processor that readers have."""
    turns = Turns()
    turns.spend_all()
    for reader in readers(turns, 200, b"a"):
        reader.then = reader.wait
    served = 0
    for number in range(10_000):
        turns.waiting.changed(b"a")
        served += turns.turn(commands=0 if number % 10 else 16, seconds=0.0001)
    assert 0.9 < served / _EACH_S < 1.1, "in a second"
    for reader in list(turns.waiting._numbers):
        reader.then = lambda: None
    for _ in range(3):
        turns.turn(seconds=0.05)
    turns.run()
    assert not turns.waiting.has_due(), "they are not busy any more"


def test_large_answers_take_more_of_the_credit() -> None:
    turns = Turns()
    readers(turns, 100, b"a", size=1 << 20)
    turns.waiting.changed(b"a")
    assert turns.turn(commands=1) == 2
    assert turns.turn(commands=1) == 0


def test_who_began_to_wait_first_is_served_first_whatever_woke_them_in_between() -> None:
    turns = Turns()
    order: list[Reader] = []
    first, second, third = waiting = readers(turns, 3, b"a", b"b", has_answer=False)
    for reader in waiting:
        reader.then = partial(order.append, reader)
    turns.waiting.remove(second)
    second.keys = (b"b",)
    turns.waiting.add(second)  # now the last
    turns.waiting.changed(b"a")
    turns.run()
    turns.waiting.changed(b"b")
    turns.run()
    assert order == [first, third, first, third, second]


def test_one_who_has_not_looked_yet_is_woken_alone() -> None:
    turns = Turns()
    one, other = readers(turns, 2, b"a")
    turns.waiting.expect(one)
    assert turns.waiting.has_due()
    turns.run()
    assert (one.woken, other.woken) == (1, 0) and not turns.waiting.has_due()


def test_all_who_wait_for_keys_that_begin_so_are_woken() -> None:
    turns = Turns()
    mine, yours, other = (readers(turns, 1, key)[0] for key in (b"q:mine", b"q:yours", b"topic"))
    turns.waiting.expect_all(b"q:")
    turns.run()
    assert (mine.woken, yours.woken, other.woken) == (1, 1, 0)


def test_a_change_while_one_is_tried_in_vain_is_not_missed() -> None:
    turns = Turns()
    (reader,) = readers(turns, 1, b"a", has_answer=False)

    def change_once() -> None:
        reader.then = lambda: None
        turns.waiting.changed(b"a")

    reader.then = change_once
    turns.waiting.changed(b"a")
    turns.run()
    assert reader.woken == 2


def test_who_was_taken_off_is_not_woken_by_any_of_its_keys() -> None:
    turns = Turns()
    (reader,) = readers(turns, 1, b"a", b"b")
    turns.waiting.changed(b"a")
    turns.waiting.remove(reader)
    turns.waiting.changed(b"b")
    turns.run()
    assert not reader.woken and not turns.calls


def test_who_is_taken_off_by_one_that_is_woken_before_is_not_woken() -> None:
    turns = Turns()
    one, other = readers(turns, 2, b"a")
    one.then = partial(turns.waiting.remove, other)
    turns.waiting.changed(b"a")
    turns.run()
    assert not other.woken


def test_after_a_mistake_in_one_the_others_are_served() -> None:
    turns = Turns()
    one, other = readers(turns, 2, b"a")

    def fail() -> None:
        raise ZeroDivisionError

    one.then = fail
    turns.waiting.changed(b"a")
    with pytest.raises(ZeroDivisionError):
        turns.turn()
    turns.run()
    assert other.woken == 1
