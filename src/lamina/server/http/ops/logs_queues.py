"""The logs and dumps of the queues: what is loaded at a start, and what is kept beside that, for whom."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from lamina.engines.queues import ids, store_files
from lamina.server.http.ops import logs_pins as pins
from lamina.server.http.ops import logs_segments as files
from lamina.server.http.ops.logs_measure import Measured, Pace, Share
from lamina.server.http.ops.logs_model import ACTIVE, SEALED, Holder, Segment
from lamina.server.http.ops.logs_names import Ref, is_open
from lamina.server.inside import Inside
from lamina.units import show_bytes

HISTORY: Final = "the recent past"
MOST_JOURNALS: Final = 200
"""Queues that are shown, the largest first."""
_MOST_LOOKED: Final = 20_000


def measure(inside: Inside, ref: Ref, pace: Pace) -> Measured:
    """By the names of the files alone. Raises: NotThere, DiskError."""
    engine, upkeep = is_open(inside.queues).engine, is_open(inside.queues_upkeep)
    listed = files.list_files(inside, ref)
    found = Measured()
    plan = store_files.plan([one.file for one in listed.segments])
    needed = set(plan.load_order)
    consumers = pins.holding(ref.folder, engine.clock.now_ns())
    found.holders, held = pins.of(consumers, listed.segments, listed.names)
    kept: list[Segment] = []
    for one in listed.segments:
        if one.file in needed:
            found.notes[one.file] = "loaded at a start; what of it is over shows at the next dump"
            continue
        by = held.get(one.file, ())
        if not by and upkeep.dumper.history.keep_s:
            by = (HISTORY,)
            kept.append(one)
        note = "covered by the dump" if one.state == SEALED else "an older dump"
        found.shares[one.file] = Share(0, 0, one.bytes, by, note) if by else Share(0, one.bytes, 0, (), note)
    if kept:
        found.holders.append(
            Holder(
                name=HISTORY,
                kind="history",
                files=len(kept),
                bytes=sum(one.bytes for one in kept),
                oldest_file=kept[0].file,
                advice=pins.OF_HISTORY,
            )
        )
    logs = [one for one in listed.segments if one.file in needed and one.state != "dump"]
    found.answer = (
        f"a start loads {'a dump and ' if plan.base is not None else ''}{show_bytes(sum(one.bytes for one in logs))} "
        "of logs; the next dump folds them into one file"
    )
    return found


def measure_journals(inside: Inside, ref: Ref, pace: Pace) -> Measured:
    """Folders of queues as if they were files, the largest first; a bounded number of them.

    Queues are told by their handles: names of folders are their ids, which are nobody's business. Raises: Stopped.
    """
    found: list[tuple[int, float, str]] = []
    looked = 0
    for path, below, plain in os.walk(ref.folder):
        pace.step()
        if below or not plain:
            continue
        looked += 1
        if looked > _MOST_LOOKED:
            break
        size, newest = 0, 0.0
        for name in plain:
            with suppress(OSError):  # it is gone since
                stat = os.stat(os.path.join(path, name), follow_symlinks=False)
                size, newest = size + stat.st_size, max(newest, stat.st_mtime)
        rid = ids.parse("".join(os.path.relpath(path, ref.folder).split(os.sep)).encode("utf-8", "replace"))
        if rid is not None:
            found.append((size, newest, ids.handle(rid)))
    found.sort(reverse=True)
    rows = [
        Segment(file=f"queue {handle}", state=ACTIVE, bytes=size, last_ns=int(newest * 1e9))
        for size, newest, handle in found[:MOST_JOURNALS]
    ]
    is_cut = looked > _MOST_LOOKED
    count = f"at least {len(found)}" if is_cut else str(len(found))
    return Measured(
        rows=rows,
        bytes=sum(one[0] for one in found),
        is_partial=is_cut or len(found) > MOST_JOURNALS,
        answer=f"{count} queues have a folder; the largest {len(rows)} of them are shown",
    )
