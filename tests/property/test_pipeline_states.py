"""States that are folded from the files are what the engine reports: now, and for every earlier moment that was looked
at, whatever happened to the engine and to its files since.

The engines are driven by the machines that hold them against their models; after each step the views are read from the
same disk, beside the engine, which goes on. ``LAMINA_CAMPAIGN=10`` tries ten times as many sequences.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

pytest.importorskip("pyarrow")

from lamina.engines.jobs.views import JobView, show_id
from lamina.engines.queues import ids as queue_ids
from lamina.engines.queues.message import Queue
from lamina.engines.queues.opening import open_engine
from lamina.engines.queues.options import QueueOptions
from lamina.engines.queues.upkeep import Upkeep
from lamina.engines.store import as_of
from lamina.engines.store.options import StoreOptions
from lamina.engines.topics import group_views, ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.topic import Topic
from lamina.errors import BadOption, QuotaMet, TooOld
from lamina.log import LogOptions
from lamina.log.naming import parse
from lamina.testing import ManualClock, MemoryFiles
from property.test_groups_model import GroupsMachine
from property.test_jobs_model import FOLDER as JOBS_FOLDER
from property.test_jobs_model import JobsMachine
from property.test_store_model import FOLDER as STORE_FOLDER
from property.test_store_model import StoreMachine
from property.test_topic_model import FOLDER as TOPIC_FOLDER
from property.test_topic_model import TopicMachine
from store_model import seen_in
from views_lab import micros, rows

pytestmark = pytest.mark.slow

PHASES = [phase for phase in Phase if os.environ.get("LAMINA_SHRINK", "1") != "0" or phase is not Phase.shrink]
CAMPAIGN = int(os.environ.get("LAMINA_CAMPAIGN", "1"))
NEAR_US = 5  # a record may be some nanoseconds later than what it was written for
MOST_KEPT = 8  # moments


def run(machine: Any, examples: int, steps: int = 25) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples * CAMPAIGN,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=PHASES,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def shown(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


# -- jobs ------------------------------------------------------------------------------------------------------------

Jobs = dict[str, dict[str, Any]]


class JobsStateMachine(JobsMachine):
    """The view is read before the engine does what has fallen due, and has to know it."""

    def __init__(self) -> None:
        self.moments: list[tuple[int, Jobs, bool]] = []
        """Time, jobs with the position that brought each, and whether files were cleaned since."""
        self.sizes: dict[str, int] = {}
        super().__init__()
        self.jumps_back = False  # by how much a clock was ahead is not in the files: docs/reference/spark-views.md

    def choose(self, jumps_back: bool) -> None:
        """Not that of the machine above."""

    @invariant()
    def jobs_are_what_the_engine_reports(self) -> None:
        if self.model.waiting:
            self.tick()  # whoever waits is handed what becomes ready, which no file says yet
        self.settle()
        now = max(self.now, self.engine.newest_position(), self.engine.log.position)
        if not self.engine.log.position:
            return  # there is no file yet
        found = self.jobs(now)
        self.tick()
        expected = self.reported()
        assert found == {id: without_position(job) for id, job in expected.items()}
        self.settle()
        self.look_for_cleaning()
        for at, then, was_cleaned in self.moments:
            self.check(at, then, was_cleaned)
        self.remember(expected)

    def check(self, at: int, then: Jobs, was_cleaned: bool) -> None:
        try:
            found = self.jobs(at)
        except TooOld as error:  # not even a file of that time is left
            assert was_cleaned and error.facts["oldest_time_ns"] > at  # type: ignore[operator]
            return
        if was_cleaned:  # of jobs that are over by now, files may have all records, some or none
            alive = {(show_id(job.id), job.added) for job in self.engine.state.jobs.values()}
            then = {id: job for id, job in then.items() if (id, job["added"]) in alive}
            found = {id: job for id, job in found.items() if id in then}
            for id in found.keys() & then.keys():
                if then[id]["state"] == "leased":  # touches since may have taken the place of those before
                    found[id], then[id] = without_lease(found[id]), without_lease(then[id])
        assert found == {id: without_position(job) for id, job in then.items()}

    def remember(self, expected: Jobs) -> None:
        """A moment that is over: what comes next has a later time."""
        now, newest = self.now, max(self.engine.newest_position(), self.engine.log.position)
        if not any(job.ready_at == now for job in self.engine.state.jobs.values()):
            self.moments = [*self.moments, (max(now - 1, newest), expected, False)][-MOST_KEPT:]

    def look_for_cleaning(self) -> None:
        names = [name for name in self.disk.list(JOBS_FOLDER) if parse(name) is not None]
        sizes = {name: len(self.disk.contents()[f"{JOBS_FOLDER}/{name}"]) for name in names}
        if any(sizes.get(name, -1) < size for name, size in self.sizes.items()):
            self.moments = [(at, then, True) for at, then, _ in self.moments]
        self.sizes = sizes

    def jobs(self, at: int) -> Jobs:
        found = rows(self.disk, JOBS_FOLDER, "job_state", asOf=str(at))
        return {row["id"]: facts_of_row(row) for row in found}

    def reported(self) -> Jobs:
        living = [job for job in self.engine.state.jobs.values() if not job.is_foreground]
        return {(view := JobView.of(job)).id: {**facts_of_view(view), "added": job.added} for job in living}


def near(time_us: int | None) -> int | None:
    return None if time_us is None else round(time_us / NEAR_US)


def facts_of_row(row: dict[str, Any]) -> dict[str, Any]:
    facts = {name: row[name] for name in ("name", "state", "payload", "priority", "attempts", "max_attempts")}
    facts |= {name: row[name] for name in ("fails", "max_fails", "ttr_ms", "ttl_ms", "last_error", "result")}
    facts |= {name: micros(row[name]) for name in ("created", "run_at", "lease_until", "expires")}
    return {**facts, "unique": row["unique_key"]}


def facts_of_view(view: JobView) -> dict[str, Any]:
    facts = {name: getattr(view, name) for name in ("name", "state", "payload", "priority", "attempts", "max_attempts")}
    facts |= {name: getattr(view, name) for name in ("fails", "max_fails", "ttr_ms", "ttl_ms", "last_error", "result")}
    times = {
        "created": "created_ns",
        "run_at": "scheduled_ns",
        "lease_until": "lease_until_ns",
        "expires": "expires_ns",
    }
    for name, source in times.items():
        time_ns = getattr(view, source)
        facts[name] = None if time_ns is None else time_ns // 1000
    return {**facts, "unique": view.unique}


def without_lease(job: dict[str, Any]) -> dict[str, Any]:
    """Without what is another when a lease ends sooner."""
    return {name: value for name, value in job.items() if name not in ("state", "lease_until", "last_error")}


def without_position(job: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in job.items() if name != "added"}


def test_job_state_is_what_the_engine_reports() -> None:
    run(JobsStateMachine, 10)


# -- topics ----------------------------------------------------------------------------------------------------------


def paired(fields: Any) -> Any:
    """Every name with a value: no door lets in others."""
    return fields[: len(fields) // 2 * 2]


class TopicStateMachine(TopicMachine):
    def __init__(self) -> None:
        self.moments: list[tuple[int, Any, Any]] = []
        super().__init__()
        add = self.model.add
        self.model.add = lambda entry, fields: add(entry, paired(fields))  # type: ignore[method-assign,assignment]

    def open(self) -> None:
        super().open()
        add = self.topic.add
        self.topic.add = lambda fields, *id: add(paired(fields), *id)  # type: ignore[method-assign]

    @invariant()
    def entries_are_what_the_engine_reports(self) -> None:
        position = self.topic.all_written()
        entries = [(ids.show(id).decode(), fields) for id, fields in self.topic.read(ids.FIRST)[0]]
        first, state = self.topic.first_id(), self.topic.state
        if not position:
            return  # there is no file yet
        summary = (state.length, state.added, show(first), show(state.last_id or None), show(state.max_deleted or None))
        self.compare(entries, summary)
        for at, then, known in self.moments:
            self.compare(then, known, asOf=str(at))
        self.moments = [*self.moments, (position, entries, summary)][-MOST_KEPT:]

    def compare(self, entries: Any, summary: Any, **options: str) -> None:
        found = rows(self.disk, TOPIC_FOLDER, "topic_state", **options)
        assert [(row["id"], row["fields"]) for row in found] == [(id, as_map(fields)) for id, fields in entries]
        for row in rows(self.disk, TOPIC_FOLDER, "topic_summary", **options):
            names = ("length", "added", "first_id", "last_id", "max_deleted_id")
            assert tuple(row[name] for name in names) == summary
            return
        assert summary == (0, 0, None, None, None)


def show(id: EntryId | None) -> str | None:
    return None if id is None else ids.show(id).decode()


def as_map(fields: list[bytes]) -> list[tuple[str, bytes]]:
    return [(shown(name), value) for name, value in zip(fields[::2], fields[1::2], strict=True)]


def test_topic_state_is_what_the_engine_reports() -> None:
    run(TopicStateMachine, 8)


# -- groups ----------------------------------------------------------------------------------------------------------

DATA = "data"


class GroupsStateMachine(GroupsMachine):
    def __init__(self) -> None:
        self.moments: list[tuple[int, Any]] = []
        super().__init__()
        self.add(1, 0)

    def open(self) -> None:
        self.topic = Topic.open(
            f"{DATA}/topics/topic",
            files=self.files,
            clock=self.clock,
            options=LogOptions(sync=self.policy, segment_bytes=300),
            threaded=False,
            tail_bytes=200,
        )
        self.groups = self.topic.groups

    @invariant()
    def groups_are_what_the_engine_reports(self) -> None:
        if self.files.faults:
            return
        at = max(self.topic.all_written(), self.groups.all_written())
        expected = self.reported()
        assert self.found() == expected
        self.moments = [(then, picture) for then, picture in self.moments if self.is_so(then, picture)]
        if at:
            self.moments = [*self.moments, (at, expected)][-MOST_KEPT:]
            self.clock.advance(1e-5)  # the two logs count by themselves: what comes next is later than either

    def is_so(self, at: int, picture: Any) -> bool:
        """False: the groups were written anew since, and the files do not reach back."""
        try:
            assert self.found(asOf=str(at)) == picture
        except TooOld as error:
            oldest = error.facts["oldest_time_ns"]
            assert isinstance(oldest, int) and oldest > at
            self.found(asOf=str(oldest))
            return False
        return True

    def found(self, **options: str) -> Any:
        groups: dict[str, Any] = {}
        for row in rows(self.disk, DATA, "group_state", **options):
            groups[row["group"]] = (row["last_id"], row["read"], row["lag"], row["oldest_pending"], {}, {})
            assert row["topic"] == "topic"
        for row in rows(self.disk, DATA, "group_consumers", **options):
            groups[row["group"]][4][row["consumer"]] = (micros(row["seen"]), row["pending"])
        for row in rows(self.disk, DATA, "group_pending", **options):
            groups[row["group"]][5][row["id"]] = (row["consumer"], micros(row["since"]), row["deliveries"])
        return groups

    def reported(self) -> Any:
        views, groups = group_views, self.groups
        return {
            shown(one.name): (
                show(one.last_id),
                one.read,
                one.lag,
                show(views.summary(groups, one.name).first),
                {shown(each.name): (each.seen * 1000, each.pending) for each in views.consumers(groups, one.name)},
                {
                    show(each.id): (shown(each.consumer), each.time * 1000, each.deliveries)
                    for each in views.pending(groups, one.name)
                },
            )
            for one in views.stats(groups)
        }


def test_group_states_are_what_the_engine_reports() -> None:
    run(GroupsStateMachine, 12)


# -- queues ----------------------------------------------------------------------------------------------------------

WHICH = st.integers(0, 7)
TTL_S = 60


class QueuesStateMachine(RuleBasedStateMachine):
    store = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.disk, self.clock = MemoryFiles(), ManualClock()
        self.random = random.Random(7).randbytes
        self.moments: list[tuple[int, int, Any]] = []
        self.dumped = 0
        self.open()

    def open(self) -> None:
        self.engine = open_engine(
            f"{DATA}/queues",
            options=QueueOptions(store=self.store, quota=3, max_file_messages=4, ttl_s=TTL_S),
            files=self.disk,
            clock=self.clock,
            random=self.random,
            threaded=False,
        )
        self.upkeep = Upkeep(self.engine)

    def some(self, which: int) -> Queue | None:
        queues = list(self.engine.state.queues.values())
        return queues[which % len(queues)] if queues else None

    @rule(ttl=st.sampled_from([-1, -1, 0, 20]), secured=st.booleans())
    def create(self, ttl: int, secured: bool) -> None:
        self.engine.create(None, b"key" if secured else None, ttl)

    @rule(which=WHICH, body=st.binary(max_size=20), ttl=st.sampled_from([-1, -1, 0, 5]), many=st.integers(1, 4))
    def send(self, which: int, body: bytes, ttl: int, many: int) -> None:
        queue = self.some(which)
        for _ in range(many if queue is not None and not queue.is_off else 0):
            assert queue is not None
            try:
                self.engine.send(queue, body, b"T", ttl)
            except QuotaMet:
                return

    @rule(which=WHICH, many=st.integers(1, 4))
    def receive(self, which: int, many: int) -> None:
        queue = self.some(which)
        for _ in range(many if queue is not None else 0):
            assert queue is not None
            head = self.engine.head(queue)
            if head is not None:
                self.engine.acknowledge(queue, head.id)

    @rule(which=WHICH, what=st.sampled_from(["secure", "suspend", "delete"]))
    def change(self, which: int, what: str) -> None:
        queue = self.some(which)
        if queue is None or (what == "secure" and queue.skey is not None):
            return
        if what == "secure":
            self.engine.secure(queue, b"another")
        elif what == "suspend":
            self.engine.suspend(queue)
        else:
            self.engine.delete(queue)

    @rule(seconds=st.sampled_from([1, 4, 30, 100]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.upkeep.expire_all()

    @rule()
    def dump(self) -> None:
        self.settle()
        self.upkeep.expire_all()  # or the dump leaves out what no record says is gone
        before = self.settle()
        if self.upkeep.dump() is not None:
            self.dumped = before

    @rule(is_orderly=st.booleans())
    def restart(self, is_orderly: bool) -> None:
        self.upkeep.expire_all()
        self.settle()
        if is_orderly:
            self.engine.close()
        self.disk = MemoryFiles(self.disk.contents())
        self.clock.advance(1)
        self.open()

    def settle(self) -> int:
        if self.engine.keeper is not self.engine:
            self.engine.keeper.settle(self.engine.keeper.newest_position())
        return self.engine.all_written()

    @invariant()
    def queues_are_what_the_engine_reports(self) -> None:
        at, expected = self.settle(), self.reported()
        now = self.clock.now_ns() // 10**9
        assert self.found(now) == expected
        for then, time, picture in self.moments if self.store == "memory" else ():
            try:
                assert self.found(time, asOf=str(then)) == picture
                assert then >= self.dumped
            except TooOld as error:
                assert then < self.dumped and error.facts["oldest_time_ns"] == self.dumped
        if at:
            self.moments = [*self.moments, (at, now, expected)][-MOST_KEPT:]

    def found(self, now: int, **options: str) -> Any:
        """Without messages that have expired: an engine leaves them out when it starts, and no record says so."""
        queues: dict[str, Any] = {}
        waiting: dict[str, list[dict[str, Any]]] = {}
        for row in rows(self.disk, DATA, "queue_messages", **options):
            messages = waiting.setdefault(row["queue"], [])
            messages.append(row)
            assert row["number"] == len(messages) and row["is_quota"] == (row["body"] is None)
        for row in rows(self.disk, DATA, "queue_state", **options):
            messages = waiting.pop(row["queue"], [])
            assert row["waiting"] == len([one for one in messages if not one["is_quota"]])
            assert row["bytes"] == sum(one["size"] for one in messages)
            assert [row["oldest"], row["newest"]] == [messages[at]["sent"] if messages else None for at in (0, -1)]
            assert (row["store"], row["problem"]) in ((self.store, None), ("memory", None))
            ttl = TTL_S if row["ttl_s"] is None else row["ttl_s"]
            kept = [self.shown(one) for one in messages if not self.is_over(one, now, ttl)]
            queues[row["queue"]] = (row["status"], row["is_secured"], row["is_closed"], row["ttl_s"], kept)
        assert not waiting
        return queues

    def is_over(self, row: dict[str, Any], now: int, ttl: int) -> bool:
        lasts = ttl if row["ttl_s"] is None else row["ttl_s"]
        return row["body"] is not None and lasts > 0 and row["sent"].timestamp() < now - lasts

    def shown(self, row: dict[str, Any]) -> Any:
        return row["message"], micros(row["sent"]), row["flags"] or b"", row["body"], row["ttl_s"]

    def reported(self) -> Any:
        now = self.clock.now_ns() // 10**9
        queues = {}
        for queue in self.engine.state.queues.values():
            ttl = TTL_S if queue.ttl < 0 else queue.ttl
            messages = self.engine.messages.messages(queue)
            queues[queue_ids.handle(queue.rid)] = (
                "off" if queue.is_off else "active",
                queue.skey is not None,
                self.engine.messages.is_closed(queue),
                queue.ttl if queue.ttl >= 0 else None,
                [
                    (
                        queue_ids.handle(message.id),
                        message.ts * 10**6,
                        message.flags,
                        message.body,
                        message.ttl if message.ttl >= 0 else None,
                    )
                    for message in messages
                    if not message.has_expired(now, ttl)
                ],
            )
        return queues


@pytest.mark.parametrize("store", ["memory", "journal"])
def test_queue_states_are_what_the_engine_reports(store: str) -> None:
    run(type("QueuesStateMachine", (QueuesStateMachine,), {"store": store}), 15)


def test_journals_have_no_past() -> None:
    machine = type("QueuesStateMachine", (QueuesStateMachine,), {"store": "journal"})()
    machine.create(-1, False)
    machine.send(0, b"hello", -1, 1)
    machine.queues_are_what_the_engine_reports()
    with pytest.raises(BadOption, match="journals"):
        machine.found(0, asOf=str(machine.clock.now_ns()))


# -- the store -------------------------------------------------------------------------------------------------------


class StoreStateMachine(StoreMachine):
    options = StoreOptions(epoch_ms=0, memory_bytes=1500, part_bytes=1024)

    def __init__(self) -> None:
        self.times: list[int] = []
        super().__init__()

    @invariant()
    def entries_are_what_the_engine_reports(self) -> None:
        assert self.found() == self.model.now()[0]
        for at in self.times:
            self.check(at)
        self.times = [*self.times, self.clock.now_ns()][-MOST_KEPT:]
        self.clock.advance(0.001)

    def check(self, at: int) -> None:
        try:
            expected = seen_in(as_of.as_of_time(self.engine, at))
        except TooOld:
            with pytest.raises(TooOld):
                self.found(asOf=str(at))
        else:
            assert self.found(asOf=str(at)) == expected[0]

    def found(self, **options: str) -> Any:
        found = rows(self.files, STORE_FOLDER, "store_state", **options)
        return tuple(((row["storage"] % (1 << 64), row["key"]), row["value"]) for row in found)


def test_store_state_is_what_the_engine_reports() -> None:
    run(StoreStateMachine, 8)
