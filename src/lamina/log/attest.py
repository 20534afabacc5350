"""Torn tail or damage?  A checksum alone cannot tell; watermarks can.

When the bytes at some place of a file are not a record, there are two stories. Either a crash cut off a write that
nobody had been promised: a torn tail, to be cut. Or a record that was once safely on the disk went bad: damage, to be
reported. The writer leaves evidence: before a batch it notes, in a watermark, up to which time everything was synced.
If a watermark behind the bad place vouches for a time later than the last good record, the bad place had been
synced: it is damage.

What cannot be told: rot within the last batch that nobody vouched for. What could mislead: a payload that holds a
watermark of its own. So a watermark counts behind the bad record, or where the bad record's size would put it inside
(the size may be what went bad) only if it is later than the bad record says it is; and it must be a whole record that
vouches for nothing later than itself. A client that forges one into a payload which is then torn makes the log refuse
to open, naming the place; it cannot make records disappear.
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
_SECTOR: Final = 512
_MOST_WORK: Final = 8  # times the size of a file that salvage reads, at most, to find where its records go on
# Time version and the upper bytes of the seconds, for the years that fit into a record.
_RECORD_START: Final = re.compile(rb"\x01\0\0\0[\x0c-\x10]")


def is_attested(
    file: File, bad_at: int, end: int, last_good_ns: int, format: Format, max_payload: int = frame.MAX_PAYLOAD
) -> bool:
    """A watermark behind ``bad_at`` vouches for records later than ``last_good_ns``: the bad place is damage."""
    behind, bad_ns = bad_at, last_good_ns
    bad = _head_at(file, bad_at, end, max_payload)
    if isinstance(bad, Head):
        behind, bad_ns = bad_at + bad.end, max(last_good_ns, bad.time_ns)
    head_size = frame.TIME.size + 1
    for found in _find(file, re.compile(re.escape(format.watermark_prefix)), bad_at, end):
        at = found - head_size
        if at < max(bad_at, HEADER_SIZE):
            continue
        head = read_record(file, at, end, max_payload)
        if isinstance(head, Stop) or head.time_ns <= (bad_ns if at < behind else last_good_ns):
            continue
        attested = format.read_watermark(read_at(file, head.payload_at, head.size))
        if attested is not None and last_good_ns < attested <= head.time_ns:
            return True
    return False


def next_record(
    file: File,
    bad_at: int,
    end: int,
    last_good_ns: int,
    max_payload: int = frame.MAX_PAYLOAD,
    reach_ns: int | None = None,
) -> int | None:
    """Where whole records go on behind a bad place, for salvage: None if nowhere before ``end``.

    If the bad record's own size can be believed (a whole record, or the end of the file, stands behind it, or behind
    further bad ones), that is the place, and nothing inside of it is looked at: it is payload. Else a place is believed
    if whole records, rising in time and later than the bad record says it is, lead from there exactly to the end of the
    file; and if the next file vouches for a last record at ``reach_ns``, by way of that one. Rather too little is
    believed than a record from inside a payload. The search is bounded in its work.
    """
    chain = _Chain(file, end, max_payload, reach_ns)
    not_before, at = last_good_ns, bad_at
    while isinstance(head := _head_at(file, at, end, max_payload), Head) and at + head.end <= end:
        at += head.end
        if at == end:
            return None
        if isinstance(read_record(file, at, end, max_payload), Head):
            if chain.leads_to_end(at, last_good_ns, may_step=True):
                return at
            break  # a whole record, but not one of ours: the size is what went bad
        not_before = max(not_before, head.time_ns)
    for at in _find(file, _RECORD_START, bad_at + 1, end):
        if chain.leads_to_end(at, not_before):
            return at
        if chain.is_exhausted:
            return None
    return None


def torn_or_not(
    file: File, bad_at: int, end: int, last_good_ns: int, format: Format, max_payload: int = frame.MAX_PAYLOAD
) -> tuple[bool, int | None]:
    """Whether a bad place in a file of which any may be torn (naming.Ending.EACH) is what a crash left; if not, where
    records go on (None: nowhere).

    It is damage if a watermark vouches for what is missing, and also if whole records stand behind it, with one
    exception: where the disk had not yet written a sector of a batch, later ones may have arrived before the power
    went. Such a sector is all zeros. The batch was promised to nobody, so what comes after it is no loss.
    """
    if is_attested(file, bad_at, end, last_good_ns, format, max_payload):
        return False, next_record(file, bad_at, end, last_good_ns, max_payload)
    head = _head_at(file, bad_at, end, max_payload)
    if head is Stop.TRUNCATED or (isinstance(head, Head) and bad_at + head.end > end):
        return True, None  # inside of it may stand anything that a client sent
    found = next_record(file, bad_at, end, last_good_ns, max_payload)
    return found is None or _has_unwritten_sector(file, bad_at, found), found


def _has_unwritten_sector(file: File, start: int, end: int) -> bool:
    """From ``start`` to the end of its sector, or some whole sector before ``end``, is all zeros."""
    while start < end:
        until = start - start % _SECTOR + _SECTOR
        if until > end:
            return False
        if not any(read_at(file, start, until - start)):
            return True
        start = until
    return False


def _head_at(file: File, at: int, end: int, max_payload: int) -> Head | Stop:
    data = read_at(file, at, min(frame.TIME.size + frame.MAX_UVARINT, end - at))
    return frame.decode_head(data, 0, len(data), max_payload)


class _Chain:
    """Follows records from a place to see where they lead."""

    def __init__(self, file: File, end: int, max_payload: int, reach_ns: int | None) -> None:
        self._file, self._end, self._max_payload, self._reach_ns = file, end, max_payload, reach_ns
        self._dead_ends: set[int] = set()
        self._work_left = _MOST_WORK * max(end, _CHUNK)

    @property
    def is_exhausted(self) -> bool:
        return self._work_left < 0

    def leads_to_end(self, start: int, not_before: int, *, may_step: bool = False) -> bool:
        """Whole records lead from there to the end; ``may_step``: over bad ones whose size still makes sense."""
        path: list[int] = []
        at, last_ns, reaches = start, not_before, self._reach_ns is None
        while at < self._end and at not in self._dead_ends and not self.is_exhausted:
            path.append(at)
            rough = _head_at(self._file, at, self._end, self._max_payload)
            if not isinstance(rough, Head) or at + rough.end > self._end:
                break
            self._work_left -= rough.end
            found = read_record(self._file, at, self._end, self._max_payload)
            if isinstance(found, Head) and found.time_ns > last_ns:
                last_ns = found.time_ns
                reaches = reaches or last_ns == self._reach_ns
            elif not may_step or isinstance(found, Head):
                break
            at += rough.end
        if at == self._end and path and (reaches or may_step):
            return True
        if not may_step:
            self._dead_ends.update(path)
        return False


def _find(file: File, pattern: re.Pattern[bytes], start: int, end: int) -> Iterator[int]:
    """Offsets in the file where ``pattern`` (at most 32 bytes) begins."""
    overlap = 32
    while start < end:
        chunk = read_at(file, start, min(_CHUNK + overlap, end - start))
        for match in pattern.finditer(chunk):
            if match.start() < _CHUNK:
                yield start + match.start()
        start += _CHUNK
