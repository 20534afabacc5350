"""How the state comes from the disk: at the start, and again after the log refused what the state had taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamina.engines.jobs import checkpoint
from lamina.log.writer import Log

if TYPE_CHECKING:
    from lamina.engines.jobs.engine import JobEngine


def load(engine: JobEngine) -> None:
    """Raises: Corruption for a record that is no job command."""
    assert isinstance(engine.log, Log) and engine.folder is not None
    engine.state, engine.checkpointed, engine.replayed = checkpoint.load(
        engine.files, engine.folder, engine.log.reader, engine.ahead
    )


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
        job.queue, job.slot = engine.state.queue(job.queue.name), -1
        engine.state.restore(job)
    for name in names:
        engine.state.queue(name)
