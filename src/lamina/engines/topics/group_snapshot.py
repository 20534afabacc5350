"""The groups of a topic as they are, written anew, so that what came before in their log may go (group_compaction.py).

A snapshot is records of kinds of its own. Replay builds what they say beside the state, and takes it over at the last
of them. Any other record in between, or the end of the log, means that it never became whole: then it was for nothing.

Files from before a snapshot are removed one by one. So a log may begin in the middle of a story, with records of
groups that are not there: what is wrong with them counts only if no whole snapshot follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from lamina.engines.topics import group_codec as codec
from lamina.engines.topics.codec import BadRecord, Items
from lamina.engines.topics.group_codec import Claimed
from lamina.engines.topics.group_state import Consumer, Group, State
from lamina.errors import Corruption

if TYPE_CHECKING:
    from lamina.log.reader import Segment
    from lamina.log.scan import Batch

CHUNK: Final = 1000  # entries in a record
FRAME: Final = 20  # bytes that a record takes beside its payload, nearly
_FEW: Final = 2000  # groups, consumers and pending entries: written in some milliseconds

Place = tuple[str, int]
"""File and offset."""


def records(state: State) -> Iterator[bytes]:
    """A snapshot of ``state``, which must not change meanwhile."""
    yield codec.encode_begin()
    count = 0
    for group in state.groups.values():
        yield codec.encode_group(codec.GROUP, group.name, group.last_id, group.read, is_ahead=group.is_ahead)
        for consumer in group.consumers.values():
            yield codec.encode_consumer(consumer.name, consumer.seen)
            pending = consumer.pending.items()
            while chunk := [Claimed(id, one.time, one.deliveries) for id, one in islice(pending, CHUNK)]:
                count += len(chunk)
                yield codec.encode_pending(chunk)
    yield codec.encode_end(len(state.groups), count)


def is_small(state: State) -> bool:
    """All records of a snapshot can be made at once, and nobody notices."""
    count = len(state.groups)
    for group in state.groups.values():
        if count > _FEW:
            break
        count += len(group.consumers) + len(group.pending)
    return count <= _FEW


def load(batches: Iterable[tuple[Segment, Batch]], before: int | None = None) -> Loader:
    """What the records of a log come to, or those of them before a time. Raises: Corruption, if that is no state."""
    loader = Loader()
    for segment, batch in batches:
        for number, time_ns in enumerate(batch.times):
            payload = batch.payload(number)
            if (before is None or time_ns < before) and not segment.format.is_mark(payload):
                loader.take(payload, (segment.name.name, batch.record_offset(number)))
    if loader.problem is not None:
        error, (file, offset) = loader.problem
        raise Corruption(file, offset, f"no record of a group: {error}") from error
    return loader


class Loader:
    """Takes the records of a log one by one; ``state`` is what they come to."""

    def __init__(self) -> None:
        self.state = State()
        self.problem: tuple[BadRecord, Place] | None = None
        """What was first wrong, and where, since the last whole snapshot."""
        self.since = 0
        """Bytes of records since then."""
        self.snapshot_bytes = 0
        self._shadow: _Shadow | None = None

    def take(self, payload: bytes, place: Place) -> None:
        """A record, and where it is."""
        self.since += len(payload) + FRAME
        try:
            kind = Items(payload).number()
            if codec.BEGIN <= kind <= codec.END:
                self._take_snapshot(kind, payload)
                return
            self._shadow = None
            self.state.apply(payload)
        except BadRecord as error:
            self._shadow = None
            self.problem = self.problem or (error, place)

    def _take_snapshot(self, kind: int, payload: bytes) -> None:
        if kind == codec.BEGIN:
            self._shadow = _Shadow()
        if self._shadow is None:
            raise BadRecord("a part of a snapshot without its beginning")
        self._shadow.bytes += len(payload) + FRAME
        if kind != codec.BEGIN and self._shadow.take(kind, payload):
            self.state, self.snapshot_bytes = self._shadow.state, self._shadow.bytes
            self.since, self.problem, self._shadow = 0, None, None


class _Shadow:
    """A snapshot that is not whole yet."""

    def __init__(self) -> None:
        self.state = State()
        self.bytes = 0
        self._group: Group | None = None
        self._consumer: Consumer | None = None

    def take(self, kind: int, payload: bytes) -> bool:
        """True: it is whole. Raises: BadRecord."""
        items = Items(payload)
        items.number()
        if kind == codec.GROUP:
            name, last, read = items.bytes(), items.id(), codec.take_read(items)
            is_ahead = codec.take_flag(items)
            items.end()
            self._group, self._consumer = self.state.create(name, last, read, is_ahead=is_ahead), None
        elif kind == codec.CONSUMER:
            name, time = items.bytes(), items.number()
            items.end()
            if self._group is None:
                raise BadRecord("a consumer without a group")
            self._consumer = self._group.see(name, time)
        elif kind == codec.PENDING:
            if self._group is None or self._consumer is None:
                raise BadRecord("pending entries without a consumer")
            for entry in codec.take_claimed(items):
                self._group.put(self._consumer, *entry)
        else:
            told = items.number(), items.number()
            items.end()
            groups = self.state.groups
            if told != (len(groups), sum(len(group.pending) for group in groups.values())):
                raise BadRecord("a snapshot that is not whole")
            return True
        return False
