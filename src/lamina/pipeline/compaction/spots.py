"""Where a record is: the number of its file and the byte at which it begins, in one number of 64 bits."""

from __future__ import annotations

from typing import Final, NamedTuple

FILE_BITS: Final = 40
MOST_BYTES: Final = 1 << FILE_BITS
"""A file that is copied from has at most so many."""
MOST_FILES: Final = 1 << (64 - FILE_BITS)


def file_of(spot: int) -> int:
    return spot >> FILE_BITS


def position_of(spot: int) -> int:
    return spot & (MOST_BYTES - 1)


class Look(NamedTuple):
    """What a sorted file has to know of records that are added to it."""

    first: bytes
    last: bytes
    """Places."""
    points: list[tuple[int, bytes]]
    """Records that begin a block: where, and their places."""
    highest: bytes
    """The largest version."""
    foreign: list[int]
    """Numbers of records whose time is in another zone: they are not as lamina would write them."""
