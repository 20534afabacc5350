"""Errors about the files of a store name the commands that are for a store."""

from __future__ import annotations

import pytest

from lamina.engines.store import hints
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.options import StoreOptions
from lamina.errors import BadOption, Corruption, WrongFormat
from lamina.log.files.memory import MemoryFiles
from lamina.log.naming import sort_out
from lamina.log.repair import check_is_no_store

FOLDER = "store"


def opened(files: MemoryFiles) -> StoreEngine:
    return StoreEngine.open(FOLDER, files=files, options=StoreOptions(epoch_ms=0))


def filled() -> MemoryFiles:
    files = MemoryFiles()
    engine = opened(files)
    with engine.channel().begin() as session:
        session.put(1, b"tea", b"two")
    engine.switch_epoch()
    engine.close()
    return files


def changed(files: MemoryFiles, name: str, content: bytes) -> None:
    files.remove(f"{FOLDER}/{name}")
    files.write(f"{FOLDER}/{name}", content)


@pytest.mark.parametrize("name", ["pwal_0000", "epoch"])
def test_damage_of_a_file_is_to_be_repaired_by_the_store(name: str) -> None:
    whole = filled().contents()[f"{FOLDER}/{name}"]
    said = []
    for at in range(0, len(whole), 3):
        files = filled()
        changed(files, name, whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            opened(files).close()  # it may be taken for a torn end
        except Corruption as error:
            said.append(error.hint)
        except WrongFormat as error:
            assert "lamina log" not in str(error)
    assert hints.DAMAGED in said
    assert set(said) <= {hints.DAMAGED, hints.MISSING}


def test_an_epoch_file_or_the_end_of_a_channel_that_is_gone_is_to_be_put_back() -> None:
    for name in ("pwal_0000", "epoch"):
        files = filled()
        files.remove(f"{FOLDER}/{name}")
        with pytest.raises(Corruption) as raised:
            opened(files)
        assert raised.value.hint == hints.MISSING


def test_a_closed_file_without_a_header_is_damage() -> None:
    files = filled()
    opened(files).close()  # rotates what the run before has left
    rotated = next(name for name in files.list(FOLDER) if name.startswith("pwal_0000."))
    changed(files, rotated, b"lm")
    with pytest.raises(Corruption, match="header is cut short") as raised:
        opened(files)
    assert raised.value.hint == hints.DAMAGED


@pytest.mark.parametrize(
    "name", ["pwal_0000", "epoch.01794723420124.2", "pwal_compacted.1.0", "compaction_catalog", "compaction_catalog.3"]
)
def test_one_file_is_enough_to_know_a_store_by(name: str) -> None:
    with pytest.raises(BadOption, match="lamina store repair"):
        check_is_no_store(FOLDER, sort_out([name, "notes.txt"]))


def test_other_logs_are_no_store() -> None:
    check_is_no_store("jobs", sort_out(["000000001.log", "append.lock", "20261115T061700.123456789Z.dat"]))
