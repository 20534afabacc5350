"""Power cuts while files of a topic go: a disk shows one of the moments there were, and no group misses anything."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from lamina.engines.topics import ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.retention import Retention
from lamina.engines.topics.shedding import Shedder
from lamina.engines.topics.topic import Topic
from lamina.log import ALWAYS, OS, Level, LogOptions, Sync, interval
from lamina.testing import ManualClock, PowerLoss

FOLDER, GROUP, CONSUMER = "topic", b"group", b"consumer"
CAMPAIGN = int(os.environ.get("LAMINA_CAMPAIGN", "0"))
DISKS = int(os.environ.get("LAMINA_DISKS", "800")) * max(CAMPAIGN, 1)
SHARE = 1.0 if CAMPAIGN else 0.35
"""Of the disks of a story, which are thousands. Which ones, its seed decides."""
POLICIES: dict[str, Sync] = {"always": ALWAYS, "interval": interval(1000), "os": OS}
STEPS = 30

Seen = tuple[tuple[object, ...], ...]


def seen(topic: Topic) -> Seen:
    """All that is known of the entries."""
    state, entries = topic.state, topic.read(ids.FIRST)[0]
    assert state.length == len(entries)
    return (
        (state.trimmed_to,),
        (state.last_id, state.added, state.length, state.max_deleted, state.exists),
        *((id, *fields) for id, fields in entries),
    )


class Story:
    """Random commands and retention; after each record, what could be seen."""

    def __init__(self, policy: str, seed: int) -> None:
        self.rng, self.clock = random.Random(seed), ManualClock()
        self.disk = PowerLoss(model="journalled" if seed % 4 == 3 else "strict")
        self.options = LogOptions(sync=POLICIES[policy], segment_bytes=300)
        self.topic = self.opened(self.disk)
        self.shedder = Shedder(self.topic)
        self.went: set[EntryId] = set()
        """Entries that retention let go."""
        self.moments: list[Seen] = [seen(self.topic)]
        self.disk.note(0)
        self.topic.groups.settle(self.topic.groups.create(GROUP, ids.FIRST))
        self.went_at_once = 0
        for _ in range(STEPS):
            self.step()
        self.topic.close()
        self.promise(Level.SYNCED)

    def opened(self, disk: PowerLoss) -> Topic:
        return Topic.open(FOLDER, files=disk, clock=self.clock, options=self.options, threaded=False, tail_bytes=200)

    def promise(self, level: Level) -> None:
        """From here on no disk shows less than this moment."""
        if level is Level.SYNCED:
            self.disk.note(len(self.moments) - 1)

    def step(self) -> None:
        topic, rng = self.topic, self.rng
        self.clock.advance(rng.choice([0, 0.001, 0.5]))
        living = [id for id, _ in topic.read(ids.FIRST)[0]]
        act = rng.random()
        if act < 0.45 or not living:
            position = topic.add([b"f", rng.randbytes(rng.choice([3, 40, 150]))])[1]
        elif act < 0.55:
            position = topic.delete([rng.choice(living) for _ in range(rng.choice([1, 2]))])[1]
        elif act < 0.6:
            position = topic.trim_length(rng.randrange(len(living) + 1))[1]
        elif act < 0.75:
            self.use_group()
            return
        else:
            self.shed(living)
            return
        self.moments.append(seen(topic))
        if rng.random() < 0.6:
            topic.settle(position or topic.newest_position())  # nothing may have gone
            self.promise(self.options.sync.level)
        if rng.random() < 0.2:
            topic.push()
            topic.log.rotate()  # type: ignore[union-attr]
            self.promise(Level.SYNCED)

    def use_group(self) -> None:
        groups, rng = self.topic.groups, self.rng
        position = groups.deliver(GROUP, CONSUMER, rng.choice([1, 3, None])).position
        pending = list(groups.get(GROUP).pending.keys())
        if rng.random() < 0.8:
            position = groups.ack(GROUP, pending[: rng.choice([2, 10])])[1] or position
        if rng.random() < 0.3:
            groups.settle(position)
        else:
            groups.push()
            groups.log.run_round(may_sync=False)  # type: ignore[union-attr]

    def shed(self, living: list[EntryId]) -> None:
        retention = self.rng.choice(
            [Retention(), Retention(length=2), Retention(acknowledged=True), Retention(bytes=500)]
        )
        shed = self.shedder.shed(retention)
        self.went.update(living[: shed.entries])
        self.moments.append(seen(self.topic))
        self.went_at_once = max(self.went_at_once, shed.files)
        if shed.files:
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
                assert seen(found) in self.moments[least:], f"{state.label}: a moment that never was, or before {least}"
                self.check_group(found, state.label)
                before = seen(found)
                Shedder(found).shed(Retention())  # what is left of a removal goes, and nothing else
                assert seen(found)[1:] == before[1:]
                id, position = found.add([b"after", b"it"])
                found.settle(position)
                assert found.read(id)[0] == [(id, [b"after", b"it"])]
            yield tuple(sorted(state.files.contents().items()))

    def check_group(self, found: Topic, label: str) -> None:
        group = found.groups.state.groups.get(GROUP)
        if group is not None:
            gone = {id for id in self.went if id <= found.state.trimmed_to}
            assert not gone.intersection(group.pending.keys()), f"{label}: what is to be acknowledged was let go"
            assert all(id <= group.last_id for id in gone), f"{label}: what was not delivered was let go"


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_no_power_cut_breaks_a_promise_while_files_go(policy: str) -> None:
    distinct: set[object] = set()
    seed = 0
    while len(distinct) < DISKS:
        story = Story(policy, seed)
        seed += 1
        if story.went_at_once > 1:  # between them, none may be missing
            distinct.update(hash(each) for each in story.check(per_point=4))
