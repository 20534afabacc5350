"""The store behind the RESP door: sessions of one entry a second by redis-benchmark, beside SET of Redis."""

from __future__ import annotations

from bench.cases_topics_wire import in_turn
from bench.runner import Case, Context, Result
from bench.topic_servers import commands_a_second, find_redis, lamina, redis

VALUE = "v" * 100
KEY = "key:__rand_int__"
PIPELINED = (1, 4, 16, 64)
REQUESTS = {1: 60_000, 4: 200_000, 16: 300_000, 64: 400_000}
_POLICY = "interval"  # of Redis, and of the topics here: what the store answers is durable in any case


def write(context: Context, pipelined: int, *last: str) -> Result:
    find_redis()
    find_redis("redis-benchmark")
    requests = context.scaled(REQUESTS[pipelined], 1000)

    def ours() -> float:
        with lamina(context.fresh("lamina"), _POLICY) as server:
            commands_a_second(server, 1000, 1, "S.WRITE", "1", "PUT", KEY, VALUE)  # its files are made now
            return commands_a_second(server, requests, pipelined, "S.WRITE", "1", "PUT", KEY, VALUE, *last)

    def base() -> float:
        with redis(context.fresh("redis"), _POLICY) as server:
            return commands_a_second(server, requests, pipelined, "SET", KEY, VALUE)

    return in_turn(context, ours, base, 3)


def _case(pipelined: int, *last: str) -> Case:
    kind = "".join(f"_{word.lower()}" for word in last)
    return Case(
        f"store_wire_write{kind}_P{pipelined}",
        "commands/s",
        f"S.WRITE of 100 B{' '.join(('', *last))} by redis-benchmark -c 50 -P {pipelined}; base: SET of Redis with "
        "everysec. The median of the ratios. The answer to S.WRITE says that the entry is synced, unless it has NOWAIT",
        lambda context: write(context, pipelined, *last),
    )


CASES = [*(_case(each) for each in PIPELINED), *(_case(each, "NOWAIT") for each in PIPELINED)]
