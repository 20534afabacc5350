"""When written bytes are forced to the disk, and what a caller may be told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from lamina.errors import BadOption


class Level(IntEnum):
    """How safe a record is. A level is only told once it holds."""

    WRITTEN = 1  # the operating system has it: survives a killed process
    SYNCED = 2  # the disk has it: survives a power cut


@dataclass(frozen=True, slots=True)
class Sync:
    """A policy: which level an acknowledgement waits for, and how often the log is synced by itself."""

    name: str
    level: Level
    interval_ms: int | None
    """Bytes never stay unsynced for longer than this while the log is open; None: until rotation or close."""

    @property
    def sync_within_s(self) -> float | None:
        """Seconds after the write by which a record has to be synced; 0: before it is answered; None: whenever."""
        if self.level is Level.SYNCED:
            return 0.0
        return None if self.interval_ms is None else self.interval_ms / 1000

    def __str__(self) -> str:
        return f"interval({self.interval_ms} ms)" if self.name == "interval" else self.name


_LONGEST_MS: Final = 999_999_999  # what the text of a policy has room for

# `always` has an interval too: for records appended with a weaker policy of their own.
ALWAYS: Final = Sync("always", Level.SYNCED, 1000)
OS: Final = Sync("os", Level.WRITTEN, None)


def interval(ms: int = 1000) -> Sync:
    """Answer when written, sync every ``ms`` milliseconds."""
    if isinstance(ms, bool) or not isinstance(ms, int) or not 1 <= ms <= _LONGEST_MS:
        raise BadOption(f"a sync interval of {ms!r} ms cannot be", hint=f"give milliseconds, 1 to {_LONGEST_MS}")
    return Sync("interval", Level.WRITTEN, ms)


def parse(text: str) -> Sync:
    """``always``, ``os``, ``interval`` or ``interval:500`` (milliseconds)."""
    if text in ("always", "os"):
        return ALWAYS if text == "always" else OS
    if match := re.fullmatch(r"interval(?::(\d{1,9}))?", text, re.ASCII):
        return interval(int(match[1] or 1000))
    raise BadOption(f"{text!r} is no sync policy", hint="write always, os, interval or interval:500")
