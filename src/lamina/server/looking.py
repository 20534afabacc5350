"""Looks, soon after the start, at what nobody has used yet: how far groups of topics are behind, how deep journals are.

Topics and journals are opened when they are first used. Whoever watches a server must not have to wait for that: a
group that was far behind before a restart is so after it, and an alert on it must not fall silent. So a thread goes
over them once the server is ready, reads what it needs from their files, and remembers a few numbers of each. Nothing
is opened, healed, locked or counted as used for it; what is used meanwhile is known to its engine and dropped here
(measures/unopened.py).

It takes a fifth of the time of one thread: after a piece of work it rests for four times as long as that took, so a
server that is busy, or has a slow disk, is looked at more slowly. Rejected: a lower priority for the thread. It would
hold the interpreter while others wait for it, and be the last to be let on with it.

What cannot be read stays unknown, is told as one warning, and is looked at again after a while.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Final, TypeVar

from lamina.errors import LaminaError
from lamina.log.files import join
from lamina.log.folders import folder_name
from lamina.server.life import READY
from lamina.server.measures.patient import patient
from lamina.server.measures.unopened import Unopened

if TYPE_CHECKING:
    from lamina.engines.queues.engine import QueueEngine
    from lamina.engines.topics.topics import Topics
    from lamina.log.files import Files
    from lamina.server.inside import Inside
    from lamina.server.measures.queue_glimpse import QueueGlimpse
    from lamina.server.measures.topic_glimpse import GroupGlimpse

_SHARE: Final = 0.2
_PIECE_S: Final = 0.0005  # of work between two rests, nearly
_LONGEST_S: Final = 1.0  # of a rest: a disk that hung once is no reason to wait as long again
_EVERY_S: Final = 0.5
_AGAIN_S: Final = 600.0  # until what could not be read is looked at once more
_MOST_GROUPS: Final = 100_000  # that are remembered: some 20 MB
_MOST_QUEUES: Final = 1_000_000

T = TypeVar("T")

logger = logging.getLogger("lamina.server")


class Looking:
    """At one server. Make it when the engines are open, before somebody uses them; ``start`` it, and ``stop`` it before
    they are closed.
    """

    def __init__(self, inside: Inside, *, share: float = _SHARE) -> None:
        """``share``: of the time of its thread."""
        self.topics: Unopened[tuple[GroupGlimpse, ...]] = Unopened(_MOST_GROUPS, len)
        """By name."""
        self.queues: Unopened[QueueGlimpse] = Unopened(_MOST_QUEUES)
        """Of the store ``journal``, by the recipient's id."""
        self._life = inside.life
        self._rest_for = (1 - share) / share
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._began = 0.0
        self._again_at = 0.0
        self._told = (0, 0)
        self._problems: list[str] = []
        self._topics = inside.topics
        self._queues: QueueEngine | None = None
        if inside.queues is not None and inside.queues.engine.keeper is not inside.queues.engine:
            self._queues = inside.queues.engine
        self._rebuilds = 0
        self._attach()

    def _attach(self) -> None:
        topics, queues = self._topics, self._queues
        if topics is not None:
            with topics.lock:  # nothing is opened between the two
                topics.told = self.topics.told
                opened = {name for name, _ in topics.opened()}
                self.topics.expect(name for name in reversed(topics.known()) if name not in opened)
        if queues is not None:
            with queues.lock, queues.keeper.lock:
                queues.keeper.tell(self.queues.told)
                self._expect_queues(queues)

    def _expect_queues(self, engine: QueueEngine) -> None:
        self._rebuilds = engine.rebuilds
        queues = [queue for queue in engine.state.queues.values() if queue.size < 0]
        self.queues.expect([queue.rid for queue in queues if not engine.keeper.is_open(queue)])

    def start(self) -> None:
        self._again_at = monotonic() + _AGAIN_S
        self._thread = threading.Thread(target=self._run, name="lamina-looking", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Return when nothing is read any more: at once, but for what the disk is just reading. What is known stays."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            if self._life.phase != READY:
                continue
            if monotonic() >= self._again_at:
                self._again_at = monotonic() + _AGAIN_S
                self.topics.retry()
                self.queues.retry()
            try:
                self.look()
            except _GivenUp:
                continue
            except Exception:  # a mistake of ours: the server goes on all the same
                logger.exception("looking at what nobody uses failed")

    def look(self) -> None:
        """Look at all that is not known yet, with rests. Raises: _GivenUp when it is stopped meanwhile."""
        self._began = perf_counter()
        topics, queues = self._topics, self._queues
        if topics is not None:
            self._go_over(self.topics, lambda name: self._groups(topics, name))
        # While folders of journals are on the move, one that is not found may be just between two places.
        if queues is not None and queues.keeper.old_layout is None:
            if queues.rebuilds != self._rebuilds:  # another state, which knows of no queue how deep it is
                with queues.lock, queues.keeper.lock:
                    self._expect_queues(queues)
            self._go_over(self.queues, lambda rid: self._depth(queues, rid))
        self._tell_problems()

    def _go_over(self, unopened: Unopened[T], find: Callable[[bytes], T | None]) -> None:
        while (name := unopened.next()) is not None:
            try:
                self._rest()
                unopened.saw(name, find(name))
            except (LaminaError, OSError) as error:
                if unopened.put_aside(name) and not self._problems:
                    self._problems.append(str(error))
            except _GivenUp:
                unopened.give_back(name)
                raise
            except Exception:  # a mistake of ours: it must not be met for ever
                unopened.put_aside(name)
                raise

    def _groups(self, topics: Topics, name: bytes) -> tuple[GroupGlimpse, ...] | None:
        from lamina.server.measures.topic_glimpse import glimpse

        folder = join(topics.folder, folder_name(name))
        return glimpse(self._slowly(topics.files), folder, topics.options.max_payload) or None

    def _depth(self, engine: QueueEngine, rid: bytes) -> QueueGlimpse | None:
        from lamina.server.measures.queue_glimpse import glimpse

        return glimpse(engine, self._slowly(engine.files), rid)

    def _slowly(self, files: Files) -> Files:
        return patient(files, self._rest)

    def _rest(self) -> None:
        """Let others on, if it is time for that. Raises: _GivenUp."""
        took = perf_counter() - self._began
        if took >= _PIECE_S:
            self._stop.wait(min(took * self._rest_for, _LONGEST_S))
            self._began = perf_counter()
        if self._stop.is_set() or self._life.phase != READY:
            raise _GivenUp

    def _tell_problems(self) -> None:
        """In one line, when there are more or fewer of them than the last time."""
        now = self.topics.aside, self.queues.aside
        if now != self._told and any(now):
            many = [f"{count} {name}{'s' * (count > 1)}" for count, name in zip(now, ("topic", "queue"), strict=True)]
            shown = " and ".join(each for each, count in zip(many, now, strict=True) if count)
            first = self._problems[0] if self._problems else "too many to remember"
            logger.warning("what waits in %s is not known: %s", shown, first)
        self._told = now
        self._problems.clear()


class _GivenUp(Exception):
    """The server stops."""
