"""A topic whose files are written anew, against the plainest model of one: every read, and every restart with a
checkpoint, without one and with one from before, shows what was there.

What happens is drawn by a seed and not by hypothesis: its stories are too short for files to become worth it.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from lamina.engines.topics import compaction, ids
from lamina.engines.topics.retention import Retention
from lamina.engines.topics.shedding import Shedder
from lamina.log import OS
from lamina.log.history import History
from lamina.testing import MemoryFiles
from lamina.units import MIB
from property.test_topic_model import FOLDER, TopicMachine

STORIES = 40 * int(os.environ.get("LAMINA_CAMPAIGN", "1"))
STEPS = 40
CHECKPOINT = f"{FOLDER}/checkpoint"
PATTERNS = (255, 255, 255, 127, 239, 85, 17)
"""Which of eight entries in a row are deleted."""


class Story(TopicMachine):
    """Much is deleted, in files that are sealed soon."""

    policy = OS

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.history = History(5.0) if seed % 3 == 1 else None
        self.formers: list[bytes] = []
        self.rewritten = self.removed = 0
        super().__init__()

    def open(self) -> None:
        super().open()
        self.shedder = Shedder(self.topic, self.history)

    def step(self) -> None:
        rng = self.rng
        act, which = rng.random(), rng.randrange(201)
        if act < 0.2:
            self.fill(rng.randrange(5, 31), rng.choice([1, 40, 300]))
        elif act < 0.5:
            self.delete_many(rng.randrange(60), rng.randrange(1, 41), rng.choice(PATTERNS), at_once=rng.random() < 0.5)
        elif act < 0.7:
            self.shed(rng.choice([Retention(), Retention(), Retention(), Retention(length=10)]))
        elif act < 0.75:
            self.keep_a_checkpoint()
        elif act < 0.82:
            self.restart(
                is_orderly=rng.random() < 0.5, checkpoints=rng.random() < 0.5, keeps_checkpoint=rng.random() < 0.5
            )
        elif act < 0.87:
            self.restart_with_a_former_checkpoint()
        elif act < 0.91:
            self.trim_to(which=which, most=rng.choice([None, 3, 10]))
        elif act < 0.93:
            self.set_id(step=rng.choice([0, 1, 1 << 64]), added=rng.choice([None, 5]), deleted=None)
        else:
            self.read(first=which, last=rng.randrange(201), count=3, newest_first=rng.random() < 0.5, whole=False)
        self.all_is_as_the_model_says()

    def fill(self, count: int, size: int) -> None:
        for _ in range(count):
            fields = [b"f", b"x" * size]
            self.model.add(self.topic.add(fields)[0], fields)
            self.clock.advance(0.001)
        self.rotate()

    def delete_many(self, first: int, count: int, pattern: int, *, at_once: bool) -> None:
        known = [id for id, _ in self.model.entries]
        wanted = known[first : first + count] if first < len(known) else known[:count]
        wanted = [id for at, id in enumerate(wanted) if pattern >> at % 8 & 1]
        for some in [wanted] if at_once else [[id] for id in wanted]:
            self.topic.delete(some)
        self.model.entries = [entry for entry in self.model.entries if entry[0] not in wanted]
        self.model.max_deleted = max([self.model.max_deleted, *wanted])
        assert not any(self.topic.has(id) for id in wanted)

    def shed(self, retention: Retention) -> None:
        self.clock.advance(self.rng.choice([0, 10]))
        shed = self.shedder.shed(retention, is_out_of_room=self.rng.random() < 0.2)
        self.model.entries = self.model.entries[shed.entries :]
        self.rewritten += shed.rewritten
        self.removed += shed.files
        self.look_at_everything()

    def look_at_everything(self) -> None:
        entries = self.model.entries
        assert self.topic.read(ids.FIRST)[0] == entries
        assert self.topic.read(ids.FIRST, newest_first=True)[0] == entries[::-1]
        assert self.topic.first_id() == (entries[0][0] if entries else None)
        for at, entry in enumerate(entries):
            assert self.topic.read(entry[0], count=2)[0] == entries[at : at + 2]
            assert self.topic.has(entry[0])

    def keep_a_checkpoint(self) -> None:
        self.topic.checkpoint()
        if CHECKPOINT in self.disk.contents():
            self.formers.append(self.disk.contents()[CHECKPOINT])

    def restart_with_a_former_checkpoint(self) -> None:
        if not self.formers:
            return
        self.topic.push()
        self.topic.settle(self.topic.log.position)
        contents: dict[str, Any] = dict(self.disk.contents())
        contents[CHECKPOINT] = self.rng.choice(self.formers)
        self.disk = MemoryFiles(contents)
        self.disk.make_folder(FOLDER)
        self.open()
        self.look_at_everything()


@pytest.mark.slow
@pytest.mark.parametrize("small", [0, MIB], ids=["stubs", "joined"])
def test_a_topic_that_is_written_anew_does_what_the_model_does(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "LEAST", 0)
    monkeypatch.setattr(compaction, "_SMALL", small)
    rewritten = removed = 0
    for seed in range(STORIES):
        story = Story(seed)
        for _ in range(STEPS):
            story.step()
        rewritten, removed = rewritten + story.rewritten, removed + story.removed
    assert rewritten > STORIES and removed > STORIES
