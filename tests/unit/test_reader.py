"""Promises of Reader and Cursor."""

from __future__ import annotations

import threading

import pytest

from lab import FOLDER, Lab
from lamina.errors import Corruption, Gap, LogClosed
from lamina.log import OS, Level, Log, Reader, frame, kernel, rewrite
from lamina.log.commit import ThreadWaiter
from lamina.log.files.memory import MemoryFiles
from lamina.log.formats import PLAIN, TOPIC
from lamina.log.naming import NUMBERED, TIMED
from lamina.log.survey import survey


def filled(count: int = 40, **options: object) -> tuple[Lab, list[int]]:
    """A log of several small files."""
    lab = Lab(segment_bytes=300, **options)
    positions = []
    for number in range(count):
        lab.clock.advance(1)
        positions += lab.append(b"%d" % number)
    return lab, positions


def numbers(records) -> list[int]:
    return [int(record.payload) for record in records]


def outside(lab: Lab) -> Reader:
    """A reader without a writer beside it, as another process has."""
    return Reader(FOLDER, files=lab.disk, family=lab.family)


@pytest.fixture(params=["inside", "outside"])
def reader_of(request):
    return (lambda lab: lab.log.reader) if request.param == "inside" else outside


def test_reading_from_the_start_gives_everything(reader_of) -> None:
    lab, _ = filled()
    assert len(lab.names()) > 5
    assert numbers(reader_of(lab).read()) == list(range(40))


def test_as_of_is_inclusive(reader_of) -> None:
    lab, positions = filled()
    for number in (0, 1, 7, 20, 39):
        assert numbers(reader_of(lab).read(since=positions[number])) == list(range(number, 40))
        assert numbers(reader_of(lab).read(since=positions[number] - 1)) == list(range(number, 40))


def test_after_a_position_is_exclusive(reader_of) -> None:
    lab, positions = filled()
    for number in (0, 1, 7, 20, 39):
        assert numbers(reader_of(lab).read(after=positions[number])) == list(range(number + 1, 40))


def test_as_of_before_the_first_record_starts_at_the_first(reader_of) -> None:
    lab, _ = filled()
    assert numbers(reader_of(lab).read(since=1)) == list(range(40))


def test_as_of_after_the_last_record_gives_nothing_yet(reader_of) -> None:
    lab, positions = filled()
    cursor = reader_of(lab).read(since=positions[-1] + 1)
    assert numbers(cursor) == []
    lab.append(b"40")
    assert numbers(cursor) == [40]


def test_bounds_are_half_open(reader_of) -> None:
    lab, positions = filled()
    cursor = reader_of(lab).read(since=positions[5], until=positions[25])
    assert numbers(cursor) == list(range(5, 25))


def test_last_n_in_log_order(reader_of) -> None:
    lab, _ = filled()
    assert numbers(reader_of(lab).last(3)) == [37, 38, 39]
    assert numbers(reader_of(lab).last(0)) == []
    assert numbers(reader_of(lab).last(100)) == list(range(40))


def test_backwards_with_bounds(reader_of) -> None:
    lab, positions = filled()
    assert numbers(reader_of(lab).backwards()) == list(range(39, -1, -1))
    bounded = reader_of(lab).backwards(since=positions[10], until=positions[30])
    assert numbers(bounded) == list(range(29, 9, -1))


def test_since_and_after_together_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="not both"):
        Reader(FOLDER).read(since=1, after=1)


def test_a_record_knows_its_file_and_byte() -> None:
    lab, _ = filled()
    for record in lab.log.reader.read():
        data = lab.data(record.file)
        assert data[record.offset + 16 : record.offset + 16 + len(record.payload)] == record.payload


def test_records_larger_than_the_window_are_read(reader_of) -> None:
    lab = Lab()
    big = b"x" * 1_000_000
    lab.append(b"a", big, b"b", big + b"y")
    assert [len(record.payload) for record in reader_of(lab).read()] == [1, 1_000_000, 1, 1_000_001]
    assert [len(record.payload) for record in reader_of(lab).backwards()] == [1_000_001, 1, 1_000_000, 1]


def test_whoever_stops_in_the_middle_goes_on_there(reader_of) -> None:
    lab, _ = filled()
    cursor = reader_of(lab).read()
    seen = []
    for _ in range(40):
        for record in cursor:
            seen.append(int(record.payload))
            break
    assert seen == list(range(40))


def test_a_cursor_resumes_by_its_position(reader_of) -> None:
    lab, _ = filled()
    seen: list[int] = []
    position = None
    while True:
        cursor = reader_of(lab).read() if position is None else reader_of(lab).read(after=position)
        record = next(iter(cursor), None)
        if record is None:
            break
        seen.append(int(record.payload))
        position = cursor.position
    assert seen == list(range(40))


def test_a_cursor_at_the_end_sees_what_comes_also_past_a_rotation(reader_of) -> None:
    lab, _ = filled(5)
    cursor = reader_of(lab).read()
    assert numbers(cursor) == list(range(5))
    for number in range(5, 60):
        lab.append(b"%d" % number)
        assert numbers(cursor) == [number]


def test_reading_past_a_rotation_in_progress_loses_nothing(reader_of) -> None:
    lab = Lab()
    lab.append(b"0", b"1")
    stream = iter(reader_of(lab).read())
    seen = [int(next(stream).payload)]
    lab.append(b"2", b"3")
    lab.log.rotate()
    lab.append(b"4")
    assert seen + numbers(stream) == [0, 1, 2, 3, 4]


def test_equal_times_of_foreign_logs_are_all_given() -> None:
    lab = Lab()
    data = PLAIN_HEADER + b"".join(frame.encode(time, b"%d" % n) for n, time in enumerate([5, 7, 7, 7, 6, 9]))
    lab.disk.write(f"{FOLDER}/000000001.log", data)
    reader = outside(lab)
    assert numbers(reader.read()) == [0, 1, 2, 3, 4, 5]
    assert numbers(reader.read(since=7)) == [1, 2, 3, 4, 5]
    assert numbers(reader.read(after=7)) == [5]


PLAIN_HEADER = b"lmlg\0\0\0\1"


def test_readers_see_under_always_only_what_is_synced() -> None:
    lab = Lab()
    lab.append(b"a")
    seen_at_sync: list[list[bytes]] = []
    lab.files.before = lambda call, path: seen_at_sync.append(lab.payloads()) if call == "sync" else None
    lab.log._waiters.add(ThreadWaiter(lab.log.position + 1000, Level.WRITTEN, follows=False))  # progress is published
    lab.append(b"b")
    lab.files.before = lambda call, path: None
    assert seen_at_sync[0] == [b"a"]
    assert lab.payloads() == [b"a", b"b"]


class TestFollow:
    def test_a_follower_is_woken_by_the_writer(self, tmp_path) -> None:
        seen: list[bytes] = []
        with Log.open(str(tmp_path)) as log:

            def follow() -> None:
                for record in log.reader.read().follow(timeout=20):
                    seen.append(record.payload)
                    if record.payload == b"last":
                        return

            thread = threading.Thread(target=follow)
            thread.start()
            for number in range(50):
                log.append(b"%d" % number, until=Level.SYNCED)
            log.append(b"last", until=Level.SYNCED)
            thread.join()
        assert seen == [b"%d" % number for number in range(50)] + [b"last"]

    def test_a_follower_ends_when_nothing_came_for_its_time(self, reader_of) -> None:
        lab, _ = filled(3)
        assert numbers(reader_of(lab).read().follow(timeout=0.05)) == [0, 1, 2]

    def test_a_follower_is_told_that_the_log_was_closed(self) -> None:
        lab, _ = filled(3)
        follower = lab.log.reader.read().follow()
        assert numbers(next(follower) for _ in range(3)) == [0, 1, 2]
        lab.log.close()
        with pytest.raises(LogClosed):
            next(follower)

    def test_a_follower_in_another_process_is_woken_by_the_change_of_files(self) -> None:
        lab, _ = filled(3)
        seen: list[int] = []

        def follow() -> None:
            for record in outside(lab).read().follow(timeout=20):
                seen.append(int(record.payload))
                if seen[-1] == 30:
                    return

        thread = threading.Thread(target=follow)
        thread.start()
        for number in range(3, 31):
            lab.append(b"%d" % number)
        thread.join()
        assert seen == list(range(31))


class TestFilesChangeUnderAReader:
    def drop(self, lab: Lab, place: int, unwanted: set[int]) -> None:
        name = lab.log.reader.segments()[place]
        rewrite.drop_records(lab.files, FOLDER, name, lab.family, lambda time_ns, payload: int(payload) not in unwanted)

    def test_a_rewrite_ahead_of_a_reader_gives_what_was_kept(self, reader_of) -> None:
        lab, _ = filled()
        cursor = reader_of(lab).read()
        first = int(next(iter(cursor)).payload)
        inside = [int(record.payload) for record in lab.log.reader.read() if record.file == lab.names()[2]]
        unwanted = {inside[0], inside[-1]}
        self.drop(lab, 2, unwanted)
        rest = numbers(cursor)
        assert [first, *rest] == [number for number in range(40) if number not in unwanted]

    def test_a_rewrite_of_the_very_file_does_not_repeat_or_lose(self, reader_of) -> None:
        lab, _ = filled()
        cursor = reader_of(lab).read()
        stream = iter(cursor)
        seen = [int(next(stream).payload) for _ in range(2)]
        stream.close()
        self.drop(lab, 0, {0, 1})
        assert seen + numbers(cursor) == list(range(40))

    def test_a_rewritten_file_in_which_another_record_stands_at_the_same_byte_is_read_from_the_right_one(
        self, reader_of
    ) -> None:
        lab = Lab()
        lab.append(*[b"%d" % number for number in range(9)])
        lab.log.rotate()
        cursor = reader_of(lab).read()
        stream = iter(cursor)
        seen = [int(next(stream).payload) for _ in range(2)]
        stream.close()
        self.drop(lab, 0, {0})
        assert seen + numbers(cursor) == list(range(9))

    def test_a_read_in_progress_keeps_the_old_content_of_a_removed_file(self) -> None:
        lab, _ = filled()
        stream = iter(outside(lab).read())
        seen = [int(next(stream).payload)]
        rewrite.remove(lab.files, FOLDER, lab.names()[:1])
        assert seen + numbers(stream) == list(range(40))

    def test_a_cleaned_away_file_in_the_middle_is_no_gap(self, reader_of) -> None:
        lab, _ = filled()
        name = lab.names()[2]
        inside = {int(record.payload) for record in lab.log.reader.read() if record.file == name}
        self.drop(lab, 2, inside)
        assert name not in lab.names()
        assert numbers(reader_of(lab).read()) == [number for number in range(40) if number not in inside]

    def test_a_resuming_reader_overtaken_by_retention_gets_a_gap(self, reader_of) -> None:
        lab, positions = filled()
        removed = lab.names()[:3]
        gone = [record.time_ns for record in lab.log.reader.read() if record.file in removed]
        rewrite.remove(lab.files, FOLDER, removed)
        with pytest.raises(Gap) as caught:
            list(reader_of(lab).read(after=positions[1]))
        assert (caught.value.after, caught.value.until) == (positions[1], gone[-1])
        rest = numbers(reader_of(lab).read(after=caught.value.until))
        assert rest == list(range(len(gone), 40))

    def test_a_reader_that_had_read_all_that_was_removed_has_no_gap(self, reader_of) -> None:
        lab, _ = filled()
        removed = lab.names()[:3]
        gone = [record.time_ns for record in lab.log.reader.read() if record.file in removed]
        rewrite.remove(lab.files, FOLDER, removed)
        assert numbers(reader_of(lab).read(after=gone[-1])) == list(range(len(gone), 40))

    def test_a_cursor_overtaken_between_two_reads_gets_a_gap(self, reader_of) -> None:
        lab, _ = filled()
        cursor = reader_of(lab).read()
        next(iter(cursor))
        rewrite.remove(lab.files, FOLDER, lab.names()[:3])
        with pytest.raises(Gap):
            list(cursor)

    def test_as_of_a_time_that_was_removed_starts_at_what_is_left(self, reader_of) -> None:
        lab, positions = filled()
        rewrite.remove(lab.files, FOLDER, lab.names()[:3])
        assert numbers(reader_of(lab).read(since=positions[1]))[-1] == 39

    def test_nothing_is_read_past_a_write_that_was_cut_back(self) -> None:
        lab = Lab(sync=OS)
        lab.append(b"1")
        cursor = outside(lab).read()
        assert numbers(cursor) == [1]
        lab.newest.extend(PLAIN_HEADER + b"garbage of a failing write")
        assert numbers(cursor) == []
        del lab.newest[-len(PLAIN_HEADER) - 26 :]
        lab.append(b"2")
        assert numbers(cursor) == [2]

    def test_a_cut_back_file_that_has_grown_again_is_read_on_by_time(self) -> None:
        lab = Lab(sync=OS)
        lab.append(b"1")
        cursor = outside(lab).read()
        phantom = b"".join(frame.encode(lab.clock.now_ns() + 50 + n, b"%d" % (70 + n)) for n in range(3))
        size = len(lab.newest)
        lab.newest.extend(phantom)  # a call that is about to fail, seen from another process
        assert numbers(cursor) == [1, 70, 71, 72]
        del lab.newest[size:]
        lab.clock.advance(1)
        lab.append(b"2", b"3", b"4", b"5", b"6")
        assert numbers(cursor) == [2, 3, 4, 5, 6]

    def test_nothing_is_shown_of_a_new_file_whose_records_are_not_safe_yet(self) -> None:
        lab = Lab(segment_bytes=64)
        lab.append(b"1" * 60)
        seen: list[list[bytes]] = []
        lab.files.before = lambda call, path: seen.append(lab.payloads()) if call == "sync" and "002" in path else None
        lab.append(b"2" * 60)
        lab.files.before = lambda call, path: None
        assert seen == [[b"1" * 60]]

    def test_a_gap_stays_where_it_is_and_leaks_no_handle(self) -> None:
        lab, positions = filled()
        rewrite.remove(lab.files, FOLDER, lab.names()[:3])
        cursor = outside(lab).read(after=positions[1])
        for _ in range(3):
            with pytest.raises(Gap):
                list(cursor)

    def test_following_past_a_removed_end_sleeps_instead_of_spinning(self) -> None:
        lab = Lab()
        lab.append(b"1")
        lab.log.rotate()
        rewrite.remove(lab.files, FOLDER, lab.names())
        assert numbers(lab.log.reader.read().follow(timeout=0.05)) == []

    def test_following_ends_at_until(self) -> None:
        lab, positions = filled(10)
        assert numbers(lab.log.reader.read(until=positions[5]).follow(timeout=5)) == [0, 1, 2, 3, 4]


class TestDamage:
    def test_damage_in_a_sealed_file_is_told_with_its_place(self, reader_of) -> None:
        lab, _ = filled()
        record = list(lab.log.reader.read())[12]
        lab.data(record.file)[record.offset + 16] ^= 1
        lab.forget_indexes()
        seen = []
        with pytest.raises(Corruption) as caught:
            seen.extend(int(found.payload) for found in reader_of(lab).read())
        assert (caught.value.file, caught.value.offset) == (record.file, record.offset)
        with pytest.raises(Corruption):
            list(reader_of(lab).backwards())
        with pytest.raises(Corruption):
            list(reader_of(lab).batches())

    def test_a_sealed_file_cut_exactly_between_two_records_is_noticed(self, reader_of) -> None:
        lab, _ = filled()
        name = lab.names()[2]
        last = [record for record in lab.log.reader.read() if record.file == name][-1]
        del lab.data(name)[last.offset :]
        with pytest.raises(Corruption, match="ends early"):
            list(reader_of(lab).read())
        with pytest.raises(Corruption, match="ends early"):
            list(reader_of(lab).batches())
        with pytest.raises(Corruption, match="ends early"):
            list(reader_of(lab).backwards())

    def test_a_torn_tail_is_the_end_for_a_reader_without_a_writer(self) -> None:
        lab, _ = filled(3)
        lab.newest.extend(b"\x01half a record")
        assert numbers(outside(lab).read()) == [0, 1, 2]

    def test_damage_before_the_tail_of_the_newest_file_is_told(self) -> None:
        lab = Lab()
        lab.append(b"0", b"1", b"2")
        record = list(lab.log.reader.read())[1]
        lab.newest[record.offset + 16] ^= 1
        with pytest.raises(Corruption, match="once synced"):
            list(outside(lab).read())


def test_time_named_logs_are_read_the_same() -> None:
    lab = Lab(family=TIMED, format=TOPIC, segment_bytes=200)
    positions = []
    for number in range(30):
        lab.clock.advance(0.5)
        positions += lab.append(b"%d" % number)
    assert numbers(lab.log.reader.read(since=positions[17])) == list(range(17, 30))
    assert numbers(outside(lab).read(after=positions[17])) == list(range(18, 30))


def test_a_middle_file_of_a_time_named_log_of_which_nothing_is_kept_leaves_a_trace() -> None:
    lab = Lab(family=TIMED, format=TOPIC, segment_bytes=100)
    lab.append(*[b"%d" % number for number in range(20)])
    names = lab.log.reader.segments()
    for name in (names[1], names[0]):
        rewrite.drop_records(lab.files, FOLDER, name, TIMED, lambda time_ns, payload: False)
    assert lab.names(".dat") == [name.name for name in names[1:]]
    rest = numbers(lab.log.reader.read())
    assert rest == list(range(rest[0], 20))


def test_a_folder_without_a_log_reads_as_empty() -> None:
    lab = Lab()
    reader = Reader(FOLDER, files=lab.disk, family=NUMBERED)
    assert list(reader.read()) == []
    assert reader.last(5) == []


def test_a_file_of_marks_alone_is_whole_though_what_it_vouches_for_is_gone() -> None:
    """Cleaning removed the file before it. The one after it still vouches for the same records."""
    mark = PLAIN.watermark(5)
    contents = {
        f"{FOLDER}/{number:09d}.log": PLAIN.header + b"".join(kernel.encode_many(at, (data,)) for at, data in records)
        for number, records in (
            (2, [(6, mark)]),
            (3, [(7, mark), (8, b"8")]),
            (4, [(9, PLAIN.watermark(8)), (10, b"10")]),
        )
    }
    reader = Reader(FOLDER, files=MemoryFiles(contents))
    assert numbers(reader.read()) == [8, 10]
    assert numbers(reader.backwards()) == [10, 8]
    assert sum(len(batch.times) for _, batch in reader.batches()) == 5
    assert not survey(MemoryFiles(contents), FOLDER).damage

    contents[f"{FOLDER}/000000003.log"] = PLAIN.header + kernel.encode_many(7, (mark,))
    reader = Reader(FOLDER, files=MemoryFiles(contents))
    for read in (reader.read, reader.backwards, reader.batches):
        with pytest.raises(Corruption, match="records up to 8 are missing"):
            list(read())
    assert survey(MemoryFiles(contents), FOLDER).damage
