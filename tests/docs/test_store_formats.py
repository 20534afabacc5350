"""The page about the files of the store is right: its hex, its lines and its names are what the code writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lamina.engines.store import backup, codec
from lamina.engines.store.compactions import Compactions
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.options import StoreOptions
from lamina.log.files import read_at
from lamina.testing import ManualClock, MemoryFiles
from lamina.units import parse_time

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/formats/store.md").read_text()
MOMENT = parse_time("2026-11-15T06:17:00.123456789Z")


def hex_blocks() -> list[bytes]:
    """Comments behind three blanks left out."""
    found = []
    for block in re.findall(r"```\n(.*?)```", PAGE, re.DOTALL):
        digits = "".join(re.split(r" {3,}", line)[0].replace(" ", "") for line in block.splitlines())
        if re.fullmatch(r"(?:[0-9a-f]{2})+", digits):
            found.append(bytes.fromhex(digits))
    return found


def content(files: MemoryFiles, name: str) -> bytes:
    file = files.open(f"store/{name}")
    return read_at(file, 0, file.size())


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def store(files: MemoryFiles) -> StoreEngine:
    """The store of the page: one session, whose epoch is over."""
    store = StoreEngine.open("store", files=files, clock=ManualClock(MOMENT), options=StoreOptions(epoch_ms=0))
    with store.channel().begin() as session:
        session.put(1, b"tea", b"two")
        session.remove(1, b"cup")
    store.switch_epoch()
    return store


def compact(store: StoreEngine) -> None:
    def nudge() -> None:
        if store.is_urgent():
            store.switch_epoch()
        else:
            store.settle()

    store.nudge = nudge
    Compactions(store).compact()


def test_the_worked_examples_of_a_session_and_of_epochs_are_right(files: MemoryFiles, store: StoreEngine) -> None:
    session, epochs, _ = hex_blocks()
    assert content(files, "pwal_0000") == session
    assert content(files, "epoch") == epochs


def test_the_worked_examples_of_a_sorted_file_and_a_catalog_are_right(files: MemoryFiles, store: StoreEngine) -> None:
    _, _, part = hex_blocks()
    compact(store)
    assert content(files, "pwal_compacted.1.0") == part
    assert f"```\n{content(files, 'compaction_catalog').decode()}```" in PAGE
    for name in files.list("store"):
        if name != "ctrl" and not name.endswith(".index"):
            assert f"store/{name} " in PAGE or f" {name} " in PAGE, name


def test_the_manifest_of_a_backup_is_right(files: MemoryFiles, store: StoreEngine) -> None:
    compact(store)
    backup.back_up(files, "store", ["epoch.01794723420124.2"], store.catalog, "backup", clock=ManualClock(MOMENT))
    file = files.open(f"backup/{backup.MANIFEST}")
    assert f"```\n{read_at(file, 0, file.size()).decode()}```" in PAGE


def test_every_kind_of_record_is_on_the_page() -> None:
    for kind in (codec.BEGIN, codec.END, codec.CLEAR, codec.ADD, codec.DROP, codec.HEAD, codec.INDEX, codec.TAIL):
        assert re.search(rf"^\| `{kind:02x}` ", PAGE, re.MULTILINE), kind
    for kind in (codec.PUT, codec.REMOVE):
        assert f"| `{kind:02x}` storage" in PAGE
