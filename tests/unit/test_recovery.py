"""Promises of opening a log after a crash: torn tails, damage, leftovers, bad input."""

from __future__ import annotations

import errno

import pytest

from lab import FOLDER, Lab
from lamina.errors import Corruption, DiskError, Gap, LaminaError, WrongFormat
from lamina.log import Level, Reader, frame, rewrite
from lamina.log.formats import JOBS, PLAIN, TOPIC
from lamina.log.naming import NUMBERED
from lamina.testing import MemoryFiles


def crashed(*payloads: bytes, **options: object) -> Lab:
    """A log whose writer was killed."""
    lab = Lab(**options)
    lab.append(*payloads)
    lab.crash()
    return lab


def test_half_written_last_record_is_cut_and_kept_aside() -> None:
    lab = crashed(b"a", b"b", b"c")
    whole = bytes(lab.newest)
    torn = whole[-3:]
    del lab.newest[-3:]
    lab.log = lab.open()
    assert lab.payloads() == [b"a", b"b"]
    (tail,) = lab.log.report.torn
    assert tail.file == "000000001.log"
    assert tail.offset + tail.bytes == len(whole) - 3
    assert bytes(lab.data(tail.kept_as)) == whole[tail.offset : -len(torn)]
    assert len(lab.data("000000001.log")) == tail.offset


def test_a_zero_filled_tail_is_torn_not_damage() -> None:
    lab = crashed(b"a", b"b")
    lab.newest.extend(bytes(4096))
    lab.log = lab.open()
    assert lab.payloads() == [b"a", b"b"]
    assert lab.log.report.torn[0].bytes == 4096


def test_records_appended_after_a_torn_tail_are_all_there_at_the_next_open() -> None:
    lab = crashed(b"a", b"b")
    lab.newest.extend(b"\x01garbage")
    lab.log = lab.open()
    lab.append(b"c")
    lab.restart()
    assert lab.payloads() == [b"a", b"b", b"c"]
    assert lab.log.report.torn == []


def test_missing_first_sectors_of_a_batch_lose_nothing_before_it() -> None:
    lab = crashed(b"a", b"b")
    batch = bytes(lab.newest)
    lab.newest.extend(bytes(512) + batch[8:])
    lab.log = lab.open()
    assert lab.payloads() == [b"a", b"b"]


@pytest.mark.parametrize("size", range(9))
def test_a_new_file_that_never_got_past_its_header_is_taken_away(size: int) -> None:
    lab = crashed(b"a")
    lab.disk.write(f"{FOLDER}/000000002.log", PLAIN.header[:size])
    lab.log = lab.open()
    lab.append(b"b")
    assert lab.payloads() == [b"a", b"b"]
    assert lab.names() == ["000000001.log", "000000002.log"]


def test_what_recovery_kept_is_synced_before_it_is_served() -> None:
    lab = crashed(b"a")
    lab.newest.extend(b"\x01torn")
    lab.files.calls.clear()
    lab.log = lab.open()
    calls = [call for call, path in lab.files.calls if path.endswith("001.log")]
    assert calls.index("truncate") < calls.index("sync")
    assert ("sync_folder", FOLDER) in lab.files.calls


def test_a_cut_is_kept_aside_and_synced_before_anything_is_cut() -> None:
    lab = crashed(b"a")
    lab.newest.extend(b"\x01torn")
    lab.files.calls.clear()
    lab.log = lab.open()
    order = [(call, "torn" in path) for call, path in lab.files.calls]
    assert order.index(("sync", True)) < order.index(("sync_folder", False)) < order.index(("truncate", False))


def test_a_flipped_bit_that_a_later_watermark_vouches_for_is_damage() -> None:
    lab = crashed(b"a", b"b", b"c", b"d")
    record = list(Reader(FOLDER, files=lab.disk).read())[1]
    before = {**lab.disk.contents()}
    lab.newest[record.offset + 16] ^= 1
    damaged = lab.disk.contents()
    with pytest.raises(Corruption, match="once synced") as caught:
        lab.open()
    assert (caught.value.file, caught.value.offset) == ("000000001.log", record.offset)
    assert "verify" in caught.value.hint
    assert lab.disk.contents() == damaged != before, "a refusal must change nothing"


@pytest.mark.parametrize("format", [PLAIN, JOBS, TOPIC], ids=lambda each: each.name)
def test_after_an_orderly_stop_every_flipped_bit_of_a_record_is_reported(format) -> None:
    lab = Lab(format=format)
    lab.append(b"one", b"two", b"three")
    records = list(lab.log.reader.read())
    lab.log.close()
    for record in records:
        for byte in range(record.offset, record.offset + 20 + len(record.payload)):
            disk = MemoryFiles(lab.disk.contents())
            disk.names[f"{FOLDER}/000000001.log"].data[byte] ^= 0x10
            with pytest.raises(Corruption):
                [*lab.open(disk).reader.read()]


def test_only_the_last_unattested_batch_can_be_taken_for_a_torn_tail() -> None:
    lab = crashed(b"a", b"b")
    last = list(Reader(FOLDER, files=lab.disk).read())[-1]
    lab.newest[last.offset + 16] ^= 1
    lab.log = lab.open()
    assert lab.payloads() == [b"a"]
    assert lab.log.report.torn[0].offset == last.offset


def test_a_payload_that_holds_a_whole_log_does_not_confuse_recovery() -> None:
    inner = Lab()
    inner.append(b"inner 1", b"inner 2")
    inner.log.close()
    shipped = bytes(inner.newest)
    lab = Lab()
    lab.clock.advance(60)
    lab.append(b"a")
    lab.append(shipped)
    lab.crash()
    del lab.newest[-10:]
    lab.log = lab.open()
    assert lab.payloads() == [b"a"]


def test_leftovers_of_half_done_replacements_are_removed_and_reported() -> None:
    lab = crashed(b"a")
    lab.disk.write(f"{FOLDER}/000000001.log.rw", b"half")
    lab.log = lab.open()
    assert lab.log.report.leftovers == ["000000001.log.rw"]
    assert "000000001.log.rw" not in lab.disk.list(FOLDER)
    assert lab.payloads() == [b"a"]


def test_foreign_files_are_left_alone_and_reported() -> None:
    lab = crashed(b"a")
    odd = ["notes.txt", "1.log", "000000001.log.bak", "\n", "000000001.LOG", "٠٠٠٠٠٠٠٠١.log"]
    for name in odd:
        lab.disk.write(f"{FOLDER}/{name}", b"mine")
    lab.log = lab.open()
    assert sorted(lab.log.report.foreign) == sorted(odd)
    assert all(lab.disk.contents()[f"{FOLDER}/{name}"] == b"mine" for name in odd)


class TestBadInput:
    """Each a LaminaError that names file and byte, and nothing is changed on disk."""

    def refused(self, lab: Lab, kind: type[LaminaError], text: str) -> None:
        before = lab.disk.contents()
        with pytest.raises(kind, match=text) as caught:
            [*lab.open().reader.read()]
        assert caught.value.hint
        assert lab.disk.contents() == before

    def test_a_file_of_another_kind(self) -> None:
        lab = crashed(b"a")
        lab.newest[:4] = b"lmto"
        self.refused(lab, WrongFormat, "000000001.log, byte 0: a topic file where a plain file was expected")

    def test_a_file_of_no_kind(self) -> None:
        lab = crashed(b"a")
        lab.newest[:4] = b"\x7fELF"
        self.refused(lab, WrongFormat, "byte 0: unknown kind of file")

    def test_a_later_version_names_both_versions(self) -> None:
        lab = crashed(b"a")
        lab.newest[7] = 2
        self.refused(lab, WrongFormat, "version 2 of a plain file, this program reads version 1")

    def test_an_absurd_size_is_damage_not_an_allocation(self) -> None:
        lab = crashed(b"a", b"b", b"c")
        record = next(iter(Reader(FOLDER, files=lab.disk).read()))
        lab.newest[record.offset + 15 : record.offset + 16] = b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"
        self.refused(lab, Corruption, "000000001.log, byte 8: the size of the record is absurd")

    def test_an_empty_file_among_others(self) -> None:
        lab = Lab(segment_bytes=64)
        lab.append(*[b"x" * 60] * 3)
        lab.crash()
        del lab.data("000000002.log")[:]
        with pytest.raises(Corruption, match=r"000000002.log, byte 0: the file is empty"):
            [*lab.open().reader.read()]

    def test_a_folder_that_cannot_be_listed(self) -> None:
        lab = crashed(b"a")
        lab.files.fail("list", error=errno.EACCES)
        with pytest.raises(DiskError, match="Permission denied"):
            lab.open()

    def test_a_refused_open_lets_the_lock_go(self) -> None:
        lab = crashed(b"a")
        lab.newest[7] = 2
        for _ in range(2):
            with pytest.raises(WrongFormat):
                lab.open()


class TestSalvage:
    def damaged(self) -> tuple[Lab, list[bytes]]:
        lab = Lab(segment_bytes=400)
        lab.append(*[b"record %d" % number for number in range(20)])
        names = lab.names()
        records = list(lab.log.reader.read())
        bad = [record for record in records if record.file == names[1]][1]
        lab.log.close()
        lab.crash()
        lab.data(bad.file)[bad.offset + 20] ^= 1
        return lab, [record.payload for record in records if record != bad]

    def test_salvage_quarantines_the_bad_range_and_only_that(self) -> None:
        lab, rest = self.damaged()
        lab.log = lab.open(salvage=True)
        assert lab.payloads() == rest
        (broken,) = [name for name in lab.disk.list(FOLDER) if ".broken-" in name]
        assert b"reco" in lab.data(broken)

    def test_the_gap_is_recorded_and_told_to_whoever_must_not_miss_anything(self) -> None:
        lab, rest = self.damaged()
        lab.log = lab.open(salvage=True)
        cursor = lab.log.reader.read()
        assert [record.payload for record in cursor] == rest
        assert len(cursor.gaps) == 1
        first = next(iter(lab.log.reader.read()))
        with pytest.raises(Gap, match="quarantined"):
            list(lab.log.reader.read(after=first.time_ns))

    def test_a_salvaged_log_opens_and_goes_on_without_salvage(self) -> None:
        lab, rest = self.damaged()
        lab.log = lab.open(salvage=True)
        lab.append(b"new")
        lab.restart()
        assert lab.payloads() == [*rest, b"new"]

    def test_a_lost_end_of_a_sealed_file_can_be_salvaged(self) -> None:
        lab = Lab(segment_bytes=400)
        lab.append(*[b"record %d" % number for number in range(20)])
        name = lab.names()[1]
        records = list(lab.log.reader.read())
        lost = [record for record in records if record.file == name][-1]
        lab.log.close()
        lab.crash()
        del lab.data(name)[lost.offset :]
        lab.log = lab.open(salvage=True)
        assert lab.payloads() == [record.payload for record in records if record != lost]

    def test_nothing_from_inside_a_damaged_payload_is_ever_served(self) -> None:
        inner = frame.encode(1_700_000_100 * 10**9, b"EMBEDDED") + frame.encode(1_700_000_101 * 10**9, b"x" * 500)[:40]
        lab = Lab()
        lab.append(b"first", inner)
        lab.log.rotate()
        lab.append(b"next")
        lab.log.close()
        for byte in range(8, len(lab.data("000000001.log"))):
            disk = MemoryFiles(lab.disk.contents())
            disk.names[f"{FOLDER}/000000001.log"].data[byte] ^= 1
            log = lab.open(disk, salvage=True)
            assert {record.payload for record in log.reader.read()} <= {b"first", inner, b"next"}

    def test_a_resuming_reader_right_at_the_gap_is_told(self) -> None:
        lab = Lab()
        positions = lab.append(b"0", b"1", b"2", b"3")
        records = list(lab.log.reader.read())
        lab.log.close()
        lab.crash()
        lab.newest[records[2].offset + 16] ^= 1
        lab.log = lab.open(salvage=True)
        with pytest.raises(Gap):
            list(lab.log.reader.read(after=positions[1]))
        with pytest.raises(Gap) as caught:  # inside the range that was taken out
            list(lab.log.reader.read(after=positions[2]))
        assert [record.payload for record in lab.log.reader.read(after=caught.value.until)] == [b"3"]
        assert list(lab.log.reader.read(after=positions[3])) == []

    def test_a_gap_is_told_wherever_it_falls_in_the_windows_of_a_read(self) -> None:
        lab = Lab()
        positions = lab.append(*[bytes([number]) * 60_000 for number in range(12)])
        records = list(lab.log.reader.read())
        lab.log.close()
        for bad in range(1, 11):
            disk = MemoryFiles(lab.disk.contents())
            disk.names[f"{FOLDER}/000000001.log"].data[records[bad].offset + 30] ^= 1
            log = lab.open(disk, salvage=True)
            with pytest.raises(Gap) as caught:
                list(log.reader.read(after=positions[bad - 1]))
            rest = [record.time_ns for record in log.reader.read(after=caught.value.until)]
            assert rest == positions[bad + 1 :]

    def test_a_flipped_size_that_points_at_a_record_does_not_hide_what_was_synced(self) -> None:
        for size in (143, 189):
            lab = crashed(*[bytes([65 + number]) * size for number in range(5)])
            records = list(Reader(FOLDER, files=lab.disk).read())
            for record in records[:-1]:
                for bit in range(8):
                    disk = MemoryFiles(lab.disk.contents())
                    disk.names[f"{FOLDER}/000000001.log"].data[record.offset + 16] ^= 1 << bit
                    with pytest.raises(Corruption):
                        [*lab.open(disk).reader.read()]

    def test_a_newest_file_of_marks_alone_does_not_set_the_position_back(self) -> None:
        lab = Lab(segment_bytes=64)
        positions = lab.append(b"a" * 60, b"b" * 60)
        lab.crash()
        lab.disk.remove(f"{FOLDER}/manifest")  # which says that the second record was synced, as its index does
        lab.forget_indexes()
        del lab.newest[-20:]
        lab.log = lab.open()
        assert lab.log.position == positions[0]
        lab.log.wait(positions[0], Level.SYNCED)  # type: ignore[arg-type]


def test_the_rewrite_of_a_file_that_fails_leaves_the_old_one() -> None:
    lab = Lab(segment_bytes=100)
    lab.append(*[b"x" * 40] * 6)
    before = lab.payloads()
    first = next(iter(lab.log.reader.read())).time_ns
    name = lab.log.reader.segments()[0]
    for operation in ("create", "append", "sync", "rename"):
        lab.files.fail(operation, error=errno.ENOSPC, only=".rw")
        with pytest.raises(LaminaError):
            rewrite.drop_records(lab.files, FOLDER, name, NUMBERED, lambda time_ns, payload: time_ns != first)
        lab.files.heal()
        assert lab.payloads() == before
        assert not [left for left in lab.disk.list(FOLDER) if left.endswith(".rw")]


def test_an_open_reads_only_the_newest_file_of_a_log_closed_in_order() -> None:
    lab = Lab(segment_bytes=2000)
    lab.append(*[b"x" * 100] * 60)
    lab.log.close()
    lab.files.calls.clear()
    lab.log = lab.open()
    read = {path for call, path in lab.files.calls if call == "read"}
    newest = f"{FOLDER}/{lab.names()[-1]}"
    assert read == {newest, newest + ".index", f"{FOLDER}/manifest"}


def test_an_open_after_a_kill_scans_only_what_was_appended_since_the_index_was_kept() -> None:
    lab = Lab(segment_bytes=8000)
    lab.append(*(bytes(300) for _ in range(10)))
    lab.newest[500] ^= 1  # a place that was synced long ago and that opening has no need to look at
    lab.restart()
    assert lab.log.report.torn == []
    with pytest.raises(Corruption) as refused:
        lab.payloads()
    assert refused.value.offset <= 500


def test_a_torn_tail_behind_a_kept_index_is_cut() -> None:
    lab = Lab(segment_bytes=8000)
    lab.append(*(b"%d" % number * 300 for number in range(8)))
    del lab.newest[-10:]
    lab.restart()
    assert [tail.file for tail in lab.log.report.torn] == ["000000001.log"]
    assert lab.payloads() == [b"%d" % number * 300 for number in range(7)]


def test_the_position_goes_on_after_a_restart() -> None:
    lab = crashed(b"a", b"b")
    lab.clock.jump(-100)
    lab.log = lab.open()
    position = lab.log.append(b"c", until=Level.SYNCED)
    times = [record.time_ns for record in lab.log.reader.read()]
    assert times == sorted(times)
    assert times[-1] == position
