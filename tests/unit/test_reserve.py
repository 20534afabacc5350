"""A full disk: new jobs are refused, what is there goes on in the room that was kept, until there is more again."""

from __future__ import annotations

import errno
import os

import pytest

from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import COMPLETED
from lamina.engines.jobs.upkeep import Upkeep
from lamina.errors import DiskFull
from lamina.log import OS, LogOptions
from lamina.log.files.memory import MemoryFiles
from lamina.log.files.real import RealFiles
from lamina.log.reserve import Reserve
from lamina.testing import FaultyFiles, ManualClock

HOUR = 3_600_000
ROOM = 20_000  # enough for a checkpoint of what is alive


class Lab:
    def __init__(self) -> None:
        self.disk, self.clock = MemoryFiles(), ManualClock()
        self.disk.size = 40_000
        options = LogOptions(sync=OS, segment_bytes=3000)
        self.engine = JobEngine.open("jobs", files=self.disk, clock=self.clock, options=options, threaded=False)
        self.engine.reserve = Reserve(self.disk, "jobs/reserve", self.clock, ROOM)
        self.ids: list[bytes] = []

    def add(self) -> None:
        number = len(self.ids) + 1
        id = number.to_bytes(6, "big") + b"\x40\0\x80" + number.to_bytes(7, "big")
        self.engine.settle(self.engine.add(id, "q", 1000, HOUR, b"x" * 100))
        self.ids.append(id)

    def fill(self) -> None:
        with pytest.raises(DiskFull):
            for _ in range(1000):
                self.add()


def test_what_is_there_goes_on_when_the_disk_is_full() -> None:
    lab = Lab()
    lab.fill()
    assert len(lab.ids) > 50
    with pytest.raises(DiskFull, match="no jobs are taken"):
        lab.add()
    engine = lab.engine
    for id in lab.ids[:20]:
        engine.settle(engine.lease(["q"])[1])
        engine.settle(engine.complete(id, b"done"))
    engine.settle(engine.delete(lab.ids[20]))
    assert [engine.state.jobs[id].state for id in lab.ids[:20]] == [COMPLETED] * 20


def test_cleaning_makes_room_and_jobs_are_taken_again() -> None:
    lab = Lab()
    lab.fill()
    engine, ids = lab.engine, list(lab.ids)
    for id in ids[: len(ids) * 3 // 4]:
        engine.settle(engine.delete(id))
    with pytest.raises(DiskFull, match="no jobs are taken"):
        lab.add()
    for _ in range(2):  # a segment is looked at the second time it is met
        Upkeep(engine).clean(everything=True)
    lab.clock.advance(2)
    lab.add()
    assert engine.reserve is not None and engine.reserve.is_held
    assert len(lab.disk.contents()["jobs/reserve"]) == ROOM
    found = JobEngine.open("jobs", files=MemoryFiles(lab.disk.contents()), clock=lab.clock, threaded=False)
    assert set(found.state.jobs) == set(engine.state.jobs)


def test_a_disk_full_of_what_was_deleted_is_cleaned_though_the_newest_record_was_refused() -> None:
    lab = Lab()
    engine = lab.engine
    with pytest.raises(DiskFull):
        while True:
            lab.add()
            engine.settle(engine.delete(lab.ids[-1]))
    assert engine.log.position > engine.log.written
    Upkeep(engine).clean(everything=True)
    lab.clock.advance(1)
    lab.add()
    assert set(engine.state.jobs) == {lab.ids[-1]}


def test_one_refused_write_on_a_disk_with_room_refuses_no_jobs_for_long() -> None:
    files, clock = FaultyFiles(MemoryFiles()), ManualClock()
    engine = JobEngine.open("jobs", files=files, clock=clock, options=LogOptions(sync=OS), threaded=False)
    engine.reserve = Reserve(files, "jobs/reserve", clock, ROOM)
    files.fail("append", error=errno.ENOSPC)
    for turn in range(20):  # somebody who tries again all the time must not put it off
        try:
            engine.settle(engine.add(bytes([turn]) * 16, "q", 1000, HOUR, b"x"))
            break
        except DiskFull:
            with pytest.raises(DiskFull):
                engine.settle(engine.log.position)
            clock.advance(0.1)
    assert 0 < turn < 10


def test_a_disk_that_cannot_keep_room_does_without() -> None:
    files, clock = FaultyFiles(MemoryFiles()), ManualClock()
    engine = JobEngine.open("jobs", files=files, clock=clock, options=LogOptions(sync=OS), threaded=False)
    files.fail("append", error=errno.EOPNOTSUPP, only="reserve", times=1 << 30)
    engine.reserve = Reserve(files, "jobs/reserve", clock, ROOM)
    engine.settle(engine.add(bytes(16), "q", 1000, HOUR, b"x"))
    engine.reserve.give()
    engine.settle(engine.add(bytes(15) + b"1", "q", 1000, HOUR, b"x"))


def test_without_room_at_the_start_there_is_no_reserve_and_no_jobs_are_taken() -> None:
    disk, clock = MemoryFiles(), ManualClock()
    disk.size = 1000
    reserve = Reserve(disk, "reserve", clock, ROOM)
    assert not reserve.is_held and "reserve" not in disk.contents()
    disk.size = 30_000
    assert not reserve.hold()  # it is not tried all the time
    clock.advance(1.1)
    assert reserve.hold()


def test_a_reserve_of_another_size_is_made_anew() -> None:
    disk = MemoryFiles({"reserve": b"\0" * 10})
    assert Reserve(disk, "reserve", ManualClock(), ROOM).is_held
    assert len(disk.contents()["reserve"]) == ROOM
    assert Reserve(disk, "reserve", ManualClock(), ROOM).is_held


def test_half_a_reserve_is_taken_away() -> None:
    files = FaultyFiles(MemoryFiles())
    files.fail("sync", error=errno.ENOSPC)
    reserve = Reserve(files, "reserve", ManualClock(), ROOM)
    assert not reserve.is_held
    with pytest.raises(FileNotFoundError):
        files.open("reserve")


def test_the_room_is_really_taken_from_the_disk(tmp_path: object) -> None:
    path = f"{tmp_path}/reserve"
    assert Reserve(RealFiles(), path, ManualClock(), 1 << 20).is_held
    facts = os.stat(path)
    assert facts.st_size == 1 << 20 and facts.st_blocks * 512 >= 1 << 20
