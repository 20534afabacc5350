"""Torn tail or damage?  A checksum alone cannot tell; watermarks can.

When the bytes at some place of a file are not a record, there are two stories. Either a crash cut off a write that
nobody had been promised: a torn tail, to be cut. Or a record that was once safely on the disk went bad: damage, to be
reported. The writer leaves evidence: before a batch it notes, in a watermark, up to which time everything was synced.
If a watermark behind the bad place vouches for a time later than the last good record, the bad place had been
synced: it is damage.

What cannot be told: rot within the last batch that nobody vouched for. What could mislead: a payload that holds a
watermark of its own. So a watermark counts only outside of the bad record, where its size can be believed (a whole
record follows), and else only if it is later than the bad record says it is; and it must be a whole record that vouches
for nothing later than itself. A client that forges one into a payload which is then torn makes the log refuse to open,
naming the place; it cannot make records disappear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from lamina.log import frame
from lamina.log.files import File, read_at
from lamina.log.formats import Format
from lamina.log.frame import Head, Stop
from lamina.log.scan import HEADER_SIZE, read_record

_CHUNK: Final = 1 << 20
# Time version and the upper bytes of the seconds, for the years that fit into a record.
_RECORD_START: Final = re.compile(rb"\x01\0\0\0[\x0c-\x10]")


def is_attested(
    file: File, bad_at: int, end: int, last_good_ns: int, format: Format, max_payload: int = frame.MAX_PAYLOAD
) -> bool:
    """A watermark behind ``bad_at`` vouches for records later than ``last_good_ns``: the bad place is damage."""
    start, not_before = bad_at, last_good_ns
    bad = _head_at(file, bad_at, end, max_payload)
    if isinstance(bad, Head):
        behind = bad_at + bad.end
        if behind == end or (behind < end and isinstance(read_record(file, behind, end, max_payload), Head)):
            start = behind  # its size is right: what lies inside is its payload
        else:
            not_before = max(last_good_ns, bad.time_ns)
    head_size = frame.TIME.size + 1
    for found in _find(file, re.compile(re.escape(format.watermark_prefix)), start, end):
        at = found - head_size
        if at < max(start, HEADER_SIZE):
            continue
        head = read_record(file, at, end, max_payload)
        if isinstance(head, Stop) or head.time_ns <= not_before:
            continue
        attested = format.read_watermark(read_at(file, head.payload_at, head.size))
        if attested is not None and last_good_ns < attested <= head.time_ns:
            return True
    return False


def next_record(
    file: File, bad_at: int, end: int, last_good_ns: int, max_payload: int = frame.MAX_PAYLOAD
) -> int | None:
    """Where whole records go on behind a bad place, for salvage: None if nowhere before ``end``.

    A place is believed if the records from there on lead to the end of the file, stepping over bad ones whose
    size still makes sense. Records inside a damaged payload do not: they end where the payload does.
    """
    dead_ends: set[int] = set()
    head = _head_at(file, bad_at, end, max_payload)
    first = [bad_at + head.end] if isinstance(head, Head) else []
    candidates = _find(file, _RECORD_START, bad_at + 1, end)
    for at in [*first, *candidates]:
        if _leads_to_end(file, at, end, last_good_ns, max_payload, dead_ends):
            return at
    return None


def _head_at(file: File, at: int, end: int, max_payload: int) -> Head | Stop:
    data = read_at(file, at, min(25, end - at))
    return frame.decode_head(data, 0, len(data), max_payload)


def _leads_to_end(file: File, at: int, end: int, last_good_ns: int, max_payload: int, dead_ends: set[int]) -> bool:
    start = at
    path: list[int] = []
    while at < end:
        if at in dead_ends:
            dead_ends.update(path)
            return False
        path.append(at)
        head = read_record(file, at, end, max_payload)
        if isinstance(head, Head):
            if at == start and head.time_ns <= last_good_ns:
                break
            at = head.end
            continue
        if at != start and _is_torn_end(file, at, end, head):
            return True
        rough = _head_at(file, at, end, max_payload)
        if head is not Stop.BAD_CRC or at == start or not isinstance(rough, Head):
            break
        at += rough.end
    if at == end and path:
        return True
    dead_ends.update(path)
    return False


def _is_torn_end(file: File, at: int, end: int, why: Stop) -> bool:
    return why is Stop.TRUNCATED or not any(read_at(file, at, min(4096, end - at)))


def _find(file: File, pattern: re.Pattern[bytes], start: int, end: int) -> Iterator[int]:
    """Offsets in the file where ``pattern`` (at most 32 bytes) begins."""
    overlap = 32
    while start < end:
        chunk = read_at(file, start, min(_CHUNK + overlap, end - start))
        for match in pattern.finditer(chunk):
            if match.start() < _CHUNK:
                yield start + match.start()
        start += _CHUNK
