"""A mixed load on a server, watched from outside: what was acknowledged, and whether it is still so.

Four kinds of work run side by side, each with clients of its own, through any number of kills of the server. Each keeps
account of what the server has acknowledged, and nothing else: a command that broke off may have been done or not. At
the end the account is settled against what the server has. The demo and the soak test use it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from lamina.errors import (
    Disconnected,
    DuplicateResult,
    JobNotFound,
    LaminaError,
    NoMessage,
    NotLeased,
    QuotaMet,
)

if TYPE_CHECKING:
    from lamina.client.connecting import Remote

NAME: Final = "orders"
STORAGE: Final = 1
_KEYS: Final = 500
_BATCH: Final = 20
_REMEMBERED: Final = 20_000
"""Things that were finished, which must not come back: the last so many are known."""
_MOST_OPEN: Final = 500
"""Who gives waits for who takes."""
_PAUSE_S: Final = 0.05
_PATIENCE_S: Final = 120


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the account of one kind of work comes out."""

    kind: str
    acknowledged: int
    finished: int
    lost: int
    """Acknowledged, and not there."""
    back: int
    """Finished, which was acknowledged, and there again."""

    @property
    def is_right(self) -> bool:
        return not (self.lost or self.back)

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


class Finished:
    """The last things that were finished, in the order in which they were."""

    def __init__(self) -> None:
        self._order: deque[object] = deque()
        self._known: set[object] = set()
        self.count = 0

    def add(self, thing: object) -> None:
        self.count += 1
        self._order.append(thing)
        self._known.add(thing)
        if len(self._order) > _REMEMBERED:
            self._known.discard(self._order.popleft())

    def __contains__(self, thing: object) -> bool:
        return thing in self._known


class Work:
    """One kind of work: two loops, one that gives and one that takes. Threads: each loop has one of its own."""

    kind: str

    def __init__(self, connect: Callable[[], Remote]) -> None:
        self.connect = connect
        self.acknowledged = 0
        self.back = 0
        self.finished = Finished()
        self.open: dict[object, None] = {}
        """What was acknowledged and is not finished."""
        self.lock = threading.Lock()

    def prepare(self, lm: Remote) -> None:
        """Before the loops."""

    def give(self, lm: Remote) -> None:
        """One step of the loop that gives."""
        raise NotImplementedError

    def take(self, lm: Remote) -> None:
        """One step of the loop that takes."""
        raise NotImplementedError

    def has_given(self, *things: object) -> None:
        with self.lock:
            self.acknowledged += len(things)
            self.open.update(dict.fromkeys(thing for thing in things if thing not in self.finished))

    def was_given_back(self, thing: object) -> None:
        """It came: that is wrong if it was finished, and that was acknowledged."""
        with self.lock:
            self.back += thing in self.finished

    def has_finished(self, *things: object) -> None:
        with self.lock:
            for thing in things:
                self.open.pop(thing, None)
                self.finished.add(thing)

    def settle(self, lm: Remote) -> Verdict:
        """Take until everything is finished that was given."""
        end = time.monotonic() + _PATIENCE_S
        quiet = 0
        while quiet < 3 and time.monotonic() < end:
            before = self.finished.count
            self.take(lm)
            quiet = quiet + 1 if self.finished.count == before and not self.open else 0
        return Verdict(self.kind, self.acknowledged, self.finished.count, len(self.open), self.back)


class JobWork(Work):
    """Jobs are added, leased and completed."""

    kind = "jobs"

    def give(self, lm: Remote) -> None:
        self.has_given(*lm.jobs.add_many(NAME, [b"order"] * _BATCH, ttr=5, ttl=3600))

    def take(self, lm: Remote) -> None:
        for job in lm.jobs.lease_many(NAME, most=_BATCH, wait=0.2):
            self.was_given_back(job.id)
            try:
                job.complete(b"done")
            except (DuplicateResult, NotLeased, JobNotFound):
                continue  # its lease ran out while the server was away, and somebody else has it
            self.has_finished(job.id)
            lm.jobs.delete(job.id)


class TopicWork(Work):
    """Messages are published, and a group reads and acknowledges them."""

    kind = "topics"

    def prepare(self, lm: Remote) -> None:
        with lm.topic(NAME).subscribe("readers", since="start", wait=0):
            pass

    def give(self, lm: Remote) -> None:
        self.has_given(
            *lm.topic(NAME).publish_many([{"item": b"tea", "count": b"%d" % each} for each in range(_BATCH)])
        )

    def take(self, lm: Remote) -> None:
        with lm.topic(NAME).subscribe("readers", wait=0.2, batch=_BATCH * 5) as messages:
            while batch := list(islice(messages, _BATCH * 5)):
                for message in batch:
                    self.was_given_back(message.id)
                messages.ack(batch)
                self.has_finished(*(message.id for message in batch))


class QueueWork(Work):
    """Messages are sent to a queue, received one by one and acknowledged."""

    kind = "queues"

    def prepare(self, lm: Remote) -> None:
        self._rid, self._sid = lm.queues.create()

    def give(self, lm: Remote) -> None:
        try:
            self.has_given(lm.queue(self._sid).send(b"order"))
        except QuotaMet:
            time.sleep(_PAUSE_S)

    def take(self, lm: Remote) -> None:
        queue = lm.queue(self._rid)
        message = queue.receive(timeout=0.2)
        while message is not None:
            self.was_given_back(message.id)
            try:
                after = queue.ack(message)
            except NoMessage:
                return  # it was acknowledged by a command whose answer was lost
            self.has_finished(message.id)
            message = after


class StoreWork(Work):
    """Keys are overwritten again and again; what is read is never older than what was acknowledged."""

    kind = "store"

    def __init__(self, connect: Callable[[], Remote]) -> None:
        super().__init__(connect)
        self._number = 0
        self._newest: dict[int, int] = {}

    def give(self, lm: Remote) -> None:
        self._number += 1
        keys = [(self._number * 7 + step) % _KEYS for step in range(_BATCH)]
        with lm.store.session() as changes:
            for key in keys:
                changes.put(STORAGE, b"%d" % key, b"%d" % self._number)
        with self.lock:
            self._newest.update(dict.fromkeys(keys, self._number))
            self.acknowledged += len(keys)

    def take(self, lm: Remote) -> None:
        key = int(time.monotonic() * 1000) % _KEYS
        expected = self._newest.get(key, 0)
        found = int(lm.store.get(STORAGE, b"%d" % key) or 0)
        self.back += found < expected
        self.finished.add(None)
        time.sleep(_PAUSE_S)

    def settle(self, lm: Remote) -> Verdict:
        found = {int(entry.key): int(entry.value) for entry in lm.store.scan(STORAGE)}
        lost = sum(found.get(key, 0) < number for key, number in self._newest.items())
        return Verdict(self.kind, self.acknowledged, self.finished.count, lost, self.back)


class Load:
    """All four at once."""

    def __init__(self, connect: Callable[[], Remote]) -> None:
        self.work: list[Work] = [kind(connect) for kind in (JobWork, TopicWork, QueueWork, StoreWork)]
        self._connect = connect
        self._is_over = threading.Event()
        self.breaks = 0
        """How often a client lost its server in the middle of something."""
        self.problems: list[str] = []
        """What should not happen."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Until the block ends."""
        with self._connect() as lm:
            for work in self.work:
                work.prepare(lm)
        loops = [
            threading.Thread(target=self._loop, args=(work, step), name=f"{work.kind} {step.__name__}", daemon=True)
            for work in self.work
            for step in (work.give, work.take)
        ]
        for loop in loops:
            loop.start()
        try:
            yield
        finally:
            self._is_over.set()
            for loop in loops:
                loop.join(_PATIENCE_S)

    def _loop(self, work: Work, step: Callable[[Remote], None]) -> None:
        with work.connect() as lm:
            while not self._is_over.is_set():
                if step == work.give and len(work.open) > _MOST_OPEN:
                    self._is_over.wait(_PAUSE_S)
                    continue
                try:
                    step(lm)
                except Disconnected:
                    self.breaks += 1
                    self._is_over.wait(_PAUSE_S)
                except LaminaError as error:
                    self.problems.append(f"{work.kind}: {type(error).__name__}: {error}")
                    self._is_over.wait(_PAUSE_S)

    def counts(self) -> dict[str, int]:
        """What was acknowledged up to now."""
        return {work.kind: work.acknowledged for work in self.work}

    def settle(self) -> list[Verdict]:
        """How the accounts come out, when the loops have ended and the server is there."""
        with self._connect() as lm:
            return [work.settle(lm) for work in self.work]
