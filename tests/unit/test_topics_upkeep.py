"""The upkeep of topics: checkpoints, groups, room given back, retention, and that nothing ends it."""

from __future__ import annotations

import logging
import threading

import pytest

from lamina.engines.topics import ids, upkeep
from lamina.engines.topics.retention import Retentions
from lamina.engines.topics.shedding import Shed
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.topics import Topics
from lamina.engines.topics.upkeep import Upkeep
from lamina.errors import DiskFull
from lamina.log import OS, LogOptions
from lamina.log.files.memory import MemoryFiles
from lamina.log.history import History
from lamina.log.reserve import Reserve
from lamina.testing import FaultyFiles, ManualClock

FOLDER = "topics"


class Lab:
    """A folder of topics with small files."""

    def __init__(self, *retentions: str, files: MemoryFiles | None = None) -> None:
        self.disk, self.clock = files or MemoryFiles(), ManualClock()
        self.files = FaultyFiles(self.disk)
        self.retentions = Retentions.parse(retentions)
        self.open()

    def open(self) -> None:
        options = LogOptions(sync=OS, segment_bytes=400)
        self.topics = Topics.open(FOLDER, options=options, files=self.files, clock=self.clock, threaded=False)
        self.upkeep = Upkeep(self.topics, self.retentions, every_s=0.01)

    def open_again(self) -> None:
        self.topics.close()
        self.open()

    def fill(self, name: bytes, count: int = 20) -> Topic:
        topic = self.topics.get_or_make(name)
        for _ in range(count):
            self.clock.advance(1)
            topic.settle(topic.add([b"field", b"x" * 60])[1])
        return topic

    def names(self, name: str) -> list[str]:
        return sorted(path for path in self.disk.list(f"{FOLDER}/{name}") if path.endswith(".dat"))


def test_every_topic_is_kept_within_its_own_limits() -> None:
    lab = Lab("long*=length:15", "*=length:5")
    long, short = lab.fill(b"long"), lab.fill(b"short")
    shed = lab.upkeep.shed_all()
    assert 15 <= long.state.length < 20
    assert 5 <= short.state.length < 10
    assert shed.entries == 40 - long.state.length - short.state.length
    assert lab.upkeep.shed_all() == Shed()


def test_topics_that_nobody_has_opened_are_opened_if_they_have_a_limit() -> None:
    lab = Lab("limited=length:5")
    lab.fill(b"limited")
    lab.fill(b"other")
    lab.open_again()
    assert lab.upkeep.shed_all().files
    assert [name for name, _ in lab.topics.opened()] == [b"limited"]


def test_a_checkpoint_is_kept_when_it_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_RECORDS", 30)
    lab = Lab()
    topic = lab.fill(b"t", 30)
    lab.upkeep.look()
    assert topic.checkpointed == 0
    lab.fill(b"t", 1)
    lab.upkeep.look()
    first = topic.checkpointed
    assert first
    lab.fill(b"t", 30)
    lab.upkeep.look()
    assert topic.checkpointed == first
    monkeypatch.setattr(upkeep, "_BYTES", 1000)
    lab.upkeep.look()
    assert topic.checkpointed > first


def test_what_a_start_had_to_replay_counts_for_the_next_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    lab.fill(b"t", 25)
    killed = Lab(files=MemoryFiles(lab.disk.contents()))
    monkeypatch.setattr(upkeep, "_RECORDS", 30)
    topic = killed.fill(b"t", 5)
    killed.upkeep.look()
    assert topic.checkpointed == 0
    killed.fill(b"t", 1)
    killed.upkeep.look()
    assert topic.checkpointed


def test_groups_are_written_anew_and_deleted_topics_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    groups = lab.fill(b"t").groups
    groups.create(b"g", ids.FIRST)
    for _ in range(200):
        groups.settle(groups.set_id(b"g", ids.FIRST))
    assert len(lab.names("t/groups")) > 5
    lab.upkeep.look()
    assert len(lab.names("t/groups")) > 5
    monkeypatch.setattr(groups, "wants_compaction", lambda: True)
    lab.upkeep.look()
    assert len(lab.names("t/groups")) <= 2
    lab.fill(b"gone")
    lab.topics.delete(b"gone")
    lab.upkeep.look()
    assert not any("gone" in path for path in lab.disk.contents())


def test_the_recent_past_stays_unless_the_disk_is_full_and_is_forgotten_with_its_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Lab()
    history = History(3600.0)
    lab.upkeep = Upkeep(lab.topics, lab.retentions, every_s=0.01, history=history)
    topic = lab.fill(b"t")
    topic.delete([id for id, _ in topic.read(ids.FIRST)[0]])
    names = lab.names("t")
    assert lab.upkeep.shed_all() == Shed() and lab.names("t") == names
    assert history.bytes > 0
    with monkeypatch.context() as patched:
        patched.setattr(Upkeep, "_is_out_of_room", lambda self: True)
        assert lab.upkeep.shed_all().files and not history.bytes
    other = lab.fill(b"u")
    other.delete([id for id, _ in other.read(ids.FIRST)[0]])
    before = history.bytes
    lab.upkeep.shed_all()
    held = history.bytes
    assert held > before
    lab.topics.delete(b"u")
    lab.upkeep.look()
    assert history.bytes < held


def test_an_error_is_told_and_the_other_topics_are_looked_after(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab("*=length:5")
    lab.fill(b"a")
    well = lab.fill(b"b")
    lab.files.fail("remove", only="topics/a/2", times=1000)
    with caplog.at_level(logging.WARNING):
        lab.upkeep.shed_all()
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == ["upkeep of a"]
    assert well.state.length < 10
    lab.files.faults.clear()
    assert lab.upkeep.shed_all().files  # what could not be removed goes now


def test_a_topic_with_which_something_is_wrong_is_left_alone_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(upkeep, "_RECORDS", 1)
    lab = Lab()
    topic = lab.fill(b"t", 5)
    tries = 0

    def fail() -> None:
        nonlocal tries
        tries += 1
        raise ZeroDivisionError

    monkeypatch.setattr(topic, "checkpoint", fail)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            lab.upkeep.look()
            lab.clock.advance(1)
        assert (tries, len(caplog.records)) == (1, 1)
        lab.clock.advance(60)
        lab.upkeep.look()
    assert tries == 2


def test_a_topic_that_is_deleted_meanwhile_is_not_written_to() -> None:
    lab = Lab("*=length:5")
    topic = lab.fill(b"t")
    shedder = lab.upkeep.shedder(topic)
    lab.files.fail("rename", only="topics/t/checkpoint")  # as it is closed: so there is one to write yet
    lab.topics.delete(b"t")
    again = lab.fill(b"t", 3)
    before = lab.disk.contents()
    assert shedder.shed(lab.retentions.of(b"t")) == Shed()
    topic.checkpoint()
    assert lab.disk.contents() == before
    assert lab.upkeep.shedder(again) is not shedder


def test_a_full_disk_gets_room_by_retention_and_takes_entries_again() -> None:
    lab = Lab("*=length:20")
    lab.disk.size = 40_000
    lab.topics.reserve = Reserve(lab.disk, f"{FOLDER}/.reserve", lab.clock, 5000, 5000)
    with pytest.raises(DiskFull):
        lab.fill(b"t", 1000)
    assert lab.topics.reserve.is_short
    assert lab.upkeep.shed_all().files > 10
    lab.clock.advance(1)
    lab.upkeep.look()
    assert lab.topics.reserve.is_held and not lab.topics.reserve.is_short
    lab.fill(b"t", 10)


def test_a_full_disk_without_a_reserve_gets_room_even_if_no_checkpoint_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab("*=length:20")
    topic = lab.fill(b"t", 100)

    def fail() -> None:
        raise DiskFull("no room")

    monkeypatch.setattr(topic, "checkpoint", fail)
    assert lab.upkeep.shed_all().files > 10
    known = topic.state.length, topic.state.added, topic.state.last_id
    started = Lab(files=MemoryFiles(lab.disk.contents())).topics.get(b"t")
    assert started is not None
    assert (started.state.length, started.state.added, started.state.last_id) == known


def test_the_thread_does_all_of_it_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())  # other tests may have left some
    lab = Lab("*=length:5")
    topic = lab.fill(b"t")
    has_shed = threading.Event()
    shed_all = lab.upkeep.shed_all

    def shed_and_tell() -> Shed:
        shed = shed_all()
        has_shed.set()
        lab.clock.advance(1)
        return shed

    monkeypatch.setattr(lab.upkeep, "shed_all", shed_and_tell)
    lab.upkeep.start()
    lab.clock.advance(1)
    assert has_shed.wait(20)
    lab.upkeep.stop()
    assert topic.state.length < 10
    assert not any(thread.name == "lamina-topics-upkeep" for thread in set(threading.enumerate()) - before)
    lab.topics.close()


def test_what_may_go_goes_soon_behind_a_start_however_seldom_it_is_looked_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that is killed before the first look, again and again, would keep everything."""
    monkeypatch.setattr(upkeep, "_SOON_S", 0.0)
    monkeypatch.setattr(upkeep, "_EVERY_S", 0.001)
    lab = Lab()
    looked = threading.Event()
    often = Upkeep(lab.topics, lab.retentions, every_s=3600)
    monkeypatch.setattr(often, "shed_all", looked.set)
    often.start()
    try:
        assert looked.wait(30)
    finally:
        often.stop()
