"""Names of topics: what is asked about them is answered from memory, in a time that does not grow with their number."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from typing import Any

import pytest

from integration.resp_wire import Simple
from lamina.engines.topics import catalog
from lamina.engines.topics.catalog import PLACES, Catalog, Doubt
from lamina.engines.topics.topics import Topics
from lamina.errors import DiskFull, LogClosed
from lamina.log import ALWAYS, OS, LogOptions, Sync
from lamina.log.writer import Log
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles
from resp_lab import POLICIES, Lab, in_loop, is_refusal

FOLDER = "topics"


class Place:
    """A folder of topics."""

    def __init__(self, disk: MemoryFiles | None = None, sync: Sync = OS) -> None:
        self.disk = MemoryFiles() if disk is None else disk
        self.files, self.clock = FaultyFiles(self.disk), ManualClock()
        self.options = LogOptions(sync=sync)
        self.topics = Topics.open(FOLDER, files=self.files, clock=self.clock, options=self.options, threaded=False)

    def add(self, *names: bytes) -> None:
        for name in names:
            topic = self.topics.get_or_make(name)
            topic.settle(topic.add([b"f", name])[1])

    def killed(self) -> Place:
        return Place(MemoryFiles(self.disk.contents()), self.options.sync)

    def closed(self) -> Place:
        self.topics.close()
        return self.killed()

    def calls(self) -> list[tuple[str, str]]:
        """At the disk, since this was asked last."""
        calls, self.files.calls = self.files.calls, []
        return calls

    def asked_everything(self) -> tuple[Any, ...]:
        """All that can be asked about names."""
        topics = self.topics
        shown = topics.names(), topics.existing(), topics.just_made(), [topics.exists(name) for name in topics.known()]
        return (*shown, walked(topics))


def walked(topics: Topics, count: int = 2) -> list[bytes]:
    found, place = [], 1
    while place:
        page, place = topics.page(place, count)
        found += [name for _, name in page]
    return sorted(found)


NAMES = [b"%d" % number for number in range(10)]


# -- without the disk ------------------------------------------------------------------------------------------------


def test_topics_that_were_closed_are_known_from_the_start_on() -> None:
    place = Place()
    place.add(*NAMES)
    again = place.closed()
    again.calls()
    assert again.asked_everything() == (NAMES, 10, [], [True] * 10, NAMES)
    assert not again.calls() and not list(again.topics.opened())


@pytest.mark.parametrize("policy", POLICIES)
def test_topics_that_were_killed_are_looked_into_once_and_none_is_opened(policy: str) -> None:
    place = Place(sync=POLICIES[policy])
    place.add(*NAMES)
    again = place.killed()
    again.calls()
    assert again.topics.names() == NAMES
    looked_into = again.calls()
    assert {path.split("/")[1] for operation, path in looked_into if operation == "sync"} == {*map(bytes.decode, NAMES)}
    assert again.asked_everything() == (NAMES, 10, [], [True] * 10, NAMES)
    assert not again.calls() and not list(again.topics.opened())


def test_topics_in_use_are_asked_about_without_the_disk() -> None:
    place = Place()
    place.add(*NAMES)
    place.topics.get_or_make(b"never written to")
    place.calls()
    assert place.asked_everything()[:3] == (NAMES, 10, [])
    assert not place.calls()


def test_a_topic_that_a_crash_left_without_a_record_is_not_there() -> None:
    place = Place()
    place.add(b"a")
    name = place.disk.list(f"{FOLDER}/a")
    dat = next(each for each in name if each.endswith(".dat"))
    whole = place.disk.contents()[f"{FOLDER}/a/{dat}"]
    for kept in (0, 4, 8, len(whole) - 1, len(whole)):
        again = Place(MemoryFiles({f"{FOLDER}/a/{dat}": whole[:kept]}))
        exists = kept == len(whole)
        assert again.topics.exists(b"a") is again.topics.exists(b"a") is exists
        assert again.topics.names() == [b"a"][: int(exists)] and again.topics.existing() == int(exists)
        assert not list(again.topics.opened())
        assert (again.topics.get(b"a") is not None) is exists
        again.add(b"a")
        assert again.topics.exists(b"a")


def test_an_empty_folder_is_no_topic_and_needs_no_look() -> None:
    disk = MemoryFiles()
    disk.make_folder(f"{FOLDER}/a")
    place = Place(disk)
    place.calls()
    assert place.topics.names() == [] and not place.topics.exists(b"a") and not place.calls()


def test_a_folder_that_cannot_be_read_is_shown_and_looked_into_again() -> None:
    place = Place()
    place.add(b"a")
    again = place.killed()
    fault = again.files.fail("list", only="/a", times=2)
    assert again.topics.exists(b"a") and again.topics.names() == [b"a"] and fault.struck == 2
    assert again.topics.names() == [b"a"]
    again.calls()
    assert again.topics.names() == [b"a"] and not again.calls()


def test_nobody_looks_into_folders_that_others_may_have_by_now() -> None:
    place = Place()
    place.add(b"a")
    again = place.killed()
    again.topics.close()
    with pytest.raises(LogClosed):
        again.topics.names()
    with pytest.raises(LogClosed):
        again.topics.delete(b"a")


# -- what is not safe yet --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_that_a_topic_exists_rests_on_its_first_record_until_that_is_safe(policy: str) -> None:
    place = Place(sync=POLICIES[policy])
    topic = place.topics.get_or_make(b"a")
    assert place.topics.rests_on(b"a") is None and not place.topics.exists(b"a")
    _, position = topic.add([b"f", b"v"])
    assert place.topics.exists(b"a") and place.topics.rests_on(b"a") is topic
    topic.push()
    assert isinstance(topic.log, Log)
    topic.log.run_round(may_sync=False)
    is_safe = POLICIES[policy] is not ALWAYS
    assert (place.topics.just_made() == []) is is_safe
    topic.settle(position)
    assert place.topics.just_made() == [] and place.topics.rests_on(b"a") is None
    topic.add([b"f", b"v"])
    assert place.topics.just_made() == []


def test_a_topic_whose_first_record_was_refused_is_not_there() -> None:
    place = Place()
    place.files.fail("append", error=errno.ENOSPC, only="/a/2")
    topic = place.topics.get_or_make(b"a")
    _, position = topic.add([b"f", b"v"])
    assert place.topics.names() == [b"a"]
    with pytest.raises(DiskFull):
        topic.settle(position)
    assert place.topics.names() == [] and not place.topics.exists(b"a") and place.topics.existing() == 0


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_to_topics_it_is_known_which_there_are(seed: int) -> None:
    rng, place, there = random.Random(seed), Place(), set[bytes]()
    for _ in range(150):
        name, other = rng.choice(NAMES), rng.choice(NAMES)
        act = rng.random()
        if act < 0.45:
            place.add(name)
            there.add(name)
        elif act < 0.55:
            place.topics.get_or_make(name)
        elif act < 0.7:
            assert place.topics.delete(name) == (name in there)
            there.discard(name)
        elif act < 0.85 and name in there:
            place.topics.rename(name, other)
            there = (there - {name}) | {other}
        elif act < 0.88:
            place.topics.delete_all()
            there.clear()
        elif act < 0.94:
            place = place.killed() if rng.random() < 0.5 else place.closed()
        elif rng.random() < 0.5:
            place.topics.delete_unused(name)
        assert place.topics.names() == sorted(there) and place.topics.existing() == len(there)
        assert {each for each in NAMES if place.topics.exists(each)} == there
        assert there <= set(walked(place.topics)) == set(place.topics.known())


# -- places ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def few_places(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three names at each."""
    monkeypatch.setattr(catalog, "place_of", lambda name: int(name) // 3 + 1)
    return


@pytest.mark.parametrize("count", [1, 2, 3, 4, 100])
def test_names_at_one_place_come_together(few_places: None, count: int) -> None:
    names = Catalog([(name, None) for name in NAMES])
    found, place = [], 1
    while place:
        page, place = names.page(place, count)
        assert len(page) >= min(count, 1) and all(at != place for at, _ in page)
        found += [name for _, name in page]
    assert sorted(found) == NAMES


def test_places_are_anywhere_and_always_the_same() -> None:
    places = [catalog.place_of(b"%d" % number) for number in range(1000)]
    assert all(0 < place <= PLACES for place in places) and len(set(places)) == 1000
    assert sum(place > PLACES // 2 for place in places) in range(400, 600)


def test_doubts_come_and_go() -> None:
    names = Catalog([(b"a", None), (b"b", Doubt.UNSEEN)])
    assert names.unsure() == [b"b"] and names.doubt(b"a") is None
    names.note(b"b", Doubt.EMPTY)
    names.note(b"b", None)
    names.note(b"c", Doubt.UNSEEN)
    assert names.unsure() == [b"c"] and len(names) == 3
    for name in (b"c", b"c", b"a"):
        names.forget(name)
    assert names.names() == [b"b"] and names.page(1, 5)[0] == [(catalog.place_of(b"b"), b"b")] and not names.unsure()


# -- commands --------------------------------------------------------------------------------------------------------


async def full_lab(count: int) -> Lab:
    lab = Lab(OS)
    for number in range(count):
        topic = lab.topic(f"t{number}")
        topic.add([b"f", b"v"])
        topic.push()
        lab.log(f"t{number}").run_round()
    return lab


@in_loop
async def test_a_step_of_a_scan_looks_at_as_many_names_as_it_was_asked_for() -> None:
    lab = await full_lab(300)
    caller, looked_at = lab.caller(), list[bytes]()
    exists = lab.topics.exists
    lab.topics.exists = lambda name: looked_at.append(name) or exists(name)  # type: ignore[method-assign, func-returns-value]
    lab.files.calls.clear()
    cursor, steps = b"0", 0
    while cursor != b"0" or not steps:
        looked_at.clear()
        cursor, page = await caller.ask_one(f"SCAN {cursor.decode()} COUNT 10")
        steps += 1
        assert len(looked_at) == 10 == len(page)
    assert steps == 30 and not lab.files.calls


@in_loop
async def test_asking_which_topics_there_are_opens_none_and_needs_no_disk() -> None:
    lab = await full_lab(20)
    lab.topics.close()
    lab.files = FaultyFiles(MemoryFiles(lab.disk.contents()))
    lab.house.topics = lab.topics = lab.opened(lab.files)
    caller = lab.caller()
    lab.files.calls.clear()
    asked = "DBSIZE", "EXISTS t1 t2 no", "TYPE t1", "TTL t1", "OBJECT ENCODING t1", "TOUCH t1", "EXPIRE no 1"
    assert await caller.ask(*asked) == [20, 2, Simple(b"stream"), -1, b"stream", 1, 0]
    keys, (cursor, page), one = await caller.ask("KEYS *", "SCAN 0 COUNT 100", "RANDOMKEY")
    assert len(keys) == len(page) == 20 and cursor == b"0" and one in keys
    assert not lab.files.calls and not list(lab.topics.opened())


ASKING = ["KEYS *", "KEYS n*", "DBSIZE", "EXISTS new", "TYPE new", "SCAN 0 COUNT 100", "TTL new", "SCAN 0 MATCH new"]
NOT_ASKING = ["KEYS o*", "EXISTS old", "TYPE old", "SCAN 0 MATCH old COUNT 100", "TTL none"]


@pytest.mark.parametrize("command", ASKING + NOT_ASKING)
@in_loop
async def test_who_is_shown_a_topic_waits_until_that_is_safe_and_nobody_else(command: str) -> None:
    lab = Lab(ALWAYS)
    writer, reader = lab.caller(), lab.caller()
    await writer.ask("XADD old * f v")
    with lab.at_the_disk("new"):
        assert await writer.ask("XADD new * f v") == []
        answers = await reader.ask(command)
        assert len(answers) == (command in NOT_ASKING)
    await lab.settle()
    if command in ASKING:
        (answer,) = reader.got()
        assert answer not in (0, -2, [], Simple(b"none"))
    assert len(await reader.ask(command)) == 1


@in_loop
async def test_a_topic_that_was_shown_and_is_refused_then_is_an_error() -> None:
    lab = Lab(ALWAYS)
    writer, reader = lab.caller(), lab.caller()
    await writer.ask("XADD old * f v")
    lab.full("new")
    with lab.at_the_disk("new"):
        await writer.ask("XADD new * f v")
        assert await reader.ask("KEYS *") == []
    await lab.settle()
    (answer,) = reader.got()
    assert is_refusal(answer)
    assert await reader.ask("KEYS *", "DBSIZE", "EXISTS new") == [[b"old"], 1, 0]


@in_loop
async def test_a_cursor_of_another_process_begins_anew() -> None:
    """So whoever scans while the server is restarted gets every name, some of them twice."""
    lab = await full_lab(50)
    caller = lab.caller()
    cursor, first = await caller.ask_one("SCAN 0 COUNT 30")
    again, second = await caller.ask_one(f"SCAN {int(cursor) ^ (2 * PLACES)} COUNT 30")
    assert (again, second) == (cursor, first)
    end, rest = await caller.ask_one(f"SCAN {cursor.decode()} COUNT 30")
    assert end == b"0" and len({*first, *rest}) == 50
    assert int(cursor) < 1 << 53
