"""Log: append, group commit, and how far all of it has come.

Two locks. ``_state`` guards what callers touch: the calls that gathered, the positions reached, who waits. ``_commit``
guards the disk (tail.py): whoever runs a round holds it. Lock order: ``_commit``, then ``_state``; nobody takes
``_commit`` while holding ``_state``. commit.py says who runs a round when.

Time is the position: records are stamped with strictly increasing nanoseconds, also when the clock goes back. One
stamp before each call is left free for the watermark that may have to stand there (attest.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NewType

from lamina.clock import Clock, SystemClock
from lamina.errors import LaminaError, LogClosed, LogFailed, StorageError, from_os
from lamina.log import kernel, lock, recovery
from lamina.log.commit import Committer, LoopWaiter, ThreadWaiter, Waiter, tell_all
from lamina.log.files import Files, FolderLock
from lamina.log.files.real import RealFiles
from lamina.log.formats import PLAIN, Format
from lamina.log.naming import NUMBERED, Family
from lamina.log.options import LogOptions
from lamina.log.reader import Reader
from lamina.log.refused import Refused
from lamina.log.sync import Level, Sync
from lamina.log.tail import Call, LogStats, Tail

Position = NewType("Position", int)
"""Where a record is in its log: its time, in nanoseconds since 1970."""


class Log:
    """An append-only log in one folder. Open it with ``Log.open``, read it through ``log.reader``.

    Threads: every method is safe from any thread.
    """

    def __init__(
        self,
        tail: Tail,
        reader: Callable[[Log], Reader],
        held: FolderLock,
        clock: Clock,
        options: LogOptions,
        format: Format,
        recovered: recovery.Recovered,
        committer: Committer | None,
        *,
        owns_committer: bool,
    ) -> None:
        """Use ``Log.open``."""
        self.options = options
        self.report = recovered.report
        """What opening the log found and did."""
        self.reader = reader(self)
        self._format = format
        self._clock = clock
        self._tail = tail
        self._held = held
        self._committer = committer
        self._owns_committer = owns_committer
        self._state = threading.Lock()
        self._commit = threading.Lock()

        self._calls: list[Call] = []
        self._gathered = 0
        self._last_stamp = recovered.index.last
        self._written = self._synced = recovered.index.last_data
        self._readable = tail.readable()
        self._waiters: list[Waiter] = []
        self._refused = Refused()
        self._failure: LaminaError | None = None
        self._sync_asked = 0
        self._is_led = False  # a thread runs rounds for those who wait

    @classmethod
    def open(
        cls,
        folder: str,
        *,
        options: LogOptions | None = None,
        family: Family = NUMBERED,
        format: Format = PLAIN,
        files: Files | None = None,
        clock: Clock | None = None,
        committer: Committer | None = None,
        threaded: bool = True,
        salvage: bool = False,
    ) -> Log:
        """Become the writer of ``folder``, making it if need be, and recover what a crash left.

        ``log.report`` says what was found and done. With ``salvage``, damage is quarantined and a gap recorded
        instead of refusing. With ``threaded=False`` no thread is started: rounds run in callers that wait, and in
        ``run_round``. Logs may share a ``committer``; whoever made it stops it.

        Durability: what can be read after this is synced.
        Raises: LogLocked; Corruption, WrongFormat (nothing was changed); DiskError, DiskFull.
        """
        files = RealFiles() if files is None else files
        clock = SystemClock() if clock is None else clock
        options = LogOptions() if options is None else options
        try:
            files.make_folder(folder)
        except OSError as error:
            raise from_os(error, "make the folder", folder) from error
        held = lock.take(files, folder, family)
        try:
            if salvage:
                from lamina.log.repair import repair_held

                repair_held(files, folder, clock, options.max_payload)
            recovered = recovery.recover(files, folder, family, format, clock, options.max_payload)
            tail = Tail(folder, files, clock, options, family, format, recovered)
        except BaseException:
            held.release()
            raise

        def reader(log: Log) -> Reader:
            return Reader(folder, family=family, files=files, live=log, max_payload=options.max_payload)

        owns = committer is None and threaded
        committer = Committer() if owns else committer
        return cls(tail, reader, held, clock, options, format, recovered, committer, owns_committer=owns)

    # -- appending -----------------------------------------------------------------------------------------------

    def append(self, payload: bytes, *, until: Level | None = None, sync: Sync | None = None) -> Position:
        """Append one record; see ``append_many``."""
        return self.append_many((payload,), until=until, sync=sync)

    def append_many(
        self, payloads: Sequence[bytes], *, until: Level | None = None, sync: Sync | None = None
    ) -> Position:
        """Append records as one unit (all of them or none) and return the position of the last.

        Durability: with ``until`` it returns when that level holds. Without, it returns at once; ask ``wait`` or
            ``reached``. ``sync`` overrides the log's policy for this call.
        Order: positions grow from call to call and within one; a call that fails takes every call made after it and
            not yet written with it, so the log never has a hole.
        Raises: RecordTooLarge, ReservedPayload, LogClosed, LogFailed before anything is done; with ``until`` also
            DiskFull, DiskError, LogFailed.
        """
        policy = self.options.sync if sync is None else sync
        with self._state:
            if self._failure is not None:
                raise self._failure
            if not payloads:
                return Position(self._last_stamp)
            first = max(self._clock.now_ns(), self._last_stamp + 2)
            data = kernel.encode_many(first, payloads, self.options.max_payload, self._format.reserved)
            last = self._last_stamp = first + len(payloads) - 1
            self._calls.append(Call(first, last, data, policy.level is Level.SYNCED))
            self._gathered += len(data)
            is_full = self._gathered >= self.options.gather_bytes
        if until is not None:
            self.wait(Position(last), until)
        elif is_full:
            self.run_round()
        elif self._committer is not None:
            self._committer.nudge(self)
        return Position(last)

    # -- waiting -------------------------------------------------------------------------------------------------

    def wait(self, position: Position, level: Level | None = None, timeout: float | None = None) -> None:
        """Return when the record at ``position`` has reached ``level`` (default: what the policy promises).

        Waiting for SYNCED asks for a sync, whatever the policy.
        Raises: the error that kept the record out of the log; TimeoutError.
        """
        level = self.options.sync.level if level is None else level
        while not self._has_reached(position, level):
            follower = self._follow_or_lead(position, level)
            if follower is not None and not self._sleep(follower, timeout):
                raise TimeoutError(f"position {position} is not {level.name.lower()} after {timeout} s")
            if follower is None or follower.must_lead:
                try:
                    self.run_round()
                finally:
                    self._hand_over_lead()

    def _follow_or_lead(self, position: int, level: Level) -> ThreadWaiter | None:
        """A waiter to sleep on while another thread leads, None if this one is to lead."""
        with self._state:
            if not self._is_led:
                self._is_led = True
                return None
            follower = ThreadWaiter(position, level, follows=True)
            self._waiters.append(follower)
            return follower

    def _sleep(self, waiter: ThreadWaiter, timeout: float | None) -> bool:
        """False when the time has passed and nobody told the waiter anything."""
        if waiter.sleep(timeout):
            return True
        with self._state:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                return False
        return waiter.sleep()  # it was just taken off the list to be told

    def _hand_over_lead(self) -> None:
        with self._state:
            heirs = (waiter for waiter in self._waiters if isinstance(waiter, ThreadWaiter) and waiter.follows)
            heir = next(heirs, None)
            self._is_led = heir is not None
            if heir is not None:
                self._waiters.remove(heir)
        if heir is not None:
            heir.lead()

    async def reached(self, position: Position, level: Level | None = None) -> None:
        """``wait`` for coroutines: never blocks the loop."""
        import asyncio

        level = self.options.sync.level if level is None else level
        if self._has_reached(position, level):
            return
        waiter = LoopWaiter(position, level, asyncio.get_running_loop())
        self._add_waiter(waiter)
        if self._committer is None:
            self.run_round()
        else:
            self._committer.nudge(self)
        await waiter.future

    def _has_reached(self, position: int, level: Level) -> bool:
        """Raises: the error of a position that never will."""
        with self._state:
            if position > self._last_stamp:
                raise ValueError(f"position {position} was never appended")
            if error := self._refused.find(position):
                raise error
            if position <= self._position_of(level):
                return True
            if self._failure is not None:
                raise self._failure
            if level is Level.SYNCED:
                self._sync_asked = max(self._sync_asked, position)
            return False

    def wait_for_more(self, position: int, timeout: float | None = None) -> bool:
        """Sleep until a record later than ``position`` can be read; False when the time has passed.

        Raises: LogClosed, LogFailed when there will never be one.
        """
        waiter = ThreadWaiter(position + 1, self.options.sync.level, follows=False)
        self._add_waiter(waiter)
        if not self._sleep(waiter, timeout):
            return False
        if waiter.error is not None:
            raise waiter.error
        return True

    def _add_waiter(self, waiter: Waiter) -> None:
        """Let ``waiter`` be told, at once if it is so already."""
        with self._state:
            error = self._refused.find(waiter.position) or self._failure
            if error is None and waiter.position > self._position_of(waiter.level):
                self._waiters.append(waiter)
                return
            if waiter.position <= self._position_of(waiter.level) and error is self._failure:
                error = None
        tell_all([(waiter, error)])

    def _position_of(self, level: Level) -> int:
        return self._synced if level is Level.SYNCED else self._written

    # -- how far it has come -------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """Of the newest record appended, on disk or not."""
        return Position(self._last_stamp)

    @property
    def written(self) -> Position:
        return Position(self._written)

    @property
    def synced(self) -> Position:
        return Position(self._synced)

    @property
    def readable(self) -> tuple[str, int] | None:
        """The active file and how many bytes of it readers may see; the files before it are seen whole."""
        return self._readable

    @property
    def failure(self) -> LaminaError | None:
        """Why the log refuses writes, if it does."""
        return self._failure

    @property
    def stats(self) -> LogStats:
        return self._tail.stats

    # -- rounds --------------------------------------------------------------------------------------------------

    def run_round(self) -> float | None:
        """Write what gathered and do what is due. Returns the seconds until something is due by the clock."""
        with self._commit:
            again = self._round()
        if again is not None and self._committer is not None:
            self._committer.come_again(self, again)
        return again

    def rotate(self) -> str | None:
        """Seal the active file now. Returns its name, or None if nothing was in it."""
        with self._commit:
            self._round()
            if self._failure is not None:
                raise self._failure
            return self._guarded(self._tail.seal)

    def _round(self) -> float | None:
        with self._state:
            calls, self._calls, self._gathered = self._calls, [], 0
        if self._failure is not None:
            self._refuse(calls, self._failure)
            return None
        tail = self._tail
        if calls:
            try:
                tail.write(calls)
            except StorageError as error:
                self._publish()
                if isinstance(error, LogFailed):
                    self._fail(error)
                self._refuse([call for call in calls if call.last > tail.written], error)
                if isinstance(error, LogFailed):
                    return None
            else:
                self._publish()
        try:
            if tail.unsynced_since is not None and self._sync_is_due(calls):
                tail.sync()
            if (age := tail.age_s()) is not None and age >= (self.options.segment_age_s or float("inf")):
                tail.seal()
        except LogFailed as error:
            self._fail(error)
            return None
        self._publish()
        return self._seconds_to_next()

    def _guarded(self, step: Callable[[], str | None]) -> str | None:
        try:
            return step()
        except LogFailed as error:
            self._fail(error)
            raise
        finally:
            self._publish()

    def _sync_is_due(self, calls: Sequence[Call]) -> bool:
        if self._sync_asked > self._tail.synced or any(call.wants_sync for call in calls):
            return True
        wait = self._seconds_to_sync()
        return wait is not None and wait <= 0

    def _seconds_to_sync(self) -> float | None:
        every, since = self.options.sync.interval_ms, self._tail.unsynced_since
        if every is None or since is None:
            return None
        return since + every / 1000 - self._clock.monotonic()

    def _seconds_to_next(self) -> float | None:
        waits = [self._seconds_to_sync()]
        age = self._tail.age_s()
        if age is not None and self.options.segment_age_s is not None:
            waits.append(max(self.options.segment_age_s - age, 0.01))
        return min((wait for wait in waits if wait is not None), default=None)

    # -- telling -------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        """Take over how far the tail has come and wake who waited for that."""
        with self._state:
            self._written = max(self._written, self._tail.written)
            self._synced = max(self._synced, self._tail.synced)
            # Invariant: nothing is called synced that was not written.
            assert self._synced <= self._written
            self._readable = self._tail.readable()
            told = self._take_waiters(lambda waiter: waiter.position <= self._position_of(waiter.level))
        tell_all([(waiter, None) for waiter in told])

    def _take_waiters(self, wanted: Callable[[Waiter], bool]) -> list[Waiter]:
        if not self._waiters:
            return []
        taken = [waiter for waiter in self._waiters if wanted(waiter)]
        if taken:
            self._waiters = [waiter for waiter in self._waiters if not wanted(waiter)]
        return taken

    def _refuse(self, calls: Sequence[Call], error: LaminaError) -> None:
        """These calls, and those made behind them meanwhile, are not in the log: tell exactly their callers."""
        with self._state:
            concerned = [*calls, *self._calls]
            self._calls, self._gathered = [], 0
            if not concerned:
                return
            first, last = concerned[0].first, concerned[-1].last
            self._refused.add(first, last, error)
            told = self._take_waiters(
                lambda waiter: (
                    first <= waiter.position <= last and not (isinstance(waiter, ThreadWaiter) and not waiter.follows)
                )
            )
        tell_all([(waiter, error) for waiter in told])

    def _fail(self, error: LaminaError) -> None:
        """From now on every write is refused."""
        with self._state:
            self._failure = error
            told = self._take_waiters(lambda waiter: True)
        self._refuse([], error)
        tell_all([(waiter, error) for waiter in told])

    # -- closing -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write and sync everything, mark the orderly stop, and let the folder go. Closing twice does nothing.

        Raises: what kept records out of the log; the folder is let go all the same.
        """
        if self._committer is not None:
            self._committer.forget(self)
        with self._commit:
            if isinstance(self._failure, LogClosed):
                return
            try:
                self._round()
                if self._failure is None:
                    self._tail.close_in_order(self._last_stamp)
                self._publish()
            finally:
                self._tail.abandon()
                self._fail(LogClosed(f"{self.reader.folder}: the log is closed", hint="open it again"))
                self._held.release()
        if self._committer is not None and self._owns_committer:
            self._committer.stop()

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
