"""After a start, how much waits in journals is known though nobody uses their queues; and nothing is touched for it."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from lamina.engines.queues.message import NO_TTL, Queue
from lamina.errors import QuotaMet, StorageError
from lamina.log.files.faulty import Fault, FaultyFiles
from lamina.log.files.memory import MemoryFiles
from lamina.server import measures
from lamina.server.inside import Inside
from lamina.server.life import Life
from lamina.server.looking import Looking
from lamina.server.measures import queues_seen
from lamina.server.measures.queues_seen import QueuesSeen
from lamina.server.security.gate import Gate
from queue_lab import FOLDER, Lab

DAY_S = 86_400


class LookedAt:
    """Queues with journals on a disk in memory, and who looks into them."""

    def __init__(self, store: str = "journal") -> None:
        self.disk = MemoryFiles()
        self.files = FaultyFiles(self.disk)
        self.lab = Lab(store, files=self.files, ttl_s=DAY_S, expire_every_s=0)
        self.engine, self.clock = self.lab.engine, self.lab.clock
        self.look_from_here()

    def look_from_here(self) -> None:
        self.inside = Inside(Life(), Gate())
        self.inside.queues = self.lab.deliveries
        self.looking = self.inside.looking = Looking(self.inside, share=0.999)
        self.inside.life.ready()

    def restart(self) -> None:
        self.engine.close()
        self.lab.open()
        self.engine = self.lab.engine
        self.look_from_here()

    def fill(self, messages: int, ttl: int = NO_TTL, message_ttl: int = NO_TTL) -> bytes:
        queue, position = self.engine.create(ttl=ttl)
        self.engine.settle(position)
        for number in range(messages):
            self.clock.advance(1)
            try:
                _, position = self.engine.send(queue, b"tea %d" % number, ttl=message_ttl)
            except QuotaMet:
                continue
            self.engine.keeper.settle(position)
        return queue.rid

    def queue(self, rid: bytes) -> Queue:
        return self.engine.state.queues[rid]

    def seen(self) -> QueuesSeen:
        return queues_seen.look(self.lab.deliveries, self.looking.queues)

    def short(self) -> tuple[int, float, int | None]:
        found = self.seen()
        return found.messages, found.oldest_s, found.unknown


def test_what_waits_is_known_after_a_start_and_no_journal_is_opened() -> None:
    lab = LookedAt()
    sizes = {lab.fill(messages): messages for messages in (3, 0, 2, 1)}
    assert lab.short() == (6, 5.0, 0)
    lab.restart()
    contents = lab.disk.contents()
    assert lab.short() == (0, 0.0, 4)
    lab.looking.look()
    assert lab.short() == (6, 5.0, 0)
    lab.clock.advance(10)
    assert lab.short() == (6, 15.0, 0)
    assert lab.engine.keeper.open_count == 0 and lab.disk.contents() == contents
    assert {queue.size for queue in lab.engine.state.queues.values()} == {-1}, "the engine has to look for itself"
    vitals = measures.vitals(lab.inside)
    assert (vitals["queues.messages"], vitals["queues.oldest_s"]) == (6, 15.0)
    for rid, size in sizes.items():
        assert lab.engine.messages.size(lab.queue(rid)) == size
    assert lab.seen().messages == 6 and not lab.looking.queues.seen()


def test_in_memory_nothing_is_unknown() -> None:
    lab = LookedAt("memory")
    lab.fill(3)
    lab.restart()
    assert lab.short()[::2] == (3, 0)
    lab.looking.look()
    assert lab.short()[::2] == (3, 0)


def test_the_mark_of_the_quota_is_counted_as_the_engine_counts_it() -> None:
    lab = LookedAt()
    rid = lab.fill(5)  # 3 is the quota
    before = lab.seen().messages
    lab.restart()
    lab.looking.look()
    assert lab.seen().messages == before == 4 == lab.engine.messages.size(lab.queue(rid))


def test_who_uses_a_queue_knows_better_and_a_deleted_one_is_forgotten() -> None:
    lab = LookedAt()
    used, deleted, left = lab.fill(3), lab.fill(2), lab.fill(1)
    lab.restart()
    lab.looking.look()
    head = lab.engine.messages.head(lab.queue(used))
    assert head is not None and lab.seen().messages == 6
    lab.engine.keeper.settle(lab.engine.acknowledge(lab.queue(used), head.id))
    assert lab.seen().messages == 5
    queue = lab.queue(deleted)
    lab.engine.settle(lab.engine.delete(queue))
    lab.engine.keeper.delete(queue)
    assert (lab.seen().messages, list(lab.looking.queues.seen()), lab.seen().unknown) == (3, [left], 0)


def test_a_new_queue_is_not_unknown() -> None:
    lab = LookedAt()
    lab.restart()
    lab.fill(0)
    assert lab.seen().unknown == 0


def test_what_has_expired_is_not_the_oldest() -> None:
    lab = LookedAt()
    lab.fill(1, ttl=60)
    lab.fill(1, ttl=0)
    lab.restart()
    lab.looking.look()
    assert lab.short() == (2, 1.0, 0)
    lab.clock.advance(59)
    assert lab.seen().oldest_s == 60.0
    lab.clock.advance(DAY_S)
    assert lab.short() == (2, float(DAY_S + 59), 0), "the one that is kept for ever"


def test_a_message_says_itself_when_it_expires() -> None:
    lab = LookedAt()
    lab.fill(1, message_ttl=60)
    lab.restart()
    lab.looking.look()
    lab.clock.advance(60)
    assert lab.short() == (1, 60.0, 0), "the last second in which it is there"
    lab.clock.advance(1)
    assert lab.short() == (1, 0.0, 0)


def test_while_folders_are_on_the_move_nobody_looks() -> None:
    lab = LookedAt()
    lab.fill(2)
    lab.engine.close()
    lab.lab.options = replace(lab.lab.options, path_parts=3)
    lab.lab.open()
    lab.engine = lab.lab.engine
    lab.look_from_here()
    lab.looking.look()
    assert lab.short()[::2] == (0, 1)
    lab.engine.keeper.move_all()
    lab.looking.look()
    assert lab.short()[::2] == (2, 0)


@pytest.mark.parametrize("at", range(1, 7))
@pytest.mark.parametrize("change", ["use", "delete"])
def test_what_happens_while_a_journal_is_read_counts(change: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = LookedAt()
    rid = lab.fill(3)
    lab.restart()
    queue = lab.queue(rid)
    reads, rest = 0, lab.looking._rest

    def use() -> None:
        head = lab.engine.messages.head(queue)
        assert head is not None
        lab.engine.keeper.settle(lab.engine.acknowledge(queue, head.id))

    def delete() -> None:
        lab.engine.settle(lab.engine.delete(queue))
        lab.engine.keeper.delete(queue)

    def rest_and_change() -> None:
        nonlocal reads
        reads += 1
        if reads == at:
            use() if change == "use" else delete()
        rest()

    monkeypatch.setattr(lab.looking, "_rest", rest_and_change)
    while reads < at:
        lab.looking.queues.told(rid, is_left=reads < at)
        lab.looking.look()
    lab.looking.look()
    assert lab.short()[::2] == ({"use": 2, "delete": 0}[change], 0)


def test_a_queue_of_which_a_write_was_refused_is_looked_at_again() -> None:
    lab = LookedAt()
    rid = lab.fill(2)
    lab.files.faults.append(Fault("append", only=FOLDER + "/"))
    with pytest.raises(StorageError):
        lab.engine.keeper.settle(lab.engine.send(lab.queue(rid), b"refused")[1])
    assert lab.short()[::2] == (0, 1)
    lab.looking.look()
    assert lab.short()[::2] == (2, 0)


def test_a_queue_whose_sync_failed_is_looked_at_again() -> None:
    lab = LookedAt()
    lab.fill(2)
    lab.files.faults.append(Fault("sync", only=FOLDER + "/"))
    lab.engine.keeper.sync()
    assert lab.seen().unknown == 1
    lab.looking.look()
    assert lab.short()[::2] == (2, 0)


def test_when_the_state_was_built_anew_all_queues_are_looked_at_again() -> None:
    lab = LookedAt()
    lab.fill(2)
    lab.restart()
    lab.looking.look()
    lab.fill(1)
    with lab.engine.lock:
        lab.engine.rebuild()
        lab.engine.rebuilds += 1
    assert lab.seen().messages == 2, "of the other it is not known any more"
    lab.looking.look()
    assert lab.short()[::2] == (3, 0)


def test_a_queue_that_stayed_open_while_the_state_was_built_anew_is_counted_once() -> None:
    lab = LookedAt()
    rid = lab.fill(1)
    _, on_its_way = lab.engine.send(lab.queue(rid), b"not on the disk yet")
    with lab.engine.lock:
        lab.engine.rebuild()
        lab.engine.rebuilds += 1
    lab.looking.look()
    assert lab.short()[::2] == (2, 0) and lab.engine.keeper.open_count == 1
    lab.engine.keeper.settle(on_its_way)
    assert lab.short()[::2] == (2, 0)
    lab.engine.keeper.settle(lab.engine.send(lab.queue(rid), b"one more")[1])
    assert lab.short()[::2] == (3, 0) and not lab.looking.queues.seen()


def test_a_queue_that_was_looked_into_and_turns_out_to_be_open_is_counted_once() -> None:
    lab = LookedAt()
    rid = lab.fill(1)
    with lab.engine.lock:
        lab.engine.rebuild()
    lab.looking.queues.expect([rid])  # whatever led to that
    lab.looking.look()
    assert lab.short()[::2] == (1, 0) and lab.engine.keeper.open_count == 1
    lab.engine.keeper.settle(lab.engine.send(lab.queue(rid), b"one more")[1])
    assert lab.short()[::2] == (2, 0) and not lab.looking.queues.seen()


def test_a_damaged_journal_stays_unknown_and_is_told_without_its_id(caplog: pytest.LogCaptureFixture) -> None:
    lab = LookedAt()
    lab.fill(2)
    bad = lab.fill(3)
    lab.engine.close()
    folder = lab.engine.keeper.layout.folder(lab.engine.keeper.home.root, bad)
    for path in [path for path in lab.disk.contents() if path.startswith(folder) and not path.endswith("queue.log")]:
        lab.disk.remove(path)
    lab.lab.open()
    lab.engine = lab.lab.engine
    lab.look_from_here()
    with caplog.at_level(logging.WARNING):
        lab.looking.look()
    assert lab.short()[::2] == (2, 1)
    told = [record.getMessage() for record in caplog.records if record.name == "lamina.server"]
    assert len(told) == 1 and told[0].startswith("what waits in 1 queue is not known: a message file is missing")
    assert folder.rpartition("/")[2] not in caplog.text


@pytest.mark.parametrize("operation", ["open", "read", "list"])
def test_a_disk_that_fails_is_tried_again_and_the_path_is_not_told(
    operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    lab = LookedAt()
    rid = lab.fill(2)
    lab.restart()
    lab.files.faults.append(Fault(operation, only=FOLDER + "/messages/"))
    with caplog.at_level(logging.WARNING):
        lab.looking.look()
    assert lab.short()[::2] == (0, 1)
    folder = lab.engine.keeper.layout.folder(lab.engine.keeper.home.root, rid)
    assert caplog.text and folder.rpartition("/")[2] not in caplog.text
    lab.looking.queues.retry()
    lab.looking.look()
    assert lab.short()[::2] == (2, 0)
