"""A life of a store against a disk that remembers, and the promises every disk after a power cut must keep.

What was told is noted on the disk as it is told: a session that ends may be there from then on, one whose epoch was
told to be durable must be, and one that an open has shown to be void never comes back.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from lamina.clock import ManualClock
from lamina.engines.store import as_of, backup
from lamina.engines.store.api import Store
from lamina.engines.store.channel import Session
from lamina.engines.store.compactions import Compactions
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.options import StoreOptions
from lamina.errors import LaminaError, StorageError, TooOld
from lamina.log.files import Files
from lamina.log.history import History
from lamina.testing import MemoryFiles, PowerLoss
from lamina.testing.powerloss import Model, PowerLossState
from store_model import Fate, Picture, StoreModel, Told, entries_of, picture, seen_in

FOLDER = "store"
BACKUP = "backup"
OPTIONS = StoreOptions(epoch_ms=0, memory_bytes=1200, part_bytes=1024)
KEYS = [b"", b"a", b"a\0", b"b", b"c" * 30, b"d", b"e", b"\xff"]


class Ending(NamedTuple):
    """That session may be there from here on."""

    number: int


class Durable(NamedTuple):
    """Everything of sessions that ended up to this epoch is."""

    epoch: int


class Void(NamedTuple):
    """These sessions never were: the store was opened and said so."""

    numbers: frozenset[int]


class Last(NamedTuple):
    """The store said that this is its last epoch when it was opened or closed: it never falls below."""

    epoch: int


class Reach(NamedTuple):
    """As far back can be read from here on."""

    epoch: int


class BackedUp(NamedTuple):
    """A backup is there."""

    epoch: int


def open_engine(files: Files, clock: ManualClock) -> StoreEngine:
    engine = StoreEngine.open(FOLDER, files=files, clock=clock, options=OPTIONS)

    def nudge() -> None:
        """What the keeper does: an epoch in which a rotation was asked for ends at once."""
        engine.settle()
        if engine._rotations.queue and engine.failure is None and not engine.is_closed:
            engine.switch_epoch()

    engine.nudge = nudge
    return engine


@dataclass
class Story:
    """Told as it is made."""

    disk: PowerLoss
    rng: random.Random
    clock: ManualClock = field(default_factory=ManualClock)
    ended: list[Told] = field(default_factory=list)
    sessions: dict[int, Session] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.open()

    # -- telling -----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        self.engine = open_engine(self.disk, self.clock)
        self.compactions = Compactions(self.engine)
        self.sessions = {}
        engine, voids = self.engine, self.engine.voids
        gone = [
            number
            for number, told in enumerate(self.ended)
            if told.epoch > engine.last_epoch or any(first <= told.epoch <= last for first, last in voids)
        ]
        self.disk.note(Void(frozenset(gone)))
        for number in gone:
            self.ended[number].fate = Fate.REFUSED
        self.disk.note(Durable(engine.last_epoch))
        self.disk.note(Last(engine.last_epoch))
        engine.waiters.add_callback(lambda epoch: self.disk.note(Durable(epoch)))

    def begin(self, channel: int) -> Session:
        self.sessions[channel] = self.engine.channel(channel).begin()
        return self.sessions[channel]

    def end(self, channel: int) -> int:
        session = self.sessions.pop(channel)
        entries = entries_of(session)
        if entries:
            self.ended.append(Told(session.epoch, entries))
            self.disk.note(Ending(len(self.ended) - 1))
        epoch = session.end()
        if self.rng.random() < 0.3:
            self.write_out(channel)
        return epoch

    def write_out(self, channel: int) -> None:
        """As whoever ends a large session does: what has gathered is in the file, and not synced."""
        self.engine.channel(channel).write(self.engine.epoch)
        log = self.engine.channel(channel)._log
        if log is not None:
            log.run_round(may_sync=False)

    def put(self, channel: int = 0, **values: str | None) -> int:
        """A session of its own: None removes a key."""
        session = self.begin(channel)
        for key, value in values.items():
            if value is None:
                session.remove(1, key.encode())
            else:
                session.put(1, key.encode(), value.encode())
        return self.end(channel)

    def switch(self, epoch: int | None = None) -> None:
        self.clock.advance(self.rng.choice([0, 0.001, 0.04]))
        self.engine.switch_epoch(epoch)

    def rotate(self) -> None:
        self.engine.request_rotation()

    def compact(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """``meanwhile`` is done once while it goes on."""
        for channel in [*self.sessions]:
            self.end(channel)
        turns = 0

        def progress(done: int, total: int) -> None:
            nonlocal turns
            turns += 1
            if turns == 2:
                meanwhile()

        self.compactions.compact(progress)

    def clean_up(self, keep_after_epoch: int | None = None) -> None:
        epoch = self.engine.catalog.epoch
        self.disk.note(Reach(epoch if keep_after_epoch is None else min(epoch, keep_after_epoch)))
        self.compactions.clean_up(keep_after_epoch)

    def clean_up_recent(self, keep_s: float) -> None:
        """As a store does by itself: what reads as of the last so many seconds need stays."""
        self.compactions.history = History(keep_s)
        with suppress(TooOld):
            since = self.clock.now_ns() - int(keep_s * 1e9)
            self.disk.note(Reach(as_of.epoch_at(self.engine, since) if keep_s else self.engine.catalog.epoch))
        self.compactions.clean_up(keeps_recent=True)

    def back_up(self) -> None:
        for channel in [*self.sessions]:
            self.end(channel)
        manifest = back_up(self.engine, self.compactions)
        self.disk.note(BackedUp(manifest.epoch))

    def close(self) -> None:
        self.sessions = {}
        self.engine.close()
        self.disk.note(Durable(self.engine.last_epoch))
        self.disk.note(Last(self.engine.last_epoch))

    def restart(self) -> None:
        self.close()
        self.open()

    def kill(self) -> None:
        """What it serves when it is started again is promised, though it may not have been before."""
        self.disk.drop_locks()
        self.open()

    # -- at random -----------------------------------------------------------------------------------------------------

    def go_on(self, steps: int) -> Story:
        for _ in range(steps):
            self.step()
        return self

    def step(self) -> None:
        rng = self.rng
        act: Callable[[], None] = rng.choices(
            [self._write, self.switch, self._jump, self.rotate, self._compact, self._clean, self.kill, self.restart],
            [12, 8, 1, 2, 3, 2, 1, 1],
        )[0]
        act()

    def _write(self) -> None:
        rng = self.rng
        channel = rng.randrange(3)
        session = self.sessions.get(channel) or self.begin(channel)
        for _ in range(rng.choice([1, 2, 6])):
            self._entry(session)
        if rng.random() < 0.7:
            self.end(channel)
        elif rng.random() < 0.2:
            self.sessions.pop(channel).abort()

    def _entry(self, session: Session) -> None:
        rng = self.rng
        storage, key = rng.choice([1, 1, 2]), rng.choice(KEYS)
        act = rng.random()
        if act < 0.6:
            session.put(storage, key, rng.randbytes(rng.choice([3, 3, 40, 700])))
        elif act < 0.85:
            session.remove(storage, key)
        elif act < 0.9:
            session.clear_storage(storage)
        elif act < 0.95:
            session.remove_storage(storage)
        else:
            session.add_storage(storage)

    def _jump(self) -> None:
        self.switch(self.engine.epoch + self.rng.choice([2, 5]))

    def _compact(self) -> None:
        self.compact(self._write if self.rng.random() < 0.5 else lambda: None)

    def _clean(self) -> None:
        self.clean_up(self.rng.choice([None, max(self.engine.last_epoch - self.rng.randrange(8), 0)]))

    # -- checking ------------------------------------------------------------------------------------------------------

    def check(self, *, per_point: int = 4, share: float = 1.0, follows: float = 0.1, since: int = 0) -> int:
        """Look at the disks after each operation behind ``since``. Returns how many they were."""
        count = 0
        for state in self.disk.states(per_point=per_point, seed=self.rng.randrange(1 << 30)):
            if state.point >= since and self.rng.random() < share:
                self.check_disk(state, follows)
                count += 1
        return count

    def promised(self, notes: list[object]) -> Promises:
        return Promises(self.ended, notes)

    def check_disk(self, state: PowerLossState, follows: float) -> None:
        promises = self.promised(state.notes)
        disk = PowerLoss(state.files.contents(), self.disk.model)
        engine = promises.check(disk, state.label)
        if self.rng.random() < 0.1:
            promises.check_as_of(engine, state.label)
        check_backup(state, promises)
        if self.rng.random() < follows:
            self.check_what_follows(disk, engine, promises, state)

    def check_what_follows(
        self, disk: PowerLoss, engine: StoreEngine, promises: Promises, state: PowerLossState
    ) -> None:
        """A second cut, inside recovery or behind it, takes nothing that was promised, nor what was served."""
        rng = self.rng
        opened_at = disk.points
        served = promises.after_open(engine)
        session = engine.channel(rng.randrange(3)).begin()
        session.put(1, b"after it", b"new")
        session.remove(1, b"a")
        more = Told(session.epoch, entries_of(session), Fate.DOUBTFUL)
        session.end()
        engine.switch_epoch()
        durable_at = disk.points
        if rng.random() < 0.3:
            Compactions(engine).compact()
        if rng.random() < 0.3:
            Compactions(engine).clean_up()
        states = disk.states(per_point=2, seed=rng.randrange(1 << 30))
        for second in islice(states, 40):
            label = f"{state.label}; then {second.label}"
            known = promises if second.point < opened_at else served.with_session(more, second.point >= durable_at)
            third = PowerLoss(second.files.contents(), disk.model)
            again = known.check(third, label)
            if rng.random() < 0.05:  # and a third time, right behind the start
                final = known.after_open(again)
                for cut in islice(third.states(per_point=2, at=third.points), 3):
                    final.check(PowerLoss(cut.files.contents()), f"{label}; then {cut.label}")


class Promises:
    """What holds of every disk on which these facts were noted."""

    def __init__(self, ended: list[Told], notes: list[object]) -> None:
        self.last = max((note.epoch for note in notes if isinstance(note, Last)), default=0)
        self.reach = max((note.epoch for note in notes if isinstance(note, Reach)), default=0)
        self.backed_up = [note.epoch for note in notes if isinstance(note, BackedUp)]
        fates: dict[int, Fate] = {}
        for note in notes:
            if isinstance(note, Ending):
                fates[note.number] = Fate.DOUBTFUL
            elif isinstance(note, Void):
                fates.update(dict.fromkeys(note.numbers, Fate.REFUSED))
            elif isinstance(note, Durable):
                for number, fate in fates.items():
                    if fate is Fate.DOUBTFUL and ended[number].epoch <= note.epoch:
                        fates[number] = Fate.DURABLE
        self.sessions = [Told(ended[number].epoch, ended[number].entries, fate) for number, fate in fates.items()]

    def check(self, files: MemoryFiles, label: str) -> StoreEngine:
        """Open it, and see that every promise is kept."""
        try:
            engine = open_engine(files, ManualClock())
        except LaminaError as error:
            raise AssertionError(f"{label}: refused a disk that a crash left: {error}") from error
        try:
            assert engine.last_epoch >= self.last, f"the last epoch fell from {self.last} to {engine.last_epoch}"
            model = self.settled(engine)
            snapshot = engine.snapshot()
            found = seen_in(snapshot)
            assert found == model.now(), "something is lost, back, or there by halves"
            for (storage, key), value in found[0]:
                entry = engine.view.get(storage, key)
                assert entry is not None and entry.value == value, "get and scan differ"
        except (AssertionError, LaminaError) as error:
            raise AssertionError(f"{label}: {error}") from error
        return engine

    def settled(self, engine: StoreEngine) -> StoreModel:
        model = StoreModel([Told(each.epoch, each.entries, each.fate) for each in self.sessions])
        model.settle(engine.voids, engine.last_epoch)
        return model

    def after_open(self, engine: StoreEngine) -> Promises:
        """What the store shows is promised, and what it does not show will never be there."""
        later = Promises([], [Last(engine.last_epoch)])
        later.sessions = self.settled(engine).sessions
        later.backed_up, later.reach = self.backed_up, engine.catalog.epoch
        return later

    def with_session(self, told: Told, is_durable: bool) -> Promises:
        later = Promises([], [Last(self.last)])
        fate = Fate.DURABLE if is_durable else Fate.DOUBTFUL
        later.sessions = [*self.sessions, Told(told.epoch, told.entries, fate)]
        return later

    def check_as_of(self, engine: StoreEngine, label: str) -> None:
        model = self.settled(engine)
        epochs = {each.epoch for each in self.sessions if each.epoch <= engine.last_epoch} | {engine.last_epoch}
        for epoch in sorted(epochs):
            try:
                found = seen_in(as_of.as_of_epoch(engine, epoch))
            except TooOld:
                assert epoch < self.reach, f"{label}: cannot be read as of epoch {epoch}, with reach {self.reach}"
            except StorageError as error:
                raise AssertionError(f"{label}: as of epoch {epoch}: {error}") from error
            else:
                assert found == model.at(epoch), f"{label}: wrong as of epoch {epoch}"


def back_up(engine: StoreEngine, compactions: Compactions) -> backup.Manifest:
    """As ``Store.back_up`` does it, without its threads."""
    store = Store.__new__(Store)
    store.engine, store.compactions = engine, compactions
    return store.back_up(BACKUP)


def check_backup(state: PowerLossState, promises: Promises) -> None:
    """A backup that was told to be there is, whole; one that is whole holds what the store did."""
    disk = MemoryFiles(state.files.contents())
    disk.make_folder(BACKUP)
    problems = backup.check_backup(disk, BACKUP)
    if problems:
        assert not promises.backed_up, f"{state.label}: a backup is lost: {problems}"
        return
    restored = MemoryFiles(disk.contents())
    manifest = backup.restore(restored, BACKUP, "restored")
    engine = StoreEngine.open("restored", files=restored, clock=ManualClock(), options=OPTIONS)
    expected: Picture = picture(
        each for each in promises.sessions if each.fate is not Fate.REFUSED and each.epoch <= manifest.epoch
    )
    assert seen_in(engine.snapshot()) == expected, f"{state.label}: the backup holds something else"
    assert engine.last_epoch >= manifest.epoch
    engine.close()


def story(seed: object, model: Model = "strict") -> Story:
    return Story(PowerLoss(model=model), random.Random(str(seed)))
