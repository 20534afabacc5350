"""The view ``job_state``: every job that is there, as the engine reports it.

The records up to the time are replayed, then the engine does what has fallen due by then: jobs whose life is over are
gone, leases that ran out are timed out, those whose time has come are ready. A running server does the same whenever it
is asked, so that it makes no difference whether it had written that down yet.

Without ``asOf`` the time is that of pinning. Jobs in the foreground are not here: no log has them. Of an earlier time,
jobs that live to this day are as they were. Of those that are over by now, cleaning may have removed all records or, if
it was interrupted by their end, the later ones first: they are as they were until it comes to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lamina.clock import ManualClock
from lamina.engines.jobs import checkpoint
from lamina.engines.jobs.core import State
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import AT_SCHEDULED
from lamina.engines.jobs.views import JobView
from lamina.engines.jobs.volatile import VolatileLog
from lamina.log.files import Files
from lamina.log.reader import Reader
from lamina.pipeline import places
from lamina.pipeline.frozen import Frozen
from lamina.pipeline.schema import Column
from lamina.pipeline.views.jobs import (
    CREATED,
    MAX_ATTEMPTS,
    MAX_FAILS,
    PAYLOAD,
    PRIORITY,
    RUN_AT,
    TTL_MS,
    micros,
)
from lamina.pipeline.views.states.base import Log, Row, StateView

ID: Final = Column("id", "string", "of the job")
NAME: Final = Column("name", "string", "of its queue")
STATE: Final = Column("state", "string", "ready, scheduled, leased, completed or failed")
TTR_MS: Final = Column("ttr_ms", "bigint", "how long an attempt may take")
ATTEMPTS: Final = Column("attempts", "bigint", "attempts that were begun")
FAILS: Final = Column("fails", "bigint", "attempts that failed, where retries were asked for")
READY_AT: Final = Column("ready_at", "timestamp", "of a scheduled one: when it becomes ready")
LEASE_UNTIL: Final = Column("lease_until", "timestamp", "of a leased one: when its attempt times out")
EXPIRES: Final = Column("expires", "timestamp", "when its life is over")
UNIQUE: Final = Column("unique_key", "string", "the key that only one job of the queue may have; empty: none")
LAST_ERROR: Final = Column("last_error", "binary", "what the last failed attempt said")
RESULT: Final = Column("result", "binary", "of a completed one")


class JobStateView(StateView):
    """One row per job."""

    name = "job_state"
    kinds = (places.JOBS,)
    columns = (
        *(ID, NAME, STATE, PRIORITY, ATTEMPTS, MAX_ATTEMPTS, FAILS, MAX_FAILS, TTR_MS, TTL_MS),
        *(CREATED, RUN_AT, READY_AT, LEASE_UNTIL, EXPIRES, UNIQUE, PAYLOAD, LAST_ERROR, RESULT),
    )

    def rows(self, disk: Files, log: Log) -> Iterator[Row]:
        for job in fold(disk, log).jobs.values():
            view = JobView.of(job)
            yield (
                view.id,
                view.name,
                view.state,
                view.priority,
                view.attempts,
                view.max_attempts,
                view.fails,
                view.max_fails,
                view.ttr_ms,
                view.ttl_ms,
                micros(view.created_ns),
                micros(view.scheduled_ns),
                micros(job.ready_at) if job.at == AT_SCHEDULED else None,
                micros(view.lease_until_ns),
                micros(view.expires_ns),
                view.unique,
                view.payload,
                view.last_error,
                view.result,
            )


def fold(disk: Files, log: Log) -> State:
    """The jobs as they were. Raises: TooOld, Corruption, WrongFormat, DiskError."""
    now = log.pinned_ns if log.as_of_ns is None else log.as_of_ns
    newest = max((file.last_ns or 0 for file in log.files), default=0)
    # A log that was written by a clock ahead of ours: its time goes on (engines/jobs/loading.py).
    ahead = max(newest - now, 0) if log.as_of_ns is None else 0
    with Frozen(disk, log.place, log.files, log.as_of_ns) as frozen:
        state, _, _ = checkpoint.load(frozen.files, frozen.folder, Reader(frozen.folder, files=frozen.files), ahead)
    engine = JobEngine(VolatileLog(), ManualClock(now + ahead), None, disk)
    engine.state, engine.ahead = state, ahead
    while engine.tick() == 0.0:
        pass  # a thousand at a time
    return state
