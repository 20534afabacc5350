"""A log of three files, cut at every byte and with every single byte flipped: the right prefix or a named refusal."""

from __future__ import annotations

import pytest

from lab import FOLDER, Lab
from lamina.errors import Corruption, LaminaError, WrongFormat
from lamina.log import manifest
from lamina.log.formats import JOBS, PLAIN, TOPIC, Format
from lamina.log.naming import NUMBERED, TIMED, Family
from lamina.log.survey import survey
from lamina.testing import MemoryFiles

KINDS = [(NUMBERED, JOBS), (NUMBERED, PLAIN), (TIMED, TOPIC)]
Pair = tuple[int, bytes]


def three_files(family: Family, format: Format, *, clean: bool) -> tuple[Lab, list[Pair]]:
    lab = Lab(family=family, format=format, segment_bytes=250)
    for number in range(100):
        if len(lab.log.reader.segments()) == 3 and number % 2:
            break
        lab.append(b"\x05%d" % number * 3)
    lab.log.append_many([b"\x05a batch", b"\x05", b"\x05of three" * 4])
    lab.log.wait(lab.log.position)
    records = [(record.time_ns, record.payload) for record in lab.log.reader.read()]
    if clean:
        lab.log.close()
    lab.forget_indexes()
    assert len(lab.log.reader.segments()) == 3
    return lab, records


def read(lab: Lab, files: MemoryFiles) -> tuple[list[Pair], LaminaError | None]:
    """What can be read, and the refusal, if any. An exception of another kind fails the test."""
    found: list[Pair] = []
    try:
        log = lab.open(files)
        for record in log.reader.read():
            found.append((record.time_ns, record.payload))
        log.append(b"\x05goes on")
        log.close()
    except LaminaError as error:
        assert isinstance(error, Corruption | WrongFormat), error
        assert error.file in {name.name for name in lab.log.reader.segments()}
        assert error.offset <= len(lab.data(error.file))
        return found, error
    return found, None


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize(("family", "format"), KINDS, ids=lambda kind: kind.name)
def test_cut_at_every_byte(family: Family, format: Format, clean: bool) -> None:
    lab, records = three_files(family, format, clean=clean)
    names = [name.name for name in lab.log.reader.segments()]
    known = manifest.load(lab.disk, FOLDER)
    assert known is not None
    promised = known.files[names[-1]].bytes
    for name in names:
        whole = [pair for pair in records if pair[0] < first_time_after(lab, name)]
        for size in range(len(lab.data(name))):
            contents = lab.disk.contents()
            contents[f"{FOLDER}/{name}"] = contents[f"{FOLDER}/{name}"][:size]
            found, refusal = read(lab, MemoryFiles(contents))
            assert found == records[: len(found)], f"{name} cut to {size} bytes: a wrong record"
            if name != names[-1]:
                assert refusal is not None, f"{name} cut to {size} bytes: records are missing and nobody is told"
            elif size < promised:
                assert refusal is not None, f"{name} cut to {size} bytes: {promised} were synced and written down"
            else:
                assert refusal is None, f"{name} cut to {size} bytes: a torn tail is normal"
                assert len(found) >= len(records) - len(whole)
            damage = survey(MemoryFiles(contents), FOLDER)
            assert bool(damage.damage) == (refusal is not None)


def first_time_after(lab: Lab, name: str) -> int:
    names = lab.log.reader.segments()
    later = [each for each in names if each.name > name]
    return (lab.log.reader.first_time(later[0]) or 0) if later else 1 << 62


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize(("family", "format"), KINDS, ids=lambda kind: kind.name)
def test_every_single_byte_flipped(family: Family, format: Format, clean: bool) -> None:
    lab, records = three_files(family, format, clean=clean)
    names = [name.name for name in lab.log.reader.segments()]
    last_batch = {time_ns for time_ns, _ in records[-3:]}
    for name in names:
        for byte in range(len(lab.data(name))):
            contents = lab.disk.contents()
            data = bytearray(contents[f"{FOLDER}/{name}"])
            data[byte] ^= 1 << (byte % 8)
            contents[f"{FOLDER}/{name}"] = bytes(data)
            found, refusal = read(lab, MemoryFiles(contents))
            assert found == records[: len(found)], f"{name}, byte {byte}: a wrong record"
            silent = {time_ns for time_ns, _ in records[len(found) :]} if refusal is None else set()
            allowed = set() if clean else last_batch
            assert silent <= allowed, f"{name}, byte {byte}: {len(silent)} records gone without a word"
