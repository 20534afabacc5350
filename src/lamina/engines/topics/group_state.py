"""The groups of a topic: a state machine over the records of their log.

No clock, no disk. Live commands and replay go through the same methods, so a restart shows what was there before it:
times, counts and consumers included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from lamina.engines.topics import group_codec as codec
from lamina.engines.topics.codec import BadRecord, Items
from lamina.engines.topics.group_codec import Claimed, once_more
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.sorted_map import SortedMap

_PIECE: Final = 1000  # pending entries that are let go before others may go on


class Pending:
    """An entry that was delivered and not acknowledged yet."""

    __slots__ = ("consumer", "deliveries", "time")

    def __init__(self, consumer: Consumer, time: int, deliveries: int) -> None:
        self.consumer, self.time, self.deliveries = consumer, time, deliveries


class Consumer:
    """One of those who share the work of a group."""

    __slots__ = ("name", "pending", "seen")

    def __init__(self, name: bytes, seen: int) -> None:
        self.name = name
        self.seen = seen
        """When it last took something or tried to, in ms."""
        self.pending: SortedMap[EntryId, Pending] = SortedMap()


class Group:
    """Readers who share a topic, each entry going to one of them."""

    def __init__(self, name: bytes, last_id: EntryId, read: int | None, *, is_ahead: bool) -> None:
        self.name = name
        self.last_id = last_id
        """Of the newest entry delivered, or what a client set it to."""
        self.read = read
        """Entries that were read from the beginning of the topic on; None: nobody knows."""
        self.is_ahead = is_ahead
        """The last id was given by a client when the topic had not come to it yet."""
        self.consumers: dict[bytes, Consumer] = {}
        self.pending: SortedMap[EntryId, Pending] = SortedMap()
        """Of all consumers."""

    def see(self, name: bytes, time: int) -> Consumer:
        """The consumer of that name, made if need be."""
        consumer = self.consumers.get(name)
        if consumer is None:
            consumer = self.consumers[name] = Consumer(name, time)
        consumer.seen = time
        return consumer

    def put(self, consumer: Consumer, id: EntryId, time: int, deliveries: int) -> None:
        """Let an entry be pending for ``consumer``, whoever had it before."""
        known = self.pending.get(id)
        if known is None:
            known = Pending(consumer, time, deliveries)
            self.pending.add(id, known)
            consumer.pending.add(id, known)
            return
        known.time, known.deliveries = time, deliveries
        if known.consumer is not consumer:
            known.consumer.pending.pop(id)
            known.consumer = consumer
            consumer.pending.add(id, known)

    def drop(self, ids: Sequence[EntryId]) -> None:
        """Those of them that are pending are so no more."""
        for id in ids:
            known = self.pending.pop(id)
            if known is not None:
                known.consumer.pending.pop(id)

    def delete_consumer(self, name: bytes, make_way: Callable[[], None] | None = None) -> Consumer | None:
        """With what is pending for it. Returns what it was, which may be large (garbage.py).

        ``make_way`` is called from time to time while there is much to be let go.
        """
        consumer = self.consumers.pop(name, None)
        if consumer is None:
            return None
        if len(consumer.pending) == len(self.pending):
            self.pending = SortedMap()
            return consumer
        for at, id in enumerate(consumer.pending.keys(), 1):
            self.pending.pop(id)
            if make_way is not None and at % _PIECE == 0:
                make_way()
        return consumer

    def oldest_needed(self) -> EntryId:
        """The first entry that somebody of the group may yet ask for."""
        first = self.pending.first()
        return EntryId(self.last_id + 1) if first is None else min(first, EntryId(self.last_id + 1))


class State:
    """All groups of one topic."""

    def __init__(self) -> None:
        self.groups: dict[bytes, Group] = {}

    def apply(self, payload: bytes) -> None:
        """Take a record of the log, but for those of snapshots. Raises: BadRecord."""
        items = Items(payload)
        kind = items.number()
        if kind == codec.CUT:
            last = items.id()
            items.end()
            self.cut(last)
            return
        if not codec.CREATED <= kind < codec.CUT:
            raise BadRecord(f"a record of the unknown kind {kind}")
        name = items.bytes()
        if kind != codec.CREATED and name not in self.groups:
            raise BadRecord("of a group that is not there")
        if kind in (codec.CREATED, codec.ID_SET):
            last, read, is_ahead = items.id(), codec.take_read(items), codec.take_flag(items)
            items.end()
            change = self.create if kind == codec.CREATED else self.set_id
            change(name, last, read, is_ahead=is_ahead)
        elif kind == codec.DESTROYED:
            items.end()
            self.destroy(name)
        elif kind == codec.ACKED:
            self.groups[name].drop(codec.take_ids(items))
        else:
            self._apply_to_consumer(kind, self.groups[name], items)

    def _apply_to_consumer(self, kind: int, group: Group, items: Items) -> None:
        consumer = items.bytes()
        if kind == codec.CONSUMER_DELETED:
            items.end()
            group.delete_consumer(consumer)
            return
        time = items.number()
        if kind == codec.SEEN:
            items.end()
            group.see(consumer, time)
        elif kind == codec.DELIVERED:
            last, read = items.id(), codec.take_read(items)
            self.deliver(group, consumer, time, last, read, codec.take_ids(items))
        else:
            last, is_ahead = items.id(), codec.take_flag(items)
            self.claim(group, consumer, time, last, codec.take_claimed(items), is_ahead=is_ahead)

    # -- changes -----------------------------------------------------------------------------------------------------

    def create(self, name: bytes, last: EntryId, read: int | None, *, is_ahead: bool) -> Group:
        group = self.groups[name] = Group(name, last, read, is_ahead=is_ahead)
        return group

    def set_id(self, name: bytes, last: EntryId, read: int | None, *, is_ahead: bool) -> None:
        group = self.groups[name]
        group.last_id, group.read, group.is_ahead = last, read, is_ahead

    def destroy(self, name: bytes) -> Group:
        """What it was, which may be large (garbage.py)."""
        return self.groups.pop(name)

    def deliver(
        self, group: Group, consumer: bytes, time: int, last: EntryId, read: int | None, ids: Sequence[EntryId]
    ) -> None:
        """Entries up to ``last`` went to a consumer; those with ``ids`` wait for its acknowledgement."""
        reader = group.see(consumer, time)
        group.last_id, group.read, group.is_ahead = last, read, False
        for id in ids:
            group.put(reader, id, time, 1)

    def claim(
        self, group: Group, consumer: bytes, time: int, last: EntryId, entries: Sequence[Claimed], *, is_ahead: bool
    ) -> None:
        claimer = group.see(consumer, time)
        group.last_id, group.is_ahead = last, is_ahead
        for entry in entries:
            group.put(claimer, *entry)

    def show_again(self, group: Group, consumer: bytes, time: int, entries: Sequence[Pending]) -> None:
        """As ``claim``, of entries that are pending for that consumer."""
        group.see(consumer, time)
        for entry in entries:
            entry.time, entry.deliveries = time, once_more(entry.deliveries)

    def cut(self, last: EntryId) -> None:
        """The topic has lost what came behind ``last``: what is delivered has to be so again, under whatever id."""
        for group in self.groups.values():
            if group.last_id > last and not group.is_ahead:
                # What was read is not known to have been read by this id: the next delivery finds it out.
                group.last_id, group.read = last, None
            group.drop(list(group.pending.keys(EntryId(last + 1))))

    def is_past(self, last: EntryId) -> bool:
        """``cut`` would change something."""
        return any(
            (group.last_id > last and not group.is_ahead) or (group.pending.last() or 0) > last
            for group in self.groups.values()
        )
