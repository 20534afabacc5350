"""The groups of one topic, in a log of their own beside it (group_log.py): all that can be done with them.

A command returns the position of its record in this log; it must not be answered before the log has come to it
(``settle``, ``settled``). What shows entries says as well how far the log of the topic has to be.
What can be asked without changing anything is in group_views.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from lamina.engines.topics import garbage, group_lag, ids
from lamina.engines.topics import group_codec as codec
from lamina.engines.topics.group_claims import ClaimOptions, Plan, plan_autoclaim, plan_claim
from lamina.engines.topics.group_codec import Claimed
from lamina.engines.topics.group_log import GroupLog
from lamina.engines.topics.group_state import Group
from lamina.engines.topics.ids import EntryId
from lamina.errors import GroupExists, NoGroup

if TYPE_CHECKING:
    from lamina.engines.topics.topic import Entry

_CHUNK: Final = 10_000  # entries in a record, at most: it has to fit into one
_READ_AT_ONCE: Final = 64  # entries that are read to find one among them

T = TypeVar("T")


class Shown(NamedTuple):
    """Entries for a client, and what its answer has to wait for."""

    entries: list[tuple[EntryId, list[bytes] | None]]
    """None for fields: the entry is not in the topic any more, or only its id was asked for."""
    position: int
    topic_position: int
    gone: list[EntryId]
    """Were pending, and are not in the topic any more."""
    next_id: EntryId


class Groups(GroupLog):
    """Open it with ``Groups.open``. Threads: every method is safe from any thread."""

    # -- groups and consumers ----------------------------------------------------------------------------------------

    def get(self, name: bytes) -> Group:
        """Raises: NoGroup."""
        group = self.state.groups.get(name)
        if group is None:
            raise NoGroup(f"No such consumer group '{name.decode(errors='backslashreplace')}'")
        return group

    def has(self, name: bytes) -> bool:
        return name in self.state.groups

    def create(self, name: bytes, last: EntryId | None, read: int | None = None) -> int:
        """Make a group that gets what comes behind ``last`` (None: what comes from now on). Raises: GroupExists."""
        with self.lock:
            self._freshen()
            if name in self.state.groups:
                raise GroupExists("Consumer Group name already exists")
            last, is_ahead = self._placed(last)
            position = self._write(codec.encode_group(codec.CREATED, name, last, read, is_ahead=is_ahead))
            self.state.create(name, last, read, is_ahead=is_ahead)
            return position

    def set_id(self, name: bytes, last: EntryId | None, read: int | None = None) -> int:
        """Let a group go on behind ``last`` (None: with what comes from now on). Raises: NoGroup."""
        with self.lock:
            self._freshen()
            self.get(name)
            last, is_ahead = self._placed(last)
            position = self._write(codec.encode_group(codec.ID_SET, name, last, read, is_ahead=is_ahead))
            self.state.set_id(name, last, read, is_ahead=is_ahead)
            return position

    def _placed(self, last: EntryId | None) -> tuple[EntryId, bool]:
        newest = self.topic.state.last_id
        if last is None:
            return newest, False
        # Who begins now asks for what there is: what retention took before is no gap for it.
        return max(last, self.topic.state.let_go_to), last > newest

    def overtaken(self, name: bytes) -> EntryId | None:
        """Retention took entries that the group has not read: up to this id. Raises: NoGroup."""
        group, border = self.get(name), self.topic.state.let_go_to
        return border if group.last_id < border and not group.is_ahead else None

    def destroy(self, name: bytes) -> tuple[bool, int]:
        """Whether there was such a group, and the position. Who waits for its entries is woken."""
        with self.lock:
            self._freshen()
            if name not in self.state.groups:
                return False, 0
            position = self._write(codec.encode_destroyed(name))
            garbage.free([self.state.destroy(name)])
            self.topic.tell_all()
            return True, position

    def create_consumer(self, group: bytes, consumer: bytes) -> tuple[bool, int]:
        """Whether it is new, and the position. Raises: NoGroup."""
        with self.lock:
            self._freshen()
            if consumer in self.get(group).consumers:
                return False, 0
            return True, self._see(self.get(group), consumer)

    def _see(self, group: Group, consumer: bytes) -> int:
        now = self.now_ms()
        position = self._write(codec.encode_seen(group.name, consumer, now))
        self.get(group.name).see(consumer, now)
        return position

    def delete_consumer(self, group: bytes, consumer: bytes) -> tuple[int, int]:
        """How many entries were pending for it, which are so no more, and the position. Raises: NoGroup."""
        with self.lock:
            self._freshen()
            known = self.get(group).consumers.get(consumer)
            if known is None:
                return 0, 0
            count = len(known.ids)
            position = self._write(codec.encode_consumer_deleted(group, consumer))
            self.get(group).delete_consumer(consumer)
            return count, position

    # -- reading -----------------------------------------------------------------------------------------------------

    def deliver(self, group: bytes, consumer: bytes, count: int | None = None, *, noack: bool = False) -> Shown:
        """Give a consumer entries that the group has not had yet; with ``noack`` they need no acknowledgement.

        Where there are none, nothing changes. Raises: NoGroup.
        """
        with self.lock:
            self._freshen()
            start = EntryId(self.get(group).last_id + 1)
            entries: list[Entry] = []
            position = topic_position = 0
            if start <= ids.LAST:
                entries, topic_position = self.topic.read(start, ids.LAST, count)
            now = self.now_ms()
            for chunk in _chunks(entries):
                found = [id for id, _ in chunk]
                read = group_lag.read_after(self.topic, self.get(group).read, found)
                kept = [] if noack else found
                position = self._write(codec.encode_delivered(group, consumer, now, found[-1], read, kept))
                self.state.deliver(self.get(group), consumer, now, found[-1], read, kept)
                self.delivered += len(found)
            return Shown([*entries], position, topic_position, [], ids.FIRST)

    def history(self, group: bytes, consumer: bytes, after: EntryId, count: int | None = None) -> Shown:
        """What is pending for a consumer, behind ``after``; it counts as delivered once more. Raises: NoGroup."""
        with self.lock:
            self._freshen()
            known, now = self.get(group), self.now_ms()
            reader = known.consumers.get(consumer)
            wanted: list[EntryId] = []
            if reader is not None and after < ids.LAST:
                for id in reader.ids.since(EntryId(after + 1)):
                    if len(wanted) == count:
                        break
                    wanted.append(id)
            found, topic_position = self._fetch(wanted)
            again = [Claimed(id, now, known.pending[id].deliveries + 1) for id in wanted if id in found]
            position = self._claim(known, consumer, now, known.last_id, again, is_ahead=known.is_ahead)
            return Shown([(id, found.get(id)) for id in wanted], position, topic_position, [], ids.FIRST)

    def _fetch(self, wanted: Sequence[EntryId]) -> tuple[dict[EntryId, list[bytes]], int]:
        """The fields of those entries that are there. Many are read at once: they tend to be neighbours."""
        found: dict[EntryId, list[bytes]] = {}
        newest, left = 0, sorted(set(wanted))
        while left:
            many = min(len(left), _READ_AT_ONCE)
            entries, position = self.topic.read(left[0], left[-1], many)
            found.update(entries)
            newest = max(newest, position)
            if len(entries) < many:
                break
            reached = entries[-1][0]
            left = left[next((at for at, id in enumerate(left) if id > reached), len(left)) :]
        return found, newest

    # -- acknowledging and taking over -------------------------------------------------------------------------------

    def ack(self, group: bytes, acked: Sequence[EntryId]) -> tuple[int, int]:
        """How many of them were pending, which are so no more, and the position. Raises: NoGroup."""
        with self.lock:
            self._freshen()
            pending = self.get(group).pending
            there = [id for id in dict.fromkeys(acked) if id in pending]
            return len(there), self._drop(self.get(group), there)

    def _drop(self, group: Group, gone: Sequence[EntryId]) -> int:
        position = 0
        for chunk in _chunks(gone):
            position = self._write(codec.encode_acked(group.name, chunk))
            self.get(group.name).drop(chunk)
        return position

    def claim(
        self, group: bytes, consumer: bytes, wanted: Sequence[EntryId], options: ClaimOptions | None = None
    ) -> Shown:
        """Take over pending entries, those that ``options`` allows. Raises: NoGroup."""
        with self.lock:
            self._freshen()
            options = options or ClaimOptions()
            known, now = self.get(group), self.now_ms()

            def is_there(id: EntryId) -> bool:  # what is pending was once added, so that no file has to be read
                return self.topic.state.has(id) if id in known.pending else self.topic.has(id)

            plan = plan_claim(known, wanted, options, now, is_there)
            last, is_ahead = known.last_id, known.is_ahead
            if options.last_id is not None and options.last_id > last:
                last, is_ahead = self._placed(options.last_id)
            return self._carry_out(known, consumer, plan, now, last, is_ahead=is_ahead, just_ids=options.just_ids)

    def autoclaim(
        self, group: bytes, consumer: bytes, min_idle: int, start: EntryId, count: int = 100, *, just_ids: bool = False
    ) -> Shown:
        """Take over up to ``count`` entries that have been pending for long, from ``start`` on. Raises: NoGroup."""
        with self.lock:
            self._freshen()
            known, now, state = self.get(group), self.now_ms(), self.topic.state
            plan = plan_autoclaim(known, start, min_idle, count, now, state.has, just_ids=just_ids)
            is_ahead = known.is_ahead
            return self._carry_out(known, consumer, plan, now, known.last_id, is_ahead=is_ahead, just_ids=just_ids)

    def _carry_out(
        self, group: Group, consumer: bytes, plan: Plan, now: int, last: EntryId, *, is_ahead: bool, just_ids: bool
    ) -> Shown:
        wanted = [entry.id for entry in plan.claimed]
        found, topic_position = ({}, self.topic.newest_position()) if just_ids else self._fetch(wanted)
        position = self._drop(group, plan.gone)
        if wanted:
            position = self._claim(group, consumer, now, last, plan.claimed, is_ahead=is_ahead)
        elif last != group.last_id:
            position = self._write(codec.encode_group(codec.ID_SET, group.name, last, group.read, is_ahead=is_ahead))
            self.state.set_id(group.name, last, group.read, is_ahead=is_ahead)
        return Shown([(id, found.get(id)) for id in wanted], position, topic_position, plan.gone, plan.next_id)

    def _claim(
        self, group: Group, consumer: bytes, now: int, last: EntryId, entries: Sequence[Claimed], *, is_ahead: bool
    ) -> int:
        if not entries:
            return self._see(group, consumer)
        position = 0
        for chunk in _chunks(entries):
            position = self._write(codec.encode_claimed(group.name, consumer, now, last, chunk, is_ahead=is_ahead))
            self.state.claim(self.get(group.name), consumer, now, last, chunk, is_ahead=is_ahead)
            self.redelivered += len(chunk)
        return position

    # -- what else uses them -----------------------------------------------------------------------------------------

    def held_back(self) -> dict[bytes, EntryId]:
        """For each group the first entry that it may yet need: the oldest pending one, or the one to come next."""
        with self.lock:
            return {name: group.oldest_needed() for name, group in self.state.groups.items()}

    def oldest_needed(self) -> EntryId | None:
        """Every entry before it was acknowledged by all groups; None: there are none."""
        return min(self.held_back().values(), default=None)


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]
