"""Power cuts while entries go to groups: none is skipped, none is held that the topic lost, no promise is broken.

Topic and groups are two logs, and a power cut may leave either behind the other. So a disk does not show one moment of
both: the groups show one of the moments there were, gone back to where the topic is.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from typing import Any, NamedTuple

import pytest

from lamina.engines.elsewhere import Stopper
from lamina.engines.topics import group_codec as codec
from lamina.engines.topics import group_compaction, group_snapshot, ids
from lamina.engines.topics import group_views as views
from lamina.engines.topics.group_claims import ClaimOptions
from lamina.engines.topics.group_log import GroupLog
from lamina.engines.topics.group_state import State
from lamina.engines.topics.groups import Groups, Shown
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.topic import Topic
from lamina.errors import Corruption
from lamina.log import ALWAYS, OS, Level, LogOptions, Sync, interval, rewrite
from lamina.log.files import Files
from lamina.testing import ManualClock, PowerLoss, PowerLossState

FOLDER = "topic"
DISKS = int(os.environ.get("LAMINA_DISKS", "800")) * int(os.environ.get("LAMINA_CAMPAIGN", "1"))
POLICIES: dict[str, Sync] = {"always": ALWAYS, "interval": interval(1000), "os": OS}
STEPS = 30
NAMES = (b"g", b"h")
CONSUMERS = (b"ann", b"bob")
STEP = 10 << 64  # between the ids of two entries, which do not follow the clock: lost ones come again


class Seen(NamedTuple):
    """A group as clients can see it, but for how much it has read."""

    last: EntryId
    consumers: list[views.ConsumerStats]
    pending: list[views.PendingEntry]

    def gone_back(self, newest: EntryId) -> Seen:
        """What is left of it when the topic has come only so far."""
        kept = [one for one in self.pending if one.id <= newest]
        counts = [one._replace(pending=sum(each.consumer == one.name for each in kept)) for one in self.consumers]
        return Seen(min(self.last, newest), counts, kept)


Moment = dict[bytes, Seen]


def seen(groups: Groups) -> Moment:
    return {
        name: Seen(group.last_id, views.consumers(groups, name), views.pending(groups, name))
        for name, group in groups.state.groups.items()
    }


class Promise(NamedTuple):
    """What no disk may show less of."""

    level: Level
    """WRITTEN: after a kill. SYNCED: after a power cut."""
    newest: EntryId
    moment: int


class Busy(Stopper):
    """Asked whether the compaction has to stop, it first lets a command through."""

    def __init__(self, story: Story) -> None:
        self._story: Story | None = None
        super().__init__()
        self._story = story

    @property
    def is_stopped(self) -> bool:
        story = self._story
        if story is not None and story.rng.random() < 0.1:
            story.step()
        return False

    @is_stopped.setter
    def is_stopped(self, value: bool) -> None:
        pass


class Story:
    """Random commands; after each record, what could be seen."""

    is_compacting = False

    def __init__(self, policy: str, seed: int) -> None:
        self.rng, self.clock = random.Random(seed), ManualClock()
        self.disk = PowerLoss(model="journalled" if seed % 4 == 3 else "strict")
        self.options = LogOptions(sync=POLICIES[policy], segment_bytes=400)
        self.promised = {level: Promise(level, ids.FIRST, 0) for level in Level}
        self.moments: list[Moment] = [{}]
        self.acked: set[tuple[bytes, EntryId]] = set()
        """An acknowledgement was asked for, or what stands for one: noack, a consumer that was deleted."""
        self.deleted: set[EntryId] = set()
        self.topic = self.opened(self.disk)
        for _ in range(STEPS):
            self.step()
        self.topic.close()
        self.promise(Level.SYNCED, self.topic.state.last_id, len(self.moments) - 1)

    def opened(self, disk: PowerLoss) -> Topic:
        topic = Topic.open(FOLDER, files=disk, clock=self.clock, options=self.options, threaded=False, tail_bytes=200)
        _ = topic.groups  # before anything is added: they may have to go back
        return topic

    def promise(self, level: Level, newest: EntryId | None = None, moment: int | None = None) -> None:
        """From here on no disk shows less. What is synced is written, too."""
        for each in (Level.WRITTEN, level):
            before = self.promised[each]
            self.promised[each] = Promise(
                each, before.newest if newest is None else newest, before.moment if moment is None else moment
            )
            self.disk.note(self.promised[each])

    # -- telling -----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.clock.advance(self.rng.choice([0, 0.001, 0.5]))
        if self.rng.random() < 0.35:
            self.publish()
        else:
            self.use_groups()

    def publish(self) -> None:
        topic, rng = self.topic, self.rng
        id, position = topic.add([b"f", rng.randbytes(rng.choice([3, 40, 150]))], EntryId(topic.state.last_id + STEP))
        if rng.random() < 0.15:
            going = rng.choice(topic.read(ids.FIRST)[0])[0]
            self.deleted.add(going)
            topic.delete([going])
        if rng.random() < 0.5:
            topic.settle(position)
            self.promise(self.options.sync.level, newest=id)
        if rng.random() < 0.1:
            topic.push()
            topic.log.rotate()  # type: ignore[union-attr]
            self.promise(Level.SYNCED, newest=topic.state.last_id)

    def use_groups(self) -> None:
        rng, groups = self.rng, self.topic.groups
        name, consumer = rng.choice(NAMES), rng.choice(CONSUMERS)
        if groups.has(name):
            position = self.command(groups, name, consumer)
        else:
            position = groups.create(name, rng.choice([ids.FIRST, None]))
        self.moments.append(seen(groups))
        if position and rng.random() < 0.6:
            groups.settle(position)
            self.promise(self.options.sync.level, moment=len(self.moments) - 1)
        if not self.is_compacting and rng.random() < 0.12:
            self.compact(groups)

    def compact(self, groups: Groups) -> None:
        """From memory or from the files; and others may go on while the new file is written."""
        synced = len(self.moments) - 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(group_snapshot, "_FEW", self.rng.choice([-1, 2000]))
            self.is_compacting = True
            groups.compact(Busy(self))
            self.is_compacting = False
        self.promise(Level.SYNCED, moment=max(synced, self.promised[Level.SYNCED].moment))

    def command(self, groups: Groups, name: bytes, consumer: bytes) -> int:
        rng = self.rng
        pending = [one.id for one in views.pending(groups, name)]
        some = rng.sample(pending, min(len(pending), 2))
        act = rng.random()
        if act < 0.4:
            noack = rng.random() < 0.1
            shown = groups.deliver(name, consumer, rng.choice([None, 1, 2]), noack=noack)
            self.acked.update((name, id) for id, _ in shown.entries if noack)
            return shown.position
        if act < 0.55:
            self.acked.update((name, id) for id in some)
            return groups.ack(name, some)[1]
        if act < 0.7:
            return self.note_gone(name, groups.claim(name, consumer, some, ClaimOptions(count=7)))
        if act < 0.8:
            return self.note_gone(name, groups.autoclaim(name, consumer, 0, ids.FIRST, 2))
        if act < 0.88:
            return groups.history(name, consumer, ids.FIRST).position
        if act < 0.93:
            self.acked.update((name, one.id) for one in views.pending(groups, name, consumer=consumer))
            return groups.delete_consumer(name, consumer)[1]
        if act < 0.96:
            return groups.set_id(name, EntryId(max(groups.get(name).last_id - STEP, 0)))
        return groups.destroy(name)[1]

    def note_gone(self, name: bytes, shown: Shown) -> int:
        """What is gone is a record of its own, before the claim: a power cut may leave it alone."""
        group = self.moments[-1][name]
        kept = [one for one in group.pending if one.id not in shown.gone]
        between = Seen(group.last, group.consumers, kept).gone_back(ids.LAST)
        self.moments.append({**self.moments[-1], name: between._replace(last=group.last)})
        return shown.position

    # -- checking ----------------------------------------------------------------------------------------------------

    def check(self, share: float = 0.1) -> Iterator[object]:
        """Some of the disks, all over the story: there are thousands."""
        for state in self.disk.states(per_point=12, seed=self.rng.randrange(1 << 30)):
            if self.rng.random() < share:
                self.check_disk(state)
                yield tuple(sorted(state.files.contents().items()))

    def check_disk(self, state: PowerLossState) -> None:
        disk = PowerLoss(state.files.contents())
        disk.make_folder(FOLDER)
        found = self.opened(disk)
        newest, shown = found.state.last_id, seen(found.groups)
        least = self.least(state)
        assert newest >= least.newest, f"{state.label}: the topic lost what was promised"
        moments = (
            {name: group.gone_back(newest) for name, group in moment.items()} for moment in self.moments[least.moment :]
        )
        assert shown in moments, f"{state.label}: a moment that never was, or one before {least.moment}"
        self.check_entries(found, shown, state.label)
        if self.rng.random() < 0.5:
            self.check_what_comes_again(found, disk, state.label)

    def least(self, state: PowerLossState) -> Promise:
        level = Level.WRITTEN if state.is_kill else Level.SYNCED
        notes = (note for note in reversed(state.notes) if isinstance(note, Promise) and note.level is level)
        return next(notes, Promise(level, ids.FIRST, 0))

    def check_entries(self, found: Topic, shown: Moment, label: str) -> None:
        """Each entry is acknowledged, pending or yet to be delivered, and none is held that the topic lost."""
        for name, group in shown.items():
            pending = {one.id for one in group.pending}
            assert max(pending | {group.last}) <= found.state.last_id, f"{label}: an id is held that the topic lost"
            for id, _ in found.read(ids.FIRST)[0]:
                is_done = (name, id) in self.acked or id in self.deleted or id <= self.start_of(name)
                assert is_done or id in pending or id > group.last, f"{label}: {ids.show(id)!r} was skipped"

    def start_of(self, name: bytes) -> EntryId:
        """The last id that a group was ever made with: what is before it was never for the group."""
        made = (after[name].last for before, after in pairwise(self.moments) if name in after and name not in before)
        return max(made, default=ids.FIRST)

    def check_what_comes_again(self, found: Topic, disk: PowerLoss, label: str) -> None:
        """Ids that were lost come again, and go to every group also when the power goes once more."""
        come = [found.add([b"after", b"it"], EntryId(found.state.last_id + STEP)) for _ in range(2)]
        found.push()
        found.log.wait(come[-1][1], Level.SYNCED)  # type: ignore[union-attr, arg-type]
        again = {id for id, _ in come}
        for state in islice(disk.states(per_point=2, at=disk.points), 1, 3):
            second = self.opened(PowerLoss(state.files.contents()))
            for name, group in seen(second.groups).items():
                assert not again & {one.id for one in group.pending}, f"{label}: {name!r} holds an id of before"
                got = {id for id, _ in second.groups.deliver(name, b"ann").entries}
                assert again <= got, f"{label}; {state.label}: {name!r} skipped what came again"


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_no_power_cut_skips_an_entry_or_breaks_a_promise_of_groups(policy: str) -> None:
    distinct: set[object] = set()
    seed = 0
    while len(distinct) < DISKS:
        distinct.update(hash(each) for each in Story(policy, seed).check())
        seed += 1


# -- mistakes that must be noticed -----------------------------------------------------------------------------------


def _cut_without_a_sync(self: GroupLog) -> None:
    if self._cut_to is not None and self._log is not None and self.state.is_past(self._cut_to):
        self._append(codec.encode_cut(self._cut_to))
        self.state.cut(self._cut_to)
    self._cut_to = None


class _Unsynced:
    """A disk of which nothing is ever synced."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def create(self, path: str) -> Any:
        file = self._files.create(path)
        file.sync = lambda: None  # type: ignore[method-assign]
        return file

    def sync_folder(self, folder: str) -> None:
        pass


def _stage_without_a_sync(stage: Callable[..., int]) -> Callable[..., int]:
    return lambda files, *more, **facts: stage(_Unsynced(files), *more, **facts)


def _put_in_place_without_a_sync(put: Callable[..., None]) -> Callable[..., None]:
    return lambda files, *more: put(_Unsynced(files), *more)


def _snapshot_of_a_second_ago(load: Callable[..., Any]) -> Callable[..., Any]:
    return lambda batches, before=None: load(batches, before and before - 10**9)


def _deliver_as_acknowledged(deliver: Callable[..., Shown]) -> Callable[..., Shown]:
    def changed(self: Groups, group: bytes, consumer: bytes, count: int | None = None, *, noack: bool = False) -> Shown:
        return deliver(self, group, consumer, count, noack=True)

    return changed


def _settle_at_once(self: GroupLog, position: int) -> None:
    self.push()


def _cut_last_ids_only(self: State, last: EntryId) -> None:
    for group in self.groups.values():
        group.last_id = min(group.last_id, last)


def _forget_consumers(self: State, *facts: Any) -> None:
    group, _, _, last, read, _ = facts
    group.last_id, group.read = last, read


MISTAKES: dict[str, tuple[object, str, object]] = {
    "groups do not go back": (GroupLog, "go_back", lambda self: None),
    "that they went back is not synced": (GroupLog, "_cut", _cut_without_a_sync),
    "files go before the snapshot is synced": (
        group_compaction,
        "stage",
        _stage_without_a_sync(group_compaction.stage),
    ),
    "files go before the snapshot is in its place": (
        rewrite,
        "put_in_place",
        _put_in_place_without_a_sync(rewrite.put_in_place),
    ),
    "the snapshot lacks what came right before it": (
        group_snapshot,
        "load",
        _snapshot_of_a_second_ago(group_snapshot.load),
    ),
    "an entry is acknowledged before it is delivered": (Groups, "deliver", _deliver_as_acknowledged(Groups.deliver)),
    "an answer does not wait for the disk": (GroupLog, "settle", _settle_at_once),
    "lost ids stay pending": (State, "cut", _cut_last_ids_only),
    "a delivery is not kept as pending": (State, "deliver", _forget_consumers),
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_would_be_noticed(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MISTAKES[mistake])
    seen = r"never was|was skipped|came again|an id|lost what was promised|\.dat, byte"
    with pytest.raises((AssertionError, Corruption), match=seen):
        for seed in range(40):
            for _ in Story("always", seed).check():
                pass
