"""Promises of backups: a generation is the folder as of one moment, copies only what is new, and tells its damage."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import lamina
from history_lab import START, History, Seen, log_of, open_data, seen
from lamina.cli.backup import backup as backup_command
from lamina.cli.restore import restore as restore_command
from lamina.clock import ManualClock
from lamina.engines.queues.views import NewQueue
from lamina.engines.store import looking
from lamina.engines.topics import ids
from lamina.engines.topics.retention import parse
from lamina.engines.topics.topic import Topic
from lamina.errors import BadOption, Corruption, DiskError, LogLocked, TooOld, WrongFormat
from lamina.log.files.real import RealFiles
from lamina.pipeline.backing import manifest
from lamina.pipeline.backing.checking import verify
from lamina.pipeline.backing.collecting import Time
from lamina.pipeline.backing.disk import GenerationDisk
from lamina.pipeline.backing.making import BackupReport, back_up
from lamina.pipeline.backing.place import Backup
from lamina.pipeline.backing.pruning import prune
from lamina.pipeline.backing.restoring import restore


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    made = History(tmp_path / "data", 7)
    yield made
    made.close()


def still(clock: ManualClock) -> Time:
    return Time(clock.now_ns, lambda seconds: None)


def backed_up(history: History, **options: Any) -> BackupReport:
    return back_up(str(history.path), str(to_of(history)), clock=still(history.clock), **options)


def to_of(history: History) -> Path:
    return history.path.with_name("backup")


def place(history: History) -> Backup:
    return Backup(RealFiles(), str(to_of(history)))


def opened(path: Path, at: int) -> Seen:
    with open_data(path, ManualClock(at)) as data:
        return seen(data)


def restored(history: History, name: str = "then", **options: Any) -> Path:
    to = history.path.with_name(name)
    restore(str(to_of(history)), str(to), clock=still(history.clock), **options)
    return to


def content_of(history: History, path: str) -> Path:
    """Where the backup has a file of its newest generation."""
    generation = place(history).find(None)
    file = next(each for each in generation.files if each.path.startswith(path))
    return to_of(history) / "contents" / file.contents[-1].sha256


def contents_bytes(history: History) -> int:
    return sum(each.stat().st_size for each in (to_of(history) / "contents").iterdir())


# -- generations -----------------------------------------------------------------------------------------------------


def test_a_second_backup_copies_only_what_is_new(history: History) -> None:
    history.steps(70)
    first = backed_up(history)
    assert first.copied_bytes == contents_bytes(history) > 5_000
    again = backed_up(history)
    assert again.copied_bytes == 0 and again.generation > first.generation and again.bytes == first.bytes
    jobs = history.path / "jobs"
    before = sum(each.stat().st_size for each in jobs.glob("*.log"))
    for _ in range(5):
        history.data.jobs.add("a", b"x" * 100)
    grown = sum(each.stat().st_size for each in jobs.glob("*.log")) - before
    indexes = sum(each.stat().st_size for each in jobs.glob("*.index"))
    third = backed_up(history)
    assert grown <= third.copied_bytes <= grown + indexes and grown < 2000
    assert contents_bytes(history) == first.copied_bytes + third.copied_bytes
    assert verify(place(history)).is_whole


def test_full_reads_everything_and_still_shares_it(history: History) -> None:
    history.steps(35)
    backed_up(history)
    assert backed_up(history, is_full=True).copied_bytes == 0


def test_every_generation_stays_what_it_was(history: History) -> None:
    told = []
    for _ in range(2):
        history.steps(20, upkeep=True)
        at, then = history.moment()
        told.append((backed_up(history, verify=True).generation, at, then))
    history.steps(20, upkeep=True)
    for name, at, then in told:
        assert opened(restored(history, name, generation=name), at) == then
    assert opened(restored(history, "newest"), told[-1][1]) == told[-1][2]


def test_the_present_of_a_data_folder_can_be_restored_beside_who_writes_there(history: History) -> None:
    history.steps(40, upkeep=True)
    at, then = history.moment()
    to = history.path.with_name("copy")
    report = restore(str(history.path), str(to), clock=still(history.clock))
    assert report.generation is None and opened(to, at) == then


def test_what_takes_files_away_meanwhile_is_noticed_and_it_is_looked_anew(history: History) -> None:
    history.steps(50)
    disturbed: list[int] = []

    def disturb(done: int, total: int) -> None:
        if len(disturbed) < 2:  # a dump, a compaction and a cleaning, in the middle of two tries
            disturbed.append(done)
            history.clock.advance(1)
            history.data.queues.dump()
            history.data.store.put(1, b"meanwhile", b"%d" % len(disturbed))
            history.data.store.rotate()
            history.data.store.compact()
            history.data.store.clean_up()
            history.settle_jobs()

    report = backed_up(history, progress=disturb)
    at, then = history.moment()
    assert report.tries > 1 and len(disturbed) == 2
    found = opened(restored(history), at)
    assert found == then and found["store"][1, b"meanwhile"][0] == b"2"


def test_where_files_go_too_quickly_it_does_not_wait_and_tells_it(history: History) -> None:
    history.steps(30)
    queue = history.data.queues.create()
    waited: list[float] = []

    def wait(seconds: float) -> None:  # what is written anew each time holds more than the moment did
        waited.append(seconds)
        history.clock.advance(1)
        history.data.queue(queue.sid).send(b"%d" % len(waited))
        history.data.queues.dump()

    report = back_up(str(history.path), str(to_of(history)), clock=Time(history.clock.now_ns, wait))
    assert len(waited) > 1 and ["apart" in note for note in report.notes] == [True]
    at, then = history.moment()
    assert opened(restored(history), at) == then


def settle_groups(topic: Topic) -> None:
    topic.groups.push()
    log_of(topic.groups).wait(topic.groups.all_written())


@pytest.mark.parametrize("kind", ["queues", "groups", "topic", "store"])
def test_a_log_that_is_written_anew_behind_the_moment_is_not_taken_for_one_that_was_not_there(
    history: History, kind: str
) -> None:
    history.takes_away = False
    topic = history.data.topic("orders")
    topic.publish_many([{"n": str(number)} for number in range(100)])
    found = topic.find()
    assert found is not None
    if kind == "groups":  # else it would hold what retention is to take
        found.groups.create(b"g", ids.FIRST)
        settle_groups(found)
    queue = history.data.queues.create()
    history.data.queue(queue.sid).send(b"1")
    history.data.store.put(1, b"key", b"1")
    waited: list[float] = []

    def wait(seconds: float) -> None:
        if waited:
            return
        waited.append(seconds)
        history.clock.advance(1)
        if kind == "queues":
            history.data.queue(queue.sid).send(b"2")
            history.data.queues.dump()
        elif kind == "groups":
            found.groups.deliver(b"g", b"c", 2)
            settle_groups(found)
            found.groups.compact()
        elif kind == "topic":
            topic.publish_many([{"n": str(number)} for number in range(100)])
            assert history.data.topics.upkeep.shed(b"orders", parse("length:5")).files
        else:
            history.data.store.put(1, b"key", b"2")
            history.data.store.rotate()
            history.data.store.compact()
            history.data.store.clean_up()

    back_up(str(history.path), str(to_of(history)), clock=Time(history.clock.now_ns, wait))
    at, then = history.moment()
    assert waited and opened(restored(history), at) == then


def test_what_was_written_behind_the_moment_is_in_no_log(history: History) -> None:
    history.steps(35)
    at, then = history.moment()

    def write_on(seconds: float) -> None:
        history.clock.advance(0.5)
        history.steps(15)

    back_up(str(history.path), str(to_of(history)), clock=Time(history.clock.now_ns, write_on))
    assert opened(restored(history), at) == then


def test_what_was_acknowledged_is_in_it_also_when_the_clock_was_set_back(history: History) -> None:
    history.steps(30)
    history.data.topic("orders").publish({"n": "before"})
    history.clock.wall_ns -= 20 * 10**9
    id = history.data.topic("orders").publish({"n": "last"})
    history.data.store.put(1, b"last", b"value")
    backed_up(history)
    with open_data(restored(history), ManualClock(history.clock.now_ns())) as data:
        assert [message.id for message in data.topic("orders").read()][-1] == id
        assert data.store.get(1, b"last") == b"value"


def test_a_backup_of_journals_has_each_queue_whole_and_only_as_of_its_generations(tmp_path: Path) -> None:
    clock = ManualClock(START)
    options = lamina.QueueOptions(store="journal", quota=9, max_file_messages=10)
    with lamina.open(tmp_path / "data", clock=clock, queues=options) as data:
        ends = [data.queues.create() for _ in range(3)]
        for number in range(7):
            clock.advance(1)
            for end in ends[:2]:
                data.queue(end.sid).send(b"%d" % number)
        assert drained(data, ends[0].rid, 4) == ["0", "1", "2", "3"]
        for number in range(7, 12):
            data.queue(ends[0].sid).send(b"%d" % number)
        assert len([*(tmp_path / "data" / "queues" / "messages").rglob("messages.*.log")]) == 3  # one has two
        data.topic("orders").publish({"n": "1"})
        clock.advance(1)
        back_up(str(tmp_path / "data"), str(tmp_path / "backup"), clock=still(clock))
        clock.advance(5)
        later = back_up(str(tmp_path / "data"), str(tmp_path / "backup"), clock=still(clock))
        assert later.copied_bytes == 0
        for source in ("data", "backup"):
            with pytest.raises(BadOption, match="journals") as told:
                restore(str(tmp_path / source), str(tmp_path / "no"), as_of=clock.now_ns() - 10**9)
            assert "--without queues" in told.value.hint
        report = restore(
            str(tmp_path / "backup"), str(tmp_path / "rest"), as_of=clock.now_ns() - 10**9, without=["queues"]
        )
        assert report.logs == ["topics/orders"]
    restore(str(tmp_path / "backup"), str(tmp_path / "then"))
    assert verify(Backup(RealFiles(), str(tmp_path / "backup"))).is_whole
    with lamina.open(tmp_path / "then", clock=clock, queues=options) as data:
        assert drained(data, ends[0].rid) == [str(number) for number in range(4, 12)]
        assert drained(data, ends[1].rid) == list("0123456")
        assert drained(data, ends[2].rid) == []


def test_a_journal_that_is_written_to_meanwhile_is_whole_and_lacks_nothing_acknowledged(tmp_path: Path) -> None:
    options = lamina.QueueOptions(store="journal", quota=9, max_file_messages=10)
    sent, received, is_done = [0, 0], [0, 0], threading.Event()

    def work(data: lamina.Data, number: int, end: NewQueue) -> None:
        sender, recipient = data.queue(end.sid), data.queue(end.rid)
        while not is_done.is_set():
            for _ in range(4):
                sender.send(b"%d" % sent[number])
                sent[number] += 1
            for _ in range(4 if sent[number] >= 8 else 0):  # so that four or eight wait, and files come and go
                message = recipient.receive()
                assert message is not None
                recipient.ack(message)
                received[number] += 1

    told: list[tuple[str, tuple[list[int], list[int]], tuple[list[int], list[int]]]] = []
    with lamina.open(tmp_path / "data", queues=options) as data:
        ends = [data.queues.create() for _ in sent]
        threads = [threading.Thread(target=work, args=[data, *each]) for each in enumerate(ends)]
        for thread in threads:
            thread.start()
        try:
            while len(told) < 4:
                assert all(thread.is_alive() for thread in threads)
                if min(sent) < 30 * (1 + len(told)):
                    time.sleep(0.001)
                    continue
                before = list(sent), list(received)
                clock = Time(time.time_ns, lambda seconds: None)
                made = back_up(str(tmp_path / "data"), str(tmp_path / "backup"), clock=clock)
                told.append((made.generation, before, (list(sent), list(received))))
        finally:
            is_done.set()
            for thread in threads:
                thread.join()
    for name, (sent_before, received_before), (sent_behind, received_behind) in told:
        restore(str(tmp_path / "backup"), str(tmp_path / name), generation=name)
        with lamina.open(tmp_path / name, queues=options) as data:
            for number, end in enumerate(ends):
                found = [int(text) for text in drained(data, end.rid)]
                assert found == list(range(found[0], found[-1] + 1))
                # One more may have been done than was counted when we looked.
                assert received_before[number] <= found[0] <= received_behind[number] + 1
                assert sent_before[number] <= found[-1] + 1 <= sent_behind[number] + 1


def drained(data: lamina.Data, rid: str, most: int = 100) -> list[str]:
    """Receive what waits, up to so many."""
    held = data.queue(rid)
    found: list[str] = []
    while len(found) < most and (message := held.receive()) is not None:
        found.append((message.body or b"").decode())
        held.ack(message)
    return found


# -- damage ----------------------------------------------------------------------------------------------------------


def test_a_flipped_bit_is_found_and_its_file_is_named_and_nothing_is_restored_of_it(history: History) -> None:
    history.steps(35)
    generation = backed_up(history).generation
    path = content_of(history, "jobs/")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.chmod(0o600)
    path.write_bytes(data)
    (damage,) = verify(place(history)).damage
    assert damage.path.startswith("jobs/") and damage.file.endswith(path.name) and damage.generations == [generation]
    for as_of in (None, history.clock.now_ns() - 1):
        with pytest.raises(Corruption, match="jobs/"):
            restored(history, as_of=as_of)
    assert not history.path.with_name("then").exists()
    assert opened(restored(history, without=["jobs"]), history.clock.now_ns())["store"]


def test_a_content_that_is_gone_is_told_and_the_next_backup_has_it_again(history: History) -> None:
    history.steps(35)
    backed_up(history)
    content_of(history, "store/").unlink()
    (damage,) = verify(place(history)).damage
    assert damage.path.startswith("store/") and "missing" in damage.reason
    at, then = history.moment()
    assert backed_up(history).copied_bytes > 0
    assert verify(place(history)).is_whole and opened(restored(history), at) == then


def test_a_manifest_that_is_damaged_is_told_and_what_it_may_need_stays(history: History) -> None:
    history.steps(25)
    first = backed_up(history).generation
    history.steps(25)
    at, then = history.moment()
    backed_up(history)
    path = to_of(history) / "generations" / f"{first}.json"
    path.write_bytes(path.read_bytes().replace(b'"jobs/', b'"jobz/'))
    (damage,) = verify(place(history)).damage
    assert damage.generations == [first] and damage.file == f"generations/{first}.json"
    before = contents_bytes(history)
    report = backed_up(history)
    assert report.removed == 0 and any("nothing was removed" in note for note in report.notes)
    with pytest.raises(Corruption):
        prune(place(history), 3)
    assert contents_bytes(history) == before + report.copied_bytes
    assert opened(restored(history), at) == then
    assert opened(restored(history, "as of", as_of=at), at) == then, "a time is found though an older one is damaged"
    prune(place(history), 2)  # without the one that cannot be read
    assert verify(place(history)).is_whole


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-30],
        lambda text: b"",
        lambda text: text.replace(b'"lamina backup": 1', b'"lamina backup": 0'),
        lambda text: text + b"\n",
    ],
)
def test_no_other_text_is_a_manifest(change: Callable[[bytes], bytes]) -> None:
    file = manifest.BackedFile("jobs/000000001.log", (manifest.Content("a" * 64, 5),), (1, 2))
    made = manifest.Generation(START, START, START, "/data", (("jobs", "jobs"),), (file,), ("a note",))
    text = manifest.encode(made)
    assert manifest.decode("name", text) == made
    with pytest.raises(Corruption):
        manifest.decode("name", change(text))


def test_what_a_later_version_wrote_is_refused(history: History) -> None:
    history.steps(10)
    name = backed_up(history).generation
    (history.path / "lamina.json").write_text('{"format": 3}')
    with pytest.raises(WrongFormat, match="version 3"):
        backed_up(history)
    with pytest.raises(WrongFormat, match="version 3"):
        restore(str(history.path), str(history.path.with_name("then")), as_of=history.clock.now_ns())
    (history.path / "lamina.json").unlink()
    path = to_of(history) / "generations" / f"{name}.json"
    text = path.read_bytes().rpartition(b'"sha256"')[0].replace(b'"lamina backup": 1', b'"lamina backup": 2')
    path.write_bytes(text + b'"sha256": "%s"}\n' % hashlib.sha256(text).hexdigest().encode())
    with pytest.raises(WrongFormat, match="version 2"):
        restored(history)


@pytest.mark.parametrize("path", ["../out", "/out", "jobs//x", "jobs/./x", "", "a\0b"])
def test_a_manifest_leads_nowhere_else(path: str) -> None:
    file = manifest.BackedFile(path, (manifest.Content("a" * 64, 5),))
    with pytest.raises(Corruption):
        manifest.decode("name", manifest.encode(manifest.Generation(1, 1, 1, "/data", (), (file,))))


# -- pruning, and what is refused ------------------------------------------------------------------------------------


def test_pruning_leaves_the_newest_and_what_they_need(history: History) -> None:
    told = []
    for _ in range(3):
        history.steps(20)
        history._queue()
        history.data.queues.dump()
        at, then = history.moment()
        told.append((backed_up(history).generation, at, then))
    before = contents_bytes(history)
    would = prune(place(history), 2, is_dry_run=True)
    assert would.removed == [name for name, _, _ in told[:1]] and contents_bytes(history) == before
    done = prune(place(history), 2)
    assert (done.removed, done.kept, done.bytes) == (would.removed, would.kept, would.bytes)
    assert contents_bytes(history) == before - done.bytes and done.bytes > 0
    for name, at, then in told[1:]:
        assert opened(restored(history, name, generation=name), at) == then
    assert prune(place(history), 9).removed == []
    with pytest.raises(BadOption, match="at least one"):
        prune(place(history), 0)


def test_what_cannot_be_is_refused_and_changes_nothing(history: History, tmp_path: Path) -> None:
    history.steps(20)
    data, other = str(history.path), tmp_path / "other"
    other.mkdir()
    (other / "mine").write_text("mine")
    for words, source, to in (
        ("no backup", data, str(other)),
        ("in one another", data, f"{data}/backup"),
        ("in one another", data, str(tmp_path)),
        ("no folder of lamina", str(other), str(tmp_path / "new")),
    ):
        with pytest.raises(BadOption, match=words):
            back_up(source, to, clock=still(history.clock))
    assert os.listdir(other) == ["mine"]
    backed_up(history)
    with History(tmp_path / "second", 3).data as second, pytest.raises(BadOption, match="--moved"):
        second.jobs.add("a", b"p")
        back_up(str(tmp_path / "second"), str(to_of(history)), clock=still(history.clock))
    with pytest.raises(BadOption, match="backup itself"):
        back_up(str(to_of(history)), str(tmp_path / "new"))
    for words, options in (
        ("no generation", {"generation": "20200101"}),
        ("both say", {"generation": "20231114", "as_of": START + 1}),
        ("nothing of", {"as_of": START + 10**15}),
        ("no part", {"without": ["job"]}),
    ):
        with pytest.raises(BadOption, match=words):
            restored(history, **options)
    with pytest.raises(BadOption, match="no generations"):
        restore(data, str(tmp_path / "then"), generation="2023")
    with pytest.raises(BadOption, match="not empty"):
        restore(data, str(other))
    with place(history).changing(), pytest.raises(LogLocked, match="another run"):
        backed_up(history)
    assert not (tmp_path / "then").exists()


def test_a_moved_data_folder_goes_on_in_its_backup(history: History, tmp_path: Path) -> None:
    history.steps(25)
    backed_up(history)
    history.close()
    history.path = history.path.rename(tmp_path / "moved")
    history.reopen()
    assert backed_up(history, is_moved=True).copied_bytes < 1500


def test_files_and_folders_are_for_their_owner_alone(history: History) -> None:
    history.steps(30)
    backed_up(history)
    to = restored(history)
    for root in (to_of(history), to):
        for path in (root, *root.rglob("*")):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_links_are_not_followed_and_what_is_no_log_is_left_out_and_told(history: History, tmp_path: Path) -> None:
    history.steps(30)
    (history.path / "users.json").write_text("{}")
    report = backed_up(history)
    assert report.notes == ["users.json is left out: only logs are taken"]
    assert not (restored(history) / "users.json").exists()
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret" * 100)
    newest = max((history.path / "logs" / "plain").glob("*.log"))
    newest.rename(tmp_path / "aside")
    newest.symlink_to(secret)
    with pytest.raises(DiskError, match="links"):
        backed_up(history)
    newest.unlink()
    (tmp_path / "aside").rename(newest)


# -- cut short -------------------------------------------------------------------------------------------------------


def test_what_a_backup_that_was_cut_short_has_copied_is_of_use_and_the_rest_is_swept(history: History) -> None:
    history.steps(50)

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backed_up(history, progress=stop)
    left = contents_bytes(history)
    assert left > 0 and place(history).names() == []
    (to_of(history) / "contents" / f"{'0' * 16}.new").write_bytes(b"half")
    stray = to_of(history) / "contents" / ("0" * 64)
    stray.write_bytes(b"of a generation that never was")
    at, then = history.moment()
    report = backed_up(history)
    assert report.copied_bytes == report.bytes - left and report.removed == 1 and not stray.exists()
    assert verify(place(history)).unneeded == 0 and opened(restored(history), at) == then


def test_the_store_of_a_generation_is_read_also_where_it_does_not_fit_into_memory(
    history: History, tmp_path: Path
) -> None:
    for _ in range(30):
        history.clock.advance(1)
        history._store()
    backed_up(history)
    disk = GenerationDisk(place(history), place(history).find(None))
    (tmp_path / "spill").mkdir()
    folder = f"{to_of(history)}/store"
    with looking.look(disk.files, folder, memory_bytes=1, spill_to=str(tmp_path / "spill")) as looked:
        found = {(each.storage, each.key): each.value for each in looked.snapshot.scan(None)}
    assert found == {place: value for place, (value, _) in seen(history.data)["store"].items()}
    for change in (disk.create, disk.remove):
        with pytest.raises(OSError, match="only read"):
            change(f"{to_of(history)}/jobs/x")


# -- the commands ----------------------------------------------------------------------------------------------------


def asked(command: Any, *words: object) -> Result:
    return CliRunner().invoke(command, [*map(str, words)], standalone_mode=False)


def test_the_commands_do_as_they_say(history: History, tmp_path: Path) -> None:
    history.steps(35)
    at, then = history.moment()
    to = tmp_path / "bak"
    history.close()  # nobody has it open: then there is nothing to wait for
    made = asked(backup_command, history.path, "--to", to, "--verify", "--json")
    assert made.return_value == 0, made.exception
    report = json.loads(made.output)
    assert report["is_verified"] and report["copied_bytes"] == report["bytes"]
    assert asked(backup_command, "make", history.path, "--to", to, "--full").return_value == 0
    listed = json.loads(asked(backup_command, "list", to, "--json").output)["generations"]
    assert listed[0]["generation"] == report["generation"] and listed[1]["new_bytes"] == 0
    assert report["generation"] in asked(backup_command, "list", to).output
    assert asked(backup_command, "verify", to).return_value == 0
    dry = asked(restore_command, to, "--to", tmp_path / "then", "--dry-run", "--json")
    reach = {each["log"]: each["earliest_ns"] for each in json.loads(dry.output)["reach"]}
    assert {"jobs", "queues", "store", "topics/orders"} <= reach.keys() and min(reach.values()) > START
    assert not (tmp_path / "then").exists()
    shown = asked(restore_command, to, "--to", tmp_path / "then", "--generation", report["generation"])
    assert shown.return_value == 0 and report["generation"] in shown.output
    assert opened(tmp_path / "then", at) == then
    assert asked(backup_command, "prune", to, "--keep", 1, "--dry-run").return_value == 0
    assert len(json.loads(asked(backup_command, "list", to, "--json").output)["generations"]) == 2
    pruned = json.loads(asked(backup_command, "prune", to, "--keep", 1, "--yes", "--json").output)
    assert pruned["removed"] == [report["generation"]]
    path = next((to / "contents").iterdir())
    path.write_bytes(b"other")
    found = asked(backup_command, "verify", to, "--json")
    assert found.return_value == 6 and json.loads(found.output)["damage"][0]["file"].endswith(path.name)
    history.reopen()


def test_before_its_reach_the_command_says_how_far_each_log_goes(history: History, tmp_path: Path) -> None:
    history.steps(30)
    at, _ = history.moment()
    for _ in range(2):
        history.clock.advance(1)
        history._store()
        history.data.store.rotate()
        history.data.store.compact()
        history.data.store.clean_up()
    refused = asked(restore_command, history.path, "--to", tmp_path / "then", "--as-of", at)
    assert isinstance(refused.exception, TooOld)
    reach = refused.exception.facts["reach"]
    assert isinstance(reach, list)
    by_log = {each["log"]: each for each in reach}
    assert by_log["store"]["earliest_ns"] > at > by_log["jobs"]["earliest_ns"]
    assert (
        asked(restore_command, history.path, "--to", tmp_path / "t", "--as-of", at, "--without", "store").exception
        is None
    )


_BARE = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyarrow", "pyspark", "numpy", "pandas"):
            raise ImportError(name)
sys.meta_path.insert(0, Missing())
from lamina.cli.backup import backup
from lamina.cli.restore import restore
data, to = sys.argv[1:3]
b = to + "/b"
for words in ([data, "--to", b], ["verify", b], ["list", b], ["prune", b, "--keep", "1"]):
    assert backup.main(words, standalone_mode=False) == 0
for number, words in enumerate(([b], [data], [data, "--as-of", sys.argv[3]], [data, "--dry-run"])):
    assert restore.main([*words, "--to", f"{to}/{number}"], standalone_mode=False) == 0
"""


def test_it_needs_neither_spark_nor_arrow(history: History, tmp_path: Path) -> None:
    history.steps(35)
    at, then = history.moment()
    history.close()
    words = [sys.executable, "-c", _BARE, str(history.path), str(tmp_path / "bare"), str(at)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for number in range(3):
        assert opened(tmp_path / "bare" / str(number), at) == then
    history.reopen()
