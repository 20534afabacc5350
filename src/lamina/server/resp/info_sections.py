"""Sections of INFO that Redis does not have: what each engine holds, for who watches a server (``lamina top``).

They come only when asked for by name (``INFO topics disk``), and cost a bounded time: of thousands of topics or queues
the largest are shown. Lines are ``name:value`` or ``name:key=value,key=value``, as clients of Redis read them; names
are percent-encoded, and those a user may not read are left out, of sums too: who may not ask an engine for a number by
a command does not get it here.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from lamina.engines.jobs.views import QueueView
from lamina.engines.topics import group_views
from lamina.errors import LaminaError
from lamina.log.naming import RESERVE
from lamina.log.writer import Log
from lamina.server.resp.guard import may_see_server, readable
from lamina.server.resp.session import Session

if TYPE_CHECKING:
    from lamina.engines.jobs.engine import JobEngine

Facts = dict[str, object]

SHOWN: Final = 20
"""Topics, or queues of jobs, that are shown one by one."""
_LOOKED_AT: Final = 10_000  # of those that are there
_GROUPS: Final = 20  # of one topic
_FILES: Final = 5_000  # that are asked for their size; with more there is no sum
_DISK_S: Final = 15.0  # for so long sizes are remembered


def of_topics(session: Session) -> Facts:
    """Topics in use, those with most entries ever added one by one, with their groups."""
    topics = session.house.topics
    opened = list(islice(topics.opened(), _LOOKED_AT))
    known = topics.count()
    if not may_read_all(session, "topics"):
        opened = [pair for pair in opened if may_read(session, "topics", pair[0])]
        known = len(readable(session, topics.names()))
    facts: Facts = {
        "topics": known,
        "topics_open": len(opened),
        "topics_handles": topics.handles,
        "topics_handles_limit": topics.most_handles or 0,
        "topics_closed": topics.closed_idle,
        "topics_added": sum(topic.state.added for _, topic in opened),
        "topics_entries": sum(topic.state.length for _, topic in opened),
        "topics_bytes": sum(topic.log.stats.bytes for _, topic in opened if isinstance(topic.log, Log)),
    }
    seen = (pair for pair in opened if may_read(session, "topics", pair[0]))  # not all, for who runs the server
    for name, topic in heapq.nlargest(SHOWN, seen, key=lambda pair: pair[1].state.added):
        shown = quote(name, safe="")
        its = topic.opened_groups
        groups: list[group_views.GroupStats] = []
        if its is not None:
            with suppress(LaminaError):  # a file could not be read: whoever uses the topic is told
                groups = group_views.stats(its)
        facts[f"topic_{shown}"] = _pairs(length=topic.state.length, added=topic.state.added, groups=len(groups))
        for group in sorted(groups, key=lambda group: -(group.lag or 0))[:_GROUPS]:
            lag = "" if group.lag is None else group.lag
            facts[f"group_{shown}/{quote(group.name, safe='')}"] = _pairs(
                lag=lag, pending=group.pending, consumers=group.consumers
            )
    return facts


def of_queues(session: Session) -> Facts:
    """Queues. They have no names: their ids are secrets, so there are sums only."""
    if session.house.queues is None or not may_read_all(session, "queues", "admin"):  # as L.QUEUES asks
        return {}
    deliveries = session.house.queues
    engine = deliveries.engine
    return {
        "queues": len(engine.state.queues),
        "queues_messages": engine.state.messages,
        "queues_records": engine.state.records,
        "queues_subscribers": len(deliveries.subscribers),
        "queues_expired": engine.expired,
        "queues_store": engine.options.store,
    }


def of_store(session: Session) -> Facts:
    """The store, once a command has opened it."""
    house = session.house.store
    store = None if house is None else house.opened_store
    user = session.user
    if store is None or not (may_read_all(session, "store") or (user and user.may_some("store", "read"))):  # as S.EPOCH
        return {}
    engine = store.engine
    return {
        "store_epoch": engine.epoch,
        "store_durable_epoch": engine.last_epoch,
        "store_channels": len(engine.channels),
        "store_files": len(engine.rotated),
        "store_parts": len(engine.catalog.parts),
        "store_refusals": engine.refusals,
    }


class OfDisk:
    """The disk: room on it, what this process has written to it, and how much each engine has there."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, int | None]] = {}

    def __call__(self, session: Session) -> Facts:
        if not may_see_server(session):
            return {}
        house = session.house
        facts: Facts = {"disk_written_bytes": _written()}
        folders = {"topics": house.topics.folder}
        if house.queues is not None:
            folders["queues"] = house.queues.engine.folder
        store = None if house.store is None else house.store.opened_store
        if store is not None:
            folders["store"] = store.engine.folder
        reserve = house.topics.reserve
        if reserve is not None:
            facts["disk_total_bytes"], facts["disk_free_bytes"] = reserve.room
        for name, folder in folders.items():
            size = self.size_of(folder)
            facts[f"disk_{name}_bytes"] = "" if size is None else size
        past = house.settings.past
        if past is not None:
            facts["disk_history_bytes"] = past.bytes
            facts["disk_history_limit_bytes"] = "" if past.limit is None else past.limit
        if reserve is not None:
            facts["disk_low_water_bytes"] = reserve.low_water
            facts["disk_reserve_bytes"] = reserve.size if reserve.is_held else 0
        facts["disk_is_full"] = int(reserve is not None and reserve.is_short)
        return facts

    def size_of(self, folder: str) -> int | None:
        """Bytes of all files below it; None if they are too many to be asked."""
        at, size = self._known.get(folder, (-_DISK_S, None))
        now = time.monotonic()
        if now - at >= _DISK_S:
            size = _size_of(folder)
            self._known[folder] = now, size
        return size


def of_jobs(engine: JobEngine) -> Callable[[Session], Facts]:
    """The section of jobs, which another door serves: for ``Life.sections``, and so ``Settings.sections``."""
    disk = OfDisk()

    def facts_of(session: Session) -> Facts:
        now = engine.clock.now_ns()
        sees_all = may_read_all(session, "jobs")
        with engine.lock:
            queues = list(islice(engine.state.queues.values(), _LOOKED_AT))
            seen = [queue for queue in queues if may_read(session, "jobs", queue.name)]
            facts: Facts = {
                "jobs": len(engine.state.jobs) if sees_all else sum(len(jobs) for each in seen for jobs in each.lists),
                "jobs_queues": len(engine.state.queues) if sees_all else len(seen),
            }
            if sees_all:
                facts["jobs_evicted"] = engine.evicted
            if sees_all and isinstance(engine.log, Log):
                facts |= {"jobs_records": engine.log.stats.records, "jobs_bytes": engine.log.stats.bytes}
            for queue in heapq.nlargest(SHOWN, seen, key=lambda queue: sum(len(jobs) for jobs in queue.lists)):
                view = QueueView.of(queue, 0, now)
                oldest = "" if view.oldest_ready_s is None else round(view.oldest_ready_s, 1)
                facts[f"jobs_{quote(view.name, safe='')}"] = _pairs(
                    ready=view.ready,
                    scheduled=view.scheduled,
                    leased=view.leased,
                    completed=view.completed,
                    failed=view.failed,
                    paused=int(view.is_paused),
                    oldest_s=oldest,
                )
        if engine.folder is not None and may_see_server(session):
            size = disk.size_of(engine.folder)
            facts["disk_jobs_bytes"] = "" if size is None else size
        return facts

    return facts_of


SECTIONS: Final[dict[bytes, tuple[bytes, Callable[[Session], Facts]]]] = {
    b"topics": (b"Topics", of_topics),
    b"queues": (b"Queues", of_queues),
    b"store": (b"Store", of_store),
    b"disk": (b"Disk", OfDisk()),
}


def may_read(session: Session, engine: str, name: bytes | str) -> bool:
    """Whether the user of this connection may know of it; where nobody logs in, all may."""
    user = getattr(session, "user", None)
    return user is None or bool(user.may(engine, "read", name))


def may_read_all(session: Session, engine: str, level: str = "read") -> bool:
    """Whether it may be told of all that an engine has: it may ask the engine for that, or runs the server."""
    user = getattr(session, "user", None)
    return user is None or bool(user.may_all(engine, level)) or may_see_server(session)


def _pairs(**values: object) -> str:
    return ",".join(f"{name}={value}" for name, value in values.items())


def _written() -> int:
    """Bytes that this process has had written to disks."""
    try:
        with open("/proc/self/io", "rb") as file:
            lines: Iterable[bytes] = file.read().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(b"write_bytes:")), 0)


def _size_of(folder: str) -> int | None:
    size, left, folders = 0, _FILES, [folder]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                left -= 1
                if left < 0:
                    return None
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif entry.name.lstrip(".") != RESERVE:  # room that is kept is not used
                        size += entry.stat(follow_symlinks=False).st_size
    return size
