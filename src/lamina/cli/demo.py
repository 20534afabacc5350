"""``lamina demo``: see it at work in a minute, on real files, with a real crash."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from lamina.cli.render import as_json, err, out, print_json, print_table
from lamina.log import ALWAYS, OS, Level, Log, LogOptions, Reader, Sync, interval, kernel
from lamina.units import show_time

RECORDS: Final = {"always": 300, "interval(50 ms)": 20_000, "os": 20_000}
PAYLOAD: Final = 100

# Runs in a process of its own, acknowledges on standard output, and is killed in the middle of it.
WRITER: Final = """
import sys
from lamina.log import Level, Log
log = Log.open(sys.argv[1])
number = 0
while True:
    log.append(b"order %d" % number, until=Level.SYNCED)
    print(number, flush=True)
    number += 1
"""

Tick = Callable[[int], None]


@click.command()
@click.option(
    "--keep", metavar="DIR", type=click.Path(file_okay=False), help="Keep the files in DIR, to look at them afterwards."
)
@click.option("--spark/--no-spark", "with_spark", default=True, help="Also show Spark at work, if it is installed.")
@as_json
def demo(keep: str | None, with_spark: bool, as_json: bool) -> None:
    """See lamina at work: durability, crashes of a log, of servers and of a subscriber, a look into the past, and Spark
    on the same files.

    Takes less than a minute, writes to a temporary folder, and leaves nothing behind (but see --keep).
    """
    from lamina.cli.demo_jobs import jobs_part
    from lamina.cli.demo_pipeline import pipeline_part
    from lamina.cli.demo_queues import queues_part
    from lamina.cli.demo_topics import topics_part

    folder = Path(keep) if keep else Path(tempfile.mkdtemp(prefix="lamina-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    show = _say if not as_json else (lambda text: None)
    try:
        show(f"The log kernel ({kernel.NAME}), on real files in a temporary folder.\n")
        summary: dict[str, object] = {
            "policies": [_append_under(sync, folder, quiet=as_json) for sync in (ALWAYS, interval(50), OS)],
            "crash": _crash(folder / "orders", show),
            "as_of": _as_of(folder / "orders", show),
            "jobs": jobs_part(folder / "served", show),
            "topics": topics_part(folder / "served", show),
            "queues": queues_part(folder / "served", show),
        }
        if with_spark:
            summary["pipeline"] = pipeline_part(folder / "piped", show)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        print_json(summary)
    else:
        _print_summary(summary)
        if keep:
            _say(f'\nThe files are in {folder}: try "lamina log dump {folder / "orders"}"')
            if (folder / "report.html").exists():
                _say(f"and open {folder / 'report.html'} in a browser;")
            _say(f'and "lamina jobs ls --data {folder / "served"}", "lamina topics ls" or "lamina queues ls" likewise.')


def _say(text: str) -> None:
    out.print(text, markup=False)


def _append_under(sync: Sync, folder: Path, *, quiet: bool) -> dict[str, object]:
    """Append records one by one and wait for each as the policy promises."""
    count = RECORDS[str(sync)]
    with Log.open(str(folder / sync.name), options=LogOptions(sync=sync)) as log:
        started = time.perf_counter()
        with _ticks(f"append, policy {sync}", count, quiet=quiet) as tick:
            for number in range(count):
                log.append(b"x" * PAYLOAD, until=sync.level)
                if number % 100 == 99:
                    tick(100)
        seconds = time.perf_counter() - started
        return {
            "policy": str(sync),
            "records": count,
            "records_per_s": round(count / seconds),
            "syncs": log.stats.syncs,
            "survives": "a power cut" if sync.level is Level.SYNCED else "a killed process",
        }


class _ticks:  # noqa: N801
    """A live bar on a terminal; one plain line when the work is done elsewhere."""

    def __init__(self, what: str, total: int, *, quiet: bool) -> None:
        self._what, self._total, self._quiet = what, total, quiet
        self._bar: object = None

    def __enter__(self) -> Tick:
        if self._quiet or not sys.stderr.isatty():
            return lambda count: None
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn(f"{self._what:32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        bar = Progress(*columns, console=err)
        self._bar = bar
        bar.start()
        task = bar.add_task(self._what, total=self._total)
        return lambda count: bar.advance(task, count)

    def __exit__(self, *problem: object) -> None:
        from rich.progress import Progress

        if isinstance(self._bar, Progress):
            self._bar.stop()
        elif not self._quiet:
            _say(f"{self._what}: {self._total:,} records")


def _crash(folder: Path, show: Callable[[str], None]) -> dict[str, object]:
    """Kill a writer in the middle of its work, tear the end of its file as a power cut may, and open it again."""
    show("\nA process appends orders, each acknowledged once it is synced; we kill it with SIGKILL ...")
    # In a group of its own: Ctrl-C is for us, and we kill it whatever happens.
    command = [sys.executable, "-c", WRITER, str(folder)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0)  # noqa: S603
    assert writer.stdout is not None
    acknowledged = -1
    try:
        for line in writer.stdout:
            acknowledged = int(line)
            if acknowledged >= 200:
                break
    finally:
        writer.kill()
    acknowledged = max([acknowledged, *(int(line) for line in writer.stdout if line.endswith("\n"))])
    writer.wait()
    newest = max(folder.glob("*.log"))
    with newest.open("ab") as file:
        file.write(kernel.encode_many(time.time_ns(), [b"half an order"])[:20])
    show(f"  acknowledged: orders 0 to {acknowledged}; and half a record torn off at the end of {newest.name}")
    started = time.perf_counter()
    with Log.open(str(folder)) as log:
        took_ms = (time.perf_counter() - started) * 1000
        found = [record.payload for record in log.reader.read()]
        warnings = log.report.warnings()
    lost = [number for number in range(acknowledged + 1) if b"order %d" % number not in set(found)]
    show(f"  reopened in {took_ms:.1f} ms; {len(found)} orders found, {len(lost)} acknowledged ones lost")
    for warning in warnings:
        show(f"  {warning}")
    return {"acknowledged": acknowledged + 1, "lost": len(lost), "torn": warnings, "reopened_ms": round(took_ms, 1)}


def _as_of(folder: Path, show: Callable[[str], None]) -> dict[str, object]:
    """Read the log as of a moment in its past."""
    reader = Reader(str(folder))
    records = list(reader.read())
    moment = records[len(records) // 2].time_ns
    started = time.perf_counter()
    first = next(iter(reader.read(since=moment)))
    took_ms = (time.perf_counter() - started) * 1000
    show(f"\nAs of {show_time(moment)} the log goes on with {first.payload.decode()!r} (found in {took_ms:.2f} ms).")
    assert first.time_ns == moment
    return {"time_ns": moment, "first": first.payload.decode(), "found_ms": round(took_ms, 2)}


def _print_summary(summary: dict[str, object]) -> None:
    parts = ("policies", "crash", "jobs", "topics", "queues")
    policies, crash, jobs, topics, queues = (summary[part] for part in parts)
    assert isinstance(policies, list)
    assert isinstance(crash, dict)
    assert isinstance(jobs, dict)
    assert isinstance(topics, dict)
    assert isinstance(queues, dict)
    _say("")
    print_table(
        ["policy", "records ", "records/s ", "syncs ", "an acknowledged record survives"],
        [list(policy.values()) for policy in policies],
    )
    verdict = "nothing acknowledged was lost" if not crash["lost"] else f"{crash['lost']} RECORDS LOST"
    _say(f"\nThe crash: {crash['acknowledged']} orders acknowledged, {verdict}. The torn tail was cut and kept aside.")
    is_right = jobs["finished"] == jobs["jobs"] and not (jobs["lost"] or jobs["twice"] or jobs["undone"])
    verdict = "none was lost, doubled or undone" if is_right else "SOME WERE LOST, DOUBLED OR UNDONE"
    _say(f"The jobs: {jobs['acknowledged']} acknowledged, {verdict}; {jobs['finished']} of {jobs['jobs']} completed.")
    is_right = not (topics["missing"] or topics["undue"])
    verdict = "the subscriber missed none" if is_right else "THE SUBSCRIBER MISSED SOME, OR GOT SOME THAT WERE DONE"
    again = f"{topics['twice']} came twice, not acknowledged when it was killed"
    _say(f"The topic: {topics['published']} messages published, {verdict}; {again}.")
    is_right = not (queues["lost"] or queues["undone"] or queues["disordered"])
    verdict = "none was lost, none came back, all in order" if is_right else "SOME WERE LOST, UNDONE OR OUT OF ORDER"
    _say(f"The queues: {queues['sent']} messages sent, {len(queues['kills'])} kills in the middle of dumps, {verdict}.")
    piped = summary.get("pipeline")
    if isinstance(piped, dict) and "counts" in piped:
        counts = ", ".join(f"{count:,}" for count in piped["counts"])
        live = f"{piped['live']:,} of {piped['entries']:,} entries live after compaction"
        _say(f"Spark: {counts} messages counted as the topic grew; {live}.")
