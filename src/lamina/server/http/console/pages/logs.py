"""Pages of logs: all of them to one scale, and one as a core with its layers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import msgspec

from lamina.server.http.console import segment_map as maps
from lamina.server.http.console.page import Page
from lamina.server.http.operations import Place
from lamina.server.http.ops import logs
from lamina.server.http.ops import logs_names as names
from lamina.server.http.ops.logs_model import LogFacts, LogPage

_ROWS: Final = 200
"""Files in the table; all of them are in the picture."""
_DRAWN: Final = 10_000
_KEY: Final = "map"


async def _list(place: Place, asked: logs.ListAsks) -> Mapping[str, object]:
    found = await logs.LIST.do(place, asked)
    return await place.in_thread(_drawn_list, found)


def _drawn_list(found: LogPage) -> Mapping[str, object]:
    return {
        "found": found,
        "patterns": maps.patterns(_KEY),
        "strips": {row.name: maps.strip(row, found.largest_bytes, _KEY) for row in found.logs},
        "swatches": {kind: maps.swatch(kind, _KEY) for kind in maps.KINDS},
        "age_s": _age_s(found.looked_ns),
    }


async def _one(place: Place, asked: logs.OneAsks) -> Mapping[str, object]:
    whole = msgspec.structs.replace(asked, limit=_DRAWN, after="")
    found = await logs.ONE.do(place, whole)
    return await place.in_thread(_drawn_one, place, asked, found)


def _drawn_one(place: Place, asked: logs.OneAsks, found: LogFacts) -> Mapping[str, object]:
    top = "largest" if found.kind == names.JOURNALS else "newest"
    label = f"{found.name}: {found.segment_count} files, the {top} on top"
    start = next((at + 1 for at, one in enumerate(found.segments) if one.file == asked.after), 0) if asked.after else 0
    rows = found.segments[start : start + _ROWS]
    return {
        "found": found,
        "caption": _caption(found.kind, top),
        "rows": rows,
        "next": rows[-1].file if start + _ROWS < len(found.segments) else found.next,
        "wide": maps.core(found.segments, found.holders, maps.WIDE, "wide", label, top),
        "narrow": maps.core(found.segments, found.holders, maps.NARROW, "narrow", label, top),
        "patterns": maps.patterns(_KEY),
        "swatches": {kind: maps.swatch(kind, _KEY) for kind in maps.KINDS},
        "holders": [(maps.letter(at), one) for at, one in enumerate(maps.held(found.holders))],
        "others_hold": [one for one in found.holders if one not in maps.held(found.holders)],
        "age_s": _age_s(found.measured_ns),
        "running": [work for work in found.works if work.ended_ns is None],
        "ended": [work for work in found.works if work.ended_ns is not None],
        "may_act": names.find(place, asked.name).may(place, "admin"),
    }


def _caption(kind: str, top: str) -> str:
    each = "queue" if kind == names.JOURNALS else "file"
    return f"The log to scale: each layer is a {each}, as high as it is large, the {top} on top;"


def _age_s(then_ns: int | None) -> float | None:
    """Whole seconds: what is rendered anew each moment must not differ each moment."""
    return None if then_ns is None else float(max(time.time_ns() - then_ns, 0) // 10**9)


PAGES: Final[tuple[Page, ...]] = (
    Page(path="/log", section="log", template="log/list.html", asks=logs.ListAsks, shows=_list, right=logs.READ),
    Page(path="/log/one", section="log", template="log/one.html", asks=logs.OneAsks, shows=_one, right=logs.READ),
)
