"""Power cuts while a backup heals rot: every content is as rotten as it was, or right; what was promised is healed.

The backup is on a disk that remembers, and that has rotted before the run; the data folder, on a real one, still has
the bytes. A disk that a cut leaves has no content which is neither, and none fewer. Another backup heals the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

import lamina
from lamina.clock import ManualClock
from lamina.log import LogOptions
from lamina.log.files import Files
from lamina.log.sync import ALWAYS
from lamina.pipeline.backing.checking import verify
from lamina.pipeline.backing.collecting import Time
from lamina.pipeline.backing.making import BackupReport, back_up
from lamina.pipeline.backing.place import Backup
from lamina.testing import MemoryFiles, PowerLoss, PowerLossState

BACKUP = "/backup"
CAMPAIGN = int(os.environ.get("LAMINA_CAMPAIGN", "1"))
PER_POINT = 12 * CAMPAIGN
OPTIONS = LogOptions(segment_bytes=400, sync=ALWAYS)


class Story:
    """Two generations whose contents rot, all of them, and a third."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder, self.clock = folder, ManualClock()
        with lamina.open(folder, clock=self.clock, topics=OPTIONS, queue_log=OPTIONS) as data:
            before = MemoryFiles()
            queue = data.queues.create()
            for number in range(2):
                data.topic("t").publish_many([{"n": str(number)}] * 4)
                data.queue(queue.sid).send(b"%d" % number)
                self.back_up(cast(Files, before))
            self.right = {path: data for path, data in before.contents().items() if "/contents/" in path}
            self.rotten = {path: data[:-1] + bytes([data[-1] ^ 1]) for path, data in self.right.items()}
            disk = {**before.contents(), **self.rotten}
            self.disk = PowerLoss(disk, model="journalled" if model == "journalled" else "strict")
            data.topic("t").publish_many([{"n": "2"}])
            self.disk.note(False)
            report = self.back_up(cast(Files, self.disk))
            self.disk.note(True)
        assert report.is_whole and len(report.rot) == len(self.right)

    def back_up(self, files: Files) -> BackupReport:
        self.clock.advance(1)
        return back_up(str(self.folder), BACKUP, files=files, clock=Time(self.clock.now_ns, lambda seconds: None))

    def states(self) -> Iterator[PowerLossState]:
        yield from self.disk.states(per_point=PER_POINT)


@pytest.mark.parametrize("model", ["strict", "journalled"])
def test_a_content_that_is_healed_is_rotten_or_right_and_never_gone(tmp_path: Path, model: str) -> None:
    story = Story(tmp_path / "data", model)
    count = again = some_healed = 0
    for state in story.states():
        count += 1
        found = {path: data for path, data in state.files.contents().items() if path in story.right}
        assert found.keys() == story.right.keys(), state.label
        right = sum(data == story.right[path] for path, data in found.items())
        rotten = sum(data == story.rotten[path] for path, data in found.items())
        assert right + rotten == len(found), state.label
        some_healed += 0 < right < len(found)
        backup = Backup(cast(Files, state.files), BACKUP)
        if state.notes[-1:] == [True]:
            assert not rotten and verify(backup).is_whole, state.label
        if len(backup.names()) == 3:  # committed: then nothing it has is rotten
            assert not rotten, state.label
        if count % 25 == 0:
            again += 1
            assert story.back_up(cast(Files, state.files)).is_whole
            after = verify(backup)
            assert after.is_whole and after.unneeded == 0, (state.label, after.damage)
    assert count > 60 and again > 2 and some_healed > 10
