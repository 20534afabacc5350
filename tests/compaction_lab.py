"""Histories of a store by chance, and the two ways to compact them: in one process, and in tasks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lamina.engines.elsewhere import Stopper
from lamina.engines.store import codec, compaction_progress
from lamina.engines.store.catalog import Catalog
from lamina.engines.store.codec import ADD, CLEAR, DROP
from lamina.engines.store.compacting import compact
from lamina.engines.store.compaction_task import Outcome, Task
from lamina.errors import LaminaError
from lamina.log import kernel
from lamina.log.files import Files
from lamina.log.formats import PWAL
from lamina.pipeline.compaction.distributed import compact_with
from lamina.pipeline.compaction.plan import Sizes
from lamina.pipeline.running import LocalRunner, Runner
from lamina.testing import MemoryFiles

FOLDER = "store"


def elsewhere(files: Files, task: Task, sizes: Sizes | None = None, runner: Runner | None = None) -> Outcome:
    return compact_with(runner or LocalRunner(), sizes)(files, task, lambda done, total: None, Stopper())


@dataclass
class History:
    """A folder with rotated files, written by chance, compacted again and again."""

    chance: random.Random
    disk: MemoryFiles = field(default_factory=lambda: MemoryFiles({f"{FOLDER}/lamina.lock": b""}))
    catalog: Catalog = field(default_factory=Catalog)
    epoch: int = 0
    time_ns: int = 1_000_000
    keys: int = 40

    def payload(self, floor: int) -> bytes:
        chance = self.chance
        storage, key = chance.choice([1, 1, 2, 1 << 63]), self.key()
        major, minor = chance.randint(floor, max(floor, self.epoch) + 3), chance.randint(0, 5)
        kind = chance.random()
        if kind < 0.7:
            value = chance.choice([b"", b"v" * chance.randint(0, 40), b"w" * chance.randint(100, 400), forged(chance)])
            return codec.put(storage, key, value, major, minor)
        if kind < 0.97:
            return codec.remove(storage, key, major, minor)
        return codec.about_storage(chance.choice([CLEAR, ADD, DROP]), storage, major, minor)

    def key(self) -> bytes:
        number = self.chance.randrange(self.keys)
        return b"" if number == 0 else b"key %d" % number if number % 3 else b"%d" % number * 5

    def session(self, epoch: int, floor: int, most: int = 12) -> bytes:
        entries = [self.payload(floor) for _ in range(self.chance.randint(0, most))]
        return self.records([codec.begin(epoch), *entries, codec.end(epoch, len(entries))])

    def records(self, payloads: Sequence[bytes]) -> bytes:
        made = kernel.encode_many(self.time_ns, payloads)
        self.time_ns += len(payloads)
        return made

    def generation(self, most_sessions: int = 25, **facts: Any) -> Task:
        """Files of some channels, and what to do with them."""
        chance = self.chance
        first = self.epoch
        floor = self.catalog.epoch + 1
        inputs = []
        until = first + 10
        for channel in range(chance.randint(1, 4)):
            epoch, made = max(first - 2, 0), [PWAL.header]
            for _ in range(chance.randint(0, most_sessions)):
                epoch = max(epoch + chance.randint(0, 1), 1)
                self.epoch = epoch
                made.append(self.session(epoch, floor, chance.choice([0, 3, 12, 60])))
                if chance.random() < 0.2:
                    made.append(self.records([PWAL.watermark(self.time_ns)]))
            name = f"pwal_{channel:04d}.{until:014d}.{until}"
            self.disk.write(f"{FOLDER}/{name}", b"".join(made) + self.tail(max(epoch, until)))
            inputs.append(name)
        self.epoch = until
        task = Task(
            folder=FOLDER,
            inputs=tuple(inputs),
            after=self.catalog.epoch,
            until=until,
            voids=((first + 4, first + 5),),
            catalog=self.catalog,
            generation=self.catalog.generation + 1,
            memory_bytes=chance.choice([1, 2000, 20_000, 1 << 30]),
            part_bytes=chance.choice([1, 100, 700, 3000, 20_000, 1 << 30]),
        )
        return replace(task, **facts)

    def tail(self, until: int) -> bytes:
        """What a crash may leave, or nothing."""
        whole = self.session(until + 1, until + 1)
        return self.chance.choice([b"", b"", whole, whole[:-1], whole[: len(whole) // 2], bytes(50)])

    def commit(self, task: Task, outcome: Outcome) -> None:
        self.catalog = Catalog(task.generation, task.until, outcome.parts, outcome.storages)

    def sizes(self) -> Sizes:
        chance = self.chance
        return Sizes(chance.choice([200, 500, 3000, 0]), chance.choice([1, 7, 100, 0]), chance.choice([1, 2, 3, 128]))


def forged(chance: random.Random) -> bytes:
    """A value with whole records of a session in it."""
    payloads = [codec.begin(chance.randint(1, 9)), codec.put(1, b"forged", b"value", 99, 0), codec.end(3, 1)]
    return kernel.encode_many(5_000_000, payloads[: chance.randint(1, 3)])


def parts_of(disk: MemoryFiles) -> dict[str, bytes]:
    """What counts, and what might: all but locks and notes of how far a compaction came."""
    names = (f"{FOLDER}/compaction_progress", f"{FOLDER}/compaction.lock")
    return {name: content for name, content in disk.contents().items() if name not in names}


def both(disk: MemoryFiles, task: Task, sizes: Sizes) -> Outcome | str:
    """The same task both ways, seen to be equal: the outcome or the error, and what is on the disk behind it."""
    twin = MemoryFiles(disk.contents())
    before = parts_of(twin)
    alone = attempt(lambda: compact(disk, task))
    shared = attempt(lambda: elsewhere(twin, task, sizes))
    assert shared == alone
    if isinstance(alone, Outcome):
        compaction_progress.remove(disk, FOLDER)
        assert parts_of(twin) == parts_of(disk)
    else:  # nothing is left, not even what one process would go on from
        assert parts_of(twin) == before
    return alone


def attempt(run: Callable[[], Outcome]) -> Outcome | str:
    try:
        return run()
    except LaminaError as error:
        return repr((type(error), error.as_dict()))
