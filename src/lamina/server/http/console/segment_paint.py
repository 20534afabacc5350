"""What segment maps are painted with: a colour and a texture for each kind of bytes; and a log as a bar in a list."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from lamina.server.http.ops.logs_model import LogRow
from lamina.units import show_bytes


def patterns(key: str) -> Markup:
    """Textures: dots for what is dead, as sand is drawn; stripes for what is pinned; rules for what grows."""
    return Markup(
        "<defs>"
        '<pattern id="{key}-dead" width="7" height="7" patternUnits="userSpaceOnUse">'
        '<rect width="7" height="7" class="m-dead"/><circle cx="1.6" cy="1.8" r=".75" class="m-grain"/>'
        '<circle cx="5.1" cy="5" r=".75" class="m-grain"/></pattern>'
        '<pattern id="{key}-pinned" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<rect width="7" height="7" class="m-pinned"/><rect width="2.4" height="7" class="m-stripe"/></pattern>'
        '<pattern id="{key}-active" width="6" height="4" patternUnits="userSpaceOnUse">'
        '<rect width="6" height="4" class="m-active"/><rect width="6" height=".8" class="m-rule"/></pattern>'
        '<pattern id="{key}-unknown" width="6" height="6" patternUnits="userSpaceOnUse">'
        '<rect width="6" height="6" class="m-unknown"/><path d="M0 6 6 0" class="m-thread"/></pattern>'
        "</defs>"
    ).format(key=key)


def fill(kind: str, key: str) -> Markup:
    """The attribute that paints a shape so."""
    if kind == "live":
        return Markup('class="m-live"')
    return Markup('fill="url(#{key}-{kind})"').format(key=key, kind=kind)


# -- in a list -------------------------------------------------------------------------------------------------------

_STRIP: Final = 1000


def strip(row: LogRow, largest: int, key: str) -> Markup:
    """One log as a bar, to the scale of the largest: by what its bytes are where that is known, else file by file."""
    width = _STRIP * row.bytes / largest if largest else 0.0
    parts = [
        Markup(
            '<svg class="strip" viewBox="0 0 {full} 16" preserveAspectRatio="none" role="img" aria-label="{label}">'
        ).format(full=_STRIP, label=f"{row.name}: {show_bytes(row.bytes)} in {row.files} files"),
    ]
    if row.totals is not None and row.totals.all:
        x = 0.0
        for kind in ("dead", "pinned", "live", "unknown", "active"):
            share = width * getattr(row.totals, kind) / row.totals.all
            parts.append(_bar(x, share, kind, key))
            x += share
    else:
        active = width * row.active_bytes / row.bytes if row.bytes else 0.0
        parts += [_bar(0.0, width - active, "unknown", key), _bar(width - active, active, "active", key)]
        x, total = 0.0, sum(row.pieces) or 1
        for piece in row.pieces[:-1]:
            x += width * piece / total
            if width * piece / total > 3:
                parts.append(Markup('<path d="M{x:.2f} 0v16" class="m-edge"/>').format(x=x))
    if 0 < width < 2:
        parts.append(Markup('<rect width="2" height="16" class="m-hint"/>'))
    return Markup("").join([*parts, Markup("</svg>")])


def _bar(x: float, width: float, kind: str, key: str) -> Markup:
    if width <= 0:
        return Markup("")
    return Markup('<rect x="{x:.2f}" width="{w:.2f}" height="16" {fill}/>').format(x=x, w=width, fill=fill(kind, key))


def swatch(kind: str, key: str) -> Markup:
    """For the legend."""
    return Markup(
        '<svg class="swatch" viewBox="0 0 22 14" aria-hidden="true"><rect width="22" height="14" rx="2" {fill}/></svg>'
    ).format(fill=fill(kind, key))
