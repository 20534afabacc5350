"""What is counted stays within 64 bits: what leaves no room is refused where it comes in, and what an earlier version
took counts up to the end and stays there."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from integration.resp_wire import OK, Error
from lamina.engines.topics import checkpoint, codec, group_codec, ids
from lamina.engines.topics.codec import MOST_COUNTED, MOST_SET
from lamina.engines.topics.group_claims import ClaimOptions
from lamina.engines.topics.group_codec import Claimed
from lamina.engines.topics.ranges import IdRanges
from lamina.engines.topics.topic import Topic
from lamina.errors import BadTopic
from lamina.testing import MemoryFiles
from resp_lab import FOLDER, Lab, in_loop

FIRST, SECOND, THIRD = ids.make(1, 1), ids.make(2, 1), ids.make(3, 1)
TOO_MUCH = (MOST_SET + 1, MOST_COUNTED, MOST_COUNTED + 1, (1 << 64) - 1, 1 << 64, 10**30)


# -- where they come in ------------------------------------------------------------------------------------------------


@in_loop
async def test_what_leaves_no_room_to_count_on_is_refused_with_what_is_expected() -> None:
    lab = Lab()
    caller = lab.caller()
    await caller.ask("XADD t 1-1 f v", "XGROUP CREATE t g 0")
    for command, what, least in (
        ("XSETID t 1-1 ENTRIESADDED {}", b"ENTRIESADDED", 0),
        ("XGROUP CREATE t new 0 ENTRIESREAD {}", b"ENTRIESREAD", -1),
        ("XGROUP CREATE new g 0 MKSTREAM ENTRIESREAD {}", b"ENTRIESREAD", -1),
        ("XGROUP SETID t g 0 ENTRIESREAD {}", b"ENTRIESREAD", -1),
        ("XCLAIM t g c 0 1-1 RETRYCOUNT {} FORCE", b"RETRYCOUNT", 0),
    ):
        for number in (MOST_SET + 1, MOST_COUNTED):
            told = await caller.ask_one(command.format(number))
            assert told == Error(b"ERR invalid %b '%d': expected %d to %d" % (what, number, least, MOST_SET))
        told = await caller.ask_one(command.format(MOST_COUNTED + 1))
        assert told.startswith((b"ERR value is not an integer or out of range", b"ERR Invalid RETRYCOUNT option"))
    assert await caller.ask_one("KEYS *") == [b"t"], "nothing was made"
    info = await caller.ask_one("XINFO STREAM t FULL")
    assert info[info.index(b"entries-added") + 1] == 1


@in_loop
async def test_what_can_be_set_can_be_counted_on_and_is_so_again_after_a_restart() -> None:
    lab = Lab()
    caller = lab.caller()
    assert await caller.ask_one("XADD t 1-1 f v") == b"1-1"
    assert await caller.ask_one(f"XSETID t 1-1 ENTRIESADDED {MOST_SET}") == OK
    assert await caller.ask_one(f"XGROUP CREATE t g 0 ENTRIESREAD {MOST_SET}") == OK
    await caller.ask("XADD t 2-1 f v", "XREADGROUP GROUP g c STREAMS t >")
    await caller.ask_one(f"XCLAIM t g c 0 1-1 2-1 RETRYCOUNT {MOST_SET}")
    await caller.ask_one("XAUTOCLAIM t g c 0 0")
    for _ in range(2):
        topic = lab.topic("t")
        group = topic.groups.get(b"g")
        assert (topic.state.added, group.read) == (MOST_SET + 1, MOST_SET + 2)
        assert [one.deliveries for one in group.pending.values()] == [MOST_SET + 1] * 2
        lab.topics.close()
        lab.topics = lab.house.topics = lab.opened(lab.files)


@pytest.mark.parametrize("number", [*TOO_MUCH, -1, True, 1.0, "1"])
def test_who_uses_the_engine_is_refused_the_same(number: Any) -> None:
    topic = Topic.open("t", files=MemoryFiles(), threaded=False)
    topic.add([b"f", b"v"], FIRST)
    topic.groups.create(b"g", ids.FIRST)
    before = topic.newest_position(), topic.groups.newest_position()
    for act in (
        lambda: topic.set_id(FIRST, number),
        lambda: topic.groups.create(b"new", None, number),
        lambda: topic.groups.set_id(b"g", None, number),
        lambda: topic.groups.claim(b"g", b"c", [FIRST], ClaimOptions(count=number, force=True)),
    ):
        with pytest.raises(BadTopic, match=f"expected 0 to {MOST_SET}"):
            act()
    assert before == (topic.newest_position(), topic.groups.newest_position())
    topic.close()


# -- what an earlier version took --------------------------------------------------------------------------------------


def _added(topic: Topic, number: int) -> None:
    topic._append(codec.encode_set(FIRST, number, ids.FIRST))


def _in_a_checkpoint(topic: Topic, number: int) -> None:
    topic.settle(topic.newest_position())
    facts = dict.fromkeys(("max_deleted", "trimmed_to", "let_go_to"), ids.FIRST)
    state: Any = SimpleNamespace(last_id=FIRST, added=number, length=1, exists=True, deleted=IdRanges(), **facts)
    checkpoint.save(topic._files, topic.folder, state, topic.newest_position())


def _read(topic: Topic, number: int) -> None:
    topic.groups._write(group_codec.encode_group(group_codec.ID_SET, b"g", ids.FIRST, number - 1, is_ahead=False))


def _delivered(topic: Topic, number: int) -> None:
    entries = [Claimed(FIRST, topic.clock.now_ns() // 1_000_000, number)]
    topic.groups._write(group_codec.encode_claimed(b"g", b"c", 1, ids.FIRST, entries, is_ahead=False))


def numbers_of(answer: Any) -> list[int]:
    if isinstance(answer, list):
        return [number for each in answer for number in numbers_of(each)]
    return [answer] if isinstance(answer, int) else []


@pytest.mark.parametrize("number", [MOST_COUNTED - 1, MOST_COUNTED, MOST_COUNTED + 1, (1 << 64) - 1])
@pytest.mark.parametrize("write", [_added, _in_a_checkpoint, _read, _delivered])
@in_loop
async def test_a_log_with_a_number_that_was_too_large_opens_goes_on_and_closes(
    write: Callable[[Topic, int], None], number: int
) -> None:
    lab = Lab()
    caller = lab.caller()
    await caller.ask("XADD t 1-1 f v", "XADD other 1-1 f v", "XGROUP CREATE t g 0")
    topic = lab.topic("t")
    write(topic, number)
    topic.settle(topic.newest_position())
    topic.groups.settle(topic.groups.newest_position())
    left = lab.disk.contents()  # by a killed server: nothing is written at the end that stands in for it
    lab = Lab()
    lab.disk = MemoryFiles(left)  # type: ignore[assignment]
    for _ in range(2):
        lab.topics = lab.house.topics = lab.opened(lab.disk)
        caller = lab.caller()
        assert isinstance(await caller.ask_one("XADD t * f v"), bytes)
        assert await caller.ask_one("XREADGROUP GROUP g c COUNT 1 STREAMS t >") is not None
        await caller.ask("XREADGROUP GROUP g c STREAMS t 0", "XAUTOCLAIM t g c 0 0", "XCLAIM t g c 0 1-1")
        shown = await caller.ask("XINFO STREAM t FULL", "XINFO GROUPS t", "XPENDING t g - + 10")
        assert all(-MOST_COUNTED <= each <= MOST_COUNTED for each in numbers_of(shown))
        assert await caller.ask_one("KEYS *") == [b"other", b"t"]
        known = lab.topic("t").state.added, lab.topic("t").groups.get(b"g").read
        lab.topics.close()
        assert not lab.disk.locks and not lab.disk.handles
        assert checkpoint._read(lab.disk, f"{FOLDER}/t") is not None
    lab.topics = lab.house.topics = lab.opened(lab.disk)
    assert known == (lab.topic("t").state.added, lab.topic("t").groups.get(b"g").read)
    assert lab.topics.delete(b"t")


def test_what_is_counted_stays_at_its_end() -> None:
    topic = Topic.open("t", files=MemoryFiles(), threaded=False)
    topic.state.set(ids.FIRST, (1 << 64) - 1, ids.FIRST)
    assert topic.state.added == MOST_COUNTED
    topic.state.set(ids.FIRST, MOST_COUNTED - 1, ids.FIRST)
    for expected in (MOST_COUNTED, MOST_COUNTED, MOST_COUNTED):
        topic.add([b"f", b"v"])
        assert topic.state.added == expected
    topic.state.add(THIRD, 1 << 40)
    assert topic.state.added == MOST_COUNTED
    topic.close()
