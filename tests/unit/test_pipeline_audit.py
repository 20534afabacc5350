"""Promises of the job ``audit``: it names every mistake that was planted, and none where the engines were at work."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import upkeep_lab
from history_lab import START, History
from lamina.cli.pipeline_audit import audit as command
from lamina.clock import ManualClock
from lamina.engines.jobs import codec as jobs
from lamina.engines.queues import codec as queues
from lamina.engines.queues.message import NO_TTL, Message, Queue
from lamina.engines.topics import codec as topics
from lamina.engines.topics import entries, ids
from lamina.engines.topics import group_codec as groups
from lamina.errors import BadOption
from lamina.log import LogOptions, Reader, kernel
from lamina.log.formats import GROUP, JOBS, PLAIN, QUEUE_STORE, TOPIC, Format
from lamina.log.naming import NUMBERED, STORED, TIMED, Family, show_file_time
from lamina.log.writer import Log
from lamina.pipeline.jobs.audit import AuditReport, audit
from lamina.pipeline.jobs.export import export

A, B = b"a" * 16, b"b" * 16
RID, SID = b"r" * 24, b"s" * 24


def violations(data: Path, **options: Any) -> list[tuple[str, str, int, int | None]]:
    """All of them: check, file, byte, time."""
    found = audit(str(data), engine="local", **options)
    assert found.is_sound == (found.violations == 0)
    return [(check.name, one.file, one.position, one.time_ns) for check in found.checks for one in check.violations]


def notes(report: AuditReport, name: str) -> list[str]:
    return next(check.notes for check in report.checks if check.name == name)


# -- histories that the engines have made ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_what_engines_write_is_sound_whatever_upkeep_does_to_it(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "data", seed)
    history.steps(150, upkeep=True)
    assert violations(tmp_path / "data") == []  # beside the engines
    history.close()
    report = audit(str(tmp_path / "data"))
    assert report.is_sound and report.bytes > 0
    rows = {check.name: check.rows for check in report.checks}
    assert rows["job-added"] and rows["topic-ids"] and rows["queue-dumps"] and rows["store"]


def test_ends_whose_beginning_was_cleaned_away_are_no_violation_and_told(tmp_path: Path) -> None:
    upkeep_lab.jobs_folder(tmp_path, steps=600)
    assert violations(tmp_path) == []
    before = sum(path.stat().st_size for path in (tmp_path / "jobs").glob("*.log"))
    upkeep_lab.cleaned_by_the_engine(tmp_path, upkeep_lab.LATER)
    assert sum(path.stat().st_size for path in (tmp_path / "jobs").glob("*.log")) < before
    report = audit(str(tmp_path))
    assert report.is_sound, report.checks
    assert "whose beginning cleaning has removed" in notes(report, "job-added")[0]


def test_queues_with_torn_logs_and_dumps_are_sound(tmp_path: Path) -> None:
    folder = tmp_path / "queues"
    folder.mkdir()
    for name, data in upkeep_lab.some_store().items():
        (folder / name).write_bytes(data)
    # Records that mean nothing to their queue are part of that lab: only frames and dumps count here.
    found = {check for check, *_ in violations(tmp_path)}
    assert found <= {"queue-heads", "queue-once", "queue-story"}


# -- mistakes, one each ----------------------------------------------------------------------------------------------


def put(
    data: Path, folder: str, family: Family, format: Format, payloads: Sequence[bytes]
) -> list[tuple[str, int, int]]:
    """A log of these records. Returns where they are: file, byte, time."""
    place = str(data / folder)
    clock = ManualClock(START)
    log = Log.open(place, family=family, format=format, clock=clock, threaded=False)
    for payload in payloads:
        clock.advance(1)
        log.append(payload)
        log.run_round()
    log.close()
    return [(one.file, one.offset, one.time_ns) for one in Reader(place, family=family).read()]


def add(id: bytes, ttl: int = 60_000, created: int = START) -> bytes:
    return jobs.encode_job(id, "q", 1000, ttl, 0, 0, 0, b"payload", None, created)


def plain(kind: int, id: bytes) -> bytes:
    return jobs.encode_plain(kind, id)


def result(kind: int, id: bytes) -> bytes:
    return jobs.encode_result(kind, id, b"")


def note(kind: int, id: bytes) -> bytes:
    return jobs.encode_note(kind, id, 5, b"")


START_, TIMEOUT, DELETE, COMPLETE = jobs.START, jobs.TIMEOUT, jobs.DELETE, jobs.COMPLETE

JOB_MISTAKES: dict[str, tuple[str, list[bytes], int]] = {
    "completed, never added": ("job-added", [add(A), result(COMPLETE, B)], 1),
    "failed, never added": ("job-added", [add(A), result(jobs.FAIL, B)], 1),
    "expired, never added": ("job-added", [plain(jobs.EXPIRE, B), add(A)], 0),
    "deleted twice": ("job-added", [add(A), plain(DELETE, A), plain(DELETE, A)], 2),
    "timed out, never added": ("job-added", [plain(TIMEOUT, B)], 0),
    "added twice": ("job-once", [add(A), add(B), add(A)], 2),
    "completed twice": ("job-ended-once", [add(A), result(COMPLETE, A), result(COMPLETE, A)], 2),
    "begun after its end": ("job-ended-once", [add(A), result(COMPLETE, A), plain(START_, A)], 2),
    "driven again, not failed": ("job-ended-once", [add(A), note(jobs.REDRIVE, A)], 1),
    "timed out, never begun": ("job-attempts", [add(A), plain(TIMEOUT, A), add(B)], 1),
    "begun twice": ("job-attempts", [add(A), plain(START_, A), plain(START_, A)], 2),
    "touched, never begun": ("job-attempts", [add(A), note(jobs.TOUCH, A)], 1),
    "given back, never begun": ("job-attempts", [add(A), note(jobs.RELEASE, A)], 1),
    "retried without an end": ("job-attempts", [add(A), note(jobs.RETRY, A)], 1),
    "no command": ("meaning", [add(A), b"\x63" + bytes(40)], 1),
}


@pytest.mark.parametrize("name", JOB_MISTAKES)
def test_a_mistake_in_the_command_log_is_named(tmp_path: Path, name: str) -> None:
    check, payloads, where = JOB_MISTAKES[name]
    places = put(tmp_path, "jobs", NUMBERED, JOBS, payloads)
    assert violations(tmp_path) == [(check, *places[where])]


def test_what_the_engine_allows_to_jobs_is_no_violation(tmp_path: Path) -> None:
    late = START + 3600 * 10**9
    put(
        tmp_path,
        "jobs",
        NUMBERED,
        JOBS,
        [
            add(A, ttl=1),  # over when it is added once more
            add(A),
            plain(TIMEOUT, A),  # a failure without an attempt
            note(jobs.RETRY, A),
            plain(START_, A),
            plain(TIMEOUT, A),  # given back
            note(jobs.RELEASE, A),
            result(jobs.FAIL, A),
            note(jobs.REDRIVE, A),
            result(COMPLETE, A),
            plain(DELETE, A),
            add(A, created=late),
        ],
    )
    assert violations(tmp_path) == []


def entry(ms: int) -> bytes:
    return entries.encode(ids.make(ms, 0), [b"name", b"value"])


def id_of(ms: int) -> ids.EntryId:
    return ids.make(ms, 0)


TOPIC_MISTAKES: dict[str, tuple[str, list[bytes], int]] = {
    "id falls": ("topic-ids", [entry(5), entry(4)], 1),
    "id twice": ("topic-ids", [entry(5), entry(5)], 1),
    "deleted, never given": ("topic-removals", [entry(5), topics.encode_deleted([id_of(6)])], 1),
    "deleted twice": (
        "topic-removals",
        [entry(5), topics.encode_deleted([id_of(5)]), topics.encode_deleted([id_of(5)])],
        2,
    ),
    "deleted, was trimmed": (
        "topic-removals",
        [entry(5), entry(6), topics.encode_trimmed(id_of(5), 1), topics.encode_deleted([id_of(5)])],
        3,
    ),
    "trimmed too far": ("topic-removals", [entry(5), topics.encode_trimmed(id_of(9), 1)], 1),
    "trimmed backwards": (
        "topic-removals",
        [entry(5), entry(6), topics.encode_trimmed(id_of(6), 2), topics.encode_trimmed(id_of(5), 0)],
        3,
    ),
    "more trimmed than there": ("topic-removals", [entry(5), topics.encode_trimmed(id_of(5), 2)], 1),
    "no record": ("meaning", [entry(5), b"\x91\x09", entry(6)], 1),
}


@pytest.mark.parametrize("name", TOPIC_MISTAKES)
def test_a_mistake_in_a_topic_is_named(tmp_path: Path, name: str) -> None:
    check, payloads, where = TOPIC_MISTAKES[name]
    places = put(tmp_path, "topics/t", TIMED, TOPIC, payloads)
    assert violations(tmp_path) == [(check, *places[where])]


def made(name: bytes = b"g") -> bytes:
    return groups.encode_group(groups.CREATED, name, ids.FIRST, 0, is_ahead=False)


def delivered(*ms: int) -> bytes:
    return groups.encode_delivered(b"g", b"c", 1, id_of(max(ms)), 1, [id_of(each) for each in ms])


GROUP_MISTAKES: dict[str, tuple[str, list[bytes], int]] = {
    "never delivered": ("group-acks", [made(), delivered(5), groups.encode_acked(b"g", [id_of(6)])], 2),
    "acknowledged twice": (
        "group-acks",
        [made(), delivered(5), groups.encode_acked(b"g", [id_of(5)]), groups.encode_acked(b"g", [id_of(5)])],
        3,
    ),
    "no such group": ("group-story", [made(), groups.encode_acked(b"x", [id_of(6)])], 1),
    "snapshot not whole": ("group-story", [made(), groups.encode_begin(), groups.encode_end(1, 0)], 2),
    "no record": ("meaning", [made(), b"\x92\x63\x01"], 1),
}


@pytest.mark.parametrize("name", GROUP_MISTAKES)
def test_a_mistake_in_groups_is_named(tmp_path: Path, name: str) -> None:
    check, payloads, where = GROUP_MISTAKES[name]
    put(tmp_path, "topics/t", TIMED, TOPIC, [entry(5), entry(6)])
    places = put(tmp_path, "topics/t/groups", TIMED, GROUP, payloads)
    assert violations(tmp_path) == [(check, *places[where])]


def queue(rid: bytes = RID, ttl: int = NO_TTL) -> bytes:
    return queues.create(Queue(rid, b"", SID, None, False, 86400, ttl))


def sent(id: bytes, ts: int = START // 10**9 + 5, ttl: int = NO_TTL, rid: bytes = RID) -> bytes:
    return queues.message(rid, Message(id * 24, ts, b"", b"body", ttl))


def acked(id: bytes) -> bytes:
    return queues.ack(RID, id * 24)


QUEUE_MISTAKES: dict[str, tuple[str, list[bytes], int]] = {
    "never sent": ("queue-heads", [queue(), sent(b"1"), acked(b"2")], 2),
    "not the head": ("queue-heads", [queue(), sent(b"1"), sent(b"2"), acked(b"2")], 3),
    "acknowledged twice": ("queue-heads", [queue(), sent(b"1"), acked(b"1"), acked(b"1")], 3),
    "expired, never sent": ("queue-heads", [queue(), queues.expire(RID, b"1" * 24)], 1),
    "sent twice": ("queue-once", [queue(), sent(b"1"), sent(b"1")], 2),
    "no such queue": ("queue-story", [sent(b"1")], 0),
    "no record": ("meaning", [queue(), b"\x91\x01"], 1),
    "of a dump": ("meaning", [queue(), queues.end(1, 0)], 1),
}


@pytest.mark.parametrize("name", QUEUE_MISTAKES)
def test_a_mistake_in_queues_is_named(tmp_path: Path, name: str) -> None:
    check, payloads, where = QUEUE_MISTAKES[name]
    places = put(tmp_path, "queues", STORED, QUEUE_STORE, payloads)
    assert violations(tmp_path) == [(check, *places[where])]


def dump(tmp_path: Path, number: int, *records: bytes) -> None:
    folder = tmp_path / "queues"
    folder.mkdir(exist_ok=True)
    data = QUEUE_STORE.header + kernel.encode_many(START - 10**9, records)
    (folder / f"smp-server-store-{number}.dump").write_bytes(data)


def log_behind(tmp_path: Path, number: int, *records: bytes) -> None:
    data = QUEUE_STORE.header + kernel.encode_many(START, records)
    (tmp_path / "queues" / f"smp-server-store-{number}.log").write_bytes(data)


def test_the_last_record_of_a_dump_counts_what_is_in_it(tmp_path: Path) -> None:
    dump(tmp_path, 3, queue(), sent(b"1"), queues.end(1, 2))
    assert [(check, file) for check, file, _, _ in violations(tmp_path)] == [("queue-dumps", "smp-server-store-3.dump")]
    dump(tmp_path, 3, queue(), sent(b"1"))
    assert [check for check, *_ in violations(tmp_path)] == ["queue-dumps"]  # it has no end
    dump(tmp_path, 3, queue(), sent(b"1"), queues.end(1, 1))
    assert violations(tmp_path) == []


def test_what_a_dump_or_a_start_left_out_may_go_later_but_nothing_else(tmp_path: Path) -> None:
    dump(tmp_path, 3, queue(), sent(b"2"), queues.end(1, 1))
    log_behind(tmp_path, 4, sent(b"3"), queues.expire(RID, b"1" * 24), acked(b"2"), acked(b"3"))
    report = audit(str(tmp_path))
    assert report.is_sound and "had expired" in notes(report, "queue-heads")[0]
    # The third was sent after the dump: when it has gone, nothing of before is left.
    log_behind(tmp_path, 4, sent(b"3"), acked(b"2"), acked(b"3"), acked(b"1"))
    assert [check for check, *_ in violations(tmp_path)] == ["queue-heads"]
    # One that does not last for ever may have been left out by a start, and one that does not.
    for ttl, expected in ((1, []), (0, ["queue-heads"])):
        (tmp_path / "queues" / "smp-server-store-3.dump").unlink(missing_ok=True)
        log_behind(tmp_path, 0, queue(), sent(b"1", ts=START // 10**9 - 100, ttl=ttl), sent(b"2"))
        (tmp_path / "queues" / "smp-server-store-4.log").unlink(missing_ok=True)
        later = QUEUE_STORE.header + kernel.encode_many(START + 50 * 10**9, [acked(b"2")])
        (tmp_path / "queues" / "smp-server-store-1.log").write_bytes(later)
        assert [check for check, *_ in violations(tmp_path)] == expected


def test_a_log_of_queues_that_is_missing_is_named(tmp_path: Path) -> None:
    dump(tmp_path, 3, queue(), queues.end(1, 0))
    log_behind(tmp_path, 5, sent(b"1"))
    assert ("queue-story", "smp-server-store-4.log", 0, None) in violations(tmp_path)


# -- every log -------------------------------------------------------------------------------------------------------


def raw(data: Path, records: Sequence[tuple[int, bytes]], format: Format = PLAIN, folder: str = "logs/x") -> Path:
    (data / folder).mkdir(parents=True, exist_ok=True)
    path = data / folder / "000000001.log"
    path.write_bytes(format.header + b"".join(kernel.encode_many(time, [payload]) for time, payload in records))
    return path


def test_times_that_do_not_rise_are_named_and_equal_ones_of_workq_told(tmp_path: Path) -> None:
    raw(tmp_path, [(START, b"one"), (START + 2, b"two"), (START + 1, b"three"), (START + 3, b"four")])
    size = len(kernel.encode_many(START, [b"one"]))
    assert violations(tmp_path) == [("order", "000000001.log", 8 + 2 * size, START + 1)]
    raw(tmp_path, [(START, b"one"), (START, b"two")])
    assert violations(tmp_path) == [("order", "000000001.log", 8 + size, START)]
    shutil.rmtree(tmp_path / "logs")
    raw(tmp_path, [(START, add(A)), (START, add(B))], JOBS, "jobs")
    report = audit(str(tmp_path))
    assert report.is_sound and "as workq writes them" in notes(report, "order")[0]
    raw(tmp_path, [(START, add(A)), (START + 1, JOBS.watermark(START)), (START, add(B))], JOBS, "jobs")
    assert [check for check, *_ in violations(tmp_path)] == ["order"]


def test_a_mark_that_vouches_for_more_than_is_there_is_named(tmp_path: Path) -> None:
    sound = [(START, b"one"), (START + 1, PLAIN.watermark(START)), (START + 2, b"two")]
    raw(tmp_path, sound)
    assert violations(tmp_path) == []
    size = len(kernel.encode_many(START, [b"one"]))
    raw(tmp_path, [(START, b"one"), (START + 5, PLAIN.watermark(START + 3)), (START + 6, b"two")])
    assert violations(tmp_path) == [("watermarks", "000000001.log", 8 + size, START + 5)]
    raw(tmp_path, [(START, b"one"), (START + 5, PLAIN.watermark(START + 9)), (START + 6, b"two")])
    assert [check for check, *_ in violations(tmp_path)] == ["watermarks"]


def test_a_file_that_lost_its_end_is_named_by_the_mark_behind_it(tmp_path: Path) -> None:
    log = Log.open(
        str(tmp_path / "logs" / "x"), options=LogOptions(segment_bytes=500), clock=ManualClock(), threaded=False
    )
    for number in range(40):
        log.append(b"payload %d" % number)
        log.run_round()
    log.close()
    first = tmp_path / "logs" / "x" / "000000001.log"
    last = list(Reader(str(tmp_path / "logs" / "x")).read(until=None))
    cut = max(one.offset for one in last if one.file == first.name)
    first.write_bytes(first.read_bytes()[:cut])
    assert [(check, file, at) for check, file, at, _ in violations(tmp_path)] == [("watermarks", "000000002.log", 8)]


def test_damage_is_a_violation_and_other_logs_are_looked_at(tmp_path: Path) -> None:
    put(tmp_path, "logs/broken", NUMBERED, PLAIN, [b"record %d" % number for number in range(9)])
    places = put(tmp_path, "jobs", NUMBERED, JOBS, [plain(DELETE, A)])
    path = tmp_path / "logs" / "broken" / "000000001.log"
    where = [(one.file, one.offset, None) for one in Reader(str(path.parent)).read()]
    data = bytearray(path.read_bytes())
    data[where[4][1] + 20] ^= 1
    path.write_bytes(data)
    assert violations(tmp_path) == [("frames", *where[4]), ("job-added", *places[0])]
    path.write_bytes(b"something else")
    assert violations(tmp_path) == [("frames", path.name, 0, None), ("job-added", *places[0])]
    data[5:8] = b"\x00\x00\x09"  # a later version
    path.write_bytes(data)
    assert [check for check, *_ in violations(tmp_path)] == ["frames", "job-added"]


def test_a_torn_end_is_no_violation(tmp_path: Path) -> None:
    path = raw(tmp_path, [(START, b"one"), (START + 1, b"two")])
    path.write_bytes(path.read_bytes()[:-3])
    report = audit(str(tmp_path))
    assert report.is_sound and "torn" in notes(report, "frames")[0]


def test_only_the_first_violations_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    put(tmp_path, "jobs", NUMBERED, JOBS, [plain(DELETE, A) for _ in range(30)])
    check = next(check for check in audit(str(tmp_path)).checks if check.name == "job-added")
    assert (check.rows, check.count, len(check.violations)) == (30, 30, 20)


def damage_store(folder: Path, prefix: str) -> str:
    path = max(path for path in folder.glob(f"{prefix}*") if path.stat().st_size > 60 and path.suffix != ".index")
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    return path.name


@pytest.mark.parametrize("prefix", ["pwal_compacted", "pwal_0000.", "compaction_catalog"])
def test_a_mistake_in_the_store_is_named(tmp_path: Path, prefix: str) -> None:
    history = History(tmp_path / "data", 1)
    for _ in range(2):
        for _ in range(20):
            history._store()
        history.data.store.rotate()
        if prefix != "pwal_0000.":
            history.data.store.compact()
    history.close()
    assert violations(tmp_path / "data") == []
    name = damage_store(tmp_path / "data" / "store", prefix)
    assert ("store", name) in [(check, file) for check, file, _, _ in violations(tmp_path / "data")]


# -- the log and what was exported of it -----------------------------------------------------------------------------


@pytest.fixture
def exported(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A data folder and an export of its jobs and records."""
    data, out = tmp_path / "data", tmp_path / "out"
    upkeep_lab.jobs_folder(data, steps=300)
    put(data, "logs/x", NUMBERED, PLAIN, [b"record %d" % number for number in range(50)])
    for view in ("records", "jobs"):
        export(str(data), str(out), view=view)
    yield data, out


def rewrite(out: Path, view: str, change: Callable[[pa.Table], pa.Table]) -> None:
    path = max((out / view).rglob("*.parquet"), key=lambda path: path.stat().st_size)
    pq.write_table(change(pq.ParquetFile(path).read()), path)


def problems(data: Path, out: Path) -> set[str]:
    return {check for check, *_ in violations(data, export=str(out))}


def test_an_export_is_held_against_the_log(exported: tuple[Path, Path]) -> None:
    data, out = exported
    report = audit(str(data), export=str(out))
    rows = {check.name: check.rows for check in report.checks}
    assert report.is_sound and rows["export-rows"] == rows["export-files"] > 300


def test_rows_that_are_missing_or_changed_or_too_many_are_told(exported: tuple[Path, Path]) -> None:
    data, out = exported
    kept = shutil.copytree(out, out.with_name("kept"))
    rewrite(out, "jobs", lambda table: pa.concat_tables([table.slice(0, 50), table.slice(51)]))
    found = [check for check in audit(str(data), export=str(out)).checks if check.count]
    assert {check.name for check in found} == {"export-rows", "export-files"}
    missing = pq.ParquetFile(max((kept / "jobs").rglob("*.parquet"))).read()["time_ns"][50].as_py()
    rows = next(check for check in found if check.name == "export-rows")
    assert rows.violations[0].time_ns == missing and "missing" in rows.violations[0].reason
    shutil.rmtree(out)
    shutil.copytree(kept, out)

    def other(table: pa.Table) -> pa.Table:
        values = table["payload"].to_pylist()
        values[7] = b"something else"
        return table.set_column(table.schema.get_field_index("payload"), "payload", pa.array(values, pa.binary()))

    rewrite(out, "records", other)
    rows = next(check for check in audit(str(data), export=str(out)).checks if check.name == "export-rows")
    assert rows.count == 1 and "other values" in rows.violations[0].reason
    shutil.rmtree(out)
    shutil.copytree(kept, out)
    rewrite(out, "records", lambda table: pa.concat_tables([table, table.slice(3, 1)]))
    assert problems(data, out) == {"export-rows", "export-files"}


def test_what_cleaning_removed_since_is_told_apart(exported: tuple[Path, Path]) -> None:
    data, out = exported
    upkeep_lab.cleaned_by_the_engine(data, upkeep_lab.LATER)
    report = audit(str(data), export=str(out))
    assert report.is_sound, [check for check in report.checks if check.count]
    assert any("were removed from the log since" in note for note in notes(report, "export-rows"))
    # Of a log that nobody cleans, nothing may go.
    for path in (data / "logs" / "x").glob("*"):
        path.unlink()  # with what says that it was there
    put(data, "logs/x", NUMBERED, PLAIN, [b"record %d" % number for number in range(49)])
    assert problems(data, out) == {"export-rows"}


def test_a_part_of_an_export_that_is_gone_or_broken_is_named(exported: tuple[Path, Path]) -> None:
    data, out = exported
    part = max((out / "records").rglob("*.parquet"))
    part.write_bytes(b"no table")
    found = violations(data, export=str(out))
    assert ("export-files", f"{part.parent.name}/{part.name}") in [(check, file) for check, file, _, _ in found]
    part.unlink()
    assert "export-files" in problems(data, out)


def test_records_that_came_after_the_export_do_not_count(exported: tuple[Path, Path]) -> None:
    data, out = exported
    log = Log.open(str(data / "logs" / "x"), clock=ManualClock(START + 10**12), threaded=False)
    log.append(b"later")
    log.close()
    assert problems(data, out) == set()


def test_store_and_topics_are_compared_too(tmp_path: Path) -> None:
    history = History(tmp_path / "data", 2)
    history.steps(80)
    history.data.store.rotate()
    views = ("records", "topic", "store_entries", "queue_events")
    for view in views:
        export(str(tmp_path / "data"), str(tmp_path / "out"), view=view)
    history.steps(40, upkeep=True)
    history.close()
    report = audit(str(tmp_path / "data"), export=str(tmp_path / "out"))
    assert report.is_sound, [check for check in report.checks if check.count]


def test_what_is_no_export_or_no_data_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "data", "logs/x", NUMBERED, PLAIN, [b"one"])
    (tmp_path / "other").mkdir()
    with pytest.raises(BadOption, match="no export"):
        audit(str(tmp_path / "data"), export=str(tmp_path / "other"))
    with pytest.raises(BadOption, match="no folder of lamina"):
        audit(str(tmp_path / "other"))
    with pytest.raises(BadOption, match="engine"):
        audit(str(tmp_path / "data"), engine="flink")


# -- the command -----------------------------------------------------------------------------------------------------


def test_the_command_exits_with_0_only_if_nothing_is_violated(tmp_path: Path) -> None:
    put(tmp_path / "sound", "jobs", NUMBERED, JOBS, [add(A)])
    places = put(tmp_path / "wrong", "jobs", NUMBERED, JOBS, [plain(DELETE, A)])
    runner = CliRunner()
    sound = runner.invoke(command, ["--data", str(tmp_path / "sound"), "--json"], standalone_mode=False)
    assert sound.return_value == 0 and json.loads(sound.output)["sound"] is True
    wrong = runner.invoke(command, ["--data", str(tmp_path / "wrong"), "--json"], standalone_mode=False)
    assert wrong.return_value == 6
    check = next(check for check in json.loads(wrong.output)["checks"] if check["name"] == "job-added")
    first = check["violations"][0]
    assert (first["file"], first["position"], first["time_ns"], first["log"]) == (*places[0], "jobs")
    shown = runner.invoke(command, ["--data", str(tmp_path / "wrong")], standalone_mode=False)
    assert shown.return_value == 6


def test_file_names_of_topics_are_those_of_their_first_record(tmp_path: Path) -> None:
    """What the planted logs above rest on."""
    places = put(tmp_path, "topics/t", TIMED, TOPIC, [entry(1)])
    assert places[0][0] == f"{show_file_time(places[0][2])}.dat"


def test_violations_are_the_same_wherever_the_tasks_run(tmp_path: Path) -> None:
    """Tasks travel: what one gives back can be pickled, and adds up in any order."""
    put(tmp_path, "jobs", NUMBERED, JOBS, [plain(DELETE, A)])
    put(tmp_path, "topics/t", TIMED, TOPIC, [entry(2), entry(1)])

    def travel(what: Any) -> Any:
        return pickle.loads(pickle.dumps(what))  # noqa: S301

    class Travelling:
        name = "travelling"

        def map(self, function: Any, tasks: Any, progress: Any = None) -> list[Any]:
            return [travel(function(travel(task))) for task in reversed(tasks)][::-1]

    expected = audit(str(tmp_path)).checks
    with patch("lamina.pipeline.choosing.LocalRunner", Travelling):
        assert audit(str(tmp_path)).checks == expected
