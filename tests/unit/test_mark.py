"""The mark of a data folder: a later layout is refused before anything is opened, a missing mark is layout 1."""

from __future__ import annotations

from pathlib import Path

import pytest

import lamina
from lamina.errors import WrongFormat
from lamina.log import mark
from lamina.log.files import join, write_all
from lamina.log.files.memory import MemoryFiles


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
    with pytest.raises(WrongFormat, match=r"data/lamina\.json.*version 2, this program knows version 1"):
        mark.check(marked('{"format": 2, "more": {}}'), "data")
    assert mark.check(marked('{"format": 1, "more": {}}'), "data")


def test_an_embedded_folder_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / mark.NAME).write_text('{"format": 2}')
    with pytest.raises(WrongFormat, match="upgrade; nothing was changed"):
        lamina.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [mark.NAME]
