"""Every number that comes in at the workq door: nothing breaks, nothing beyond 64 bits goes out, and the jobs are the
same after a restart, with a checkpoint and without one."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.upkeep import Upkeep
from lamina.server.workq.commands import STATES
from lamina.server.workq.door import WorkqDoor
from lamina.testing import FaultyFiles, MemoryFiles
from unit.test_jobs_refused import Lab, connected

MOST = (1 << 63) - 1
DAY_MS = 86_400_000
EDGES = (0, 1, 255, 1000, DAY_MS, 30 * DAY_MS, 1 << 20, 1 << 31, 1 << 32, 1 << 42, 1 << 62, 1 << 63, 1 << 64, 10**30)
NUMBERS = sorted({sign * (edge + near) for edge in EDGES for near in (-1, 0, 1) for sign in (1, -1)})
TIMES = [
    *("0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999999999Z", "1970-01-01T00:00:00Z", "2023-11-14T22:13:21Z"),
    *("2262-04-11T23:47:16.854775807Z", "2262-04-11T23:47:16.854775808Z", "9999-12-31T23:59:59.999999999Z"),
]
# j the id of a job, n number, t time, d a state
TEMPLATES = [
    *(["add j q n n"] * 2 + ["add j q 1000 3600000 -priority=n -max-attempts=n -max-fails=n -backoff=n"] * 2),
    *(["schedule j q n n t", "schedule j q 1000 3600000 t"] + ["add j q 1000 3600000"] * 2 + ["run j q n n"]),
    *(["lease q 0", "lease q n", "lease q 0 -max=n -attempts=n", "complete j", "fail j", "bury j", "delete j"]),
    *("result j 0", "result j n", "touch j n", "release j n", "redrive j", "redrive q n", "pause q", "resume q"),
    *("inspect server", "inspect queues n n", "inspect queue q", "inspect jobs q n n", "inspect job j"),
    *("inspect scheduled-jobs q n n", "inspect state q d n n", "inspect view j", "inspect views q d n n"),
    "inspect queue-views n n",
]
WITH_PAYLOAD = ("add", "schedule", "run", "complete", "fail", "bury")
_NUMBER = re.compile(rb"(?<![\w.:-])-?\d+(?![\w.:-])")


def id_of(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


@st.composite
def commands(draw: st.DrawFn) -> bytes:
    template = draw(st.sampled_from(TEMPLATES))
    choices: dict[str, Any] = {
        "j": lambda: id_of(draw(st.integers(1, 3))),
        "n": lambda: str(draw(st.sampled_from(NUMBERS) | st.sampled_from((0, 1, 2, 100, 1000)))),
        "t": lambda: draw(st.sampled_from(TIMES)),
        "d": lambda: draw(st.sampled_from(sorted(STATES))),
    }
    words = [choices[word]() if word in choices else word for word in template.split()]
    words = [word[:-1] + choices["n"]() if word.startswith("-") and word.endswith("=n") else word for word in words]
    flags = [word for word in words if "=" in word]
    words = [word for word in words if "=" not in word]
    if words[0] in WITH_PAYLOAD:
        return " ".join([*words, *flags, "1\r\nx\r\n"]).encode()
    return (" ".join([*words, *flags]) + "\r\n").encode()


def state_of(engine: JobEngine) -> dict[bytes, list[object]]:
    names = (
        *("ttr", "ttl", "priority", "max_attempts", "max_fails", "attempts", "fails", "backoff", "state", "at"),
        *("created", "time", "ready_at", "expires", "payload", "result"),
    )
    return {
        job.id: [getattr(job, name) for name in names] for job in engine.state.jobs.values() if not job.is_foreground
    }


async def told(story: list[tuple[bytes, float]]) -> None:
    lab = Lab()
    door = WorkqDoor(lab.engine)
    await asyncio.sleep(0)
    for command, seconds in story:
        connection, line = connected(door)
        connection.data_received(command)
        for _ in range(3):
            await asyncio.sleep(0)
        for number in _NUMBER.findall(line.sent):
            assert abs(int(number)) <= MOST, (command, line.sent)
        connection.connection_lost(None)
        lab.clock.advance(seconds + 0.001)  # or positions, which are times, would be ahead of it after a restart
        lab.engine.tick()
    await door.close()
    lab.engine.all_written()
    before = state_of(lab.engine)
    killed = lab.opened(MemoryFiles(lab.disk.contents()))
    assert state_of(killed) == before
    Upkeep(lab.engine).checkpoint()
    lab.engine.close()
    assert not lab.disk.locks and not lab.disk.handles
    again = lab.opened(FaultyFiles(lab.disk))
    assert state_of(again) == before
    again.close()


@given(st.lists(st.tuples(commands(), st.sampled_from([0.0, 0.0, 0.0, 1.5, 3600.0])), max_size=15))
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_numbers_come_in_jobs_are_the_same_after_a_restart(story: list[tuple[bytes, float]]) -> None:
    asyncio.run(told(story))
