"""Queues when the disk refuses: what was told as safe is, what was not is taken back, and nobody else suffers."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest

from lamina.engines.queues import opening
from lamina.engines.queues.engine import QueueEngine
from lamina.engines.queues.options import QueueOptions
from lamina.engines.topics.topics import Topics
from lamina.errors import BadOption, DiskFull, LogClosed, StorageError
from lamina.log import OS, LogOptions
from lamina.log.commit import Committer
from lamina.log.reserve import Reserve
from lamina.log.writer import Log
from lamina.server import houses
from lamina.server.inside import Inside
from lamina.server.life import Life
from lamina.server.resp.queue_commands import QUEUE_KEYS
from lamina.server.resp.session import House
from lamina.server.security.gate import Gate
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles
from queue_doors import EVERY_STORE, FOLDER, JOURNALS, PATIENCE_S, RECORDS, LockWithAQueue, QueueDoors, pushed_body
from queue_lab import Lab
from resp_lab import in_loop, is_refusal

FRACTIONS = ("dump_every_s", "expire_every_s", "idle_s")
WHOLE = (
    "quota",
    "ttl_s",
    "max_body",
    "max_file_messages",
    "path_parts",
    "part_chars",
    "most_open",
    "keep_copies",
    "keep_copy_days",
)


def journals(**options: Any) -> tuple[Lab, FaultyFiles]:
    disk = FaultyFiles(MemoryFiles())
    return Lab("journal", files=disk, sync=OS, **options), disk


# -- a state that was built anew ---------------------------------------------------------------------------------------


@EVERY_STORE
@in_loop
async def test_what_is_sent_while_another_thread_builds_the_state_anew_is_there(store: str) -> None:
    lab = QueueDoors(store)
    sender, receiver = lab.caller(), lab.caller()
    rid, sid = await lab.new_queue(sender)
    engine, lock = lab.engine, LockWithAQueue()
    engine.lock = lab.deliveries.lock = lock  # type: ignore[assignment]
    build, is_building = engine.rebuild_state, threading.Event()

    def build_once_somebody_waits() -> Any:
        is_building.set()
        assert lock.has_waiter.wait(PATIENCE_S)
        return build()

    def dump() -> None:
        with suppress(StorageError):
            lab.upkeep.dump()

    engine.rebuild_state = build_once_somebody_waits
    engine.create()  # somebody else's, and it is refused
    lab.refuse()
    dumping = threading.Thread(target=dump)
    dumping.start()
    assert is_building.wait(PATIENCE_S)
    sender.send(f"Q.SEND {sid} precious")  # finds its queue, and has to wait before it can use it
    dumping.join()
    await lab.settle()
    assert engine.rebuilds == 1
    (id,) = sender.got()
    for body in ("second", "third"):
        await sender.ask_one(f"Q.SEND {sid} {body}")
    message = await receiver.ask_one(f"Q.GET {rid}")
    assert (message[0], message[3]) == (id, b"precious")
    assert (await receiver.ask_one(f"Q.ACK {rid} {message[0].decode()}"))[3] == b"second"
    assert lab.bodies_after_a_kill(rid) == [b"second", b"third"]


@pytest.mark.parametrize("first_fails", [True, False])
@in_loop
async def test_after_refusals_each_subscriber_gets_its_head_again_though_another_cannot(first_fails: bool) -> None:
    lab = QueueDoors()
    poor, other, sender = lab.caller(), lab.caller(), lab.caller()
    if first_fails:
        poor_ids, ids = await lab.new_queue(poor, "TTL", "1", "SUB"), await lab.new_queue(other, "SUB")
    else:
        ids, poor_ids = await lab.new_queue(other, "SUB"), await lab.new_queue(poor, "TTL", "1", "SUB")
    for _, sid in (poor_ids, ids):
        await sender.ask_one(f"Q.SEND {sid} body")
    (push,) = other.got()
    await sender.ask_one(f"Q.SEND {ids.sid} next")
    lab.clock.advance(10)  # the head of the poor one has expired, and that cannot be written down
    lab.refuse(times=3)
    answer, again = await other.ask(f"Q.ACK {ids.rid} {push[2].decode()}")
    assert is_refusal(answer) and again == push
    lab.files.heal()
    assert (await other.ask_one(f"Q.ACK {ids.rid} {push[2].decode()}"))[3] == b"next"


@in_loop
async def test_a_subscriber_whose_message_was_refused_gets_the_next_though_another_cannot() -> None:
    lab = QueueDoors()
    poor, other, sender = lab.caller(), lab.caller(), lab.caller()
    poor_ids, ids = await lab.new_queue(poor, "TTL", "1", "SUB"), await lab.new_queue(other, "SUB")
    await sender.ask_one(f"Q.SEND {poor_ids.sid} expires")
    lab.clock.advance(10)
    lab.refuse(times=3)
    assert is_refusal(await sender.ask_one(f"Q.SEND {ids.sid} refused"))
    assert other.got() == []
    lab.files.heal()
    await sender.ask_one(f"Q.SEND {ids.sid} good")
    assert [pushed_body(push) for push in other.got()] == [b"good"]


# -- journals ----------------------------------------------------------------------------------------------------------


def test_of_more_than_10_000_refused_changes_none_is_told_as_safe() -> None:
    lab, disk = journals(quota=100_000, max_file_messages=200_000)
    engine = lab.engine
    queue, made = engine.create()
    engine.settle(made)
    positions = [engine.send(queue, b"x")[1] for _ in range(15_000)]
    disk.fail("append", error=errno.ENOSPC, times=5, only=JOURNALS)
    engine.keeper.push()
    disk.heal()
    told_as_safe = 0
    for position in positions:
        with suppress(DiskFull):
            engine.keeper.settle(position)
            told_as_safe += 1
    assert told_as_safe == 0
    assert engine.messages.size(queue) == 0
    _, position = engine.send(queue, b"y")
    engine.keeper.settle(position)


def test_the_folder_of_a_queue_stays_until_its_deletion_is_safe() -> None:
    lab, disk = journals()
    engine = lab.engine
    queue, made = engine.create()
    engine.settle(made)
    engine.keeper.settle(engine.send(queue, b"kept")[1])
    disk.fail("append", error=errno.ENOSPC, only=RECORDS)
    deleted = engine.delete(queue)
    assert lab.upkeep.set_orphans_aside() == 0
    with pytest.raises(DiskFull):
        engine.settle(deleted)
    (queue,) = engine.state.queues.values()
    assert [message.body for message in engine.messages.messages(queue)] == [b"kept"]


def test_one_journal_that_cannot_be_read_does_not_keep_others_from_expiring() -> None:
    lab, disk = journals()
    engine = lab.engine
    for _ in range(4):
        queue, made = engine.create(ttl=1)
        engine.settle(made)
        engine.keeper.settle(engine.send(queue, b"body")[1])
        engine.keeper.sync()
        engine.keeper.forget(queue.rid)
    lab.clock.advance(100)
    bad = list(engine.state.queues.values())[1]
    disk.fail("read", error=errno.EIO, times=1000, only=engine.keeper.layout.folder("", bad.rid))
    assert lab.upkeep.expire_all() == 3
    assert [queue.size for queue in engine.state.queues.values() if queue is not bad] == [0, 0, 0]
    disk.heal()
    assert lab.upkeep.expire_all() == 1


@EVERY_STORE
def test_messages_can_be_acknowledged_on_a_full_disk_and_no_new_ones_are_taken(store: str) -> None:
    disk = FaultyFiles(MemoryFiles())
    lab = Lab(store, files=disk, sync=OS)
    engine = lab.engine
    reserve = engine.reserve = Reserve(disk, "/queues/reserve", lab.clock, 1 << 16)
    queue, made = engine.create()
    engine.settle(made)
    sent = [engine.send(queue, body) for body in (b"first", b"second")]
    engine.keeper.settle(sent[-1][1])
    disk.fail("append", error=errno.ENOSPC, times=1000, only="/queues/")
    held = reserve.is_held
    with pytest.raises(DiskFull):
        engine.keeper.settle(engine.acknowledge(queue, sent[0][0]))
    assert (held, reserve.is_held) == (True, False)
    disk.heal()  # what the reserve left: the acknowledgement has room now
    disk.fail("append", error=errno.ENOSPC, times=1000, only="/queues/reserve")
    queue = engine.state.queues[queue.rid]
    engine.keeper.settle(engine.acknowledge(queue, sent[0][0]))
    lab.clock.advance(1)
    with pytest.raises(DiskFull):
        engine.send(queue, b"third")
    disk.heal()
    lab.clock.advance(1)
    engine.keeper.settle(engine.send(queue, b"third")[1])
    assert [message.body for message in engine.messages.messages(queue)] == [b"second", b"third"]


# -- the server's life -------------------------------------------------------------------------------------------------


class _Disks:
    """There is one."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def of(self, folder: str, name: str) -> Reserve:
        self._served.disk.make_folder(folder)
        return Reserve(self._served.disk, f"{folder}/{name}", self._served.clock, 4096)


class Served:
    """The queues of a server on a disk in memory: opened and closed as ``lamina serve`` does."""

    def __init__(self, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disk, self.clock = FaultyFiles(MemoryFiles()), ManualClock()
        self.committer = Committer()
        opened = partial(opening.open_engine, clock=self.clock)
        monkeypatch.setattr(opening, "open_engine", opened)
        options = QueueOptions(store=store, dump_every_s=0, expire_every_s=0)
        log = LogOptions(sync=OS)
        self.settings = houses.QueueSettings(folder=FOLDER, log=log, options=options)
        topics = Topics.open("/topics", files=MemoryFiles(), clock=self.clock, threaded=False)
        self.house = House(topics, self.clock)

    @property
    def engine(self) -> QueueEngine:
        assert self.house.queues is not None
        return self.house.queues.engine

    @contextmanager
    def open(self) -> Iterator[Any]:
        try:
            inside = Inside(Life(), Gate(), disks=_Disks(self))  # type: ignore[arg-type]
            with houses._queues(self.settings, self.committer, inside) as let_in:
                yield let_in
        finally:
            self.committer.stop()


@EVERY_STORE
def test_the_server_keeps_room_for_records_and_for_messages(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(store, monkeypatch)

    async def serve() -> None:
        let_in(served.house)

    with served.open() as let_in:
        asyncio.run(serve())
        reserve = served.engine.reserve
        assert reserve is not None and reserve.is_held
        served.disk.fail("append", error=errno.ENOSPC)
        queue, made = served.engine.create()
        served.engine.settle(made)
        assert not reserve.is_held and queue.rid in served.engine.state.queues


def test_the_server_lets_who_waits_try_again_after_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served("memory", monkeypatch)
    told: list[bytes] = []

    async def serve() -> None:
        let_in(served.house)
        served.house.expect_all = told.append
        await asyncio.to_thread(served.engine.told_rebuilt)
        await asyncio.sleep(0)

    with served.open() as let_in:
        asyncio.run(serve())
    assert told == [QUEUE_KEYS]


@EVERY_STORE
def test_a_record_that_is_refused_at_the_stop_does_not_keep_the_queues_from_being_closed(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(store, monkeypatch)

    async def serve() -> None:
        let_in(served.house)

    with suppress(StorageError), served.open() as let_in:
        asyncio.run(serve())
        queue, made = served.engine.create()
        served.engine.settle(made)
        served.engine.keeper.settle(served.engine.send(queue, b"kept")[1])
        served.engine.create()
        fault = served.disk.fail("append", error=errno.ENOSPC, only=RECORDS, times=2)
    assert fault.struck == 2
    log = served.engine.log
    assert isinstance(log, Log) and isinstance(log.failure, LogClosed)
    again = opening.open_engine(FOLDER, files=served.disk, options=served.settings.options, threaded=False)
    assert [len(again.messages.messages(queue)) for queue in again.state.queues.values()] == [1]
    again.close()


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_counted_in_whole_numbers_cannot_have_a_fraction(name: str) -> None:
    value = getattr(QueueOptions(), name) + 0.5
    with pytest.raises(BadOption) as refused:
        QueueOptions(**{name: value})
    assert refused.value.facts["option"] == name


@pytest.mark.parametrize("name", FRACTIONS)
def test_pauses_can_have_a_fraction(name: str) -> None:
    options: dict[str, Any] = {name: 0.5}
    assert getattr(QueueOptions(**options), name) == 0.5
