"""The store as it was: views of earlier epochs, read from files one at a time, and the last ones kept for a while.

Making such a view reads all files behind a catalog. Who pages through one asks for the same epoch again and again, so
the last two are kept until nobody has asked for them for half a minute; they hold memory and files that are removed.
The store as it is now costs nothing to keep: who is going to page through it has it pinned, and reads as of its epoch.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from lamina.engines.store import as_of
from lamina.engines.store.api import Store
from lamina.engines.store.codec import MOST
from lamina.engines.store.view import Snapshot
from lamina.errors import BadEntry, BadOption
from lamina.server.resp.session import Refusal
from lamina.server.resp.store_threads import Threads
from lamina.units import parse_time

_KEPT: Final = 2
_KEPT_S: Final = 30.0
_PINS: Final = 32
_TIMES: Final = 16  # moments of which the epoch is remembered
_MILLISECONDS: Final = re.compile(rb"([0-9]{1,15})ms").fullmatch
_NANOSECONDS: Final = re.compile(rb"([0-9]{1,20})ns").fullmatch
_DATE: Final = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?").fullmatch

T = TypeVar("T")


class Moment(NamedTuple):
    """An epoch, or a time."""

    epoch: int
    time_ns: int | None

    @classmethod
    def parse(cls, word: bytes) -> Moment:
        """``17`` is an epoch, ``1794725200506ms`` and ``2026-11-15T06:26:40.5Z`` are times. Raises: Refusal."""
        if word.isdigit() and len(word) <= 20 and int(word) <= MOST:
            return cls(int(word), None)
        if found := _MILLISECONDS(word):
            return cls(0, int(found[1]) * 1_000_000)
        if found := _NANOSECONDS(word):
            return cls(0, int(found[1]))
        try:
            if _DATE(word):
                return cls(0, parse_time(word.decode("ascii", "replace")))
        except BadOption:
            pass
        raise Refusal("ERR ASOF takes an epoch (17), milliseconds (1794725200506ms) or a time (2026-11-15T06:26:40Z)")


class Past:
    """On the loop's thread only."""

    def __init__(self, store: Store, threads: Threads) -> None:
        """Takes up to three of the threads."""
        self._store = store
        self._threads = threads
        self._one = asyncio.Lock()
        self._reading = asyncio.Semaphore(_KEPT)
        self._views: dict[int, Snapshot] = {}  # by epoch, the one that was last asked for at the end
        self._epochs: dict[int, int] = {}  # by time
        self._timer: asyncio.TimerHandle | None = None
        self._pins: dict[int, Snapshot] = {}  # as ``_views``
        self._pin_timer: asyncio.TimerHandle | None = None

    async def pin(self) -> int:
        """Keep the store as it is now, for a while. Returns its epoch, by which it is read."""
        pinned = self._store.engine.pinned
        epoch, view = await self._threads.in_turn(self._reading, lambda: self._threads.run(pinned))
        self._keep_pin(epoch, view)
        return epoch

    async def found(self, moment: Moment) -> int:
        """The epoch of a moment, which can be read. Raises: as ``read``."""
        if moment.time_ns is not None and moment.time_ns > self._store.engine.clock.now_ns():
            raise BadEntry("that moment is yet to come", hint="give a time that has passed")
        epoch = await self._epoch(moment)
        await self.read(Moment(epoch, None), lambda view: None)
        return epoch

    async def read(self, moment: Moment, work: Callable[[Snapshot], T]) -> T:
        """Do ``work``, elsewhere, with the store as it was. Raises: TooOld; BadEntry; Corruption, DiskError."""
        threads = self._threads
        view = self._pins.get(moment.epoch) if moment.time_ns is None else None
        if view is not None:
            self._keep_pin(moment.epoch, view)
        else:
            view = await threads.in_turn(self._one, lambda: self._view(moment))
        return await threads.in_turn(self._reading, lambda: threads.run(lambda: work(view)))

    async def _view(self, moment: Moment) -> Snapshot:
        epoch = await self._epoch(moment)
        view = self._views.pop(epoch, None)
        if view is None:
            view = await self._threads.run(lambda: self._store.as_of(epoch=epoch))
        self._keep(epoch, view)
        return view

    async def _epoch(self, moment: Moment) -> int:
        time_ns = moment.time_ns
        if time_ns is None:
            return moment.epoch
        found = self._epochs.get(time_ns)
        if found is None:
            engine = self._store.engine
            is_over = time_ns < engine.clock.now_ns()
            found = await self._threads.run(lambda: as_of.epoch_at(engine, time_ns))
            if is_over:  # what becomes durable from now on does so later
                self._epochs[time_ns] = found
                while len(self._epochs) > _TIMES:
                    del self._epochs[next(iter(self._epochs))]
        return found

    def _keep(self, epoch: int, view: Snapshot) -> None:
        self._views[epoch] = view
        while len(self._views) > _KEPT:
            del self._views[next(iter(self._views))]
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_KEPT_S, self.forget)

    def _keep_pin(self, epoch: int, view: Snapshot) -> None:
        self._pins.pop(epoch, None)
        self._pins[epoch] = view
        while len(self._pins) > _PINS:
            del self._pins[next(iter(self._pins))]
        if self._pin_timer is not None:
            self._pin_timer.cancel()
        self._pin_timer = asyncio.get_running_loop().call_later(_KEPT_S, self._forget_pins)

    def _forget_pins(self) -> None:
        if self._pin_timer is not None:
            self._pin_timer.cancel()
            self._pin_timer = None
        self._pins.clear()

    def forget(self, *, pins: bool = False) -> None:
        """Keep nothing of the past; with ``pins`` nothing at all. Who reads goes on reading."""
        if pins:
            self._forget_pins()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._views.clear()
        self._epochs.clear()
