"""The contract of every disk: making folders without waiting for it, and removing those that are empty."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from lamina.log.files import Files, join
from lamina.log.files.faulty import FaultyFiles
from lamina.log.files.memory import MemoryFiles
from lamina.log.files.real import RealFiles


class Disk(NamedTuple):
    files: Files
    root: str

    def at(self, name: str) -> str:
        return join(self.root, name)


@pytest.fixture(params=["real", "memory", "faulty"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    if request.param == "real":
        return Disk(RealFiles(), str(tmp_path))
    memory = MemoryFiles()
    memory.make_folder("disk")
    return Disk(memory if request.param == "memory" else FaultyFiles(memory), "disk")


def test_the_folders_that_got_a_new_name_are_told_the_outermost_first(disk: Disk) -> None:
    made = disk.files.make_folder_unsynced(disk.at("a/b/c"))
    assert [os.path.basename(path) for path in made] == [os.path.basename(disk.root), "a", "b"]
    assert disk.files.list(disk.at("a/b")) == ["c"]
    for path in made:
        disk.files.sync_folder(path)


def test_only_what_is_new_is_told(disk: Disk) -> None:
    disk.files.make_folder(disk.at("a"))
    assert [os.path.basename(path) for path in disk.files.make_folder_unsynced(disk.at("a/b"))] == ["a"]
    assert list(disk.files.make_folder_unsynced(disk.at("a/b"))) == []


def test_no_folder_is_made_where_a_file_is(disk: Disk) -> None:
    disk.files.create(disk.at("a")).close()
    for path in ("a", "a/b"):
        with pytest.raises(NotADirectoryError):
            disk.files.make_folder_unsynced(disk.at(path))


def test_an_empty_folder_is_removed(disk: Disk) -> None:
    disk.files.make_folder(disk.at("a/b"))
    assert disk.files.remove_empty_folder(disk.at("a/b"))
    assert disk.files.list(disk.at("a")) == []


def test_a_folder_with_something_in_it_stays(disk: Disk) -> None:
    disk.files.make_folder(disk.at("a/b"))
    assert not disk.files.remove_empty_folder(disk.at("a"))
    disk.files.create(disk.at("a/b/file")).close()
    assert not disk.files.remove_empty_folder(disk.at("a/b"))
    assert disk.files.list(disk.at("a/b")) == ["file"]


def test_a_folder_that_is_not_there_was_not_removed(disk: Disk) -> None:
    assert not disk.files.remove_empty_folder(disk.at("missing"))


def test_a_file_is_no_folder_to_remove(disk: Disk) -> None:
    disk.files.create(disk.at("file")).close()
    with pytest.raises(NotADirectoryError):
        disk.files.remove_empty_folder(disk.at("file"))
    assert disk.files.list(disk.root) == ["file"]
