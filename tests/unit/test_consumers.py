"""Consumer positions: what is saved is found, what is held stays, and nothing holds for ever."""

from __future__ import annotations

import json
import logging
import random
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from lamina.cli.log import log as log_command
from lamina.engines.jobs.upkeep import Upkeep
from lamina.engines.queues import store_files
from lamina.engines.store.cleaning import clean_up, obsolete
from lamina.engines.topics.retention import parse
from lamina.engines.topics.why import why
from lamina.errors import BadName, BadOption, DiskError, DiskFull
from lamina.log import OS, Level, Log, LogOptions, consumers
from lamina.log.consumer_file import NEVER, Consumer, decode, encode
from lamina.log.files import Files
from lamina.log.files.real import RealFiles
from lamina.log.naming import CONSUMERS, sort_out
from lamina.log.unread import unread
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles
from queues_store_lab import FOLDER as QUEUES
from queues_store_lab import StoreLab, ack, create, message, messages_of
from store_folder_lab import FOLDER as STORE
from store_folder_lab import Lab as StoreFolderLab
from store_folder_lab import at, expected, rotated
from unit.test_jobs_engine import FOLDER as JOBS
from unit.test_jobs_engine import Lab as JobLab
from unit.test_topics_retention import FOLDER as TOPIC
from unit.test_topics_retention import Lab as TopicLab

FOLDER, PLACE = "log", "log/consumers"
NOW = 1_700_000_000_000_000_000
HOUR = 3600 * 10**9


@pytest.fixture
def disk() -> MemoryFiles:
    files = MemoryFiles()
    files.make_folder(FOLDER)
    return files


def save(files: Files, name: str = "export", position: int = 5, *, expires: int = NOW + HOUR, now: int = NOW) -> None:
    consumers.save(files, FOLDER, name, position, expires, now_ns=now)


def names(files: Files) -> list[str]:
    return sorted(files.list(PLACE))


# -- saving and finding ----------------------------------------------------------------------------------------------


def test_a_log_without_consumers_holds_nothing(disk: MemoryFiles) -> None:
    assert consumers.find(disk, FOLDER) == consumers.tidy(disk, FOLDER, NOW) == []
    assert consumers.held_after(disk, FOLDER, NOW) is None
    assert disk.list(FOLDER) == []


def test_what_is_saved_is_found_and_replaced(disk: MemoryFiles) -> None:
    save(disk, position=5)
    save(disk, position=7)
    assert consumers.find(disk, FOLDER) == [Consumer("export", 7, {}, NOW, NOW + HOUR)]
    save(disk, position=3)  # a query that was begun again
    assert consumers.held_after(disk, FOLDER, NOW) == 3
    assert names(disk) == ["export"]


def test_the_slowest_of_those_that_have_not_expired_counts(disk: MemoryFiles) -> None:
    save(disk, "a", 10, expires=NOW + HOUR)
    save(disk, "b", 5, expires=NOW + 1)
    assert consumers.held_after(disk, FOLDER, NOW) == 5
    assert consumers.held_after(disk, FOLDER, NOW + 1) == 10
    assert consumers.held_after(disk, FOLDER, NOW + HOUR) is None
    assert [one.name for one in consumers.find(disk, FOLDER)] == ["a", "b"]


def test_logs_of_one_folder_have_positions_of_their_own(disk: MemoryFiles) -> None:
    consumers.save(disk, FOLDER, "a", 4, NOW + 1, streams={"pwal_0000": 9, "pwal_0001": 2}, now_ns=NOW)
    wanted = {"pwal_0000": 9, "pwal_0001": 2, "pwal_0007": 4, None: 2}
    assert {stream: consumers.held_after(disk, FOLDER, NOW, stream) for stream in wanted} == wanted


@pytest.mark.parametrize(
    "name", ["a", "my query/1", "..", ".hidden", "ünïcode", "a~new-1", "x.index", "checkpoint", "%"]
)
def test_any_name_is_one_file_of_its_own(disk: MemoryFiles, name: str) -> None:
    save(disk, name)
    assert [one.name for one in consumers.find(disk, FOLDER)] == [name]
    assert len(names(disk)) == 1 and set(disk.contents()) == {f"{PLACE}/{names(disk)[0]}"}
    assert consumers.remove(disk, FOLDER, name) and not consumers.remove(disk, FOLDER, name)
    assert names(disk) == []


@pytest.mark.parametrize("name", ["", "\ud800", "x" * 201, "ü" * 100])
def test_a_name_that_cannot_be_is_refused(disk: MemoryFiles, name: str) -> None:
    with pytest.raises(BadName):
        save(disk, name)
    assert disk.contents() == {}


@pytest.mark.parametrize("position", [-1, 1 << 63])
def test_a_position_that_cannot_be_is_refused(disk: MemoryFiles, position: int) -> None:
    with pytest.raises(BadOption, match="position"):
        save(disk, position=position)
    with pytest.raises(BadOption, match="pwal_0000"):
        consumers.save(disk, FOLDER, "a", 1, NOW, streams={"pwal_0000": position})


def test_a_log_that_is_gone_does_not_come_back() -> None:
    files = MemoryFiles()
    with pytest.raises(DiskError, match="save the position of 'export'"):
        save(files)
    assert not files.folders - {""}


def test_the_folder_of_consumers_is_not_foreign() -> None:
    assert sort_out([CONSUMERS, "000000001.log"]).foreign == []


@pytest.mark.parametrize("call", ["create", "append", "sync", "rename", "sync_folder"])
def test_a_disk_error_leaves_the_position_before(disk: MemoryFiles, call: str) -> None:
    save(disk, position=5)
    faulty = FaultyFiles(disk)
    faulty.fail(call, error=28)
    with pytest.raises(DiskFull):
        save(faulty, position=9)
    assert consumers.held_after(disk, FOLDER, NOW) == 5
    assert names(disk) == ["export"], "nothing is left behind"


def test_readers_and_cleaners_never_miss_a_position_that_is_being_replaced(tmp_path: Path) -> None:
    """Two save while others look and tidy: there is always a position, and never a broken one."""
    files, folder = RealFiles(), str(tmp_path)
    consumers.save(files, folder, "q", 1, NOW + HOUR, now_ns=NOW)
    stop, seen = threading.Event(), list[int | None]()

    def look() -> None:
        while not stop.is_set():
            seen.append(consumers.held_after(files, folder, NOW))

    def clean() -> None:
        while not stop.is_set():
            consumers.tidy(files, folder, NOW)

    threads = [threading.Thread(target=look), threading.Thread(target=clean)]
    for thread in threads:
        thread.start()

    def go_on() -> None:
        for position in range(1, 60):
            consumers.save(files, folder, "q", position, NOW + HOUR, now_ns=NOW)

    savers = [threading.Thread(target=go_on) for _ in range(2)]
    for saver in savers:
        saver.start()
    for saver in savers:
        saver.join()
    stop.set()
    for thread in threads:
        thread.join()
    assert seen and all(one is not None and one >= 1 for one in seen)
    assert [(one.position, one.damage) for one in consumers.find(files, folder)] == [(59, None)]


# -- what has expired ------------------------------------------------------------------------------------------------


def test_cleaning_takes_away_what_has_expired(disk: MemoryFiles) -> None:
    save(disk, "a", expires=NOW + 1)
    save(disk, "b", expires=NOW + HOUR)
    assert [one.name for one in consumers.tidy(disk, FOLDER, NOW + 1)] == ["b"]
    assert names(disk) == ["b"]


class _Meanwhile(MemoryFiles):
    """Something happens just before a file is renamed."""

    def __init__(self) -> None:
        super().__init__()
        self.todo: list[int] = []

    def rename(self, old: str, new: str) -> None:
        if "~aside-" in new and self.todo:
            save(self, position=self.todo.pop())
        super().rename(old, new)


def test_a_position_that_comes_while_the_expired_one_is_taken_away_is_kept() -> None:
    files = _Meanwhile()
    files.make_folder(FOLDER)
    save(files, position=3, expires=NOW - 1)
    files.todo = [8]
    assert [one.position for one in consumers.tidy(files, FOLDER, NOW)] == [8]
    assert names(files) == ["export"]


def test_a_kill_while_a_position_is_out_of_the_way_loses_nothing(disk: MemoryFiles) -> None:
    """As the moment before: the file has its other name, and says that it has not expired."""
    save(disk, position=8)
    disk.rename(f"{PLACE}/export", f"{PLACE}/export~aside-20231114T221320.000000000Z")
    assert consumers.held_after(disk, FOLDER, NOW) == 8
    consumers.tidy(disk, FOLDER, NOW)
    assert names(disk) == ["export"] and consumers.held_after(disk, FOLDER, NOW) == 8


def test_what_killed_savers_leave_goes_after_a_day(disk: MemoryFiles) -> None:
    save(disk)
    disk.write(f"{PLACE}/export~new-20231114T221320.000000000Z-0011223344556677", b"half")
    consumers.tidy(disk, FOLDER, NOW + HOUR // 2)
    assert len(names(disk)) == 2 and consumers.held_after(disk, FOLDER, NOW) == 5
    consumers.tidy(disk, FOLDER, NOW + 25 * HOUR)
    assert names(disk) == []


# -- what cannot be read ---------------------------------------------------------------------------------------------

WHOLE = encode(Consumer("export", 5, {}, NOW, NOW + HOUR))
DAMAGED = {
    "empty": b"",
    "cut short": WHOLE[:-3],
    "a bit flipped": WHOLE[:30] + bytes([WHOLE[30] ^ 4]) + WHOLE[31:],
    "of a later version": WHOLE[:7] + b"\x02" + WHOLE[8:],
    "too much": WHOLE + b"\0",
    "of another": encode(Consumer("other", 5, {}, NOW, NOW + HOUR)),
    "no number": encode(Consumer("export", "5", {}, NOW, NOW + HOUR)),  # type: ignore[arg-type]
    "huge": WHOLE + bytes(2 << 20),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_an_unreadable_file_holds_everything_for_a_week_and_is_told(
    disk: MemoryFiles, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    save(disk, "well", 100, expires=NEVER)
    disk.write(f"{PLACE}/export", DAMAGED[what])
    assert consumers.held_after(disk, FOLDER, NOW) == 0
    assert disk.contents()[f"{PLACE}/export"] == DAMAGED[what], "looking changes nothing"
    with caplog.at_level(logging.WARNING, "lamina.log"):
        for later in (0, HOUR, consumers.GRACE_NS - 1):
            held = consumers.tidy(disk, FOLDER, NOW + later)
            assert [(one.name, one.position) for one in held] == [("export", 0), ("well", 100)]
    assert len(caplog.records) == 1 and "'export' cannot be read" in caplog.text
    aside = next(name for name in names(disk) if "~aside-" in name)
    assert disk.contents()[f"{PLACE}/{aside}"] == DAMAGED[what]
    consumers.tidy(disk, FOLDER, NOW + consumers.GRACE_NS)
    assert names(disk) == ["well"] and "given up" in caplog.text
    assert consumers.held_after(disk, FOLDER, NOW) == 100


def test_a_consumer_that_saves_again_ends_what_its_unreadable_file_held(disk: MemoryFiles) -> None:
    save(disk)
    disk.write(f"{PLACE}/export", b"?")
    consumers.tidy(disk, FOLDER, NOW)
    save(disk, position=6)
    assert consumers.held_after(disk, FOLDER, NOW) == 6
    consumers.tidy(disk, FOLDER, NOW)
    assert names(disk) == ["export"]


def test_of_several_that_were_put_aside_the_newest_counts(disk: MemoryFiles) -> None:
    older, newer = (
        f"{PLACE}/export~aside-20231114T221320.000000000Z",
        f"{PLACE}/export~aside-20231114T221321.000000000Z",
    )
    disk.write(older, WHOLE)
    disk.write(newer, b"?")
    assert consumers.held_after(disk, FOLDER, NOW) == 0
    assert [one.position for one in consumers.tidy(disk, FOLDER, NOW)] == [0]
    assert [f"{PLACE}/{name}" for name in names(disk)] == [newer]
    disk.write(older, b"?")
    disk.write(newer, WHOLE)
    assert [one.position for one in consumers.tidy(disk, FOLDER, NOW)] == [5]
    assert names(disk) == ["export"]


def test_an_unreadable_one_can_be_removed_by_name(disk: MemoryFiles) -> None:
    save(disk)
    disk.write(f"{PLACE}/export", b"?")
    consumers.tidy(disk, FOLDER, NOW)
    assert consumers.remove(disk, FOLDER, "export")
    assert consumers.held_after(disk, FOLDER, NOW) is None


def test_what_is_not_ours_is_left_alone(disk: MemoryFiles, tmp_path: Path) -> None:
    for name in ("export~", "~x", "a b", "export~aside-1", "%", "%FF"):
        disk.write(f"{PLACE}/{name}", b"?")
    assert consumers.tidy(disk, FOLDER, NOW + consumers.GRACE_NS * 9) == []
    assert len(names(disk)) == 6
    (tmp_path / CONSUMERS).write_text("a file where the folder should be")
    assert consumers.tidy(RealFiles(), str(tmp_path), NOW) == []


def test_a_folder_or_a_link_where_a_file_should_be_does_not_hold_for_ever(tmp_path: Path) -> None:
    files, folder = RealFiles(), str(tmp_path)
    (tmp_path / CONSUMERS / "export").mkdir(parents=True)
    (tmp_path / CONSUMERS / "link").symlink_to("/nowhere")
    assert [one.position for one in consumers.tidy(files, folder, NOW)] == [0, 0]
    assert consumers.tidy(files, folder, NOW + consumers.GRACE_NS) == []


@pytest.mark.parametrize("seed", range(20))
def test_any_bytes_are_read_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(WHOLE)
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    with suppress(ValueError):
        assert decode(bytes(data)) == decode(WHOLE)


# -- files that are yet to be read -----------------------------------------------------------------------------------


def test_unread_are_the_files_with_records_past_the_slowest() -> None:
    files, clock = MemoryFiles(), ManualClock()
    with Log.open(FOLDER, files=files, clock=clock, options=LogOptions(sync=OS), threaded=False) as log:
        last = []
        for number in range(4):
            last += [log.append(b"%d" % number, until=Level.SYNCED)]
            log.rotate()
        sealed = log.reader.segments()

        def held(*positions: int) -> list[int]:
            holding = [Consumer("c", position, {}, 0, NEVER) for position in positions]
            return [name.number for name in unread(log.reader, sealed, holding)]

        assert held() == []
        assert held(last[0] - 1) == held(0) == [1, 2, 3, 4]
        assert held(last[0]) == held(last[0], NEVER) == [2, 3, 4]
        assert held(last[3] - 1) == [4]
        assert held(last[3]) == held(NEVER) == []


def test_a_stub_and_a_damaged_file_do_not_free_what_is_before_them() -> None:
    files, clock = MemoryFiles(), ManualClock()
    with Log.open(FOLDER, files=files, clock=clock, options=LogOptions(sync=OS), threaded=False) as log:
        for number in range(3):
            log.append(b"%d" % number, until=Level.SYNCED)
            log.rotate()
        sealed = log.reader.segments()
        files.write(f"{FOLDER}/{sealed[1].name}", files.contents()[f"{FOLDER}/{sealed[1].name}"][:8])
        files.write(f"{FOLDER}/{sealed[2].name}", b"not a log")
        assert unread(log.reader, sealed, [Consumer("c", 1, {}, 0, NEVER)]) == sealed


# -- jobs ------------------------------------------------------------------------------------------------------------


def test_jobs_that_are_gone_stay_in_the_log_until_they_were_read() -> None:
    lab = JobLab()
    upkeep, files = Upkeep(lab.engine), lab.disk
    assert isinstance(lab.engine.log, Log)
    reader = lab.engine.log.reader
    for segment in range(3):
        for number in range(segment * 4, segment * 4 + 4):
            lab.add(number)
            if number % 2:
                lab.do("delete", number)
        lab.engine.log.rotate()
    lab.add(100)

    def times() -> list[int]:
        return [record.time_ns for record in reader.read()]

    written = times()
    sealed = reader.segments()[:-1]
    second = next(record.time_ns for record in reader.read() if record.file == sealed[1].name)
    consumers.save(files, JOBS, "spark", second, lab.now + HOUR, now_ns=lab.now)
    report = upkeep.clean(everything=True)
    assert (report.held, report.visited, report.skipped) == (2, 1, 2)
    assert set(written) - set(times()) and [time_ns for time_ns in written if time_ns >= second] == [
        time_ns for time_ns in times() if time_ns >= second
    ], "nothing past the position went, and of those before only what is in a file that was read to its end"
    alive = set(lab.engine.state.jobs)
    assert set(lab.restart().state.jobs) == alive, "a replay gives the same jobs"

    files = lab.disk
    consumers.save(files, JOBS, "spark", written[-1], lab.now + HOUR, now_ns=lab.now)
    report = Upkeep(lab.engine).clean(everything=True)
    assert (report.held, report.dropped) == (0, 8)
    assert set(lab.restart().state.jobs) == alive


def test_a_position_that_has_expired_holds_no_jobs() -> None:
    lab = JobLab()
    assert isinstance(lab.engine.log, Log)
    lab.add(1)
    lab.do("delete", 1)
    lab.engine.log.rotate()
    lab.add(2)
    consumers.save(lab.disk, JOBS, "spark", 0, lab.now + 10**9, now_ns=lab.now)
    assert Upkeep(lab.engine).clean(everything=True).held == 1
    lab.clock.advance(1)
    assert Upkeep(lab.engine).clean(everything=True).dropped == 2
    assert lab.disk.list(f"{JOBS}/{CONSUMERS}") == []


# -- topics ----------------------------------------------------------------------------------------------------------


def read_up_to(lab: TopicLab, file: int, expires_s: float = 3600) -> None:
    """A consumer has read so many of the topic's files."""
    sealed, _ = lab.shedder.files.names()
    position = lab.shedder.files.facts(sealed[file - 1]).newest_ns if file else 0
    now = lab.clock.now_ns()
    consumers.save(lab.files, TOPIC, "spark", position, now + int(expires_s * 10**9), now_ns=now)


def test_retention_lets_go_only_what_was_read() -> None:
    lab = TopicLab()
    lab.fill(5)
    read_up_to(lab, 2)
    assert lab.shed("length:0").files == 2
    assert lab.shed("length:0").files == 0
    read_up_to(lab, 2)
    assert lab.shed("length:0,age:0,bytes:0,acknowledged").files == 2
    assert len(lab.ids()) == 4


def test_retention_goes_on_when_the_position_has_expired() -> None:
    lab = TopicLab()
    lab.fill(5)
    read_up_to(lab, 0, expires_s=60)
    assert lab.shed("length:0").files == 0
    lab.clock.advance(61)
    assert lab.shed("length:0").files == 5
    assert lab.files.list(f"{TOPIC}/{CONSUMERS}") == []


def test_what_clients_trim_and_delete_is_gone_for_them_at_once_and_stays_in_the_log_until_it_was_read() -> None:
    lab = TopicLab()
    parts = lab.fill(3)
    read_up_to(lab, 0)
    lab.topic.settle(lab.topic.trim_length(1)[1])
    assert len(lab.ids()) == 1 and parts
    assert lab.shed("keep").files == 0
    assert lab.names() and len(lab.names()) == 4
    read_up_to(lab, 3)
    assert lab.shed("keep").files == 3
    assert len(lab.ids()) == 1


def test_why_names_the_consumer_that_has_yet_to_read() -> None:
    lab = TopicLab()
    lab.fill(4)
    read_up_to(lab, 0)
    before = lab.files.contents()
    report = why(lab.topic, parse("length:5"), lab.clock.now_ns())
    assert lab.files.contents() == before
    assert (report.goes_files, report.holders) == (0, [])
    assert "yet to read the log, spark: the limit on length" in report.answer
    (one,) = report.log_consumers
    assert (one.consumer, one.position) == ("spark", "1970-01-01T00:00:00.000000000Z")
    assert "--remove spark" in one.advice
    assert [limit.files for limit in report.limits] == [2], "what the limit alone would let go"
    lab.files.write(f"{TOPIC}/{CONSUMERS}/spark", b"?")
    (one,) = why(lab.topic, parse("length:5"), lab.clock.now_ns()).log_consumers
    assert (one.position, one.expires) == (None, None) and "cannot be read" in one.advice
    read_up_to(lab, 4)
    report = why(lab.topic, parse("length:5"), lab.clock.now_ns())
    assert report.log_consumers == [] and report.goes_files == 2


# -- queues ----------------------------------------------------------------------------------------------------------


def queues_with_a_log(files: MemoryFiles) -> tuple[StoreLab, list[int]]:
    lab = StoreLab(files)
    return lab, [promised(lab, create("a"), message("a", "m1"))]


def promised(lab: StoreLab, *records: bytes) -> int:
    """Append; returns the position."""
    position = lab.engine.do(*records)
    lab.engine.settle(position)
    return position


def log_names(lab: StoreLab) -> list[str]:
    return [name.removeprefix("smp-server-store-") for name in lab.names()]


def test_a_dump_keeps_the_logs_that_were_not_read_and_they_count_no_more() -> None:
    files = MemoryFiles()
    lab, last = queues_with_a_log(files)
    now = lab.clock.now_ns()
    consumers.save(files, QUEUES, "spark", 0, now + HOUR, now_ns=now)
    lab.dumper.dump()
    last.append(promised(lab, message("a", "m2"), ack("a", "m1")))
    lab.dumper.dump()
    last.append(promised(lab, message("a", "m3")))
    assert log_names(lab) == ["0.log", "1.dump", "1.log", "2.log"]

    again = StoreLab(MemoryFiles(files.contents()))
    restored = again.engine.restored
    assert restored.load_order == [store_files.dump_name(1), store_files.log_name(2).name]
    assert messages_of(again.engine.state, "a") == [b"m2", b"m3"], "nothing twice"
    assert restored.warnings == [], "what is kept on purpose is nothing to wonder about"

    consumers.save(files, QUEUES, "spark", last[0], now + HOUR, now_ns=now)
    lab.dumper.dump()
    assert log_names(lab) == ["1.log", "2.dump", "2.log", "3.log"]
    consumers.save(files, QUEUES, "spark", last[2], now + HOUR, now_ns=now)
    lab.dumper.dump()
    assert log_names(lab) == ["3.dump", "4.log"]
    assert messages_of(StoreLab(MemoryFiles(files.contents())).engine.state, "a") == [b"m2", b"m3"]


def test_a_start_writes_no_dump_on_account_of_logs_that_are_kept() -> None:
    files = MemoryFiles()
    lab, _ = queues_with_a_log(files)
    now = lab.clock.now_ns()
    consumers.save(files, QUEUES, "spark", 0, now + HOUR, now_ns=now)
    lab.dumper.dump()
    held = StoreLab(MemoryFiles(files.contents())).engine.restored
    assert [one.reason for one in held.ignored] == [store_files.COVERED]
    assert not held.wants_dump
    consumers.remove(files, QUEUES, "spark")
    left_over = StoreLab(MemoryFiles(files.contents())).engine.restored
    assert left_over.wants_dump and len(left_over.warnings) == 1


def test_logs_of_queues_go_with_the_next_dump_when_the_position_has_expired() -> None:
    files = MemoryFiles()
    lab, _ = queues_with_a_log(files)
    now = lab.clock.now_ns()
    consumers.save(files, QUEUES, "spark", 0, now + HOUR, now_ns=now)
    lab.dumper.dump()
    assert "0.log" in log_names(lab)
    lab.clock.advance(3601)
    lab.dumper.dump()
    assert log_names(lab) == ["1.dump", "2.log"]


# -- the store -------------------------------------------------------------------------------------------------------


def test_merged_files_stay_until_they_were_read() -> None:
    lab = StoreFolderLab()
    catalog = lab.compact(30)
    now = at(2000)
    consumers.save(
        lab.files, STORE, "spark", at(20, 10**6 - 1), now + HOUR, streams={"pwal_0001": at(10, 10**6 - 1)}, now_ns=now
    )
    done = clean_up(lab.files, STORE, catalog, now_ns=now)
    kept = {rotated("pwal_0000", 30), rotated("pwal_0001", 20), rotated("pwal_0001", 30)}
    assert kept <= lab.names() and kept <= set(done.kept)
    assert rotated("pwal_0000", 20) not in lab.names() and rotated("pwal_0001", 10) not in lab.names()
    assert lab.content() == expected()
    assert obsolete(lab.files, STORE, lab.catalog(), now_ns=now) == []
    assert {name for name, _ in obsolete(lab.files, STORE, lab.catalog(), now_ns=now + HOUR)} >= kept
    clean_up(lab.files, STORE, lab.catalog(), now_ns=now + HOUR)
    assert not kept & lab.names()
    assert lab.content() == expected()


# -- for people ------------------------------------------------------------------------------------------------------


def run(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(log_command, ["consumers", *args])
    return result.exit_code, result.output


def test_the_command_lists_and_removes(tmp_path: Path) -> None:
    files, folder = RealFiles(), str(tmp_path)
    with Log.open(folder) as log:
        log.append(b"x")
    assert json.loads(run(folder, "--json")[1])["consumers"] == []
    consumers.save(files, folder, "a b", NOW, NOW + 1, now_ns=NOW)
    consumers.save(files, folder, "store", 0, NEVER, streams={"pwal_0000": NOW}, now_ns=NOW)
    (tmp_path / CONSUMERS / "broken").write_bytes(b"?")
    found = json.loads(run(folder, "--json")[1])["consumers"]
    assert [(one["name"], one["has_expired"], one["damage"] is None) for one in found] == [
        ("a b", True, True),
        ("broken", False, False),
        ("store", False, True),
    ]
    assert found[2]["streams"] == {"pwal_0000": NOW}
    code, shown = run(folder)
    assert code == 0 and "(over)" in shown and "broken" in shown and "2023-11-14" in shown
    assert run(folder, "--remove", "a b")[0] == 0
    assert [one.name for one in consumers.find(files, folder)] == ["broken", "store"]


def test_the_command_names_those_there_are_when_one_is_not(tmp_path: Path) -> None:
    with Log.open(str(tmp_path)) as log:
        log.append(b"x")
    consumers.save(RealFiles(), str(tmp_path), "export", 0, NEVER)
    result = CliRunner().invoke(log_command, ["consumers", str(tmp_path), "--remove", "exprot"])
    assert isinstance(result.exception, BadOption) and "there are: export" in result.exception.hint
