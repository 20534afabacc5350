"""A store made of entries that come in order: whole or not there at all, and it goes on as any other."""

from __future__ import annotations

import pytest

from lamina.engines.store import catalog as catalogs
from lamina.engines.store.codec import MOST
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.importing import Entries, Imported, import_entries
from lamina.engines.store.options import StoreOptions
from lamina.engines.store.verifying import verify
from lamina.errors import BadEntry, BadOption, DiskError, DiskFull
from lamina.log.files import Files
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles, PowerLoss

TO = "data/store"
SOME = [(1, b"", b"empty key"), (1, b"a", b""), (1, b"b", b"\0" * 100), (256, b"a", b"x"), (MOST, b"\xff", b"last")]


def imported(files: Files, entries: Entries = SOME, epoch: int = 7, part_bytes: int = 1 << 20) -> Imported:
    return import_entries(files, entries, epoch, TO, clock=ManualClock(), part_bytes=part_bytes)


def opened(files: Files) -> StoreEngine:
    return StoreEngine.open(TO, files=files, clock=ManualClock(), options=StoreOptions(epoch_ms=0))


def entries_of(files: Files) -> list[tuple[int, bytes, bytes]]:
    with opened(files) as store:
        return [(found.storage, found.key, found.value) for found in store.snapshot().scan()]


def test_the_new_store_holds_the_entries_and_goes_on_behind_the_epoch() -> None:
    files = MemoryFiles()
    report = imported(files)
    assert (report.entries, report.storages, report.epoch, report.parts) == (5, 3, 7, 1)
    assert files.list("data") == ["store"]
    assert verify(files, TO).is_sound
    with opened(files) as store:
        assert (store.last_epoch, store.epoch, store.floor) == (7, 8, 7)
        assert {found.version for found in store.snapshot().scan()} == {(7, 0)}
        with store.channel().begin() as session:
            session.put(1, b"a", b"newer")
        store.switch_epoch()
        found = store.view.get(1, b"a")
        assert found is not None and found.value == b"newer"
    assert len(entries_of(files)) == 5


@pytest.mark.parametrize("epoch", [0, 1, MOST - 1])
def test_a_store_without_entries_is_one(epoch: int) -> None:
    files = MemoryFiles()
    assert imported(files, [], epoch) == Imported(0, 0, epoch, 0, 0)
    assert entries_of(files) == []
    assert catalogs.load(files, TO).generation == 1


def test_many_entries_are_cut_into_parts() -> None:
    files = MemoryFiles()
    many = [(storage, b"%06d" % number, b"v" * 100) for storage in (1, 2) for number in range(500)]
    report = imported(files, many, part_bytes=10_000)
    assert report.parts > 8
    assert entries_of(files) == many
    assert verify(files, TO).is_sound


def test_a_folder_that_is_not_empty_is_refused_and_left_alone() -> None:
    files = MemoryFiles({f"{TO}/notes": b"mine"})
    with pytest.raises(BadOption, match="notes"):
        imported(files)
    files = MemoryFiles({f"{TO}.importing/notes": b"mine"})
    with pytest.raises(BadOption, match=r"importing is in the way: notes"):
        imported(files)
    assert files.contents() == {f"{TO}.importing/notes": b"mine"}


def test_an_empty_folder_will_do() -> None:
    files = MemoryFiles()
    files.make_folder(TO)
    assert imported(files).entries == 5


@pytest.mark.parametrize("epoch", [-1, MOST])
def test_an_epoch_that_cannot_be_the_last_one_is_refused(epoch: int) -> None:
    with pytest.raises(BadEntry):
        imported(MemoryFiles(), epoch=epoch)


def test_an_entry_that_is_too_large_for_a_store_is_refused_and_nothing_is_made() -> None:
    files = MemoryFiles()
    with pytest.raises(BadEntry, match="storage 9, key 6b"):
        imported(files, [(9, b"k", bytes(64 << 20))])
    assert files.list("data") == []


def test_entries_out_of_order_are_a_mistake() -> None:
    files = MemoryFiles()
    with pytest.raises(ValueError, match="rise"):
        imported(files, [(1, b"b", b""), (1, b"a", b"")])
    assert files.list("data") == []


@pytest.mark.parametrize("operation", ["create", "append", "sync", "rename", "sync_folder"])
def test_a_disk_that_fails_leaves_nothing_and_the_next_import_works(operation: str) -> None:
    number = 1
    while True:
        files = FaultyFiles(MemoryFiles())
        fault = files.fail(operation, nth=number, error=28)
        try:
            imported(files, part_bytes=100)
        except (DiskFull, DiskError):
            pass
        else:
            break
        assert fault.struck
        files.heal()
        if "store" in files.list("data"):  # only its very last sync failed
            assert entries_of(files) == SOME
        else:
            imported(files)
            assert entries_of(files) == SOME
        number += 1
    assert number > 1


def test_a_power_cut_leaves_the_target_as_it_was_or_whole_and_importing_again_works() -> None:
    disk = PowerLoss()
    imported(disk, part_bytes=100)
    disk.note("done")
    states = 0
    for state in disk.states(per_point=40):
        states += 1
        files = state.files
        if any(path.startswith(f"{TO}/") for path in files.contents()):
            assert entries_of(files) == SOME
        else:
            assert "done" not in state.notes
            imported(files)
            assert entries_of(files) == SOME
    assert states > 50
