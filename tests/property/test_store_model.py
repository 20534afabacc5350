"""A store against the plainest model of one: sessions on many channels, epochs, rotations, compactions, clean-ups,
crashes and a disk that is full now and then.

Memory holds next to nothing and parts are small, so that most of what is read comes from spilled runs and parts. The
disk remembers (PowerLoss): what a crash leaves is any disk that a kill or a power cut may leave at that moment.
"""

from __future__ import annotations

import errno
import os
from itertools import islice
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from lamina.engines.elsewhere import Stopper
from lamina.engines.store import as_of
from lamina.engines.store.channel import Session
from lamina.engines.store.compactions import Compactions
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.options import StoreOptions
from lamina.engines.store.rotation import RotationRequest
from lamina.engines.store.view import Layer
from lamina.errors import BadEntry, LaminaError, StorageError, StoreError, TooOld
from lamina.log.files.faulty import FaultyFiles
from lamina.testing import ManualClock, PowerLoss
from store_model import Fate, StoreModel, entries_of, seen_in

PHASES = [phase for phase in Phase if os.environ.get("LAMINA_SHRINK", "1") != "0" or phase is not Phase.shrink]
EXAMPLES = 100 * int(os.environ.get("LAMINA_CAMPAIGN", "1"))
FOLDER = "store"
CHANNELS = st.integers(0, 2)
STORAGES = st.sampled_from([1, 2, (1 << 64) - 1])
KEYS = st.sampled_from([b"", b"a", b"a\0", b"b", b"c" * 40, b"\xff"])
VALUES = st.binary(max_size=8) | st.sampled_from([b"u" * 600, b"v" * 700])
WHAT = st.sampled_from(["put", "put", "put", "remove", "clear", "add", "drop"])

OPERATIONS = st.sampled_from(["append", "create", "sync", "sync_folder", "rename", "truncate", "remove"])
FAULTS = st.none() | st.tuples(OPERATIONS, st.integers(1, 8))
Given = tuple[str, int, bytes, bytes, tuple[int, int] | None]
# Relative to the present epoch: None takes the default, a few are behind, a few ahead.
VERSION = st.none() | st.tuples(st.integers(-4, 4), st.integers(0, 50))

ENTRY = st.tuples(WHAT, STORAGES, KEYS, VALUES, VERSION)


class StoreMachine(RuleBasedStateMachine):
    options = StoreOptions(epoch_ms=0, memory_bytes=1500, part_bytes=1024)
    is_bad = False
    """The disk is."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.model = StoreModel()
        self.disk = PowerLoss()
        self.reach = 0
        self.open()

    def open(self, fault: tuple[str, int] | None = None) -> None:
        """``fault``: the disk refuses one thing on the way, and the second attempt succeeds."""
        self.files = FaultyFiles(self.disk)
        if fault is not None:
            self.files.fail(fault[0], nth=fault[1], error=errno.EIO if "sync" in fault[0] else errno.ENOSPC)
        try:
            self.engine = StoreEngine.open(FOLDER, options=self.options, files=self.files, clock=self.clock)
        except StorageError:
            assert self.files.faults
            self.files.heal()
            self.engine = StoreEngine.open(FOLDER, options=self.options, files=self.files, clock=self.clock)
        self.files.heal()
        self.compactions = Compactions(self.engine)
        self.sessions: dict[int, Session] = {}
        self.rotations: list[RotationRequest] = []
        self.compaction: tuple[RotationRequest, list[Layer]] | None = None
        self.opened_in = self.engine.epoch
        self.was_bad = False
        self.model.settle(self.engine.voids, self.engine.last_epoch)
        self.model.told = self.engine.last_epoch
        self.model.watch(self.engine)

    # -- sessions ------------------------------------------------------------------------------------------------------

    @rule(channel=CHANNELS, entries=st.lists(ENTRY, max_size=5), then=st.sampled_from(["end", "end", "leave", "abort"]))
    def session(self, channel: int, entries: list[Given], then: str) -> None:
        """Begin one, or go on with the one that is open."""
        if self.engine.failure is not None:
            return
        if channel in self.sessions:
            with pytest.raises(BadEntry, match="session already"):
                self.engine.channel(channel).begin()
        else:
            self.sessions[channel] = self.engine.channel(channel).begin()
            assert self.sessions[channel].epoch == self.engine.epoch
        for entry in entries:
            self.give(self.sessions[channel], *entry)
        if then == "end":
            self.end_session(self.sessions.pop(channel))
        elif then == "abort":
            self.sessions.pop(channel).abort()

    @rule(many=st.lists(st.tuples(CHANNELS, st.lists(ENTRY, min_size=1, max_size=5), st.booleans()), max_size=6))
    def sessions_and_switches(self, many: list[tuple[int, list[Given], bool]]) -> None:
        for channel, entries, switches in many:
            self.session(channel, entries, "end")
            if switches:
                self.switch(None, 0)

    def give(
        self, session: Session, what: str, storage: int, key: bytes, value: bytes, version: tuple[int, int] | None
    ) -> None:
        chosen = None if version is None else (max(self.engine.epoch + version[0], 0), version[1])
        if chosen is not None and self.clashes(storage, chosen):
            return  # of equal versions the later one counts: which that is, is not said over several channels
        before = len(entries_of(session))
        try:
            if what == "put":
                session.put(storage, key, value, version=chosen)
            elif what == "remove":
                session.remove(storage, key, version=chosen)
            elif what == "clear":
                session.clear_storage(storage, version=chosen)
            elif what == "add":
                session.add_storage(storage, version=chosen)
            else:
                session.remove_storage(storage, version=chosen)
        except BadEntry as error:
            assert chosen is not None and chosen[0] <= self.engine.floor, error
            assert len(entries_of(session)) == before

    def clashes(self, storage: int, version: tuple[int, int]) -> bool:
        known = [entry for each in self.model.sessions for entry in each.entries]
        known += [entry for each in self.sessions.values() for entry in entries_of(each)]
        return any(entry.storage == storage and entry.version == version for entry in known)

    @precondition(lambda self: self.sessions)
    @rule(which=st.integers(0, 5))
    def end(self, which: int) -> None:
        channel = list(self.sessions)[which % len(self.sessions)]
        self.end_session(self.sessions.pop(channel))

    def end_session(self, session: Session) -> None:
        told = self.model.ended(session)
        if told is not None:
            # It may become durable within the call: whoever waits is there before.
            self.model.sessions.append(told)
        try:
            session.end()
        except StorageError:
            if told is not None:
                self.model.sessions.remove(told)  # nothing of it is anywhere
            return
        if told is not None:
            self.engine.waiters.add(told.epoch, told.tell)

    # -- epochs, rotations, compactions ----------------------------------------------------------------------------

    @rule(step=st.sampled_from([None, None, None, 1, 2, 1000]), ms=st.sampled_from([0, 0, 1, 40]))
    def switch(self, step: int | None, ms: int) -> None:
        self.clock.advance(ms / 1000)
        if self.engine.failure is not None:
            with pytest.raises(LaminaError):
                self.engine.switch_epoch()
            return
        before = self.engine.epoch
        after = self.engine.switch_epoch(None if step is None else before + step)
        assert after == self.engine.epoch == before + (step or 1)
        if not self.sessions and self.engine.failure is None:
            assert self.engine.last_epoch == after - 1, "nothing is in the way"

    @rule()
    def rotate(self) -> None:
        if self.engine.failure is None:
            self.rotations.append(self.engine.request_rotation())

    @precondition(lambda self: self.compaction is None and self.engine.failure is None)
    @rule()
    def begin_compaction(self) -> None:
        """As ``Compactions.compact`` does, which would wait here for somebody to switch the epoch."""
        layers: list[Layer] = []
        engine = self.engine
        request = engine.request_rotation(lambda: layers.extend(engine.view.freeze()))
        self.compaction = request, layers

    @precondition(lambda self: self.compaction is None and self.engine.failure is None)
    @rule(writes=st.booleans(), channel=CHANNELS, entries=st.lists(ENTRY, min_size=1, max_size=5))
    def compact(self, writes: bool, channel: int, entries: list[Given]) -> None:
        """From beginning to end, if no session is in the way; and something is there to compact."""
        self.session(channel, entries, "end")
        if self.engine.failure is None:
            self.begin_compaction()
        self.switch(None, 1)
        if self.compaction is not None and self.compaction[0].is_answered:
            self.finish_compaction(writes)

    @precondition(lambda self: self.compaction is not None and self.compaction[0].is_answered)
    @rule(writes=st.booleans())
    def finish_compaction(self, writes: bool) -> None:
        assert self.compaction is not None
        (request, layers), self.compaction = self.compaction, None
        turns = 0

        def progress(done: int, total: int) -> None:
            """Others go on meanwhile."""
            nonlocal turns
            turns += 1
            if writes and turns in (1, 4) and self.engine.failure is None and 3 not in self.sessions:
                session = self.engine.channel(3).begin()
                self.give(session, "put" if turns == 1 else "remove", 1, b"a", b"meanwhile", None)
                self.end_session(session)
                self.engine.switch_epoch()

        generation = self.engine.catalog.generation
        try:
            report = self.compactions._compact(request.result(), layers, progress, Stopper(), 0.0)
        except (StorageError, StoreError):
            return
        assert (self.engine.catalog.generation > generation) == bool(report.inputs)

    @rule(keep=st.none() | st.integers(0, 30))
    def clean_up(self, keep: int | None) -> None:
        if self.compaction is not None and self.compaction[0].is_answered:
            return  # one at a time
        after = None if keep is None else max(self.engine.last_epoch - keep, 0)
        epoch = self.engine.catalog.epoch
        self.reach = max(self.reach, epoch if after is None else min(after, epoch))
        try:
            self.compactions.clean_up(after)
        except StorageError:
            return

    # -- reading -----------------------------------------------------------------------------------------------------

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        expected = self.model.now()
        snapshot = self.engine.snapshot()
        assert seen_in(snapshot) == expected
        for (storage, key), value in expected[0]:
            found = self.engine.view.get(storage, key)
            assert found is not None and found.value == value
            assert snapshot.entry(storage, key) == found

    @rule(storage=STORAGES, key=KEYS, end=KEYS)
    def read(self, storage: int, key: bytes, end: bytes) -> None:
        expected = dict(self.model.now()[0])
        found = self.engine.view.get(storage, key)
        assert (None if found is None else found.value) == expected.get((storage, key))
        between = [place for place in sorted(expected) if place[0] == storage and key <= place[1] < end]
        assert [(each.storage, each.key) for each in self.engine.snapshot().scan(storage, key, end)] == between

    @rule(back=st.integers(0, 12))
    def read_as_of(self, back: int) -> None:
        epoch = self.engine.last_epoch - back
        if epoch < 0:
            return
        try:
            assert seen_in(as_of.as_of_epoch(self.engine, epoch)) == self.model.at(epoch)
        except TooOld:
            assert epoch < self.reach, f"epoch {epoch} should be within reach, which is {self.reach}"
        except StorageError:
            assert self.files.faults, "nothing was wrong with the disk"

    @rule(which=st.integers(0, 100))
    def read_as_of_any(self, which: int) -> None:
        epochs = sorted({each.epoch for each in self.model.sessions if each.fate is Fate.DURABLE})
        if epochs:
            self.read_as_of(self.engine.last_epoch - epochs[which % len(epochs)])

    # -- a bad disk ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.is_bad and not self.files.faults)
    @rule(nth=st.integers(1, 4), times=st.integers(1, 3), operation=st.sampled_from(["append", "create"]))
    def disk_is_full(self, nth: int, times: int, operation: str) -> None:
        self.was_bad = True
        self.files.fail(operation, nth=nth, times=times, error=errno.ENOSPC)

    @precondition(lambda self: self.is_bad and not self.files.faults)
    @rule(nth=st.integers(1, 4), operation=st.sampled_from(["sync", "sync_folder", "rename"]))
    def disk_fails(self, nth: int, operation: str) -> None:
        self.was_bad = True
        self.files.fail(operation, nth=nth)

    @precondition(lambda self: self.files.faults)
    @rule()
    def disk_is_well(self) -> None:
        self.files.heal()

    # -- the end, and a new beginning ----------------------------------------------------------------------------------

    @precondition(lambda self: self.is_time())
    @rule(is_kill=st.booleans(), which=st.integers(0, 30), again=st.booleans(), fault=FAULTS)
    def crash(self, is_kill: bool, which: int, again: bool, fault: tuple[str, int] | None) -> None:
        if self.engine.failure is not None:
            for each in self.model.sessions:
                if each.fate is Fate.PENDING:
                    each.fate = Fate.DOUBTFUL
        self.take_disk(is_kill, which)
        self.open(fault)
        if again:  # what was read once stays, whatever comes then
            expected = self.model.now()
            self.take_disk(False, which)
            self.open()
            assert seen_in(self.engine.snapshot()) == expected

    def is_time(self) -> bool:
        """Lives are not too short: the store has to get somewhere."""
        return self.engine.failure is not None or self.engine.epoch > self.opened_in + 3

    def take_disk(self, is_kill: bool, which: int) -> None:
        states = self.disk.states(per_point=8, seed=which, at=self.disk.points)
        chosen = next(states) if is_kill else list(islice(states, 1 + which))[-1]
        self.disk = PowerLoss(chosen.files.contents(), self.disk.model)

    @precondition(lambda self: self.is_time())
    @rule()
    def restart(self) -> None:
        self.stop_and_open()

    def stop_and_open(self) -> None:
        told, had_failed = self.engine.last_epoch, self.engine.failure is not None
        try:
            self.engine.close()
        except LaminaError:
            assert self.was_bad or had_failed
            had_failed = True
        for each in self.model.sessions:
            if each.fate is Fate.PENDING and had_failed:
                each.fate = Fate.DOUBTFUL
        for request in (*self.rotations, *([self.compaction[0]] if self.compaction else [])):
            assert request.is_answered, "a request is left waiting"
        self.disk = PowerLoss(self.disk.contents())
        self.open()
        if not had_failed:
            assert self.engine.last_epoch >= told

    def teardown(self) -> None:
        self.files.heal()
        self.stop_and_open()


@pytest.mark.slow
@pytest.mark.parametrize("is_bad", [False, True], ids=["good disk", "bad disk"])
@pytest.mark.parametrize("memory_bytes", [1500, 1 << 20])
def test_a_store_does_what_the_model_does(memory_bytes: int, is_bad: bool) -> None:
    options = StoreOptions(epoch_ms=0, memory_bytes=memory_bytes, part_bytes=1024)
    machine: Any = type("StoreMachine", (StoreMachine,), {"options": options, "is_bad": is_bad})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=50,
            phases=PHASES,
            report_multiple_bugs=False,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


# -- what luck seldom finds ------------------------------------------------------------------------------------------


def written(
    machine: StoreMachine, channel: int = 0, version: tuple[int, int] | None = None, **values: str | None
) -> None:
    """A session of its own; None removes a key."""
    session = machine.engine.channel(channel).begin()
    for key, value in values.items():
        if value is None:
            session.remove(1, key.encode(), version=version)
        else:
            session.put(1, key.encode(), value.encode(), version=version)
    machine.end_session(session)


def check(machine: StoreMachine) -> None:
    """Now, and after the process was killed."""
    machine.all_is_as_the_model_says()
    machine.disk.drop_locks()
    machine.open()
    machine.all_is_as_the_model_says()


def test_what_one_channel_wrote_of_an_epoch_that_another_could_not_write_never_comes_back() -> None:
    machine = StoreMachine()
    written(machine, 0, there="1")
    written(machine, 1, there="1")
    machine.engine.switch_epoch()
    written(machine, 0, half="2")
    written(machine, 1, other_half="2")
    machine.files.fail("append", error=errno.ENOSPC, only="pwal_0001")
    machine.engine.switch_epoch()
    assert [told.fate for told in machine.model.sessions[2:]] == [Fate.REFUSED] * 2
    machine.files.heal()
    written(machine, 0, later="3")
    machine.engine.switch_epoch()
    check(machine)


def test_a_session_of_the_old_epoch_is_in_the_file_that_is_rotated() -> None:
    machine = StoreMachine()
    written(machine, 0, first="1")
    late = machine.engine.channel(0).begin()
    late.put(1, b"late", b"1")
    machine.begin_compaction()
    machine.engine.switch_epoch()
    written(machine, 1, next="2")
    machine.end_session(late)
    machine.finish_compaction(writes=False)
    check(machine)


def test_a_session_behind_the_boundary_is_in_the_next_file_also_if_nobody_has_renamed_the_old_one() -> None:
    machine = StoreMachine()
    written(machine, 0, first="1")
    machine.begin_compaction()
    engine = machine.engine
    engine.nudge = lambda: None  # whoever should rename it is late
    engine.switch_epoch()
    written(machine, 0, behind="2")
    engine.nudge = engine.settle
    engine.settle()
    machine.finish_compaction(writes=False)
    engine.switch_epoch()
    check(machine)


def test_a_remove_that_hides_what_is_still_to_come_is_kept() -> None:
    machine = StoreMachine()
    written(machine, a="1", b="1")
    machine.compact(False, 1, [("put", 1, b"x", b"1", None)])
    written(machine, a=None, version=(100, 0))
    machine.compact(False, 1, [("put", 1, b"x", b"2", None)])
    written(machine, a="older", version=(50, 0))
    machine.engine.switch_epoch()
    assert machine.engine.view.get(1, b"a") is None
    check(machine)


def test_a_version_that_is_older_than_what_was_forgotten_is_refused() -> None:
    machine = StoreMachine()
    written(machine, a="1")
    written(machine, a=None)
    machine.compact(False, 1, [("put", 1, b"x", b"1", None)])
    for _ in range(2):
        with machine.engine.channel(0).begin() as session, pytest.raises(BadEntry, match="too old"):
            session.put(1, b"a", b"back", version=(1, 0))
        check(machine)


def test_entries_that_were_spilled_while_a_compaction_went_on_go_with_it() -> None:
    """Or what it removed would be seen again in them."""
    machine = StoreMachine()
    written(machine, a="v" * 1000)
    machine.engine.switch_epoch()
    machine.engine.snapshot()  # what comes now is in another table
    written(machine, a=None)
    machine.begin_compaction()
    machine.engine.switch_epoch()
    written(machine, c="w" * 1000)
    machine.engine.switch_epoch()
    assert machine.engine.runs, "nothing was spilled"
    machine.finish_compaction(writes=False)
    assert machine.engine.view.get(1, b"a") is None
    check(machine)
