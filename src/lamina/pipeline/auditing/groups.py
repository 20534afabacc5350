"""The groups of a topic: what is acknowledged was delivered before, and snapshots are whole.

The engine's own loader is what each record is held against, before it takes it. A log whose oldest files went when the
groups were written anew begins in the middle of a story: there, nothing counts before the first whole snapshot.
"""

from __future__ import annotations

from lamina.engines.topics import group_codec as codec
from lamina.engines.topics import ids
from lamina.engines.topics.codec import BadRecord, Items
from lamina.engines.topics.group_snapshot import Loader
from lamina.pipeline.auditing.findings import GROUP_ACKS, GROUP_STORY, MEANING, Findings
from lamina.pipeline.auditing.walking import Record, Walk


def audit(findings: Findings, walk: Walk) -> None:
    """Raises: DiskError."""
    loader = Loader()
    rows = 0
    waiting: Record | None = None
    """The first record of a story whose beginning is gone."""
    for record in walk.records_of():
        rows += 1
        is_known = walk.trace.is_whole or loader.snapshot_bytes > 0
        if is_known:
            _look(walk, loader, record)
        loader.take(record.payload, (record.file, record.position))
        problem, loader.problem = loader.problem, None
        if problem is not None:
            if is_known:
                name = MEANING if "unknown kind" in str(problem[0]) else GROUP_STORY
                walk.bad(name, record, str(problem[0]))
            else:
                waiting = waiting or record
        if walk.trace.lost and loader.snapshot_bytes:
            loader.snapshot_bytes = 0  # until the next one it is not known what was lost
    if waiting is not None and not loader.snapshot_bytes and not walk.trace.lost:
        walk.bad(GROUP_STORY, waiting, "it is of a group that is not there, and no snapshot follows")
    for name in (MEANING, GROUP_ACKS, GROUP_STORY):
        findings.looked(name, rows)


def _look(walk: Walk, loader: Loader, record: Record) -> None:
    try:
        items = Items(record.payload)
        if items.number() != codec.ACKED:
            return
        group = loader.state.groups.get(items.bytes())
        acked = codec.take_ids(items)
    except BadRecord:
        return  # the loader tells it
    if group is None:
        return
    for place, id in enumerate(acked):
        if id not in group.pending or id in acked[:place]:
            name = group.name.decode("utf-8", "backslashreplace")
            walk.bad(
                GROUP_ACKS, record, f"{ids.show(id).decode()} is acknowledged, and was not pending in group {name}"
            )
