"""What a subscription to the topic of a server gets next, without a socket: the messages of one consumer of a group.

First what is pending for it since before; then what others have had for too long, if it is to claim; then what the
group has not had yet. What is asked of a server and not answered, as the connection broke, may have been given to us
all the same: it is pending for us then, and not in our hands. So behind a break we look for such messages, more than
once, as the server may still be giving to a connection of which it has yet to learn that it is gone.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from lamina.client.talking import Ask, Talk, Word, ask, fine
from lamina.client.topic_reading import Portion
from lamina.client.topic_talks import ack, border_in, probe, told
from lamina.engines.topics import ids
from lamina.engines.topics.feed import Ready
from lamina.engines.topics.ids import EntryId
from lamina.errors import Gap

LONGEST_WAIT_S: Final = 10.0
"""The server is asked anew at least so often, to notice that it is gone."""
_LOOKS_S: Final = (0.0, 1.0, 5.0, LONGEST_WAIT_S * 2, LONGEST_WAIT_S * 4)  # behind a break
_STILL_OURS_S: Final = 0.25  # so long it is taken for granted that what we were given is
_AT_ONCE: Final = 1000


class RemoteFeed:
    """Of one consumer. Threads: one talk at a time, beside any number of ``acked``."""

    def __init__(
        self,
        name: bytes,
        group: bytes,
        consumer: bytes,
        *,
        batch: int,
        claim_idle_ms: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.key = (name, group, consumer)
        self._name, self._group, self._consumer = self.key
        self._portion = Portion(batch)
        self._portion.count = batch
        self._batch = batch
        self._claim_idle_ms = claim_idle_ms
        self._claim_at = 0.0
        self._clock = clock
        self._lock = threading.Lock()
        self._ready: deque[Ready] = deque()
        self._known_at = 0.0  # when it was last seen that what is ready is pending for us
        self._in_hands: set[EntryId] = set()  # taken, and not acknowledged
        self._own: EntryId | None = ids.FIRST  # what is pending for us is given behind this id; None: all was
        self._looks: deque[float] = deque()  # when we look for what was given to us and did not come
        self._gap: Gap | None = None
        self._gone: list[EntryId] = []  # pending and removed: acknowledged when the caller goes on after the gap

    # -- taking ------------------------------------------------------------------------------------------------------

    def take(self) -> Ready | None:
        """The next message that is ready; None: fetch more. Raises: Gap, once for each."""
        with self._lock:
            if self._gap is not None:
                gap, self._gap = self._gap, None
                raise gap
            if not self._ready:
                return None
            ready = self._ready.popleft()
            self._in_hands.add(ready[0])
            return ready

    def acked(self, acked: Iterable[EntryId]) -> None:
        """The server knows that these are done with."""
        with self._lock:
            done = set(acked)
            self._in_hands -= done
            if any(each[0] in done for each in self._ready):
                self._ready = deque(each for each in self._ready if each[0] not in done)

    def broke(self) -> None:
        """An ask was not answered: messages may have been given to us that did not come."""
        with self._lock:
            self._ready.clear()
            now = self._clock()
            self._looks = deque(now + seconds for seconds in _LOOKS_S)

    def longest_wait_s(self) -> float:
        """So long the next fetch may wait."""
        now = self._clock()
        dues = [now + LONGEST_WAIT_S, *list(self._looks)[:1]]
        if self._claim_idle_ms is not None:
            dues.append(self._claim_at)
        return max(min(dues) - now, 0.001)

    @property
    def is_old(self) -> bool:
        """What is ready was given to us a while ago: others may have claimed it. Then ``check`` first."""
        return bool(self._ready) and self._clock() >= self._known_at + _STILL_OURS_S

    def check(self) -> Talk[None]:
        """Keep of what is ready only what is still ours."""
        wanted = [id for id, _, _ in self._ready]
        if not wanted:
            return
        ours: dict[EntryId, int] = {}
        start, end = min(wanted), max(wanted)
        while start <= end:
            found = yield from self._pending(start, end, consumer=self._consumer)
            ours.update((id, deliveries) for id, _, deliveries in found)
            if len(found) < _AT_ONCE:
                break
            start = EntryId(found[-1][0] + 1)
        with self._lock:
            self._ready = deque((id, flat, ours[id]) for id, flat, _ in self._ready if id in ours)
            self._known_at = self._clock()

    # -- getting ready -------------------------------------------------------------------------------------------------

    def fetch(self, wait_s: float) -> Talk[bool]:
        """Get messages ready, after waiting at most so long. False: there are none. Raises: NoGroup.

        After any other error of it: ``broke``.
        """
        if self._gone:
            yield from ack(self._name, self._group, self._gone)
            self._gone = []
        while self._own is not None and not self._is_served():
            self._own = yield from self._fetch_own(self._own)
        if not self._is_served() and self._looks and self._clock() >= self._looks[0]:
            yield from self._fetch_missed()
        if not self._is_served() and self._claim_idle_ms is not None:
            yield from self._fetch_idle(self._claim_idle_ms)
        if not self._is_served():
            yield from self._fetch_new(wait_s)
        return self._is_served()

    def _is_served(self) -> bool:
        return bool(self._ready) or self._gap is not None

    def _fetch_own(self, after: EntryId) -> Talk[EntryId | None]:
        reply = yield from self._ask_group(ids.show(after), may_repeat=True)
        entries = _entries(reply)
        if not entries:
            return None
        first, last = entries[0][0], entries[-1][0]
        found = yield from self._pending(first, last, consumer=self._consumer, most=len(entries))
        deliveries = {id: count for id, _, count in found}
        self._keep((id, flat, deliveries.get(id, 1)) for id, flat in entries if flat is not None)
        yield from self._tell_gone([id for id, flat in entries if flat is None])
        return last

    def _fetch_missed(self) -> Talk[None]:
        """What is pending for us and not in our hands."""
        start, looks = ids.FIRST, self._looks
        while not self._is_served():
            found = yield from self._pending(start, ids.LAST, consumer=self._consumer)
            with self._lock:
                missed = {id: count for id, _, count in found if id not in self._in_hands}
            yield from self._claim(missed, 0)
            if len(found) < _AT_ONCE:
                if looks is self._looks:
                    looks.popleft()
                return
            start = EntryId(found[-1][0] + 1)

    def _fetch_idle(self, idle_ms: int) -> Talk[None]:
        """Claim what others were given at least so long ago; twice in that time it is looked for."""
        now = self._clock()
        if now < self._claim_at:
            return
        self._claim_at = now + idle_ms / 2000
        start = ids.FIRST
        while not self._is_served():
            found = yield from self._pending(start, ids.LAST, idle_ms=idle_ms)
            others = {id: count for id, consumer, count in found if consumer != self._consumer}
            if others:
                self._claim_at = now  # there may be more
                yield from self._claim(others, idle_ms)
            if len(found) < _AT_ONCE:
                return
            start = EntryId(found[-1][0] + 1)

    def _claim(self, wanted: dict[EntryId, int], idle_ms: int) -> Talk[None]:
        """Take these over, some at a time."""
        left = list(wanted)
        while left and not self._is_served():
            some = left[: self._portion.count]
            words: list[Word] = ["XCLAIM", self._name, self._group, self._consumer, idle_ms, *map(ids.show, some)]
            (reply,) = yield Ask([words])
            if self._portion.is_too_large(reply):
                continue
            entries = [(ids.parse(id), flat) for id, flat in fine(reply)]
            self._portion.fit(reply)
            self._keep((id, flat, wanted[id] + 1) for id, flat in entries if flat is not None)
            came = {id for id, _ in entries}
            yield from self._tell_gone([id for id in some if id not in came])
            left = left[len(some) :]

    def _fetch_new(self, wait_s: float) -> Talk[None]:
        """Asked once: who knows what was given to us when the connection broke?"""
        wait_ms = max(round(min(wait_s, self.longest_wait_s()) * 1000), 0)
        try:
            reply = yield from self._ask_group(b">", wait_ms=wait_ms)
        except Gap as gap:  # the group goes on behind it
            after, until = (ids.parse(str(each).encode()) for each in (gap.after, gap.until))
            self._gap = yield from told(self._name, after, until)
            return
        self._keep((id, flat, 1) for id, flat in _entries(reply) if flat is not None)

    def _ask_group(self, start: Word, *, wait_ms: int = 0, may_repeat: bool = False) -> Talk[Any]:
        while True:
            words: list[Word] = ["XREADGROUP", "GROUP", self._group, self._consumer, "COUNT", self._portion.count]
            words += [*(("BLOCK", wait_ms) if wait_ms else ()), "STREAMS", self._name, start]
            (reply,) = yield Ask([words], wait=wait_ms / 1000, may_repeat=may_repeat)
            if self._portion.is_too_large(reply):
                continue
            fine(reply)
            self._portion.fit(reply[0][1] if reply else ())
            return reply

    def _pending(
        self,
        start: EntryId,
        end: EntryId,
        *,
        consumer: bytes | None = None,
        idle_ms: int | None = None,
        most: int = _AT_ONCE,
    ) -> Talk[list[tuple[EntryId, bytes, int]]]:
        """Ids, who has them, and how often each was delivered."""
        idle: tuple[Word, ...] = () if idle_ms is None else ("IDLE", idle_ms)
        who: tuple[Word, ...] = () if consumer is None else (consumer,)
        words: list[Word] = ["XPENDING", self._name, self._group, *idle, ids.show(start), ids.show(end), most, *who]
        reply = yield from ask(*words, may_repeat=True)
        return [(ids.parse(id), name, count) for id, name, _, count in reply]

    def _keep(self, found: Iterable[Ready]) -> None:
        with self._lock:
            self._ready.extend(found)
            self._known_at = self._clock()

    def _tell_gone(self, gone: list[EntryId]) -> Talk[None]:
        """What is pending and was removed is told; what was deleted, or is not pending any more, is not."""
        if not gone:
            return
        (reply,) = yield Ask([probe(self._name, EntryId(min(gone) - 1))], may_repeat=True)
        border = border_in(reply)
        removed = [] if border is None else [id for id in gone if id <= border]
        if removed:
            self._gap = yield from told(self._name, EntryId(min(removed) - 1), max(removed))
            self._gone = gone
        else:
            yield from ack(self._name, self._group, gone)


def _entries(reply: Any) -> list[tuple[EntryId, list[bytes] | None]]:
    return [(ids.parse(id), flat) for id, flat in reply[0][1]] if reply else []
