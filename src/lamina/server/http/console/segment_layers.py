"""The layers of a segment map: files as thick as they have bytes, and what is told of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from lamina.server.http.ops.logs_model import ACTIVE, Segment
from lamina.units import show_bytes

THINNEST: Final = 2.0
"""Of a layer, in the units of the picture: thinner ones are drawn with their neighbours."""


@dataclass(slots=True)
class Layer:
    """One file, or neighbours that are too thin to be seen alone."""

    segments: list[Segment]
    top: float = 0.0
    height: float = 0.0
    shares: dict[str, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.segments)

    @property
    def first_ns(self) -> int | None:
        return min((one.first_ns for one in self.segments if one.first_ns is not None), default=None)

    @property
    def last_ns(self) -> int | None:
        return max((one.last_ns for one in self.segments if one.last_ns is not None), default=None)

    @property
    def name(self) -> str:
        """Of its file; of the largest, where it is nearly all there is."""
        one, more = max(self.segments, key=lambda each: each.bytes), len(self.segments) - 1
        if more and one.bytes < 0.9 * self.bytes:
            return f"{more + 1} files up to {self.segments[0].file}"
        return f"{one.file} +{more}" if more else one.file

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def middle(self) -> float:
        return self.top + self.height / 2


KINDS: Final = ("live", "dead", "pinned", "active", "unknown")


def share_of(one: Segment) -> dict[str, int]:
    """Bytes of a file by what they are."""
    if one.state == ACTIVE:
        return {"active": one.bytes}
    if one.live_bytes is None or one.dead_bytes is None or one.pinned_bytes is None:
        return {"unknown": one.bytes}
    return {"live": one.live_bytes, "dead": one.dead_bytes, "pinned": one.pinned_bytes}


def layers(segments: Sequence[Segment], height: float) -> list[Layer]:
    """``segments``, the newest first, from the top. Together they are exactly as high as the core."""
    total = sum(one.bytes for one in segments)
    if not total:
        return []
    made: list[Layer] = []
    for one in segments:
        before = made[-1] if made else None
        is_thin = before is not None and before.height < THINNEST
        if before is not None and is_thin and (before.segments[-1].state == ACTIVE) == (one.state == ACTIVE):
            before.segments.append(one)
        else:
            before = Layer([one])
            made.append(before)
        before.height = before.bytes * height / total
    if len(made) > 1 and made[-1].height < THINNEST and made[-2].segments[-1].state != ACTIVE:
        last = made.pop()
        made[-1].segments += last.segments
        made[-1].height += last.height
    top = 0.0
    for layer in made:
        layer.top = top
        top += layer.height
        for one in layer.segments:
            for kind, size in share_of(one).items():
                layer.shares[kind] = layer.shares.get(kind, 0) + size
    return made


def lines(layer: Layer) -> list[str]:
    """What is told of a layer: by its card, and to who does not see it."""
    one, last = layer.segments[0], layer.segments[-1]
    if len(layer.segments) == 1:
        told = [one.file, f"{one.state}, {show_bytes(one.bytes)}"]
        if one.records is not None:
            told.append(f"{one.records:,} records".replace(",", "\u202f"))
    else:
        told = [f"{len(layer.segments)} files, {show_bytes(layer.bytes)}", f"{last.file} to {one.file}"]
    first_ns, last_ns = layer.first_ns, layer.last_ns
    if first_ns is not None or last_ns is not None:
        told.append(f"written {_moment(first_ns)} to {_moment(last_ns)}")
    words = {"live": "live", "dead": "dead", "pinned": "pinned", "unknown": "not known what of it is alive"}
    for kind, word in words.items():
        share = layer.shares.get(kind, 0)
        if share:
            told.append(f"{word}: {show_bytes(share)}" if kind != "unknown" else word)
    by = sorted({name for each in layer.segments for name in each.pinned_by})
    if by:
        told.append(f"pinned by {', '.join(by[:8])}{' and others' if len(by) > 8 else ''}")
    if len(layer.segments) == 1 and one.note:
        told.append(one.note)
    told += [f"damage at byte {bad.offset}: {bad.reason}" for each in layer.segments for bad in each.damage[:3]]
    return told


def _moment(time_ns: int | None) -> str:
    if time_ns is None:
        return "?"
    return f"{datetime.fromtimestamp(time_ns // 10**9, UTC):%Y-%m-%d %H:%M:%S} UTC"
