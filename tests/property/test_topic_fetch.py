"""Entries fetched by id, and read newest first, are those that a plain list has: across files, points and the tail."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamina.engines.topics import finding, ids
from lamina.engines.topics.entries import encode, entry_id
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.retention import parse
from lamina.engines.topics.shedding import Shedder
from lamina.engines.topics.topic import Topic
from lamina.log import OS, LogOptions
from lamina.testing import ManualClock, MemoryFiles

FOLDER = "topic"
STEP = st.sampled_from([1, 1, 1, 2, 3 << 64, 60_000 << 64])
SIZE = st.sampled_from([1, 10, 10, 20_000, 70_000])
ADD = st.tuples(st.just("add"), STEP, SIZE)
WHICH = st.tuples(st.sampled_from(["delete", "trim", "shed"]), st.integers(0, 60), st.none())
DISK = st.tuples(st.sampled_from(["write", "rotate", "mark", "forget", "reopen", "lose index"]), st.none(), st.none())
STORY = st.lists(st.one_of(ADD, ADD, ADD, ADD, WHICH, DISK), max_size=60)


class Told:
    """A topic, and the plain list of what is in it."""

    def __init__(self, has_clock_ids: bool) -> None:
        self.disk, self.clock = MemoryFiles(), ManualClock()
        self.records: dict[EntryId, bytes] = {}
        self.last = ids.make(self.clock.now_ns() // 1_000_000, 0) if has_clock_ids else ids.FIRST
        self.open()

    def open(self) -> None:
        options = LogOptions(sync=OS, segment_bytes=400_000)
        self.topic = Topic.open(
            FOLDER, files=self.disk, clock=self.clock, options=options, threaded=False, tail_bytes=60_000
        )

    def do(self, what: str, which: Any, size: Any) -> None:
        known = list(self.records)
        if what == "add":
            self.last = EntryId(self.last + which)
            fields = [b"f", bytes(size)]
            self.topic.add(fields, self.last)
            self.records[self.last] = encode(self.last, fields)
            self.clock.advance(0.001)
        elif what == "delete" and known:
            id = known[which % len(known)]
            self.topic.delete([id])
            del self.records[id]
        elif what == "trim" and known:
            id = known[which % len(known)]
            self.topic.trim_to(id)
            self.records = {other: record for other, record in self.records.items() if other >= id}
        elif what == "shed":
            Shedder(self.topic).shed(parse(f"length:{which}"))
            border = self.topic.state.trimmed_to
            self.records = {id: record for id, record in self.records.items() if id > border}
        elif what == "write":
            self.topic.settle(self.topic.newest_position())
        elif what == "rotate":
            self.topic.push()
            self.topic.log.rotate()  # type: ignore[union-attr]
        elif what == "mark":  # a record between entries that is none
            self.topic.set_id(self.topic.state.last_id)
        elif what == "forget":
            self.topic.settle(self.topic.newest_position())
            self.topic.tail.forget(self.topic.log.readable_position)  # type: ignore[union-attr]
        elif what == "reopen":
            self.topic.close()
            self.open()
        elif what == "lose index":
            for name in [name for name in self.disk.names if name.endswith(".index")]:
                self.disk.remove(name)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    story=STORY,
    has_clock_ids=st.booleans(),
    kept=st.lists(st.booleans(), min_size=60, max_size=60),
    beside=st.lists(st.integers(0, 1 << 70), max_size=3),
    bounds=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    most=st.none() | st.integers(0, 8),
    enough=st.sampled_from([1, 100_000, 4 << 20]),
)
def test_what_is_fetched_is_what_a_plain_list_has(
    story: list[tuple[str, Any, Any]],
    has_clock_ids: bool,
    kept: list[bool],
    beside: list[int],
    bounds: tuple[int, int],
    most: int | None,
    enough: int,
) -> None:
    told = Told(has_clock_ids)
    ever: dict[EntryId, None] = {}
    for step in story:
        told.do(*step)
        ever.update(dict.fromkeys(told.records))
    some = [id for id, is_kept in zip(ever, kept, strict=False) if is_kept]
    wanted = sorted({*some, *(EntryId(id + 1) for id in some[::3]), *map(EntryId, beside)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finding, "ENOUGH", enough)
        found, _ = told.topic.fetch(wanted)
        assert [(id, record) for id, record, _ in found] == [
            (id, told.records[id]) for id in wanted if id in told.records
        ]
        of_all = sorted(ever)
        for id, _, before in found:
            assert before is None or not any(before < each < id for each in of_all)
        every = list(ever) or [ids.FIRST]
        start, end = every[bounds[0] % len(every)], every[bounds[1] % len(every)]
        between = [record for id, record in told.records.items() if start <= id <= end]
        assert told.topic.looked_at(start, end, most)[0] == between[:most]
        assert told.topic.looked_at(start, end, most, newest_first=True)[0] == between[::-1][:most]
        newest = told.topic.looked_at(ids.FIRST, ids.LAST, most, newest_first=True)[0]
        assert list(map(entry_id, newest)) == list(told.records)[::-1][:most]
        if told.records:
            length = bounds[0] % len(told.records)
            told.topic.trim_length(length)
            assert told.topic.looked_at(ids.FIRST)[0] == list(told.records.values())[len(told.records) - length :]
