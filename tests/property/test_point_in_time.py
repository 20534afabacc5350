"""A random history over all engines, restored at random times: it equals what the engines reported at that time.

``LAMINA_CAMPAIGN=N``: N times as many of each as there are without it, and at least 50 times.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import cast

import pytest

import history_lab
import lamina
from history_lab import OPTIONS, History, Seen, open_data, seen
from lamina.clock import ManualClock
from lamina.errors import TooOld
from lamina.log import LogOptions
from lamina.log.sync import ALWAYS
from lamina.pipeline.backing.collecting import Time
from lamina.pipeline.backing.making import back_up
from lamina.pipeline.backing.restoring import RestoreReport, restore
from lamina.pipeline.jobs.asof import AsOfReport
from unit.test_pipeline_asof import check

CAMPAIGN = int(os.environ.get("LAMINA_CAMPAIGN", "0"))
TIMES = max(50, 8 * CAMPAIGN) if CAMPAIGN else 8
STEPS = 25 if CAMPAIGN else 12  # between two times, at most

JOB_FIELDS = (
    *("id", "payload", "result", "time", "unique", "ttr", "ttl", "priority", "backoff", "max_attempts", "max_fails"),
    *("attempts", "fails", "state", "given_back", "beyond", "at", "created", "order", "added", "ready_at"),
    *("lease_until", "expires"),
)


def all_of(data: lamina.Data) -> Seen:
    """All that the engines report, and of jobs all that they know: each field, each place in each list, each pause."""
    found = seen(data)
    state = data.jobs.engine.state
    found["job fields"] = {
        id: (job.queue.name, *(getattr(job, name) for name in JOB_FIELDS)) for id, job in state.jobs.items()
    }
    found["job lists"] = {
        queue.name: [[job.id for chunk in each.chunks for job in chunk] for each in queue.lists]
        for queue in state.queues.values()
        if any(each.size for each in queue.lists)
    }
    found["paused"] = sorted(queue.name for queue in state.queues.values() if queue.is_paused)
    found["storages"] = data.store.storages()
    return found


def opened(path: Path, at: int) -> Seen:
    with open_data(path, ManualClock(at)) as data:
        return all_of(data)


def moment(history: History) -> tuple[int, Seen]:
    at, _ = history.moment()
    history.clock.wall_ns, now = at, history.clock.wall_ns
    then = all_of(history.data)
    history.clock.wall_ns = now
    return at, then


def told(history: History, times: int, *, upkeep: bool = False) -> list[tuple[int, Seen]]:
    """A random history, and what was reported at random moments of it."""
    moments = []
    for _ in range(times):
        history.steps(history.draw.randint(1, STEPS), upkeep=upkeep)
        moments.append(moment(history))
    return moments


def stand_still(history: History) -> Time:
    return Time(history.clock.now_ns, lambda seconds: None)


@pytest.mark.parametrize("seed", range(max(1, CAMPAIGN // 4)))
def test_a_random_history_over_all_engines_restored_at_random_times_is_what_was_reported(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In files so large nothing is ever cleaned: every time is within reach, and nothing is excused.
    monkeypatch.setattr(history_lab, "OPTIONS", LogOptions(segment_bytes=1 << 24, sync=ALWAYS))
    history = History(tmp_path / "data", 1000 + seed)
    try:
        moments = told(history, TIMES)
        random.Random(seed).shuffle(moments)
        for number, (at, then) in enumerate(moments):
            to = tmp_path / str(number)
            report = restore(str(history.path), str(to), as_of=at)  # beside the engines, which go on
            assert report.notes == []
            assert opened(to, at) == then
            shutil.rmtree(to)
    finally:
        history.close()


@pytest.mark.parametrize("seed", range(max(1, CAMPAIGN // 4)))
def test_with_upkeep_going_on_a_backup_has_what_was_reported_or_says_how_far_it_reaches(
    tmp_path: Path, seed: int
) -> None:
    history = History(tmp_path / "data", 2000 + seed)
    backup, exact, reached = tmp_path / "backup", 0, 0
    try:
        moments, generations = [], []
        for _ in range(TIMES // 2 if CAMPAIGN else 2):
            moments += told(history, 2, upkeep=True)
            made = back_up(str(history.path), str(backup), clock=stand_still(history))
            generations.append((made.generation, *moment(history)))
        for name, at, then in generations:  # a generation is as it was, whatever went since
            to = tmp_path / "then"
            report = restore(str(backup), str(to), generation=name)
            assert report.notes == [] and report.generation == name
            assert opened(to, at) == then
            exact += 1
            shutil.rmtree(to)
        alive = {job.id for job in generations[-1][2]["jobs"]}
        for at, then in moments:
            to = tmp_path / "then"
            try:
                report = restore(str(backup), str(to), as_of=at)
            except TooOld as error:
                reach = error.facts["reach"]
                assert isinstance(reach, list) and any(int(each["earliest_ns"]) > at for each in reach)
                assert not to.exists()
                continue
            reached += 1
            check_told(report, opened(to, at), then, alive)
            shutil.rmtree(to)
    finally:
        history.close()
    assert exact and reached


def check_told(report: RestoreReport, found: Seen, then: Seen, alive: set[str]) -> None:
    """It is as it was, but for what the report says (tests/unit/test_pipeline_asof.py)."""
    found, then = dict(found), dict(then)
    if any(note.startswith("jobs") for note in report.notes):
        for name in ("job fields", "job lists", "paused"):
            found.pop(name), then.pop(name)
    check(cast(AsOfReport, report), found, then, alive)


def test_options_of_the_laboratory_make_many_files() -> None:
    """What the second test rests on: files are sealed, cleaned and let go within a short history."""
    assert OPTIONS.segment_bytes <= 4000
