"""Where a server is in its life, and what it says of itself."""

from __future__ import annotations

import threading

import pytest

from lamina.clock import ManualClock
from lamina.errors import Corruption
from lamina.server.life import Life


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def life(clock: ManualClock) -> Life:
    return Life(clock)


# Asked through functions: a checker takes what a property said once for what it says for ever.
def is_ready(life: Life) -> bool:
    return life.is_ready


def left_s(life: Life) -> float | None:
    return life.estimate_s


def test_a_life_goes_from_starting_to_stopping(life: Life, clock: ManualClock) -> None:
    seen = [life.phase]
    with life.restoring("jobs"):
        seen.append(life.phase)
    seen.append(life.phase)  # another engine may come
    clock.advance(5)
    life.ready()
    seen.append(life.phase)
    assert is_ready(life)
    assert life.since_ns == clock.now_ns()
    life.stopping("SIGTERM")
    seen.append(life.phase)
    assert seen == ["starting", "restoring", "restoring", "ready", "stopping"]
    assert not is_ready(life) and not life.needs_restart
    life.ready()
    assert life.phase == "stopping", "a start that ends late does not make it ready again"


def test_percent_and_estimate_come_from_bytes(life: Life, clock: ManualClock) -> None:
    assert life.percent == 0.0 and left_s(life) is None
    with life.restoring("jobs") as told:
        told(0, 1000)
        assert life.percent == 0.0 and left_s(life) is None
        clock.advance(2)
        told(250, 1000)
        assert life.percent == 25.0
        assert left_s(life) == 6.0
        shown = life.as_dict()["engines"]
        assert isinstance(shown, dict)
        assert shown["jobs"] == {
            "phase": "restoring",
            "done_bytes": 250,
            "total_bytes": 1000,
            "percent": 25.0,
            "estimate_s": 6.0,
        }
    assert life.percent == 100.0
    life.ready()
    assert life.percent == 100.0 and left_s(life) is None


def test_percent_is_of_all_engines_and_never_goes_back(life: Life) -> None:
    life.expect("jobs", 100)
    life.expect("queues", 100)
    with life.restoring("jobs") as told:
        told(50, 100)
        assert life.percent == 25.0
    assert life.percent == 50.0
    with life.restoring("queues") as told:
        told(0, 900)  # more than was expected
        assert life.percent == 50.0
        told(900, 900)
        assert life.percent == 100.0


def test_an_engine_that_cannot_open_fails_the_server_with_its_reason(life: Life) -> None:
    with pytest.raises(Corruption), life.restoring("jobs"):
        raise Corruption("000000001.log", 12, "checksum differs")
    assert life.phase == "failed"
    assert life.needs_restart.startswith("jobs: 000000001.log, byte 12: checksum differs")
    engines = life.as_dict()["engines"]
    assert isinstance(engines, dict) and engines["jobs"]["phase"] == "failed"
    life.failed("something that came of it")
    life.stopping()
    assert life.phase == "failed" and "checksum" in life.reason, "the first reason stays"


def test_the_report_says_what_was_restored_and_what_was_left_out(life: Life, clock: ManualClock) -> None:
    with life.restoring("jobs") as told:
        told(2048, 2048)
        told.restored("12 jobs", files=2, records=40)
        told.leave_out("17 bytes of 000000002.log", "a torn tail")
        told.warn("the clock was ahead")
        clock.advance(1.5)
    assert life.report == [
        "jobs: 12 jobs from 2 files, 2.0 KiB, in 1.5s",
        "jobs: left out 17 bytes of 000000002.log: a torn tail",
        "jobs: the clock was ahead",
    ]
    assert "report" not in str(life.as_dict(with_reports=False)), "reports name files: not for everybody"


def test_a_report_keeps_so_many_lines_and_counts_the_rest(life: Life) -> None:
    with life.restoring("queues") as told:
        for number in range(250):
            told.warn(f"odd {number}")
    assert len(life.report) == 102
    assert life.report[-1] == "queues: and 150 more of these"


def test_a_problem_makes_it_not_ready_until_it_is_solved(life: Life) -> None:
    life.ready()
    life.problem("disk", "it is full")
    assert not is_ready(life) and life.problems == {"disk": "it is full"}
    assert life.needs_restart == "", "it may end by itself"
    life.solved("disk")
    life.solved("disk")
    assert is_ready(life)


def test_what_is_watched_is_asked_when_somebody_looks(life: Life) -> None:
    said: list[str | None] = [None]
    life.watch("jobs", lambda: said[0], needs_restart=True)
    life.ready()
    assert is_ready(life) and life.needs_restart == ""
    said[0] = "the log failed"
    assert not is_ready(life)
    assert life.needs_restart == "jobs: the log failed"


def test_a_watch_that_breaks_is_a_problem_not_an_error(life: Life) -> None:
    life.watch("store", lambda: str(1 // 0))
    life.ready()
    assert life.problems == {"store": "ZeroDivisionError: integer division or modulo by zero"}


def test_who_asks_in_another_thread_is_not_held_up_by_one_that_restores(life: Life) -> None:
    is_inside, may_go = threading.Event(), threading.Event()

    def restore() -> None:
        with life.restoring("jobs") as told:
            told(1, 4)
            is_inside.set()
            may_go.wait(30)

    thread = threading.Thread(target=restore)
    thread.start()
    assert is_inside.wait(30)
    assert life.phase == "restoring" and life.percent == 25.0 and life.as_dict()["problems"] == {}
    may_go.set()
    thread.join(30)
    assert life.percent == 100.0
