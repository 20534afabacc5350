"""The pipeline of ``lamina demo``: Spark counts what the server wrote, where it wrote it; a page sums it up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lamina.cli.load import NAME
from lamina.errors import BadOption, MissingExtra


def pipeline_part(data: Path, say: Callable[[str], None]) -> dict[str, object]:
    """What Spark counted; or why it could not be tried."""
    say("   Starting a session on this machine (no cluster, no connector, no copy) ...")
    try:
        from lamina.pipeline.starting.session import session

        spark = session("lamina demo", master="local[2]")
    except (MissingExtra, BadOption) as error:
        say(f"   left out: {error}")
        return {"skipped": str(error)}
    try:
        orders = spark.read.format("lamina").load(str(data / "topics" / NAME))
        messages = orders.count()
        by_event = spark.read.format("lamina").load(str(data / "jobs")).groupBy("kind").count().collect()
        events = {str(row["kind"]): int(row["count"]) for row in by_event}
    finally:
        spark.stop()
    shown = ", ".join(f"{count:,} {event}" for event, count in sorted(events.items(), key=lambda pair: -pair[1]))
    say(f"   {messages:,} messages of the topic {NAME!r}; events of jobs: {shown}.")
    return {"messages": messages, "events": events}


def report_part(data: Path, page: Path, say: Callable[[str], None]) -> dict[str, object]:
    """A page about the folder."""
    try:
        from lamina.pipeline import report

        made = report(str(data), to=str(page), engine="local")
    except MissingExtra as error:
        say(f"   no page: {error}")
        return {"skipped": str(error)}
    say(f"   {made.records:,} records of {made.logs} logs on one page with plots, {made.bytes:,} bytes.")
    return {"bytes": made.bytes, "records": made.records}
