"""Promises of the compaction catalog: read back as written, replaced in one step, and nothing odd is believed.

The names follow the catalog cases (K1 to K12) as they apply to this catalog: it has a checksum and is replaced by a
rename, so there is no ``.back`` to fall back to at open; former generations are for reads as of earlier times.
"""

from __future__ import annotations

import errno
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.engines.store import catalog as catalogs
from lamina.engines.store.catalog import NAME, Catalog, Part, decode, encode, former_name
from lamina.engines.store.codec import MOST
from lamina.engines.store.storages import Storages
from lamina.errors import Corruption, DiskError, DiskFull, WrongFormat
from lamina.log import kernel
from lamina.testing import FaultyFiles, MemoryFiles, PowerLoss

FOLDER = "store"
PATH = f"{FOLDER}/{NAME}"
LOW, HIGH = bytes(16), b"\xff" * 16


def disk() -> MemoryFiles:
    files = MemoryFiles()
    files.make_folder(FOLDER)
    return files


def some_storages() -> Storages:
    storages = Storages()
    storages.cleared.update({0: LOW, 7: HIGH})
    storages.there.update({7: (HIGH, False), 9: (LOW, True)})
    return storages


def part(number: int, first: bytes, last: bytes, generation: int = 3) -> Part:
    return Part(f"pwal_compacted.{generation}.{number}", 100 + number, 0xDEADBEEF, 5, first, last, HIGH)


def place(storage: int, key: bytes = b"") -> bytes:
    return storage.to_bytes(8, "big") + key


FULL = Catalog(
    3,
    4711,
    (
        part(0, place(0), place(1, b"k")),
        part(0, place(1, b"ka"), place(9), 2),
        part(2, place(MOST), place(MOST, b"\0")),
    ),
    some_storages(),
    ("pwal_0000.01794725200506.4711", "epoch.01794725200506.4711", "pwal_9999.00000000000000.0"),
    1_794_725_200_506_000_000,
)


def sealed(lines: str) -> bytes:
    """A text with the right checksum."""
    text = lines.encode("latin-1")
    return text + b"crc %08x\n" % kernel.crc32c(text)


def lines_of(catalog: Catalog) -> list[str]:
    return encode(catalog).decode().splitlines()[:-1]


# -- the text --------------------------------------------------------------------------------------------------------


def test_the_text_is_as_documented() -> None:
    catalog = replace(FULL, parts=FULL.parts[:1], merged=FULL.merged[:1])
    first, last = "0" * 16, "0" * 15 + "1" + "6b"
    assert encode(catalog).decode().splitlines()[:-1] == [
        "lamina compaction catalog 1",
        "generation 3",
        "epoch 4711",
        "committed 1794725200506000000",
        f"part pwal_compacted.3.0 100 deadbeef 5 {first} {last} {'f' * 32}",
        f"cleared 0 {'0' * 32}",
        f"cleared 7 {'f' * 32}",
        f"storage 7 dropped {'f' * 32}",
        f"storage 9 added {'0' * 32}",
        "merged pwal_0000.01794725200506.4711",
    ]
    assert re.fullmatch(r"crc [0-9a-f]{8}", encode(catalog).decode().splitlines()[-1])


numbers = st.integers(0, MOST)
versions = st.binary(min_size=16, max_size=16)


@st.composite
def catalog_strategy(draw: st.DrawFn) -> Catalog:
    generation, epoch = draw(numbers), draw(numbers)
    places = sorted(draw(st.sets(st.binary(min_size=8, max_size=12), max_size=6)))
    if len(places) % 2:
        places.pop()
    parts = tuple(
        Part(
            catalogs.part_name(draw(st.integers(0, generation)), number),
            draw(numbers),
            draw(st.integers(0, 2**32 - 1)),
            draw(st.integers(1, MOST)),
            places[2 * number],
            places[2 * number + 1],
            draw(versions),
        )
        for number in range(len(places) // 2)
    )
    storages = Storages()
    storages.cleared.update(draw(st.dictionaries(numbers, versions, max_size=3)))
    storages.there.update(draw(st.dictionaries(numbers, st.tuples(versions, st.booleans()), max_size=3)))
    merged = draw(
        st.sets(st.tuples(st.integers(0, 9999), st.integers(0, 10**14 - 1), st.integers(0, epoch)), max_size=4)
    )
    names = tuple(f"pwal_{channel:04d}.{ms:014d}.{e}" for channel, ms, e in sorted(merged))
    return Catalog(generation, epoch, parts, storages, names, draw(numbers))


@settings(max_examples=100, deadline=None)
@given(catalog_strategy())
def test_k03_a_catalog_is_read_back_as_it_was_written(catalog: Catalog) -> None:
    assert decode(encode(catalog)) == catalog


def test_a_part_without_entries_has_no_places() -> None:
    empty = Part("pwal_compacted.1.0", 40, 7, 0, b"", b"", LOW)
    full = Part("pwal_compacted.1.1", 40, 7, 1, place(1), place(1), LOW)
    catalog = Catalog(1, 2, (empty, full))
    assert decode(encode(catalog)) == catalog
    assert " 0 - - " in encode(catalog).decode()


def test_k05_blank_lines_are_passed_over() -> None:
    assert decode(sealed("\n".join(lines_of(FULL)).replace("epoch 4711", "\n  \nepoch 4711") + "\n")) == FULL


def test_k05_text_behind_the_checksum_is_refused() -> None:
    """Upstream accepts it; here the file is replaced whole, so nothing can be there but damage."""
    with pytest.raises(Corruption, match="behind the checksum") as caught:
        decode(encode(FULL) + b"more\n")
    assert caught.value.offset == len(encode(FULL))


BAD_LINES = {
    "nonsense 5": "unknown word",
    "crc zz": "no checksum",
    "crc": "no checksum",
    "generation 4": "second line",
    "epoch 4": "second line",
    "committed 4": "second line",
    "merged": "with 0 words",
    "merged a b": "with 2 words",
    "merged pwal_0000": "not the name of a rotated file",
    "merged epoch": "not the name of a rotated file",
    "merged ../pwal_0000.01794725200506.3": "not the name of a rotated file",
    "merged a/pwal_0000.01794725200506.3": "not the name of a rotated file",
    "merged /etc/passwd": "not the name of a rotated file",
    "merged pwal_0000.1794725200506.3": "not the name of a rotated file",
    "merged pwal_0000.01794725200506.03": "not the name of a rotated file",
    "merged pwal_00000.01794725200506.3": "not the name of a rotated file",
    "merged pwal_compacted.1.0": "not the name of a rotated file",
    "merged lamina.lock": "not the name of a rotated file",
    "merged pwal_0000.01794725200506.4711": "named twice",
    "merged pwal_0001.01794725200506.4712": "epochs that are not in the parts",
    "cleared 5": "with 1 words",
    "cleared x " + "0" * 32: "no number",
    "cleared -1 " + "0" * 32: "no number",
    "cleared +1 " + "0" * 32: "no number",
    "cleared 1.0 " + "0" * 32: "no number",
    "cleared 01 " + "0" * 32: "no number",
    "cleared 1_0 " + "0" * 32: "no number",
    f"cleared {MOST + 1} " + "0" * 32: "no number",
    "cleared " + "9" * 5000 + " " + "0" * 32: "no number",
    "cleared 5 " + "0" * 31: "no version",
    "cleared 5 " + "0" * 33: "no version",
    "cleared 5 " + "G" * 32: "no version",
    "cleared 5 " + "A" * 32: "no version",
    "cleared 7 " + "0" * 32: "cleared twice",
    "storage 5 added": "with 2 words",
    "storage 5 gone " + "0" * 32: "added or dropped",
    "storage 7 added " + "0" * 32: "named twice",
    "part": "with 0 words",
    "part pwal_compacted.3.1 1 00000000 1": "with 4 words",
    "part pwal_compacted.03.1 {}": "not the name of a part",
    "part pwal_compacted.3 {}": "not the name of a part",
    "part ../pwal_compacted.3.1 {}": "not the name of a part",
    "part x/pwal_compacted.3.1 {}": "not the name of a part",
    "part pwal_0000.01794725200506.3 {}": "not the name of a part",
    "part pwal_compacted.3.0 {}": "named twice",
    "part pwal_compacted.4.0 {}": "later generation",
}


@pytest.mark.parametrize(("line", "reason"), BAD_LINES.items(), ids=lambda text: text[:50])
def test_k06_a_line_that_cannot_be_is_refused_with_its_byte(line: str, reason: str) -> None:
    line = line.format(f"1 00000000 1 {'ff' * 9} {'ff' * 9} {'00' * 16}")
    before = "\n".join(lines_of(FULL)) + "\n"
    with pytest.raises(Corruption, match=reason) as caught:
        decode(sealed(before + line + "\n"))
    assert (caught.value.file, caught.value.offset) == (NAME, len(before))


PART_WORDS = ["pwal_compacted.3.1", "1", "00000000", "1", "ff" * 9, "ff" * 9, "00" * 16]


@pytest.mark.parametrize(
    ("place_of_word", "word", "reason"),
    [
        (1, "-1", "no number"),
        (1, "1e3", "no number"),
        (1, str(MOST + 1), "no number"),
        (2, "0000000", "no checksum"),
        (2, "0000000G", "no checksum"),
        (3, "x", "no number"),
        (3, "0", "no place"),
        (4, "-", "no place"),
        (4, "ff" * 7, "no place"),
        (4, "f" * 17, "no place"),
        (4, "zz" * 8, "no place"),
        (5, "00" * 8, "ends before it begins"),
        (5, "-", "no place"),
        (6, "00" * 15, "no version"),
    ],
)
def test_k06_a_part_that_cannot_be_is_refused(place_of_word: int, word: str, reason: str) -> None:
    words = list(PART_WORDS)
    words[place_of_word] = word
    before = "\n".join(lines_of(FULL)) + "\n"
    with pytest.raises(Corruption, match=reason) as caught:
        decode(sealed(f"{before}part {' '.join(words)}\n"))
    assert caught.value.offset == len(before)


@pytest.mark.parametrize("swap", [(0, 1), (1, 2), (0, 2)])
def test_parts_out_of_order_are_refused(swap: tuple[int, int]) -> None:
    parts = list(FULL.parts)
    parts[swap[0]], parts[swap[1]] = parts[swap[1]], parts[swap[0]]
    with pytest.raises(Corruption, match="begins before"):
        decode(encode(replace(FULL, parts=tuple(parts))))


def test_parts_that_overlap_by_one_place_are_refused() -> None:
    parts = (part(0, place(1), place(5)), part(1, place(5), place(6)))
    with pytest.raises(Corruption, match=r"pwal_compacted.3.1 begins before pwal_compacted.3.0 ends"):
        decode(encode(replace(FULL, parts=parts)))


def test_an_empty_part_hides_no_overlap() -> None:
    empty = Part("pwal_compacted.3.9", 40, 7, 0, b"", b"", LOW)
    parts = (part(0, place(1), place(5)), empty, part(1, place(5), place(6)))
    with pytest.raises(Corruption, match="begins before"):
        decode(encode(replace(FULL, parts=parts)))


@pytest.mark.parametrize("word", ["generation", "epoch", "committed"])
def test_k06_a_line_that_is_missing_is_named(word: str) -> None:
    lines = [line for line in lines_of(FULL) if not line.startswith(word)]
    with pytest.raises(Corruption, match=f"'{word}' is missing"):
        decode(sealed("\n".join(lines) + "\n"))


@pytest.mark.parametrize(
    "title", ["", "COMPACTION_CATALOG_HEADER", "lamina compaction catalog", "lamina compaction catalog 0"]
)
def test_k06_another_beginning_is_no_catalog(title: str) -> None:
    with pytest.raises(Corruption, match="not the beginning") as caught:
        decode(sealed("\n".join([title, *lines_of(FULL)[1:]]) + "\n"))
    assert caught.value.offset == 0


def test_a_later_version_is_not_read() -> None:
    with pytest.raises(WrongFormat, match="version 2 of a compaction catalog"):
        decode(b"lamina compaction catalog 2\nwhatever it is then\n")


def test_every_cut_is_noticed() -> None:
    text = encode(FULL)
    for size in range(len(text)):
        with pytest.raises(Corruption):
            decode(text[:size])


def test_every_changed_byte_is_noticed() -> None:
    text = encode(FULL)
    for at in range(len(text)):
        for change in (0x01, 0x20, 0x80):
            with pytest.raises((Corruption, WrongFormat)):
                decode(text[:at] + bytes([text[at] ^ change]) + text[at + 1 :])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    for candidate in (text, sealed("lamina compaction catalog 1\n" + text.decode("latin-1") + "\n")):
        try:
            decode(candidate)
        except (Corruption, WrongFormat) as error:
            assert 0 <= error.offset <= len(candidate)


# -- the files -------------------------------------------------------------------------------------------------------


def test_k01_a_new_folder_has_the_empty_catalog_of_generation_0() -> None:
    files = disk()
    assert catalogs.load(files, FOLDER) == Catalog()
    assert files.contents() == {}, "loading changes nothing"
    assert catalogs.begin(files, FOLDER) == Catalog()
    assert decode(files.contents()[PATH]) == Catalog()


def test_k02_beginning_again_changes_nothing() -> None:
    files = disk()
    catalogs.save(files, FOLDER, FULL)
    before = files.contents()
    assert catalogs.begin(files, FOLDER) == FULL
    assert files.contents() == before


def test_k04_a_second_generation_leaves_the_first_as_a_former_one() -> None:
    files = disk()
    catalogs.begin(files, FOLDER)
    catalogs.save(files, FOLDER, FULL)
    later = replace(FULL, generation=4, epoch=9000)
    catalogs.save(files, FOLDER, later)
    assert catalogs.load(files, FOLDER) == later
    assert catalogs.load_former(files, FOLDER, 3) == FULL
    assert catalogs.load_former(files, FOLDER, 0) == Catalog()
    assert catalogs.load_former(files, FOLDER, 2) is None


def test_replacing_within_a_generation_leaves_no_former_one() -> None:
    files = disk()
    catalogs.save(files, FOLDER, FULL)
    catalogs.save(files, FOLDER, replace(FULL, merged=()))
    catalogs.replace(files, FOLDER, replace(FULL, merged=FULL.merged[:1]))
    assert files.list(FOLDER) == [NAME]


@pytest.mark.parametrize("name", ["pwal_compacted.1.0", "pwal_compacted.0.0", former_name(0), former_name(4)])
def test_k07_a_missing_catalog_is_never_taken_for_a_new_store_where_one_was(name: str) -> None:
    files = disk()
    files.write(f"{FOLDER}/{name}", encode(Catalog()))
    before = files.contents()
    for load in (catalogs.load, catalogs.begin):
        with pytest.raises(Corruption, match=f"the catalog is missing, but {name} is there"):
            load(files, FOLDER)
    assert files.contents() == before


def test_k08_k09_a_broken_catalog_is_refused_and_the_former_one_not_taken_silently() -> None:
    files = disk()
    catalogs.save(files, FOLDER, FULL)
    catalogs.save(files, FOLDER, replace(FULL, generation=4))
    files.write(PATH, b"torn")
    before = files.contents()
    for load in (catalogs.load, catalogs.begin):
        with pytest.raises(Corruption, match="store repair"):
            load(files, FOLDER)
    assert files.contents() == before


def test_saving_over_a_broken_catalog_is_refused() -> None:
    files = disk()
    files.write(PATH, b"torn")
    with pytest.raises(Corruption):
        catalogs.save(files, FOLDER, FULL)
    assert files.contents() == {PATH: b"torn"}


def test_k10_short_writes_make_a_whole_file() -> None:
    files = FaultyFiles(disk())
    files.fail("append", error=0, taken=1, times=200)
    catalogs.save(files, FOLDER, FULL)
    assert catalogs.load(files, FOLDER) == FULL


@pytest.mark.parametrize("operation", ["create", "append", "sync", "rename", "sync_folder", "read", "open"])
@pytest.mark.parametrize("nth", [1, 2])
def test_k11_when_the_disk_fails_the_error_is_told_and_a_whole_catalog_is_there(operation: str, nth: int) -> None:
    inner = disk()
    catalogs.save(inner, FOLDER, FULL)
    files = FaultyFiles(inner)
    later = replace(FULL, generation=4)
    fault = files.fail(operation, nth=nth)
    try:
        catalogs.save(files, FOLDER, later)
    except DiskError as error:
        assert error.facts["errno"] == "EIO"
    else:
        assert not fault.struck
    assert catalogs.load(inner, FOLDER) in (FULL, later)
    assert not [name for name in inner.list(FOLDER) if name.endswith(".tmp")]


def test_k11_a_full_disk_is_told_as_such() -> None:
    files = FaultyFiles(disk())
    files.fail("append", error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        catalogs.save(files, FOLDER, FULL)
    assert catalogs.load(files, FOLDER) == Catalog()


def test_k12_storages_and_merged_names_may_be_absent() -> None:
    assert decode(sealed("lamina compaction catalog 1\ngeneration 0\nepoch 0\ncommitted 0\n")) == Catalog()


@pytest.mark.parametrize("model", ["strict", "journalled"])
def test_a_power_cut_leaves_one_of_the_two_catalogs_whole(model: str) -> None:
    files = PowerLoss(model=model)  # type: ignore[arg-type]
    files.make_folder(FOLDER)
    catalogs.begin(files, FOLDER)
    files.note(0)
    for generation in (1, 2):
        catalogs.save(files, FOLDER, replace(FULL, generation=generation, parts=(), merged=()))
        files.note(generation)
    for state in files.states():
        if not state.notes:
            continue
        found = catalogs.load(state.files, FOLDER)
        assert state.notes[-1] <= found.generation <= state.notes[-1] + 1, state.label  # type: ignore[operator]
        if found.generation:
            assert catalogs.load_former(state.files, FOLDER, found.generation - 1) is not None, state.label


# -- parts -----------------------------------------------------------------------------------------------------------


def test_parts_are_checked_to_be_there_with_their_size() -> None:
    files = disk()
    one = Catalog(1, 1, (Part("pwal_compacted.1.0", 5, 0, 1, place(1), place(1), LOW),))
    with pytest.raises(Corruption, match="is not there"):
        catalogs.check_parts(files, FOLDER, one)
    files.write(f"{FOLDER}/pwal_compacted.1.0", b"1234")
    with pytest.raises(Corruption, match="has 4 bytes, the catalog says 5"):
        catalogs.check_parts(files, FOLDER, one)
    files.write(f"{FOLDER}/pwal_compacted.1.0", b"12345")
    catalogs.check_parts(files, FOLDER, one)


@pytest.mark.parametrize(
    ("name", "epoch"),
    [
        ("pwal_0000.01794725200506.3", 3),
        ("epoch.01794725200506.18446744073709551615", MOST),
        ("pwal_0000", None),
        ("epoch", None),
        ("pwal_compacted.1.0", None),
        ("x/epoch.01794725200506.3", None),
        ("epoch.01794725200506.3\n", None),
    ],
)
def test_the_epoch_of_a_rotated_file_is_in_its_name(name: str, epoch: int | None) -> None:
    assert catalogs.rotated_epoch(name) == epoch
