"""What is told of a log: its files, what of them is alive, who keeps the rest, and work that goes on in it."""

from __future__ import annotations

from typing import Final

import msgspec

from lamina.server.http.operations import Gives

ACTIVE, SEALED, COMPACTED, DUMP, CHECKPOINT = "active", "sealed", "compacted", "dump", "checkpoint"
"""States of a file. ``active``: it grows; ``sealed``: it never changes, but cleaning may write it anew."""
STATES: Final = (ACTIVE, SEALED, COMPACTED, DUMP, CHECKPOINT)


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that were whole once."""

    file: str
    offset: int
    end: int
    reason: str


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a log. What is not known is null: never a guess."""

    file: str
    state: str
    """active, sealed, compacted, dump or checkpoint."""
    bytes: int
    stream: str = ""
    """Which log of the folder it belongs to, where there are several: a channel of the store."""
    first_ns: int | None = None
    """Time of its first record."""
    last_ns: int | None = None
    """Time of its newest record."""
    records: int | None = None
    live_bytes: int | None = None
    """Of records that are still needed. Live, dead and pinned together are ``bytes``."""
    dead_bytes: int | None = None
    """They go at the next cleaning; of a topic, when nothing else in their file is alive."""
    pinned_bytes: int | None = None
    """They would go, but somebody keeps them."""
    pinned_by: list[str] = []
    """Who: names of holders."""
    note: str = ""
    damage: list[Damage] = []


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody for whom files stay."""

    name: str
    kind: str
    """consumer (reads the log from outside), group (of a topic), history (reads as of an earlier time)."""
    files: int
    bytes: int
    """Of the files that it has yet to read, or that are kept for it."""
    oldest_file: str
    position_ns: int | None = None
    """It has read up to here."""
    until_ns: int | None = None
    """When it stops holding; null: never, or that is not known."""
    advice: str = ""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Something that takes long: what it is, how far, and how it ended."""

    id: str
    log: str
    action: str
    """clean, compact, verify or measure."""
    by: str
    started_ns: int
    ended_ns: int | None = None
    percent: float | None = None
    """Null: how far it is cannot be told."""
    outcome: str = "running"
    """running, done, stopped, or the code of the error."""
    told: str = ""
    can_stop: bool = False
    damage: list[Damage] = []


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of all files of a log, by what they are."""

    live: int = 0
    dead: int = 0
    pinned: int = 0
    active: int = 0
    unknown: int = 0
    """Of sealed files of which it was not found out."""

    @property
    def all(self) -> int:
        return self.live + self.dead + self.pinned + self.active + self.unknown


class LogRow(msgspec.Struct, frozen=True, kw_only=True):
    """One log, in a list of them."""

    name: str
    """Such as ``jobs``, ``topics/orders``, ``groups/orders``, ``logs/lamina.audit``."""
    kind: str
    bytes: int
    """Of its files."""
    other_bytes: int
    """Of what stands beside them: indexes, room kept for a full disk, positions of consumers."""
    files: int
    newest_ns: int | None = None
    """When it was last written to."""
    pieces: list[int] = []
    """Sizes of its files, the oldest first; many are told together."""
    active_bytes: int = 0
    """Of the newest piece: the part that grows."""
    totals: Totals | None = None
    """Where it was found out lately."""


class LogPage(Gives, frozen=True, kw_only=True):
    """Logs, the largest first."""

    logs: list[LogRow]
    count: int
    """That fit the question, of those looked at."""
    bytes: int
    """Of all of these."""
    largest_bytes: int
    """Of any log of the server that may be seen: what they are drawn by."""
    looked_ns: int | None
    """When sizes were last looked at."""
    is_complete: bool
    """False: some are being looked at for the first time."""
    next: str = ""
    """Ask with this for the next page; empty: there is no more."""


class LogFacts(Gives, frozen=True, kw_only=True):
    """One log."""

    name: str
    kind: str
    bytes: int
    """Of all its files."""
    other_bytes: int
    others: list[str]
    """What stands beside them."""
    segments: list[Segment]
    """The newest first."""
    segment_count: int
    totals: Totals
    holders: list[Holder]
    answer: str
    """Why it is as large as it is, in a sentence; empty: nothing to say."""
    measured_ns: int | None
    """When live and dead bytes were found out; null: not yet."""
    is_measuring: bool
    is_partial: bool
    """Some files were left out, for the log is large: the action ``measure`` looks at all."""
    can: list[str]
    """Actions that there are for this log."""
    works: list[Work]
    """The newest first: what goes on, and how what went on ended."""
    damage: list[Damage]
    """Found by the last time it was verified."""
    next: str = ""


def totals_of(segments: list[Segment]) -> Totals:
    """Of all files together."""
    live = dead = pinned = active = unknown = 0
    for one in segments:
        if one.state == ACTIVE:
            active += one.bytes
        elif one.live_bytes is None or one.dead_bytes is None or one.pinned_bytes is None:
            unknown += one.bytes
        else:
            live, dead, pinned = live + one.live_bytes, dead + one.dead_bytes, pinned + one.pinned_bytes
    return Totals(live=live, dead=dead, pinned=pinned, active=active, unknown=unknown)
