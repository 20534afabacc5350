"""How much is read, and when: entries far apart, the newest ones, and long reads that others need not wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pytest

from lamina.engines import loops
from lamina.engines.topics import contents, finding, group_views, groups, ids
from lamina.engines.topics import entries as entry_records
from lamina.engines.topics.group_claims import ClaimOptions
from lamina.engines.topics.groups import Groups, Shown
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.ranges import IdRanges
from lamina.engines.topics.topic import Topic
from lamina.errors import BadTopic, Corruption, LogClosed, NoGroup
from lamina.log import OS, LogOptions
from lamina.log.files.memory import MemoryFile
from lamina.testing import ManualClock, MemoryFiles
from lamina.units import KIB, MIB

FOLDER = "topic"
G, A, B = b"g", b"ann", b"bob"
BLOCK = 64 * KIB
"""So far apart are the points of an index, about."""
SMALL = 4 * KIB
"""What looks at one record only reads no more."""


def at(number: int) -> EntryId:
    return ids.make(number, 0)


def numbers(shown: Shown) -> list[int]:
    return [ids.ms_of(id) for id, _ in shown.records]


class WatchedFiles(MemoryFiles):
    """Knows the parts of log files that were read, but for single records."""

    def __init__(self, contents: dict[str, bytes] | None = None) -> None:
        super().__init__(contents)
        self.parts: list[tuple[str, int, int]] = []
        """Path, offset and size."""
        self.looks = 0
        """At single records."""
        self.watch: Callable[[], None] = lambda: None

    def open(self, path: str, *, write: bool = False) -> MemoryFile:
        file = super().open(path, write=write)
        read_into = file.read_into

        def watched(buffer: memoryview, offset: int) -> int:
            if path.endswith(".dat") and "groups" not in path:
                self.watch()
                if len(buffer) > SMALL:
                    self.parts.append((path, offset, len(buffer)))
                else:
                    self.looks += 1
            return read_into(buffer, offset)

        file.read_into = watched  # type: ignore[method-assign]
        return file

    @property
    def bytes(self) -> int:
        return sum(size for _, _, size in self.parts)

    def forget(self) -> None:
        self.parts.clear()
        self.looks = 0


class Lab:
    """A topic with entries 1-0 to n-0 of a KiB in sealed files; next to nothing is in memory."""

    def __init__(self, count: int = 4000, size: int = KIB, *, segment_bytes: int = 2 * MIB) -> None:
        self.files, self.clock, self.count = WatchedFiles(), ManualClock(), count
        self.options = LogOptions(sync=OS, segment_bytes=segment_bytes)
        self.open()
        self.add(*range(1, count + 1), size=size)
        self.topic.close()  # all indexes are kept
        self.open()
        self.groups.settle(self.groups.create(G, ids.FIRST))
        self.files.forget()

    def open(self) -> None:
        self.topic = Topic.open(
            FOLDER, files=self.files, clock=self.clock, options=self.options, threaded=False, tail_bytes=1
        )

    @property
    def groups(self) -> Groups:
        return self.topic.groups

    def add(self, *which: int, size: int = KIB) -> None:
        for number in which:
            self.clock.advance(0.001)
            position = self.topic.add([b"n", bytes(size)], at(number))[1]
            if number % 20 == 0 or number == which[-1]:
                self.topic.settle(position)

    def deliver_all(self) -> None:
        self.groups.deliver(G, A)

    def leave(self, *which: int) -> None:
        """Only these are pending."""
        self.deliver_all()
        kept = set(which)
        self.groups.ack(G, [at(number) for number in range(1, self.count + 1) if number not in kept])
        self.files.forget()

    def reopen(self) -> None:
        """As after a restart: nothing is remembered of the files."""
        self.topic.close()
        self.open()
        self.files.forget()


# -- entries far apart -----------------------------------------------------------------------------------------------

FAR_APART = [1, 500, 1001, 1700, 2222, 3000, 3999]
READS: dict[str, Callable[[Groups], Shown]] = {
    "history": lambda groups: groups.history(G, A, ids.FIRST),
    "claim": lambda groups: groups.claim(G, B, [at(number) for number in FAR_APART]),
    "autoclaim": lambda groups: groups.autoclaim(G, B, 0, ids.FIRST),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_of_entries_far_apart_only_the_parts_they_are_in_are_read(read: Callable[[Groups], Shown]) -> None:
    lab = Lab()
    lab.leave(*FAR_APART)
    lab.reopen()
    assert numbers(read(lab.groups)) == FAR_APART
    assert len(lab.files.parts) <= 2 * len(FAR_APART)  # one that begins in front of a window may end behind it
    assert lab.files.bytes <= 2 * len(FAR_APART) * BLOCK < 4000 * KIB / 3
    lab.files.forget()
    assert numbers(lab.groups.history(G, A if read is READS["history"] else B, ids.FIRST)) == FAR_APART
    assert not lab.files.looks and not lab.files.parts, "they are cached"


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_of_entries_far_apart_no_other_is_made_anything_of(
    read: Callable[[Groups], Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab()
    lab.leave(*FAR_APART)
    picked: list[EntryId] = []
    pick_wanted = entry_records.pick_wanted

    def counted(*words: Any) -> Any:
        found = pick_wanted(*words)
        picked.extend(id for id, _, _ in found[0])
        return found

    monkeypatch.setattr(finding, "pick_wanted", counted)
    monkeypatch.setattr(finding, "pick", None)
    monkeypatch.setattr(groups, "decode", None)
    assert numbers(read(lab.groups)) == FAR_APART
    assert picked == [at(number) for number in FAR_APART]


def test_cached_entries_are_shown_among_others_and_not_once_they_are_deleted() -> None:
    lab = Lab()
    lab.leave(*FAR_APART)
    lab.topic.fetch([at(500), at(2222)])
    lab.topic.delete([at(2222)])
    shown = lab.groups.history(G, A, ids.FIRST).records
    assert [(ids.ms_of(id), record is None) for id, record in shown] == [(n, n == 2222) for n in FAR_APART]
    assert [entry_records.entry_id(record) for _, record in shown if record is not None] == [
        at(number) for number in FAR_APART if number != 2222
    ]


def test_what_is_cached_is_forgotten_when_a_topic_is_built_anew_or_closed() -> None:
    lab = Lab()
    lab.topic.fetch([at(500)])
    lab.topic.rebuild()
    lab.files.forget()
    lab.topic.fetch([at(500)])
    assert lab.files.parts, "an id that was refused may be another entry's by now"
    cache = lab.topic._contents._cache
    lab.topic.close()
    assert not cache.records and cache not in cache._budget.sizes


def test_all_topics_share_the_room_for_cached_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MOST_CACHED", 20 * KIB)
    one, other = Lab(), Lab()
    caches = [lab.topic._contents._cache for lab in (one, other)]
    one.topic.fetch([at(number) for number in (1, 500, 1001, 1700, 2222, 2500, 3000, 3333, 3500, 3999)])
    other.topic.fetch([at(500)])
    assert [len(cache.records) for cache in caches] == [10, 1]
    other.topic.fetch([at(number) for number in FAR_APART if number != 500])
    assert [len(cache.records) for cache in caches] == [0, len(FAR_APART)], "the one that read nothing for longest"
    other.topic.fetch([at(number) for number in range(1, 30) if number not in FAR_APART])
    assert [len(cache.records) for cache in caches] == [0, len(FAR_APART)], "too much to be kept is not kept"
    assert caches[1]._budget.total <= 20 * KIB


def test_neighbours_are_read_together() -> None:
    lab = Lab()
    together = [*range(700, 720), *range(3000, 3020)]
    lab.leave(*together)
    assert numbers(lab.groups.history(G, A, ids.FIRST)) == together
    assert len(lab.files.parts) <= 4


def test_what_is_all_wanted_is_read_once() -> None:
    lab = Lab()
    lab.deliver_all()
    lab.files.forget()
    assert len(lab.groups.history(G, A, ids.FIRST).records) == 4000
    size = sum(len(data) for path, data in lab.files.contents().items() if path.endswith(".dat"))
    assert lab.files.bytes < 1.1 * size


def test_what_is_in_memory_is_not_looked_for_in_files() -> None:
    lab = Lab(100)
    lab.add(*range(101, 111))
    lab.groups.deliver(G, A)
    lab.groups.ack(G, [at(number) for number in range(1, 110)])
    lab.files.forget()
    assert lab.topic.tail.first_id <= at(110)
    assert numbers(lab.groups.history(G, A, ids.FIRST)) == [110]
    assert not lab.files.parts and not lab.files.looks


def test_what_is_gone_is_not_looked_for() -> None:
    lab = Lab()
    lab.leave(5, 2000)
    lab.topic.delete([at(2000)])
    lab.topic.trim_to(at(6))
    lab.files.forget()
    assert lab.groups.history(G, A, ids.FIRST).records == [(at(5), None), (at(2000), None)]
    assert not lab.files.parts and not lab.files.looks


def test_many_are_deleted_with_one_look_at_each_part() -> None:
    lab = Lab()
    wanted = [at(number) for number in (*range(100, 120), 2, 3000, 5000)]
    assert lab.topic.delete(wanted)[0] == 22
    assert len(lab.files.parts) <= 6


def test_who_claims_what_nobody_has_does_not_look_for_it_unless_it_is_forced() -> None:
    lab = Lab()
    wanted = [at(number) for number in (1, 2, 3000, 9000)]
    assert lab.groups.claim(G, A, wanted).records == []
    assert not lab.files.parts
    assert numbers(lab.groups.claim(G, A, wanted, ClaimOptions(force=True))) == [1, 2, 3000]
    assert len(lab.files.parts) <= 4


def test_what_was_given_to_somebody_a_moment_ago_is_not_read_to_be_claimed() -> None:
    lab = Lab()
    lab.leave(5, 2000)
    assert lab.groups.claim(G, B, [at(5), at(2000)], ClaimOptions(min_idle=10_000)).records == []
    assert lab.groups.autoclaim(G, B, 10_000, ids.FIRST).records == []
    assert not lab.files.parts


def test_damage_in_a_part_that_is_read_is_told_and_nothing_is_changed() -> None:
    lab = Lab(3000, segment_bytes=1 << 30)
    lab.leave(10, 2500)
    (path,) = [path for path in lab.files.names if path.endswith(".dat") and "groups" not in path]
    data = lab.files.names[path].data
    data[len(data) * 4999 // 6000] ^= 1  # in the midst of 2500-0
    before = group_views.pending(lab.groups, G)
    for read in (
        lambda: lab.groups.history(G, A, ids.FIRST),
        lambda: lab.groups.claim(G, B, [at(10), at(2500)]),
        lambda: lab.groups.autoclaim(G, B, 0, ids.FIRST),
        lambda: lab.topic.looked_at(at(2), newest_first=True),
    ):
        with pytest.raises(Corruption):
            read()
    assert group_views.pending(lab.groups, G) == before


@pytest.mark.parametrize("has_index", [True, False])
def test_a_file_that_has_lost_its_end_is_told(has_index: bool) -> None:
    lab = Lab(3000)
    lab.leave(*range(1, 3001))
    first = min(path for path in lab.files.names if path.endswith(".dat") and "groups" not in path)
    whole = lab.files.names[first].data
    topic_end = lab.topic.looked_at(ids.FIRST, count=1)[0]
    assert topic_end
    cut = finding.FileScan(lab.files.open(first))
    ends = [batch.record_offset(place) for batch in cut for place in range(len(batch.times))]
    del whole[ends[-3] :]  # exactly between two records
    if not has_index:
        for name in [name for name in lab.files.names if name.endswith(".index")]:
            lab.files.remove(name)
    lab.topic._contents.finder._reader._indexes.clear()
    with pytest.raises(Corruption, match="ends early"):
        lab.groups.history(G, A, ids.FIRST)
    with pytest.raises(Corruption, match="ends early"):
        lab.topic.looked_at(ids.FIRST, newest_first=True)


# -- the newest ------------------------------------------------------------------------------------------------------


class CountedRanges(IdRanges):
    """Counts how often it is asked."""

    asked = 0

    def __contains__(self, id: EntryId) -> bool:
        self.asked += 1
        return super().__contains__(id)


def test_the_newest_entry_is_found_without_going_through_those_in_memory() -> None:
    lab = Lab(100)
    lab.add(*range(101, 200))
    lab.topic.delete([at(150), at(198)])
    gone = CountedRanges(lab.topic.state.deleted.packed())
    tail = type(lab.topic.tail)(at(100))
    for number in range(101, 200):
        tail.add(at(number), number, b"%d" % number)
    assert tail.pick(ids.FIRST, ids.LAST, 2, gone, newest_first=True) == ([b"199", b"197"], 199)
    assert tail.pick(at(149), ids.LAST, 2, gone) == ([b"149", b"151"], 151)
    assert gone.asked <= 2 * 2 * 2  # two stretches of the living each, looked for from both of their ends
    lab.files.forget()
    assert entry_records.entry_id(lab.topic.looked_at(ids.FIRST, count=1, newest_first=True)[0][0]) == at(199)
    assert not lab.files.parts


def test_the_newest_entries_in_files_are_found_from_their_end() -> None:
    lab = Lab()
    found, _ = lab.topic.looked_at(ids.FIRST, count=100, newest_first=True)
    assert [entry_records.entry_id(record) for record in found] == [at(number) for number in range(4000, 3900, -1)]
    assert lab.files.bytes < 5 * BLOCK
    lab.files.forget()
    assert entry_records.entry_id(lab.topic.looked_at(ids.FIRST, at(2000), 1, newest_first=True)[0][0]) == at(2000)
    assert lab.files.bytes < 3 * BLOCK


def test_keeping_a_few_of_many_looks_at_those_few_only() -> None:
    lab = Lab()
    assert lab.topic.trim_length(50)[0] == 3950
    assert lab.files.bytes < 4 * BLOCK
    assert lab.topic.first_id() == at(3951)


# -- long reads ------------------------------------------------------------------------------------------------------


class Held:
    """A lock that knows how often it was taken, and what was done while it was held."""

    def __init__(self, lock: Any, meter: Callable[[], int]) -> None:
        self.lock, self.meter = lock, meter
        self.depth = self.begun = self.most = self.holds = 0

    def __enter__(self) -> None:
        self.lock.__enter__()
        self.depth += 1
        if self.depth == 1:
            self.begun = self.meter()
            self.holds += 1

    def __exit__(self, *problem: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.depth -= 1
        if not self.depth:
            self.most = max(self.most, self.meter() - self.begun)
        self.lock.__exit__(*problem)

    def acquire(self, *words: Any, **more: Any) -> bool:
        return bool(self.lock.acquire(*words, **more))

    def release(self) -> None:
        self.lock.release()


def watch_lock(lab: Lab, meter: Callable[[], int]) -> Held:
    held = Held(lab.topic.lock, meter)
    lab.topic.lock = lab.groups.lock = held
    return held


LONG: dict[str, Callable[[Lab], Any]] = {
    "history": lambda lab: lab.groups.history(G, A, ids.FIRST),
    "claim": lambda lab: lab.groups.claim(G, B, [at(number) for number in range(1, 4001)]),
    "autoclaim": lambda lab: lab.groups.autoclaim(G, B, 0, ids.FIRST, 1 << 60),
    "range": lambda lab: lab.topic.looked_at(ids.FIRST),
    "range from the end": lambda lab: lab.topic.looked_at(ids.FIRST, newest_first=True),
    "deliver": lambda lab: lab.groups.deliver(G, A),
}


@pytest.mark.parametrize("read", LONG.values(), ids=LONG)
def test_a_long_read_lets_others_in_between(read: Callable[[Lab], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    if read is not LONG["deliver"]:
        lab.deliver_all()
    lab.topic.first_id()  # read ahead, and remembered
    monkeypatch.setattr(finding, "ENOUGH", 256 * KIB)
    held = watch_lock(lab, lambda: lab.files.bytes)
    lab.files.forget()
    found = read(lab)
    assert len(found.records if isinstance(found, Shown) else found[0]) == 4000
    assert held.holds >= 4000 * KIB / held.most >= 5
    assert held.most < 256 * KIB + 2 * finding.WINDOW


@pytest.mark.parametrize("change", ["history", "claim", "autoclaim", "deliver", "ack"])
def test_many_changes_let_others_in_between(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(300, 10)
    if change != "deliver":
        lab.deliver_all()
    monkeypatch.setattr(groups, "_CHUNK", 20)
    written: list[bytes] = []
    write = lab.groups._write

    def counted(record: bytes) -> int:
        written.append(record)
        return write(record)

    monkeypatch.setattr(lab.groups, "_write", counted)
    held = watch_lock(lab, lambda: len(written))
    if change == "ack":
        assert lab.groups.ack(G, [at(number) for number in range(1, 301)])[0] == 300
    elif change == "claim":
        lab.groups.claim(G, B, [at(number) for number in range(1, 301)])
    else:
        LONG[change](lab)
    assert len(written) == 15 and held.most == 1


def test_others_get_the_lock_while_much_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    monkeypatch.setattr(finding, "ENOUGH", 64 * KIB)
    came: list[int] = []
    is_over = threading.Event()

    def other() -> None:
        while not is_over.is_set():
            with lab.topic.lock:
                came.append(len(lab.files.parts))

    thread = threading.Thread(target=other)
    thread.start()
    try:
        lab.topic.looked_at(ids.FIRST)
    finally:
        is_over.set()
        thread.join()
    assert any(0 < parts < len(lab.files.parts) for parts in came)


def in_between(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> None:
    """What others do between the pieces, one step each time."""
    left = list(steps)

    def make_way() -> None:
        if left:
            left.pop(0)()

    monkeypatch.setattr(loops, "make_way", make_way)
    monkeypatch.setattr(finding, "ENOUGH", 64 * KIB)
    monkeypatch.setattr(groups, "_CHUNK", 100)


def test_what_goes_while_a_range_is_read_is_not_shown_and_what_comes_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for newest_first in (False, True):
        lab = Lab(1000)
        in_between(
            monkeypatch,
            lambda lab=lab: lab.topic.delete([at(2), at(999), at(500)]),
            lambda lab=lab: (lab.topic.trim_to(at(11)), lab.add(1001)),
            lambda lab=lab: lab.topic.delete([at(20), at(980)]),
        )
        found, position = lab.topic.looked_at(ids.FIRST, newest_first=newest_first)
        expected = [number for number in range(11, 1001) if number not in (20, 500, 980, 999)]
        expected = expected[::-1] if newest_first else [*expected, 1001]
        assert [ids.ms_of(entry_records.entry_id(record) or ids.FIRST) for record in found] == expected
        assert position >= lab.topic.removed_at
        in_between(monkeypatch, lambda lab=lab: lab.topic.trim_to(at(600)))
        found, _ = lab.topic.looked_at(ids.FIRST, count=300, newest_first=newest_first)
        expected = list(range(600, 905)) if not newest_first else list(range(1001, 600, -1))
        expected = [number for number in expected if number not in (980, 999)][:300]
        assert [ids.ms_of(entry_records.entry_id(record) or ids.FIRST) for record in found] == expected


def test_history_shows_what_is_still_pending_when_all_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(1000)
    lab.deliver_all()
    in_between(
        monkeypatch,
        lambda: lab.groups.ack(G, [at(1), at(900)]),
        lambda: lab.groups.claim(G, B, [at(2)], ClaimOptions(just_ids=True)),
        lambda: lab.topic.delete([at(3)]),
    )
    shown = lab.groups.history(G, A, ids.FIRST)
    assert numbers(shown) == [number for number in range(3, 1001) if number != 900]
    assert shown.records[0] == (at(3), None)
    counts = {ids.ms_of(one.id): one.deliveries for one in group_views.pending(lab.groups, G)}
    assert counts == {2: 1, 3: 1} | {number: 2 for number in range(4, 1001) if number != 900}


def test_a_claim_takes_what_may_still_be_taken_when_all_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(1000)
    lab.deliver_all()
    lab.clock.advance(60)
    in_between(
        monkeypatch,
        lambda: lab.groups.ack(G, [at(1), at(900)]),
        lambda: lab.groups.claim(G, b"cy", [at(2)], ClaimOptions(just_ids=True)),
        lambda: lab.topic.delete([at(3)]),
    )
    shown = lab.groups.autoclaim(G, B, 1000, ids.FIRST, 2000)
    assert numbers(shown) == [number for number in range(4, 1001) if number != 900]
    assert (shown.gone, shown.next_id) == ([at(3)], ids.FIRST)
    who = {ids.ms_of(one.id): one.consumer for one in group_views.pending(lab.groups, G)}
    assert who == {2: b"cy"} | {number: B for number in range(4, 1001) if number != 900}


def test_who_is_delivered_much_gets_what_others_were_not_given_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(1000)
    in_between(monkeypatch, lambda: lab.groups.deliver(G, B, 3), lambda: lab.topic.delete([at(5)]))
    assert numbers(lab.groups.deliver(G, A)) == [4, *range(6, 1001)]
    assert [one.consumer for one in group_views.pending(lab.groups, G, count=4)] == [B, B, B, A]


def test_who_is_delivered_much_gives_way_in_the_midst_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(300, 10)
    in_between(monkeypatch, lambda: None, lambda: lab.groups.deliver(G, B, 3))
    assert numbers(lab.groups.deliver(G, A)) == list(range(1, 101))
    assert numbers(lab.groups.deliver(G, A)) == list(range(104, 301))


def test_a_group_that_goes_while_much_is_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for read in (LONG["history"], LONG["autoclaim"], LONG["deliver"]):
        lab = Lab(1000)
        if read is not LONG["deliver"]:
            lab.deliver_all()
        in_between(monkeypatch, lambda lab=lab: lab.groups.destroy(G))
        with pytest.raises(NoGroup):
            read(lab)


def test_a_topic_that_is_closed_while_it_is_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(1000)
    in_between(monkeypatch, lambda: lab.topic.close())
    with pytest.raises(LogClosed):
        lab.topic.looked_at(ids.FIRST)


def test_more_than_memory_should_hold_is_refused_before_anything_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(1000)
    lab.deliver_all()
    monkeypatch.setattr(finding, "MOST_BYTES", 100 * KIB)
    before = group_views.pending(lab.groups, G)
    for read in READS["history"], lambda groups: groups.autoclaim(G, B, 0, ids.FIRST, 1000):
        with pytest.raises(BadTopic, match="use COUNT"):
            read(lab.groups)
    assert group_views.pending(lab.groups, G) == before
    assert len(lab.groups.history(G, A, ids.FIRST, 50).records) == 50


def test_autoclaim_takes_so_many_at_most_and_tells_where_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(300, 10)
    lab.deliver_all()
    monkeypatch.setattr(groups, "MOST_CLAIMED", 100)
    shown = lab.groups.autoclaim(G, B, 0, ids.FIRST, 1 << 60)
    assert numbers(shown) == list(range(1, 101)) and shown.next_id == at(101)


# -- first everything is read, then it is changed --------------------------------------------------------------------

EVERY: dict[str, Callable[[Lab], Shown]] = {
    "deliver": lambda lab: lab.groups.deliver(G, B),
    "history": lambda lab: lab.groups.history(G, A, ids.FIRST),
    "claim": lambda lab: lab.groups.claim(G, B, [at(number) for number in (1, 2, 900)]),
    "force": lambda lab: lab.groups.claim(G, B, [at(1), at(999)], ClaimOptions(force=True)),
    "autoclaim": lambda lab: lab.groups.autoclaim(G, B, 0, ids.FIRST),
}


@pytest.mark.parametrize("chunk", [2000, 50])
@pytest.mark.parametrize("command", EVERY.values(), ids=EVERY)
def test_nothing_is_read_behind_the_first_change(
    command: Callable[[Lab], Shown], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(1000, 200)
    lab.groups.deliver(G, A, 950)
    lab.topic.delete([at(970)])  # how many the group has read has to be worked out
    lab.reopen()
    monkeypatch.setattr(groups, "_CHUNK", chunk)
    happened: list[str] = []
    write = lab.groups._write

    def counted(record: bytes) -> int:
        happened.append("write")
        return write(record)

    monkeypatch.setattr(lab.groups, "_write", counted)
    lab.files.watch = lambda: happened.append("read")
    command(lab)
    assert happened.index("write") == happened.count("read") > 0


def test_what_a_command_would_read_can_be_read_without_any_change() -> None:
    lab = Lab(1000, 200)
    lab.groups.deliver(G, A, 950)
    lab.reopen()
    before = group_views.pending(lab.groups, G), group_views.stats(lab.groups), lab.groups.newest_position()
    read = lab.topic.counts.read
    for after in (None, ids.FIRST):
        lab.files.forget()
        lab.groups.prepare(G, A, after)
        assert lab.files.parts
    assert (group_views.pending(lab.groups, G), group_views.stats(lab.groups), lab.groups.newest_position()) == before
    assert lab.topic.counts.read == read
    lab.files.forget()
    lab.groups.prepare(G, b"nobody", ids.FIRST)
    assert not lab.files.parts
    with pytest.raises(NoGroup):
        lab.groups.prepare(b"none", A, None)


def test_what_is_given_out_is_counted_once_and_only_when_it_is() -> None:
    lab = Lab(1000, 200)
    counts = lab.topic.counts
    lab.groups.deliver(G, A, 10)
    assert counts.read == 10
    lab.groups.history(G, A, ids.FIRST)
    assert counts.read == 20
    lab.groups.claim(G, B, [at(1), at(2), at(500)])
    assert counts.read == 22
    lab.groups.autoclaim(G, B, 0, ids.FIRST)
    assert counts.read == 32
    lab.groups.claim(G, B, [at(1)], ClaimOptions(just_ids=True))
    lab.topic.delete([at(1)])
    lab.groups.history(G, B, ids.FIRST, 2)
    assert counts.read == 33
    lab.files.names[min(name for name in lab.files.names if name.endswith(".dat"))].data[1000] ^= 1
    with pytest.raises(Corruption):
        lab.topic.records(ids.FIRST)
    assert counts.read == 33


# -- what is pending, in order ---------------------------------------------------------------------------------------


def test_what_is_pending_is_looked_through_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(300, 10)
    lab.deliver_all()
    lab.clock.advance(5)
    lab.groups.claim(G, B, [at(250), at(270)], ClaimOptions(just_ids=True))
    monkeypatch.setattr(group_views, "_PAGE", 20)
    held = watch_lock(lab, lambda: 0)
    everything = group_views.pending(lab.groups, G)
    assert [ids.ms_of(one.id) for one in everything] == list(range(1, 301))
    assert held.holds == 16
    assert [ids.ms_of(one.id) for one in group_views.pending(lab.groups, G, consumer=B)] == [250, 270]
    idle = group_views.pending(lab.groups, G, at(10), at(290), 280, min_idle=1)
    assert [ids.ms_of(one.id) for one in idle] == [n for n in range(10, 291) if n not in (250, 270)]
    held.holds = 0
    assert len(group_views.pending(lab.groups, G, count=20)) == 20
    assert held.holds <= 2
