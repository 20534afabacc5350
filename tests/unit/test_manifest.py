"""What a log consists of is written down beside it: what is missing, shorter or older is noticed by everybody."""

from __future__ import annotations

import errno

import pytest

from lab import FOLDER, Lab
from lamina.errors import Corruption, LaminaError
from lamina.log import OS, Level, Reader, manifest, rewrite
from lamina.log.files.memory import MemoryFiles
from lamina.log.formats import JOBS, PLAIN, TOPIC, Format
from lamina.log.index import State
from lamina.log.naming import MANIFEST, NUMBERED, TIMED, Family, parse
from lamina.log.repair import plan
from lamina.log.survey import survey

KINDS = [(NUMBERED, PLAIN), (NUMBERED, JOBS), (TIMED, TOPIC)]
ENDS = ["closed", "killed"]


def filled(family: Family = NUMBERED, format: Format = PLAIN, end: str = "closed", **options: object) -> Lab:
    """Five files or so; in the middle one a record was dropped, and the second is gone."""
    lab = Lab(family=family, format=format, segment_bytes=300, **options)
    lab.append(*[b"\x05%03d" % number * 10 for number in range(30)])
    names = lab.log.reader.segments()
    dropped = next(iter(Reader(FOLDER, family=family, files=lab.disk).read(since=times(lab, names[2].name)[0])))
    rewrite.drop_records(lab.files, FOLDER, names[2], family, lambda time_ns, payload: time_ns != dropped.time_ns)
    if family is NUMBERED:
        rewrite.remove(lab.files, FOLDER, [names[1].name])
    if end == "closed":
        lab.log.close()
    return lab


def times(lab: Lab, name: str) -> list[int]:
    return [
        record.time_ns for record in Reader(FOLDER, family=lab.family, files=lab.disk).read() if record.file == name
    ]


def record_ends(lab: Lab, name: str) -> list[int]:
    reader = Reader(FOLDER, family=lab.family, files=lab.disk)
    found = [(record.file, record.offset) for record in reader.read()]
    return [offset for file, offset in found if file == name][1:]


def refusals(lab: Lab, contents: dict[str, bytes]) -> dict[str, str]:
    """Who says what of these files: the start, who reads from outside, and who looks through every byte."""
    said: dict[str, str] = {}
    try:
        lab.open(MemoryFiles(contents)).close()
    except LaminaError as error:
        said["start"] = str(error)
    try:
        list(Reader(FOLDER, family=lab.family, files=MemoryFiles(contents)).read())
    except LaminaError as error:
        said["reader"] = str(error)
    for damage in survey(MemoryFiles(contents), FOLDER).damage:
        said["verify"] = f"{damage.file}, byte {damage.offset}: {damage.reason}"
    return said


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(("family", "format"), KINDS, ids=lambda kind: kind.name)
def test_a_file_that_is_missing_is_damage(family: Family, format: Format, end: str) -> None:
    lab = filled(family, format, end)
    for name in lab.names(".log" if family is NUMBERED else ".dat"):
        contents = lab.disk.contents()
        del contents[f"{FOLDER}/{name}"]
        said = refusals(lab, contents)
        assert set(said) == {"start", "reader", "verify"}, name
        assert all(name in text and "missing" in text for text in said.values()), said


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(("family", "format"), KINDS, ids=lambda kind: kind.name)
def test_a_file_cut_at_a_record_is_damage(family: Family, format: Format, end: str) -> None:
    lab = filled(family, format, end, sync=OS)
    names = lab.names(".log" if family is NUMBERED else ".dat")
    for name in names[:-1] if end == "killed" else names:
        for size in record_ends(lab, name):
            contents = lab.disk.contents()
            contents[f"{FOLDER}/{name}"] = contents[f"{FOLDER}/{name}"][:size]
            said = refusals(lab, contents)
            assert {"reader", "verify"} <= set(said), f"{name} cut to {size} bytes"
            assert name != names[-1] or "start" in said, "only the newest file is looked at by the start"
            assert all(name in text for text in said.values()), said


@pytest.mark.parametrize(("family", "format"), KINDS, ids=lambda kind: kind.name)
def test_a_file_put_back_from_before_it_was_rewritten_is_damage(family: Family, format: Format) -> None:
    lab = Lab(family=family, format=format, segment_bytes=300)
    lab.append(*[b"\x05%03d" % number * 10 for number in range(30)])
    name = lab.log.reader.segments()[1]
    before = lab.disk.contents()[f"{FOLDER}/{name.name}"]
    first = times(lab, name.name)[0]
    rewrite.drop_records(lab.files, FOLDER, name, family, lambda time_ns, payload: time_ns != first)
    lab.log.close()
    assert refusals(lab, lab.disk.contents()) == {}
    said = refusals(lab, {**lab.disk.contents(), f"{FOLDER}/{name.name}": before})
    assert "not the one that was sealed" in said["reader"] and "not the one that was sealed" in said["verify"]


def test_a_file_of_the_same_size_that_ends_otherwise_is_damage() -> None:
    lab, other = filled(), filled()
    name = lab.names()[0]
    payload = next(iter(Reader(FOLDER, files=other.disk).read())).payload
    data = lab.disk.contents()[f"{FOLDER}/{name}"]
    twin = Lab(segment_bytes=300)
    twin.append(*[payload[:-1] + b"x"] * 30)
    swapped = twin.disk.contents()[f"{FOLDER}/{twin.names()[0]}"]
    assert len(swapped) == len(data) and swapped != data
    assert "differ" in refusals(lab, {**lab.disk.contents(), f"{FOLDER}/{name}": swapped})["verify"]


@pytest.mark.parametrize("with_mark", [True, False])
def test_a_log_of_one_file_needs_no_manifest(with_mark: bool) -> None:
    lab = Lab()
    lab.append(b"one", b"two", b"three")
    lab.log.close(with_mark=with_mark)
    assert MANIFEST not in lab.disk.list(FOLDER)
    (name,) = lab.names()
    ends = record_ends(lab, name)
    contents = lab.disk.contents()
    del contents[f"{FOLDER}/{name}"]
    said = refusals(lab, contents)
    assert "missing" in said["start"] and "missing" in said["verify"]
    for size in [0, 5, 8, *ends]:
        cut = {**lab.disk.contents(), f"{FOLDER}/{name}": lab.disk.contents()[f"{FOLDER}/{name}"][:size]}
        said = refusals(lab, cut)
        assert "ends early" in said["start"] and "ends early" in said["verify"], size


def test_what_cleaning_removed_is_not_missed() -> None:
    lab = filled()
    assert refusals(lab, lab.disk.contents()) == {}
    lab.log = lab.open()
    assert lab.log.report.warnings() == []
    rewrite.remove(lab.files, FOLDER, lab.names()[:-1])
    assert lab.reopen().report.warnings() == []


def test_a_folder_of_the_former_layout_gets_one_with_a_warning() -> None:
    lab = filled()
    lab.disk.remove(f"{FOLDER}/{MANIFEST}")
    lab.log = lab.open()
    (warning,) = lab.log.report.warnings()
    assert "manifest" in warning and "made from its" in warning
    assert lab.reopen().report.warnings() == []
    known = manifest.load(lab.disk, FOLDER)
    assert known is not None and sorted(known.files) == lab.names()


def test_damage_of_the_manifest_loses_nothing_but_what_it_knows() -> None:
    lab = filled()
    data = lab.disk.contents()[f"{FOLDER}/{MANIFEST}"]
    records = [record.payload for record in Reader(FOLDER, files=lab.disk).read()]
    for byte in range(len(data)):
        bad = data[:byte] + bytes([data[byte] ^ 1]) + data[byte + 1 :]
        for changed in (bad, data[:byte]):
            disk = MemoryFiles({**lab.disk.contents(), f"{FOLDER}/{MANIFEST}": changed})
            try:
                log = lab.open(disk)
            except Corruption:
                # What said that a file was removed is gone: it is told by all.
                assert set(refusals(lab, disk.contents())) == {"start", "reader", "verify"}, byte
                continue
            assert [record.payload for record in log.reader.read()] == records
            log.close()
            assert sorted(manifest.load(disk, FOLDER).files) == lab.names()  # type: ignore[union-attr]


def test_what_another_program_wrote_since_is_no_damage() -> None:
    """The real workq, or an older lamina: neither knows of the manifest."""
    lab = filled(format=JOBS)
    lab.log = lab.open()
    lab.log.close()
    contents = lab.disk.contents()
    known = contents.pop(f"{FOLDER}/{MANIFEST}")
    stranger = Lab(format=JOBS, segment_bytes=300)
    stranger.disk = MemoryFiles(contents)
    stranger.files.inner = stranger.disk  # type: ignore[attr-defined]
    log = stranger.open(stranger.disk)
    for number in range(20):
        log.append(b"\x05by another %d" % number, until=None)
    log.wait(log.position)
    rewrite.remove(stranger.disk, FOLDER, [log.reader.segments()[0].name])
    log.close()
    disk = MemoryFiles({**stranger.disk.contents(), f"{FOLDER}/{MANIFEST}": known})
    assert refusals(lab, disk.contents()) == {}
    assert "made anew" in " ".join(lab.open(disk).report.warnings())


def test_a_disk_that_refuses_the_manifest_goes_without_one() -> None:
    lab = Lab(segment_bytes=300)
    lab.files.fail("append", error=errno.ENOSPC, only=MANIFEST, times=1000)
    lab.append(*[b"%03d" % number * 10 for number in range(30)])
    assert MANIFEST not in lab.disk.list(FOLDER)
    rewrite.remove(lab.files, FOLDER, lab.names()[:2])
    lab.files.heal()
    payloads = lab.payloads()
    assert lab.reopen().report.warnings()
    assert lab.payloads() == payloads
    assert MANIFEST in lab.disk.list(FOLDER)


def test_repair_goes_on_without_what_is_missing() -> None:
    lab = filled()
    contents = lab.disk.contents()
    del contents[f"{FOLDER}/{lab.names()[1]}"]
    disk = MemoryFiles(contents)
    assert any("missing; go on without it" in step for step in plan(survey(disk, FOLDER)))
    log = lab.open(disk, salvage=True)
    assert log.append(b"goes on", until=None)
    log.close()
    assert refusals(lab, disk.contents()) == {}


def test_it_is_written_anew_when_most_of_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "_LEAST", 1000)
    lab = Lab(segment_bytes=300)
    for number in range(300):
        lab.append(b"%03d" % number * 10)
        if len(names := lab.log.reader.segments()) > 3:
            rewrite.remove(lab.files, FOLDER, [names[0].name])
    assert len(lab.data(MANIFEST)) < 3000
    lab.log.close()
    assert refusals(lab, lab.disk.contents()) == {}


def test_what_it_says_of_a_file() -> None:
    lab = filled()
    known = manifest.load(lab.disk, FOLDER)
    assert known is not None and sorted(known.files) == lab.names() and not known.next
    for name, facts in known.files.items():
        found = next(each for each in survey(lab.disk, FOLDER).segments if each.name == parse(name))
        assert facts.magic == PLAIN.magic and facts.bytes == found.bytes and facts.records == found.records
        assert (facts.first_ns, facts.last_ns, facts.last_data_ns) == (
            found.first_ns,
            found.last_ns,
            found.last_data_ns,
        )
        assert facts.state is (State.CLEAN if name == lab.names()[-1] else State.SEALED)


def test_a_loop_leaves_the_sync_that_writes_the_manifest_to_others() -> None:
    """Who cleans may have the manifest for as long as a sync takes, and a loop must not wait for that."""
    lab = Lab(segment_bytes=300)
    lab.append(*[b"%03d" % number * 10 for number in range(12)])
    lab.log.rotate()
    lab.log.append(b"in a new file", until=None)
    lab.log.run_round(may_sync=False)
    position = lab.log.append(b"to be synced", until=None)
    assert not lab.log.try_round(may_sync=True) and not lab.log.has_reached(position, Level.SYNCED)
    lab.log.wait(position, Level.SYNCED)
    position = lab.log.append(b"again", until=None)
    assert not lab.log.has_reached(position, Level.SYNCED)
    assert lab.log.try_round(may_sync=True) and lab.log.has_reached(position, Level.SYNCED)
