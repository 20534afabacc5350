"""The store inside your process.

with lamina.open("data") as data:
    with data.store.session() as session:        # one session: all of it or nothing, durable when this returns
        session.put(1, b"key", b"value")
        session.remove(1, b"other")
    data.store.get(1, b"key")                     # b"value"
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamina.clock import Clock
from lamina.engines.store import as_of, backup
from lamina.engines.store.backup import Manifest
from lamina.engines.store.channel import Channel
from lamina.engines.store.cleaning import CleanUp
from lamina.engines.store.codec import MOST
from lamina.engines.store.compaction_worker import Compact, compact_elsewhere
from lamina.engines.store.compactions import CompactionReport, Compactions, Progress
from lamina.engines.store.draft import Draft
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.keeper import Keeper
from lamina.engines.store.options import StoreOptions
from lamina.engines.store.rotation import Rotated, stopped
from lamina.engines.store.trigger import Trigger
from lamina.engines.store.view import Found, Snapshot
from lamina.errors import BadEntry, LogClosed
from lamina.log.commit import Committer
from lamina.log.files import Files
from lamina.log.history import History
from lamina.log.teardown import Teardown

if TYPE_CHECKING:
    from lamina.engines.store.aio import AsyncStore

MOST_AT_ONCE = 64
"""Sessions that are open at the same time; who wants another one waits."""


@dataclass(frozen=True, slots=True)
class StorageInfo:
    """One storage."""

    storage: int
    entries: int
    is_added: bool
    """It was added, and stays while it is empty."""


class Store:
    """Storages of keys and values. Threads: every method is safe from any thread.

    What is read is durable: entries are seen when their epoch is, all of them at once.
    """

    def __init__(self, engine: StoreEngine, history: History | None = None) -> None:
        """Use ``lamina.open(folder).store``."""
        self.engine = engine
        self.compactions = Compactions(engine, history)
        with Teardown(engine.folder) as teardown:
            teardown.later(engine.close)
            self._keeper = Keeper(engine)
            teardown.later(self._keeper.stop)
            self._trigger = Trigger(engine, self.compactions)
            teardown.cancel()
        self._free: list[Channel] = []
        self._made = 0
        self._is_free = threading.Condition()
        self._is_closed = False
        self._aio: AsyncStore | None = None

    @property
    def aio(self) -> AsyncStore:
        """The same for coroutines."""
        from lamina.engines.store.aio import AsyncStore

        if self._aio is None:
            self._aio = AsyncStore(self)
        return self._aio

    @classmethod
    def open(
        cls,
        folder: str,
        *,
        options: StoreOptions | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
        committer: Committer | None = None,
        history: History | None = None,
        progress: Progress = lambda done, total: None,
    ) -> Store:
        """Open the store in ``folder`` itself. ``history``: what stays for reads as of earlier when it cleans up by
        itself; None: nothing does. Raises: as ``StoreEngine.open``."""
        engine = StoreEngine.open(
            folder, options=options, files=files, clock=clock, committer=committer, progress=progress
        )
        return cls(engine, history)

    # -- writing -----------------------------------------------------------------------------------------------------

    @contextmanager
    def session(self, *, wait: bool = True, timeout: float | None = None) -> Iterator[Draft]:
        """A session. Leaving it writes it and makes it durable; an exception gives it up. Nobody waits for it before.

        ``wait=False``: leave at once, ``session.epoch`` says what to wait for.
        Raises: StorageError: nothing of it will ever be there; LogClosed.
        """
        self._check_open()
        draft = Draft(self.engine)
        try:
            yield draft
        except BaseException:
            draft.give_up()
            raise
        with self._channel() as channel:
            session = draft.join(channel)
            if session is not None:
                session.end()
        if wait:
            self.wait_durable(draft.epoch, timeout)

    @contextmanager
    def _channel(self) -> Iterator[Channel]:
        with self._is_free:
            while not self._free and self._made >= MOST_AT_ONCE and not self._is_closed:
                self._is_free.wait()
            if self._free:
                channel = self._free.pop()
            else:
                channel = self.engine.channel()
                self._made += 1
        try:
            yield channel
        finally:
            with self._is_free:
                self._free.append(channel)
                self._is_free.notify()

    def channel(self, number: int) -> Channel:
        """A channel of your own: its sessions (``channel.begin()``) go to its own file, one at a time. Such a session
        joins the present epoch at once: until it ends nothing of that epoch, or a later one, becomes durable.

        Give numbers from 9999 downwards, or write through channels only: ``session`` takes from 0 upwards.
        """
        return self.engine.channel(number)

    def put(self, storage: int, key: bytes, value: bytes) -> int:
        """A session of one entry. Returns its epoch, which is durable. Raises: BadEntry, StorageError."""
        with self.session() as session:
            session.put(storage, key, value)
        return session.epoch

    def remove(self, storage: int, key: bytes) -> int:
        """The same for taking a key away."""
        with self.session() as session:
            session.remove(storage, key)
        return session.epoch

    # -- reading -----------------------------------------------------------------------------------------------------

    def get(self, storage: int, key: bytes) -> bytes | None:
        """The value of a key, None if it has none. Raises: Corruption, DiskError."""
        found = self.entry(storage, key)
        return None if found is None else found.value

    def entry(self, storage: int, key: bytes) -> Found | None:
        """The same with its version and time."""
        self._check_open()
        check_place(storage, key)
        return self.engine.view.get(storage, key)

    def known(self, storage: int, key: bytes) -> tuple[bool, Found | None]:
        """``entry`` from memory alone, waiting for nobody: whether that can say what it is, and what."""
        self._check_open()
        check_place(storage, key)
        return self.engine.view.known(storage, key)

    def scan(self, storage: int, start: bytes = b"", end: bytes | None = None) -> Iterator[Found]:
        """Entries of a storage in order of their keys, from ``start`` up to but without ``end``; as they are now,
        whatever is written meanwhile. Raises: Corruption, DiskError."""
        check_place(storage, start)
        return self.snapshot().scan(storage, start, end)

    def snapshot(self) -> Snapshot:
        """Everything as it is now, and stays while it is read."""
        self._check_open()
        return self.engine.snapshot()

    def as_of(self, *, epoch: int | None = None, time_ns: int | None = None) -> Snapshot:
        """Everything as it was when that epoch had become durable, or at that moment; as far back as files reach.

        Raises: TooOld; BadEntry if the epoch is not over; Corruption, DiskError.
        """
        self._check_open()
        if (epoch is None) == (time_ns is None):
            raise BadEntry("as of what?", hint="give an epoch or a time")
        if epoch is not None:
            return as_of.as_of_epoch(self.engine, epoch)
        assert time_ns is not None
        return as_of.as_of_time(self.engine, time_ns)

    def storages(self) -> list[StorageInfo]:
        """Storages that were added or have entries, in order. Reads every entry."""
        return storages_of(self.snapshot())

    # -- epochs ------------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The present one."""
        return self.engine.epoch

    @property
    def last_epoch(self) -> int:
        """The last one that is over: everything up to it is durable, but for epochs that the disk refused (who waited
        for one was told). Behind an orderly restart it is not lower; behind a crash not lower than the last in which
        somebody wrote."""
        return self.engine.last_epoch

    def switch_epoch(self, epoch: int | None = None) -> int:
        """End the present epoch now. Returns the next. Raises: BadEntry if ``epoch`` is not larger; LogClosed."""
        return self.engine.switch_epoch(epoch)

    def wait_durable(self, epoch: int, timeout: float | None = None) -> None:
        """Return when everything up to ``epoch`` is durable; ends the epoch if it is the present one (unless epochs are
        switched by calls only).

        Raises: what kept it from being so; TimeoutError.
        """
        self._keeper.check_not_inside()
        self.engine.waiters.wait(epoch, self.engine.nudge, timeout)

    def on_durable(self, callback: Callable[[int], None]) -> Callable[[], None]:
        """Call ``callback(epoch)`` in a thread of the store whenever more has become durable, with epochs that rise.

        It must not wait for the store, nor close it. Returns what ends that.
        """
        self.engine.waiters.add_callback(callback)
        return lambda: self.engine.waiters.remove_callback(callback)

    # -- looking after it --------------------------------------------------------------------------------------------

    def rotate(self, timeout: float | None = None) -> Rotated:
        """Rotate the files: waits for the end of the epoch and of the sessions that are open then.

        Raises: Stopped if the store is closed meanwhile; StorageError; TimeoutError.
        """
        self._keeper.check_not_inside()
        return self.engine.rotate(timeout)

    def compact(
        self, progress: Progress = lambda done, total: None, *, compact: Compact = compact_elsewhere
    ) -> CompactionReport:
        """Compact now. ``compact`` writes the parts, nothing more: in another process if nothing else is given.

        Raises: Stopped, StorageError: then all is as it was.
        """
        self._keeper.check_not_inside()
        return self.compactions.compact(progress, compact)

    def cancel_compaction(self) -> bool:
        """Give up the compaction that is going on: who asked for it gets Stopped. The next one goes on from there.

        Returns whether there was one.
        """
        return self.compactions.cancel()

    def clean_up(self, keep_after_epoch: int | None = None) -> CleanUp:
        """Remove the files that compactions made obsolete; reads as of ``keep_after_epoch`` and later stay possible.

        Without it none of an earlier time do, however recent: what cleans up by itself keeps those of the history.
        """
        self._check_open()
        return self.compactions.clean_up(keep_after_epoch)

    def back_up(self, folder: str, *, link: bool = True) -> Manifest:
        """Rotate, then put everything up to the boundary into an empty folder. ``link``: hard links where possible.

        Raises: BadOption if the folder is not empty; StorageError; Stopped if the store is closed meanwhile.
        """
        engine = self.engine
        with self.compactions.paused() as stopper:
            request = engine.request_rotation()
            stopper.ends_by(lambda: request.fail(stopped()))  # closing does not wait for sessions that nobody ends
            rotated = request.wait()
            stopper.ends_by(None)
            merged = frozenset(engine.catalog.merged)
            names = [name for name in rotated.files if name not in merged]
            return backup.back_up(
                engine.files, engine.folder, names, engine.catalog, folder, clock=engine.clock, link=link
            )

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosed(f"{self.engine.folder}: the store is closed", hint="open it again")

    def close(self) -> None:
        """Make durable what has ended, and let the folder go. Requests that wait are refused, not kept waiting."""
        self._keeper.check_not_inside()
        with self._is_free:
            if self._is_closed:
                return
            self._is_closed = True
            self._is_free.notify_all()
        with Teardown(self.engine.folder) as teardown:
            teardown.step(self._trigger.stop)
            teardown.step(self._keeper.stop)
            teardown.step(self.engine.close)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


def storages_of(snapshot: Snapshot) -> list[StorageInfo]:
    """``Store.storages`` of that moment."""
    counts: dict[int, int] = {}
    for found in snapshot.scan():
        counts[found.storage] = counts.get(found.storage, 0) + 1
    added = {storage for storage, (_, is_there) in snapshot.storages.there.items() if is_there}
    return [StorageInfo(each, counts.get(each, 0), each in added) for each in sorted({*counts, *added})]


def check_place(storage: int, key: bytes) -> None:
    """Raises: BadEntry, TypeError."""
    if type(storage) is not int or not 0 <= storage <= MOST:
        raise BadEntry(f"{storage!r} is no storage", hint=f"give a number from 0 to {MOST}")
    if not isinstance(key, bytes):
        raise TypeError("keys are bytes")
