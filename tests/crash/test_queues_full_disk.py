"""Queues that were opened on a full disk begin their log with the first record: no power cut then, or later, loses a
message that was acknowledged to its sender, or brings back one that was acknowledged by its recipient."""

from __future__ import annotations

import pytest

from lamina.clock import ManualClock
from lamina.engines.queues.dumping import Dumper
from lamina.engines.queues.opening import open_engine
from lamina.engines.queues.options import QueueOptions
from lamina.errors import DiskFull
from lamina.log.files import Files
from lamina.testing import PowerLoss
from lamina.testing.powerloss import Model

OPTIONS = QueueOptions(store="memory")


def _bodies(files: Files) -> list[bytes | None]:
    engine = open_engine("q", files=files, clock=ManualClock(), options=OPTIONS, threaded=False)
    (queue,) = engine.state.queues.values()
    return [message.body for message in engine.messages.messages(queue)]


@pytest.mark.parametrize("model", ["strict", "journalled"])
@pytest.mark.parametrize("free", [0, 60])
def test_no_power_cut_loses_what_was_answered_when_the_log_was_begun_late(model: Model, free: int) -> None:
    disk, clock = PowerLoss(model=model), ManualClock()
    engine = open_engine("q", files=disk, clock=clock, options=OPTIONS, threaded=False)
    queue, made = engine.create()
    engine.settle(made)
    engine.settle(engine.send(queue, b"old")[1])
    disk.drop_locks()
    since = disk.points
    disk.note([b"old"])
    for _ in range(2):
        disk.size = disk.room("").size - disk.room("").free + free if disk.size is None else disk.size
        engine = open_engine("q", files=disk, clock=clock, options=OPTIONS, threaded=False)
        (queue,) = engine.state.queues.values()
        with pytest.raises(DiskFull):
            engine.settle(engine.send(queue, b"refused" * 20)[1])
        disk.drop_locks()
    engine = open_engine("q", files=disk, clock=clock, options=OPTIONS, threaded=False)
    disk.size = None
    expected: list[bytes] = [b"old"]
    for number in range(3):
        (queue,) = engine.state.queues.values()
        body = b"new%d" % number
        engine.settle(engine.send(queue, body)[1])
        expected.append(body)
        disk.note(list(expected))
        if number == 1:
            dumper = Dumper(engine, disk, "q", clock, ttl=0)
            dumper.dump()
    count = 0
    for state in disk.states(per_point=6):
        if state.point < since:
            continue
        count += 1
        promised = state.notes[-1]
        found = _bodies(state.files)
        assert isinstance(promised, list)
        assert found[: len(promised)] == promised, f"{state.label}: {found}"
        assert len(found) <= len(promised) + 1, f"{state.label}: {found}"
    assert count > 30
