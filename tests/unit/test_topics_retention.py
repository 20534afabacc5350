"""Retention of a topic: what goes, what is held, and that nothing else changes by it."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import pytest

from lamina.engines.topics import ids
from lamina.engines.topics.entries import entry_ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.reading import gap_behind
from lamina.engines.topics.retention import Retention, Retentions, parse
from lamina.engines.topics.shedding import Shed, Shedder
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.why import why
from lamina.errors import BadOption
from lamina.log import OS, LogOptions, rewrite
from lamina.log.files import Files
from lamina.log.writer import Log
from lamina.testing import ManualClock, MemoryFiles

DAY = 86400.0
FOLDER = "topic"
CHECKPOINT = f"{FOLDER}/checkpoint"
Seen = tuple[object, ...]


def seen(topic: Topic) -> Seen:
    """All that is known of a topic."""
    state = topic.state
    entries = topic.read(ids.FIRST)[0]
    backwards = topic.read(ids.FIRST, newest_first=True)[0]
    assert entries == backwards[::-1]
    assert state.length == len(entries)
    assert topic.first_id() == (entries[0][0] if entries else None)
    last = max(state.deleted.last() or ids.FIRST, entries[-1][0] if entries else ids.FIRST)
    facts = (state.last_id, state.added, state.max_deleted, state.trimmed_to, state.exists, last)
    return (*facts, *((id, *fields) for id, fields in entries))


class Lab:
    """A topic with small files."""

    def __init__(self, files: MemoryFiles | None = None, *, segment_bytes: int = 400) -> None:
        self.files, self.clock = files or MemoryFiles(), ManualClock()
        self.options = LogOptions(sync=OS, segment_bytes=segment_bytes)
        self.open()

    def open(self) -> None:
        self.topic = Topic.open(
            FOLDER, files=self.files, clock=self.clock, options=self.options, threaded=False, tail_bytes=200
        )
        self.shedder = Shedder(self.topic)

    def add(self, count: int = 1, *, every_s: float = 1) -> list[EntryId]:
        added = []
        for _ in range(count):
            self.clock.advance(every_s)
            id, position = self.topic.add([b"field", b"x" * 60])
            self.topic.settle(position)
            added.append(id)
        return added

    def rotate(self) -> None:
        self.topic.push()
        self.topic.log.rotate()  # type: ignore[union-attr]

    def fill(self, files: int = 5, each: int = 3, *, every_s: float = 1) -> list[list[EntryId]]:
        """So many sealed files with so many entries each, and one that grows, with one entry."""
        parts = []
        for _ in range(files):
            parts.append(self.add(each, every_s=every_s))
            self.rotate()
        self.add(1, every_s=every_s)
        return parts

    def shed(self, text: str) -> Shed:
        return self.shedder.shed(parse(text))

    def ids(self) -> list[EntryId]:
        return [id for id, _ in self.topic.read(ids.FIRST)[0]]

    def names(self) -> list[str]:
        return sorted(name for name in self.files.list(FOLDER) if name.endswith(".dat"))

    def size(self) -> int:
        return sum(len(self.files.contents()[f"{FOLDER}/{name}"]) for name in self.names())


# -- texts -----------------------------------------------------------------------------------------------------------


def test_limits_are_read_as_people_write_them_and_shown_so() -> None:
    wanted = Retention(age_s=7 * DAY, bytes=10 << 30, length=1_000_000, acknowledged=True, hold_s=30 * DAY)
    assert parse("age:7d,bytes:10GiB,length:1000000,acknowledged,hold:30d") == wanted
    assert str(wanted) == "age:7d,bytes:10GiB,length:1000000,acknowledged,hold:30d"
    assert parse(" hold:0 , length:0") == Retention(length=0, hold_s=0)
    assert parse("keep") == Retention() and str(Retention()) == "keep"
    for text in ("age:0.5s", "age:1.5s,bytes:1B", "hold:90m", "bytes:1536KiB", "length:0,hold:0s"):
        assert str(parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "age", "age:", "age:x", "age:-1d", "bytes:1XB", "length:-1", "length:1e3", "length:٣", "acknowledged:yes",
     "size:3", "age:1d,age:2d", "keep,age:1d"],
)  # fmt: skip
def test_a_text_that_is_no_retention_is_refused(text: str) -> None:
    with pytest.raises(BadOption):
        parse(text)


def test_the_first_pattern_that_fits_a_name_counts() -> None:
    retentions = Retentions.parse(["audit*=keep", "a=b*=length:5", "logs-?=age:1d", "*=bytes:1MiB"])
    assert not retentions.of(b"audit-2").has_limits
    assert retentions.of(b"a=b1").length == 5
    assert retentions.of(b"logs-\xff").age_s == DAY
    assert retentions.of(b"LOGS-1").bytes == 1 << 20
    assert not Retentions().of(b"any").has_limits
    for text in ("age:1d", "=age:1d"):
        with pytest.raises(BadOption):
            Retentions.parse([text])


# -- limits ----------------------------------------------------------------------------------------------------------


def test_without_limits_nothing_goes() -> None:
    lab = Lab()
    lab.fill()
    lab.clock.advance(1000 * DAY)
    before = seen(lab.topic)
    assert lab.shed("keep") == Shed()
    assert seen(lab.topic) == before


def test_a_file_goes_when_its_newest_record_is_past_the_age() -> None:
    lab = Lab()
    parts = lab.fill(3, 2)
    newest_of_second = parts[1][-1] >> 64
    lab.clock.wall_ns = newest_of_second * 1_000_000 + 100 * 10**9
    shed = lab.shed("age:100s")
    assert (shed.files, shed.entries) == (1, 2)
    lab.clock.advance(1.1)
    assert lab.shed("age:100s").files == 1
    assert lab.ids()[:2] == parts[2]


def test_files_go_until_all_together_have_no_more_bytes_than_allowed() -> None:
    lab = Lab()
    lab.fill(6)
    sizes = [len(lab.files.contents()[f"{FOLDER}/{name}"]) for name in lab.names()]
    limit = sum(sizes[2:])
    shed = lab.shed(f"bytes:{limit}B")
    assert (shed.files, shed.bytes) == (2, sum(sizes[:2]))
    assert lab.shed(f"bytes:{limit + 200}B") == Shed()  # with what it wrote itself


def test_files_go_as_long_as_so_many_entries_stay() -> None:
    lab = Lab()
    parts = lab.fill(5, 3)  # 16 entries
    assert lab.shed("length:10").entries == 6
    assert lab.ids()[0] == parts[2][0] and lab.topic.state.length == 10
    assert lab.shed("length:8") == Shed()
    lab.topic.delete(parts[2][:1])  # 9 are left, 2 of them in the oldest file
    assert lab.shed("length:8") == Shed()
    assert lab.shed("length:7").entries == 2


def test_entries_trimmed_by_a_client_are_not_counted_again() -> None:
    lab = Lab(segment_bytes=1 << 20)
    first = lab.add(1500, every_s=0.001)
    lab.rotate()
    lab.add(1000, every_s=0.001)
    lab.topic.trim_to(first[900])
    lab.topic.delete(first[900:1000])
    assert lab.topic.state.length == 1500
    assert lab.shed("length:1001") == Shed()
    assert lab.shed("length:500").entries == 500
    assert lab.topic.state.length == 1000


def test_any_limit_alone_is_enough() -> None:
    lab = Lab()
    lab.fill(4)
    assert lab.shed("age:1000d,length:0").files == 4


def test_the_newest_file_never_goes_unless_its_entries_are_past_a_limit_and_then_leaves_the_topic() -> None:
    lab = Lab()
    lab.add(2)
    assert lab.shed("age:4000s") == Shed()
    assert len(lab.names()) == 1
    lab.clock.advance(4001)
    before = lab.topic.state.last_id, lab.topic.state.added
    assert lab.shed("age:4000s").entries == 2
    assert (lab.topic.state.last_id, lab.topic.state.added, lab.topic.state.length) == (*before, 0)
    names = lab.names()
    lab.clock.advance(100_000)
    assert lab.shed("age:4000s") == Shed()  # what is left has nothing to let go: it is not written again and again
    lab.add(1)
    assert lab.names() == names  # nor sealed for nothing
    before = lab.topic.state.last_id, lab.topic.state.added
    lab.topic.close()
    lab.open()
    assert lab.topic.state.exists and (lab.topic.state.last_id, lab.topic.state.added) == before


def test_a_file_that_grows_is_sealed_in_time_for_its_limit() -> None:
    lab = Lab(segment_bytes=1 << 20)
    lab.add(1)
    lab.shed("age:400s")
    lab.clock.advance(100)
    lab.add(1)
    assert len(lab.names()) == 1
    lab.shed("age:400s")
    lab.add(1)
    assert len(lab.names()) == 2
    lab.topic.add([b"f", bytes(200_000)])
    lab.topic.push()
    lab.topic.log.run_round()  # type: ignore[union-attr]
    lab.shed("bytes:10MiB")
    lab.add(1)
    assert len(lab.names()) == 2
    lab.shed("bytes:700KiB")
    lab.add(1)
    assert len(lab.names()) == 3


# -- what is dead goes in any case -----------------------------------------------------------------------------------


def test_files_of_which_a_client_trimmed_everything_go_without_a_limit() -> None:
    lab = Lab()
    parts = lab.fill(4)
    lab.topic.trim_to(parts[2][1])
    before = seen(lab.topic)
    shed = lab.shed("keep")
    assert (shed.files, shed.entries) == (2, 0)
    assert seen(lab.topic) == before
    assert lab.ids()[0] == parts[2][1]


def test_files_of_which_a_client_deleted_everything_go_without_a_limit() -> None:
    lab = Lab()
    parts = lab.fill(4)
    lab.topic.delete(parts[0])
    lab.topic.delete(parts[1][:2])
    state = lab.topic.state
    known = state.last_id, state.added, state.length, state.max_deleted
    assert (lab.shed("keep").files, lab.ids()[0]) == (1, parts[1][2])
    assert (state.last_id, state.added, state.length, state.max_deleted) == known
    assert [each.ids for each in state.deleted] == [2], "those of files that went need not be remembered"
    assert all(id in state.deleted for id in parts[1][:2])


def test_entries_whose_deletion_the_disk_refused_do_not_go() -> None:
    lab = Lab()
    parts = lab.fill(3)
    lab.topic.delete(parts[0])
    verdicts = [verdict for verdict in lab.shedder.verdicts(Retention()) if verdict.goes]
    assert len(verdicts) == 1
    former = lab.topic.state
    lab.topic.rebuild()  # from a log that has not got the deletion
    lab.topic.journal.pending.clear()
    assert lab.shedder._let_go(verdicts, former, Retention(), lambda: False) == Shed()
    assert lab.ids()[:3] == parts[0]


# -- groups ----------------------------------------------------------------------------------------------------------


def test_what_a_group_has_not_acknowledged_is_held() -> None:
    lab = Lab()
    parts = lab.fill(4)
    groups = lab.topic.groups
    groups.create(b"g", ids.FIRST)
    assert lab.shed("length:0") == Shed()
    groups.deliver(b"g", b"c", 7)
    groups.ack(b"g", [*parts[0], parts[1][1]])
    assert lab.shed("length:0").files == 1
    groups.ack(b"g", [parts[1][0], parts[1][2]])
    assert lab.shed("length:0").files == 1
    assert lab.ids()[0] == parts[2][0]
    groups.ack(b"g", [parts[2][0]])
    groups.deliver(b"g", b"c", None, noack=True)
    assert lab.shed("length:0").files == 2


def test_what_all_groups_have_acknowledged_goes_if_that_is_asked_for() -> None:
    lab = Lab()
    parts = lab.fill(4)
    assert lab.shed("acknowledged") == Shed()  # there is nobody who could have
    groups = lab.topic.groups
    groups.create(b"fast", parts[2][-1])
    groups.create(b"slow", parts[1][-1])
    assert lab.shed("keep") == Shed()
    assert lab.shed("acknowledged").files == 2
    groups.destroy(b"slow")
    assert lab.shed("acknowledged").files == 1
    assert lab.ids()[0] == parts[3][0]


def test_a_group_that_is_away_for_long_does_not_hold_what_is_older() -> None:
    lab = Lab()
    lab.fill(2)
    groups = lab.topic.groups
    groups.create(b"g", ids.FIRST)
    groups.deliver(b"g", b"c", 1)
    lab.rotate()
    lab.clock.advance(10 * DAY)
    late = lab.add(1)
    lab.rotate()
    lab.add(1)
    assert lab.shed("length:0,hold:11d") == Shed()
    shed = lab.shed("length:0,hold:9d")  # what came a moment ago nobody has neglected for nine days
    assert shed.files == 3
    assert lab.ids()[0] == late[0]
    groups.deliver(b"g", b"c", None)
    assert lab.shed("length:0,hold:9d") == Shed()


def test_a_group_that_never_had_a_consumer_is_not_taken_to_be_away_since_the_epoch() -> None:
    lab = Lab()
    lab.fill(2)
    lab.clock.advance(100 * DAY)
    lab.topic.groups.create(b"new", ids.FIRST)
    assert lab.shed("length:0,hold:1d") == Shed()
    lab.clock.advance(0.9 * DAY)
    assert lab.shed("length:0,hold:1d") == Shed()
    lab.clock.advance(0.2 * DAY)
    assert lab.shed("length:0,hold:1d").files == 2


def test_an_idle_group_does_not_stand_in_the_way_of_acknowledged() -> None:
    lab = Lab()
    parts = lab.fill(3)
    groups = lab.topic.groups
    groups.create(b"gone", ids.FIRST)
    groups.deliver(b"gone", b"c", 1)
    lab.clock.advance(2 * DAY)
    assert lab.shed("acknowledged,hold:1d") == Shed()  # nobody has acknowledged anything
    groups.create(b"here", parts[1][-1])
    assert lab.shed("acknowledged,hold:1d").files == 2


def test_a_group_that_comes_in_while_it_is_decided_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    lab.fill(3)
    count = lab.shedder.files.count

    def count_late(*args: object) -> int:
        lab.topic.groups.create(b"late", ids.FIRST)
        monkeypatch.undo()
        return count(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(lab.shedder.files, "count", count_late)
    assert lab.shed("length:0") == Shed()
    assert len(lab.ids()) == 10


def test_who_is_overtaken_is_told() -> None:
    lab = Lab()
    parts = lab.fill(3)
    lab.shed("length:4")
    gap = gap_behind(lab.topic, parts[0][1])
    assert gap is not None
    assert gap.resumes_at == ids.show(parts[2][0]).decode()
    assert gap_behind(lab.topic, parts[1][-1]) is None


# -- beside others ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trimmed_to", [None, (0, 1), (1, 2), (3, 1)])
@pytest.mark.parametrize("when", ["before", "behind"])
def test_what_others_take_away_and_add_meanwhile_is_counted_once(
    monkeypatch: pytest.MonkeyPatch, when: str, trimmed_to: tuple[int, int] | None
) -> None:
    lab = Lab()
    parts = lab.fill(4)
    count = lab.shedder.files.count

    def others() -> None:
        lab.topic.delete([parts[0][1], parts[1][0], parts[1][1], parts[3][0]])
        if trimmed_to is not None:
            lab.topic.trim_to(parts[trimmed_to[0]][trimmed_to[1]])
        lab.topic.delete([parts[1][2], parts[3][1]])
        lab.add(1)

    def count_slowly(*args: Any) -> int:
        if when == "before":
            others()
        found = count(*args)
        if when == "behind":
            others()
        return found

    monkeypatch.setattr(lab.shedder.files, "count", count_slowly)
    shed = lab.shed("length:8")
    assert shed.files >= 1
    expected = seen(lab.topic)
    lab.topic.settle(lab.topic.newest_position())
    for contents in (lab.files.contents(), without(lab.files.contents(), CHECKPOINT)):
        assert seen(Lab(MemoryFiles(contents)).topic) == expected


def test_a_reader_that_has_a_file_open_finishes_it() -> None:
    lab = Lab()
    parts = lab.fill(3)
    lab.topic.push()
    assert isinstance(lab.topic.log, Log)
    following = lab.topic.log.reader.batches(window=1)
    _, first = next(following)
    assert entry_ids(first.data, first.offsets, first.lengths)[0] == parts[0][0]
    lab.shed("length:0")
    found = entry_ids(first.data, first.offsets, first.lengths)
    while len(found) < len(parts[0]):
        _, batch = next(following)
        found += entry_ids(batch.data, batch.offsets, batch.lengths)
    assert found == parts[0]


def test_entries_are_found_also_when_a_file_vanishes_under_the_search() -> None:
    lab = Lab()
    parts = lab.fill(6)
    names = lab.topic._contents.finder._reader.segments()
    lab.shed("length:4")
    place = lab.topic._contents.finder._locate(names, parts[5][1])
    assert place is not None and names[place.file].number <= names[5].number
    assert place.file == 5


def test_reading_backwards_passes_a_file_without_entries() -> None:
    lab = Lab()
    before = lab.add(2)
    lab.rotate()
    lab.topic.set_id(lab.topic.state.last_id)
    lab.rotate()
    after = lab.add(2)
    lab.rotate()
    lab.topic.close()
    lab.open()
    assert [id for id, _ in lab.topic.read(ids.FIRST, newest_first=True)[0]] == [*before, *after][::-1]


def test_commands_go_on_while_files_go() -> None:
    """Threads add, trim, delete and read; the counts are right in the end."""
    lab = Lab()
    lab.topic.close()
    options = LogOptions(sync=OS, segment_bytes=2000)
    topic = lab.topic = Topic.open(FOLDER, files=lab.files, options=options, tail_bytes=500)
    shedder = Shedder(topic)
    errors: list[BaseException] = []
    is_over = threading.Event()

    def work(act: Callable[[random.Random], object], seed: int) -> None:
        rng = random.Random(seed)
        try:
            while not is_over.is_set():
                act(rng)
        except BaseException as error:
            errors.append(error)

    def change(rng: random.Random) -> None:
        topic.settle(topic.add([b"f", b"x" * 50])[1])
        if rng.random() < 0.1:
            topic.trim_length(max(topic.state.length - 2, 0))
        if rng.random() < 0.2 and (first := topic.first_id()) is not None:
            topic.delete([first])

    def read(rng: random.Random) -> None:
        entries = topic.read(ids.FIRST, count=30, newest_first=rng.random() < 0.5)[0]
        assert len({id for id, _ in entries}) == len(entries)

    threads = [threading.Thread(target=work, args=(act, seed)) for seed, act in enumerate([change, change, read])]
    for thread in threads:
        thread.start()
    shed = 0
    while shed < 15 and not errors:
        shed += shedder.shed(Retention(length=30)).files
    is_over.set()
    for thread in threads:
        thread.join()
    assert not errors
    expected = seen(topic)
    topic.close()
    for contents in (lab.files.contents(), without(lab.files.contents(), CHECKPOINT)):
        assert seen(Lab(MemoryFiles(contents)).topic) == expected


def test_the_state_is_not_built_while_a_file_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    lab.fill(4)
    remove, others = rewrite.remove, []

    def remove_beside_a_refusal(files: Files, folder: str, names: Sequence[str]) -> None:
        others.append(threading.Thread(target=lab.topic.rebuild))
        others[-1].start()
        assert lab.topic.removal.locked() and others[-1].is_alive()
        remove(files, folder, names)

    monkeypatch.setattr(rewrite, "remove", remove_beside_a_refusal)
    before = lab.ids()
    assert lab.shed("length:4").files == 3
    for other in others:
        other.join()
    assert lab.ids() == before[9:]


def test_who_is_asked_to_stop_has_done_nothing() -> None:
    lab = Lab()
    lab.fill(4)
    before = lab.files.contents()
    assert lab.shedder.shed(Retention(length=0), lambda: True) == Shed()
    lab.topic.is_closing = True
    assert lab.shedder.shed(Retention(length=0)) == Shed()
    assert lab.files.contents() == before


# -- after a restart -------------------------------------------------------------------------------------------------


def without(contents: dict[str, bytes], path: str) -> dict[str, bytes]:
    return {known: data for known, data in contents.items() if known != path}


def random_change(lab: Lab, rng: random.Random) -> None:
    """What a client may do. The model is the topic itself, but for what is checked here."""
    topic, state = lab.topic, lab.topic.state
    living = lab.ids()
    known = state.last_id, state.added, state.max_deleted
    act = rng.random()
    if act < 0.5 or not living:
        id = lab.add(1, every_s=rng.choice([0, 0.001, 5]))[0]
        assert lab.ids() == [*living, id]
        assert (state.last_id, state.added, state.max_deleted) == (id, known[1] + 1, known[2])
    elif act < 0.6:
        gone = rng.sample(living, min(len(living), rng.choice([1, 2, 5])))
        topic.delete(gone)
        assert lab.ids() == [id for id in living if id not in gone]
    elif act < 0.65:
        kept = rng.randrange(len(living) + 1)
        topic.trim_length(kept)
        assert lab.ids() == living[len(living) - kept :]
    elif act < 0.68:
        topic.set_id(EntryId(state.last_id + rng.randrange(3)), state.added + rng.randrange(3))
    elif act < 0.75:
        lab.rotate()
    elif act < 0.8:
        topic.checkpoint()
    else:
        limit = rng.choice([f"length:{rng.randrange(20)}", f"age:{rng.randrange(1, 60)}s", "bytes:900B", "keep"])
        shed = lab.shed(limit)
        assert lab.ids() == living[shed.entries :]
        assert (state.last_id, state.added, state.max_deleted) == known
        if limit.startswith("length:"):
            assert state.length >= min(len(living), int(limit[7:]))


@pytest.mark.parametrize("seed", range(25))
def test_a_restart_with_any_checkpoint_or_none_shows_the_same(seed: int) -> None:
    rng = random.Random(seed)
    lab = Lab()
    checkpoints = [b"", b"lmtc\0\0\0\1 damaged"]
    for _ in range(120):
        random_change(lab, rng)
        lab.topic.settle(lab.topic.newest_position())
        if CHECKPOINT in lab.files.contents() and (kept := lab.files.contents()[CHECKPOINT]) not in checkpoints:
            checkpoints.append(kept)
        if rng.random() < 0.15:
            expected = seen(lab.topic)
            if rng.random() < 0.5:
                lab.topic.close()
            contents = lab.files.contents()
            for checkpoint in (*checkpoints[:2], *rng.sample(checkpoints, min(len(checkpoints), 3))):
                assert seen(Lab(MemoryFiles(contents | {CHECKPOINT: checkpoint})).topic) == expected
            clock = lab.clock
            lab = Lab(MemoryFiles(without(contents, CHECKPOINT) if rng.random() < 0.5 else contents))
            lab.topic.close()
            lab.clock = clock
            lab.open()
            assert seen(lab.topic) == expected


# -- why -------------------------------------------------------------------------------------------------------------


def test_why_names_the_group_that_holds_data() -> None:
    lab = Lab()
    parts = lab.fill(4)
    groups = lab.topic.groups
    groups.create(b"slow", ids.FIRST)
    groups.deliver(b"slow", b"c", 2)
    groups.create(b"done", parts[3][-1])
    lab.clock.advance(60)
    report = why(lab.topic, parse("age:10s,length:5"), lab.clock.now_ns())
    (holder,) = report.holders
    assert (holder.group, holder.holds, holder.pending, holder.unread, holder.consumers) == ("slow", True, 2, 11, 1)
    assert holder.oldest_needed == ids.show(parts[0][0]).decode() == report.oldest_entry
    assert holder.idle_s == 60
    assert report.answer.startswith("held by slow")
    assert (report.files, report.bytes, report.length, report.goes_files) == (5, lab.size(), 13, 0)
    assert [(limit.limit, limit.files) for limit in report.limits] == [("age:10s", 4), ("length:5", 2)]
    assert json.loads(json.dumps(asdict(report)))["holders"][0]["group"] == "slow"


def test_why_tells_of_a_group_that_holds_no_more_and_what_goes() -> None:
    lab = Lab()
    lab.fill(4)
    groups = lab.topic.groups
    groups.create(b"\xffold", ids.FIRST)
    groups.deliver(b"\xffold", b"c", 2)
    lab.clock.advance(DAY)
    wanted = parse("length:5,hold:1h")
    report = why(lab.topic, wanted, lab.clock.now_ns())
    assert [(one.group, one.holds) for one in report.holders] == [("\\xffold", False)]
    assert report.goes_files == 2 and "next look" in report.answer
    shed = lab.shedder.shed(wanted)
    assert (shed.files, shed.bytes) == (report.goes_files, report.goes_bytes)


def test_why_changes_nothing_and_says_when_nothing_holds() -> None:
    lab = Lab()
    before = lab.files.contents()
    report = why(lab.topic, Retention(), lab.clock.now_ns())
    assert (report.files, report.oldest_entry, report.oldest_written, report.holders) == (0, None, None, [])
    assert lab.files.contents() == before
    lab.add(1)
    assert "newest file" in why(lab.topic, Retention(), lab.clock.now_ns()).answer
    lab.fill(2)
    assert "no limit" in why(lab.topic, Retention(), lab.clock.now_ns()).answer
    assert "nothing is past a limit" in why(lab.topic, parse("length:100"), lab.clock.now_ns()).answer
    lab.topic.groups.create(b"slow", ids.FIRST)
    for limits in (Retention(), parse("length:100")):
        report = why(lab.topic, limits, lab.clock.now_ns())
        assert [one.group for one in report.holders] == ["slow"] and "held" not in report.answer, "no limit is held up"


# -- who was overtaken -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps_checkpoint", [True, False])
def test_a_group_that_was_overtaken_is_known_after_a_restart_until_it_moves(keeps_checkpoint: bool) -> None:
    lab = Lab()
    lab.topic.groups.settle(lab.topic.groups.create(b"slow", ids.FIRST))
    parts = lab.fill()
    lab.topic.groups.deliver(b"slow", b"ann", 1, noack=True)
    assert lab.topic.groups.overtaken(b"slow") is None
    lab.clock.advance(DAY)
    assert lab.shed("length:4,hold:1h").entries > 0
    border = lab.topic.state.trimmed_to
    assert lab.topic.groups.overtaken(b"slow") == border == parts[3][-1]
    lab.topic.close()
    if not keeps_checkpoint:
        lab.files.remove(CHECKPOINT)
    lab.open()
    assert lab.topic.groups.overtaken(b"slow") == border
    lab.topic.groups.set_id(b"slow", border)
    assert lab.topic.groups.overtaken(b"slow") is None


def test_who_trims_or_begins_afterwards_has_lost_nothing() -> None:
    lab = Lab()
    lab.topic.groups.create(b"g", ids.FIRST)
    lab.fill()
    lab.topic.trim_length(3)
    assert lab.topic.groups.overtaken(b"g") is None  # a client wanted it so
    lab.add(5)
    lab.rotate()
    lab.add(1)
    lab.topic.groups.deliver(b"g", b"ann", 1)
    lab.clock.advance(DAY)
    assert lab.shed("length:1,hold:1h").entries > 0
    assert lab.topic.groups.overtaken(b"g") is not None
    for name in (b"new", b"g"):
        (lab.topic.groups.set_id if name == b"g" else lab.topic.groups.create)(name, ids.FIRST)
        assert lab.topic.groups.overtaken(name) is None
        shown = lab.topic.groups.deliver(name, b"c")
        assert [id for id, _ in shown.entries] == lab.ids()
