"""Power cuts while topics are made, deleted and renamed: each is whole, under one name, and what was told holds.

Every topic that is ever made is marked by its first entry, so that it is known under whatever name it turns up. Before
each step the disk notes which topics there are and what of them was promised; a disk that a cut leaves has to show that
moment, or one within the step that was under way.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from lamina.engines.topics import ids
from lamina.engines.topics.gone import GoneFolders
from lamina.engines.topics.topics import Topics
from lamina.log import ALWAYS, OS, Level, LogOptions, Sync, interval
from lamina.log import index as indexes
from lamina.log.commit import FolderSyncs
from lamina.log.files.memory import MemoryFiles
from lamina.log.index import State
from lamina.log.tail import Tail
from lamina.testing import ManualClock, PowerLoss, PowerLossState

FOLDER = "topics"
DISKS = int(os.environ.get("LAMINA_DISKS", "800")) * int(os.environ.get("LAMINA_CAMPAIGN", "1"))
POLICIES: dict[str, Sync] = {"always": ALWAYS, "interval": interval(1000), "os": OS}
NAMES = (b"a", b"b", b"c/d")
STEPS = 25

Whole = tuple[bytes, ...]
"""All values of a topic; the first marks it."""


class Kept(NamedTuple):
    """A topic under a name."""

    values: Whole
    written: int
    """So many of them a killed server finds again."""
    synced: int
    """And so many are there after a power cut."""


Catalog = dict[bytes, Kept]


class Step(NamedTuple):
    """What was there when a step began, and which names it is about: each of their topics may go, or move."""

    before: Catalog
    going: frozenset[bytes]
    moves: tuple[bytes, bytes] | None = None
    """Old name and new name."""


class Story:
    """Random commands on a catalog."""

    def __init__(self, policy: str, seed: int) -> None:
        self.rng, self.clock = random.Random(seed), ManualClock()
        self.disk = PowerLoss(model="journalled" if seed % 4 == 3 else "strict")
        self.options = LogOptions(sync=POLICIES[policy], segment_bytes=300)
        self.most_handles = 1 if seed % 2 else None
        """One: to open a topic another one is closed first, unless somebody uses it."""
        self.catalog: Catalog = {}
        self.made = 0
        self.topics = self.opened(self.disk)
        for _ in range(STEPS):
            self.clock.advance(self.rng.choice([0, 0.001, 0.5]))
            self.step()
        self.begin()
        self.topics.close()
        for name, kept in self.catalog.items():
            self.promise(name, kept.values, Level.SYNCED)
        self.begin()

    def opened(self, files: MemoryFiles) -> Topics:
        return Topics.open(
            FOLDER,
            files=files,
            clock=self.clock,
            options=self.options,
            threaded=False,
            most_handles=self.most_handles,
        )

    def begin(self, going: frozenset[bytes] = frozenset(), moves: tuple[bytes, bytes] | None = None) -> None:
        self.disk.note(Step(dict(self.catalog), going, moves))

    def promise(self, name: bytes, values: Whole, level: Level) -> None:
        synced = len(values) if level is Level.SYNCED else self.catalog[name].synced
        self.catalog[name] = Kept(values, len(values), synced)

    # -- telling -----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        act = self.rng.random()
        name = self.rng.choice(NAMES)
        if act < 0.55 or not self.catalog:
            self.add(name)
        elif act < 0.7:
            self.begin(going=frozenset([name]))
            assert self.topics.delete(name) == (name in self.catalog)
            self.catalog.pop(name, None)
        elif act < 0.88:
            self.rename(self.rng.choice([*self.catalog]), name)
        elif act < 0.92:
            self.begin(going=frozenset(NAMES))
            self.topics.delete_all()
            self.catalog.clear()
        else:
            self.begin()
            self.topics.sweep()
        self.begin()

    def add(self, name: bytes) -> None:
        """Entries that are promised at once, or when the topic is closed."""
        topic = self.topics.get_or_make(name)
        values, position = self.catalog[name].values if name in self.catalog else (), 0
        for _ in range(self.rng.choice([1, 1, 3])):
            self.made += 1
            value = b"%d." % self.made + bytes(self.rng.choice([3, 40, 150]))
            position = topic.add([b"f", value])[1]
            values = (*values, value)
        kept = self.catalog.get(name, Kept((), 0, 0))
        self.catalog[name] = Kept(values, kept.written, kept.synced)
        self.begin()  # from here on they may be there
        if self.rng.random() < 0.7:
            topic.settle(position)
            self.promise(name, values, self.options.sync.level)

    def rename(self, old: bytes, new: bytes) -> None:
        if old == new:
            return
        self.begin(going=frozenset([new]), moves=(old, new))
        self.topics.rename(old, new)
        self.catalog[new] = self.catalog.pop(old)
        self.promise(new, self.catalog[new].values, Level.SYNCED)  # it was closed

    # -- checking ----------------------------------------------------------------------------------------------------

    def check(self, share: float = 0.05) -> Iterator[object]:
        """Some of the disks, all over the story: there are thousands."""
        for state in self.disk.states(per_point=8, seed=self.rng.randrange(1 << 30)):
            if self.rng.random() < share:
                self.check_disk(state)
                yield tuple(sorted(state.files.contents().items()))

    def check_disk(self, state: PowerLossState) -> None:
        state.files.make_folder(FOLDER)
        topics = self.opened(state.files)
        found = {name: self.values(topics, name) for name in topics.names()}
        marks = [values[0] for values in found.values()]
        assert len(marks) == len(set(marks)), f"{state.label}: a topic is there twice"
        step = next((note for note in reversed(state.notes) if isinstance(note, Step)), Step({}, frozenset()))
        for name, values in found.items():
            whole = self.possible(step, name, values[0], state.label)
            assert whole[: len(values)] == values, f"{state.label}: {name!r} has what it never had"
        for name, kept in step.before.items():
            self.check_kept(step, name, kept, found, state)
        topics.sweep()
        assert {name: self.values(topics, name) for name in topics.names()} == found
        assert not [name for name in state.files.list(FOLDER) if name.startswith(".gone")]

    def values(self, topics: Topics, name: bytes) -> Whole:
        topic = topics.get(name)
        assert topic is not None
        values = tuple(fields[1] for _, fields in topic.read(ids.FIRST)[0])
        assert values, "a topic without what it was made with"
        return values

    def possible(self, step: Step, name: bytes, mark: bytes, label: str) -> Whole:
        """All values of the topic with this mark, which may be under ``name`` now."""
        names = [name]
        if step.moves is not None and name == step.moves[1]:
            names.append(step.moves[0])
        for each in names:
            kept = step.before.get(each)
            if kept is not None and kept.values[0] == mark:
                return kept.values
        raise AssertionError(f"{label}: {name!r} is a topic that is not there")

    def check_kept(self, step: Step, name: bytes, kept: Kept, found: dict[bytes, Whole], state: PowerLossState) -> None:
        promised = kept.written if state.is_kill else kept.synced
        if not promised:
            return
        places = [name]
        if step.moves is not None and name == step.moves[0]:
            places.append(step.moves[1])
        there = [found[place] for place in places if place in found and found[place][0] == kept.values[0]]
        if name in step.going and not there:
            return
        assert there, f"{state.label}: {name!r} is gone"
        assert len(there[0]) >= promised, f"{state.label}: {name!r} lost what was promised"


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_no_power_cut_loses_or_doubles_a_topic(policy: str) -> None:
    distinct: set[object] = set()
    seed = 0
    while len(distinct) < DISKS:
        distinct.update(hash(each) for each in Story(policy, seed).check())
        seed += 1


# -- mistakes that must be noticed -----------------------------------------------------------------------------------


def _rename_without_a_sync(self: MemoryFiles, old: str, new: str) -> None:
    self._check_folder(old)
    self.do_rename_all({path: new + path[len(old) :] for path in self.names if path.startswith(old + "/")})
    self.folders = {new + path[len(old) :] if f"{path}/".startswith(old + "/") else path for path in self.folders}


def _rename_file_by_file(self: MemoryFiles, old: str, new: str) -> None:
    for path in [path for path in self.names if path.startswith(old + "/")]:
        self._add_parents(new + path[len(old) :])
        self.do_rename(path, new + path[len(old) :])
    self.folders = {path for path in self.folders if not f"{path}/".startswith(old + "/")}
    self.sync_folder(os.path.dirname(new))


def _remove_at_once(self: GoneFolders, folder: str) -> None:
    self._files.remove_folder(folder)


def _no_names(self: FolderSyncs, files: MemoryFiles, folder: str) -> None:
    return


def _no_sync_when_idle(self: Tail, last_stamp: int, *, with_mark: bool = True) -> None:
    segment = self._active
    if segment is not None and not with_mark:
        segment.index.state = State.CLEAN
        indexes.save(self._files, self._folder, segment.name.name, segment.index)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        (MemoryFiles, "rename_folder", _rename_without_a_sync),
        (MemoryFiles, "rename_folder", _rename_file_by_file),
        (GoneFolders, "take", _remove_at_once),
        (FolderSyncs, "sync_new", _no_names),
        (Tail, "close_in_order", _no_sync_when_idle),
    ],
)
def test_a_mistake_is_noticed(
    owner: type, name: str, mistake: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    with pytest.raises(Exception):  # noqa: B017 - any of the checks, or what cannot even be opened
        for seed in range(20):
            for _ in Story("interval", seed).check(per_point=8):
                pass
