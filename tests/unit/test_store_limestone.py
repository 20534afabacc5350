"""Promises of reading limestone's files one by one: snippets, entries, epochs, catalog, manifest."""

from __future__ import annotations

import errno
import struct
import tracemalloc

import pytest

from lamina.engines.store.limestone import catalog as catalogs
from lamina.engines.store.limestone import read_folder
from lamina.engines.store.limestone.entries import Entry, EntryReader, Why, size_of
from lamina.errors import Corruption, DiskError, WrongFormat
from lamina.log.files.faulty import Fault
from lamina.testing import FaultyFiles, MemoryFiles
from limestone_lab import (
    ACTIVE,
    COMPACTED,
    FOLDER,
    FOOTER,
    HEADER,
    PREVIOUS,
    ROTATED,
    about,
    begin,
    catalog,
    compacted,
    disk,
    durable,
    end,
    manifest,
    pairs,
    put,
    put_with_blobs,
    read,
    remove,
    session,
    void,
)

K1, K2, K3 = (put(b"k%d" % number, b"v%d" % number, 1) for number in (1, 2, 3))
BOTH_KINDS = pytest.mark.parametrize("name", [ACTIVE, ROTATED])


# -- entries ---------------------------------------------------------------------------------------------------------


def parsed(data: bytes, *, chunk: int = 1 << 20) -> tuple[list[Entry], EntryReader]:
    reader = EntryReader(MemoryFiles({"f": data}).open("f"), chunk=chunk)
    return list(reader), reader


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_l08_every_kind_is_read_with_all_its_fields(chunk: int) -> None:
    parts = [
        begin(7),
        put(b"key", b"value", 2, 3, storage=4),
        put(b"", b"", 0),
        remove(b"gone", 5, 6, storage=7),
        about(7, 8, 9, 10),
        about(8, 8, 9, 11),
        about(9, 8, 9, 12),
        put_with_blobs(b"b", b"v", 13, [100, 200]),
        durable(14),
        void(15),
        end(7),
    ]
    found, reader = parsed(b"".join(parts), chunk=chunk)
    assert [size_of(entry) for entry in found] == [len(part) for part in parts]
    assert [entry.kind for entry in found] == [2, 1, 1, 5, 7, 8, 9, 10, 4, 6, 3]
    assert found[1][3:] == (4, (2, 3), b"key", b"value", 0)
    assert found[3][3:] == (7, (5, 6), b"gone", b"", 0)
    assert [entry.version for entry in found[4:7]] == [(9, 10), (9, 11), (9, 12)]
    assert found[7].blobs == 2
    assert [found[at].epoch for at in (0, 8, 9, 10)] == [7, 14, 15, 7]
    assert (reader.why, reader.stop) == (Why.END, sum(map(len, parts)))


@pytest.mark.parametrize("whole", [K1, put_with_blobs(b"k", b"v", 1, [1, 2]), remove(b"k", 1), about(7, 1, 1), end(1)])
def test_an_entry_cut_anywhere_is_short(whole: bytes) -> None:
    for size in range(1, len(whole)):
        found, reader = parsed(begin(1) + whole[:size])
        assert len(found) == 1
        assert (reader.why, reader.stop, reader.kind) == (Why.SHORT, 9, whole[0])


@pytest.mark.parametrize(
    "entry",
    [
        b"\x01" + struct.pack("<IIQ", 0xFFFFFFFF, 0xFFFFFFFF, 1) + bytes(100),
        b"\x05" + struct.pack("<IQ", 0xFFFFFFFF, 1) + bytes(100),
        b"\x0a" + put(b"k", b"v", 1)[1:] + struct.pack("<I", 0xFFFFFFFF) + bytes(100),
    ],
)
def test_damaged_lengths_are_held_against_the_file_before_memory_is_taken(entry: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Corruption, match="cut short, in a session of epoch 3, which is durable") as problem:
            read({ACTIVE: begin(3) + entry}, epoch=3)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert (problem.value.file, problem.value.offset) == (ACTIVE, 9)


# -- durable and not -------------------------------------------------------------------------------------------------


def test_d01_d02_sessions_of_epochs_that_are_not_durable_are_left_out() -> None:
    found = read({ACTIVE: session(42, K1, K2) + session(43, K3)}, epoch=42)
    assert pairs(found) == {b"k1": b"v1", b"k2": b"v2"}
    assert (found.durable_epoch, found.max_epoch, found.losses) == (42, 43, [])
    (left_out,) = found.repairs
    assert left_out.startswith(f"{ACTIVE}, byte {len(session(42, K1, K2))}: the session of epoch 43 was not durable")


@BOTH_KINDS
def test_d03_a_void_session_never_comes_back_and_is_no_loss(name: str) -> None:
    void_session = void(43) + K2 + end(43)
    found = read({name: session(42, K1) + void_session + session(46, K3)}, epoch=46)
    assert pairs(found) == {b"k1": b"v1", b"k3": b"v3"}
    assert (found.repairs, found.losses) == ([], [])


def test_d04_d05_a_session_behind_the_durable_one_is_dropped_whole_or_torn() -> None:
    for tail in (put(b"k2", b"v2", 1), b"\x01\x02"):
        found = read({ACTIVE: begin(42) + K1 + begin(43) + tail}, epoch=42, version=5)
        assert (pairs(found), found.max_epoch) == ({b"k1": b"v1"}, 43)


def test_d06_a_torn_entry_in_a_durable_session_is_refused() -> None:
    with pytest.raises(Corruption, match="epoch 43, which is durable") as problem:
        read({ACTIVE: begin(42) + K1 + begin(43) + b"\x01\x02"}, epoch=43)
    assert problem.value.offset == 9 + len(K1) + 9


@pytest.mark.parametrize("byte", [0x00, 0x99, 0x0B])
def test_d07_an_unknown_byte_in_a_durable_session_is_refused(byte: int) -> None:
    with pytest.raises(Corruption, match=f"byte {byte:#04x}, which is no entry, in a session of epoch 42") as problem:
        read({ACTIVE: begin(42) + bytes([byte])}, epoch=42)
    assert problem.value.offset == 9


def test_d08_the_largest_epoch_counts_sessions_that_are_not_durable_and_void_ones() -> None:
    assert read({ACTIVE: begin(0xFF) + begin(0x101)}, epoch=0x100).max_epoch == 0x101
    assert read({ROTATED: session(0xFF) + void(0x102)}, epoch=0x100).max_epoch == 0x102
    assert read({}, epoch=5).max_epoch == 5


# -- the scanner -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epoch", "is_there"), [(0xFF, False), (0x100, True), (0x101, True)])
def test_s01_a_whole_session_counts_when_its_epoch_is_durable(epoch: int, is_there: bool) -> None:
    found = read({ACTIVE: session(0x100, K1)}, epoch=epoch)
    assert (pairs(found) == {b"k1": b"v1"}) is is_there
    assert found.max_epoch == max(0x100, epoch)


@pytest.mark.parametrize("epoch", [0xFF, 0x100, 0x101])
@pytest.mark.parametrize("unexpected", [K1, end(0x100), durable(1), remove(b"k", 1), about(7, 1, 1)])
def test_s02_a_whole_entry_where_a_begin_mark_must_be_is_refused(epoch: int, unexpected: bytes) -> None:
    with pytest.raises(Corruption, match="where none can be"):
        read({ACTIVE: session(0x100, K1) + unexpected}, epoch=epoch)
    with pytest.raises(Corruption, match="where none can be"):
        read({ACTIVE: unexpected + session(0x100, K1)}, epoch=epoch)


def test_a_durable_mark_inside_a_session_is_refused_whatever_the_session() -> None:
    for mark in (begin(1), begin(9), void(1)):
        with pytest.raises(Corruption, match="a durable mark in a session of epoch"):
            read({ACTIVE: mark + durable(1)}, epoch=5)


def test_s03_a_void_session_behind_an_end_mark_is_skipped() -> None:
    found = read({ACTIVE: session(0x100, K1) + void(0x101) + K2}, epoch=0x100)
    assert (pairs(found), found.max_epoch, found.repairs) == ({b"k1": b"v1"}, 0x101, [])


@BOTH_KINDS
@pytest.mark.parametrize("tail", [K2[:-1], b"\x01", b"\x03\x01", remove(b"k", 1)[:5], b"\x02\x01", b"\x06\x01"])
def test_s04_s24_a_torn_rest_behind_an_end_mark_is_dropped(name: str, tail: bytes) -> None:
    whole = session(3, K1)
    found = read({name: whole + tail}, epoch=3)
    assert (pairs(found), found.losses) == ({b"k1": b"v1"}, [])
    (dropped,) = found.repairs
    assert dropped.startswith(f"{name}, byte {len(whole)}: ")
    assert f"{len(tail)} bytes, was dropped" in dropped


def test_s05_s07_a_torn_end_mark_is_dropped_or_refused_with_its_session() -> None:
    torn = begin(0x100) + K1 + end(0x100)[:5]
    assert pairs(read({ACTIVE: torn}, epoch=0xFF)) == {}
    for epoch in (0x100, 0x101):
        with pytest.raises(Corruption, match="an end mark that is cut short, in a session of epoch 256"):
            read({ACTIVE: torn}, epoch=epoch)


def test_s06_the_session_with_the_torn_end_mark_stays_away_when_a_repair_made_it_void() -> None:
    torn = void(0x100) + K1 + end(0x100)[:5]
    assert pairs(read({ROTATED: torn}, epoch=0x101)) == {}


def test_s08_a_whole_session_behind_that_is_not_durable_is_left_out() -> None:
    assert pairs(read({ACTIVE: session(0x100, K1) + session(0x101, K2)}, epoch=0x100)) == {b"k1": b"v1"}


@BOTH_KINDS
def test_s09_s10_a_file_of_zeros_holds_nothing(name: str) -> None:
    found = read({name: bytes(3_000_000)}, epoch=3)
    assert (pairs(found), found.losses) == ({}, [])
    assert found.repairs == [f"{name}, byte 0: zeros: the rest, 3000000 bytes, was dropped"]


@pytest.mark.parametrize("tail", [bytes(50), K1[:7]])
def test_s11_s12_zeros_and_torn_entries_in_a_session_that_is_not_durable_are_dropped(tail: bytes) -> None:
    found = read({ACTIVE: begin(0xFF) + begin(0x101) + tail}, epoch=0x100, version=5)
    assert (pairs(found), found.max_epoch, len(found.repairs)) == ({}, 0x101, 2)


def test_s13_s23_a_durable_session_without_an_end_mark_must_end_with_the_file() -> None:
    for tail in (b"\x02\x01\x01", bytes(10)):
        with pytest.raises(Corruption, match="epoch 255, which is durable"):
            read({ACTIVE: begin(0xFF) + K1 + tail}, epoch=0x100, version=5)


def test_s14_a_torn_entry_in_a_void_session_is_dropped() -> None:
    found = read({ROTATED: begin(0xFF) + void(0x101) + K1[:9]}, epoch=0x100, version=5)
    assert (pairs(found), len(found.repairs)) == ({}, 1)


def test_s15_a_torn_void_begin_mark_is_ignored_even_in_a_durable_session() -> None:
    found = read({ACTIVE: begin(0xFF) + K1 + void(9)[:4]}, epoch=0x100, version=5)
    assert (pairs(found), len(found.repairs)) == ({b"k1": b"v1"}, 1)


def test_s16_s17_sessions_without_end_marks_follow_each_other() -> None:
    first, second, third = begin(0xF0) + K1, begin(0xF1) + K2, begin(0x100) + K3
    found = read({ROTATED: first + second + third}, epoch=0x100)
    assert (len(found.entries), found.losses) == (3, [])
    found = read({ROTATED: first + b"\x06" + second[1:] + third}, epoch=0x100)
    assert (pairs(found), found.losses) == ({b"k1": b"v1", b"k3": b"v3"}, [])


def test_a_durable_session_behind_a_damaged_begin_mark_is_not_dropped_with_the_rest() -> None:
    first, second = session(1, K1), session(2, K2)
    for spoilt in (b"\x99" + second[1:], bytes(1) + second[1:]):
        with pytest.raises(Corruption, match="a session of epoch 2, which is durable") as problem:
            read({ROTATED: first + spoilt}, epoch=2)
        assert problem.value.offset == len(first)
        with pytest.raises(Corruption, match="which is durable"):
            read({ROTATED: first + spoilt + session(3, K3)}, epoch=3)
    found = read({ROTATED: first + b"\x99" + second[1:]}, epoch=1)
    assert (pairs(found), len(found.repairs)) == ({b"k1": b"v1"}, 1)


def test_a_durable_session_behind_damage_in_a_void_one_is_not_dropped_with_it() -> None:
    broken = void(2) + b"\x01" + struct.pack("<IIQ", 0xFFFFFFF, 1, 1) + K2[17:] + end(2)
    with pytest.raises(Corruption, match="a session of epoch 3, which is durable"):
        read({ROTATED: session(1, K1) + broken + session(3, K3)}, epoch=3)
    with pytest.raises(Corruption, match="a session of epoch 3, which is durable"):
        read({ROTATED: begin(1) + K1 + broken[:-10] + begin(3) + K3 + K2}, epoch=3, version=5)
    assert pairs(read({ROTATED: session(1, K1) + broken}, epoch=3)) == {b"k1": b"v1"}


def test_bytes_in_a_torn_value_that_look_like_marks_refuse_nothing() -> None:
    value = b"..." + begin(3) + b"\x01 and " + end(3) + b" and more" + bytes(90)
    found = read({ROTATED: session(1, K1) + void(2) + put(b"k", value, 2)[:-9]}, epoch=3)
    assert (pairs(found), len(found.repairs)) == ({b"k1": b"v1"}, 1)


def test_a_durable_session_that_lost_its_end_mark_is_told() -> None:
    cut = session(1, K1) + begin(2) + K2
    for name, data in ((ROTATED, cut), (ACTIVE, begin(2) + K2), (ACTIVE, begin(2) + K2 + session(3))):
        found = read({name: data}, epoch=3)
        assert found.entries.entries[1, b"k2"].value == b"v2"
        (loss,) = found.losses
        assert "the session of epoch 2, which is durable, has no end mark" in loss
    assert read({ROTATED: begin(2) + K2}, epoch=3).losses == []
    assert read({ACTIVE: begin(2) + K2}, epoch=3, version=5).losses == []


# -- epoch file ------------------------------------------------------------------------------------------------------


def epoch_of(contents: dict[str, bytes]) -> int:
    files = disk(contents)
    if "epoch" not in contents:
        files.remove(f"{FOLDER}/epoch")
    return read_folder(files, FOLDER).durable_epoch


def test_e15_to_e20_rotated_epoch_files_count_when_the_main_one_has_no_mark() -> None:
    rotated = {"epoch.01794725200499.2": durable(1, 2), "epoch.01794725200507.3": durable(3)}
    assert epoch_of({"epoch": b""}) == 0
    assert epoch_of({}) == 0
    assert epoch_of({"epoch": durable(2)}) == 2
    assert epoch_of({"epoch": b"", **rotated}) == 3
    assert epoch_of({"epoch": durable(9)[:3], **rotated}) == 3
    assert epoch_of(rotated) == 3
    assert epoch_of({"epoch": durable(2), **rotated}) == 2


def test_e23_the_temporary_epoch_file_is_not_read() -> None:
    assert epoch_of({"epoch": durable(2), ".epoch.tmp": b"junk", "epoch.old": b"junk"}) == 2


def test_e24_the_largest_mark_counts_not_the_last() -> None:
    assert epoch_of({"epoch": durable(1, 42, 7)}) == 42


@pytest.mark.parametrize("size", range(1, 9))
def test_e25_a_mark_that_is_cut_short_is_ignored_and_told(size: int) -> None:
    found = read({"epoch": durable(5) + durable(6)[:size]})
    assert found.durable_epoch == 5
    assert found.repairs == ["epoch, byte 9: a durable mark that is cut short was ignored"]


@pytest.mark.parametrize("wrong", [bytes(9), bytes(2), b"\x00", K1, K1[:4], begin(3), end(3)])
def test_e26_anything_but_durable_marks_is_refused(wrong: bytes) -> None:
    for before in (b"", durable(1)):
        with pytest.raises(Corruption, match="where a durable mark must be") as problem:
            read({"epoch": before + wrong})
        assert (problem.value.file, problem.value.offset) == ("epoch", len(before))


def test_without_any_epoch_file_sessions_that_are_left_out_are_told_as_a_loss() -> None:
    files = disk({ACTIVE: session(1, K1) + session(2, K2)})
    files.remove(f"{FOLDER}/epoch")
    found = read_folder(files, FOLDER)
    assert (len(found.entries), found.max_epoch) == (0, 2)
    assert found.losses == ["epoch, byte 0: it is missing: no session is known to be durable, and 2 were left out"]
    assert read({ACTIVE: session(1, K1)}, epoch=b"").losses == []


# -- catalog ---------------------------------------------------------------------------------------------------------


def test_k03_all_that_a_catalog_says_is_read() -> None:
    lines = [HEADER, "COMPACTED_FILE a 1", "COMPACTED_FILE b 2", "DETACHED_PWAL x", "DETACHED_PWAL y", "MAX_EPOCH_ID 7"]
    found = catalogs.parse("\n".join([*lines, "MAX_BLOB_ID 18446744073709551615", FOOTER]).encode())
    assert found == catalogs.Catalog(7, (1 << 64) - 1, (("a", 1), ("b", 2)), frozenset("xy"))


def test_k05_k12_blank_lines_text_behind_the_footer_and_no_blob_id_are_accepted() -> None:
    text = f"{HEADER}\n\n \t \n  MAX_EPOCH_ID \t 3\n{FOOTER}\nanything\n"
    assert catalogs.parse(text.encode()) == catalogs.Catalog(max_epoch=3, max_blob=0)


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ([HEADER, "MAX_EPOCH_ID 1"], "no last line"),
        ([HEADER, "MAX_EPOCH_ID 1", FOOTER[:-1]], "line 3"),
        ([HEADER, FOOTER], "without MAX_EPOCH_ID"),
        ([" " + HEADER, "MAX_EPOCH_ID 1", FOOTER], "line 1"),
        (["", HEADER, "MAX_EPOCH_ID 1", FOOTER], "line 1"),
        ([HEADER, "GENERATION 1", "MAX_EPOCH_ID 1", FOOTER], "line 2: 'GENERATION 1'"),
        ([HEADER, "COMPACTED_FILE a", "MAX_EPOCH_ID 1", FOOTER], "line 2"),
        ([HEADER, "COMPACTED_FILE a b", "MAX_EPOCH_ID 1", FOOTER], "line 2"),
        ([HEADER, "COMPACTED_FILE ../a 1", "MAX_EPOCH_ID 1", FOOTER], "line 2"),
        ([HEADER, "MAX_EPOCH_ID 1", "DETACHED_PWAL", FOOTER], "line 3"),
        ([HEADER, "MAX_EPOCH_ID", FOOTER], "line 2"),
        ([HEADER, "MAX_EPOCH_ID x", FOOTER], "line 2"),
        ([HEADER, "MAX_EPOCH_ID -1", FOOTER], "line 2"),
        ([HEADER, "MAX_EPOCH_ID 18446744073709551616", FOOTER], "line 2"),
    ],
)
def test_k06_a_catalog_that_is_wrong_is_refused_with_the_line(lines: list[str], line: str) -> None:
    with pytest.raises(Corruption, match=line) as problem:
        read({"compaction_catalog": "\n".join(lines).encode()})
    assert problem.value.file == "compaction_catalog"


BASE = {COMPACTED: compacted((b"a", b"1"), (b"b", b"2")), ROTATED: session(1, put(b"old", b"", 1))}
GOOD = catalog(2, detached=(ROTATED,), is_compacted=True)


def test_k07_without_the_catalog_its_copy_counts() -> None:
    found = read({**BASE, "compaction_catalog.back": GOOD}, epoch=2)
    assert pairs(found) == {b"a": b"1", b"b": b"2"}
    assert found.repairs == ["compaction_catalog, byte 0: it is missing: compaction_catalog.back was used"]


@pytest.mark.parametrize("torn", [b"", GOOD[:40], GOOD[:-2]])
def test_k08_with_a_torn_catalog_its_copy_counts(torn: bytes) -> None:
    found = read({**BASE, "compaction_catalog": torn, "compaction_catalog.back": GOOD}, epoch=2)
    assert pairs(found) == {b"a": b"1", b"b": b"2"}
    assert "compaction_catalog.back was used" in found.repairs[0]


def test_k09_when_neither_can_be_used_the_folder_is_refused() -> None:
    with pytest.raises(Corruption) as problem:
        read({**BASE, "compaction_catalog": GOOD[:40], "compaction_catalog.back": GOOD[:50]}, epoch=2)
    assert problem.value.file == "compaction_catalog"
    with pytest.raises(Corruption):
        read({**BASE, "compaction_catalog.back": GOOD[:50]}, epoch=2)
    with pytest.raises(Corruption):
        read({**BASE, "compaction_catalog": GOOD[:50]}, epoch=2)


@pytest.mark.parametrize("name", [COMPACTED, PREVIOUS])
def test_a_missing_catalog_is_not_taken_for_an_empty_one_beside_a_compacted_file(name: str) -> None:
    files = disk({name: BASE[COMPACTED]})
    files.remove(f"{FOLDER}/compaction_catalog")
    with pytest.raises(Corruption, match="it is missing, and there is a compacted file"):
        read_folder(files, FOLDER)


def test_k01_a_missing_catalog_is_empty_when_nothing_was_compacted() -> None:
    for version, notes in ((1, 0), (7, 1)):
        files = disk({ROTATED: session(1, K1)}, epoch=1, version=version)
        files.remove(f"{FOLDER}/compaction_catalog")
        found = read_folder(files, FOLDER)
        assert (pairs(found), len(found.repairs)) == ({b"k1": b"v1"}, notes)


# -- manifest --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 8))
def test_c33_known_versions_are_read(version: int) -> None:
    assert read({ROTATED: session(1, K1)}, epoch=1, version=version).format_version == version


@pytest.mark.parametrize("data", [manifest(8), manifest(0), manifest(-1), manifest(7, "2.0")])
def test_c33_other_versions_are_refused(data: bytes) -> None:
    with pytest.raises(WrongFormat, match="is not one of 1 to 7"):
        read({"limestone-manifest.json": data})


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b"{}", manifest("true"), manifest('"7"'), b"[" * 100_000])
def test_c33_a_broken_manifest_is_refused_unless_its_copy_is_good(data: bytes) -> None:
    with pytest.raises(Corruption) as problem:
        read({"limestone-manifest.json": data})
    assert problem.value.file == "limestone-manifest.json"
    with pytest.raises(Corruption):
        read({"limestone-manifest.json": data, "limestone-manifest.json.back": b"{"})
    found = read({"limestone-manifest.json": data, "limestone-manifest.json.back": manifest(6)})
    assert found.format_version == 6
    assert "limestone-manifest.json.back was used" in found.repairs[0]


def test_c33_s20_a_folder_without_a_manifest_is_refused() -> None:
    files = disk({ACTIVE: session(1, K1)}, epoch=1)
    files.remove(f"{FOLDER}/limestone-manifest.json")
    with pytest.raises(WrongFormat, match="is no folder of limestone"):
        read_folder(files, FOLDER)
    files = disk({"limestone-manifest.json.back": manifest()}, epoch=1)
    files.remove(f"{FOLDER}/limestone-manifest.json")
    assert read_folder(files, FOLDER).format_version == 7
    with pytest.raises(DiskError, match="cannot list the folder"):
        read_folder(MemoryFiles(), "nowhere")


# -- the disk --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["open", "read"])
@pytest.mark.parametrize("name", ["limestone-manifest.json", "epoch", "compaction_catalog", COMPACTED, ROTATED, ACTIVE])
def test_a_failing_disk_is_told_with_the_file(operation: str, name: str) -> None:
    inner = disk({**BASE, ACTIVE: session(3, K1), "compaction_catalog": GOOD}, epoch=3)
    files = FaultyFiles(inner)
    files.faults.append(Fault(operation, error=errno.EIO, only=f"{FOLDER}/{name}"))
    with pytest.raises(DiskError, match=name):
        read_folder(files, FOLDER)
