"""Folders of the real workq server show in our engine what they show in its own; ours are right by its rules.

What is compared is all that a client can see: every job, the order of both lists, the queues, the results.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lamina.engines.jobs import codec
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import AT_READY, AT_SCHEDULED, COMPLETED, Job
from lamina.engines.jobs.upkeep import Upkeep
from lamina.engines.jobs.views import show_id
from lamina.errors import BadJob, JobError, JobNotFound
from lamina.log import LogOptions, rewrite
from lamina.log.files.real import RealFiles
from lamina.log.frame import crc32c
from lamina.log.naming import NUMBERED, parse
from lamina.log.sync import OS
from lamina.server.workq.replies import show_time
from lamina.testing import ManualClock

GOLDEN = Path(os.environ.get("LAMINA_GOLDEN", Path(__file__).parents[3] / "shared" / "golden")) / "workq"
CASES = sorted(case.name for case in GOLDEN.glob("g*")) if GOLDEN.is_dir() else []
RECORDED = 1_794_800_000 * 10**9  # shortly after the real server read these folders, November 2026
golden = pytest.mark.skipif(not CASES, reason="no golden folders of workq here (set LAMINA_GOLDEN)")
every_case = pytest.mark.parametrize("case", CASES)


# -- what is seen --------------------------------------------------------------------------------------------------


def expected(case: str) -> dict[str, Any]:
    facts = json.loads((GOLDEN / case / "expected.json").read_text())
    # g08: the real server refuses a torn tail, ours cuts it off (reliability.md).
    state: dict[str, Any] = facts["state"] or facts["state_if_tail_dropped"]
    return state


def open_engine(folder: Path, clock: ManualClock, **options: Any) -> JobEngine:
    return JobEngine.open(str(folder), clock=clock, threaded=False, options=LogOptions(sync=OS, **options))


def seen(engine: JobEngine, ids: list[str]) -> dict[str, Any]:
    """As expected.json has it."""
    jobs = {id: find(engine, id) for id in ids}
    return {
        "queues": {
            name: {
                "jobs": [show_id(job.id) for job in queue.lists[AT_READY]],
                "ready-len": len(queue.lists[AT_READY]),
                "scheduled-jobs": [show_id(job.id) for job in queue.lists[AT_SCHEDULED]],
                "scheduled-len": len(queue.lists[AT_SCHEDULED]),
            }
            for name, queue in engine.state.queues.items()
        },
        "jobs": {id: "-NOT-FOUND" if job is None else shown_job(job) for id, job in jobs.items()},
        "results": {id: "-NOT-FOUND" if job is None else shown_result(job) for id, job in jobs.items()},
    }


def find(engine: JobEngine, id: str) -> Job | None:
    try:
        return engine.job(bytes.fromhex(id.replace("-", "")))
    except JobNotFound:
        return None


def shown_job(job: Job) -> dict[str, Any]:
    facts = {
        "_count": 12 if job.time is None else 13,
        "name": job.queue.name,
        "payload": job.payload.hex()
        if len(job.payload) <= 256
        else "sha256:" + hashlib.sha256(job.payload).hexdigest(),
        "payload-size": str(len(job.payload)),
        "created": show_time(job.created).decode(),
    }
    for name in ("ttr", "ttl", "max_attempts", "attempts", "max_fails", "fails", "priority", "state"):
        facts[name.replace("_", "-")] = str(getattr(job, name))
    return facts if job.time is None else {**facts, "time": show_time(job.time).decode()}


def shown_result(job: Job) -> str | dict[str, Any]:
    if not job.is_processed:
        return "-TIMEOUT"
    assert job.result is not None
    return {"success": int(job.state == COMPLETED), "result_hex": shown_bytes(job.result)}


def shown_bytes(data: bytes) -> str:
    return data.hex() if len(data) <= 256 else "sha256:" + hashlib.sha256(data).hexdigest()


def without_empty_queues(state: dict[str, Any]) -> dict[str, Any]:
    """A queue without jobs is remembered by nobody: it is there as long as a record that is replayed names it."""
    queues = {name: queue for name, queue in state["queues"].items() if queue["jobs"] or queue["scheduled-jobs"]}
    return {**state, "queues": queues}


@pytest.fixture
def folder(case: str, tmp_path: Path) -> Path:
    """A copy to open: opening for writing may cut a tail."""
    copy = Path(shutil.copytree(GOLDEN / case / "cmdlog", tmp_path / "cmdlog"))
    for path in (copy, *copy.iterdir()):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return copy


def nothing(engine: JobEngine) -> None:
    pass


def make_a_checkpoint(engine: JobEngine) -> None:
    Upkeep(engine).checkpoint()


def clean(engine: JobEngine) -> None:
    Upkeep(engine).cleaner.cycle(everything=True)


# -- theirs, read by ours ------------------------------------------------------------------------------------------


@golden
@every_case
def test_the_folder_shows_what_the_real_server_shows(case: str, folder: Path) -> None:
    engine = open_engine(folder, ManualClock(RECORDED))
    state = expected(case)
    assert seen(engine, list(state["jobs"])) == state
    assert engine.evicted == 0
    engine.close()


@golden
@every_case
@pytest.mark.parametrize("between", [nothing, make_a_checkpoint, clean])
def test_it_does_so_again_at_every_later_start(case: str, folder: Path, between: Callable[[JobEngine], None]) -> None:
    state, clock = expected(case), ManualClock(RECORDED)
    for _ in range(3):
        engine = open_engine(folder, clock)
        between(engine)
        engine.close()
        assert without_empty_queues(seen(engine, list(state["jobs"]))) == without_empty_queues(state)
        clock.advance(1)
    assert (folder / "checkpoint").exists() or between is not make_a_checkpoint


@golden
@every_case
def test_jobs_go_on_where_the_real_server_left_them(case: str, folder: Path) -> None:
    state, clock = expected(case), ManualClock(RECORDED)
    engine = open_engine(folder, clock)
    for name, queue in sorted(state["queues"].items()):
        jobs, position = engine.lease([name], 1000)
        assert [show_id(job.id) for job in jobs] == queue["jobs"]
        engine.settle(position)
        for job in jobs:
            engine.settle(engine.complete(job.id, b"by ours"))
    engine.close()
    engine = open_engine(folder, clock)
    for queue in state["queues"].values():
        for id in queue["jobs"]:
            job = find(engine, id)
            assert job is not None and (job.state, job.result) == (COMPLETED, b"by ours")
    engine.close()
    replay_strictly(folder)


# -- ours, read by the real server's rules -------------------------------------------------------------------------
# An own, strict decoder and the refusals of a replay, from the description of the format alone.

TYPES = {1: "add", 2: "schedule", 3: "complete", 4: "fail", 5: "delete", 6: "expire", 7: "start", 8: "timeout"}
YEAR_1 = 62135596800


class Refused(Exception):
    """The real server would not start."""


class Bytes:
    """Takes fields off a record."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise Refused("unexpected EOF")
        self.at += size
        return self.data[self.at - size : self.at]

    def uvarint(self) -> int:
        number = shift = 0
        while True:
            (byte,) = self.take(1)
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                if number >= 1 << 64:
                    raise Refused("varint overflow")
                return number
            shift += 7

    def time(self) -> int | None:
        """Nanoseconds since 1970, None for the zero time."""
        data = self.take(15)
        if data[0] != 1:
            raise Refused("unsupported version")
        seconds, nanos = (int.from_bytes(part, "big", signed=True) for part in (data[1:9], data[9:13]))
        if data[13:] != b"\xff\xff" or not 0 <= nanos < 10**9:
            raise Refused(f"a time that no server writes: {data.hex()}")
        return None if (seconds, nanos) == (0, 0) else (seconds - YEAR_1) * 10**9 + nanos


@dataclass
class Record:
    kind: str
    id: bytes
    facts: dict[str, Any] = field(default_factory=dict)


def decode(payload: bytes) -> Record:
    fields = Bytes(payload)
    (kind,) = fields.take(1)
    if kind not in TYPES:
        raise Refused(f"unknown type {kind}")
    record = Record(TYPES[kind], fields.take(16))
    if kind <= 2:
        facts = record.facts
        facts["name"] = fields.take(fields.uvarint())
        facts["ttr"], facts["ttl"] = fields.uvarint(), fields.uvarint()
        zigzag = fields.uvarint()
        facts["priority"] = (zigzag >> 1) ^ -(zigzag & 1)
        facts["max_attempts"], facts["max_fails"] = fields.uvarint(), fields.uvarint()
        facts["payload"] = fields.take(fields.uvarint())
        facts["time"], facts["created"] = fields.time(), fields.time()
    elif kind <= 4:
        record.facts["result"] = fields.take(fields.uvarint())
    if fields.at != len(payload):
        raise Refused("trailing garbage detected")
    return record


def check_id(id: bytes) -> None:
    if id[6] >> 4 != 4 or id[8] >> 6 != 2:
        raise Refused(f"Invalid ID {id.hex()}")


def check_values(record: Record) -> None:
    """Of a job whose life is not over: of another nothing is looked at."""
    facts = record.facts
    check_id(record.id)
    letters = set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
    checks = {
        "Name": 1 <= len(facts["name"]) <= 255 and letters.issuperset(facts["name"]),
        "TTR": 1 <= facts["ttr"] <= 86_400_000,
        "TTL": 1 <= facts["ttl"] <= 2_592_000_000,
        "Priority": -(2**31) <= facts["priority"] < 2**31,
        "Max": facts["max_attempts"] <= 255 and facts["max_fails"] <= 255,
        "Payload": len(facts["payload"]) <= 1 << 20,
        "Time": record.kind == "schedule" or facts["time"] is None,
    }
    for what, is_right in checks.items():
        if not is_right:
            raise Refused(f"Invalid {what}")


def records_of(folder: Path) -> Iterator[bytes]:
    """Payloads of all segments, every byte of which is accounted for."""
    for path in sorted(folder.glob("?????????.log")):
        fields = Bytes(path.read_bytes())
        assert fields.take(8) == b"wqwq\0\0\0\1"
        while fields.at < len(fields.data):
            start = fields.at
            fields.time()
            payload = fields.take(fields.uvarint())
            body = fields.data[start : fields.at]
            assert int.from_bytes(fields.take(4), "big") == crc32c(body), "crc mismatch"
            yield payload


@dataclass
class Live:
    state: str = "new"
    attempts: int = 0
    max_attempts: int = 0


def replay_strictly(folder: Path, now: int = RECORDED) -> dict[bytes, Live]:
    """What the real server has in memory after a start. Raises: Refused where it would not start."""
    jobs: dict[bytes, Live] = {}
    for payload in records_of(folder):
        record = decode(payload)
        id, job = record.id, jobs.get(record.id)
        if record.kind in ("complete", "fail", "delete"):
            check_id(id)
        if len(record.facts.get("result", b"")) > 1 << 20:
            raise Refused("Invalid Result")
        if record.kind in ("add", "schedule"):
            facts = record.facts
            start = facts["created"] if record.kind == "add" else facts["time"]
            if start is None or start + facts["ttl"] * 10**6 <= now:
                continue  # the zero time is long past
            check_values(record)
            if job is not None:
                raise Refused("Duplicate job")
            jobs[id] = Live(max_attempts=facts["max_attempts"])
        elif job is None:
            continue
        elif record.kind in ("delete", "expire"):
            del jobs[id]
        elif record.kind in ("complete", "fail"):
            if job.state == "processed":
                raise Refused(f"Duplicate result of {id.hex()}")
            job.state = "processed"
        elif record.kind == "start":
            if job.state in ("leased", "processed"):
                raise Refused(f"start of {id.hex()}, which is {job.state}")
            if job.attempts >= (job.max_attempts or 255):
                raise Refused(f"start of {id.hex()} after its last attempt")
            job.state, job.attempts = "leased", job.attempts + 1
        elif job.state != "processed":
            is_last = job.max_attempts and job.attempts >= job.max_attempts
            job.state = "processed" if is_last else "pending"
    return jobs


@golden
@pytest.mark.parametrize("case", [case for case in CASES if case != "g08_torn_tail"])
def test_the_strict_replay_takes_what_the_real_server_wrote(case: str) -> None:
    """So what it refuses in ours is ours."""
    state = expected(case)
    found = replay_strictly(GOLDEN / case / "cmdlog")
    assert {show_id(id) for id in found} == {id for id, job in state["jobs"].items() if job != "-NOT-FOUND"}


def nth(number: int) -> bytes:
    return bytes.fromhex(f"{number:08x}000040008000{number:012x}")


@dataclass
class Story:
    """Every command, on a folder with small segments."""

    folder: Path
    clock: ManualClock = field(default_factory=lambda: ManualClock(RECORDED))

    def __post_init__(self) -> None:
        self.engine = open_engine(self.folder, self.clock, segment_bytes=300)

    def add(self, number: int, name: str = "q", ttr: int = 1000, ttl: int = 3_600_000, **more: Any) -> None:
        self.engine.settle(self.engine.add(nth(number), name, ttr, ttl, b"payload %d" % number, **more))

    def do(self, command: str, number: int, *arguments: Any, **more: Any) -> None:
        self.engine.settle(getattr(self.engine, command)(nth(number), *arguments, **more))

    def lease(self, number: int, name: str = "q") -> None:
        jobs, position = self.engine.lease([name])
        assert [job.id for job in jobs] == [nth(number)]
        self.engine.settle(position)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.engine.tick()

    def of_workq(self) -> None:
        """What workq has, too."""
        self.add(1, priority=9)
        self.add(2, priority=-(2**31), max_attempts=2)
        self.add(3, "later", time=self.engine.clock.now_ns() + 5 * 10**9)
        self.add(4, "short", ttl=2000)
        self.add(5, "deleted")
        self.lease(1)
        self.do("complete", 1, b"done")
        self.lease(2)
        self.pass_time(1.1)
        self.lease(2)
        self.pass_time(1.1)
        self.do("delete", 5)
        self.add(5, "again")
        self.do("fail", 5, b"no")
        self.pass_time(5)
        self.lease(3, "later")
        self.engine.run(nth(6), "fore", 1000, b"now")
        self.lease(6, "fore")
        self.do("complete", 6, b"")

    def of_ours(self) -> None:
        """What workq does not know, but must not stumble over."""
        self.add(11, "uniques", unique="key", backoff=50)
        self.engine.settle(self.engine.pause("paused"))
        self.engine.settle(self.engine.pause("paused", pauses=False))
        self.engine.settle(self.engine.pause("stays"))
        self.lease(11, "uniques")
        self.do("touch", 11, 60_000)
        self.do("complete", 11, b"")
        self.add(12, "again", max_fails=3, backoff=10, ttl=86_400_000)
        self.lease(12, "again")
        self.do("fail", 12, b"once")
        self.pass_time(0.1)
        self.lease(12, "again")
        self.do("release", 12, 20)
        self.pass_time(0.1)
        self.lease(12, "again")
        self.do("fail", 12, b"in the end", for_good=True)
        self.do("redrive", 12)
        self.lease(12, "again")
        self.do("complete", 12, b"at last")
        self.add(13, "large", max_fails=3, ttl=86_400_000)
        for _ in range(2):
            self.lease(13, "large")
            self.do("fail", 13, bytes(1 << 20))  # a note of it has no room in a result
        self.lease(13, "large")
        self.do("fail", 13, b"", for_good=True)
        self.do("redrive", 13)
        self.do("complete", 13, bytes(1 << 20))

    def restart(self) -> None:
        self.engine.close()
        self.engine = open_engine(self.folder, self.clock, segment_bytes=300)


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    story = Story(tmp_path / "jobs")
    yield story
    story.engine.close()


def check_by_its_rules(story: Story) -> None:
    """The real server starts on it, and knows the same jobs."""
    story.engine.close()
    jobs = story.engine.state.jobs
    assert not any(id.startswith(b"lam") for id in jobs), "an id of ours that a job has"
    found = replay_strictly(story.folder, story.engine.clock.now_ns())
    assert found.keys() == {id for id, job in jobs.items() if not job.is_foreground}
    for id, live in found.items():
        # A job that was driven again, or released at its last attempt, stays failed or leased for workq.
        assert jobs[id].beyond or (live.state == "processed") == jobs[id].is_processed
    story.engine = open_engine(story.folder, story.clock, segment_bytes=300)


@pytest.mark.parametrize("between", [nothing, make_a_checkpoint, clean])
def test_what_we_write_is_right_by_the_rules_of_the_real_server(
    story: Story, between: Callable[[JobEngine], None]
) -> None:
    story.of_workq()
    between(story.engine)
    check_by_its_rules(story)
    story.of_ours()
    between(story.engine)
    check_by_its_rules(story)
    story.pass_time(3600)
    between(story.engine)
    between(story.engine)
    check_by_its_rules(story)


@pytest.mark.parametrize("between", [nothing, clean])
def test_ids_that_come_again_and_again_are_right_by_its_rules(
    story: Story, between: Callable[[JobEngine], None]
) -> None:
    for turn in range(12):
        for number in (1, 2, 3):
            story.add(number, ttl=2000 if number == 3 else 3_600_000)
        story.lease(1)
        story.do("complete", 1, b"%d" % turn)
        story.do("delete", 1)
        story.do("delete", 2)
        story.pass_time(2.1)
        between(story.engine)
        if turn % 4 == 3:
            check_by_its_rules(story)


def test_no_job_may_have_an_id_of_ours(story: Story) -> None:
    for number in (0, 2, 255):
        id = bytes.fromhex(f"6c616d6a6f624000800000000000{number:04x}")
        with pytest.raises(BadJob, match="Reserved ID"):
            story.engine.add(id, "q", 1000, 1000, b"")
        with pytest.raises(BadJob, match="Reserved ID"):
            story.engine.run(id, "q", 1000, b"")
    check_by_its_rules(story)


def in_the_former_form(payload: bytes) -> bytes:
    """A note as it was before layout 2."""
    if not codec.is_note(payload):
        return payload
    kind, id, number, text = codec.decode_note(payload)
    body = id + codec.uvarint(number) + text
    return b"\x03lamjob\0" + bytes([kind]) + bytes(8) + codec.uvarint(len(body)) + body


def as_it_was(folder: Path) -> None:
    """Write a log as a lamina of before would have."""
    (folder / "checkpoint").unlink(missing_ok=True)
    for path in sorted(folder.glob("?????????.log")):
        name = parse(path.name)
        assert name is not None
        rewrite.drop_records(
            RealFiles(),
            str(folder),
            name,
            NUMBERED,
            lambda time_ns, payload: payload != codec.FENCE_RECORD,
            renew=in_the_former_form,
        )


def test_cleaning_makes_notes_of_before_right_by_its_rules(story: Story) -> None:
    story.of_workq()
    story.of_ours()
    story.engine.settle(story.engine.pause("last"))  # in the file that goes on growing
    story.engine.close()
    as_it_was(story.folder)
    payloads = list(records_of(story.folder))
    assert any(map(codec.is_old_note, payloads)) and codec.FENCE_RECORD not in payloads
    with pytest.raises(Refused, match="Invalid ID"):
        replay_strictly(story.folder, story.engine.clock.now_ns())
    story.engine = open_engine(story.folder, story.clock, segment_bytes=300)
    before = without_empty_queues(seen(story.engine, [show_id(id) for id in story.engine.state.jobs]))
    clean(story.engine)
    check_by_its_rules(story)
    payloads = list(records_of(story.folder))
    assert not any(map(codec.is_old_note, payloads)) and payloads.count(codec.FENCE_RECORD) == 1
    assert without_empty_queues(seen(story.engine, list(before["jobs"]))) == before
    (story.folder / "checkpoint").unlink()
    story.restart()
    assert without_empty_queues(seen(story.engine, list(before["jobs"]))) == before
    assert story.engine.state.is_fenced


def test_a_lamina_of_before_refuses_what_it_would_forget(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the fence for an ``add`` with a number that cannot be, and passes over a checkpoint of version 2."""
    story.add(1)
    make_a_checkpoint(story.engine)
    story.do("delete", 1)
    story.of_ours()
    make_a_checkpoint(story.engine)
    assert (story.folder / "checkpoint").read_bytes()[:8] == b"lmjc\0\0\0\2"
    fences = [number for number, payload in enumerate(records_of(story.folder)) if payload == codec.FENCE_RECORD]
    notes = [number for number, payload in enumerate(records_of(story.folder)) if codec.is_note(payload)]
    assert fences == notes[:1]
    with pytest.raises(codec.BadRecord, match=f"a number of {codec.LONGEST_MS + 1} where"):
        codec.decode_job(codec.FENCE_RECORD)  # as it did with every add


def retry(story: Story) -> None:
    story.do("fail", 1, b"once")


def release(story: Story) -> None:
    story.do("release", 1)


def redrive(story: Story) -> None:
    story.do("fail", 1, b"", for_good=True)
    story.do("redrive", 1)


@pytest.mark.parametrize("back", [retry, release, redrive])
@pytest.mark.parametrize("end", ["leased", "completed"])
@pytest.mark.parametrize("limit", [0, 1, 2])
def test_a_job_that_came_back_by_a_note_is_right_by_its_rules(
    story: Story, back: Callable[[Story], None], end: str, limit: int
) -> None:
    story.add(1, max_fails=3, max_attempts=limit and limit + (back is retry))
    story.lease(1)
    back(story)
    story.lease(1)
    if end == "completed":
        story.do("complete", 1, b"done")
    check_by_its_rules(story)


def test_a_job_with_more_attempts_than_workq_has_is_right_by_its_rules(story: Story) -> None:
    story.add(1, ttr=1)
    for _ in range(258):
        story.lease(1)
        story.pass_time(0.01)
    check_by_its_rules(story)


def test_a_job_that_was_released_and_then_timed_out_is_right_by_its_rules(story: Story) -> None:
    story.add(1, max_attempts=2)
    story.lease(1)
    story.do("release", 1)
    story.lease(1)
    story.pass_time(1.1)
    story.lease(1)
    check_by_its_rules(story)


@pytest.mark.parametrize("seed", range(12))
def test_any_story_is_right_by_its_rules(story: Story, seed: int) -> None:
    chance = random.Random(seed)
    for step in range(150):
        number, act = chance.randint(1, 6), chance.choice(ACTS)
        with suppress(JobError, BadJob):
            act(story, chance, number)
        if chance.random() < 0.3:
            story.pass_time(chance.choice([0.01, 0.5, 1.2, 4]))
        if step % 50 == 49:
            check_by_its_rules(story)


def add_any(story: Story, chance: random.Random, number: int) -> None:
    at = story.engine.world_ns() + chance.choice([-1, 1, 3]) * 10**9
    story.add(
        number,
        ttl=chance.choice([3000, 3_600_000]),
        max_attempts=chance.choice([0, 1, 2]),
        max_fails=chance.choice([0, 2, 3]),
        time=chance.choice([None, None, at]),
        unique=chance.choice(["", "", "key"]),
        backoff=chance.choice([0, 0, 100]),
    )


def lease_any(story: Story, chance: random.Random, number: int) -> None:
    story.engine.settle(story.engine.lease(["q"], chance.randint(1, 3))[1])


def restart_or_clean(story: Story, chance: random.Random, number: int) -> None:
    chance.choice([nothing, nothing, make_a_checkpoint, clean, lambda _: story.restart()])(story.engine)


def of_a_job(command: str, *arguments: Any, **more: Any) -> Callable[[Story, random.Random, int], None]:
    return lambda story, chance, number: story.do(command, number, *arguments, **more)


ACTS = [
    *(add_any, add_any, add_any, lease_any, lease_any, lease_any, restart_or_clean),
    *(of_a_job("complete", b"r"), of_a_job("fail", b"e"), of_a_job("fail", b"e"), of_a_job("fail", b"", for_good=True)),
    *(of_a_job("release"), of_a_job("release", 50), of_a_job("touch", 5000), of_a_job("redrive"), of_a_job("redrive")),
    of_a_job("delete"),
]
