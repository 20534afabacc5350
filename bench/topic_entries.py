"""Entries whose ids and answers are known without asking: what is read can be checked, and need not be parsed."""

from __future__ import annotations

from lamina.clock import ManualClock

VALUE = 100
FIRST_MS = ManualClock().now_ns() // 1_000_000
_REST = b"v" * (VALUE - 12)


def value(number: int) -> bytes:
    return b"%012d" % number + _REST


def id_of(number: int) -> bytes:
    """Of the entry of that number; -1 gives one that is before all of them."""
    return b"%d-%d" % (FIRST_MS, number) if number >= 0 else b"0-0"


def shown(number: int) -> bytes:
    """An entry in an answer."""
    id = id_of(number)
    return b"*2\r\n$%d\r\n%b\r\n*2\r\n$1\r\nf\r\n$%d\r\n%b\r\n" % (len(id), id, VALUE, value(number))
