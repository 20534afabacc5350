"""Groups of a topic, command by command, with a clock and a disk that obey: what happens, and what lasts."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lamina.engines.topics import group_codec as codec
from lamina.engines.topics import group_views as views
from lamina.engines.topics import ids
from lamina.engines.topics.codec import BadRecord
from lamina.engines.topics.group_claims import ClaimOptions
from lamina.engines.topics.group_codec import Claimed
from lamina.engines.topics.group_state import State
from lamina.engines.topics.groups import Groups, Shown
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.topics import Topics
from lamina.errors import (
    Corruption,
    DiskError,
    DiskFull,
    GroupExists,
    LogClosed,
    LogFailed,
    NoGroup,
    RecordTooLarge,
    StorageError,
)
from lamina.log import ALWAYS, OS, Log, LogOptions, Sync
from lamina.log.formats import GROUP
from lamina.log.naming import TIMED
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles

FOLDER = "topic"
GROUPS = "topic/groups"
G, A, B = b"g", b"ann", b"bob"


def at(number: int) -> EntryId:
    """The id ``number-0``."""
    return ids.make(number, 0)


def numbers(found: Shown) -> list[int]:
    return [ids.ms_of(id) for id, _ in found.entries]


class Lab:
    """A topic on a disk in memory, with verbs for what tests do to it. Entries go by number: 5 is ``5-0``."""

    def __init__(self, sync: Sync = OS, segment_bytes: int = 1 << 20) -> None:
        self.disk, self.clock = MemoryFiles(), ManualClock()
        self.files = FaultyFiles(self.disk)
        self.options = LogOptions(sync=sync, segment_bytes=segment_bytes)
        self.open()

    def open(self) -> None:
        self.topic = Topic.open(
            FOLDER, files=self.files, clock=self.clock, options=self.options, threaded=False, tail_bytes=1
        )

    @property
    def groups(self) -> Groups:
        return self.topic.groups

    def restart(self, without: str = "") -> None:
        """The process is killed and started again; files with ``without`` in their path are gone."""
        contents = {path: data for path, data in self.disk.contents().items() if not without or without not in path}
        self.disk = MemoryFiles(contents)
        self.files = FaultyFiles(self.disk)
        self.open()

    def add(self, *which: int) -> None:
        for number in which:
            self.topic.settle(self.topic.add([b"n", b"%d" % number], at(number))[1])

    def do(self, answer: Shown | tuple[int, int]) -> int:
        """Settle what was done; returns how many were meant."""
        if isinstance(answer, Shown):
            self.topic.settle(answer.topic_position)
            self.groups.settle(answer.position)
            return len(answer.entries)
        self.groups.settle(answer[1])
        return answer[0]

    def create(self, name: bytes = G, last: int = 0) -> None:
        self.groups.settle(self.groups.create(name, at(last)))

    def deliver(
        self, consumer: bytes = A, count: int | None = None, *, group: bytes = G, noack: bool = False
    ) -> list[int]:
        found = self.groups.deliver(group, consumer, count, noack=noack)
        self.do(found)
        return numbers(found)

    def pending(self, consumer: bytes | None = None, *, group: bytes = G) -> list[tuple[int, bytes, int, int]]:
        """Number, consumer, how long it is pending in ms, and how often it was delivered."""
        now = self.groups.now_ms()
        return [
            (ids.ms_of(one.id), one.consumer, now - one.time, one.deliveries)
            for one in views.pending(self.groups, group, consumer=consumer)
        ]

    def picture(self) -> object:
        """All that can be seen."""
        return [
            (stats, views.pending(self.groups, stats.name), views.consumers(self.groups, stats.name))
            for stats in views.stats(self.groups)
        ]

    def fill_disk(self, only: str = GROUPS, times: int = 1 << 30) -> None:
        self.files.fail("append", error=errno.ENOSPC, times=times, only=only)


@pytest.fixture
def lab() -> Lab:
    """With entries 1 to 5 and a group that has read none."""
    lab = Lab()
    lab.add(1, 2, 3, 4, 5)
    lab.create()
    return lab


# -- groups ----------------------------------------------------------------------------------------------------------


def test_a_topic_without_groups_has_no_folder_for_them() -> None:
    lab = Lab()
    lab.add(1)
    assert views.stats(lab.groups) == []
    assert not lab.groups.has(G) and lab.groups.oldest_needed() is None
    assert lab.groups.compact() == 0 and not lab.groups.wants_compaction()
    lab.groups.settle(0)
    lab.topic.close()
    assert not [path for path in lab.disk.contents() if GROUPS in path]


def test_a_group_is_there_once(lab: Lab) -> None:
    with pytest.raises(GroupExists, match="Consumer Group name already exists"):
        lab.groups.create(G, None)
    lab.create(b"h", 3)
    assert [stats.name for stats in views.stats(lab.groups)] == [b"g", b"h"]


def test_a_group_made_at_the_end_gets_what_comes_from_now_on(lab: Lab) -> None:
    lab.groups.create(b"h", None)
    assert lab.deliver(group=b"h") == []
    lab.add(6)
    assert lab.deliver(group=b"h") == [6]


@pytest.mark.parametrize(
    "command",
    [
        lambda groups: groups.set_id(b"no", at(1)),
        lambda groups: groups.create_consumer(b"no", A),
        lambda groups: groups.delete_consumer(b"no", A),
        lambda groups: groups.deliver(b"no", A),
        lambda groups: groups.history(b"no", A, ids.FIRST),
        lambda groups: groups.ack(b"no", [at(1)]),
        lambda groups: groups.claim(b"no", A, [at(1)]),
        lambda groups: groups.autoclaim(b"no", A, 0, ids.FIRST),
        lambda groups: views.summary(groups, b"no"),
        lambda groups: views.pending(groups, b"no"),
        lambda groups: views.consumers(groups, b"no"),
    ],
)
def test_a_group_that_is_not_there_is_told(lab: Lab, command: Callable[[Groups], object]) -> None:
    before = lab.disk.contents()
    with pytest.raises(NoGroup, match="No such consumer group 'no'"):
        command(lab.groups)
    lab.groups.push()
    assert lab.disk.contents() == before


def test_a_destroyed_group_is_gone_and_who_waits_is_told(lab: Lab) -> None:
    lab.deliver()
    told: list[str] = []
    lab.topic.waiters[lambda: told.append("changed")] = None
    assert lab.do(lab.groups.destroy(G))
    assert told == ["changed"]
    assert lab.groups.destroy(G) == (False, 0)
    lab.restart()
    assert not lab.groups.has(G)


def test_set_id_lets_a_group_go_on_elsewhere(lab: Lab) -> None:
    lab.deliver()
    lab.groups.set_id(G, at(3), 3)
    assert lab.deliver(B) == [4, 5]
    lab.groups.set_id(G, None)
    assert lab.deliver(B) == []
    assert [one[:2] for one in lab.pending()] == [(1, A), (2, A), (3, A), (4, B), (5, B)]


def test_names_may_be_any_bytes(lab: Lab) -> None:
    lab.create(b"\xff\r\n")
    assert lab.deliver(b"", 1, group=b"\xff\r\n") == [1]
    lab.restart()
    assert lab.pending(group=b"\xff\r\n") == [(1, b"", 0, 1)]


def test_a_name_that_fits_into_no_record_is_refused_before_anything_is_done(lab: Lab) -> None:
    lab.topic.close()
    lab.options = LogOptions(sync=OS, max_payload=100)
    lab.open()
    with pytest.raises(RecordTooLarge):
        lab.groups.create(b"n" * 100, at(0))
    with pytest.raises(RecordTooLarge):
        lab.groups.deliver(G, b"n" * 100)
    assert lab.deliver() == [1, 2, 3, 4, 5]


# -- consumers -------------------------------------------------------------------------------------------------------


def test_a_consumer_is_made_once(lab: Lab) -> None:
    assert lab.do(lab.groups.create_consumer(G, A)) == 1
    lab.clock.advance(1)
    assert lab.groups.create_consumer(G, A) == (False, 0)
    (only,) = views.consumers(lab.groups, G)
    assert only == views.ConsumerStats(A, 0, lab.groups.now_ms() - 1000)


def test_a_deleted_consumer_takes_what_is_pending_for_it_along(lab: Lab) -> None:
    lab.deliver(A, 2)
    lab.deliver(B, 1)
    assert lab.do(lab.groups.delete_consumer(G, A)) == 2
    assert lab.groups.delete_consumer(G, A) == (0, 0)
    lab.restart()
    assert lab.pending() == [(3, B, 0, 1)]
    assert [one.name for one in views.consumers(lab.groups, G)] == [B]


def test_a_consumer_is_seen_when_it_takes_something_or_asks_for_its_history(lab: Lab) -> None:
    start = lab.groups.now_ms()
    lab.deliver()
    lab.clock.advance(1)
    lab.deliver()  # nothing is there: as Redis 7.0, no sign of life
    assert views.consumers(lab.groups, G)[0].seen == start
    lab.do(lab.groups.history(G, A, at(5)))
    assert views.consumers(lab.groups, G)[0].seen == start + 1000
    lab.do(lab.groups.history(G, B, at(0)))
    assert [one.name for one in views.consumers(lab.groups, G)] == [A, B]


# -- reading ---------------------------------------------------------------------------------------------------------


def test_each_entry_goes_to_one_consumer(lab: Lab) -> None:
    assert lab.deliver(A, 2) == [1, 2]
    assert lab.deliver(B, 2) == [3, 4]
    assert lab.deliver(A) == [5]
    assert lab.deliver(B) == []
    assert lab.groups.deliver(G, B).position == 0
    assert [one[:2] for one in lab.pending()] == [(1, A), (2, A), (3, B), (4, B), (5, A)]


def test_entries_come_with_their_fields(lab: Lab) -> None:
    shown = lab.groups.deliver(G, A, 1)
    assert shown.entries == [(at(1), [b"n", b"1"])]
    assert shown.topic_position and shown.position


def test_with_noack_nothing_is_pending_and_the_group_goes_on(lab: Lab) -> None:
    assert lab.deliver(A, 3, noack=True) == [1, 2, 3]
    assert lab.pending() == [] and [one.name for one in views.consumers(lab.groups, G)] == [A]
    lab.restart()
    assert lab.deliver() == [4, 5]


def test_a_group_at_the_last_id_of_all_gets_nothing(lab: Lab) -> None:
    lab.groups.create(b"h", ids.LAST)
    assert lab.deliver(group=b"h") == []
    assert numbers(lab.groups.history(b"h", A, ids.LAST)) == []


def test_more_than_a_record_holds_is_delivered_in_several(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lamina.engines.topics.groups._CHUNK", 2)
    assert lab.deliver() == [1, 2, 3, 4, 5]
    assert lab.do(lab.groups.claim(G, B, [at(1), at(2), at(3)])) == 3
    assert lab.do(lab.groups.ack(G, [at(1), at(2), at(4)])) == 3
    before = lab.picture()
    lab.restart()
    assert lab.picture() == before
    assert lab.pending() == [(3, B, 0, 2), (5, A, 0, 1)]


def test_history_shows_what_is_pending_again_and_counts_it(lab: Lab) -> None:
    lab.deliver(A, 3)
    lab.deliver(B)
    lab.clock.advance(2)
    shown = lab.groups.history(G, A, at(1), 1)
    assert shown.entries == [(at(2), [b"n", b"2"])]
    assert lab.pending() == [(1, A, 2000, 1), (2, A, 0, 2), (3, A, 2000, 1), (4, B, 2000, 1), (5, B, 2000, 1)]
    before = lab.picture()
    lab.do(shown)
    lab.restart()
    assert lab.picture() == before


def test_history_shows_entries_that_are_gone_without_fields_and_does_not_count_them(lab: Lab) -> None:
    lab.deliver()
    lab.topic.delete([at(2)])
    shown = lab.groups.history(G, A, ids.FIRST)
    assert [fields is None for _, fields in shown.entries] == [False, True, False, False, False]
    assert [one[3] for one in lab.pending()] == [2, 1, 2, 2, 2]


def test_history_finds_entries_far_apart_and_many_together() -> None:
    lab = Lab()
    lab.add(*range(1, 301))
    lab.create()
    lab.deliver()
    lab.groups.ack(G, [at(number) for number in range(2, 200)])
    shown = lab.groups.history(G, A, ids.FIRST)
    assert numbers(shown) == [1, *range(200, 301)]
    assert all(fields == [b"n", b"%d" % ids.ms_of(id)] for id, fields in shown.entries)


# -- acknowledging ---------------------------------------------------------------------------------------------------


def test_an_acknowledged_entry_is_not_pending(lab: Lab) -> None:
    lab.deliver()
    assert lab.do(lab.groups.ack(G, [at(1), at(3), at(1), at(9)])) == 2
    assert lab.groups.ack(G, [at(1)]) == (0, 0)
    lab.restart()
    assert [one[0] for one in lab.pending()] == [2, 4, 5]
    summary = views.summary(lab.groups, G)
    assert summary == (3, at(2), at(5), [(A, 3)])


def test_a_group_needs_its_oldest_pending_entry_or_else_the_next_one(lab: Lab) -> None:
    lab.create(b"h", 3)
    lab.deliver(A, 2)
    lab.groups.ack(G, [at(1)])
    assert lab.groups.held_back() == {b"g": at(2), b"h": at(3) + 1}
    lab.groups.ack(G, [at(2)])
    assert lab.groups.oldest_needed() == at(2) + 1


# -- taking over -----------------------------------------------------------------------------------------------------


def test_a_claim_takes_over_what_is_pending(lab: Lab) -> None:
    lab.deliver(A, 3)
    lab.clock.advance(5)
    shown = lab.groups.claim(G, B, [at(2), at(4), at(1), at(2)])
    assert [(ids.ms_of(id), fields) for id, fields in shown.entries] == [
        (2, [b"n", b"2"]),
        (1, [b"n", b"1"]),
        (2, [b"n", b"2"]),
    ]
    assert lab.pending() == [(1, B, 0, 2), (2, B, 0, 3), (3, A, 5000, 1)]
    before = lab.picture()
    lab.do(shown)
    lab.restart()
    assert lab.picture() == before


@pytest.mark.parametrize(
    ("options", "after"),
    [
        (ClaimOptions(min_idle=5000), (1, B, 0, 2)),
        (ClaimOptions(min_idle=5001), (1, A, 5000, 1)),
        (ClaimOptions(just_ids=True), (1, B, 0, 1)),
        (ClaimOptions(count=7), (1, B, 0, 7)),
        (ClaimOptions(count=7, just_ids=True), (1, B, 0, 7)),
        (ClaimOptions(time=0), (1, B, 1_700_000_005_000, 2)),
        (ClaimOptions(time=-1), (1, B, 0, 2)),
        (ClaimOptions(time=1 << 60), (1, B, 0, 2)),
    ],
)
def test_a_claim_does_as_it_is_told(lab: Lab, options: ClaimOptions, after: tuple[int, bytes, int, int]) -> None:
    lab.deliver(A, 1)
    lab.clock.advance(5)
    shown = lab.groups.claim(G, B, [at(1)], options)
    assert lab.pending() == [after]
    assert not options.just_ids or shown.entries == [(at(1), None)]
    assert (b"bob" in [one.name for one in views.consumers(lab.groups, G)]) == (after[1] == B)


def test_force_takes_what_is_pending_for_nobody_but_only_what_is_there(lab: Lab) -> None:
    lab.topic.delete([at(2)])
    shown = lab.groups.claim(G, A, [at(1), at(2), at(9)], ClaimOptions(force=True, min_idle=100))
    assert numbers(shown) == [1]
    assert lab.pending() == [(1, A, 0, 2)]  # Redis counts it twice
    shown = lab.groups.claim(G, A, [at(3)], ClaimOptions(force=True, just_ids=True))
    assert lab.pending()[1] == (3, A, 0, 1)


@pytest.mark.parametrize(("last", "expected"), [(3, [4, 5]), (1, [3, 4, 5])])
def test_a_claim_may_tell_how_far_the_group_has_come_but_never_back(lab: Lab, last: int, expected: list[int]) -> None:
    lab.deliver(A, 2)
    lab.do(lab.groups.claim(G, B, [at(9)], ClaimOptions(last_id=at(last))))
    lab.restart()
    assert lab.deliver() == expected


def test_a_claim_of_what_is_gone_ends_its_being_pending(lab: Lab) -> None:
    lab.deliver(A, 2)
    lab.topic.delete([at(1)])
    shown = lab.groups.claim(G, B, [at(1), at(1)])
    assert (shown.entries, shown.gone) == ([], [at(1)])
    assert lab.pending() == [(2, A, 0, 1)]
    assert [one.name for one in views.consumers(lab.groups, G)] == [A]


def test_autoclaim_goes_on_where_it_stopped(lab: Lab) -> None:
    lab.deliver()
    lab.clock.advance(9)
    shown = lab.groups.autoclaim(G, B, 9000, ids.FIRST, 2)
    assert (numbers(shown), shown.next_id) == ([1, 2], at(3))
    shown = lab.groups.autoclaim(G, B, 9000, shown.next_id, 2)
    assert (numbers(shown), shown.next_id) == ([3, 4], at(5))
    shown = lab.groups.autoclaim(G, B, 9000, shown.next_id, 2, just_ids=True)
    assert (shown.entries, shown.next_id) == ([(at(5), None)], ids.FIRST)
    assert lab.pending() == [(1, B, 0, 2), (2, B, 0, 2), (3, B, 0, 2), (4, B, 0, 2), (5, B, 0, 1)]
    shown = lab.groups.autoclaim(G, A, 1, ids.FIRST)
    assert numbers(shown) == []


def test_autoclaim_looks_at_ten_for_each_that_it_may_take() -> None:
    lab = Lab()
    lab.add(*range(1, 31))
    lab.create()
    lab.deliver(A, 15)
    lab.clock.advance(1)
    lab.groups.claim(G, A, [at(number) for number in range(1, 16)])
    lab.deliver(A)
    shown = lab.groups.autoclaim(G, B, 1, ids.FIRST, 1)
    assert (numbers(shown), shown.next_id) == ([], at(11))


def test_autoclaim_tells_what_is_gone_and_counts_it(lab: Lab) -> None:
    lab.deliver()
    lab.topic.delete([at(1), at(3)])
    shown = lab.groups.autoclaim(G, B, 0, ids.FIRST, 3)
    assert (numbers(shown), shown.gone, shown.next_id) == ([2], [at(1), at(3)], at(4))
    lab.do(shown)
    lab.restart()
    assert [one[:2] for one in lab.pending()] == [(2, B), (4, A), (5, A)]


# -- how much was read, and how much is left -------------------------------------------------------------------------


def read_and_lag(lab: Lab) -> tuple[int | None, int | None]:
    (stats,) = views.stats(lab.groups)
    return stats.read, stats.lag


def test_what_was_read_is_counted_from_where_it_is_known(lab: Lab) -> None:
    assert read_and_lag(lab) == (None, 5)
    lab.deliver(A, 2)
    assert read_and_lag(lab) == (2, 3)
    lab.groups.set_id(G, at(3))
    assert read_and_lag(lab) == (None, None)
    lab.groups.settle(lab.groups.set_id(G, at(3), 3))
    assert read_and_lag(lab) == (3, 2)
    lab.restart()
    assert read_and_lag(lab) == (3, 2)
    lab.deliver()
    assert read_and_lag(lab) == (5, 0)


def test_a_deleted_entry_ahead_makes_the_count_unknown_until_the_end(lab: Lab) -> None:
    lab.deliver(A, 1)
    lab.topic.delete([at(4)])
    assert read_and_lag(lab) == (1, None)
    lab.deliver(A, 1)
    assert read_and_lag(lab) == (None, None)
    lab.deliver(A)
    assert read_and_lag(lab) == (5, 0)


def test_a_topic_that_was_emptied_leaves_nothing_to_read(lab: Lab) -> None:
    lab.topic.trim_length(0)
    assert read_and_lag(lab) == (None, 0)


def test_a_group_of_a_topic_that_never_had_an_entry_has_nothing_to_read() -> None:
    lab = Lab()
    lab.topic.settle(lab.topic.set_id(ids.FIRST))
    lab.create()
    assert read_and_lag(lab) == (None, 0)


# -- what lasts ------------------------------------------------------------------------------------------------------


def story(lab: Lab) -> None:
    """A bit of everything."""
    lab.create(b"h", 9)
    lab.clock.advance(1.5)
    lab.deliver(A, 3)
    lab.deliver(B, 1)
    lab.clock.advance(1.5)
    lab.do(lab.groups.create_consumer(b"h", b"cy"))
    lab.do(lab.groups.claim(G, B, [at(2)], ClaimOptions(count=9)))
    lab.do(lab.groups.history(G, A, ids.FIRST))
    lab.do(lab.groups.ack(G, [at(1)]))
    lab.groups.settle(lab.groups.set_id(b"h", at(2), 2))


def test_a_restart_shows_what_was_there_before_it(lab: Lab) -> None:
    story(lab)
    before = lab.picture()
    lab.restart()
    assert lab.picture() == before
    lab.topic.close()
    lab.open()
    assert lab.picture() == before


def test_a_compaction_changes_nothing_and_leaves_one_file(lab: Lab) -> None:
    story(lab)
    before = lab.picture()
    assert lab.groups.compact() == 1
    assert lab.picture() == before
    assert lab.groups.compact() == 1
    assert len([path for path in lab.disk.contents() if path.startswith(GROUPS) and path.endswith(".dat")]) == 1
    lab.restart()
    assert lab.picture() == before
    lab.deliver()
    before = lab.picture()
    lab.restart()
    assert lab.picture() == before


def test_a_log_wants_compaction_when_it_is_much_larger_than_what_it_says(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lamina.engines.topics.group_log._WORTH_IT", 300)
    assert not lab.groups.wants_compaction()
    for _ in range(20):
        lab.do(lab.groups.history(G, A, ids.FIRST))
    assert lab.groups.wants_compaction()
    lab.restart()
    assert lab.groups.wants_compaction()
    lab.groups.compact()
    assert not lab.groups.wants_compaction()
    lab.restart()
    assert not lab.groups.wants_compaction()


def test_a_snapshot_that_never_became_whole_was_for_nothing(lab: Lab) -> None:
    story(lab)
    before = lab.picture()
    fault = lab.files.fail("append", nth=2, error=errno.ENOSPC, only=f"{GROUPS}/2")  # files are named by the year
    lab.groups.journal.is_careful = True  # so that each record is a write of its own
    with pytest.raises(DiskFull):
        lab.groups.compact()
    assert fault.struck and lab.picture() == before
    lab.files.heal()
    lab.restart()
    assert lab.picture() == before
    assert lab.deliver() == [5]
    before = lab.picture()
    lab.restart()
    assert lab.picture() == before


@pytest.mark.parametrize("going", range(1, 4))
def test_old_files_that_could_not_be_removed_do_no_harm(going: int) -> None:
    lab = Lab(segment_bytes=64)
    lab.add(1, 2, 3, 4, 5)
    lab.create()
    story(lab)
    before = lab.picture()
    left = list(range(going))

    def refuse(operation: str, path: str) -> None:
        if operation == "remove" and path.endswith(".dat") and left.pop() == 0:
            raise OSError(errno.EIO, "no", path)

    lab.files.before = refuse
    with pytest.raises(DiskError):
        lab.groups.compact()
    assert not left
    assert lab.picture() == before
    lab.restart()
    assert lab.picture() == before
    assert lab.groups.compact() > 1
    lab.restart()
    assert lab.picture() == before


def test_the_groups_go_along_when_a_topic_is_renamed_and_go_when_it_is_deleted() -> None:
    topics = Topics.open("topics", files=MemoryFiles(), clock=ManualClock(), threaded=False)
    topic = topics.get_or_make(b"old")
    topic.add([b"f", b"v"], at(1))
    former = topic.groups
    former.create(G, ids.FIRST)
    former.deliver(G, A)
    topics.rename(b"old", b"new")
    renamed = topics.get(b"new")
    assert renamed is not None and [one.consumer for one in views.pending(renamed.groups, G)] == [A]
    with pytest.raises(LogClosed):
        former.settle(former.ack(G, [at(1)])[1])
    topics.delete(b"new")
    again = topics.get_or_make(b"new")
    again.add([b"f", b"v"], at(1))
    assert views.stats(again.groups) == []


# -- records -------------------------------------------------------------------------------------------------------


def test_the_worked_examples_of_the_records_are_right() -> None:
    page = (Path(__file__).parents[2] / "docs/formats/groups.md").read_text()
    blocks = re.findall(r"```\n(.*?)```", page, re.DOTALL)
    shown = [bytes.fromhex("".join(line.split("   ")[0] for line in block.splitlines())) for block in blocks]
    seventh, eighth, time = ids.make(1700000000123, 7), ids.make(1700000000123, 8), 1700000000200
    assert shown == [
        codec.encode_delivered(b"g", b"ann", time, eighth, 2, [seventh, eighth]),
        codec.encode_acked(b"g", [seventh]),
        codec.encode_claimed(b"g", b"bob", time + 10_000, eighth, [Claimed(eighth, time + 10_000, 2)], is_ahead=False),
    ]
    assert GROUP.header.hex(" ", 4) in page


# -- records that are none -------------------------------------------------------------------------------------------


def with_record(lab: Lab, *payloads: bytes) -> None:
    lab.topic.close()
    with Log.open(
        GROUPS, family=TIMED, format=GROUP, files=lab.files, clock=lab.clock, options=lab.options, threaded=False
    ) as log:
        log.append_many(payloads)
    lab.open()


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x91\x0f",
        b"\x92\x03\xc4\x02no",
        codec.encode_destroyed(b"no"),
        codec.encode_destroyed(G) + b"\0",
        codec.encode_acked(G, [at(1)])[:-1],
        b"\x93\x07\xc4\x01g\x01",
        b"\x9a\x08\xc4\x01g\xc4\x01a\x01\x00\x00\x00\x01\x01\x01",
        b"\x96\x02\xc4\x01g\x01\x00\x00\x02",
        codec.encode_consumer(A, 0),
        codec.encode_pending([Claimed(at(1), 0, 1)]),
        codec.encode_end(0, 0),
    ],
)
def test_a_record_that_is_none_of_a_group_is_told_with_its_place(lab: Lab, payload: bytes) -> None:
    with_record(lab, payload)
    with pytest.raises(Corruption, match=r"\.dat, byte \d+: no record of a group"):
        _ = lab.groups
    assert lab.topic.read(ids.FIRST)[0][0][0] == at(1)


def test_a_whole_snapshot_makes_up_for_what_was_wrong_before_it(lab: Lab) -> None:
    with_record(lab, b"", codec.encode_begin(), codec.encode_end(0, 0))
    assert views.stats(lab.groups) == []


@pytest.mark.parametrize(
    "records",
    [
        (codec.encode_begin(), codec.encode_end(1, 0)),
        (codec.encode_begin(), codec.encode_consumer(A, 0)),
        (codec.encode_begin(), codec.encode_seen(G, A, 0), codec.encode_end(0, 0)),
        (
            codec.encode_begin(),
            codec.encode_group(codec.GROUP, b"h", at(0), None, is_ahead=False),
            codec.encode_pending([Claimed(at(1), 0, 1)]),
        ),
    ],
)
def test_a_snapshot_that_cannot_be_is_told(lab: Lab, records: tuple[bytes, ...]) -> None:
    with_record(lab, *records)
    with pytest.raises(Corruption):
        _ = lab.groups


def test_a_bad_record_changes_nothing() -> None:
    state = State()
    state.apply(codec.encode_group(codec.CREATED, G, at(0), None, is_ahead=False))
    with pytest.raises(BadRecord):
        state.apply(codec.encode_delivered(G, A, 0, at(1), 1, [at(1)])[:-1])
    assert state.groups[G].last_id == 0 and not state.groups[G].consumers


# -- a disk that refuses ---------------------------------------------------------------------------------------------


def test_what_was_refused_was_not_done(lab: Lab) -> None:
    lab.deliver(A, 1)
    before = lab.picture()
    lab.fill_disk(times=1)
    second, third = lab.groups.deliver(G, A, 1), lab.groups.ack(G, [at(1)])
    told: list[str] = []
    lab.topic.waiters[lambda: told.append("changed")] = None
    for answer in (second, third):
        with pytest.raises(DiskFull):
            lab.do(answer)
    assert lab.picture() == before
    assert told == ["changed"]  # there is something to deliver again
    assert lab.deliver(B, 1) == [2]
    before = lab.picture()
    lab.restart()
    assert lab.picture() == before


def test_after_a_refusal_each_record_is_written_before_it_counts(lab: Lab) -> None:
    lab.fill_disk()
    with pytest.raises(DiskFull):
        lab.do(lab.groups.deliver(G, A, 1))
    before = lab.picture()
    for command in (
        lambda: lab.groups.deliver(G, A, 1),
        lambda: lab.groups.create(b"h", None),
        lambda: lab.groups.create_consumer(G, A),
        lambda: lab.groups.destroy(G),
        lambda: lab.groups.history(G, B, ids.FIRST),
        lambda: lab.groups.claim(G, B, [at(1)], ClaimOptions(force=True)),
        lambda: lab.groups.compact(),
    ):
        with pytest.raises(StorageError):
            command()
        assert lab.picture() == before
    lab.files.heal()
    assert lab.deliver() == [1, 2, 3, 4, 5]


def test_a_log_that_failed_refuses_commands_and_still_shows_what_it_has() -> None:
    lab = Lab(ALWAYS)
    lab.add(1, 2)
    lab.create()
    lab.deliver(A, 1)
    before = lab.picture()
    lab.files.fail("sync", only=GROUPS)
    with pytest.raises(LogFailed):
        lab.do(lab.groups.deliver(G, A, 1))
    for _ in range(2):
        with pytest.raises(LogFailed):
            lab.do(lab.groups.ack(G, [at(1)]))
        with pytest.raises(LogFailed):
            lab.groups.compact()
    assert lab.picture() == before
    lab.add(3)
    lab.restart()
    assert [one[0] for one in lab.pending()] in ([1], [1, 2])
    lab.deliver()
    assert [one[0] for one in lab.pending()] == [1, 2, 3]


def test_a_log_that_cannot_be_made_leaves_a_topic_without_groups() -> None:
    lab = Lab()
    lab.add(1)
    lab.files.fail("create", only=GROUPS, error=errno.ENOSPC)
    with pytest.raises(StorageError):
        lab.create()
    assert not lab.groups.has(G)
    lab.create()
    assert lab.deliver() == [1]


@pytest.mark.parametrize("nth", range(1, 5))
def test_a_log_that_cannot_be_read_once_it_is_made_is_tried_again(nth: int) -> None:
    lab = Lab()
    lab.add(1)
    _ = lab.groups
    fault = lab.files.fail("list", only=GROUPS, nth=nth)
    try:
        lab.create()
    except StorageError:
        assert fault.struck and not lab.groups.has(G)
        lab.create()
    assert lab.deliver() == [1]
    lab.restart()
    assert lab.pending() == [(1, A, 0, 1)]


def test_groups_that_cannot_be_read_are_tried_again(lab: Lab) -> None:
    lab.files = FaultyFiles(MemoryFiles(lab.disk.contents()))
    fault = lab.files.fail("read", only=GROUPS)
    lab.open()
    assert lab.groups.has(G) and fault.struck


# -- a topic that lost entries ---------------------------------------------------------------------------------------


def without_the_end_of_the_topic(lab: Lab, kept: int) -> None:
    """A power cut leaves the topic with its entries up to ``kept``, while its groups know of more."""
    *_, path = sorted(path for path in lab.disk.contents() if path.endswith(".dat") and GROUPS not in path)
    contents = dict(lab.disk.contents())
    data = contents[path]
    contents[path] = data[: data.index(b"n\xc4\x01%d" % kept) + 8]
    lab.disk = MemoryFiles(
        {name: data for name, data in contents.items() if not name.endswith((".index", "checkpoint"))}
    )
    lab.files = FaultyFiles(lab.disk)
    lab.open()
    assert lab.topic.state.last_id == at(kept)


def test_groups_go_back_to_where_the_topic_is(lab: Lab) -> None:
    lab.create(b"ahead", 9)
    lab.deliver(A, 2)
    lab.deliver(B, 2)
    lab.groups.ack(G, [at(3)])
    lab.groups.push()
    lab.groups.log.run_round()  # type: ignore[union-attr]
    without_the_end_of_the_topic(lab, kept=1)
    assert lab.pending() == [(1, A, 0, 1)]
    assert lab.groups.log.synced == lab.groups.log.position  # type: ignore[union-attr]
    assert [stats.last_id for stats in views.stats(lab.groups)] == [at(9), at(1)]
    lab.add(2, 3)
    assert lab.deliver(B) == [2, 3]
    before = lab.picture()
    lab.restart()
    assert lab.picture() == before


def test_a_group_set_ahead_of_the_topic_stays_there_until_it_gets_an_entry(lab: Lab) -> None:
    lab.create(b"h", 7)
    lab.restart()
    position = lab.groups.log.position
    lab.restart()
    assert lab.groups.log.position == position  # nothing to go back from
    lab.add(6, 8)
    assert lab.deliver(group=b"h") == [8]
    without_the_end_of_the_topic(lab, kept=6)
    assert lab.pending(group=b"h") == []
    lab.add(8)
    assert lab.deliver(group=b"h") == [8]


def refuse_entries(lab: Lab, *which: int) -> None:
    """Entries that groups have had already are refused by the disk."""
    positions = [lab.topic.add([b"n", b"x"], at(number))[1] for number in which]
    lab.groups.settle(lab.groups.deliver(G, A).position)
    lab.files.fail("append", error=errno.ENOSPC, only="topic/2")
    for position in positions:
        with pytest.raises(DiskFull):
            lab.topic.settle(position)


def test_entries_that_were_refused_after_their_delivery_are_not_held_as_delivered(lab: Lab) -> None:
    lab.deliver()
    refuse_entries(lab, 6, 7)
    assert [one[0] for one in lab.pending()] == [1, 2, 3, 4, 5]
    lab.add(6)
    assert lab.deliver(B) == [6]
    before = lab.picture()
    lab.restart()
    assert lab.picture() == before


def test_no_entry_is_taken_before_the_groups_have_gone_back(lab: Lab) -> None:
    lab.deliver()
    lab.fill_disk(times=2)
    lab.files.faults[-1].nth = 2  # the delivery of 6 and 7 is written, going back is not
    refuse_entries(lab, 6, 7)
    lab.fill_disk()
    with pytest.raises(DiskFull):
        lab.add(6)
    with pytest.raises(DiskFull):
        lab.groups.deliver(G, B)
    lab.restart()
    assert lab.topic.state.last_id == at(5) and [one[0] for one in lab.pending()] == [1, 2, 3, 4, 5]
    lab.add(6)
    assert lab.deliver(B) == [6]


def test_going_back_syncs_also_what_took_a_group_back_before(lab: Lab) -> None:
    lab.deliver()
    lab.topic.add([b"n", b"x"], at(6))
    lab.groups.deliver(G, A)
    lab.groups.ack(G, [at(6)])
    lab.groups.settle(lab.groups.set_id(G, at(2)))  # written, not synced: a power cut could bring 6 back
    lab.files.fail("append", error=errno.ENOSPC, only="topic/2")
    with pytest.raises(DiskFull):
        lab.topic.settle(lab.topic.newest_position())
    assert lab.groups.log.synced == lab.groups.log.position  # type: ignore[union-attr]


def test_what_comes_before_anybody_asks_for_the_groups_is_not_skipped(lab: Lab) -> None:
    lab.deliver()
    without_the_end_of_the_topic(lab, kept=2)
    lab.add(3, 4, 5, 6)
    assert lab.deliver(B) == [3, 4, 5, 6]
