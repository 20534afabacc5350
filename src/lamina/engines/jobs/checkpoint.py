"""What is alive, in one file, so that a start need not replay what is over.

    header lmjc 2 · start [position] · one record per job · one per paused queue · fenced · end [count]

It is made while jobs go on changing, a slice at a time: each job is written as it is when its slice comes. ``position``
is where the log stood at the start, ``changed`` of each job the newest record it has taken. Replaying the log from
``position`` on, a record that is not newer than ``changed`` is passed over; so the end is the same as if nothing had
moved. A checkpoint that is not whole is not used: the log alone gives the same state.
"""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from lamina.engines.jobs import codec
from lamina.engines.jobs.core import State
from lamina.engines.jobs.job import Job
from lamina.errors import Corruption
from lamina.log import kernel, rewrite
from lamina.log.files import Files, join, read_at
from lamina.log.formats import HEADER
from lamina.log.frame import Stop
from lamina.log.naming import CHECKPOINT, NUMBERED
from lamina.log.reader import Reader
from lamina.log.reserve import Reserve
from lamina.log.scan import HEADER_SIZE, FileScan

_MAGIC: Final = HEADER.pack(b"lmjc", 2)
_BEFORE: Final = HEADER.pack(b"lmjc", 1)
"""The same without fences. Who knows only this one replays the log instead, and so comes to the fence."""
_START, _JOB, _PAUSED, _FENCED, _END = b"s", b"j", b"p", b"f", b"e"
_NUMBER: Final = struct.Struct(">Q")
_JOB_FACTS: Final = struct.Struct(">BBBqqqqqIIIIQQ")
_SLICE: Final = 500

# -- making ---------------------------------------------------------------------------------------------------------


def save(
    files: Files,
    folder: str,
    state: State,
    position: int,
    lock: AbstractContextManager[object],
    sync_log: Callable[[], None] = lambda: None,
    reserve: Reserve | None = None,
) -> None:
    """Write the checkpoint of a state that holds everything up to ``position``.

    ``lock`` is held for a slice at a time. ``sync_log`` is called before the commit: the slices may show records newer
    than ``position``, and what a checkpoint shows must be in the log for good.
    Durability: when it returns, the checkpoint is synced under its name. Raises: DiskFull, DiskError.
    """
    chunks = _chunks(state, position, lock, sync_log)
    rewrite.replace(files, folder, CHECKPOINT, chunks if reserve is None else reserve.spare(chunks), NUMBERED)


def _chunks(
    state: State, position: int, lock: AbstractContextManager[object], sync_log: Callable[[], None]
) -> Iterator[bytes]:
    with lock:
        ids = list(state.jobs)
    stamp, count = 1, 0
    yield _MAGIC + kernel.encode_many(stamp, (_START + _NUMBER.pack(position),))
    for start in range(0, len(ids), _SLICE):
        with lock:
            found = (state.jobs.get(id) for id in ids[start : start + _SLICE])
            # A job that came behind the position has its add in what will be replayed.
            records = [_encode(job) for job in found if job is not None and not job.is_foreground]
        count += len(records)
        yield kernel.encode_many(stamp + 1, records)
        stamp += len(records)
    with lock:
        paused = [_PAUSED + queue.name.encode() for queue in state.queues.values() if queue.is_paused]
        if state.is_fenced:
            paused.append(_FENCED)
    sync_log()
    end = _END + _NUMBER.pack(count + len(paused))
    yield kernel.encode_many(stamp + 1, [*paused, end])


def _encode(job: Job) -> bytes:
    facts = _JOB_FACTS.pack(
        job.state,
        job.beyond,
        job.at,
        job.added,
        job.changed,
        job.ready_at,
        job.lease_until,
        job.expires,
        job.attempts,
        job.given_back,
        job.fails,
        job.backoff,
        len(job.unique),
        0 if job.result is None else len(job.result) + 1,
    )
    record = codec.encode_job(
        job.id,
        job.queue.name,
        job.ttr,
        job.ttl,
        job.priority,
        job.max_attempts,
        job.max_fails,
        job.payload,
        job.time,
        job.created,
    )
    return b"".join((_JOB, facts, job.unique.encode("latin-1"), job.result or b"", record))


# -- using ----------------------------------------------------------------------------------------------------------


def load(files: Files, folder: str, reader: Reader, ahead: int = 0) -> tuple[State, int, int]:
    """The state of a log, the position its checkpoint covers (0: there is none), and how many records were replayed.

    Raises: Corruption for a record that is no job command.
    """
    with _no_collection():
        state, position = _read(files, folder, ahead) or (State(), 0)
        state.ahead = ahead
        state.resumes_after = position
        replayed = replay(state, reader, position)
        state.resumes_after = 0
    return state, position, replayed


@contextmanager
def _no_collection() -> Iterator[None]:
    """Millions of objects are made here and none is garbage: looking for some would take a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def replay(state: State, reader: Reader, after: int) -> int:
    count = 0
    for segment, batch in reader.batches(after=after) if after else reader.batches():
        try:
            state.apply_batch(bytes(batch.data), batch.times, batch.offsets, batch.lengths, after)
        except codec.BadRecord as error:
            raise Corruption(segment.name.name, batch.record_offset(error.number), str(error)) from error
        count += len(batch.times)
    return count


def _read(files: Files, folder: str, ahead: int) -> tuple[State, int] | None:
    """The state in the checkpoint, None if there is none that is whole."""
    try:
        file = files.open(join(folder, CHECKPOINT))
    except OSError:
        return None
    try:
        if read_at(file, 0, HEADER_SIZE) not in (_MAGIC, _BEFORE):
            return None
        state, position, count, is_whole = State(), 0, 0, False
        state.ahead = ahead
        scan = FileScan(file)
        for batch in scan:
            for at in range(len(batch.times)):
                record = batch.payload(at)
                kind = record[:1]
                if kind == _JOB:
                    _restore(state, record)
                    count += 1
                elif kind == _PAUSED:
                    state.queue(record[1:].decode("latin-1")).is_paused = True
                    count += 1
                elif kind == _FENCED:
                    state.is_fenced = True
                    count += 1
                elif kind == _START:
                    position = _NUMBER.unpack(record[1:])[0]
                elif kind == _END:
                    is_whole = _NUMBER.unpack(record[1:])[0] == count
        return (state, position) if is_whole and position and scan.why is Stop.END else None
    except (OSError, struct.error, codec.BadRecord, IndexError):
        return None
    finally:
        file.close()


def _restore(state: State, record: bytes) -> None:
    facts = _JOB_FACTS.unpack_from(record, 1)
    unique_at = 1 + _JOB_FACTS.size
    result_at = unique_at + facts[12]
    job_at = result_at + max(facts[13] - 1, 0)
    id, name, ttr, ttl, priority, max_attempts, max_fails, payload, time, created = codec.decode_job(record[job_at:])
    job = Job(id, state.queue(name), payload)
    job.ttr, job.ttl, job.priority = ttr, ttl, priority
    job.max_attempts, job.max_fails, job.time, job.created = max_attempts, max_fails, time, created
    job.state, job.beyond, job.at = facts[:3]
    job.added, job.changed, job.ready_at, job.lease_until, job.expires = facts[3:8]
    job.attempts, job.given_back, job.fails, job.backoff = facts[8:12]
    job.unique = record[unique_at:result_at].decode("latin-1")
    job.result = record[result_at:job_at] if facts[13] else None
    if time is not None:
        job.order = codec.wrapped(time)
    state.restore(job)
