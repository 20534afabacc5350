"""Operations on jobs: looking at them, changing them, and putting dead letters back."""

from __future__ import annotations

from typing import Final

from lamina.server.http.operations import AnyOperation
from lamina.server.http.ops import (
    jobs_changing,
    jobs_dead,
    jobs_looking,
    jobs_purging,
    jobs_redriving,
    jobs_search,
    jobs_timeline,
)
from lamina.server.http.ops.jobs_dead import DEAD, DeadAsks
from lamina.server.http.ops.jobs_looking import LIST, ONE, QUEUE, QUEUES, ListAsks, OneAsks, QueueAsks, QueuesAsks
from lamina.server.http.ops.jobs_search import SEARCH, SearchAsks
from lamina.server.http.ops.jobs_timeline import TIMELINE, TimelineAsks

__all__ = (
    "DEAD",
    "LIST",
    "ONE",
    "OPERATIONS",
    "QUEUE",
    "QUEUES",
    "SEARCH",
    "TIMELINE",
    "DeadAsks",
    "ListAsks",
    "OneAsks",
    "QueueAsks",
    "QueuesAsks",
    "SearchAsks",
    "TimelineAsks",
)

OPERATIONS: Final[tuple[AnyOperation, ...]] = (
    *jobs_looking.OPERATIONS,
    *jobs_search.OPERATIONS,
    *jobs_timeline.OPERATIONS,
    *jobs_dead.OPERATIONS,
    *jobs_changing.OPERATIONS,
    *jobs_redriving.OPERATIONS,
    *jobs_purging.OPERATIONS,
)
