"""The lives of messages in queues: how long each waited to be acknowledged, and how many did so at a time.

As for jobs (jobs.py): tasks see parts, and hand over what crosses them. A dump says what was waiting when it was made.
Journals keep only messages, and those not for long: they are counted, and nothing is told about their ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from lamina.pipeline.reporting.tally import Tally

COLUMNS: Final = ("time_ns", "kind", "queue", "message", "sent", "size")
WAITING: Final = "queues.waiting"
IN_JOURNALS: Final = "queues.journal"
_SERIES: Final = {
    "message": "queues.sent",
    "ack": "queues.acked",
    "expire": "queues.expired",
    "quota": "queues.quota",
    "create": "queues.created",
    "delete": "queues.deleted",
}
_BY_NAME: Final = ("message", "ack", "expire", "quota")

Waiting = dict[str, dict[str, int]]
"""Messages by queue, each with since when."""


class Event(NamedTuple):
    """A record of a message that was sent in an earlier part; of a queue's end, which has no message."""

    time_ns: int
    kind: str
    queue: str
    message: str | None


class Messages:
    """Follows messages through records in the order of the log."""

    def __init__(self, tally: Tally, since_ns: int | None, until_ns: int | None) -> None:
        self.tally = tally
        self.waiting: Waiting = {}
        self.untold: list[Event] = []
        self._since_ns = since_ns if since_ns is not None else -(1 << 63)
        self._until_ns = until_ns if until_ns is not None else 1 << 63

    def read(self, batch: pa.RecordBatch, path: str, *, is_journal: bool) -> None:
        """Rows of the view ``queue_events`` with ``COLUMNS``."""
        facts = self.tally.log(path)
        columns = [batch.column(name) for name in COLUMNS]
        columns[4] = columns[4].cast(pa.int64())
        for time_ns, kind, queue, message, sent, size in zip(*map(pa.Array.to_pylist, columns), strict=True):
            if time_ns is None:  # of a dump
                if kind in ("message", "quota") and (sent is None or sent * 1000 < self._until_ns):
                    self.waiting.setdefault(queue, {})[message] = 0 if sent is None else sent * 1000
                continue
            if time_ns >= self._until_ns:
                if is_journal:
                    continue  # journals of other queues are yet to come
                return
            if time_ns >= self._since_ns:
                facts.add(1, size, time_ns, time_ns)
                self._count(time_ns, kind, queue, size, is_journal=is_journal)
            if not is_journal:
                self._follow(Event(time_ns, kind, queue, message))

    def take(self, waiting: Mapping[str, dict[str, int]], untold: Iterable[Event]) -> None:
        """Go on with what a task has found in the next part of the log."""
        for event in untold:
            self._end(event)
        for queue, messages in waiting.items():
            self.waiting.setdefault(queue, {}).update(messages)

    def finish(self) -> None:
        """The log is at its end: what is there stays."""
        for messages in self.waiting.values():
            for since_ns in messages.values():
                self.tally.span(WAITING, since_ns, None)
        for queue, messages in self.waiting.items():
            if messages:
                self.tally.name(WAITING, queue, len(messages))
        self.waiting.clear()

    def _count(self, time_ns: int, kind: str, queue: str, size: int, *, is_journal: bool) -> None:
        if kind not in _SERIES:
            return
        bucket = self.tally.bucket(time_ns)
        self.tally.count(_SERIES[kind], bucket)
        if kind == "message":
            self.tally.count("queues.bytes", bucket, size)
        if kind in _BY_NAME:
            self.tally.name(_SERIES[kind], queue)
        if is_journal:
            self.tally.count(IN_JOURNALS, bucket)

    def _follow(self, event: Event) -> None:
        if event.kind in ("message", "quota") and event.message is not None:
            self.waiting.setdefault(event.queue, {})[event.message] = event.time_ns
        elif event.kind in ("ack", "expire", "delete") and not self._end(event):
            self.untold.append(event)

    def _end(self, event: Event) -> bool:
        """Whether all that it ends is known."""
        if event.kind == "delete":
            for since_ns in self.waiting.pop(event.queue, {}).values():
                self.tally.span(WAITING, since_ns, event.time_ns)
            return False  # what earlier parts know of it ends too
        messages = self.waiting.get(event.queue, {})
        since = None if event.message is None else messages.pop(event.message, None)
        if since is None:
            return False
        if not messages:
            del self.waiting[event.queue]
        self.tally.span(WAITING, since, event.time_ns)
        if event.kind == "ack" and event.time_ns >= self._since_ns:
            self.tally.latency("queues.wait", event.time_ns, event.time_ns - since)
        return True
