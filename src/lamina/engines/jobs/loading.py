"""How the state comes from the disk: at the start, and again after the log refused what the state had taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamina.engines.jobs import checkpoint
from lamina.engines.jobs.load_progress import LoadProgress, Progress
from lamina.engines.jobs.volatile import VolatileLog
from lamina.errors import BadOption
from lamina.log.formats import JOBS
from lamina.log.naming import NUMBERED
from lamina.log.options import LogOptions
from lamina.log.teardown import Teardown
from lamina.log.writer import Log

if TYPE_CHECKING:
    from lamina.clock import SteadyClock
    from lamina.engines.jobs.engine import JobEngine
    from lamina.log.commit import Committer
    from lamina.log.files import Files

_LARGEST_RECORD = 2 << 20  # a job with the largest payload and name there may be, and some room


def opened(
    make: type[JobEngine],
    folder: str | None,
    options: LogOptions,
    disk: Files,
    clock: SteadyClock,
    committer: Committer | None,
    threaded: bool,
    progress: Progress | None = None,
) -> JobEngine:
    """``JobEngine.open``. ``progress`` is told how many bytes of how many were read."""
    if folder is None:
        return make(VolatileLog(), clock, None, disk)
    if options.max_payload < _LARGEST_RECORD:
        raise BadOption(
            f"max_payload of {options.max_payload} is too small for jobs", hint=f"at least {_LARGEST_RECORD}"
        )
    with Teardown(folder) as teardown:
        log = Log.open(
            folder,
            options=options,
            family=NUMBERED,
            format=JOBS,
            files=disk,
            clock=clock,
            committer=committer,
            threaded=threaded,
        )
        teardown.later(log.close)
        engine = make(log, clock, folder, disk)
        # A log that was written by a clock ahead of ours: its time goes on, or leases would last until we catch up.
        engine.ahead = clock.not_before(log.position)
        load(engine, progress)
        forget_expired(engine)
        teardown.cancel()
    return engine


def load(engine: JobEngine, progress: Progress | None = None) -> None:
    """Raises: Corruption for a record that is no job command."""
    assert isinstance(engine.log, Log) and engine.folder is not None
    told = None if progress is None else LoadProgress(engine.files, engine.folder, engine.log.reader, progress)
    engine.state, engine.checkpointed, engine.replayed = checkpoint.load(
        engine.files if told is None else told.files,
        engine.folder,
        engine.log.reader if told is None else told.reader,
        engine.ahead,
    )
    if told is not None:
        told.end()


def forget_expired(engine: JobEngine) -> None:
    """What expired while nobody was here; as in workq it counts nowhere, and leaves no empty queue."""
    now = engine.clock.now_ns()
    touched = {job.queue.name for job in engine.state.agenda.heap if job.expires <= now}
    due = None
    while engine.state.next_due() <= now and engine.state.agenda.first() is not due:
        due = engine.state.agenda.first()
        engine.tick()
    engine.evicted = 0
    for name in touched:
        queue = engine.state.queues[name]
        if not any(queue.lists) and not queue.is_paused:
            del engine.state.queues[name]


def reload(engine: JobEngine) -> None:
    """Keep what no log has: jobs in the foreground, and the names of queues."""
    foreground = [job for job in engine.state.jobs.values() if job.is_foreground]
    names = list(engine.state.queues)
    load(engine)
    for job in foreground:
        if job.id in engine.state.jobs:  # it took the id of a job whose end was refused; its caller will wait in vain
            continue
        job.queue, job.slot = engine.state.queue(job.queue.name), -1
        engine.state.restore(job)
    for name in names:
        engine.state.queue(name)
