"""The queues: what goes is the head, and was sent; dumps hold what they say.

Replayed are the logs from their very beginning if all are there, else from the oldest dump with all logs since. What is
no violation, because the server makes it so:

    of a message that the dump has not     the dump leaves out what has expired; the running server may still deliver
                                           it, and tells later that it went. Not after a message since the dump went
    of a message behind others             a start leaves out what has expired, and writes nothing. So those in front
                                           were sent before this log was begun, and do not last for ever
"""

from __future__ import annotations

from typing import Any, Final

from lamina.engines.queues import codec, ids, state, store_files
from lamina.engines.queues.dump_check import DumpCheck, time_of_end
from lamina.engines.queues.message import NO_TTL, Message, Queue
from lamina.engines.queues.opening import JOURNALS
from lamina.engines.queues.state import State
from lamina.engines.queues.store_reading import TORN_TAIL, StoreReading
from lamina.errors import LaminaError
from lamina.pipeline.auditing import journals
from lamina.pipeline.auditing.findings import (
    MEANING,
    QUEUE_DUMPS,
    QUEUE_HEADS,
    QUEUE_ONCE,
    QUEUE_STORY,
    Findings,
)
from lamina.pipeline.auditing.holding import Held, HeldFile
from lamina.pipeline.auditing.walking import Record, Walk

_STREAM: Final = "stored"
_SECOND: Final = 10**9
_MOST_TOLD: Final = 100


def audit(findings: Findings, held: Held) -> None:
    """Raises: DiskError."""
    _Queues(findings, held).audit()


class _Queues:
    def __init__(self, findings: Findings, held: Held) -> None:
        self._findings, self._held = findings, held
        self._state = State()
        self._from_dump: dict[bytes, int] = {}
        """Of queues of the dump: how many of its messages are still there. Gone: one since then went."""
        self._left_out = 0
        self._has_journals = False
        self._began_ns = 0
        """Time of the first record of the log at hand."""

    def audit(self) -> None:
        found = store_files.find(self._held.names)
        self._has_journals = JOURNALS in self._held.names and journals.has_any(self._held)
        base = _base(found)
        for number in found.dumps:
            self._dump(number, is_base=number == base)
        files = self._held.streams.get(_STREAM, [])
        covered = [file for file in files if base is not None and file.name.number <= base]
        if covered:
            for _ in Walk(self._findings, covered, judge=self._is_torn).batches():
                pass  # replayed in the dump
        self._missing()
        self._logs([file for file in files if file not in covered], base)
        if self._left_out:
            text = f"{self._left_out} messages went that a dump or a start had left out, as they had expired"
            self._findings.note(QUEUE_HEADS, text)
        if self._has_journals:
            journals.audit(self._findings, self._held, set(self._state.queues))

    def _missing(self) -> None:
        for number in store_files.plan(self._held.names).missing[:_MOST_TOLD]:
            name = store_files.log_name(number).name
            self._findings.violated(QUEUE_STORY, name, 0, None, "the log is missing")

    # -- dumps -------------------------------------------------------------------------------------------------------

    def _dump(self, number: int, *, is_base: bool) -> None:
        walk = Walk(self._findings, self._held.streams[store_files.dump_name(number)], judge=lambda held, at: False)
        check = DumpCheck()
        last: Record | None = None
        rows = 0
        for record in walk.records_of():
            last, rows = record, rows + 1
            try:
                values: list[Any] = codec.decode(record.payload)
            except codec.BadRecord as error:
                walk.means_nothing(record, error)
                continue
            if reason := check.take(values):
                walk.bad(QUEUE_DUMPS, record, reason)
            if is_base:
                self._of_dump(walk, record, values)
        if not check.is_ended:
            name, at = store_files.dump_name(number), 0 if last is None else last.position
            self._findings.violated(QUEUE_DUMPS, name, at, None, "its last record is missing")
        self._findings.looked(QUEUE_DUMPS, rows)
        if is_base:
            for rid, queue in self._state.queues.items():
                self._from_dump[rid] = len(queue.messages)

    def _of_dump(self, walk: Walk, record: Record, values: list[Any]) -> None:
        if self._state.apply_values(values) == state.DUPLICATE:
            walk.bad(QUEUE_ONCE, record, f"a message is twice in queue {ids.handle(values[1])}")

    # -- logs --------------------------------------------------------------------------------------------------------

    def _logs(self, files: list[HeldFile], base: int | None) -> None:
        reach = None
        if base is not None and files and files[0].name.number == base + 1:
            reach = time_of_end(self._held.streams[store_files.dump_name(base)][0].file)
        elif files and files[0].name.number == 0:
            reach = 0
        walk = Walk(self._findings, files, reach_ns=reach, judge=self._is_torn)
        rows, file = 0, ""
        for record in walk.records_of():
            rows += 1
            if record.file != file:
                file, self._began_ns = record.file, record.time_ns
            try:
                values: list[Any] = codec.decode(record.payload)
            except codec.BadRecord as error:
                walk.means_nothing(record, error)
                continue
            if values[0] == codec.END:
                walk.bad(MEANING, record, "a record that belongs into a dump")
            else:
                self._take(walk, record, values)
        for name in (MEANING, QUEUE_STORY, QUEUE_ONCE, QUEUE_HEADS):
            self._findings.looked(name, rows)

    def _take(self, walk: Walk, record: Record, values: list[Any]) -> None:
        kind, rid = values[0], values[1]
        if kind in (codec.CREATE, codec.DELETE):
            self._from_dump.pop(rid, None)
        queue = self._state.queues.get(rid)
        was_head = kind in (codec.ACK, codec.EXPIRE)
        problem = self._state.apply_values(values)
        if problem is None:
            if was_head:
                self._head_went(rid)
        elif walk.trace.lost:
            return  # what was lost may have been what is missing
        elif problem == state.UNKNOWN_QUEUE:
            walk.bad(QUEUE_STORY, record, f"{kind} of queue {ids.handle(rid)}, which is not there")
        elif problem == state.DUPLICATE:
            walk.bad(QUEUE_ONCE, record, f"a message is twice in queue {ids.handle(rid)}")
        elif queue is not None and not self._has_journals:
            self._not_head(walk, record, kind, queue, values[2])

    def _head_went(self, rid: bytes) -> None:
        left = self._from_dump.get(rid)
        if left is not None:
            if left:
                self._from_dump[rid] = left - 1
            else:
                del self._from_dump[rid]

    def _not_head(self, walk: Walk, record: Record, kind: str, queue: Queue, id: bytes) -> None:
        place = next((at for at, each in enumerate(queue.messages) if each.id == id), None)
        if place is None:
            if queue.rid in self._from_dump:
                self._left_out += 1
            else:
                reason = f"{kind} of a message of queue {ids.handle(queue.rid)} that is not in it"
                walk.bad(QUEUE_HEADS, record, reason)
            return
        now = record.time_ns // _SECOND
        if not all(self._may_be_left_out(each, queue, now) for each in queue.messages[:place]):
            reason = f"{kind} of a message that is not the head of queue {ids.handle(queue.rid)}"
            walk.bad(QUEUE_HEADS, record, reason)
        else:
            self._left_out += place
        for each in queue.messages[: place + 1]:
            self._state.drop_head(queue.rid, each.id)
            self._head_went(queue.rid)

    def _may_be_left_out(self, message: Message, queue: Queue, now: int) -> bool:
        """It was sent before this log was begun, and may have expired since."""
        ttl = queue.ttl if message.ttl == NO_TTL else message.ttl
        is_over = ttl == NO_TTL or message.has_expired(now, ttl)  # how long the server keeps them nobody says here
        return not message.is_marker and is_over and message.ts * _SECOND < self._began_ns

    # -- torn ends ---------------------------------------------------------------------------------------------------

    def _is_torn(self, held: HeldFile, offset: int) -> bool:
        """As the engine sees it when it restores the queues: every log may end torn, and stays so."""
        torn: list[int] = []

        def tell(kind: str, record: int | None, at: int, reason: str) -> None:
            if kind == TORN_TAIL:
                torn.append(at)

        try:
            for _ in StoreReading(self._held.disk, self._held.folder, held.name.name, 0, tell):
                pass
        except (LaminaError, FileNotFoundError):
            return False
        return offset in torn


def _base(found: store_files.Found) -> int | None:
    """The dump to begin with; None: the logs are all there from the first on, or there is no dump."""
    newest = max(found.logs, default=-1)
    logs = set(found.logs)
    if newest >= 0 and logs.issuperset(range(newest + 1)):
        return None
    for number in found.dumps:
        if logs.issuperset(range(number + 1, newest + 1)):
            return number
    return max(found.dumps, default=None)
