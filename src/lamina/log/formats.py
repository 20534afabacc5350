"""The kinds of file that hold record frames: their headers and the kernel's own marks in them.

A file is an 8-byte header and frames (frame.py). What a payload means is the engine's business, except for two
marks that the kernel itself writes into every log. Each is a fixed prefix and an unsigned 64-bit number:

    watermark   everything up to and including the record of this time is synced    (torn tail or damage? recovery.py)
    gap         this many bytes were lost between the record before and the one after (salvage)

In codecs of ours the marks are msgpack arrays of kind 0. In the jobs log, which must stay readable for workq, they
are `expire` records of ids that no job can have; workq ignores the expiry of an unknown id.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from lamina.errors import WrongFormat

HEADER: Final = struct.Struct(">4sI")  # magic, version
MARK_VALUE: Final = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of file."""

    name: str
    magic: bytes
    version: int
    watermark_prefix: bytes
    gap_prefix: bytes

    @property
    def header(self) -> bytes:
        return HEADER.pack(self.magic, self.version)

    @property
    def reserved(self) -> tuple[bytes, bytes]:
        """Prefixes of the marks; a payload of an engine never has the form of one."""
        return self.watermark_prefix, self.gap_prefix

    @property
    def mark_sizes(self) -> tuple[int, int]:
        """Sizes that the payload of a mark can have."""
        return len(self.watermark_prefix) + MARK_VALUE.size, len(self.gap_prefix) + MARK_VALUE.size

    def watermark(self, synced_ns: int) -> bytes:
        return self.watermark_prefix + MARK_VALUE.pack(synced_ns)

    def gap(self, lost_bytes: int) -> bytes:
        return self.gap_prefix + MARK_VALUE.pack(lost_bytes)

    def read_watermark(self, payload: bytes | memoryview) -> int | None:
        """The attested time, or None if the payload is no watermark."""
        return _mark_value(payload, self.watermark_prefix)

    def read_gap(self, payload: bytes | memoryview) -> int | None:
        """The lost bytes, or None if the payload is no gap mark."""
        return _mark_value(payload, self.gap_prefix)

    def is_mark(self, payload: bytes | memoryview) -> bool:
        return self.read_watermark(payload) is not None or self.read_gap(payload) is not None

    def reaches(self, time_ns: int, payload: bytes | memoryview) -> bool:
        """The record shows that the log reached ``time_ns``: it is no mark, or it stands in for one that was dropped.

        Ordinary watermarks vouch for records before them. A rewrite that drops the last record of a file leaves in its
        place a watermark that vouches for its own time, so that the file is seen to be whole.
        """
        if len(payload) not in self.mark_sizes or not self.is_mark(payload):
            return True
        return self.read_watermark(payload) == time_ns


def _mark_value(payload: bytes | memoryview, prefix: bytes) -> int | None:
    if len(payload) == len(prefix) + MARK_VALUE.size and payload[: len(prefix)] == prefix:
        value: int = MARK_VALUE.unpack(payload[len(prefix) :])[0]
        return value
    return None


def _ours(name: str, magic: bytes) -> Format:
    # msgpack: array of 2 [0, uint64 time], array of 3 [0, nil, uint64 bytes]
    return Format(name, magic, 1, b"\x92\x00\xcf", b"\x93\x00\xc0\xcf")


JOBS: Final = Format("jobs", b"wqwq", 1, b"\x06lamsync\0", b"\x06lamgap\0\0")
TOPIC: Final = _ours("topic", b"lmto")
GROUP: Final = _ours("group", b"lmgr")
QUEUE_STORE: Final = _ours("queue store", b"lmqs")
JOURNAL: Final = _ours("message journal", b"lmqm")
PWAL: Final = _ours("pwal", b"lmpw")
EPOCH: Final = _ours("epoch", b"lmep")
# A log of plain bytes. Any payload is allowed, so the marks have prefixes nobody writes by chance.
PLAIN: Final = Format("plain", b"lmlg", 1, b"\0lamina-watermark\0", b"\0lamina-gap\0")

END_OF_DUMP: Final = b"\x93\xa3END"
"""The last record of a dump of queues begins so: without it the dump is cut short."""

ALL: Final = (JOBS, TOPIC, GROUP, QUEUE_STORE, JOURNAL, PWAL, EPOCH, PLAIN)
_BY_MAGIC: Final = {format.magic: format for format in ALL}


def identify(file: str, header: bytes) -> Format:
    """Tell what kind of file starts with ``header`` (8 bytes). Raises: WrongFormat."""
    magic, version = HEADER.unpack(header)
    format = _BY_MAGIC.get(magic)
    if format is None:
        raise WrongFormat(file, f"unknown kind of file, it begins with {magic!r}")
    if version != format.version:
        raise WrongFormat(
            file,
            f"version {version} of a {format.name} file, this program reads version {format.version}",
            hint="a later lamina may have written it: upgrade; nothing was changed",
        )
    return format
