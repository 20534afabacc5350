"""Promises of sorted files: what was written is found, in order, and damage is never taken for an entry."""

from __future__ import annotations

import errno
import struct
import threading
from bisect import bisect_left

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.engines.store import codec
from lamina.engines.store.catalog import Part
from lamina.engines.store.sorted_file import BLOCK, SortedFile, SortedWriter
from lamina.errors import Corruption, DiskError, DiskFull, WrongFormat
from lamina.log import kernel
from lamina.log.scan import HEADER_SIZE
from lamina.testing import FaultyFiles, MemoryFiles

FOLDER = "store"
NAME = "pwal_compacted.1.0"
PATH = f"{FOLDER}/{NAME}"
TAIL_SIZE = 20 + 37


def disk() -> MemoryFiles:
    files = MemoryFiles()
    files.make_folder(FOLDER)
    return files


def entry(number: int, value: bytes = b"value", *, storage: int = 7, minor: int = 0) -> tuple[bytes, bytes]:
    key = b"key %06d" % number
    payload = codec.put(storage, key, value, number, minor)
    return codec.place(storage, key), codec.item(1_700_000_000_000_000_000 + number, payload)


def write(files: MemoryFiles, pairs: list[tuple[bytes, bytes]], path: str = PATH) -> Part:
    writer = SortedWriter(files, path, generation=1)
    writer.add_many([place for place, _ in pairs], [item for _, item in pairs])
    return writer.finish()


def many(count: int = 600, size: int = 300) -> list[tuple[bytes, bytes]]:
    return [entry(number * 2, bytes([number % 251]) * size) for number in range(count)]


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.integers(0, 3), st.binary(max_size=6)),
        st.tuples(st.binary(max_size=9000), st.integers(0, 3), st.integers(0, codec.MOST), st.booleans()),
        max_size=40,
    ),
    st.binary(max_size=10),
    st.one_of(st.none(), st.binary(max_size=10)),
)
def test_all_that_was_written_is_found_and_walked_in_order(
    written: dict[tuple[int, bytes], tuple[bytes, int, int, bool]], start: bytes, end: bytes | None
) -> None:
    model: dict[bytes, bytes] = {}
    for (storage, key), (value, major, minor, is_put) in written.items():
        payload = codec.put(storage, key, value, major, minor) if is_put else codec.remove(storage, key, major, minor)
        model[codec.place(storage, key)] = codec.item(len(model), payload)
    pairs = sorted(model.items())
    files = disk()
    part = write(files, pairs)
    file = SortedFile.open(files, FOLDER, NAME, part)
    assert list(file.walk()) == pairs
    inside = [(place, item) for place, item in pairs if place >= start and (end is None or place < end)]
    assert list(file.walk(start, end)) == inside
    assert {place: file.find(place) for place in model} == model
    assert file.find(start) == model.get(start)
    assert (file.entries, file.first, file.last) == (
        len(pairs),
        *((pairs[0][0], pairs[-1][0]) if pairs else (b"", b"")),
    )
    assert file.highest == max((codec.version_of(item) for item in model.values()), default=codec.OLDEST)
    file.close()


def test_the_facts_are_those_of_the_file() -> None:
    files = disk()
    pairs = many()
    part = write(files, pairs)
    content = files.contents()[PATH]
    assert (part.name, part.bytes, part.crc) == (NAME, len(content), kernel.crc32c(content))
    assert (part.first, part.last, part.entries) == (pairs[0][0], pairs[-1][0], len(pairs))
    assert part.highest == codec.version_of(pairs[-1][1])


def test_a_search_reads_one_block_and_keeps_it() -> None:
    disk_below = disk()
    pairs = many()
    write(disk_below, pairs)
    files = FaultyFiles(disk_below)
    file = SortedFile.open(files, FOLDER, NAME)
    files.calls.clear()
    for place, item in pairs[:40]:
        assert file.find(place) == item
        assert file.find(place + b"?") is None
    assert [operation for operation, _ in files.calls] == ["read"]
    content = disk_below.contents()[PATH]
    assert len(content) > 5 * BLOCK


def test_a_range_reads_only_its_blocks() -> None:
    disk_below = disk()
    pairs = many(4000)
    write(disk_below, pairs)
    read = 0

    file = SortedFile.open(disk_below, FOLDER, NAME)
    inner = file._file.read_into

    def counted(buffer: memoryview, offset: int) -> int:
        nonlocal read
        read += len(buffer)
        return inner(buffer, offset)

    file._file.read_into = counted  # type: ignore[method-assign]
    assert list(file.walk(pairs[2000][0], pairs[2010][0])) == pairs[2000:2010]
    assert read <= 2 * (BLOCK + 1000)


@pytest.mark.parametrize("wrong", [[0, 0], [1, 0]])
def test_places_have_to_rise(wrong: list[int]) -> None:
    files = disk()
    writer = SortedWriter(files, PATH)
    with pytest.raises(ValueError, match="rise"):
        for number in wrong:
            writer.add(*entry(number))
    with pytest.raises(ValueError, match="rise"):
        writer.add_many([entry(3)[0]] * 2, [entry(3)[1]] * 2)
    writer.abandon()
    assert not files.contents()


def test_a_file_without_entries_can_be() -> None:
    files = disk()
    part = write(files, [])
    file = SortedFile.open(files, FOLDER, NAME, part)
    assert (list(file.walk()), file.find(entry(1)[0]), file.entries) == ([], None, 0)


def test_a_part_ends_where_it_shall() -> None:
    files = disk()
    writer = SortedWriter(files, PATH)
    pairs = many(100)
    places, items = [place for place, _ in pairs], [item for _, item in pairs]
    taken = writer.add_many(places, items, 5000)
    assert 5000 <= writer.bytes < 5400
    assert writer.add_many(places[taken:], items[taken:], 5000) == 0
    assert writer.finish().entries == taken


def test_it_stays_readable_after_it_was_removed() -> None:
    files = disk()
    pairs = many()
    write(files, pairs)
    file = SortedFile.open(files, FOLDER, NAME)
    files.remove(PATH)
    assert list(file.walk()) == pairs
    assert file.find(pairs[300][0]) == pairs[300][1]


def test_many_threads_search_at_once() -> None:
    files = disk()
    pairs = many()
    write(files, pairs)
    file = SortedFile.open(files, FOLDER, NAME)
    wrong: list[bytes] = []

    def search(step: int) -> None:
        for number in range(len(pairs)):
            place, item = pairs[number * step % len(pairs)]
            if file.find(place) != item:
                wrong.append(place)

    threads = [threading.Thread(target=search, args=(step,)) for step in (1, 7, 101, 599)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -- damage ----------------------------------------------------------------------------------------------------------


def read_all(files: MemoryFiles, pairs: list[tuple[bytes, bytes]], part: Part | None) -> None:
    """What is read is right, or an error."""
    file = SortedFile.open(files, FOLDER, NAME, part)
    assert list(file.walk()) == pairs
    for place, item in pairs:
        assert file.find(place) == item


@pytest.mark.parametrize("is_expected", [True, False])
def test_a_changed_byte_is_seen(is_expected: bool) -> None:
    files = disk()
    pairs = many(12, 40)
    part = write(files, pairs)
    whole = files.contents()[PATH]
    for at in range(len(whole)):
        files.write(PATH, whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        with pytest.raises((Corruption, WrongFormat)) as caught:
            read_all(files, pairs, part if is_expected else None)
        assert caught.value.facts["file"] == NAME


def test_a_file_cut_short_is_seen() -> None:
    files = disk()
    pairs = many(12, 40)
    write(files, pairs)
    whole = files.contents()[PATH]
    for size in range(len(whole)):
        files.write(PATH, whole[:size])
        with pytest.raises((Corruption, WrongFormat)):
            SortedFile.open(files, FOLDER, NAME)


def test_damage_in_one_block_leaves_the_others_readable() -> None:
    files = disk()
    pairs = many()
    part = write(files, pairs)
    content = bytearray(files.contents()[PATH])
    at = content.index(pairs[-1][1][8:])
    content[at + 50] ^= 1
    files.write(PATH, bytes(content))
    file = SortedFile.open(files, FOLDER, NAME, part)
    assert file.find(pairs[0][0]) == pairs[0][1]
    with pytest.raises(Corruption) as caught:
        file.find(pairs[-1][0])
    assert at - 20 <= caught.value.offset <= at
    assert "checksum" in caught.value.reason


def forged(content: bytes, entries: int, index_at: int, blocks: int) -> bytes:
    """Another tail, with a checksum that is right."""
    tail = struct.pack(">BQQI16s", codec.TAIL, entries, index_at, blocks, bytes(16))
    return content[:-TAIL_SIZE] + kernel.encode_many(0, [tail])


def test_absurd_numbers_are_refused() -> None:
    files = disk()
    write(files, many(12, 40))
    content = files.contents()[PATH]
    entries, index_at, blocks = struct.unpack(">QQI", content[-TAIL_SIZE + 17 : -TAIL_SIZE + 37])
    for wrong in (
        (1 << 60, index_at, blocks),
        (entries, 1 << 60, blocks),
        (entries, index_at, 0xFFFFFFFF),
        (entries, 0, blocks),
        (entries, index_at + 1, blocks),
        (entries, index_at, blocks + 1),
        (0, index_at, 0),
        (entries, index_at, 0),
        (entries, len(content), blocks),
    ):
        files.write(PATH, forged(content, *wrong))
        with pytest.raises(Corruption):
            SortedFile.open(files, FOLDER, NAME)
    files.write(PATH, forged(content, entries, index_at, blocks))
    SortedFile.open(files, FOLDER, NAME)


def test_an_index_out_of_order_is_refused() -> None:
    files = disk()
    pairs = many()
    write(files, pairs)
    content = files.contents()[PATH]
    _, index_at, blocks = struct.unpack(">QQI", content[-TAIL_SIZE + 17 : -TAIL_SIZE + 37])
    index = kernel.scan(content, index_at, len(content) - TAIL_SIZE)
    payload = content[index.offsets[0] : index.offsets[0] + index.lengths[0]]
    size = 12 + len(pairs[0][0])
    assert len(payload) == 5 + (blocks + 1) * size
    points = [payload[at : at + size] for at in range(5, len(payload), size)]
    for wrong in (
        [points[1], points[0], *points[2:]],
        [*points[:-1], points[0]],
        [points[0][:8] + points[1][8:], points[1][:8] + points[0][8:], *points[2:]],
        [points[0][:7] + b"\x07" + points[0][8:], *points[1:]],
    ):
        records = kernel.encode_many(0, [payload[:5] + b"".join(wrong)])
        files.write(PATH, content[:index_at] + records + content[-TAIL_SIZE:])
        with pytest.raises(Corruption, match="index"):
            SortedFile.open(files, FOLDER, NAME)


def test_another_file_than_the_catalog_says_is_refused() -> None:
    files = disk()
    part = write(files, many(12, 40))
    files.remove(PATH)
    other = [entry(number * 2, bytes(40), minor=1) for number in range(12)]
    write(files, other)
    assert len(files.contents()[PATH]) == part.bytes
    with pytest.raises(Corruption, match="not the one"):
        SortedFile.open(files, FOLDER, NAME, part)
    files.remove(PATH)
    with pytest.raises(Corruption, match="not there"):
        SortedFile.open(files, FOLDER, NAME, part)
    with pytest.raises(DiskError):
        SortedFile.open(files, FOLDER, NAME)


def test_a_log_is_no_sorted_file() -> None:
    files = disk()
    write(files, many(3))
    header = files.contents()[PATH][:HEADER_SIZE]
    files.write(PATH, header + kernel.encode_many(1, [codec.begin(1), codec.end(1, 0)] * 20))
    with pytest.raises(Corruption, match="sorted"):
        SortedFile.open(files, FOLDER, NAME)
    files.write(PATH, b"lmto" + header[4:] + bytes(200))
    with pytest.raises(WrongFormat):
        SortedFile.open(files, FOLDER, NAME)


def test_entries_that_are_none_are_refused() -> None:
    """Whole records, but not of the kind that belongs there."""
    files = disk()
    part = write(files, many(12, 40))
    content = files.contents()[PATH]
    found = kernel.scan(content, HEADER_SIZE, len(content))
    start, size = found.offsets[3], found.lengths[3]
    wrong = kernel.encode_many(found.times[3], [codec.about_storage(codec.CLEAR, 7, 1, 1).ljust(size, b"\0")])
    files.write(PATH, content[: start - 16] + wrong + content[start + size + 4 :])
    file = SortedFile.open(files, FOLDER, NAME, part)
    with pytest.raises(Corruption, match="entry"):
        list(file.walk())


# -- disks that fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, DiskFull), (errno.EIO, DiskError)])
@pytest.mark.parametrize("operation", ["create", "append", "sync"])
def test_a_disk_that_fails_leaves_nothing(operation: str, number: int, error: type[Exception]) -> None:
    below = disk()
    pairs = many(3000, 1000)
    for nth in range(1, 9):
        files = FaultyFiles(below)
        fault = files.fail(operation, nth=nth, error=number, taken=100)
        writer = None
        try:
            writer = SortedWriter(files, PATH, sync_every=1 << 20)
            writer.add_many([place for place, _ in pairs], [item for _, item in pairs])
            writer.finish()
        except error:
            assert fault.struck
        else:
            assert not fault.struck
        if writer is not None:
            writer.abandon()
        assert not below.contents()


def test_short_writes_are_gone_on_with() -> None:
    below = disk()
    pairs = many(3000, 1000)
    files = FaultyFiles(below)
    files.fail("append", nth=2, error=0, taken=1000, times=2)
    writer = SortedWriter(files, PATH)
    writer.add_many([place for place, _ in pairs], [item for _, item in pairs])
    part = writer.finish()
    file = SortedFile.open(below, FOLDER, NAME, part)
    assert list(file.walk()) == pairs


def test_a_disk_that_cannot_be_read_is_an_error() -> None:
    below = disk()
    pairs = many()
    write(below, pairs)
    files = FaultyFiles(below)
    file = SortedFile.open(files, FOLDER, NAME)
    files.fail("read", times=2)
    with pytest.raises(DiskError):
        file.find(pairs[0][0])
    with pytest.raises(DiskError):
        list(file.walk())
    assert file.find(pairs[0][0]) == pairs[0][1]


def test_the_end_of_a_range_inside_a_gap_of_places() -> None:
    files = disk()
    pairs = many()
    write(files, pairs)
    file = SortedFile.open(files, FOLDER, NAME)
    places = [place for place, _ in pairs]
    for start, end in ((b"", places[0]), (places[-1] + b"\0", None), (entry(101)[0], entry(103)[0])):
        low, high = bisect_left(places, start), len(places) if end is None else bisect_left(places, end)
        assert list(file.walk(start, end)) == pairs[low:high]
