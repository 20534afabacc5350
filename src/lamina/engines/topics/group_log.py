"""The part of the groups of a topic that faces their log: opening it, building the state, going back, writing it anew.

The log is made when the first group is: a topic without groups has none, and costs nothing.
A power cut may leave this log ahead of the topic's. Then the groups go back to where the topic is, and that is written
and synced before anything else: ids that the topic lost may come again. The same holds when the disk refuses entries
that were delivered already.

One lock guards the topic and its groups. Lock order: that one, then those of either log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lamina.clock import Clock
from lamina.engines import logged, loops
from lamina.engines.elsewhere import Stopper
from lamina.engines.journal import Journal, KeepsNothing
from lamina.engines.topics import garbage, group_compaction, group_snapshot
from lamina.engines.topics import group_codec as codec
from lamina.engines.topics.group_compaction import Task
from lamina.engines.topics.group_snapshot import FRAME, Loader
from lamina.engines.topics.group_state import Group, State
from lamina.engines.topics.ids import EntryId
from lamina.errors import LaminaError, RecordTooLarge, StorageError
from lamina.log import rewrite
from lamina.log.commit import Committer
from lamina.log.files import Files
from lamina.log.formats import GROUP
from lamina.log.measured import Measured
from lamina.log.naming import TIMED, sort_out
from lamina.log.options import LogOptions
from lamina.log.positions import Position
from lamina.log.sync import Level
from lamina.log.teardown import Teardown
from lamina.log.writer import Log
from lamina.units import MIB

if TYPE_CHECKING:
    from typing import Self

    from lamina.engines.topics.topic import Topic

_WORTH_IT: Final = MIB  # a log below this is not compacted
_WORTH_A_PROCESS: Final = 4 * MIB  # nor one below this, if it takes a process of its own


class _NoLog:
    """What there is before the first group."""

    position = written = next_position = Position(0)

    def append_at(self, first: Position, payloads: Sequence[bytes]) -> None:
        raise AssertionError("the log is made before it is written to")

    def close(self) -> None:
        pass


class GroupLog(logged.Logged):
    """Open it with ``open``. Threads: every method is safe from any thread."""

    def __init__(
        self, topic: Topic, files: Files, folder: str, clock: Clock, max_payload: int, open_log: Callable[[], Log]
    ) -> None:
        """Use ``open``."""
        self._nothing: KeepsNothing = _NoLog()
        super().__init__(self._nothing, clock)
        self.lock = topic.lock
        self.removal = threading.Lock()
        """Held while a file is removed: building the state must not meet one that is just going. Taken last."""
        self.topic = topic
        self.folder = folder
        self.state = State()
        self._files = files
        self._max_payload = max_payload
        self._open_log = open_log
        self._log: Log | None = None
        self._since = self._snapshot_bytes = 0
        self._stopper = Stopper()
        self.delivered = self.redelivered = 0
        """Entries that consumers were given since it was opened: for the first time, and once more."""
        self.compactions = self.compacted_bytes = 0
        """How often the log was written anew, and the bytes that went."""
        self._cut_to: EntryId | None = None
        """The topic went back to here, and the log does not know it yet."""

    @classmethod
    def open(
        cls,
        topic: Topic,
        folder: str,
        *,
        options: LogOptions,
        files: Files,
        clock: Clock,
        committer: Committer | None = None,
        threaded: bool = True,
        is_covered: bool = False,
    ) -> Self:
        """The groups of ``topic`` in ``folder``, which is made when the first group is.

        Raises: what ``Log.open`` does; Corruption for a record that is none of a group.
        """

        def open_log() -> Log:
            return Log.open(
                folder,
                options=options,
                family=TIMED,
                format=GROUP,
                files=files,
                clock=clock,
                committer=committer,
                threaded=threaded,
                is_covered=is_covered,
            )

        groups = cls(topic, files, folder, clock, options.max_payload, open_log)
        try:
            has_files = bool(sort_out(files.list(folder)).segments)
        except FileNotFoundError:
            has_files = False
        if has_files:
            groups._begin()
        return groups

    def _begin(self) -> None:
        with Teardown(self.folder) as teardown:
            log = self._open_log()
            teardown.later(log.close)
            teardown.later(self._have_none)
            self.log = self._log = log
            if isinstance(self.topic.log, Log):
                log.stats.measure_with(self.topic.log.stats.measured)
            self.journal = Journal(log, self.clock)
            self.rebuild()
            self.go_back()
            teardown.cancel()

    def _have_none(self) -> None:
        self.log, self._log, self.journal = self._nothing, None, Journal(self._nothing, self.clock)

    def measure_with(self, measured: Measured) -> None:
        """Have what the log writes counted there."""
        if self._log is not None:
            self._log.stats.measure_with(measured)

    def close(self, *, with_mark: bool = True) -> None:
        """Write and sync everything. Raises: what kept records out of the log; it is closed all the same."""
        with Teardown(self.folder) as teardown:
            self.close_log(teardown, with_mark=with_mark)

    def now_ms(self) -> int:
        return self.clock.now_ns() // 1_000_000

    # -- building the state ------------------------------------------------------------------------------------------

    def rebuild(self) -> None:
        with self.removal:
            loader = Loader() if self._log is None else group_snapshot.load(self._log.reader.batches())
        garbage.free(self.state.groups.values())
        self.state, self._since, self._snapshot_bytes = loader.state, loader.since, loader.snapshot_bytes

    def was_rebuilt(self) -> None:
        """What was delivered and refused is yet to be delivered."""
        self.topic.tell_all()

    def go_back(self) -> None:
        """After the topic was built from its log: what it has lost the groups lose, too.

        Durability: when it returns, that is synced; else entries that come under the same ids could be skipped.
        Raises: StorageError; then every later command tries it again, and the topic must not go on.
        """
        with self.lock:
            last = self.topic.state.last_id
            self._cut_to = last if self._cut_to is None else min(last, self._cut_to)
            self._cut()

    def _cut(self) -> None:
        last = self._cut_to
        if last is not None and self._log is not None:
            if self.state.is_past(last):
                self._append(codec.encode_cut(last))
                self.state.cut(last)
            self._sync()  # also when nothing is past: what took it back may not be on the disk yet
        self._cut_to = None

    # -- writing -----------------------------------------------------------------------------------------------------

    def _freshen(self) -> None:
        """Before a command looks at the state: afterwards it may be another one."""
        if self._cut_to is not None:
            loops.must_wait()
            self._cut()
        if self.refusal is not None or (self.journal.pending and self.journal.is_old(self.clock.now_ns())):
            with suppress(StorageError):  # what gathered for long goes to the log first: positions are times
                self.push()

    def _write(self, record: bytes) -> int:
        """Raises: StorageError; then the state is what the log has. RecordTooLarge."""
        if len(record) > self._max_payload:  # told now: the log would find out when others' records are with it
            raise RecordTooLarge(0, len(record), self._max_payload)
        if self._log is None:
            loops.must_wait()
            self._begin()
        position: int = self._append(record)
        self._since += len(record) + FRAME
        return position

    def _sync(self) -> None:
        assert self._log is not None
        self.push()
        try:
            self._log.wait(Position(max(self.journal.newest, self._log.written)), Level.SYNCED)
        except LaminaError as error:
            self.undo_refused(error)
            raise

    # -- writing anew ------------------------------------------------------------------------------------------------

    def wants_compaction(self) -> bool:
        if self._since <= max(_WORTH_IT, 4 * self._snapshot_bytes):
            return False
        with self.lock:
            return self._since > _WORTH_A_PROCESS or group_snapshot.is_small(self.state)

    def compact(self, stopper: Stopper | None = None) -> int:
        """Write the groups anew and remove the files from before. Returns how many went.

        Commands go on meanwhile: the lock is held for no more than a snapshot of few entries takes. One of many is made
        from the files, in a process of its own (group_compaction.py).
        Durability: nothing is removed before what stands in for it is synced.
        Raises: DiskFull, DiskError, LogFailed; Corruption; Stopped when it was given up. Nothing is lost then.
        """
        self._stopper = stopper = stopper or Stopper()
        with self.lock:
            log = self._log
            if log is None or self.topic.is_closing:
                return 0
            self._freshen()
            self.push()
        log.rotate()  # so that what came before is in files that go
        with self.lock:
            start, end = self._make_room()
            since, rebuilds = self._since, self.rebuilds
            before = since + self._snapshot_bytes
            snapshot = [*group_snapshot.records(self.state)] if group_snapshot.is_small(self.state) else None
        self._sync()
        log.rotate()
        files = [name for name in log.reader.segments() if name.number < start]
        # Invariant: nothing is written any more to the file that gets the snapshot.
        assert log.readable is None or log.readable[1] is None or log.readable[0] > files[-1]
        *old, written = (name.name for name in files)
        task = Task(self.folder, (*old, written), start, end, self._max_payload)
        if snapshot is None:
            size = group_compaction.stage_elsewhere(self._files, task, stopper)
        else:
            size = group_compaction.stage(self._files, task, snapshot, lambda: stopper.is_stopped)
        try:
            rewrite.put_in_place(self._files, self.folder, written, task.staged)
        except BaseException:
            group_compaction.discard(self._files, task)
            raise
        for name in old:
            # One by one, each removal synced: of files named by time, none may be missing between two others.
            with self.removal:
                rewrite.remove(self._files, self.folder, [name])
        with self.lock:
            if self.rebuilds == rebuilds:  # else it was counted anew
                self._since -= since
                self._snapshot_bytes = size
            self.compactions += 1
            self.compacted_bytes += max(before - size, 0)
        return len(old)

    def _make_room(self) -> tuple[int, int]:
        """Leave positions free for a snapshot of what is known now. Returns the first, and the one behind the last.

        A record stands on either side, so that both the file and the log know that they reach that far.
        """
        self._append(codec.encode_begin())
        self.push()
        start = self.journal.leave(group_compaction.room_for(self._since + self._snapshot_bytes))
        return start, self._append(codec.encode_begin()) - 1  # a mark of the kernel may stand before a record

    def forget(self) -> Iterable[Group]:
        """The topic is gone for good. Returns what its groups were."""
        with self.lock:
            state, self.state = self.state, State()
        return state.groups.values()

    def give_up(self) -> None:
        """Have the compaction that is going on come to an end soon."""
        self._stopper.stop()
