"""A disk that fills up: below the low-water mark nothing new is taken, what is there goes on in the room that was kept,
and new work is taken again when there is room."""

from __future__ import annotations

import errno
import logging
import os

import pytest

from lamina.engines import loops
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import COMPLETED
from lamina.engines.jobs.upkeep import Upkeep
from lamina.engines.logged import check_room
from lamina.errors import DiskFull
from lamina.log import OS, LogOptions
from lamina.log.files import Room
from lamina.log.files.faulty import Fault
from lamina.log.files.memory import MemoryFiles
from lamina.log.files.real import RealFiles
from lamina.log.reserve import Reserve, former
from lamina.testing import FaultyFiles, ManualClock

HOUR = 3_600_000
ROOM = 20_000  # enough for a checkpoint of what is alive
DISK = 320_000
LOW = 10_000


class Lab:
    def __init__(self, *, size: int = DISK, room: int = ROOM) -> None:
        self.disk, self.clock = MemoryFiles(), ManualClock()
        self.disk.size = size
        self.disk.make_folder("data")
        options = LogOptions(sync=OS, segment_bytes=3000)
        self.engine = JobEngine.open("data/jobs", files=self.disk, clock=self.clock, options=options, threaded=False)
        self.reserve = self.engine.reserve = Reserve(self.disk, "data/reserve", self.clock, room, LOW)
        self.ids: list[bytes] = []

    def add(self) -> None:
        number = len(self.ids) + 1
        id = number.to_bytes(6, "big") + b"\x40\0\x80" + number.to_bytes(7, "big")
        self.engine.settle(self.engine.add(id, "q", 1000, HOUR, b"x" * 100))
        self.ids.append(id)

    def fill(self) -> None:
        with pytest.raises(DiskFull, match="nothing new is taken"):
            for _ in range(10_000):
                self.add()

    def take(self, free: int) -> None:
        """Somebody else leaves no more than that."""
        self.disk.write("other", b"")
        self.disk.write("other", bytes(self.disk.room("").free - free))

    def is_there(self) -> bool:
        return "data/reserve" in self.disk.contents()


# -- the low-water mark ------------------------------------------------------------------------------------------------


def test_new_work_stops_at_the_mark_and_the_file_is_not_touched() -> None:
    lab = Lab()
    lab.fill()
    assert len(lab.ids) > 500
    free = lab.disk.room("").free
    assert LOW * 3 // 4 < free <= LOW + 2 * LOW, "not before, and not far below"
    assert not lab.reserve.fits(100) and lab.reserve.is_held and lab.is_there()


def test_what_is_there_goes_on_below_the_mark() -> None:
    lab = Lab()
    lab.fill()
    engine = lab.engine
    for id in lab.ids[:100]:
        engine.settle(engine.lease(["q"])[1])
        engine.settle(engine.touch(id, 2000))
        engine.settle(engine.complete(id, b"done"))
    engine.settle(engine.delete(lab.ids[100]))
    assert [engine.state.jobs[id].state for id in lab.ids[:100]] == [COMPLETED] * 100


def test_a_disk_that_others_fill_gives_the_file_to_what_ends_work() -> None:
    lab = Lab()
    for _ in range(50):
        lab.add()
    lab.take(free=0)
    engine = lab.engine
    for id in lab.ids:
        engine.settle(engine.lease(["q"])[1])
        engine.settle(engine.complete(id, b"done"))
    assert [engine.state.jobs[id].state for id in lab.ids] == [COMPLETED] * 50
    assert not lab.is_there() and lab.reserve.is_short
    with pytest.raises(DiskFull):
        lab.add()


def test_new_work_is_taken_again_when_there_is_a_little_more_than_the_mark() -> None:
    lab = Lab()
    lab.take(free=LOW)
    assert not lab.reserve.look()
    lab.take(free=LOW + LOW // 4)
    assert not lab.reserve.look(), "it would stop again at once"
    lab.take(free=LOW + LOW // 4 + 1)
    assert lab.reserve.look()
    lab.add()


def test_the_file_is_made_anew_only_when_there_is_room_for_new_work_too() -> None:
    lab = Lab()
    lab.take(free=0)
    assert lab.reserve.give() and not lab.is_there()
    lab.take(free=ROOM + LOW)
    lab.clock.advance(1)
    assert not lab.reserve.look() and not lab.is_there()
    lab.take(free=ROOM + LOW + LOW // 4)
    assert not lab.reserve.look(), "it is not tried all the time"
    lab.clock.advance(1)
    lab.reserve.look()
    assert lab.is_there()
    lab.take(free=LOW + LOW // 2)
    assert lab.reserve.look()


def test_cleaning_makes_room_and_jobs_are_taken_again() -> None:
    lab = Lab()
    lab.take(free=40_000)
    lab.reserve.look()
    lab.fill()
    engine, ids = lab.engine, list(lab.ids)
    assert len(ids) > 50
    for id in ids[: len(ids) * 4 // 5]:
        engine.settle(engine.delete(id))
    with pytest.raises(DiskFull, match="nothing new is taken"):
        lab.add()
    for _ in range(2):  # a segment is looked at the second time it is met
        Upkeep(engine).clean(everything=True)
    lab.clock.advance(2)
    lab.add()
    assert lab.reserve.is_held
    assert len(lab.disk.contents()["data/reserve"]) == ROOM
    found = JobEngine.open("data/jobs", files=MemoryFiles(lab.disk.contents()), clock=lab.clock, threaded=False)
    assert set(found.state.jobs) == set(engine.state.jobs)


def test_a_checkpoint_leaves_room_for_ends_of_work() -> None:
    lab = Lab(room=0)
    for _ in range(200):
        lab.add()
    lab.take(free=LOW)
    with pytest.raises(DiskFull):
        Upkeep(lab.engine).checkpoint()
    assert lab.disk.room("").free == LOW, "nothing is left of it"
    lab.engine.settle(lab.engine.delete(lab.ids[0]))


# -- how often the disk is looked at -----------------------------------------------------------------------------------


class Counting(MemoryFiles):
    looks = 0

    def room(self, folder: str) -> Room:
        self.looks += folder == "data"
        return super().room(folder)


def test_a_fast_writer_does_not_run_through_the_mark_unseen() -> None:
    disk, clock = Counting(), ManualClock()  # the clock stands still: nobody looks because it is time
    disk.size = 16_000_000
    disk.make_folder("data")
    reserve = Reserve(disk, "data/reserve", clock, 0, 100_000)
    file, looks = disk.create("data/file"), disk.looks
    taken = 0
    with pytest.raises(DiskFull):
        for _ in range(10_000):
            check_room(reserve, 10_000)
            file.append([bytes(10_000)])
            taken += 1
    assert 90_000 < disk.room("").free < 130_000
    assert taken > 1000 and disk.looks - looks < 20, "and it is not looked at for each"


def test_on_a_loop_nobody_looks_at_the_disk() -> None:
    lab = Lab()
    lab.take(free=LOW)  # unseen so far
    with loops.at_once(), pytest.raises(loops.MustWait):
        for _ in range(10_000):
            loops.this_thread().begin_command()
            check_room(lab.reserve, 1000)
    with pytest.raises(DiskFull):
        check_room(lab.reserve, 1000)
    with loops.at_once(), pytest.raises(DiskFull):
        check_room(lab.reserve, 1000)


def test_whoever_makes_the_jobs_ready_for_a_loop_looks_for_it() -> None:
    lab, waited = Lab(), 0
    with pytest.raises(DiskFull):
        for _ in range(5000):
            try:
                with loops.at_once():
                    loops.this_thread().begin_command()
                    lab.add()
            except loops.MustWait:
                waited += 1
                lab.engine.be_ready()  # as the door has it done by a thread; then it runs the command anew
    assert len(lab.ids) > 500 and 2 < waited < 50


def test_what_is_larger_than_the_room_is_refused_and_smaller_things_are_not() -> None:
    lab = Lab()
    lab.take(free=LOW + 5000)
    lab.reserve.look()
    with pytest.raises(DiskFull):
        check_room(lab.reserve, 6000)
    check_room(lab.reserve, 1000)


def test_work_that_no_file_has_yet_counts() -> None:
    lab = Lab()
    lab.take(free=LOW + 5000)
    unwritten = [0]
    stop = lab.reserve.count_unwritten(lambda: unwritten[0])
    assert lab.reserve.look()
    unwritten[0] = 5000
    assert not lab.reserve.look()
    stop()
    lab.take(free=LOW * 2)
    assert lab.reserve.look()


def test_a_disk_that_cannot_be_asked_is_taken_for_one_with_room() -> None:
    disk = FaultyFiles(MemoryFiles())
    reserve = Reserve(disk, "reserve", ManualClock(), 0, LOW)
    disk.faults.append(Fault("room"))
    assert reserve.look() and reserve.problem() is None


def test_of_a_small_disk_little_is_kept() -> None:
    disk = MemoryFiles()
    disk.size = 80_000
    reserve = Reserve(disk, "reserve", ManualClock())
    assert (reserve.size, reserve.low_water) == (10_000, 10_000)
    assert len(disk.contents()["reserve"]) == 10_000 and not reserve.is_short


# -- the file ----------------------------------------------------------------------------------------------------------


def test_a_write_that_meets_a_full_disk_is_tried_again_with_the_room_of_the_file() -> None:
    files, clock = FaultyFiles(MemoryFiles()), ManualClock()
    engine = JobEngine.open("jobs", files=files, clock=clock, options=LogOptions(sync=OS), threaded=False)
    engine.reserve = Reserve(files, "jobs/reserve", clock, ROOM)
    files.fail("append", error=errno.ENOSPC)
    engine.settle(engine.add(bytes(16), "q", 1000, HOUR, b"x"))
    assert not engine.reserve.is_held and engine.reserve.is_short
    clock.advance(1)
    engine.settle(engine.add(bytes(15) + b"1", "q", 1000, HOUR, b"x"))
    assert engine.reserve.is_held


def test_what_is_refused_again_is_told_and_refuses_no_jobs_for_long() -> None:
    files, clock = FaultyFiles(MemoryFiles()), ManualClock()
    engine = JobEngine.open("jobs", files=files, clock=clock, options=LogOptions(sync=OS), threaded=False)
    engine.reserve = Reserve(files, "jobs/reserve", clock, ROOM)
    files.fail("append", error=errno.ENOSPC, times=2)
    for turn in range(20):  # somebody who tries again all the time must not put it off
        try:
            engine.settle(engine.add(bytes([turn]) * 16, "q", 1000, HOUR, b"x"))
            break
        except DiskFull:
            clock.advance(0.1)
    assert 0 < turn < 10


def test_a_disk_that_cannot_keep_room_does_without() -> None:
    files, clock = FaultyFiles(MemoryFiles()), ManualClock()
    engine = JobEngine.open("jobs", files=files, clock=clock, options=LogOptions(sync=OS), threaded=False)
    files.fail("append", error=errno.EOPNOTSUPP, only="reserve", times=1 << 30)
    engine.reserve = Reserve(files, "jobs/reserve", clock, ROOM)
    engine.settle(engine.add(bytes(16), "q", 1000, HOUR, b"x"))
    assert not engine.reserve.give()
    clock.advance(1)
    engine.settle(engine.add(bytes(15) + b"1", "q", 1000, HOUR, b"x"))


def test_without_room_at_the_start_there_is_no_file_and_nothing_new_is_taken() -> None:
    disk, clock = MemoryFiles(), ManualClock()
    disk.size = DISK
    disk.write("other", bytes(DISK - 1000))
    reserve = Reserve(disk, "reserve", clock, ROOM, LOW)
    assert not reserve.is_held and reserve.is_short and "reserve" not in disk.contents()
    disk.remove("other")
    assert not reserve.look()  # it is not tried all the time
    clock.advance(1.1)
    assert reserve.look() and reserve.is_held


def test_a_file_of_another_size_is_made_anew() -> None:
    disk = MemoryFiles({"reserve": b"\0" * 10})
    assert Reserve(disk, "reserve", ManualClock(), ROOM).is_held
    assert len(disk.contents()["reserve"]) == ROOM
    assert Reserve(disk, "reserve", ManualClock(), ROOM).is_held


def test_a_file_that_another_process_gave_away_is_missed_and_made_anew() -> None:
    lab = Lab()
    lab.disk.remove("data/reserve")
    lab.clock.advance(1)
    lab.reserve.look()
    assert lab.reserve.is_short
    lab.clock.advance(1)
    assert lab.reserve.look() and lab.is_there()


def test_half_a_file_is_taken_away() -> None:
    files = FaultyFiles(MemoryFiles())
    files.fail("sync", error=errno.ENOSPC)
    reserve = Reserve(files, "reserve", ManualClock(), ROOM)
    assert not reserve.is_held
    with pytest.raises(FileNotFoundError):
        files.open("reserve")


def test_the_files_of_earlier_versions_go() -> None:
    before = {name: bytes(1000) for name in former("data")}
    disk = MemoryFiles({**before, "data/jobs/000000001.log": b"x"})
    Reserve(disk, "data/reserve", ManualClock(), ROOM, former=former("data"))
    assert set(disk.contents()) == {"data/reserve", "data/jobs/000000001.log"}


def test_the_room_is_really_taken_from_the_disk(tmp_path: object) -> None:
    path = f"{tmp_path}/reserve"
    assert Reserve(RealFiles(), path, ManualClock(), 1 << 20).is_held
    facts = os.stat(path)
    assert facts.st_size == 1 << 20 and facts.st_blocks * 512 >= 1 << 20


def test_a_real_disk_that_is_full_is_asked_for_once_more(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    files, asked = RealFiles(), list[int]()
    file = files.create(f"{tmp_path}/file")
    real, full = os.write, [True, True, False]

    def write(handle: int, data: bytes) -> int:
        if full.pop(0):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data)

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space left"):
        file.append([b"nobody gives room"])

    def give() -> bool:
        asked.append(1)
        return True

    files.on_full = give
    assert file.append([b"somebody does"]) == 13 and len(asked) == 1
    file.close()


def test_a_disk_that_is_full_by_turns_is_not_told_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab()
    with caplog.at_level(logging.INFO, "lamina.log"):
        for _ in range(10):
            lab.take(free=LOW)
            lab.reserve.look()
            lab.take(free=2 * LOW)
            lab.reserve.look()
            lab.clock.advance(0.1)
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
        lab.clock.advance(60)
        lab.take(free=LOW)
        lab.reserve.look()
        assert len(caplog.records) == 3
