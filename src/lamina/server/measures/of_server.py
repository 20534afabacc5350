"""What is measured of the server itself: where it is in its life, and its doors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lamina._version import VERSION
from lamina.server import handles
from lamina.server import life as lives
from lamina.server.measures import names as n
from lamina.server.measures.gathering import Gathering
from lamina.server.refusals import Refusals

if TYPE_CHECKING:
    from lamina.server.inside import Inside

_PHASES: Final = (lives.STARTING, lives.RESTORING, lives.READY, lives.STOPPING, lives.FAILED)
_OF_ENGINES: Final = (lives.WAITING, lives.RESTORING, lives.READY, lives.FAILED)


class OfServer:
    """Of one server."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._began_s = inside.gate.now_ns() / 1e9
        self.http: Refusals | None = None
        """Of the HTTP door, if somebody says so."""

    def gather(self, into: Gathering) -> None:
        self._life(into)
        self._doors(into)

    def _life(self, into: Gathering) -> None:
        shown: dict[str, Any] = self._inside.life.as_dict()
        into.gauge(n.INFO, 1, VERSION)
        into.gauge(n.START_TIME, self._began_s)
        into.gauge(n.READY, shown["phase"] == lives.READY and not shown["problems"])
        into.gauge(n.PROBLEMS, len(shown["problems"]))
        used, shares = handles.used(), self._inside.handles
        if used is not None:
            into.gauge(n.HANDLES, used)
        if shares is not None:
            into.gauge(n.HANDLES_LIMIT, shares.limit)
        into.gauge(n.RESTORED, shown["percent"] / 100)
        for phase in _PHASES:
            into.gauge(n.PHASE, phase == shown["phase"], phase)
        for engine, one in shown["engines"].items():
            for phase in _OF_ENGINES:
                into.gauge(n.ENGINE_PHASE, phase == one["phase"], engine, phase)
            if "report" in one:
                into.gauge(n.RESTORE_SECONDS, one["report"]["seconds"], engine)

    def _doors(self, into: Gathering) -> None:
        refusals = {} if self.http is None else {"http": self.http}
        for name, door in (("workq", self._inside.workq), ("resp", self._inside.resp)):
            if door is not None:
                into.gauge(n.CONNECTIONS, len(door.connections), name)
                into.gauge(n.CONNECTIONS_LIMIT, door.max_connections, name)
                into.counter(n.ACCEPTED, door.accepted, name)
                refusals[name] = door.refusals
        doors = [door for door in (self._inside.workq, self._inside.resp) if door is not None]
        if doors:
            into.gauge(n.OUTPUT, doors[0].output.bytes)
            into.gauge(n.OUTPUT_LIMIT, doors[0].output.most)
        for name, each in refusals.items():
            for reason, count in dict(each.by_reason).items():
                into.counter(n.REFUSALS, count, name, reason)
