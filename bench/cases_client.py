"""The client library: publishing many messages to a server, and inside the process, against redis-py's pipeline."""

from __future__ import annotations

import time
from collections.abc import Callable

import lamina as product
from bench.cases_append import make_payloads
from bench.cases_topics_wire import in_turn
from bench.runner import Case, Context, Result, Skipped
from bench.topic_servers import Server, Wrong, lamina
from lamina.log import OS, LogOptions

PUBLISHED = 50_000
AT_ONCE = 1000


def publish(context: Context, *, is_remote: bool) -> Result:
    try:
        import redis
    except ImportError:
        raise Skipped("needs redis-py (pip install redis)") from None
    messages = [{"f": payload} for payload in make_payloads(100, context.scaled(PUBLISHED, 2 * AT_ONCE))]

    def on_a_server(work: Callable[[Server], None]) -> float:
        with lamina(context.fresh("lamina"), "os") as server:
            started = time.perf_counter()
            work(server)
            rate = len(messages) / (time.perf_counter() - started)
            with product.connect(f"lamina://{server.address[0]}:{server.address[1]}") as lm:
                if lm.topic("s").stats().length != len(messages):
                    raise Wrong("some were not published")
        return rate

    def remotely(server: Server) -> None:
        with product.connect(f"lamina://{server.address[0]}:{server.address[1]}") as lm:
            lm.topic("s").publish_many(messages)

    def by_redis(server: Server) -> None:
        with redis.Redis(*server.address) as client:
            for start in range(0, len(messages), AT_ONCE):
                pipeline = client.pipeline(transaction=False)
                for message in messages[start : start + AT_ONCE]:
                    pipeline.xadd("s", message)
                pipeline.execute()

    def inside() -> float:
        with product.open(context.fresh("embedded"), topics=LogOptions(sync=OS)) as data:
            topic = data.topic("s")
            started = time.perf_counter()
            topic.publish_many(messages)
            return len(messages) / (time.perf_counter() - started)

    ours = (lambda: on_a_server(remotely)) if is_remote else inside
    return in_turn(context, ours, lambda: on_a_server(by_redis), 3)


_BASE = f"policy os; base: redis-py's pipeline, {AT_ONCE} XADD at a time, to the same server. The median of the ratios"

CASES = [
    Case(
        "client_publish",
        "messages/s",
        f"publish_many of {PUBLISHED} x 100 B to a server by lamina.connect, {_BASE}. Connecting is included",
        lambda context: publish(context, is_remote=True),
        bar=1.0,
    ),
    Case(
        "client_publish_embedded",
        "messages/s",
        f"the same inside the process, by lamina.open, {_BASE}. Not included: opening the folder",
        lambda context: publish(context, is_remote=False),
    ),
]
