"""The worked example of docs/formats/manifest.md is what the code writes."""

from __future__ import annotations

import re
from pathlib import Path

from lamina.log import kernel, manifest
from lamina.log.files.memory import MemoryFiles
from lamina.log.formats import PLAIN
from lamina.log.index import State

DOCUMENT = Path(__file__).parents[2] / "docs/formats/manifest.md"
TIME = 0x18E8237116886515


def test_the_worked_example_is_what_is_written() -> None:
    data = PLAIN.header + kernel.encode_many(TIME, (b"hello",))
    disk = MemoryFiles({"log/000000001.log": data})
    facts = manifest.facts_of(disk, "log", "000000001.log")
    assert facts is not None
    manifest.write(disk, "log", [facts._replace(state=State.CLEAN)])
    manifest.note(disk, "log", gone=["000000001.log"])
    example = next(
        block for block in re.findall(r"```\n(.*?)```", DOCUMENT.read_text(), re.S) if block.startswith("6c6d6d66")
    )
    shown = "".join(re.split(r" {3,}", line)[0] for line in example.splitlines()).replace(" ", "")
    assert disk.contents()["log/manifest"].hex() == shown
    known = manifest.load(disk, "log")
    assert known is not None and not known.files
