"""No power cut breaks a promise of the whole engine, whichever store has the messages.

Commands are given to an engine whose disk remembers every operation: queues are made, used, dumped, expired and
deleted. Then each disk that a cut could have left is opened: every queue must be as it was at some moment, none before
the last that was promised for it; a deleted one has nothing left on disk, and one that is there has all its messages.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from lamina.clock import ManualClock
from lamina.engines.queues import ids
from lamina.engines.queues.engine import QueueEngine
from lamina.engines.queues.journal.store import JournalStore
from lamina.engines.queues.message import Queue
from lamina.engines.queues.opening import JOURNALS, open_engine
from lamina.engines.queues.options import QueueOptions
from lamina.engines.queues.upkeep import Upkeep
from lamina.errors import QuotaMet
from lamina.log.files import Files
from lamina.log.options import LogOptions
from lamina.log.sync import ALWAYS, Level, Sync, interval
from lamina.testing import PowerLoss
from lamina.testing.powerloss import Model, PowerLossState

FOLDER = "queues"
STEPS = 16
STORIES = 3 * int(os.environ.get("LAMINA_CAMPAIGN", "1"))
Bodies = tuple[bytes | None, ...]
GONE = None


class Promise(NamedTuple):
    level: Level
    moments: dict[bytes, int]
    """Of each queue, the moment it had come to."""


def opened(disk: Files, store: str, sync: Sync, clock: ManualClock) -> QueueEngine:
    options = QueueOptions(store=store, quota=3, max_file_messages=4, most_open=2)
    log = LogOptions(sync=sync)
    return open_engine(FOLDER, options=options, log=log, files=disk, clock=clock, threaded=False)


def bodies(engine: QueueEngine, queue: Queue) -> Bodies:
    return tuple(message.body and message.body[:4] for message in engine.messages.messages(queue))


def differs_in_unsynced(found: Bodies | None, moments: list[Bodies | None]) -> bool:
    """Where a journal answers before it syncs, a power cut may take any change that was not synced: a message also
    between others (each has its own sectors, and one bad record must not block those behind it), an acknowledgement
    alone. What was promised (``moments[0]``) and never changed since is there; what it had no more by then is not."""
    if found is None:
        return False
    lists = [moment for moment in moments if moment is not None]
    known = {body for moment in lists for body in moment}
    lasting = {body for body in moments[0] or () if all(body in moment for moment in lists)}
    in_order = [body for body in found if body is not None]
    return {*found} <= known and lasting <= {*found} and in_order == sorted({*in_order})


def has_unpromised(found: Bodies | None, moments: list[Bodies | None]) -> bool:
    """A journal keeps whole messages that no line commits: nobody was promised them, and nobody can be sure of that. So
    it may be as at one moment, with some behind it that were sent later."""
    for at, moment in enumerate(moments):
        if found is None or moment is None or found[: len(moment)] != moment:
            continue
        rest = [body for body in found[len(moment) :] if body is not None]
        later = {body for each in moments[at:] if each is not None for body in each} - {*moment}
        if rest == sorted({*rest}) and {*rest} <= later:
            return True
    return False


def without_losses(engine: QueueEngine, queue: Queue) -> Bodies:
    """A power cut that may take messages is told of by a marker."""
    found = engine.messages.messages(queue)
    return tuple(message.body and message.body[:4] for message in found if not message.is_loss)


class Story:
    def __init__(self, seed: str, store: str, sync: Sync, model: Model) -> None:
        self.rng = random.Random(seed)
        self.store, self.sync = store, sync
        self.clock = ManualClock()
        self.disk = PowerLoss(model=model)
        self.engine = opened(self.disk, store, sync, self.clock)
        self.upkeep = Upkeep(self.engine)
        self.history: dict[bytes, list[Bodies | None]] = {}
        """Of each queue, all it has been; None: not there."""
        self.number = 0
        for _ in range(STEPS):
            self.step()
        self.promise(self.sync.level)
        self.engine.close()
        self.disk.note(Promise(Level.SYNCED, {rid: len(history) - 1 for rid, history in self.history.items()}))

    # -- telling -----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        act: Callable[[], None] = self.rng.choices(
            [self.make, self.send, self.receive, self.expire, self.delete, self.dump], [2, 6, 4, 1, 1, 2]
        )[0]
        act()
        if self.store == "journal" and self.rng.random() < 0.2:
            self.engine.keeper.sync()

    def any_queue(self) -> Queue | None:
        queues = sorted(self.engine.state.queues.values(), key=lambda queue: queue.rid)
        return self.rng.choice(queues) if queues else None

    def make(self) -> None:
        queue, position = self.engine.create(b"key", b"sender key")
        self.history[queue.rid] = [GONE]
        self.changed(queue)
        self.engine.settle(position)
        self.promise(self.sync.level)

    def send(self) -> None:
        queue = self.any_queue()
        for _ in range(self.rng.choice([1, 2])):
            self.number += 1
            if queue is not None:
                try:
                    position = self.engine.send(queue, b"%04d" % self.number + self.rng.randbytes(300))[1]
                except QuotaMet as problem:
                    position = problem.position
                self.changed(queue)
                self.settle(position)

    def receive(self) -> None:
        queue = self.any_queue()
        head = None if queue is None else self.engine.head(queue)
        if queue is not None and head is not None:
            position = self.engine.acknowledge(queue, head.id)
            self.changed(queue)
            self.settle(position)

    def expire(self) -> None:
        self.clock.advance(self.engine.options.ttl_s // 2 + 1)
        for queue in list(self.engine.state.queues.values()):
            before = bodies(self.engine, queue)
            gone = self.engine.expire(queue)
            self.history[queue.rid] += [before[each + 1 :] for each in range(gone)]  # one by one
            if gone:
                self.settle(self.engine.position_of(queue))

    def delete(self) -> None:
        queue = self.any_queue()
        if queue is not None:
            position = self.engine.delete(queue)
            self.history[queue.rid].append(GONE)
            self.engine.settle(position)
            self.engine.remove_folder(queue, position)
            self.promise(self.sync.level)

    def dump(self) -> None:
        assert self.upkeep.dump() is not None

    def changed(self, queue: Queue) -> None:
        self.history[queue.rid].append(bodies(self.engine, queue))

    def settle(self, position: int) -> None:
        if self.rng.random() < 0.8:
            self.engine.keeper.settle(position)
            self.promise(self.sync.level)
        elif self.rng.random() < 0.5:
            self.engine.keeper.push()

    def promise(self, level: Level) -> None:
        self.engine.settle(self.engine.newest_position())  # of all queues, so nothing may be pending
        self.engine.keeper.push()
        moments = {rid: len(history) - 1 for rid, history in self.history.items()}
        for each in {Level.WRITTEN, level}:
            self.disk.note(Promise(each, dict(moments)))

    # -- checking ----------------------------------------------------------------------------------------------------

    def check(self, per_point: int) -> int:
        count = 0
        for state in self.disk.states(per_point=per_point, seed=self.rng.randrange(1 << 30)):
            self.check_disk(state)
            count += 1
        return count

    def check_disk(self, state: PowerLossState) -> None:
        engine = opened(state.files, self.store, self.sync, ManualClock())
        if self.store == "journal" and self.sync is not ALWAYS:
            Upkeep(engine).set_orphans_aside()
        level = Level.WRITTEN if state.is_kill else Level.SYNCED
        promised: dict[bytes, int] = {}
        for note in state.notes:
            assert isinstance(note, Promise)
            if note.level is level:
                promised.update(note.moments)
        for rid, history in self.history.items():
            queue = engine.state.queues.get(rid)
            since = promised.get(rid, 0)
            may_have_holes = self.store == "journal" and self.sync is not ALWAYS and not state.is_kill
            look = without_losses if may_have_holes else bodies
            found = GONE if queue is None else look(engine, queue)
            moments = history[since:]
            is_possible = found in moments or (self.store == "journal" and has_unpromised(found, moments))
            assert is_possible or (may_have_holes and differs_in_unsynced(found, moments)), (
                f"{state.label}: {found} of {history}, promised {since}"
            )
            if queue is None and isinstance(engine.keeper, JournalStore) and GONE in history[1:]:
                place = f"{FOLDER}/{JOURNALS}/{ids.show(rid)[:2]}/"
                assert not any(name.startswith(place) for name in state.files.names), "half of a queue is left"
        engine.close()


@pytest.mark.parametrize("model", ["strict", "journalled"])
@pytest.mark.parametrize("sync", [ALWAYS, interval(1000)], ids=["always", "interval"])
@pytest.mark.parametrize("store", ["memory", "journal"])
def test_no_power_cut_breaks_a_promise_of_the_engine(store: str, sync: Sync, model: Model) -> None:
    count = 0
    for number in range(STORIES):
        count += Story(f"{store} {sync} {model} {number}", store, sync, model).check(per_point=4)
    assert count > 100
