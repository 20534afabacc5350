"""Topics that are open, and the thread that closes those nobody has used for longest when there are too many.

An open topic has one file handle, two if it has groups, and some 14 kB of memory. So many are kept open as its share of
the handles allows (engines/handles.py); of the others only the name is known, and the next command for one opens it.

A topic is closed while nobody has it. Whoever uses one refers to it: a command from when it found the topic until its
answer is out, a subscription, a large answer, a thread that reads. So those references are counted. A topic is first
taken from where it is found; from then on no reference can come, and if there are none beside its own parts' it is
closed. Whoever wants it meanwhile waits for its name.
"""

from __future__ import annotations

import logging
import resource
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Final

from lamina.log.writer import Log

if TYPE_CHECKING:
    from lamina.engines.topics.topic import Topic

MOST_HANDLES: Final = 8192
"""That topics have open at the same time, where the process may have many."""
_THREADS: Final = 8  # topics that wait for the disk at the same time
_AT_ONCE: Final = 256
_REST_S: Final = 0.2  # before it is tried again, when none could be closed
_OF_GROUPS: Final = 2  # references to groups: their topic's, and that of who counts

logger = logging.getLogger("lamina.topics")


def share_of_process() -> int:
    """How many handles topics may have in a program of somebody else: a quarter of what there are, at most."""
    return min(max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4, 1), MOST_HANDLES)


class OpenTopics:
    """By name; who was opened longest ago, and not used since the last look, is first.

    Threads: whoever changes it, or goes over it, has ``lock``, that of all topics; looking up a name needs none.
    """

    def __init__(
        self, most: int | None, close: Callable[[bytes], bool], lock: threading.RLock, *, threaded: bool
    ) -> None:
        """``most``: so many handles, about; None: any number. ``close`` closes a topic that nobody uses, and tells
        whether it did."""
        self.by_name: OrderedDict[bytes, Topic] = OrderedDict()
        self.lock = lock
        self.closed = 0
        """How often one was closed to keep within that, since the start."""
        self.forget: Callable[[Topic], None] = lambda topic: None
        """Called before it is looked whether anybody has a topic: who only keeps notes of it gives them up."""
        self._most, self._close, self._threaded = most, close, threaded
        self._leaving: dict[bytes, Topic] = {}
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_stopping = False

    @property
    def most(self) -> int | None:
        """How many handles they may have."""
        return self._most

    @property
    def handles(self) -> int:
        """That they have."""
        with self.lock:
            return sum(map(_handles, self.by_name.values()))

    # -- coming and going ----------------------------------------------------------------------------------------------

    def add(self, name: bytes, topic: Topic) -> None:
        """The caller has one reference to it, and nobody else has any. Holds the lock."""
        self.by_name[name] = topic
        del topic
        own = _count(self.by_name, name) - 1
        self.by_name[name].own_references = own - (self.by_name[name].opened_groups is not None)
        if self._most is not None and len(self.by_name) > self._most - self._most // 8:
            self._rouse()

    def take_unused(self, name: bytes) -> Topic | None:
        """Take it out, if nobody has it. Holds the lock."""
        if name not in self.by_name:
            return None
        self._leaving[name] = self.by_name.pop(name)
        try:
            self.forget(self._leaving[name])
            if _is_unused(self._leaving, name):
                return self._leaving[name]
            self.by_name[name] = self._leaving[name]
            return None
        finally:
            del self._leaving[name]

    # -- too many ------------------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whoever opens one more has to make room for it first."""
        return self._most is not None and len(self.by_name) >= self._most

    def make_room(self) -> None:
        """Close some, if there are too many. Blocks."""
        if self.is_full:
            self.close_some()

    def close_some(self) -> bool:
        """A few of those that nobody uses. False: there was none. Blocks."""
        return sum(map(self._close, self._idle(_THREADS))) > 0

    def _idle(self, most: int) -> list[bytes]:
        """Such as may be closed, who was used longest ago first."""
        found: list[bytes] = []
        late: list[bytes] = []
        with self.lock:
            for _ in range(2):
                for name, topic in list(islice(self.by_name.items(), 4 * _AT_ONCE + len(self.by_name) // 4)):
                    if topic.was_used:
                        topic.was_used = False
                        self.by_name.move_to_end(name)
                    elif _has_to_sync(topic):
                        late.append(name)
                    else:
                        found.append(name)
                    if len(found) >= most:
                        return found
                if found or late:
                    break
        return (found + late)[:most]

    def _rouse(self) -> None:
        if self._threaded and not self._is_stopping:
            with self._wake:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="lamina-topics-idle", daemon=True)
                    self._thread.start()
                self._wake.notify()

    def stop(self) -> None:
        """Return when none is closed any more for being idle."""
        with self._wake:
            self._is_stopping = True
            thread = self._thread
            self._wake.notify()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        assert self._most is not None
        with ThreadPoolExecutor(_THREADS, "lamina-topics-idle") as pool:
            while not self._is_stopping:
                excess = self.handles - (self._most - self._most // 4)
                if excess < self._most // 8:
                    with self._wake:
                        if not self._is_stopping:
                            self._wake.wait(1.0)
                    continue
                try:
                    done = sum(pool.map(self._close, self._idle(min(excess, _AT_ONCE))))
                except Exception:  # a mistake of ours: the others are closed all the same
                    logger.exception("idle topics cannot be closed")
                    done = 0
                if not done:
                    with self._wake:
                        if not self._is_stopping:
                            self._wake.wait(_REST_S)


def _handles(topic: Topic) -> int:
    groups = topic.opened_groups
    return 1 + (groups is not None and isinstance(groups.log, Log))


def _has_to_sync(topic: Topic) -> bool:
    log = topic.log
    return not isinstance(log, Log) or log.position > log.synced


def _count(topics: dict[bytes, Topic], name: bytes) -> int:
    topic = topics[name]
    return sys.getrefcount(topic)


def _is_unused(topics: dict[bytes, Topic], name: bytes) -> bool:
    """Nobody else has it or its groups, and it has nothing that must not be lost with it."""
    topic = topics[name]
    groups = topic.opened_groups
    if sys.getrefcount(topic) > topic.own_references + (groups is not None):
        return False
    if groups is not None:
        del groups
        if sys.getrefcount(topic.opened_groups) > _OF_GROUPS:
            return False
    return topic.is_at_rest()
