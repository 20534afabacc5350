"""All that is known of jobs and queues, for our own clients: what ``Jobs.show``, ``list`` and ``queues`` give.

Blocks as those of workq's ``inspect``. A fact is called as the field of the view, with dashes; one that is None is left
out. Bytes are two facts, ``payload-size`` and ``payload``. Times are nanoseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Final

from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import Job
from lamina.engines.jobs.views import JobView, QueueView, show_id
from lamina.errors import JobNotFound

_MOST_SHOWN: Final = 4 << 20  # bytes of payloads and results in one answer


def job(engine: JobEngine, id: bytes) -> bytes:
    """Raises: JobNotFound."""
    with engine.lock:
        return _answer([_job_block(engine.job(id))])


def jobs(engine: JobEngine, name: str, place: int, offset: int, limit: int) -> bytes:
    """As many as fit into one answer, one at least. Raises: JobNotFound."""
    with engine.lock:
        engine.tick()
        queue = engine.state.queues.get(name)
        if queue is None:
            raise JobNotFound("no such queue")
        blocks: list[bytes] = []
        size = 0
        for found in queue.lists[place].some(offset, limit):
            size += len(found.payload) + len(found.result or b"")
            if blocks and size > _MOST_SHOWN:
                break
            blocks.append(_job_block(found))
    return _answer(blocks)


def queues(engine: JobEngine, names: Sequence[str]) -> bytes:
    with engine.lock:
        engine.tick()
        now = engine.clock.now_ns()
        known = engine.state.queues
        views = [QueueView.of(known[name], engine.workers.count(name), now) for name in names]
    return _answer([_block(view.name, view) for view in views])


def leased(found: Sequence[Job]) -> bytes:
    """The answer to a lease that wants to know which attempt each job is in."""
    parts = [b"+OK %d\r\n" % len(found)]
    for each in found:
        head = f"{show_id(each.id)} {each.queue.name} {each.ttr} {len(each.payload)} {each.attempts}\r\n"
        parts += (head.encode(), each.payload, b"\r\n")
    return b"".join(parts)


def _job_block(found: Job) -> bytes:
    view = JobView.of(found)
    return _block(view.id, view)


def _block(title: str, view: JobView | QueueView) -> bytes:
    lines: list[bytes] = []
    for field in fields(view):
        key, value = field.name.replace("_", "-").encode(), getattr(view, field.name)
        if isinstance(value, bytes):
            lines += (b"%b-size %d" % (key, len(value)), b"%b %b" % (key, value))
        elif value is not None:
            lines.append(b"%b %b" % (key, str(int(value) if isinstance(value, bool) else value).encode()))
    return b"\r\n".join([f"{title} {len(lines)}".encode(), *lines, b""])


def _answer(blocks: Sequence[bytes]) -> bytes:
    return b"+OK %d\r\n" % len(blocks) + b"".join(blocks)
