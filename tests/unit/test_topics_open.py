"""Topics that are open: no more than their share of the handles, whatever clients make, and never one that is used."""

from __future__ import annotations

import errno
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from lamina.engines import loops
from lamina.engines.loops import MustWait
from lamina.engines.topics import ids
from lamina.engines.topics.catalog import Doubt
from lamina.engines.topics.feed import Feed
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.topics import Topics
from lamina.engines.topics.upkeep import Upkeep
from lamina.engines.topics.walk import Walk
from lamina.errors import DiskError, LogLocked
from lamina.log import ALWAYS, OS, LogOptions, Sync, lock
from lamina.log.naming import TIMED
from lamina.log.survey import survey
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles
from waiting import wait_until

FOLDER = "topics"
MOST = 8


class Lab:
    def __init__(self, sync: Sync = OS, *, threaded: bool = False) -> None:
        self.disk, self.clock, self.sync, self.threaded = MemoryFiles(), ManualClock(), sync, threaded
        self.files = FaultyFiles(self.disk)
        self.topics = self.opened()

    def opened(self) -> Topics:
        options = LogOptions(sync=self.sync)
        return Topics.open(
            FOLDER,
            files=self.files,
            clock=self.clock,
            options=options,
            threaded=self.threaded,
            most_handles=MOST,
        )

    def add(self, name: bytes, value: bytes = b"v") -> None:
        topic = self.topics.get_or_make(name)
        topic.settle(topic.add([b"f", value])[1])

    def values(self, name: bytes) -> list[bytes]:
        topic = self.topics.get(name)
        assert topic is not None
        return [fields[1] for _, fields in topic.read(ids.FIRST)[0]]

    def is_open(self, name: bytes) -> bool:
        return self.topics.if_open(name) is not None

    def make_many(self, count: int = 50) -> list[bytes]:
        names = [b"many-%d" % number for number in range(count)]
        for name in names:
            self.add(name, name)
        return names

    def handles(self) -> int:
        """But for the lock of all topics."""
        return len(self.disk.handles)


def test_however_many_topics_are_made_no_more_than_the_share_are_open() -> None:
    lab = Lab()
    for name in [b"many-%d" % number for number in range(100)]:
        lab.add(name, name)
        assert lab.topics.handles <= MOST and lab.handles() <= MOST
    assert lab.topics.closed_idle >= 100 - MOST
    assert lab.topics.existing() == 100 and len(lab.topics.names()) == 100


def test_what_was_written_to_a_topic_that_was_closed_is_there_and_goes_on() -> None:
    lab = Lab()
    for name in lab.make_many():
        lab.add(name, b"more")
        assert lab.values(name) == [name, b"more"]
        assert len([one for one in lab.disk.list(f"{FOLDER}/{name.decode()}") if one.endswith(".dat")]) == 1


def test_a_closed_topic_survives_a_kill_and_a_start_knows_that_it_exists() -> None:
    lab = Lab()
    names = lab.make_many()
    closed = [name for name in names if not lab.is_open(name)]
    lab.disk = MemoryFiles(lab.disk.contents())
    lab.files = FaultyFiles(lab.disk)
    lab.topics = lab.opened()
    assert closed and not any(lab.topics._names.doubt(name) for name in closed)
    assert all(lab.values(name) == [name] for name in names)


def test_a_topic_that_is_named_is_not_opened_for_it() -> None:
    lab = Lab()
    names = lab.make_many()
    opened = {name for name, _ in lab.topics.opened()}
    assert lab.topics.names() == sorted(names) and all(map(lab.topics.exists, names))
    assert lab.topics.page(1, 1000)[0] and lab.topics.existing() == len(names)
    assert {name for name, _ in lab.topics.opened()} == opened


def test_counts_go_on_when_a_topic_is_closed() -> None:
    lab = Lab()
    lab.add(b"a")
    lab.values(b"a")
    lab.make_many()
    assert not lab.is_open(b"a")
    assert lab.topics.counts.by_name[b"a"].added == 1 and lab.topics.counts.by_name[b"a"].read == 1


# -- one that is used -------------------------------------------------------------------------------------------------


def waits(lab: Lab, topic: Topic) -> object:
    topic.waiters[lambda: None] = None
    return None


def walks(lab: Lab, topic: Topic) -> object:
    return Walk(topic, ids.FIRST, ids.LAST, None, newest_first=False)


def has_groups(lab: Lab, topic: Topic) -> object:
    return topic.groups


def subscribes(lab: Lab, topic: Topic) -> object:
    topic.groups.settle(topic.groups.create(b"g", None))
    feed = Feed(lab.topics, b"a", b"g", b"c", batch=10, claim_idle_ms=None)
    assert not feed.fetch(lambda: None)
    return feed


USES: dict[str, Callable[[Lab, Topic], object]] = {
    "has it": lambda lab, topic: topic,
    "has its groups": has_groups,
    "waits": waits,
    "reads a large answer": walks,
    "is subscribed": subscribes,
    "has a method of it": lambda lab, topic: topic.settle,
}


@pytest.mark.parametrize("use", USES)
def test_a_topic_that_somebody_uses_stays_open(use: str) -> None:
    lab = Lab()
    lab.add(b"a")

    def begin() -> object:
        topic = lab.topics.get(b"a")
        assert topic is not None
        return USES[use](lab, topic)

    used = begin()
    lab.make_many()
    assert lab.is_open(b"a")
    lab.add(b"a", b"more")  # also to who waits
    del used
    lab.make_many()
    assert not lab.is_open(b"a"), "nobody has it any more"


@pytest.mark.parametrize("with_groups", [False, True])
@pytest.mark.parametrize("from_disk", [False, True])
def test_a_topic_that_nobody_has_is_closed_and_gone_from_memory(with_groups: bool, from_disk: bool) -> None:
    lab = Lab()
    lab.add(b"a")

    def make() -> Any:
        topic = lab.topics.get(b"a")
        assert topic is not None
        if with_groups:
            topic.groups.settle(topic.groups.create(b"g", ids.FIRST))
        return weakref.ref(topic)

    known = make()
    if from_disk:
        lab.topics.close()
        lab.topics = lab.opened()
        known = make() if not with_groups else weakref.ref(lab.topics.get(b"a"))  # type: ignore[type-var]
    gc.disable()
    try:
        lab.make_many()
        assert not lab.is_open(b"a") and known() is None
    finally:
        gc.enable()
    assert lab.values(b"a") == [b"v"]
    topic = lab.topics.get(b"a")
    assert topic is not None and topic.groups.has(b"g") == with_groups


def test_who_looks_after_topics_keeps_none_open() -> None:
    lab = Lab()
    upkeep = Upkeep(lab.topics)
    for name in lab.make_many():
        lab.add(name)
        upkeep.look()
    assert lab.topics.handles <= MOST
    assert len(upkeep._cares) <= MOST


def test_what_was_used_lately_is_closed_last() -> None:
    lab = Lab()
    lab.add(b"a")
    for name in lab.make_many():
        lab.add(b"a")
        lab.add(name)
    assert lab.is_open(b"a")


# -- beside other processes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [f"{FOLDER}/a", f"{FOLDER}/a/groups"])
def test_who_wants_one_log_finds_that_all_topics_are_held(folder: str) -> None:
    lab = Lab()
    lab.add(b"a")
    with pytest.raises(LogLocked, match="is writing here"):
        lock.take(lab.disk, folder, TIMED.lock_name)
    assert survey(lab.disk, f"{FOLDER}/a").holder is not None
    lab.topics.close()
    assert survey(lab.disk, f"{FOLDER}/a").holder is None
    lock.take(lab.disk, folder, TIMED.lock_name).release()
    assert not lab.disk.locks


def test_a_topic_that_a_tool_has_is_not_opened_meanwhile() -> None:
    lab = Lab()
    lab.add(b"a")
    lab.topics.close()
    held = lock.take(lab.disk, f"{FOLDER}/a", TIMED.lock_name)
    lab.topics = lab.opened()
    with pytest.raises(LogLocked):
        lab.topics.get(b"a")
    held.release()
    assert lab.values(b"a") == [b"v"]


# -- on a loop --------------------------------------------------------------------------------------------------------


def test_a_new_topic_is_made_on_the_loop_without_the_disk() -> None:
    lab = Lab()
    before = lab.disk.contents()
    with loops.at_once():
        topic = lab.topics.get_or_make(b"new")
        position = topic.add([b"f", b"v"])[1]
    assert lab.disk.contents() == before
    topic.settle(position)
    assert lab.values(b"new") == [b"v"] and lab.topics.exists(b"new")


def test_a_closed_topic_is_opened_by_a_worker() -> None:
    lab = Lab()
    lab.make_many()
    with pytest.raises(MustWait), loops.at_once():
        lab.topics.get(b"many-0")


def test_who_makes_one_too_many_makes_room_where_it_may_wait() -> None:
    lab = Lab()
    lab.make_many(MOST)
    with pytest.raises(MustWait), loops.at_once():
        lab.topics.get_or_make(b"one more")
    lab.add(b"one more")
    assert lab.topics.handles <= MOST


# -- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_topic_that_cannot_be_made_is_not_there_and_can_be_made_later() -> None:
    lab = Lab(ALWAYS)
    lab.files.fail("create", only="/new/")
    with pytest.raises(DiskError):
        lab.add(b"new")
    assert lab.topics.names() == [] and not lab.topics.exists(b"new")
    lab.add(b"new")
    assert lab.values(b"new") == [b"v"]


def test_a_topic_that_cannot_be_synced_when_it_is_closed_is_told_of() -> None:
    lab = Lab()
    lab.add(b"a")
    lab.files.fail("sync", only="/a/")
    lab.make_many()
    assert b"a" in lab.topics.broken()
    assert lab.topics._names.doubt(b"a") in (None, Doubt.UNSEEN)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_where_there_are_no_handles_left_idle_topics_are_closed_and_it_is_tried_again(error: int) -> None:
    lab = Lab()
    lab.make_many()
    before = lab.topics.handles
    lab.files.fail("open", only="/many-0/", error=error)
    assert lab.values(b"many-0") == [b"many-0"]
    assert lab.topics.handles < before and not lab.topics.broken()


def test_where_there_are_none_again_only_that_command_is_refused() -> None:
    lab = Lab()
    names = lab.make_many()
    lab.files.fail("open", only="/many-0/", error=errno.EMFILE, times=2)
    with pytest.raises(DiskError, match="many-0"):
        lab.topics.get(b"many-0")
    lab.files.heal()
    for name in names:
        lab.add(name, b"more")
        assert lab.values(name) == [name, b"more"]
    assert not lab.topics.broken()


def test_a_thread_keeps_the_share_while_topics_are_made() -> None:
    lab = Lab(threaded=True)
    lab.make_many(200)
    wait_until(lambda: lab.topics.handles <= MOST)
    lab.topics.close()
    assert not lab.disk.handles
