"""Publishing from Spark to a real server, and drivers and servers that are killed meanwhile."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed")
pa = pytest.importorskip("pyarrow", reason="Arrow is not installed")


import sink_lab as lab  # noqa: E402
from integration.lamina_server import LaminaServer  # noqa: E402
from integration.workq_server import Server  # noqa: E402
from lamina.client.resp import RespClient  # noqa: E402
from lamina.errors import (  # noqa: E402
    LaminaError,
    StorageError,
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@contextmanager
def a_server(folder: Path, *flags: object) -> Iterator[LaminaServer]:
    with LaminaServer(folder, *flags) as server:
        yield server


def to(server: LaminaServer, more: Mapping[str, str]) -> dict[str, str]:
    return {"server": f"127.0.0.1:{server.port}", **more}


def left(place: Path) -> list[str]:
    """What is staged."""
    return sorted(path.name for path in place.glob("_tmp/*"))


# -- drivers that are killed -------------------------------------------------------------------------------------------


class Drivers:
    """Starts drivers, one after the other, and kills them."""

    def __init__(self) -> None:
        words = [sys.executable, str(Path(lab.__file__))]
        places = os.pathsep.join([str(Path(lab.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": places}
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def run(self, options: Mapping[str, str], log: Path, seconds: float | None) -> bool:
        """True: it ended by itself."""
        assert self._process.stdin is not None
        words = [str(log), *(f"{name}={value}" for name, value in options.items())]
        print(*words, file=self._process.stdin, flush=True)
        child = int(self._line())
        if seconds is not None:
            time.sleep(seconds)
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        code = int(self._line())
        assert code in (0, -signal.SIGKILL), "the driver failed"
        return code == 0

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0
        self._process.stdout.close()


@pytest.fixture(scope="module")
def drivers() -> Iterator[Drivers]:
    made = Drivers()
    yield made
    made.close()


def drive_and_kill(drivers: Drivers, options: Mapping[str, str], log: Path, seed: int, kills: int = 25) -> int:
    """Returns how many were killed on their way."""
    chance, killed = random.Random(seed), 0
    while killed < kills:
        if drivers.run(options, log, chance.uniform(0.01, 0.12)):
            break
        killed += 1
    drivers.run(options, log, None)
    return killed


def test_drivers_are_killed_and_every_entry_is_in_the_folder_once(tmp_path: Path, data: Path, drivers: Drivers) -> None:
    killed = drive_and_kill(drivers, {"path": str(data)}, tmp_path / "log", seed=1)
    for topic in lab.TOPICS:
        assert lab.values(data, topic) == lab.expected(topic)
    assert killed >= 3
    assert not left(data)


@pytest.mark.parametrize("sync", ["always", "os"])
def test_drivers_are_killed_and_every_entry_is_on_the_server_once(tmp_path: Path, drivers: Drivers, sync: str) -> None:
    with a_server(tmp_path / "served", "--sync", sync) as server:
        options = {"server": f"127.0.0.1:{server.port}", "stagingPath": str(tmp_path / "staging")}
        killed = drive_and_kill(drivers, options, tmp_path / "log", seed=2)
        for topic in lab.TOPICS:
            assert lab.served(server.port, topic) == lab.expected(topic)
    assert killed >= 3
    assert not left(tmp_path / "staging")


# -- to a server -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LaminaServer]:
    with a_server(tmp_path_factory.mktemp("served")) as made:
        yield made


def test_others_publish_at_the_same_time(tmp_path: Path, server: LaminaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk broke off in the middle, between entries of others; commands of it are still on their way."""
    from lamina.pipeline.sinking.sink_server import ServerOutlet

    options = {"server": f"127.0.0.1:{server.port}", "stagingPath": str(tmp_path)}
    true_ask = ServerOutlet._ask_all
    with RespClient(port=server.port) as other, monkeypatch.context() as patched:

        def half(self: ServerOutlet, commands: list[list[bytes]]) -> object:
            true_ask(self, commands[:2])
            other.ask("XADD", "mixed", "*", "value", "theirs")
            true_ask(self, commands[3:4])
            raise StorageError("broken off")

        patched.setattr(ServerOutlet, "_ask_all", half)
        with pytest.raises(StorageError, match="broken off"):
            lab.publish(options, 0, [lab.rows(*(("mixed", str(number)) for number in range(6)))])
    lab.publish(options, 0, [lab.rows(("mixed", "not these"))])
    assert lab.served(server.port, "mixed") == ["0", "1", "theirs", "3", "2", "4", "5"]


def test_on_the_server_entries_that_went_meanwhile_are_in_doubt(
    tmp_path: Path, server: LaminaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lamina.pipeline.sinking.sink_server import ServerOutlet

    options = {"server": f"127.0.0.1:{server.port}", "stagingPath": str(tmp_path)}
    true_add = ServerOutlet.add
    with monkeypatch.context() as patched, pytest.raises(StorageError, match="broken off"):

        def break_off(self: ServerOutlet, *arguments: object) -> None:
            true_add(self, *arguments)  # type: ignore[arg-type]
            raise StorageError("broken off")

        patched.setattr(ServerOutlet, "add", break_off)
        lab.publish(options, 0, [lab.rows(("trimmed", "1"), ("trimmed", "2"))])
    with RespClient(port=server.port) as other:
        other.ask("XTRIM", "trimmed", "MAXLEN", 1)
        with pytest.raises(StorageError, match=r"1 entries for the topic trimmed were perhaps published.*inDoubt"):
            lab.publish(options, 0, [lab.rows(("trimmed", "x"))])
        lab.publish({**options, "inDoubt": "skip"}, 0, [lab.rows(("trimmed", "x"))])
        lab.publish(options, 1, [lab.rows(("trimmed", "3"))])
    assert lab.served(server.port, "trimmed") == ["2", "3"]


def test_the_connection_of_an_attempt_that_broke_off_is_closed(tmp_path: Path, server: LaminaServer) -> None:
    from lamina.pipeline.sinking import sink_server
    from lamina.pipeline.sinking.publications import Chunk

    address = ("127.0.0.1", server.port)
    with (
        sink_server.opened(address, None, "here") as old,
        sink_server.opened(address, None, "elsewhere") as other,
        sink_server.opened(address, None, "here") as new,
    ):
        assert new.find([], Chunk(0, 0, 0), "publish-x-1-y") == set()
        assert other.look([]) == {}
        with pytest.raises(LaminaError, match="connection broke"):
            old._server.ask("PING")
        assert other._server.ask("PING") == b"PONG"


def test_a_server_that_cannot_be_reached_is_named_and_the_batch_can_come_again(
    tmp_path: Path, server: LaminaServer
) -> None:
    staging = {"stagingPath": str(tmp_path)}
    with pytest.raises(LaminaError, match=r"127\.0\.0\.1:1: cannot connect"):
        lab.publish({"server": "127.0.0.1:1", **staging}, 0, [lab.rows(("again", "1"))])
    lab.publish({"server": f"127.0.0.1:{server.port}", **staging}, 0, [lab.rows(("again", "1"))])
    assert lab.served(server.port, "again") == ["1"]


def test_a_server_that_is_killed_in_the_middle_gets_each_entry_once(tmp_path: Path) -> None:
    """It starts again with the same folder, and the publication goes on."""
    staging, many = {"stagingPath": str(tmp_path / "staging")}, [str(number) for number in range(8_000)]
    chance, broken_off = random.Random(3), 0
    for _ in range(4):
        with a_server(tmp_path / "served", "--sync", "always") as server:
            messages = lab.staged(lab.stream(to(server, staging)), [lab.rows(*(("t", value) for value in many))])
            # Early: the first time that all of it gets through, there is nothing left to be killed in.
            timer = threading.Timer(chance.uniform(0.01, 0.08), os.kill, (server.pid, signal.SIGKILL))
            timer.start()
            try:
                lab.stream(to(server, staging)).commit(messages, 0)
            except LaminaError:
                broken_off += 1
            timer.cancel()
            timer.join()
    with a_server(tmp_path / "served") as server:
        lab.publish(to(server, staging), 0, [lab.rows(("t", "not this"))])
        assert lab.served(server.port, "t") == many
    assert broken_off


SESAME = "open"


def test_a_password_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Guarded(LaminaServer):
        __enter__ = Server.__enter__  # type: ignore[assignment]  # nothing is set up: it would have to say the word

    monkeypatch.setenv("LAMINA_PASSWORD", SESAME)
    with Guarded(tmp_path / "served") as server:
        monkeypatch.delenv("LAMINA_PASSWORD")
        options = {"server": f"127.0.0.1:{server.port}", "stagingPath": str(tmp_path / "staging")}
        with pytest.raises(LaminaError, match=r"[Aa]uthentication|password"):
            lab.publish(options, 0, [lab.rows(("t", "1"))])
        lab.publish({**options, "password": SESAME}, 0, [lab.rows(("t", "1"))])
        with RespClient(port=server.port, password=SESAME) as client:
            assert client.ask("XLEN", "t") == 1


# -- much --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("way", ["folder", "server"])
def test_a_hundred_thousand_entries(tmp_path: Path, data: Path, server: LaminaServer, way: str) -> None:
    many = [[("much", f"{part}.{number}") for number in range(25_000)] for part in range(4)]
    options = {"path": str(data)}
    if way == "server":
        options = {"server": f"127.0.0.1:{server.port}", "stagingPath": str(tmp_path)}
    lab.publish(options, 0, [lab.rows(*part) for part in many])
    found = lab.values(data, "much") if way == "folder" else lab.served(server.port, "much")
    assert found == [value for part in many for _, value in part]
