"""Opening jobs tells how far it is, and comes to the same."""

from __future__ import annotations

import pytest

from integration.workq_server import raw_id
from lamina.clock import ManualClock
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.upkeep import Upkeep
from lamina.log.naming import CHECKPOINT
from lamina.log.options import LogOptions
from lamina.testing import MemoryFiles

FOLDER = "jobs"
OPTIONS = LogOptions(segment_bytes=64 << 10)
JOBS = 2000


class Lab:
    """Jobs on a disk in memory."""

    def __init__(self) -> None:
        self.disk, self.clock = MemoryFiles(), ManualClock()
        self.told: list[tuple[int, int]] = []

    def open(self, *, tells: bool = True) -> JobEngine:
        self.told.clear()
        tell = (lambda done, total: self.told.append((done, total))) if tells else None
        return JobEngine.open(FOLDER, options=OPTIONS, files=self.disk, clock=self.clock, threaded=False, progress=tell)

    def fill(self, *, with_checkpoint: bool) -> None:
        engine = self.open(tells=False)
        for number in range(JOBS):
            self.clock.advance(0.001)
            engine.add(raw_id(number), f"q{number % 7}", 1000, 10**9, bytes(200))
        engine.push()
        if with_checkpoint:
            Upkeep(engine).checkpoint()
            for number in range(JOBS, JOBS + 100):
                engine.add(raw_id(number), "late", 1000, 10**9, b"x")
            engine.push()
        engine.close()


@pytest.fixture
def lab() -> Lab:
    return Lab()


def state_of(engine: JobEngine) -> list[tuple[bytes, str, int, int]]:
    return sorted((job.id, job.queue.name, job.at, job.created) for job in engine.state.jobs.values())


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_progress_rises_to_all_of_it_and_the_jobs_are_the_same(lab: Lab, with_checkpoint: bool) -> None:
    lab.fill(with_checkpoint=with_checkpoint)
    engine = lab.open(tells=False)
    expected = state_of(engine)
    engine.close()
    engine = lab.open()
    assert state_of(engine) == expected
    assert len(expected) == JOBS + (100 if with_checkpoint else 0)
    engine.close()
    done = [each for each, _ in lab.told]
    assert done == sorted(done) and len(set(done)) > 4, "it moves"
    assert all(each <= total for each, total in lab.told)
    assert lab.told[0][0] == 0 and lab.told[-1][0] == lab.told[-1][1]
    assert len({total for _, total in lab.told}) == 1, "the whole is known from the start"


def test_only_what_has_to_be_read_counts(lab: Lab) -> None:
    lab.fill(with_checkpoint=True)
    engine = lab.open()
    engine.close()
    checkpoint = lab.disk.open(f"{FOLDER}/{CHECKPOINT}").size()
    everything = sum(lab.disk.open(f"{FOLDER}/{name}").size() for name in lab.disk.list(FOLDER) if "." in name)
    total = lab.told[-1][1]
    assert 0 < total - checkpoint < everything, "segments that the checkpoint covers are not read"


def test_a_checkpoint_that_is_not_whole_does_no_harm(lab: Lab) -> None:
    lab.fill(with_checkpoint=True)
    file = lab.disk.open(f"{FOLDER}/{CHECKPOINT}", write=True)
    file.truncate(file.size() // 2)
    file.close()
    engine = lab.open()
    assert len(engine.state.jobs) == JOBS + 100
    assert engine.checkpointed == 0
    assert lab.told[-1][0] == lab.told[-1][1]
    engine.close()


def test_jobs_in_memory_have_nothing_to_tell() -> None:
    told: list[tuple[int, int]] = []
    engine = JobEngine.open(None, progress=lambda done, total: told.append((done, total)))
    engine.close()
    assert told == []
