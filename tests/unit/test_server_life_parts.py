"""Parts of a server's life that a whole server shows only by luck: slow restores, addresses, early signals."""

from __future__ import annotations

import logging
import os
import signal
import socket
import stat
import threading
from pathlib import Path

import pytest

from lamina.addresses import Address
from lamina.errors import BadOption, DiskError
from lamina.server.life import Life
from lamina.server.listening import Listener
from lamina.server.notifying import notify
from lamina.server.signals import Signals, StopAsked
from lamina.server.telling import told_often


def test_a_restore_that_takes_long_is_told_about_until_it_is_done(caplog: pytest.LogCaptureFixture) -> None:
    life, told = Life(), threading.Event()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.set()

    logger, heard = logging.getLogger("lamina.server"), Heard()
    logger.addHandler(heard)
    try:
        with caplog.at_level("INFO", "lamina.server"), told_often(life, 0.01), life.restoring("jobs") as progress:
            progress(40, 100)
            assert told.wait(30)
    finally:
        logger.removeHandler(heard)
    assert caplog.messages[0].startswith("restoring: 40 %")


def test_a_quick_restore_is_not_told_about(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "lamina.server"), told_often(Life(), 1000):
        pass
    assert caplog.messages == []


def test_a_signal_between_restore_and_loop_is_followed_by_the_loop() -> None:
    import asyncio

    signals, stopped = Signals(), []

    async def run() -> None:
        signals.on_loop(lambda: stopped.append("now"), lambda: None)

    with signals.taken():
        signals.loop_begins()
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        asyncio.run(run())
    assert (stopped, signals.name, signals.wants_reload) == (["now"], "SIGTERM", True)


def test_nobody_can_connect_before_the_door_is_open_and_nobody_else_gets_the_port() -> None:
    listener = Listener(Address("127.0.0.1", 0))
    try:
        port = int(listener.shown.rpartition(":")[2])
        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", port)) != 0
        with socket.socket() as other, pytest.raises(OSError):
            other.bind(("127.0.0.1", port))
    finally:
        listener.close()


def test_all_addresses_of_a_host_get_the_same_port() -> None:
    listener = Listener(Address("", 0))
    try:
        assert len({each.getsockname()[1] for each in listener._sockets}) == 1
        assert listener.shown.startswith("*:")
    finally:
        listener.close()


def test_an_address_that_cannot_be_is_told() -> None:
    with pytest.raises(BadOption, match="there is no such host"):
        Listener(Address("no.such.host.invalid", 1))
    with pytest.raises(DiskError, match=r"192\.0\.2\.1:1: cannot listen: Cannot assign requested address"):
        Listener(Address("192.0.2.1", 1))
    with pytest.raises(DiskError, match="cannot listen: No such file or directory"):
        Listener(Address.parse_listen("unix:/no/such/folder/socket"))


def test_a_reload_that_comes_while_a_start_is_given_up_does_not_break_that_off() -> None:
    signals, closed = Signals(), []
    with signals.taken(), pytest.raises(StopAsked):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGHUP)
            closed.append("engines")
    assert closed == ["engines"] and signals.wants_reload


def test_a_socket_file_of_a_server_that_still_restores_is_its_own(tmp_path: Path) -> None:
    path = tmp_path / "s"
    first = Listener(Address.parse_listen(f"unix:{path}"))
    inode = path.stat().st_ino
    for _ in range(2):
        with pytest.raises(DiskError, match="cannot listen: a server listens there"):
            Listener(Address.parse_listen(f"unix:{path}"))
    assert path.stat().st_ino == inode
    first.close()
    with socket.socket(socket.AF_UNIX) as left:  # of one that was killed
        left.bind(str(path))
    second = Listener(Address.parse_listen(f"unix:{path}"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    second.close()
    assert not path.exists()


def test_a_socket_file_of_another_server_stays_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "s"
    first = Listener(Address.parse_listen(f"unix:{path}"))
    path.unlink()
    second = Listener(Address.parse_listen(f"unix:{path}"))
    first.close()
    assert path.exists()
    second.close()
    assert not path.exists()


@pytest.mark.parametrize("where", ["", "no-path", "/no/such/socket"])
def test_without_systemd_nothing_is_told(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", where)
    notify("READY=1")


@pytest.mark.parametrize(
    ("text", "shown"), [("[::1]:5", "[::1]:5"), (":5", ":5"), ("h:0", "h:0"), ("unix:/a b", "unix:/a b")]
)
def test_addresses_are_read_as_they_are_written(text: str, shown: str) -> None:
    assert str(Address.parse_listen(text)) == shown


@pytest.mark.parametrize("text", ["", "h", "h:", "h:x", "h:65536", "h:-1", "unix:", "unix:" + "a" * 108, "unix:a\0b"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadOption, match="is no address"):
        Address.parse_listen(text)


def test_room_that_is_kept_for_a_full_disk_is_nothing_to_read(tmp_path: Path) -> None:
    from lamina.server.app import _size

    (tmp_path / "000000001.log").write_bytes(bytes(100))
    (tmp_path / "reserve").write_bytes(bytes(5000))
    assert _size(str(tmp_path)) == 100
