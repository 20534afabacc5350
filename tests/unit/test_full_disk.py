"""All engines on one disk that fills up: what each refuses, what each goes on with, and a start with nothing free."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress

import pytest

import lamina
from lamina.data import Data
from lamina.engines.elsewhere import Stopper
from lamina.engines.queues.options import QueueOptions
from lamina.engines.store.api import Store
from lamina.engines.store.compaction_task import Outcome, Task
from lamina.engines.store.compaction_worker import compact_elsewhere
from lamina.engines.store.compactions import Progress
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.options import StoreOptions
from lamina.errors import DiskFull
from lamina.log import OS, LogOptions
from lamina.log.files import Files, with_room
from lamina.log.files.memory import MemoryFile, MemoryFiles
from lamina.log.reserve import Reserve
from lamina.log.writer import Log
from store_lab import StoreLab

STORE = StoreOptions(epoch_ms=1)
COUNT = 30


class Disk(MemoryFiles):
    """On which also a new name needs room, as on a real one."""

    def create(self, path: str) -> MemoryFile:
        with_room(self, self._check_free)
        return super().create(path)

    def make_folder(self, folder: str) -> None:
        if folder not in self.folders:
            with_room(self, self._check_free)
        super().make_folder(folder)

    def _check_free(self) -> None:
        if self.size is not None and self.room("").free == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def take(self, free: int) -> None:
        """Somebody else leaves no more than that."""
        self.write("other", b"")
        self.write("other", bytes(self.room("").free - free))


class Lab:
    """All engines inside one process, with something to end in each."""

    def __init__(self, store: str = "memory") -> None:
        self.disk = Disk()
        self.disk.size = 8 << 20
        self.options = QueueOptions(store=store)
        self.data = self.open()
        for _ in range(COUNT):
            self.data.jobs.add("q", b"job")
        with self.data.topic("t").subscribe("g", wait=0):
            pass
        queue = self.data.queues.create()
        self.rid, self.sid = queue
        for number in range(COUNT):
            self.data.topic("t").publish(f"{number}")
            self.data.queue(self.sid).send(b"%d" % number)
            self.data.store.put(1, b"%d" % number, b"value")

    def open(self) -> Data:
        return lamina.open("data", files=self.disk, store=STORE, queues=self.options)

    @property
    def reserve(self) -> Reserve:
        reserve = self.data.jobs.engine.reserve
        assert reserve is not None
        return reserve

    def new_work(self) -> dict[str, Callable[[], object]]:
        data = self.data
        return {
            "job": lambda: data.jobs.add("q", b"new"),
            "entry": lambda: data.topic("t").publish("new"),
            "topic": lambda: data.topic("new").publish("new"),
            "group": lambda: list(data.topic("t").subscribe("new", wait=0)),
            "message": lambda: data.queue(self.sid).send(b"new"),
            "queue": lambda: data.queues.create(),
            "key": lambda: data.store.put(1, b"new", b"value"),
            "storage": lambda: _add_storage(data.store),
        }

    def end_everything(self) -> None:
        data = self.data
        ended = data.jobs.lease_many("q", most=2 * COUNT)
        for job in ended:
            job.complete(b"done")
        with data.topic("t").subscribe("g", wait=0, since="start", autoack=True) as messages:
            assert len(list(messages)) == len(ended) == COUNT
        queue, received = data.queue(self.rid), 0
        message = queue.receive()
        while message is not None:
            message, received = queue.ack(message), received + 1
        assert received == COUNT
        for number in range(COUNT):
            data.store.remove(1, b"%d" % number)

    def kill(self) -> None:
        """What the disk holds is all there is; half of what was being written is there, too."""
        disk = Disk(self.disk.contents())
        disk.size = self.disk.size
        disk.folders |= self.disk.folders
        with suppress(DiskFull):
            self.data.close()
        self.disk = disk


def _add_storage(store: Store) -> None:
    with store.session() as session:
        session.add_storage(7)


@pytest.mark.parametrize("store", ["memory", "journal"])
def test_every_engine_refuses_new_work_at_one_mark_and_goes_on_with_what_ends_it(store: str) -> None:
    lab = Lab(store)
    lab.disk.take(free=lab.reserve.low_water)
    lab.reserve.look()
    for what, do in lab.new_work().items():
        with pytest.raises(DiskFull, match="nothing new is taken") as refused:
            do()
        assert refused.value.retryable, what
    assert "data/topics/new" not in lab.disk.folders, "not even a folder is made"
    lab.end_everything()
    assert lab.reserve.is_held, "all that did not need the reserve"
    lab.disk.take(free=2 * lab.reserve.low_water)
    assert lab.reserve.look()
    for do in lab.new_work().values():
        do()
    lab.data.close()


@pytest.mark.parametrize("store", ["memory", "journal"])
def test_on_a_disk_that_others_filled_work_ends_in_the_room_of_the_reserve(store: str) -> None:
    lab = Lab(store)
    lab.disk.take(free=0)
    lab.end_everything()
    assert not lab.reserve.is_held and "data/reserve" not in lab.disk.contents()
    for do in lab.new_work().values():
        with pytest.raises(DiskFull):
            do()
    lab.data.close()


@pytest.mark.parametrize("store", ["memory", "journal"])
@pytest.mark.parametrize("has_reserve", [True, False])
def test_a_start_after_a_kill_needs_no_room(store: str, has_reserve: bool) -> None:
    lab = Lab(store)
    lab.kill()
    for name in [name for name in lab.disk.contents() if name.endswith((".log", ".dat", "pwal_0000", "/epoch"))]:
        lab.disk.write(name, lab.disk.contents()[name] + b"\x07torn")
    if not has_reserve:
        lab.disk.remove("data/reserve")
    lab.disk.take(free=0)
    for _ in range(2):  # what one start did not write the next one does not miss
        lab.data = data = lab.open()
        assert len(data.jobs.list("q")) == COUNT
        assert [message.value for message in data.topic("t").read()] == [b"%d" % number for number in range(COUNT)]
        assert data.queue(lab.rid).receive() is not None
        assert data.store.get(1, b"7") == b"value"
        for do in lab.new_work().values():
            with pytest.raises(DiskFull):
                do()
        lab.kill()
    lab.disk.remove("other")
    lab.data = lab.open()
    lab.end_everything()
    for do in lab.new_work().values():
        do()
    lab.data.close()
    lab.data = data = lab.open()
    assert data.store.get(1, b"new") == b"value" and data.store.get(1, b"7") is None
    assert len(data.jobs.list("q")) == 1
    data.close()


def test_a_store_that_was_opened_on_a_full_disk_writes_no_session_before_the_head_of_its_epoch_file() -> None:
    disk = Disk()
    disk.size = 1 << 20
    disk.make_folder("store")
    disk.write("other", bytes(1 << 20))
    options = StoreOptions(epoch_ms=0)
    engine = StoreEngine.open("store", files=disk, options=options)
    disk.remove("other")
    channel = engine.channel()
    session = channel.begin()
    session.put(1, b"k", b"v")
    epoch = session.end()
    channel.write(epoch)  # as one who gathered much does, before anybody has begun the epoch file
    assert "store/pwal_0000" not in disk.contents()
    StoreEngine.open("store", files=MemoryFiles(disk.contents()), options=options).close()
    engine.switch_epoch()
    with pytest.raises(DiskFull):
        engine.waiters.wait(epoch, engine.settle)
    session = channel.begin()
    session.put(1, b"k", b"w")
    epoch = session.end()
    engine.switch_epoch()
    engine.waiters.wait(epoch, engine.settle)
    engine.close()
    with StoreEngine.open("store", files=disk, options=options) as again:
        found = again.view.get(1, b"k")
        assert found is not None and found.value == b"w" and again.last_epoch >= epoch


def test_a_compaction_makes_the_catalog_of_a_store_that_was_made_on_a_full_disk() -> None:
    disk = Disk()
    disk.make_folder("store")
    disk.size = 0
    lab = StoreLab(disk)
    assert disk.contents() == {}
    disk.size = None
    lab.s(0, a="1")
    lab.sw()
    made: list[str] = []

    def compact(files: Files, task: Task, progress: Progress, stopper: Stopper) -> Outcome:
        made.append(str("store/compaction_catalog" in disk.contents()))
        return compact_elsewhere(files, task, progress, stopper)

    with lab.switching():
        lab.compactions.compact(compact=compact)
    assert made == ["True"], "what a crash leaves of its parts would else look like those of a catalog that was lost"
    lab.store.close()
    lab.store = lab.open()
    assert lab.entries() == {"a": "1"}


def test_a_compaction_that_cannot_fit_into_a_full_disk_does_not_begin() -> None:
    disk = MemoryFiles()
    lab = StoreLab(disk)
    for number in range(30):
        lab.s(0, **{f"k{number}": "v" * 1000})
    lab.sw()
    disk.size = 400_000
    reserve = Reserve(disk, "reserve", lab.clock, 0, 50_000)
    lab.store.use_reserve(reserve)
    disk.write("other", bytes(disk.room("").free - 20_000))
    reserve.look()
    before = disk.contents()
    with pytest.raises(DiskFull, match="a compaction writes"):
        lab.compact()
    assert disk.contents() == before
    disk.write("other", bytes(disk.room("").free + len(disk.contents()["other"]) - 49_000))
    reserve.look()
    assert reserve.is_short
    assert lab.compact().entries_live == 30, "it fits, and makes room"


def test_entries_are_not_spilled_into_the_last_room() -> None:
    disk = MemoryFiles()
    lab = StoreLab(disk, memory_bytes=10_000)
    disk.size = 400_000
    reserve = Reserve(disk, "reserve", lab.clock, 0, 50_000)
    lab.store.use_reserve(reserve)
    for number in range(10):
        lab.s(0, **{f"k{number}": "v" * 400})
        lab.sw()
    disk.write("other", bytes(disk.room("").free - 50_000))
    reserve.look()
    for number in range(30):
        lab.s(0, **{f"gone{number}" + "x" * 400: None})
        lab.sw()
    assert lab.store.view.tables()[0].bytes > 10_000
    assert not any(name.startswith("store/run") for name in disk.contents())
    reserve.give()
    disk.remove("other")
    lab.clock.advance(10)
    reserve.look()
    for number in range(20):
        lab.s(0, **{f"k{number}": "v" * 400})
        lab.sw()
    assert any(name.startswith("store/run") for name in disk.contents()), "when there is room they are"


def test_a_session_that_was_refused_for_want_of_room_leaves_nothing_and_the_next_goes_on() -> None:
    lab = Lab()
    store = lab.data.store
    lab.disk.take(free=lab.reserve.low_water)
    lab.reserve.look()
    channel = store.channel(9999)
    session = channel.begin()
    session.put(1, b"half", b"written")
    with pytest.raises(DiskFull):
        session.end()
    with channel.begin() as session:  # it only removes: that goes
        session.remove(1, b"1")
    store.wait_durable(session.epoch)
    assert store.get(1, b"half") is None and store.get(1, b"1") is None
    assert store.engine.failure is None
    lab.data.close()


def test_a_log_of_queues_that_could_not_be_begun_is_begun_by_its_first_record_and_dumped() -> None:
    lab = Lab()
    lab.kill()
    lab.disk.remove("data/reserve")
    lab.disk.take(free=0)
    lab.data = lab.open()
    before = {name for name in lab.disk.contents() if name.startswith("data/queues/smp")}
    assert lab.data.queues.count == 1
    assert {name for name in lab.disk.contents() if name.startswith("data/queues/smp")} == before
    lab.disk.remove("other")
    report = lab.data.queues.dump()
    assert report is not None and report.messages == COUNT
    lab.data.close()
    lab.data = lab.open()
    lab.end_everything()
    lab.data.close()


def test_a_torn_tail_is_cut_though_it_cannot_be_kept_and_the_report_says_so() -> None:
    disk = Disk()
    with Log.open("log", files=disk, options=LogOptions(sync=OS), threaded=False) as log:
        log.append(b"whole")
        log.run_round()
        contents = disk.contents()
    disk = Disk(contents)
    (name,) = (name for name in contents if name.endswith(".log"))
    disk.write(name, contents[name] + b"\x07torn")
    disk.size = sum(map(len, disk.contents().values()))
    with Log.open("log", files=disk, threaded=False) as log:
        (torn,) = log.report.torn
        assert torn.kept_as == "" and "not kept, for the disk is full" in str(torn)
        assert [record.payload for record in log.reader.read()] == [b"whole"]
    assert not any(".torn-" in name for name in disk.contents())
