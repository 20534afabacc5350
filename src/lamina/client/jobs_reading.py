"""What the answers of a job server say: leased jobs, results, and blocks of facts as views."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final, NamedTuple

from lamina.client.wire import LINE, Reading, check_size
from lamina.engines.jobs.views import JobResult, JobView, QueueView


class LeasedJob(NamedTuple):
    """A job in the hands of a worker."""

    id: str
    name: str
    ttr_s: float
    payload: bytes


class NumberedJob(NamedTuple):
    """The same, with the number of the attempt, which only our server tells."""

    id: str
    name: str
    ttr_s: float
    payload: bytes
    attempt: int


class Block(NamedTuple):
    """One object of an ``inspect``: its name or id, and its facts as the server wrote them."""

    title: str
    facts: dict[str, bytes]


def leased(count: int) -> Reading[list[LeasedJob]]:
    jobs = []
    for _ in range(count):
        id, name, ttr, size = (yield LINE).decode().split(" ")
        jobs.append(LeasedJob(id, name, int(ttr) / 1000, (yield check_size(int(size)))))
    return jobs


def numbered(count: int) -> Reading[list[NumberedJob]]:
    jobs = []
    for _ in range(count):
        id, name, ttr, size, attempt = (yield LINE).decode().split(" ")
        jobs.append(NumberedJob(id, name, int(ttr) / 1000, (yield check_size(int(size))), int(attempt)))
    return jobs


def result(count: int) -> Reading[JobResult]:
    id, is_success, size = (yield LINE).decode().split(" ")
    return JobResult(id, is_success == "1", (yield check_size(int(size))))


def blocks(count: int) -> Reading[list[Block]]:
    found = []
    for _ in range(count):
        found.append((yield from _block()))
    return found


def _block() -> Reading[Block]:
    title, count = (yield LINE).decode().split(" ")
    facts: dict[str, bytes] = {}
    body: str | None = None
    for _ in range(int(count)):
        if body is not None:  # any bytes, line ends too
            skipped = len(body) + 1
            facts[body] = (yield check_size(skipped + int(facts[f"{body}-size"])))[skipped:]
            body = None
            continue
        key, _, value = (yield LINE).partition(b" ")
        facts[key.decode()] = value
        body = key.decode().removesuffix("-size") if key.endswith(b"-size") else None
    return Block(title, facts)


# -- views: the fields of the same names, with dashes; what is not there is None ---------------------------------------

_PARSERS: Final[dict[str, Any]] = {
    "str": bytes.decode,
    "int": int,
    "int | None": int,
    "bytes": bytes,
    "bytes | None": bytes,
    "bool": lambda value: value == b"1",
    "float | None": float,
}


def job_views(count: int) -> Reading[list[JobView]]:
    return [JobView(**_values(JobView, block)) for block in (yield from blocks(count))]


def queue_views(count: int) -> Reading[list[QueueView]]:
    return [QueueView(**_values(QueueView, block)) for block in (yield from blocks(count))]


def _values(kind: Any, block: Block) -> dict[str, Any]:
    """Raises: ValueError."""
    values = {}
    for field in fields(kind):
        fact, kind_of_field = block.facts.get(field.name.replace("_", "-")), str(field.type)
        if fact is None and "None" not in kind_of_field:
            raise ValueError(f"no {field.name} of {block.title}")
        values[field.name] = None if fact is None else _PARSERS[kind_of_field](fact)
    return values
