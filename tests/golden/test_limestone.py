"""Folders written by the real limestone library are read with all that they promised, and stay as they are."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from lamina.engines.store.limestone import read_folder
from lamina.errors import Corruption
from lamina.log.files.real import RealFiles

GOLDEN = Path(os.environ.get("LAMINA_GOLDEN", Path(__file__).parents[3] / "shared" / "golden")) / "limestone"
CASES = sorted(case.parent.name for case in GOLDEN.glob("*/expected.json")) if GOLDEN.is_dir() else []

pytestmark = pytest.mark.skipif(not CASES, reason="no golden folders of limestone here (set LAMINA_GOLDEN)")


def facts(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / case / "expected.json").read_text())
    return found


def folder(case: str) -> str:
    return str(GOLDEN / case / "dir")


def entries_of(expected: list[dict[str, Any]]) -> list[tuple[int, bytes, bytes]]:
    """By the number of the storage; the library goes by its little-endian bytes."""
    return sorted((entry["storage"], bytes.fromhex(entry["key"]), bytes.fromhex(entry["value"])) for entry in expected)


def cases(kind: str) -> list[str]:
    """``ok``, ``refused``, or ``lossy``: the library itself lost data that it had promised."""

    def kind_of(case: str) -> str:
        correct = facts(case)["correct"]
        return "lossy" if correct.get("recoverable") is False else str(correct["open"])

    return [case for case in CASES if kind_of(case) == kind]


@pytest.mark.parametrize("case", cases("ok"))
def test_the_entries_and_epochs_are_the_promised_ones(case: str) -> None:
    expected = facts(case)
    found = read_folder(RealFiles(), folder(case))
    assert list(found.entries) == entries_of(expected["correct"]["entries"])
    assert len(found.entries) == len(expected["correct"]["entries"])
    assert found.max_epoch == expected["correct"]["max_epoch"]
    assert found.durable_epoch == expected["durable_epoch_before_open"]
    assert found.losses == []


@pytest.mark.parametrize("case", cases("refused"))
def test_damage_in_durable_data_is_refused_with_its_place_and_epoch(case: str) -> None:
    with pytest.raises(Corruption, match=r"pwal_\d{4}.*, byte \d+: .*epoch \d+, which is durable") as problem:
        read_folder(RealFiles(), folder(case))
    if case == "08_torn_tail_durable":
        assert (problem.value.file, problem.value.offset) == ("pwal_0000", 100)


@pytest.mark.parametrize("case", cases("lossy"))
def test_what_the_library_lost_is_told_and_the_rest_is_read(case: str) -> None:
    found = read_folder(RealFiles(), folder(case))
    assert found.losses
    assert len(found.entries) > 0
    if case == "19_inflight_session_big":
        assert list(found.entries) == [(1, b"k1", b"v1")]
        (loss,) = found.losses
        assert "pwal_0001.01794725206876.0, byte 0" in loss
        assert "401 entries" in loss


def test_references_to_blobs_are_counted() -> None:
    if "22_blob" not in CASES:
        pytest.skip("no golden folder with blobs here")
    assert read_folder(RealFiles(), folder("22_blob")).blobs == 2


@pytest.mark.parametrize("case", CASES)
def test_reading_changes_nothing(case: str) -> None:
    def state() -> dict[str, tuple[int, str]]:
        paths = [path for path in Path(folder(case)).rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()) for path in paths}

    before = state()
    try:
        read_folder(RealFiles(), folder(case))
    except Corruption:
        assert facts(case)["correct"]["open"] == "refused"
    assert state() == before
