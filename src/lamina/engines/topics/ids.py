"""Ids of entries: milliseconds and a sequence number, 64 bits each, kept as one number so that they compare at once.

1700000000123-7  is  1700000000123 << 64 | 7
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NewType

from lamina.errors import BadTopic

EntryId = NewType("EntryId", int)

FIRST: Final = EntryId(0)
LAST: Final = EntryId((1 << 128) - 1)
_SEQUENCE: Final = (1 << 64) - 1
_LONGEST: Final = 127  # bytes of an id that Redis looks at
_NUMBER: Final = re.compile(rb"[ \t-\r]*\+?([0-9]+)").fullmatch

INVALID: Final = "Invalid stream ID specified as stream command argument"


def make(ms: int, sequence: int) -> EntryId:
    return EntryId(ms << 64 | sequence)


def ms_of(id: EntryId) -> int:
    return id >> 64


def sequence_of(id: EntryId) -> int:
    return id & _SEQUENCE


def show(id: EntryId) -> bytes:
    return b"%d-%d" % (id >> 64, id & _SEQUENCE)


def different(ids: Iterable[EntryId]) -> list[EntryId]:
    """Each of them once, in order. Not by a set: who chooses ids may choose such as have the same hash."""
    ordered = sorted(ids)
    return [id for id, before in zip(ordered, [None, *ordered], strict=False) if id != before]


def parse(text: bytes, missing_sequence: int = 0) -> EntryId:
    """``ms-sequence``, or ``ms`` alone with the sequence that is meant then. Raises: BadTopic."""
    if len(text) > _LONGEST:
        raise BadTopic(INVALID)
    ms, dash, sequence = text.partition(b"-")
    return make(_number(ms), _number(sequence) if dash else missing_sequence)


def parse_start(text: bytes) -> EntryId:
    """The start of a range: ``-``, ``+``, an id, or ``(`` and an id that is not itself meant. Raises: BadTopic."""
    if text == b"-":
        return FIRST
    if text == b"+":
        return LAST
    if text[:1] == b"(":
        id = parse(text[1:], 0)
        if id == LAST:
            raise BadTopic("invalid start ID for the interval")
        return EntryId(id + 1)
    return parse(text, 0)


def parse_end(text: bytes) -> EntryId:
    """The end of a range; ``ms`` alone means all of that millisecond. Raises: BadTopic."""
    if text == b"-":
        return FIRST
    if text == b"+":
        return LAST
    if text[:1] == b"(":
        id = parse(text[1:], _SEQUENCE)
        if id == FIRST:
            raise BadTopic("invalid end ID for the interval")
        return EntryId(id - 1)
    return parse(text, _SEQUENCE)


def _number(text: bytes) -> int:
    """64 bits, as strict as Redis 7.0: blanks and a plus may be before the digits."""
    if text.isdigit():  # nearly always
        number = int(text)
    else:
        match = _NUMBER(text)
        number = int(match[1]) if match is not None else _SEQUENCE + 1
    if number <= _SEQUENCE:
        return number
    raise BadTopic(INVALID)
