"""The log of a topic, and that of its groups: which entries are there, what is past a limit, and who holds it.

Entries go from the front, so most files are wholly alive or wholly dead: only where the front is, and where entries
were deleted one by one, a file has to be read.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lamina.engines.topics.entries import entry_id
from lamina.engines.topics.holding import Holder as Holding
from lamina.engines.topics.ids import FIRST, EntryId
from lamina.engines.topics.ids import show as show_id
from lamina.engines.topics.ranges import IdRanges
from lamina.engines.topics.sealed import Facts, Stopped
from lamina.engines.topics.shedding import DEAD, Shedder
from lamina.errors import LaminaError, StorageError
from lamina.log.naming import FileName
from lamina.log.scan import FileScan
from lamina.log.segment import open_for_reading
from lamina.server.http.names import show_name
from lamina.server.http.ops import logs_names as names
from lamina.server.http.ops import logs_pins as pins
from lamina.server.http.ops import logs_segments as files
from lamina.server.http.ops.logs_measure import Measured, Pace, Share
from lamina.server.http.ops.logs_model import SEALED, Holder, Segment
from lamina.server.http.ops.logs_names import Ref
from lamina.server.inside import Inside

if TYPE_CHECKING:
    from lamina.engines.topics.retention import Retention
    from lamina.engines.topics.topic import Topic

_LATEST_MS: Final = 253_402_300_800_000  # the year 10000


def measure(inside: Inside, ref: Ref, pace: Pace) -> Measured:
    """Raises: NotThere; Corruption, DiskError; Stopped."""
    listed = files.list_files(inside, ref)
    found = Measured()
    if ref.kind == names.GROUPS:
        return _measure_groups(inside, ref, listed.segments, found)
    topic = names.topic_of(inside, ref)
    upkeep = names.is_open(inside.topics_upkeep)
    shedder, retention = upkeep.shedder(topic), upkeep.retentions.of(ref.of)
    look = _Look(topic, shedder, retention, listed.names, pace)
    consumers = pins.holding(ref.folder, topic.clock.now_ns())
    found.holders, read_by = pins.of(consumers, listed.segments, listed.names)
    sealed = [one for one in listed.segments if one.state == SEALED]
    for one, share, held_by in look.through(sealed, read_by):
        if share is not None:
            found.shares[one.file] = share
        for holder in held_by:
            look.held.setdefault(holder.name, []).append(one)
    found.holders += [look.told(one) for one in look.holders]
    try:
        found.answer = upkeep.why(ref.of, topic).answer
    except (LaminaError, OSError) as error:
        found.answer = str(error)
    return found


class _Look:
    """At one topic, file by file."""

    def __init__(
        self, topic: Topic, shedder: Shedder, retention: Retention, parsed: dict[str, FileName], pace: Pace
    ) -> None:
        self._topic, self._shedder, self._retention = topic, shedder, retention
        self._names, self._pace = parsed, pace
        self._now = topic.clock.now_ns()
        self.held: dict[bytes, list[Segment]] = {}
        with topic.at_work:
            self.holders = shedder.holders()
            self.past = self._past_limits()

    def _past_limits(self) -> dict[str, str]:
        """By file, which limit would let it go, if nobody held anything."""
        retention = self._retention
        topic = self._topic
        verdicts = self._shedder.verdicts(retention, lambda: topic.is_closing, with_holders=retention.acknowledged)
        past: dict[str, str] = {}
        with suppress(Stopped):
            for verdict in verdicts:
                self._pace.step()
                if verdict.reason is not None:
                    past[verdict.name.name] = verdict.reason
        return past

    def through(
        self, sealed: list[Segment], read_by: dict[str, tuple[str, ...]]
    ) -> list[tuple[Segment, Share | None, list[Holding]]]:
        told: list[tuple[Segment, Share | None, list[Holding]]] = []
        before, total, done = EntryId(FIRST), sum(one.bytes for one in sealed), 0
        for one in sealed:
            self._pace.step(done, total)
            done += one.bytes
            try:
                with self._topic.at_work:  # for a moment: whoever closes or cleans the topic waits for it
                    facts = self._shedder.files.facts(self._names[one.file])
            except StorageError:
                continue  # it is gone, or damaged: then it is not known
            held = [
                each
                for each in self.holders
                if each.holds(facts.last_id, facts.newest_ns, self._retention.hold_s, self._now)
            ]
            told.append((one, self._share(one, facts, before, held, read_by.get(one.file, ())), held))
            before = max(before, facts.last_id or before)
        return told

    def _share(
        self, one: Segment, facts: Facts, before: EntryId, held: list[Holding], read_by: tuple[str, ...]
    ) -> Share | None:
        reason = self.past.get(one.file)
        if reason is None and self._retention.acknowledged and held:
            reason = "acknowledged"
        if reason is not None and reason != DEAD:
            by = (*(show_name(each.name) for each in held), *read_by)
            note = f"past the limit on {reason}" if reason != "acknowledged" or not held else "not acknowledged yet"
            return Share(0, 0, one.bytes, by, note) if by else Share(0, one.bytes, 0, (), note)
        dead = one.bytes if reason == DEAD else self._dead(one, facts, before)
        if dead is None:
            return None
        pinned = dead if read_by else 0
        return Share(one.bytes - dead, dead - pinned, pinned, read_by)

    def _dead(self, one: Segment, facts: Facts, before: EntryId) -> int | None:
        last, topic = facts.last_id, self._topic
        if last is None:
            return one.bytes
        with topic.lock:
            state = topic.state
            floor, deleted = state.trimmed_to, state.deleted.part(before, last)
        if last <= floor:
            return one.bytes
        if (deleted or before < floor) and not self._pace.may_read(one.bytes):
            return None
        return self._count(one, floor, deleted) if deleted or before < floor else 0

    def _count(self, one: Segment, floor: EntryId, deleted: IdRanges) -> int | None:
        """Bytes of entries that are gone, of a file that has both."""
        dead = 0
        try:
            file = open_for_reading(files.FILES, self._topic.folder, one.file)
        except FileNotFoundError:
            return None
        try:
            scan = FileScan(file, end=one.bytes)
            for batch in scan:
                count = len(batch.times)
                for at in range(count):
                    id = entry_id(batch.payload(at))
                    if id is not None and (id <= floor or id in deleted):
                        end = batch.record_offset(at + 1) if at + 1 < count else batch.end
                        dead += end - batch.record_offset(at)
                    if at % 512 == 511:
                        self._pace.step()
                self._pace.step()
            if scan.stop < one.bytes:  # damage: what comes behind it is not known
                return None
        finally:
            file.close()
        return dead

    def told(self, one: Holding) -> Holder:
        """A group, for people."""
        held = self.held.get(one.name, [])
        advice = "it has acknowledged all sealed files" if not held else "let its consumers read and acknowledge"
        if self._retention.hold_s is not None and not held and one.needs(self._topic.state.last_id):
            advice = "it is away for so long that nothing is kept for it"
        return Holder(
            name=show_name(one.name),
            kind="group",
            files=len(held),
            bytes=sum(each.bytes for each in held),
            oldest_file=held[0].file if held else "",
            position_ns=_moment(one.needed),
            advice=f"{advice}; it needs entry {show_id(one.needed).decode()} and what comes behind it",
        )


def _moment(id: EntryId) -> int | None:
    """When an entry was added, by its id. None: ids that were given by hand need not be times."""
    time_ms = id >> 64
    return time_ms * 10**6 if 0 < time_ms < _LATEST_MS else None


def _measure_groups(inside: Inside, ref: Ref, segments: list[Segment], found: Measured) -> Measured:
    """Which files count begins with the last snapshot: what is before it stays for nothing."""
    topic = names.topic_of(inside, ref)
    groups = topic.opened_groups
    if groups is not None:
        wants = "it is written anew by itself soon" if groups.wants_compaction() else "compacting writes it anew"
        found.answer = f"{len(groups.state.groups)} groups and what they have not acknowledged; {wants}"
    return found
