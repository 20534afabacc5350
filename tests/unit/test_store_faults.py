"""A store that lives through anything: random calls, a disk that fails at random, kills and power cuts, against a plain
list of what was told to be durable.

Promises: what was told to be durable is there, always. What was refused by a full or failing disk never is. What nobody
was told about, because the process was killed or a sync failed, is there or not, whole epochs at a time, for good.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from lamina.engines.store.channel import Session
from lamina.errors import LaminaError, LogClosed, LogFailed, Stopped, StorageError
from lamina.testing import FaultyFiles, PowerLoss
from store_lab import StoreLab

OPERATIONS = ("append", "sync", "rename", "sync_folder", "create", "remove", "truncate", "open", "read", "list")


class Life:
    """Session ``n`` puts the key ``s<n>``, and its number to the key ``hot``."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.model = self.rng.choice(["strict", "journalled"])
        self.disk = PowerLoss(model=self.model)  # type: ignore[arg-type]
        self.lab = StoreLab(self.disk, part_bytes=1024, memory_bytes=self.rng.choice([3000, 1 << 20]))
        self.durable: set[int] = set()
        self.void: set[int] = set()
        self.unknown: dict[int, int] = {}  # and the epoch
        self.open: dict[int, tuple[Session, int]] = {}
        self.count = 0
        self.story: list[object] = [seed]

    # -- what is done ------------------------------------------------------------------------------------------------

    def begin(self) -> tuple[Session, int] | None:
        channel = self.rng.randrange(4)
        if channel in self.open:
            return None
        session, number = self.lab.begin(channel), self.count
        self.count += 1
        self.lab.write(session, **{f"s{number}": "x" * self.rng.randrange(200), "hot": str(number)})
        self.open[channel] = session, number
        return session, number

    def write(self) -> None:
        if (begun := self.begin()) is not None:
            self.finish(*begun)

    def end(self) -> None:
        if self.open:
            self.finish(*self.rng.choice(list(self.open.values())))

    def finish(self, session: Session, number: int) -> None:
        self.open = {channel: each for channel, each in self.open.items() if each[1] != number}
        self.unknown[number] = session.epoch
        try:
            session.end()
        except StorageError as error:
            self.told(number, error)
        else:
            self.lab.store.waiters.add(session.epoch, lambda error: self.told(number, error))

    def told(self, number: int, error: LaminaError | None) -> None:
        if error is None:
            del self.unknown[number]
            self.durable.add(number)
        elif not isinstance(error, LogFailed | LogClosed):
            del self.unknown[number]
            self.void.add(number)

    def compact(self) -> None:
        if not self.open:
            self.lab.compact()

    def reopen(self) -> None:
        self.open.clear()
        try:
            self.lab.store.close()
        except StorageError as error:
            self.story.append(error)
        self.open_again()

    def restart(self) -> None:
        self.open.clear()
        if self.rng.random() < 0.5:
            self.lab.flush()
        contents = self.disk.contents()
        if self.rng.random() < 0.7:
            states = self.disk.states(at=self.disk.points, per_point=12, seed=self.rng.randrange(1 << 30))
            contents = self.rng.choice(list(states)).files.contents()
        self.disk = self.lab.disk = PowerLoss(contents, model=self.model)  # type: ignore[arg-type]
        self.lab.files = FaultyFiles(self.disk)
        self.open_again()

    def open_again(self) -> None:
        try:
            self.lab.store = self.lab.open()
        except StorageError as error:
            self.story.append(error)
            self.lab.files.heal()
            self.lab.store = self.lab.open()
        self.decide()

    def fail(self) -> None:
        self.lab.files.fail(
            self.rng.choice(OPERATIONS),
            nth=self.rng.randrange(1, 8),
            times=self.rng.choice([1, 1, 3]),
            error=self.rng.choice([errno.ENOSPC, errno.EIO]),
            taken=self.rng.choice([0, 0, 10, 50]),
        )

    # -- what is promised --------------------------------------------------------------------------------------------

    def look(self) -> set[int]:
        faults, self.lab.files.faults = self.lab.files.faults, []
        found = {int(key[1:]) for key in self.lab.entries() if key != "hot"}
        self.lab.files.faults = faults
        assert self.durable <= found, (self.durable - found, "is lost", self.story)
        assert not self.void & found, (self.void & found, "came back", self.story)
        assert found <= self.durable | {*self.unknown}, self.story
        return found

    def decide(self) -> None:
        """The store was opened: what was not known is known now."""
        found = self.look()
        for epoch in {*self.unknown.values()}:
            its = {number for number, of in self.unknown.items() if of == epoch}
            assert its & found in (set(), its), (epoch, "is split", self.story)
        self.void |= {*self.unknown} - found
        self.durable |= found
        self.unknown.clear()
        assert self.lab.entries().get("hot") == (str(max(self.durable)) if self.durable else None), self.story

    def step(self) -> None:
        doings: list[tuple[int, Callable[[], object]]] = [
            (4, self.write),
            (1, self.begin),
            (1, self.end),
            (3, self.lab.sw),
            (1, lambda: self.lab.store.request_rotation()),
            (1, self.compact),
            (1, lambda: self.lab.compactions.clean_up()),
            (1, self.reopen),
            (1, self.restart),
            (2, self.fail),
            (1, self.lab.files.heal),
        ]
        (doing,) = self.rng.choices([each for _, each in doings], [weight for weight, _ in doings])
        self.story.append(getattr(doing, "__name__", doing))
        try:
            doing()
        except (StorageError, Stopped) as error:
            self.story.append(error)
        self.look()

    def finally_(self) -> None:
        self.lab.files.heal()
        self.restart()
        self.lab.compact()
        self.look()
        self.lab.compactions.clean_up()
        self.lab.reopen()
        self.look()


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_whatever_happens_what_was_told_to_be_durable_is_there_and_what_was_refused_is_not(first: int) -> None:
    for seed in range(first, first + 10):
        life = Life(seed)
        for _ in range(60):
            life.step()
        life.finally_()
        assert life.count
