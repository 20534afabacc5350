"""Promises of backup and restore: whole or not at all, checked before anything is written, and the same store again.

Named after the backup cases (B1 to B10) where they apply. B4 and B7 are about blobs: this store has none.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from lamina.engines.store import backup as backups
from lamina.engines.store import catalog as catalogs
from lamina.engines.store.backup import MANIFEST, RESTORING, BackedUp, Manifest, back_up, check_backup, restore
from lamina.engines.store.cleaning import clean_up
from lamina.engines.store.engine import StoreEngine
from lamina.errors import BadOption, Corruption, DiskError, DiskFull, LaminaError, WrongFormat
from lamina.log import kernel
from lamina.log.files.real import RealFiles
from lamina.testing import Fault, FaultyFiles, ManualClock, MemoryFiles, PowerLoss
from store_folder_lab import FOLDER, Content, Lab, at, content, expected, rotated

TO = "backup"
CLOCK = ManualClock(at(500))


def closed(lab: Lab) -> list[str]:
    """What a store would name after a rotation."""
    merged = set(lab.catalog().merged)
    return [name for name in lab.names() if catalogs.rotated_epoch(name) is not None and name not in merged]


def backed_up(lab: Lab, *, link: bool = True) -> Manifest:
    return back_up(lab.files, FOLDER, closed(lab), lab.catalog(), TO, clock=CLOCK, link=link)


def without_active() -> Content:
    return {place: value for place, value in expected().items() if place[1] != b"active"}


def compacted() -> Lab:
    lab = Lab()
    lab.compact(20)
    return lab


@pytest.mark.parametrize("link", [True, False])
def test_b09_a_restored_store_holds_what_was_backed_up(link: bool) -> None:
    lab = compacted()
    manifest = backed_up(lab, link=link)
    assert check_backup(lab.files, TO) == []
    assert restore(lab.files, TO, "restored") == manifest
    assert content(lab.files, "restored") == without_active()
    assert (manifest.epoch, manifest.time_ns) == (30, at(500))


def test_b09_a_store_that_was_never_compacted_is_restored_from_its_rotated_files() -> None:
    lab = Lab()
    backed_up(lab)
    restore(lab.files, TO, "restored")
    assert content(lab.files, "restored") == without_active()


def test_a_restored_store_takes_writes_and_opens_again() -> None:
    lab = compacted()
    backed_up(lab)
    restore(lab.files, TO, "restored")
    with StoreEngine.open("restored", files=lab.files, clock=ManualClock(at(2000))) as store:
        with store.channel().begin() as session:
            session.put(1, b"new", b"value")
        store.switch_epoch()
    assert content(lab.files, "restored") == {**without_active(), (1, b"new"): b"value"}
    assert check_backup(lab.files, TO) == []


def test_b01_the_backup_names_its_files_and_leaves_active_and_merged_ones_out() -> None:
    lab = compacted()
    manifest = backed_up(lab)
    names = {file.name for file in manifest.files}
    assert names == {
        *(rotated(stream, 30) for stream in ("pwal_0000", "pwal_0001", "epoch")),
        "pwal_compacted.1.0",
        "pwal_compacted.1.1",
        catalogs.NAME,
    }
    assert set(lab.files.list(TO)) == {*names, MANIFEST}
    assert catalogs.load(lab.files, TO).merged == ()
    assert manifest.bytes == sum(len(lab.files.contents()[f"{TO}/{name}"]) for name in names)


def test_b03_files_of_a_channel_that_nobody_uses_any_more_are_in_it() -> None:
    lab = Lab()
    assert rotated("pwal_0001", 10) in {file.name for file in backed_up(lab).files}


def test_linked_files_take_no_room_and_copies_do() -> None:
    lab = compacted()
    backed_up(lab, link=True)
    name = rotated("pwal_0000", 30)
    source, linked = (lab.files.open(f"{folder}/{name}").identity for folder in (FOLDER, TO))
    assert source == linked
    restore(lab.files, TO, "restored")
    assert lab.files.open(f"restored/{name}").identity != source, "a restored store shares nothing with its backup"


def test_a_backup_outlives_what_clean_up_removes() -> None:
    lab = compacted()
    backed_up(lab)
    clean_up(lab.files, FOLDER, lab.compact(30))
    assert check_backup(lab.files, TO) == []
    restore(lab.files, TO, "restored")
    assert content(lab.files, "restored") == without_active()


@pytest.mark.parametrize("error", [errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS])
def test_where_names_cannot_be_linked_files_are_copied(error: int) -> None:
    lab = compacted()
    files = FaultyFiles(lab.files)
    files.fail("link", error=error, times=100)
    back_up(files, FOLDER, closed(lab), lab.catalog(), TO, clock=CLOCK)
    name = rotated("pwal_0000", 30)
    assert lab.files.open(f"{TO}/{name}").identity != lab.files.open(f"{FOLDER}/{name}").identity
    assert check_backup(lab.files, TO) == []


def test_it_works_on_a_real_disk(tmp_path: Path) -> None:
    lab = compacted()
    (tmp_path / FOLDER).mkdir()
    for path, data in lab.files.contents().items():
        (tmp_path / path).write_bytes(data)
    files, folder, to = RealFiles(), str(tmp_path / FOLDER), str(tmp_path / "deep" / TO)
    back_up(files, folder, closed(lab), lab.catalog(), to, clock=CLOCK)
    name = rotated("pwal_0000", 30)
    assert (tmp_path / "deep" / TO / name).stat().st_nlink == 2
    restore(files, to, str(tmp_path / "restored"))
    assert (tmp_path / "restored" / name).stat().st_nlink == 1
    with StoreEngine.open(str(tmp_path / "restored")) as store:
        assert {(found.storage, found.key): found.value for found in store.snapshot().scan()} == without_active()


# -- refusals --------------------------------------------------------------------------------------------------------


def test_a_backup_never_goes_into_a_folder_that_is_not_empty() -> None:
    lab = compacted()
    lab.files.write(f"{TO}/notes.txt", b"mine")
    before = lab.files.contents()
    with pytest.raises(BadOption, match=r"not empty: notes\.txt"):
        backed_up(lab)
    assert lab.files.contents() == before


def test_a_backup_never_goes_into_the_store() -> None:
    lab = compacted()
    before = lab.files.contents()
    for to in (FOLDER, f"{FOLDER}/", f"{FOLDER}/backup", f"{FOLDER}/ctrl/deep/"):
        with pytest.raises(BadOption, match="in the folder of the store"):
            back_up(lab.files, FOLDER, closed(lab), lab.catalog(), to, clock=CLOCK)
    assert lab.files.contents() == before
    back_up(lab.files, FOLDER, closed(lab), lab.catalog(), f"{FOLDER}-of-monday", clock=CLOCK)


def test_an_empty_folder_is_taken() -> None:
    lab = compacted()
    lab.files.make_folder(TO)
    lab.files.make_folder("restored")
    backed_up(lab)
    restore(lab.files, TO, "restored")
    assert content(lab.files, "restored") == without_active()


@pytest.mark.parametrize(
    "name", ["pwal_0000", "epoch", "../secret", "lamina.lock", "run.1", "x/pwal_0000.01700000000010.10", ""]
)
def test_b06_only_names_of_closed_files_are_taken_never_paths(name: str) -> None:
    lab = compacted()
    before = lab.files.contents()
    with pytest.raises(BadOption, match="not the name of a closed file"):
        back_up(lab.files, FOLDER, [name], lab.catalog(), TO, clock=CLOCK)
    assert lab.files.contents() == before


def test_b05_a_file_that_is_not_there_is_told_and_nothing_is_left() -> None:
    lab = compacted()
    with pytest.raises(DiskError) as caught:
        back_up(lab.files, FOLDER, [rotated("pwal_0000", 77)], lab.catalog(), TO, clock=CLOCK)
    assert caught.value.facts["errno"] == "ENOENT"
    assert lab.files.list(TO) == []


def test_a_damaged_part_is_not_backed_up() -> None:
    lab = compacted()
    lab.flip("pwal_compacted.1.1", 200)
    with pytest.raises(Corruption, match=r"pwal_compacted.1.1.*not what the catalog says"):
        backed_up(lab)
    assert lab.files.list(TO) == []


@pytest.mark.parametrize("where", ["missing", "torn", "later", "checksum", "empty"])
def test_b08_a_bad_manifest_is_refused_before_anything_is_written(where: str) -> None:
    lab = compacted()
    backed_up(lab)
    text = lab.files.contents()[f"{TO}/{MANIFEST}"]
    texts = {
        "torn": text[:-3],
        "later": text.replace(b"backup 1\n", b"backup 2\n"),
        "checksum": text.replace(b"epoch 30", b"epoch 31"),
        "empty": b"",
    }
    if where == "missing":
        lab.files.remove(f"{TO}/{MANIFEST}")
    else:
        lab.files.write(f"{TO}/{MANIFEST}", texts[where])
    before = lab.files.contents()
    assert len(check_backup(lab.files, TO)) == 1
    with pytest.raises((Corruption, WrongFormat)):
        restore(lab.files, TO, "restored")
    assert lab.files.contents() == before


def test_b08_any_change_of_any_file_is_noticed_before_anything_is_written() -> None:
    lab = compacted()
    manifest = backed_up(lab, link=False)
    good = lab.files.contents()
    for file in manifest.files:
        data = good[f"{TO}/{file.name}"]
        flipped = bytearray(data)
        flipped[len(data) // 2] ^= 1
        for change in (bytes(flipped), data[:-1], data + b"\0", None):
            files = MemoryFiles(good)
            if change is None:
                files.remove(f"{TO}/{file.name}")
            else:
                files.write(f"{TO}/{file.name}", change)
            before = files.contents()
            assert [problem for problem in check_backup(files, TO) if problem.startswith(file.name)]
            with pytest.raises(Corruption, match=f"not whole: {file.name}"):
                restore(files, TO, "restored")
            assert files.contents() == before


def test_restoring_never_overwrites_a_store() -> None:
    lab = compacted()
    backed_up(lab)
    before = lab.files.contents()
    with pytest.raises(BadOption, match="not empty"):
        restore(lab.files, TO, FOLDER)
    assert lab.files.contents() == before


def test_a_folder_that_is_in_the_way_of_restoring_stays() -> None:
    lab = compacted()
    backed_up(lab)
    lab.files.write(f"restored{RESTORING}/notes.txt", b"mine")
    with pytest.raises(BadOption, match="in the way"):
        restore(lab.files, TO, "restored")
    assert lab.files.contents()[f"restored{RESTORING}/notes.txt"] == b"mine"


# -- when the disk fails ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["create", "append", "sync", "sync_folder", "rename", "open", "read"])
@pytest.mark.parametrize("link", [True, False])
def test_a_backup_that_fails_is_no_backup_and_can_be_made_again(operation: str, link: bool) -> None:
    nth = 0
    while True:
        nth += 1
        lab = compacted()
        names, catalog = closed(lab), lab.catalog()
        files = FaultyFiles(lab.files)
        fault = files.fail(operation, nth=nth, error=errno.ENOSPC if operation == "append" else errno.EIO)
        try:
            back_up(files, FOLDER, names, catalog, TO, clock=CLOCK, link=link)
        except LaminaError as error:
            assert isinstance(error, DiskFull if operation == "append" else DiskError)
        else:
            assert check_backup(lab.files, TO) == []
            if fault.struck:  # where the file is read again
                continue
            break
        lab.files.make_folder(TO)
        assert lab.files.list(TO) == []
        assert lab.content() == expected()
        backed_up(lab, link=link)


@pytest.mark.parametrize("operation", ["create", "append", "sync", "sync_folder", "rename_folder"])
def test_a_restore_that_fails_leaves_no_store_and_can_be_done_again(operation: str) -> None:
    good = compacted()
    backed_up(good)
    nth = 0
    while True:
        nth += 1
        inner = MemoryFiles(good.files.contents())
        files = FaultyFiles(inner)
        fault = Fault(operation, nth=nth)
        files.faults.append(fault)
        try:
            restore(files, TO, "restored")
        except DiskError:
            pass
        else:
            assert not fault.struck
            break
        assert not [path for path in inner.contents() if path.startswith("restored/")]
        files.heal()
        restore(files, TO, "restored")
    assert nth > 1


@pytest.mark.parametrize("model", ["strict", "journalled"])
@pytest.mark.parametrize("link", [True, False])
def test_after_a_power_cut_there_is_a_whole_backup_or_none(model: str, link: bool) -> None:
    lab = compacted()
    files = PowerLoss(lab.files.contents(), model=model)  # type: ignore[arg-type]
    back_up(files, FOLDER, closed(lab), lab.catalog(), TO, clock=CLOCK, link=link)
    files.note("done")
    whole = 0
    for state in files.states(per_point=30):
        state.files.make_folder(TO)
        problems = check_backup(state.files, TO)
        if MANIFEST in state.files.list(TO):
            assert problems == [], state.label
            whole += 1
        else:
            assert not state.notes and "no manifest" in problems[0], state.label
    assert whole


@pytest.mark.parametrize("model", ["strict", "journalled"])
def test_after_a_power_cut_there_is_a_whole_store_or_none(model: str) -> None:
    lab = compacted()
    backed_up(lab)
    files = PowerLoss(lab.files.contents(), model=model)  # type: ignore[arg-type]
    restore(files, TO, "restored")
    files.note("done")
    whole = 0
    for state in files.states(per_point=20):
        if any(path.startswith("restored/") for path in state.files.contents()):
            assert content(state.files, "restored") == without_active(), state.label
            whole += 1
        else:
            assert not state.notes, state.label
            restore(state.files, TO, "restored")
            assert content(state.files, "restored") == without_active(), state.label
    assert whole


# -- the manifest ----------------------------------------------------------------------------------------------------


def test_the_manifest_is_as_documented() -> None:
    manifest = Manifest(7, 99, (BackedUp(catalogs.NAME, 5, 1), BackedUp("pwal_compacted.1.0", 6, 0xABCDEF01)))
    text = backups.encode(manifest)
    assert text.decode().splitlines()[:-1] == [
        "lamina store backup 1",
        "epoch 7",
        "made 99",
        f"file {catalogs.NAME} 5 00000001",
        "file pwal_compacted.1.0 6 abcdef01",
    ]
    assert backups.decode(text) == manifest


@pytest.mark.parametrize(
    "line",
    [
        "file ../../etc/passwd 5 00000001",
        "file /etc/passwd 5 00000001",
        "file pwal_0000 5 00000001",
        "file backup_manifest 5 00000001",
        "file compaction_catalog 5 00000001",
        "file pwal_compacted.1.0 -5 00000001",
        "file pwal_compacted.1.0 5 1",
        "file pwal_compacted.1.0 5",
        "epoch 8",
        "epoch x",
        "nonsense",
        "",
    ],
)
def test_a_line_of_the_manifest_that_cannot_be_is_refused(line: str) -> None:
    text = f"lamina store backup 1\nepoch 7\nmade 9\nfile {catalogs.NAME} 5 00000001\n".encode()
    with_line = text + line.encode() + b"\n"
    with pytest.raises(Corruption) as caught:
        backups.decode(with_line + b"crc %08x\n" % kernel.crc32c(with_line))
    assert caught.value.offset == len(text)


def test_every_cut_of_the_manifest_is_noticed() -> None:
    text = backups.encode(Manifest(7, 99, (BackedUp(catalogs.NAME, 5, 1),)))
    for size in range(len(text)):
        with pytest.raises(Corruption):
            backups.decode(text[:size])
