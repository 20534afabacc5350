"""The audit log: who changed what through the HTTP door, a record each, written before the change is made.

It is a log like any other, ``<data>/logs/lamina.audit``: synced before an action begins, kept by whoever keeps logs,
and a Spark table. A record never holds a payload, a token or the id of a queue.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from lamina.clock import Clock, SystemClock
from lamina.log.files import Files, join
from lamina.log.folders import folder_name
from lamina.log.options import LogOptions
from lamina.log.sync import ALWAYS, Level
from lamina.log.writer import Log
from lamina.units import MIB

NAME: Final = "lamina.audit"
_OPTIONS: Final = LogOptions(sync=ALWAYS, segment_bytes=4 * MIB)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One action. Two records belong to one: what was begun, and how it ended."""

    time_ns: int
    number: int
    """Of the action, since the start of the server; the two records of one have the same."""
    user: str
    address: str
    """Where it came from, without the port."""
    action: str
    """Such as ``jobs.redrive``."""
    target: str
    """What it was done to, such as the name of a queue of jobs."""
    asked: dict[str, Any] = {}
    """What else was asked for; sizes instead of payloads."""
    outcome: str = "begun"
    """``begun``, ``done``, or the code of the error."""
    told: str = ""
    """What the one who did it was told."""


class Audit:
    """Open until ``close``. Threads: safe from any."""

    def __init__(self, data: str, *, files: Files | None = None, clock: Clock | None = None) -> None:
        """Raises: what opening a log does."""
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._number = 0
        folder = join(join(data, "logs"), folder_name(NAME.encode()))
        self.log = Log.open(folder, options=_OPTIONS, files=files, clock=clock)

    def begin(self, user: str, address: str, action: str, target: str, asked: Mapping[str, object]) -> Entry:
        """Write down that it is about to be done. Durability: synced. Raises: DiskFull, DiskError; then it is not."""
        with self._lock:
            self._number += 1
            number = self._number
        entry = Entry(
            time_ns=self._clock.now_ns(),
            number=number,
            user=user,
            address=address,
            action=action,
            target=target,
            asked=dict(asked),
        )
        self.log.append(msgspec.json.encode(entry), until=Level.SYNCED)
        return entry

    def end(self, begun: Entry, outcome: str, told: str = "") -> None:
        """Write down how it ended. Raises: as ``begin``."""
        ended = msgspec.structs.replace(begun, time_ns=self._clock.now_ns(), outcome=outcome, told=told)
        self.log.append(msgspec.json.encode(ended), until=Level.SYNCED)

    def newest(self, most: int = 100, before_ns: int | None = None) -> Iterator[Entry]:
        """Records, the newest first. Raises: Corruption, DiskError."""
        for record in islice(self.log.reader.backwards(until=before_ns), most):
            # By its place in the log, which grows from record to record: so a page ends where the next begins.
            yield msgspec.structs.replace(msgspec.json.decode(record.payload, type=Entry), time_ns=record.time_ns)

    def close(self) -> None:
        self.log.close()
