"""The store behind a RESP door: sessions that are written on the loop, and what answers have to wait for.

An answer to S.WRITE rests on its epoch (``Durable``), as those of topics rest on positions of their logs: it goes out
when the epoch is durable, in its turn, and nobody else is held up. So commands that a client sends ahead share epochs,
and those share syncs.

A session is written at once, on the loop, unless that would have to wait for the disk: then a thread does it, one at a
time, and the commands behind it on the same connection wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from lamina.engines.journal import KeepsNothing
from lamina.engines.logged import Logged
from lamina.engines.store.aio import is_free, needs_disk
from lamina.engines.store.api import Store
from lamina.engines.store.channel import Channel
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.view import Found
from lamina.errors import LaminaError
from lamina.log.positions import Position
from lamina.server.resp.session import House, Session
from lamina.server.resp.store_past import Past
from lamina.server.resp.store_threads import Limit, Threads
from lamina.server.resp.store_words import Change
from lamina.units import KIB

_AHEAD: Final = 512 * KIB  # bytes that are not durable: with many more the log would write, and wait for a sync
_READS: Final = 2  # scans at the same time; others wait
_THREADS: Final = 1 + 1 + _READS + 3 + 1  # one writes, one looks up a key, some scan, three read the past, one compacts
_OWN, _SPARE = 0, 1  # channels

T = TypeVar("T")


class _NoLog:
    """The store has files of its own; nothing is appended here."""

    position = written = next_position = Position(0)

    def append_at(self, first: Position, payloads: Sequence[bytes]) -> None:
        raise AssertionError("sessions go to channels")

    def close(self) -> None:
        """Nothing to close."""


class Durable(Logged):
    """What answers of the store rest on: an engine whose positions are epochs."""

    def __init__(self, engine: StoreEngine) -> None:
        nothing: KeepsNothing = _NoLog()
        super().__init__(nothing, engine.clock)
        self.engine = engine
        self.newest = 0
        """The last epoch in which a session was written here."""
        self._refusals = engine.refusals

    def _look(self) -> None:
        """Were epochs refused? Then answers that rest on them must not go out, though later epochs are durable."""
        self.rebuilds = self.engine.refusals - self._refusals

    def push(self) -> None:
        """Sessions are handed over when they end."""
        self._look()

    def is_kept(self) -> bool:
        is_over = self.engine.last_epoch >= self.newest
        self._look()  # behind that: an epoch is known to be refused before it is over
        return is_over

    async def settled(self, position: int) -> None:
        try:
            await self.reached(position)
        finally:
            self._look()

    async def reached(self, position: int) -> None:
        engine = self.engine
        await engine.waiters.reached(position, engine.nudge, asyncio.get_running_loop())

    def has_synced(self, position: int) -> bool:
        outcome: list[LaminaError | None] = []
        told = outcome.append
        self.engine.waiters.add(position, told)
        self.engine.waiters.remove(told)
        if outcome and outcome[0] is not None:
            raise outcome[0].with_traceback(None)
        return bool(outcome)

    async def synced(self, position: int) -> None:
        await self.reached(position)


class StoreHouse:
    """The store, as the commands of all clients use it. On the loop's thread only."""

    def __init__(self, open_store: Callable[[], Store], store: Store | None = None) -> None:
        """``open_store`` is called by the first command, unless there is a store already."""
        self._open = open_store
        self._store: Store | None = None
        self._threads = Threads(_THREADS)
        self._writing = asyncio.Lock()
        self._looking = asyncio.Lock()
        self._reading = asyncio.Semaphore(_READS)
        self._compacting = asyncio.Lock()
        self._ahead = 0
        if store is not None:
            self._take(store)

    def _take(self, store: Store) -> None:
        self._store = store
        self.durable = Durable(store.engine)
        self.past = Past(store, self._threads)

    @property
    def opened_store(self) -> Store | None:
        """None until a command has opened it."""
        return self._store

    @property
    def store(self) -> Store:
        """Once it was opened."""
        assert self._store is not None  # ``opened``
        return self._store

    def opened(self) -> StoreHouse:
        """Itself, with a store that is open: the first command makes it. Raises: what opening it does."""
        if self._store is None:
            self._take(self._open())
        return self

    def stop(self) -> None:
        """Give up what takes long. Returns at once."""
        if self._store is not None:
            threading.Thread(target=self._store.compactions.stop, daemon=True).start()
            self.past.forget(pins=True)

    # -- writing -----------------------------------------------------------------------------------------------------

    def write_now(self, changes: Sequence[Change]) -> int | None:
        """Write a session. Returns its epoch; None if that has to wait: use ``write``.

        Raises: BadEntry, StorageError: nothing was written.
        """
        size = sum(change.size for change in changes)
        if self.durable.is_kept():
            self._ahead = 0
        if self._writing.locked() or self._ahead + size > _AHEAD:
            return None
        channel = self._channel(_OWN)
        session = channel.begin()
        if needs_disk(channel, session):
            session.abort()
            return None
        with session:
            for change in changes:
                change.apply(session)
        self._ahead += size
        return self._wrote(session.epoch)

    async def write(self, changes: Sequence[Change]) -> int:
        """The same, whatever it takes. Cancelled, it may be done or not."""
        channel = self._channel(_OWN)
        return self._wrote(await self._in_turn(self._writing, lambda: _written(channel, changes)))

    def write_here(self, changes: Sequence[Change]) -> int:
        """The same in a transaction, which cannot wait: here and now, even if the disk takes its time."""
        return self._wrote(_written(self._channel(_SPARE if self._writing.locked() else _OWN), changes))

    def _channel(self, number: int) -> Channel:
        return self.store.engine.channel(number)

    def _wrote(self, epoch: int) -> int:
        self.durable.newest = max(epoch, self.durable.newest)
        return epoch

    # -- reading -----------------------------------------------------------------------------------------------------

    def can_read_now(self, session: Session) -> bool:
        """Nothing has to be waited for that ``entry`` would wait for."""
        return self._owed(session) == 0 and is_free(self.store.engine)

    def _owed(self, session: Session) -> int:
        """The last epoch in which this client wrote, if that is not over: what it wrote cannot be seen before."""
        own: int = session.seen.get(self.durable, 0)
        return own if own > self.store.last_epoch else 0

    async def sees_its_own(self, session: Session) -> None:
        """Wait until what this client wrote can be seen, or never will be."""
        owed = self._owed(session)
        if owed:
            try:
                await self.durable.settled(owed)
            except LaminaError:  # told to it as the answer to what it wrote
                return

    async def entry(self, session: Session, storage: int, key: bytes) -> Found | None:
        """The entry of a key, once what this client wrote can be seen. Scans are not in its way."""
        await self.sees_its_own(session)
        if is_free(self.store.engine):
            return self.store.entry(storage, key)
        return await self._in_turn(self._looking, lambda: self.store.entry(storage, key))

    async def read(self, session: Session, work: Callable[[], T]) -> T:
        """Do what reads entries, elsewhere, when those that this client wrote are there."""
        await self.sees_its_own(session)
        return await self._in_turn(self._reading, work)

    # -- looking after it --------------------------------------------------------------------------------------------

    async def compact(self, work: Callable[[], T]) -> T:
        """Do what only one at a time may do, for as long as it takes."""
        return await self._in_turn(self._compacting, work)

    async def _in_turn(self, limit: Limit, work: Callable[[], T]) -> T:
        return await self._threads.in_turn(limit, lambda: self._threads.run(work))


def _written(channel: Channel, changes: Sequence[Change]) -> int:
    with channel.begin() as session:
        for change in changes:
            change.apply(session)
    return session.epoch


def let_in(house: House, open_store: Callable[[], Store], store: Store | None = None) -> StoreHouse:
    """From now on the commands of the store work. Call it on the loop, behind what else stops with the door."""
    behind = house.stops
    served = house.store = StoreHouse(open_store, store)

    def stops() -> None:
        behind()
        served.stop()

    house.stops = stops
    return served
