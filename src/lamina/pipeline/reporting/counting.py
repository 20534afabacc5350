"""Counting what needs no memory of what was before: records of topics, groups, the store and plain logs.

Arrow does the work, a batch at a time: it is as fast as the batches are read.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lamina.pipeline.reporting.tally import Tally

TOPIC: Final = ("time_ns", "kind", "size", "topic")
GROUPS: Final = ("time_ns", "kind", "size", "topic", "group", "ids")
STORE: Final = ("time_ns", "kind", "size", "storage", "epoch")
PLAIN: Final = ("time_ns", "size", "log")
GROUP_STATE: Final = ("topic", "group", "consumers", "lag", "pending")
BETWEEN: Final = " \N{MIDDLE DOT} "
"""Between the name of a topic and that of its group."""

_TOPIC: Final = {"entry": "topics.published", "deleted": "topics.gone", "trimmed": "topics.trimmed"}
_GROUPS: Final = {"delivered": "groups.delivered", "acked": "groups.acked", "claimed": "groups.claimed"}
_STORE: Final = {"put": "store.puts", "remove": "store.removes", "clear": "store.cleared"}


def count_log(tally: Tally, batch: pa.RecordBatch, path: str) -> None:
    """Records, bytes and times of a log."""
    times = pc.min_max(batch.column("time_ns"))
    size: int = pc.sum(batch.column("size")).as_py() or 0
    tally.log(path).add(batch.num_rows, size, times["min"].as_py(), times["max"].as_py())


def count_topic(tally: Tally, batch: pa.RecordBatch) -> None:
    """A batch is of one topic."""
    topic: str = batch.column("topic")[0].as_py()
    for bucket, kind, records, size in _by(tally, batch, ["kind"], [("size", "count"), ("size", "sum")]):
        if kind not in _TOPIC:
            continue
        tally.count(_TOPIC[kind], bucket, records)
        if kind == "entry":
            tally.count("topics.bytes", bucket, size)
            tally.name("topics.published", topic, records)
            tally.name("topics.bytes", topic, size)


def count_groups(tally: Tally, batch: pa.RecordBatch) -> None:
    """A batch is of the groups of one topic."""
    topic: str = batch.column("topic")[0].as_py()
    ids = pc.fill_null(pc.list_value_length(batch.column("ids")), 0).cast(pa.int64())
    counted = batch.append_column("count", ids)
    for bucket, kind, group, entries in _by(tally, counted, ["kind", "group"], [("count", "sum")]):
        if kind in _GROUPS and entries:
            tally.count(_GROUPS[kind], bucket, entries)
            tally.name(_GROUPS[kind], f"{topic}{BETWEEN}{group}", entries)


def count_group_state(tally: Tally, batch: pa.RecordBatch) -> None:
    for row in batch.select(GROUP_STATE).to_pylist():
        name = f"{row['topic']}{BETWEEN}{row['group']}"
        for measure in ("consumers", "lag", "pending"):
            if row[measure] is not None:
                tally.name(f"groups.{measure}", name, row[measure])


def count_store(tally: Tally, batch: pa.RecordBatch) -> None:
    measures = [("size", "count"), ("size", "sum"), ("epoch", "max"), ("epoch", "min")]
    for bucket, kind, storage, records, size, epoch, lowest in _by(tally, batch, ["kind", "storage"], measures):
        tally.count(_STORE.get(kind, "store.other"), bucket, records)
        tally.count("store.bytes", bucket, size)
        tally.name("store.entries", str(storage), records)
        tally.name("store.bytes", str(storage), size)
        if epoch is not None:
            tally.reach("store.epoch", bucket, epoch)
            tally.reach("store.lowest", bucket, -lowest)


def count_plain(tally: Tally, batch: pa.RecordBatch) -> None:
    log: str = batch.column("log")[0].as_py()
    for bucket, records, size in _by(tally, batch, [], [("size", "count"), ("size", "sum")]):
        tally.count("logs.records", bucket, records)
        tally.count("logs.bytes", bucket, size)
        tally.name("logs.records", log, records)


def _by(tally: Tally, batch: pa.RecordBatch, keys: list[str], measures: list[tuple[str, str]]) -> list[tuple[Any, ...]]:
    """Rows of bucket, keys, measures."""
    buckets = pc.divide(batch.column("time_ns"), pa.scalar(tally.width, pa.int64()))
    table = pa.table({"bucket": buckets, **{name: batch.column(name) for name in {*keys, *(m for m, _ in measures)}}})
    grouped = table.group_by(["bucket", *keys], use_threads=False).aggregate(measures)
    names = ["bucket", *keys, *(f"{name}_{measure}" for name, measure in measures)]
    return list(zip(*(grouped.column(name).to_pylist() for name in names), strict=True))
