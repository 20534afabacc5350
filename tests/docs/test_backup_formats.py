"""What is written about backups is so: the worked manifest, and the files that are named."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from lamina.log import frame
from lamina.log.formats import PLAIN
from lamina.pipeline.backing import manifest, reread
from lamina.pipeline.backing.making import _MOST_CONTENTS, _TAIL
from lamina.pipeline.backing.manifest import BackedFile, Content, Generation
from lamina.units import parse_time

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/formats/backup.md").read_text()
MOMENT = parse_time("2026-11-15T06:17:00.123456789Z")


def content(data: bytes) -> Content:
    return Content(hashlib.sha256(data).hexdigest(), len(data))


def test_the_worked_manifest_is_right() -> None:
    first = content(PLAIN.header + frame.encode(MOMENT, b"hello"))
    more = content(frame.encode(MOMENT + 10**9, b"again"))
    made = Generation(
        moment_ns=MOMENT + 2 * 10**9,
        began_ns=MOMENT + 2 * 10**9,
        made_ns=MOMENT + 3 * 10**9 + 5,
        data="/srv/lamina-data",
        logs=(("logs/plain", "plain"),),
        files=(
            BackedFile("logs/plain/000000001.log", (first, more), (2049, 1311)),
            BackedFile("lamina.json", (content(b'{"format": 1}\n'),)),
        ),
        notes=("users.json is left out: only logs are taken",),
        reread=(3, 30),
    )
    (text,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert text.encode() == manifest.encode(made)
    assert manifest.decode("name", text.encode()) == made
    assert f"generations/{made.name}.json" in PAGE


def test_the_numbers_of_the_page_are_right() -> None:
    assert f"last {_TAIL} bytes" in PAGE and f"Behind {_MOST_CONTENTS} contents" in PAGE


def test_what_the_pages_say_of_shares_is_right() -> None:
    guide = PAGE + (ROOT / "docs/how-to/back-up-and-restore.md").read_text()
    assert guide.count(f"in {reread.SHARES} backups") == 1 and guide.count(f"in {reread.SHARES} runs") == 1
    assert guide.count(f"{reread.AT_LEAST >> 20} MiB") == 2
    (first,) = re.findall(r"of 30 shares, share 0 has those below `([0-9a-f]{8})`", PAGE)
    below, not_below = (Content(f"{int(first, 16) - less:08x}" + "f" * 56, 1) for less in (1, 0))
    assert reread.share_of([below, not_below], (0, 30), 30, 0) == ([below], (1, 30))
