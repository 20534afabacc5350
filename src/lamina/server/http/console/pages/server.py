"""Pages of the server itself: how it started, settings with their origin, users, and the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Final

from lamina.config.showing import toml_value
from lamina.server.http.console.page import Page
from lamina.server.http.operations import Asks, Place
from lamina.server.http.ops import server


async def _recovery(place: Place, asked: Asks) -> Mapping[str, object]:
    return {"found": await server.RECOVERY.do(place, asked)}


async def _settings(place: Place, asked: server.SettingsAsks) -> Mapping[str, object]:
    found = await server.SETTINGS.do(place, asked)
    groups = groupby(found.settings, key=lambda one: one.key.rpartition(".")[0])
    return {
        "found": found,
        "groups": [(section or "general", list(settings)) for section, settings in groups],
        "shown_value": toml_value,
        "badge": _badge,
    }


def _badge(origin: str) -> tuple[str, str]:
    """The kind of an origin, and which one it is. Of several the first counts most."""
    kind, _, rest = origin.partition(" ")
    return (kind, rest) if kind in ("default", "flag", "environment") else ("file", origin)


async def _users(place: Place, asked: Asks) -> Mapping[str, object]:
    return {"found": await server.USERS.do(place, asked)}


async def _audit(place: Place, asked: server.AuditAsks) -> Mapping[str, object]:
    found = await server.AUDIT.do(place, asked)
    return {"found": found, "changes": server.together(found.entries)}


PAGES: Final[tuple[Page, ...]] = (
    Page(
        path="/recovery",
        section="recovery",
        template="server/recovery.html",
        asks=Asks,
        shows=_recovery,
        right=("admin", "read"),
    ),
    Page(
        path="/settings",
        section="settings",
        template="server/settings.html",
        asks=server.SettingsAsks,
        shows=_settings,
        right=("admin", "read"),
    ),
    Page(
        path="/users",
        section="settings",
        template="server/users.html",
        asks=Asks,
        shows=_users,
        right=("admin", "read"),
    ),
    Page(
        path="/audit",
        section="audit",
        template="server/audit.html",
        asks=server.AuditAsks,
        shows=_audit,
        right=("admin", "read"),
    ),
)
