"""Power cuts while a topic is written: a disk shows one of the moments there were, none before what was promised."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from lamina.engines.topics import ids
from lamina.engines.topics.topic import Entry, Topic
from lamina.log import ALWAYS, OS, Level, LogOptions, Sync, interval
from lamina.testing import ManualClock, PowerLoss

FOLDER = "topic"
CAMPAIGN = int(os.environ.get("LAMINA_CAMPAIGN", "0"))
DISKS = int(os.environ.get("LAMINA_DISKS", "800")) * max(CAMPAIGN, 1)
SHARE = 1.0 if CAMPAIGN else 0.35
"""Of the disks of a story, which are thousands. Which ones, its seed decides."""
POLICIES: dict[str, Sync] = {"always": ALWAYS, "interval": interval(1000), "os": OS}
STEPS = 30

Seen = tuple[tuple[object, ...], ...]


def seen(topic: Topic) -> Seen:
    """All that clients can see."""
    state, entries = topic.state, topic.read(ids.FIRST)[0]
    assert state.length == len(entries)
    return (
        (state.last_id, state.added, state.length, state.max_deleted),
        *((id, *fields) for id, fields in entries),
    )


class Story:
    """Random commands; after each record, what could be seen."""

    def __init__(self, policy: str, seed: int) -> None:
        self.rng, self.clock = random.Random(seed), ManualClock()
        self.disk = PowerLoss(model="journalled" if seed % 4 == 3 else "strict")
        self.options = LogOptions(sync=POLICIES[policy], segment_bytes=400)
        self.topic = self.opened(self.disk)
        self.moments: list[Seen] = [seen(self.topic)]
        self.disk.note(0)
        for _ in range(STEPS):
            self.step()
        self.topic.close()
        self.promise(Level.SYNCED)

    def opened(self, disk: PowerLoss | object) -> Topic:
        return Topic.open(
            FOLDER,
            files=disk,
            clock=self.clock,
            options=self.options,
            threaded=False,
            tail_bytes=200,  # type: ignore[arg-type]
        )

    def promise(self, level: Level) -> None:
        """From here on no disk shows less than this moment."""
        if level is Level.SYNCED:
            self.disk.note(len(self.moments) - 1)

    def step(self) -> None:
        topic, rng = self.topic, self.rng
        self.clock.advance(rng.choice([0, 0.001, 0.5]))
        entries: list[Entry] = topic.read(ids.FIRST)[0]
        act = rng.random()
        if act < 0.55 or not entries:
            position = topic.add([b"f", rng.randbytes(rng.choice([3, 40, 150]))])[1]
        elif act < 0.7:
            position = topic.delete([rng.choice(entries)[0] for _ in range(rng.choice([1, 2]))])[1]
        elif act < 0.85:
            position = topic.trim_length(rng.randrange(len(entries) + 1))[1]
        elif act < 0.9:
            position = topic.set_id(ids.EntryId(topic.state.last_id + 5), topic.state.added + 2)
        else:
            topic.checkpoint()
            self.promise(Level.SYNCED)
            return
        self.moments.append(seen(topic))
        if rng.random() < 0.7:
            topic.settle(position)
            self.promise(self.options.sync.level)
        if rng.random() < 0.1:
            topic.push()
            topic.log.rotate()
            self.promise(Level.SYNCED)

    def check(self, per_point: int) -> Iterator[object]:
        for state in self.disk.states(per_point=per_point, seed=self.rng.randrange(1 << 30)):
            if self.rng.random() >= SHARE:
                continue
            for left_out in ("", f"{FOLDER}/checkpoint"):
                contents = {path: data for path, data in state.files.contents().items() if path != left_out}
                disk = PowerLoss(contents)
                disk.make_folder(FOLDER)
                found = self.opened(disk)
                least = max((note for note in state.notes if isinstance(note, int)), default=0)
                shown = seen(found)
                assert shown in self.moments[least:], f"{state.label}: a moment that never was, or one before {least}"
                id, position = found.add([b"after", b"it"])
                found.settle(position)
                assert found.read(id)[0] == [(id, [b"after", b"it"])]
            yield tuple(sorted(state.files.contents().items()))


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_no_power_cut_breaks_a_promise_of_a_topic(policy: str) -> None:
    distinct: set[object] = set()
    seed = 0
    while len(distinct) < DISKS:
        distinct.update(hash(each) for each in Story(policy, seed).check(per_point=12))
        seed += 1
