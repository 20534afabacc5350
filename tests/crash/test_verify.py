"""What the verifier says and what a start does agree, for each kind of file and each kind of damage.

A start refuses: the verifier has said damage. The verifier says nothing: a start serves what was there. One thing is
exempt here: the newest log of the queues cut behind its first record. Nothing beside it says how long it was; the
manifest of a log does.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest

from lamina.engines.queues import verify as queues
from lamina.engines.queues.restoring import RestoreRefused, restore
from lamina.errors import WrongFormat
from lamina.log.formats import QUEUE_STORE
from lamina.log.history import History
from lamina.log.repair import plan, repair_held
from lamina.log.scan import HEADER_SIZE, FileScan
from lamina.log.survey import Torn, survey
from lamina.testing import ManualClock, MemoryFiles
from queues_store_lab import FOLDER, NOW, TTL, Seen, StoreLab, create, message, seen

_SECTOR = 512


class Built(NamedTuple):
    contents: dict[str, bytes]
    expected: Seen


@cache
def built(shape: str) -> Built:
    """``dumped``: a dump and what came since. ``history``: older files beside them. ``logs``: no dump, several starts.
    ``closed``: after an orderly stop.
    """
    files = MemoryFiles()
    lab = StoreLab(files)
    keeps = History(keep_s=1 << 30) if shape == "history" else None
    for turn in range(3):
        lab.do(create(f"q{turn}"))
        for number in range(4):
            lab.do(message(f"q{turn}", f"m{turn}.{number}", body=b"%d" % number * (40 + 300 * (number == 2))))
        if shape == "logs":
            lab.engine.close()
            lab = StoreLab(files)
        elif turn < 2:
            assert (lab.dumper if keeps is None else lab.make_dumper(history=keeps)).dump() is not None
    if shape == "closed":
        assert lab.dumper.dump() is not None
    expected = lab.seen()
    if shape != "dumped":
        lab.engine.close()
    contents = {path: data for path, data in files.contents().items() if not path.endswith("lamina.lock")}
    return Built(contents, expected)


SHAPES = ("dumped", "history", "logs", "closed")


def boundaries(data: bytes) -> list[int]:
    """Where records end, and a byte within each."""
    files = MemoryFiles({"x/f": data})
    file = files.open("x/f")
    scan = FileScan(file)
    ends = [HEADER_SIZE]
    for batch in scan:
        starts = [batch.record_offset(at) for at in range(len(batch.times))]
        ends += [*starts[1:], batch.end]
    return sorted({end for end in ends if end < len(data)} | {end + 3 for end in ends if end + 3 < len(data)})


def damages(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    yield "removed", None
    yield "empty", b""
    for end in boundaries(data):
        yield f"cut at {end}", data[:end]
    for at in range(0, len(data), 7):
        yield f"flipped at {at}", data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]
    for at in range(0, len(data), _SECTOR):
        size = min(_SECTOR, len(data) - at)
        yield f"zeroed at {at}", data[:at] + bytes(size) + data[at + size :]


def names(shape: str) -> list[str]:
    return sorted(path for path in built(shape).contents if path.endswith((".log", ".dump", ".index")))


def start(files: MemoryFiles) -> Seen | Exception:
    try:
        return seen(restore(files, FOLDER, now=NOW, ttl=TTL).state)
    except (RestoreRefused, WrongFormat) as error:
        return error


@pytest.mark.parametrize("shape", SHAPES)
def test_the_verifier_of_queues_and_a_start_agree(shape: str) -> None:
    whole = built(shape)
    newest = max(path for path in whole.contents if path.endswith(".log"))
    refused = 0
    for path in names(shape):
        for what, data in damages(whole.contents[path]):
            contents = {**whole.contents, path: data or b""}
            if data is None:
                del contents[path]
            label = f"{path.rpartition('/')[2]} {what}"
            looked = queues.verify(MemoryFiles(contents), FOLDER)
            outcome = start(MemoryFiles(contents))
            if isinstance(outcome, Exception):
                refused += 1
                assert not looked.is_sound, f"{label}: refused ({outcome}), and nobody said so"
                told = {damage.file for damage in looked.damage if damage.is_needed}
                assert getattr(outcome, "file", None) in told, f"{label}: the start names another file than {told}"
                continue
            assert looked.is_sound, f"{label}: {looked.damage} is said to be needed, and the start does without"
            if outcome != whole.expected and not looked.damage:
                is_exempt = path == newest and ("cut" in what or (shape == "logs" and not data))
                is_told = bool(looked.torn) and is_last_batch(looked.torn[0], whole.contents[path], data or b"")
                assert is_exempt or is_told, f"{label}: nobody said anything"
    assert refused, "nothing that was tried is refused: the trial is of no use"


def is_last_batch(torn: Torn, whole: bytes, data: bytes) -> bool:
    """The tail begins within the last batch of a log that nobody closed, or what vouched for its records went, too."""
    mark = last_mark(whole)
    return torn.offset >= mark or data[mark : mark + 31] != whole[mark : mark + 31]


def last_mark(data: bytes) -> int:
    """Where the last watermark of a file begins: what stands after it nobody vouches for."""
    file = MemoryFiles({"x/f": data}).open("x/f")
    found = 0
    for batch in FileScan(file):
        for at in range(len(batch.times)):
            if QUEUE_STORE.read_watermark(batch.payload(at)) is not None:
                found = batch.record_offset(at)
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_queues_that_are_well_are_found_well(shape: str) -> None:
    looked = queues.verify(MemoryFiles(built(shape).contents), FOLDER)
    assert (looked.damage, looked.torn, looked.notes) == ([], [], [])


@pytest.mark.parametrize("shape", ["dumped", "history", "closed"])
def test_a_repair_never_cuts_a_dump(shape: str) -> None:
    whole = built(shape)
    for path in (path for path in names(shape) if path.endswith(".dump")):
        for what, data in damages(whole.contents[path]):
            if data is None:
                continue
            files = MemoryFiles({**whole.contents, path: data})
            found = survey(files, FOLDER, beside_writer=False)
            name = path.rpartition("/")[2]
            assert name in {damage.file for damage in found.damage}, f"{name} {what}: taken for whole"
            assert not found.torn, f"{name} {what}: taken for a torn tail"
            assert any("leave alone" in step for step in plan(found))
            report = repair_held(files, FOLDER, ManualClock(NOW * 10**9))
            assert name in {damage.file for damage in report.left}
            assert files.contents()[path] == data, f"{name} {what}: changed"
