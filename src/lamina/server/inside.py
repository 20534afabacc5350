"""What is inside a server, for who looks at it from the HTTP door: engines that are open, and a way to their loop.

Engines are safe from any thread, each by its lock; what belongs to a door (its connections, who waits) is not, and is
looked at on the loop that the door lives on. While a server restores an engine is None.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from lamina.errors import NotReady
from lamina.log.history import History as Past
from lamina.log.naming import RESERVE
from lamina.server.life import Life
from lamina.server.security.gate import Gate

if TYPE_CHECKING:
    from lamina.config.loading import Config
    from lamina.engines.jobs.engine import JobEngine
    from lamina.engines.jobs.upkeep import Upkeep as JobUpkeep
    from lamina.engines.queues.deliveries import Deliveries
    from lamina.engines.queues.upkeep import Upkeep as QueueUpkeep
    from lamina.engines.store.api import Store
    from lamina.engines.topics.topics import Topics
    from lamina.engines.topics.upkeep import Upkeep as TopicUpkeep
    from lamina.log.reserve import Reserve
    from lamina.server.audit import Audit
    from lamina.server.disks import Disks
    from lamina.server.handles import Shares
    from lamina.server.history import History
    from lamina.server.looking import Looking
    from lamina.server.measures import Measures
    from lamina.server.resp.door import RespDoor
    from lamina.server.workq.door import WorkqDoor

T = TypeVar("T")
P = ParamSpec("P")

_LONGEST_S: Final = 10.0  # that the loop may take to come to a call; a server that stops never does


class Inside:
    """Of one server. Parts appear as they are opened, and go when they are closed."""

    def __init__(
        self,
        life: Life,
        gate: Gate,
        *,
        data: str | None = None,
        config: Callable[[], Config] | None = None,
        disks: Disks | None = None,
        past: Past | None = None,
    ) -> None:
        """``config`` gives the settings that hold. ``disks`` None: no room is kept for a full disk. ``past`` says what
        of the recent past stays, by default nothing.
        """
        self.life = life
        self.gate = gate
        self.data = data
        self.config = config
        self.disks = disks
        self.past = past or Past(keep_s=0)
        self.handles: Shares | None = None
        """How the file handles of the process are divided."""
        self.jobs: JobEngine | None = None
        self.jobs_upkeep: JobUpkeep | None = None
        self.topics: Topics | None = None
        self.topics_upkeep: TopicUpkeep | None = None
        self.queues: Deliveries | None = None
        self.queues_upkeep: QueueUpkeep | None = None
        self.find_store: Callable[[], Store | None] = lambda: None
        """The store, if it was used since the start; it is made by its first use."""
        self.workq: WorkqDoor | None = None
        self.resp: RespDoor | None = None
        self.measures: Measures | None = None
        """What is measured (measures.of makes it)."""
        self.audit: Audit | None = None
        """None: there is no data folder, or it is not open yet; then nothing can be changed over HTTP."""
        self.history: History | None = None
        """None: before the engines are open, and after the doors are closed."""
        self.looking: Looking | None = None
        """Finds out how it is with what nobody uses; None: nobody does that."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def opened(self, loop: asyncio.AbstractEventLoop, doors: Sequence[object]) -> None:
        """These doors are open, on this loop."""
        from lamina.server.resp.door import RespDoor
        from lamina.server.workq.door import WorkqDoor

        self.workq = next((door for door in doors if isinstance(door, WorkqDoor)), None)
        self.resp = next((door for door in doors if isinstance(door, RespDoor)), None)
        self._loop = loop

    def reserve_of(self, folder: str, name: str = RESERVE) -> Reserve | None:
        """That of the disk which the folder of an engine is on (``Disks.of``); None: there is none."""
        return None if self.disks is None else self.disks.of(folder, name)

    @property
    def is_short_of_room(self) -> bool:
        """Nothing new is taken on the disk of the data folder: nothing is kept for the past alone, either."""
        reserve = None if self.disks is None else self.disks.first
        return reserve is not None and reserve.is_short

    def closed(self) -> None:
        """The doors are closing."""
        self._loop = self.workq = self.resp = None

    async def on_loop(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What ``call`` returns, called by the thread of the doors: something quick, for all clients wait for it.

        Raises: NotReady before the doors are open, and when they close; what ``call`` does.
        """
        loop = self._loop
        if loop is None:
            raise not_ready(self.life)
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(call(*args, **kwargs))
                except BaseException as error:
                    done.set_exception(error)

        try:
            loop.call_soon_threadsafe(run)
            return await asyncio.wait_for(asyncio.wrap_future(done), _LONGEST_S)
        except (RuntimeError, TimeoutError):
            if done.done() and not done.cancelled():
                raise
            raise not_ready(self.life) from None


def not_ready(life: Life) -> NotReady:
    """What who comes too early or too late is told."""
    return NotReady(f"the server is {life.phase}", hint="try again in a moment; /readyz says how far it is")
