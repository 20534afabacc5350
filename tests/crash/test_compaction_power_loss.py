"""Power cuts while files of a topic are written anew: a disk shows one of the moments there were, with its checkpoint
or without, and what is left to be done is done the next time.
"""

from __future__ import annotations

import os

import pytest

from crash.test_retention_power_loss import FOLDER, Story, seen
from lamina.engines.topics import compaction, ids
from lamina.engines.topics.retention import Retention
from lamina.engines.topics.shedding import Shed
from lamina.log import Level
from lamina.units import MIB

CAMPAIGN = int(os.environ.get("LAMINA_CAMPAIGN", "0"))
DISKS = int(os.environ.get("LAMINA_DISKS", "800")) * max(CAMPAIGN, 1)


class CompactionStory(Story):
    """Much is deleted, out of order, in small files, and nothing else goes."""

    def __init__(self, policy: str, seed: int) -> None:
        self.total = Shed()
        super().__init__(policy, seed)

    def step(self) -> None:
        topic, rng = self.topic, self.rng
        self.clock.advance(0.001)
        living = [id for id, _ in topic.read(ids.FIRST)[0]]
        act = rng.random()
        if act < 0.4 or len(living) < 3:
            position = 0
            for _ in range(rng.choice([1, 3])):
                position = topic.add([b"f", rng.randbytes(rng.choice([3, 40]))])[1]
                self.moments.append(seen(topic))
        elif act < 0.7:
            first = rng.randrange(len(living))
            position = topic.delete(living[first : first + rng.choice([1, 4])])[1]
        elif act < 0.75:
            position = topic.trim_length(rng.randrange(len(living), len(living) + 2) - 1)[1]
        elif act < 0.8:
            topic.checkpoint()
            position = topic.newest_position()
        else:
            self.compact()
            return
        self.moments.append(seen(topic))
        if rng.random() < 0.5:
            topic.settle(position or topic.newest_position())
            self.promise(self.options.sync.level)
        if rng.random() < 0.4:
            topic.push()
            topic.log.rotate()  # type: ignore[union-attr]
            self.promise(Level.SYNCED)

    def compact(self) -> None:
        done = self.shedder.shed(Retention())
        assert not done.entries
        self.moments.append(seen(self.topic))
        self.total = self.total.plus(done)
        if done.rewritten:
            self.promise(Level.SYNCED)


@pytest.mark.slow
@pytest.mark.parametrize("small", [0, MIB], ids=["stubs", "joined"])
@pytest.mark.parametrize("policy", ["always", "os"])
def test_no_power_cut_breaks_a_promise_while_files_are_written_anew(
    policy: str, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "LEAST", 0)
    monkeypatch.setattr(compaction, "_SMALL", small)
    distinct: set[object] = set()
    seed = 0
    while len(distinct) < DISKS:
        story = CompactionStory(policy, seed)
        seed += 1
        if story.total.rewritten > 1 and story.total.files > 1:
            assert story.disk.list(FOLDER)
            distinct.update(hash(each) for each in story.check(per_point=4))
