"""No power cut and no kill, at any step of writing, rotating, folding and removing, breaks a promise of the store.

A story is told against a disk that remembers every operation: records, some of them settled, and dumps. Then each disk
that a cut could have left is restored: it must show one of the moments the story went through, none before the last
that was promised. Some are used further, dumped, and cut once more.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import pytest

from lamina.engines.queues import codec, folding, store_files
from lamina.engines.queues.dumping import Dumper
from lamina.engines.queues.restoring import RestoreRefused, restore
from lamina.engines.queues.store_reading import StoreReading
from lamina.log import attest, rewrite
from lamina.log.files import Files, join, write_all
from lamina.log.history import History
from lamina.log.naming import Family
from lamina.log.sync import ALWAYS, OS, Level, Sync
from lamina.log.tail import Tail
from lamina.testing import MemoryFiles, PowerLoss
from lamina.testing.powerloss import Model, PowerLossState
from queues_store_lab import FOLDER, NOW, TTL, Seen, StoreLab, ack, create, delete, id_of, message, seen

STEPS = 14
SHARE = 1.0 if os.environ.get("LAMINA_CAMPAIGN") else 0.4
"""Of the disks of a story, which are hundreds. Which ones, its seed decides; a campaign looks at all."""
PLACES = ["rotated", "saving written", "renamed", "dumps removed", "logs removed"]


class Promise(NamedTuple):
    level: Level
    moment: int


class Stop(BaseException):
    """The process ends here, and runs nothing more."""


class Story:
    """Told as it is made."""

    def __init__(self, seed: int, sync: Sync = ALWAYS, model: Model = "strict", history: History | None = None) -> None:
        self.history = history
        self.rng = random.Random(seed)
        self.sync = sync
        self.disk = PowerLoss(model=model)
        self.disk.make_folder(FOLDER)
        self.lab = StoreLab(self.disk, sync=sync)
        self.moments: list[Seen] = [{}]
        self.number = 0
        self.tell()

    def tell(self) -> None:
        for _ in range(STEPS):
            self.step(self.lab)
        self.lab.engine.close()
        self.promise(Level.SYNCED)

    def promise(self, level: Level) -> None:
        for each in {Level.WRITTEN, level}:
            self.disk.note(Promise(each, len(self.moments) - 1))

    def step(self, lab: StoreLab) -> None:
        lab.clock.advance(0.5)
        if self.rng.random() < 0.25:
            dumper = lab.dumper if self.history is None else lab.make_dumper(history=self.history)
            assert dumper.dump() is not None
            self.promise(Level.SYNCED)
            return
        if self.rng.random() < 0.1:
            self.kill()
            return
        for record in self.records(lab):
            lab.engine.do(record)
            self.moments.append(lab.seen())
        if self.rng.random() < 0.7:
            lab.engine.settle(lab.engine.newest_position())
            self.promise(self.sync.level)

    def kill(self) -> None:
        """The process is killed, and started again: what is served then stays, though it was not synced before."""
        self.disk.drop_locks()
        self.lab = StoreLab(self.disk, sync=self.sync)
        assert self.lab.seen() in self.moments, "a moment that never was"
        self.moments.append(self.lab.seen())
        self.promise(Level.SYNCED)

    def records(self, lab: StoreLab) -> Iterator[bytes]:
        """Some that belong to one call."""
        rng = self.rng
        for _ in range(rng.choice([1, 1, 3])):
            self.number += 1
            name = rng.choice("ab")
            queue = lab.engine.state.queues.get(id_of(name))
            if queue is None:
                yield create(name)
            elif queue.messages and rng.random() < 0.4:
                yield codec.ack(queue.rid, queue.messages[0].id)
            elif rng.random() < 0.06:
                yield delete(name)
            else:
                body = rng.randbytes(rng.choice([3, 200, 900])) if rng.random() < 0.7 else bytes(1200)
                yield message(name, f"m{self.number}", ts=NOW - 10, body=body)

    # -- checking ----------------------------------------------------------------------------------------------------

    def check(self, share: float = 1.0, per_point: int = 8) -> int:
        """Look at the disks. Returns how many they were."""
        count = 0
        for state in self.disk.states(per_point=per_point, seed=self.rng.randrange(1 << 30)):
            if self.rng.random() < share:
                self.check_disk(state)
                count += 1
        return count

    def check_disk(self, state: PowerLossState) -> None:
        disk = PowerLoss(state.files.contents(), self.disk.model)
        disk.make_folder(FOLDER)
        try:
            found = restore(disk, FOLDER, now=NOW, ttl=TTL)
        except RestoreRefused as error:
            raise AssertionError(f"{state.label}: refused a disk that a crash left: {error}") from error
        shown, least = seen(found.state), self.least(state)
        assert shown in self.moments[least:], f"{state.label}: a moment that never was, or one before {least}"
        if self.rng.random() < 0.15:
            self.check_what_follows(disk, shown, state.label)

    def least(self, state: PowerLossState) -> int:
        level = Level.WRITTEN if state.is_kill else Level.SYNCED
        promised = [note.moment for note in state.notes if isinstance(note, Promise) and note.level is level]
        return max(promised, default=0)

    def check_what_follows(self, disk: PowerLoss, shown: Seen, label: str) -> None:
        """What was served once stays, through a dump and through another cut."""
        lab = StoreLab(disk, sync=self.sync)
        assert lab.seen() == shown
        disk.note("served")
        lab.do(create("after it"))
        after = lab.seen()
        assert lab.dumper.dump() is not None
        assert len(lab.names()) == 2, f"{label}: a dump cleans up"
        disk.note("dumped")
        for state in islice(disk.states(per_point=2, seed=self.rng.randrange(1 << 30)), 60):
            if "served" not in state.notes:
                continue
            again = seen(restore(state.files, FOLDER, now=NOW, ttl=TTL).state)
            expected = [after] if "dumped" in state.notes else [shown, after]
            assert again in expected, f"{label}; {state.label}: a second cut took what was served"


def test_l48_power_loss_around_the_rename() -> None:
    """Each sync of one dump, in full."""
    disk = PowerLoss()
    lab = StoreLab(disk)
    lab.do(create("a"), message("a", "m1"))
    lab.dumper.dump()
    lab.do(ack("a", "m1"), message("a", "m2", body=b"x" * 1500))
    promised = lab.seen()
    begin = disk.points
    lab.dumper.dump()
    count = 0
    for point in range(begin, disk.points + 1):
        for state in disk.states(per_point=60, at=point):
            assert seen(restore(state.files, FOLDER, now=NOW, ttl=TTL).state) == promised, state.label
            count += 1
    assert count > 50


@pytest.mark.slow
@pytest.mark.parametrize("sync", [ALWAYS, OS], ids=str)
@pytest.mark.parametrize("model", ["strict", "journalled"])
def test_no_power_cut_breaks_a_promise_of_the_store(sync: Sync, model: Model) -> None:
    assert sum(Story(seed, sync, model).check(SHARE) for seed in range(4)) > 700


def test_no_power_cut_of_one_story_breaks_a_promise() -> None:
    assert Story(1).check(share=0.4) > 30


@pytest.mark.parametrize("keep_s", [1, 3, 1000])
def test_no_power_cut_breaks_a_promise_where_history_is_kept(keep_s: float) -> None:
    story = Story(4, history=History(keep_s))
    assert story.check(share=0.4) > 30
    found = store_files.find(story.disk.list(FOLDER))
    assert len(found.dumps) > 1 or keep_s < 3
    for number in found.dumps:  # each of them, with the logs since, shows what the newest one does
        contents = {
            path: content
            for path, content in story.disk.contents().items()
            if not path.endswith(".dump") or path.endswith(f"-{number}.dump")
        }
        assert seen(restore(MemoryFiles(contents), FOLDER, now=NOW, ttl=TTL).state) == story.moments[-1]


@pytest.mark.parametrize("place", PLACES)
def test_a_kill_at_any_step_of_a_dump_loses_nothing(place: str) -> None:
    disk = PowerLoss()
    lab = StoreLab(disk)
    lab.do(create("a"), message("a", "m1"))
    lab.dumper.dump()
    lab.do(ack("a", "m1"), message("a", "m2"))
    left: dict[str, bytes] = {}

    def stop(name: str) -> None:
        if name == place:
            left.update(disk.contents())  # whatever tidies up behind this has not run
            raise Stop

    with pytest.raises(Stop):
        lab.make_dumper(step=stop).dump()
    for _ in range(2):  # and again: the second start finds what the first one left
        disk = PowerLoss(left)
        again = StoreLab(disk)
        assert again.seen() == lab.seen()
        left = disk.contents()
    assert again.dumper.dump() is not None
    assert len(again.names()) == 2
    assert StoreLab(PowerLoss(disk.contents())).seen() == lab.seen()


# -- mistakes that must be noticed -----------------------------------------------------------------------------------


def _replace(*, syncs_file: bool, syncs_folder: bool) -> Callable[..., None]:
    def replace(
        files: Files, folder: str, name: str, chunks: Iterator[bytes], family: Family, sync_every: int = 0
    ) -> None:
        temporary = join(folder, name + family.temporary_suffix)
        if temporary.rpartition("/")[2] in files.list(folder):
            files.remove(temporary)
        file = files.create(temporary)
        for chunk in chunks:
            write_all(file, [chunk])
        if syncs_file:
            file.sync()
        file.close()
        files.rename(temporary, join(folder, name))
        if syncs_folder:
            files.sync_folder(folder)

    return replace


class _Rewrite:
    """The module with a mistake in it."""

    def __init__(self, replace: Callable[..., None]) -> None:
        self.replace, self.remove = replace, rewrite.remove


def _removing_first(dump: Callable[[Dumper], object]) -> Callable[[Dumper], object]:
    def changed(self: Dumper) -> object:
        def step(name: str) -> None:
            if name == "saving written":
                found = store_files.find(self._files.list(self._folder))
                self._remove([store_files.dump_name(each) for each in found.dumps])

        self._step = step
        return dump(self)

    return changed


def _begin_without_a_sync(begin: Callable[[Tail], str | None]) -> Callable[..., str | None]:
    def changed(self: Tail, *name: object) -> str | None:
        self.sync = lambda: setattr(self, "synced", self.written)  # type: ignore[method-assign]
        try:
            return begin(self, *name)
        finally:
            del self.sync

    return changed


MISTAKES: dict[str, tuple[object, str, object]] = {
    "a dump is not synced": (folding, "rewrite", _Rewrite(_replace(syncs_file=False, syncs_folder=True))),
    "its name is not synced": (folding, "rewrite", _Rewrite(_replace(syncs_file=True, syncs_folder=False))),
    "what is served was not synced": (StoreReading, "sync", lambda self: None),
    "a log is sealed without a sync": (Tail, "begin", _begin_without_a_sync(Tail.begin)),
    "a torn tail is refused": (attest, "_has_unwritten_sector", lambda file, start, end: False),
    "the old dump goes before the new one is there": (Dumper, "_dump", _removing_first(Dumper._dump)),
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_would_be_noticed(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, value = MISTAKES[mistake]
    monkeypatch.setattr(owner, name, value)
    with pytest.raises((AssertionError, RestoreRefused), match=r"never was|refused|second cut|missing"):
        # That what is served was not synced, the first seven do not show.
        for seed in range(10, 22) if "served" in mistake else range(12):
            Story(seed, OS if "sealed" in mistake or "torn" in mistake or "served" in mistake else ALWAYS).check()
