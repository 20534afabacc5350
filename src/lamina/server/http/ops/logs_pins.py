"""Who keeps files of a log from going: consumers that read it from outside (log/consumers.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from lamina.log import consumers
from lamina.log.consumer_file import NEVER, Consumer
from lamina.log.naming import FileName
from lamina.server.http.ops.logs_model import ACTIVE, CHECKPOINT, COMPACTED, DUMP, Holder, Segment
from lamina.server.http.ops.logs_segments import FILES

OF_HISTORY: Final = "it shows what was until lately, and goes when that is longer ago than history_s, or room is short"


def holding(folder: str, now_ns: int) -> list[Consumer]:
    """Those whose positions count now. Raises: DiskError."""
    return consumers.holding(FILES, folder, now_ns)


def holds(one: Consumer, segment: Segment, name: FileName | None) -> bool:
    """It has yet to read records of the file. One whose newest record is not known may have such."""
    if name is None or segment.state in (CHECKPOINT, COMPACTED, DUMP):
        return False
    return segment.last_ns is None or segment.last_ns > one.position_in(name.stream)


def of(
    holding: Sequence[Consumer], segments: Sequence[Segment], names: Mapping[str, FileName]
) -> tuple[list[Holder], dict[str, tuple[str, ...]]]:
    """Who holds what, and by file who holds it. ``segments``: the oldest first. The file that grows is held by all."""
    told: list[Holder] = []
    by_file: dict[str, tuple[str, ...]] = {}
    for one in holding:
        held = [segment for segment in segments if holds(one, segment, names.get(segment.file))]
        for segment in held:
            by_file[segment.file] = (*by_file.get(segment.file, ()), one.name)
        told.append(
            Holder(
                name=one.name,
                kind="consumer",
                files=len(held),
                bytes=sum(segment.bytes for segment in held),
                oldest_file=held[0].file if held else "",
                position_ns=None if one.damage else max([one.position, *one.streams.values()]) or None,
                until_ns=None if one.expires_ns == NEVER else one.expires_ns,
                advice=_advice(one, held),
            )
        )
    return told, by_file


def _advice(one: Consumer, held: Collection[Segment]) -> str:
    if one.damage is not None:
        return f"its position cannot be read ({one.damage}): everything is kept for it"
    if not any(segment.state != ACTIVE for segment in held):
        return "it has read all sealed files"
    return "let it read on; or remove it with lamina log consumers, if it is not needed"
