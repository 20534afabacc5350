"""The sparse index of a file: a hint that is checked before it is used."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.clock import ManualClock
from lamina.log import frame, index
from lamina.log.files import join, read_at
from lamina.log.files.faulty import FaultyFiles
from lamina.log.files.memory import MemoryFiles
from lamina.log.formats import PLAIN
from lamina.log.frame import SPACING, Stop
from lamina.log.index import Index, State
from lamina.log.options import LogOptions
from lamina.log.scan import HEADER_SIZE, WINDOW, FileScan, read_record
from lamina.log.writer import Log

NAME = "000000001.log"
PATH = join("log", NAME)
INDEX_PATH = PATH + ".index"
PAYLOAD = b"p" * 10_000
TIMES = [1000 + 10 * number for number in range(60)]  # 600 kB: several points


def file_of(times: list[int], payload: bytes = PAYLOAD) -> bytes:
    return PLAIN.header + b"".join(frame.encode(time_ns, payload) for time_ns in times)


def disk_with(times: list[int], payload: bytes = PAYLOAD) -> MemoryFiles:
    return MemoryFiles({PATH: file_of(times, payload)})


def built(files: MemoryFiles) -> Index:
    made = Index()
    index.extend(made, files.open(PATH), PLAIN)
    return made


def saved(times: list[int]) -> MemoryFiles:
    """A disk with a file and its index."""
    files = disk_with(times)
    index.save(files, "log", NAME, built(files))
    return files


def loaded(files: MemoryFiles) -> Index | None:
    return index.load(files, "log", NAME, files.open(PATH))


def facts(of: Index) -> tuple[object, ...]:
    return of.bytes, of.records, of.first, of.last, of.last_data


def everything(of: Index | None) -> tuple[object, ...]:
    assert of is not None
    return *facts(of), of.state, list(of.times), list(of.offsets)


def first_time_from(files: MemoryFiles, offset: int, time_ns: int) -> int | None:
    """The first record at or after ``time_ns`` that reading from ``offset`` meets."""
    for batch in FileScan(files.open(PATH), offset):
        for time in batch.times:
            if time >= time_ns:
                return time
    return None


# -- building and seeking ------------------------------------------------------------------------------------------


def test_an_empty_file_has_no_points() -> None:
    assert everything(built(disk_with([]))) == (HEADER_SIZE, 0, 0, 0, 0, False, [], [])


def test_an_index_knows_its_file_as_a_whole() -> None:
    size = len(file_of(TIMES))
    assert facts(built(disk_with(TIMES))) == (size, 60, TIMES[0], TIMES[-1], TIMES[-1])


def test_the_first_point_is_the_first_record() -> None:
    made = built(disk_with(TIMES))
    assert (made.times[0], made.offsets[0]) == (TIMES[0], HEADER_SIZE)


def test_points_are_at_least_the_spacing_apart() -> None:
    offsets = built(disk_with(TIMES)).offsets
    assert all(later - earlier >= SPACING for earlier, later in pairwise(offsets))


def test_a_large_file_has_several_points() -> None:
    assert len(built(disk_with(TIMES)).times) >= 3


def test_every_point_is_the_start_of_a_record_of_its_time() -> None:
    files = disk_with(TIMES)
    made, file = built(files), files.open(PATH)
    heads = [read_record(file, offset, made.bytes) for offset in made.offsets]
    assert [head.time_ns for head in heads if not isinstance(head, Stop)] == list(made.times)


def test_seeking_before_the_first_record_gives_the_start() -> None:
    assert built(disk_with(TIMES)).seek(0) == HEADER_SIZE


def test_seeking_in_an_empty_index_gives_the_start() -> None:
    assert Index().seek(123) == HEADER_SIZE


def test_seeking_behind_the_last_record_gives_the_last_point() -> None:
    made = built(disk_with(TIMES))
    assert made.seek(TIMES[-1] + 1) == made.offsets[-1]


DISK = disk_with(TIMES)
INDEX = built(DISK)


@settings(deadline=None)
@given(st.integers(TIMES[0] - 5, TIMES[-1] + 5))
def test_reading_from_a_seek_meets_the_first_record_at_or_after_the_time(time_ns: int) -> None:
    expected = next((time for time in TIMES if time >= time_ns), None)
    assert first_time_from(DISK, INDEX.seek(time_ns), time_ns) == expected


@settings(deadline=None)
@given(st.integers(TIMES[0], TIMES[-1]))
def test_a_seek_never_starts_far_before_the_record(time_ns: int) -> None:
    later = [offset for time, offset in zip(INDEX.times, INDEX.offsets, strict=True) if time >= time_ns]
    following = later[0] if later else INDEX.bytes
    assert following - INDEX.seek(time_ns) <= 2 * WINDOW + len(PAYLOAD)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 30), min_size=20, max_size=40), st.integers(0, 31))
def test_a_seek_misses_no_record_in_a_log_whose_times_go_back(times: list[int], wanted: int) -> None:
    files = disk_with(times)
    offset = built(files).seek(wanted)
    missed = [time for batch in FileScan(files.open(PATH), HEADER_SIZE, offset) for time in batch.times]
    assert all(time < wanted for time in missed)


def test_ranges_cover_the_file_without_a_hole() -> None:
    ranges = INDEX.ranges()
    ends = [HEADER_SIZE, *(end for _, end in ranges)]
    assert [start for start, _ in ranges] == ends[:-1] and ends[-1] == INDEX.bytes


def test_extending_an_index_gives_what_building_it_at_once_gives() -> None:
    files = disk_with(TIMES[:30])
    made = built(files)
    files.write(PATH, file_of(TIMES))
    index.extend(made, files.open(PATH), PLAIN)
    assert facts(made) == facts(INDEX)


def test_extending_stops_at_the_first_record_that_is_not_whole() -> None:
    files = disk_with([1, 2, 3], b"abc")
    files.write(PATH, files.contents()[PATH][:-1])
    assert built(files).records == 2


def test_marks_of_the_kernel_do_not_count_as_data() -> None:
    data = PLAIN.header + frame.encode(5, b"data") + frame.encode(9, PLAIN.watermark(5))
    made = built(MemoryFiles({PATH: data}))
    assert (made.last, made.last_data) == (9, 5)


# -- saving and loading --------------------------------------------------------------------------------------------


def test_a_saved_index_is_loaded_as_it_was() -> None:
    files = saved(TIMES)
    assert everything(loaded(files)) == everything(built(files))


def test_the_mark_of_a_clean_close_is_kept() -> None:
    files = disk_with(TIMES)
    made = built(files)
    made.state = State.CLEAN
    index.save(files, "log", NAME, made)
    found = loaded(files)
    assert found is not None and found.state is State.CLEAN


def test_an_index_of_an_empty_file_is_loaded_as_it_was() -> None:
    files = saved([])
    assert everything(loaded(files)) == everything(Index())


def test_saving_replaces_an_earlier_index() -> None:
    files = saved(TIMES[:3])
    files.write(PATH, file_of(TIMES))
    index.save(files, "log", NAME, built(files))
    assert everything(loaded(files)) == everything(built(files))


def test_a_missing_index_is_none() -> None:
    assert loaded(disk_with(TIMES)) is None


def test_a_discarded_index_is_gone() -> None:
    files = saved(TIMES)
    index.discard(files, "log", NAME)
    assert INDEX_PATH not in files.contents()


def test_discarding_what_is_not_there_does_nothing() -> None:
    files = disk_with(TIMES)
    index.discard(files, "log", NAME)
    assert list(files.contents()) == [PATH]


def test_an_index_that_cannot_be_written_leaves_none() -> None:
    files = FaultyFiles(disk_with(TIMES))
    files.fail("append", only=".index", taken=20)
    index.save(files, "log", NAME, INDEX)
    assert files.list("log") == [NAME]


def test_an_index_that_cannot_be_read_is_none() -> None:
    files = FaultyFiles(saved(TIMES))
    files.fail("read", only=".index")
    assert index.load(files, "log", NAME, files.open(PATH)) is None


# -- not fitting ---------------------------------------------------------------------------------------------------


def test_the_index_of_a_file_that_grew_is_ignored() -> None:
    files = saved(TIMES)
    files.write(PATH, file_of([*TIMES, TIMES[-1] + 1]))
    assert loaded(files) is None


def test_the_index_of_a_file_that_shrank_is_ignored() -> None:
    files = saved(TIMES)
    files.write(PATH, file_of(TIMES[:-1]))
    assert loaded(files) is None


def test_the_index_of_a_replaced_file_of_the_same_size_is_ignored() -> None:
    files = saved(TIMES)
    files.write(PATH, file_of([time + 1 for time in TIMES]))
    assert loaded(files) is None


def test_the_index_of_a_file_damaged_at_its_last_point_is_ignored() -> None:
    files = saved(TIMES)
    data = bytearray(file_of(TIMES))
    data[INDEX.offsets[-1] + 100] ^= 1
    files.write(PATH, bytes(data))
    assert loaded(files) is None


def test_an_index_cut_anywhere_is_ignored() -> None:
    files = saved(TIMES)
    kept = files.contents()[INDEX_PATH]
    for size in range(len(kept)):
        files.write(INDEX_PATH, kept[:size])
        assert loaded(files) is None, size


def test_an_index_with_any_flipped_bit_is_ignored() -> None:
    files = saved(TIMES)
    kept = files.contents()[INDEX_PATH]
    for position in range(len(kept)):
        files.write(INDEX_PATH, kept[:position] + bytes([kept[position] ^ 4]) + kept[position + 1 :])
        assert loaded(files) is None, position


def test_an_index_with_bytes_behind_it_is_ignored() -> None:
    files = saved(TIMES)
    files.write(INDEX_PATH, files.contents()[INDEX_PATH] + b"\0")
    assert loaded(files) is None


def test_an_index_whose_count_of_points_is_a_lie_is_ignored() -> None:
    files = saved(TIMES)
    kept = files.contents()[INDEX_PATH]
    head = frame.decode(kept, 8, len(kept))
    assert not isinstance(head, Stop)
    payload = bytearray(kept[head.payload_at : head.payload_at + head.size])
    payload[41:49] = (2**40).to_bytes(8, "big")
    files.write(INDEX_PATH, kept[:8] + frame.encode(head.time_ns, bytes(payload)))
    assert loaded(files) is None


@given(st.binary(max_size=100))
def test_any_bytes_in_place_of_an_index_are_ignored(data: bytes) -> None:
    files = MemoryFiles({PATH: file_of([1, 2, 3], b"abc"), INDEX_PATH: data})
    assert loaded(files) is None


# -- what a log writes ---------------------------------------------------------------------------------------------


def closed_log(count: int, payload: bytes) -> MemoryFiles:
    files, clock = MemoryFiles(), ManualClock()
    with Log.open("log", files=files, clock=clock, threaded=False, options=LogOptions(gather_bytes=1)) as log:
        for _ in range(count):
            clock.advance(1)
            log.append(payload)
    return files


def test_a_rebuilt_index_knows_what_the_writer_knew() -> None:
    files = closed_log(60, PAYLOAD)
    written = loaded(files)
    assert written is not None and facts(written) == facts(built(files))


def test_a_rebuilt_index_of_a_small_file_equals_the_written_one() -> None:
    files = closed_log(3, b"abc")
    rebuilt = built(files)
    rebuilt.state = State.CLEAN
    assert everything(rebuilt) == everything(loaded(files))


def test_every_point_of_a_written_index_is_the_start_of_a_record_of_its_time() -> None:
    files = closed_log(60, PAYLOAD)
    written, file = loaded(files), files.open(PATH)
    assert written is not None
    heads = [read_record(file, offset, written.bytes) for offset in written.offsets]
    assert [head.time_ns for head in heads if not isinstance(head, Stop)] == list(written.times)


def test_a_closed_log_leaves_an_index_that_covers_the_whole_file() -> None:
    files = closed_log(3, b"abc")
    written = loaded(files)
    assert written is not None and written.bytes == len(read_at(files.open(PATH), 0, 10**6))
