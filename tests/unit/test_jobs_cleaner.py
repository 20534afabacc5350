"""Cleaning the log of jobs: what a newer record takes the place of goes, soon, and the recent past stays."""

from __future__ import annotations

import random

import pytest

from lamina.engines.jobs.cleaner import CleanReport
from lamina.engines.jobs.upkeep import Upkeep
from lamina.errors import DiskFull, StorageError
from lamina.log.history import History
from lamina.log.reader import Reader
from lamina.log.reserve import Reserve
from lamina.log.writer import Log
from unit.test_jobs_engine import DAY, FOLDER, Lab, nth

MONTH = 30 * DAY


class CleanLab(Lab):
    """Every call of ``seal`` ends a file."""

    def clean(self, *, everything: bool = False) -> CleanReport:
        return self.upkeep.clean(everything=everything)

    def start(self, history: History | None = None) -> CleanLab:
        self.upkeep = Upkeep(self.engine, history=history)
        return self

    def seal(self) -> None:
        assert isinstance(self.engine.log, Log)
        self.engine.push()
        self.engine.log.rotate(begin_next=True)

    def touch(self, number: int = 1, times: int = 1) -> None:
        for _ in range(times):
            self.do("touch", number, 60_000)
            self.pass_time(0.01)

    @property
    def sealed(self) -> int:
        """Bytes."""
        files = {path: data for path, data in self.disk.contents().items() if path.endswith(".log")}
        return sum(len(data) for path, data in files.items() if path != max(files))

    def records(self) -> int:
        return sum(1 for _ in Reader(FOLDER, files=self.disk).read())

    def check_log_alone(self) -> None:
        """A start without the checkpoint shows the same."""
        seen = self.picture_of_jobs()
        if f"{FOLDER}/checkpoint" in self.disk.contents():
            self.disk.remove(f"{FOLDER}/checkpoint")
        self.restart()
        assert self.picture_of_jobs() == seen

    def picture_of_jobs(self) -> object:
        """Without queues that hold none: those nobody remembers."""
        jobs, lists, *rest = self.picture()  # type: ignore[misc]
        return jobs, {name: each for name, each in lists.items() if any(each)}, rest[-1]


@pytest.fixture
def lab() -> CleanLab:
    lab = CleanLab()
    lab.add(1, ttl=MONTH, ttr=DAY)
    lab.lease()
    lab.start().clean()
    return lab


def test_heartbeats_of_a_living_job_take_no_room(lab: CleanLab) -> None:
    sizes = []
    for _ in range(30):
        lab.touch(times=40)
        lab.seal()
        lab.clean()
        sizes.append(lab.sealed)
    assert max(sizes) < 600 and lab.records() < 10
    lab.check_log_alone()
    assert lab.place(1) == "leased"


def test_the_newest_touch_stays_and_goes_when_there_is_a_newer_record_though_the_job_lives_for_a_month(
    lab: CleanLab,
) -> None:
    lab.touch(times=3)
    lab.seal()
    assert lab.clean().dropped == 2
    assert lab.clean().visited == 0, "nothing has changed"
    lab.touch()
    assert (lab.clean().dropped, lab.clean().visited) == (1, 0)


@pytest.mark.parametrize("end", ["complete", "fail", "release", "timeout"])
def test_whatever_comes_after_a_touch_takes_its_place(lab: CleanLab, end: str) -> None:
    lab.touch(times=5)
    if end == "timeout":
        lab.pass_time(61)
    else:
        lab.do(end, 1, *([] if end == "release" else [b"r"]))
    lab.seal()
    assert lab.clean().dropped == 5
    lab.check_log_alone()


def test_a_segment_is_visited_again_when_enough_of_what_it_keeps_was_superseded(lab: CleanLab) -> None:
    for number in range(2, 20):
        lab.add(number, ttl=MONTH, ttr=DAY)
    lab.lease(most=2)
    for number in (1, 2, 3):
        lab.touch(number)
    lab.seal()
    assert (lab.clean().visited, lab.clean().visited) == (1, 0)
    for number, visited in ((1, 0), (2, 0), (3, 0)):
        lab.touch(number)
        assert lab.clean().visited == visited, "three of twenty-seven records"
    lab.seal()
    lab.lease(most=4)
    lab.touch(3)
    lab.touch(2)
    assert lab.clean().dropped == 2, "of the second segment, which holds three touches and is visited at once"
    assert lab.clean(everything=True).dropped == 3


def test_segments_found_at_the_start_are_looked_at_and_then_cleaned_if_heartbeats_are_in_them(lab: CleanLab) -> None:
    for _ in range(4):
        lab.touch(times=40)
        lab.seal()
    lab.touch()
    lab.restart()
    lab.start()
    assert (lab.clean().visited, lab.clean().dropped) == (0, 160)
    assert lab.sealed < 300
    lab.check_log_alone()


@pytest.mark.parametrize("seed", range(8))
def test_cleaned_at_any_time_the_log_alone_gives_the_same(seed: int) -> None:
    draw, lab = random.Random(seed), CleanLab()
    lab.start()
    for number in range(6):
        lab.add(number, ttl=MONTH, ttr=DAY, max_fails=draw.choice([0, 5]), backoff=draw.choice([0, 10]))
    for _ in range(120):
        lab.lease(most=2)
        leased = [job.id for job in lab.engine.state.jobs.values() if job.lease_until]
        act = draw.choice(["touch", "touch", "touch", "touch", "release", "fail", "seal", "clean"])
        if act == "seal":
            lab.seal()
        elif act == "clean":
            lab.clean(everything=draw.random() < 0.5)
            if draw.random() < 0.3:
                lab.check_log_alone()
                lab.start()
        elif leased:
            more = {"touch": [5000], "fail": [b"e"], "release": []}[act]
            lab.engine.settle(getattr(lab.engine, act)(draw.choice(leased), *more))
        lab.pass_time(draw.choice([0.001, 0.5, 3]))
    lab.clean(everything=True)
    lab.check_log_alone()


# -- the recent past -------------------------------------------------------------------------------------------------


def some_past(lab: CleanLab, files: int = 3) -> list[int]:
    """Files in which nothing is alive. Returns their sizes."""
    sizes = []
    for number in range(100, 100 + files):
        before = lab.sealed
        lab.add(number, payload=bytes(500))
        lab.do("delete", number)
        lab.seal()
        sizes.append(lab.sealed - before)
        lab.pass_time(60)
    return sizes


def test_what_is_over_stays_for_as_long_as_the_past_is_kept() -> None:
    lab = CleanLab()
    lab.start(History(keep_s=3600))
    before = some_past(lab)
    for report in (lab.clean(), lab.clean(everything=True)):
        assert (report.past, report.visited, report.dropped) == (3, 0, 0)
    assert lab.sealed == sum(before)
    lab.pass_time(3600 - 150)
    report = lab.clean()
    assert (report.past, report.removed) == (2, 1), "the first is older than an hour"
    lab.pass_time(3600)
    assert (lab.clean().removed, lab.sealed) == (2, 0)


def test_a_past_that_was_kept_shows_jobs_that_are_gone() -> None:
    lab = CleanLab()
    lab.start(History(keep_s=3600))
    some_past(lab)
    lab.clean(everything=True)
    then = [record for record in Reader(FOLDER, files=lab.disk).read() if record.payload[0] == 1]
    assert [record.payload[1:17] for record in then] == [nth(100), nth(101), nth(102)]


def test_without_a_history_nothing_stays(lab: CleanLab) -> None:
    some_past(lab)
    report = lab.clean()
    assert (report.past, report.removed) == (0, 2)


def test_the_past_gives_way_where_its_room_ends() -> None:
    lab, room = CleanLab(), [10_000]
    history = History(keep_s=3600, most_bytes=lambda: room[0])
    lab.start(history)
    some_past(lab)
    assert lab.clean().past == 3 and history.bytes > 1500
    room[0] = history.bytes - 1
    report = lab.clean()
    assert (report.past, report.removed) == (2, 1)
    assert history.bytes <= room[0]


def test_a_job_that_began_in_the_past_that_is_kept_ends_in_it() -> None:
    """An end goes only after its beginning: the end is in a file that is old, or due for another reason."""
    lab = CleanLab()
    lab.start(History(keep_s=3600))
    lab.add(1, ttl=MONTH)
    lab.seal()
    lab.clean()
    lab.pass_time(3599)
    lab.do("delete", 1)
    lab.seal()
    lab.pass_time(2)
    lab.clean(everything=True)
    lab.check_log_alone()
    assert not lab.engine.state.jobs


def test_a_segment_of_which_nothing_would_go_is_no_past() -> None:
    lab = CleanLab()
    history = History(keep_s=3600)
    lab.start(history)
    lab.add(1, ttl=MONTH)
    lab.seal()
    report = lab.clean()
    assert (report.past, report.visited, history.bytes) == (0, 1, 0)


def test_the_past_does_not_count_when_the_disk_is_full() -> None:
    lab = CleanLab()
    history = History(keep_s=3600)
    lab.start(history)
    some_past(lab)
    lab.engine.reserve = Reserve(lab.files, f"{FOLDER}/reserve", lab.engine.clock, 1000)
    assert lab.clean().past == 3
    lab.fill_disk()
    with pytest.raises((DiskFull, StorageError)):
        lab.add(5)
    lab.engine.reserve.give()
    lab.files.heal()
    report = lab.clean()
    assert (report.past, report.removed, history.bytes) == (0, 3, 0)
