"""SIGHUP: what is read by a thread, and used by the loop in one turn."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration.secured_server import certificates
from lamina.errors import BadOption
from lamina.log.files.memory import MemoryFiles
from lamina.server.reloading import Reload
from lamina.server.security import tokens, users
from lamina.server.security.gate import Gate
from lamina.server.security.tls import ServerContext, server_context
from lamina.server.security.users import User
from lamina.server.settings import Reloaded, Settings, TlsSettings
from resp_lab import in_loop
from waiting import until

LONG_S = 60.0


class Door:
    max_connections = 1


class Served:
    def change(self, settings: Settings, door: Door) -> None:
        return


def reload_of(settings: Settings, read: Callable[[], Reloaded], gate: Gate, tls: ServerContext | None = None) -> Any:
    """With a door."""
    made, door = Reload(settings, read, gate, tls), Door()
    made.use([Served()], [door], 0)  # type: ignore[list-item]
    return made, door


class Source:
    """Settings that are read one after the other, each when it is let go."""

    def __init__(self) -> None:
        self.begun = self.read = 0
        self._may_go_on = threading.Semaphore(0)
        self.problem: Exception | None = None

    def __call__(self) -> Reloaded:
        assert threading.current_thread() is not threading.main_thread()
        self.begun += 1
        assert self._may_go_on.acquire(timeout=LONG_S)
        if self.problem is not None:
            raise self.problem
        self.read += 1
        return Reloaded(settings=Settings(max_connections=10 + self.read))

    def go_on(self) -> None:
        self._may_go_on.release()


class Lab:
    """A server that has a door, and users who can be changed."""

    def __init__(self) -> None:
        self.source, self.disk = Source(), MemoryFiles()
        self.gate = Gate("data", files=self.disk)
        self.reload, self.door = reload_of(Settings(), self.source, self.gate)

    def add(self, name: str) -> None:
        users.save("data", {name: User(name, (), tokens.digest(name))}, self.disk)


@in_loop
async def test_the_loop_goes_on_while_files_are_read_and_all_holds_at_once() -> None:
    lab = Lab()
    lab.add("ann")
    lab.reload()
    await until(lambda: lab.source.begun)
    assert (lab.door.max_connections, lab.gate.names) == (1, ["default"])
    lab.source.go_on()
    await until(lambda: lab.door.max_connections == 11)
    assert lab.gate.names == ["ann"]


@in_loop
async def test_those_that_come_while_files_are_read_are_followed_by_one_more() -> None:
    lab = Lab()
    lab.reload()
    await until(lambda: lab.source.begun)
    lab.reload()
    lab.reload()
    lab.source.go_on()
    await until(lambda: lab.source.begun == 2)
    lab.add("ann")
    lab.source.go_on()
    await until(lambda: lab.door.max_connections == 12)
    assert lab.gate.names == ["ann"]
    await asyncio.sleep(0.01)
    assert lab.source.begun == 2
    lab.reload()
    lab.source.go_on()
    await until(lambda: lab.door.max_connections == 13)


@in_loop
async def test_what_cannot_be_read_changes_nothing_and_the_next_one_is_followed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = Lab()
    lab.add("ann")
    for problem in (BadOption("a mistake in it"), ValueError("of ours")):
        lab.source.problem = problem
        lab.reload()
        lab.source.go_on()
        await until(lambda problem=problem: str(problem) in caplog.text)
    assert caplog.text.count("nothing was changed") == 2
    assert (lab.door.max_connections, lab.gate.names) == (1, ["default"])
    lab.source.problem = None
    lab.reload()
    lab.source.go_on()
    await until(lambda: lab.gate.names == ["ann"])


@in_loop
async def test_one_that_is_under_way_when_the_server_stops_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    lab = Lab()
    lab.add("ann")
    lab.reload()
    await until(lambda: lab.source.begun)
    lab.reload.end()
    lab.reload()
    lab.source.go_on()
    await until(lambda: lab.source.read)
    await asyncio.sleep(0.01)
    assert (lab.door.max_connections, lab.gate.names) == (1, ["default"])
    assert (lab.source.begun, caplog.text) == (1, "")


# -- certificates ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return certificates(tmp_path_factory.mktemp("certificates"))


def shown(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """The certificate that a client sees, PEM. Raises: what either says when they do not agree."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)]
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    found = ends[0].getpeercert(binary_form=True)
    assert found is not None
    return ssl.DER_cert_to_PEM_cert(found).strip()


def anyone() -> ssl.SSLContext:
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    return client


@in_loop
async def test_a_renewed_certificate_is_for_those_that_come_then(made: dict[str, Path]) -> None:
    ca = str(made["cert"])
    tls = server_context(str(made["cert"]), str(made["key"]), ca)
    known, stranger = anyone(), anyone()
    known.load_cert_chain(made["cert"], made["key"])
    assert shown(tls, known) == made["cert"].read_text().strip()
    # Who may come is decided when the doors open: another client_ca needs a restart.
    for new_ca in (ca, None, str(made["other"])):
        new = TlsSettings(cert=str(made["other"]), key=str(made["other-key"]), client_ca=new_ca)
        before = Settings(tls=TlsSettings(cert=str(made["cert"]), key=str(made["key"]), client_ca=ca))
        found = Reloaded(settings=Settings(tls=new))
        reload, _ = reload_of(before, lambda found=found: found, Gate(), tls)  # type: ignore[misc]
        tls.renewed = None
        reload()
        await until(lambda: tls.renewed is not None)
        assert shown(tls, known) == made["other"].read_text().strip()
        with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
            shown(tls, stranger)
