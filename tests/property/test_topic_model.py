"""A topic against the plainest model of one, a list: random commands, restarts, rotations, moves of the clock.

Memory holds next to nothing and files are small, so that most is read from files, found by the index.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from lamina.engines.topics import ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.topic import Topic
from lamina.errors import BadTopic
from lamina.log import ALWAYS, OS, LogOptions
from lamina.testing import ManualClock, MemoryFiles

EXAMPLES = 60 * int(os.environ.get("LAMINA_CAMPAIGN", "1"))
FOLDER = "topic"
FIELDS = st.lists(st.binary(max_size=40), min_size=2, max_size=4)
STEP = st.sampled_from([1, 1, 2, 7, 1 << 64, 5 << 64])
WHICH = st.integers(0, 200)
COUNT = st.none() | st.integers(0, 12)


class Model:
    def __init__(self) -> None:
        self.entries: list[tuple[EntryId, list[bytes]]] = []
        self.last = self.max_deleted = ids.FIRST
        self.added = 0

    def between(self, start: EntryId, end: EntryId) -> list[tuple[EntryId, list[bytes]]]:
        return [entry for entry in self.entries if start <= entry[0] <= end]

    def add(self, id: EntryId, fields: list[bytes]) -> None:
        self.entries.append((id, fields))
        self.last = id
        self.added += 1


class TopicMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryFiles()
        self.clock = ManualClock()
        self.model = Model()
        self.open()

    def open(self) -> None:
        options = LogOptions(sync=self.policy, segment_bytes=700)
        self.topic = Topic.open(
            FOLDER, files=self.disk, clock=self.clock, options=options, threaded=False, tail_bytes=300
        )

    policy = OS

    def some_id(self, which: int) -> EntryId:
        """Of an entry, mostly; else beside one."""
        known = [id for id, _ in self.model.entries] or [ids.make(5, 5)]
        near = known[which // 4 % len(known)]
        return EntryId(max(near + (which % 4 - 1 if which % 4 < 3 else 0), 0))

    # -- adding ------------------------------------------------------------------------------------------------------

    @rule(many=st.lists(FIELDS, min_size=1, max_size=12), ms=st.sampled_from([0, 0, 1, 50]), writes=st.booleans())
    def add(self, many: list[list[bytes]], ms: int, writes: bool) -> None:
        for fields in many:
            id, _ = self.topic.add(fields)
            assert id > self.model.last
            assert id == max(ids.make(self.clock.now_ns() // 1_000_000, 0), self.model.last + 1)
            self.model.add(id, fields)
            if writes:
                self.topic.settle(self.topic.log.position)  # only what is in the files leaves the memory
        self.clock.advance(ms / 1000)

    @rule(step=STEP, fields=FIELDS)
    def add_with_an_id(self, step: int, fields: list[bytes]) -> None:
        id = EntryId(self.model.last + step)
        assert self.topic.add(fields, id)[0] == id
        self.model.add(id, fields)

    @rule(which=WHICH)
    def add_with_an_id_that_cannot_be(self, which: int) -> None:
        id = EntryId(min(self.some_id(which), self.model.last))
        with pytest.raises(BadTopic, match="greater than 0-0" if not id else "equal or smaller"):
            self.topic.add([b"f", b"v"], id)

    @rule(seconds=st.sampled_from([-3600, -1, 3600]))
    def the_clock_jumps(self, seconds: int) -> None:
        self.clock.jump(seconds)

    # -- taking away -------------------------------------------------------------------------------------------------

    @rule(several=st.lists(WHICH, min_size=1, max_size=4))
    def delete(self, several: list[int]) -> None:
        wanted = [self.some_id(which) for which in several]
        there = {id for id, _ in self.model.entries} & set(wanted)
        assert self.topic.delete(wanted)[0] == len(there)
        self.model.entries = [entry for entry in self.model.entries if entry[0] not in there]
        self.model.max_deleted = max([self.model.max_deleted, *there])

    @rule(which=WHICH, most=COUNT)
    def trim_to(self, which: int, most: int | None) -> None:
        id = self.some_id(which)
        going = [entry for entry in self.model.entries if entry[0] < id][:most]
        assert self.topic.trim_to(id, most)[0] == len(going)
        self.model.entries = self.model.entries[len(going) :]

    @rule(length=st.integers(0, 30), most=COUNT)
    def trim_length(self, length: int, most: int | None) -> None:
        going = max(len(self.model.entries) - length, 0)
        going = going if most is None else min(going, most)
        assert self.topic.trim_length(length, most)[0] == going
        self.model.entries = self.model.entries[going:]

    @rule(step=st.sampled_from([0, 1, 1 << 64]), added=st.none() | st.integers(0, 1000), deleted=st.none() | WHICH)
    def set_id(self, step: int, added: int | None, deleted: int | None) -> None:
        last = EntryId(self.model.last + step)
        largest = None if deleted is None else EntryId(min(self.some_id(deleted), last))
        self.topic.set_id(last, added, largest)
        self.model.last = last
        self.model.added = self.model.added if added is None else added
        self.model.max_deleted = self.model.max_deleted if largest is None else largest

    # -- reading -----------------------------------------------------------------------------------------------------

    @rule(first=WHICH, last=WHICH, count=COUNT, newest_first=st.booleans(), whole=st.booleans())
    def read(self, first: int, last: int, count: int | None, newest_first: bool, whole: bool) -> None:
        start, end = (ids.FIRST, ids.LAST) if whole else (self.some_id(first), self.some_id(last))
        expected = self.model.between(start, end)
        found, _ = self.topic.read(start, end, count, newest_first=newest_first)
        assert found == (expected[::-1] if newest_first else expected)[:count]

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        state, model = self.topic.state, self.model
        assert state.length == len(model.entries)
        assert (state.last_id, state.added, state.max_deleted) == (model.last, model.added, model.max_deleted)

    # -- the end, and a new beginning --------------------------------------------------------------------------------

    @rule(is_orderly=st.booleans(), checkpoints=st.booleans(), keeps_checkpoint=st.booleans())
    def restart(self, is_orderly: bool, checkpoints: bool, keeps_checkpoint: bool) -> None:
        if checkpoints:
            self.topic.checkpoint()
        self.topic.push()
        self.topic.settle(self.topic.log.position)
        if is_orderly:
            self.topic.close()
        contents: dict[str, Any] = dict(self.disk.contents())
        if not keeps_checkpoint:
            contents.pop(f"{FOLDER}/checkpoint", None)
        self.disk = MemoryFiles(contents)
        self.disk.make_folder(FOLDER)
        self.open()
        assert self.topic.read(ids.FIRST)[0] == self.model.entries

    @rule()
    def rotate(self) -> None:
        self.topic.push()
        self.topic.log.rotate()


@pytest.mark.slow
@pytest.mark.parametrize("policy", [ALWAYS, OS], ids=str)
def test_a_topic_does_what_the_model_does(policy: Any) -> None:
    machine = type("TopicMachine", (TopicMachine,), {"policy": policy})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
