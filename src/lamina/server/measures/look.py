"""One look at a server, shared by all who want to know: metrics, history and the console.

What costs is kept (kept.py), so that many who ask cost no more than one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lamina.errors import LaminaError
from lamina.log.measured import Measured
from lamina.log.writer import Log
from lamina.server.measures.kept import SHARE, Kept
from lamina.server.measures.room import Room, RoomLook

if TYPE_CHECKING:
    from lamina.log.reserve import Reserve
    from lamina.server.inside import Inside
    from lamina.server.measures.jobs_seen import JobsSeen
    from lamina.server.measures.queues_seen import QueuesSeen
    from lamina.server.measures.topics_seen import TopicsSeen

ENGINES: Final = ("jobs", "topics", "queues", "store")


class Look:
    """At one server. Threads: safe from any thread. An engine that is not open has nothing to show."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self.share = SHARE
        """Of the time that may go into looking."""
        self._rooms: dict[str, RoomLook] = {}
        self._jobs: Kept[JobsSeen] | None = None
        self._topics: Kept[TopicsSeen] | None = None
        self._queues: Kept[QueuesSeen] | None = None

    def jobs(self) -> JobsSeen | None:
        if self._jobs is None and (engine := self._inside.jobs) is not None:
            from lamina.server.measures import jobs_seen

            self._jobs = Kept(lambda: jobs_seen.look(engine))
        return self._jobs.get(self.share) if self._jobs is not None and self._inside.jobs is not None else None

    def topics(self) -> TopicsSeen | None:
        if self._topics is None and (topics := self._inside.topics) is not None:
            from lamina.server.measures.topics_seen import TopicsLook

            look = TopicsLook()
            self._topics = Kept(lambda: look.look(topics, None if (at := self._inside.looking) is None else at.topics))
        return self._topics.get(self.share) if self._topics is not None and self._inside.topics is not None else None

    def queues(self) -> QueuesSeen | None:
        if self._queues is None and (deliveries := self._inside.queues) is not None:
            from lamina.server.measures import queues_seen

            self._queues = Kept(
                lambda: queues_seen.look(deliveries, None if (at := self._inside.looking) is None else at.queues)
            )
        return self._queues.get(self.share) if self._queues is not None and self._inside.queues is not None else None

    # -- logs and disks ------------------------------------------------------------------------------------------------

    def measured(self, engine: str) -> list[Measured]:
        """What writing its logs costs; where messages have files of their own, those are apart."""
        inside = self._inside
        if engine == "jobs":
            log = inside.jobs.log if inside.jobs is not None else None
            return [log.stats.measured] if isinstance(log, Log) else []
        if engine == "topics":
            return [inside.topics.measured] if inside.topics is not None else []
        if engine == "store":
            store = inside.find_store()
            return [store.engine.measured] if store is not None else []
        if inside.queues is None:
            return []
        queues = inside.queues.engine
        found = [queues.log.stats.measured] if isinstance(queues.log, Log) else []
        return found if queues.keeper is queues else [*found, queues.keeper.measured]

    def room(self, engine: str) -> Room | None:
        """None: it has no folder, or is not open."""
        folder = self._folder(engine)
        if folder is None:
            return None
        look = self._rooms.get(engine)
        if look is None:
            look = self._rooms[engine] = RoomLook(folder, self._inside.gate.now_ns)
        return look.get()

    def history_bytes(self, engine: str) -> int:
        """What it keeps for the recent past alone."""
        folder = self._folder(engine)
        return 0 if folder is None else self._inside.past.bytes_of(folder)

    def _folder(self, engine: str) -> str | None:
        inside = self._inside
        if engine == "store":
            store = inside.find_store()
            return store.engine.folder if store is not None else None
        if engine == "queues":
            return inside.queues.engine.folder if inside.queues is not None else None
        found = inside.jobs if engine == "jobs" else inside.topics
        return found.folder if found is not None else None

    def disk(self) -> tuple[int, int] | None:
        """Bytes that are free, and in all, of the disk below the data folder."""
        folder = self._inside.data or next(filter(None, map(self._folder, ENGINES)), None)
        with suppress(OSError):
            if folder is not None:
                found = os.statvfs(folder)
                return found.f_frsize * found.f_bavail, found.f_frsize * found.f_blocks
        return None

    def reserve(self) -> Reserve | None:
        """Of that disk."""
        disks = self._inside.disks
        return None if disks is None else disks.first

    def connections(self) -> dict[str, int]:
        """By door."""
        inside = self._inside
        doors = {"workq": inside.workq, "resp": inside.resp}
        return {name: len(door.connections) for name, door in doors.items() if door is not None}

    def failures(self) -> dict[str, bool]:
        """By engine: whether its log has failed."""
        with suppress(LaminaError):
            problems = self._inside.life.problems
            return {engine: engine in problems for engine in ENGINES if self._folder(engine) is not None}
        return {}
