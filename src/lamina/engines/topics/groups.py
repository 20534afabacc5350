"""The groups of one topic, in a log of their own beside it (group_log.py): all that can be done with them.

A command returns the position of its record in this log; it must not be answered before the log has come to it
(``settle``, ``settled``). What shows entries says as well how far the log of the topic has to be.
What can be asked without changing anything is in group_views.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from lamina.engines import loops
from lamina.engines.logged import check_room
from lamina.engines.topics import garbage, group_lag, ids
from lamina.engines.topics import group_codec as codec
from lamina.engines.topics.codec import BadRecord, check_counted
from lamina.engines.topics.entries import Picked, decode, entry_id
from lamina.engines.topics.finding import MOST_NEW
from lamina.engines.topics.group_claims import TRIES, ClaimOptions, Plan, find_idle, plan_claim, to_be_read
from lamina.engines.topics.group_codec import Claimed, once_more
from lamina.engines.topics.group_log import GroupLog
from lamina.engines.topics.group_state import Group, Pending
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.sorted_map import SortedMap
from lamina.errors import Corruption, GroupExists, NoGroup

_CHUNK: Final = 500  # entries that are changed before others may go on; they have to fit into one record
_PAGE: Final = 10_000  # pending entries that are looked at before others may go on
_NEW_GROUP: Final = 8192  # bytes, about: the first begins a log
MOST_CLAIMED: Final = 10_000
"""Entries that ``autoclaim`` takes over at once, however many it is asked for: it tells where to go on."""

_NO_MORE: Final[Picked] = (EntryId(ids.LAST + 1), b"", None)
T = TypeVar("T")


class Shown(NamedTuple):
    """Entries for a client, and what its answer has to wait for."""

    records: list[tuple[EntryId, bytes | None]]
    """As they are in the log. None: the entry is not in the topic any more, or only its id was asked for."""
    position: int
    topic_position: int
    gone: list[EntryId]
    """Were pending, and are not in the topic any more."""
    next_id: EntryId

    @property
    def entries(self) -> list[tuple[EntryId, list[bytes] | None]]:
        """The same with the fields of the entries. Raises: Corruption."""
        try:
            return [(id, None if record is None else decode(record)[1]) for id, record in self.records]
        except BadRecord as error:
            raise Corruption("", 0, f"an entry cannot be read: {error}") from error


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
        """Make a group that gets what comes behind ``last`` (None: what comes from now on).

        ``read``: so many entries it has read. Raises: GroupExists; BadTopic if that leaves no room to count on.
        """
        _check_read(read)
        with self.lock:
            self._freshen()
            if name in self.state.groups:
                raise GroupExists("Consumer Group name already exists")
            check_room(self.reserve, _NEW_GROUP)
            last, is_ahead = self._placed(last)
            position = self._write(codec.encode_group(codec.CREATED, name, last, read, is_ahead=is_ahead))
            self.state.create(name, last, read, is_ahead=is_ahead)
            return position

    def set_id(self, name: bytes, last: EntryId | None, read: int | None = None) -> int:
        """Let a group go on behind ``last`` (None: with what comes from now on). Raises: as ``create``; NoGroup."""
        _check_read(read)
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
            count = len(known.pending)
            if count > garbage.LARGE:
                loops.must_wait()
            position = self._write(codec.encode_consumer_deleted(group, consumer))
            gone = self.get(group).delete_consumer(consumer, loops.make_way)
            if gone is not None and count > garbage.LARGE:
                garbage.free_pending([gone.pending])
            return count, position

    # -- reading -----------------------------------------------------------------------------------------------------

    # Whoever reads finds out first what there is, in pieces when it is much, and changes nothing. Then it is given out,
    # as far as it is still so: others may have come in between.

    def deliver(self, group: bytes, consumer: bytes, count: int | None = None, *, noack: bool = False) -> Shown:
        """Give a consumer entries that the group has not had yet, ``MOST_NEW`` bytes of them at most, but one at least;
        with ``noack`` they need no acknowledgement.

        Where there are none, nothing changes. Raises: NoGroup.
        """
        while True:
            start, records, topic_position = self._read_new(group, count)
            if not records:
                return Shown([], 0, topic_position, [], ids.FIRST)
            given, position = self._give_out(group, consumer, start, records, noack=noack)
            if given:  # else others were given all of them
                return Shown(given, position, topic_position, [], ids.FIRST)

    def _read_new(self, group: bytes, count: int | None) -> tuple[EntryId, list[bytes], int]:
        with self.lock:
            self._freshen()
            start = EntryId(self.get(group).last_id + 1)
        if start > ids.LAST:
            return start, [], 0
        records, position, _ = self.topic.first(start, ids.LAST, count, enough=MOST_NEW)
        return start, records, position

    def _give_out(
        self, group: bytes, consumer: bytes, start: EntryId, records: Sequence[bytes], *, noack: bool
    ) -> tuple[list[tuple[EntryId, bytes | None]], int]:
        """The entries from ``start`` on, until others were given one of them."""
        given: list[tuple[EntryId, bytes | None]] = []
        position = 0
        for chunk in _chunks(records):
            with self.lock:
                self._freshen()
                known = self.get(group)
                if known.last_id + 1 != start:
                    break
                pairs = [(id, record) for record in chunk if self.topic.state.has(id := _id_of(record))]
                if not pairs:
                    continue
                found, now = [id for id, _ in pairs], self.now_ms()
                read = group_lag.read_after(self.topic, known.read, found)
                kept = [] if noack else found
                position = self._write(codec.encode_delivered(group, consumer, now, found[-1], read, kept))
                self.state.deliver(self.get(group), consumer, now, found[-1], read, kept)
                self.delivered += len(found)
                self.topic.counts.read += len(found)
                given += pairs
                start = EntryId(found[-1] + 1)
        return given, position

    def history(self, group: bytes, consumer: bytes, after: EntryId, count: int | None = None) -> Shown:
        """What is pending for a consumer, behind ``after``; it counts as delivered once more. Raises: NoGroup."""
        wanted = self._pending_behind(group, consumer, after, count)
        found, topic_position = self.topic.fetch(wanted)
        records = iter(found)
        id_there, record_there, _ = next(records, _NO_MORE)
        shown: list[tuple[EntryId, bytes | None]] = []
        position = 0
        for chunk in _chunks(wanted):
            with self.lock:
                self._freshen()
                known, now, state = self.get(group), self.now_ms(), self.topic.state
                again: list[tuple[EntryId, int, int]] = []
                these: list[Pending] = []
                for id, pending in _still_pending(known, consumer, chunk):
                    while id_there < id:
                        id_there, record_there, _ = next(records, _NO_MORE)
                    if id_there == id and state.has(id):
                        again.append((id, now, once_more(pending.deliveries)))
                        these.append(pending)
                        shown.append((id, record_there))
                    else:
                        shown.append((id, None))
                if not again:
                    position = self._see(known, consumer)
                    continue
                position = self._write(
                    codec.encode_claimed(group, consumer, now, known.last_id, again, is_ahead=known.is_ahead)
                )
                self.state.show_again(self.get(group), consumer, now, these)
                self.redelivered += len(again)
                self.topic.counts.read += len(again)
        return Shown(shown, position, topic_position, [], ids.FIRST)

    def _pending_behind(self, group: bytes, consumer: bytes, after: EntryId, count: int | None) -> list[EntryId]:
        found: list[EntryId] = []
        while True:
            with self.lock:
                self._freshen()
                reader = self.get(group).consumers.get(consumer)
                if reader is None or after >= ids.LAST:
                    return found
                most = _PAGE if count is None else min(_PAGE, count - len(found))
                page = list(islice(reader.pending.keys(EntryId(after + 1)), most))
            found += page
            if len(page) < _PAGE:
                return found
            after = page[-1]
            loops.make_way()

    def prepare(self, group: bytes, consumer: bytes, after: EntryId | None, count: int | None = None) -> None:
        """Read what ``history`` would (``after`` None: what ``deliver`` would), and change nothing.

        For who asks several topics and must know before the first change whether it has to wait. Raises: as they do.
        """
        if after is not None:
            self.topic.fetch(self._pending_behind(group, consumer, after, count))
            return
        _, records, _ = self._read_new(group, count)
        with self.lock:
            group_lag.read_after(self.topic, self.get(group).read, map(_id_of, records))

    # -- acknowledging and taking over -------------------------------------------------------------------------------

    def ack(self, group: bytes, acked: Sequence[EntryId]) -> tuple[int, int]:
        """How many of them were pending, which are so no more, and the position. Raises: NoGroup."""
        count = position = 0
        for chunk in _chunks(ids.different(acked)):
            with self.lock:
                self._freshen()
                known = self.get(group)
                there = [id for id in chunk if id in known.pending]
                position = self._drop(known, there) or position
                count += len(there)
        return count, position

    def _drop(self, group: Group, gone: Sequence[EntryId]) -> int:
        if not gone:
            return 0
        position = self._write(codec.encode_acked(group.name, gone))
        self.get(group.name).drop(gone)
        return position

    def claim(
        self, group: bytes, consumer: bytes, wanted: Sequence[EntryId], options: ClaimOptions | None = None
    ) -> Shown:
        """Take over pending entries, those that ``options`` allows.

        Raises: NoGroup; BadTopic if the count of deliveries leaves no room to count on.
        """
        options = options or ClaimOptions()
        if options.count is not None:
            check_counted(options.count, "RETRYCOUNT")
        found, topic_position = self.topic.fetch(self._to_read(group, wanted, options))
        records = SortedMap((id, record) for id, record, _ in found)
        if options.just_ids:
            topic_position = self.topic.newest_position()
        shown: list[tuple[EntryId, bytes | None]] = []
        gone: list[EntryId] = []
        position = 0
        for chunk in _chunks(wanted):
            with self.lock:
                self._freshen()
                known, now = self.get(group), self.now_ms()
                plan = plan_claim(known, chunk, options, now, records, self.topic.state.has)
                position = self._carry_out(known, consumer, plan, options, now) or position
                gone += plan.gone
                shown += plan.shown
                if not options.just_ids:
                    self.topic.counts.read += len(plan.claimed)
        return Shown(shown, position, topic_position, gone, ids.FIRST)

    def _to_read(self, group: bytes, wanted: Sequence[EntryId], options: ClaimOptions) -> list[EntryId]:
        """Those of the entries that may be claimed and are to be shown, or are to be looked for."""
        found: list[EntryId] = []
        for chunk in _chunks(wanted):
            with self.lock:
                self._freshen()
                found += to_be_read(self.get(group), chunk, options, self.now_ms())
        return ids.different(found)

    def autoclaim(
        self, group: bytes, consumer: bytes, min_idle: int, start: EntryId, count: int = 100, *, just_ids: bool = False
    ) -> Shown:
        """Take over up to ``count`` entries that have been pending for long, from ``start`` on, and no more than
        MOST_CLAIMED. Raises: NoGroup.
        """
        count = min(count, MOST_CLAIMED)
        left = count * TRIES
        found: list[EntryId] = []
        while True:
            with self.lock:
                self._freshen()
                known, now, has = self.get(group), self.now_ms(), self.topic.state.has
                most = count - len(found)
                page, start, looked = find_idle(known, start, min_idle, most, min(left, _PAGE), now, has)
            found += page
            left -= looked
            if start == ids.FIRST or len(found) == count or not left:
                break
            loops.make_way()
        options = ClaimOptions(min_idle=min_idle, just_ids=just_ids)
        return self.claim(group, consumer, found, options)._replace(next_id=start)

    def _carry_out(self, group: Group, consumer: bytes, plan: Plan, options: ClaimOptions, now: int) -> int:
        last, is_ahead = group.last_id, group.is_ahead
        if options.last_id is not None and options.last_id > last:
            last, is_ahead = self._placed(options.last_id)
        position = self._drop(group, plan.gone)
        if plan.claimed:
            return self._claim(group, consumer, now, last, plan.claimed, is_ahead=is_ahead)
        if last != group.last_id:
            position = self._write(codec.encode_group(codec.ID_SET, group.name, last, group.read, is_ahead=is_ahead))
            self.state.set_id(group.name, last, group.read, is_ahead=is_ahead)
        return position

    def _claim(
        self, group: Group, consumer: bytes, now: int, last: EntryId, entries: Sequence[Claimed], *, is_ahead: bool
    ) -> int:
        if not entries:
            return self._see(group, consumer)
        position = self._write(codec.encode_claimed(group.name, consumer, now, last, entries, is_ahead=is_ahead))
        self.state.claim(self.get(group.name), consumer, now, last, entries, is_ahead=is_ahead)
        self.redelivered += len(entries)
        return position

    # -- what else uses them -----------------------------------------------------------------------------------------

    def held_back(self) -> dict[bytes, EntryId]:
        """For each group the first entry that it may yet need: the oldest pending one, or the one to come next."""
        with self.lock:
            return {name: group.oldest_needed() for name, group in self.state.groups.items()}

    def oldest_needed(self) -> EntryId | None:
        """Every entry before it was acknowledged by all groups; None: there are none."""
        return min(self.held_back().values(), default=None)


def _check_read(read: int | None) -> None:
    if read is not None:
        check_counted(read, "ENTRIESREAD")


def _id_of(record: bytes) -> EntryId:
    id = entry_id(record)
    assert id is not None  # topics give entries only
    return id


def _still_pending(group: Group, consumer: bytes, wanted: Sequence[EntryId]) -> Iterator[tuple[EntryId, Pending]]:
    """Those that are pending for a consumer, of ids in order."""
    reader = group.consumers.get(consumer)
    if reader is None or not wanted:
        return
    at, count = 0, len(wanted)
    for id, pending in reader.pending.items(wanted[0]):
        while wanted[at] < id:
            at += 1
            if at == count:
                return
        if wanted[at] == id:
            yield id, pending


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Each is changed while others wait, who may go on in between. There is one at least. Raises: as ``make_way``."""
    for start in range(0, len(items) or 1, _CHUNK):
        if len(items) > _CHUNK:
            loops.make_way()
        yield items[start : start + _CHUNK]
