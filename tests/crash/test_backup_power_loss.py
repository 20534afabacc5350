"""Power cuts while a backup is made and pruned: former generations are whole, the new one is whole or not there.

The data folder is on a real disk, the backup on one that remembers. After each generation, and before and behind each
pruning, it is noted which generations are promised; a disk that a cut leaves has to have those, whole, and none that is
not whole. Then a backup to that very disk has to succeed, and leave nothing over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

import lamina
from lamina.clock import ManualClock
from lamina.errors import LaminaError
from lamina.log import LogOptions
from lamina.log.files import Files
from lamina.log.sync import ALWAYS
from lamina.pipeline.backing.checking import check_generation, verify
from lamina.pipeline.backing.collecting import Time
from lamina.pipeline.backing.making import back_up
from lamina.pipeline.backing.place import Backup, is_backup
from lamina.pipeline.backing.pruning import prune
from lamina.testing import PowerLoss, PowerLossState

BACKUP = "/backup"
CAMPAIGN = int(os.environ.get("LAMINA_CAMPAIGN", "1"))
PER_POINT = 12 * CAMPAIGN
OPTIONS = LogOptions(segment_bytes=400, sync=ALWAYS)

Promised = frozenset[str]


class Story:
    """Three generations, and two prunings."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder, self.clock = folder, ManualClock()
        self.disk = PowerLoss(model="journalled" if model == "journalled" else "strict")
        self.promised: Promised = frozenset()
        with lamina.open(folder, clock=self.clock, topics=OPTIONS, queue_log=OPTIONS) as data:
            queue = data.queues.create()
            for number in range(3):
                data.topic("t").publish_many([{"n": str(number)}] * (5 - number))
                data.queue(queue.sid).send(b"%d" % number)
                if number:
                    data.queues.dump()  # so that there is something which only the generation before has
                self.note(self.promised)
                self.note(self.promised | {self.back_up(cast(Files, self.disk))})
                if number:
                    staying = frozenset([max(self.promised)])
                    self.note(staying)  # the others may go from here on
                    prune(Backup(cast(Files, self.disk), BACKUP), 1)
        self.disk.note(None)

    def back_up(self, files: Files) -> str:
        self.clock.advance(1)
        clock = Time(self.clock.now_ns, lambda seconds: None)
        return back_up(str(self.folder), BACKUP, files=files, clock=clock).generation

    def note(self, promised: Promised) -> None:
        self.promised = promised
        self.disk.note(promised)

    def states(self) -> Iterator[PowerLossState]:
        yield from self.disk.states(per_point=PER_POINT)


@pytest.mark.parametrize("model", ["strict", "journalled"])
def test_former_generations_are_whole_and_a_new_one_is_whole_or_not_there(tmp_path: Path, model: str) -> None:
    story = Story(tmp_path / "data", model)
    count, again = 0, 0
    for state in story.states():
        count += 1
        files = cast(Files, state.files)
        promised = next((note for note in reversed(state.notes) if note is not None), frozenset())
        assert isinstance(promised, frozenset)
        if not is_backup(files, BACKUP):
            assert not promised, state.label
            continue
        backup = Backup(files, BACKUP)
        there = {name.removesuffix(".json") for name in backup.names()}
        assert promised <= there, (state.label, promised, there)
        for name in backup.names():
            try:
                check_generation(backup, backup.load(name))
            except LaminaError as error:
                raise AssertionError(f"{state.label}: {name} is there and not whole: {error}") from error
        if count % 40 == 0:  # and it goes on from there
            again += 1
            made = story.back_up(files)
            found = verify(backup)
            assert found.is_whole and found.unneeded == 0, (state.label, found.damage)
            assert {*promised, made} <= {name.removesuffix(".json") for name in backup.names()}
            assert not [path for path in state.files.contents() if path.endswith((".new", ".tmp"))]
    assert count > 100 and again > 2
