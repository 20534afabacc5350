"""After a start, how far groups are behind is known though nobody uses their topics; and nothing is touched for it."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from http_lab import HttpLab
from lamina.clock import ManualClock
from lamina.engines.topics import ids
from lamina.engines.topics.groups import Groups
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.topics import Topics
from lamina.errors import DiskError
from lamina.log.files.faulty import Fault, FaultyFiles
from lamina.log.files.memory import MemoryFiles
from lamina.log.options import LogOptions
from lamina.server import measures
from lamina.server.inside import Inside
from lamina.server.life import Life
from lamina.server.looking import Looking, _GivenUp
from lamina.server.measures.patient import patient
from lamina.server.measures.topic_glimpse import glimpse
from lamina.server.measures.topics_seen import GroupSeen, TopicsLook, TopicsSeen
from lamina.server.security.gate import Gate
from waiting import wait_until

FOLDER = "/topics"
OPTIONS = LogOptions(segment_bytes=2000)


class Lab:
    """Topics on a disk in memory, and who looks at them."""

    def __init__(self, disk: MemoryFiles | None = None) -> None:
        self.disk = MemoryFiles() if disk is None else disk
        self.files = FaultyFiles(self.disk)
        self.clock = ManualClock()
        self.open()

    def open(self) -> None:
        self.topics = Topics.open(FOLDER, options=OPTIONS, files=self.files, clock=self.clock, threaded=False)
        self.inside = Inside(Life(), Gate())
        self.inside.topics = self.topics
        self.looking = self.inside.looking = Looking(self.inside, share=0.999)
        self.inside.life.ready()

    def restart(self) -> None:
        self.topics.close()
        self.open()

    def seen(self) -> TopicsSeen:
        return TopicsLook().look(self.topics, self.looking.topics)

    def lags(self) -> dict[tuple[bytes, bytes], int]:
        return {(one.topic, one.group): one.lag for one in self.seen().groups}

    def opened(self) -> list[bytes]:
        return [name for name, _ in self.topics.opened()]

    def fill(self, name: bytes, entries: int, *groups: bytes, read: int = 0) -> Topic:
        topic = self.topics.get_or_make(name)
        for _ in range(entries):
            self.clock.advance(1)
            topic.add([b"item", b"tea"])
        for group in groups:
            topic.groups.create(group, ids.FIRST)
            if read:
                topic.groups.deliver(group, b"ann", read)
        topic.settle(topic.newest_position())
        topic.groups.settle(topic.groups.newest_position())
        return topic


# -- what is found -----------------------------------------------------------------------------------------------------


def test_groups_are_known_after_a_start_and_their_topic_is_not_opened() -> None:
    lab = Lab()
    lab.fill(b"orders", 100, b"packers", read=30)
    lab.fill(b"plain", 3)
    before = lab.seen()
    assert before.unknown == 0
    lab.restart()
    contents = lab.disk.contents()
    assert (lab.lags(), lab.seen().unknown) == ({}, 2)
    lab.looking.look()
    found = lab.seen()
    assert found.groups == before.groups == [GroupSeen(b"orders", b"packers", 70, 72.0, 30)]
    assert (found.unknown, found.topics, lab.opened()) == (0, [], [])
    lab.clock.advance(10)
    assert lab.seen().groups[0].lag_s == 82.0, "what waits grows older"
    assert lab.disk.contents() == contents


def test_what_is_measured_says_it() -> None:
    lab = Lab()
    lab.fill(b"orders", 5, b"packers")
    lab.restart()
    measured = measures.of(lab.inside)
    measured.look.share = float("inf")

    def values() -> dict[str, dict[tuple[str, ...], float]]:
        return {family.metric.name: family.values for family in measured.families()}

    assert values()["lamina_topics_unknown"] == {(): 1} and "lamina_group_lag_entries" not in values()
    lab.looking.look()
    found = values()
    assert found["lamina_group_lag_entries"] == {("orders", "packers"): 5}
    assert found["lamina_group_lag_seconds"][("orders", "packers")] > 0
    assert found["lamina_topics_unknown"] == found["lamina_topics_open"] == {(): 0}
    assert measures.vitals(lab.inside)["topics.lag"] == 5


@pytest.mark.parametrize("seed", range(12))
def test_what_is_found_is_what_opening_finds(seed: int) -> None:
    """Whatever happened to the topics, after an orderly stop and after a crash that tore what was written last."""
    draw, lab = random.Random(seed), Lab()
    names = [b"a", b"b", b"c"]
    for name in names:
        lab.fill(name, draw.randrange(1, 40), b"g")
    for _ in range(60):
        step(draw, lab.topics.get_or_make(draw.choice(names)), lab.clock)
    for name in names:
        topic = lab.topics.get_or_make(name)
        topic.settle(topic.newest_position())
        topic.groups.settle(topic.groups.newest_position())
    if draw.random() < 0.5:
        contents = lab.disk.contents()
        # One that the manifest knows may have been sealed: a crash does not tear that.
        growing = {path for path in contents if f"{path.rpartition('/')[0]}/manifest" not in contents}
        growing = {path for path in growing if is_newest(path, contents)}
        torn = {path: data + b"\x07\x01" if path in growing else data for path, data in contents.items()}
        lab = Lab(MemoryFiles(torn))
    else:
        lab.restart()
    lab.looking.look()
    found = lab.seen()
    assert not lab.opened() and found.unknown == 0
    for name in names:
        lab.topics.get(name)
    assert not lab.looking.topics.seen()
    opened = sorted(lab.seen().groups)
    assert [each._replace(lag_s=0) for each in sorted(found.groups)] == [each._replace(lag_s=0) for each in opened]
    # An id has the time in milliseconds, the newest entries of an open topic have it to the nanosecond.
    assert [each.lag_s for each in sorted(found.groups)] == pytest.approx([each.lag_s for each in opened], abs=0.002)


def step(draw: random.Random, topic: Topic, clock: ManualClock) -> None:
    groups: Groups = topic.groups
    known = [entry_id for entry_id, _ in topic.read(ids.FIRST)[0]]
    clock.advance(draw.random())
    match draw.randrange(9):
        case 0 | 1 | 2:
            for _ in range(draw.randrange(1, 30)):
                topic.add([b"item", b"tea" * draw.randrange(20)])
        case 3 if known:
            topic.delete(draw.sample(known, min(len(known), 3)))
        case 4 if known:
            topic.trim_length(draw.randrange(len(known) + 1))
        case 5 if not groups.has(b"late"):
            groups.create(b"late", draw.choice([None, ids.FIRST, *known]))
        case 6:
            groups.deliver(b"g", b"ann", draw.randrange(1, 20))
        case 7 if groups.has(b"late"):
            groups.deliver(b"late", b"bob", draw.randrange(1, 20), noack=draw.random() < 0.5)
        case 8:
            topic.set_id(EntryId(topic.state.last_id + 5))
            if draw.random() < 0.3:
                groups.compact()
                topic.checkpoint()


def test_what_the_topic_lost_is_pending_for_nobody() -> None:
    """A crash took entries that were delivered, and not that they were: opening the topic gives them up."""
    lab = Lab()
    topic = lab.fill(b"orders", 10, b"packers", read=5)
    before = lab.disk.contents()
    for _ in range(10):
        topic.add([b"item", b"tea"])
    topic.groups.deliver(b"packers", b"ann", 12)
    topic.settle(topic.newest_position())
    topic.groups.settle(topic.groups.newest_position())
    lost = {path: data if "/groups/" in path else before[path] for path, data in lab.disk.contents().items()}
    lab = Lab(MemoryFiles(lost))
    lab.looking.look()
    found = lab.seen().groups
    assert found == [GroupSeen(b"orders", b"packers", 0, 0.0, 10)]
    lab.topics.get(b"orders")
    assert lab.seen().groups == found


def is_newest(path: str, contents: dict[str, bytes]) -> bool:
    folder = path.rpartition("/")[0]
    return path.endswith(".dat") and path == max(
        each for each in contents if each.rpartition("/")[0] == folder and each.endswith(".dat")
    )


def test_ids_that_are_no_times_say_nothing_of_an_age() -> None:
    lab = Lab()
    topic = lab.topics.get_or_make(b"orders")
    topic.add([b"item", b"tea"], ids.make(5, 0))
    topic.groups.create(b"packers", ids.FIRST)
    lab.restart()
    lab.looking.look()
    assert lab.seen().groups == [GroupSeen(b"orders", b"packers", 1, 0.0, 0)]


def test_many_files_are_not_read_for_one_group() -> None:
    """A topic that was closed in order: what its checkpoint covers is not read."""
    lab = Lab()
    lab.fill(b"orders", 3000, b"packers", read=1500)
    lab.restart()
    total = sum(len(data) for path, data in lab.disk.contents().items() if "/orders/" in path)
    reads: list[str] = []
    files = patient(lab.files, lambda: reads.append("read"))
    (found,) = glimpse(files, f"{FOLDER}/orders", OPTIONS.max_payload)
    assert (found.lag, found.pending) == (1500, 1500)
    assert len(reads) < total / OPTIONS.segment_bytes, "fewer reads than files"


# -- what changes meanwhile --------------------------------------------------------------------------------------------


def test_who_opens_a_topic_knows_better() -> None:
    lab = Lab()
    lab.fill(b"orders", 10, b"packers")
    lab.restart()
    lab.looking.look()
    topic = lab.topics.get(b"orders")
    assert topic is not None and lab.lags() == {(b"orders", b"packers"): 10}
    topic.groups.deliver(b"packers", b"ann", 4)
    assert lab.lags() == {(b"orders", b"packers"): 6}, "once, and as it is now"


def test_a_renamed_topic_is_looked_at_under_its_new_name_and_a_deleted_one_is_forgotten() -> None:
    lab = Lab()
    lab.fill(b"orders", 10, b"packers")
    lab.fill(b"bills", 20, b"payers")
    lab.fill(b"mails", 30, b"readers")
    lab.restart()
    lab.looking.look()
    lab.topics.rename(b"orders", b"bills")
    lab.topics.delete(b"mails")
    assert (lab.lags(), lab.seen().unknown) == ({}, 1)
    lab.looking.look()
    assert (lab.lags(), lab.seen().unknown, lab.opened()) == ({(b"bills", b"packers"): 10}, 0, [])
    lab.topics.delete_all()
    assert (lab.lags(), lab.seen().unknown) == ({}, 0)


def test_a_damaged_topic_that_is_deleted_is_not_unknown_any_more() -> None:
    lab = Lab()
    lab.fill(b"orders", 100, b"packers")
    forget_checkpoints(lab)
    spoil(lab, "/orders/2", ".dat")
    lab.looking.look()
    assert lab.seen().unknown == 1
    assert lab.topics.delete(b"orders")
    assert lab.seen().unknown == 0


def test_a_topic_whose_deletion_failed_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    lab.fill(b"orders", 10, b"packers")
    lab.restart()
    lab.looking.look()

    def refuse(old: str, new: str) -> None:
        raise OSError(5, "no")

    for change in (lambda: lab.topics.delete(b"orders"), lambda: lab.topics.rename(b"orders", b"bills")):
        with monkeypatch.context() as patched:
            patched.setattr(lab.files, "rename_folder", refuse)
            with pytest.raises(DiskError):
                change()
        assert (lab.lags(), lab.seen().unknown) == ({}, 1)
        lab.looking.look()
        assert (lab.lags(), lab.seen().unknown) == ({(b"orders", b"packers"): 10}, 0)


def test_a_new_topic_that_is_given_up_and_was_written_to_meanwhile_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Lab()
    let_go = lab.topics._let_go

    def write_and_let_go(name: bytes) -> None:
        lab.fill(name, 5, b"packers")
        let_go(name)

    lab.topics.get_or_make(b"orders")
    monkeypatch.setattr(lab.topics, "_let_go", write_and_let_go)
    lab.topics.delete_unused(b"orders")
    assert (lab.opened(), lab.seen().unknown) == ([], 1)
    lab.looking.look()
    assert (lab.lags(), lab.seen().unknown) == ({(b"orders", b"packers"): 5}, 0)


def replace(lab: Lab) -> None:
    lab.fill(b"new", 3, b"ones")
    lab.topics.rename(b"new", b"orders")


@pytest.mark.parametrize("at", [1, 2, 4, 8])
@pytest.mark.parametrize("change", ["open", "delete", "rename", "replace", "flush"])
def test_what_happens_while_a_topic_is_read_counts(change: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of reading it, somebody does this to it: nothing of it as it was may be remembered."""
    lab = Lab()
    lab.fill(b"orders", 50, b"packers")
    lab.restart()
    reads = 0
    changes: dict[str, Callable[[], object]] = {
        "open": lambda: lab.topics.get_or_make(b"orders").groups.deliver(b"packers", b"ann", 45),
        "delete": lambda: lab.topics.delete(b"orders"),
        "rename": lambda: lab.topics.rename(b"orders", b"bills"),
        "replace": lambda: replace(lab),
        "flush": lab.topics.delete_all,
    }
    rest = lab.looking._rest

    def rest_and_change() -> None:
        nonlocal reads
        reads += 1
        if reads == at:
            changes[change]()
        rest()

    monkeypatch.setattr(lab.looking, "_rest", rest_and_change)
    lab.looking.look()
    lab.looking.look()
    assert reads >= at
    expected = {
        "open": {(b"orders", b"packers"): 5},
        "rename": {(b"bills", b"packers"): 50},
        "replace": {(b"orders", b"ones"): 3},
    }
    assert (lab.lags(), lab.seen().unknown) == (expected.get(change, {}), 0)


def test_topics_change_under_whoever_looks_and_all_is_known_in_the_end() -> None:
    """Threads on a real schedule: renames, deletions and uses against one that looks without a rest."""
    lab = Lab()
    for number in range(30):
        lab.fill(b"t%d" % number, 5, b"g")
    lab.restart()
    over = threading.Event()
    problems: list[Exception] = []

    def look() -> None:
        while not over.is_set():
            try:
                lab.looking.look()
            except Exception as error:
                problems.append(error)

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for number in range(10):
            lab.topics.delete(b"t%d" % number)
            lab.topics.rename(b"t%d" % (10 + number), b"r%d" % number)
            topic = lab.topics.get(b"t%d" % (20 + number))
            assert topic is not None
            topic.groups.deliver(b"g", b"ann", 2)
        lab.topics.get(b"r3")
    finally:
        over.set()
        looker.join()
    assert not problems
    lab.looking.look()
    expected = {(b"r%d" % number, b"g"): 5 for number in range(10)} | {
        (b"t%d" % (20 + number), b"g"): 3 for number in range(10)
    }
    assert (lab.lags(), lab.seen().unknown) == (expected, 0)
    assert len(lab.opened()) == 11


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def spoil(lab: Lab, *parts: str) -> None:
    """Damage in the middle of the first file whose path has these."""
    path = min(path for path in lab.disk.contents() if all(part in path for part in parts))
    data = bytearray(lab.disk.contents()[path])
    data[len(data) // 2] ^= 0xFF
    lab.disk.write(path, bytes(data))


def forget_checkpoints(lab: Lab) -> None:
    """A restart that has to read whole logs."""
    lab.topics.close()
    for path in [path for path in lab.disk.contents() if path.endswith("checkpoint")]:
        lab.disk.remove(path)
    lab.open()


@pytest.mark.parametrize("where", ["/bad/groups/", "/bad/2"])
def test_a_damaged_topic_stays_unknown_and_the_others_are_known(where: str, caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab()
    for name in (b"a", b"bad", b"z"):
        topic = lab.fill(name, 100, b"packers", b"others", read=10)
        for _ in range(60):
            topic.groups.deliver(b"packers", b"ann", 1)
    forget_checkpoints(lab)
    spoil(lab, where, ".dat")
    with caplog.at_level(logging.WARNING):
        lab.looking.look()
        lab.looking.look()
    assert {topic for topic, _ in lab.lags()} == {b"a", b"z"}
    assert lab.seen().unknown == 1
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "what waits in 1 topic is not known"
    ]
    lab.looking.topics.retry()
    lab.looking.look()
    assert lab.seen().unknown == 1, "it is tried again, and is damaged still"


@pytest.mark.parametrize("operation", ["open", "read", "list"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_disk_that_failed_once_is_tried_again(operation: str, nth: int) -> None:
    lab = Lab()
    lab.fill(b"orders", 100, b"packers", read=5)
    lab.restart()
    fault = Fault(operation, nth, only="/orders")
    lab.files.faults.append(fault)
    lab.looking.look()
    if fault.struck and lab.seen().unknown:  # a checkpoint or an index that cannot be read is not needed
        assert lab.lags() == {}
        lab.looking.topics.retry()
        lab.looking.look()
    assert fault.struck or operation == "list"
    assert (lab.lags(), lab.seen().unknown) == ({(b"orders", b"packers"): 95}, 0)


def test_who_looks_stops_at_once_and_nothing_is_known_by_half(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    for number in range(5):
        lab.fill(b"t%d" % number, 5, b"g")
    lab.restart()
    monkeypatch.setattr("lamina.server.looking._EVERY_S", 0.01)
    monkeypatch.setattr("lamina.server.looking._PIECE_S", 0.0)
    monkeypatch.setattr("lamina.server.looking._LONGEST_S", 3600.0)
    slow = Looking(lab.inside, share=1e-12)
    slow.start()
    try:
        wait_until(lambda: slow._began > 0)  # it rests, for an hour
    finally:
        slow.stop()
    assert slow._thread is None
    assert (slow.topics.seen(), slow.topics.unknown) == ({}, 5)
    with pytest.raises(_GivenUp):
        slow.look()
    assert (slow.topics.seen(), slow.topics.unknown) == ({}, 5)


def test_nobody_looks_before_the_server_is_ready_nor_when_it_stops() -> None:
    lab = Lab()
    lab.fill(b"orders", 5, b"g")
    lab.topics.close()
    lab.open()
    lab.inside.life.stopping("SIGTERM")
    with pytest.raises(_GivenUp):
        lab.looking.look()
    assert (lab.lags(), lab.seen().unknown) == ({}, 1)


def test_a_thread_of_its_own_looks_and_goes_on_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    lab.fill(b"orders", 5, b"g")
    lab.restart()
    monkeypatch.setattr("lamina.server.looking._EVERY_S", 0.01)
    lab.looking.start()
    try:
        wait_until(lambda: lab.lags() == {(b"orders", b"g"): 5})
        lab.topics.rename(b"orders", b"bills")
        wait_until(lambda: lab.lags() == {(b"bills", b"g"): 5})
    finally:
        lab.looking.stop()
    assert lab.opened() == []


# -- who watches -------------------------------------------------------------------------------------------------------


def test_the_overview_says_at_least_until_all_is_known(tmp_path: Path) -> None:
    with HttpLab(tmp_path) as lab:
        for number in range(5):
            lab.redis("XADD", "orders", "*", "item", str(number))
        lab.redis("XADD", "plain", "*", "item", "of no group")
        lab.redis("XGROUP", "CREATE", "orders", "packers", "0")
        lab.restart()
        looking = lab.inside.looking = Looking(lab.inside)
        measures.of(lab.inside).look.share = float("inf")

        def topics() -> tuple[object, object, object]:
            _, found = lab.get_json("/overview")
            one = next(one for one in found["engines"] if one["name"] == "topics")
            return one["waiting"], one["is_at_least"], one["unknown"]

        assert topics() == (0, True, 2)
        page = lab.page("/")[1]
        assert "≥ 0" in page and "what waits in 2 topics is not known yet" in page
        looking.look()
        assert topics() == (5, False, 0)
        page = lab.page("/")[1]
        assert "≥" not in page and "not known yet" not in page
