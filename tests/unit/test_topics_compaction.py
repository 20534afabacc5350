"""Sealed files of a topic written anew: what goes, what stays for whom, and that no reader sees a difference."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from lamina.engines.topics import checkpoint, compaction, ids
from lamina.engines.topics.compaction import Compaction
from lamina.engines.topics.entries import entry_id
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.ranges import IdRanges
from lamina.engines.topics.retention import Retention
from lamina.engines.topics.sealed import Stopped
from lamina.engines.topics.shedding import Shed, Shedder
from lamina.engines.topics.state import State
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.walk import Walk
from lamina.engines.topics.why import WhyReport, why
from lamina.errors import Corruption, DiskFull
from lamina.log import OS, LogOptions, consumers
from lamina.log.files import join
from lamina.log.history import History
from lamina.log.naming import TIMED
from lamina.log.reader import Reader
from lamina.log.writer import Log
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles
from unit.test_topics_retention import CHECKPOINT, FOLDER, Lab, seen, without

HOUR = 3600.0


@pytest.fixture(autouse=True)
def small_files_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "LEAST", 0)


@pytest.fixture
def lab() -> Lab:
    return Lab(segment_bytes=1 << 20)


def delete_all_but(lab: Lab, parts: Sequence[Sequence[EntryId]], *kept: EntryId) -> None:
    for part in parts:
        lab.topic.delete([id for id in part if id not in kept])


def compact(lab: Lab) -> Shed:
    """As often as it does something."""
    total = Shed()
    for _ in range(3):
        total = total.plus(lab.shed("keep"))
    return total


def contents(lab: Lab) -> Iterator[dict[str, bytes]]:
    """Of a disk that is found after the next start, with the checkpoint and without."""
    lab.topic.push()
    lab.topic.settle(lab.topic.newest_position())
    yield lab.files.contents()
    yield without(lab.files.contents(), CHECKPOINT)


def facts(topic: Topic) -> tuple[object, ...]:
    state = topic.state
    return state.last_id, state.added, state.length, state.max_deleted, state.trimmed_to, state.let_go_to, state.exists


# -- what goes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [0, 3, 5])
def test_one_entry_that_stays_keeps_two_files_at_most(lab: Lab, where: int) -> None:
    parts = lab.fill(6, 50)
    kept = parts[where][25]
    delete_all_but(lab, [*parts, lab.ids()[-1:]], kept)
    before, size = seen(lab.topic), lab.size()
    shed = compact(lab)
    assert shed.rewritten and shed.files == 5 and shed.bytes > size * 3 // 4
    assert len(lab.names()) == 2 and lab.size() < size // 4
    assert lab.ids() == [kept]
    for disk in contents(lab):
        found = Lab(MemoryFiles(disk))
        assert facts(found.topic) == facts(lab.topic) and found.ids() == [kept]
        assert seen(found.topic)[:3] == before[:3]
        id, _ = found.topic.add([b"f", b"v"])
        assert found.ids() == [kept, id]


def test_of_many_files_with_one_entry_each_nothing_else_is_left(lab: Lab) -> None:
    parts = lab.fill(6, 50)
    kept = [part[number * 7] for number, part in enumerate(parts)]
    delete_all_but(lab, parts, *kept)
    last = lab.ids()[-1]
    shed = compact(lab)
    assert shed.rewritten == 6
    assert all(len(lab.files.contents()[join(FOLDER, name)]) < 500 for name in lab.names()[:-1])
    assert lab.ids() == [*kept, last]
    for disk in contents(lab):
        assert Lab(MemoryFiles(disk)).ids() == [*kept, last]


def test_a_large_file_stays_as_it_is_and_a_stub_stands_in_for_those_behind_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = lab.fill(6, 50)
    monkeypatch.setattr(compaction, "_SMALL", 0)
    delete_all_but(lab, parts[2:5])
    names, first = lab.names(), lab.files.contents()[join(FOLDER, lab.names()[1])]
    shed = compact(lab)
    assert (shed.files, shed.rewritten) == (2, 1)
    assert lab.names() == [*names[:3], *names[5:]]
    disk = lab.files.contents()
    assert disk[join(FOLDER, names[1])] == first
    assert len(disk[join(FOLDER, names[2])]) < 150
    assert compact(lab) == Shed()
    assert lab.ids() == [*parts[0], *parts[1], *parts[5], lab.ids()[-1]]
    assert [record.time_ns for record in Reader(FOLDER, family=TIMED, files=lab.files).read()]


def test_a_deletion_stays_as_long_as_an_older_file_has_the_entry(lab: Lab) -> None:
    parts = lab.fill(2, 50)
    old = parts[0][7]  # one of fifty: that file is not worth it
    lab.topic.delete([old, *parts[1][:25]])
    between = lab.add(50)
    lab.rotate()
    lab.add(1)
    lab.topic.delete([*parts[1][25:49], *between[:49]])
    shed = compact(lab)
    assert shed.rewritten == 2
    for disk in contents(lab):
        assert old not in Lab(MemoryFiles(disk)).ids()
        assert Lab(MemoryFiles(disk)).ids() == lab.ids()


@pytest.mark.parametrize("at_once", [1, 7, 40])
def test_a_deletion_of_any_length_stays_as_long_as_it_is_needed(lab: Lab, at_once: int) -> None:
    first = [lab.topic.add([b"f", b"x" * 90], ids.make(number, 0))[0] for number in range(1, 101)]
    lab.rotate()
    second = [lab.topic.add([b"f", b"x" * 90], ids.make(number, 0))[0] for number in range(101, 141)]
    lab.topic.delete(first[10 : 10 + at_once])
    lab.topic.delete(second)
    lab.rotate()
    lab.add(1)
    expected = lab.ids()
    assert compact(lab).rewritten and len(lab.names()) == 3
    for disk in contents(lab):
        assert Lab(MemoryFiles(disk)).ids() == expected


def test_a_file_that_is_emptied_from_its_front_is_left_alone_until_that_rests(lab: Lab) -> None:
    parts = lab.fill(2, 50)
    for deleted in (30, 35, 40):
        lab.topic.delete(parts[0][:deleted])
        assert lab.shed("keep") == Shed()
    assert lab.shed("keep").rewritten == 1
    lab.topic.trim_to(parts[0][45])
    assert lab.shed("keep") == Shed()
    assert lab.ids()[0] == parts[0][45]


def test_what_was_trimmed_goes_as_what_was_deleted(lab: Lab) -> None:
    parts = lab.fill(1, 50)
    lab.topic.trim_to(parts[0][48])
    expected = seen(lab.topic)
    assert compact(lab).rewritten == 1
    assert seen(lab.topic) == expected
    assert sum(len(disk) for path, disk in lab.files.contents().items() if path.endswith(lab.names()[0])) < 500


def test_a_file_that_is_not_worth_it_is_tried_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = lab.fill(2, 50)
    lab.topic.delete(parts[1][::2][:20])
    tries = 0
    finish = Compaction._finish

    def counted(self: Compaction, run: Any, *rest: Any) -> Any:
        nonlocal tries
        tries += run is not None and run.waste is not None
        return finish(self, run, *rest)

    monkeypatch.setattr(Compaction, "_finish", counted)
    monkeypatch.setattr(Compaction, "_freed", lambda self, name, facts, *rest: facts.bytes * 2 // 3)
    names = lab.files.contents()[join(FOLDER, lab.names()[1])]
    for _ in range(3):
        assert lab.shed("keep").rewritten == 0
        lab.topic.delete([parts[0][0]])
    assert tries == 2, "one for each file"
    assert lab.files.contents()[join(FOLDER, lab.names()[1])] == names
    assert not any(path.endswith(".rw") for path in lab.files.list(FOLDER))


def test_ranges_that_no_file_needs_are_forgotten_but_for_what_is_pending_or_in_memory(lab: Lab) -> None:
    parts = lab.fill(6, 50)
    lab.topic.groups.create(b"g", ids.FIRST)
    lab.topic.groups.deliver(b"g", b"c", 60)
    for part in parts:
        lab.topic.delete([id for at, id in enumerate(part) if at % 5])
    lab.add(30)
    many, expected = len(lab.topic.state.deleted), seen(lab.topic)
    assert many == 60
    assert compact(lab).rewritten == 6
    left = len(lab.topic.state.deleted)
    assert 12 < left < 16, "those of the sixty that are pending, and the newest"
    assert all(not lab.topic.state.has(id) for id in parts[0] if parts[0].index(id) % 5)
    assert seen(lab.topic)[1:] == expected[1:]
    gone = [id for part in parts for at, id in enumerate(part) if at % 5]
    assert lab.topic.fetch(gone)[0] == []
    lab.topic.checkpoint()
    for disk in contents(lab):
        found = Lab(MemoryFiles(disk)).topic
        assert found.fetch(gone)[0] == [] and facts(found) == facts(lab.topic)


# -- who needs it ----------------------------------------------------------------------------------------------------


def test_what_a_consumer_has_yet_to_read_is_not_touched(lab: Lab) -> None:
    parts = lab.fill(4, 50)
    delete_all_but(lab, parts, parts[0][3], parts[2][3])
    position = lab.shedder.files.facts(lab.shedder.files.names()[0][1]).newest_ns
    consumers.save(lab.files, FOLDER, "reader", position, 1 << 62, now_ns=lab.clock.now_ns())
    before = lab.files.contents()
    assert compact(lab).rewritten
    for name in lab.names()[-3:]:
        assert lab.files.contents()[join(FOLDER, name)].startswith(before[join(FOLDER, name)])
    consumers.remove(lab.files, FOLDER, "reader")
    assert compact(lab).rewritten and len(lab.names()) == 3
    assert lab.ids()[:2] == [parts[0][3], parts[2][3]]


def keeping(lab: Lab, history: History) -> None:
    lab.shedder = Shedder(lab.topic, history)


def test_the_recent_past_stays_for_its_time_and_then_goes_as_it_was_found(lab: Lab) -> None:
    history = History(HOUR)
    keeping(lab, history)
    parts = lab.fill(4, 50)
    delete_all_but(lab, parts[:1])
    delete_all_but(lab, parts[2:3], parts[2][3], parts[2][4])
    names = lab.names()
    assert compact(lab) == Shed() and lab.names() == names
    assert history.bytes > 0
    lab.clock.advance(HOUR / 2)
    lab.topic.delete([parts[2][3]])
    assert compact(lab) == Shed()
    lab.clock.advance(HOUR / 2 + 1)
    shed = lab.shed("keep")
    assert (shed.files, shed.rewritten) == (1, 1)
    left = [entry_id(record.payload) for record in Reader(FOLDER, family=TIMED, files=lab.files).read()]
    assert parts[2][3] in left, "it died half an hour ago: a moment before that still has it"
    assert parts[2][2] not in left
    assert not lab.topic.has(parts[2][3])


def test_the_past_gives_way_to_limits_to_its_room_and_to_a_full_disk(lab: Lab) -> None:
    parts = lab.fill(4, 50)
    delete_all_but(lab, parts[:1])
    delete_all_but(lab, parts[2:3], parts[2][3])
    keeping(lab, History(HOUR, lambda: lab.size()))
    assert lab.shed("keep") == Shed()
    assert lab.shed("length:100").files == 1, "a limit is not asked about the past"
    keeping(lab, History(HOUR, lambda: 100))
    assert compact(lab).rewritten == 1
    parts = lab.fill(2, 50)
    delete_all_but(lab, parts[:1], parts[0][3])
    history = History(HOUR)
    keeping(lab, history)
    assert compact(lab) == Shed() and history.bytes
    assert lab.shedder.shed(Retention(), is_out_of_room=True).rewritten == 1
    assert not history.bytes


def test_why_tells_what_is_dead_and_what_stays_for_the_recent_past(lab: Lab) -> None:
    parts = lab.fill(4, 50)
    delete_all_but(lab, parts[2:3], parts[2][3])
    delete_all_but(lab, parts[:1])

    def told() -> WhyReport:
        return why(lab.topic, Retention(), lab.clock.now_ns(), shedder=lab.shedder)

    told()
    assert (told().goes_files, told().dead_files, told().past_files) == (1, 1, 0)
    keeping(lab, History(HOUR))
    assert (told().goes_files, told().dead_files, told().past_files) == (0, 0, 2)
    assert told().past_bytes > told().bytes // 3 and "recent past" in told().answer
    lab.shedder = Shedder(lab.topic)
    assert lab.shed("keep").files == 1
    assert "written anew" in told().answer and told().dead_files == 1
    before = told().bytes - told().dead_bytes
    assert lab.shed("keep").rewritten == 1
    assert abs(told().bytes - before) < 300 and told().dead_files == 0


# -- beside others ---------------------------------------------------------------------------------------------------


def test_who_reads_page_by_page_goes_on_where_it_was(lab: Lab) -> None:
    parts = lab.fill(3, 60)
    kept = [id for part in parts for id in part[::6]]
    first = [id for id, _ in lab.topic.read(ids.FIRST, count=7)[0]]
    lab.topic.delete([id for part in parts for id in part if id not in kept])
    page = [id for id, _ in lab.topic.read(EntryId(first[-1] + 1), count=5)[0]]
    assert compact(lab).rewritten == 3
    found = list(page)
    while page:
        page = [id for id, _ in lab.topic.read(EntryId(found[-1] + 1), count=4)[0]]
        found += page
    assert found == [*kept[2:], lab.ids()[-1]]
    assert [id for id, _, _ in lab.topic.fetch(kept)[0]] == kept


@pytest.mark.parametrize("when", ["begin_change", "end_change"])
def test_whoever_reads_while_a_file_is_put_in_place_finds_all(
    lab: Lab, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = lab.fill(5, 60)
    kept = [*parts[0][::10], *parts[4][::10]]
    delete_all_but(lab, parts, *kept)
    everything, looks = lab.ids(), 0
    finder = lab.topic._contents.finder
    real = getattr(finder, when)

    def look(*args: Any) -> None:
        nonlocal looks
        real(*args)
        looks += 1
        assert lab.ids() == everything
        assert [id for id, _ in lab.topic.read(kept[2], count=3)[0]] == everything[2:5]

    monkeypatch.setattr(finder, when, look)
    for _ in range(3):
        lab.shed("keep")
        rest = lab.topic.read(EntryId(everything[4] + 1), count=30)[0]
        assert [id for id, _ in rest] == everything[5:], "it goes on where it was when the file was put in place"
    assert looks and len(lab.names()) == 3 and lab.ids() == everything


def test_a_place_that_was_left_while_a_file_is_put_in_place_is_not_believed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = lab.fill(2, 60)
    kept = parts[0][::10]
    delete_all_but(lab, parts[:1], *kept)
    finder = lab.topic._contents.finder
    begin = finder.begin_change

    def begin_and_read() -> None:
        begin()
        assert [id for id, _ in lab.topic.read(kept[0], count=3)[0]] == kept[:3]

    monkeypatch.setattr(finder, "begin_change", begin_and_read)
    assert lab.shed("keep").rewritten == 1
    assert [id for id, _ in lab.topic.read(EntryId(kept[2] + 1), count=3)[0]] == kept[3:]


def test_commands_go_on_while_files_are_written_anew(lab: Lab) -> None:
    parts = lab.fill(3, 60)
    survivors = [id for part in parts for id in part[::20]]
    problems: list[BaseException] = []
    is_over = threading.Event()

    def others(read: Callable[[], None]) -> None:
        try:
            while not is_over.is_set():
                read()
        except BaseException as error:
            problems.append(error)

    def all_of_them() -> None:
        stay = list(survivors)
        found = [id for id, _ in lab.topic.read(ids.FIRST)[0]]
        assert found == sorted(set(found)) and set(stay) <= set(found)
        back = lab.topic.read(ids.FIRST, stay[-1], newest_first=True)[0]
        assert [id for id, _ in back if id in stay] == stay[::-1]

    def by_id_and_by_page() -> None:
        stay = list(survivors)
        assert [id for id, _, _ in lab.topic.fetch(stay)[0]] == stay
        found: list[EntryId] = []
        while page := lab.topic.read(EntryId((found or [0])[-1] + 1), stay[-1], count=3)[0]:
            found += [id for id, _ in page]
        assert [id for id in found if id in stay] == stay

    threads = [threading.Thread(target=others, args=(read,)) for read in (all_of_them, by_id_and_by_page)]
    for thread in threads:
        thread.start()
    rewritten = 0
    for part in range(12):
        known = parts[part] if part < 3 else lab.add(40)
        survivors_of_it = known[::20]
        if part >= 3:
            lab.rotate()
            survivors.extend(survivors_of_it)
        lab.topic.delete([id for id in known if id not in survivors_of_it])
        rewritten += lab.shed("keep").rewritten
    rewritten += compact(lab).rewritten
    is_over.set()
    for thread in threads:
        thread.join()
    assert not problems, problems
    assert rewritten >= 10 and set(survivors) <= set(lab.ids())


def test_a_cursor_with_a_file_open_goes_on_when_those_behind_it_go(lab: Lab) -> None:
    parts = lab.fill(5, 50)
    delete_all_but(lab, parts[1:4])
    delete_all_but(lab, parts[:1], parts[0][3])
    lab.topic.push()
    reader = Reader(FOLDER, family=TIMED, files=lab.files)
    cursor, batches, back = iter(reader.read()), reader.batches(), reader.backwards()
    next(cursor)
    next(batches)
    for _ in range(60):
        next(back)
    shed = compact(lab)
    assert shed.files == 3 and shed.rewritten
    for rest in (cursor, batches, back):
        assert list(rest), "and no damage is told"


def test_a_range_as_it_was_tells_that_some_of_it_is_gone(lab: Lab) -> None:
    parts = lab.fill(3, 50)
    walk = Walk(lab.topic, ids.FIRST, ids.LAST, None, newest_first=False)
    told = walk.count(1, lambda: False)
    delete_all_but(lab, parts, parts[0][0])
    compact(lab)
    while not walk.is_over:
        walk.next(1000)
    assert told == 151 and walk.given < told, "whoever was told the number is hung up on (server/resp/large_replies.py)"


def test_deletions_that_the_disk_refused_do_not_count(lab: Lab) -> None:
    parts = lab.fill(2, 50)
    lab.topic.delete(parts[0][1:])
    wastes = lab.shedder.wastes()
    assert len(wastes) == 1
    lab.topic.rebuild()  # from a log that has not got the deletion
    lab.topic.journal.pending.clear()
    with pytest.raises(Stopped):
        lab.shedder.compaction.compact(wastes, lambda: False)
    assert compact(lab) == Shed()
    assert lab.ids()[:100] == [*parts[0], *parts[1]]


def test_a_full_disk_is_told_and_leaves_all_as_it_was(lab: Lab) -> None:
    disk = FaultyFiles(MemoryFiles())
    lab = Lab.__new__(Lab)
    lab.files, lab.clock, lab.options = disk, ManualClock(), LogOptions(sync=OS, segment_bytes=1 << 20)  # type: ignore[assignment]
    lab.open()
    parts = lab.fill(2, 50)
    delete_all_but(lab, parts[:1], parts[0][3])
    expected = seen(lab.topic)
    disk.fail("append", only=".rw", error=errno.ENOSPC, times=1)
    with pytest.raises(DiskFull):
        compact(lab)
    assert not any(path.endswith(".rw") for path in disk.list(FOLDER))
    assert seen(lab.topic) == expected
    assert compact(lab).rewritten == 1
    assert seen(lab.topic) == expected


def test_asked_to_stop_it_has_done_some_files_and_those_right() -> None:
    done = set()
    for most in range(5, 60):
        lab = Lab(segment_bytes=1 << 20)
        parts = lab.fill(4, 50)
        delete_all_but(lab, parts, *[part[3] for part in parts])
        expected, looks = lab.ids(), iter(range(most))
        lab.shed("keep")
        lab.shedder.shed(Retention(), lambda: next(looks, None) is None)  # noqa: B023
        done.add(sum(len(lab.files.contents()[join(FOLDER, name)]) < 500 for name in lab.names()[:-1]))
        assert not any(path.endswith(".rw") for path in lab.files.list(FOLDER))
        assert lab.ids() == expected
        compact(lab)
        disk = lab.files.contents()
        assert all(len(disk[join(FOLDER, name)]) < 500 for name in lab.names()[:-1]) and lab.ids() == expected
    assert done == {0, 1, 2, 3, 4}


# -- the checkpoint --------------------------------------------------------------------------------------------------


def test_a_checkpoint_has_no_limit_of_its_own() -> None:
    files, state = MemoryFiles(), State()
    files.make_folder(FOLDER)
    count = 1_900_000  # 76 MB: more than the largest record
    packed = (b"%016d" % (2 * n) + b"%016d" % (2 * n - 1) + b"\0\0\0\0\0\0\0\1" for n in range(count))
    state.deleted = IdRanges(packed)
    state.last_id = EntryId(1 << 120)
    checkpoint.save(files, FOLDER, state, 5)
    assert len(files.contents()[CHECKPOINT]) > 72_000_000
    found = checkpoint._read(files, FOLDER)
    assert found is not None and found[1] == 5
    assert len(found[0].deleted) == count and found[0].last_id == state.last_id


def test_a_file_in_the_middle_may_be_missing_only_if_another_stands_in_for_it(lab: Lab) -> None:
    lab.fill(3, 5)
    lab.topic.close()
    lab.files.remove(join(FOLDER, lab.names()[1]))
    with pytest.raises(Corruption, match="missing"):
        list(Reader(FOLDER, family=TIMED, files=lab.files).read())
    assert isinstance(lab.topic.log, Log)
