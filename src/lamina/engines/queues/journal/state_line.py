"""One line of queue.log: how far a queue was received, and how much of what was sent is committed.

    read_file=<id> read_msg=<n> read_byte=<n> write_file=<id> write_msg=<n>
        read_count=<n> write_byte=<n> can_write=<0|1> size=<n> crc=<8 hex>                    in one line, ended by LF

The first five fields are the seed's. ``read_msg`` messages of the read file were received, ``read_byte`` is where the
next one begins; ``write_msg`` messages of the write file are committed. The others spare us to read the message files:
``read_count`` messages are in the read file, ``write_byte`` bytes of the write file are committed. Bytes are counted
behind the header of the file, so that a new queue has 0.

Readers take five fields, nine, or all ten. A line without its LF is none, for what is left of ``write_msg=12`` may be
``write_msg=1``; but one that ends with its right checksum counts, whatever became of the bytes around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lamina.log import kernel

_LINE: Final = re.compile(
    rb"read_file=([A-Za-z0-9_-]{16}) read_msg=(\d{1,18}) read_byte=(\d{1,18})"
    rb" write_files?=([A-Za-z0-9_-]{16}) write_msg=(\d{1,18})"  # the seed spells it both ways
    rb"(?: read_count=(\d{1,18}) write_byte=(\d{1,18}) can_write=([01]) size=(\d{1,18})(?: crc=([0-9a-f]{8}))?)?"
)
_CRC: Final = b" crc="
_LF: Final = 10
_HOLE: Final = bytes(16)
_START: Final = b"read_file="
_CHECKED: Final = re.compile(rb"read_file=[!-~ ]{1,400}? crc=[0-9a-f]{8}")  # may be one of ours, wherever it stands


def _prefix_of(*parts: str) -> str:
    """Matches any beginning of the parts in their order."""
    found = ""
    for part in reversed(parts):
        found = f"(?:{part}{found})?" if found else f"(?:{part})?"
    return found


def _letters(text: str) -> list[str]:
    return [re.escape(letter) for letter in text]


_ID: Final = ["[A-Za-z0-9_-]"] * 16
_AT_MOST: Final = re.compile(
    _prefix_of(
        *_letters("read_file="),
        *_ID,
        *_letters(" read_msg="),
        r"\d{1,18}",
        *_letters(" read_byte="),
        r"\d{1,18}",
        *_letters(" write_file"),
        "s?",
        *_letters("="),
        *_ID,
        *_letters(" write_msg="),
        r"\d{1,18}",
        *_letters(" read_count="),
        r"\d{1,18}",
        *_letters(" write_byte="),
        r"\d{1,18}",
        *_letters(" can_write="),
        "[01]",
        *_letters(" size="),
        r"\d{1,18}",
        *_letters(" crc="),
        *["[0-9a-f]"] * 8,
    ).encode()
)


@dataclass(slots=True)
class StateLine:
    """What one line says."""

    read_file: str
    read_msg: int
    read_byte: int
    write_file: str
    write_msg: int
    read_count: int = 0
    write_byte: int = 0
    can_write: bool = True
    size: int = 0

    @property
    def is_one_file(self) -> bool:
        return self.read_file == self.write_file

    @classmethod
    def fresh(cls, file: str) -> StateLine:
        """Of a queue that has nothing."""
        return cls(file, 0, 0, file, 0)

    def counted_size(self) -> int:
        """How many messages wait, as the counts say."""
        return self.read_count - self.read_msg + (0 if self.is_one_file else self.write_msg)

    def is_sane(self) -> bool:
        """The rules that hold for every state."""
        if self.is_one_file and not (self.read_count == self.write_msg and self.read_byte <= self.write_byte):
            return False
        return self.read_msg <= self.read_count and self.size == self.counted_size()

    def copy(self) -> StateLine:
        return StateLine(
            self.read_file,
            self.read_msg,
            self.read_byte,
            self.write_file,
            self.write_msg,
            self.read_count,
            self.write_byte,
            self.can_write,
            self.size,
        )


def encode(state: StateLine) -> bytes:
    """The whole line, LF included."""
    text = (
        f"read_file={state.read_file} read_msg={state.read_msg} read_byte={state.read_byte}"
        f" write_file={state.write_file} write_msg={state.write_msg}"
        f" read_count={state.read_count} write_byte={state.write_byte}"
        f" can_write={1 if state.can_write else 0} size={state.size}"
    ).encode()
    return text + b" crc=%08x\n" % kernel.crc32c(text)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A line that was read. With five fields, the others of ``state`` mean nothing."""

    state: StateLine
    is_whole: bool
    """All nine fields were there."""
    is_checked: bool = False
    """Its checksum was there, and right: this program wrote it. Else it may be the seed's own."""


def parse(line: bytes) -> Parsed | None:
    """What a line says (without its LF), None if it is none."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    if found[10] is not None and kernel.crc32c(line[: line.rindex(_CRC)]) != int(found[10], 16):
        return None
    state = StateLine(found[1].decode(), int(found[2]), int(found[3]), found[4].decode(), int(found[5]))
    if found[6] is None:
        return None if state.is_one_file and state.read_msg > state.write_msg else Parsed(state, is_whole=False)
    state.read_count, state.write_byte = int(found[6]), int(found[7])
    state.can_write, state.size = found[8] == b"1", int(found[9])
    return Parsed(state, is_whole=True, is_checked=found[10] is not None) if state.is_sane() else None


@dataclass(frozen=True, slots=True)
class Found:
    """The state in a file, or in the end of one."""

    parsed: Parsed | None
    """The last whole line that is one."""
    lines: int
    """How many ends of lines there are."""
    is_torn: bool
    """Something stands after the line that counts, or its own end is missing."""
    end: int = 0
    """Bytes up to the end of the line that counts, its LF included if that is there."""


def last_of(data: bytes, is_start: bool) -> Found:
    """Look at the end of a queue.log. Unless ``data`` is all of it (``is_start``), its first line may be cut."""
    lines = data.count(b"\n") - (not is_start)
    end, is_torn = len(data), False
    while end > 0:
        has_lf = data[end - 1] == _LF
        start = data.rfind(b"\n", 0, end - has_lf) + 1
        if start or is_start:
            parsed, length = _last_in(data[start : end - has_lf], has_lf)
            if parsed is not None:
                is_cut = not has_lf or start + length + 1 != end
                return Found(parsed, lines, is_torn or is_cut, start + length + (not is_cut))
        is_torn, end = True, start
    return Found(None, lines, is_torn)


def _last_in(line: bytes, has_lf: bool) -> tuple[Parsed | None, int]:
    """The line, and where it ends. Its neighbours may be in the same ``line``, if the LF between them went bad."""
    if has_lf and (parsed := parse(line)) is not None:
        return parsed, len(line)
    at = line.rfind(_START)
    while at >= 0:
        match = _CHECKED.match(line, at)
        parsed = parse(match[0]) if match is not None else None
        if match is not None and parsed is not None:
            return parsed, match.end()
        at = line.rfind(_START, 0, at)
    return None, 0


def walk(data: bytes) -> Iterator[tuple[int, bytes, Parsed | None]]:
    """Every line of a queue.log: where it begins, the bytes up to its LF or the end, and what it says."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        if end < 0:
            yield start, data[start:], None
            return
        yield start, data[start:end], parse(data[start:end])
        start = end + 1


def is_cut_line(data: bytes) -> bool:
    """A crash may leave these bytes of lines that were being written: a beginning, or some sectors and not others."""
    if not data or data != data.strip(b"\0") or _HOLE in data:
        return True
    at = _AT_MOST.match(data)
    return at is not None and at.end() == len(data)
