"""The recent past of the store: whatever is written, compacted, cleaned up, stopped and started, and however the clock
is set, a read as of a moment of the time that is kept shows what there was at that moment."""

from __future__ import annotations

import os
import random

import pytest

from lamina.engines.store import as_of, cleaning
from lamina.errors import TooOld
from lamina.log.history import History
from store_lab import FOLDER, Everything, StoreLab

STORIES = 40 * int(os.environ.get("LAMINA_CAMPAIGN", "1"))
KEEP_S = 60.0


class Story:
    """Told by chance."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.room = 1 << 40
        self.history = History(KEEP_S, lambda: self.room)
        self.lab = StoreLab(memory_bytes=3000, part_bytes=1024)
        self.clock = self.lab.clock
        self.moments: list[tuple[int, Everything]] = []
        """What there was from then on, in order of the times of records."""
        self.since_ns = 0
        """What was before may be gone."""
        self.note()

    def note(self) -> None:
        log = self.lab.store.epoch_log.log
        assert log is not None
        self.moments.append((max(self.clock.now_ns(), log.position), self.lab.everything()))

    def kept_since(self) -> int:
        return self.clock.now_ns() - int(KEEP_S * 1e9)

    def step(self) -> None:
        act = self.rng.random()
        if act < 0.5:
            self.clock.advance(self.rng.choice([0.001, 1, 5]))
            self.write()
        elif act < 0.7:
            self.clock.advance(self.rng.choice([0.5, 10, 40]))
        elif act < 0.75:
            self.clock.jump(self.rng.choice([-100, -20, -1, 1, 20]))
        elif act < 0.87:
            self.lab.compactions.history = self.history
            self.lab.compact()
        elif act < 0.97:
            self.clean_up()
        else:
            self.lab.reopen()
            self.history.forget(FOLDER)
        self.clock.advance(0.001)

    def write(self) -> None:
        pairs: dict[str, str | None] = {}
        for _ in range(self.rng.randint(1, 4)):
            is_removed = self.rng.random() < 0.2
            pairs[self.rng.choice("abcdefg")] = None if is_removed else "v" * self.rng.choice([1, 50, 900])
        self.lab.s(self.rng.randrange(2), self.lab.store.epoch, **pairs)
        self.lab.sw()
        self.note()

    def clean_up(self) -> None:
        self.since_ns = max(self.since_ns, self.kept_since())
        self.lab.compactions.history = self.history
        done = self.lab.compactions.clean_up(keeps_recent=True)
        past = [name for name in done.kept if not name.startswith("run.")]  # those are read
        kept = [cleaning.size_of(self.lab.disk, FOLDER, name) or 0 for name in past]
        assert self.history.bytes_of(FOLDER) <= self.room
        assert sum(kept) <= self.history.bytes_of(FOLDER), "what is kept is counted"

    def check(self, *, may_be_too_old: bool = False) -> int:
        now, checked = self.clock.now_ns(), 0
        first = max(self.since_ns, self.kept_since(), self.moments[0][0])
        times = [time_ns for time_ns, _ in self.moments if first <= time_ns <= now]
        times += [self.rng.randint(first, now) for _ in range(3) if first <= now]
        for time_ns in times:
            there = [found for since, found in self.moments if since <= time_ns][-1]
            try:
                found = as_of.as_of_time(self.lab.store, time_ns)
            except TooOld:
                assert may_be_too_old, f"{(now - time_ns) / 1e9} s ago is too old"
                continue
            assert {(one.storage, one.key): one.value for one in found.scan()} == there
            checked += 1
        return checked


@pytest.mark.parametrize("seed", range(STORIES))
def test_within_the_time_that_is_kept_each_moment_can_be_read(seed: int) -> None:
    story = Story(seed)
    for _ in range(60):
        story.step()
        if story.rng.random() < 0.15:
            story.check()
    story.clock.jump(max(story.moments[-1][0] - story.clock.now_ns(), 0) / 1e9)  # it may have been set back
    story.write()
    assert story.check() > 0


@pytest.mark.parametrize("seed", range(STORIES // 2))
def test_with_little_room_a_moment_is_read_as_it_was_or_refused(seed: int) -> None:
    story = Story(seed)
    for _ in range(60):
        story.room = story.rng.choice([0, 2000, 10_000])
        story.step()
        if story.rng.random() < 0.15:
            story.check(may_be_too_old=True)


def test_what_was_is_gone_when_it_is_older_than_that() -> None:
    story = Story(1)
    for _ in range(100):
        story.write()
        story.lab.compact()
        story.clean_up()
    story.clock.advance(KEEP_S + 1)
    story.clean_up()
    assert story.history.bytes == 0
    assert [name for name in story.lab.names() if "catalog" in name] == ["compaction_catalog"]
    assert story.lab.rotated() == []
