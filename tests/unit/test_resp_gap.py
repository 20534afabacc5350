"""A reader that retention overtook is told, never moved in silence. What clients trim is no gap."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from integration.resp_wire import NULL_ARRAY, OK, QUEUED, Error
from lamina.engines.topics.retention import parse
from lamina.engines.topics.shedding import Shed, Shedder
from lamina.log.files.memory import MemoryFiles
from lamina.server.resp import stream_reading
from lamina.server.resp.session import House
from resp_lab import Caller, Lab, in_loop

GAP = Error(b"GAP entries behind 1-1 up to 3-1 of 'a' were let go by retention unread; read on from 3-1")


def shed(lab: Lab, limits: str = "length:0", key: str = "a") -> Shed:
    """What upkeep does when these are the limits; all that was written before is in files that may go."""
    topic = lab.topic(key)
    topic.push()
    lab.log(key).rotate()
    return Shedder(topic).shed(parse(limits))


async def add(caller: Caller, *numbers: int, key: str = "a") -> None:
    for number in numbers:
        assert await caller.ask_one(f"XADD {key} {number}-1 n {number}") == b"%d-1" % number


async def overtaken(lab: Lab, key: str = "a") -> Caller:
    """Retention took 1-1 to 3-1; 4-1 and 5-1 are there."""
    caller = lab.caller()
    await add(caller, 1, 2, 3, key=key)
    assert shed(lab, key=key).entries == 3
    await add(caller, 4, 5, key=key)
    return caller


def shown(*numbers: int, key: bytes = b"a") -> list[Any]:
    """The answer with these entries."""
    return [[key, [[b"%d-1" % number, [b"n", b"%d" % number]] for number in numbers]]]


# -- who asks --------------------------------------------------------------------------------------------------------


@in_loop
async def test_who_was_overtaken_is_told_and_reads_on_from_the_id_that_is_named() -> None:
    caller = await overtaken(Lab())
    for _ in range(2):  # nothing is kept of whom it was told
        assert await caller.ask_one("XREAD COUNT 1 STREAMS a 1-1") == GAP
    named = GAP.rpartition(b" ")[2].decode()
    assert await caller.ask_one(f"XREAD STREAMS a {named}") == shown(4, 5)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("0", shown(4, 5)),
        ("0-0", shown(4, 5)),
        ("3-1", shown(4, 5)),
        ("3-2", shown(4, 5)),
        ("4-1", shown(5)),
        ("5-1", NULL_ARRAY),
        ("9", NULL_ARRAY),
        ("+", shown(5)),
        ("$", NULL_ARRAY),
    ],
)
@in_loop
async def test_who_begins_or_missed_nothing_is_told_of_no_gap(asked: str, answer: Any) -> None:
    caller = await overtaken(Lab())
    assert await caller.ask_one(f"XREAD STREAMS a {asked}") == answer


@pytest.mark.parametrize("asked", ["0-1", "1", "2-18446744073709551615", "3-0"])
@in_loop
async def test_any_id_before_the_last_that_went_is_overtaken(asked: str) -> None:
    caller = await overtaken(Lab())
    told = await caller.ask_one(f"XREAD STREAMS a {asked}")
    assert isinstance(told, Error) and told.startswith(b"GAP ") and told.endswith(b"; read on from 3-1")


@in_loop
async def test_who_was_overtaken_is_told_even_if_no_entry_is_left() -> None:
    lab = Lab()
    caller = lab.caller()
    await add(caller, 1, 2, 3)
    assert shed(lab).entries == 3
    assert await caller.ask_one("XREAD STREAMS a 1-1") == GAP
    assert await caller.ask_one("XREAD BLOCK 0 STREAMS a 1-1") == GAP
    assert await caller.ask_one("XREAD STREAMS a 3-1") == NULL_ARRAY


@in_loop
async def test_of_several_topics_the_first_that_overtook_is_named_and_nothing_is_returned() -> None:
    lab = Lab()
    caller = await overtaken(lab)
    await overtaken(lab, "b")
    await add(caller, 1, 2, key="whole")
    for how in ("", "BLOCK 0 "):
        assert await caller.ask_one(f"XREAD {how}STREAMS whole a b 0 1-1 1-1") == GAP
        assert await caller.ask_one(f"XREAD {how}STREAMS b whole a 0 1-1 1-1") == GAP
    assert await caller.ask_one("XREAD STREAMS whole a 1-1 3-1") == shown(2, key=b"whole") + shown(4, 5)


@in_loop
async def test_within_exec_it_is_the_answer_of_that_command_alone() -> None:
    caller = await overtaken(Lab())
    answers = await caller.ask("MULTI", "XREAD BLOCK 0 STREAMS a 1-1", "XREAD STREAMS a 4-1", "EXEC")
    assert answers == [OK, QUEUED, QUEUED, [GAP, shown(5)]]


@in_loop
async def test_after_a_restart_the_gap_is_known() -> None:
    lab = Lab()
    await overtaken(lab)
    lab.house = House(lab.opened(MemoryFiles(lab.disk.contents())), lab.clock)
    lab.door = type(lab.door)(lab.house)
    assert await lab.caller().ask_one("XREAD STREAMS a 1-1") == GAP


# -- what clients take away ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "commands",
    [
        ["XTRIM a MAXLEN 2"],
        ["XTRIM a MINID 4"],
        ["XDEL a 1-1 2-1 3-1"],
        ["XDEL a 2-1", "XTRIM a MAXLEN 2"],
    ],
)
@in_loop
async def test_what_clients_trim_or_delete_is_no_gap_nor_are_files_that_have_nothing_else(commands: list[str]) -> None:
    lab = Lab()
    caller = lab.caller()
    await add(caller, 1, 2, 3)
    lab.log("a").rotate()
    await add(caller, 4, 5)
    await caller.ask(*commands)
    assert await caller.ask_one("XREAD STREAMS a 1-1") == shown(4, 5)
    done = shed(lab, "keep")
    assert (done.files, done.entries) == (1, 0)
    assert await caller.ask_one("XREAD STREAMS a 1-1") == shown(4, 5)


@in_loop
async def test_adding_with_a_limit_is_no_gap() -> None:
    lab = Lab()
    caller = lab.caller()
    await add(caller, 1, 2, 3, 4)
    await caller.ask("XADD a MAXLEN 2 5-1 n 5")
    assert await caller.ask_one("XREAD STREAMS a 1-1") == shown(4, 5)


# -- who waits -------------------------------------------------------------------------------------------------------


@in_loop
async def test_who_waits_is_told_when_entries_came_and_went_before_it_was_served() -> None:
    lab = Lab()
    caller, reader = lab.caller(), lab.caller()
    await add(caller, 1)
    assert await reader.ask("XREAD BLOCK 0 STREAMS a 1-1") == []
    caller.send("XADD a 2-1 n 2", "XADD a 3-1 n 3")
    assert shed(lab).entries == 3
    caller.send("XADD a 4-1 n 4")
    await lab.settle()
    assert reader.got() == [GAP]
    assert await reader.ask_one("XREAD BLOCK 0 STREAMS a 3-1") == shown(4)


@in_loop
async def test_who_waits_for_several_topics_is_told_before_it_gets_entries_of_another() -> None:
    lab = Lab()
    caller, reader = lab.caller(), lab.caller()
    await add(caller, 1)
    await add(caller, 1, key="b")
    assert await reader.ask("XREAD BLOCK 0 STREAMS b a 1-1 1-1") == []
    caller.send("XADD b 2-1 n 2", "XADD a 2-1 n 2", "XADD a 3-1 n 3")
    assert shed(lab).entries == 3
    await lab.settle()
    assert reader.got() == [GAP]


@in_loop
async def test_who_waits_and_has_seen_all_that_went_waits_on() -> None:
    lab = Lab()
    caller, reader = lab.caller(), lab.caller()
    await add(caller, 1, 2, 3)
    assert await reader.ask("XREAD BLOCK 0 STREAMS a 3-1") == []
    assert shed(lab).entries == 3
    await lab.settle()
    assert reader.got() == []
    await add(caller, 4)
    assert reader.got() == [shown(4)]


@in_loop
async def test_who_has_to_wait_for_its_turn_is_told_then() -> None:
    lab = Lab()
    caller = await overtaken(lab)
    lab.house.has_due = lambda: True
    assert await caller.ask("XREAD BLOCK 0 STREAMS a 1-1", "XREAD BLOCK 0 STREAMS a 4-1") == [GAP, shown(5)]


# -- groups ----------------------------------------------------------------------------------------------------------


@in_loop
async def test_a_group_that_is_told_of_a_gap_is_given_no_entries_of_another_topic() -> None:
    """They would be taken as read, and nobody has seen them."""
    lab = Lab()
    caller = lab.caller()
    await add(caller, 1, 2, 3)
    await add(caller, 1, 2, key="b")
    assert await caller.ask("XGROUP CREATE b g 0", "XGROUP CREATE a g 1-1", "XGROUP CREATECONSUMER a g ann") == [
        OK,
        OK,
        1,
    ]
    lab.clock.advance(60)  # for which nobody of the group is seen
    assert shed(lab, "length:0,hold:1s").entries == 3
    command = "XREADGROUP GROUP g ann NOACK STREAMS b a > >"
    told = b"GAP entries behind 1-1 up to 3-1 of 'a' were let go by retention unread; the group goes on behind them"
    assert await caller.ask_one(command) == Error(told)
    assert await caller.ask_one(command) == shown(1, 2, key=b"b")


# -- the thread of retention -----------------------------------------------------------------------------------------


@pytest.mark.may_hold_up_the_loop  # the test itself lets files go in the middle of a command
@in_loop
async def test_who_is_overtaken_while_it_reads_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    caller = lab.caller()
    await add(caller, 1, 2, 3)
    topic = lab.topic("a")
    look = topic.first

    def look_and_lose(*words: Any, **more: Any) -> Any:
        found = look(*words, **more)
        assert shed(lab).entries == 3
        return found

    monkeypatch.setattr(topic, "first", look_and_lose)
    assert await caller.ask_one("XREAD STREAMS a 1-1") == GAP
    assert topic.counts.read == 0


@in_loop
async def test_nothing_goes_between_looking_for_a_gap_and_reading_for_who_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Retention takes the lock of the topic when it lets go."""
    lab = Lab()
    caller, reader = lab.caller(), lab.caller()
    await add(caller, 1)
    lock, read, was_free = lab.topic("a").lock, stream_reading._shown, []

    def try_lock() -> None:
        was_free.append(lock.acquire(blocking=False))
        if was_free[-1]:
            lock.release()

    def look_and_read(*words: Any, **more: Any) -> Any:
        other = threading.Thread(target=try_lock)
        other.start()
        other.join()
        return read(*words, **more)

    monkeypatch.setattr(stream_reading, "_shown", look_and_read)
    assert await reader.ask("XREAD BLOCK 0 STREAMS a 1-1") == []
    await add(caller, 2)
    assert reader.got() == [shown(2)]
    assert was_free and not any(was_free)
