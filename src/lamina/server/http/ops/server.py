"""Operations on the server itself: how its last start went, its settings, and who changed what."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from lamina.config.showing import as_dict
from lamina.errors import NotThere
from lamina.server.audit import Entry
from lamina.server.http.operations import AnyOperation, Asks, Gives, Limit, Operation, Place


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting."""

    key: str
    origin: str
    """Where its value comes from: a file, the environment, a flag, or the default."""
    reload: bool
    """It can be changed while the server runs."""
    value: Any = None
    """Never of a secret one."""
    is_set: bool | None = None
    """Of a secret one: whether there is a value."""


class Settings(Gives, frozen=True, kw_only=True):
    """All that hold."""

    file: str | None
    settings: list[Setting]
    warnings: list[str]


async def _settings(place: Place, asked: Asks) -> Settings:
    place.check("admin", "read")
    if place.inside.config is None:
        raise NotThere("this server was not started with settings", hint="start it with lamina serve")
    found = as_dict(place.inside.config())
    return msgspec.convert({name: found[name] for name in ("file", "settings", "warnings")}, Settings)


class AuditAsks(Asks, frozen=True, kw_only=True):
    """Which records of the audit log."""

    limit: Limit = 100
    before_ns: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | None = None
    """Older ones than this moment; none: the newest."""


class AuditPage(Gives, frozen=True, kw_only=True):
    """Records of the audit log, the newest first."""

    entries: list[Entry]
    next_before_ns: int | None = None
    """Ask with this for the next page; none: there is no more."""


async def _audit(place: Place, asked: AuditAsks) -> AuditPage:
    place.check("admin", "read")
    audit = place.is_there(place.inside.audit)
    found = await place.in_thread(lambda: list(audit.newest(asked.limit, asked.before_ns)))
    more = found[-1].time_ns if len(found) == asked.limit else None
    return AuditPage(entries=found, next_before_ns=more)


SETTINGS: Final = Operation(
    name="server.settings",
    method="GET",
    path="/settings",
    summary="The settings that hold, and where each comes from",
    right=("admin", "read"),
    asks=Asks,
    gives=Settings,
    do=_settings,
)
AUDIT: Final = Operation(
    name="server.audit",
    method="GET",
    path="/audit",
    summary="Who changed what over HTTP",
    right=("admin", "read"),
    asks=AuditAsks,
    gives=AuditPage,
    do=_audit,
)
OPERATIONS: Final[tuple[AnyOperation, ...]] = (SETTINGS, AUDIT)
