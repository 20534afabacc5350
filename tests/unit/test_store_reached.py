"""Promises of what files of channels say of the epoch file: nothing that is not synced there, and enough to miss it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from click.testing import CliRunner

import lamina
from lamina.cli.doctor_finding import PROBLEM
from lamina.cli.doctor_logs import look
from lamina.cli.log import log
from lamina.engines.store import backup, codec
from lamina.engines.store.codec import Reached
from lamina.engines.store.repairing import repair
from lamina.engines.store.verifying import verify
from lamina.errors import Corruption, StorageError
from lamina.log import kernel
from lamina.pipeline.backing.making import back_up
from lamina.testing import ManualClock
from store_folder_lab import FOLDER as BY_HAND
from store_folder_lab import Lab, expected
from store_lab import FOLDER, StoreLab


def reached(lab: StoreLab, name: str) -> list[Reached]:
    """All that a file of a channel says."""
    data = lab.data(name)
    found = kernel.scan(bytes(data), 8, len(data))
    payloads = [
        bytes(data[offset : offset + length]) for offset, length in zip(found.offsets, found.lengths, strict=True)
    ]
    return [each for payload in payloads if (each := codec.read_reached(payload)) is not None]


def test_the_record_is_read_as_it_was_written_and_no_other_is() -> None:
    for voids in ((), ((3, 4),), ((3, 4), (9, codec.MOST))):
        assert codec.read_reached(codec.reached(7, 1 << 62, voids)) == Reached(7, 1 << 62, voids)
    whole = codec.reached(7, 8, [(1, 2)])
    assert [size for size in range(len(whole)) if codec.read_reached(whole[:size])] == [len(whole) - 16]
    assert codec.read_reached(codec.put(1, codec.REACHED, bytes(16), 1, 1)) is None


def test_each_epoch_is_repeated_once_by_the_next_session_of_a_channel() -> None:
    lab = StoreLab()
    for epoch in (2, 3, 4):
        lab.s(0, epoch, k="1")
        lab.s(0, epoch, k="2")
    lab.sw()
    lab.s(1, k="other")
    lab.sw()
    assert [each.epoch for each in reached(lab, "pwal_0000")] == [0, 2, 3]
    assert [each.epoch for each in reached(lab, "pwal_0001")] == [4]
    lab.store.close()
    assert [each.epoch for each in reached(lab, "pwal_0000")] == [0, 2, 3, 5]
    assert [each.epoch for each in reached(lab, "pwal_0001")] == [4, 5], "all that is known at the end"


def test_it_takes_no_write_and_no_sync_of_its_own() -> None:
    lab = StoreLab()
    lab.s(0, 2, k="1")
    lab.sw()
    lab.s(0, k="2")
    before = len(lab.files.calls)
    lab.sw()
    done = [operation for operation, path in lab.files.calls[before:] if path.endswith("pwal_0000")]
    assert done == ["append", "sync"]


def test_a_value_that_looks_like_one_is_a_value() -> None:
    lab = StoreLab()
    forged = codec.reached(1 << 40, 1 << 62)
    with lab.ch(0).begin() as session:
        session.put(1, b"k", forged)
        session.put(1, forged, b"v")
    lab.sw()
    lab.reopen()
    assert {each.value for each in lab.store.snapshot().scan(1)} == {forged, b"v"}


def test_an_epoch_that_the_disk_refused_to_record_is_not_repeated_as_durable() -> None:
    lab = StoreLab()
    lab.s(0, 2, k="1")
    lab.sw()
    known = lab.store.epoch_log.reached
    lab.files.fail("append", only="/epoch", error=errno.ENOSPC)
    lab.s(0, k="2")
    lab.sw()
    assert lab.store.epoch_log.reached == known and lab.store.voids == [(3, 3)]
    lab.files.heal()
    lab.s(0, k="3")
    lab.sw()
    lab.s(0, k="4")
    lab.sw()
    *_, before, last = reached(lab, "pwal_0000")
    assert (before.epoch, last.epoch) == (2, 4) and last.voids == ((3, 3),)


@pytest.mark.parametrize("is_closed", [True, False])
def test_without_the_epoch_file_of_a_run_that_wrote_it_does_not_open(is_closed: bool) -> None:
    lab = StoreLab()
    lab.s(0, 2, k="1")
    lab.sw()
    lab.reopen()
    lab.s(1, k="2")
    lab.sw()
    if is_closed:
        lab.store.close()
    lab.crash()
    lab.drop("epoch")
    error = lab.refuses_to_open(Corruption)
    assert error.facts["file"] == "epoch" and "is not there" in str(error)
    (damage,) = verify(lab.disk, FOLDER).damage
    assert (damage.file, damage.offset, damage.is_missing) == ("epoch", 0, True)
    report = repair(lab.disk, FOLDER, lab.clock)
    assert report.is_sound == is_closed, "of a killed one it is not known whether the last epoch was durable"
    if not is_closed:
        assert repair(lab.disk, FOLDER, lab.clock, accept_loss=True).is_sound
    lab.store = lab.open()
    assert lab.entries() == {"k": "2"}


def test_an_epoch_file_may_be_missing_while_it_is_rotated() -> None:
    """A crash between the two: what is in the new file of the channel is not durable, and says nothing else."""
    lab = StoreLab()
    lab.s(0, 2, k="1")
    lab.store.request_rotation()
    lab.files.fail("create", only="/epoch", error=errno.ENOSPC, times=100)
    lab.sw()
    lab.s(0, k="2")
    lab.flush()
    assert "epoch" not in lab.names() and "pwal_0000" in lab.names()
    lab.restart()
    assert lab.entries() == {"k": "1"}
    assert verify(lab.disk, FOLDER).is_sound


def test_a_folder_of_an_earlier_version_says_nothing_and_is_taken_as_it_is() -> None:
    lab = Lab()
    assert verify(lab.files, BY_HAND).reached == Reached()
    assert lab.content() == expected()


def test_stopping_without_a_change_adds_nothing() -> None:
    lab = StoreLab()
    lab.s(0, k="1")
    lab.sw()
    lab.reopen()
    before = {name: bytes(lab.data(name)) for name in lab.names("pwal_") if not name.endswith(".index")}
    lab.reopen()
    assert before == {name: bytes(lab.data(name)) for name in lab.names("pwal_") if not name.endswith(".index")}


def test_the_catalog_is_named_when_it_is_committed_and_at_the_head_of_each_epoch_file() -> None:
    lab = StoreLab()
    lab.s(0, k="1")
    lab.compact()
    lab.s(0, k="2")
    lab.sw()
    lab.crash()
    older = lab.data("compaction_catalog.0")
    lab.put_file("compaction_catalog", bytes(older))
    assert lab.refuses_to_open(Corruption).facts["file"] == "compaction_catalog"
    lab.drop("compaction_catalog")
    assert lab.refuses_to_open(Corruption).facts["file"] == "compaction_catalog"
    assert repair(lab.disk, FOLDER, lab.clock).is_sound
    lab.store = lab.open()
    assert lab.entries() == {"k": "2"}


def test_a_backup_is_not_made_of_a_damaged_file() -> None:
    lab = StoreLab()
    lab.s(0, k="a value")
    rotated = lab.rotate()
    (name,) = [name for name in rotated.files if name.startswith("pwal_")]
    lab.damage(name, lab.data(name).index(b"a value"))
    with pytest.raises(Corruption, match=name):
        backup.back_up(lab.disk, FOLDER, rotated.files, lab.store.catalog, "backup", clock=ManualClock())
    lab.disk.make_folder("backup")
    assert lab.disk.list("backup") == []


# -- where people look -----------------------------------------------------------------------------------------------


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A data folder whose store has lost the end of its epoch file, at the end of a record."""
    data = tmp_path / "data"
    with lamina.open(data) as opened:
        opened.store.put(1, b"a", b"1")
        size = (data / "store/epoch").stat().st_size
        opened.store.put(1, b"a", b"2")
    epoch = data / "store/epoch"
    epoch.write_bytes(epoch.read_bytes()[:size])
    return data


@pytest.mark.parametrize("deep", [True, False])
def test_the_doctor_says_so(broken: Path, deep: bool) -> None:
    problems = [finding for finding in look(str(broken), deep=deep) if finding.level == PROBLEM]
    assert [finding.about for finding in problems] == ["store"]
    assert problems[0].text.startswith("epoch, byte ") and "lamina store repair" in problems[0].do


def test_so_does_log_verify_of_the_folder(broken: Path) -> None:
    result = CliRunner().invoke(log, ["verify", str(broken / "store")], standalone_mode=False)
    assert result.return_value == 6 and "epoch, byte " in result.output


def test_so_does_a_backup_of_the_data_folder(broken: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="epoch, byte "):
        back_up(str(broken), str(tmp_path / "backup"))
