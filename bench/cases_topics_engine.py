"""Topics inside a process: publishing, and a group that reads and acknowledges, against the bare log."""

from __future__ import annotations

import time

import lamina
from bench.cases_append import make_payloads, run_ours
from bench.cases_topics_wire import in_turn
from bench.runner import Case, Context, Result
from lamina.engines.topics.ids import FIRST
from lamina.engines.topics.topic import Topic
from lamina.log import OS, LogOptions

BATCH = 1000
PUBLISHED = 200_000
DELIVERED = 100
GROUP, CONSUMER = b"g", b"c"
OPTIONS = LogOptions(sync=OS)


def publish(context: Context) -> Result:
    payloads = make_payloads(100, BATCH)
    messages = [{"f": payload} for payload in payloads]
    calls = context.scaled(PUBLISHED // BATCH, 5)

    def ours() -> float:
        with lamina.open(context.fresh("embedded"), topics=OPTIONS) as data:
            topic = data.topic("s")
            topic.publish_many(messages)  # its first file is made now
            started = time.perf_counter()
            for _ in range(calls):
                topic.publish_many(messages)
            return calls * BATCH / (time.perf_counter() - started)

    return in_turn(context, ours, lambda: run_ours(context, OS, payloads, calls))


def deliver(context: Context) -> Result:
    payloads = make_payloads(100, DELIVERED)
    calls = context.scaled(PUBLISHED // DELIVERED, 5)

    def ours() -> float:
        topic = Topic.open(context.fresh("embedded"), options=OPTIONS)
        for _ in range(calls + 1):
            _, positions = topic.add_many([[b"f", payload] for payload in payloads])
            topic.settle(positions[-1])
        topic.groups.create(GROUP, FIRST)
        _pass_on(topic)
        started = time.perf_counter()
        passed = sum(_pass_on(topic) for _ in range(calls))
        seconds = time.perf_counter() - started
        topic.close()
        if passed != calls * DELIVERED:
            raise RuntimeError(f"{calls * DELIVERED} entries were added and {passed} came")
        return passed / seconds

    return in_turn(context, ours, lambda: run_ours(context, OS, payloads, calls))


def _pass_on(topic: Topic) -> int:
    """Deliver some entries and acknowledge them, each answered when it is in the log. Returns how many."""
    groups = topic.groups
    shown = groups.deliver(GROUP, CONSUMER, DELIVERED)
    topic.settle(shown.topic_position)
    groups.settle(shown.position)
    count, position = groups.ack(GROUP, [id for id, _ in shown.records])
    groups.settle(position)
    return count


CASES = [
    Case(
        "topics_publish_many",
        "entries/s",
        f"publish_many of {BATCH} x 100 B inside the process, policy os; base: append_many of the same payloads to a "
        "bare log. The median of the ratios. Not included: opening, the first file, close",
        publish,
    ),
    Case(
        "topics_group",
        "entries/s",
        f"a group gets {DELIVERED} entries of 100 B and acknowledges them, again and again, policy os, most of them "
        f"read from files; base: append_many of {DELIVERED} such payloads to a bare log. The median of the ratios. Not "
        "included: publishing them, opening, close",
        deliver,
    ),
]
