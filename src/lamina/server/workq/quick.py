"""The commands that nearly all traffic is made of, in the form that every client library writes, and the answer to one.

What is right is taken; everything else is left to the careful way (line.py), which alone refuses, waits and closes. So
the quick way has no errors of its own, and a property test holds the two equal.

_quick.pyx is the compiled twin, made by hand; tests hold these two equal as well.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from collections.abc import Callable, Sequence
from typing import Final

from lamina.engines.jobs.job import Job
from lamina.server.workq.commands import Add, Command, Complete, Lease
from lamina.server.workq.fields import DAY_MS, MAX_PAYLOAD, MAX_TTL, MAX_TTR

_CRLF: Final = b"\r\n"

# A line that matches is complete and short, its id is of version 4, its name is right. What is left to check: ranges,
# and whether the payload is there.
_ID = rb"([0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})"
_NAME = rb"([A-Za-z0-9_.-]{1,255})"
_NUMBERS = rb"([0-9]{1,8}) ([0-9]{1,10}) ([0-9]{1,7})"
_ADD: Final = re.compile(rb"add %b %b %b(?: -priority=(-?[0-9]{1,9}))?\r\n" % (_ID, _NAME, _NUMBERS)).match
_LEASE: Final = re.compile(rb"lease %b ([0-9]{1,8})\r\n" % _NAME).match
_COMPLETE: Final = re.compile(rb"complete %b ([0-9]{1,7})\r\n" % _ID).match


def take(data: bytes, at: int, commands: list[Command]) -> int:
    """Put the commands of ``data`` from ``at`` on behind ``commands``, up to the first that is not for the quick way.

    Returns where that one starts.
    """
    while at < len(data):
        read = _READ.get(data[at])
        found = read(data, at) if read is not None else None
        if found is None:
            break
        command, at = found
        commands.append(command)
    return at


def _add(data: bytes, at: int) -> tuple[Command, int] | None:
    match = _ADD(data, at)
    if match is None:
        return None
    id, name, ttr_word, ttl_word, size_word, priority = match.groups(b"0")
    ttr, ttl, size = int(ttr_word), int(ttl_word), int(size_word)
    if not (0 < ttr <= MAX_TTR and 0 < ttl <= MAX_TTL and size <= MAX_PAYLOAD):
        return None
    start = match.end()
    end = start + size
    if data[end : end + 2] != _CRLF:
        return None
    raw_id = unhexlify(id.replace(b"-", b""))
    return Add(raw_id, name.decode("ascii"), ttr, ttl, data[start:end], int(priority)), end + 2


def _lease(data: bytes, at: int) -> tuple[Command, int] | None:
    match = _LEASE(data, at)
    if match is None:
        return None
    name, wait_word = match.groups()
    wait = int(wait_word)
    if wait > DAY_MS:
        return None
    return Lease((name.decode("ascii"),), wait), match.end()


def _complete(data: bytes, at: int) -> tuple[Command, int] | None:
    match = _COMPLETE(data, at)
    if match is None:
        return None
    id, size_word = match.groups()
    start = match.end()
    end = start + int(size_word)
    if end - start > MAX_PAYLOAD or data[end : end + 2] != _CRLF:
        return None
    return Complete(unhexlify(id.replace(b"-", b"")), data[start:end]), end + 2


_READ: Final[dict[int, Callable[[bytes, int], tuple[Command, int] | None]]] = {
    ord("a"): _add,
    ord("l"): _lease,
    ord("c"): _complete,
}


def leased(jobs: Sequence[Job]) -> bytes:
    """The answer to a lease."""
    return b"+OK %d\r\n" % len(jobs) + b"".join([_leased(job) for job in jobs])


def _leased(job: Job) -> bytes:
    payload = job.payload
    head = f"{show_id(job.id)} {job.queue.name} {job.ttr} {len(payload)}\r\n"
    return head.encode() + payload + _CRLF


def show_id(id: bytes) -> str:
    """As clients write it."""
    text = id.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
