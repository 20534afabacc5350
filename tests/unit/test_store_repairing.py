"""Promises of repairing a store: nothing is lost unless that was accepted, and it is told what is."""

from __future__ import annotations

import pytest

from lamina.engines.store import catalog as catalogs
from lamina.engines.store.catalog import NAME, former_name
from lamina.engines.store.repairing import RepairReport, repair
from lamina.engines.store.verifying import verify
from lamina.errors import Corruption, DiskError, LaminaError, LogLocked
from lamina.log import kernel
from lamina.log.formats import PWAL
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles, PowerLoss
from store_folder_lab import (
    FOLDER,
    Content,
    Lab,
    at,
    channel_file,
    content,
    durable,
    epochs_file,
    expected,
    head,
    put,
    rotated,
    session,
)

CLOSED = rotated("pwal_0000", 30)


def compacted(*epochs: int) -> Lab:
    lab = Lab()
    for epoch in epochs or (20,):
        lab.compact(epoch)
    return lab


def mended(lab: Lab, *, accept_loss: bool = False) -> RepairReport:
    return repair(lab.files, FOLDER, ManualClock(at(900)), accept_loss=accept_loss)


def records(lab: Lab, name: str) -> list[int]:
    data = lab.get(name)
    return list(kernel.scan(data, 8, len(data)).offsets)


def broken_files(lab: Lab, of: str) -> list[str]:
    return sorted(name for name in lab.names() if name.startswith(f"{of}.broken-"))


def without(*keys: bytes) -> Content:
    return {place: value for place, value in expected().items() if place[1] not in keys}


# -- nothing wrong, or nothing to lose -------------------------------------------------------------------------------


@pytest.mark.parametrize("accept_loss", [False, True])
def test_a_sound_store_is_left_as_it_is(accept_loss: bool) -> None:
    lab = compacted()
    before = lab.files.contents()
    report = mended(lab, accept_loss=accept_loss)
    assert (report.done, report.lost, report.left) == ([], [], []) and report.is_sound
    assert lab.files.contents() == before


def test_what_a_crash_left_is_removed() -> None:
    lab = compacted()
    left = {"compaction_catalog.tmp", "pwal_compacted.2.0.tmp", "run.o1", "run.2.3"}
    for name in left:
        lab.put(name, b"half")
    report = mended(lab)
    assert not left & lab.names() and len(report.done) == len(left) and report.is_sound


def test_a_torn_tail_is_left_to_opening() -> None:
    lab = compacted()
    torn = lab.get("pwal_0000") + b"\x01\0\0"
    lab.put("pwal_0000", torn)
    assert mended(lab, accept_loss=True).is_sound and lab.get("pwal_0000") == torn
    assert lab.content() == expected()


def test_a_store_that_somebody_has_open_is_refused() -> None:
    lab = compacted()
    lab.files.lock(f"{FOLDER}/lamina.lock")
    with pytest.raises(LogLocked):
        mended(lab)


def test_the_lock_is_let_go() -> None:
    lab = compacted()
    mended(lab)
    mended(lab)
    assert lab.files.lock_holder(f"{FOLDER}/lamina.lock") is None


def test_damage_in_a_merged_file_is_left_for_clean_up() -> None:
    lab = compacted()
    name = rotated("pwal_0001", 10)
    lab.flip(name, 60)
    spoilt = lab.get(name)
    for accept_loss in (False, True):
        report = mended(lab, accept_loss=accept_loss)
        assert report.is_sound and report.done == [] and lab.get(name) == spoilt
        assert len(report.left_alone) == 1 and name in report.left_alone[0]


def test_so_is_a_damaged_former_catalog() -> None:
    lab = compacted()
    lab.flip(former_name(0), 5)
    before = lab.files.contents()
    report = mended(lab, accept_loss=True)
    assert report.is_sound and report.done == [] and len(report.left_alone) == 1
    assert lab.files.contents() == before


def test_an_older_epoch_file_is_rewritten_only_if_a_loss_is_accepted() -> None:
    lab = Lab()
    name = rotated("epoch", 20)
    lab.flip(name, records(lab, name)[0])
    spoilt = lab.get(name)
    report = mended(lab)
    assert report.is_sound and len(report.left_alone) == 1 and lab.get(name) == spoilt
    report = mended(lab, accept_loss=True)
    assert report.is_sound and [lost.file for lost in report.lost] == [name]
    assert verify(lab.files, FOLDER).damage == [] and lab.content() == expected()


def test_while_the_parts_are_not_whole_nothing_is_taken_out_of_other_files() -> None:
    lab = compacted()
    lab.drop(former_name(0))
    lab.flip("pwal_compacted.1.0", 100)
    lab.flip(CLOSED, records(lab, CLOSED)[1])
    before = lab.files.contents()
    report = mended(lab, accept_loss=True)
    assert lab.files.contents() == before
    assert any("pwal_compacted.1.0" in words for words in report.left) and any(CLOSED in words for words in report.left)


# -- catalog and parts -----------------------------------------------------------------------------------------------


def spoil_catalog(lab: Lab) -> None:
    lab.flip(NAME, 40)


def lose_catalog(lab: Lab) -> None:
    lab.drop(NAME)


def spoil_part(lab: Lab) -> None:
    lab.flip("pwal_compacted.2.0", 100)


def lose_part(lab: Lab) -> None:
    lab.drop("pwal_compacted.2.1")


@pytest.mark.parametrize("spoil", [spoil_catalog, lose_catalog, spoil_part, lose_part], ids=lambda f: f.__name__)
def test_a_former_catalog_takes_the_place_of_a_damaged_one_and_nothing_is_lost(spoil) -> None:  # type: ignore[no-untyped-def]
    lab = compacted(10, 20)
    former = catalogs.load_former(lab.files, FOLDER, 1)
    assert former is not None
    was = lab.get(NAME)
    spoil(lab)
    with pytest.raises(LaminaError):
        lab.content()
    report = mended(lab)
    assert report.is_sound and report.lost == [] and "generation 1 is in its place" in report.done[0]
    assert lab.catalog().parts == former.parts and lab.catalog().epoch == 10
    assert lab.content() == expected()
    if spoil is not lose_catalog:
        [aside] = broken_files(lab, NAME)
        assert (lab.get(aside) == was) == (spoil is not spoil_catalog), "the bytes that were there are kept"


def test_the_next_generation_takes_no_name_that_is_taken() -> None:
    lab = compacted(10, 20)
    spoil_catalog(lab)
    mended(lab)
    assert lab.catalog().generation == 2, "parts of generation 2 are still there"
    assert lab.compact(20).generation == 3
    assert lab.content() == expected()


def test_the_newest_former_catalog_that_is_whole_is_taken() -> None:
    lab = compacted(10, 20, 30)
    spoil_catalog(lab)
    lab.flip("pwal_compacted.2.0", 90)
    report = mended(lab)
    assert report.is_sound and lab.catalog().epoch == 10 and lab.content() == expected()


def test_the_first_catalog_of_a_store_will_do_if_all_its_files_are_there() -> None:
    lab = compacted(20)
    spoil_catalog(lab)
    assert mended(lab).is_sound
    assert lab.catalog().parts == () and lab.content() == expected()


@pytest.mark.parametrize("accept_loss", [False, True])
def test_without_a_former_catalog_nothing_is_done(accept_loss: bool) -> None:
    lab = compacted(20)
    lab.drop(former_name(0))
    spoil_catalog(lab)
    before = lab.files.contents()
    report = mended(lab, accept_loss=accept_loss)
    assert not report.is_sound and any("no former catalog" in words for words in report.left)
    assert lab.files.contents() == before


def test_a_former_catalog_whose_files_are_gone_is_not_taken_and_the_loss_is_named() -> None:
    lab = compacted(10, 20)
    lab.drop(rotated("pwal_0001", 20))
    spoil_part(lab)
    before = lab.files.contents()
    report = mended(lab, accept_loss=True)
    assert not report.is_sound and lab.files.contents() == before
    assert any(rotated("pwal_0001", 20) in words and "would be lost" in words for words in report.left)


def test_a_former_catalog_whose_parts_are_damaged_is_not_taken() -> None:
    lab = compacted(10, 20)
    lab.drop(former_name(0))
    spoil_catalog(lab)
    lab.flip("pwal_compacted.1.1", 100)
    before = lab.files.contents()
    report = mended(lab)
    assert not report.is_sound and any("pwal_compacted.1.1" in words for words in report.left)
    assert lab.files.contents() == before


# -- files of channels -----------------------------------------------------------------------------------------------


def test_without_accepting_a_loss_a_damaged_channel_is_left_as_it_is() -> None:
    lab = compacted()
    lab.flip(CLOSED, records(lab, CLOSED)[1])
    before = lab.files.contents()
    report = mended(lab)
    assert not report.is_sound and CLOSED in report.left[0] and report.lost == []
    assert lab.files.contents() == before


def test_only_the_damaged_session_is_lost_and_its_bytes_are_kept() -> None:
    lab = compacted()
    offsets = records(lab, CLOSED)
    lab.flip(CLOSED, offsets[5])  # of the second session, epoch 24
    spoilt = lab.get(CLOSED)
    report = mended(lab, accept_loss=True)
    assert report.is_sound
    [lost] = report.lost
    assert (lost.file, lost.after_epoch, lost.until_epoch) == (CLOSED, 23, 24)
    assert lab.get(lost.kept_as) == spoilt[lost.offset : lost.offset + lost.bytes]
    assert broken_files(lab, CLOSED) == [lost.kept_as]
    assert "epoch 24" in str(lost) and str(lost) in report.done
    assert lab.content() == without(b"c0 24")


def test_two_damaged_sessions_are_two_losses() -> None:
    lab = compacted()
    offsets = records(lab, CLOSED)
    lab.flip(CLOSED, offsets[1])
    lab.flip(CLOSED, offsets[9])
    report = mended(lab, accept_loss=True)
    assert [(lost.after_epoch, lost.until_epoch) for lost in report.lost] == [(20, 21), (26, 27)]
    assert len(broken_files(lab, CLOSED)) == 2
    assert lab.content() == without(b"c0 21", b"c0 27")


def test_a_repaired_store_is_sound_and_repairing_it_again_does_nothing() -> None:
    lab = compacted()
    lab.flip(CLOSED, records(lab, CLOSED)[5])
    mended(lab, accept_loss=True)
    assert verify(lab.files, FOLDER).damage == []
    before = lab.files.contents()
    assert mended(lab, accept_loss=True).done == []
    assert lab.files.contents() == before


def test_the_end_of_a_closed_file_is_lost() -> None:
    lab = compacted()
    lab.put(CLOSED, lab.get(CLOSED)[:-5])
    report = mended(lab, accept_loss=True)
    assert report.is_sound and [lost.until_epoch for lost in report.lost] == [30]
    found = lab.content()
    assert found == {**without(b"c0 30"), (1, b"c0"): b"newest 27"}


def test_a_header_that_is_gone_is_put_back() -> None:
    lab = compacted()
    lab.put(CLOSED, bytes(8) + lab.get(CLOSED)[8:])
    report = mended(lab, accept_loss=True)
    assert report.is_sound and lab.content() == expected()


def test_a_file_of_which_nothing_can_be_read_becomes_an_empty_one() -> None:
    lab = compacted()
    lab.put(CLOSED, bytes(500))
    report = mended(lab, accept_loss=True)
    assert report.is_sound and report.lost[0].bytes == 500
    assert lab.content() == {**without(b"c0 21", b"c0 24", b"c0 27", b"c0 30"), (1, b"c0"): b"newest 20"}


def test_a_file_of_another_kind_is_left_alone() -> None:
    lab = compacted()
    lab.put(CLOSED, b"lmto\0\0\0\1" + lab.get(CLOSED)[8:])
    before = lab.files.contents()
    report = mended(lab, accept_loss=True)
    assert not report.is_sound and "whole for another program" in report.left[0]
    assert lab.files.contents() == before


def test_sessions_that_cannot_be_are_taken_out() -> None:
    lab = compacted()
    payloads = [*session(22, put(b"good", b"1", 22)), put(b"outside", b"", 22), *session(23, put(b"fine", b"2", 23))]
    lab.put(CLOSED, PWAL.header + kernel.encode_many(at(22), payloads))
    report = mended(lab, accept_loss=True)
    assert report.is_sound and len(report.lost) == 1
    found = lab.content()
    assert found[1, b"good"] == b"1" and found[1, b"fine"] == b"2" and (1, b"outside") not in found


def test_a_session_of_a_void_epoch_that_has_no_end_is_no_loss() -> None:
    lab = compacted()
    begun = kernel.encode_many(at(40), session(40, put(b"void", b"", 40))[:-1])
    lab.put("pwal_0000", lab.get("pwal_0000") + begun)
    lab.flip("pwal_0000", records(lab, "pwal_0000")[0])
    lab.put("epoch", epochs_file(head(30), durable(31, c0=at(31, 2)), start_ns=at(31)))
    report = mended(lab, accept_loss=True)
    assert report.is_sound and [lost.until_epoch for lost in report.lost] == [31]
    assert lab.content() == without(b"active")


def test_an_end_that_is_gone_though_it_was_durable_is_accepted_as_lost() -> None:
    lab = compacted()
    newest = at(31, 5000)
    lab.put("epoch", epochs_file(head(30), durable(31, c0=newest), start_ns=at(31)))
    with pytest.raises(Corruption):
        lab.content()
    assert not mended(lab).is_sound
    report = mended(lab, accept_loss=True)
    assert report.is_sound and [lost.file for lost in report.lost] == ["pwal_0000"]
    assert lab.content() == expected()


def test_a_file_that_is_gone_is_accepted_as_lost() -> None:
    lab = compacted()
    lab.put("epoch", epochs_file(head(30, [], [CLOSED]), durable(31), start_ns=at(31)))
    lab.drop(CLOSED)
    assert not mended(lab).is_sound
    report = mended(lab, accept_loss=True)
    assert report.is_sound and [(lost.file, lost.after_epoch, lost.until_epoch) for lost in report.lost] == [
        (CLOSED, 20, 30)
    ]
    assert (1, b"c1 30") in lab.content() and (1, b"c0 30") not in lab.content()


def test_a_channel_that_is_gone_is_accepted_as_lost() -> None:
    lab = compacted()
    lab.put("epoch", epochs_file(head(30), durable(31, c5=at(31, 7)), start_ns=at(31)))
    report = mended(lab, accept_loss=True)
    assert report.is_sound and [lost.file for lost in report.lost] == ["pwal_0005"]
    assert lab.content() == expected()


# -- epoch files -----------------------------------------------------------------------------------------------------


def test_a_damaged_record_of_the_epoch_file_costs_that_record() -> None:
    lab = compacted()
    lab.put("epoch", epochs_file(head(30), b"\x07 nonsense", durable(31), start_ns=at(31)))
    assert not mended(lab).is_sound
    report = mended(lab, accept_loss=True)
    assert report.is_sound and broken_files(lab, "epoch")
    assert lab.content() == expected()


def test_what_the_parts_hold_is_durable_whatever_an_epoch_file_says() -> None:
    lab = compacted()
    for epoch in (10, 20, 30):
        lab.drop(rotated("epoch", epoch))
    lab.put("epoch", epochs_file(head(0), durable(11)))
    report = mended(lab, accept_loss=True)
    assert report.is_sound
    late = {b"c%d %d" % (channel, epoch) for channel in (0, 1) for epoch in (21, 24, 27, 30)}
    newest = {(1, b"c0"): b"newest 20", (1, b"c1"): b"newest 20"}
    assert lab.content() == {**without(b"active", *late), **newest}


def test_without_epoch_files_every_whole_session_is_taken_for_durable() -> None:
    lab = compacted()
    for epoch in (10, 20, 30):
        lab.drop(rotated("epoch", epoch))
    lab.drop("epoch")
    assert not mended(lab).is_sound
    report = mended(lab, accept_loss=True)
    assert report.is_sound and "may be back" in report.done[0]
    assert lab.content() == expected()


# -- when something goes wrong on the way ----------------------------------------------------------------------------


def damaged_all_over() -> Lab:
    lab = compacted(10, 20)
    spoil_catalog(lab)
    lab.flip(CLOSED, records(lab, CLOSED)[5])
    lab.flip(rotated("pwal_0001", 30), records(lab, rotated("pwal_0001", 30))[1])
    return lab


REPAIRED = without(b"c0 24", b"c1 21")


@pytest.mark.parametrize("operation", ["create", "append", "sync", "rename", "sync_folder", "list", "remove"])
def test_a_failing_disk_leaves_what_can_be_repaired_later(operation: str) -> None:
    nth = 0
    while True:
        nth += 1
        lab = damaged_all_over()
        files = FaultyFiles(lab.files)
        fault = files.fail(operation, nth=nth)
        try:
            repair(files, FOLDER, ManualClock(at(900)), accept_loss=True)
        except DiskError:
            pass
        else:
            if not fault.struck:
                break
        files.heal()
        repair(files, FOLDER, ManualClock(at(901)), accept_loss=True)
        assert lab.content() == REPAIRED, (operation, nth)


@pytest.mark.parametrize("model", ["strict", "journalled"])
def test_a_power_cut_leaves_what_can_be_repaired_later(model: str) -> None:
    files = PowerLoss(damaged_all_over().files.contents(), model=model)  # type: ignore[arg-type]
    repair(files, FOLDER, ManualClock(at(900)), accept_loss=True)
    files.note("done")
    count = 0
    for state in files.states(per_point=8):
        count += 1
        if not state.notes:
            repair(state.files, FOLDER, ManualClock(at(901)), accept_loss=True)
        assert content(state.files) == REPAIRED, state.label
    assert count > 10


def test_any_flipped_byte_costs_at_most_its_session() -> None:
    good = compacted()
    size = len(good.get(CLOSED))
    for offset in range(8, size, 11):
        lab = Lab.__new__(Lab)
        lab.files = MemoryFiles(good.files.contents())
        lab.flip(CLOSED, offset)
        report = mended(lab, accept_loss=True)
        found = lab.content()
        missing = [key for _, key in expected() if (1, key) not in found]
        assert report.is_sound and len(missing) == 1 and missing[0].startswith(b"c0 "), offset
        epoch = int(missing[0][3:])
        assert [(lost.after_epoch < epoch <= lost.until_epoch) for lost in report.lost] == [True], (offset, report.lost)


def test_the_lab_can_write_what_it_is_told() -> None:
    assert channel_file(session(3)).startswith(PWAL.header)
