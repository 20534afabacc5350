"""The store behind a RESP door: sessions that are written on the loop, and what answers have to wait for.

An answer to S.WRITE rests on its epoch (``Durable``), as those of topics rest on positions of their logs: it goes out
when the epoch is durable, in its turn, and nobody else is held up. So commands that a client sends ahead share epochs,
and those share syncs.

On the loop a session is gathered in memory, which touches no file and waits for none; the store's own thread writes and
syncs. When more has gathered than the disk has taken, sessions wait in line, and with each the commands behind it on
its connection, until there is room again: then all that fit are let in at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar
from weakref import ref

from lamina.engines import loops
from lamina.engines.journal import KeepsNothing
from lamina.engines.logged import Logged
from lamina.engines.store.api import Store
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.entries import Change
from lamina.engines.store.view import Found
from lamina.errors import LaminaError
from lamina.log.positions import Position
from lamina.server.resp.session import House, Session
from lamina.server.resp.store_past import Past
from lamina.server.resp.store_threads import Limit, Lookups, Threads
from lamina.units import KIB

LARGE: Final = 256 * KIB
"""Bytes of a session that a thread makes: packing it would take the loop too long."""
_AT_ONCE: Final = 16  # sessions that are let in before the loop looks who else has something to do
_READS: Final = 2  # scans at the same time; others wait
_LOOKUPS: Final = 4  # threads that look up keys in files
_THREADS: Final = 1 + _LOOKUPS + _READS + 3 + 1  # one writes, three read the past, one compacts

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
        self._refusals = engine.refusals

    def _look(self) -> None:
        """Were epochs refused? Then answers that rest on them must not go out, though later epochs are durable."""
        self.rebuilds = self.engine.refusals - self._refusals

    def push(self) -> None:
        """Sessions are handed over when they end."""
        self._look()

    def try_push(self) -> bool:
        """The same: it never waits."""
        self.push()
        return True

    def is_kept(self) -> bool:
        is_over = self.engine.last_epoch >= self.engine.newest_epoch
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


class _InLine(NamedTuple):
    """A session that waits for room, and those behind it."""

    size: int
    write: Callable[[], int]
    is_large: bool
    epoch: asyncio.Future[int]


class StoreHouse:
    """The store, as the commands of all clients use it. On the loop's thread, but for what says otherwise."""

    def __init__(self, open_store: Callable[[], Store], store: Store | None = None) -> None:
        """``open_store`` is called by the first command, unless there is a store already."""
        self._open = open_store
        self._opening = threading.Lock()
        self._store: Store | None = None
        self._threads = Threads(_THREADS)
        self._line: deque[_InLine] = deque()
        self._letting_in: asyncio.Task[None] | None = None
        self._reading = asyncio.Semaphore(_READS)
        self._compacting = asyncio.Lock()
        if store is not None:
            self._take(store)

    def _take(self, store: Store) -> None:
        self.durable = Durable(store.engine)
        self.past = Past(store, self._threads)
        self._lookups = Lookups(self._threads, store.entry, _LOOKUPS)
        self._store = store

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
        """Itself, with a store that is open: the first command makes it, in a thread. Raises: what opening it does."""
        if self._store is None:
            loops.must_wait()
            with self._opening:
                if self._store is None:
                    self._take(self._open())
        return self

    def stop(self) -> None:
        """Give up what takes long. Returns at once."""
        if self._store is not None:
            threading.Thread(target=self._store.compactions.stop, daemon=True).start()
            self.past.forget(pins=True)

    # -- writing -----------------------------------------------------------------------------------------------------

    def write_now(self, sessions: list[list[Change]], size: int) -> int | None:
        """Write sessions of ``size`` bytes. Returns their epoch; None if that has to wait: use ``write``.

        Raises: BadEntry, StorageError: nothing was written.
        """
        engine = self.store.engine
        if self._line or not engine.has_room(size):
            return None
        try:
            return engine.write(sessions)
        except loops.MustWait:
            return None

    async def write(self, write: Callable[[], int], size: int, *, is_large: bool = False) -> int:
        """Have ``write`` called behind the others when there is room; in a thread if it ``is_large``.

        Cancelled, it may be done or not.
        """
        waits = _InLine(size, write, is_large, asyncio.get_running_loop().create_future())
        self._line.append(waits)
        if self._letting_in is None:
            self._letting_in = asyncio.get_running_loop().create_task(self._let_in())
        return await waits.epoch

    async def _let_in(self) -> None:
        """Let in all who wait, in order, as room is made."""
        count = 0
        try:
            while self._line:
                first = self._line[0]
                if not first.epoch.done() and not self.store.engine.has_room(first.size):
                    await self._room()
                    continue
                if not first.epoch.done():  # else its client left
                    await self._let_one_in(first)
                    count += 1
                self._line.popleft()  # not before: who comes meanwhile stays behind it
                if count % _AT_ONCE == 0:
                    await asyncio.sleep(0)
        finally:
            self._letting_in = None

    async def _let_one_in(self, one: _InLine) -> None:
        try:
            epoch = await self._threads.run(one.write) if one.is_large else await self._written(one.write)
        except Exception as problem:
            if not one.epoch.done():
                one.epoch.set_exception(problem)
        else:
            if not one.epoch.done():
                one.epoch.set_result(epoch)

    async def _written(self, write: Callable[[], int]) -> int:
        try:
            with loops.at_once():
                return write()
        except loops.MustWait:
            pass
        return await self._threads.run(write)

    async def _room(self) -> None:
        """Wait until some of what gathered is durable, or refused."""
        engine = self.store.engine
        try:
            await self.durable.reached(engine.last_epoch + 1)
        except LaminaError:  # told to those who wait for their answers
            return

    def write_here(self, sessions: list[list[Change]], size: int) -> int:
        """The same in a transaction, which is not interrupted: here and now, also in another thread."""
        engine = self.store.engine
        if not engine.has_room(size):
            loops.must_wait()
            engine.wait_for_room(size)
        return engine.write(sessions)

    def write_large(self, changes: list[Change]) -> int:
        """A session, in a thread: packing it takes long."""
        with self.store.session(wait=False) as session:
            for change in changes:
                session.change(change)
        return session.epoch

    # -- reading -----------------------------------------------------------------------------------------------------

    def owed(self, session: Session) -> int:
        """The last epoch in which this client wrote, if that is not over: what it wrote cannot be seen before."""
        own: int = session.seen.get(ref(self.durable), 0)
        return own if own > self.store.last_epoch else 0

    async def sees_its_own(self, session: Session) -> None:
        """Wait until what this client wrote can be seen, or never will be."""
        owed = self.owed(session)
        if owed:
            try:
                await self.durable.settled(owed)
            except LaminaError:  # told to it as the answer to what it wrote
                return

    async def entry(self, session: Session, storage: int, key: bytes) -> Found | None:
        """The entry of a key, once what this client wrote can be seen. Scans are not in its way."""
        await self.sees_its_own(session)
        is_known, found = self.store.known(storage, key)
        return found if is_known else await self._lookups.find(storage, key)

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


def let_in(house: House, open_store: Callable[[], Store], store: Store | None = None) -> StoreHouse:
    """From now on the commands of the store work. Call it on the loop, behind what else stops with the door."""
    behind = house.stops
    served = house.store = StoreHouse(open_store, store)

    def stops() -> None:
        behind()
        served.stop()

    house.stops = stops
    return served
