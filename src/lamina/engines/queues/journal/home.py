"""What all folders of a store share: the disk, the clock, chance, settings, and somebody to tell of oddities."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from lamina.clock import Clock
from lamina.engines.queues import ids
from lamina.engines.queues.journal.problem import Problem
from lamina.errors import BadOption, StorageError, from_os
from lamina.log.files import Files
from lamina.log.sync import Level, Sync

_MOST_DAMAGE: Final = 100  # problems that are remembered


@dataclass(frozen=True, kw_only=True, slots=True)
class JournalOptions:
    """How journals are kept."""

    quota: int = 128
    """Messages that may wait in a queue. The engine sees to it; here it bounds what a file may hold."""
    max_file_messages: int = 256
    """Messages of a file before the next one is begun."""
    path_parts: int = 5
    part_chars: int = 2
    keep_copies: int = 3
    keep_copy_days: int = 7
    most_open: int = 512
    """Queues whose files are open at the same time; those with changes on their way are open in any case."""
    open_lines: int = 16
    """A queue.log with more lines than this is compacted when its queue is opened, and a torn one in any case.

    The seed does it from the second line on. Where more queues are used in turn than may be open, that would be two
    syncs for each.
    """
    compact_lines: int = 512
    """And with more than this while it is open."""
    sync_threads: int = 4
    """Files that are synced at the same time."""

    def __post_init__(self) -> None:
        if self.quota >= self.max_file_messages:
            # Else a file could be full while the one before is still being read, and there are never three.
            raise BadOption(
                f"quota = {self.quota} cannot be: a file of a journal takes {self.max_file_messages} messages",
                hint="give a quota below max_file_messages",
                option="quota",
            )


@dataclass(slots=True)
class Stats:
    """What a store has done since it was opened."""

    opened: int = 0
    """Folders that were looked into."""
    read: int = 0
    """Times that a message file was read."""
    written: int = 0
    """Messages."""
    received: int = 0
    rotations: int = 0
    switches: int = 0
    compactions: int = 0
    cleanings: int = 0
    """Folders that were cleaned."""
    cleaned_bytes: int = 0
    lost: int = 0
    """Messages that could not be read, or that were committed and are not there."""
    damaged: int = 0
    """Times that something was found that is not as it was written."""
    refused: int = 0
    """Changes that the disk refused."""


@dataclass(slots=True)
class Home:
    root: str
    files: Files
    clock: Clock
    random: Callable[[int], bytes]
    sync: Sync
    options: JournalOptions
    tell: Callable[[Problem], None]
    stats: Stats = field(default_factory=Stats)
    damage: deque[Problem] = field(default_factory=lambda: deque(maxlen=_MOST_DAMAGE))
    """What was found since the store was opened, the newest."""
    _last_ns: int = 0

    @property
    def is_always(self) -> bool:
        """A change is synced before it is answered."""
        return self.sync.level is Level.SYNCED

    def next_time(self) -> int:
        """For a record: later than every one before."""
        self._last_ns = max(self.clock.now_ns(), self._last_ns + 1)
        return self._last_ns

    def told(
        self,
        rid: bytes,
        kind: str,
        *,
        is_error: bool = False,
        lost: int = 0,
        detail: str = "",
        file: str = "",
        offset: int | None = None,
    ) -> None:
        self.report(Problem(kind, ids.handle(rid), is_error, lost, detail, file, offset))

    def report(self, problem: Problem) -> None:
        self.stats.lost += problem.lost
        if problem.is_damage:
            self.stats.damaged += 1
            self.damage.append(problem)
        self.tell(problem)


def without_path(error: OSError | StorageError, rid: bytes, action: str) -> StorageError:
    """The same error about the queue's handle: paths have ids in them, which are nobody's business."""
    cause = error if isinstance(error, OSError) else error.__cause__
    if isinstance(cause, OSError):
        return from_os(cause, action, f"queue {ids.handle(rid)}")
    assert isinstance(error, StorageError)
    return error


@contextmanager
def no_path(rid: bytes, action: str) -> Iterator[None]:
    """What goes wrong inside is told without the path. Raises: StorageError in place of OSError."""
    try:
        yield
    except (OSError, StorageError) as error:
        raise without_path(error, rid, action) from None
