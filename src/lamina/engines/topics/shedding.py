"""Letting the oldest files of a topic go, and what is dead in others (compaction.py).

Which: as long as a limit says so and no group holds them (retention.py, holding.py), and those in which nothing is
alive any more, whatever the limits. Whole files, oldest first, never the newest. And none that a consumer of the log
has yet to read (log/consumers.py): it reads records, also of entries that clients have deleted meanwhile.

How, so that no power cut leaves less than was promised:

    1 sync what the groups have acknowledged         3 keep a checkpoint: a start does not miss the files
    2 write and sync what is trimmed, and all that   4 remove the files one by one, each removal synced: of files
      is known of the topic: the log can do without    named by time, none may be missing between two others

A cut behind 2 leaves files of which nothing is alive: they go the next time.

What nothing alive needs stays for the recent past as long as the history of the data folder says (log/history.py), but
not against a limit, nor when the disk is full.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from lamina.engines.topics.compaction import Compaction, Waste
from lamina.engines.topics.holding import Holder, Sightings
from lamina.engines.topics.ids import FIRST, EntryId
from lamina.engines.topics.retention import Retention
from lamina.engines.topics.sealed import Facts, SealedFiles, Stopped
from lamina.engines.topics.state import State, Watch
from lamina.engines.topics.topic import Topic
from lamina.errors import DiskFull, LaminaError
from lamina.log import consumers, rewrite
from lamina.log.consumer_file import Consumer
from lamina.log.history import Dead, History
from lamina.log.naming import FileName
from lamina.log.sync import Level
from lamina.log.writer import Log

DEAD, AGE, BYTES, LENGTH, ACKNOWLEDGED = "dead", "age", "bytes", "length", "acknowledged"


@dataclass(frozen=True, slots=True)
class Shed:
    """What went."""

    files: int = 0
    bytes: int = 0
    entries: int = 0
    rewritten: int = 0
    """Files that stay, without what was dead in them."""

    def plus(self, other: Shed) -> Shed:
        return Shed(
            self.files + other.files,
            self.bytes + other.bytes,
            self.entries + other.entries,
            self.rewritten + other.rewritten,
        )


class Verdict(NamedTuple):
    """On one sealed file."""

    name: FileName
    facts: Facts
    reason: str | None
    """Why it may go: nothing in it is alive, or the limit that says so; None: it stays."""
    holders: list[Holder]
    """Groups that hold it."""
    consumers: list[Consumer]
    """Of the log: they have yet to read some of its records."""
    is_past: bool = False
    """It stays for the recent past alone."""

    @property
    def goes(self) -> bool:
        return self.reason is not None and not self.holders and not self.consumers and not self.is_past


def _never() -> bool:
    return False


class Shedder:
    """Of one topic. Threads: one at a time has ``topic.at_work``, beside those who use the topic."""

    def __init__(self, topic: Topic, history: History | None = None) -> None:
        """``history``: what keeps the recent past; None: nothing does."""
        self._topic = topic
        self._history = history
        self._sightings = Sightings()
        self.files = SealedFiles(topic)
        self.compaction = Compaction(topic, self.files)
        self._died: dict[FileName, int] = {}
        """Of oldest files in which nothing is alive: the newest record when that was first seen."""

    def shed(
        self, retention: Retention, should_stop: Callable[[], bool] = _never, *, is_out_of_room: bool = False
    ) -> Shed:
        """Let go what may go. Asked to stop, it does so soon, and has done nothing or whole files.

        ``is_out_of_room``: nothing is kept for the recent past.
        Raises: Corruption, DiskFull, DiskError, LogFailed; then what went before is right.
        """
        topic = self._topic

        def is_over() -> bool:
            return topic.is_closing or should_stop()

        with topic.at_work:
            try:
                if is_over():
                    return Shed()
                self._seal(retention)
                state = topic.state
                holding = consumers.tidy(_log_of(topic).reader.files, topic.folder, topic.clock.now_ns())
                wastes = self.wastes(is_over, holding=holding)
                past = self._past(retention, is_over, holding, wastes, is_out_of_room=is_out_of_room)
                verdicts = self.verdicts(retention, is_over, holding=holding, past=past)
                going = [verdict for verdict in verdicts if verdict.goes]
                done = self._let_go(going, state, retention, is_over) if going else Shed()
            except Stopped:
                return Shed()
            with suppress(Stopped):
                compacted = self.compaction.compact([one for one in wastes if one.name.name not in past], is_over)
                done = done.plus(Shed(compacted.removed, compacted.bytes, 0, compacted.rewritten))
            return done

    # -- deciding ----------------------------------------------------------------------------------------------------

    def holders(self) -> list[Holder]:
        """All groups. Raises: what opening their log does."""
        return self._sightings.holders(self._topic, self._topic.clock.now_ns())

    def consumers(self) -> list[Consumer]:
        """Those who read the log from outside, and need what they have not read. Raises: DiskError."""
        topic = self._topic
        return consumers.holding(_log_of(topic).reader.files, topic.folder, topic.clock.now_ns())

    def verdicts(
        self,
        retention: Retention,
        should_stop: Callable[[], bool] = _never,
        *,
        with_holders: bool = True,
        holding: Sequence[Consumer] = (),
        past: Container[str] = (),
    ) -> Iterator[Verdict]:
        """On the sealed files, oldest first, up to the first that stays. ``holding``: consumers of the log. ``past``:
        names of files that stay for the recent past, unless they are over a limit.

        Raises: Corruption, DiskError; Stopped.
        """
        topic, files = self._topic, self.files
        now = topic.clock.now_ns()
        holders = self.holders() if with_holders else []
        size = 0 if retention.bytes is None else files.size()
        sealed, grows = files.names()
        with topic.lock:
            length, floor = topic.state.length, topic.state.trimmed_to
        for name in sealed:
            if should_stop():
                raise Stopped
            facts = files.facts(name)
            if facts.last_id is None and name == sealed[-1] and grows is None:
                return  # what would be written instead is no smaller
            alive, is_dead = self._alive(name, facts, floor, retention, should_stop)
            held_by = [one for one in holders if one.holds(facts.last_id, facts.newest_ns, retention.hold_s, now)]
            unread_by = [one for one in holding if facts.newest_ns > one.position_in(name.stream)]
            if retention.age_s is not None and now - facts.newest_ns > retention.age_s * 10**9:
                reason: str | None = AGE
            elif retention.bytes is not None and size > retention.bytes:
                reason = BYTES
            elif retention.length is not None and length - alive >= retention.length:
                reason = LENGTH
            elif retention.acknowledged and (held_by or any(not one.needs(facts.last_id) for one in holders)):
                reason = ACKNOWLEDGED
            else:
                reason = None
            is_past = is_dead and reason is None and name.name in past
            if is_dead:
                reason, held_by = DEAD, []
            verdict = Verdict(name, facts, reason, held_by, unread_by, is_past)
            yield verdict
            if not verdict.goes:
                return
            size, length, floor = size - facts.bytes, length - alive, max(floor, facts.last_id or FIRST)

    def wastes(self, should_stop: Callable[[], bool] = _never, *, holding: Sequence[Consumer] = ()) -> list[Waste]:
        """Files to be written anew, but for those that somebody has yet to read. Raises: as ``verdicts``."""
        found = self.compaction.wastes(should_stop, keeps_past=self._history is not None)
        return [
            waste
            for waste in found
            if not any(waste.facts.newest_ns > one.position_in(waste.name.stream) for one in holding)
        ]

    def past(self, retention: Retention, holding: Sequence[Consumer], wastes: Sequence[Waste]) -> set[str]:
        """Names of files that stay for the recent past. Raises: as ``verdicts``."""
        return self._past(retention, _never, holding, wastes, is_out_of_room=False)

    def _past(
        self,
        retention: Retention,
        should_stop: Callable[[], bool],
        holding: Sequence[Consumer],
        wastes: Sequence[Waste],
        *,
        is_out_of_room: bool,
    ) -> set[str]:
        topic, history = self._topic, self._history
        if history is None:
            return set()
        if is_out_of_room:
            history.forget(topic.folder)
            return set()
        now = self.compaction.newest_ns()
        dead = [
            verdict
            for verdict in self.verdicts(retention, should_stop, holding=holding)
            if verdict.goes and verdict.reason == DEAD
        ]
        self._died = {verdict.name: self._died.get(verdict.name, now) for verdict in dead}
        oldest = [Dead(verdict.name.name, self._died[verdict.name], verdict.facts.bytes) for verdict in dead]
        others = [
            Dead(waste.name.name, waste.since_ns, waste.bytes) for waste in wastes if waste.name not in self._died
        ]
        return history.held(topic.folder, [*oldest, *others], topic.clock.now_ns())

    def _alive(
        self, name: FileName, facts: Facts, floor: EntryId, retention: Retention, should_stop: Callable[[], bool]
    ) -> tuple[int, bool]:
        """How many entries of a file are alive, at most, where that matters; and whether none is.

        ``floor``: none up to it is, or they were counted with an older file.
        """
        topic, last = self._topic, facts.last_id
        if last is None or last <= floor:
            return 0, True
        with topic.lock:
            has_deleted, deleted = bool(topic.state.deleted), topic.state.deleted.between(floor, last)
        if has_deleted and not topic.looked_at(EntryId(floor + 1), last, 1)[0]:
            return 0, True
        if retention.length is None:
            return 0, False
        return max(self.files.tally(name, should_stop).at_most_behind(floor) - deleted, 0), False

    def _seal(self, retention: Retention) -> None:
        """Seal the newest file if the limits want it. One without an entry has nothing that they could mean."""
        _, grows = self.files.names()
        if grows is None or not retention.has_limits:
            return
        age_s = (self._topic.clock.now_ns() - grows.number) / 10**9
        facts = self.files.look(grows)
        if facts.last_id is not None and retention.wants_seal(facts.bytes, facts.records, age_s):
            _log_of(self._topic).rotate()

    # -- letting go --------------------------------------------------------------------------------------------------

    def _let_go(
        self, going: Sequence[Verdict], state: State, retention: Retention, should_stop: Callable[[], bool]
    ) -> Shed:
        topic = self._topic
        last = max(verdict.facts.last_id or FIRST for verdict in going)
        self._sync_groups()
        done = self._trim(last, going, state, retention, should_stop)
        if done is None:
            return Shed()
        entries, position = done
        topic.sync(position)
        with suppress(DiskFull):  # a start without it takes longer, and that there is room again matters more
            topic.checkpoint()
        newest = _log_of(topic).reader.segments()[-1]
        for verdict in going:
            # Invariant: what was written instead is in a newer file.
            assert verdict.name < newest
            with topic.removal:
                rewrite.remove(_log_of(topic).reader.files, topic.folder, [verdict.name.name])
            self.files.forget(verdict.name)
        return Shed(len(going), sum(verdict.facts.bytes for verdict in going), entries)

    def _sync_groups(self) -> None:
        """What they have acknowledged stays so: else a cut could give back what has no entry any more."""
        groups = self._topic.groups
        position = groups.all_written()
        if isinstance(groups.log, Log):
            try:
                groups.log.wait(position, Level.SYNCED)
            except LaminaError as error:
                groups.undo_refused(error)
                raise

    def _trim(
        self,
        last: EntryId,
        going: Sequence[Verdict],
        state: State,
        retention: Retention,
        should_stop: Callable[[], bool],
    ) -> tuple[int, int] | None:
        """How many entries went that were alive, and the position; None: they may not go after all.

        They are counted while others go on, and what those take away meanwhile is noted.
        """
        topic, watch = self._topic, Watch(last)
        with topic.lock:
            border, gone = state.trimmed_to, state.deleted.part(state.trimmed_to, last)
            state.watch = watch
        try:
            alive = self.files.count(border, last, gone, should_stop)
            with topic.lock:
                topic.push()
                if topic.state is not state or self._is_held(going, retention):
                    return None  # what was deleted may have been given back, as the disk refused it
                return topic.let_go(last, alive - watch.gone if state.trimmed_to < last else 0)
        finally:
            state.watch = None

    def _is_held(self, going: Sequence[Verdict], retention: Retention) -> bool:
        """Somebody came back, or went back, meanwhile."""
        now, holders = self._topic.clock.now_ns(), self.holders()
        return any(
            verdict.reason != DEAD and one.holds(verdict.facts.last_id, verdict.facts.newest_ns, retention.hold_s, now)
            for verdict in going
            for one in holders
        )


def _log_of(topic: Topic) -> Log:
    assert isinstance(topic.log, Log)
    return topic.log
