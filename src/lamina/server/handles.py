"""What one process may have of its machine: file handles, and how the interpreter spends its time.

The limit of handles (``ulimit -n``, raised to its hard limit as far as there is use for it) is divided here, once, and
nowhere else. Nobody can take another one's share: connections are counted by their doors, topics and journals that
nobody uses are closed. What is always needed comes first, so that a crowd of connections or topics never keeps the log
of the jobs from its next file. docs/reference/limits.md tells the shares.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from lamina.engines.topics.open_topics import MOST_HANDLES

if TYPE_CHECKING:
    from lamina.server.settings import Settings

_JOBS: Final = 32  # log files of the jobs, the loop, and what else a server has open
_RESP: Final = 64  # what the engines of the RESP door need of it beside their shares
_READING: Final = 256  # segments that are open to be read, by all threads together
_STORE: Final = 1024  # two for each channel and view, one for each compacted file
_PER_JOURNAL: Final = 3  # handles of a queue that is open
# Where there are too few for all, what is left is divided so.
_WEIGHTS: Final = {"topics": 4, "journals": 3, "store": 3, "reading": 2}


class Shares(NamedTuple):
    """Of the handles of a server."""

    limit: int
    """Of the process."""
    always: int
    """For what cannot do without: the jobs, the loop, locks and logs of which there is one."""
    topics: int
    journals: int
    store: int
    reading: int

    @property
    def engines(self) -> int:
        """All but the connections."""
        return sum(self[1:])

    @property
    def most_queues(self) -> int:
        """Whose journals may be open at the same time."""
        return max(self.journals // _PER_JOURNAL, 1)


def divide(settings: Settings) -> Shares:
    """The shares of what is served, after the limit was raised as far as there is use for it."""
    topics = settings.topics
    queues = None if topics is None else topics.queues
    wants = {
        "topics": 0 if topics is None else MOST_HANDLES,
        "journals": 0
        if queues is None or queues.options.store != "journal"
        else _PER_JOURNAL * queues.options.most_open,
        "store": 0 if topics is None or topics.store is None else _STORE,
        "reading": 0 if topics is None else _READING,
    }
    doors = (settings.jobs is not None) + (topics is not None)
    always = _JOBS + (0 if topics is None else _RESP)
    limit = _raised_to(settings.max_connections * doors + always + sum(wants.values()))
    always = min(always, limit // 2)
    return Shares(limit, always, **_divided(max(limit // 2 - always, 0), wants))


def _divided(room: int, wants: dict[str, int]) -> dict[str, int]:
    """All get what they want if there is room for it; else nobody more than that, and the others by their weights."""
    given = dict.fromkeys(wants, 0)
    open_ones = {name for name, want in wants.items() if want}
    while open_ones:
        weights = sum(_WEIGHTS[name] for name in open_ones)
        fair = {name: room * _WEIGHTS[name] // weights for name in open_ones}
        content = {name for name in open_ones if wants[name] <= fair[name]}
        if not content:
            given.update({name: max(share, 1) for name, share in fair.items()})
            break
        for name in content:
            given[name] = wants[name]
            room -= wants[name]
        open_ones -= content
    return given


def _raised_to(needed: int) -> int:
    """How many handles the process may have, once it was raised that far, or to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def used() -> int | None:
    """How many this process has open; None where the system does not tell."""
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # that of the list itself
    except OSError:
        return None


def connections(wanted: int, doors: int, own: int) -> int:
    """For each door as many as file handles allow: those of the logs must not run out because clients took them all."""
    soft = _raised_to(wanted * doors + own)
    allowed = max(min(wanted, (soft - min(own, soft // 2)) // doors), 1)
    if allowed < wanted:
        why = f"only {soft} file handles are allowed (ulimit -n)"
        sys.stderr.write(f"lamina: {allowed} connections at most, not {wanted}: {why}\n")
    return allowed


def spare_the_collector() -> None:
    """Jobs are millions of objects without cycles: looking through them for garbage would stop the server for nothing.

    Threads: the upkeep's thread yields often, so that the loop never waits long for the interpreter.
    """
    gc.freeze()
    gc.set_threshold(50_000, 50, 1000)
    sys.setswitchinterval(0.0005)
