"""Promises of a log that begins its files itself: Log.start, rotate(begin_next=True)."""

from __future__ import annotations

import errno

import pytest

from lamina.errors import DiskError, DiskFull, LogFailed
from lamina.log import Level, Log, LogOptions, lock
from lamina.log.formats import QUEUE_STORE
from lamina.log.naming import STORED, FileName, parse
from lamina.log.survey import survey
from lamina.log.sync import ALWAYS, OS, Sync
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles, PowerLoss

FOLDER = "store"
NOW = 1_700_000_000_000_000_000


def named(number: int) -> FileName:
    name = parse(f"smp-server-store-{number}.log")
    assert name is not None
    return name


class Started:
    def __init__(self, number: int = 0, *, last: int = 0, disk: MemoryFiles | None = None, sync: Sync = ALWAYS) -> None:
        self.disk = MemoryFiles() if disk is None else disk
        self.disk.make_folder(FOLDER)
        self.files = FaultyFiles(self.disk)
        self.clock = ManualClock(NOW)
        self.sync = sync
        self.log = self.start(number, last)

    def start(self, number: int, last: int) -> Log:
        held = lock.take(self.files, FOLDER, STORED.lock_name)
        try:
            return Log.start(
                FOLDER,
                named(number),
                last=last,
                held=held,
                options=LogOptions(sync=self.sync, segment_bytes=1 << 60),
                family=STORED,
                format=QUEUE_STORE,
                files=self.files,
                clock=self.clock,
                threaded=False,
            )
        except BaseException:
            held.release()
            raise

    def append(self, *payloads: bytes) -> list[int]:
        return [self.log.append(payload, until=Level.SYNCED) for payload in payloads]

    def payloads(self) -> list[bytes]:
        return [record.payload for record in self.log.reader.read()]

    def names(self) -> list[str]:
        return sorted(name for name in self.disk.list(FOLDER) if name.endswith(".log"))


def test_the_file_is_there_before_anything_is_appended() -> None:
    assert Started(7).names() == ["smp-server-store-7.log"]


def test_a_started_file_survives_a_power_cut_before_anything_is_appended() -> None:
    disk = PowerLoss()
    Started(7, last=NOW, disk=disk)
    for state in disk.states(at=disk.points):
        data = state.files.contents()[f"{FOLDER}/smp-server-store-7.log"]
        assert data.startswith(QUEUE_STORE.header), state.label


def test_positions_go_on_from_the_newest_record_before() -> None:
    started = Started(7, last=NOW + 10**12)
    log = started.log
    assert (log.position, log.written, log.synced) == (NOW + 10**12,) * 3
    [position] = started.append(b"a")
    assert position > NOW + 10**12, "also when the clock is behind"


def test_a_fresh_log_starts_at_nought() -> None:
    started = Started(0)
    assert started.log.position == 0
    started.append(b"a")
    assert started.payloads() == [b"a"]


def test_nothing_before_the_started_file_is_read() -> None:
    disk = MemoryFiles({f"{FOLDER}/smp-server-store-6.log": b"no log at all"})
    started = Started(7, last=5, disk=disk)
    assert not [path for call, path in started.files.calls if call == "read"]


def test_closing_lets_the_folder_go_with_records_and_without() -> None:
    started = Started(0)
    started.log.close()
    started.log = started.start(1, 0)
    started.append(b"a")
    started.log.close()
    assert started.files.lock_holder(f"{FOLDER}/lamina.lock") is None


def test_a_start_that_fails_leaves_no_file_and_the_lock_to_its_caller() -> None:
    started = Started(0)
    started.log.close()
    for operation in ("create", "append", "sync"):
        started.files.fail(operation, error=errno.ENOSPC)
        with pytest.raises(DiskFull):
            started.start(1, 5)
        started.files.heal()
        assert started.names() == ["smp-server-store-0.log"]
    assert started.start(1, 5).position == 5


def test_a_name_that_is_taken_is_refused() -> None:
    started = Started(0)
    started.log.close()
    with pytest.raises(DiskError):
        started.start(0, 0)


# -- rotating --------------------------------------------------------------------------------------------------------


def test_rotating_begins_the_next_file_at_once() -> None:
    started = Started(3)
    started.append(b"a")
    assert started.log.rotate(begin_next=True) == "smp-server-store-3.log"
    assert started.names() == ["smp-server-store-3.log", "smp-server-store-4.log"]
    started.append(b"b")
    assert started.names() == ["smp-server-store-3.log", "smp-server-store-4.log"]
    assert started.payloads() == [b"a", b"b"]


@pytest.mark.parametrize("last", [0, NOW])
def test_numbers_move_also_when_nothing_was_written(last: int) -> None:
    started = Started(3, last=last)
    assert started.log.rotate(begin_next=True) == "smp-server-store-3.log"
    assert started.log.rotate(begin_next=True) == "smp-server-store-4.log"
    assert started.names() == [f"smp-server-store-{number}.log" for number in (3, 4, 5)]
    started.append(b"a")
    assert started.payloads() == [b"a"]


def test_what_was_pending_is_in_the_sealed_file_and_synced() -> None:
    disk = PowerLoss()
    started = Started(0, disk=disk, sync=OS)
    position = started.log.append(b"pending")
    started.log.rotate(begin_next=True)
    assert started.log.synced >= position
    for state in disk.states(at=disk.points):
        assert b"pending" in state.files.contents()[f"{FOLDER}/smp-server-store-0.log"], state.label


def test_when_rotating_returns_both_files_survive_a_power_cut() -> None:
    disk = PowerLoss()
    started = Started(0, disk=disk)
    started.append(b"a")
    started.log.rotate(begin_next=True)
    for state in disk.states(at=disk.points):
        names = {path.rpartition("/")[2] for path in state.files.contents()}
        assert {"smp-server-store-0.log", "smp-server-store-1.log"} <= names, state.label


@pytest.mark.parametrize("operation", ["create", "append", "sync"])
def test_when_the_next_file_cannot_be_made_the_active_one_goes_on(operation: str) -> None:
    started = Started(0)
    started.append(b"a")
    started.files.fail(operation, error=errno.ENOSPC, only="store-1")
    with pytest.raises(DiskFull):
        started.log.rotate(begin_next=True)
    started.append(b"b")
    assert started.names() == ["smp-server-store-0.log"]
    assert started.payloads() == [b"a", b"b"]
    assert started.log.rotate(begin_next=True) == "smp-server-store-0.log"


def test_when_the_folder_cannot_be_synced_the_log_refuses_writes() -> None:
    started = Started(0)
    started.files.fail("sync_folder")
    with pytest.raises(LogFailed):
        started.log.rotate(begin_next=True)
    with pytest.raises(LogFailed):
        started.log.append(b"a")


@pytest.mark.parametrize("last", [0, NOW])
@pytest.mark.parametrize("taken", [0, 5])
def test_a_begun_file_stays_when_its_first_record_is_refused(last: int, taken: int) -> None:
    started = Started(3, last=last)
    started.files.fail("append", error=errno.ENOSPC, taken=taken)
    with pytest.raises(DiskFull):
        started.append(b"refused")
    started.append(b"taken")
    assert started.names() == ["smp-server-store-3.log"]
    assert started.payloads() == [b"taken"]
    assert started.log.rotate(begin_next=True) == "smp-server-store-3.log"


def test_closing_right_after_rotating_keeps_both_files() -> None:
    started = Started(0)
    started.append(b"a")
    started.log.rotate(begin_next=True)
    started.log.close()
    assert started.names() == ["smp-server-store-0.log", "smp-server-store-1.log"]


def test_rotating_without_beginning_is_as_ever() -> None:
    started = Started(0)
    started.append(b"a")
    assert started.log.rotate() == "smp-server-store-0.log"
    assert started.log.rotate() is None
    assert started.names() == ["smp-server-store-0.log"]
    started.append(b"b")
    assert started.names() == ["smp-server-store-0.log", "smp-server-store-1.log"]


def test_empty_files_in_between_are_no_damage() -> None:
    started = Started(0)
    started.append(b"a")
    for _ in range(3):
        started.log.rotate(begin_next=True)
    started.append(b"b")
    started.log.close()
    started.log = started.start(4, last=int(started.log.position))
    started.append(b"c")
    found = survey(started.disk, FOLDER, beside_writer=False)
    assert (found.damage, found.torn) == ([], [])
    assert started.payloads() == [b"a", b"b", b"c"]


def test_a_begun_file_says_how_far_the_log_had_come() -> None:
    started = Started(0)
    started.append(b"a", b"b")
    started.log.rotate(begin_next=True)
    path = f"{FOLDER}/smp-server-store-0.log"
    started.disk.write(path, started.disk.contents()[path][:-21])  # exactly the last record is gone
    found = survey(started.disk, FOLDER, beside_writer=False)
    assert [damage.file for damage in found.damage] == ["smp-server-store-0.log"]


def test_a_log_of_any_size_keeps_one_file_and_no_index_while_it_grows() -> None:
    started = Started(0, sync=OS)
    for _ in range(40):
        started.append(bytes(100_000))
    assert [name for name in started.disk.list(FOLDER) if "smp" in name] == ["smp-server-store-0.log"]
    assert started.log.stats.rotations == 0
