"""Errors of the disk reach exactly the callers concerned, and nothing is overstated."""

from __future__ import annotations

import asyncio
import errno

import pytest

from lab import FOLDER, Lab
from lamina.errors import DiskError, DiskFull, LogFailed
from lamina.log import ALWAYS, OS, Level, Log, interval
from lamina.log.files.faulty import FaultyFiles
from lamina.testing import PowerLoss


def test_a_short_write_is_completed() -> None:
    lab = Lab()
    lab.append(b"a")
    lab.files.fail("append", error=0, taken=10)
    lab.append(b"b" * 100)
    assert lab.payloads() == [b"a", b"b" * 100]


@pytest.mark.parametrize("taken", [0, 1, 20, 90, 130])
def test_a_failed_write_is_cut_back_and_reported_to_its_caller_alone(taken: int) -> None:
    lab = Lab()
    (before,) = lab.append(b"a")
    size = len(lab.newest)
    lab.files.fail("append", error=errno.EIO, taken=taken)
    with pytest.raises(DiskError, match="cannot write to the file"):
        lab.append(b"b" * 100)
    lab.log.wait(before)  # type: ignore[arg-type]
    assert len(lab.newest) in (size, size + 46)  # the watermark before the record may have fitted
    lab.append(b"c")
    assert lab.payloads() == [b"a", b"c"]
    assert lab.reopen().report.was_clean
    assert lab.payloads() == [b"a", b"c"]


def test_what_was_cut_back_does_not_come_back_in_a_sealed_file() -> None:
    """A cut is a change like any other: until it is synced, a power cut may undo it."""
    disk = PowerLoss()
    files = FaultyFiles(disk)
    log = Log.open("log", files=files, threaded=False)
    log.append(b"a", until=Level.SYNCED)
    files.fail("append", error=errno.ENOSPC, taken=60)
    with pytest.raises(DiskFull):
        log.append(b"b" * 100, until=Level.SYNCED)
    log.rotate()
    log.append(b"c", until=Level.SYNCED)
    states = list(disk.states(at=disk.points))
    assert states
    for state in states:
        with Log.open("log", files=state.files, threaded=False) as reopened:
            payloads = [record.payload for record in reopened.reader.read()]
        assert payloads == [b"a", b"c"]


def test_calls_that_fitted_whole_are_kept_and_the_others_refused() -> None:
    lab = Lab(sync=OS)
    lab.append(b"a")
    size = 20 + 10
    positions = [lab.log.append(b"%d" % number * 10) for number in range(4)]
    lab.files.fail("append", error=0, taken=46 + 2 * size + 5)
    lab.files.fail("append", nth=2, error=errno.ENOSPC, taken=3)
    lab.log.run_round()
    lab.log.wait(positions[1])
    for position in positions[2:]:
        with pytest.raises(DiskFull):
            lab.log.wait(position)
    assert lab.payloads() == [b"a", b"0" * 10, b"1" * 10]


def test_a_refused_position_stays_refused_when_later_ones_succeed() -> None:
    lab = Lab(sync=OS)
    position = lab.log.append(b"lost")
    lab.files.fail("append", error=errno.ENOSPC)
    lab.log.run_round()
    lab.append(b"kept")
    assert lab.log.written > position
    with pytest.raises(DiskFull):
        lab.log.wait(position)
    assert lab.payloads() == [b"kept"]


def test_disk_full_is_retryable_reading_goes_on_and_writing_resumes_by_itself() -> None:
    lab = Lab()
    lab.append(b"a")
    fault = lab.files.fail("append", error=errno.ENOSPC, times=3)
    for _ in range(3):
        with pytest.raises(DiskFull) as caught:
            lab.append(b"b")
        assert caught.value.retryable
        assert lab.payloads() == [b"a"]
    assert fault.struck == 3
    lab.append(b"c")
    assert lab.payloads() == [b"a", b"c"]


def test_a_failed_first_write_leaves_no_file_behind() -> None:
    lab = Lab()
    lab.files.fail("append", nth=2, error=errno.ENOSPC, taken=4)  # the header fitted, the record did not
    with pytest.raises(DiskFull):
        lab.append(b"a")
    assert lab.names() == []
    lab.append(b"b")
    assert lab.names() == ["000000001.log"]


def test_without_room_for_a_header_the_current_file_goes_on() -> None:
    lab = Lab(segment_bytes=64)
    lab.append(b"a" * 60)
    lab.files.fail("append", error=errno.ENOSPC)
    lab.append(b"b" * 60)
    assert lab.names() == ["000000001.log"]
    lab.append(b"c" * 60)
    assert lab.names() == ["000000001.log", "000000002.log"]
    assert lab.payloads() == [b"a" * 60, b"b" * 60, b"c" * 60]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE, errno.EROFS])
def test_when_a_new_file_cannot_be_made_the_current_one_goes_on(error: int) -> None:
    lab = Lab(segment_bytes=64)
    lab.append(b"a" * 60)
    lab.files.fail("create", error=error, only=".log")
    lab.append(b"b" * 60)
    assert lab.payloads() == [b"a" * 60, b"b" * 60]


def test_a_failed_sync_reaches_the_caller_and_the_log_refuses_until_reopened() -> None:
    lab = Lab(sync=ALWAYS)
    lab.append(b"a")
    fault = lab.files.fail("sync", error=errno.EIO)
    with pytest.raises(LogFailed, match="cannot sync the file"):
        lab.append(b"b")
    syncs = lab.log.stats.syncs
    for _ in range(3):
        with pytest.raises(LogFailed):
            lab.append(b"c")
    assert fault.seen == 1, "a failed sync was tried again"
    assert lab.log.stats.syncs == syncs
    lab.log.close()
    lab.log = lab.open()
    lab.append(b"d")
    assert lab.payloads()[0] == b"a"
    assert lab.payloads()[-1] == b"d"


def test_a_failed_sync_by_the_clock_turns_the_log_failed() -> None:
    lab = Lab(sync=interval(100))
    position = lab.log.append(b"a", until=Level.WRITTEN)
    lab.files.fail("sync", error=errno.EIO)
    lab.clock.advance(0.2)
    lab.log.run_round()
    assert isinstance(lab.log.failure, LogFailed)
    with pytest.raises(LogFailed):
        lab.log.append(b"b")
    with pytest.raises(LogFailed):
        lab.log.wait(position, Level.SYNCED)
    lab.log.wait(position, Level.WRITTEN)


def test_a_failed_sync_at_rotation_refuses_what_was_to_follow() -> None:
    lab = Lab(sync=OS, segment_bytes=64)
    lab.log.append(b"a" * 60, until=Level.WRITTEN)
    lab.files.fail("sync", error=errno.EIO)
    with pytest.raises(LogFailed):
        lab.log.append(b"b" * 60, until=Level.WRITTEN)
    assert lab.payloads() == [b"a" * 60]


def test_a_failed_folder_sync_is_never_taken_for_success() -> None:
    lab = Lab()
    lab.files.fail("sync_folder", error=errno.EIO)
    with pytest.raises(LogFailed, match="sync the folder"):
        lab.append(b"a")


def test_a_tail_that_cannot_be_cut_back_makes_the_log_refuse() -> None:
    lab = Lab()
    lab.append(b"a")
    lab.files.fail("append", error=errno.EIO, taken=60)
    lab.files.fail("truncate", error=errno.EIO)
    with pytest.raises(LogFailed):
        lab.append(b"b" * 100)
    with pytest.raises(LogFailed):
        lab.append(b"c")
    lab.restart()
    assert lab.payloads() == [b"a"]


def test_coroutines_get_the_error_of_their_own_call() -> None:
    lab = Lab()

    async def run() -> None:
        lab.files.fail("append", nth=2, error=errno.ENOSPC)
        position = lab.log.append(b"a")
        with pytest.raises(DiskFull):
            await lab.log.reached(position)
        await lab.log.reached(lab.log.append(b"b"))

    asyncio.run(run())
    assert lab.payloads() == [b"b"]


def test_an_error_while_closing_is_reported_and_the_folder_let_go() -> None:
    lab = Lab(sync=OS)
    lab.log.append(b"a", until=Level.WRITTEN)
    lab.files.fail("sync", error=errno.EIO)
    with pytest.raises(LogFailed):
        lab.log.close()
    lab.files.heal()
    lab.log = lab.open()
    assert lab.payloads() == [b"a"]


@pytest.mark.parametrize("nth", [1, 2])
def test_a_read_error_reaches_the_reader_with_the_name_of_the_file(nth: int) -> None:
    lab = Lab()
    lab.append(b"a")
    lab.files.fail("read", nth=nth, error=errno.EIO)
    with pytest.raises(DiskError, match="000000001"):
        lab.payloads()


def test_an_index_that_cannot_be_kept_costs_nothing_but_time() -> None:
    lab = Lab(segment_bytes=64)
    lab.files.fail("create", only=".index", error=errno.ENOSPC, times=100)
    lab.append(*[b"x" * 60] * 4)
    lab.reopen()
    assert len(lab.payloads()) == 4
    assert not [name for name in lab.disk.list(FOLDER) if name.endswith(".index")]


def test_an_interrupted_write_fails_the_log_and_is_never_acknowledged() -> None:
    lab = Lab()
    lab.append(b"a")
    position = lab.log.append(b"b")

    def interrupt(call: str, path: str) -> None:
        if call == "append":
            lab.files.before = lambda call, path: None
            raise KeyboardInterrupt

    lab.files.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        lab.log.run_round()
    with pytest.raises(LogFailed, match="interrupted"):
        lab.append(b"c")
    with pytest.raises(LogFailed):
        lab.log.wait(position)
    lab.restart()
    assert lab.payloads() == [b"a"]


@pytest.mark.parametrize(("operation", "kind"), [("append", DiskFull), ("sync", LogFailed)])
def test_closing_tells_what_kept_records_out_of_the_log(operation: str, kind: type[Exception]) -> None:
    lab = Lab()
    lab.append(b"a")
    lab.log.append(b"lost")
    lab.files.fail(operation, error=errno.ENOSPC)
    with pytest.raises(kind):
        lab.log.close()
    lab.log = lab.open()
    lab.log.close()


def test_out_of_handles_when_the_folder_is_to_be_synced_the_current_file_goes_on() -> None:
    lab = Lab(segment_bytes=64)
    lab.append(b"a" * 60)
    lab.files.fail("sync_folder", error=errno.EMFILE)
    lab.append(b"b" * 60)
    lab.append(b"c" * 60)
    assert lab.payloads() == [b"a" * 60, b"b" * 60, b"c" * 60]
    assert lab.log.stats.failed_rotations == 1


def test_a_refused_log_does_not_grow_in_memory() -> None:
    lab = Lab()
    lab.files.fail("sync", error=errno.EIO, only=".log")
    with pytest.raises(LogFailed):
        lab.append(b"a")
    for _ in range(50):
        with pytest.raises(LogFailed) as caught:
            lab.log.append(b"b")
    depth, trace = 0, caught.value.__traceback__
    while trace is not None:
        depth, trace = depth + 1, trace.tb_next
    assert depth < 10
