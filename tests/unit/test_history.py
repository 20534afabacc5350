"""The history of a server: it survives restarts, stays bounded, tells gaps, and never stops a server."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from lamina.clock import ManualClock
from lamina.log.files import Files
from lamina.server.history import History, Sampler
from lamina.server.history.rows import RowWriter, is_counter, read_rows
from lamina.server.measures import COUNTERS
from lamina.testing import FaultyFiles, MemoryFiles, PowerLoss

FOLDER = "data/logs/lamina.history"
ROUND = 1_700_000_000 // 3600 * 3600 + 5
"""A moment in the middle of a step of every resolution's first step."""


class HistoryLab:
    """Histories one after the other on the same disk, with a clock that is set by hand."""

    def __init__(self, files: Files | None = None, **options: int) -> None:
        self.disk = MemoryFiles()
        self.files: Files = self.disk if files is None else files
        self.clock = ManualClock(ROUND * 10**9)
        self._options = options
        self.figures: dict[str, float] = {}
        self.history = self.open()

    def open(self, files: Files | None = None) -> History:
        return History(
            "data",
            files=files or self.files,
            clock=self.clock,
            threaded=False,
            **self._options,
        )

    def note(self, count: int = 1, **figures: float) -> None:
        """So many samples; a counter named ``jobs_added`` grows by its value each time."""
        for _ in range(count):
            self.figures = {
                name: value + (self.figures.get(name, 0) if is_counter(name) else 0)
                for name, value in ((each.replace("_", ".", 1), value) for each, value in figures.items())
            }
            self.history.sample(self.figures)
            self.clock.advance(10)

    def restart(self, *, down_s: float = 0.0, kill: bool = False) -> None:
        if kill:
            self.files = self.disk = MemoryFiles(self.disk.contents())
        else:
            self.history.close()
        self.clock.advance(down_s)
        self.figures = {}
        self.history = self.open()
        self.history.load()

    def values(self, name: str, range: str = "1h") -> list[float | None]:
        """Without what is before the first that is known."""
        found = self.history.series([name], range).values[name]
        known = [place for place, value in enumerate(found) if value is not None]
        return found[known[0] :] if known else []


def test_a_counter_is_shown_as_a_rate_and_a_level_as_it_is() -> None:
    lab = HistoryLab()

    lab.note(4, jobs_added=50, jobs_ready=7)

    assert lab.values("jobs.added") == [5.0, 5.0, 5.0]
    assert lab.values("jobs.ready") == [7, 7, 7, 7]
    series = lab.history.series(["jobs.ready"], "1h")
    assert series.step_s == 10
    assert series.start_s + 359 * 10 <= lab.clock.now_ns() / 1e9 < series.start_s + 362 * 10


@pytest.mark.parametrize("kill", [False, True])
def test_it_survives_a_restart_because_it_is_read_from_the_log(kill: bool) -> None:
    lab = HistoryLab()
    lab.note(30, jobs_added=50, jobs_ready=7)

    lab.restart(kill=kill)

    assert lab.history.is_loaded
    assert lab.values("jobs.added")[:29] == [5.0] * 29
    assert lab.values("jobs.ready")[:30] == [7] * 30
    for range, steps in (("24h", 2), ("14d", 1)):
        assert [value for value in lab.values("jobs.added", range) if value is not None] == [5.0] * steps


def test_it_survives_a_restart_on_a_real_disk(tmp_path: Path) -> None:
    first = History(str(tmp_path))
    first.sample({"jobs.ready": 3})
    first.note({"lamina_added_total": 12.0})
    first.close()

    second = History(str(tmp_path))
    second.load()

    assert 3 in second.series(["jobs.ready"], "1h").values["jobs.ready"]
    assert second.last_counters() == {"lamina_added_total": 12.0}
    second.close()


def test_a_restart_is_a_gap_that_is_marked_and_no_spike() -> None:
    lab = HistoryLab()
    lab.note(3, jobs_added=1000)
    lab.restart(down_s=60)

    lab.note(3, jobs_added=10)

    shown = lab.values("jobs.added")
    assert shown[:2] == [100.0, 100.0]
    assert shown[2:-2] and set(shown[2:-2]) == {None}
    assert shown[-2:] == [1.0, 1.0]
    assert lab.history.series([], "1h").restarts == [ROUND, ROUND + 90]


def test_a_counter_that_went_back_is_a_gap() -> None:
    lab = HistoryLab()
    lab.note(2, jobs_added=1000)
    lab.figures = {"jobs.added": -5000.0}

    lab.note(2, jobs_added=10)

    assert lab.values("jobs.added") == [100.0, None, 1.0]


def test_peaks_are_not_lost_in_a_coarse_resolution() -> None:
    lab = HistoryLab()
    lab.note(60, jobs_ready=1, disk_free=100)
    lab.note(1, jobs_ready=900, disk_free=3)
    lab.note(400, jobs_ready=1, disk_free=100)

    for range in ("24h", "14d"):
        assert max(value or 0 for value in lab.values("jobs.ready", range)) == 900
        assert min(value or 1e9 for value in lab.values("disk.free", range)) == 3


def test_a_server_that_stood_still_for_a_while_shows_the_rate_it_had() -> None:
    lab = HistoryLab()
    lab.note(2, jobs_added=100)
    lab.clock.advance(30)

    lab.note(1, jobs_added=400)

    assert lab.values("jobs.added") == [10.0, None, None, None, 10.0]


def test_it_is_bounded_and_old_files_go_whole() -> None:
    lab = HistoryLab(most_bytes=20_000, segment_bytes=4096)

    lab.note(2000, jobs_ready=1)

    assert sum(len(data) for path, data in lab.disk.contents().items() if "manifest" not in path) < 40_000
    lab.restart()
    assert lab.values("jobs.ready", "14d")


def test_what_is_older_than_two_weeks_goes() -> None:
    lab = HistoryLab(segment_bytes=4096)
    lab.note(200, jobs_ready=1)
    before = sorted(name for name in lab.disk.list(FOLDER) if name.endswith(".log"))
    lab.clock.advance(15 * 86400)

    lab.note(400, jobs_ready=2)

    assert not set(before[:-1]) & set(lab.disk.list(FOLDER))  # in the last of them the log went on
    lab.restart()
    assert {value for value in lab.values("jobs.ready", "14d") if value is not None} == {2}
    assert len(before) > 2


def test_rings_forget_what_is_older_than_they_are_long() -> None:
    lab = HistoryLab()
    lab.note(5, jobs_ready=9)
    lab.clock.advance(2 * 3600)

    lab.note(5, jobs_ready=2)

    assert lab.values("jobs.ready") == [2] * 5
    assert max(value or 0 for value in lab.values("jobs.ready", "24h")) == 9


def test_figures_that_come_and_go_are_told_apart() -> None:
    lab = HistoryLab()
    lab.note(2, jobs_ready=1)
    lab.note(2, queues_messages=5, jobs_ready=2)
    lab.note(2, queues_messages=6)
    lab.restart()

    assert lab.values("jobs.ready") == [1, 1, 2, 2, None, None] + [None] * (len(lab.values("jobs.ready")) - 6)
    assert [value for value in lab.values("queues.messages") if value is not None] == [5, 5, 6, 6]


def test_no_number_is_no_value() -> None:
    lab = HistoryLab()
    lab.note(1, jobs_ready=float("nan"), jobs_dead=float("inf"), jobs_working=1)
    lab.restart()

    assert lab.values("jobs.ready") == []
    assert lab.values("jobs.dead") == []
    assert lab.values("jobs.working")[0] == 1


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_damage_is_told_once_and_what_is_whole_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    lab = HistoryLab(segment_bytes=4096)
    lab.note(100, jobs_ready=1)
    lab.note(100, jobs_ready=2)
    lab.history.close()
    contents = lab.disk.contents()
    oldest = min(path for path in contents if path.startswith(FOLDER) and path.endswith(".log"))
    contents[oldest] = contents[oldest][:200] + b"\xff" * 50 + contents[oldest][250:]
    lab.files = lab.disk = MemoryFiles(contents)

    lab.history = lab.open()
    lab.history.load()

    assert lab.history.is_loaded
    assert 2 in lab.values("jobs.ready")
    assert len(_warnings(caplog)) == 1 and "the server goes on" in _warnings(caplog)[0]
    lab.note(1, jobs_ready=3)
    assert lab.values("jobs.ready")[-1] == 3


def test_damage_in_the_newest_file_is_quarantined(caplog: pytest.LogCaptureFixture) -> None:
    lab = HistoryLab()
    lab.note(50, jobs_ready=1)
    lab.history.close()
    contents = lab.disk.contents()
    newest = max(path for path in contents if path.startswith(FOLDER) and path.endswith(".log"))
    contents[newest] = contents[newest][:1000] + b"\xff" * 8 + contents[newest][1008:]
    lab.files = lab.disk = MemoryFiles({path: data for path, data in contents.items() if not path.endswith(".idx")})

    lab.restart(kill=True)

    assert len([value for value in lab.values("jobs.ready") if value == 1]) > 10
    assert len(_warnings(caplog)) == 1
    lab.note(1, jobs_ready=3)
    lab.restart()
    assert 3 in lab.values("jobs.ready")


def test_records_of_a_stranger_are_passed_over() -> None:
    lab = HistoryLab()
    assert lab.history._log is not None
    for strange in (
        b"",
        b"nonsense",
        b'{"of": 1, "after": 10, "values": [1]}',
        b'{"of": "x"}',
        b"[]",
        b'{"values": 1}',
    ):
        lab.history._log.append(strange)
    lab.note(2, jobs_ready=4)
    lab.restart()

    assert lab.values("jobs.ready")[:2] == [4, 4]


def test_a_full_disk_stops_nothing_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryFiles()
    files = FaultyFiles(disk)
    lab = HistoryLab(files)
    lab.disk = disk
    lab.note(2, jobs_ready=1)

    with _full(files):
        lab.note(5, jobs_ready=2)
        lab.history.note({"a": 1.0})
    assert len([told for told in _warnings(caplog) if "history" in told]) == 1
    lab.note(3, jobs_ready=3)
    lab.history.note({"a": 2.0})

    assert lab.values("jobs.ready") == [1, 1, 2, 2, 2, 2, 2, 3, 3, 3]
    lab.restart()
    kept = [value for value in lab.values("jobs.ready") if value is not None]
    assert kept == [1, 1, 3, 3, 3]
    assert lab.history.last_counters() == {"a": 2.0}


@contextmanager
def _full(files: FaultyFiles) -> Iterator[None]:
    files.fail("append", error=errno.ENOSPC, times=10**6)
    files.fail("create", error=errno.ENOSPC, times=10**6)
    try:
        yield
    finally:
        files.heal()


def test_a_folder_that_cannot_be_made_leaves_the_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "logs").write_text("no folder")

    history = History(str(tmp_path))
    history.load()
    history.sample({"jobs.ready": 1})
    history.note({"a": 1.0})
    history.sample({"jobs.ready": 2})

    assert 2 in history.series(["jobs.ready"], "1h").values["jobs.ready"]
    assert history.last_counters() == {"a": 1.0}
    assert len(_warnings(caplog)) == 2  # of each of its logs
    history.close()


def test_a_log_that_is_held_by_another_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    holder = History(str(tmp_path))
    holder.sample({"jobs.ready": 1})

    other = History(str(tmp_path))
    other.sample({"jobs.ready": 2})
    other.close()
    holder.sample({"jobs.ready": 3})
    holder.close()

    found = History(str(tmp_path))
    found.load()
    assert 2 not in found.series(["jobs.ready"], "1h").values["jobs.ready"]
    found.close()


@pytest.mark.parametrize("model", ["strict", "journalled"])
def test_a_history_cut_by_a_power_loss_anywhere_opens_again(model: str) -> None:
    disk = PowerLoss(model=model)  # type: ignore[arg-type]
    lab = HistoryLab(disk, segment_bytes=512, most_bytes=1500)
    for number in range(1, 8):
        lab.note(1, jobs_added=10, jobs_ready=number)
        lab.history.note({"all": float(number)})
        disk.note(number)
    lab.history.close()
    disk.note("closed")

    looked_at = 0
    for state in disk.states(per_point=12):
        looked_at += 1
        history = lab.open(state.files)
        history.load()
        shown = [value for value in history.series(["jobs.ready"], "1h").values["jobs.ready"] if value is not None]
        assert shown == sorted(shown), state.label
        counted = history.last_counters().get("all", 0.0)
        noted = max((note for note in state.notes if isinstance(note, int)), default=0)
        assert counted <= noted + 1, state.label
        if "closed" in state.notes:
            assert shown[-1] == 7 and counted == 7.0, state.label
        elif state.is_kill:
            assert counted >= noted, state.label
        rates = [value for value in history.series(["jobs.added"], "1h").values["jobs.added"] if value is not None]
        assert set(rates) <= {1.0}, state.label
        history.sample({"jobs.ready": 99})
        history.close()
    assert looked_at > 100


# -- counters ----------------------------------------------------------------------------------------------------------


def test_counters_that_were_noted_survive_a_kill() -> None:
    lab = HistoryLab()
    lab.history.note({"a{x=1}": 1.0, "b": 5.0})
    lab.history.note({"a{x=1}": 2.0, "b": 5.0})

    lab.restart(kill=True)

    assert lab.history.last_counters() == {"a{x=1}": 2.0, "b": 5.0}


def test_counters_stay_small_however_long_they_are_noted() -> None:
    lab = HistoryLab()
    for number in range(3000):
        lab.history.note({f"counter_{each}": float(number * each) for each in range(40)})

    sizes = {path: len(data) for path, data in lab.disk.contents().items() if "lamina.counters" in path}
    assert sum(sizes.values()) < 2 << 20
    lab.restart(kill=True)
    assert lab.history.last_counters()["counter_39"] == 2999.0 * 39


def test_counters_that_are_noted_late_take_nothing_back() -> None:
    lab = HistoryLab()
    lab.history.note({"a": 5.0})

    lab.history.note({"a": 4.0, "b": 1.0})

    assert lab.history.last_counters() == {"a": 5.0, "b": 1.0}


def test_counters_without_a_change_write_nothing() -> None:
    lab = HistoryLab()
    lab.history.note({"a": 1.0})
    before = lab.disk.contents()

    lab.history.note({"a": 1.0})

    assert lab.disk.contents() == before


# -- records and the sampler -------------------------------------------------------------------------------------------


def test_the_same_figures_are_counters_here_and_where_they_are_measured() -> None:
    assert all(map(is_counter, COUNTERS))
    others = ("jobs.ready", "topics.lag_s", "jobs.sync_p99_s", "jobs.disk_bytes", "disk.free", "connections")
    assert not any(map(is_counter, others))


def test_names_are_said_again_so_that_old_files_can_go() -> None:
    writer = RowWriter()
    payloads = [writer.payload(0.0 if not place else 10.0, {"jobs.ready": place}) for place in range(130)]

    assert [place for place, payload in enumerate(payloads) if b"names" in payload] == [0, 61, 122]
    assert msgspec.json.decode(payloads[1])["values"] == [1]
    assert list(read_rows(iter([]))) == []


def test_rates_of_now_are_known_between_samples() -> None:
    lab = HistoryLab()
    assert lab.history.rates({"jobs.added": 5.0}) == {}
    lab.note(2, jobs_added=100, jobs_ready=1)

    assert lab.history.rates({"jobs.added": 400.0, "jobs.ready": 7.0}) == {"jobs.added": 15.0}
    assert lab.history.rates({"jobs.added": 0.0}) == {}


def test_the_sampler_goes_on_when_the_figures_cannot_be_had(caplog: pytest.LogCaptureFixture) -> None:
    history = History(None)
    fails = True

    def figures() -> dict[str, float]:
        if fails:
            raise RuntimeError("closing")
        return {"jobs.ready": 6.0}

    sampler = Sampler(history, figures)
    sampler.take()
    sampler.take()
    fails = False
    sampler.take()

    assert len(_warnings(caplog)) == 1
    assert 6.0 in history.series(["jobs.ready"], "1h").values["jobs.ready"]


def test_the_sampler_notes_at_once_and_when_it_stops(tmp_path: Path) -> None:
    history = History(str(tmp_path))
    taken = threading.Event()
    counted = iter(range(100))

    def figures() -> dict[str, float]:
        taken.set()
        return {"jobs.ready": float(next(counted))}

    sampler = Sampler(history, figures, lambda: {"a": 4.0})
    sampler.start()
    assert taken.wait(60)
    sampler.stop()
    history.close()

    after = History(str(tmp_path))
    after.load()
    assert after.last_counters() == {"a": 4.0}
    assert max(value for value in after.series(["jobs.ready"], "1h").values["jobs.ready"] if value is not None) >= 1
    after.close()


def test_a_log_that_failed_is_opened_again_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryFiles()
    files = FaultyFiles(disk)
    lab = HistoryLab(files)
    lab.note(1, jobs_ready=1)
    lab.history.note({"a": 1.0})
    files.fail("append", taken=3, times=10**6)
    files.fail("truncate", times=10**6)
    lab.note(3, jobs_ready=2)
    assert len([told for told in _warnings(caplog) if "lamina.history" in told]) == 1
    files.heal()

    lab.note(40, jobs_ready=3)

    lab.restart()
    kept = [value for value in lab.values("jobs.ready") if value is not None]
    assert kept[0] == 1 and 2 not in kept and 5 < kept.count(3) < 40
