"""``dump``: the dump of the queues and the logs since, folded into the next dump, while no server runs.

    1 take the lock     2 fold on the runner (pipeline/folding.py)     3 remove what the new dump stands for

Commit: the rename of the new dump at the end of step 2 (log/rewrite.py). Before it the old files count, behind it the
new one; what step 3 leaves when it is interrupted counts no more, and the next dump removes it. The dump has the bytes
of the engine's own.

In the store ``memory`` no queue is loaded here: the files are all that is needed. In the store ``journal``, dumps hold
no messages, and folders of deleted queues have to go before the records which say so; there the queues are opened, as
``lamina queues dump`` does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from lamina.clock import Clock, ManualClock, SystemClock
from lamina.engines.queues import migration_mark, store_files
from lamina.engines.queues.dumping import Dumper, obsolete
from lamina.engines.queues.fold_worker import Stopper
from lamina.engines.queues.looking import found_in, layouts_of
from lamina.engines.queues.tending import open_to_tend
from lamina.errors import BadOption
from lamina.log import lock, rewrite
from lamina.log.files import Files, join
from lamina.log.naming import STORED
from lamina.pipeline import places
from lamina.pipeline.choosing import runner
from lamina.pipeline.jobs.place import folder_of, for_itself, size_of
from lamina.pipeline.running import Progress, Runner
from lamina.pipeline.upkeep.folding import fold_on
from lamina.units import show_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Start: TypeAlias = Callable[[], AbstractContextManager[Runner]]
"""Begins what runs tasks."""
_LOCKED: Final = "a running server writes dumps by itself, and when asked: lamina queues dump --server HOST:PORT"


@dataclass(frozen=True, slots=True)
class DumpReport:
    """What was done."""

    number: int
    """Of the new dump."""
    queues: int
    messages: int
    expired: int
    """Messages that were left out."""
    bytes_before: int
    """Of the dump before and the logs since."""
    bytes_after: int
    removed: list[str]
    """Files that the new dump stands for."""
    store: str
    """Where messages are: ``memory`` (log and dumps) or ``journal`` (folders, untouched)."""
    now_ns: int
    """What had expired by then was left out."""
    engine: str
    seconds: float

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def dump(
    data: str,
    *,
    engine: str = "auto",
    spark: SparkSession | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    progress: Progress = lambda done, total: None,
    now: int | None = None,
    ttl: int = 0,
    force: bool = False,
) -> DumpReport:
    """Write the next dump of a folder that no server has open.

    ``now`` (nanoseconds since 1970) and ``ttl`` (the server's, in seconds) say which messages have expired; 0: only
    those of which the queue or the message itself says so. ``force``: leave out what cannot be read, for good.
    Durability: when it returns, the dump is synced, and what it stands for is gone.
    Raises: LogLocked while a server runs; BadOption; RestoreRefused, WrongFormat; DiskFull, DiskError: then nothing
        was changed, or only the removal is left to be done.
    """
    if now is not None and now > time.time_ns():
        raise BadOption(f"{show_time(now)} is yet to come", hint="what expires until then is not gone yet")
    if ttl < 0:
        raise BadOption(f"a ttl of {ttl} seconds cannot be", hint="give 0 or more", option="ttl")
    files, folder = folder_of(data, places.QUEUES)
    work = _Dumping(files, folder, SystemClock() if now is None else ManualClock(now), ttl, force=force)
    # The folder is looked at, and locked, before a session is started for it.
    start = partial(runner, engine, size=work.measure(), spark=spark, master=master, conf=conf)
    with for_itself(_LOCKED):
        return work.of_journals(start, progress) if layouts_of(files, folder) else work.in_memory(start, progress)


class _Dumping:
    def __init__(self, files: Files, folder: str, clock: Clock, ttl: int, *, force: bool) -> None:
        self._files, self._folder, self._clock, self._ttl, self._force = files, folder, clock, ttl, force
        self._start = time.monotonic()
        self._size = 0

    def measure(self) -> int:
        """How much there is to fold. Raises: BadOption if nobody ever had queues here; DiskError."""
        found_in(self._files, self._folder)
        names = store_files.plan(self._files.list(self._folder)).load_order
        self._size = sum(size_of(self._files, join(self._folder, name)) for name in names)
        return self._size

    def in_memory(self, start: Start, progress: Progress) -> DumpReport:
        held = lock.take(self._files, self._folder, STORED.lock_name)
        try:
            migration_mark.refuse_if_under_way(self._files, self._folder)
            if layouts_of(self._files, self._folder):
                raise BadOption(f"{self._folder}: the messages have just moved to journals", hint="run it again")
            found = found_in(self._files, self._folder)
            # The newest log is sealed: whoever wrote it is gone, and the next to come begins a new one.
            newest = max(found.logs, default=-1)
            number = newest if newest > max(found.dumps, default=-1) else found.next_number
            with start() as where:
                folded = fold_on(where, progress)(
                    self._files,
                    self._folder,
                    number,
                    now=self._clock.now_ns() // 10**9,
                    ttl=self._ttl,
                    keeps_messages=True,
                    force=self._force,
                    clock=self._clock,
                    step=lambda name: None,
                    stopper=Stopper(),
                )
            removed = obsolete(self._files, self._folder, number, self._clock.now_ns())
            for names in removed:
                rewrite.remove(self._files, self._folder, names)
        finally:
            held.release()
        counts = (number, folded.queues, folded.messages, folded.expired, folded.bytes)
        return self._report(*counts, [name for names in removed for name in names], "memory", where.name)

    def of_journals(self, start: Start, progress: Progress) -> DumpReport:
        engine = open_to_tend(self._folder, files=self._files, clock=self._clock, force=self._force, threaded=False)
        try:
            with start() as where:
                dumper = Dumper(
                    engine,
                    self._files,
                    self._folder,
                    self._clock,
                    ttl=self._ttl,
                    keeps_messages=False,
                    force=engine.restored.was_forced,
                    fold=fold_on(where, progress),
                    before_fold=engine.remove_folders,
                    removal=engine.removal,
                )
                done = dumper.dump()
                assert done is not None, "nobody else has the folder"
        finally:
            engine.close()
        counts = (done.number, done.queues, done.messages, done.expired, done.bytes)
        return self._report(*counts, done.removed, "journal", where.name)

    def _report(
        self,
        number: int,
        queues: int,
        messages: int,
        expired: int,
        size: int,
        removed: list[str],
        store: str,
        engine: str,
    ) -> DumpReport:
        return DumpReport(
            number=number,
            queues=queues,
            messages=messages,
            expired=expired,
            bytes_before=self._size,
            bytes_after=size,
            removed=removed,
            store=store,
            now_ns=self._clock.now_ns(),
            engine=engine,
            seconds=round(time.monotonic() - self._start, 3),
        )
