"""What health, metrics and INFO say of a disk that refuses all writes, and of one that is full."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from http_lab import HttpLab
from integration.resp_wire import Error
from integration.workq_server import add
from lamina.log.files import Room
from lamina.log.files.real import RealFiles
from lamina.testing import FaultyFiles
from waiting import wait_until


class Lab(HttpLab):
    """Something of each engine can be written."""

    def __init__(self, folder: Path, queues: str, **settings: object) -> None:
        self.disk = FaultyFiles(RealFiles())
        super().__init__(folder, queues=queues, files=self.disk, **settings)
        self.jobs, self.sid = 0, b""

    def write(self) -> list[bool]:
        """Whether it was taken: by the jobs, the topics, the queues, the store."""
        self.sid = self.sid or self.redis("Q.NEW")[1]
        self.jobs += 1
        answers = [
            self.redis("XADD", "t", "*", "f", "v"),
            self.redis("Q.SEND", self.sid, "m"),
            self.redis("S.WRITE", 1, "PUT", "k", "v"),
        ]
        return [self.workq.ask(add(self.jobs)).startswith(b"+OK"), *(not isinstance(one, Error) for one in answers)]

    def health(self) -> tuple[int, int, dict[str, str]]:
        """Of /healthz and /readyz, and what is wrong."""
        ready = self.request("GET", "/readyz")
        return self.request("GET", "/healthz").status, ready.status, ready.json()["problems"]


@pytest.mark.parametrize("queues", ["memory", "journal"])
def test_a_disk_that_refuses_all_writes_turns_health_red_until_one_gets_through(tmp_path: Path, queues: str) -> None:
    with Lab(tmp_path, queues) as lab:
        assert lab.write() == [True] * 4
        assert lab.health() == (200, 200, {})
        lab.disk.fail("append", error=errno.EIO, times=1 << 40)
        assert lab.write() == [False] * 4
        alive, ready, problems = lab.health()
        assert (alive, ready) == (503, 503)
        messages = "queues" if queues == "memory" else "queue messages"
        assert problems.keys() == {"jobs", "topics", messages, "store"}
        assert all("Input/output error" in reason for reason in problems.values())
        lab.disk.heal()
        wait_until(lambda: lab.write() == [True] * 4)
        assert lab.health() == (200, 200, {})


def test_a_full_disk_is_one_problem_and_shown_by_metrics_and_info(tmp_path: Path) -> None:
    room = [Room(1 << 30, 1 << 29)]
    settings = {"server.reserve_bytes": "100000", "server.low_water_bytes": "200000"}
    with pytest.MonkeyPatch.context() as patched, Lab(tmp_path, "memory", **settings) as lab:
        assert lab.write() == [True] * 4
        patched.setattr(RealFiles, "room", lambda self, folder: room[0])
        room[0] = Room(1 << 30, 199_999)
        wait_until(lambda: lab.health()[1] == 503)
        assert lab.write() == [False] * 4
        alive, _, problems = lab.health()
        assert alive == 200, "a new start would not help"
        assert problems.keys() == {"disk"} and "nothing new is taken" in problems["disk"]
        shown = lab.request("GET", "/metrics").text
        for line in ("lamina_disk_low_water_bytes 200000", "lamina_disk_reserve_bytes 100000", "lamina_disk_is_full 1"):
            assert line in shown
        info = lab.redis("INFO", "disk")
        assert b"disk_is_full:1" in info and b"disk_low_water_bytes:200000" in info
        assert b"disk_reserve_bytes:100000" in info
        room[0] = Room(1 << 30, 1 << 29)
        wait_until(lambda: lab.write() == [True] * 4)
        assert lab.health() == (200, 200, {})
