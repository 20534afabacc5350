"""Who reads a log as a table notices what is missing of it: a file, or the end of one, cut exactly at a record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import lamina
from lamina.errors import Corruption
from lamina.log import OS, LogOptions
from lamina.log.files.real import RealFiles
from lamina.log.scan import FileScan
from lamina.pipeline import scan
from lamina.pipeline.jobs.export import export

SMALL = LogOptions(segment_bytes=2000, sync=OS)
COUNT = 200


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with lamina.open(tmp_path / "data", topics=SMALL, history_s=0) as opened:
        for number in range(COUNT):
            opened.topic("orders").publish({"n": str(number), "pad": "x" * 40})
    return tmp_path / "data"


def ends_of_records(path: Path) -> list[int]:
    file = RealFiles().open(str(path))
    try:
        return [batch.record_offset(at) for batch in FileScan(file) for at in range(1, len(batch.times))]
    finally:
        file.close()


def cut(path: Path) -> None:
    ends = ends_of_records(path)
    with path.open("r+b") as file:
        file.truncate(ends[len(ends) // 2])


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("harm", [cut, remove])
@pytest.mark.parametrize("place", [1, -1], ids=["middle", "newest"])
def test_a_table_of_a_log_that_lost_something_is_refused(data: Path, harm: Callable[[Path], None], place: int) -> None:
    folder = data / "topics/orders"
    assert scan(str(folder)).read_all().num_rows == COUNT
    path = sorted(folder.glob("*.dat"))[place]
    harm(path)
    for view in ("records", "topic_state"):
        with pytest.raises(Corruption, match=path.name):
            scan(str(folder if view == "records" else data), view).read_all()


@pytest.mark.parametrize("harm", [cut, remove])
def test_an_export_of_a_log_that_lost_something_is_not_recorded_as_done(
    data: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    path = sorted((data / "topics/orders").glob("*.dat"))[1]
    before = path.read_bytes()
    harm(path)
    with pytest.raises(Corruption, match=path.name):
        export(str(data / "topics/orders"), str(tmp_path / "out"), engine="local")
    path.write_bytes(before)
    assert export(str(data / "topics/orders"), str(tmp_path / "out"), engine="local").rows == COUNT
