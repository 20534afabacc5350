"""Folders written by the real workq server open as they are, record for record."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from lamina.log import Level, Log, Reader
from lamina.log.files.real import RealFiles
from lamina.log.formats import JOBS
from lamina.log.survey import survey

GOLDEN = Path(os.environ.get("LAMINA_GOLDEN", Path(__file__).parents[3] / "shared" / "golden")) / "workq"
CASES = sorted(case.name for case in GOLDEN.glob("g*")) if GOLDEN.is_dir() else []

pytestmark = pytest.mark.skipif(not CASES, reason="no golden folders of workq here (set LAMINA_GOLDEN)")


def facts(case: str) -> dict:
    return json.loads((GOLDEN / case / "expected.json").read_text())


@pytest.fixture
def folder(request, tmp_path: Path) -> Path:
    """A copy to open: opening for writing may cut a tail."""
    return Path(shutil.copytree(GOLDEN / request.param / "cmdlog", tmp_path / "cmdlog"))


def expected_records(case: str) -> list[dict]:
    lines = (GOLDEN / case / "records.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("case", [case for case in CASES if (GOLDEN / case / "records.jsonl").exists()])
def test_every_record_is_read_with_its_file_byte_time_and_size(case: str) -> None:
    expected = expected_records(case)
    found = list(Reader(str(GOLDEN / case / "cmdlog")).read())
    assert [(record.file, record.offset) for record in found] == [
        (record["segment"], record["offset"]) for record in expected
    ]
    for record, wanted in zip(found, expected, strict=True):
        moment = wanted["rec_time"]
        assert record.time_ns == moment["unix"] * 10**9 + moment["nsec"]
        assert record.payload[0] == wanted["type"]
        assert record.payload[1:17].hex() == wanted["id"].replace("-", "")


@pytest.mark.parametrize("case", CASES)
def test_verify_finds_what_is_known_of_the_folder(case: str) -> None:
    found = survey(RealFiles(), str(GOLDEN / case / "cmdlog"))
    torn = {torn.file: torn.offset for torn in found.torn}
    assert torn == facts(case).get("good_prefix", {})
    assert found.damage == []
    assert found.listing.foreign == []


@pytest.mark.parametrize(("case", "folder"), [(case, case) for case in CASES], indirect=["folder"], ids=CASES)
def test_the_folder_opens_for_writing_and_goes_on(case: str, folder: Path) -> None:
    before = [record.payload for record in Reader(str(folder)).read()]
    with Log.open(str(folder), format=JOBS) as log:
        torn = {tail.file: tail.offset for tail in log.report.torn}
        assert torn == facts(case).get("good_prefix", {})
        log.append(b"\x05" + bytes(16), until=Level.SYNCED)
        assert [record.payload for record in log.reader.read()] == [*before, b"\x05" + bytes(16)]
    with Log.open(str(folder), format=JOBS) as log:
        assert log.report.was_clean
        assert len(list(log.reader.read())) == len(before) + 1


def test_what_recovery_cut_off_a_real_torn_tail_is_kept(tmp_path: Path) -> None:
    if "g08_torn_tail" not in CASES:
        pytest.skip("no golden folder with a torn tail here")
    folder = Path(shutil.copytree(GOLDEN / "g08_torn_tail" / "cmdlog", tmp_path / "cmdlog"))
    whole = (folder / "000000001.log").read_bytes()
    with Log.open(str(folder), format=JOBS) as log:
        (tail,) = log.report.torn
    assert (folder / tail.kept_as).read_bytes() == whole[tail.offset :]
