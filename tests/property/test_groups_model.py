"""Groups of a topic against the plainest model of them, dicts: random commands, restarts, compactions, a full disk.

Each command is settled before the next, so one that the disk refuses was not done: the model forgets it, too.
How much a group has read is not in the model (a real Redis tells that); it has to be the same after a restart.
"""

from __future__ import annotations

import copy
import errno
import os
from bisect import bisect_right
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from lamina.engines.topics import group_snapshot, ids
from lamina.engines.topics import group_views as views
from lamina.engines.topics.group_claims import ClaimOptions
from lamina.engines.topics.groups import Shown
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.topic import Topic
from lamina.errors import DiskFull, GroupExists, NoGroup
from lamina.log import ALWAYS, OS, LogOptions
from lamina.testing import Fault, FaultyFiles, ManualClock, MemoryFiles

EXAMPLES = 120 * int(os.environ.get("LAMINA_CAMPAIGN", "1"))
FOLDER = "topic"
NAMES = (b"g", b"h")
GROUP = st.sampled_from(NAMES)
CONSUMER = st.sampled_from([b"ann", b"bob", b"cy"])
COUNT = st.none() | st.integers(1, 5)
WHICH = st.integers(0, 60)
IDLE = st.sampled_from([0, 0, 1, 1000])


class NoRoom(Fault):
    """Not for records, be it in a new file; indexes may be written."""

    def strikes(self, operation: str, path: str) -> bool:
        return path.endswith(".dat") and super().strikes(operation, path)


class ModelGroup:
    def __init__(self, last: EntryId, *, is_ahead: bool) -> None:
        self.last, self.is_ahead = last, is_ahead
        self.consumers: dict[bytes, int] = {}
        """When each was seen."""
        self.pending: dict[EntryId, tuple[bytes, int, int]] = {}
        """Consumer, time, deliveries."""


class Model:
    def __init__(self) -> None:
        self.entries: list[EntryId] = []
        self.newest = ids.FIRST
        self.groups: dict[bytes, ModelGroup] = {}

    def cut(self) -> None:
        """The topic lost what came behind its newest entry."""
        for group in self.groups.values():
            if not group.is_ahead:
                group.last = min(group.last, self.newest)
            group.pending = {id: facts for id, facts in group.pending.items() if id <= self.newest}

    def picture(self) -> object:
        return {
            name: (group.last, group.consumers, group.pending)
            for name, group in self.groups.items()  # as views.* show it
        }


class GroupsMachine(RuleBasedStateMachine):
    policy = OS

    def __init__(self) -> None:
        super().__init__()
        self.disk, self.clock, self.model = MemoryFiles(), ManualClock(), Model()
        self.files = FaultyFiles(self.disk)
        self.open()

    def open(self) -> None:
        self.topic = Topic.open(
            FOLDER,
            files=self.files,
            clock=self.clock,
            options=LogOptions(sync=self.policy, segment_bytes=300),
            threaded=False,
            tail_bytes=200,
        )
        self.groups = self.topic.groups

    def do(self, change: Callable[[Model], Any], command: Callable[[], Any]) -> Any:
        """Run a command and settle it; what it returns, None if it was refused. Then the model does not change."""
        planned = copy.deepcopy(self.model)
        expected = change(planned)
        try:
            answer = command()
            self.settle(answer)
        except DiskFull:
            assert any(fault.struck for fault in self.files.faults)
            return None
        except NoGroup:
            assert expected is NoGroup
            return None
        except GroupExists:
            assert expected is GroupExists
            return None
        self.model = planned
        found = [id for id, _ in answer.entries] if isinstance(answer, Shown) else answer
        found = found[0] if isinstance(found, tuple) else found
        assert expected is None or found == expected
        return answer

    def settle(self, answer: Any) -> None:
        if isinstance(answer, Shown):
            self.topic.settle(answer.topic_position)
            self.groups.settle(answer.position)
        else:
            self.groups.settle(answer[1] if isinstance(answer, tuple) else answer)

    def some_id(self, which: int) -> EntryId:
        """Of an entry, mostly; else beside one."""
        near = self.model.entries[which // 3 % len(self.model.entries)] if self.model.entries else ids.make(5, 5)
        return EntryId(near + (which % 3 == 2))

    @property
    def now(self) -> int:
        return self.clock.now_ns() // 1_000_000

    # -- the topic ---------------------------------------------------------------------------------------------------

    @rule(many=st.integers(1, 6), ms=st.sampled_from([0, 0, 1, 999]))
    def add(self, many: int, ms: int) -> None:
        self.clock.advance(ms / 1000)
        try:
            for _ in range(many):
                id, position = self.topic.add([b"f", b"%d" % many])
                self.topic.settle(position)
                self.model.entries.append(id)
                self.model.newest = id
        except DiskFull:
            assert any(fault.struck for fault in self.files.faults)

    @rule(which=WHICH, trims=st.booleans())
    def lose(self, which: int, trims: bool) -> None:
        """An entry is deleted, or all before it are trimmed."""
        id = self.some_id(which)
        try:
            self.topic.settle((self.topic.trim_to(id) if trims else self.topic.delete([id]))[1])
        except DiskFull:
            return
        self.model.entries = [one for one in self.model.entries if (one >= id if trims else one != id)]

    @rule(name=GROUP, consumer=CONSUMER, many=st.integers(1, 3))
    def entries_are_refused_after_their_delivery(self, name: bytes, consumer: bytes, many: int) -> None:
        if self.files.faults or name not in self.model.groups:
            return
        self.add(1, 0)  # one that gets through: until then each is written at once
        positions = [self.topic.add([b"f", b"v"])[1] for _ in range(many)]
        shown = self.groups.deliver(name, consumer)
        self.groups.settle(shown.position)
        self.files.faults.append(NoRoom("append", error=errno.ENOSPC, only=f"{FOLDER}/2", times=2))
        with pytest.raises(DiskFull):
            self.topic.settle(positions[-1])
        self.files.heal()
        if shown.entries:
            self.delivered(self.model.groups[name], consumer, [id for id, _ in shown.entries])
        self.model.cut()

    def delivered(self, group: ModelGroup, consumer: bytes, found: list[EntryId], *, noack: bool = False) -> None:
        group.last, group.is_ahead = found[-1], False
        group.consumers[consumer] = self.now
        group.pending.update({id: (consumer, self.now, 1) for id in found if not noack})

    # -- groups and consumers ----------------------------------------------------------------------------------------

    @rule(name=GROUP, which=st.none() | WHICH, sets=st.booleans())
    def create_or_set_id(self, name: bytes, which: int | None, sets: bool) -> None:
        last = None if which is None else self.some_id(which)

        def change(model: Model) -> Any:
            placed = model.newest if last is None else last
            if sets and name not in model.groups:
                return NoGroup
            if not sets and name in model.groups:
                return GroupExists
            if not sets:
                model.groups[name] = ModelGroup(placed, is_ahead=False)
            model.groups[name].last, model.groups[name].is_ahead = placed, placed > model.newest
            return None

        self.do(change, lambda: (self.groups.set_id if sets else self.groups.create)(name, last))

    @rule(name=GROUP)
    def destroy(self, name: bytes) -> None:
        self.do(lambda model: model.groups.pop(name, None) is not None, lambda: self.groups.destroy(name))

    @rule(name=GROUP, consumer=CONSUMER)
    def create_consumer(self, name: bytes, consumer: bytes) -> None:
        def change(model: Model) -> Any:
            if name not in model.groups:
                return NoGroup
            is_new = consumer not in model.groups[name].consumers
            model.groups[name].consumers.setdefault(consumer, self.now)
            return is_new

        self.do(change, lambda: self.groups.create_consumer(name, consumer))

    @rule(name=GROUP, consumer=CONSUMER)
    def delete_consumer(self, name: bytes, consumer: bytes) -> None:
        def change(model: Model) -> Any:
            if name not in model.groups:
                return NoGroup
            group = model.groups[name]
            group.consumers.pop(consumer, None)
            before = len(group.pending)
            group.pending = {id: facts for id, facts in group.pending.items() if facts[0] != consumer}
            return before - len(group.pending)

        self.do(change, lambda: self.groups.delete_consumer(name, consumer))

    # -- reading and acknowledging -----------------------------------------------------------------------------------

    @rule(name=GROUP, consumer=CONSUMER, count=COUNT, noack=st.booleans())
    def deliver(self, name: bytes, consumer: bytes, count: int | None, noack: bool) -> None:
        def change(model: Model) -> Any:
            if name not in model.groups:
                return NoGroup
            group = model.groups[name]
            found = model.entries[bisect_right(model.entries, group.last) :][:count]
            if found:
                self.delivered(group, consumer, found, noack=noack)
            return found

        self.do(change, lambda: self.groups.deliver(name, consumer, count, noack=noack))

    @rule(name=GROUP, consumer=CONSUMER, which=WHICH, count=COUNT)
    def history(self, name: bytes, consumer: bytes, which: int, count: int | None) -> None:
        after = self.some_id(which) if which % 2 else ids.FIRST

        def change(model: Model) -> Any:
            if name not in model.groups:
                return NoGroup
            group = model.groups[name]
            mine = sorted(id for id, facts in group.pending.items() if facts[0] == consumer and id > after)[:count]
            for id in mine:
                if id in model.entries:
                    group.pending[id] = (consumer, self.now, group.pending[id][2] + 1)
            group.consumers[consumer] = self.now
            return mine

        self.do(change, lambda: self.groups.history(name, consumer, after, count))

    @rule(name=GROUP, several=st.lists(WHICH, min_size=1, max_size=5))
    def ack(self, name: bytes, several: list[int]) -> None:
        wanted = [self.some_id(which) for which in several]

        def change(model: Model) -> Any:
            if name not in model.groups:
                return NoGroup
            there = set(wanted) & model.groups[name].pending.keys()
            for id in there:
                del model.groups[name].pending[id]
            return len(there)

        self.do(change, lambda: self.groups.ack(name, wanted))

    # -- taking over -------------------------------------------------------------------------------------------------

    @rule(
        name=GROUP, consumer=CONSUMER, several=st.lists(WHICH, min_size=1, max_size=4), idle=IDLE, force=st.booleans()
    )
    def claim(self, name: bytes, consumer: bytes, several: list[int], idle: int, force: bool) -> None:
        wanted = [self.some_id(which) for which in several]
        options = ClaimOptions(min_idle=idle, force=force)
        self.claims(name, consumer, wanted, idle, lambda: self.groups.claim(name, consumer, wanted, options), force)

    @rule(name=GROUP, consumer=CONSUMER, which=WHICH, count=st.integers(1, 4))
    def autoclaim(self, name: bytes, consumer: bytes, which: int, count: int) -> None:
        start = self.some_id(which)
        pending = self.model.groups[name].pending if name in self.model.groups else {}
        wanted = sorted(id for id in pending if id >= start)[:count]
        self.claims(name, consumer, wanted, 0, lambda: self.groups.autoclaim(name, consumer, 0, start, count))

    def claims(
        self,
        name: bytes,
        consumer: bytes,
        wanted: list[EntryId],
        idle: int,
        command: Callable[[], Shown],
        force: bool = False,
    ) -> None:
        def drop_gone(model: Model) -> None:
            for id in wanted:
                if id not in model.entries:
                    model.groups[name].pending.pop(id, None)

        def change(model: Model) -> Any:
            if name not in model.groups:
                return NoGroup
            drop_gone(model)
            pending, taken = model.groups[name].pending, []
            for id in wanted:
                if id in pending and idle and self.now - pending[id][1] < idle:
                    continue
                if id in pending or (force and id in model.entries):
                    pending[id] = (consumer, self.now, (pending[id][2] if id in pending else 1) + 1)
                    taken.append(id)
            if taken:
                model.groups[name].consumers[consumer] = self.now
            return taken

        if self.do(change, command) is None and name in self.model.groups:
            # Refused; but if what is gone was a record of its own, that may have come through before.
            other = copy.deepcopy(self.model)
            drop_gone(other)
            if self.picture() == other.picture():
                self.model = other

    # -- what is seen ------------------------------------------------------------------------------------------------

    def picture(self) -> object:
        groups = self.groups
        return {
            stats.name: (
                stats.last_id,
                {one.name: one.seen for one in views.consumers(groups, stats.name)},
                {one.id: (one.consumer, one.time, one.deliveries) for one in views.pending(groups, stats.name)},
            )
            for stats in views.stats(groups)
        }

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        assert self.picture() == self.model.picture()

    @invariant()
    def every_list_is_in_order_and_complete(self) -> None:
        for name, group in self.model.groups.items():
            assert [one.id for one in views.pending(self.groups, name)] == sorted(group.pending)
            found = views.summary(self.groups, name)
            assert found[:3] == (len(group.pending), min(group.pending, default=None), max(group.pending, default=None))
            for consumer in group.consumers:
                mine = sorted(id for id, facts in group.pending.items() if facts[0] == consumer)
                assert [one.id for one in views.pending(self.groups, name, consumer=consumer)] == mine
                assert (consumer, len(mine)) in found.consumers or not mine
            first = min([EntryId(group.last + 1), *group.pending])
            assert self.groups.held_back()[name] == first

    # -- the disk, the end, and a new beginning ----------------------------------------------------------------------

    @rule(only=st.sampled_from(["groups", f"{FOLDER}/2", ""]), nth=st.integers(1, 3), times=st.integers(1, 4))
    def the_disk_is_full(self, only: str, nth: int, times: int) -> None:
        self.files.fail("append", error=errno.ENOSPC, only=only, nth=nth, times=times)

    @rule()
    def there_is_room_again(self) -> None:
        self.files.heal()

    @rule(few=st.sampled_from([-1, 2000]))
    def compact(self, few: int) -> None:
        """From its files, or from memory."""
        try:
            with mock.patch.object(group_snapshot, "_FEW", few):
                self.groups.compact()
        except DiskFull:
            assert any(fault.struck for fault in self.files.faults)

    @rule(is_orderly=st.booleans())
    def restart(self, is_orderly: bool) -> None:
        self.files.heal()
        before = views.stats(self.groups)
        if is_orderly:
            self.topic.close()
        self.disk = MemoryFiles(self.disk.contents())
        self.files = FaultyFiles(self.disk)
        self.open()
        assert views.stats(self.groups) == before


@pytest.mark.slow
@pytest.mark.parametrize("policy", [ALWAYS, OS], ids=str)
def test_groups_do_what_the_model_does(policy: Any) -> None:
    machine = type("GroupsMachine", (GroupsMachine,), {"policy": policy})
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
