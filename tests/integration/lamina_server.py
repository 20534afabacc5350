"""``lamina serve`` with its RESP door as a real process, or a Redis in its place.

``LAMINA_STANDIN=redis`` runs the tests of this door against a real Redis: that is how they were made, and how one sees
that they ask for what Redis does and for nothing else.
"""

from __future__ import annotations

import os
import re
import select
import socket
import time
from pathlib import Path

from integration.redis_peer import RedisPeer
from integration.resp_wire import packed
from integration.workq_server import HOST, LAMINA, START_S, Server

IS_STANDIN = os.environ.get("LAMINA_STANDIN") == "redis"
_PORT = re.compile(rf"resp on {re.escape(HOST)}:(\d+)")


class LaminaServer(Server):
    """``lamina serve`` with the RESP door on a port that was free, and no other door."""

    def __init__(
        self, folder: Path, *flags: object, files: int | None = None, env: dict[str, str] | None = None
    ) -> None:
        """``flags`` as on its command line: ``"--sync", "os"``. ``files``: how many file handles it may have. ``env``:
        what its environment has beside that of the tests."""
        super().__init__(files=files)
        self._env = os.environ | (env or {})
        words = ["serve", "--data", folder, "--resp", f"{HOST}:0", "--workq", "off", *flags]
        self._words = [str(LAMINA), *map(str, words)]

    def __enter__(self) -> LaminaServer:
        super().__enter__()
        with socket.create_connection((HOST, self.port), START_S) as client:
            client.sendall(packed(("CONFIG", "SET", *(word.removeprefix("--") for word in TRIMS_TO_THE_ENTRY))))
            assert client.recv(100) == b"+OK\r\n"
        return self

    def _wait_for_port(self) -> int:
        assert self._process.stdout is not None
        said, end = b"", time.monotonic() + START_S
        while (left := end - time.monotonic()) > 0:
            if not select.select([self._process.stdout], [], [], left)[0]:
                break
            more = os.read(self._process.stdout.fileno(), 4096)
            said += more
            if found := _PORT.search(said.decode(errors="replace").rpartition("\n")[0]):
                return int(found[1])
            if not more:
                break
        raise AssertionError(f"the server did not start: {said!r} {self.complaints()}")


def topic_server(folder: Path, *, sync: str = "os") -> LaminaServer | RedisPeer:
    """A server that keeps its streams in ``folder``: Lamina, or what stands in for it."""
    if not IS_STANDIN:
        return LaminaServer(folder, "--sync", sync)
    folder.mkdir(parents=True, exist_ok=True)
    when = "always" if sync == "always" else "everysec"
    return RedisPeer("--dir", folder, "--appendonly", "yes", "--appendfsync", when, *TRIMS_TO_THE_ENTRY)


TRIMS_TO_THE_ENTRY = ("--stream-node-max-entries", "1")
"""With ``~``, too: with nodes of one entry, whole nodes are whole entries."""
