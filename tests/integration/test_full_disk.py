"""A real server on a small disk that all engines fill: killed, started again, emptied, and going on by itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from integration.console_server import ConsoleServer, until
from integration.resp_wire import Error
from integration.workq_server import Client, add

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")

_SIZE = b"x" * 6000  # of everything: the disk is soon full
_ENDED = 300


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """24 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", "size=24m", "none", str(folder)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


class Lab:
    """One server, and a connection to each of its doors."""

    def __init__(self, folder: Path) -> None:
        flags = ("--sync", "always", "--reserve-bytes", 1 << 20, "--segment-bytes", 500_000, "--queue", "quota=100000")
        self.server = ConsoleServer(folder, *flags)
        self.added = self.entries = self.messages = self.keys = 0
        self.rid = self.sid = b""

    def start(self) -> None:
        self.server.__enter__()
        self.redis, self.workq = self.server.wire(), Client(self.server.ports["workq"])

    def kill(self) -> None:
        self.redis.close()
        self.workq.close()
        self.server.__exit__()

    def new_work(self) -> dict[str, Callable[[], bool]]:
        """Of each engine, and whether it was taken."""
        return {"job": self._add, "entry": self._publish, "message": self._send, "key": self._put}

    def _add(self) -> bool:
        is_taken = self.workq.ask(add(self.added + 1, payload=_SIZE)).startswith(b"+OK")
        self.added += is_taken
        return is_taken

    def _publish(self) -> bool:
        is_taken = not isinstance(self.redis.ask("XADD", "t", "*", "v", _SIZE), Error)
        self.entries += is_taken
        return is_taken

    def _send(self) -> bool:
        is_taken = not isinstance(self.redis.ask("Q.SEND", self.sid, _SIZE), Error)
        self.messages += is_taken
        return is_taken

    def _put(self) -> bool:
        is_taken = not isinstance(self.redis.ask("S.WRITE", 1, "PUT", f"k{self.keys}", _SIZE), Error)
        self.keys += is_taken
        return is_taken

    def fill(self) -> None:
        """Until nobody takes anything any more."""
        while sum(do() for do in self.new_work().values()):
            pass

    def check_all_is_there(self) -> None:
        assert self.redis.ask("XLEN", "t") == self.entries
        assert all(self.workq.inspect_job(number + 1) for number in range(self.added))
        kept = [self.redis.ask("S.GET", 1, f"k{number}") for number in range(self.keys)]
        assert kept == [_SIZE] * self.keys

    def end(self, count: int) -> None:
        """So many jobs, deliveries and messages; the entries of the store go."""
        answers = [(self.workq.lease(), self.workq.complete(number + 1)) for number in range(count)]
        assert answers == [(_SIZE, b"+OK")] * count
        ((_, entries),) = self.redis.ask("XREADGROUP", "GROUP", "g", "c", "COUNT", count, "STREAMS", "t", ">")
        assert [self.redis.ask("XACK", "t", "g", id) for id, _ in entries] == [1] * count
        message = self.redis.ask("Q.GET", self.rid)
        for _ in range(count):
            message = self.redis.ask("Q.ACK", self.rid, message[0])
            assert not isinstance(message, Error), message
        removed = [self.redis.ask("S.WRITE", 1, "DEL", f"k{number}") for number in range(count)]
        assert not any(isinstance(answer, Error) for answer in removed)

    def until_new_work_is_taken(self) -> None:
        for what, do in self.new_work().items():
            until(do, f"{what}: nothing new is taken")


def free(disk: Path) -> int:
    room = os.statvfs(disk)
    return room.f_bavail * room.f_frsize


def fill_by_others(disk: Path) -> None:
    """Until nothing is free."""
    with suppress(OSError), (disk / "other").open("ab", buffering=0) as other:
        while other.write(bytes(4096)):
            pass
    assert free(disk) == 0


@pytest.fixture
def lab(disk: Path) -> Iterator[Lab]:
    lab = Lab(disk / "data")
    lab.start()
    try:
        assert lab.redis.ask("XGROUP", "CREATE", "t", "g", "0", "MKSTREAM") == b"OK"
        lab.rid, lab.sid = lab.redis.ask("Q.NEW")[:2]
        yield lab
    finally:
        lab.kill()


def test_a_disk_that_all_engines_fill_is_emptied_after_a_kill_and_new_work_is_taken_again(lab: Lab, disk: Path) -> None:
    lab.fill()
    counts = (lab.added, lab.entries, lab.messages, lab.keys)
    assert min(counts) > _ENDED and max(counts) - min(counts) < 20, "all stop together"
    assert free(disk) > 1 << 20 and (disk / "data" / "reserve").stat().st_size == 1 << 20
    found = lab.server.get("/readyz")
    assert found.status == 503 and "the disk is full" in found.json()["problems"]["disk"]
    lab.kill()
    lab.start()
    lab.check_all_is_there()
    assert not any(do() for do in lab.new_work().values())
    lab.end(_ENDED)
    assert (disk / "data" / "reserve").exists(), "it was not needed"
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
    lab.until_new_work_is_taken()
    until(lambda: lab.server.get("/readyz").status == 200, "it is not well again")


def test_a_server_starts_with_nothing_free_and_goes_on_when_there_is_room(lab: Lab, disk: Path) -> None:
    for _ in range(50):
        assert all(do() for do in lab.new_work().values())
    fill_by_others(disk)
    lab.end(20)  # in the room of the reserve
    assert not any(do() for do in lab.new_work().values())
    lab.kill()
    (disk / "data" / "reserve").unlink(missing_ok=True)
    fill_by_others(disk)
    lab.start()
    assert lab.redis.ask("XLEN", "t") == lab.entries
    assert lab.redis.ask("S.GET", 1, "k30") == _SIZE and lab.redis.ask("S.GET", 1, "k3") is None
    assert not any(do() for do in lab.new_work().values())
    found = lab.server.get("/readyz")
    assert found.status == 503 and "the disk is full: 0 B" in found.json()["problems"]["disk"]
    (disk / "other").unlink()
    lab.until_new_work_is_taken()
    until(lambda: lab.server.get("/readyz").status == 200, "it is not well again")


def test_a_new_server_on_a_full_disk_starts_says_so_and_begins_when_there_is_room(disk: Path) -> None:
    fill_by_others(disk)
    lab = Lab(disk / "data")
    lab.start()
    try:
        assert "the disk is full: 0 B" in lab.server.get("/readyz").json()["problems"]["disk"]
        assert b"the disk is full" in lab.redis.ask("Q.NEW") and not lab._add() and not lab._publish()
        (disk / "other").unlink()
        until(lambda: lab.server.get("/readyz").status == 200, "it is not well")
        lab.rid, lab.sid = lab.redis.ask("Q.NEW")[:2]
        lab.until_new_work_is_taken()
    finally:
        lab.kill()
