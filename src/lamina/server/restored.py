"""What opening an engine found, put into the report of its restoring; and what would make a server of no use later.

Called once for each engine, when it is open: ``tell_*`` inside ``with life.restoring(...)``, ``watch_*`` behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from lamina.errors import DiskFull, LaminaError, LogClosed
from lamina.log.writer import Log
from lamina.server.life import Life, Restoring
from lamina.units import show_duration

if TYPE_CHECKING:
    from lamina.engines.jobs.engine import JobEngine
    from lamina.engines.queues.engine import QueueEngine
    from lamina.engines.store.api import Store
    from lamina.engines.topics.topics import Topics
    from lamina.log.recovery import RecoveryReport


def tell_jobs(engine: JobEngine, told: Restoring) -> None:
    """Jobs, from a checkpoint and the log behind it."""
    jobs, queues = len(engine.state.jobs), len(engine.state.queues)
    if not isinstance(engine.log, Log):
        told.restored("in memory only")
        return
    found = f"{_count(jobs, 'job')} in {_count(queues, 'queue')}"
    found += " (checkpoint and " if engine.checkpointed else " ("
    found += f"{_count(engine.replayed, 'record')} replayed)"
    told.restored(found, files=engine.log.report.segments + bool(engine.checkpointed), records=engine.replayed)
    _tell_log(engine.log.report, told)
    if engine.ahead > 10**9:
        behind = show_duration(engine.ahead / 1e9)
        told.warn(f"the log was written by a clock that is {behind} ahead of this one: its time goes on from there")


def tell_queues(engine: QueueEngine, told: Restoring) -> None:
    """Queues, from a dump and the logs behind it."""
    restored = engine.restored
    found = f"{_count(len(engine.state.queues), 'queue')}, {_count(engine.state.messages, 'message')}"
    told.restored(found, files=len(restored.load_order), records=restored.records)
    if restored.expired:
        told.leave_out(_count(restored.expired, "message"), "expired meanwhile")
    for file, reason in restored.ignored:
        told.leave_out(file, reason)
    for warning in restored.warnings:
        told.warn(str(warning))
    if restored.more_warnings:
        told.warn(f"and {restored.more_warnings} more of these")
    if engine.keeper is not engine:
        if aside := engine.keeper.aside_count():
            told.leave_out(f"the folders of {_count(aside, 'queue')}", "the log does not know them: they are set aside")
        for problem in engine.keeper.damage:
            told.warn(str(problem))


def tell_topics(topics: Topics, told: Restoring) -> None:
    """Topics are opened one by one when they are used: there is nothing to restore but their names."""
    told.restored(f"{_count(len(topics.known()), 'topic')}, each opened at its first use")


def tell_store(store: Store, told: Restoring) -> None:
    """The store, from its catalog and the files behind it."""
    engine = store.engine
    told.restored(
        f"{_count(engine.entries_read, 'entry', 'entries')} read, epoch {engine.last_epoch}",
        files=len(engine.rotated) + len(engine.catalog.parts),
        records=engine.entries_read,
    )
    for warning in engine.warnings:
        told.warn(warning)


def _tell_log(report: RecoveryReport, told: Restoring) -> None:
    for tail in report.torn:
        kept = f"; kept as {tail.kept_as}" if tail.kept_as else ""
        told.leave_out(f"{tail.bytes} bytes of {tail.file}", f"a torn tail ({tail.reason}){kept}")
    for name in report.leftovers:
        told.leave_out(name, "a half-done replacement that a crash left behind")
    for name in report.foreign:
        told.leave_out(name, "not a file of this log, left alone")


def _count(number: int, one: str, more: str = "") -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"


class _Writing(Protocol):
    @property
    def failure(self) -> LaminaError | None: ...
    @property
    def write_error(self) -> LaminaError | None: ...


def watch_log(life: Life, name: str, log: Callable[[], _Writing | None]) -> None:
    """A log that failed refuses all writes until it is opened again: only a new start helps.

    One whose last write the disk refused is of no use either, until a write gets through. A full disk is a problem of
    its own (disks.py).
    ``log`` is asked each time, for an engine may get another one; None: there is none (yet).
    """
    life.watch(name, lambda: _refusal(log()), needs_restart=True)


def _refusal(log: _Writing | None) -> str | None:
    if log is None or isinstance(log.failure, LogClosed):
        return None
    error = log.failure or log.write_error
    return None if error is None or isinstance(error, DiskFull) else str(error)


def watch_topics(life: Life, topics: Topics) -> None:
    """The same for every topic that is open: the first whose log is of no use, or that of its groups."""

    def ask() -> str | None:
        for name, topic in topics.opened():
            groups = topic.opened_groups
            for log in (topic.log, None if groups is None else groups.log):
                refusal = _refusal(log) if isinstance(log, Log) else None
                if refusal is not None:
                    return f"{name.decode(errors='replace')}: {refusal}"
        return None

    life.watch("topics", ask, needs_restart=True)
