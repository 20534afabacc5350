"""Every number that a Python program can give, from where it makes sense to where it does not: it is taken, or refused
with an error of the library, and whatever was given all of it closes, and opens again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import lamina
from lamina.data import Data
from lamina.engines.queues.options import QueueOptions
from lamina.engines.store.options import StoreOptions
from lamina.errors import LaminaError
from lamina.log import Level, LogOptions, consumers, interval
from lamina.log.files.memory import MemoryFiles
from lamina.testing import ManualClock

EDGES = (0, 1, 2, 100, 255, 256, 1 << 31, 1 << 32, 1 << 53, 1 << 62, 1 << 63, 1 << 64, 10**30, 10**400)
WHOLE = sorted({sign * (edge + near) for edge in EDGES for near in (-1, 0, 1) for sign in (1, -1)})
ODD: list[Any] = [
    True,
    False,
    0.5,
    7.5,
    1e6 + 0.5,
    -0.5,
    1e300,
    float("nan"),
    float("inf"),
    float("-inf"),
    "1",
    b"1",
    [],
    object(),
]
SPANS = [timedelta.max, timedelta.min, timedelta(0), timedelta(microseconds=1)]
LATE = datetime(2262, 4, 12, tzinfo=UTC)
"""Where nanoseconds of 64 bits end."""
MOMENTS = [datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC), LATE, LATE.replace(tzinfo=None)]
NUMBERS: list[Any] = [*ODD, *WHOLE, *SPANS, *MOMENTS]
JOB = "01234567-89ab-4def-8123-456789abcdef"


def is_short(value: Any) -> bool:
    """As a time to wait it is over at once, or none at all."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    return isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0.01 < seconds < 1e8


def id_of(ms: Any) -> str:
    return f"{ms}-{ms}"


def _send(lm: Data, **more: Any) -> None:
    made = lm.queues.create()
    lm.queue(made.sid).send(b"body", **more)
    lm.queue(made.rid).info()


def _subscribe(lm: Data, **more: Any) -> None:
    with lm.topic("t").subscribe("g", **{"wait": 0, **more}) as messages:
        for message in messages:
            message.ack()


def _lease(lm: Data, **more: Any) -> None:
    with lm.jobs.lease("none", **more):
        pass


def _session(lm: Data, act: Callable[[Any], object]) -> None:
    with lm.store.session() as session:
        act(session)


def _channel(lm: Data, act: Callable[[Any], object]) -> None:
    with lm.store.channel(9999).begin() as session:
        act(session)


CALLS: dict[str, Callable[[Data, Any], object]] = {
    "topic.publish(id)": lambda lm, n: lm.topic("t").publish("x", id=id_of(n)),
    "topic.publish(field)": lambda lm, n: lm.topic("t").publish({"f": n}),
    "topic.read(since)": lambda lm, n: list(lm.topic("t").read(since=n)),
    "topic.read(until)": lambda lm, n: list(lm.topic("t").read(until=n)),
    "topic.read(last)": lambda lm, n: list(lm.topic("t").read(last=n)),
    "topic.read(count)": lambda lm, n: list(lm.topic("t").read(count=n)),
    "topic.read(count, reverse)": lambda lm, n: list(lm.topic("t").read(count=n, reverse=True)),
    "topic.subscribe(since)": lambda lm, n: _subscribe(lm, since=n),
    "topic.subscribe(batch)": lambda lm, n: _subscribe(lm, batch=n),
    "topic.subscribe(wait)": lambda lm, n: _subscribe(lm, wait=n) if is_short(n) else None,
    "topic.subscribe(claim_idle)": lambda lm, n: _subscribe(lm, claim_idle=n),
    "topic.reset": lambda lm, n: lm.topic("t").reset("g", n),
    "topic.reset(id)": lambda lm, n: lm.topic("t").reset("g", id_of(n)),
    "jobs.add(ttr)": lambda lm, n: lm.jobs.add("q", b"x", ttr=n),
    "jobs.add(ttl)": lambda lm, n: lm.jobs.add("q", b"x", ttl=n),
    "jobs.add(priority)": lambda lm, n: lm.jobs.add("q", b"x", priority=n),
    "jobs.add(max_attempts)": lambda lm, n: lm.jobs.add("q", b"x", max_attempts=n),
    "jobs.add(max_fails)": lambda lm, n: lm.jobs.add("q", b"x", max_fails=n),
    "jobs.add(at)": lambda lm, n: lm.jobs.add("q", b"x", at=n),
    "jobs.add(delay)": lambda lm, n: lm.jobs.add("q", b"x", delay=n),
    "jobs.add(backoff)": lambda lm, n: lm.jobs.add("q", b"x", backoff=n, max_fails=3),
    "jobs.run(timeout)": lambda lm, n: lm.jobs.run("none", b"x", timeout=n) if is_short(n) else None,
    "jobs.run(ttr)": lambda lm, n: lm.jobs.run("none", b"x", timeout=0, ttr=n),
    "jobs.lease(wait)": lambda lm, n: _lease(lm, wait=n) if is_short(n) else None,
    "jobs.lease_many(most)": lambda lm, n: lm.jobs.lease_many("q", most=n),
    "jobs.touch": lambda lm, n: lm.jobs.touch(JOB, n),
    "jobs.release": lambda lm, n: lm.jobs.release(JOB, n),
    "jobs.redrive_queue": lambda lm, n: lm.jobs.redrive_queue("q", n),
    "jobs.list(offset)": lambda lm, n: lm.jobs.list("q", offset=n),
    "jobs.list(limit)": lambda lm, n: lm.jobs.list("q", limit=n),
    "queues.create(ttl)": lambda lm, n: lm.queues.create(ttl=n),
    "queue.send(ttl)": lambda lm, n: _send(lm, ttl=n),
    "store.put": lambda lm, n: lm.store.put(n, b"k", b"v"),
    "store.get": lambda lm, n: lm.store.get(n, b"k"),
    "store.scan": lambda lm, n: list(lm.store.scan(n)),
    "store.as_of(epoch)": lambda lm, n: lm.store.as_of(epoch=n),
    "store.as_of(time_ns)": lambda lm, n: lm.store.as_of(time_ns=n),
    "store.switch_epoch": lambda lm, n: lm.store.switch_epoch(n),
    "store.wait_durable(epoch)": lambda lm, n: lm.store.wait_durable(n, 0.001),
    "store.wait_durable(timeout)": lambda lm, n: lm.store.wait_durable(1, n),
    "store.rotate(timeout)": lambda lm, n: lm.store.rotate(n),
    "store.clean_up": lambda lm, n: lm.store.clean_up(n),
    "store.channel": lambda lm, n: lm.store.channel(n),
    "session.put(version)": lambda lm, n: _session(lm, lambda its: its.put(1, b"k", b"v", version=(n, 1))),
    "session.put(minor)": lambda lm, n: _session(lm, lambda its: its.put(1, b"k", b"v", version=(1, n))),
    "session.clear_storage": lambda lm, n: _session(lm, lambda its: its.clear_storage(n)),
    "channel.put": lambda lm, n: _channel(lm, lambda its: its.put(n, b"k", b"v")),
    "channel.put(version)": lambda lm, n: _channel(lm, lambda its: its.put(1, b"k", b"v", version=(n, n))),
    "log.append(until)": lambda lm, n: lm.log("own").append(b"x", until=n),
    "log.wait(position)": lambda lm, n: lm.log("own").wait(n, Level.WRITTEN),
    "log.wait(timeout)": lambda lm, n: lm.log("own").wait(lm.log("own").append(b"x"), Level.SYNCED, n),
    "log.wait_for_more": lambda lm, n: lm.log("own").wait_for_more(n, 0.001),
    "log.wait_for_more(timeout)": lambda lm, n: lm.log("own").wait_for_more(_appended(lm) - 1, n),
    "log.reader.read(since)": lambda lm, n: list(lm.log("own").reader.read(since=n)),
    "log.reader.read(until)": lambda lm, n: list(lm.log("own").reader.read(until=n)),
    "log.reader.backwards": lambda lm, n: list(lm.log("own").reader.backwards(until=n)),
    "consumers.save": lambda lm, n: consumers.save(lm._files, lm.log("own").reader.folder, "me", n, expires_ns=10**18),
    "consumers.save(expires)": lambda lm, n: consumers.save(
        lm._files, lm.log("own").reader.folder, "me", 1, expires_ns=n
    ),
    "interval": lambda lm, n: lm.log("own").append(b"x", sync=interval(n)),
    "LogOptions(segment_bytes)": lambda lm, n: _with_options(segment_bytes=n),
    "LogOptions(segment_age_s)": lambda lm, n: _with_options(segment_age_s=n),
    "LogOptions(max_payload)": lambda lm, n: _with_options(max_payload=n),
    "LogOptions(gather_bytes)": lambda lm, n: _with_options(gather_bytes=n),
    "QueueOptions(ttl_s)": lambda lm, n: QueueOptions(ttl_s=n),
    "QueueOptions(quota)": lambda lm, n: QueueOptions(quota=n),
    "StoreOptions(epoch_ms)": lambda lm, n: StoreOptions(epoch_ms=n),
    "StoreOptions(memory_bytes)": lambda lm, n: StoreOptions(memory_bytes=n),
    "StoreOptions(max_session_bytes)": lambda lm, n: StoreOptions(max_session_bytes=n),
}


def _appended(lm: Data) -> Any:
    return lm.log("own").append(b"x", until=Level.SYNCED)


def _go_on(lm: Data, call: str) -> None:
    """The others are served as before."""
    if call.startswith(("store", "session", "channel")):
        lm.store.put(1, b"k", b"v")
    elif call.startswith("jobs"):
        lm.jobs.add("other", b"x")
    elif call.startswith("queue"):
        _send(lm)
    elif call.startswith("log"):
        _appended(lm)


def _with_options(**given: Any) -> None:
    with lamina.open("other", files=MemoryFiles(), clock=ManualClock()) as lm:
        lm.log("x", LogOptions(**given)).append(b"x", until=Level.SYNCED)


def used(files: MemoryFiles) -> Data:
    lm = lamina.open("data", files=files)
    with suppress(LaminaError):  # the last id there is may be taken
        lm.topic("t").publish("one")
    _subscribe(lm, since="start")
    with suppress(LaminaError):  # it is there already
        lm.jobs.add("q", b"one", id=JOB)
    lm.store.put(1, b"k", b"v")
    return lm


@pytest.mark.parametrize("call", CALLS)
def test_whatever_number_is_given_it_is_taken_or_refused_and_all_of_it_closes_and_opens_again(call: str) -> None:
    files = MemoryFiles()
    lm = used(files)
    for number in NUMBERS:
        try:
            CALLS[call](lm, number)
        except (LaminaError, TypeError, ValueError, TimeoutError) as refusal:
            assert type(refusal).__module__ != "struct", (number, refusal)
        _go_on(lm, call)
    lm.close()
    assert not files.locks and not files.handles
    again = used(files)
    assert next(iter(again.topic("t").read(count=1))).value == b"one"
    assert again.store.get(1, b"k") == b"v"
    again.jobs.list("q")
    again.close()
    assert not files.locks and not files.handles
