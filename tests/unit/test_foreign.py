"""Folders of other programs are refused before anything in them is opened, made or taken for damage."""

from __future__ import annotations

from pathlib import Path

import pytest

import lamina
from lamina.engines.queues.looking import look
from lamina.engines.queues.opening import open_engine
from lamina.engines.store.engine import StoreEngine
from lamina.errors import WrongFormat
from lamina.log import foreign, mark
from lamina.log.formats import ALL
from lamina.testing import MemoryFiles

SMP_LOG = b"CREATE rid=2kDMz7yJ rk=MCowBQYDK2VuAyEA rdh=A1b2 sid=Zm9v sk= queue_mode=M\nSECURE 2kDMz7yJ MCowBQYD\n"
SMP_MESSAGES = b"v3 2kDMz7yJ a1b2c3 1717171717 flags=T aGVsbG8\n"
SMP_NAMES = [
    "smp-server-store.log",
    "smp-server-store.log.start",
    "smp-server-store.log.2026-11-15T06:17:00Z",
    "smp-server-messages.log",
    "smp-server-messages.log.bak",
]


@pytest.mark.parametrize("name", SMP_NAMES)
def test_queues_are_not_begun_beside_the_log_of_an_smp_server(name: str) -> None:
    files = MemoryFiles({f"queues/{name}": SMP_LOG})
    with pytest.raises(WrongFormat, match="found a file of an SMP server") as caught:
        open_engine("queues", files=files, threaded=False)
    assert caught.value.file == f"queues/{name}" and "nothing was changed" in caught.value.hint
    assert files.contents() == {f"queues/{name}": SMP_LOG}
    with pytest.raises(WrongFormat, match="found a file of an SMP server"):
        look(files, "queues")


@pytest.mark.parametrize("kind", ["log", "dump"])
@pytest.mark.parametrize("text", [SMP_LOG, SMP_LOG[:9], SMP_MESSAGES, b"NEW_SERVICE service_id=1", b"ACK a b\n"])
@pytest.mark.parametrize("force", [False, True])
def test_text_of_an_smp_server_under_a_name_of_ours_is_no_damage(kind: str, text: bytes, *, force: bool) -> None:
    path = f"queues/smp-server-store-3.{kind}"
    files = MemoryFiles({path: text})
    with pytest.raises(WrongFormat, match="expected a queue store of lamina, found a file of an SMP server"):
        open_engine("queues", files=files, threaded=False, force=force)
    assert {name: data for name, data in files.contents().items() if not name.endswith(".lock")} == {path: text}


def test_headers_of_ours_are_never_taken_for_text() -> None:
    for format in ALL:
        for size in range(len(format.header) + 1):
            foreign.refuse_smp_text("name", format.header[:size])
            foreign.refuse_smp_text("name", format.header[:size].ljust(8, b"\0"))


@pytest.mark.parametrize("name", [*SMP_NAMES, "limestone-manifest.json"])
def test_a_data_folder_is_not_begun_in_the_folder_of_another_program(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(SMP_LOG)
    with pytest.raises(WrongFormat, match="expected a folder of lamina, found"):
        lamina.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_data_folder_that_has_its_mark_is_ours_whatever_else_lies_there() -> None:
    files = MemoryFiles({"data/smp-server-store.log": SMP_LOG, f"data/{mark.NAME}": b'{"format": 1}\n'})
    mark.make(files, "data")
    assert mark.check(files, "data") == mark.FORMAT


def test_a_store_is_not_opened_in_a_folder_of_limestone_and_the_way_is_named() -> None:
    contents = {"store/limestone-manifest.json": b"{}", "store/epoch": b"", "store/compaction_catalog": b"x"}
    files = MemoryFiles(contents)
    with pytest.raises(WrongFormat, match="found the manifest of limestone") as caught:
        StoreEngine.open("store", files=files)
    assert "lamina store import store --to DIR" in caught.value.hint
    assert files.contents() == contents
