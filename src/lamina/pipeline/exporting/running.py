"""One run of an export, from what was done before to what counts afterwards. The steps are told in jobs/export.py."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace

from lamina.errors import from_os
from lamina.log.files import join
from lamina.log.naming import STAGING
from lamina.pipeline import schema, staging, storage
from lamina.pipeline.exporting import asking, committing, delta, merging, pinning, placing, writing
from lamina.pipeline.exporting import manifest as manifests
from lamina.pipeline.exporting.asking import Asked
from lamina.pipeline.exporting.manifest import Day, Manifest
from lamina.pipeline.exporting.merging import Group, Merge
from lamina.pipeline.exporting.parts import Part
from lamina.pipeline.exporting.pinning import Found, Lost
from lamina.pipeline.exporting.target import check_same, check_untouched
from lamina.pipeline.exporting.writing import Slice, Work, Written
from lamina.pipeline.pieces import Times
from lamina.pipeline.running import Progress, Runner


@dataclass(slots=True)
class Done:
    """What a run has written."""

    written: list[Written]
    groups: list[tuple[Group, Part]] = field(default_factory=list)

    @property
    def parts(self) -> list[Part]:
        """As the tasks made them."""
        return [part for one in self.written for part in one.parts]


def begin(asked: Asked, *, is_moved: bool) -> Manifest:
    """What was done before, all of it in its place. Hold the lock. Raises: BadOption, Corruption, DiskError."""
    wanted = asked.empty()
    found = manifests.load(asked.files, asked.to, asked.view)
    if found is not None:
        check_same(found, wanted, asked.to, is_full=asked.is_full, is_moved=is_moved)
        if asked.format == asking.DELTA:
            found = delta.settle(asked.folder, found)
        found = committing.finish(asked.files, asked.to, found)
    else:
        staging.sweep(asked.files, asked.to, committing.job_name(asked.view))
    if found is None or not asked.is_full:
        check_untouched(asked.files, asked.to, found, asked.view)
    if found is None:
        return wanted
    return replace(wanted, batch=found.batch) if asked.is_full else replace(found, data=wanted.data)


def look(asked: Asked, before: Manifest, consumer: str | None) -> Found:
    """What is new. Raises: Corruption, WrongFormat, DiskError."""
    if asked.is_state:
        return Found()
    disk, path = storage.open_storage(asked.data)
    logs, now_ns = asked.table.logs, time.time_ns()
    return pinning.pin_new(disk, path, logs, before.positions, before.epochs, asked.times, consumer, now_ns)


def divide(asked: Asked, found: Found) -> list[Slice]:
    """All rows to export, in parts that depend on the logs alone. Raises: LaminaError."""
    if asked.is_state:
        return [Slice("", task, Times()) for task in asked.table.plan(asked.table.pin())]
    slices = []
    for new in found.news:
        tasks = asked.table.plan(new.snapshot, new.times) if new.snapshot.files else []
        # What a view adds of its own (journals of queues) has no position in this log.
        slices += [Slice(new.key, task, new.times) for task in tasks if any(writing.pieces_of(task))]
    return slices


def check_lost(lost: Sequence[Lost], *, is_allowed: bool) -> None:
    """Raises: Gap."""
    if lost and not is_allowed:
        raise lost[0].as_error()


class Run:
    """Writes, and commits."""

    def __init__(self, asked: Asked, where: Runner, before: Manifest, found: Found) -> None:
        self._asked, self._where, self._before, self._found = asked, where, before, found
        self._job = committing.job_name(asked.view)
        self._staged = f"{STAGING}/{self._job}-{secrets.token_hex(6)}"
        self._folder = join(asked.to, self._staged)

    def run(self, slices: Sequence[Slice], progress: Progress, *, allow_gaps: bool) -> tuple[Manifest, Done]:
        """Returns what counts now. Raises: Gap; DiskFull, DiskError; what reading does."""
        asked, is_committing = self._asked, False
        try:
            asked.files.make_folder(self._folder)
            done = Done(self._write(slices, progress))
            self._note_gone(done)
            check_lost(self._found.lost, is_allowed=allow_gaps)
            after = self._advance(done)
            if asked.format == asking.DELTA:
                return self._to_delta(after, done.parts), done
            done.groups = self._merge(done.parts)
            after = self._place(after, done)
            if after == self._before and not asked.is_full:
                return after, done
            is_committing = True
            return committing.commit(asked.files, asked.to, after), done
        except OSError as error:
            raise from_os(error, "export to", asked.to) from error
        finally:
            if not is_committing:  # else what was committed may be waiting there
                staging.sweep(asked.files, asked.to, self._job)

    def _write(self, slices: Sequence[Slice], progress: Progress) -> list[Written]:
        asked = self._asked
        columns = tuple(column.name for column in asked.wanted)
        shares = writing.pack(slices, asking.TASK_BYTES) or ([()] if asked.is_state else [])
        tasks = [
            Work(number, asked.data, asked.view, columns, self._folder, share) for number, share in enumerate(shares)
        ]
        return self._where.map(writing.write, tasks, _by_bytes(progress, tasks))

    def _note_gone(self, done: Done) -> None:
        gone = sorted({log for one in done.written for log in one.gone})
        why = "of which a file was removed while it was exported"
        self._found.lost += [Lost(log, self._before.positions.get(log), None, why) for log in gone]

    def _advance(self, done: Done) -> Manifest:
        """The positions behind what was read."""
        positions = dict(self._before.positions)
        for new in self._found.news:
            seen = max((one.newest.get(new.key, 0) for one in done.written), default=0)
            if reached := max(positions.get(new.key, 0), new.position or 0, seen):
                positions[new.key] = reached
        return replace(self._before, positions=positions, epochs={**self._before.epochs, **self._found.epochs})

    def _merge(self, parts: Sequence[Part]) -> list[tuple[Group, Part]]:
        asked = self._asked
        below = 0 if asked.is_state else asked.merge_below
        groups = []
        for day in sorted({part.day for part in parts}):
            of_day = [part for part in parts if part.day == day]
            known = self._before.days.get(day, Day())
            groups += merging.plan(of_day, day, known, join(asked.folder, f"date={day}"), below)
        types = schema.arrow_schema(asked.wanted)
        tasks = [Merge(n, self._folder, types, group.parts) for n, group in enumerate(groups) if group.is_merged]
        merged = iter(self._where.map(merging.merge, tasks))
        return [(group, next(merged) if group.is_merged else group.parts[0]) for group in groups]

    def _place(self, after: Manifest, done: Done) -> Manifest:
        asked, batch = self._asked, self._before.batch + 1
        if not done.groups and not asked.is_full:
            return after
        moves, days = placing.place(asked.view, self._staged, batch, done.groups, self._before.days, asked.merge_below)
        after = replace(after, batch=batch, days=days)
        if not asked.is_full:
            return replace(after, moving=tuple(moves))
        return replace(after, swap=placing.gather(asked.files, asked.to, asked.view, self._staged, moves))

    def _to_delta(self, after: Manifest, parts: Sequence[Part]) -> Manifest:
        asked, before = self._asked, self._before
        if not parts and not (asked.is_full and delta.is_there(asked.folder)):
            if after != before:
                manifests.save(asked.files, asked.to, after)
            return after
        days = dict(before.days)
        for part in parts:
            day = days.get(part.day, Day())
            days[part.day] = replace(day, rows=day.rows + part.rows, bytes=day.bytes + part.bytes)
        after = replace(after, batch=before.batch + 1, days=days)
        facts = asdict(after)
        pending = {name: facts[name] for name in ("batch", "positions", "epochs", "days", "columns", "data")}
        manifests.save(asked.files, asked.to, replace(before, pending=pending))
        delta.append(
            asked.folder,
            before.view,
            parts,
            schema.arrow_schema(asked.wanted),
            batch=after.batch,
            is_replaced=asked.is_full,
            merge_below=asked.merge_below,
        )
        manifests.save(asked.files, asked.to, after)
        return after


def _by_bytes(progress: Progress, tasks: Sequence[Work]) -> Callable[[int, int], None]:
    sizes = [sum(one.bytes for one in task.slices) for task in tasks]

    def step(done: int, total: int) -> None:
        progress(sum(sizes[:done]), sum(sizes))

    return step
