"""Who changed what over HTTP: the records of the audit log."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from lamina.server.audit import Audit, Entry
from lamina.server.http.operations import Asks, Gives, Limit, Operation, Place

_MOST_LOOKED_AT: Final = 5000
"""Records that one question goes through: who looks for something rare asks again, from there on."""

Text = Annotated[str, msgspec.Meta(max_length=200)]


class AuditAsks(Asks, frozen=True, kw_only=True):
    """Which records of the audit log."""

    limit: Limit = 100
    before_ns: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | None = None
    """Older ones than this moment; none: the newest."""
    user: Text = ""
    """Only of this one."""
    action: Text = ""
    """Only those that begin so: ``jobs.`` or ``jobs.redrive``."""


class AuditPage(Gives, frozen=True, kw_only=True):
    """Records of the audit log, the newest first."""

    entries: list[Entry]
    next_before_ns: int | None = None
    """Ask with this for the next page; none: there is no more."""


async def _audit(place: Place, asked: AuditAsks) -> AuditPage:
    place.check("admin", "read")
    return await place.in_thread(_look, place.is_there(place.inside.audit), asked)


def _look(audit: Audit, asked: AuditAsks) -> AuditPage:
    found: list[Entry] = []
    looked, last = 0, None
    for entry in audit.newest(_MOST_LOOKED_AT, asked.before_ns):
        looked, last = looked + 1, entry
        if _is_meant(entry, asked):
            found.append(entry)
            if len(found) == asked.limit:
                break
    is_cut = last is not None and (len(found) == asked.limit or looked == _MOST_LOOKED_AT)
    return AuditPage(entries=found, next_before_ns=last.time_ns if is_cut and last is not None else None)


def _is_meant(entry: Entry, asked: AuditAsks) -> bool:
    return (not asked.user or entry.user == asked.user) and entry.action.startswith(asked.action)


class Change:
    """One action for a reader: what its two records say together."""

    def __init__(self, entry: Entry, begun: Entry | None) -> None:
        self.entry = entry
        """The newer record."""
        self.seconds = None if begun is None else max(0, entry.time_ns - begun.time_ns) / 1e9
        """How long it took; None: only one of the two was looked at."""

    @property
    def is_open(self) -> bool:
        """How it ended is not in the records that were looked at."""
        return self.entry.outcome == "begun"


def together(entries: list[Entry]) -> list[Change]:
    """Records that belong to one action as one, the newest first."""
    ended: dict[tuple[int, str, str, str], int] = {}
    changes: list[Change] = []
    for entry in entries:
        if entry.outcome == "begun" and (at := ended.pop(_key(entry), None)) is not None:
            changes[at] = Change(changes[at].entry, entry)
            continue
        if entry.outcome != "begun":
            ended[_key(entry)] = len(changes)
        changes.append(Change(entry, None))
    return changes


def _key(entry: Entry) -> tuple[int, str, str, str]:
    return entry.number, entry.user, entry.action, entry.target


AUDIT: Final = Operation(
    name="server.audit",
    method="GET",
    path="/audit",
    summary="Who changed what over HTTP",
    right=("admin", "read"),
    asks=AuditAsks,
    gives=AuditPage,
    do=_audit,
    errors=("corruption", "disk_error"),
)
