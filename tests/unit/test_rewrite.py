"""Promises of rewrite: old or new, never neither; obsolete files go last."""

from __future__ import annotations

import pytest

from lab import FOLDER, Lab
from lamina.errors import Corruption
from lamina.log import Level, rewrite
from lamina.log.formats import QUEUE_STORE
from lamina.log.naming import NUMBERED, STORED
from lamina.testing import PowerLoss

OLD, NEW = b"the old content", b"the new content " * 60


def dumped() -> PowerLoss:
    """A dump replaces a log, which is removed once the dump is safe."""
    disk = PowerLoss({f"{FOLDER}/smp-server-store-1.log": OLD})
    rewrite.replace(disk, FOLDER, "smp-server-store-1.dump", [NEW], STORED, obsolete=["smp-server-store-1.log"])
    return disk


def test_at_every_moment_the_old_content_or_the_new_is_there_whole() -> None:
    for state in dumped().states():
        found = state.files.contents()
        old = found.get(f"{FOLDER}/smp-server-store-1.log")
        new = found.get(f"{FOLDER}/smp-server-store-1.dump")
        assert old == OLD or new == NEW, state.label
        assert new in (None, NEW), f"a dump under its final name is not whole: {state.label}"


def test_when_it_returns_the_new_content_is_safe_and_the_old_one_gone_for_good() -> None:
    disk = dumped()
    disk.open(f"{FOLDER}/smp-server-store-1.dump")
    for state in disk.states(at=disk.points):
        assert state.files.contents() == {f"{FOLDER}/smp-server-store-1.dump": NEW}


def test_records_that_stay_are_the_same_byte_for_byte() -> None:
    lab = Lab(segment_bytes=300)
    lab.append(*[b"%d" % number * 10 for number in range(30)])
    name = lab.log.reader.segments()[1]
    before = bytes(lab.data(name.name))
    inside = [record for record in lab.log.reader.read() if record.file == name.name]
    report = rewrite.drop_records(
        lab.files, FOLDER, name, NUMBERED, lambda time_ns, payload: time_ns != inside[0].time_ns
    )
    assert (report.dropped, report.kept) == (1, len(inside) - 1)
    assert bytes(lab.data(name.name)) == before[: inside[0].offset] + b"".join(
        before[record.offset : record.offset + 20 + len(record.payload)] for record in inside[1:]
    ), "what vouches for the file before stays, too; marks between records go"


def test_when_everything_stays_nothing_is_written() -> None:
    lab = Lab(segment_bytes=100)
    lab.append(*[b"x" * 40] * 6)
    lab.files.calls.clear()
    rewrite.drop_records(lab.files, FOLDER, lab.log.reader.segments()[0], NUMBERED, lambda time_ns, payload: True)
    assert not [call for call, _ in lab.files.calls if call in ("create", "rename", "append")]


def test_a_damaged_file_is_never_rewritten() -> None:
    lab = Lab(segment_bytes=100)
    lab.append(*[b"x" * 40] * 6)
    name = lab.log.reader.segments()[0]
    lab.data(name.name)[30] ^= 1
    before = lab.disk.contents()
    with pytest.raises(Corruption):
        rewrite.drop_records(lab.files, FOLDER, name, NUMBERED, lambda time_ns, payload: False)
    assert lab.disk.contents() == before


def test_a_dump_in_frames_can_be_read_back() -> None:
    lab = Lab(family=STORED, format=QUEUE_STORE)
    lab.log.append(b"\x91\x01", until=Level.SYNCED)
    data = bytes(lab.newest)
    rewrite.replace(lab.files, FOLDER, "smp-server-store-1.dump", [data[:8], data[8:]], STORED)
    assert bytes(lab.data("smp-server-store-1.dump")) == data


def test_a_record_may_get_another_payload_at_its_time() -> None:
    lab = Lab(segment_bytes=300)
    lab.append(*[b"%d" % number * 10 for number in range(30)])
    name = lab.log.reader.segments()[1]
    inside = [record for record in lab.log.reader.read() if record.file == name.name]
    chosen = inside[2]

    def renew(payload: bytes) -> bytes:
        return b"another, and a longer one " * 3 if payload == chosen.payload else payload

    drops = inside[-1].time_ns  # the newest, so that something has to stand in for it
    report = rewrite.drop_records(lab.files, FOLDER, name, NUMBERED, lambda time_ns, _: time_ns != drops, renew=renew)
    assert (report.dropped, report.kept, report.renewed, report.is_new) == (1, len(inside) - 1, 1, True)
    now = [(record.time_ns, record.payload) for record in lab.log.reader.read() if record.file == name.name]
    assert now == [(record.time_ns, renew(record.payload)) for record in inside[:-1]]

    report = rewrite.drop_records(lab.files, FOLDER, name, NUMBERED, lambda *_: True, renew=renew)
    assert not report.is_new, "what is renewed is as it is to be"


def test_at_every_moment_all_of_a_file_has_former_payloads_or_new_ones() -> None:
    lab = Lab(segment_bytes=100)
    lab.append(*[b"%d" % number * 40 for number in range(6)])
    name = lab.log.reader.segments()[0]
    path = f"{FOLDER}/{name.name}"
    disk = PowerLoss(lab.disk.contents())
    before = disk.contents()[path]
    rewrite.drop_records(disk, FOLDER, name, NUMBERED, lambda *_: True, renew=lambda payload: payload.upper() + b"!")
    after = disk.contents()[path]
    assert before != after
    assert {state.files.contents()[path] for state in disk.states()} == {before, after}
