"""What the logs of a folder tell: read in tasks, here or on executors, and put together in the order of the logs.

How the logs are divided depends on them alone, and what tasks return adds up: any engine gives the same facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lamina.errors import BadOption, StorageError
from lamina.pipeline import places, storage, views
from lamina.pipeline.options import ReadOptions
from lamina.pipeline.pieces import Times
from lamina.pipeline.places import LogPlace
from lamina.pipeline.reporting import counting, jobs, messages
from lamina.pipeline.reporting.buckets import choose_width, show_width
from lamina.pipeline.reporting.jobs import Event as JobEvent
from lamina.pipeline.reporting.jobs import Job, Lives
from lamina.pipeline.reporting.messages import Event as MessageEvent
from lamina.pipeline.reporting.messages import Messages, Waiting
from lamina.pipeline.reporting.tally import Damage, Tally
from lamina.pipeline.running import Progress, Runner
from lamina.pipeline.schema import DAMAGE, Column
from lamina.pipeline.snapshot import Snapshot
from lamina.pipeline.tables import Table
from lamina.pipeline.views.base import FILE, LOG, POSITION

_MOST_BUCKETS: Final = 2000
_FEW_BUCKETS: Final = 20
_MOST_TRIES: Final = 3
_FOLLOWED: Final = ("jobs", "queue_events")
"""What is now follows from what was before: these are read from their beginning, whatever time is asked for."""
_STATE: Final = "group_state"
_COUNTED: Final[dict[str, tuple[tuple[str, ...], Callable[[Tally, pa.RecordBatch], None]]]] = {
    "topic": (counting.TOPIC, counting.count_topic),
    "groups": (counting.GROUPS, counting.count_groups),
    "store_entries": (counting.STORE, counting.count_store),
    "records": (counting.PLAIN, counting.count_plain),
}
_VIEWS: Final = (*_FOLLOWED, *_COUNTED, _STATE)
_MARKS: Final = (LOG, FILE, POSITION, DAMAGE)


@dataclass(frozen=True, slots=True)
class Task:
    """What one task reads, of one view."""

    path: str
    view: str
    work: Any
    width: int
    times: Times


@dataclass(slots=True)
class Part:
    """What one task has found."""

    view: str
    tally: Tally
    jobs: dict[str, Job] = field(default_factory=dict)
    job_events: list[JobEvent] = field(default_factory=list)
    waiting: Waiting = field(default_factory=dict)
    message_events: list[MessageEvent] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Plan:
    """What there is to do."""

    tasks: list[Task]
    bytes: int
    """Of the files to read."""
    width: int
    is_width_given: bool
    times: Times
    logs: list[LogPlace]


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the logs tell."""

    tally: Tally
    times: Times
    """What was asked for."""
    logs: list[LogPlace]
    first: int
    """Bucket of the first record that is shown."""
    last: int

    @property
    def last_ns(self) -> int:
        return max((log.last_ns for log in self.tally.logs.values() if log.last_ns is not None), default=0)

    @property
    def first_ns(self) -> int:
        return min((log.first_ns for log in self.tally.logs.values() if log.first_ns is not None), default=0)

    @property
    def buckets(self) -> range:
        return range(self.first, self.last + 1)


# -- on the driver ---------------------------------------------------------------------------------------------------


def gather(
    path: str, times: Times, width: int | None, start: Callable[[int], Runner], progress: Progress
) -> tuple[Facts, str]:
    """The facts, and the name of who found them; ``start`` is told how many bytes there are to read.

    Raises: BadOption; DiskError, WrongFormat, Corruption; what ``start`` does.
    """
    tries = 0
    where: Runner | None = None
    narrower: int | None = None
    while True:
        plan = divide(path, times, width, narrower)
        where = start(plan.bytes) if where is None else where
        try:
            facts = put_together(plan, where.map(measure, plan.tasks, told(progress, plan.bytes)))
            if width is not None or narrower is not None or not is_too_wide(facts):
                return facts, where.name
            narrower = choose_width(facts.first_ns, facts.last_ns)  # what the names of files said was wrong
        except StorageError as error:
            tries += 1
            if type(error) is not StorageError or tries == _MOST_TRIES:
                raise  # only that a server merged files meanwhile is a reason to begin anew


def told(progress: Progress, size: int) -> Progress:
    """Tasks as bytes, which is what people are shown."""
    return lambda done, total: progress(size * done // max(total, 1), size)


def is_too_wide(facts: Facts) -> bool:
    """There are so few steps that nothing can be seen."""
    return len(facts.buckets) < _FEW_BUCKETS and choose_width(facts.first_ns, facts.last_ns) < facts.tally.width


def divide(path: str, times: Times, width: int | None, likely: int | None = None) -> Plan:
    """``width``: the steps that were asked for; ``likely``: those that fit, if that is known.

    Raises: BadOption, DiskError, WrongFormat, Corruption.
    """
    works: list[tuple[str, Any]] = []
    snapshots: list[Snapshot] = []
    logs: dict[str, LogPlace] = {}
    for view in _VIEWS:
        if view == _STATE and times.until is not None:
            continue  # how groups are now says nothing about then
        table = Table(replace(ReadOptions.parse({"path": path, "view": view}), is_permissive=True))
        if view == "records":
            table.logs = [place for place in table.logs if place.kind == places.PLAIN]
        if not table.logs:
            continue
        logs.update((place.path, place) for place in table.logs)
        pinned = table.pin()
        snapshots += [pinned] if view != _STATE else []
        is_whole = view in (*_FOLLOWED, _STATE)
        works += [(view, work) for work in table.plan(pinned, Times() if is_whole else times)]
    chosen = width or likely or _width(snapshots, times)
    tasks = [Task(path, view, work, chosen, times) for view, work in works]
    size = sum(snapshot.bytes() for snapshot in snapshots)
    return Plan(tasks, size, chosen, width is not None, times, list(logs.values()))


def _width(snapshots: Sequence[Snapshot], times: Times) -> int:
    every = [file for snapshot in snapshots for file in snapshot.files if file.first_ns is not None]
    files = [file for file in every if file.is_ordered] or every  # in others the times are not those of records
    first = min((file.first_ns for file in files if file.first_ns is not None), default=0)
    last = max((file.last_ns or file.first_ns or 0 for file in files), default=0)
    since = first if times.since is None else max(first, times.since)
    until = last if times.until is None else min(last, times.until)
    return choose_width(since, max(since, until))


def put_together(plan: Plan, parts: Sequence[Part]) -> Facts:
    """Raises: BadOption if the steps that were asked for are too many."""
    times = plan.times
    tally = Tally(plan.width, _floor(plan.width, times))
    lives = Lives(tally, times.since, times.until)
    follower = Messages(tally, times.since, times.until)
    for part in parts:
        tally.take(part.tally)
        lives.take(part.jobs, part.job_events)
        follower.take(part.waiting, part.message_events)
    lives.finish()
    follower.finish()
    facts = _framed(tally, plan)
    if not plan.is_width_given:
        # The ends of some files are known only now: the steps may have been chosen too narrow.
        wider = choose_width(facts.first_ns, facts.last_ns)
        return facts if wider <= plan.width else _framed(tally.widened(wider), plan)
    if len(facts.buckets) > _MOST_BUCKETS:
        raise BadOption(
            f"bucket: {len(facts.buckets):,} steps of {show_width(plan.width)} are more than a page can show",
            hint="make them wider, or the time shorter with since and until",
        )
    return facts


def _framed(tally: Tally, plan: Plan) -> Facts:
    unframed = Facts(tally, plan.times, plan.logs, 0, 0)
    return replace(unframed, first=unframed.first_ns // tally.width, last=unframed.last_ns // tally.width)


def _floor(width: int, times: Times) -> int | None:
    return None if times.since is None else times.since // width - 1


# -- on executors ----------------------------------------------------------------------------------------------------


def measure(task: Task) -> Part:
    """What one task finds. Raises: DiskError; StorageError if a server has merged a file meanwhile."""
    tally = Tally(task.width, _floor(task.width, task.times))
    part = Part(task.view, tally)
    since, until = task.times.since, task.times.until
    if task.view == "jobs":
        lives = Lives(tally, since, until)
        for batch, log, _ in _batches(task, jobs.COLUMNS, tally):
            lives.read(batch, log)
        part.jobs, part.job_events = lives.jobs, lives.untold
    elif task.view == "queue_events":
        follower = Messages(tally, since, until)
        for batch, log, file in _batches(task, messages.COLUMNS, tally):
            follower.read(batch, log, is_journal=file.startswith("messages."))
        part.waiting, part.message_events = follower.waiting, follower.untold
    elif task.view == _STATE:
        for batch, _, _ in _batches(task, counting.GROUP_STATE, tally):
            counting.count_group_state(tally, batch)
    else:
        names, count = _COUNTED[task.view]
        for batch, log, _ in _batches(task, names, tally):
            counting.count_log(tally, batch, log)
            count(tally, batch)
    return part


def _batches(task: Task, names: Sequence[str], tally: Tally) -> Iterator[tuple[pa.RecordBatch, str, str]]:
    """Whole rows, the log they are of, and the file; damage goes to the tally."""
    disk, _ = storage.open_storage(task.path)
    view = views.VIEWS[task.view]
    known: dict[str, Column] = {column.name: column for column in view.columns}
    marks = (DAMAGE,) if view.is_state else _MARKS
    wanted = [*(known[name] for name in names if name != LOG.name), *marks]
    times = Times() if task.view in (*_FOLLOWED, _STATE) else task.times
    for batch in view.read(disk, task.work, wanted, times, is_permissive=True):
        damage = batch.column(DAMAGE.name)
        if damage.null_count < len(damage):
            bad = batch.filter(pc.is_valid(damage)).to_pylist()
            for row in bad if not view.is_state else ():  # a state tells what its log has told already
                tally.hurt(Damage(row["log"] or "", row["file"] or "", row["position"] or 0, row["damage"]))
            batch = batch.filter(pc.is_null(damage))
        if batch.num_rows and view.is_state:
            yield batch, "", ""
        elif batch.num_rows:
            yield batch, batch.column(LOG.name)[0].as_py(), batch.column(FILE.name)[0].as_py()
