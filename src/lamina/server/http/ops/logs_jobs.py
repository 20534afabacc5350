"""The log of jobs: what of it belongs to jobs that are there, and cleaning it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamina.engines.jobs.cleaner import Pinned, is_kept
from lamina.engines.jobs.codec import BadRecord
from lamina.log.formats import JOBS
from lamina.log.scan import FileScan
from lamina.log.segment import open_for_reading
from lamina.server.http.ops import logs_pins as pins
from lamina.server.http.ops import logs_segments as files
from lamina.server.http.ops.logs_measure import Measured, Pace, Share
from lamina.server.http.ops.logs_model import SEALED, Segment
from lamina.server.http.ops.logs_names import Ref, is_open
from lamina.server.inside import Inside
from lamina.units import show_bytes

if TYPE_CHECKING:
    from lamina.engines.jobs.engine import JobEngine


def measure(inside: Inside, ref: Ref, pace: Pace) -> Measured:
    """Read the sealed files, and ask of each record whether its job is there. Raises: NotThere, DiskError, Stopped."""
    engine = is_open(inside.jobs)
    listed = files.list_files(inside, ref)
    found = Measured()
    consumers = pins.holding(ref.folder, engine.clock.now_ns())
    found.holders, held = pins.of(consumers, listed.segments, listed.names)
    sealed = [one for one in listed.segments if one.state == SEALED]
    total, done = sum(one.bytes for one in sealed), 0
    for one in sealed:
        if pace.may_read(one.bytes):
            dead = _dead(engine, ref.folder, one, pace, done, total)
            if dead is not None:
                by = held.get(one.file, ())
                pinned = dead if by else 0
                found.shares[one.file] = Share(one.bytes - dead, dead - pinned, pinned, by)
        done += one.bytes
    found.answer = _answer(found, len(sealed))
    return found


def _dead(engine: JobEngine, folder: str, one: Segment, pace: Pace, done: int, total: int) -> int | None:
    """Bytes of records that cleaning takes away; None: the file is gone, or was rewritten meanwhile."""
    try:
        file = open_for_reading(files.FILES, folder, one.file)
    except FileNotFoundError:
        return None
    dead, nothing = 0, Pinned()
    try:
        if file.size() != one.bytes:
            return None
        scan = FileScan(file)
        for batch in scan:
            state, count = engine.state, len(batch.times)
            for at in range(count):
                payload = batch.payload(at)
                try:
                    if JOBS.is_mark(payload) or is_kept(state, batch.times[at], payload, nothing):
                        continue
                except (BadRecord, IndexError):
                    continue
                end = batch.record_offset(at + 1) if at + 1 < count else batch.end
                dead += end - batch.record_offset(at)
                if at % 512 == 511:
                    pace.step(done, total)
            pace.step(done + batch.end, total)
        if scan.stop < one.bytes:  # damage: what comes behind it is not known
            return None
    finally:
        file.close()
    return dead


def _answer(found: Measured, sealed: int) -> str:
    if not sealed:
        return "everything is in the file that grows, which is never cleaned"
    dead = sum(share.dead for share in found.shares.values())
    pinned = sum(share.pinned for share in found.shares.values())
    told = [f"{show_bytes(dead)} go at the next cleaning"] if dead else []
    if pinned:
        names = ", ".join(sorted({name for share in found.shares.values() if share.pinned for name in share.by}))
        told.append(f"{show_bytes(pinned)} stay for who has yet to read them, {names}")
    if told:
        return f"{show_bytes(dead + pinned)} are of jobs that are gone: {'; '.join(told)}"
    return "all of what was looked at is of jobs that are there"
