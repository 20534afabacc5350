"""Log: append, group commit, and how far all of it has come.

Two locks. ``_state`` guards what callers touch: the calls that gathered, the positions reached, who waits. ``_commit``
guards the disk (tail.py): whoever runs a round holds it. Lock order: ``_commit``, then ``_state``; nobody takes
``_commit`` while holding ``_state``. commit.py says who runs a round when.

Time is the position: records are stamped with strictly increasing nanoseconds, also when the clock goes back. One
stamp before each call is left free for the watermark that may have to stand there (attest.py).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from lamina.clock import Clock, SystemClock
from lamina.errors import LaminaError, LogClosed, LogFailed, StorageError, let_go_of_frames
from lamina.log import kernel
from lamina.log.commit import Committer, FolderSyncs, LoopWaiter, ThreadWaiter, Waiter, Waiters, tell_all
from lamina.log.files import Files, FolderLock
from lamina.log.files.real import RealFiles
from lamina.log.formats import PLAIN, Format
from lamina.log.frame import LAST_TIME
from lamina.log.naming import NUMBERED, Family, FileName
from lamina.log.opening import become_writer, begin_new, made, reader_of, start
from lamina.log.options import LogOptions
from lamina.log.positions import LEVEL_OR_NONE, Position, Positions
from lamina.log.reader import Reader
from lamina.log.recovery import Recovered
from lamina.log.sync import Level, Sync
from lamina.log.tail import Call, LogStats, Tail
from lamina.log.teardown import Teardown
from lamina.units import MIB, show_time

_LARGEST_SPARE = 4  # a gather buffer that huge calls made larger than this many times its size is given back
_LINGER_S = 0.001  # how long a record nobody waits for may gather company before it is written
logger = logging.getLogger("lamina.log")


class Log(Positions):
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
        recovered: Recovered,
        committer: Committer | None,
        *,
        threaded: bool,
    ) -> None:
        """Use ``Log.open``."""
        super().__init__(options, recovered.index)
        self.report = recovered.report
        """What opening the log found and did."""
        self.reader = reader(self)
        self._limits = (options.max_payload, format.reserved)
        self._clock = clock
        self._tail = tail
        self._held = held
        self._owns_committer = committer is None and threaded
        self._committer = Committer() if self._owns_committer else committer
        self._commit = threading.Lock()

        # Appends gather in one buffer while a round writes the other: no memory is asked for on the way.
        self._buffer, self._spare = bytearray(), bytearray()
        self._gathered = 0
        self._calls: list[Call] = []
        self._readable = tail.readable()
        self._waiters = Waiters()
        self._failure: LaminaError | None = None
        self._round_error: LaminaError | None = None
        self.write_error: StorageError | None = None
        """What kept the last write out of the file; None: it got through."""
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
        is_covered: bool = False,
        is_new: FolderSyncs | None = None,
    ) -> Log:
        """Become the writer of ``folder``, making it if need be, and recover what a crash left.

        ``log.report`` says what was found and done. With ``salvage``, damage is quarantined and a gap recorded
        instead of refusing. With ``threaded=False`` no thread is started: rounds run in callers that wait, and in
        ``run_round``. Logs may share a ``committer``; whoever made it stops it. ``is_covered``: the caller holds the
        lock of a folder above, which stands for this one (lock.py). ``is_new``: so it does, and the folder is not
        there; no disk is touched before the first write, and who makes many shares the syncs of the folder above.

        Durability: what can be read after this is synced.
        Raises: LogLocked; Corruption, WrongFormat (nothing was changed); DiskError, DiskFull.
        """
        files = RealFiles() if files is None else files
        clock, options = clock or SystemClock(), options or LogOptions()
        if is_new is None:
            held, recovered, tail = become_writer(
                folder, files, clock, options, family, format, salvage=salvage, is_covered=is_covered
            )
        else:
            held, recovered, tail = begin_new(folder, files, clock, options, family, format, is_new)
        reader = reader_of(folder, files, options, family)
        parts = (tail, reader, held, clock, options, format, recovered, committer)
        return made(lambda: cls(*parts, threaded=threaded), folder, held, tail)

    start = classmethod(start)

    # -- appending -----------------------------------------------------------------------------------------------

    def append(self, payload: bytes, *, until: Level | None = None, sync: Sync | None = None) -> Position:
        """Append one record; see ``append_many``."""
        return self.append_many((payload,), until=until, sync=sync)

    def append_many(
        self, payloads: Sequence[bytes], *, until: Level | None = None, sync: Sync | None = None
    ) -> Position:
        """Append records as one unit and return the position of the last.

        Durability: with ``until`` it returns when that level holds. Without, it returns at once; ask ``wait`` or
            ``reached``. ``sync`` overrides the log's policy for this call. Refused by the disk, none of the records
            is kept; a crash before the level holds may leave the first few of them.
        Order: positions grow from call to call and within one; a call that fails takes every call made after it and
            not yet written with it, so the log never has a hole.
        Raises: RecordTooLarge, ReservedPayload, LogClosed, LogFailed before anything is done; with ``until`` also
            DiskFull, DiskError, LogFailed.
        """
        policy = self.options.sync if sync is None else sync
        if not isinstance(policy, Sync) or not isinstance(until, LEVEL_OR_NONE):
            raise TypeError("until takes a Level (Level.SYNCED), sync a policy (ALWAYS)")
        with self._state:
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            if payloads:
                self._gather(payloads, policy)
            last = self._last_position
            is_full = self._gathered >= self.options.gather_bytes
        if until is not None:
            self._see_to(last, until, None)
        elif is_full:
            self.run_round(may_sync=False)
        else:
            self.nudge()
        return Position(last)

    def append_at(self, first: Position, payloads: Sequence[bytes]) -> None:
        """For an engine that has to know positions before it appends: records at ``first`` and on, ns by ns.

        ``first`` is not before ``next_position``, and nobody else appends. Nothing is written before somebody waits,
        runs a round or nudges. Raises: as ``append_many``, and the error of a refusal until the engine says ``go_on``.
        """
        with self._state:
            error = self._failure or self._broken_off
            if error is not None:
                self._break_off(first, first + len(payloads) - 1, error)
                raise error.with_traceback(None)
            if first < self._last_stamp + 2:
                raise ValueError(f"position {first} is taken")
            self._gather(payloads, self.options.sync, first)

    def nudge(self) -> None:
        """See to it that what gathered is written soon."""
        if self._committer is not None:
            self._committer.come_again(self, _LINGER_S)

    def _gather(self, payloads: Sequence[bytes], policy: Sync, first: int = 0) -> None:
        start = self._gathered
        first = first or max(self._clock.now_ns(), self._last_stamp + 2)
        last = first + len(payloads) - 1
        if last > LAST_TIME:
            raise LogFailed(
                f"{self.reader.folder}: record times have reached {show_time(LAST_TIME)}, the last there is",
                hint="check the clock of the machine; a new log has to be started",
            )
        limits = self._limits
        try:
            end, points = kernel.encode_into(self._buffer, start, first, payloads, *limits)
        except BufferError:  # somebody still looks at it (a debugger, a kept traceback): leave it to them
            self._buffer = self._buffer[:start]
            end, points = kernel.encode_into(self._buffer, start, first, payloads, *limits)
        self._gathered = end
        self._last_stamp = self._last_position = last
        self._calls.append(Call(first, last, start, end, points, policy.sync_within_s))

    # -- waiting -------------------------------------------------------------------------------------------------

    def wait(self, position: Position, level: Level | None = None, timeout: float | None = None) -> None:
        """Return when the record at ``position`` has reached ``level`` (default: what the policy promises).

        Waiting for SYNCED asks for a sync, whatever the policy. ``timeout`` is for waiting while another thread leads;
        a thread that leads a round sees it through.
        Raises: the error that kept the record out of the log; TimeoutError.
        """
        self._see_to(position, self._level(level), timeout)

    def _see_to(self, position: int, level: Level, timeout: float | None) -> None:
        has_led = False
        while not self._has_surely_reached(position, level):
            follower: ThreadWaiter | None = None
            leads = False
            try:
                with self._state:
                    if self._has_reached(position, level):
                        return
                    # Invariant: a round leaves no call behind that is neither written nor refused.
                    assert not has_led
                    if self._is_led:
                        follower = ThreadWaiter(position, level, follows=True)
                        self._waiters.add(follower)
                    else:
                        leads = self._is_led = True
                if follower is not None:
                    if not self._sleep(follower, timeout):
                        raise TimeoutError(f"position {position} is not {level.name.lower()} after {timeout} s")
                    leads = follower.must_lead
                if leads:
                    has_led = True
                    self.run_round()
            finally:
                if leads:
                    self._hand_over_lead()

    def _sleep(self, waiter: ThreadWaiter, timeout: float | None) -> bool:
        """False when the time has passed and nobody told the waiter anything."""
        try:
            if waiter.sleep(timeout):
                return True
        except BaseException:  # interrupted: the lead must not be handed to a thread that is gone
            if not self._take_off(waiter) and waiter.must_lead:
                self._hand_over_lead()
            raise
        return not self._take_off(waiter)

    def _take_off(self, waiter: ThreadWaiter) -> bool:
        """Take ``waiter`` off the list. False if somebody else did, to tell it: then it has been told."""
        with self._state:
            if self._waiters.remove(waiter):
                return True
        waiter.sleep()
        return False

    def _hand_over_lead(self) -> None:
        with self._state:
            heir = self._waiters.take_heir()
            self._is_led = heir is not None
        if heir is not None:
            heir.lead()

    async def reached(self, position: Position, level: Level | None = None) -> None:
        """``wait`` for coroutines: never blocks the loop."""
        import asyncio

        level = self._level(level)
        with self._state:
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
        """Holds ``_state``. Raises: the error of a position that never will."""
        if self._refused and (error := self._refused.find(position)):
            raise error.with_traceback(None)
        if position <= (self._synced if level is Level.SYNCED else self._written):
            return True
        if not position <= self._last_position:  # nor is one that is no number
            raise ValueError(f"position {position} was never appended")
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if level is Level.SYNCED and position > self._sync_asked:
            self._sync_asked = position
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
            raise waiter.error.with_traceback(None)
        return True

    def _add_waiter(self, waiter: Waiter) -> None:
        """Let ``waiter`` be told, at once if it is so already."""
        with self._state:
            error = self._refused.find(waiter.position) or self._failure
            if error is None and waiter.position > self._position_of(waiter.level):
                self._waiters.add(waiter)
                return
            if waiter.position <= self._position_of(waiter.level) and error is self._failure:
                error = None
        tell_all([(waiter, error)])

    # -- how far it has come -------------------------------------------------------------------------------------

    @property
    def readable(self) -> tuple[FileName, int | None] | None:
        """The newest file that readers may see and how many bytes of it (None: all); older files are seen whole."""
        return self._readable

    @property
    def failure(self) -> LaminaError | None:
        """Why the log refuses writes, if it does."""
        return self._failure

    @property
    def stats(self) -> LogStats:
        return self._tail.stats

    @property
    def is_new(self) -> bool:
        """It was opened as such, and has nothing on the disk yet, or not for good."""
        return self._tail.is_new

    @property
    def is_slow(self) -> bool:
        """Its next round takes several syncs, as its names are not safe yet."""
        return self._tail.is_new and (self.options.sync.level is Level.SYNCED or not self._gathered)

    # -- rounds --------------------------------------------------------------------------------------------------

    def run_round(self, *, may_sync: bool = True) -> float | None:
        """Write what gathered and do what is due. Returns the seconds until something is due by the clock."""
        with self._commit:
            again = self._round(may_sync=may_sync)
        if again is not None and self._committer is not None:
            self._committer.come_again(self, again)
        return again

    def try_round(self, *, may_sync: bool = False) -> bool:
        """Write what gathered, here and now, and sync it, if that is due. For a loop: False, and nothing is done, if
        somebody else is at the disk, or it is more than one write and one sync."""
        if not self._commit.acquire(blocking=False):
            return False
        try:
            if not self._tail.has_room(self._gathered) or (may_sync and self._tail.is_to_be_listed):
                return False
            again = self._round(may_sync=may_sync)
        finally:
            self._commit.release()
        if again is not None and self._committer is not None:
            self._committer.come_again(self, again)
        return True

    def has_reached(self, position: Position, level: Level | None = None) -> bool:
        """Whether ``wait`` would return at once. Raises: the error that kept the record out of the log."""
        with self._state:
            return self._has_reached(position, self._level(level))

    def rotate(self, *, begin_next: bool = False) -> str | None:
        """Seal the active file now. Returns its name, or None if nothing was in it.

        ``begin_next``: make the next at once, also if nothing was in this. Raises: DiskFull, DiskError: this goes on.
        """
        with self._commit:
            self._round()
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            try:
                return self._tail.begin() if begin_next else self._tail.seal()
            except LogFailed as error:
                self._fail(error)
                raise
            finally:
                self._publish()

    def _round(self, *, may_sync: bool = True) -> float | None:
        self._round_error = None
        if self._failure is not None:
            self._refuse([], self._failure)
            return None
        calls: list[Call] = []
        try:
            with self._state:
                calls, data, size = self._calls, self._buffer, self._gathered
                self._calls, self._buffer, self._spare, self._gathered = [], self._spare, data, 0
            self._write_and_sync(calls, memoryview(data)[:size], may_sync=may_sync)
        except LogFailed as error:
            self._give_up(calls, error)
            return None
        except BaseException as error:
            # Interrupted, or a mistake of ours: how far the file was written is not known.
            self._give_up(
                calls, LogFailed(f"{self.reader.folder}: a write was interrupted ({error!r})", hint="reopen it")
            )
            raise
        if len(data) > _LARGEST_SPARE * max(self.options.gather_bytes, 1 * MIB):
            self._spare = bytearray()
        return self._tail.seconds_to_next()

    def _write_and_sync(self, calls: list[Call], data: memoryview, *, may_sync: bool) -> None:
        tail = self._tail
        if calls:
            try:
                tail.write(data, calls)
            except LogFailed:
                raise
            except StorageError as error:
                self.write_error = error
                self._publish()
                self._refuse([call for call in calls if call.last > tail.written], error)
            else:
                self.write_error = None
        if may_sync and tail.sync_is_due(self._sync_asked):
            if self._waiters:
                self._publish()  # some may wait for no more than the write
            tail.sync()
        limit = self.options.segment_age_s
        if limit is not None and (tail.age_s() or 0) >= limit:
            tail.seal()
        self._publish()

    def _give_up(self, calls: Sequence[Call], error: LogFailed) -> None:
        """Nothing more is written: refuse what is not in the file and fail the log."""
        self._publish()
        self._refuse([call for call in calls if call.last > self._tail.written], error)
        self._fail(error)

    # -- telling -------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        """Take over how far the tail has come and wake who waited for that."""
        tail = self._tail
        # Invariant: nothing is called synced that was not written, and neither ever goes back.
        assert self._synced <= tail.synced <= tail.written
        with self._state:
            self._written, self._synced, self._readable = tail.written, tail.synced, tail.readable()
            if not self._waiters:
                return
            told = self._waiters.take(lambda waiter: waiter.position <= self._position_of(waiter.level))
        tell_all([(waiter, None) for waiter in told])

    def _refuse(self, calls: Sequence[Call], error: LaminaError) -> None:
        """These calls, and those made behind them meanwhile, are not in the log: tell exactly their callers."""
        self._round_error = error
        let_go_of_frames(error)
        with self._state:
            concerned = [*calls, *self._calls]
            self._calls, self._gathered = [], 0
            if not concerned:
                return
            first, last = concerned[0].first, concerned[-1].last
            self._refused.add(first, last, error, self._written)
            self._broken_off = error
            told = self._waiters.take(lambda waiter: waiter.follows and first <= waiter.position <= last)
        tell_all([(waiter, error) for waiter in told])

    def _fail(self, error: LaminaError) -> None:
        """From now on every write is refused."""
        let_go_of_frames(error)
        with self._state:
            self._failure = error
            told = self._waiters.take(lambda waiter: True)
        self._refuse([], error)
        tell_all([(waiter, error) for waiter in told])

    # -- closing -------------------------------------------------------------------------------------------------

    def close(self, *, with_mark: bool = True) -> None:
        """Write and sync everything, mark the orderly stop, and let the folder go. Closing twice does nothing.

        ``with_mark``: in the log itself, else beside it, which costs no sync (tail.py).
        Raises: what kept records out of the log; the folder is let go all the same.
        """
        folder, committer = self.reader.folder, self._committer
        with Teardown(folder) as teardown:
            if committer is not None:
                teardown.step(lambda: committer.forget(self))
                if self._owns_committer:  # without the lock: its thread may just be waiting for it
                    teardown.later(committer.stop)
            with self._commit:
                if isinstance(self._failure, LogClosed):
                    return
                self._end_in_order(teardown, with_mark=with_mark)
                teardown.step(self._publish)
                teardown.step(self._tail.abandon)
                teardown.step(lambda: self._fail(LogClosed(f"{folder}: the log is closed", hint="open it again")))
                teardown.step(self._held.release)

    def _end_in_order(self, teardown: Teardown, *, with_mark: bool) -> None:
        had_failed = self._failure
        teardown.step(self._last_round)
        if had_failed is not None:  # told to those who wrote
            logger.warning("%s: closed as it is, for it had failed: %s", self.reader.folder, had_failed)
        elif (refusal := self._failure or self._round_error) is not None:
            teardown.add(refusal.with_traceback(None))
        if self._failure is None:
            teardown.step(lambda: self._tail.close_in_order(self._last_stamp, with_mark=with_mark))

    def _last_round(self) -> None:
        try:
            self._round()
        except Exception:
            if self._failure is None:  # which says what went wrong
                raise

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()
