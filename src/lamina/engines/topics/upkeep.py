"""What keeps the folder of topics small and its start short, in a thread of its own.

Checkpoints, groups written anew, the room of deleted topics given back, and retention, for which topics are opened that
nobody has asked for yet: one by one, with pauses.

Whatever goes wrong with a topic is told as a warning, and that topic is left alone for a while.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from lamina.engines.elsewhere import Stopper
from lamina.engines.topics.retention import Retention, Retentions, parse
from lamina.engines.topics.shedding import Shed, Shedder
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.topics import Topics
from lamina.engines.topics.why import WhyReport, why
from lamina.errors import LogClosed, Stopped
from lamina.log.history import History
from lamina.log.measured import Work
from lamina.log.writer import Log
from lamina.units import MIB

_EVERY_S: Final = 0.5
_SOON_S: Final = 5.0  # behind the start: one that is killed early, again and again, must not grow without end
_RECORDS: Final = 100_000  # behind the last checkpoint: a new one is worth it
_BYTES: Final = 16 * MIB
_LEFT_ALONE_S: Final = 30.0  # a topic with which something went wrong
_HURRY_S: Final = 30.0  # between two looks at all topics while the disk is full
_PAUSE_S: Final = 0.02  # before a topic is opened that nobody has asked for

logger = logging.getLogger("lamina.topics")


class _Care:
    """What is known of one topic that is looked after."""

    def __init__(self, topic: Topic, history: History | None) -> None:
        assert isinstance(topic.log, Log)
        self._log = topic.log
        self.shedder = Shedder(topic, history)
        self.not_before = 0.0
        self._checkpointed = topic.checkpointed
        # A start that is killed early, again and again, must not replay more and more.
        self._records, self._bytes = -topic.replayed, 0

    def checkpoint_is_due(self, topic: Topic) -> bool:
        self.note_checkpoint(topic)
        stats = self._log.stats
        return stats.records - self._records > _RECORDS or stats.bytes - self._bytes > _BYTES

    def note_checkpoint(self, topic: Topic) -> None:
        """There may be a new one."""
        if topic.checkpointed != self._checkpointed:
            stats = self._log.stats
            self._checkpointed, self._records, self._bytes = topic.checkpointed, stats.records, stats.bytes


class Upkeep:
    """Looks after all topics of a folder until it is stopped."""

    def __init__(
        self,
        topics: Topics,
        retentions: Retentions | None = None,
        *,
        every_s: float = 60.0,
        history: History | None = None,
    ) -> None:
        """``every_s``: how often it is looked what may go. ``history``: what keeps the recent past; None: nothing."""
        self._history = history
        self.retentions = retentions or Retentions()
        self._topics = topics
        self._every_s = every_s
        self._cares: dict[Topic, _Care] = {}
        self._lock = threading.Lock()  # guards it, and what gives up the compaction that is going on
        self.shed_work = Work()
        """What retention let go, and what was dead."""
        self._sweep_at = 0.0
        self._stop = threading.Event()
        self._stopper = Stopper()
        self._thread: threading.Thread | None = None
        topics.forget_idle_with(self._forget)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="lamina-topics-upkeep", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Return when the work at hand is done. What takes long is given up."""
        with self._lock:
            self._stop.set()
            self._stopper.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        clock = self._topics.clock
        shed_at = clock.monotonic() + min(_SOON_S, self._every_s)
        while not self._stop.wait(min(_EVERY_S, self._every_s)):
            self._try("the topics", self.look)
            if self._is_out_of_room() and shed_at > clock.monotonic() + _HURRY_S:
                shed_at = clock.monotonic()
            if clock.monotonic() >= shed_at:
                shed_at = clock.monotonic() + (_HURRY_S if self._is_out_of_room() else self._every_s)
                self._try("the topics", self.shed_all)

    # -- small things, often -----------------------------------------------------------------------------------------

    def look(self) -> None:
        """Do what is due, but for retention."""
        if self._topics.reserve is not None:
            self._topics.reserve.look(at_most_every_s=_EVERY_S / 2)
        now = self._topics.clock.monotonic()
        if self._sweep_at <= now and not self._try("the deleted topics", self._topics.sweep):
            self._sweep_at = now + _LEFT_ALONE_S
        self._forget_all_but(topic for _, topic in self._topics.opened())
        for name in [name for name, _ in self._topics.opened()]:
            if self._stop.is_set():
                return
            topic = self._topics.if_open(name)
            if topic is None:
                continue
            care = self._care_of(topic)
            if care.not_before <= self._topics.clock.monotonic():
                self._look_after(name, topic, care)

    def _look_after(self, name: bytes, topic: Topic, care: _Care) -> None:
        is_well = True
        if care.checkpoint_is_due(topic):
            is_well = self._try(name, topic.checkpoint)
            care.note_checkpoint(topic)
        groups = topic.opened_groups
        if groups is not None and groups.wants_compaction():
            is_well = self._try(name, lambda: self._compact(topic)) and is_well
        if not is_well:
            care.not_before = self._topics.clock.monotonic() + _LEFT_ALONE_S

    def _compact(self, topic: Topic) -> None:
        with self._lock:
            stopper = self._stopper = Stopper()
            if self._stop.is_set():
                return
        with topic.at_work, suppress(Stopped):
            topic.groups.compact(stopper)

    def _is_out_of_room(self) -> bool:
        reserve = self._topics.reserve
        return reserve is not None and reserve.is_short

    # -- retention ---------------------------------------------------------------------------------------------------

    def shed_all(self) -> Shed:
        """Let go what may go, of every topic."""
        total = Shed()
        names = self._topics.known()
        opened = {name for name, _ in self._topics.opened()}
        for name in names:
            if self._stop.is_set():
                break
            retention, done = self.retentions.of(name), list[Shed]()
            if name not in opened and (not retention.has_limits or self._stop.wait(_PAUSE_S)):
                continue
            self._try(name, partial(self._shed_one, name, retention, done))
            for shed in done:
                total = total.plus(shed)
        return total

    def _shed_one(self, name: bytes, retention: Retention, done: list[Shed]) -> None:
        done.append(self.shed(name, retention))

    def shed(self, name: bytes, retention: Retention | None = None) -> Shed:
        """Let go what may go of one topic. Raises: what opening a log does, and ``Shedder.shed``."""
        topic = self._topics.get(name)
        if topic is None:
            return Shed()
        shedder = self.shedder(topic)
        wanted = self.retentions.of(name) if retention is None else retention
        done = shedder.shed(wanted, self._stop.is_set, is_out_of_room=self._is_out_of_room())
        if done.files or done.rewritten:
            self.shed_work.note(done.bytes)
        return done

    def shedder(self, topic: Topic) -> Shedder:
        """The one that looks after this topic."""
        return self._care_of(topic).shedder

    def why(self, name: bytes, topic: Topic, limits: str | None = None) -> WhyReport:
        """Why a topic is as large as it is, by these limits or its own. Raises: BadOption; Corruption, DiskError."""
        wanted = self.retentions.of(name) if limits is None else parse(limits)
        return why(topic, wanted, self._topics.clock.now_ns(), shedder=self.shedder(topic))

    def _care_of(self, topic: Topic) -> _Care:
        with self._lock:
            care = self._cares.get(topic)
            if care is None:
                care = self._cares[topic] = _Care(topic, self._history)
            return care

    def _forget(self, topic: Topic) -> None:
        """It may be closed: nobody uses it."""
        with self._lock:
            self._cares.pop(topic, None)

    def _forget_all_but(self, opened: Iterable[Topic]) -> None:
        with self._lock:
            former, self._cares = self._cares, {topic: self._cares[topic] for topic in opened if topic in self._cares}
        if self._history is not None:
            for topic in former.keys() - self._cares.keys():
                self._history.forget(topic.folder)

    def _try(self, what: bytes | str, act: Callable[[], object]) -> bool:
        """Do it, and go on whatever happens. False: something went wrong."""
        try:
            act()
        except LogClosed:  # closed or deleted meanwhile
            return True
        except Exception as error:
            shown = what if isinstance(what, str) else what.decode("utf-8", "backslashreplace")
            logger.warning("upkeep of %s: %s", shown, error)
            return False
        return True
