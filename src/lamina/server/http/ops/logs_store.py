"""The files of the store: parts, rotated files that are in them already, and what is kept for reads as of earlier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lamina.engines.store import catalog as catalogs
from lamina.engines.store import cleaning
from lamina.server.http.ops import logs_pins as pins
from lamina.server.http.ops import logs_segments as files
from lamina.server.http.ops.logs_measure import Measured, Pace, Share
from lamina.server.http.ops.logs_model import ACTIVE, COMPACTED, Holder, Segment
from lamina.server.http.ops.logs_names import Ref, is_open
from lamina.server.inside import Inside
from lamina.units import show_bytes

if TYPE_CHECKING:
    from lamina.engines.store.api import Store

EARLIER: Final = "reads as of an earlier time"
_UNDER_WAY: Final = "a compaction that is not done"
_NEWEST: Final = "the newest epoch file, which always stays"


def goes(store: Store) -> dict[str, int]:
    """What a clean-up would remove now, and how many bytes it has. Raises: DiskError, Corruption."""
    engine = store.engine
    return dict(
        cleaning.obsolete(
            engine.files,
            engine.folder,
            engine.catalog,
            keep=engine.runs,
            history=store.compactions.history,
            now_ns=engine.clock.now_ns(),
        )
    )


def measure(inside: Inside, ref: Ref, pace: Pace) -> Measured:
    """By the catalog. Raises: NotThere, Corruption, DiskError."""
    store = is_open(inside.find_store())
    engine = store.engine
    listed = files.list_files(inside, ref)
    found = Measured()
    catalog = engine.catalog
    parts = {part.name: part for part in catalog.parts}
    merged, going = set(catalog.merged), goes(store)
    consumers = pins.holding(ref.folder, engine.clock.now_ns())
    found.holders, held = pins.of(consumers, listed.segments, listed.names)
    under_way = cleaning.in_progress(engine.files, engine.folder)
    earlier: list[Segment] = []
    for one in listed.segments:
        if one.file in going:
            found.shares[one.file] = Share(0, one.bytes, 0, (), "in the compacted files now")
        elif one.file in parts:
            found.notes[one.file] = f"{parts[one.file].entries} entries, by key; what is over shows at a compaction"
        elif one.state == ACTIVE:
            continue
        elif one.state == COMPACTED or one.file in merged or _is_old_epoch_file(one.file, catalog.epoch):
            by = _keeps(one, held.get(one.file, ()), under_way)
            if by == (EARLIER,):
                earlier.append(one)
            found.shares[one.file] = Share(0, 0, one.bytes, by, "in the compacted files now")
        else:
            found.notes[one.file] = "not compacted yet"
    if earlier:
        size = sum(one.bytes for one in earlier)
        found.holders.append(
            Holder(name=EARLIER, kind="history", files=len(earlier), bytes=size, oldest_file=earlier[0].file,
                   advice=pins.OF_HISTORY)
        )  # fmt: skip
    logged = sum(one.bytes for one in listed.segments if one.file in found.notes and one.file not in parts)
    dead = sum(going.values())
    found.answer = (
        f"cleaning would free {show_bytes(dead)}; " if dead else ""
    ) + f"compacting would take {show_bytes(logged)} of rotated files, and what is being written, into sorted ones"
    return found


def _is_old_epoch_file(name: str, epoch: int) -> bool:
    rotated = catalogs.rotated_epoch(name)
    return rotated is not None and not catalogs.is_rotated_pwal(name) and rotated <= epoch


def _keeps(one: Segment, held: tuple[str, ...], under_way: set[str]) -> tuple[str, ...]:
    if one.file in under_way:
        return (_UNDER_WAY,)
    if held:
        return held
    return (_NEWEST,) if one.file.startswith("epoch.") else (EARLIER,)
