"""Names of log files: five families, each parsed by its full pattern and ordered by number or time, never as text.

    numbered   000000042.log                                      jobs, plain logs
    timed      20261115T061700.123456789Z.dat                     topics: the time of the first record
    stored     smp-server-store-7.log, smp-server-store-7.dump    queues in memory
    journal    messages.<id>.log                                  one queue's messages on disk
    pwal       pwal_0000, pwal_0000.01794725200506.3, pwal_compacted.2.0, epoch     the store's channels

The last two numbers of a rotated file of the store are the millisecond of the rotation, which the store sees to rise,
and its epoch.

Beside a log file may stand companions of the kernel: ``<name>.index`` (sparse index), ``<name>.torn-<time>`` (a tail
that was cut), ``<name>.broken-<time>`` (damage that was quarantined) and half-done replacements; beside all of them
the ``manifest``, the ``checkpoint`` and the ``reserve`` of an engine, the folder ``_tmp`` of the pipeline, the folder
``consumers``, and what the store keeps of its own: catalogs, working files (``run.3``) and the folder ``ctrl``.
Anything else in a folder is foreign: left alone, and reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from typing import Final

from lamina.errors import BadName, BadOption

_TIME: Final = r"\d{8}T\d{6}\.\d{9}Z"
_COMPANION: Final = re.compile(rf"(?P<of>.+)\.(?:index|torn-{_TIME}|broken-{_TIME})", re.ASCII)
_LOCKS: Final = frozenset({"lamina.lock", "append.lock", "read.lock", "compaction.lock"})

INDEX_SUFFIX: Final = ".index"
CHECKPOINT: Final = "checkpoint"
"""What an engine knew of its log at some position, so that it need not read what is before."""
RESERVE: Final = "reserve"
"""Room that is kept for a full disk (reserve.py)."""
STAGING: Final = "_tmp"
"""Where jobs of the pipeline put what does not count yet (pipeline/staging.py)."""
MANIFEST: Final = "manifest"
"""Which files a log consists of, and what is in them (manifest.py)."""
CONSUMERS: Final = "consumers"
"""How far those who read the log from outside have come (consumers.py)."""
_OURS: Final = _LOCKS | {CHECKPOINT, RESERVE, STAGING, MANIFEST, CONSUMERS}
_STORE: Final = re.compile(r"compaction_catalog(?:\.\d+)?|compaction_progress|run(?:\.[a-z]?\d+)+", re.ASCII)
_STORE_CONTROL: Final = "ctrl"


def show_file_time(time_ns: int) -> str:
    """Fixed width, no colon, sorts as text in time order for the years 0001 to 9999."""
    seconds, nanos = divmod(time_ns, 10**9)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment.year:04d}{moment:%m%dT%H%M%S}.{nanos:09d}Z"  # %Y does not pad on every system


def parse_file_time(text: str) -> int:
    """The opposite of ``show_file_time``. Raises: ValueError for a day or hour that cannot be."""
    day = (int(text[0:4]), int(text[4:6]), int(text[6:8]))
    moment = datetime(*day, int(text[9:11]), int(text[11:13]), int(text[13:15]), tzinfo=UTC)
    return int(moment.timestamp()) * 10**9 + int(text[16:25])


class Ending(Enum):
    """What the end of a file may be, by its kind: who may tear it, and when. The rule of every verifier and reader."""

    GROWS = "grows"
    """A crash may tear the newest of its log, in what no watermark vouches for; the next start cuts that off."""
    EACH = "each"
    """The same of any of its log: each was the newest once, and a start begins a new one and cuts off nothing."""
    CLOSED = "closed"
    """All of it was synced before it got its name: no crash tears it."""
    WHOLE = "whole"
    """The same, and a record at its end says that it is complete: it is that, or broken, and worth nothing in part."""


@dataclass(frozen=True, slots=True, order=True)
class FileName:
    """A name taken apart. Sorts in the order of writing within its stream."""

    stream: str  # files of one stream are one log
    order: tuple[int, ...]
    name: str = field(compare=False)
    family: str = field(compare=False)

    @property
    def number(self) -> int:
        return self.order[0]

    @property
    def ending(self) -> Ending:
        """The end rule of its kind."""
        if self.is_dump or self.is_part:
            return Ending.WHOLE
        if self.is_closed:
            return Ending.CLOSED
        return Ending.EACH if self.family in ("stored", "journal") else Ending.GROWS

    @property
    def is_dump(self) -> bool:
        """All queues in one file."""
        return self.family == "stored" and self.stream == self.name

    @property
    def is_closed(self) -> bool:
        """By its name alone: nothing is ever written to it again, so no crash can tear it."""
        return self.family == "pwal" and self.order[0] != _ACTIVE_LAST

    @property
    def is_part(self) -> bool:
        """A sorted file of the store: whole and as its catalog says, or worth nothing."""
        return self.name.startswith(_COMPACTED)


@lru_cache(maxsize=8192)
def parse(name: str) -> FileName | None:
    """Take a file name apart, or None if it is in none of the families."""
    if re.fullmatch(r"\d{9}\.log", name, re.ASCII):
        return FileName("numbered", (int(name[:9]),), name, "numbered")
    if re.fullmatch(rf"{_TIME}\.dat", name, re.ASCII):
        try:
            return FileName("timed", (parse_file_time(name[:-4]),), name, "timed")
        except ValueError:
            return None
    if match := re.fullmatch(r"smp-server-store-(0|[1-9]\d*)\.(log|dump)", name, re.ASCII):
        # Each dump is whole by itself; the logs are one stream.
        stream = "stored" if match[2] == "log" else name
        return FileName(stream, (int(match[1]),), name, "stored")
    if re.fullmatch(r"messages\.[A-Za-z0-9_-]+\.log", name):
        return FileName(name, (0,), name, "journal")
    return _parse_pwal(name)


_ACTIVE_LAST: Final = 1 << 62
_COMPACTED: Final = "pwal_compacted."


def _parse_pwal(name: str) -> FileName | None:
    if match := re.fullmatch(r"(pwal_\d{4}|epoch)(?:\.(\d{14})\.(\d{1,20}))?", name, re.ASCII):
        rotated = (int(match[2]), int(match[3])) if match[2] else (_ACTIVE_LAST, 0)
        return FileName(match[1], rotated, name, "pwal")
    if match := re.fullmatch(r"pwal_compacted\.(\d+)\.(\d+)", name, re.ASCII):
        return FileName(name, (int(match[1]), int(match[2])), name, "pwal")
    return None


def follows(before: FileName, name: FileName) -> bool:
    """No file can be missing between the two: numbers show where one was taken away, time-named logs keep a trace."""
    return name.family == "timed" or (name.family != "pwal" and name.number == before.number + 1)


@dataclass(frozen=True, slots=True)
class Family:
    """How the files of a growing log are named."""

    name: str
    lock_name: str
    temporary_suffix: str
    """A file being written to replace another ends so; what a crash leaves of it is removed at open."""

    def next_name(self, previous: FileName | None, first_time_ns: int) -> str:
        """The name of the file after ``previous`` whose first record has that time."""
        raise BadOption(f"files of the {self.name} family are made by their engine")


class _Numbered(Family):
    __slots__ = ()

    def next_name(self, previous: FileName | None, first_time_ns: int) -> str:
        number = previous.number + 1 if previous else 1
        if number > 999_999_999:
            raise BadName("the nine digits of segment names are used up", hint="start a new folder")
        return f"{number:09d}.log"


class _Timed(Family):
    __slots__ = ()

    def next_name(self, previous: FileName | None, first_time_ns: int) -> str:
        return f"{show_file_time(first_time_ns)}.dat"


class _Stored(Family):
    __slots__ = ()

    def next_name(self, previous: FileName | None, first_time_ns: int) -> str:
        return f"smp-server-store-{previous.number + 1 if previous else 0}.log"


# Jobs share their folder's lock and temporary names with workq, so the two never write at once.
NUMBERED: Final = _Numbered("numbered", "append.lock", ".rw")
TIMED: Final = _Timed("timed", "lamina.lock", ".rw")
STORED: Final = _Stored("stored", "lamina.lock", ".saving")
JOURNAL: Final = Family("journal", "lamina.lock", ".new")
PWAL: Final = Family("pwal", "lamina.lock", ".tmp")
FAMILIES: Final = {family.name: family for family in (NUMBERED, TIMED, STORED, JOURNAL, PWAL)}
_TEMPORARY: Final = tuple({family.temporary_suffix for family in FAMILIES.values()})


@dataclass(frozen=True, slots=True)
class Listing:
    """The names of a folder, sorted out."""

    segments: list[FileName]
    leftovers: list[str]
    """Half-done replacements that a crash left behind."""
    companions: list[str]
    foreign: list[str]

    def of_stream(self, stream: str) -> list[FileName]:
        """The files of one log, oldest first."""
        return [segment for segment in self.segments if segment.stream == stream]

    def of_family(self, family: Family) -> list[FileName]:
        """The files of the log that grows in this folder, oldest first."""
        return self.of_stream(family.name)

    def streams(self) -> dict[str, list[FileName]]:
        """Every log of the folder: its files, oldest first."""
        streams: dict[str, list[FileName]] = {}
        for segment in self.segments:
            streams.setdefault(segment.stream, []).append(segment)
        return streams


def sort_out(names: Iterable[str]) -> Listing:
    """Tell our files from foreign ones."""
    listing = Listing([], [], [], [])
    for name in sorted(names):
        if parsed := parse(name):
            listing.segments.append(parsed)
        elif name in _OURS or _is_of_store(name) or ((match := _COMPANION.fullmatch(name)) and _is_file(match["of"])):
            listing.companions.append(name)
        elif name.endswith(_TEMPORARY) and ((of := name.rpartition(".")[0]) in (CHECKPOINT, MANIFEST) or _is_file(of)):
            listing.leftovers.append(name)
        else:
            listing.foreign.append(name)
    listing.segments.sort()
    return listing


def _is_of_store(name: str) -> bool:
    return name == _STORE_CONTROL or _STORE.fullmatch(name) is not None


def _is_file(name: str) -> bool:
    """A file that may have companions and half-done replacements."""
    return parse(name) is not None or _STORE.fullmatch(name) is not None
