"""Pages of the server itself: settings with their origin, and the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lamina.server.http.console.page import Page
from lamina.server.http.operations import Asks, Place
from lamina.server.http.ops import server


async def _settings(place: Place, asked: Asks) -> Mapping[str, object]:
    return {"found": await server.SETTINGS.do(place, asked)}


async def _audit(place: Place, asked: server.AuditAsks) -> Mapping[str, object]:
    return {"found": await server.AUDIT.do(place, asked)}


PAGES: Final[tuple[Page, ...]] = (
    Page(
        path="/settings",
        section="settings",
        template="server/settings.html",
        asks=Asks,
        shows=_settings,
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
