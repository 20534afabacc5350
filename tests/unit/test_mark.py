"""The mark of a data folder: a later layout is refused before anything is opened, a missing mark is layout 1."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

import lamina
from lamina.errors import WrongFormat
from lamina.log import mark
from lamina.log.files import join, write_all
from lamina.log.files.faulty import FaultyFiles
from lamina.log.files.memory import MemoryFiles
from lamina.testing import PowerLoss


def marked(text: str) -> MemoryFiles:
    files = MemoryFiles()
    files.make_folder("data")
    file = files.create(join("data", mark.NAME))
    write_all(file, [text.encode()])
    file.close()
    return files


def test_a_folder_is_marked_once_and_then_known() -> None:
    files = MemoryFiles()
    assert not mark.check(files, "data")
    files.make_folder("data")
    files.create(join("data", mark.NAME + ".new")).close()  # of one that was killed
    assert not mark.check(files, "data")
    mark.make(files, "data")
    assert mark.check(files, "data")
    assert files.list("data") == [mark.NAME]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "1", '{"format": "1"}', '{"format": 0}', '{"format": true}', "{}", "[" * 4000]
)
def test_what_is_no_mark_is_refused(text: str) -> None:
    with pytest.raises(WrongFormat, match="this is not the mark of a data folder"):
        mark.check(marked(text), "data")


def test_one_of_a_later_version_is_refused_whatever_else_it_says() -> None:
    with pytest.raises(WrongFormat, match=r"data/lamina\.json.*version 3, this program knows version 2"):
        mark.check(marked('{"format": 3, "more": {}}'), "data")
    assert mark.check(marked('{"format": 2, "more": {}}'), "data") == 2


@pytest.mark.parametrize("part", ["jobs", "topics"])
def test_a_folder_of_the_former_layout_is_one_of_this_when_what_changed_is_opened(part: str, tmp_path: Path) -> None:
    (tmp_path / mark.NAME).write_text('{"format": 1}')
    with lamina.open(tmp_path) as data:
        data.store.put(1, b"key", b"value")
        assert json.loads((tmp_path / mark.NAME).read_text()) == {"format": 1}, "nothing needs it yet"
        getattr(data, part)
    assert json.loads((tmp_path / mark.NAME).read_text()) == {"format": 2}


def test_a_program_of_before_refuses_the_folder_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lamina.open(tmp_path) as data:
        data.jobs.add("q", b"p", unique="key")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.setattr(mark, "FORMAT", 1)
    with pytest.raises(WrongFormat, match=r"version 2, this program knows version 1.*upgrade; nothing was changed"):
        lamina.open(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_full_disk_is_no_reason_to_stay_closed() -> None:
    files = marked('{"format": 1}')
    full = FaultyFiles(files)
    full.fail("create", error=errno.ENOSPC)
    mark.make(full, "data")
    assert mark.check(files, "data") == 1
    mark.make(files, "data")
    assert mark.check(files, "data") == 2


def test_no_power_cut_leaves_a_folder_without_a_mark_that_had_one() -> None:
    disk = PowerLoss(marked('{"format": 1}').contents())
    mark.make(disk, "data")
    disk.note("made")
    seen = set()
    for state in disk.states():
        version = mark.check(state.files, "data")
        assert version == 2 if "made" in state.notes else version in (1, 2)
        mark.make(state.files, "data")
        assert state.files.list("data") == [mark.NAME] and mark.check(state.files, "data") == 2
        seen.add(version)
    assert seen == {1, 2}


def test_an_embedded_folder_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / mark.NAME).write_text('{"format": 3}')
    with pytest.raises(WrongFormat, match="upgrade; nothing was changed"):
        lamina.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [mark.NAME]
