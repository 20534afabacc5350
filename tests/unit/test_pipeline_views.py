"""Views of jobs, groups and queues, and the states, in cases that luck seldom finds: damage, races, bad options."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from lamina.engines.jobs import codec as jobs_codec
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.upkeep import Upkeep
from lamina.engines.queues import codec as queue_codec
from lamina.engines.queues import ids as queue_ids
from lamina.engines.queues.engine import QueueEngine
from lamina.engines.queues.opening import open_engine
from lamina.engines.queues.options import QueueOptions
from lamina.engines.queues.upkeep import Upkeep as QueueUpkeep
from lamina.engines.topics import group_codec
from lamina.engines.topics.codec import MOST_COUNTED
from lamina.engines.topics.ids import make
from lamina.engines.topics.topic import Topic
from lamina.errors import BadOption, Corruption, StorageError, TooOld
from lamina.log import LogOptions, kernel
from lamina.log.files import File
from lamina.log.formats import GROUP, JOBS, QUEUE_STORE, Format
from lamina.log.sync import ALWAYS
from lamina.pipeline import places, snapshot, views
from lamina.pipeline.options import ReadOptions
from lamina.pipeline.schema import ddl
from lamina.pipeline.views.states import store as store_state
from lamina.testing import ManualClock, MemoryFiles
from store_lab import FOLDER, StoreLab
from views_lab import micros, rows

START = 1_700_000_000 * 10**9
MS = 10**6
ID = uuid.UUID("00000001-0000-4000-8000-000000000001")
OTHER = uuid.UUID("00000002-0000-4000-8000-000000000002")


def file_of(format: Format, *payloads: bytes, first_ns: int = START) -> bytes:
    return format.header + kernel.encode_many(first_ns, payloads)


def log_of(path: str, format: Format, *payloads: bytes) -> MemoryFiles:
    return MemoryFiles({path: file_of(format, *payloads)})


def jobs_engine(disk: MemoryFiles, clock: ManualClock, **options: Any) -> JobEngine:
    made = LogOptions(sync=ALWAYS, **options)
    return JobEngine.open("data/jobs", files=disk, clock=clock, threaded=False, options=made)


# -- jobs ------------------------------------------------------------------------------------------------------------


def test_every_command_of_a_job_is_a_row() -> None:
    disk, clock = MemoryFiles(), ManualClock()
    engine = jobs_engine(disk, clock)
    engine.add(ID.bytes, "mail", 1000, 60_000, b"hello", 3, 0, 5, None, "key", 250)
    engine.add(OTHER.bytes, "mail", 1000, 60_000, b"later", 0, 0, 0, START + 30_000 * MS)
    engine.lease(["mail"])
    engine.touch(ID.bytes, 2000)
    engine.fail(ID.bytes, b"oops")
    clock.advance(1)
    engine.lease(["mail"])
    engine.release(ID.bytes, 70)
    clock.advance(1)
    engine.lease(["mail"])
    engine.fail(ID.bytes, b"for good", for_good=True)
    engine.redrive(ID.bytes)
    engine.lease(["mail"])
    engine.complete(ID.bytes, b"done")  # told in a note: for workq the job is still failed
    engine.pause("mail")
    engine.pause("mail", pauses=False)
    engine.delete(OTHER.bytes)
    engine.close()
    found = rows(disk, "data", "jobs")
    told = [(row["kind"], row["result"], row["number"], row["text"]) for row in found]
    assert told == [
        ("fence", None, None, None),
        ("traits", None, 250, "key"),
        ("add", None, None, None),
        ("schedule", None, None, None),
        ("start-attempt", None, None, None),
        ("touch", None, None, None),
        ("timeout-attempt", None, None, None),
        ("retry", b"oops", 250, None),
        ("start-attempt", None, None, None),
        ("timeout-attempt", None, None, None),
        ("release", None, 70, None),
        ("start-attempt", None, None, None),
        ("fail", b"for good", None, None),
        ("redrive", None, None, None),
        ("start-attempt", None, None, None),
        ("complete", b"done", None, None),
        ("pause", None, None, None),
        ("resume", None, None, None),
        ("delete", None, None, None),
    ]
    _, _, add, schedule, _, touch, *_ = found
    pause = found[16]
    assert [add[name] for name in ("id", "name", "ttr_ms", "ttl_ms", "priority", "max_fails", "payload")] == [
        *(str(ID), "mail", 1000, 60_000, 3, 5, b"hello")
    ]
    assert add["run_at"] is None and micros(add["created"]) == START // 1000
    assert micros(schedule["run_at"]) == (START + 30_000 * MS) // 1000
    assert (touch["id"], touch["ttr_ms"], touch["name"]) == (str(ID), 2000, None)
    assert (pause["id"], pause["name"]) == (None, "mail")
    assert [row["time_ns"] for row in found] == sorted(row["time_ns"] for row in found)


def test_times_that_no_calendar_has_and_notes_of_a_later_version_are_no_error() -> None:
    job = jobs_codec.encode_job(ID.bytes, "q", 1, 1, 0, 0, 0, b"", 1 << 70, START)
    later = jobs_codec.encode_note(12, ID.bytes, 5, b"what?")
    found = rows(log_of("data/jobs/000000001.log", JOBS, job, later), "data/jobs")
    assert [(row["kind"], row["run_at"]) for row in found] == [("schedule", None), ("note-12", None)]


GOOD_JOB = jobs_codec.encode_job(ID.bytes, "q", 1, 10**10, 0, 0, 0, b"", None, START)
GOOD_GROUP = group_codec.encode_group(group_codec.CREATED, b"g", make(0, 0), None, is_ahead=False)
RID, SID = b"r" * 24, b"s" * 24
GOOD_QUEUE = queue_codec._encode(("CREATE", RID, None, SID, None, "active", 0))


GROUPS_FILE = "data/topics/t/groups/20231114T221320.000000000Z.dat"


@pytest.mark.parametrize(
    ("path", "format", "good", "bad", "view", "state"),
    [
        ("data/jobs/000000001.log", JOBS, GOOD_JOB, GOOD_JOB[:-1], "jobs", "job_state"),
        ("data/jobs/000000001.log", JOBS, GOOD_JOB, b"\x05short", "jobs", "job_state"),
        ("data/jobs/000000001.log", JOBS, GOOD_JOB, b"\x09" + bytes(16), "jobs", "job_state"),
        (
            "data/topics/t/groups/20231114T221320.000000000Z.dat",
            GROUP,
            GOOD_GROUP,
            b"\x91\x0f",
            "groups",
            "group_state",
        ),
        (GROUPS_FILE, GROUP, GOOD_GROUP, b"\xc0", "groups", "group_pending"),
        ("data/queues/smp-server-store-0.log", QUEUE_STORE, GOOD_QUEUE, b"\x91\xa3ACK", "queue_events", "queue_state"),
    ],
)
def test_a_record_that_means_nothing_is_named_with_file_and_byte(
    path: str, format: Format, good: bytes, bad: bytes, view: str, state: str
) -> None:
    disk = log_of(path, format, good, bad, good)
    disk.write("data/topics/t/20231114T221320.000000000Z.dat", places_topic())
    second = len(file_of(format, good))
    with pytest.raises(Corruption, match=f"byte {second}"):
        rows(disk, "data", view)
    found = rows(disk, "data", view, mode="permissive")
    assert [row["damage"] is None for row in found] == [True, False, True]
    assert (found[1]["position"], found[1]["file"]) == (second, path.rpartition("/")[2])
    with pytest.raises(Corruption):
        rows(disk, "data", state)
    (told,) = rows(disk, "data", state, mode="permissive")
    assert path.rpartition("/")[2] in told.pop("damage")
    assert set(told.values()) == {None}


def places_topic() -> bytes:
    from lamina.engines.topics import entries
    from lamina.log.formats import TOPIC

    return file_of(TOPIC, entries.encode(make(1, 1), [b"f", b"v"]))


def test_what_falls_due_is_done_before_it_is_shown() -> None:
    disk, clock = MemoryFiles(), ManualClock()
    engine = jobs_engine(disk, clock)
    engine.add(ID.bytes, "mail", 1000, 10_000, b"", 0, 0, 0)
    engine.add(OTHER.bytes, "mail", 1000, 100_000, b"", 0, 0, 0, START + 3000 * MS)
    engine.lease(["mail"])
    engine.push()
    engine.log.run_round()

    def states(after_ms: int) -> dict[str, str]:
        found = rows(disk, "data", "job_state", asOf=str(START + after_ms * MS))
        return {row["id"]: row["state"] for row in found}

    assert states(900) == {str(ID): "leased", str(OTHER): "scheduled"}
    assert states(1100) == {str(ID): "ready", str(OTHER): "scheduled"}
    assert states(3100) == {str(ID): "ready", str(OTHER): "ready"}
    assert states(10_100) == {str(OTHER): "ready"}
    assert states(200_000) == {}
    assert rows(disk, "data", "job_state") == []  # now: all of them are over long since


def test_a_cleaner_at_work_brings_nobody_back() -> None:
    """The first file is still the old one when it is opened, the second is rewritten already: all are opened anew."""
    disk, clock = MemoryFiles(), ManualClock()
    engine = jobs_engine(disk, clock)
    engine.add(ID.bytes, "mail", 1000, 10**9, b"", 0, 0, 0)
    engine.add(OTHER.bytes, "mail", 1000, 10**9, b"", 0, 0, 0)
    engine.push()
    engine.log.rotate()
    engine.delete(ID.bytes)
    engine.pause("other")
    engine.push()
    engine.log.rotate()
    engine.pause("mail")
    engine.push()
    engine.log.run_round()
    upkeep = Upkeep(engine)
    second = "data/jobs/000000002.log"
    is_cleaned: list[bool] = []

    class Racing:
        def __init__(self) -> None:
            self.list, self.lock_holder = disk.list, disk.lock_holder
            self.armed = False

        def open(self, path: str, *, write: bool = False) -> File:
            if self.armed and path == second and not is_cleaned:
                is_cleaned.append(True)
                upkeep.clean(everything=True)
            return disk.open(path, write=write)

    racing: Any = Racing()
    found = [place for place in places.find(racing, "data") if place.kind == places.JOBS]
    pinned = snapshot.pin(racing, "data", found)
    view = views.find("job_state", None)
    options = ReadOptions("data", as_of_ns=clock.now_ns() + 1000)
    racing.armed = True
    (task,) = view.plan(racing, pinned, options, _no_times())
    read = [row for batch in view.read(racing, task, view.columns, _no_times()) for row in batch.to_pylist()]
    assert is_cleaned
    assert [row["id"] for row in read] == [str(OTHER)]


def _no_times() -> Any:
    from lamina.pipeline.pieces import Times

    return Times()


def test_a_state_is_pinned() -> None:
    disk, clock = MemoryFiles(), ManualClock()
    engine = jobs_engine(disk, clock)
    engine.add(ID.bytes, "mail", 1000, 10**9, b"", 0, 0, 0)
    engine.push()
    engine.log.run_round()
    pinned = snapshot.pin(disk, "data", places.find(disk, "data"))
    engine.add(OTHER.bytes, "mail", 1000, 10**9, b"", 0, 0, 0)
    engine.push()
    engine.log.rotate()
    engine.delete(ID.bytes)
    engine.push()
    engine.log.rotate()
    engine.pause("mail")
    view = views.find("job_state", None)
    options = ReadOptions("data", as_of_ns=clock.now_ns() + 1000)
    (task,) = view.plan(disk, pinned, options, _no_times())

    def read() -> list[str]:
        return [row["id"] for batch in view.read(disk, task, view.columns, _no_times()) for row in batch.to_pylist()]

    assert read() == [str(ID)]
    Upkeep(engine).clean(everything=True)  # the file is another one now, with a record of later than the pin in it
    assert read() == []


# -- options ---------------------------------------------------------------------------------------------------------


def test_a_state_has_no_range_of_time_and_an_event_no_state() -> None:
    disk = log_of("data/jobs/000000001.log", JOBS, GOOD_JOB)
    for name in ("startingTimestamp", "endingTimestamp"):
        with pytest.raises(BadOption, match=name):
            rows(disk, "data", "job_state", **{name: "2020-01-01"})
    with pytest.raises(BadOption, match="not a state"):
        rows(disk, "data", "jobs", asOf="2020-01-01")


@pytest.mark.parametrize("name", views.VIEWS)
def test_a_view_of_nothing_has_its_columns_and_no_rows(name: str) -> None:
    import pyarrow as pa

    from lamina.pipeline import schema

    disk = MemoryFiles()
    for folder in ("jobs", "topics", "queues", "store"):
        disk.make_folder(f"data/{folder}")
    assert rows(disk, "data", name) == []
    columns = views.VIEWS[name].columns
    assert len({column.name for column in columns}) == len(columns)
    assert all(column.meaning for column in columns) and ddl(columns)
    assert isinstance(schema.arrow_schema(columns), pa.Schema)


def test_one_log_is_read_as_what_it_is() -> None:
    disk = log_of("data/jobs/000000001.log", JOBS, GOOD_JOB)
    disk.write("data/queues/smp-server-store-0.log", file_of(QUEUE_STORE, GOOD_QUEUE))
    disk.write("data/topics/t/20231114T221320.000000000Z.dat", places_topic())
    disk.write("data/topics/t/groups/20231114T221320.000000000Z.dat", file_of(GROUP, GOOD_GROUP))
    assert rows(disk, "data/jobs")[0]["kind"] == "add"
    assert rows(disk, "data/queues")[0]["kind"] == "create"
    assert rows(disk, "data/topics/t/groups")[0]["kind"] == "created"
    assert "payload" in rows(disk, "data")[0]


# -- groups ----------------------------------------------------------------------------------------------------------


def test_every_record_of_a_group_is_a_row() -> None:
    disk, clock = MemoryFiles(), ManualClock()
    topic = Topic.open(
        "data/topics/t", files=disk, clock=clock, threaded=False, options=LogOptions(sync=ALWAYS, segment_bytes=1 << 20)
    )
    groups = topic.groups
    first, _ = topic.add([b"f", b"1"])
    second, _ = topic.add([b"f", b"2"])
    groups.create(b"g", make(0, 0), 0)
    groups.deliver(b"g", b"ann")
    groups.ack(b"g", [first])
    groups.claim(b"g", b"b\xffb", [second])
    groups.create_consumer(b"g", b"cy")
    groups.delete_consumer(b"g", b"cy")
    groups.set_id(b"g", first)
    groups.compact()
    groups.destroy(b"g")
    topic.close()
    found = rows(disk, "data", "groups")
    assert [row["kind"] for row in found] == [
        "snapshot-begin",  # on either side of the snapshot stands one that means nothing
        *("snapshot-begin", "snapshot-group", "snapshot-consumer", "snapshot-consumer", "snapshot-pending"),
        *("snapshot-end", "snapshot-begin", "destroyed"),
    ]
    shown = f"{second >> 64}-{second & (1 << 64) - 1}"
    assert (found[5]["ids"], found[5]["deliveries"]) == ([shown], [2])
    assert found[5]["since_ms"] == [START // MS] and found[4]["consumer"] == "b\\xffb"
    assert rows(disk, "data", "group_state") == []
    before = found[-1]["time_ns"] - 1
    (group,) = rows(disk, "data", "group_state", asOf=str(before))
    assert (group["group"], group["pending"], group["consumers"], group["oldest_pending"]) == ("g", 1, 2, shown)
    with pytest.raises(TooOld, match="earliest time") as caught:
        rows(disk, "data", "group_pending", asOf=str(START))
    oldest = caught.value.facts["oldest_time_ns"]
    assert len(rows(disk, "data", "group_pending", asOf=str(oldest))) == 1


def test_numbers_of_64_bits_and_odd_times_do_not_break_a_row() -> None:
    most = (1 << 64) - 1
    last = make(most, most)
    claimed = group_codec.Claimed(last, most, most)
    record = group_codec.encode_claimed(b"g", b"c", most, last, [claimed], is_ahead=True)
    was_set = group_codec.encode_group(group_codec.ID_SET, b"g", last, most - 1, is_ahead=True)
    content = file_of(GROUP, GOOD_GROUP, record, was_set)
    disk = MemoryFiles({"data/topics/t/groups/20231114T221320.000000000Z.dat": content})
    disk.write("data/topics/t/20231114T221320.000000000Z.dat", places_topic())
    _, row, set_row = rows(disk, "data", "groups")
    # What is counted stops there, for the server as well; an id is no number to count with, and keeps its bits.
    assert (row["seen"], row["since_ms"], row["deliveries"]) == (None, [MOST_COUNTED], [MOST_COUNTED])
    assert set_row["read"] == MOST_COUNTED
    (pending,) = rows(disk, "data", "group_pending")
    assert (pending["id"], pending["id_ms"], pending["since"]) == (f"{most}-{most}", -1, None)
    assert pending["deliveries"] == MOST_COUNTED
    (state,) = rows(disk, "data", "group_state")
    assert state["read"] == MOST_COUNTED


# -- queues ----------------------------------------------------------------------------------------------------------


def queues(disk: MemoryFiles, clock: ManualClock, store: str) -> QueueEngine:
    return open_engine(
        "data/queues",
        options=QueueOptions(store=store, quota=3, max_file_messages=4),
        files=disk,
        clock=clock,
        random=random.Random(3).randbytes,
        threaded=False,
    )


def settle(engine: QueueEngine) -> None:
    if engine.keeper is not engine:
        engine.keeper.settle(engine.keeper.newest_position())
    engine.all_written()


@pytest.mark.parametrize("store", ["memory", "journal"])
def test_what_happened_to_queues_has_handles_and_no_secret(store: str) -> None:
    disk, clock = MemoryFiles(), ManualClock()
    engine = queues(disk, clock, store)
    queue, _ = engine.create(b"the recipient's key", None, 50)
    engine.secure(queue, b"the sender's key")
    ids = [engine.send(queue, b"one", b"T", 9)[0], engine.send(queue, b"two")[0]]
    engine.acknowledge(queue, ids[0])
    engine.suspend(queue)
    settle(engine)
    found = rows(disk, "data", "queue_events")
    kinds = [row["kind"] for row in found]
    expected = ["create", "secure", "suspend", "message", "message"]
    assert sorted(kinds) == sorted(expected if store == "journal" else [*expected, "ack"])
    handle = queue_ids.handle(queue.rid)
    assert {row["queue"] for row in found} == {handle}
    one, two = (row for row in found if row["kind"] == "message")
    assert (one["body"], one["flags"], one["ttl_s"], two["body"]) == (b"one", b"T", 9, b"two")
    assert one["message"] == queue_ids.handle(ids[0]) != two["message"]
    assert micros(one["sent"]) == START // 1000 and one["time_ns"] >= START
    if store == "memory":
        (ack,) = (row for row in found if row["kind"] == "ack")
        assert ack["message"] == one["message"]
    states = [rows(disk, "data", name) for name in ("queue_state", "queue_messages")]
    assert states[0][0]["store"] == store and [row["body"] for row in states[1]] == [b"two"]
    everything = repr([found, states]).encode("latin-1", "replace")
    secrets = [queue.rid, queue.sid, queue.rkey, queue.skey, *ids]
    for secret in secrets:
        assert secret is not None
        for form in (repr(secret)[2:-1].encode(), secret.hex().encode(), queue_ids.wire(secret)):
            assert form not in everything


def test_a_dump_is_of_no_time() -> None:
    disk, clock = MemoryFiles(), ManualClock()
    engine = queues(disk, clock, "memory")
    queue, _ = engine.create()
    engine.send(queue, b"one")
    settle(engine)
    at = engine.all_written()
    assert QueueUpkeep(engine).dump() is not None
    clock.advance(1)
    engine.send(queue, b"two")
    settle(engine)
    found = rows(disk, "data", "queue_events")
    assert [(row["kind"], row["time"] is None) for row in found] == [
        *(("create", True), ("message", True), ("end", True), ("message", False))
    ]
    since = rows(disk, "data", "queue_events", startingTimestamp=str(START))
    assert [row["body"] for row in since] == [b"two"]
    assert [row["body"] for row in rows(disk, "data", "queue_messages", asOf=str(at))] == [b"one"]
    with pytest.raises(TooOld, match="earliest time") as caught:
        rows(disk, "data", "queue_state", asOf=str(at - 1))
    assert caught.value.facts["oldest_time_ns"] == at


def test_a_log_that_a_crash_tore_ends_there_until_a_dump_takes_it_in() -> None:
    torn = file_of(QUEUE_STORE, GOOD_QUEUE, GOOD_QUEUE)[:-5]
    disk = MemoryFiles({"data/queues/smp-server-store-0.log": torn})
    disk.write("data/queues/smp-server-store-1.log", file_of(QUEUE_STORE, GOOD_QUEUE, first_ns=START + 1000))
    assert [row["file"] for row in rows(disk, "data", "queue_events")] == [
        *("smp-server-store-0.log", "smp-server-store-1.log")
    ]
    assert len(rows(disk, "data", "queue_state")) == 1


def test_a_dump_that_comes_between_the_pin_and_the_read_is_told() -> None:
    disk, clock = MemoryFiles(), ManualClock()
    engine = queues(disk, clock, "memory")
    engine.create()
    settle(engine)
    pinned = snapshot.pin(disk, "data", places.find(disk, "data"))
    assert QueueUpkeep(engine).dump() is not None
    view = views.find("queue_state", None)
    (task,) = view.plan(disk, pinned, ReadOptions("data"), _no_times())
    with pytest.raises(StorageError, match="read again"):
        list(view.read(disk, task, view.columns, _no_times()))


@pytest.mark.parametrize("hurt", [lambda data: data[:-3], lambda data: data[:20] + b"\xff" + data[21:]])
def test_a_damaged_journal_is_named_without_the_id_of_its_queue(hurt: Callable[[bytes], bytes]) -> None:
    disk, clock = MemoryFiles(), ManualClock()
    engine = queues(disk, clock, "journal")
    queue, _ = engine.create()
    engine.send(queue, b"one")
    engine.send(queue, b"two")
    settle(engine)
    (path,) = (path for path in disk.contents() if "messages." in path)
    disk.write(path, hurt(disk.contents()[path]))
    with pytest.raises(Corruption, match=r"messages\..*\.log, byte \d+") as caught:
        rows(disk, "data", "queue_events")
    assert queue_ids.show(queue.rid)[:10] not in str(caught.value)
    found = rows(disk, "data", "queue_events", mode="permissive")
    assert [row["damage"] is not None for row in found].count(True) == 1
    (state,) = rows(disk, "data", "queue_state")
    assert state["waiting"] == 1


# -- the store -------------------------------------------------------------------------------------------------------


def test_ranges_of_a_store_are_all_of_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_state, "_LEAST", 1)
    lab = StoreLab(part_bytes=1024)
    session = lab.ch(0).begin()
    for number in range(200):
        session.put(number % 3, b"key %03d" % number, b"v" * 20)
    session.end()
    lab.sw()
    lab.compact()
    session = lab.ch(0).begin()
    session.put(1, b"key new", b"new")
    session.remove(0, b"key 000")
    session.end()
    lab.sw()
    pinned = snapshot.pin(lab.disk, FOLDER, places.find(lab.disk, FOLDER))
    view = views.find("store_state", None)
    tasks = view.plan(lab.disk, pinned, ReadOptions(FOLDER, min_partitions=4), _no_times())
    assert len(tasks) == 4
    read = [[*view.read(lab.disk, task, view.columns, _no_times())] for task in tasks]
    found = [[(row["storage"], row["key"]) for batch in part for row in batch.to_pylist()] for part in read]
    expected = [(each.storage, each.key) for each in lab.store.snapshot().scan()]
    assert [place for part in found for place in part] == expected and len(expected) == 200
    assert all(len(part) > 10 for part in found)
