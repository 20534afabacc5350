"""The values of the workq protocol: numbers, ids, names and times, as strict as the real server reads them.

Every function takes the bytes of one word, which is not empty, and returns the value or raises ``Refused``.
Numbers go through ``bytes.isdigit`` first: ``int`` alone would take underscores, blanks and signs, and would refuse the
leading zeros of a long number. All of it is linear in the length of the word, as a word may have a megabyte.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Final

from lamina.server.workq.commands import STATES

DAY_MS: Final = 86_400_000
MAX_TTR: Final = DAY_MS
MAX_TTL: Final = 30 * DAY_MS
MAX_PAYLOAD: Final = 1 << 20
MAX_NAME: Final = 255
MAX_BATCH: Final = 1000  # names or jobs of one lease, jobs of one redrive
MAX_PAGE: Final = 100  # lines of one inspect

_MAX_DIGITS: Final = 20  # of 64 bits; a longer number is above every limit even when cut
_INT32: Final = (-(1 << 31), (1 << 31) - 1)
_UINT32: Final = (1 << 32) - 1
_UINT64: Final = (1 << 64) - 1
_NAME_BYTES: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
_STATES: Final = {state.encode(): state for state in STATES}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)

# The 32 digits in five groups, an optional dash before each; nothing may follow them.
_DIGITS = rb"-?[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}"
_ID: Final = re.compile(rb"(?:urn:uuid:)?(" + _DIGITS + rb")|\{(" + _DIGITS + rb")\}")
_TIME: Final = re.compile(rb"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?Z")


class Refused(Exception):
    """The word is not a value of its kind; the message is the text of the refusal."""

    def __init__(self, text: str, queues: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.queues = queues


# -- numbers -------------------------------------------------------------------------------------------------------


def unsigned(word: bytes, first: int, last: int, text: str) -> int:
    """A number without sign; leading zeros are fine."""
    if not word.isdigit() or not first <= (number := _magnitude(word)) <= last:
        raise Refused(text)
    return number


def signed(word: bytes, first: int, last: int, text: str) -> int:
    """A number that may have a sign; leading zeros are fine."""
    digits = word[1:] if word[0] in b"+-" else word
    if not digits.isdigit():
        raise Refused(text)
    number = _magnitude(digits)
    return check_range(-number if word[0] == ord("-") else number, first, last, text)


def _magnitude(digits: bytes) -> int:
    if len(digits) <= _MAX_DIGITS:
        return int(digits)
    return int(digits.lstrip(b"0")[:_MAX_DIGITS] or b"0")


def check_range(number: int, first: int, last: int, text: str) -> int:
    """``number`` if it is in the range."""
    if not first <= number <= last:
        raise Refused(text)
    return number


def size(word: bytes, text: str) -> int:
    return signed(word, 0, MAX_PAYLOAD, text)


def ttr_number(word: bytes) -> int:
    """A TTR of 32 bits, still to be put through ``check_ttr``: between the two the real server checks other fields."""
    return unsigned(word, 0, _UINT32, "Invalid TTR")


def check_ttr(number: int) -> int:
    return check_range(number, 1, MAX_TTR, "Invalid TTR")


def ttl_number(word: bytes) -> int:
    """A TTL of 64 bits, still to be put through ``check_ttl``."""
    return unsigned(word, 0, _UINT64, "Invalid TTL")


def check_ttl(number: int) -> int:
    return check_range(number, 1, MAX_TTL, "Invalid TTL")


def wait(word: bytes) -> int:
    return unsigned(word, 0, DAY_MS, "Invalid wait timeout")


def delay(word: bytes) -> int:
    return unsigned(word, 0, 30 * DAY_MS, "Invalid Delay")


def backoff(word: bytes) -> int:
    return unsigned(word, 0, DAY_MS, "Invalid Backoff")


def priority(word: bytes) -> int:
    return signed(word, *_INT32, "Invalid Priority")


def max_attempts(word: bytes) -> int:
    return unsigned(word, 0, 255, "Invalid Max Attempts")


def max_fails(word: bytes) -> int:
    return unsigned(word, 0, 255, "Invalid Max Fails")


def most(word: bytes) -> int:
    """How many jobs one lease may hand out."""
    return unsigned(word, 1, MAX_BATCH, "Invalid Max")


def offset(word: bytes) -> int:
    return unsigned(word, 0, _UINT32, "Invalid cursor offset")


def limit(word: bytes, last: int = MAX_PAGE) -> int:
    return unsigned(word, 1, last, "Invalid limit")


# -- ids -----------------------------------------------------------------------------------------------------------


def spelled_id(word: bytes) -> bytes:
    """The 16 bytes of a UUID of any version: canonical, without dashes, in braces, or with ``urn:uuid:``."""
    match = _ID.fullmatch(word)
    if match is None:
        raise Refused("Invalid ID")
    return unhexlify((match[1] or match[2]).replace(b"-", b""))


def check_version(id: bytes) -> bytes:
    """``id`` if it is of version 4 and of the usual variant, which the nil id is not."""
    if id[6] >> 4 != 4 or id[8] >> 6 != 2:
        raise Refused("Invalid ID")
    return id


def job_id(word: bytes) -> bytes:
    """The id of a job: spelling and version."""
    return check_version(spelled_id(word))


# -- texts ---------------------------------------------------------------------------------------------------------


def name(word: bytes, text: str = "Invalid Name") -> str:
    if len(word) > MAX_NAME or word.translate(None, _NAME_BYTES):
        raise Refused(text)
    return word.decode("ascii")


def names(words: Sequence[bytes]) -> tuple[str, ...]:
    """All of them, or the refusal of the first bad one, which knows those before it."""
    if len(words) > MAX_BATCH:
        raise Refused("Invalid command args")
    # Joined, as a line has room for half a million names and everybody waits while they are checked.
    joined = b" ".join(words)
    if max(map(len, words)) > MAX_NAME or joined.translate(None, _NAME_BYTES + b" "):
        good = takewhile(lambda word: len(word) <= MAX_NAME and not word.translate(None, _NAME_BYTES), words)
        raise Refused("Invalid Name", tuple(word.decode("ascii") for word in good))
    return tuple(joined.decode("ascii").split(" "))


def unique(word: bytes) -> str:
    return name(word, "Invalid Unique Key")


def state(word: bytes) -> str:
    found = _STATES.get(word)
    if found is None:
        raise Refused("Invalid State")
    return found


def time(word: bytes) -> int:
    """Nanoseconds since 1970 of a UTC time of the years 1 to 9999; what is finer than a nanosecond is cut off."""
    match = _TIME.fullmatch(word)
    if match is None:
        raise Refused("Invalid Time")
    *calendar, fraction = match.groups()
    year, month, day, hour, minute, second = map(int, calendar)
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise Refused("Invalid Time") from None
    return (moment - _EPOCH) // _SECOND * 10**9 + int((fraction or b"")[:9].ljust(9, b"0"))
