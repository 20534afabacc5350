"""How the last start went, engine by engine, and what is wrong now."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lamina.server.aside import Aside, KeptAside, kept_aside
from lamina.server.http.operations import Asks, Gives, Operation, Place


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is broken now."""

    name: str
    reason: str


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """What was ignored, cut off or quarantined."""

    what: str
    reason: str


class EngineStart(msgspec.Struct, frozen=True, kw_only=True):
    """How one engine was opened."""

    name: str
    phase: str
    """``waiting``, ``restoring``, ``ready`` or ``failed``."""
    percent: float
    estimate_s: float | None = None
    done_bytes: int
    total_bytes: int
    reason: str = ""
    """Why it failed."""
    what: str = ""
    """What is there now, in words."""
    files: int = 0
    records: int = 0
    seconds: float | None = None
    left_out: list[LeftOut] = []
    warnings: list[str] = []
    not_shown: int = 0
    """Lines that were too many to keep."""


class Recovery(Gives, frozen=True, kw_only=True):
    """The whole of it."""

    phase: str
    """``starting``, ``restoring``, ``ready``, ``stopping`` or ``failed``."""
    since_ns: int
    """When the phase began."""
    is_ready: bool
    """Clients are served, and nothing is broken."""
    needs_restart: str = ""
    """Why only a new start helps."""
    percent: float
    estimate_s: float | None = None
    reason: str = ""
    """Why it failed or stops."""
    problems: list[Broken]
    damage: list[Broken]
    """What was found since the start that is not as it was written, with its place; clients are served all the same."""
    engines: list[EngineStart]
    kept_aside: list[KeptAside]
    """Tails that were cut and damage that was taken out, at this start or before, the newest first."""
    more_kept_aside: bool = False
    """There are more folders or files than were looked at."""


async def _recovery(place: Place, asked: Asks) -> Recovery:
    place.check("admin", "read")
    inside = place.inside
    life = inside.life
    found: dict[str, Any] = await place.in_thread(life.as_dict)
    data = inside.data
    aside = Aside(files=[]) if data is None else await place.in_thread(kept_aside, data)
    problems: dict[str, str] = found["problems"]
    return Recovery(
        phase=found["phase"],
        since_ns=found["since_ms"] * 1_000_000,
        is_ready=found["phase"] == "ready" and not problems,
        needs_restart=await place.in_thread(lambda: life.needs_restart),
        percent=found["percent"],
        estimate_s=found["estimate_s"],
        reason=found.get("reason", ""),
        problems=[Broken(name=name, reason=reason) for name, reason in problems.items()],
        damage=[Broken(name=name, reason=line) for name, lines in found["damage"].items() for line in lines],
        engines=[_engine(name, one) for name, one in found["engines"].items()],
        kept_aside=aside.files,
        more_kept_aside=aside.is_cut,
    )


def _engine(name: str, shown: dict[str, Any]) -> EngineStart:
    report = shown.pop("report", {})
    return msgspec.convert({"name": name, **shown, **report}, EngineStart)


RECOVERY: Final = Operation(
    name="server.recovery",
    method="GET",
    path="/recovery",
    summary="What the last start loaded, ignored and cut, and what is wrong now",
    right=("admin", "read"),
    asks=Asks,
    gives=Recovery,
    do=_recovery,
)
