"""The page about the files of queues is right: its hex, its lines and its names are what the code writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lamina.engines.queues import codec, ids
from lamina.engines.queues.engine import QueueEngine
from lamina.engines.queues.folding import fold
from lamina.engines.queues.journal import copies, paths, records
from lamina.engines.queues.message import Queue
from lamina.engines.queues.migrating import migrate
from lamina.engines.queues.opening import open_engine
from lamina.engines.queues.options import QueueOptions
from lamina.log.files import read_at
from lamina.log.writer import Log
from lamina.testing import ManualClock, MemoryFiles
from lamina.units import parse_time

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/formats/queues.md").read_text()
JOURNAL = "".join(each.read_text() for each in (ROOT / "src/lamina/engines/queues/journal").glob("*.py"))
MOMENT = parse_time("2026-11-15T06:17:00.123456789Z")
RID, SID, MESSAGE = (bytes(range(first, first + 24)) for first in (0x00, 0x20, 0x40))
FOLDER = "queues/messages/AA/EC/Aw/QF/BgcICQoLDA0ODxAREhMUFRYX"


def hex_blocks() -> list[bytes]:
    """Comments behind three blanks left out."""
    found = []
    for block in re.findall(r"```\n(.*?)```", PAGE, re.DOTALL):
        digits = "".join(re.split(r" {3,}", line)[0].replace(" ", "") for line in block.splitlines())
        if re.fullmatch(r"(?:[0-9a-f]{2})+", digits):
            found.append(bytes.fromhex(digits))
    return found


def chance(size: int) -> bytes:
    """Ids are drawn together, and used from the end."""
    return bytes(size - 72) + MESSAGE + SID + RID if size > 72 else bytes(range(size))


def opened(files: MemoryFiles, store: str) -> tuple[QueueEngine, Queue, bytes]:
    """The queue of the page, with its message."""
    options, clock = QueueOptions(store=store), ManualClock(MOMENT)
    engine = open_engine("queues", options=options, files=files, clock=clock, random=chance, threaded=False)
    queue, position = engine.create(b"key")
    engine.settle(position)
    id, position = engine.send(queue, b"tea", ttl=60)
    engine.keeper.settle(position)
    assert (queue.rid, queue.sid, id) == (RID, SID, MESSAGE)
    return engine, queue, id


def content(files: MemoryFiles, path: str) -> bytes:
    file = files.open(path)
    return read_at(file, 0, file.size())


def test_the_worked_examples_of_log_and_dump_are_right() -> None:
    log, end, _ = hex_blocks()
    files = MemoryFiles()
    engine, _, _ = opened(files, "memory")
    assert content(files, "queues/smp-server-store-0.log") == log
    assert isinstance(engine.log, Log)
    engine.log.rotate(begin_next=True)
    fold(files, "queues", 0, now=MOMENT // 10**9, ttl=0)
    assert content(files, "queues/smp-server-store-0.dump").endswith(end)


def test_the_worked_examples_of_a_journal_are_right() -> None:
    _, _, messages = hex_blocks()
    files = MemoryFiles()
    engine, queue, id = opened(files, "journal")
    engine.keeper.settle(engine.acknowledge(queue, id))
    name = records.name_of("AAECAwQFBgcICQoL")
    assert sorted(files.list(FOLDER)) == [name, "queue.log"]
    assert content(files, f"{FOLDER}/{name}") == messages
    lines = content(files, f"{FOLDER}/queue.log").decode()
    assert f"```\n{lines}```" in PAGE
    assert content(files, "queues/messages/layout") == b"parts=5 chars=2\n"
    assert paths.folder_of("messages", ids.show(RID)) in PAGE
    assert copies.name_at(MOMENT, ()) in PAGE
    assert f"{paths.ASIDE}{copies.stamp(MOMENT)}/" in PAGE


def test_the_line_of_a_migration_is_right() -> None:
    files = MemoryFiles()
    engine, _, _ = opened(files, "memory")
    engine.close()
    lines: list[str] = []

    def step(name: str) -> None:
        if name == "marked":
            lines.append(content(files, "queues/migrating").decode())

    migrate("queues", "journal", files=files, clock=ManualClock(MOMENT), random=chance, step=step)
    assert f"```\n{lines[0]}```" in PAGE


@pytest.mark.parametrize("kind", list(codec._CHECKS))
def test_every_kind_of_record_is_on_the_page(kind: str) -> None:
    assert f'["{kind}", ' in PAGE


@pytest.mark.parametrize("kind", sorted(set(re.findall(r'(?:_tell\(|told\([\w.]+, )"(\w+)"', JOURNAL))))
def test_everything_that_journals_tell_is_on_the_page(kind: str) -> None:
    assert f"`{kind}`" in PAGE
