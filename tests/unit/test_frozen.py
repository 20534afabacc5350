"""A log as it was pinned: however many files it has, some are open at a time, and all are of one moment."""

from __future__ import annotations

import pytest

from lamina.errors import StorageError
from lamina.log import OS, Log, LogOptions
from lamina.log.files import File, join
from lamina.log.reader import Reader
from lamina.pipeline import places, snapshot
from lamina.pipeline.frozen import _MOST_OPEN, Frozen
from lamina.pipeline.places import LogPlace
from lamina.testing import ManualClock, MemoryFiles

FOLDER = "logs"
PLACE = LogPlace(places.PLAIN, b"logs", FOLDER, FOLDER)
MANY = 3 * _MOST_OPEN


class Counting(MemoryFiles):
    """Knows how many files were open at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0

    def open(self, path: str, *, write: bool = False) -> File:
        file = super().open(path, write=write)
        self.most = max(self.most, len(self.handles))
        return file


@pytest.fixture
def disk() -> Counting:
    """With a log of many files, a record in each."""
    disk = Counting()
    options = LogOptions(sync=OS, segment_bytes=1)
    with Log.open(FOLDER, files=disk, clock=ManualClock(), options=options, threaded=False) as log:
        for number in range(MANY):
            log.append(b"%d" % number)
            log.run_round()
    disk.most = 0
    return disk


def values(frozen: Frozen) -> list[bytes]:
    return [record.payload for record in Reader(FOLDER, files=frozen.files).read()]


def frozen_of(disk: Counting, until_ns: int | None = None) -> Frozen:
    return Frozen(disk, PLACE, snapshot.pin(disk, FOLDER, [PLACE]).files, until_ns)


def test_of_very_many_files_some_are_open_at_a_time(disk: Counting) -> None:
    with frozen_of(disk) as frozen:
        assert values(frozen) == values(frozen) == [b"%d" % number for number in range(MANY)]
    assert _MOST_OPEN <= disk.most <= _MOST_OPEN + 3
    assert not disk.handles


def test_an_earlier_moment_of_very_many_files_is_read_as_well(disk: Counting) -> None:
    times = [record.time_ns for record in Reader(FOLDER, files=disk).read()]
    with frozen_of(disk, times[-10]) as frozen:
        assert values(frozen) == [b"%d" % number for number in range(MANY - 9)]
    assert not disk.handles


@pytest.mark.parametrize("change", ["rewritten", "removed"])
def test_a_file_that_is_another_one_when_it_is_needed_is_told(disk: Counting, change: str) -> None:
    last = Reader(FOLDER, files=disk).segments()[-5].name
    with frozen_of(disk) as frozen:
        if change == "rewritten":
            disk.write(join(FOLDER, "other"), disk.contents()[join(FOLDER, last)])
            disk.rename(join(FOLDER, "other"), join(FOLDER, last))
        else:
            disk.remove(join(FOLDER, last))
        with pytest.raises(StorageError, match=last) as told:
            values(frozen)
        assert told.value.hint == "read again"


def test_a_file_that_is_open_stays_what_it_is(disk: Counting) -> None:
    first = Reader(FOLDER, files=disk).segments()[0].name
    with frozen_of(disk) as frozen:
        disk.remove(join(FOLDER, first))
        assert values(frozen)[0] == b"0"


def test_what_is_borrowed_can_be_read_whatever_was_opened_since(disk: Counting) -> None:
    first = Reader(FOLDER, files=disk).segments()[0].name
    with frozen_of(disk) as frozen:
        file = frozen.open(join(FOLDER, first))
        assert len(values(frozen)) == MANY
        head = bytearray(4)
        assert file.read_into(memoryview(head), 0) == 4
    with pytest.raises(OSError):
        file.read_into(memoryview(head), 0)
