"""The store: channels write sessions, epochs are switched, files rotated (what becomes of that: settling.py)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count

from lamina.clock import Clock, SystemClock
from lamina.engines.logged import check_room
from lamina.engines.store import codec, inputs, packing
from lamina.engines.store.channel import MOST_GATHERED, Channel, Session
from lamina.engines.store.entries import Change, measured
from lamina.engines.store.inputs import Progress
from lamina.engines.store.opening import open_store
from lamina.engines.store.options import StoreOptions
from lamina.engines.store.rotation import Rotated, RotationRequest, stopped
from lamina.engines.store.settling import Settling
from lamina.engines.store.view import Snapshot
from lamina.errors import BadEntry, DiskFull, LogClosed, StorageError
from lamina.log.commit import Committer
from lamina.log.files import Files, join
from lamina.log.files.real import RealFiles
from lamina.log.packed import Packed
from lamina.log.teardown import Teardown
from lamina.units import MIB

logger = logging.getLogger("lamina.store")

MOST_CHANNELS = 10_000
MOST_UNSETTLED = 16 * MIB
"""Bytes of sessions that are neither durable nor refused, beyond which there is no room (``has_room``) for more."""


class StoreEngine(Settling):
    """Open it with ``StoreEngine.open``. Threads: every method is safe from any thread."""

    @classmethod
    def open(
        cls,
        folder: str,
        *,
        options: StoreOptions | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
        committer: Committer | None = None,
        progress: Progress = lambda done, total: None,
    ) -> StoreEngine:
        """Become the writer of the store in ``folder``, making it if need be. No thread is started.

        Durability: what can be read after this is synced.
        Raises: LogLocked; Corruption, WrongFormat (with file and byte; nothing was changed); DiskError, DiskFull.
        """
        files = RealFiles() if files is None else files
        clock, options = clock or SystemClock(), options or StoreOptions()
        with Teardown(folder) as teardown:
            opened = open_store(files, folder, clock, options, progress)
            teardown.later(opened.held.release)
            teardown.later(lambda: opened.gathered.close(files, folder))
            engine = cls(opened, folder, files, clock, options, committer)
            teardown.later(engine.epoch_log.close)
            try:
                engine.epoch_log.begin()
            except DiskFull as error:  # whoever writes does it, and is told
                logger.warning("%s", error)
                engine.rotated += [] if opened.spent is None else [opened.spent]
            else:
                engine._forget_spent(opened.spent)
            teardown.cancel()
        return engine

    def _forget_spent(self, name: str | None) -> None:
        if name is not None:
            inputs.remove_quietly(self.files, join(self.folder, name))

    # -- writing -----------------------------------------------------------------------------------------------------

    def channel(self, number: int | None = None) -> Channel:
        """A channel: the one of that number, or the next new one. Raises: BadEntry."""
        with self.lock:
            self.check_open()
            if number is None:
                number = next(each for each in count() if each not in self.channels)
            if type(number) is not int or not 0 <= number < MOST_CHANNELS:
                raise BadEntry(f"{number!r} is no channel", hint=f"give a number from 0 to {MOST_CHANNELS - 1}")
            channel = self.channels.get(number)
            if channel is None:
                channel = self.channels[number] = Channel(self, number, self._last_ns.get(number, 0))
                self._counter.add_channel(number)
            return channel

    def begin(self, channel: Channel) -> Session:
        """Use ``channel.begin``."""
        with self.lock:
            self.check_open()
            if channel.session is not None or channel is self._own_channel:
                raise BadEntry(f"channel {channel.number} has a session already", hint="end it first")
            channel.session = Session(self, channel, self._counter.begin(channel.number))
            return channel.session

    def end(self, channel: Channel, session: Session, packed: Packed | None) -> None:
        """Use ``session.end`` or ``session.abort``."""
        with self.lock:
            if channel.session is not session:  # given up by close
                if packed is not None:
                    raise LogClosed(f"{self.folder}: the store was closed", hint="open it again")
                return
            channel.session = None
            takes = packed is not None and not self.is_closed and self.failure is None
            self._counter.end(channel.number, wrote=takes)
            if packed is not None:
                self.check_open()
                self._gather(channel, session.epoch, packed)
            is_due = session.epoch < self._counter.current or bool(self._rotations.begun)
        if is_due or not self.is_ticking:
            self.nudge()
        if channel.gathered_bytes >= MOST_GATHERED:
            channel.write(session.epoch)

    def write(self, sessions: list[list[Change]]) -> int:
        """Sessions that are begun and ended at once, one behind the other. Returns their epoch. Touches no file,
        whatever gathered before.

        Raises: BadEntry, LogClosed, LogFailed, DiskFull: nothing was taken. MustWait on a loop (engines/loops.py).
        """
        limit = self.options.max_session_bytes
        count = size = 0
        for changes in sessions:
            entries, needs = measured(changes, limit)
            count += entries
            size += needs
        if size:
            check_room(self.reserve, size)
        with self.lock:
            self.check_open()
            channel = self._own_channel
            if channel is None:
                channel = self._own_channel = self.channel()
            epoch = self._counter.current
            packed = packing.sessions(epoch, sessions, *self.versions.take(epoch, count))
            self._counter.wrote(epoch)
            self._gather(channel, epoch, packed, len(sessions))
        if not self.is_ticking:
            self.nudge()
        return epoch

    def _gather(self, channel: Channel, epoch: int, packed: Packed, sessions: int = 1) -> None:
        batch = channel.gather(epoch, packed)
        if batch is not None:
            self._pending.append(batch)
        self.unsettled_bytes += len(packed.data)
        self.newest_epoch = max(epoch, self.newest_epoch)
        self.written_sessions += sessions
        self.written_entries += packed.length - 2 * sessions  # without the marks of their begin and end

    def has_room(self, size: int) -> bool:
        """More can be written without having too much in memory that is not settled. A session that is larger than all
        there is room for has it when there is no other."""
        unsettled = self.unsettled_bytes
        return unsettled + size <= MOST_UNSETTLED or not unsettled or self._waits_for_a_call()

    def _waits_for_a_call(self) -> bool:
        """Nothing will be settled before somebody switches the epoch: that may be who would wait for it."""
        return not self.options.epoch_ms and self._counter.informed >= self._counter.current - 1

    def wait_for_room(self, size: int) -> None:
        """Return when there is some. Not on a loop: it waits for the disk. Raises: LogClosed, LogFailed."""
        while not self.has_room(size):
            self.check_open()
            with suppress(StorageError):  # told to those who wrote what was refused
                self.waiters.wait(self.last_epoch + 1, self.nudge)

    def check_version(self, version: tuple[int, int], epoch: int) -> None:
        """Raises: BadEntry for a version that cannot be chosen in a session of ``epoch``."""
        major, minor = version
        if type(major) is not int or type(minor) is not int:
            raise BadEntry(f"{version!r} is no version", hint="give two whole numbers")
        if not (0 <= major <= codec.MOST and 0 <= minor <= codec.MOST):
            raise BadEntry(f"{major}.{minor} is no version", hint="give two numbers of 64 bits")
        if major == codec.MOST:
            raise BadEntry(f"version {major}.{minor} leaves none that is larger", hint="give a smaller major version")
        if self.floor and major <= self.floor < epoch:
            raise BadEntry(
                f"version {major}.{minor} is too old: everything up to epoch {self.floor} was compacted",
                hint=f"give a major version above {self.floor}",
            )

    # -- epochs ------------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The present one, that of sessions that begin now."""
        return self._counter.current

    @property
    def last_epoch(self) -> int:
        """The last one that is durable."""
        return self._counter.informed

    @property
    def recorded_epoch(self) -> int:
        """The last one that the epoch file names; those behind it up to ``last_epoch`` hold nothing."""
        return self._counter.recorded

    def switch_epoch(self, epoch: int | None = None) -> int:
        """End the present epoch; the next one is ``epoch``, or one more. Returns it. Serves one request to rotate.

        Raises: BadEntry if it is not larger; LogClosed, LogFailed.
        """
        with self.lock:
            self.check_open()
            counter = self._counter
            epoch = counter.current + 1 if epoch is None else epoch
            counter.check(epoch)
            if epoch > counter.current:
                # Marked before a session of the next epoch can begin: none of its entries gets into a rotated file.
                request = self._rotations.begin_next(counter.current, set(self.channels))
                if request is not None:
                    request.known = frozenset(self.rotated)
                    if request.at_boundary is not None:
                        self.floor = max(self.floor, counter.current)
                    for channel in self.channels.values():
                        channel.mark(counter.current)
                counter.switch(epoch)
                self.switched_at = self.clock.monotonic()
        self.nudge()
        return epoch

    def needs_switch(self) -> bool:
        """Somebody waits for the end of the present epoch, or something was written in it."""
        with self.lock:
            return self._counter.is_waiting() or self.is_urgent()

    def is_urgent(self) -> bool:
        """The epoch should not wait for its time."""
        with self.lock:
            return bool(self._rotations.queue) or self.waiters.wants(self._counter.current)

    # -- rotation ----------------------------------------------------------------------------------------------------

    def request_rotation(self, at_boundary: Callable[[], None] | None = None) -> RotationRequest:
        """Ask for the files to be rotated at the next switch that serves no other request. Wait for the answer.

        Raises: LogClosed, LogFailed.
        """
        request = RotationRequest(at_boundary)
        with self.lock:
            self.check_open()
            self._rotations.ask(request)
        self.nudge()
        return request

    def rotate(self, timeout: float | None = None) -> Rotated:
        """Rotate the files; waits for a switch of the epoch and for the sessions that are open then.

        Raises: Stopped if the store is closed meanwhile; StorageError; TimeoutError.
        """
        return self.request_rotation().wait(timeout)

    # -- reading -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """What is durable now, and stays as it is while it is read."""
        return self.view.snapshot()

    def pinned(self) -> tuple[int, Snapshot]:
        """The same with its epoch: a read as of that one gives the same. Waits for a sync that is under way."""
        self.view.join()
        with self._disk:  # or an epoch could be seen already, and not be the last one yet
            return self.last_epoch, self.view.snapshot()

    # -- closing -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Make what has ended durable, give up what has not, and let the folder go. Closing twice does nothing.

        Raises: StorageError; the folder is let go all the same.
        """
        with self.lock:
            if self.is_closed:
                return
            self.is_closed = True
        with Teardown(self.folder) as teardown:
            self.use_reserve(None)
            teardown.step(self._give_up)
            with self._disk:
                had_failed = self.failure is not None
                teardown.step(self._end_in_order)
                if self.failure is not None and not had_failed:
                    teardown.add(self.failure.with_traceback(None))
                for channel in self.channels.values():
                    teardown.step(channel.close)
                teardown.step(self.epoch_log.close)
                inputs.let_go(teardown, self.view.layers, self.runs, self.files, self.folder)
                teardown.step(self._held.release)
            teardown.step(self._drop_all_pending)
            closed = LogClosed(f"{self.folder}: the store is closed", hint="open it again")
            teardown.step(partial(self.waiters.fail, closed))

    def _give_up(self) -> None:
        """What is not whole, and what waits for more."""
        with self.lock:
            for channel in self.channels.values():
                if channel.session is not None:
                    channel.session = None
                    self._counter.end(channel.number, wrote=False)
            given_up = self._rotations.stop()
            if self._counter.is_waiting():
                self._counter.current += 1
        for request in given_up:
            request.fail(stopped())

    def _end_in_order(self) -> None:
        self.settle()
        self._keep_last_epoch()

    def _drop_all_pending(self) -> None:
        with self.lock:
            self._drop_pending()

    def __enter__(self) -> StoreEngine:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()
