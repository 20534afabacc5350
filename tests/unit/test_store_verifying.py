"""Promises of verifying a store: every byte is looked at, nothing is changed, torn tails are told from damage."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable

import pytest

from lamina.engines.store import codec, epoch_file
from lamina.engines.store.catalog import NAME, former_name
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.verifying import VerifyReport, as_dict, verify
from lamina.errors import DiskError, LaminaError
from lamina.log import kernel
from lamina.log.formats import PWAL
from lamina.log.survey import survey
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles
from store_folder_lab import (
    BASE_NS,
    FOLDER,
    Lab,
    at,
    channel_file,
    durable,
    epochs_file,
    expected,
    head,
    put,
    rotated,
    session,
)

CLOSED = rotated("pwal_0000", 30)


def compacted() -> Lab:
    lab = Lab()
    lab.compact(20)
    return lab


def look(lab: Lab) -> VerifyReport:
    before = lab.files.contents()
    report = verify(lab.files, FOLDER)
    assert lab.files.contents() == before, "nothing is changed"
    return report


def damaged(report: VerifyReport) -> set[str]:
    return {damage.file for damage in report.damage}


def opens(lab: Lab) -> bool:
    try:
        lab.content()
    except LaminaError:
        return False
    return True


# -- what is there ---------------------------------------------------------------------------------------------------


def test_a_whole_store_is_sound_and_told_in_full() -> None:
    lab = compacted()
    report = look(lab)
    assert report.is_sound and report.damage == [] and report.torn == [] and report.foreign == []
    assert (report.durable, report.voids, report.holder) == (31, [], None)
    assert report.catalog == lab.catalog()
    assert report.channels == ["pwal_0000", "pwal_0001"]
    by_name = {file.name: file for file in report.files}
    assert set(by_name) == {name for name in lab.names() if name.startswith(("pwal_", "epoch"))}
    closed = by_name[CLOSED]
    assert (closed.sessions, closed.entries, closed.first_epoch, closed.last_epoch) == (4, 8, 21, 30)
    assert (closed.is_active, closed.is_merged, closed.bytes) == (False, False, len(lab.get(CLOSED)))
    assert by_name[rotated("pwal_0000", 10)].is_merged
    assert by_name["pwal_0000"].is_active and by_name["pwal_0000"].sessions == 1
    parts = [by_name[part.name] for part in lab.catalog().parts]
    assert [part.entries for part in parts] == [part.entries for part in lab.catalog().parts]


def test_dead_bytes_are_those_of_merged_files_and_former_catalogs() -> None:
    lab = compacted()
    streams = ("pwal_0000", "pwal_0001", "epoch")
    gone = [rotated(stream, epoch) for stream in streams for epoch in (10, 20)] + [former_name(0)]
    assert look(lab).dead_bytes == sum(len(lab.get(name)) for name in gone)


def test_an_empty_folder_is_a_sound_store() -> None:
    files = MemoryFiles()
    files.make_folder(FOLDER)
    report = verify(files, FOLDER)
    assert report.is_sound and report.files == [] and report.durable == 0


def test_a_folder_that_is_not_there_is_told() -> None:
    with pytest.raises(DiskError, match="list the folder"):
        verify(MemoryFiles(), FOLDER)


def test_a_store_that_was_written_by_the_engine_is_sound_open_and_closed() -> None:
    files = MemoryFiles()
    store = StoreEngine.open(FOLDER, files=files, clock=ManualClock())
    for number in range(3):
        for channel in (0, 1):
            with store.channel(channel).begin() as written:
                written.put(1, b"key %d" % number, b"value")
        store.switch_epoch()
        if number == 1:
            store.request_rotation()
    report = verify(files, FOLDER)
    assert report.is_sound and report.holder is not None and report.torn == []
    store.close()
    report = verify(files, FOLDER)
    assert report.is_sound and report.holder is None and report.damage == [] and report.foreign == []
    assert sum(file.entries for file in report.files if file.kind == "channel") == 6


def test_foreign_files_and_leftovers_are_listed() -> None:
    lab = compacted()
    lab.put("notes.txt", b"mine")
    lab.put("compaction_catalog.tmp", b"half")
    lab.put("run.o1", b"spilled")
    report = look(lab)
    assert (report.foreign, report.leftovers) == (["notes.txt"], ["compaction_catalog.tmp"])
    assert report.is_sound


def test_progress_rises_to_the_whole() -> None:
    lab = compacted()
    told: list[tuple[int, int]] = []
    verify(lab.files, FOLDER, lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == told[-1][1] == sum(len(lab.get(n)) for n in lab.names() if n.startswith(("pwal_", "epoch")))


def test_the_report_can_be_told_as_json() -> None:
    lab = compacted()
    lab.flip(CLOSED, 100)
    told = json.loads(json.dumps(as_dict(look(lab))))
    assert told["durable_epoch"] == 31 and told["generation"] == 1 and told["sound"] is False
    assert told["damage"][0]["file"] == CLOSED and told["damage"][0]["needed"] is True


# -- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pwal_0000", CLOSED, "epoch", "pwal_compacted.1.0", "pwal_compacted.1.1", NAME])
def test_a_changed_byte_anywhere_is_noticed_wherever_opening_notices_it(name: str) -> None:
    good = compacted()
    size = len(good.get(name))
    for offset in [*range(0, size, 7), size - 1]:
        lab = Lab.__new__(Lab)
        lab.files = MemoryFiles(good.files.contents())
        lab.flip(name, offset)
        report = look(lab)
        if name in ("pwal_0000", "epoch"):  # what is at its end may have been torn
            assert name in damaged(report) or name in {torn.file for torn in report.torn} or not opens(lab)
        else:
            assert name in damaged(report), offset
            assert not report.is_sound
        if report.is_sound:
            assert opens(lab), (name, offset)


def test_all_damage_of_a_file_is_told_and_what_is_whole_counted() -> None:
    lab = Lab()
    data = lab.get(CLOSED)
    scanned = kernel.scan(data, 8, len(data))
    records = list(scanned.offsets)
    lab.flip(CLOSED, records[1])  # an entry of the first session
    lab.flip(CLOSED, records[9])  # an entry of the third
    report = look(lab)
    assert [damage.file for damage in report.damage] == [CLOSED, CLOSED]
    first, second = report.damage
    assert first.offset == 8 and first.end < second.offset < second.end < len(data)
    facts = next(file for file in report.files if file.name == CLOSED)
    assert (facts.sessions, facts.entries) == (2, 4)


def test_a_torn_tail_of_an_active_file_is_no_damage() -> None:
    lab = compacted()
    whole = lab.get("pwal_0000")
    lab.put("pwal_0000", whole + channel_file(session(32, put(b"lost", b"", 32)))[8:-5])
    report = look(lab)
    assert report.is_sound and report.damage == []
    assert [torn.file for torn in report.torn] == ["pwal_0000"]
    assert opens(lab)


def test_so_is_a_session_without_an_end_in_an_epoch_that_is_not_durable() -> None:
    lab = compacted()
    begun = kernel.encode_many(at(32), [codec.begin(32), put(b"lost", b"", 32)])
    lab.put("pwal_0000", lab.get("pwal_0000") + begun)
    assert look(lab).damage == [] and opens(lab)


def test_a_torn_tail_of_a_closed_file_is_damage() -> None:
    lab = compacted()
    lab.put(CLOSED, lab.get(CLOSED)[:-5])
    report = look(lab)
    assert damaged(report) == {CLOSED} and report.torn == []


def test_a_torn_tail_of_the_epoch_file_is_no_damage() -> None:
    lab = compacted()
    lab.put("epoch", lab.get("epoch") + kernel.encode_many(at(32), [durable(32)])[:-2])
    report = look(lab)
    assert report.is_sound and [torn.file for torn in report.torn] == ["epoch"] and report.durable == 31
    assert opens(lab)


def test_beside_a_writer_the_end_of_an_active_file_is_not_called_torn() -> None:
    lab = compacted()
    lab.put("pwal_0000", lab.get("pwal_0000") + b"\x01\0\0")
    lab.files.lock(f"{FOLDER}/lamina.lock")
    assert look(lab).torn == []


Break = Callable[[Lab], None]


def structure(*payloads: bytes) -> Break:
    return lambda lab: lab.put(CLOSED, PWAL.header + kernel.encode_many(at(22), payloads))


def in_voided(lab: Lab) -> None:
    begun = [codec.begin(25), put(b"k", b"v", 25)]
    lab.put(CLOSED, PWAL.header + kernel.encode_many(at(22), begun))
    lab.put("epoch", epochs_file(head(30, [(24, 26)]), durable(31), start_ns=at(31)))


BROKEN: dict[str, tuple[Break, str]] = {
    "an entry outside": (structure(put(b"k", b"v", 22)), "outside of a session"),
    "an end without a begin": (structure(codec.end(22, 0)), "end of a session"),
    "two begins": (structure(codec.begin(22), *session(23)), "has no end"),
    "another count": (structure(codec.begin(22), put(b"k", b"v", 22), codec.end(22, 2)), "end of a session"),
    "another epoch": (structure(codec.begin(22), codec.end(23, 0)), "end of a session"),
    "falling epochs": (structure(*session(23), *session(22)), "behind one of epoch 23"),
    "no end, durable": (structure(codec.begin(22), put(b"k", b"v", 22)), "inside of a session of epoch 22"),
    "no such record": (structure(b"\x77 nonsense"), "no entry of kind"),
    "a key too long": (structure(codec.begin(22), put(b"key", b"", 22)[:-1], codec.end(22, 1)), "does not fit"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_no_session_is_damage(broken: str) -> None:
    spoil, reason = BROKEN[broken]
    lab = compacted()
    spoil(lab)
    report = look(lab)
    assert damaged(report) == {CLOSED} and not opens(lab)
    assert any(reason in damage.reason for damage in report.damage), report.damage


def test_a_session_without_an_end_is_no_damage_if_its_epoch_is_void() -> None:
    lab = compacted()
    in_voided(lab)
    report = look(lab)
    assert report.damage == [] and report.voids == [(24, 26)]
    assert opens(lab)


def test_void_sessions_are_not_counted() -> None:
    lab = compacted()
    lab.put("epoch", epochs_file(head(30, [(24, 30)]), durable(31), start_ns=at(31)))
    facts = next(file for file in look(lab).files if file.name == CLOSED)
    assert (facts.sessions, facts.last_epoch) == (1, 30)


def test_a_part_that_the_catalog_names_otherwise_is_damage() -> None:
    lab = compacted()
    other = lab.get("pwal_compacted.1.1")
    lab.put("pwal_compacted.1.0", other)
    report = look(lab)
    assert damaged(report) == {"pwal_compacted.1.0"} and not opens(lab)


def test_a_missing_part_is_damage() -> None:
    lab = compacted()
    lab.drop("pwal_compacted.1.0")
    report = look(lab)
    assert [(damage.file, damage.is_missing) for damage in report.damage] == [("pwal_compacted.1.0", True)]
    assert not opens(lab)


def test_a_part_that_nobody_names_is_no_matter() -> None:
    lab = compacted()
    lab.put("pwal_compacted.2.0", b"half written")
    report = look(lab)
    assert report.is_sound and damaged(report) == {"pwal_compacted.2.0"}
    assert opens(lab)


def test_a_damaged_merged_file_or_former_catalog_is_told_but_not_needed() -> None:
    lab = compacted()
    lab.flip(rotated("pwal_0001", 10), 60)
    lab.flip(former_name(0), 5)
    report = look(lab)
    assert damaged(report) == {rotated("pwal_0001", 10), former_name(0)}
    assert report.is_sound and opens(lab)


def test_a_rotated_file_that_the_epoch_file_knows_and_that_is_not_there_is_damage() -> None:
    lab = compacted()
    lab.put("epoch", epochs_file(head(30, [], [CLOSED, rotated("pwal_0000", 10)]), durable(31), start_ns=at(31)))
    assert look(lab).is_sound
    lab.drop(CLOSED)
    lab.drop(rotated("pwal_0000", 10))  # merged: only reads as of earlier need it, from the former catalog
    report = look(lab)
    missing = [(damage.file, damage.is_needed) for damage in report.damage if damage.is_missing]
    assert sorted(missing) == [(rotated("pwal_0000", 10), False), (CLOSED, True)] and len(report.damage) == 2
    lab.drop("compaction_catalog.0")  # as clean-up does before it takes the file: nobody minds
    assert [damage.file for damage in look(lab).damage] == [CLOSED]
    assert not opens(lab)


def test_a_channel_that_ends_before_what_was_durable_is_damage() -> None:
    lab = compacted()
    newest = kernel.scan(lab.get("pwal_0000"), 8, len(lab.get("pwal_0000"))).newest
    lab.put("epoch", epochs_file(head(30), durable(31, c0=newest), start_ns=at(31)))
    assert look(lab).is_sound and opens(lab)
    lab.put("epoch", epochs_file(head(30), durable(31, c0=newest + 1), start_ns=at(31)))
    report = look(lab)
    assert damaged(report) == {"pwal_0000"} and "epoch 31 is durable" in report.damage[0].reason
    assert not opens(lab)


def test_a_store_whose_epoch_files_are_gone_is_not_sound() -> None:
    lab = Lab()
    for epoch in (10, 20, 30):
        lab.drop(rotated("epoch", epoch))
    lab.drop("epoch")
    report = look(lab)
    assert "no epoch file" in report.damage[0].reason and not report.is_sound


def test_an_epoch_file_behind_the_catalog_is_damage() -> None:
    lab = compacted()
    for epoch in (10, 20, 30):
        lab.drop(rotated("epoch", epoch))
    lab.put("epoch", epochs_file(head(0), durable(11)))
    report = look(lab)
    needed = {damage.file for damage in report.damage if damage.is_needed}
    assert needed == {"epoch"} and not opens(lab)
    assert damaged(report) - needed == {rotated("epoch", 10), rotated("epoch", 20)}, "merged, and a former catalog is"


def test_epochs_that_fall_from_one_file_to_the_next_are_damage() -> None:
    lab = Lab()
    lab.put("epoch", epochs_file(head(5), durable(6), start_ns=at(31)))
    assert damaged(look(lab)) == {"epoch"}


@pytest.mark.parametrize(
    "payload", [b"\x01short", b"\x07", epoch_file.void(0, 0)[:-1], head(5)[:-1], durable(3)], ids=repr
)
def test_what_is_no_record_of_an_epoch_file_is_damage(payload: bytes) -> None:
    lab = compacted()
    lab.put("epoch", epochs_file(head(30), payload, durable(31), start_ns=at(31)))
    report = look(lab)
    assert damaged(report) == {"epoch"} and not opens(lab)


def test_a_file_of_another_kind_is_damage() -> None:
    lab = compacted()
    lab.put(CLOSED, b"lmto\0\0\0\1" + lab.get(CLOSED)[8:])
    report = look(lab)
    assert damaged(report) == {CLOSED} and "topic file" in report.damage[0].reason


@pytest.mark.parametrize("name", ["pwal_0000", CLOSED, "epoch", "pwal_compacted.1.0"])
def test_a_file_that_cannot_be_read_is_told_and_the_rest_looked_at(name: str) -> None:
    lab = compacted()
    files = FaultyFiles(lab.files)
    files.fail("read", only=name, times=10_000, error=errno.EIO)
    report = verify(files, FOLDER)
    assert name in damaged(report) and len(report.files) == len(look(lab).files)


# -- "lamina log verify" on a store ----------------------------------------------------------------------------------


def test_the_logs_own_survey_knows_a_store() -> None:
    lab = compacted()
    found = survey(lab.files, FOLDER)
    assert found.damage == [] and found.torn == [] and found.listing.foreign == []


@pytest.mark.parametrize("name", [CLOSED, "pwal_compacted.1.0", rotated("epoch", 30)])
def test_to_the_survey_a_closed_file_cut_short_is_damage_not_torn(name: str) -> None:
    lab = compacted()
    lab.drop("pwal_0000")  # also if it is the newest of its stream
    lab.put(name, lab.get(name)[:-5])
    found = survey(lab.files, FOLDER)
    assert [damage.file for damage in found.damage] == [name] and found.torn == []
    assert found.damage[0].is_repairable is (name != "pwal_compacted.1.0")


def test_to_the_survey_an_active_file_may_be_torn() -> None:
    lab = compacted()
    lab.put("pwal_0000", lab.get("pwal_0000")[:-5])
    found = survey(lab.files, FOLDER)
    assert found.damage == [] and [torn.file for torn in found.torn] == ["pwal_0000"]


def test_the_lab_is_what_this_file_thinks_it_is() -> None:
    assert compacted().content() == expected() and at(0) == BASE_NS
