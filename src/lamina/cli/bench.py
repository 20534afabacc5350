"""``lamina bench``: what this disk and this machine give, in a quarter of a minute; ratios to the bare system calls.

It tells a slow disk from a slow machine before anything is built on either. The benchmarks of the project itself, with
peers and bars, are in its repository (bench/).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click

from lamina.cli.render import as_json, err, out, print_json, print_table

_SECONDS: Final = 1.0
_PAYLOAD: Final = b"x" * 100
_BATCH: Final = 1000


@dataclass(frozen=True, slots=True)
class Figure:
    """One row."""

    what: str
    per_s: float
    raw_per_s: float | None
    """The same done with bare system calls; None: there is no such thing."""

    @property
    def ratio(self) -> float | None:
        return None if self.raw_per_s is None else round(self.per_s / self.raw_per_s, 2)


@click.command()
@click.option(
    "--dir", "folder", metavar="DIR", type=click.Path(file_okay=False), help="On which disk.  [default: this folder]"
)
@click.option("--seconds", type=click.FloatRange(0.05, 60), default=_SECONDS, show_default=True, help="For each row.")
@as_json
def bench(folder: str | None, seconds: float, as_json: bool) -> None:
    """Measure what this disk and this machine give: records a second of each engine, and of bare system calls.

    Writes to a temporary folder below DIR and leaves nothing behind. A busy machine gives other figures: run it twice.
    """
    place = Path(tempfile.mkdtemp(prefix=".lamina-bench-", dir=folder or "."))
    figures: list[Figure] = []
    try:
        for what, measure in _CASES.items():
            with _shown(what, quiet=as_json):
                figures.append(Figure(what, *measure(place, seconds)))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if as_json:
        print_json([{**asdict(figure), "ratio": figure.ratio} for figure in figures])
        return
    rows = [[f.what, round(f.per_s), "" if f.raw_per_s is None else round(f.raw_per_s), f.ratio or ""] for f in figures]
    print_table(["", "per second ", "bare system calls ", "ratio "], rows)
    out.print(
        "\nalways: each answer waits for the disk. The first row is how often that can be in a second.", markup=False
    )


@contextmanager
def _shown(what: str, *, quiet: bool) -> Iterator[None]:
    if quiet or not err.is_terminal:
        yield
        return
    with err.status(what):
        yield


def _rate(step: Callable[[], int], seconds: float) -> float:
    """How many things a second, if a step does so many."""
    begun = time.perf_counter()
    done = 0
    while (took := time.perf_counter() - begun) < seconds:
        done += step()
    return done / took


@contextmanager
def _raw_file(place: Path) -> Iterator[int]:
    handle = os.open(place / "raw", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        yield handle
    finally:
        os.close(handle)
        (place / "raw").unlink()


def _raw(place: Path, seconds: float, data: bytes, things: int, *, syncs: bool) -> float:
    def step() -> int:
        os.write(handle, data)
        if syncs:
            os.fdatasync(handle)
        return things

    with _raw_file(place) as handle:
        return _rate(step, seconds)


def _sync(place: Path, seconds: float) -> tuple[float, float | None]:
    return _raw(place, seconds, b"x" * 4096, 1, syncs=True), None


def _append(place: Path, seconds: float, policy: str, batch: int) -> tuple[float, float | None]:
    from lamina.log import Level, Log, LogOptions
    from lamina.log.sync import parse

    sync = parse(policy)
    payloads = [_PAYLOAD] * batch

    def step() -> int:
        log.append_many(payloads, until=sync.level)
        return batch

    syncs = sync.level is Level.SYNCED
    raw = _raw(place, seconds, _PAYLOAD * batch, batch, syncs=syncs)
    with Log.open(str(place / f"log-{policy}-{batch}"), options=LogOptions(sync=sync)) as log:
        return _rate(step, seconds), raw


def _topics(place: Path, seconds: float) -> tuple[float, float | None]:
    import lamina

    messages = [{"item": b"tea"}] * _BATCH
    with lamina.open(place / "topics") as lm:
        return _rate(lambda: len(lm.topic("orders").publish_many(messages)), seconds), None


def _jobs(place: Path, seconds: float) -> tuple[float, float | None]:
    import lamina

    def step() -> int:
        lm.jobs.add_many("mail", [_PAYLOAD] * 100)
        leased = lm.jobs.lease_many("mail", most=100)
        for job in leased:
            job.complete()
        return len(leased)

    with lamina.open(place / "jobs") as lm:
        return _rate(step, seconds), None


def _queues(place: Path, seconds: float) -> tuple[float, float | None]:
    import lamina

    with lamina.open(place / "queues") as lm:
        rid, sid = lm.queues.create()
        sender, recipient = lm.queue(sid), lm.queue(rid)

        def step() -> int:
            sender.send(_PAYLOAD)
            message = recipient.receive()
            assert message is not None
            recipient.ack(message)
            return 1

        return _rate(step, seconds), None


def _store(place: Path, seconds: float) -> tuple[float, float | None]:
    import lamina

    keys = [b"%d" % number for number in range(_BATCH)]

    def step() -> int:
        with lm.store.session() as changes:
            for key in keys:
                changes.put(1, key, _PAYLOAD)
        return len(keys)

    with lamina.open(place / "store") as lm:
        return _rate(step, seconds), None


_CASES: Final[dict[str, Callable[[Path, float], tuple[float, float | None]]]] = {
    "syncs of the disk": _sync,
    "log, always, one by one": lambda place, seconds: _append(place, seconds, "always", 1),
    "log, always, batches of 1000": lambda place, seconds: _append(place, seconds, "always", _BATCH),
    "log, os, batches of 1000": lambda place, seconds: _append(place, seconds, "os", _BATCH),
    "topics, published 1000 at once, always": _topics,
    "jobs, added, leased and completed, interval": _jobs,
    "queues, sent, received and acknowledged, always": _queues,
    "store, sessions of 1000 keys, always": _store,
}
