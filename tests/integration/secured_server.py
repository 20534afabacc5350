"""``lamina serve`` with users, certificates and any address, both doors open, for tests of who gets in."""

from __future__ import annotations

import os
import re
import select
import shutil
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest

from integration.workq_server import HOST, LAMINA, START_S, Server
from lamina.server.security import tokens, users
from lamina.server.security.rights import Right
from lamina.server.security.users import User

OPENSSL = shutil.which("openssl")
SECOND = 10**9
_DOOR = re.compile(r"(workq|resp) on [^ ]*:(\d+)")
_PAST = "-batch -config ca.cnf -selfsign -keyfile key.pem -notext -startdate 20200101000000Z -enddate 20200102000000Z"
_CA = """[ca]
default_ca=all
[all]
database=index.txt
serial=serial
new_certs_dir=.
default_md=sha256
policy=any
[any]
commonName=supplied
"""


class SecuredServer(Server):
    """Both doors, on ports that were free; HTTP is off."""

    def __init__(self, folder: Path, *flags: object, host: str = HOST, umask: int | None = None) -> None:
        super().__init__()
        words = ["serve", "--data", folder, "--resp", f"{host}:0", "--workq", f"{host}:0", "--http", "off", *flags]
        self._words = [str(LAMINA), *map(str, words)]
        self._umask = umask
        self.ports: dict[str, int] = {}

    def _prepare(self) -> None:
        super()._prepare()
        if self._umask is not None:
            os.umask(self._umask)

    def _wait_for_port(self) -> int:
        assert self._process.stdout is not None
        said, end = b"", time.monotonic() + START_S
        while (left := end - time.monotonic()) > 0:
            if not select.select([self._process.stdout], [], [], left)[0]:
                break
            more = os.read(self._process.stdout.fileno(), 4096)
            said += more
            self.ports = {door: int(port) for door, port in _DOOR.findall(said.decode(errors="replace"))}
            if b"\n" in said and len(self.ports) == 2:
                return self.ports["resp"]
            if not more:
                break
        raise AssertionError(f"the server did not start: {said!r} {self.complaints()}")


def refused(folder: Path, *flags: object, host: str) -> tuple[int, str]:
    """Exit code and complaints of a server that must not start."""
    words = ["serve", "--data", folder, "--resp", f"{host}:0", "--workq", "off", "--http", "off", *flags]
    ended = subprocess.run(
        [str(LAMINA), *map(str, words)], capture_output=True, text=True, timeout=START_S, check=False
    )
    return ended.returncode, ended.stderr


def make_users(folder: Path, **rights: str) -> None:
    """Each with its name as its token; the time of ``late`` is over."""
    made = {}
    for name, texts in rights.items():
        ends = time.time_ns() - SECOND if name == "late" else None
        made[name] = User(name, tuple(map(Right.parse, texts.split())), tokens.digest(name), 1, ends)
    users.save(str(folder), made)


class Talk:
    """A plain connection, with TLS or without."""

    def __init__(self, port: int, trust: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection((HOST, port), START_S)
        if trust is not None:
            self.socket = trust.wrap_socket(self.socket, server_hostname=HOST)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *problem: object) -> None:
        self._file.close()
        self.socket.close()

    def ask(self, data: bytes) -> bytes:
        """The first line of the answer; empty: the server hung up."""
        self.socket.sendall(data)
        return self._file.readline()

    def rest(self) -> bytes:
        """All up to the end of the connection."""
        return self._file.read()


def certificates(folder: Path) -> dict[str, Path]:
    """Made once: a good one with its key, the key of another, and one that is over. Skips where there is no openssl."""
    if OPENSSL is None:
        pytest.skip("openssl is not installed")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    name = ["-subj", "/CN=localhost", "-addext", f"subjectAltName=IP:{HOST},DNS:localhost"]
    (folder / "ca.cnf").write_text(_CA)
    (folder / "index.txt").write_text("")
    (folder / "serial").write_text("01\n")
    for words in (
        ["req", "-x509", *key, *name, "-days", "30", "-keyout", "key.pem", "-out", "cert.pem"],
        ["req", "-x509", *key, *name, "-days", "30", "-keyout", "other-key.pem", "-out", "other.pem"],
        ["req", "-new", "-key", "key.pem", "-subj", "/CN=localhost", "-out", "request.pem"],
        ["ca", *_PAST.split(), "-in", "request.pem", "-out", "over.pem"],
        ["ec", "-in", "key.pem", "-aes256", "-passout", "pass:sesame", "-out", "locked-key.pem"],
    ):
        subprocess.run([OPENSSL, *words], cwd=folder, check=True, capture_output=True, timeout=60)
    return {path.stem: path for path in folder.glob("*.pem")}


def lamina(*words: object) -> str:
    """What a ``lamina`` command says on standard output."""
    ended = subprocess.run(
        [sys.executable, "-m", "lamina", *map(str, words)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
