"""Handles of the queues of a running engine: finding one among many, going through them in order, and the deepest ones.

A handle (ids.py) leads to no queue by itself: who looks for one needs a list of all. It is made when somebody first
asks, and then only what is new is added to it. Ids are drawn by chance and a dict keeps the order in which queues were
made: so behind the newest one that is known there is nothing that is not. Deleted ones are passed over where they are
met, and go when they are many. The lock of the engine is never held for longer than copying what is new takes.
"""

from __future__ import annotations

import heapq
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from lamina.engines.queues import ids
from lamina.engines.queues.engine import QueueEngine
from lamina.engines.queues.message import Queue
from lamina.errors import BadOption, NotThere

LONGEST: Final = 16
"""Letters of a handle."""
_HEAD: Final = 2  # letters that the handles of one bucket begin with: sorting all at once would stop the server
_STEPS: Final = 1000  # new queues that are looked for one by one while the lock is held
_SPARE: Final = 1000  # deleted ones that may be in the list
_RANKED: Final = 1000
_FEW: Final = 5000  # queues that are looked through whenever somebody asks
_RANK_S: Final = 2.0  # the deepest ones are looked for no more often than this,
_RANK_SHARE: Final = 50  # nor for more than this part of the time

_Entry = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class Ranking:
    """How deep the queues of an engine were, a moment ago."""

    deepest: list[bytes]
    """Ids for the recipient of those in which most messages wait, those first."""
    messages: int
    """In all whose depth is known, markers included."""
    unknown: int
    """Queues of the store ``journal`` that nobody has used since the start: how deep they are is on disk only."""


class Handles:
    """Of one engine. Threads: every method is safe from any thread; who comes second waits."""

    def __init__(self, engine: QueueEngine) -> None:
        self.engine = engine
        self._lock = threading.Lock()  # taken before the engine's
        self._handles: dict[bytes, str] = {}
        self._buckets: dict[str, list[_Entry]] = {}
        self._order: list[str] = []
        """The beginnings that there are buckets for, in order."""
        self._rebuilds = -1
        self._ranking_lock = threading.Lock()
        self._ranking = Ranking([], 0, 0)
        self._rank_at = 0.0

    def prepare(self) -> None:
        """Begin to make the list, which takes a while where there are many: whoever asks for one of it waits less."""
        threading.Thread(target=self.page, args=("", "", 1), name="lamina-queues-handles", daemon=True).start()

    def find(self, handle: str) -> Queue:
        """The queue whose handle begins so. Raises: NotThere; BadOption if there is more than one."""
        wanted = handle.strip().lower()
        found = self.page(wanted, "", 2)[0] if wanted else []
        if not found:
            raise NotThere(f"no queue has the handle {handle[:40]!r}", hint="it was deleted, or never was")
        if len(found) > 1:
            raise BadOption(
                f"more than one queue has a handle that begins with {handle[:40]!r}", hint="give more of it"
            )
        return found[0][1]

    def page(self, prefix: str, after: str, most: int) -> tuple[list[tuple[str, Queue]], str]:
        """Queues in order of their handles, of those that begin so and come behind ``after``.

        Returns them, and what to give as ``after`` for the next ones; empty: there are no more.
        """
        found: list[tuple[str, Queue]] = []
        with self._lock:
            self._take_new()
            queues = self.engine.state.queues
            for handle, rid in self._walk(prefix, after):
                queue = queues.get(rid)
                if queue is not None:
                    if len(found) == most:
                        return found, found[-1][0]
                    found.append((handle, queue))
        return found, ""

    def deepest(self, most: int) -> tuple[list[tuple[str, Queue]], Ranking]:
        """Queues in which most messages wait, the deepest first; looked for a few seconds ago at most, or so."""
        now = self.engine.clock.monotonic()
        with self._ranking_lock:
            if now >= self._rank_at or len(self.engine.state.queues) <= _FEW:
                self._ranking = _rank(self.engine)
                took = self.engine.clock.monotonic() - now
                self._rank_at = now + max(_RANK_S, took * _RANK_SHARE)
            ranking = self._ranking
        queues = self.engine.state.queues
        there = [queue for rid in ranking.deepest[:most] if (queue := queues.get(rid)) is not None]
        in_memory = self.engine.keeper is self.engine
        there.sort(key=lambda queue: -depth(queue, in_memory=in_memory))  # as they are now
        return [(ids.handle(queue.rid), queue) for queue in there], ranking

    # -- the list ----------------------------------------------------------------------------------------------------

    def _walk(self, prefix: str, after: str) -> Iterator[_Entry]:
        start = max(prefix, after)
        for head in self._order[bisect_left(self._order, start[:_HEAD]) :]:
            if not head.startswith(prefix[:_HEAD]):
                return
            bucket = self._buckets[head]
            first = bisect_right(bucket, (after, b"\xff" * ids.ID_BYTES)) if after else 0
            first = max(first, bisect_left(bucket, (prefix, b"")))
            for entry in bucket[first:]:
                if not entry[0].startswith(prefix):
                    return
                yield entry

    def _take_new(self) -> None:
        engine = self.engine
        new: list[bytes] = []
        with engine.lock:
            queues = engine.state.queues
            if engine.rebuilds != self._rebuilds:  # another state: in which order it has them is not known
                self._rebuilds = engine.rebuilds
                new = list(queues)
            else:
                for rid in reversed(queues):
                    if rid in self._handles:
                        break
                    if len(new) == _STEPS:
                        new = list(queues)
                        break
                    new.append(rid)
            count = len(queues)
        for rid in new:
            if rid not in self._handles:
                self._add(rid)
        if len(self._handles) - count > max(_SPARE, count // 4):
            self._forget_deleted()

    def _add(self, rid: bytes) -> None:
        handle = self._handles[rid] = ids.handle(rid)
        bucket = self._buckets.get(handle[:_HEAD])
        if bucket is None:
            bucket = self._buckets[handle[:_HEAD]] = []
            insort(self._order, handle[:_HEAD])
        insort(bucket, (handle, rid))

    def _forget_deleted(self) -> None:
        queues = self.engine.state.queues
        for head, bucket in self._buckets.items():
            self._buckets[head] = [entry for entry in bucket if entry[1] in queues]
        self._handles = {rid: handle for rid, handle in self._handles.items() if rid in queues}


def depth(queue: Queue, *, in_memory: bool) -> int:
    """Messages that wait, markers included; less than 0: nobody knows without looking at the disk."""
    size: int = len(queue.messages) if in_memory else queue.size
    return size


def _rank(engine: QueueEngine) -> Ranking:
    """Without the lock: what is counted meanwhile may be counted or not."""
    in_memory = engine.keeper is engine
    everything = list(engine.state.queues.values())
    if in_memory:
        sizes = [len(queue.messages) for queue in everything]
    else:
        sizes = [queue.size for queue in everything]
    some = [(size, number) for number, size in enumerate(sizes) if size > 0]
    deepest = [everything[number].rid for _, number in heapq.nlargest(_RANKED, some)]
    for is_known in (True, False):  # empty ones, then those of which nothing is known
        rest = (
            queue.rid for queue, size in zip(everything, sizes, strict=True) if size <= 0 and (size == 0) == is_known
        )
        deepest += islice(rest, _RANKED - len(deepest))
    return Ranking(deepest, sum(size for size, _ in some), sum(size < 0 for size in sizes))
