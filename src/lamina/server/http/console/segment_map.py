"""The segment map: a log as a core drilled out of sediment, the newest layer on top, drawn to scale.

Each layer is a file, as thick as it has bytes. From left to right it shows what of it is alive, dead, and pinned, so
that an area is bytes, too. Brackets beside the core say for whom layers stay; where a file is damaged, a red line shows
the place. Files too thin to see are drawn together, never thicker than they are.

Colours are classes (style.css), and each has a texture of its own: it can be read without colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup

from lamina.server.http.console.segment_layers import KINDS as KINDS
from lamina.server.http.console.segment_layers import THINNEST as THINNEST
from lamina.server.http.console.segment_layers import Layer as Layer
from lamina.server.http.console.segment_layers import layers as layers
from lamina.server.http.console.segment_layers import lines as lines
from lamina.server.http.console.segment_paint import fill
from lamina.server.http.console.segment_paint import patterns as patterns
from lamina.server.http.console.segment_paint import strip as strip
from lamina.server.http.console.segment_paint import swatch as swatch
from lamina.server.http.ops.logs_model import ACTIVE, Holder, Segment
from lamina.units import show_bytes

MOST_HOLDERS: Final = 6
"""That have a bracket."""
_ROW: Final = 17.0  # between two labels
_DAY_NS: Final = 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class Size:
    """Of a picture; all in its own units, which are pixels where it is not scaled."""

    width: int
    core_at: int
    core: int
    """Width of the core."""
    height: int
    """Of the core."""
    is_wide: bool


WIDE: Final = Size(1040, 82, 440, 440, True)
NARROW: Final = Size(360, 62, 118, 440, False)
_HEAD: Final = 26  # above the core
_FOOT: Final = 22  # below it


# -- the core --------------------------------------------------------------------------------------------------------


def core(
    segments: Sequence[Segment], holders: Sequence[Holder], size: Size, key: str, label: str, top: str = "newest"
) -> Markup:
    """The picture of one log, with what is ``top`` first. ``key`` tells its patterns from those of others."""
    drawn = layers(segments, size.height)
    brackets = _brackets(drawn, holders)
    right = size.core_at + size.core
    labels_at = right + 16 + 15 * len(brackets)
    shows_day = _is_long(segments)
    parts = [
        Markup('<svg class="core {kind}" viewBox="0 0 {width} {height}" role="group" aria-label="{label}">').format(
            kind="core-wide" if size.is_wide else "core-narrow",
            width=size.width,
            height=size.height + _HEAD + _FOOT,
            label=label,
        ),
        patterns(key),
        _heads(size, labels_at, top),
        Markup('<g transform="translate(0 {head})">').format(head=_HEAD),
        _axis(sum(one.bytes for one in segments), size),
        *(_leader(layer, y, right, labels_at) for layer, y in _placed(drawn, size.height)),
        *(_drawn(layer, size, key, at) for at, layer in enumerate(drawn)),
        *(_bracket(top, bottom, right + 14 + 15 * at, letter(at)) for at, (top, bottom) in enumerate(brackets)),
        *(_label(layer, y, labels_at, size, shows_day) for layer, y in _placed(drawn, size.height)),
        Markup("</g></svg>"),
    ]
    return Markup("").join(parts)


def letter(at: int) -> str:
    """Which a bracket and its holder share."""
    return chr(ord("A") + at)


def _drawn(layer: Layer, size: Size, key: str, at: int) -> Markup:
    x, total = float(size.core_at), layer.bytes
    pieces = []
    for kind in KINDS:
        share = layer.shares.get(kind, 0)
        if share:
            width = size.core * share / total
            pieces.append(
                Markup('<rect x="{x:.2f}" y="{y:.2f}" width="{w:.2f}" height="{h:.2f}" {fill}/>').format(
                    x=x, y=layer.top, w=width, h=layer.height, fill=fill(kind, key)
                )
            )
            x += width
    edge = "m-grows" if layer.segments[0].state == ACTIVE else "m-edge"
    pieces.append(
        Markup('<path d="M{x} {y:.2f}h{w}" class="{edge}"/>').format(
            x=size.core_at, y=layer.top, w=size.core, edge=edge
        )
    )
    pieces += _scars(layer, size)
    facts = "\n".join(lines(layer))
    return Markup(
        '<g class="segment" tabindex="{tab}" role="img" aria-label="{facts}" data-file="{file}">{pieces}'
        '<rect x="{x}" y="{y:.2f}" width="{w}" height="{h:.2f}" class="m-touch"/></g>'
    ).format(
        tab=0 if at == 0 else -1,
        facts=facts,
        file=layer.segments[0].file,
        pieces=Markup("").join(pieces),
        x=size.core_at,
        y=layer.top,
        w=size.core,
        h=max(layer.height, 1.0),
    )


def _scars(layer: Layer, size: Size) -> Iterable[Markup]:
    """Where a file is damaged; its beginning is at the bottom."""
    below = layer.bottom
    for one in reversed(layer.segments):
        height = layer.height * one.bytes / layer.bytes if layer.bytes else 0.0
        for bad in one.damage:
            y = below - height * min(bad.offset, one.bytes) / max(one.bytes, 1)
            yield Markup(
                '<path d="M{left} {y:.2f}h{w}" class="m-damage"/>'
                '<path d="M{left} {y:.2f}l-7 -4.5v9z" class="m-damage-mark"/>'
            ).format(left=size.core_at, y=y, w=size.core)
        below -= height


# -- beside the core -------------------------------------------------------------------------------------------------


def _heads(size: Size, labels_at: int, top: str) -> Markup:
    made = Markup('<text x="{at}" y="14" text-anchor="end" class="m-head">depth</text>').format(at=size.core_at - 9)
    made += Markup('<text x="{at}" y="14" class="m-head">{top}</text>').format(at=size.core_at, top=top)
    made += Markup('<text x="{at}" y="{y}" class="m-head">{below}</text>').format(
        at=size.core_at, y=_HEAD + size.height + 14, below={"newest": "oldest", "largest": "smallest"}[top]
    )
    columns = [(labels_at + 64, "size", "end"), (labels_at + 74, "until", "start")]
    if size.is_wide:
        columns = [
            (labels_at, "file", "start"),
            (labels_at + 296, "size", "end"),
            (labels_at + 312, "written", "start"),
        ]
    for x, text, anchor in columns:
        made += Markup('<text x="{x}" y="14" text-anchor="{anchor}" class="m-head">{text}</text>').format(
            x=x, text=text, anchor=anchor
        )
    return made


def _axis(total: int, size: Size) -> Markup:
    """Bytes, from the newest down."""
    left = size.core_at - 5
    made = Markup('<path d="M{left} 0v{height}" class="m-axis"/>').format(left=left, height=size.height)
    for tick in ticks(total):
        y = size.height * tick / total
        made += Markup(
            '<path d="M{left} {y:.2f}h-4" class="m-axis"/>'
            '<text x="{at}" y="{text:.2f}" text-anchor="end" class="m-tick">{shown}</text>'
        ).format(left=left, y=y, at=left - 7, text=y + 4, shown=_short(tick))
    return made


def ticks(total: int, most: int = 6) -> list[int]:
    """From 0, in steps that are round in bytes; at most so many and one."""
    if total <= 0:
        return []
    step = 1
    while total / step > most:
        step *= 2
    return list(range(0, total + 1, step))


def _short(count: int) -> str:
    if not count:
        return "0"
    shown = show_bytes(count)
    number, _, unit = shown.partition(" ")
    return f"{number.removesuffix('.0')} {unit}"


def _brackets(drawn: Sequence[Layer], holders: Sequence[Holder]) -> list[tuple[float, float]]:
    """From where to where each holder that has files holds them."""
    return [
        span for holder in held(holders) if (span := _span(drawn, holder)) is not None
    ]  # fmt: skip


def held(holders: Sequence[Holder]) -> list[Holder]:
    """Those that have a bracket, in the order of their letters: who holds most comes first."""
    return sorted((one for one in holders if one.files), key=lambda one: (-one.bytes, one.name))[:MOST_HOLDERS]


def _span(drawn: Sequence[Layer], holder: Holder) -> tuple[float, float] | None:
    if holder.kind == "history":  # it holds old files only
        its = [one for one in drawn if any(holder.name in each.pinned_by for each in one.segments)]
    else:
        its = []
        for layer in drawn:
            its.append(layer)
            if any(each.file == holder.oldest_file for each in layer.segments):
                break
    return (its[0].top, its[-1].bottom) if its else (0.0, 0.0)


def _bracket(top: float, bottom: float, x: float, name: str) -> Markup:
    end = max(bottom - 1.5, top + 3)
    return Markup(
        '<g class="m-bracket"><path d="M{back} {top:.2f}h5V{end:.2f}h-5"/>'
        '<circle cx="{x}" cy="{at:.2f}" r="7.5"/><text x="{x}" y="{text:.2f}" text-anchor="middle">{name}</text></g>'
    ).format(back=x - 5, top=top + 1.5, end=end, x=x, at=(top + end) / 2, text=(top + end) / 2 + 4, name=name)


def _placed(drawn: Sequence[Layer], height: float) -> list[tuple[Layer, float]]:
    """Layers that have a label, and where: beside the layer, or as near as others leave room."""
    most = int(height / _ROW)
    chosen = list(drawn)
    if len(chosen) > most:
        ends = [drawn[0], drawn[-1]]
        tall = sorted((one for one in drawn[1:-1]), key=lambda one: (not _is_marked(one), -one.height))[: most - 2]
        chosen = sorted([*ends, *tall], key=lambda one: one.top)
    places: list[float] = []
    for layer in chosen:
        wanted = min(max(layer.middle, _ROW / 2 - 2), height - 4)
        places.append(max(wanted, places[-1] + _ROW) if places else wanted)
    limit = height - 4
    for at in range(len(places) - 1, -1, -1):
        places[at] = min(places[at], limit)
        limit = places[at] - _ROW
    return list(zip(chosen, places, strict=True))


def _is_marked(layer: Layer) -> bool:
    return any(one.damage for one in layer.segments)


def _leader(layer: Layer, y: float, right: float, labels_at: float) -> Markup:
    return Markup('<path d="M{right} {middle:.2f}h4L{near} {y:.2f}h5" class="m-leader"/>').format(
        right=right, middle=layer.middle, near=labels_at - 11, y=y
    )


def _label(layer: Layer, y: float, x: float, size: Size, shows_day: bool) -> Markup:
    one = layer.segments[0]
    extra = "m-bad" if _is_marked(layer) else ""
    base = round(y + 4, 2)
    if not size.is_wide:
        return Markup(
            '<text x="{size_at}" y="{y}" text-anchor="end" class="m-size {extra}">{shown}</text>'
            '<text x="{until}" y="{y}" class="m-time">{time}</text>'
        ).format(
            size_at=x + 64,
            until=x + 74,
            y=base,
            extra=extra,
            shown=show_bytes(layer.bytes),
            time="now" if one.state == ACTIVE else _clock(layer.last_ns or layer.first_ns, shows_day) or one.state,
        )
    return Markup(
        '<text x="{x}" y="{y}" class="m-file {extra}">{name}</text>'
        '<text x="{size_at}" y="{y}" text-anchor="end" class="m-size">{shown}</text>'
        '<text x="{time_at}" y="{y}" class="m-time">{time}</text>'
    ).format(
        x=x,
        y=base,
        extra=extra,
        name=_cut(layer.name, 36),
        size_at=x + 296,
        shown=show_bytes(layer.bytes),
        time_at=x + 312,
        time=_when(layer, shows_day),
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most - most // 2 - 1) :]}"


def _when(layer: Layer, shows_day: bool) -> str:
    newest = layer.segments[0]
    first = _clock(layer.first_ns, shows_day)
    if newest.state == ACTIVE:
        return f"{first} – now" if first else "now"
    last = _clock(layer.last_ns, shows_day)
    return f"{first} – {last}" if first and last else first or last or newest.state


def _is_long(segments: Sequence[Segment]) -> bool:
    known = [time for one in segments for time in (one.first_ns, one.last_ns) if time]
    return bool(known) and max(known) - min(known) >= _DAY_NS


def _clock(time_ns: int | None, shows_day: bool) -> str:
    if time_ns is None:
        return ""
    moment = datetime.fromtimestamp(time_ns // 10**9, UTC)
    return f"{moment:%m-%d %H:%M}" if shows_day else f"{moment:%H:%M:%S}"
