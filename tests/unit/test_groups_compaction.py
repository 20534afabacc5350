"""The log of groups written anew: from memory where they are few, else from its files, while everybody goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from lamina.engines.elsewhere import Stopper
from lamina.engines.topics import group_codec as codec
from lamina.engines.topics import group_compaction, group_snapshot, ids
from lamina.engines.topics import group_views as views
from lamina.engines.topics.codec import Items
from lamina.engines.topics.group_compaction import Task, stage, stage_elsewhere
from lamina.engines.topics.groups import Groups
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.retention import Retentions
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.topics import Topics
from lamina.engines.topics.upkeep import Upkeep
from lamina.errors import Corruption, DiskError, DiskFull, Gap, Stopped, StorageError
from lamina.log import ALWAYS, LogOptions
from lamina.log.files import Files
from lamina.log.files.real import RealFiles
from lamina.log.naming import TIMED
from lamina.log.reader import Reader
from lamina.log.writer import Log
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles
from threads_lab import PATIENCE_S, held_at, in_thread

G, A, B = b"g", b"ann", b"bob"
EITHER_WAY = pytest.mark.parametrize("is_small", [True, False], ids=["from memory", "from files"])


def at(number: int) -> EntryId:
    return ids.make(number, 0)


class Lab:
    """A topic with twenty entries and a group that was given ten, of which two are acknowledged."""

    def __init__(self, files: Files | None = None, folder: str = "topic", segment_bytes: int = 1 << 20) -> None:
        self.disk, self.clock, self.folder = MemoryFiles(), ManualClock(), folder
        self.files = FaultyFiles(self.disk) if files is None else files
        self.options = LogOptions(sync=ALWAYS, segment_bytes=segment_bytes)
        self.topic = self.open(self.files)
        for number in range(1, 21):
            self.topic.add([b"n", b"%d" % number], at(number))
        self.groups.create(G, ids.FIRST)
        for _ in range(5):
            self.step()
        self.ack(1, 2)

    def open(self, files: Files) -> Topic:
        return Topic.open(self.folder, files=files, clock=self.clock, options=self.options, threaded=False)

    @property
    def groups(self) -> Groups:
        return self.topic.groups

    @property
    def log(self) -> Log:
        assert isinstance(self.groups.log, Log)
        return self.groups.log

    @property
    def faulty(self) -> FaultyFiles:
        assert isinstance(self.files, FaultyFiles)
        return self.files

    def step(self) -> None:
        """Two entries more for ann."""
        self.topic.settle(self.topic.newest_position())
        self.groups.settle(self.groups.deliver(G, A, 2).position)

    def ack(self, *numbers: int) -> int:
        count, position = self.groups.ack(G, [at(number) for number in numbers])
        self.groups.settle(position)
        return count

    def picture(self, groups: Groups | None = None) -> object:
        groups = groups or self.groups
        return views.stats(groups), views.pending(groups, G), views.consumers(groups, G)

    def names(self) -> list[str]:
        return sorted(name for name in self.files.list(f"{self.folder}/groups") if name.endswith(".dat"))

    def leftovers(self) -> list[str]:
        return [name for name in self.files.list(f"{self.folder}/groups") if name.endswith(TIMED.temporary_suffix)]

    def check_restart(self) -> None:
        """A killed server finds all that was settled."""
        again = self.open(MemoryFiles(self.disk.contents()))
        assert self.picture(again.groups) == self.picture()


@pytest.fixture
def lab() -> Lab:
    return Lab()


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """No group is small."""
    monkeypatch.setattr(group_snapshot, "_FEW", -1)


def choose(monkeypatch: pytest.MonkeyPatch, *, is_small: bool) -> None:
    monkeypatch.setattr(group_snapshot, "_FEW", 2000 if is_small else -1)


# -- what comes of it ------------------------------------------------------------------------------------------------


@EITHER_WAY
def test_nothing_changes_and_what_came_before_is_gone(is_small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, is_small=is_small)
    lab = Lab(segment_bytes=64)
    before, files = lab.picture(), lab.names()
    assert lab.groups.compact() == len(files) > 3
    assert lab.picture() == before and not set(files) & set(lab.names())
    lab.check_restart()
    lab.step()
    assert lab.ack(3, 4, 11) == 3
    lab.check_restart()


@EITHER_WAY
def test_it_may_be_done_again_and_again(is_small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, is_small=is_small)
    lab = Lab()
    for number in range(3, 9):
        assert lab.groups.compact() == (1 if number == 3 else 2)
        assert lab.groups.compact() == len(lab.names()) == 1
        assert lab.ack(number) == 1
        lab.check_restart()
    lab.topic.close()
    lab.topic = lab.open(lab.files)
    lab.groups.compact()
    lab.check_restart()


def test_both_ways_write_the_same_file(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = []
    for is_small in (True, False):
        choose(monkeypatch, is_small=is_small)
        lab = Lab()
        lab.groups.compact()
        contents.append({path: data for path, data in lab.disk.contents().items() if path.endswith(".dat")})
    assert contents[0] == contents[1]


@EITHER_WAY
def test_positions_rise_and_whoever_reads_by_them_finds_all(is_small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader behind the room finds what was there; one before it sees all of the snapshot, or is told of the gap."""
    choose(monkeypatch, is_small=is_small)
    lab = Lab(segment_bytes=300)
    lab.ack(3)
    old = [record.time_ns for record in lab.log.reader.read()]
    lab.groups.compact()
    lab.ack(4)
    records = list(lab.log.reader.read())
    times = [record.time_ns for record in records]
    assert times == sorted(set(times)) and not set(old) & set(times)
    kinds = [Items(record.payload).number() for record in records]
    begin, end = kinds.index(codec.BEGIN) + 1, kinds.index(codec.END)
    assert kinds[begin : end + 2] == [*range(codec.BEGIN, codec.END + 1), codec.BEGIN] and kinds[-1] == codec.ACKED
    for place, time in enumerate(times[:-1]):
        assert [record.time_ns for record in lab.log.reader.read(after=time)] == times[place + 1 :]
    with pytest.raises(Gap):
        list(lab.log.reader.read(after=old[1]))


# -- nobody waits ----------------------------------------------------------------------------------------------------


@EITHER_WAY
def test_commands_go_on_while_the_files_are_written(is_small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, is_small=is_small)
    lab = Lab()
    with (
        held_at(lab.faulty, "sync", f".dat{TIMED.temporary_suffix}") as (reached, goes_on),
        in_thread(lab.groups.compact) as did,
    ):
        assert reached.wait(PATIENCE_S)
        lab.step()
        assert lab.ack(3, 4) == 2
        lab.groups.settle(lab.groups.create(b"h", at(3)))
        lab.groups.settle(lab.groups.destroy(b"h")[1])
        lab.check_restart()
        goes_on.set()
    assert did == [1]
    lab.check_restart()
    lab.ack(5)
    lab.check_restart()


@EITHER_WAY
@pytest.mark.parametrize("at_the_disk", ["sync", "create", "rename", "sync_folder", "remove", "list", "read"])
def test_whatever_it_does_at_the_disk_it_does_without_the_lock(
    is_small: bool, at_the_disk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, is_small=is_small)
    lab = Lab()
    seen: list[bool] = []

    def look(operation: str, path: str) -> None:
        if operation == at_the_disk and "/groups" in path:
            seen.append(lab.groups.lock.is_mine())

    lab.faulty.before = look
    lab.groups.compact()
    assert seen or (is_small and at_the_disk == "read")
    assert not any(seen)


def test_of_many_entries_none_is_looked_at_while_the_lock_is_held(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holding the lock, it does the same few things however much is pending."""
    made: list[bool] = []
    encode = codec.encode_pending

    def encoded(entries: Any) -> bytes:
        made.append(lab.groups.lock.is_mine())
        return encode(entries)

    monkeypatch.setattr(codec, "encode_pending", encoded)
    monkeypatch.setattr(group_snapshot, "_FEW", 9)  # a group, a consumer and 8 that are pending are one more
    lab.groups.compact()
    assert made == [False]
    monkeypatch.setattr(group_snapshot, "_FEW", 10)
    lab.groups.compact()
    assert made == [False, True]


def test_small_logs_are_worth_a_snapshot_from_memory_but_no_process(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lamina.engines.topics.group_log._WORTH_IT", 100)
    monkeypatch.setattr("lamina.engines.topics.group_log._WORTH_A_PROCESS", 2000)
    assert lab.groups.wants_compaction()
    monkeypatch.setattr(group_snapshot, "_FEW", -1)
    assert not lab.groups.wants_compaction()
    for _ in range(40):
        lab.groups.settle(lab.groups.history(G, A, ids.FIRST).position)
    assert lab.groups.wants_compaction()
    lab.groups.compact()
    assert not lab.groups.wants_compaction()


def test_what_is_written_meanwhile_counts_towards_the_next(lab: Lab, many: None) -> None:
    with (
        held_at(lab.faulty, "sync", f".dat{TIMED.temporary_suffix}") as (reached, goes_on),
        in_thread(lab.groups.compact),
    ):
        assert reached.wait(PATIENCE_S)
        before = lab.groups._since
        lab.ack(3, 4)
        written = lab.groups._since - before
        goes_on.set()
    assert lab.groups._since == written > 0


# -- what goes wrong -------------------------------------------------------------------------------------------------


def damaged(lab: Lab, name: str, *, at_end: bool) -> None:
    data = lab.disk.names[f"{lab.folder}/groups/{name}"].data
    data[-6 if at_end else 30] ^= 1


@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("at_end", [True, False])
def test_damage_is_told_and_nothing_is_thrown_away(place: int, at_end: bool, many: None) -> None:
    """Also at the end of the newest file, where a crash could have torn it: this one is sealed."""
    lab = Lab(segment_bytes=300)
    lab.log.rotate()
    damaged(lab, lab.names()[place], at_end=at_end)
    before, names = lab.picture(), lab.names()
    with pytest.raises(Corruption):
        lab.groups.compact()
    assert lab.picture() == before and set(names) <= set(lab.names()) and not lab.leftovers()


def test_damage_behind_the_room_is_told_too(lab: Lab, many: None) -> None:
    task = plan(lab)
    damaged(lab, task.files[-1], at_end=True)
    with pytest.raises(Corruption):
        stage(lab.files, task)
    assert not lab.leftovers()


def test_a_file_that_is_gone_is_told(lab: Lab) -> None:
    task = plan(lab)
    lab.disk.remove(f"{task.folder}/{task.files[0]}")
    with pytest.raises(Corruption, match="gone"):
        stage(lab.files, task)


def plan(lab: Lab) -> Task:
    """A task as the engine makes it, with records behind the room."""
    found: list[Task] = []

    def note(files: Files, task: Task, *more: Any) -> int:
        found.append(task)
        raise StorageError("not now")

    few, staged = group_snapshot._FEW, group_compaction.stage_elsewhere
    group_snapshot._FEW, group_compaction.stage_elsewhere = -1, note  # type: ignore[misc]
    try:
        with pytest.raises(StorageError, match="not now"):
            lab.groups.compact()
    finally:
        group_snapshot._FEW, group_compaction.stage_elsewhere = few, staged  # type: ignore[misc]
    return found[0]


def test_a_room_that_is_too_small_is_told(lab: Lab) -> None:
    task = plan(lab)
    with pytest.raises(StorageError, match="no room"):
        stage(lab.files, Task(task.folder, task.files, task.start, task.start + 5, task.max_payload))
    assert not lab.leftovers()
    assert stage(lab.files, Task(task.folder, task.files, task.start, task.start + 6, task.max_payload)) > 0


@EITHER_WAY
@pytest.mark.parametrize("operation", ["append", "create", "sync", "rename", "sync_folder", "remove"])
def test_an_error_of_the_disk_is_told_and_the_next_try_does_it(
    is_small: bool, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, is_small=is_small)
    errors = 0
    for nth in range(1, 12):
        lab = Lab(segment_bytes=200)
        before = lab.picture()
        fault = lab.faulty.fail(operation, only=f"{lab.folder}/groups", nth=nth)
        try:
            lab.groups.compact()
        except (DiskError, DiskFull, StorageError):
            errors += 1
        lab.faulty.heal()
        assert lab.picture() == before
        lab.check_restart()
        if not fault.struck:
            break
        if lab.log.failure is None:
            lab.groups.compact()
            assert lab.picture() == before and not lab.leftovers()
            lab.check_restart()
    assert errors


@EITHER_WAY
def test_the_state_may_be_built_anew_while_files_go(is_small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, is_small=is_small)
    lab = Lab(segment_bytes=200)
    for where in ("rename", "remove"):
        with held_at(lab.faulty, where, ".dat") as (reached, goes_on), in_thread(lab.groups.compact) as did:
            assert reached.wait(PATIENCE_S)
            before = lab.picture()
            with in_thread(lab.groups.rebuild):  # waits for the file that is just going
                goes_on.set()
            assert lab.picture() == before
        assert isinstance(did[0], int)
        lab.check_restart()
        lab.ack(*range(3, 5) if where == "rename" else range(5, 7))


# -- giving up -------------------------------------------------------------------------------------------------------


def test_it_is_given_up_when_the_topic_is_closed(lab: Lab, many: None) -> None:
    compact = in_thread(lambda: locked(lab.topic, lab.groups.compact))
    with held_at(lab.faulty, "create", TIMED.temporary_suffix) as (reached, goes_on), compact as did:
        assert reached.wait(PATIENCE_S)
        with in_thread(lab.topic.close):
            while not lab.groups._stopper.is_stopped:
                pass
            goes_on.set()
    assert isinstance(did[0], Stopped) and not lab.leftovers()
    lab.topic = lab.open(lab.files)
    lab.check_restart()


def locked(topic: Topic, work: Callable[[], Any]) -> Any:
    with topic.at_work:
        return work()


def test_a_topic_that_is_closing_is_left_alone(lab: Lab) -> None:
    lab.topic.is_closing = True
    names = lab.names()
    assert lab.groups.compact() == 0 and lab.names() == names


def test_upkeep_that_is_stopped_gives_it_up(many: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lamina.engines.topics.group_log._WORTH_IT", 10)
    monkeypatch.setattr("lamina.engines.topics.group_log._WORTH_A_PROCESS", 10)
    files = FaultyFiles(MemoryFiles())
    topics = Topics.open("topics", files=files, clock=ManualClock(), threaded=False)
    topic = topics.get_or_make(b"t")
    topic.settle(topic.add([b"f", b"v"])[1])
    topic.groups.settle(topic.groups.create(G, ids.FIRST))
    upkeep = Upkeep(topics, Retentions())
    with held_at(files, "create", TIMED.temporary_suffix) as (reached, goes_on):
        upkeep.start()
        assert reached.wait(PATIENCE_S)
        with in_thread(upkeep.stop):
            while not topic.groups._stopper.is_stopped:
                pass
            goes_on.set()
    assert topic.groups.compactions == 0 and not [path for path in files.inner.contents() if path.endswith(".rw")]  # type: ignore[attr-defined]
    topics.close()


# -- another process -------------------------------------------------------------------------------------------------


def real_lab(tmp_path: Path) -> Lab:
    return Lab(RealFiles(), str(tmp_path / "topic"))


def test_of_many_entries_another_process_writes_the_file(tmp_path: Path, many: None) -> None:
    lab = real_lab(tmp_path)
    before = lab.picture()
    assert lab.groups.compact() == 1
    assert lab.picture() == before and not lab.leftovers()
    lab.ack(3)
    here = Reader(f"{lab.folder}/groups", family=TIMED).batches()
    state = group_snapshot.load(here).state
    assert list(state.groups[G].pending.keys()) == [at(number) for number in range(4, 11)]
    lab.topic.close()


def test_it_writes_what_this_one_would(tmp_path: Path) -> None:
    lab = real_lab(tmp_path)
    task = plan(lab)
    size = stage_elsewhere(RealFiles(), task, Stopper())
    there = Path(task.staged).read_bytes()
    assert stage(RealFiles(), task) == size and Path(task.staged).read_bytes() == there
    lab.topic.close()


def test_it_says_why_it_could_not(tmp_path: Path) -> None:
    lab = real_lab(tmp_path)
    task = plan(lab)
    path = Path(task.folder, task.files[-1])
    data = bytearray(path.read_bytes())
    data[30] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corruption) as told:
        stage_elsewhere(RealFiles(), task, Stopper())
    assert told.value.file == task.files[-1] and not lab.leftovers()
    lab.topic.close()


def test_one_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    lab = real_lab(tmp_path)
    task, stopper = plan(lab), Stopper()
    Path(task.staged).write_bytes(b"what it had written")
    stopper.stop()
    with pytest.raises(Stopped):
        stage_elsewhere(RealFiles(), task, stopper)
    assert not lab.leftovers()
    lab.topic.close()


def test_it_ends_with_the_process_that_asked(tmp_path: Path) -> None:
    lab = real_lab(tmp_path)
    for start in range(100_000, 400_000, 10_000):
        found = [at(number) for number in range(start, start + 10_000)]
        lab.log.append(codec.encode_delivered(G, A, 0, found[-1], None, found))
    task = plan(lab)
    worker = [sys.executable, "-P", "-m", "lamina.engines.topics.group_compaction"]
    with subprocess.Popen(worker, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(asdict(task)).encode() + b"\n")
        process.stdin.close()
        assert process.stdout.read() == b"" and process.wait(PATIENCE_S) == 1
    assert not lab.leftovers()
    lab.topic.close()
