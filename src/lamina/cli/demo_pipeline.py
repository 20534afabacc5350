"""The pipeline of ``lamina demo``: Spark counts a log while it grows, compacts a store, and a report sums it up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lamina.errors import BadOption, MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lamina.data import Data

LOOKS: Final = 3
KEYS: Final = 500
ROUNDS: Final = 40
_TOPIC: Final = "readings"


def pipeline_part(folder: Path, show: Callable[[str], None]) -> dict[str, object]:
    """What was counted, compacted and reported; or why Spark could not be tried."""
    import lamina
    from lamina.pipeline.starting.session import session

    show("\nSpark reads the files that lamina writes. Starting a session on this machine ...")
    try:
        spark = session("lamina demo", master="local[2]")
    except (MissingExtra, BadOption) as error:
        show(f"  left out: {error}")
        return {"skipped": str(error)}
    try:
        with lamina.open(folder) as data:
            counts = _count_while_it_grows(spark, data, folder, show)
            for number in range(ROUNDS):
                with data.store.session() as changes:
                    for key in range(KEYS):
                        changes.put(1, b"sensor-%d" % key, b"%d" % number)
        compacted = _compact(spark, folder, show)
    finally:
        spark.stop()
    page = folder.parent / "report.html"
    return {"counts": counts, **compacted, "report_bytes": _report(folder, page, show)}


def _count_while_it_grows(spark: SparkSession, data: Data, folder: Path, show: Callable[[str], None]) -> list[int]:
    with _growing(data) as published:
        counts = []
        for _ in range(LOOKS):
            before = published()
            found = spark.read.format("lamina").load(str(folder / "topics" / _TOPIC))
            counts.append(found.count())
            show(
                f"  {counts[-1]:,} messages counted by Spark while the topic grows ({before:,} were in when it looked)"
            )
            assert before <= counts[-1] <= published()
    return counts


@contextmanager
def _growing(data: Data) -> Iterator[Callable[[], int]]:
    """Publish until the end. Gives how many messages are published for sure."""
    is_over = threading.Event()
    done = 0

    def publish() -> None:
        nonlocal done
        topic = data.topic(_TOPIC)
        while not is_over.wait(0.01):
            done += len(topic.publish_many([{"value": str(done + number)} for number in range(200)]))

    data.topic(_TOPIC).publish({"value": "first"})
    done = 1
    publisher = threading.Thread(target=publish, daemon=True)
    publisher.start()
    try:
        yield lambda: done
    finally:
        is_over.set()
        publisher.join()


def _compact(spark: SparkSession, folder: Path, show: Callable[[str], None]) -> dict[str, object]:
    from lamina.pipeline import compact

    report = compact(str(folder), engine="spark", spark=spark).as_dict()
    before, after, live = report["bytes_before"], report["bytes_after"], report["entries_live"]
    show(f"  compacted on Spark: {report['entries_read']:,} entries, {live:,} count; {before:,} bytes become {after:,}")
    return {"entries": report["entries_read"], "live": live, "bytes_before": before, "bytes_after": after}


def _report(folder: Path, page: Path, show: Callable[[str], None]) -> int:
    from lamina.pipeline import report

    report(str(folder), to=str(page), engine="local")
    size = page.stat().st_size
    show(f"  a report of the folder, with plots: {page.name}, {size:,} bytes (lamina demo --keep DIR leaves it)")
    return size
